//! Clocks: the TSC, CLOCK_MONOTONIC and CLOCK_REALTIME.
//!
//! What is called the TSC here and elsewhere is the counter that user space can read by itself: the
//! time stamp counter of x86-64, the generic timer's virtual counter of aarch64 (`CNTVCT_EL0`),
//! which ticks at some 20 MHz to 1 GHz. How fast it ticks is not asked for: the session's samples
//! of both clocks say it.

/// Nanoseconds of a clock.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a writable structure of the right type.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_MONOTONIC in nanoseconds, by a real system call: the usual way reads the TSC in user
/// space, which a process can forbid.
pub fn monotonic_ns_without_tsc() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a writable structure of the right type.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_REALTIME in nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// CLOCK_BOOTTIME in nanoseconds: CLOCK_MONOTONIC and the time that the machine was suspended.
pub fn boottime_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// The time stamp counter, in ticks. Zero where there is none.
#[inline]
pub fn tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reading the counter has no effect; every x86-64 has it. (Where a process forbids it,
    // `tsc_is_usable` is asked first.)
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks;
        // SAFETY: reading the counter has no effect; Linux lets every program do it. The barrier
        // puts the reading behind all before it.
        unsafe {
            core::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags));
        }
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}

/// Kernel's name for the counter that [`tsc`] reads; none where there is none.
const CLOCK_SOURCE: Option<&str> = if cfg!(target_arch = "x86_64") {
    Some("tsc")
} else if cfg!(target_arch = "aarch64") {
    Some("arch_sys_counter")
} else {
    None
};

/// Whether there is a counter for [`tsc`] to read.
const HAS_TSC: bool = CLOCK_SOURCE.is_some();

/// Name of the counter in messages.
pub const COUNTER_NAME: &str = if cfg!(target_arch = "aarch64") { "the generic timer" } else { "the TSC" };

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// TSC ticks.
    pub tsc: u64,
    /// CLOCK_MONOTONIC nanoseconds.
    pub ns: u64,
}

/// Reads both clocks at one moment: the tightest of twenty attempts, the middle of its bracket.
pub fn sample_clocks() -> ClockPair {
    let mut best = (u64::MAX, ClockPair { tsc: 0, ns: 0 });
    for _ in 0..20 {
        let before = tsc();
        let ns = monotonic_ns();
        let width = tsc().wrapping_sub(before);
        if width < best.0 {
            best = (width, ClockPair { tsc: before.wrapping_add(width / 2), ns });
        }
    }
    best.1
}

/// Whether user space's timestamps may come from the TSC: the kernel itself keeps time by it.
pub fn tsc_state() -> Result<(), String> {
    let Some(counter) = CLOCK_SOURCE else { return Err("this processor has no TSC".into()) };
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match std::fs::read_to_string(path) {
        Ok(source) if source.trim() == counter => Ok(()),
        Ok(source) => Err(format!("the kernel keeps time by `{}`, not by {COUNTER_NAME}", source.trim())),
        Err(error) => Err(format!("can't read {path}: {error}")),
    }
}

/// Whether this process is allowed to read the TSC (`PR_SET_TSC` in `prctl(2)`).
pub fn tsc_is_usable() -> bool {
    if !HAS_TSC {
        return false;
    }
    let mut state: libc::c_int = 0;
    // SAFETY: PR_GET_TSC writes an int to the address.
    let result = unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut state) };
    result != 0 || state == libc::PR_TSC_ENABLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_advance() {
        let first = sample_clocks();
        let second = sample_clocks();
        assert!(second.ns > first.ns);
        assert!(second.tsc > first.tsc || !HAS_TSC);
    }
}
