//! Programs and their evaluation.
//!
//! A program is a list of operations for a stack machine. Jumps only go forwards, so each operation
//! runs at most once. The number of values on the stack at each operation is known beforehand
//! (`bytes.rs` verifies it). An operation without a known result yields [`Value::UNKNOWN`], and
//! operators propagate it.

use crate::conditions::Conditions;
use crate::expression::{Logic, Unary};
use crate::name::Name;
use crate::pattern;
use crate::schema::{Encoding, Place};
use crate::value::{Arithmetic, Comparison, Repr, Value};

/// Filter that can be evaluated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    pub(crate) operands: Vec<Operand>,
    pub(crate) ops: Vec<Op>,
    /// Bytes of text literals.
    pub(crate) texts: Vec<u8>,
    /// Ranges of numbers that labels expand to: low and high.
    pub(crate) ranges: Vec<(i128, i128)>,
    /// Maximum number of values on the stack.
    pub(crate) height: usize,
    /// Operator of a program that only combines conditions by this operator, as most do. Such a
    /// program is evaluated without a stack.
    pub(crate) chain: Option<Logic>,
    /// Conditions that can be tested at once, if the program has no others.
    pub(crate) conditions: Option<Conditions>,
}

/// Operand of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// Name of the operand.
    pub name: Name,
    /// Place from which it is loaded.
    pub place: Place,
    /// Number of the operand in the program, counted from 0.
    pub index: usize,
}

/// Verdict of a program on an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The event is rejected.
    False,
    /// The event is accepted.
    True,
    /// The verdict is unknown here. A later evaluator may know more; for the last one, it counts as
    /// false.
    Unknown,
}

/// Source of a program's values.
///
/// A value that is absent, or has another kind than requested, is unknown. Implementations must not
/// panic.
pub trait Values {
    /// Returns the number of an operand: an integer, a floating-point number, a boolean as 0 or 1,
    /// or an enumeration as its integer.
    fn number(&self, operand: &Operand) -> Value;

    /// Returns the text of an operand. Bytes after a NUL are not part of it.
    fn text(&self, operand: &Operand) -> Option<&[u8]>;

    /// Returns the fixed part of a record, which [`Place::Fixed`] is loaded from; `None` if values
    /// come from elsewhere.
    fn fixed_part(&self) -> Option<&[u8]> {
        None
    }

    /// Whether `wanted` accepts one of the labels of an enumeration's value. `None` for operands
    /// that are not enumerations, and if labels are resolved beforehand.
    fn has_label(&self, operand: &Operand, wanted: &dyn Fn(&[u8]) -> bool) -> Option<bool> {
        let _ = (operand, wanted);
        None
    }
}

/// Operation. Operands are numbers of [`Program::operands`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    Push(Value),
    Load(u8),
    Unary(Unary),
    Compare(Comparison),
    /// Compares an operand with a literal: the most frequent operation.
    CompareWith {
        operand: u8,
        comparison: Comparison,
        literal: Value,
    },
    Arithmetic(Arithmetic),
    Combine(Logic),
    /// If the top value decides already (false for `&&`, true for `||`), jumps to that operation
    /// and leaves the decision on top.
    Shortcut {
        logic: Logic,
        to: u16,
    },
    /// Compares an operand's text, or label, with a literal.
    Text {
        operand: u8,
        test: TextTest,
        begin: u16,
        length: u8,
    },
    /// Tests whether two operands are the same text, or the same number.
    Same {
        left: u8,
        right: u8,
    },
    /// Tests whether an operand's integer is in one of these ranges.
    Within {
        operand: u8,
        begin: u16,
        count: u8,
    },
}

/// Comparison of a text with a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTest {
    Is,
    Begins,
    Matches,
}

impl TextTest {
    /// Whether the test accepts a text.
    #[inline]
    pub(crate) fn takes(self, literal: &[u8], text: &[u8]) -> bool {
        // Literals have no NUL, so only a star could match the one that ends the text.
        match self {
            Self::Is => text.starts_with(literal) && matches!(text.get(literal.len()), None | Some(0)),
            Self::Begins => text.starts_with(literal),
            Self::Matches => pattern::matches(literal, pattern::until_nul(text)),
        }
    }
}

impl Verdict {
    /// The verdict of a condition that is known.
    #[inline(always)]
    pub(crate) const fn of_bool(is_true: bool) -> Self {
        if is_true { Self::True } else { Self::False }
    }

    fn of(value: Value) -> Self {
        match value.truth() {
            Some(true) => Self::True,
            Some(false) => Self::False,
            None => Self::Unknown,
        }
    }

    /// Whether the event is known to be accepted: the rule for the last evaluator.
    pub fn is_true(self) -> bool {
        self == Self::True
    }
}

impl Program {
    /// Returns the operands of the program.
    pub fn operands(&self) -> &[Operand] {
        &self.operands
    }

    /// Whether the program uses operands that only a later evaluator can know. If not, an unknown
    /// verdict remains unknown everywhere, and counts as false at once.
    pub fn defers(&self) -> bool {
        self.operands.iter().any(|operand| operand.place == Place::Elsewhere)
    }

    /// Whether an evaluation may compute with floating-point numbers, if operands are where they
    /// were bound to be. Evaluators in processes with their own floating-point environment need to
    /// know.
    pub fn has_floats(&self) -> bool {
        let is_float = |value: &Value| matches!(value.0, Repr::Float(_));
        let is_literal = |op: &Op| match op {
            Op::Push(value) | Op::CompareWith { literal: value, .. } => is_float(value),
            _ => false,
        };
        self.ops.iter().any(is_literal)
            || self.operands.iter().any(|operand| match operand.place {
                Place::Fixed { scalar, .. } | Place::Element { scalar, .. } => {
                    scalar.encoding == Encoding::Float
                }
                Place::ByName => true,
                Place::Absent | Place::Elsewhere | Place::Text { .. } | Place::Context(_) => false,
            })
    }

    /// Evaluates the program. Does not allocate, does not panic; each operation runs at most once.
    #[inline]
    pub fn evaluate(&self, values: &(impl Values + ?Sized)) -> Verdict {
        match values.fixed_part().and_then(|fixed| self.decide(fixed)) {
            Some(verdict) => verdict,
            None => self.evaluate_operations(values),
        }
    }

    /// Returns the verdict on a record, if its fixed part and a few comparisons of integers decide.
    #[inline(always)]
    pub fn decide(&self, fixed: &[u8]) -> Option<Verdict> {
        self.conditions.as_ref()?.verdict(fixed)
    }

    #[inline]
    fn evaluate_operations(&self, values: &(impl Values + ?Sized)) -> Verdict {
        match self.chain {
            Some(logic) => self.chained(logic, values),
            None => Verdict::of(self.value(values)),
        }
    }

    /// Evaluates a chain: the first decisive condition ends it. Without one, the result is the
    /// opposite verdict, or unknown if a condition is unknown.
    #[inline]
    fn chained(&self, logic: Logic, values: &(impl Values + ?Sized)) -> Verdict {
        let decisive = logic == Logic::Or;
        let mut verdict = if decisive { Verdict::False } else { Verdict::True };
        for op in &self.ops {
            let condition = match *op {
                Op::CompareWith { operand, comparison, ref literal } => {
                    comparison.apply(self.number(values, operand), *literal)
                }
                Op::Shortcut { .. } | Op::Combine(_) => continue,
                _ => self.condition(values, op),
            };
            match condition.truth() {
                Some(truth) if truth == decisive => return Verdict::of(condition),
                Some(_) => {}
                None => verdict = Verdict::Unknown,
            }
        }
        verdict
    }

    /// Returns the value of an operation that takes nothing from the stack.
    #[inline(never)]
    fn condition(&self, values: &(impl Values + ?Sized), op: &Op) -> Value {
        match *op {
            Op::Push(value) => value,
            Op::Load(operand) => self.number(values, operand),
            Op::CompareWith { operand, comparison, literal } => {
                comparison.apply(self.number(values, operand), literal)
            }
            Op::Text { operand, test, begin, length } => {
                self.text_test(values, operand, test, self.literal(begin, length))
            }
            Op::Same { left, right } => self.same(values, left, right),
            Op::Within { operand, begin, count } => {
                within(self.number(values, operand), self.ranges(begin, count))
            }
            Op::Unary(_) | Op::Compare(_) | Op::Arithmetic(_) | Op::Combine(_) | Op::Shortcut { .. } => {
                Value::UNKNOWN
            }
        }
    }

    #[inline]
    pub(crate) fn value(&self, values: &(impl Values + ?Sized)) -> Value {
        // Small stacks are cheap to create, and few programs need more.
        match self.height {
            0..=4 => self.run::<4>(values),
            5..=16 => self.run::<16>(values),
            _ => self.run::<{ crate::MAX_STACK }>(values),
        }
    }

    fn run<const HEIGHT: usize>(&self, values: &(impl Values + ?Sized)) -> Value {
        let mut stack = Stack { top: Value::UNKNOWN, below: [Value::UNKNOWN; HEIGHT], height: 0 };
        let mut at = 0;
        while let Some(op) = self.ops.get(at) {
            at += 1;
            match *op {
                Op::CompareWith { operand, comparison, ref literal } => {
                    stack.push(comparison.apply(self.number(values, operand), *literal));
                }
                Op::Shortcut { logic, to } => {
                    let decisive = logic == Logic::Or;
                    if stack.top.truth() == Some(decisive) {
                        stack.top = decisive.into();
                        at = to.into();
                    }
                }
                Op::Combine(logic) => {
                    let left = stack.pop();
                    stack.top = logic.apply(left, stack.top);
                }
                Op::Unary(unary) => stack.top = unary.apply(stack.top),
                Op::Compare(comparison) => {
                    let left = stack.pop();
                    stack.top = comparison.apply(left, stack.top);
                }
                Op::Arithmetic(arithmetic) => {
                    let left = stack.pop();
                    stack.top = arithmetic.apply(left, stack.top);
                }
                _ => stack.push(self.condition(values, op)),
            }
        }
        stack.top
    }

    #[inline]
    fn number(&self, values: &(impl Values + ?Sized), operand: u8) -> Value {
        self.operands.get(usize::from(operand)).map_or(Value::UNKNOWN, |operand| values.number(operand))
    }

    #[inline(never)]
    fn text_test(
        &self,
        values: &(impl Values + ?Sized),
        operand: u8,
        test: TextTest,
        literal: &[u8],
    ) -> Value {
        let Some(operand) = self.operands.get(usize::from(operand)) else { return Value::UNKNOWN };
        let holds = match values.text(operand) {
            Some(text) => Some(test.takes(literal, text)),
            None => values.has_label(operand, &|label| test.takes(literal, label)),
        };
        holds.map_or(Value::UNKNOWN, Value::from)
    }

    #[inline(never)]
    fn same(&self, values: &(impl Values + ?Sized), left: u8, right: u8) -> Value {
        let operands = (self.operands.get(usize::from(left)), self.operands.get(usize::from(right)));
        let (Some(left), Some(right)) = operands else { return Value::UNKNOWN };
        match (values.text(left), values.text(right)) {
            (Some(left), Some(right)) => (pattern::until_nul(left) == pattern::until_nul(right)).into(),
            _ => Comparison::Equal.apply(values.number(left), values.number(right)),
        }
    }

    /// Returns the bytes of a text literal.
    pub(crate) fn literal(&self, begin: u16, length: u8) -> &[u8] {
        let begin = usize::from(begin);
        self.texts.get(begin..begin + usize::from(length)).unwrap_or_default()
    }

    /// Returns the ranges of a [`Op::Within`].
    pub(crate) fn ranges(&self, begin: u16, count: u8) -> &[(i128, i128)] {
        let begin = usize::from(begin);
        self.ranges.get(begin..begin + usize::from(count)).unwrap_or_default()
    }
}

impl Op {
    /// Returns the number of values that the operation takes from the stack and puts there.
    pub(crate) const fn effect(self) -> (usize, usize) {
        match self {
            Self::Push(_) | Self::Load(_) | Self::CompareWith { .. } => (0, 1),
            Self::Text { .. } | Self::Same { .. } | Self::Within { .. } => (0, 1),
            Self::Unary(_) | Self::Shortcut { .. } => (1, 1),
            Self::Compare(_) | Self::Arithmetic(_) | Self::Combine(_) => (2, 1),
        }
    }
}

/// Returns the only operator by which operations are combined, if there is a single one. (A single
/// condition is a chain of either.)
///
/// The program's verdict is then that operator applied to all its conditions, wherever its
/// shortcuts lead: each evaluated condition is part of the result, and none is skipped before
/// another has decided.
pub(crate) fn chain(ops: &[Op]) -> Option<Logic> {
    let of = |op: &Op| match op {
        Op::Combine(logic) | Op::Shortcut { logic, .. } => Some(*logic),
        _ => None,
    };
    let logic = ops.iter().find_map(of).unwrap_or(Logic::And);
    let is_link = |op: &Op| of(op) == Some(logic) || op.effect() == (0, 1);
    ops.iter().all(is_link).then_some(logic)
}

impl Logic {
    fn apply(self, left: Value, right: Value) -> Value {
        match self {
            Self::And => left.and(right),
            Self::Or => left.or(right),
        }
    }
}

/// Whether an integer is in one of these ranges.
#[inline(never)]
fn within(value: Value, ranges: &[(i128, i128)]) -> Value {
    let within = |value| ranges.iter().any(|(low, high)| (*low..=*high).contains(&value));
    value.as_integer().map_or(Value::UNKNOWN, |value| within(value).into())
}

/// Stack with its top value in a separate field. Verified programs never exceed its bounds.
struct Stack<const HEIGHT: usize> {
    top: Value,
    below: [Value; HEIGHT],
    /// Number of values below the top; the first one is a placeholder.
    height: usize,
}

impl<const HEIGHT: usize> Stack<HEIGHT> {
    #[inline(always)]
    fn push(&mut self, value: Value) {
        if let Some(place) = self.below.get_mut(self.height) {
            *place = self.top;
        }
        self.height += 1;
        self.top = value;
    }

    /// Pops the value below the top.
    #[inline(always)]
    fn pop(&mut self) -> Value {
        self.height = self.height.wrapping_sub(1);
        self.below.get(self.height).copied().unwrap_or(Value::UNKNOWN)
    }
}
