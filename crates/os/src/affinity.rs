//! Which CPUs and which control groups a thread belongs to.

use std::{
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use crate::check;

/// Lets a thread (0 for the calling one) run on these CPUs alone. Source: `sched_setaffinity(2)`.
///
/// # Errors
/// The thread has ended (`ESRCH`), is bound to its CPU (`EINVAL`), or is somebody else's (`EPERM`).
pub fn set_affinity(tid: u32, cpus: &[u32]) -> io::Result<()> {
    let words = cpus.iter().max().map_or(1, |last| *last as usize / 64 + 1);
    let mut mask = vec![0u64; words];
    for cpu in cpus {
        if let Some(word) = mask.get_mut(*cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
    }
    let bytes = size_of_val(&mask[..]);
    // SAFETY: the mask has as many bytes as are told.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, bytes, mask.as_ptr()) };
    check(result as libc::c_int).map(drop)
}

/// Lets a command begin in the control groups whose open `cgroup.procs` these are.
pub fn begin_in_groups(command: &mut Command, groups: Vec<OwnedFd>) {
    // SAFETY: the closure runs in the forked child and makes only system calls.
    unsafe {
        command.pre_exec(move || {
            for group in &groups {
                // 0 stands for who writes it. Source: `cgroups(7)`.
                let written = libc::write(group.as_raw_fd(), c"0".as_ptr().cast(), 1);
                check(written as libc::c_int)?;
            }
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read};

    use super::*;

    fn allowed() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    }

    #[test]
    fn a_thread_stays_where_it_may() {
        let here = std::thread::spawn(|| {
            let cpu = crate::current_cpu();
            set_affinity(0, &[cpu]).map(|()| (cpu.to_string(), allowed()))
        });
        let (expected, found) = here.join().unwrap().unwrap();
        assert_eq!(found, expected);
        assert!(set_affinity(0, &[]).is_err() && set_affinity(u32::MAX >> 1, &[0]).is_err());
    }

    #[test]
    fn a_command_writes_itself_into_its_groups() {
        let path = std::env::temp_dir().join(format!("tompion-group-{}", std::process::id()));
        let mut command = Command::new("true");
        begin_in_groups(&mut command, vec![File::create(&path).unwrap().into()]);
        assert!(command.status().unwrap().success());
        let mut text = String::new();
        File::open(&path).unwrap().read_to_string(&mut text).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "0");
    }
}
