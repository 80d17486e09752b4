//! Whom a session records: a command, processes that run, all programs of a user, or programs that record
//! themselves into a folder.

use std::{fs, os::unix::fs::MetadataExt, path::Path, time::Duration};

/// Whom a session records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A command that the session starts, and all programs that inherit its environment.
    Command(Vec<String>),
    /// Processes that run already, by id, and the children that they have from now on.
    Processes(Vec<u32>),
    /// All instrumented programs of the user, those that run and those that start later.
    Everything,
    /// Programs that were told to record themselves into a folder; the name under which they look for the
    /// session. It ends when they all have.
    Gathering(String),
}

impl Target {
    /// The command with its arguments, if that is the target.
    pub fn command(&self) -> &[String] {
        match self {
            Self::Command(words) => words,
            _ => &[],
        }
    }

    /// The processes, if they are the target.
    pub fn processes(&self) -> &[u32] {
        match self {
            Self::Processes(pids) => pids,
            _ => &[],
        }
    }

    /// The target in words.
    pub fn describe(&self) -> String {
        match self {
            Self::Command(words) => format!("`{}`", words.first().map_or("", String::as_str)),
            Self::Processes(pids) => match pids[..] {
                [pid] => format!("process {pid}"),
                _ => format!("{} processes", pids.len()),
            },
            Self::Everything => "the programs of this user".into(),
            Self::Gathering(_) => "the program".into(),
        }
    }
}

/// Whom the door lets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Whoever knows the name.
    Anyone,
    /// These processes and their descendants.
    Family(Vec<u32>),
}

impl Admission {
    /// Whether a process may come in.
    pub fn lets_in(&self, pid: u32) -> bool {
        match self {
            Self::Anyone => true,
            Self::Family(heads) => ancestry(pid).any(|ancestor| heads.contains(&ancestor)),
        }
    }
}

/// Whether a process is no more, so that nobody can tell whose child it was.
pub fn is_gone(pid: u32) -> bool {
    pid != 0 && !Path::new(&format!("/proc/{pid}")).exists()
}

/// A process and its ancestors, from the process on.
fn ancestry(pid: u32) -> impl Iterator<Item = u32> {
    const MOST_GENERATIONS: usize = 1000;
    std::iter::successors(Some(pid), |pid| parent_of(*pid)).take(MOST_GENERATIONS)
}

/// A process's parent. Source: field 4 of `proc_pid_stat(5)`.
fn parent_of(pid: u32) -> Option<u32> {
    let parent = stat_field(Path::new(&format!("/proc/{pid}")), 4)?;
    u32::try_from(parent).ok().filter(|parent| *parent != 0)
}

/// Reads a number of the `stat` file in a process's folder below `/proc`, by its position from 3 on.
/// Source: `proc_pid_stat(5)`.
pub fn stat_field(process: &Path, field: usize) -> Option<u64> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // The name before it may have blanks and parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(field.checked_sub(3)?)?.parse().ok()
}

/// How long ago a process was made that has this folder below `/proc`. Source: field 22 of `proc_pid_stat(5)`, which is in
/// hundredths of a second since the machine was started, on all processors that Linux has left.
pub fn age_of(process: &Path) -> Option<Duration> {
    let begun = stat_field(process, 22)?;
    Some(Duration::from_nanos(tompion_os::boottime_ns().saturating_sub(begun.saturating_mul(10_000_000))))
}

/// Whether a process belongs to one of these users.
pub fn is_of(pid: u32, users: &[u32]) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| users.contains(&process.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_a_process_and_its_descendants() {
        let own = std::process::id();
        let parent = parent_of(own).unwrap();
        assert!(Admission::Anyone.lets_in(1));
        assert!(Admission::Family(vec![own]).lets_in(own));
        assert!(Admission::Family(vec![parent]).lets_in(own));
        assert!(!Admission::Family(vec![own]).lets_in(parent));
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

    #[test]
    fn who_has_ended_is_nobodys_child() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(is_gone(pid) && !Admission::Family(vec![std::process::id()]).lets_in(pid));
        assert!(!is_gone(std::process::id()));
    }
}
