//! Processes: watching, signalling, and waiting for several things at once.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::check;

/// A process that is watched, whatever becomes of its number. Readable when the process has ended.
#[derive(Debug)]
pub struct ProcessWatch(OwnedFd);

impl ProcessWatch {
    /// Watches the process with this id. Source: `pidfd_open(2)`.
    pub fn new(pid: u32) -> io::Result<Self> {
        // SAFETY: a plain system call; the descriptor is new.
        let raw = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as libc::c_int)?;
        // SAFETY: as above.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// A watch that another process passed on. Source: the line `Pid` in `/proc/PID/fdinfo`,
    /// see `pidfd_open(2)`.
    ///
    /// # Errors
    /// The descriptor is something else.
    pub fn received(descriptor: OwnedFd) -> io::Result<Self> {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd()))?;
        match info.lines().any(|line| line.starts_with("Pid:")) {
            true => Ok(Self(descriptor)),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Sends the process a signal; never another one that has got its number. Source:
    /// `pidfd_send_signal(2)`.
    ///
    /// # Errors
    /// The process has ended (`ESRCH`), or the caller may not send it signals (`EPERM`).
    pub fn send_signal(&self, signal: i32) -> io::Result<()> {
        let (raw, none) = (self.0.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: a plain system call on an open descriptor; without information, the kernel makes
        // its own.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, raw, signal, none, 0) };
        check(result as libc::c_int).map(drop)
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, as the count says.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }
}

impl From<OwnedFd> for ProcessWatch {
    fn from(pidfd: OwnedFd) -> Self {
        Self(pidfd)
    }
}

impl AsFd for ProcessWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sends a signal.
pub fn kill(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: a plain system call.
    check(unsafe { libc::kill(pid as libc::pid_t, signal) }).map(drop)
}

/// Has these signals do nothing to the calling process where they would end it. Programs that it
/// executes get what it was started with: a signal that is caught has its default action again in
/// them (`execve(2)`), which one that is ignored has not.
pub fn ignore_until_exec(signals: &[i32]) {
    extern "C" fn nothing(_: libc::c_int) {}
    for signal in signals {
        // SAFETY: all-zero bytes are a valid structure, without a mask; the handler does nothing,
        // and signals that are ignored or handled are left as they are.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(*signal, std::ptr::null(), &raw mut action) != 0
                || action.sa_sigaction != libc::SIG_DFL
            {
                continue;
            }
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(*signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Ends the calling process by a signal, without a core file. Returns only if the signal does not
/// end processes, or its action can't be set.
pub fn end_by_signal(signal: i32) {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both structures are live and of the right types, and all-zero bytes are a valid
    // action, the default one; the set is initialised before use.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        let action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
}

/// Limits what a command of another user's choice takes, and what it starts: each process has 60 s
/// of CPU time and 1 GiB of memory, and no core file. All processes of the user together are 4,096
/// for it. It runs with the least priority.
///
/// Source: `setrlimit(2)`.
pub fn limit_command(command: &mut Command) {
    const LIMITS: [(libc::c_uint, u64); 4] = [
        (libc::RLIMIT_CPU as libc::c_uint, 60),
        (libc::RLIMIT_DATA as libc::c_uint, 1 << 30),
        (libc::RLIMIT_NPROC as libc::c_uint, 4096),
        (libc::RLIMIT_CORE as libc::c_uint, 0),
    ];
    let limit = || {
        for (kind, most) in LIMITS {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the structure is live.
            check(unsafe { libc::getrlimit(kind as _, &raw mut limit) })?;
            let most = limit.rlim_max.min(most);
            limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: as above.
            check(unsafe { libc::setrlimit(kind as _, &raw const limit) })?;
        }
        // SAFETY: a plain system call.
        check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) }).map(drop)
    };
    // SAFETY: the closure runs in the forked child, which has one thread, and makes only system
    // calls on its own memory.
    unsafe { command.pre_exec(limit) };
}

/// Sends a signal to all processes of the group that this one leads.
///
/// # Errors
/// There is no such group any more (`ESRCH`), or none of its processes is this user's (`EPERM`).
pub fn kill_group(leader: u32, signal: i32) -> io::Result<()> {
    // SAFETY: a plain system call.
    check(unsafe { libc::killpg(leader as libc::pid_t, signal) }).map(drop)
}

/// Name (comm) of a process.
pub fn name_of(pid: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|text| text.trim_end().to_owned())
}

/// Path of a process's executable.
pub fn executable_of(pid: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Whether the program was started with more rights than its starter has (set-user-id and the
/// like), so that it must not follow its environment. Source: `AT_SECURE` in `getauxval(3)`.
pub fn is_privileged_start() -> bool {
    // SAFETY: a plain call.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Has these called around every `fork`: before it, and after it in the parent and in the child.
pub fn on_fork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    unsafe extern "C" {
        fn pthread_atfork(
            before: extern "C" fn(),
            in_parent: extern "C" fn(),
            in_child: extern "C" fn(),
        ) -> libc::c_int;
    }
    // SAFETY: the functions live as long as the program: the library that has them is never
    // unloaded.
    unsafe { pthread_atfork(before, in_parent, in_child) };
}

/// Whether a process has locked memory, or that is unknown. Source: `VmLck`, `proc_pid_status(5)`.
pub fn has_locked_memory(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    locked.is_none_or(|locked| locked.trim() != "0 kB")
}

/// Has a function called when the program ends by `exit` or by returning from `main`, before what
/// was made until now is destroyed.
pub fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function lives as long as the program, as above.
    unsafe { libc::atexit(function) };
}

/// Puts a file in the place of standard error.
pub fn replace_standard_error(file: OwnedFd) -> io::Result<()> {
    // SAFETY: both are open descriptors; standard error is never closed, only replaced.
    check(unsafe { libc::dup3(file.as_raw_fd(), libc::STDERR_FILENO, 0) }).map(drop)
}

/// Limits of the number of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// The one that holds.
    pub soft: u64,
    /// The one up to which a process may raise it without privileges.
    pub hard: u64,
}

/// Returns how many files this process may have open.
pub fn file_limit() -> io::Result<FileLimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live structure of the right type.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    Ok(FileLimit { soft: limit.rlim_cur, hard: limit.rlim_max })
}

/// Allows as many open files as the hard limit does.
pub fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live structure of the right type.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Signals taken from a descriptor instead of by handlers.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks these signals in the calling thread (and in those that it starts later) and takes
    /// them.
    pub fn take(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: the set is initialised by `sigemptyset` before use; the descriptor is new.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            let raw = check(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
            Ok(Self(OwnedFd::from_raw_fd(raw)))
        }
    }

    /// The next signal that has arrived, and whether the kernel sent it (a terminal's Ctrl-C, which
    /// the whole process group gets) rather than a process.
    pub fn next(&self) -> Option<(i32, bool)> {
        const SI_KERNEL: i32 = 0x80;
        // SAFETY: all-zero bytes are a valid structure.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of_val(&info);
        // SAFETY: `info` has `size` writable bytes.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size) };
        (read == size as isize).then_some((info.ssi_signo as i32, info.ssi_code == SI_KERNEL))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Settings that a program which is about to change itself has inherited, to be handed on to those
/// it starts.
#[derive(Clone, Copy, Debug)]
pub struct Inheritance {
    blocked: libc::sigset_t,
    files: libc::rlimit,
}

impl Inheritance {
    /// The blocked signals and the limit of open files, as they are now.
    pub fn current() -> Self {
        // SAFETY: all-zero bytes are valid for both; the calls fill them in.
        unsafe {
            let mut current: Self = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut current.blocked);
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut current.files);
            current
        }
    }

    /// Lets a command start with these, and end by SIGTERM with the thread that starts it.
    ///
    /// Source: `PR_SET_PDEATHSIG` in `prctl(2)`.
    pub fn hand_on_to_companion(self, command: &mut Command) {
        self.hand_on(command);
        // SAFETY: the closure runs in the forked child and makes one system call, which is
        // async-signal-safe.
        unsafe {
            command.pre_exec(|| check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM)).map(drop));
        }
    }

    /// Lets a command start with these.
    pub fn hand_on(self, command: &mut Command) {
        // SAFETY: the closure runs in the forked child and makes only async-signal-safe calls.
        unsafe {
            command.pre_exec(move || {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.blocked, std::ptr::null_mut());
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.files);
                Ok(())
            });
        }
    }
}

/// Number by which a caller knows what it waits for.
pub type Interest = u64;

/// Waits for several descriptors at once.
#[derive(Debug)]
pub struct Poller(OwnedFd);

impl Poller {
    /// Waits for nothing yet.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a plain system call; the descriptor is new.
        let raw = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: as above.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// Waits for the descriptor to become readable, too.
    pub fn add(&self, descriptor: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: interest };
        let (poller, raw) = (self.0.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: `event` is a live structure.
        check(unsafe { libc::epoll_ctl(poller, libc::EPOLL_CTL_ADD, raw, &raw mut event) }).map(drop)
    }

    /// No longer waits for the descriptor.
    pub fn remove(&self, descriptor: BorrowedFd<'_>) {
        let none = std::ptr::null_mut();
        // SAFETY: a plain system call on open descriptors.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, descriptor.as_raw_fd(), none) };
    }

    /// Returns the descriptors that have become readable, waiting for at most `timeout` (for ever
    /// without one).
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<Interest>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let timeout = timeout.map_or(-1, |time| time.as_millis().min(i32::MAX as u128) as libc::c_int);
        // SAFETY: the array has as many elements as the count says.
        let result = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), events.len() as libc::c_int, timeout)
        };
        match check(result) {
            Ok(count) => Ok(events.iter().take(count as usize).map(|event| event.u64).collect()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// Finds a file of a name in the folders of `PATH`, the first that is wanted.
pub fn find_on_path(name: &OsStr, is_wanted: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|file| is_wanted(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_ignored_until_exec_has_its_default_action_in_children() {
        use crate::signal::SIGUSR2;
        ignore_until_exec(&[SIGUSR2]);
        kill(std::process::id(), SIGUSR2).unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        ProcessWatch::new(child.id()).unwrap().send_signal(SIGUSR2).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(SIGUSR2));
        let gone = ProcessWatch::new(std::process::id()).unwrap();
        assert!(gone.send_signal(0).is_ok(), "0 is only a question");
    }

    #[test]
    fn a_process_that_ends_wakes_the_poller() {
        let mut child = std::process::Command::new("sleep").arg("0.05").spawn().unwrap();
        let watch = ProcessWatch::new(child.id()).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(watch.as_fd(), 5).unwrap();
        assert!(!watch.has_ended());
        assert_eq!(poller.wait(Some(Duration::from_secs(10))).unwrap(), [5]);
        assert!(watch.has_ended());
        child.wait().unwrap();
    }
}
