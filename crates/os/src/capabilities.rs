//! Capabilities of a started program: it gets some, and can't get others.

use std::{io, os::unix::process::CommandExt as _, process::Command};

use crate::{check, last_error};

/// Highest number that the kernel's sets have room for.
const MAX_CAPABILITY: u32 = 63;
/// Version of the kernel's structures for capabilities. Source: `include/uapi/linux/capability.h`.
const VERSION: u32 = 0x2008_0522;

/// A capability of the kernel. Source: `include/uapi/linux/capability.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Capability {
    /// Read files of every user.
    DacReadSearch = 2,
    /// Take other groups.
    SetGid = 6,
    /// Become another user.
    SetUid = 7,
    /// Lock memory.
    IpcLock = 14,
    /// Look into processes of every user.
    SysPtrace = 19,
    /// Administer the system; kernels before 5.8 ask for it to load programs.
    SysAdmin = 21,
    /// Choose scheduling.
    SysNice = 23,
    /// Read addresses of the kernel.
    Syslog = 34,
    /// Observe the whole machine.
    Perfmon = 38,
    /// Load programs into the kernel.
    Bpf = 39,
}

/// Capabilities as the system call takes them: effective, permitted, inheritable, in two halves.
#[derive(Clone, Copy)]
#[repr(C)]
struct Sets([[u32; 3]; 2]);

/// Lets a command start without capabilities other than these, also if it is root's. Neither it nor
/// what it starts can get more: programs with the set-user-ID bit run as those without.
///
/// Sources: `PR_CAPBSET_DROP` and `PR_SET_NO_NEW_PRIVS` in `prctl(2)`, `capset(2)`.
pub fn confine(command: &mut Command, kept: &'static [Capability]) {
    // SAFETY: the closure runs in the forked child and makes only system calls on its own memory,
    // which are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            for number in 0..=MAX_CAPABILITY {
                if !kept.iter().any(|kept| *kept as u32 == number) {
                    drop_from_bound(number)?;
                }
            }
            drop_inheritable()?;
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)).map(drop)
        });
    }
}

/// Takes a capability from those that executed programs can get.
fn drop_from_bound(number: u32) -> io::Result<()> {
    // SAFETY: a plain system call.
    match check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) }) {
        // The kernel does not know it.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        result => result.map(drop),
    }
}

/// Takes all capabilities from those that executed programs inherit.
fn drop_inheritable() -> io::Result<()> {
    let header: [u32; 2] = [VERSION, 0];
    let mut sets = Sets([[0; 3]; 2]);
    // SAFETY: both structures are live and have the size that this version says.
    if unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), &raw mut sets) } != 0 {
        return Err(last_error());
    }
    sets.0.iter_mut().for_each(|half| half[2] = 0);
    // SAFETY: as above.
    if unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), &raw const sets) } != 0 {
        return Err(last_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_command_has_what_is_kept_and_no_way_to_more() {
        // SAFETY: a plain system call that can't fail.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let mut command = Command::new("cat");
        confine(command.arg("/proc/self/status"), &[Capability::SetUid, Capability::SetGid]);
        let status = String::from_utf8(command.output().expect("cat").stdout).expect("a text");
        let line = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value.map(|value| value.trim_start_matches(':').trim().to_owned()).expect(name)
        };
        for (set, expected) in
            [("CapInh", 0), ("CapPrm", 0xc0), ("CapEff", 0xc0), ("CapBnd", 0xc0), ("CapAmb", 0)]
        {
            assert_eq!(u64::from_str_radix(&line(set), 16), Ok(expected), "{set}");
        }
        assert_eq!(line("NoNewPrivs"), "1");
    }
}
