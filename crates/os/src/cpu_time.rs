//! CPU time of processes.

use std::time::Duration;

/// Returns the CPU time that a process has taken in all its threads; none if there is no such
/// process.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both are locals, which the functions write.
    let result = unsafe {
        match libc::clock_getcpuclockid(pid, &raw mut clock) {
            0 => libc::clock_gettime(clock, &raw mut time),
            error => error,
        }
    };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    (result == 0).then(|| Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_grows_where_a_process_works() {
        let own = || cpu_time(std::process::id()).expect("this process");
        let begin = own();
        while own() < begin + Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        assert_eq!(cpu_time(0), None);
        assert_eq!(cpu_time(u32::MAX), None);
        assert_eq!(cpu_time((1 << 22) + 1), None);
    }
}
