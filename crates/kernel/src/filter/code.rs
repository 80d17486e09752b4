//! BPF instructions, with labels to jump to.
//!
//! ```text
//! instruction   code u8 │ target and source u4, u4 │ offset i16 │ constant i32
//!               (little-endian, 8 bytes)
//! ```
//!
//! Source: the kernel's `Documentation/bpf/standardization/instruction-set.rst`.

/// A register: 0 is what a call returns, 1 to 5 are its arguments and lost in it, 6 to 9 are kept,
/// 10 is the end of the frame.
pub(super) type Register = u8;
/// The end of the frame, below which a function may write.
pub(super) const FRAME: Register = 10;

/// A place in code, which may be known later than it is jumped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// Operations on two numbers of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Operation {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    Divide = 0x30,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Remainder = 0x90,
    Xor = 0xa0,
    Move = 0xb0,
    ShiftRightSigned = 0xc0,
}

/// Conditions of jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Condition {
    Equal = 0x10,
    NotEqual = 0x50,
    Above = 0x20,
    AboveOrEqual = 0x30,
    Below = 0xa0,
    BelowOrEqual = 0xb0,
    Greater = 0x60,
    GreaterOrEqual = 0x70,
    Less = 0xc0,
    LessOrEqual = 0xd0,
}

const JUMP: u8 = 0x05;
const JUMP_BY_REGISTER: u8 = 0x0d;
const OPERATE: u8 = 0x07;
const OPERATE_BY_REGISTER: u8 = 0x0f;
const MOVE_HALF: u8 = 0xbc;
const NEGATE: u8 = 0x87;
const CONSTANT: u8 = 0x18;
const STORE: u8 = 0x7b;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// An instruction that does nothing.
pub(super) const NOTHING: u64 = JUMP as u64;

/// Instruction in its parts. Source: `struct bpf_insn` in `linux/bpf.h`.
#[derive(Clone, Copy, Default)]
struct Instruction {
    code: u8,
    to: Register,
    from: Register,
    offset: i16,
    constant: i32,
}

/// Code under construction.
#[derive(Debug, Default)]
pub(super) struct Code {
    instructions: Vec<u64>,
    jumps: Vec<(usize, Label)>,
    /// Position of each label.
    places: Vec<Option<usize>>,
}

impl Code {
    fn push(&mut self, instruction: Instruction) {
        let Instruction { code, to, from, offset, constant } = instruction;
        let registers = to | from << 4;
        let [low, high] = offset.to_le_bytes();
        let [a, b, c, d] = constant.to_le_bytes();
        self.instructions.push(u64::from_le_bytes([code, registers, low, high, a, b, c, d]));
    }

    /// Number of instructions.
    pub(super) fn len(&self) -> usize {
        self.instructions.len()
    }

    /// A label for a place that is not known yet.
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label is here.
    pub(super) fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.instructions.len());
    }

    /// Whether any instruction jumps there so far. The verifier refuses unreachable code.
    pub(super) fn is_used(&self, label: Label) -> bool {
        self.jumps.iter().any(|(_, to)| *to == label)
    }

    pub(super) fn goto(&mut self, label: Label) {
        self.jumps.push((self.len(), label));
        self.push(Instruction { code: JUMP, ..Instruction::default() });
    }

    pub(super) fn jump(&mut self, condition: Condition, (left, right): (Register, Register), to: Label) {
        self.jumps.push((self.len(), to));
        self.push(Instruction {
            code: JUMP_BY_REGISTER | condition as u8,
            to: left,
            from: right,
            ..Instruction::default()
        });
    }

    /// Compares with a constant, which signs extend.
    pub(super) fn jump_by(&mut self, condition: Condition, (left, right): (Register, i32), to: Label) {
        self.jumps.push((self.len(), to));
        self.push(Instruction {
            code: JUMP | condition as u8,
            to: left,
            constant: right,
            ..Instruction::default()
        });
    }

    pub(super) fn operate(&mut self, operation: Operation, to: Register, from: Register) {
        self.push(Instruction {
            code: OPERATE_BY_REGISTER | operation as u8,
            to,
            from,
            ..Instruction::default()
        });
    }

    pub(super) fn operate_by(&mut self, operation: Operation, to: Register, constant: i32) {
        self.push(Instruction { code: OPERATE | operation as u8, to, constant, ..Instruction::default() });
    }

    pub(super) fn negate(&mut self, register: Register) {
        self.push(Instruction { code: NEGATE, to: register, ..Instruction::default() });
    }

    /// The low 32 bits, with zeros above.
    pub(super) fn move_half(&mut self, to: Register, from: Register) {
        self.push(Instruction { code: MOVE_HALF, to, from, ..Instruction::default() });
    }

    pub(super) fn constant(&mut self, to: Register, value: u64) {
        match i32::try_from(value as i64) {
            Ok(short) => self.operate_by(Operation::Move, to, short),
            Err(_) => {
                self.push(Instruction {
                    code: CONSTANT,
                    to,
                    constant: value as i32,
                    ..Instruction::default()
                });
                self.push(Instruction { code: 0, constant: (value >> 32) as i32, ..Instruction::default() });
            }
        }
    }

    /// Loads 1, 2, 4 or 8 bytes, with zeros above.
    pub(super) fn load(&mut self, to: Register, (base, offset): (Register, i16), size: usize) {
        let code = match size {
            1 => 0x71,
            2 => 0x69,
            4 => 0x61,
            _ => 0x79,
        };
        self.push(Instruction { code, to, from: base, offset, ..Instruction::default() });
    }

    /// Stores 8 bytes.
    pub(super) fn store(&mut self, (base, offset): (Register, i16), from: Register) {
        self.push(Instruction { code: STORE, to: base, from, offset, ..Instruction::default() });
    }

    /// Calls a helper by its number.
    pub(super) fn call(&mut self, helper: i32) {
        self.push(Instruction { code: CALL, constant: helper, ..Instruction::default() });
    }

    pub(super) fn exit(&mut self, verdict: bool) {
        self.operate_by(Operation::Move, 0, verdict.into());
        self.push(Instruction { code: EXIT, ..Instruction::default() });
    }

    /// Appends code that jumps only inside itself.
    pub(super) fn append(&mut self, instructions: &[u64]) {
        self.instructions.extend(instructions);
    }

    /// The instructions; nothing if a jump goes further than one can, or to a label that is
    /// nowhere.
    pub(super) fn finish(mut self) -> Option<Vec<u64>> {
        for (at, label) in &self.jumps {
            let place = self.places[label.0]?;
            let offset = i16::try_from(place as i64 - *at as i64 - 1).ok()?;
            self.instructions[*at] |= u64::from(offset as u16) << 16;
        }
        Some(self.instructions)
    }
}
