//! Conditions on integers of a record's fixed part, tested without a value for each operand.
//!
//! Most filters are a few comparisons of integer fields with literals. Each is a test whether the
//! field is in a range, or outside: one subtraction and one comparison.

use crate::expression::Logic;
use crate::program::{Op, Operand, Program, Verdict};
use crate::schema::{Encoding, Place};
use crate::value::{Comparison, Value};

/// Maximum number of conditions that are tested this way. More are rare.
const MAX_CONDITIONS: usize = 8;

/// Conditions that one operator combines.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conditions {
    tests: Vec<RangeTest>,
    /// Result of a test that decides alone: false for `&&`, true for `||`.
    decisive: bool,
    /// Size of the smallest fixed part that has all fields.
    min_size: usize,
}

/// Test whether an integer is in a range, or outside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RangeTest {
    offset: usize,
    size: u8,
    is_signed: bool,
    /// Result for integers in the range.
    inside: bool,
    /// Smallest integer of the range, in two's complement.
    low: u64,
    /// Distance of the largest one.
    span: u64,
}

impl Conditions {
    /// Returns the conditions of a program, if it has no others.
    pub(crate) fn of(program: &Program) -> Option<Self> {
        let logic = program.chain?;
        let is_condition = |op: &&Op| !matches!(op, Op::Shortcut { .. } | Op::Combine(_));
        let conditions = program.ops.iter().filter(is_condition);
        let tests = conditions.map(|op| RangeTest::of(op, &program.operands)).collect::<Option<Vec<_>>>()?;
        let min_size = tests.iter().map(|test| test.offset + usize::from(test.size)).max()?;
        (tests.len() <= MAX_CONDITIONS).then_some(Self { tests, decisive: logic == Logic::Or, min_size })
    }

    /// Returns the verdict on a record. None if its fixed part lacks a field.
    #[inline(always)]
    pub(crate) fn verdict(&self, fixed: &[u8]) -> Option<Verdict> {
        if fixed.len() < self.min_size {
            return None;
        }
        for test in &self.tests {
            if test.holds(fixed)? == self.decisive {
                return Some(Verdict::of_bool(self.decisive));
            }
        }
        Some(Verdict::of_bool(!self.decisive))
    }
}

impl RangeTest {
    /// Returns the test of an operation, if it compares an integer of the fixed part with one.
    fn of(op: &Op, operands: &[Operand]) -> Option<Self> {
        let Op::CompareWith { operand, comparison, literal } = *op else { return None };
        let Place::Fixed { offset, scalar } = operands.get(usize::from(operand))?.place else { return None };
        let is_native = scalar.encoding != Encoding::Float && (!scalar.network || scalar.size == 1);
        if !is_native || !scalar.is_sound() {
            return None;
        }
        let is_signed = scalar.encoding == Encoding::Signed;
        let bits = 8 * u32::from(scalar.size);
        let domain =
            if is_signed { -(1i128 << (bits - 1))..=(1 << (bits - 1)) - 1 } else { 0..=(1 << bits) - 1 };
        let (low, high, inside) = range(comparison, literal, (*domain.start(), *domain.end()))?;
        let (low, span) = (low as u64, (high - low) as u64);
        Some(Self { offset: offset as usize, size: scalar.size, is_signed, inside, low, span })
    }

    #[inline(always)]
    fn holds(&self, fixed: &[u8]) -> Option<bool> {
        let bytes = fixed.get(self.offset..)?;
        let word = match self.size {
            8 => u64::from_le_bytes(*bytes.first_chunk()?),
            4 => u64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
            2 => u64::from(u16::from_le_bytes(*bytes.first_chunk()?)),
            _ => u64::from(*bytes.first()?),
        };
        let spare = (64 - 8 * u32::from(self.size)) & 63;
        let word = if self.is_signed { ((word << spare) as i64 >> spare) as u64 } else { word };
        Some((word.wrapping_sub(self.low) <= self.span) == self.inside)
    }
}

/// Returns the range of a field's integers by which a comparison is decided, and its result for
/// those in it. None if the literal is no integer.
fn range(comparison: Comparison, literal: Value, (min, max): (i128, i128)) -> Option<(i128, i128, bool)> {
    let literal = literal.as_integer()?;
    let (low, high, inside) = match comparison {
        Comparison::Equal => (literal, literal, true),
        Comparison::NotEqual => (literal, literal, false),
        Comparison::Less => (min, literal - 1, true),
        Comparison::LessEqual => (min, literal, true),
        Comparison::Greater => (literal + 1, max, true),
        Comparison::GreaterEqual => (literal, max, true),
    };
    let (low, high) = (low.max(min), high.min(max));
    // An empty range: the same as that of all integers, with the opposite result.
    Some(if low <= high { (low, high, inside) } else { (min, max, !inside) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use crate::program::Values;
    use crate::record::RecordValues;
    use crate::schema::{Found, Kind, Scalar, Schema};

    /// Two fields of the same type, of which the second one begins where no multiple of 8 is.
    struct Fields(Scalar);

    impl Schema for Fields {
        fn find(&self, name: &Name) -> Found<'_> {
            let offset = if name.head() == "a" { 0 } else { 9 };
            Found { place: Place::Fixed { offset, scalar: self.0 }, kind: Kind::Integer }
        }
    }

    /// The same values, one by one.
    struct OneByOne<'a>(RecordValues<'a>);

    impl Values for OneByOne<'_> {
        fn number(&self, operand: &Operand) -> Value {
            self.0.number(operand)
        }

        fn text(&self, operand: &Operand) -> Option<&[u8]> {
            self.0.text(operand)
        }
    }

    const LITERALS: [&str; 14] = [
        "0",
        "1",
        "-1",
        "127",
        "-128",
        "255",
        "256",
        "-32768",
        "65535",
        "4294967295",
        "-2147483648",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
    ];

    fn program(text: &str, scalar: Scalar) -> Program {
        let expression = crate::parse(text).expect("a filter");
        crate::compile(&expression, &Fields(scalar)).expect("a program")
    }

    fn check(program: &Program, fixed: &[u8], text: &str) {
        let values = RecordValues::<[&[u8]]>::new(fixed, &[]);
        let verdict = program.evaluate(&values);
        assert_eq!(verdict, program.evaluate(&OneByOne(values)), "{text} on {fixed:?}");
    }

    /// Fixed parts with all edges of all types.
    fn parts() -> Vec<[u8; 17]> {
        let numbers = LITERALS.map(|literal| literal.parse::<i128>().expect("a number") as u64);
        let pairs = numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b)));
        let part = |(a, b): (u64, u64)| {
            let mut part = [0xa5; 17];
            part[..8].copy_from_slice(&a.to_le_bytes());
            part[9..].copy_from_slice(&b.to_le_bytes());
            part
        };
        pairs.map(part).collect()
    }

    #[test]
    fn verdicts_are_those_of_the_operations() {
        let parts = parts();
        for encoding in [Encoding::Unsigned, Encoding::Signed] {
            for size in [1, 2, 4, 8] {
                let scalar = Scalar { size, encoding, network: false };
                for literal in LITERALS {
                    for comparison in ["==", "!=", "<", "<=", ">", ">="] {
                        let text = format!("a {comparison} {literal}");
                        let program = program(&text, scalar);
                        assert!(program.conditions.is_some(), "{text}");
                        parts.iter().for_each(|part| check(&program, part, &text));
                    }
                }
                for logic in ["&&", "||"] {
                    let text = format!("a > 1 {logic} b != 255 {logic} a <= 65535");
                    let program = program(&text, scalar);
                    assert!(program.conditions.is_some(), "{text}");
                    parts.iter().for_each(|part| check(&program, part, &text));
                }
            }
        }
    }

    #[test]
    fn a_record_that_lacks_a_field_is_left_to_the_operations() {
        let scalar = Scalar { size: 4, encoding: Encoding::Unsigned, network: false };
        for text in ["a == 1 && b == 2", "a == 1 || b == 2", "b < 5"] {
            let program = program(text, scalar);
            let part = [1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0];
            (0..=part.len()).for_each(|len| check(&program, &part[..len], text));
        }
    }

    #[test]
    fn other_programs_have_none() {
        let scalar = |encoding, network| Scalar { size: 8, encoding, network };
        let plain = scalar(Encoding::Unsigned, false);
        for text in
            ["a == b", "a + 1 == 2", "a == 1 && (b == 2 || b == 3)", "a == 1.5", "a > 1 && b % 2 == 0"]
        {
            assert!(program(text, plain).conditions.is_none(), "{text}");
        }
        assert!(program("a == 1", scalar(Encoding::Float, false)).conditions.is_none());
        assert!(program("a == 1", scalar(Encoding::Unsigned, true)).conditions.is_none());
    }
}
