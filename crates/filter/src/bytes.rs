//! Serializes programs, and verifies bytes from untrusted sources.
//!
//! ```text
//! program:      magic u32 "TFP1" │ size u16 │ code u16 │ operands u8 │ 0 u8 [3] │ operand, …
//!               │ operation, …
//! operand:      size u16 │ scope u8 │ place u8 │ scalar u8 │ segments u8 │ tail u16 │ offset u32
//!               │ segment, …
//! segment:      1 │ size u8 │ name            or   2 │ index u32
//! operation:    code u8, then
//!   natural     u64            an integer from 0           compare     comparison u8
//!   negative    i64            an integer below 0          arithmetic  operation u8
//!   float       f64                                        and, or     –
//!   load        operand u8                                 if false    distance u16
//!   not, ~, -   –                                          if true     distance u16
//!   same        operand u8 │ operand u8
//!   is, begins, matches        operand u8 │ size u8 │ bytes
//!   with        operand u8 │ comparison u8 │ natural, negative or float
//!   within      operand u8 │ count u8 │ (signs u8 │ low u64 │ high u64)…
//! ```
//!
//! Everything is packed and little-endian; `size` is the size of the whole, `code` that of all
//! operations. In `signs`, bit 0 states that `low` is the two's complement of an integer below 0,
//! and bit 1 the same of `high`. A distance counts bytes from the end of its operation. `tail`
//! holds the number of the tail or of the context, `offset` the offset or the index of the element.
//!
//! [`Program::from_bytes`] accepts only programs that can be evaluated:
//!
//! - each operation and operand is known
//! - no literal has a NUL
//! - jumps go forwards, to the beginning of an operation or to the end
//! - the stack never holds fewer values than an operation takes, nor more than [`MAX_STACK`]
//! - it holds equally many on all paths to an operation, and one at the end

use crate::conditions::Conditions;
use crate::expression::{Logic, Unary};
use crate::name::{Name, Scope, Segment};
use crate::program::{self, Op, Operand, Program, TextTest};
use crate::schema::{Encoding, Place, Scalar};
use crate::value::{Arithmetic, Comparison, Repr, Value};
use crate::{MAX_OPERANDS, MAX_PROGRAM, MAX_SEGMENTS, MAX_STACK};

const MAGIC: u32 = u32::from_le_bytes(*b"TFP1");
const HEADER: usize = 12;
const OPERAND_HEADER: usize = 12;

/// Codes of operations.
mod code {
    pub const NATURAL: u8 = 1;
    pub const NEGATIVE: u8 = 2;
    pub const FLOAT: u8 = 3;
    pub const LOAD: u8 = 4;
    pub const NOT: u8 = 5;
    pub const COMPLEMENT: u8 = 6;
    pub const NEGATE: u8 = 7;
    pub const COMPARE: u8 = 8;
    pub const COMPARE_WITH: u8 = 9;
    pub const ARITHMETIC: u8 = 10;
    pub const AND: u8 = 11;
    pub const OR: u8 = 12;
    pub const IF_FALSE: u8 = 13;
    pub const IF_TRUE: u8 = 14;
    pub const IS: u8 = 15;
    pub const BEGINS: u8 = 16;
    pub const MATCHES: u8 = 17;
    pub const SAME: u8 = 18;
    pub const WITHIN: u8 = 19;
}

/// Reason why bytes are not a valid program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The bytes end inside an item, or a size points beyond them.
    #[error("a program is cut off in its {0}")]
    Cut(&'static str),
    /// The first word is not the expected one.
    #[error("expected a program, found the word {0:#010x}")]
    Magic(u32),
    /// The program has too many bytes.
    #[error("more than {MAX_PROGRAM} bytes")]
    TooLarge,
    /// Sizes contradict each other, or bytes follow the end.
    #[error("sizes in a program contradict each other")]
    Sizes,
    /// A code or number has no meaning.
    #[error("a program with an unknown {0} {1}")]
    Unknown(&'static str, u64),
    /// A text literal has a NUL, which no text can contain.
    #[error("a text in a program has a NUL")]
    Nul,
    /// The name of an operand is invalid.
    #[error("operand {0} of a program has a name that is none")]
    Name(usize),
    /// An operation takes more values than the stack has, or not exactly one is left at the end.
    #[error("a program's stack has too few or too many values at operation {0}")]
    Stack(usize),
    /// The target of a jump is not an operation.
    #[error("a program jumps to no operation at operation {0}")]
    Jump(usize),
}

type Result<T> = std::result::Result<T, ProgramError>;

/// Reader of numbers that never reads beyond the end.
struct Cursor<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, size: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(size).ok_or(ProgramError::Cut(self.what))?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| ProgramError::Cut(self.what))
    }

    fn u8(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

impl Program {
    /// Serializes the program; [`Program::from_bytes`] reads it back.
    pub fn to_bytes(&self) -> Vec<u8> {
        let operands: Vec<u8> = self.operands.iter().flat_map(operand_bytes).collect();
        let code = self.code();
        let size = HEADER + operands.len() + code.len();
        let mut bytes = Vec::with_capacity(size);
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend((size as u16).to_le_bytes());
        bytes.extend((code.len() as u16).to_le_bytes());
        bytes.extend([self.operands.len() as u8, 0, 0, 0]);
        bytes.extend(operands);
        bytes.extend(code);
        bytes
    }

    /// Reads a program from untrusted bytes. Never panics, and never returns a program that cannot
    /// be evaluated.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAX_PROGRAM {
            return Err(ProgramError::TooLarge);
        }
        let mut cursor = Cursor { rest: bytes, what: "head" };
        let magic = cursor.u32()?;
        if magic != MAGIC {
            return Err(ProgramError::Magic(magic));
        }
        let (size, code) = (usize::from(cursor.u16()?), usize::from(cursor.u16()?));
        let [count, padding @ ..] = cursor.array::<4>()?;
        if size > bytes.len() {
            return Err(ProgramError::Cut("end"));
        }
        if size < bytes.len() || padding != [0; 3] {
            return Err(ProgramError::Sizes);
        }
        if usize::from(count) > MAX_OPERANDS {
            return Err(ProgramError::Unknown("number of operands", count.into()));
        }
        let mut program = Self::default();
        cursor.what = "operands";
        for index in 0..usize::from(count) {
            program.operands.push(read_operand(&mut cursor, index)?);
        }
        if cursor.rest.len() != code {
            return Err(ProgramError::Sizes);
        }
        program.read_code(cursor.rest)?;
        program.height = height(&program.ops)?;
        program.chain = program::chain(&program.ops);
        program.conditions = Conditions::of(&program);
        Ok(program)
    }

    /// Serializes all operations.
    fn code(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut offsets = Vec::with_capacity(self.ops.len() + 1);
        let mut jumps = Vec::new();
        for op in &self.ops {
            offsets.push(bytes.len());
            self.op_bytes(op, &mut bytes);
            if let Op::Shortcut { to, .. } = op {
                jumps.push((bytes.len(), usize::from(*to)));
            }
        }
        offsets.push(bytes.len());
        for (end, to) in jumps {
            let target = offsets.get(to).copied().unwrap_or(end);
            let distance = target.saturating_sub(end) as u16;
            bytes[end - 2..end].copy_from_slice(&distance.to_le_bytes());
        }
        bytes
    }

    fn op_bytes(&self, op: &Op, bytes: &mut Vec<u8>) {
        match *op {
            Op::Push(value) => push_value(bytes, value),
            Op::Load(operand) => bytes.extend([code::LOAD, operand]),
            Op::Unary(Unary::Not) => bytes.push(code::NOT),
            Op::Unary(Unary::Complement) => bytes.push(code::COMPLEMENT),
            Op::Unary(Unary::Negate) => bytes.push(code::NEGATE),
            Op::Compare(comparison) => bytes.extend([code::COMPARE, comparison as u8]),
            Op::CompareWith { operand, comparison, literal } => {
                bytes.extend([code::COMPARE_WITH, operand, comparison as u8]);
                push_value(bytes, literal);
            }
            Op::Arithmetic(arithmetic) => bytes.extend([code::ARITHMETIC, arithmetic as u8]),
            Op::Combine(Logic::And) => bytes.push(code::AND),
            Op::Combine(Logic::Or) => bytes.push(code::OR),
            Op::Shortcut { logic: Logic::And, .. } => bytes.extend([code::IF_FALSE, 0, 0]),
            Op::Shortcut { logic: Logic::Or, .. } => bytes.extend([code::IF_TRUE, 0, 0]),
            Op::Text { operand, test, begin, length } => {
                let code = match test {
                    TextTest::Is => code::IS,
                    TextTest::Begins => code::BEGINS,
                    TextTest::Matches => code::MATCHES,
                };
                bytes.extend([code, operand, length]);
                bytes.extend(self.literal(begin, length));
            }
            Op::Same { left, right } => bytes.extend([code::SAME, left, right]),
            Op::Within { operand, begin, count } => {
                bytes.extend([code::WITHIN, operand, count]);
                for (low, high) in self.ranges(begin, count) {
                    bytes.push(u8::from(*low < 0) | u8::from(*high < 0) << 1);
                    bytes.extend((*low as u64).to_le_bytes());
                    bytes.extend((*high as u64).to_le_bytes());
                }
            }
        }
    }
}

fn push_value(bytes: &mut Vec<u8>, value: Value) {
    let (code, word) = match value.0 {
        Repr::Natural(number) => (code::NATURAL, number),
        Repr::Negative(number) => (code::NEGATIVE, number as u64),
        Repr::Float(bits) => (code::FLOAT, bits),
        // No literal is unknown.
        Repr::Unknown => (0, 0),
    };
    bytes.push(code);
    bytes.extend(word.to_le_bytes());
}

fn read_value(cursor: &mut Cursor<'_>, code: u8) -> Result<Value> {
    let word = cursor.u64()?;
    match code {
        code::NATURAL => Ok(word.into()),
        code::NEGATIVE if (word as i64) < 0 => Ok((word as i64).into()),
        code::FLOAT => Ok(f64::from_bits(word).into()),
        _ => Err(ProgramError::Unknown("literal", code.into())),
    }
}

impl Program {
    fn read_code(&mut self, code: &[u8]) -> Result<()> {
        let mut cursor = Cursor { rest: code, what: "operations" };
        let mut offsets = Vec::new();
        let mut targets = Vec::new();
        while !cursor.rest.is_empty() {
            offsets.push(code.len() - cursor.rest.len());
            let op = self.read_op(&mut cursor)?;
            if let Op::Shortcut { to: distance, .. } = op {
                targets.push((self.ops.len(), code.len() - cursor.rest.len() + usize::from(distance)));
            }
            self.ops.push(op);
        }
        offsets.push(code.len());
        for (index, target) in targets {
            let found = offsets.binary_search(&target).map_err(|_| ProgramError::Jump(index))?;
            if let Some(Op::Shortcut { to, .. }) = self.ops.get_mut(index) {
                *to = found as u16;
            }
        }
        Ok(())
    }

    /// Reads an operation; a jump has the distance in place of its target.
    fn read_op(&mut self, cursor: &mut Cursor<'_>) -> Result<Op> {
        let number = cursor.u8()?;
        Ok(match number {
            code::NATURAL | code::NEGATIVE | code::FLOAT => Op::Push(read_value(cursor, number)?),
            code::LOAD => Op::Load(self.read_operand_number(cursor)?),
            code::NOT => Op::Unary(Unary::Not),
            code::COMPLEMENT => Op::Unary(Unary::Complement),
            code::NEGATE => Op::Unary(Unary::Negate),
            code::COMPARE => Op::Compare(read_comparison(cursor)?),
            code::COMPARE_WITH => {
                let operand = self.read_operand_number(cursor)?;
                let comparison = read_comparison(cursor)?;
                let code = cursor.u8()?;
                Op::CompareWith { operand, comparison, literal: read_value(cursor, code)? }
            }
            code::ARITHMETIC => Op::Arithmetic(read_arithmetic(cursor)?),
            code::AND => Op::Combine(Logic::And),
            code::OR => Op::Combine(Logic::Or),
            code::IF_FALSE => Op::Shortcut { logic: Logic::And, to: cursor.u16()? },
            code::IF_TRUE => Op::Shortcut { logic: Logic::Or, to: cursor.u16()? },
            code::IS => self.read_text(cursor, TextTest::Is)?,
            code::BEGINS => self.read_text(cursor, TextTest::Begins)?,
            code::MATCHES => self.read_text(cursor, TextTest::Matches)?,
            code::SAME => {
                Op::Same { left: self.read_operand_number(cursor)?, right: self.read_operand_number(cursor)? }
            }
            code::WITHIN => self.read_ranges(cursor)?,
            _ => return Err(ProgramError::Unknown("operation", number.into())),
        })
    }

    fn read_operand_number(&self, cursor: &mut Cursor<'_>) -> Result<u8> {
        let operand = cursor.u8()?;
        let known = usize::from(operand) < self.operands.len();
        known.then_some(operand).ok_or(ProgramError::Unknown("operand", operand.into()))
    }

    fn read_text(&mut self, cursor: &mut Cursor<'_>, test: TextTest) -> Result<Op> {
        let operand = self.read_operand_number(cursor)?;
        let length = cursor.u8()?;
        // A program is too short for more bytes than a u16 can count.
        let begin = self.texts.len() as u16;
        let literal = cursor.take(length.into())?;
        if literal.contains(&0) {
            return Err(ProgramError::Nul);
        }
        self.texts.extend(literal);
        Ok(Op::Text { operand, test, begin, length })
    }

    fn read_ranges(&mut self, cursor: &mut Cursor<'_>) -> Result<Op> {
        let operand = self.read_operand_number(cursor)?;
        let count = cursor.u8()?;
        let begin = self.ranges.len() as u16;
        for _ in 0..count {
            let signs = cursor.u8()?;
            let (low, high) = (bound(cursor.u64()?, signs & 1), bound(cursor.u64()?, signs & 2));
            let (Some(low), Some(high), 0..=3) = (low, high, signs) else {
                return Err(ProgramError::Unknown("sign of a range", signs.into()));
            };
            self.ranges.push((low, high));
        }
        Ok(Op::Within { operand, begin, count })
    }
}

/// Returns the end of a range; `None` if it is marked negative and is not.
fn bound(word: u64, negative: u8) -> Option<i128> {
    match negative {
        0 => Some(word.into()),
        _ => Some(i128::from(word as i64)).filter(|number| *number < 0),
    }
}

fn read_comparison(cursor: &mut Cursor<'_>) -> Result<Comparison> {
    let number = cursor.u8()?;
    let found = Comparison::ALL.into_iter().find(|comparison| *comparison as u8 == number);
    found.ok_or(ProgramError::Unknown("comparison", number.into()))
}

fn read_arithmetic(cursor: &mut Cursor<'_>) -> Result<Arithmetic> {
    let number = cursor.u8()?;
    let found = Arithmetic::ALL.into_iter().find(|arithmetic| *arithmetic as u8 == number);
    found.ok_or(ProgramError::Unknown("arithmetic operation", number.into()))
}

/// Codes of places.
mod place {
    pub const BY_NAME: u8 = 0;
    pub const ABSENT: u8 = 1;
    pub const ELSEWHERE: u8 = 2;
    pub const FIXED: u8 = 3;
    pub const ELEMENT: u8 = 4;
    pub const TEXT: u8 = 5;
    pub const CONTEXT: u8 = 6;
}

fn operand_bytes(operand: &Operand) -> Vec<u8> {
    let (code, scalar, tail, offset) = match operand.place {
        Place::ByName => (place::BY_NAME, 0, 0, 0),
        Place::Absent => (place::ABSENT, 0, 0, 0),
        Place::Elsewhere => (place::ELSEWHERE, 0, 0, 0),
        Place::Fixed { offset, scalar } => (place::FIXED, scalar_code(scalar), 0, offset),
        Place::Element { tail, index, scalar } => (place::ELEMENT, scalar_code(scalar), tail, index),
        Place::Text { tail } => (place::TEXT, 0, tail, 0),
        Place::Context(number) => (place::CONTEXT, 0, number, 0),
    };
    let path = &operand.name.path;
    let mut bytes = vec![0, 0, operand.name.scope as u8, code, scalar, path.len() as u8];
    bytes.extend(tail.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    debug_assert_eq!(bytes.len(), OPERAND_HEADER);
    for segment in path {
        match segment {
            Segment::Name(name) => {
                bytes.extend([1, name.len() as u8]);
                bytes.extend(name.as_bytes());
            }
            Segment::Index(index) => {
                bytes.push(2);
                bytes.extend(index.to_le_bytes());
            }
        }
    }
    let size = bytes.len() as u16;
    bytes[..2].copy_from_slice(&size.to_le_bytes());
    bytes
}

/// Encodes a scalar in a byte: bits 0 and 1 are the logarithm of its size, 2 and 3 its encoding, 4
/// the byte order.
fn scalar_code(scalar: Scalar) -> u8 {
    scalar.size.max(1).ilog2() as u8 | (scalar.encoding as u8) << 2 | u8::from(scalar.network) << 4
}

fn scalar(number: u8) -> Result<Scalar> {
    let encoding = match number >> 2 & 3 {
        0 => Encoding::Unsigned,
        1 => Encoding::Signed,
        2 => Encoding::Float,
        _ => return Err(ProgramError::Unknown("kind of number", number.into())),
    };
    let scalar = Scalar { size: 1 << (number & 3), encoding, network: number & 16 != 0 };
    let sound = scalar.is_sound() && number < 32;
    sound.then_some(scalar).ok_or(ProgramError::Unknown("kind of number", number.into()))
}

fn read_operand(cursor: &mut Cursor<'_>, index: usize) -> Result<Operand> {
    let size = usize::from(cursor.u16()?);
    let body = cursor.take(size.checked_sub(2).ok_or(ProgramError::Cut("operands"))?)?;
    let mut body = Cursor { rest: body, what: "operands" };
    let [scope, code, number, segments] = body.array()?;
    let (tail, offset) = (body.u16()?, body.u32()?);
    let scope = match scope {
        0 => Scope::Field,
        1 => Scope::Context,
        2 => Scope::Application,
        _ => return Err(ProgramError::Unknown("scope", scope.into())),
    };
    let place = match code {
        place::BY_NAME => Place::ByName,
        place::ABSENT => Place::Absent,
        place::ELSEWHERE => Place::Elsewhere,
        place::FIXED => Place::Fixed { offset, scalar: scalar(number)? },
        place::ELEMENT => Place::Element { tail, index: offset, scalar: scalar(number)? },
        place::TEXT => Place::Text { tail },
        place::CONTEXT => Place::Context(tail),
        _ => return Err(ProgramError::Unknown("place", code.into())),
    };
    if usize::from(segments) > MAX_SEGMENTS {
        return Err(ProgramError::Name(index));
    }
    let path = (0..segments).map(|_| read_segment(&mut body, index)).collect::<Result<Vec<_>>>()?;
    if !body.rest.is_empty() {
        return Err(ProgramError::Sizes);
    }
    if !matches!(path.first(), Some(Segment::Name(_))) {
        return Err(ProgramError::Name(index));
    }
    Ok(Operand { name: Name { scope, path }, place, index })
}

fn read_segment(cursor: &mut Cursor<'_>, operand: usize) -> Result<Segment> {
    match cursor.u8()? {
        1 => {
            let size = cursor.u8()?;
            let name = std::str::from_utf8(cursor.take(size.into())?).ok();
            let name = name.filter(|name| !name.is_empty() && !name.chars().any(char::is_control));
            name.map(|name| Segment::Name(name.into())).ok_or(ProgramError::Name(operand))
        }
        2 => cursor.u32().map(Segment::Index),
        kind => Err(ProgramError::Unknown("part of a name", kind.into())),
    }
}

/// Checks that the program fits in [`MAX_PROGRAM`] bytes.
pub(crate) fn check_size(program: &Program) -> Result<()> {
    let operands: usize = program.operands.iter().map(|operand| operand_bytes(operand).len()).sum();
    let fits = HEADER + operands + program.code().len() <= MAX_PROGRAM;
    fits.then_some(()).ok_or(ProgramError::TooLarge)
}

/// Returns the maximum number of values on the stack, or an error if operations would reach beyond
/// it.
pub(crate) fn height(ops: &[Op]) -> Result<usize> {
    // Number of values at the target of each jump. It must be the same as without the jump.
    let mut at_targets = vec![None; ops.len() + 1];
    let (mut height, mut highest) = (0usize, 0usize);
    for (index, op) in ops.iter().enumerate() {
        if at_targets[index].is_some_and(|expected| expected != height) {
            return Err(ProgramError::Stack(index));
        }
        let (taken, put) = op.effect();
        height = height.checked_sub(taken).ok_or(ProgramError::Stack(index))? + put;
        highest = highest.max(height);
        if highest > MAX_STACK {
            return Err(ProgramError::Stack(index));
        }
        if let Op::Shortcut { to, .. } = op {
            let to = usize::from(*to);
            let target = at_targets.get_mut(to).filter(|_| to > index).ok_or(ProgramError::Jump(index))?;
            if target.is_some_and(|expected| expected != height) {
                return Err(ProgramError::Stack(to));
            }
            *target = Some(height);
        }
    }
    let is_sound = height == 1 && at_targets[ops.len()].is_none_or(|expected| expected == 1);
    is_sound.then_some(highest).ok_or(ProgramError::Stack(ops.len()))
}
