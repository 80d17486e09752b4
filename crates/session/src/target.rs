//! Whom a session records: a command, processes that run, all programs of a user, or programs that record
//! themselves into a folder.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use tompion_os::PacketSocket;
use tompion_protocol::{message::ToAgent, names};

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
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have anything in it, brackets too.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok().filter(|parent| *parent != 0)
}

/// How long ago a process was made that has this folder below `/proc`. Source: field 22 of `proc_pid_stat(5)`, which is in
/// hundredths of a second since the machine was started, on all processors that Linux has left.
pub fn age_of(process: &Path) -> Option<Duration> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let begun: u64 = rest.split(' ').nth(19)?.parse().ok()?;
    Some(Duration::from_nanos(tompion_os::boottime_ns().saturating_sub(begun.saturating_mul(10_000_000))))
}

/// How long a process that has the library is asked again, and how often.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);

/// As [`ask`], for a process that somebody has named: one that was started a moment ago has no bell yet, and on
/// a busy machine it may hang up before it has heard what we want (it waits a moment for that).
pub fn ask_patiently(pid: u32, session: &str) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    loop {
        match ask(pid, session) {
            Err(_) if Instant::now() < until && has_library(pid) => thread::sleep(PAUSE),
            result => return result,
        }
    }
}

/// Whether a process has loaded the library, as far as we can look into it.
fn has_library(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("libtompion"))
}

/// Asks a process's agent to take part in the session of a name.
pub fn ask(pid: u32, session: &str) -> Result<(), String> {
    let folder = Path::new("/proc").join(pid.to_string());
    if !folder.exists() {
        return Err(format!("there is no process {pid}"));
    }
    let name = tompion_os::name_of(&pid.to_string()).unwrap_or_else(|| "process".into());
    let Some(inner) = tompion_os::innermost_pid(pid) else {
        return Err(format!("there is no process {pid} any more"));
    };
    let Some(namespace) = tompion_os::pid_namespace_of(&pid.to_string()) else {
        return Err(format!("no right to look into {name} ({pid}): run tompion as its user or as root"));
    };
    ring(&names::bell(namespace, inner), pid, session).map_err(|error| {
        let reason = match fs::read_to_string(folder.join("maps")) {
            Ok(maps) if !maps.contains("libtompion") => {
                "has not loaded libtompion (not linked with -ltompion?)".to_owned()
            }
            Ok(maps) if has_preloads(&maps) => format!(
                "can't be asked: {error} (with events of --preload alone a program can be asked only if it was started \
                 with TOMPION_ATTACH=1)"
            ),
            _ => format!(
                "can't be asked: {error} (it has no events, TOMPION_DISABLE=1, TOMPION_ATTACH=0, or a network namespace \
                 of its own)"
            ),
        };
        format!("{name} ({pid}) {reason}")
    })
}

/// Whether a process has loaded libraries of `--preload`.
fn has_preloads(maps: &str) -> bool {
    ["malloc", "pthread", "func"].iter().any(|name| maps.contains(&format!("/libtompion-{name}.so")))
}

fn ring(bell: &str, pid: u32, session: &str) -> io::Result<()> {
    let socket = PacketSocket::connect_at_once(bell)?;
    if socket.peer()?.pid != pid {
        return Err(io::Error::other("its bell is somebody else's"));
    }
    socket.send(&ToAgent::Join(session.to_owned()).encode(), &[])
}

/// Processes of this machine that have a bell, as far as they can be seen.
///
/// Source: abstract names stand in /proc/net/unix (`proc_net(5)`) with an @ before them.
pub fn reachable_processes() -> Vec<u32> {
    let namespace = tompion_os::pid_namespace().unwrap_or(0);
    let prefix = names::bell(namespace, 0);
    let prefix = format!("@{}", prefix.trim_end_matches('0'));
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut pids: Vec<u32> = table
        .lines()
        .filter_map(|line| line.split(' ').next_back()?.strip_prefix(&prefix)?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids.dedup();
    pids
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
        thread::sleep(Duration::from_millis(50));
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

    #[test]
    fn processes_that_cannot_be_asked_are_named() {
        assert_eq!(ask(u32::MAX / 2, "x").unwrap_err(), format!("there is no process {}", u32::MAX / 2));
        let own = ask(std::process::id(), "x").unwrap_err();
        assert!(own.contains("has not loaded libtompion") || own.contains("can't be asked"), "{own}");
    }
}
