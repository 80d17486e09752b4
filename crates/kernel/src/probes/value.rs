//! Arguments of probes: their places and types.

use tompion_schema::{Integer, Type};

/// Names of the saved registers, by their places (in words) in the kernel's `pt_regs`. Of each, the
/// names that assemblers give to its parts.
#[cfg(target_arch = "x86_64")]
const REGISTERS: [(&[&str], u16); 17] = [
    (&["r15", "r15d", "r15w", "r15b"], 0),
    (&["r14", "r14d", "r14w", "r14b"], 1),
    (&["r13", "r13d", "r13w", "r13b"], 2),
    (&["r12", "r12d", "r12w", "r12b"], 3),
    (&["rbp", "ebp", "bp", "bpl"], 4),
    (&["rbx", "ebx", "bx", "bl"], 5),
    (&["r11", "r11d", "r11w", "r11b"], 6),
    (&["r10", "r10d", "r10w", "r10b"], 7),
    (&["r9", "r9d", "r9w", "r9b"], 8),
    (&["r8", "r8d", "r8w", "r8b"], 9),
    (&["rax", "eax", "ax", "al"], 10),
    (&["rcx", "ecx", "cx", "cl"], 11),
    (&["rdx", "edx", "dx", "dl"], 12),
    (&["rsi", "esi", "si", "sil"], 13),
    (&["rdi", "edi", "di", "dil"], 14),
    (&["rip"], 16),
    (&["rsp", "esp", "sp", "spl"], 19),
];
/// Registers of a function's first arguments, by the calling convention, and of what it returns.
#[cfg(target_arch = "x86_64")]
const ARGUMENTS: &[&str] = &["rdi", "rsi", "rdx", "rcx", "r8", "r9"];
#[cfg(target_arch = "x86_64")]
const RESULT: &str = "rax";
/// Place of the other arguments, at a function's first instruction: behind the address to return
/// to.
#[cfg(target_arch = "x86_64")]
const STACK: (&str, u64) = ("rsp", 8);

/// The same of functions of Go, whose compiler has a convention of its own
/// (`src/cmd/compile/abi-internal.md` of Go).
#[cfg(target_arch = "x86_64")]
const GO_ARGUMENTS: &[&str] = &["rax", "rbx", "rcx", "rdi", "rsi", "r8", "r9", "r10", "r11"];

#[cfg(not(target_arch = "x86_64"))]
const GO_ARGUMENTS: &[&str] =
    &["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15"];
#[cfg(not(target_arch = "x86_64"))]
const ARGUMENTS: &[&str] = &["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"];
#[cfg(not(target_arch = "x86_64"))]
const RESULT: &str = "x0";
#[cfg(not(target_arch = "x86_64"))]
const STACK: (&str, u64) = ("sp", 0);

/// The place of a register in the kernel's `pt_regs`, in bytes.
#[cfg(target_arch = "x86_64")]
pub(super) fn register(name: &str) -> Option<u16> {
    REGISTERS.iter().find(|(names, _)| names.contains(&name)).map(|(_, place)| place * 8)
}

/// The place of a register in the kernel's `pt_regs`, in bytes.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn register(name: &str) -> Option<u16> {
    if name == "sp" {
        return Some(31 * 8);
    }
    let number = name.strip_prefix('x').or_else(|| name.strip_prefix('w'))?;
    number.parse::<u16>().ok().filter(|number| *number < 31).map(|number| number * 8)
}

/// No register (`NO_REGISTER` in `src/bpf/probes.h`).
const NONE: u16 = 0xffff;

/// Place of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub place: Place,
    /// Its bytes there: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether a sign is to be extended.
    pub signed: bool,
}

/// Registers are told by [`register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Constant(u64),
    Register(u16),
    Memory { base: Option<u16>, index: Option<u16>, shift: u8, displacement: u64 },
}

impl Value {
    /// A function's argument with this number, from 0, at the function's first instruction.
    pub(super) fn of_call(number: usize, ty: ArgumentType) -> Self {
        let place = match ARGUMENTS.get(number) {
            Some(name) => Place::Register(register(name).unwrap_or(NONE)),
            None => Place::Memory {
                base: register(STACK.0),
                index: None,
                shift: 0,
                displacement: STACK.1 + 8 * (number - ARGUMENTS.len()) as u64,
            },
        };
        Self { place, size: ty.size() as u8, signed: ty.is_signed() }
    }

    /// A Go function's argument word with this number, from 0, at the function's first instruction.
    /// `None` if the registers don't suffice: where it is then depends on the types of all
    /// arguments.
    pub(super) fn of_go_call(number: usize, ty: ArgumentType) -> Option<Self> {
        let place = Place::Register(register(GO_ARGUMENTS.get(number)?)?);
        Some(Self { place, size: ty.size() as u8, signed: ty.is_signed() })
    }

    /// Return value of a function.
    pub(super) fn of_return(ty: ArgumentType) -> Self {
        let place = Place::Register(register(RESULT).unwrap_or(NONE));
        Self { place, size: ty.size() as u8, signed: ty.is_signed() }
    }

    /// Encodes the value as the programs read it: `struct probe_argument` of `src/bpf/probes.h`.
    pub(super) fn words(self, ty: ArgumentType) -> [u64; 2] {
        let (how, number, base, index, shift) = match self.place {
            Place::Constant(number) => (0, number, None, None, 0),
            Place::Register(register) => (1, 0, Some(register), None, 0),
            Place::Memory { base, index, shift, displacement } => (2, displacement, base, index, shift),
        };
        let kind = match ty {
            ArgumentType::Text => 2,
            ArgumentType::TextOfProgram => 3,
            ArgumentType::Integer(_) => u64::from(self.signed),
        };
        let register = |register: Option<u16>| u64::from(register.unwrap_or(NONE));
        let small = [u64::from(shift), how, u64::from(self.size), kind];
        let small = small.iter().rev().fold(0, |all, byte| all << 8 | byte);
        [number, register(base) | register(index) << 16 | small << 32]
    }
}

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentType {
    /// A number.
    Integer(Integer),
    /// The address of a text; in a kernel's function, of one of the kernel's.
    Text,
    /// The address of a text of the program, in a kernel's function.
    TextOfProgram,
}

impl ArgumentType {
    /// The names of all types.
    pub const NAMES: &str =
        "i8 to i64, u8 to u64, x8 to x64 (hexadecimal), str, ustr (a program's text, in the kernel)";

    /// The type with a name of [`ArgumentType::NAMES`].
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "str" => return Some(Self::Text),
            "ustr" => return Some(Self::TextOfProgram),
            _ => {}
        }
        let (kind, bits) = name.split_at_checked(1)?;
        let bits = ["8", "16", "32", "64"].contains(&bits).then(|| bits.parse().ok()).flatten()?;
        let integer = match kind {
            "i" => Integer::signed(bits),
            "u" => Integer::unsigned(bits),
            "x" => Integer::hex(bits),
            _ => return None,
        };
        Some(Self::Integer(integer))
    }

    /// Number with this size in bytes.
    pub(super) fn integer(size: u8, signed: bool) -> Self {
        Self::Integer(if signed { Integer::signed(size * 8) } else { Integer::unsigned(size * 8) })
    }

    pub(super) fn is_text(self) -> bool {
        !matches!(self, Self::Integer(_))
    }

    /// Bytes of the number, or of the address.
    pub(super) fn size(self) -> usize {
        match self {
            Self::Integer(integer) => integer.size(),
            Self::Text | Self::TextOfProgram => 8,
        }
    }

    fn is_signed(self) -> bool {
        matches!(self, Self::Integer(integer) if integer.signed)
    }

    pub(super) fn ty(self) -> Type {
        match self {
            Self::Integer(integer) => Type::Integer(integer),
            Self::Text | Self::TextOfProgram => Type::String,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_names() {
        assert_eq!(ArgumentType::parse("i32"), Some(ArgumentType::integer(4, true)));
        assert_eq!(ArgumentType::parse("x64").map(ArgumentType::size), Some(8));
        for wrong in ["", "i", "i31", "i032", "strn", "ü32"] {
            assert_eq!(ArgumentType::parse(wrong), None, "{wrong}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn arguments_of_go_have_registers_of_their_own() {
        let int = ArgumentType::integer(8, true);
        let place = |number| Value::of_go_call(number, int).map(|value| value.place);
        let of = |name| register(name).map(Place::Register);
        assert_eq!((place(0), place(1), place(8)), (of("rax"), of("rbx"), of("r11")));
        assert_eq!(place(9), None);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn arguments_of_calls_are_where_the_convention_says() {
        let int = ArgumentType::integer(4, true);
        assert_eq!(Value::of_call(0, int).place, Place::Register(112));
        let seventh = Place::Memory { base: Some(152), index: None, shift: 0, displacement: 8 };
        assert_eq!(Value::of_call(6, int).place, seventh);
        assert_eq!(Value::of_return(int).place, Place::Register(80));
        let words = Value { place: seventh, size: 4, signed: true }.words(int);
        assert_eq!(words, [8, 0x0104_0200_ffff_0098]);
    }
}
