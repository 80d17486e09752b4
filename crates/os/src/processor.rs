//! What the processor can do, as far as appending without restartable sequences depends on it.

use crate::current_cpu;

/// Instructions that not every x86-64 processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Sixteen bytes can be compared and exchanged at once (`cmpxchg16b`).
    pub exchanges_16_bytes: bool,
    /// The time stamp counter and the CPU's number can be read at once (`rdtscp`), and the number is Linux's.
    pub has_rdtscp: bool,
    /// The CPU's number can be read alone (`rdpid`).
    pub has_rdpid: bool,
}

/// Asks the processor.
///
/// Source: CPUID in the Intel 64 manual, volume 2A: leaf 1 (ECX bit 13), leaf 7 (ECX bit 22) and leaf 0x80000001
/// (EDX bit 27).
#[cfg(target_arch = "x86_64")]
pub fn processor() -> Processor {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    // SAFETY: every x86-64 processor has the instruction; leaves beyond the largest one are not asked for.
    #[allow(unused_unsafe, reason = "newer compilers know that it is safe")]
    let (basic, features, structured, extended) = unsafe {
        let basic = __cpuid(0).eax;
        let structured = if basic >= 7 { __cpuid_count(7, 0).ecx } else { 0 };
        let largest = __cpuid(0x8000_0000).eax;
        let extended = if largest >= 0x8000_0001 { __cpuid(0x8000_0001).edx } else { 0 };
        (basic, __cpuid(1).ecx, structured, extended)
    };
    let has_rdtscp = extended >> 27 & 1 == 1 && crate::tsc_is_usable() && rdtscp_tells_the_cpu();
    Processor {
        exchanges_16_bytes: basic >= 1 && features >> 13 & 1 == 1,
        has_rdtscp,
        has_rdpid: has_rdtscp && structured >> 22 & 1 == 1,
    }
}

/// Asks the processor.
#[cfg(not(target_arch = "x86_64"))]
pub fn processor() -> Processor {
    Processor { exchanges_16_bytes: false, has_rdtscp: false, has_rdpid: false }
}

/// Linux keeps the CPU's number in the lowest twelve bits of what `rdtscp` and `rdpid` tell. (Source:
/// `vdso_encode_cpunode` in `arch/x86/include/asm/segment.h`.)
const CPU_BITS: u32 = 0xfff;

/// Whether the number that comes with the counter is the one that the kernel tells: others could be the host's,
/// where a kernel of another kind runs the program.
fn rdtscp_tells_the_cpu() -> bool {
    // The thread may move between the two questions.
    (0..8).any(|_| {
        let before = current_cpu();
        tsc_and_cpu().1 == before && before < CPU_BITS
    })
}

/// The time stamp counter and the number of the CPU that it was read on, in one instruction, which waits for
/// all loads before it. Only where [`Processor::has_rdtscp`].
#[inline(always)]
pub fn tsc_and_cpu() -> (u64, u32) {
    #[cfg(target_arch = "x86_64")]
    {
        let mut cpu = 0;
        // SAFETY: the processor has the instruction, as callers know; it writes the number to a local.
        let tsc = unsafe { core::arch::x86_64::__rdtscp(&raw mut cpu) };
        (tsc, cpu & CPU_BITS)
    }
    #[cfg(not(target_arch = "x86_64"))]
    (0, 0)
}

/// The time stamp counter after all loads before it. For processors without `rdtscp`.
#[inline(always)]
pub fn tsc_in_order() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both instructions are part of every x86-64 processor, and change nothing.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// The number of the CPU that the thread runs on. Only where [`Processor::has_rdpid`].
#[inline(always)]
pub fn cpu_by_rdpid() -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        let number: u64;
        // SAFETY: the processor has the instruction, as callers know; it changes nothing but the register.
        unsafe {
            core::arch::asm!("rdpid {number}", number = out(reg) number,
                options(nomem, nostack, preserves_flags));
        }
        number as u32 & CPU_BITS
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Compares two words, the first of which stands at a multiple of 16 bytes, with old values, and exchanges both
/// for new ones if they are the same; all at once. Orders everything before and after it.
///
/// # Safety
/// The words are valid, and the processor [exchanges 16 bytes](Processor::exchanges_16_bytes).
#[inline(always)]
pub unsafe fn exchange_pair(words: *mut u64, old: (u64, u64), new: (u64, u64)) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let done: u64;
        // SAFETY: as the caller promises. The compiler keeps rbx for itself, so it is put back.
        unsafe {
            core::arch::asm!(
                "xchg rsi, rbx",
                "lock cmpxchg16b [rdi]",
                "mov rbx, rsi",
                "sete sil",
                "movzx esi, sil",
                in("rdi") words,
                inout("rsi") new.0 => done,
                in("rcx") new.1,
                inout("rax") old.0 => _,
                inout("rdx") old.1 => _,
                options(nostack)
            );
        }
        done != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (words, old, new);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(16))]
    struct Pair([u64; 2]);

    #[test]
    fn a_pair_is_exchanged_as_a_whole_or_not_at_all() {
        if !processor().exchanges_16_bytes {
            return;
        }
        let mut pair = Pair([1, 2]);
        let words = pair.0.as_mut_ptr();
        // SAFETY: an aligned local, and the processor was asked.
        unsafe {
            assert!(!exchange_pair(words, (1, 3), (5, 6)) && !exchange_pair(words, (2, 2), (5, 6)));
            assert!(exchange_pair(words, (1, 2), (u64::MAX, 6)));
        }
        assert_eq!(pair.0, [u64::MAX, 6]);
    }

    #[test]
    fn the_counter_advances_and_the_cpu_exists() {
        let found = processor();
        if found.has_rdtscp {
            let (first, cpu) = tsc_and_cpu();
            assert!(tsc_and_cpu().0 >= first && tsc_in_order() >= first && cpu < crate::possible_cpus());
        }
        assert!(!found.has_rdpid || cpu_by_rdpid() < crate::possible_cpus());
    }
}
