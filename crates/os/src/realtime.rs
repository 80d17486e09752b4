//! What a thread that measures time asks for: a CPU of its own, the first place among its threads, memory that
//! stays; and what the kernel knows of how often and how long it was kept from running.

use std::io;

use crate::{check, last_error};

/// The CPUs that the calling thread may run on, in order.
///
/// Source: `sched_setaffinity(2)`; the kernel's set may be larger than the C library's `cpu_set_t`.
pub fn allowed_cpus() -> Vec<u32> {
    // 8192 CPUs, the most that Linux can be built for.
    let mut words = [0u64; 128];
    // SAFETY: the kernel writes at most as many bytes as it is told the array has.
    let size =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&words), words.as_mut_ptr()) };
    let known = usize::try_from(size).unwrap_or(0) * 8;
    let has = |cpu: &usize| words.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1);
    (0..known).filter(has).map(|cpu| cpu as u32).collect()
}

/// Keeps the calling thread on one CPU.
///
/// # Errors
/// If there is no such CPU, or the thread may not run there (`sched_setaffinity(2)`).
pub fn pin_this_thread(cpu: u32) -> io::Result<()> {
    let mut words = [0u64; 128];
    let word =
        words.get_mut(cpu as usize / 64).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    *word = 1 << (cpu % 64);
    // SAFETY: the kernel reads as many bytes as the array has.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&words), words.as_ptr()) };
    check(result as libc::c_int).map(drop)
}

/// Puts the calling thread before all threads of ordinary and of lower real-time priority on its CPU: SCHED_FIFO.
///
/// `priority` is 1 (lowest) to 99.
///
/// # Errors
/// If that isn't allowed (`sched(7)`: root, CAP_SYS_NICE, or RLIMIT_RTPRIO), or the priority doesn't exist.
pub fn run_fifo(priority: u32) -> io::Result<()> {
    // SAFETY: numbers alone, for which zero is a value; musl's structure has more of them than glibc's.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority.try_into().unwrap_or(0);
    // SAFETY: the structure is only read.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) }).map(drop)
}

/// Keeps all memory of the process from being paged out, that which it has and that which it will have.
///
/// # Errors
/// If that isn't allowed (`mlockall(2)`: root, CAP_IPC_LOCK, or an RLIMIT_MEMLOCK as large as the process).
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: a plain system call.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) }).map(drop)
}

/// How often something came between a thread and its work, since the thread began.
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

/// Of the calling thread: `getrusage(2)`.
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

/// Time that the calling thread has run, in nanoseconds: without what other threads took from it, and without what a
/// hypervisor took where the kernel knows of that.
pub fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a writable structure of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time stamp counter at a place in the program: after all that stands before it, before all behind.
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
    fn a_thread_stays_where_it_is_put() {
        let allowed = allowed_cpus();
        let cpu = *allowed.last().unwrap();
        std::thread::spawn(move || {
            pin_this_thread(cpu).unwrap();
            assert_eq!(allowed_cpus(), [cpu]);
            assert_eq!(crate::current_cpu(), cpu);
        })
        .join()
        .unwrap();
        assert_eq!(allowed_cpus(), allowed, "other threads are not meant");
        assert!(pin_this_thread(8191).is_err() && pin_this_thread(u32::MAX).is_err());
    }

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
    }

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[test]
    fn the_counter_advances_in_place() {
        let first = tsc_in_place();
        assert!(tsc_in_place() >= first && first != 0);
    }
}
