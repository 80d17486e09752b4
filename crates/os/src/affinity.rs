//! CPU affinity and control groups of threads.

use std::{
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use crate::check;

/// A set of CPUs as the kernel takes it: 8192 of them, the most that Linux can be built for.
type Mask = [u64; 128];

/// The CPUs that a thread (0 for the calling one) may run on, in order; none if there is no such
/// thread.
///
/// Source: `sched_setaffinity(2)`; the kernel's set may be larger than the C library's `cpu_set_t`.
pub fn affinity(tid: u32) -> Vec<u32> {
    let mut mask: Mask = [0; 128];
    // SAFETY: the kernel writes at most as many bytes as it is told the array has.
    let size =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&mask), mask.as_mut_ptr()) };
    let known = usize::try_from(size).unwrap_or(0) * 8;
    let has = |cpu: &usize| mask.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1);
    (0..known).filter(has).map(|cpu| cpu as u32).collect()
}

/// The CPUs that the calling thread may run on, in order.
pub fn allowed_cpus() -> Vec<u32> {
    affinity(0)
}

/// Lets a thread (0 for the calling one) run on these CPUs alone. Source: `sched_setaffinity(2)`.
///
/// # Errors
/// There is no such CPU, or the thread is bound to its own (`EINVAL`); the thread has ended
/// (`ESRCH`), or belongs to another user (`EPERM`).
pub fn set_affinity(tid: u32, cpus: &[u32]) -> io::Result<()> {
    let mut mask: Mask = [0; 128];
    for cpu in cpus {
        let word = mask.get_mut(*cpu as usize / 64).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (cpu % 64);
    }
    // SAFETY: the kernel reads as many bytes as the array has.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, size_of_val(&mask), mask.as_ptr()) };
    check(result as libc::c_int).map(drop)
}

/// Lets a command begin in the control groups whose open `cgroup.procs` these are.
pub fn begin_in_groups(command: &mut Command, groups: Vec<OwnedFd>) {
    // SAFETY: the closure runs in the forked child and makes only system calls.
    unsafe {
        command.pre_exec(move || {
            for group in &groups {
                // 0 stands for the thread that writes it. Source: `cgroups(7)`.
                let written = libc::write(group.as_raw_fd(), c"0".as_ptr().cast(), 1);
                check(written as libc::c_int)?;
            }
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use std::{fs::File, io::Read};

    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_put() {
        let allowed = allowed_cpus();
        let cpu = *allowed.last().unwrap();
        let there = std::thread::spawn(move || {
            set_affinity(0, &[cpu]).unwrap();
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            assert_eq!(line.unwrap().trim(), cpu.to_string());
            assert_eq!((crate::current_cpu(), affinity(crate::gettid())), (cpu, vec![cpu]));
        });
        there.join().unwrap();
        assert_eq!(allowed_cpus(), allowed, "other threads are not meant");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(set_affinity(0, &[]).is_err() && set_affinity(u32::MAX >> 1, &[0]).is_err());
        assert!(set_affinity(0, &[8191]).is_err() && set_affinity(0, &[0, u32::MAX]).is_err());
        assert!(affinity(u32::MAX >> 1).is_empty());
    }

    #[test]
    fn a_command_writes_itself_into_its_groups() {
        let dir = TestDir::new("group");
        let path = dir.join("tasks");
        let mut command = Command::new("true");
        begin_in_groups(&mut command, vec![File::create(&path).unwrap().into()]);
        assert!(command.status().unwrap().success());
        let mut text = String::new();
        File::open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "0");
    }
}
