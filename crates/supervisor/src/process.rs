//! A recorder's process: watched by a pidfd, and known by its id and its start time together.

use std::{
    io,
    os::fd::AsFd as _,
    process::{Child, ExitStatus},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tompion_os::{Poller, ProcessWatch};

/// There is no such process. Source: `errno(3)`; the number is the same on all platforms.
const ESRCH: i32 = 3;

/// A process for good: its id alone may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: u32,
    /// Start time in clock ticks since the machine was started.
    pub start_ticks: u64,
}

impl ProcessIdentity {
    /// Sends it a signal, and never a later process of its id.
    ///
    /// # Errors
    /// If it has ended, or can't be watched.
    pub fn send_signal(self, signal: i32) -> io::Result<()> {
        let watch = ProcessWatch::new(self.pid)?;
        match tompion_os::start_ticks(self.pid) == Some(self.start_ticks) {
            true => watch.send_signal(signal),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// A recorder's process.
#[derive(Debug)]
pub struct Process {
    /// Id and start time.
    pub identity: ProcessIdentity,
    /// It was asked to end.
    pub is_stopping: bool,
    /// It was to continue another one's trace.
    pub is_second: bool,
    watch: ProcessWatch,
    /// None if another supervisor started it.
    child: Option<Child>,
    begin: Instant,
}

impl Process {
    /// Watches a process that was just started. One that can't be watched is ended.
    ///
    /// # Errors
    /// If it can't be watched.
    pub fn started(mut child: Child, is_second: bool, poller: &Poller) -> io::Result<Self> {
        let watched = watch(child.id(), poller);
        let (identity, watch) = or_end(&mut child, watched)?;
        Ok(Self { is_second, ..Self::new(identity, watch, Some(child)) })
    }

    /// Watches a process that an earlier supervisor has started. `None` if it has ended.
    ///
    /// # Errors
    /// If it can't be watched: there are too many descriptors, for example.
    pub fn adopted(identity: ProcessIdentity, poller: &Poller) -> io::Result<Option<Self>> {
        let (found, watch) = match watch(identity.pid, poller) {
            Ok(watched) => watched,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        if found != identity {
            poller.remove(watch.as_fd());
            return Ok(None);
        }
        Ok(Some(Self::new(identity, watch, None)))
    }

    fn new(identity: ProcessIdentity, watch: ProcessWatch, child: Option<Child>) -> Self {
        Self { identity, is_stopping: false, is_second: false, watch, child, begin: Instant::now() }
    }

    /// Sends it a signal, and never another process.
    ///
    /// # Errors
    /// If it has ended.
    pub fn send_signal(&self, signal: i32) -> io::Result<()> {
        self.watch.send_signal(signal)
    }

    /// Takes note of its end, if it has ended.
    pub fn end(&mut self, poller: &Poller) -> Option<ProcessEnd> {
        if !self.watch.has_ended() {
            return None;
        }
        poller.remove(self.watch.as_fd());
        let status = self.child.as_mut().and_then(|child| child.wait().ok());
        Some(ProcessEnd { status, ran: self.begin.elapsed() })
    }
}

/// End of a recorder's process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessEnd {
    /// Its exit status, if this supervisor started it.
    pub status: Option<ExitStatus>,
    /// Time for which it was watched.
    pub ran: Duration,
}

/// Ends a child that can't be watched: left alone, it would record without anything that ends it.
fn or_end<T>(child: &mut Child, watched: io::Result<T>) -> io::Result<T> {
    watched.map_err(|error| {
        let _ = child.kill().and_then(|()| child.wait());
        io::Error::new(error.kind(), format!("can't watch the recorder: {error}"))
    })
}

fn watch(pid: u32, poller: &Poller) -> io::Result<(ProcessIdentity, ProcessWatch)> {
    let watch = ProcessWatch::new(pid)?;
    // Behind the pidfd: a process that is found with a start time of before is the watched one.
    let Some(start_ticks) = tompion_os::start_ticks(pid) else {
        return Err(match watch.has_ended() {
            true => io::ErrorKind::NotFound.into(),
            false => io::Error::other("its start time can't be read"),
        });
    };
    poller.add(watch.as_fd(), 0)?;
    Ok((ProcessIdentity { pid, start_ticks }, watch))
}

/// Whether an error of [`watch`] says that there is no such process.
///
/// Source: `pidfd_open(2)`. A thread's id is `EINVAL` or, in newer kernels, `ENOENT`.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ESRCH)
        || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn sleep() -> Child {
        Command::new("sleep").arg("600").spawn().expect("sleep")
    }

    #[test]
    fn a_process_of_another_start_time_is_not_adopted() {
        let poller = Poller::new().expect("a poller");
        let mut child = sleep();
        let pid = child.id();
        let start_ticks = tompion_os::start_ticks(pid).expect("a start time");
        let adopt =
            |start_ticks| Process::adopted(ProcessIdentity { pid, start_ticks }, &poller).expect("an answer");
        assert!(adopt(start_ticks + 1).is_none());
        let mut process = adopt(start_ticks).expect("the process");
        assert!(process.end(&poller).is_none());
        child.kill().and_then(|()| child.wait()).expect("an end");
        assert!(process.end(&poller).is_some_and(|end| end.status.is_none()));
        assert!(adopt(start_ticks).is_none());
    }

    #[test]
    fn only_a_process_that_is_not_there_has_ended() {
        let too_many_descriptors = io::Error::from_raw_os_error(24);
        assert!(!is_gone(&too_many_descriptors));
        let poller = Poller::new().expect("a poller");
        for pid in [0, u32::MAX, i32::MAX.unsigned_abs()] {
            let adopted = Process::adopted(ProcessIdentity { pid, start_ticks: 1 }, &poller);
            assert!(adopted.is_ok_and(|process| process.is_none()), "{pid}");
        }
    }

    #[test]
    fn a_process_that_cannot_be_watched_is_ended_and_reaped() {
        let mut child = sleep();
        let pid = child.id();
        let watched = or_end::<()>(&mut child, Err(io::ErrorKind::QuotaExceeded.into()));
        assert!(watched.is_err_and(|error| error.to_string().starts_with("can't watch the recorder")));
        assert_eq!(tompion_os::start_ticks(pid), None);
    }
}
