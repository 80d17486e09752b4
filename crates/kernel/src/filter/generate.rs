//! Code generator of filters: a block for each kind of event, which ends with the verdict.
//!
//! Registers: 1 and 2 hold numbers, 6 is the event's image, 7 and 8 are its texts, 9 is what stands
//! beside the event's number. Below the frame's end is room for a thread's name, and for numbers
//! that wait for the other side of an operator.
//!
//! Numbers are those of `tompion_filter`: integers from −2⁶³ to 2⁶⁴−1, which 64 bits hold only if
//! it is known whether there is a sign. So of each part its bounds are computed; where a result
//! might not fit, the reader decides.

use tompion_filter::{Arithmetic, Comparison, Encoding, Place, Program, Scalar, Tree, Value};

use super::{
    code::{Code, Condition, FRAME, Label, Operation, Register},
    layout::{COMM, CPU, PID, TID, Text},
};

pub(super) const IMAGE: Register = 6;
pub(super) const FIRST: Register = 7;
pub(super) const SECOND: Register = 8;
pub(super) const EXTRA: Register = 9;

/// Helpers of the kernel, by number (bpf-helpers(7)).
const CPU_NUMBER: i32 = 8;
const PID_AND_TID: i32 = 14;
const CURRENT_COMM: i32 = 16;

const COMM_BYTES: i16 = 16;
/// Numbers that may wait at a time.
const MAX_WAITING: i16 = 6;

/// Code of a filter for one kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Instructions that jump only inside themselves and end with a verdict.
    pub(super) code: Vec<u64>,
    /// Whether any event can be wanted.
    pub(super) can_pass: bool,
    /// Whether the reader must look at what passes.
    pub(super) by_reader: bool,
    /// Whether it asks for the thread's name, which the reader doesn't know.
    pub(super) asks_comm: bool,
}

impl Block {
    /// Whether neither the program nor the reader can decide alone.
    pub(super) fn is_divided(&self) -> bool {
        self.by_reader && self.asks_comm
    }
}

/// Targets of jumps with a verdict.
#[derive(Clone, Copy)]
struct Exits {
    yes: Label,
    no: Label,
    unknown: Label,
}

/// The bounds of a number. Either both are below 2⁶³, and there is a sign, or both are from 0.
#[derive(Clone, Copy)]
struct Bounds {
    low: i128,
    high: i128,
}

impl Bounds {
    /// Nothing if 64 bits can't hold it.
    fn new(low: i128, high: i128) -> Option<Self> {
        let fits = low >= 0 && high <= u64::MAX.into() || low >= i64::MIN.into() && high <= i64::MAX.into();
        fits.then_some(Self { low, high })
    }

    fn is_natural(self) -> bool {
        self.low >= 0
    }

    fn is_signed(self) -> bool {
        self.high <= i64::MAX.into()
    }

    fn of(scalar: Scalar) -> Option<Self> {
        let bits = u32::from(scalar.size) * 8;
        match scalar.encoding {
            _ if scalar.network => None,
            Encoding::Unsigned => Self::new(0, (1 << bits) - 1),
            Encoding::Signed => Self::new(-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            Encoding::Float => None,
        }
    }
}

/// Reason for having no number.
enum Missing {
    /// The event has none: unknown, here and everywhere.
    Absent,
    /// The reader can tell.
    Here,
}

struct Generator<'a> {
    code: Code,
    program: &'a Program,
    texts: &'a [Option<Text>],
    waiting: i16,
    by_reader: bool,
    asks_comm: bool,
}

/// Compiles a bound filter. `texts` says where the texts are that are numbered in places. Nothing
/// if it gets too large.
pub(super) fn block(program: &Program, texts: &[Option<Text>]) -> Option<Block> {
    let tree = program.tree()?;
    let mut generator =
        Generator { code: Code::default(), program, texts, waiting: 0, by_reader: false, asks_comm: false };
    let (yes, no) = (generator.code.label(), generator.code.label());
    let unknown = generator.code.label();
    generator.condition(&tree, Exits { yes, no, unknown });
    let Generator { mut code, by_reader, asks_comm, .. } = generator;
    let can_pass = code.is_used(yes) || by_reader && code.is_used(unknown);
    for (verdict, label) in [(true, yes), (false, no)] {
        let with_unknown = verdict == by_reader && code.is_used(unknown);
        code.place(label);
        if verdict == by_reader {
            code.place(unknown);
        }
        if code.is_used(label) || with_unknown {
            code.exit(verdict);
        }
    }
    Some(Block { code: code.finish()?, can_pass, by_reader, asks_comm })
}

impl Generator<'_> {
    fn place(&self, operand: usize) -> Place {
        self.program.operands().get(operand).map_or(Place::Absent, |operand| operand.place)
    }

    /// Ends a condition that is not known here.
    fn give_up(&mut self, missing: Missing, exits: Exits) {
        self.by_reader |= matches!(missing, Missing::Here);
        self.code.goto(exits.unknown);
    }

    fn condition(&mut self, tree: &Tree, exits: Exits) {
        match tree {
            Tree::Not(inner) => {
                self.condition(inner, Exits { yes: exits.no, no: exits.yes, ..exits });
            }
            Tree::And(left, right) => {
                let then = Exits { yes: self.code.label(), unknown: self.code.label(), ..exits };
                self.condition(left, then);
                self.second(right, then.yes, exits);
                self.second(right, then.unknown, Exits { yes: exits.unknown, ..exits });
            }
            Tree::Or(left, right) => {
                let then = Exits { no: self.code.label(), unknown: self.code.label(), ..exits };
                self.condition(left, then);
                self.second(right, then.no, exits);
                self.second(right, then.unknown, Exits { no: exits.unknown, ..exits });
            }
            Tree::Text { operand, literal, begins } => self.text(*operand, literal, *begins, exits),
            Tree::Pattern(operand) => {
                self.asks_comm |= self.place(*operand) == Place::Context(COMM);
                let absent = self.place(*operand) == Place::Absent;
                self.give_up(if absent { Missing::Absent } else { Missing::Here }, exits);
            }
            Tree::Same(left, right) => {
                let (left, right) = (Tree::Operand(*left), Tree::Operand(*right));
                self.compare(Comparison::Equal, &left, &right, exits);
            }
            Tree::Compare(comparison, left, right) => self.compare(*comparison, left, right, exits),
            Tree::Within(operand, ranges) => self.within(*operand, ranges, exits),
            Tree::Literal(_)
            | Tree::Operand(_)
            | Tree::Complement(_)
            | Tree::Negate(_)
            | Tree::Arithmetic(..) => match self.number(tree) {
                Ok(_) => {
                    self.code.jump_by(Condition::NotEqual, (1, 0), exits.yes);
                    self.code.goto(exits.no);
                }
                Err(missing) => self.give_up(missing, exits),
            },
        }
    }

    /// The right side of an operator, if anything leads there.
    fn second(&mut self, tree: &Tree, begin: Label, exits: Exits) {
        self.code.place(begin);
        if self.code.is_used(begin) {
            self.condition(tree, exits);
        }
    }

    /// Holds a text against a literal, as many bytes at a time as stand aligned.
    fn text(&mut self, operand: usize, literal: &[u8], begins: bool, exits: Exits) {
        let (base, offset, room) = match self.place(operand) {
            Place::Text { tail } => match self.texts.get(usize::from(tail)).copied().flatten() {
                Some(Text::Array { offset, length }) => (IMAGE, offset, length),
                Some(Text::First) => (FIRST, 0, usize::MAX),
                Some(Text::Second) => (SECOND, 0, usize::MAX),
                None => return self.give_up(Missing::Here, exits),
            },
            Place::Context(COMM) => {
                self.asks_comm = true;
                self.code.operate(Operation::Move, 1, FRAME);
                self.code.operate_by(Operation::Add, 1, (-COMM_BYTES).into());
                self.code.operate_by(Operation::Move, 2, COMM_BYTES.into());
                self.code.call(CURRENT_COMM);
                (FRAME, -COMM_BYTES, COMM_BYTES as usize)
            }
            Place::Elsewhere => return self.give_up(Missing::Here, exits),
            _ => return self.give_up(Missing::Absent, exits),
        };
        let mut wanted = literal.to_vec();
        if !begins && wanted.len() < room {
            wanted.push(0);
        }
        if wanted.len() > room {
            return self.code.goto(exits.no);
        }
        let mut rest = wanted.as_slice();
        let mut at = offset;
        while !rest.is_empty() {
            let sizes = [8usize, 4, 2, 1];
            let fits = |size: &usize| *size <= rest.len() && at.rem_euclid(*size as i16) == 0;
            let size = sizes.into_iter().find(fits).unwrap_or(1);
            let (chunk, behind) = rest.split_at(size);
            let mut word = [0; 8];
            word[..size].copy_from_slice(chunk);
            self.code.load(1, (base, at), size);
            self.code.constant(2, u64::from_le_bytes(word));
            self.code.jump(Condition::NotEqual, (1, 2), exits.no);
            (rest, at) = (behind, at + size as i16);
        }
        self.code.goto(exits.yes);
    }

    fn compare(&mut self, comparison: Comparison, left: &Tree, right: &Tree, exits: Exits) {
        let (left, right) = match self.both(left, right) {
            Ok(bounds) => bounds,
            Err(missing) => return self.give_up(missing, exits),
        };
        let natural = left.is_natural() && right.is_natural();
        let signed = !natural && left.is_signed() && right.is_signed();
        if !natural && !signed {
            // One has a sign and the other one may be too large for any: with the sign, it is the
            // smaller one.
            let (register, holds) = if left.is_natural() {
                (2, accepts(comparison, Comparison::Greater))
            } else {
                (1, accepts(comparison, Comparison::Less))
            };
            let to = if holds { exits.yes } else { exits.no };
            self.code.jump_by(Condition::Less, (register, 0), to);
        }
        self.code.jump(condition(comparison, signed), (1, 2), exits.yes);
        self.code.goto(exits.no);
    }

    fn within(&mut self, operand: usize, ranges: &[(i128, i128)], exits: Exits) {
        let bounds = match self.number(&Tree::Operand(operand)) {
            Ok(bounds) => bounds,
            Err(missing) => return self.give_up(missing, exits),
        };
        let signed = !bounds.is_natural();
        for (low, high) in ranges {
            let (low, high) = (*low.max(&bounds.low), *high.min(&bounds.high));
            if low > high {
                continue;
            }
            let next = self.code.label();
            self.code.constant(2, low as u64);
            self.code.jump(condition(Comparison::Less, signed), (1, 2), next);
            self.code.constant(2, high as u64);
            self.code.jump(condition(Comparison::LessEqual, signed), (1, 2), exits.yes);
            self.code.place(next);
        }
        self.code.goto(exits.no);
    }

    /// Puts two numbers into registers 1 and 2.
    fn both(&mut self, left: &Tree, right: &Tree) -> Result<(Bounds, Bounds), Missing> {
        let first = self.number(left)?;
        if let Tree::Literal(value) = right {
            return Ok((first, self.literal(2, *value)?));
        }
        if self.waiting == MAX_WAITING {
            return Err(Missing::Here);
        }
        let place = (FRAME, -COMM_BYTES - 8 * (self.waiting + 1));
        self.code.store(place, 1);
        self.waiting += 1;
        let second = self.number(right);
        self.waiting -= 1;
        let second = second?;
        self.code.operate(Operation::Move, 2, 1);
        self.code.load(1, place, 8);
        Ok((first, second))
    }

    fn literal(&mut self, to: Register, value: Value) -> Result<Bounds, Missing> {
        let value = value.as_integer().ok_or(Missing::Here)?;
        self.code.constant(to, value as u64);
        Bounds::new(value, value).ok_or(Missing::Here)
    }

    /// Puts a number into register 1.
    fn number(&mut self, tree: &Tree) -> Result<Bounds, Missing> {
        match tree {
            Tree::Literal(value) => self.literal(1, *value),
            Tree::Operand(operand) => self.operand(self.place(*operand)),
            Tree::Negate(inner) => {
                let bounds = self.number(inner)?;
                self.code.negate(1);
                Bounds::new(-bounds.high, -bounds.low).ok_or(Missing::Here)
            }
            Tree::Complement(inner) => {
                let bounds = self.number(inner)?;
                self.code.operate_by(Operation::Xor, 1, -1);
                Bounds::new(-bounds.high - 1, -bounds.low - 1).ok_or(Missing::Here)
            }
            Tree::Arithmetic(arithmetic, left, right) => {
                let (left, right) = self.both(left, right)?;
                let (operation, bounds) = operation(*arithmetic, left, right).ok_or(Missing::Here)?;
                self.code.operate(operation, 1, 2);
                Ok(bounds)
            }
            // A condition in the place of a number.
            _ => Err(Missing::Here),
        }
    }

    fn operand(&mut self, place: Place) -> Result<Bounds, Missing> {
        match place {
            Place::Fixed { offset, scalar } => {
                let bounds = Bounds::of(scalar).ok_or(Missing::Here)?;
                self.load(offset as i16, scalar.size.into());
                let spare = 64 - 8 * i32::from(scalar.size);
                if scalar.encoding == Encoding::Signed && spare != 0 {
                    self.code.operate_by(Operation::ShiftLeft, 1, spare);
                    self.code.operate_by(Operation::ShiftRightSigned, 1, spare);
                }
                Ok(bounds)
            }
            Place::Context(context @ (TID | PID | CPU)) => {
                self.code.call(if context == CPU { CPU_NUMBER } else { PID_AND_TID });
                self.code.operate(Operation::Move, 1, 0);
                if context == PID {
                    self.code.operate_by(Operation::ShiftRight, 1, 32);
                }
                self.code.move_half(1, 1);
                Bounds::new(0, u32::MAX.into()).ok_or(Missing::Here)
            }
            Place::Absent | Place::ByName => Err(Missing::Absent),
            _ => {
                self.asks_comm |= place == Place::Context(COMM);
                Err(Missing::Here)
            }
        }
    }

    /// Loads a number of the image. What stands on the stack must be loaded aligned, so others in
    /// parts.
    fn load(&mut self, offset: i16, size: usize) {
        let part = if offset == 0 { size } else { size.min(1 << offset.trailing_zeros().min(3)) };
        self.code.load(1, (IMAGE, offset), part);
        for at in (part..size).step_by(part) {
            self.code.load(2, (IMAGE, offset + at as i16), part);
            self.code.operate_by(Operation::ShiftLeft, 2, 8 * at as i32);
            self.code.operate(Operation::Or, 1, 2);
        }
    }
}

/// Whether a comparison is true if `order` is the relation between the two sides.
fn accepts(comparison: Comparison, order: Comparison) -> bool {
    comparison as u8 & order as u8 != 0
}

fn condition(comparison: Comparison, signed: bool) -> Condition {
    match (comparison, signed) {
        (Comparison::Equal, _) => Condition::Equal,
        (Comparison::NotEqual, _) => Condition::NotEqual,
        (Comparison::Less, true) => Condition::Less,
        (Comparison::LessEqual, true) => Condition::LessOrEqual,
        (Comparison::Greater, true) => Condition::Greater,
        (Comparison::GreaterEqual, true) => Condition::GreaterOrEqual,
        (Comparison::Less, false) => Condition::Below,
        (Comparison::LessEqual, false) => Condition::BelowOrEqual,
        (Comparison::Greater, false) => Condition::Above,
        (Comparison::GreaterEqual, false) => Condition::AboveOrEqual,
    }
}

/// The instruction for an operator, and the bounds of its result; nothing where there is none that
/// is exact.
fn operation(arithmetic: Arithmetic, left: Bounds, right: Bounds) -> Option<(Operation, Bounds)> {
    let natural = left.is_natural() && right.is_natural();
    let constant = (right.low == right.high).then_some(right.low);
    let all = |numbers: [i128; 4]| {
        let low = numbers.into_iter().min().unwrap_or_default();
        Bounds::new(low, numbers.into_iter().max().unwrap_or_default())
    };
    let bits = |high: i128| (1 << (128 - high.leading_zeros())) - 1;
    let signed = left.is_signed() && right.is_signed();
    Some(match arithmetic {
        Arithmetic::Add => (Operation::Add, Bounds::new(left.low + right.low, left.high + right.high)?),
        Arithmetic::Subtract => {
            (Operation::Subtract, Bounds::new(left.low - right.high, left.high - right.low)?)
        }
        Arithmetic::Multiply => {
            let times = |one: i128, other: i128| one.checked_mul(other);
            let numbers = [
                times(left.low, right.low)?,
                times(left.low, right.high)?,
                times(left.high, right.low)?,
                times(left.high, right.high)?,
            ];
            (Operation::Multiply, all(numbers)?)
        }
        Arithmetic::Divide if natural && constant? > 0 => {
            (Operation::Divide, Bounds::new(left.low / constant?, left.high / constant?)?)
        }
        Arithmetic::Remainder if natural && constant? > 0 => {
            (Operation::Remainder, Bounds::new(0, left.high.min(constant? - 1))?)
        }
        Arithmetic::BitAnd if left.is_natural() || right.is_natural() => {
            let natural = [left, right].into_iter().filter(|bounds| bounds.is_natural());
            (Operation::And, Bounds::new(0, natural.map(|bounds| bounds.high).min()?)?)
        }
        Arithmetic::BitOr if natural => (Operation::Or, Bounds::new(0, bits(left.high.max(right.high)))?),
        Arithmetic::BitXor if natural => (Operation::Xor, Bounds::new(0, bits(left.high.max(right.high)))?),
        Arithmetic::BitAnd | Arithmetic::BitOr | Arithmetic::BitXor if signed => {
            let operation = match arithmetic {
                Arithmetic::BitAnd => Operation::And,
                Arithmetic::BitOr => Operation::Or,
                _ => Operation::Xor,
            };
            (operation, Bounds::new(i64::MIN.into(), i64::MAX.into())?)
        }
        Arithmetic::ShiftLeft if (0..=63).contains(&constant?) => {
            let by = constant? as u32;
            (Operation::ShiftLeft, Bounds::new(left.low << by, left.high << by)?)
        }
        Arithmetic::ShiftRight if (0..=63).contains(&constant?) => {
            let by = constant? as u32;
            let operation =
                if left.is_natural() { Operation::ShiftRight } else { Operation::ShiftRightSigned };
            (operation, Bounds::new(left.low >> by, left.high >> by)?)
        }
        _ => return None,
    })
}
