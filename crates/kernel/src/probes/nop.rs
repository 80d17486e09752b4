//! Decoder of 5-byte nops of x86-64. Kernels may replace one by a call once a probe there was hit.

/// Length of such a nop, in bytes.
const LENGTH: usize = 5;

/// Returns whether code begins with a 5-byte instruction that does nothing. It accepts some that
/// the kernel does not take for a nop, and none less.
///
/// Source: `insn_is_nop` in the kernel's `arch/x86/lib/insn-eval.c`; "Intel 64 and IA-32
/// Architectures Software Developer's Manual", volume 2, chapter 2.
pub(super) fn is_five_byte_nop(code: &[u8]) -> bool {
    let Some(code) = code.get(..LENGTH) else { return false };
    let is_legacy = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let legacy = code.iter().take_while(|byte| is_legacy(byte)).count();
    let has_rex = code.get(legacy).is_some_and(|byte| byte & 0xf0 == 0x40);
    let rex = if has_rex { code[legacy] } else { 0 };
    let Some((opcode, rest)) = code.get(legacy + usize::from(has_rex)..).and_then(<[u8]>::split_first) else {
        return false;
    };
    match opcode {
        0x90 => rest.is_empty(),
        // Jumps to what follows.
        0xe9 => rest == [0; 4],
        0xeb => rest == [0],
        0x0f if rest.first() == Some(&0x1f) => Operand::parse(&rest[1..]).is_some_and(|(_, left)| left == 0),
        // A register to itself.
        0x89 | 0x8b => {
            Operand::parse(rest).is_some_and(|(operand, left)| left == 0 && operand.is_itself(rex))
        }
        0x8d => Operand::parse(rest).is_some_and(|(operand, left)| left == 0 && operand.is_own_address(rex)),
        _ => false,
    }
}

/// Operands of an instruction: ModRM, SIB and displacement.
struct Operand<'a> {
    mode: u8,
    register: u8,
    base: u8,
    index: Option<u8>,
    displacement: &'a [u8],
}

impl<'a> Operand<'a> {
    /// Parses the operands; also returns the number of bytes behind them.
    fn parse(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (byte, rest) = bytes.split_first()?;
        let (mode, register, base) = (byte >> 6, byte >> 3 & 7, byte & 7);
        let (index, base, rest) = match (mode, base) {
            (0..=2, 4) => {
                let (sib, rest) = rest.split_first()?;
                (Some(sib >> 3 & 7), sib & 7, rest)
            }
            _ => (None, base, rest),
        };
        let length = match mode {
            0 if base == 5 => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        let displacement = rest.get(..length)?;
        Some((Self { mode, register, base, index, displacement }, rest.len() - length))
    }

    /// Returns whether both operands are the same register.
    const fn is_itself(&self, rex: u8) -> bool {
        self.mode == 3 && self.register == self.base && (rex & 1 != 0) == (rex & 4 != 0)
    }

    /// Returns whether the address is the value of the register that gets it.
    fn is_own_address(&self, rex: u8) -> bool {
        let is_at_register = self.mode == 1 || self.mode == 2 || self.mode == 0 && self.base != 5;
        let has_index = self.index.is_some_and(|index| index != 4 || rex & 2 != 0);
        let is_same = self.register == self.base && (rex & 1 != 0) == (rex & 4 != 0);
        is_at_register && !has_index && is_same && self.displacement.iter().all(|byte| *byte == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_byte_nops_are_recognized() {
        let nops: [&[u8]; 9] = [
            &[0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x66, 0x0f, 0x1f, 0x40, 0x00],
            &[0x66, 0x66, 0x66, 0x66, 0x90],
            &[0x2e, 0x66, 0x0f, 0x1f, 0x00],
            &[0xe9, 0x00, 0x00, 0x00, 0x00],
            // lea rsi, [rsi + 0], with and without a useless index
            &[0x48, 0x8d, 0x74, 0x26, 0x00],
            &[0x3e, 0x48, 0x8d, 0x76, 0x00],
            // mov rax, rax
            &[0x66, 0x66, 0x48, 0x89, 0xc0],
            &[0x0f, 0x1f, 0x44, 0x00, 0x00],
        ];
        for nop in nops {
            assert!(is_five_byte_nop(nop), "{nop:02x?}");
            let longer = [nop, &[0xcc; 8]].concat();
            assert!(is_five_byte_nop(&longer), "{nop:02x?}");
            assert!(!is_five_byte_nop(&nop[..4]), "{nop:02x?}");
        }
        let others: [&[u8]; 10] = [
            &[0x90, 0x90, 0x90, 0x90, 0x90],
            // Nops of other lengths.
            &[0x0f, 0x1f, 0x40, 0x00, 0x90],
            &[0x66, 0x0f, 0x1f, 0x44, 0x00],
            &[0xe9, 0x01, 0x00, 0x00, 0x00],
            // lea rdi, [rsp + 8]; lea rsi, [rdi + 0]; lea r14, [rsi + 0]
            &[0x48, 0x8d, 0x7c, 0x24, 0x08],
            &[0x3e, 0x48, 0x8d, 0x77, 0x00],
            &[0x3e, 0x4c, 0x8d, 0x76, 0x00],
            // mov rax, [rsp + 8]; mov rbp, rsp
            &[0x48, 0x8b, 0x44, 0x24, 0x08],
            &[0x66, 0x66, 0x48, 0x89, 0xe5],
            &[0xcc, 0xcc, 0xcc, 0xcc, 0xcc],
        ];
        for other in others {
            assert!(!is_five_byte_nop(other), "{other:02x?}");
        }
    }
}
