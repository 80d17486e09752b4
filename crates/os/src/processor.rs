//! Features of the processor, as far as appending without restartable sequences depends on them.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{current_cpu, thread_pointer};

/// Features that not every processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Sixteen bytes can be compared and exchanged at once (`cmpxchg16b`; every aarch64 has a way
    /// to it).
    pub exchanges_16_bytes: bool,
    /// The time stamp counter and the CPU's number can be read at once (`rdtscp`), and the number
    /// is Linux's.
    pub has_rdtscp: bool,
    /// The CPU's number can be read alone (`rdpid`).
    pub has_rdpid: bool,
}

/// Asks the processor.
///
/// Source: CPUID in the Intel 64 manual, volume 2A: leaf 1 (ECX bit 13), leaf 7 (ECX bit 22) and
/// leaf 0x80000001 (EDX bit 27).
#[cfg(target_arch = "x86_64")]
pub fn processor() -> Processor {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    // SAFETY: every x86-64 processor has the instruction; leaves beyond the largest one are not
    // asked for.
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
    // Ordering: the number is all there is to see.
    CPUS.store(crate::possible_cpus(), Ordering::Relaxed);
    Processor { exchanges_16_bytes: cfg!(target_arch = "aarch64"), has_rdtscp: false, has_rdpid: false }
}

/// Bound of the numbers that [`cpu_or_thread`] may make up; 0 before [`processor`] was called.
static CPUS: AtomicU32 = AtomicU32::new(0);

/// The CPU on which the caller runs, where that can be found without a system call. aarch64 knows
/// no such way: there it is the number of some CPU, always the same one for a thread, so that
/// threads spread over the rings.
#[inline(always)]
pub fn cpu_or_thread() -> u32 {
    if cfg!(target_arch = "x86_64") {
        return current_cpu();
    }
    // Thread pointers differ in some of their upper bits, and the product in its uppermost ones.
    let mixed = (thread_pointer() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    // Ordering: as above.
    (mixed as u32).checked_rem(CPUS.load(Ordering::Relaxed)).unwrap_or(0)
}

/// Linux keeps the CPU's number in the lowest twelve bits of what `rdtscp` and `rdpid` tell.
/// (Source: `vdso_encode_cpunode` in `arch/x86/include/asm/segment.h`.)
#[cfg(target_arch = "x86_64")]
const CPU_BITS: u32 = 0xfff;

/// Whether the number that comes with the counter is the one that the kernel tells: others could be
/// the host's, where a kernel of another kind runs the program.
#[cfg(target_arch = "x86_64")]
fn rdtscp_tells_the_cpu() -> bool {
    // The thread may move between the two questions.
    (0..8).any(|_| {
        let before = current_cpu();
        tsc_and_cpu().1 == before && before < CPU_BITS
    })
}

/// The time stamp counter and the number of the CPU that it was read on, in one instruction, which
/// waits for all loads before it. Only where [`Processor::has_rdtscp`].
#[inline(always)]
pub fn tsc_and_cpu() -> (u64, u32) {
    #[cfg(target_arch = "x86_64")]
    {
        let mut cpu = 0;
        // SAFETY: the processor has the instruction, as callers know; it writes the number to a
        // local.
        let tsc = unsafe { core::arch::x86_64::__rdtscp(&raw mut cpu) };
        (tsc, cpu & CPU_BITS)
    }
    #[cfg(not(target_arch = "x86_64"))]
    (0, 0)
}

/// The time stamp counter after all loads before it. For processors without `rdtscp`.
///
/// On aarch64 an `isb` alone doesn't wait for loads whose values nothing depends on yet.
#[inline(always)]
pub fn tsc_in_order() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both instructions are part of every x86-64 processor, and change nothing.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier.
    unsafe {
        core::arch::asm!("dsb ishld", options(nostack, preserves_flags));
        crate::tsc()
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}

/// The number of the CPU that the thread runs on. Only where [`Processor::has_rdpid`].
#[inline(always)]
pub fn cpu_by_rdpid() -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        let number: u64;
        // SAFETY: the processor has the instruction, as callers know; it changes nothing but the
        // register.
        unsafe {
            core::arch::asm!("rdpid {number}", number = out(reg) number,
                options(nomem, nostack, preserves_flags));
        }
        number as u32 & CPU_BITS
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Compares two words, the first of which stands at a multiple of 16 bytes, with old values, and
/// exchanges both for new ones if they are the same; all at once. Orders everything before and
/// after it.
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
    #[cfg(target_arch = "aarch64")]
    {
        let failed: u64;
        // SAFETY: as the caller promises. What the exclusive load finds is of one moment only if
        // the exclusive store succeeds; where the words seem to differ, callers look again.
        unsafe {
            core::arch::asm!(
                "2:",
                "ldaxp {first}, {second}, [{words}]",
                "cmp {first}, {old_first}",
                "ccmp {second}, {old_second}, #0, eq",
                "cset {failed:w}, ne",
                "b.ne 3f",
                "stlxp {failed:w}, {new_first}, {new_second}, [{words}]",
                "cbnz {failed:w}, 2b",
                "3:",
                "dmb ish",
                first = out(reg) _, second = out(reg) _, failed = out(reg) failed,
                words = in(reg) words, old_first = in(reg) old.0, old_second = in(reg) old.1,
                new_first = in(reg) new.0, new_second = in(reg) new.1,
                options(nostack)
            );
        }
        failed == 0
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
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
