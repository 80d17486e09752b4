//! Real-time settings of threads that measure time: the first place among its CPU's threads, memory
//! that stays; and the kernel's counts of how often and how long it was kept from running.

use std::io;

use crate::{check, last_error};

/// Puts the calling thread before all threads of ordinary and of lower real-time priority on its
/// CPU: SCHED_FIFO.
///
/// `priority` is 1 (lowest) to 99.
///
/// # Errors
/// If that isn't allowed (`sched(7)`: root, CAP_SYS_NICE, or RLIMIT_RTPRIO), or the priority
/// doesn't exist.
pub fn run_fifo(priority: u32) -> io::Result<()> {
    run_under(libc::SCHED_FIFO, priority)
}

/// As [`run_fifo`], in turns with the threads of the same priority: SCHED_RR.
///
/// # Errors
/// As there.
pub fn run_round_robin(priority: u32) -> io::Result<()> {
    run_under(libc::SCHED_RR, priority)
}

fn run_under(policy: libc::c_int, priority: u32) -> io::Result<()> {
    // SAFETY: numbers alone, for which zero is a value; musl's structure has more of them than
    // glibc's.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority.try_into().unwrap_or(0);
    // The system call itself: musl's function knows no policies. SAFETY: the structure is only
    // read.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) };
    check(result as libc::c_int).map(drop)
}

/// Lets the calling thread have this much time in each period, before all other threads:
/// SCHED_DEADLINE.
///
/// # Errors
/// `EPERM`: not allowed, or the thread may not run on all CPUs of its domain; `EBUSY`: the CPUs are
/// promised to others; `EINVAL`: less than a microsecond, or more than the period.
pub fn run_deadline(runtime_ns: u64, period_ns: u64) -> io::Result<()> {
    /// `struct sched_attr` in its first version. Source: `sched_setattr(2)`.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_DEADLINE as u32,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: runtime_ns,
        deadline: period_ns,
        period: period_ns,
    };
    // SAFETY: the structure is only read, and says how long it is.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check(result as libc::c_int).map(drop)
}

/// Keeps all memory of the process from being paged out, that which it has and that which it will
/// have.
///
/// # Errors
/// If that isn't allowed (`mlockall(2)`: root, CAP_IPC_LOCK, or an RLIMIT_MEMLOCK as large as the
/// process).
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: a plain system call.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) }).map(drop)
}

/// Counts of interruptions of a thread's work, since the thread began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Switches to other threads because this one waited.
    pub voluntary_switches: u64,
    /// Switches to other threads because these were preferred.
    pub involuntary_switches: u64,
    /// Page faults that needed no input.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
}

/// Returns the resource usage of the calling thread: `getrusage(2)`.
///
/// # Errors
/// If the kernel doesn't say (before Linux 2.6.26).
pub fn thread_usage() -> io::Result<ThreadUsage> {
    // SAFETY: all-zero bytes are a valid structure, which the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) != 0 {
            return Err(last_error());
        }
        usage
    };
    let number = |number: libc::c_long| u64::try_from(number).unwrap_or(0);
    Ok(ThreadUsage {
        voluntary_switches: number(usage.ru_nvcsw),
        involuntary_switches: number(usage.ru_nivcsw),
        minor_faults: number(usage.ru_minflt),
        major_faults: number(usage.ru_majflt),
    })
}

/// Time that the calling thread has run, in nanoseconds: without what other threads took from it,
/// and without what a hypervisor took where the kernel knows of that.
pub fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a writable structure of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time stamp counter at a place in the program: after all that stands before it, before all
/// behind.
#[inline(always)]
pub fn tsc_in_place() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instructions are part of every x86-64 processor, and change nothing.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        let ticks = core::arch::x86_64::_rdtsc();
        core::arch::x86_64::_mm_lfence();
        ticks
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: barriers.
    unsafe {
        let ticks = crate::tsc_in_order();
        core::arch::asm!("isb", options(nostack, preserves_flags));
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_what_comes_between() {
        let (usage, cpu_ns) = (thread_usage().unwrap(), thread_cpu_ns());
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(thread_usage().unwrap().voluntary_switches > usage.voluntary_switches);
        let wall = crate::monotonic_ns();
        while crate::monotonic_ns() - wall < 1_000_000 {}
        assert!(thread_cpu_ns() > cpu_ns);
    }

    #[test]
    fn a_priority_that_does_not_exist_is_refused() {
        assert!(run_fifo(100).is_err() && run_fifo(0).is_err());
        assert!(run_round_robin(100).is_err() && run_round_robin(0).is_err());
    }

    #[test]
    fn no_more_time_is_promised_than_there_is() {
        assert!(run_deadline(2_000_000, 1_000_000).is_err());
    }

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[test]
    fn the_counter_advances_in_place() {
        let first = tsc_in_place();
        assert!(tsc_in_place() >= first && first != 0);
    }
}
