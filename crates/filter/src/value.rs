//! Numbers, and the results of operators.
//!
//! Integers range from −2⁶³ to 2⁶⁴−1. So every 64-bit field has its exact value, signed or
//! unsigned, and comparisons are always correct. Arithmetic is exact: a result beyond the range is
//! unknown. Bit operations use two's complement of unlimited width, and keep the low 64 bits of a
//! result out of range. The reasons are in `docs/design/filter.md`.

use std::cmp::Ordering;

/// Number that may be unknown.
///
/// Created by `From` from integers, `f64` and `bool` (false is 0, true is 1), and by
/// [`Value::integer`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value(pub(crate) Repr);

/// Representation in 16 bytes, so that a stack of values is cheap to create. Integers have a single
/// representation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Repr {
    Unknown,
    /// Integer from 0.
    Natural(u64),
    /// Integer below 0.
    Negative(i64),
    /// Floating-point number, as its bits: so the whole value is two words that fit in registers.
    Float(u64),
}

use Repr::{Float, Natural, Negative};

impl From<u64> for Value {
    #[inline]
    fn from(value: u64) -> Self {
        Self(Natural(value))
    }
}

impl From<i64> for Value {
    #[inline]
    fn from(value: i64) -> Self {
        Self(if value < 0 { Negative(value) } else { Natural(value as u64) })
    }
}

impl From<f64> for Value {
    #[inline]
    fn from(value: f64) -> Self {
        Self(Float(value.to_bits()))
    }
}

impl From<bool> for Value {
    #[inline]
    fn from(value: bool) -> Self {
        Self(Natural(value.into()))
    }
}

/// Comparison of two numbers: a set of the orders for which it holds. The bits are 1 less, 2 equal,
/// 4 greater, 8 unordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Comparison {
    /// Equal: `==`.
    Equal = 2,
    /// Not equal: `!=`.
    NotEqual = 1 | 4 | 8,
    /// Less: `<`.
    Less = 1,
    /// Less or equal: `<=`.
    LessEqual = 1 | 2,
    /// Greater: `>`.
    Greater = 4,
    /// Greater or equal: `>=`.
    GreaterEqual = 2 | 4,
}

impl Comparison {
    pub(crate) const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::Less, Self::LessEqual, Self::Greater, Self::GreaterEqual];

    /// Returns the comparison with its sides exchanged.
    pub(crate) const fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            same => same,
        }
    }

    #[inline(always)]
    fn holds<T: PartialOrd>(self, left: T, right: T) -> bool {
        let order = u8::from(left < right) | u8::from(left == right) << 1 | u8::from(left > right) << 2;
        // A NaN is unordered: it only differs.
        let order = if order == 0 { 8 } else { order };
        self as u8 & order != 0
    }

    /// Whether the comparison holds for an order; `None` is that of a NaN.
    fn accepts(self, order: Option<Ordering>) -> bool {
        order.map_or(self == Self::NotEqual, |order| self.holds(order, Ordering::Equal))
    }

    /// Compares exactly, including integers with floating-point numbers.
    #[inline(always)]
    pub(crate) fn apply(self, left: Value, right: Value) -> Value {
        match (left.0, right.0) {
            (Natural(left), Natural(right)) => self.holds(left, right).into(),
            _ => self.apply_others(left, right),
        }
    }

    #[inline(never)]
    fn apply_others(self, left: Value, right: Value) -> Value {
        let holds = match (left.0, right.0) {
            (Float(left), Float(right)) => self.holds(f64::from_bits(left), f64::from_bits(right)),
            (Float(left), _) => match right.as_integer() {
                Some(right) => self.mirrored().accepts(compare_with_float(right, f64::from_bits(left))),
                None => return Value::UNKNOWN,
            },
            (_, Float(right)) => match left.as_integer() {
                Some(left) => self.accepts(compare_with_float(left, f64::from_bits(right))),
                None => return Value::UNKNOWN,
            },
            _ => match (left.as_integer(), right.as_integer()) {
                (Some(left), Some(right)) => self.holds(left, right),
                _ => return Value::UNKNOWN,
            },
        };
        holds.into()
    }
}

/// Returns the order of an integer and a floating-point number, by their exact values.
fn compare_with_float(integer: i128, float: f64) -> Option<Ordering> {
    const BEYOND: f64 = 36_893_488_147_419_103_232.0; // 2⁶⁵, more than any integer here
    if float.is_nan() {
        return None;
    }
    if float.abs() >= BEYOND {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let whole = float.trunc();
    // Exact: the integral part has at most 65 bits before the point and none after it.
    Some(integer.cmp(&(whole as i128)).then_with(|| whole.total_cmp(&float)))
}

/// Operation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Arithmetic {
    /// Bitwise or: `|`.
    BitOr,
    /// Bitwise exclusive or: `^`.
    BitXor,
    /// Bitwise and: `&`.
    BitAnd,
    /// Shift left: `<<`.
    ShiftLeft,
    /// Shift right: `>>`.
    ShiftRight,
    /// Addition: `+`.
    Add,
    /// Subtraction: `-`.
    Subtract,
    /// Multiplication: `*`.
    Multiply,
    /// Division: `/`.
    Divide,
    /// Remainder: `%`.
    Remainder,
}

impl Arithmetic {
    /// All operations, ordered by their numbers.
    pub(crate) const ALL: [Self; 10] = [
        Self::BitOr,
        Self::BitXor,
        Self::BitAnd,
        Self::ShiftLeft,
        Self::ShiftRight,
        Self::Add,
        Self::Subtract,
        Self::Multiply,
        Self::Divide,
        Self::Remainder,
    ];

    /// Whether the operation is only defined for integers.
    pub(crate) const fn is_integral(self) -> bool {
        !matches!(self, Self::Add | Self::Subtract | Self::Multiply | Self::Divide)
    }

    /// Returns the result; unknown if an operand is, or if there is no result.
    #[inline(never)]
    pub(crate) fn apply(self, left: Value, right: Value) -> Value {
        match (left.as_integer(), right.as_integer()) {
            (Some(left), Some(right)) => self.apply_integers(left, right),
            _ => match (left.as_float(), right.as_float()) {
                (Some(left), Some(right)) => self.apply_floats(left, right),
                _ => Value::UNKNOWN,
            },
        }
    }

    fn apply_integers(self, left: i128, right: i128) -> Value {
        match self {
            Self::BitOr => Value::low_bits(left | right),
            Self::BitXor => Value::low_bits(left ^ right),
            Self::BitAnd => Value::low_bits(left & right),
            Self::ShiftLeft => match right {
                // No bit is lost in an i128: at most 65 bits are shifted by at most 63.
                0..=63 => Value::low_bits(left << right),
                64.. => Value::from(0u64),
                _ => Value::UNKNOWN,
            },
            Self::ShiftRight => match right {
                0.. => Value::low_bits(left >> right.min(127)),
                _ => Value::UNKNOWN,
            },
            Self::Add => Value::integer(left + right),
            Self::Subtract => Value::integer(left - right),
            Self::Multiply => left.checked_mul(right).map_or(Value::UNKNOWN, Value::integer),
            Self::Divide => divide(left, right).map_or(Value::UNKNOWN, |(quotient, _)| quotient),
            Self::Remainder => divide(left, right).map_or(Value::UNKNOWN, |(_, remainder)| remainder),
        }
    }

    fn apply_floats(self, left: f64, right: f64) -> Value {
        match self {
            Self::Add => Value::from(left + right),
            Self::Subtract => Value::from(left - right),
            Self::Multiply => Value::from(left * right),
            Self::Divide if right != 0.0 => Value::from(left / right),
            _ => Value::UNKNOWN,
        }
    }
}

/// Returns the quotient rounded towards zero, and the remainder with the dividend's sign, as in C.
fn divide(left: i128, right: i128) -> Option<(Value, Value)> {
    // Division of 128 bits is slow, and rarely needed.
    if let (Ok(left), Ok(right)) = (u64::try_from(left), u64::try_from(right)) {
        return Some((left.checked_div(right)?.into(), left.checked_rem(right)?.into()));
    }
    Some((Value::integer(left.checked_div(right)?), Value::integer(left.checked_rem(right)?)))
}

impl Value {
    /// Unknown value.
    pub const UNKNOWN: Self = Self(Repr::Unknown);

    /// Creates an integer; unknown if it is below −2⁶³ or above 2⁶⁴−1.
    #[inline]
    pub fn integer(value: i128) -> Self {
        match (u64::try_from(value), i64::try_from(value)) {
            (Ok(natural), _) => Self(Natural(natural)),
            (_, Ok(negative)) => Self(Negative(negative)),
            _ => Self::UNKNOWN,
        }
    }

    /// Creates an integer, or the low 64 bits of one that is out of range.
    fn low_bits(value: i128) -> Self {
        match Self::integer(value) {
            Self::UNKNOWN => Self(Natural(value as u64)),
            fitting => fitting,
        }
    }

    /// Returns the integer; `None` for other values.
    #[inline]
    pub fn as_integer(self) -> Option<i128> {
        match self.0 {
            Natural(value) => Some(value.into()),
            Negative(value) => Some(value.into()),
            _ => None,
        }
    }

    /// Returns the nearest floating-point number; `None` for an unknown value.
    pub fn as_float(self) -> Option<f64> {
        match self.0 {
            Float(bits) => Some(f64::from_bits(bits)),
            Natural(value) => Some(value as f64),
            Negative(value) => Some(value as f64),
            Repr::Unknown => None,
        }
    }

    /// Whether the number is not 0 (a NaN is not); `None` for an unknown value.
    #[inline]
    pub fn truth(self) -> Option<bool> {
        match self.0 {
            Natural(value) => Some(value != 0),
            Negative(_) => Some(true),
            Float(bits) => Some(f64::from_bits(bits) != 0.0),
            Repr::Unknown => None,
        }
    }

    /// Logical negation `!`: 1 for 0, 0 for other numbers.
    pub(crate) fn not(self) -> Self {
        self.truth().map_or(Self::UNKNOWN, |truth| (!truth).into())
    }

    /// Arithmetic negation, unary `-`.
    pub(crate) fn negated(self) -> Self {
        match self.0 {
            Float(bits) => (-f64::from_bits(bits)).into(),
            _ => self.as_integer().map_or(Self::UNKNOWN, |value| Self::integer(-value)),
        }
    }

    /// Bitwise complement, `~`.
    pub(crate) fn complement(self) -> Self {
        self.as_integer().map_or(Self::UNKNOWN, |value| Self::low_bits(!value))
    }

    /// Kleene's conjunction `&&`: false if either side is false, whatever the other.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self.truth(), other.truth()) {
            (Some(false), _) | (_, Some(false)) => false.into(),
            (Some(true), Some(true)) => true.into(),
            _ => Self::UNKNOWN,
        }
    }

    /// Kleene's disjunction `||`: true if either side is true, whatever the other.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self.truth(), other.truth()) {
            (Some(true), _) | (_, Some(true)) => true.into(),
            (Some(false), Some(false)) => false.into(),
            _ => Self::UNKNOWN,
        }
    }
}
