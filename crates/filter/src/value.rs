//! Numbers and what operators make of them.
//!
//! Integers are those of mathematics from −2⁶³ to 2⁶⁴−1, so that every field of 64 bits has its value,
//! signed or not, and comparisons are right whatever they compare. Arithmetic is exact: a result beyond
//! that range is unknown. Bit operations see two's complement without end, and keep the low 64 bits of
//! what does not fit. `docs/design/filter.md` has the reasons.

use std::cmp::Ordering;

/// A number, or the fact that it isn't known.
///
/// Made by `From` from integers, `f64` and `bool` (false is 0, true is 1), and by [`Value::integer`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value(pub(crate) Repr);

/// 16 bytes, so that a stack of them is quickly made. Integers have one form only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Repr {
    Unknown,
    /// An integer from 0.
    Natural(u64),
    /// An integer below 0.
    Negative(i64),
    /// A floating-point number, by its bits: so the whole is two words that fit into registers.
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

/// How two numbers are compared: a bit for each way in which they may stand to each other, 1 less, 2 equal,
/// 4 greater, 8 neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Comparison {
    /// `==`
    Equal = 2,
    /// `!=`
    NotEqual = 1 | 4 | 8,
    /// `<`
    Less = 1,
    /// `<=`
    LessEqual = 1 | 2,
    /// `>`
    Greater = 4,
    /// `>=`
    GreaterEqual = 2 | 4,
}

impl Comparison {
    pub(crate) const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::Less, Self::LessEqual, Self::Greater, Self::GreaterEqual];

    /// The comparison with its sides exchanged.
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
        // A NaN is neither; it only differs.
        let order = if order == 0 { 8 } else { order };
        self as u8 & order != 0
    }

    /// Whether an order is among those; none is that of a NaN.
    fn accepts(self, order: Option<Ordering>) -> bool {
        order.map_or(self == Self::NotEqual, |order| self.holds(order, Ordering::Equal))
    }

    /// Compares exactly, also an integer with a floating-point number.
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

/// The order of an integer and a floating-point number, by their exact values.
fn compare_with_float(integer: i128, float: f64) -> Option<Ordering> {
    const BEYOND: f64 = 36_893_488_147_419_103_232.0; // 2⁶⁵, more than any integer here
    if float.is_nan() {
        return None;
    }
    if float.abs() >= BEYOND {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let whole = float.trunc();
    // Exact: the whole part has no more than 65 bits before the point and none behind it.
    Some(integer.cmp(&(whole as i128)).then_with(|| whole.total_cmp(&float)))
}

/// An operation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Arithmetic {
    /// `|`
    BitOr,
    /// `^`
    BitXor,
    /// `&`
    BitAnd,
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Remainder,
}

impl Arithmetic {
    /// All, in the order of their numbers.
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

    /// Whether the operation is for integers alone.
    pub(crate) const fn is_integral(self) -> bool {
        !matches!(self, Self::Add | Self::Subtract | Self::Multiply | Self::Divide)
    }

    /// The result; unknown when an operand is, or when there is no such result.
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
                // No bit leaves an i128: 65 of them move by 63 at most.
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

/// Quotient towards zero and remainder with the dividend's sign, as in C.
fn divide(left: i128, right: i128) -> Option<(Value, Value)> {
    // Division of 128 bits is slow, and hardly ever needed.
    if let (Ok(left), Ok(right)) = (u64::try_from(left), u64::try_from(right)) {
        return Some((left.checked_div(right)?.into(), left.checked_rem(right)?.into()));
    }
    Some((Value::integer(left.checked_div(right)?), Value::integer(left.checked_rem(right)?)))
}

impl Value {
    /// Not known here, or nowhere.
    pub const UNKNOWN: Self = Self(Repr::Unknown);

    /// An integer; unknown when it is below −2⁶³ or above 2⁶⁴−1.
    #[inline]
    pub fn integer(value: i128) -> Self {
        match (u64::try_from(value), i64::try_from(value)) {
            (Ok(natural), _) => Self(Natural(natural)),
            (_, Ok(negative)) => Self(Negative(negative)),
            _ => Self::UNKNOWN,
        }
    }

    /// An integer, or the low 64 bits of one that is out of range.
    fn low_bits(value: i128) -> Self {
        match Self::integer(value) {
            Self::UNKNOWN => Self(Natural(value as u64)),
            fitting => fitting,
        }
    }

    /// The integer; nothing for others.
    #[inline]
    pub fn as_integer(self) -> Option<i128> {
        match self.0 {
            Natural(value) => Some(value.into()),
            Negative(value) => Some(value.into()),
            _ => None,
        }
    }

    /// The number as the nearest floating-point one; nothing if it is unknown.
    pub fn as_float(self) -> Option<f64> {
        match self.0 {
            Float(bits) => Some(f64::from_bits(bits)),
            Natural(value) => Some(value as f64),
            Negative(value) => Some(value as f64),
            Repr::Unknown => None,
        }
    }

    /// Whether the number is another than 0 (a NaN is); nothing if it is unknown.
    #[inline]
    pub fn truth(self) -> Option<bool> {
        match self.0 {
            Natural(value) => Some(value != 0),
            Negative(_) => Some(true),
            Float(bits) => Some(f64::from_bits(bits) != 0.0),
            Repr::Unknown => None,
        }
    }

    /// `!`: 1 for 0, 0 for other numbers.
    pub(crate) fn not(self) -> Self {
        self.truth().map_or(Self::UNKNOWN, |truth| (!truth).into())
    }

    /// Unary `-`.
    pub(crate) fn negated(self) -> Self {
        match self.0 {
            Float(bits) => (-f64::from_bits(bits)).into(),
            _ => self.as_integer().map_or(Self::UNKNOWN, |value| Self::integer(-value)),
        }
    }

    /// `~`.
    pub(crate) fn complement(self) -> Self {
        self.as_integer().map_or(Self::UNKNOWN, |value| Self::low_bits(!value))
    }

    /// `&&` as Kleene defined it: false if either side is, whatever the other.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self.truth(), other.truth()) {
            (Some(false), _) | (_, Some(false)) => false.into(),
            (Some(true), Some(true)) => true.into(),
            _ => Self::UNKNOWN,
        }
    }

    /// `||` as Kleene defined it: true if either side is, whatever the other.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self.truth(), other.truth()) {
            (Some(true), _) | (_, Some(true)) => true.into(),
            (Some(false), Some(false)) => false.into(),
            _ => Self::UNKNOWN,
        }
    }
}
