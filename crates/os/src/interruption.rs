//! Detection of interruptions: a mark in the processor that every return from an interrupt or an
//! exception wipes away, so that a loop can ask without a system call, at the cost of reading a
//! register.
//!
//! The mark is the selector in the segment register ES, which 64-bit programs have no use for.
//! Selectors 0 to 3 are all null; a program starts with 0, and [`mark`] puts 3 there. A return to a
//! less privileged level (`iret`) makes 0 of each null selector; one from a system call (`sysret`)
//! leaves it alone, and so does a hypervisor that lets the machine stand still. (Sources: `IRET` in
//! Intel's manual, volume 2, RETURN-TO-OUTER-PRIVILEGE-LEVEL; AMD's manual, volume 3. Zhang and
//! others, "SegScope", HPCA 2024, found it on processors of both.) Where the kernel returns by
//! `eret` (FRED, aarch64) the mark stays, which [`marks_work`] finds out.

/// Value put into ES.
#[cfg(target_arch = "x86_64")]
const MARK: u16 = 3;

/// Puts the mark.
#[inline(always)]
pub fn mark() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a null selector can be loaded into ES at any time, and in 64-bit mode nothing is
    // addressed through ES.
    unsafe {
        core::arch::asm!("mov es, {0:x}", in(reg) MARK, options(nomem, nostack, preserves_flags));
    }
}

/// Whether the mark is still there: neither interrupt nor exception has come to the calling thread
/// since. Always true on other processors than x86-64.
#[inline(always)]
pub fn is_marked() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let selector: u64;
        // SAFETY: reading the register has no effect.
        unsafe {
            core::arch::asm!("mov {0}, es", out(reg) selector, options(nomem, nostack, preserves_flags))
        };
        selector as u16 == MARK
    }
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// Whether an exception wipes the mark away on this machine, found out by page faults.
///
/// To be asked before memory is locked: memory that is present from the beginning has no faults.
pub fn marks_work() -> bool {
    const PAGE: usize = 4096;
    // So large that the allocator takes it from the kernel, untouched.
    let mut memory = vec![0_u8; 1024 * PAGE];
    memory.chunks_mut(PAGE).any(|page| {
        mark();
        if let Some(byte) = page.first_mut() {
            *byte = 1;
        }
        let is_wiped = !is_marked();
        std::hint::black_box(page);
        is_wiped
    })
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn system_calls_leave_the_mark() {
        // Interrupts may come at any time, so it is tried more than once.
        assert!((0..1000).any(|_| {
            mark();
            crate::gettid();
            is_marked()
        }));
    }

    #[test]
    fn page_faults_wipe_the_mark_away_where_the_kernel_returns_by_iret() {
        let has_fred = std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" fred "));
        assert_eq!(marks_work(), !has_fred);
    }
}
