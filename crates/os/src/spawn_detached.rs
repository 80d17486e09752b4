//! Start of a program that isn't the caller's child: no signal, no status, nothing to wait for.

use std::{
    ffi::{CStr, CString},
    io::{self, Read},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    time::Instant,
};

use crate::check;

/// The descriptor by which a detached program says that it is ready.
pub const READY_DESCRIPTOR: RawFd = 3;

/// A detached program that was started: tells when it is ready.
#[derive(Debug)]
pub struct Ready(OwnedFd);

impl Ready {
    /// Waits for the program to say so, until the deadline. False if it didn't, or has ended.
    pub fn wait(self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis() as u32;
        if crate::wait_readable(&[self.0.as_raw_fd()], Some(left)).unwrap_or(0) == 0 {
            return false;
        }
        let mut byte = [0];
        std::fs::File::from(self.0).read(&mut byte).is_ok_and(|len| len == 1)
    }
}

/// Says through [`READY_DESCRIPTOR`] that the calling program, started by [`spawn_detached`], is
/// ready.
pub fn report_ready() -> io::Result<()> {
    // SAFETY: the starter opened the descriptor for this; it is closed here, once.
    unsafe {
        let written = libc::write(READY_DESCRIPTOR, c"r".as_ptr().cast(), 1);
        libc::close(READY_DESCRIPTOR);
        check(written as libc::c_int).map(drop)
    }
}

/// Arguments of the new process, prepared before it exists: it may not allocate.
struct Plan {
    programs: Vec<CString>,
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    ready: RawFd,
}

/// Starts the first of these programs that can be run, with these arguments behind its name, and
/// with the environment without the variables that `drop_variable` takes. Its standard streams are
/// /dev/null.
///
/// The program is nobody's child: the caller's `wait` never sees it and no SIGCHLD comes. It has a
/// session of its own (setsid), and runs on after the caller has ended.
pub fn spawn_detached(
    programs: &[&Path],
    arguments: &[&[u8]],
    drop_variable: impl Fn(&[u8]) -> bool,
) -> io::Result<Ready> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let texts = |all: &[&[u8]]| all.iter().map(|bytes| text(bytes)).collect::<io::Result<Vec<_>>>();
    let programs: Vec<CString> =
        programs.iter().map(|path| text(path.as_os_str().as_bytes())).collect::<io::Result<_>>()?;
    let arguments = texts(arguments)?;
    let kept = std::env::vars_os().filter(|(name, _)| !drop_variable(name.as_bytes()));
    let environment: Vec<CString> = kept
        .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect::<io::Result<_>>()?;
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors, which are new.
    let (ours, theirs) = unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    };
    let pointers = |texts: &[CString]| {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let own_name = c"tompion".as_ptr();
    let plan = Plan {
        arguments: [own_name].into_iter().chain(pointers(&arguments)).collect(),
        environment: pointers(&environment),
        programs,
        ready: theirs.as_raw_fd(),
    };
    // Nothing of the caller's may run in the new process, so no libc fork with its handlers.
    // SAFETY: without flags and stack this is a fork; the child only makes system calls.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    match check(child as libc::c_int)? {
        0 => become_detached(&plan),
        child => {
            let mut status = 0;
            // SAFETY: the child, which has no exit signal, is waited for here and nowhere else.
            unsafe { libc::waitpid(child, &raw mut status, libc::__WCLONE) };
        }
    }
    Ok(Ready(ours))
}

/// Runs in the new process: starts a process without a parent, and ends.
fn become_detached(plan: &Plan) -> ! {
    // SAFETY: only system calls, on a copy of the caller's memory that no other thread uses.
    unsafe {
        libc::syscall(libc::SYS_setsid);
        if libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) == 0 {
            run(plan);
        }
        libc::syscall(libc::SYS_exit_group, 0);
        loop {
            std::hint::spin_loop();
        }
    }
}

/// In the process that stays: tidies up and runs the program.
///
/// # Safety
/// The caller has this process for itself.
unsafe fn run(plan: &Plan) {
    const NULL: &CStr = c"/dev/null";
    // SAFETY: only system calls, with strings that the plan keeps alive; signals go back to what a
    // new program expects.
    unsafe {
        let null = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, NULL.as_ptr(), libc::O_RDWR) as RawFd;
        let ready = libc::syscall(libc::SYS_fcntl, plan.ready, libc::F_DUPFD, 10) as RawFd;
        for stream in 0..3 {
            libc::syscall(libc::SYS_dup3, null, stream, 0);
        }
        libc::syscall(libc::SYS_dup3, ready, READY_DESCRIPTOR, 0);
        libc::syscall(libc::SYS_close_range, READY_DESCRIPTOR + 1, u32::MAX, 0);
        let none = [0u64; 4]; // struct sigaction of the kernel: SIG_DFL, no flags, no restorer, no mask
        for signal in 1..=64 {
            libc::syscall(libc::SYS_rt_sigaction, signal, none.as_ptr(), 0, 8);
        }
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, none.as_ptr(), 0, 8);
        for program in &plan.programs {
            let (arguments, environment) = (plan.arguments.as_ptr(), plan.environment.as_ptr());
            libc::syscall(libc::SYS_execve, program.as_ptr(), arguments, environment);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn start(script: &str) -> Ready {
        let arguments: [&[u8]; 2] = [b"-c", script.as_bytes()];
        spawn_detached(&[Path::new("/nonexistent"), Path::new("/bin/sh")], &arguments, |_| false).unwrap()
    }

    #[test]
    fn a_detached_program_says_that_it_is_ready_and_is_no_child() {
        assert!(start("printf r >&3").wait(Instant::now() + Duration::from_secs(20)));
        let mut status = 0;
        // SAFETY: a plain call with a live local.
        let waited = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        assert!(waited <= 0, "the detached program is a child");
    }

    #[test]
    fn one_that_ends_silently_is_not_ready() {
        assert!(!start("exit 0").wait(Instant::now() + Duration::from_secs(20)));
    }
}
