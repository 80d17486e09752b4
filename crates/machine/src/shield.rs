//! CPUs kept free for one command: everything else moved away, and put back afterwards.
//!
//! ```text
//! raise ─► note a change ─► make it ─► … ─► the command runs ─► lower: undo the notes, last first
//!            │ /run/tompion/shield/changes                        ▲ so do the guardian, when the
//!            └────────────────────────────────────────────────────┘ tool is killed, and `restore`
//! ```
//!
//! Every change is noted before it is made, so any process that finds the notes can undo it. One
//! shield is up at a time: a process locks its folder, and the kernel opens the lock when that
//! process is gone, however it ended.

mod groups;
mod interrupts;
mod notes;
mod threads;

use std::{
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

pub use notes::FOLDER;
use notes::Notes;

use crate::{CpuSet, NoCpus, Root, Unread};

/// Time in which the guardian must start, and in which another process must release the lock.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Request for a shield.
#[derive(Clone, Debug)]
pub struct Config {
    /// Root of `proc`, `sys` and `run`.
    pub root: Root,
    /// The CPUs to keep free.
    pub cpus: CpuSet,
    /// The program that watches this one, and what it is called with before this process's number;
    /// none for no guardian. It calls [`guard`].
    pub guardian: Option<(PathBuf, Vec<String>)>,
}

/// Reason why CPUs could not be kept free.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller is not root.
    #[error("keeping CPUs free takes root: sudo tompion shield …")]
    NotPermitted,
    /// A CPU isn't there.
    #[error("CPUs {0} are not online; there are {1}")]
    NotOnline(CpuSet, CpuSet),
    /// All CPUs were named, or none.
    #[error("of CPUs {0}, name at least one to keep free, and leave at least one for everything else")]
    NothingLeft(CpuSet),
    /// There is a shield.
    #[error("process {0} keeps CPUs free already; one can at a time")]
    Busy(String),
    /// No control groups that know of CPUs.
    #[error(
        "no control groups with cpusets are mounted; mount -t cgroup2 cgroup2 /sys/fs/cgroup, or where other \
         controllers are of version 1: mkdir -p /sys/fs/cgroup/cpuset && mount -t cgroup -o cpuset cpuset \
         /sys/fs/cgroup/cpuset"
    )]
    NoCpusets,
    /// The kernel doesn't take the CPUs out of the others' hands.
    #[error("the kernel does not isolate CPUs {cpus}: {reason}; other cpusets may have them (cpuset.cpus)")]
    Refused {
        /// The CPUs.
        cpus: CpuSet,
        /// Message for users.
        reason: String,
    },
    /// The process that would put things back after a kill did not start.
    #[error("the guardian, which puts everything back when this is killed, did not start")]
    NoGuardian,
    /// A file can't be read.
    #[error("can't read {}", .0.path)]
    Unread(Unread, #[source] io::Error),
    /// A file of the kernel's is not as expected.
    #[error("{0} is not understood")]
    Odd(String, #[source] NoCpus),
    /// Something could not be changed.
    #[error("can't change {0}")]
    Unwritten(String, #[source] io::Error),
}

impl From<Unread> for Error {
    fn from(Unread { path, error }: Unread) -> Self {
        let copy = io::Error::from(error.kind());
        Self::Unread(Unread { path, error: copy }, error)
    }
}

/// Summary of what was moved.
#[derive(Debug, Default)]
pub struct Moved {
    /// Interrupts that came to these CPUs.
    pub interrupts: u64,
    /// Threads of the kernel that could run on them.
    pub kernel_threads: u64,
    /// Problems, a line each: what stays on the CPUs although it should not, and what else failed.
    pub problems: Vec<String>,
}

/// CPUs that are kept free, until [`Shield::lower`] is called. Dropped without it, the guardian
/// puts things back.
#[derive(Debug)]
pub struct Shield {
    root: Root,
    notes: Notes,
    /// The `cgroup.procs` of the group that has the CPUs.
    group: String,
    /// Moves everything away.
    pub moved: Moved,
}

impl Shield {
    /// Keeps the CPUs free.
    ///
    /// Changes that a killed shield left behind are undone first. When this fails, everything is as
    /// before.
    ///
    /// # Errors
    /// See [`Error`]. Single threads or interrupts that can't be moved are no error: they are
    /// listed in [`Moved::problems`].
    pub fn raise(config: &Config) -> Result<Self, Error> {
        let root = &config.root;
        let online = cpus_of(root, "/sys/devices/system/cpu/online")?;
        let absent = config.cpus.without(&online);
        if !absent.is_empty() {
            return Err(Error::NotOnline(absent, online));
        }
        let rest = online.without(&config.cpus);
        if rest.is_empty() || config.cpus.is_empty() {
            return Err(Error::NothingLeft(online));
        }
        let mut notes = lock(root)?;
        let mut moved = Moved { problems: notes.undo(), ..Moved::default() };
        start_guardian(config)?;
        let places = Places { root, cpus: &config.cpus, rest: &rest };
        match groups::make(places, &mut notes, &mut moved) {
            Ok(group) => {
                interrupts::move_away(places, &mut notes, &mut moved);
                threads::move_away(places, &mut notes, &mut moved);
                Ok(Self { root: root.clone(), notes, group, moved })
            }
            Err(error) => {
                notes.undo();
                Err(error)
            }
        }
    }

    /// Lets a command begin on these CPUs.
    ///
    /// # Errors
    /// The group's file can't be opened.
    pub fn admit(&self, command: &mut Command) -> io::Result<()> {
        let group = OwnedFd::from(self.root.open_to_write(&self.group)?);
        tompion_os::begin_in_groups(command, vec![group]);
        Ok(())
    }

    /// Puts everything back. Returns a line for each thing that could not be; it is tried again by
    /// the next shield and by [`restore`].
    pub fn lower(mut self) -> Vec<String> {
        self.notes.undo()
    }
}

/// The CPUs to be free, and those for everything else.
#[derive(Clone, Copy)]
struct Places<'a> {
    root: &'a Root,
    cpus: &'a CpuSet,
    rest: &'a CpuSet,
}

impl Places<'_> {
    /// CPUs to which something must move that may run on these CPUs now; `None` if it can stay.
    fn moved(&self, now: &CpuSet) -> Option<CpuSet> {
        if now.shared_with(self.cpus).is_empty() {
            return None;
        }
        let left = now.without(self.cpus).shared_with(self.rest);
        Some(if left.is_empty() { self.rest.clone() } else { left })
    }
}

/// The list of CPUs in a file.
fn cpus_of(root: &Root, path: &str) -> Result<CpuSet, Error> {
    let text = root.read(path)?;
    CpuSet::from_list(&text).map_err(|wrong| Error::Odd(path.to_owned(), wrong))
}

/// The notes, for this process alone.
fn lock(root: &Root) -> Result<Notes, Error> {
    if root.is_real() && tompion_os::effective_user() != 0 {
        return Err(Error::NotPermitted);
    }
    Notes::lock(root)
}

fn start_guardian(config: &Config) -> Result<(), Error> {
    let Some((program, words)) = &config.guardian else { return Ok(()) };
    let own = std::process::id().to_string();
    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).chain([own.as_bytes()]).collect();
    let started = tompion_os::spawn_detached(&[program], &words, |_| false);
    let ready = started.is_ok_and(|ready| ready.wait(Instant::now() + WAIT_TIMEOUT));
    if ready { Ok(()) } else { Err(Error::NoGuardian) }
}

/// Runs the guardian: it reports `ready`, waits until the process has ended, and undoes the changes
/// that are left.
///
/// # Errors
/// The notes can't be opened.
pub fn guard(root: &Root, pid: u32, ready: impl FnOnce()) -> Result<(), Error> {
    let watch = tompion_os::ProcessWatch::new(pid);
    ready();
    while watch.as_ref().is_ok_and(|watch| !watch.has_ended()) {
        wait_for_end(watch.as_ref().ok());
    }
    let begin = Instant::now();
    loop {
        match lock(root) {
            // A shield that has come up meanwhile has put everything back.
            Err(Error::Busy(_)) if begin.elapsed() < WAIT_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(20))
            }
            Err(Error::Busy(_)) => return Ok(()),
            Err(error) => return Err(error),
            Ok(mut notes) => {
                notes.undo();
                return Ok(());
            }
        }
    }
}

/// Waits until the process has ended, or for a while.
fn wait_for_end(watch: Option<&tompion_os::ProcessWatch>) {
    use std::os::fd::AsFd as _;
    let waited = watch.zip(tompion_os::Poller::new().ok()).and_then(|(watch, poller)| {
        poller.add(watch.as_fd(), 0).ok()?;
        poller.wait(None).ok()
    });
    if waited.is_none() {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Result of [`restore`].
#[derive(Debug, PartialEq, Eq)]
pub enum Restored {
    /// Nothing to put back.
    Nothing,
    /// Everything was put back, but for what these lines say.
    AllBut(Vec<String>),
}

/// Puts back what a killed shield left.
///
/// # Errors
/// There is a shield, or the notes can't be read.
pub fn restore(root: &Root) -> Result<Restored, Error> {
    let mut notes = lock(root)?;
    if notes.are_empty() {
        return Ok(Restored::Nothing);
    }
    Ok(Restored::AllBut(notes.undo()))
}

#[cfg(test)]
mod tests;
