//! Programs that may still join when a session has no client left.
//!
//! Between exec and its agent's `Hello` only the kernel knows of a program; its environment tells.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use tompion_lineage::proc_files::{all_processes, stat_field};

/// Time within which programs that were started last may join.
const JOIN_TIMEOUT: Duration = Duration::from_millis(250);
/// ...and those that were made less than so long ago: on a busy machine they may not have got far.
const YOUNG: Duration = Duration::from_secs(1);
/// A program that is just being executed has no environment for a moment, so it is looked for more
/// than once.
const LOOKS: u32 = 3;
/// Time between these, if there is a program that may still connect.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Search for programs that may join.
pub struct NewcomerSearch<'a> {
    session: &'a str,
    begun: Instant,
    /// Looks in a row that found none.
    absent: u32,
}

impl<'a> NewcomerSearch<'a> {
    /// A search that begins now, for the session of this name.
    pub fn new(session: &'a str) -> Self {
        Self { session, begun: Instant::now(), absent: 0 }
    }

    /// Whether a program may still join. Looks once, and sleeps a moment if there may be one.
    pub fn may_join(&mut self) -> bool {
        if self.absent == LOOKS {
            return false;
        }
        let newcomers = newcomers_with_in_environment(self.session);
        match newcomers.youngest {
            None => self.absent += 1,
            Some(age) if age < YOUNG || self.begun.elapsed() < JOIN_TIMEOUT => self.absent = 0,
            Some(_) => return false,
        }
        if newcomers.executing || newcomers.hidden || newcomers.youngest.is_some() {
            thread::sleep(LOOK_INTERVAL);
        }
        true
    }
}

/// Processes that may be about to join a session, found by one pass over `/proc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Newcomers {
    /// Age of the youngest process that was started with the session's name in its environment.
    youngest: Option<Duration>,
    /// Whether a process had no environment: it may just be executing a program, and the kernel
    /// shows the new environment only at the end of that.
    executing: bool,
    /// Whether a young process has an environment that we may not read. It is granted the pause
    /// between looks, and no more: such programs rarely take part.
    hidden: bool,
}

/// Searches all processes for those that have this text in their environment.
fn newcomers_with_in_environment(text: &str) -> Newcomers {
    let own = std::process::id();
    let mut found = Newcomers::default();
    for pid in all_processes().filter(|pid| *pid != own) {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let environment = match fs::read(process.join("environ")) {
            Ok(environment) => environment,
            // Another user's, which may have the name all the same.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                found.hidden |= age_of(&process).is_some_and(|age| age < YOUNG);
                continue;
            }
            Err(_) => continue,
        };
        if environment.windows(text.len()).any(|window| window == text.as_bytes()) {
            let age = age_of(&process).unwrap_or(Duration::MAX);
            found.youngest = Some(found.youngest.map_or(age, |youngest| youngest.min(age)));
        } else if environment.is_empty() {
            found.executing |= may_be_executing(&process);
        }
    }
    found
}

/// Whether a process without an environment is an ordinary one that has not begun to exit.
/// Source: field 9 of `proc_pid_stat(5)`, `include/linux/sched.h`.
fn may_be_executing(process: &Path) -> bool {
    const PF_EXITING: u64 = 0x4;
    const PF_KTHREAD: u64 = 0x0020_0000;
    stat_field(process, 9).is_some_and(|flags| flags & (PF_EXITING | PF_KTHREAD) == 0)
}

/// Age of the process that has this folder below `/proc`. Source: field 22 of `proc_pid_stat(5)`,
/// which is in hundredths of a second since the machine was started, on all processors that Linux
/// has left.
fn age_of(process: &Path) -> Option<Duration> {
    let begun = stat_field(process, 22)?;
    Some(Duration::from_nanos(tompion_os::boottime_ns().saturating_sub(begun.saturating_mul(10_000_000))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_may_join_a_session_are_found() {
        let name = format!("tompion-newcomers-{}", std::process::id());
        assert_eq!(newcomers_with_in_environment(&name).youngest, None);
        let mut sleep = std::process::Command::new("sleep");
        let mut child = sleep.arg("60").env("NEWCOMER", &name).spawn().unwrap();
        while newcomers_with_in_environment(&name).youngest.is_none() {}
        child.kill().unwrap();
        // It has no environment any more, as a program that is just being executed.
        let folder = PathBuf::from(format!("/proc/{}", child.id()));
        while stat_field(&folder, 9).unwrap() & 4 == 0 {}
        assert!(!may_be_executing(&folder));
        child.wait().unwrap();
        assert!(may_be_executing(Path::new("/proc/self")) && !may_be_executing(&folder));
    }

    #[test]
    fn a_process_is_as_old_as_the_time_since_it_was_made() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let folder = Path::new("/proc").join(child.id().to_string());
        let (begun, first) = (std::time::Instant::now(), age_of(&folder).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        let (second, passed) = (age_of(&folder).unwrap(), begun.elapsed());
        assert!(age_of(Path::new("/proc/1")).unwrap() > second);
        assert!(second - first <= passed && second > first, "{first:?} {second:?} {passed:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(age_of(&folder), None);
    }
}
