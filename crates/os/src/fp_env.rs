//! The floating-point environment of threads that aren't ours, and of ours that were born in
//! theirs.
//!
//! A program may have asked for a signal at each inexact result (`feenableexcept(3)`), may count
//! what was inexact (`fetestexcept(3)`) or round upwards (`fesetround(3)`); new threads inherit it.

/// Computes in the environment that programs begin with, and puts the caller's back: what is
/// computed neither raises a signal nor shows afterwards, and comes out the same in all programs.
#[inline]
pub fn with_default_fp_env<T>(compute: impl FnOnce() -> T) -> T {
    let own = environment();
    set_environment(DEFAULT);
    let result = apart(compute);
    set_environment(own);
    result
}

/// Gives the calling thread the environment that programs begin with.
pub(crate) fn set_default_floats() {
    set_environment(DEFAULT);
}

/// A function of its own, so that no part of the computation is moved before it or behind it.
#[inline(never)]
fn apart<T>(compute: impl FnOnce() -> T) -> T {
    compute()
}

/// Exceptions raise no signal, and none has happened; results are rounded to the nearest; tiny
/// numbers are what they are. Source: System V ABI, AMD64 supplement, section 3.2.1 ("MXCSR").
#[cfg(target_arch = "x86_64")]
const DEFAULT: u64 = 0x1f80;

/// The register MXCSR.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn environment() -> u64 {
    let mut own = 0u32;
    // SAFETY: writes the four bytes of a local.
    unsafe { core::arch::asm!("stmxcsr [{}]", in(reg) &raw mut own, options(nostack, preserves_flags)) };
    own.into()
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn set_environment(new: u64) {
    let new = new as u32;
    // SAFETY: reads the four bytes of a local. They are the default, which all Rust code assumes,
    // or what the register held for the caller: no bit that it hasn't.
    unsafe { core::arch::asm!("ldmxcsr [{}]", in(reg) &raw const new, options(nostack, preserves_flags)) };
}

/// Default control word, as on x86-64. Source: Arm Architecture Reference Manual, "FPCR", "FPSR".
#[cfg(target_arch = "aarch64")]
const DEFAULT: u64 = 0;

/// The register FPCR in the lower half, FPSR in the upper one.
#[cfg(target_arch = "aarch64")]
fn environment() -> u64 {
    let (control, status): (u64, u64);
    // SAFETY: reading the registers has no effect.
    unsafe {
        core::arch::asm!("mrs {}, fpcr", "mrs {}, fpsr", out(reg) control, out(reg) status, options(nostack));
    }
    control & 0xffff_ffff | status << 32
}

#[cfg(target_arch = "aarch64")]
fn set_environment(new: u64) {
    let (control, status) = (new & 0xffff_ffff, new >> 32);
    // SAFETY: as on x86-64.
    unsafe {
        core::arch::asm!("msr fpcr, {}", "msr fpsr, {}", in(reg) control, in(reg) status, options(nostack));
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn the_callers_environment_neither_disturbs_nor_changes() {
        const UPWARDS: u64 = 0x5f80;
        const INEXACT: u64 = 0x20;
        let outer = environment();
        set_environment(UPWARDS);
        let third = with_default_fp_env(|| {
            assert_eq!(environment(), DEFAULT);
            black_box(1.0f64) / black_box(3.0)
        });
        let after = environment();
        set_environment(outer);
        assert_eq!(third.to_bits(), 0x3fd5_5555_5555_5555);
        assert_eq!((after, after & INEXACT), (UPWARDS, 0));
    }
}
