//! Attaching: running processes are asked to take part, by the attach sockets of their agents.
//!
//! Any user can take names like those of an attach socket. The kernel tells which process listens
//! under a name, so a stranger's name is only one more to try.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use tompion_lineage::proc_files::all_processes;
use tompion_os::{PacketSocket, users_of};
use tompion_protocol::{message::ToAgent, names};

/// Time between two searches for programs that can't find the session.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);
/// Time for which a process that has the library is asked again.
const ASK_TIMEOUT: Duration = Duration::from_millis(500);
/// Time between two requests.
const ASK_INTERVAL: Duration = Duration::from_millis(5);

/// Reason why a process can't be asked.
#[derive(Debug)]
pub struct AskError {
    /// The reason in a line.
    pub text: String,
    /// Whether the process has loaded the library, or may have.
    pub has_library: bool,
}

impl From<String> for AskError {
    fn from(text: String) -> Self {
        Self { text, has_library: true }
    }
}

/// As [`ask`], for a process that the user has named. One that was started a moment ago has no
/// socket yet, and on a busy machine it may close the connection before it has heard the request.
///
/// # Errors
/// The process can't be asked.
pub fn ask_patiently(pid: u32, session: &str) -> Result<(), AskError> {
    let until = Instant::now() + ASK_TIMEOUT;
    loop {
        match ask(pid, session) {
            Err(_) if Instant::now() < until && has_library(pid) => thread::sleep(ASK_INTERVAL),
            result => return result,
        }
    }
}

/// Whether a process has loaded the library, as far as we can look into it.
fn has_library(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("libtompion"))
}

/// Asks a process's agent to take part in the session of a name.
fn ask(pid: u32, session: &str) -> Result<(), AskError> {
    ask_at(pid, session, &attach_sockets())
}

/// Asks like [`ask`], with the attach sockets that this machine has. Returns whether the process
/// takes the request.
fn is_asked_at(pid: u32, session: &str, sockets: &AttachSockets) -> bool {
    let found = tompion_os::pid_namespace_of(&pid.to_string()).zip(tompion_os::innermost_pid(pid));
    found.is_some_and(|(namespace, inner)| ring(sockets.of(namespace, inner), pid, session).is_ok())
}

/// Asks like [`ask`], with the attach sockets that this machine has.
fn ask_at(pid: u32, session: &str, sockets: &AttachSockets) -> Result<(), AskError> {
    let folder = Path::new("/proc").join(pid.to_string());
    if !folder.exists() {
        return Err(format!("there is no process {pid}").into());
    }
    let name = tompion_os::name_of(&pid.to_string()).unwrap_or_else(|| "process".into());
    let Some(inner) = tompion_os::innermost_pid(pid) else {
        return Err(format!("process {pid} has exited").into());
    };
    let Some(namespace) = tompion_os::pid_namespace_of(&pid.to_string()) else {
        let reason = match tompion_os::effective_user() {
            0 => "this root has no CAP_SYS_PTRACE over it, as in some containers; run tompion outside",
            _ => "run tompion as its user or as root",
        };
        return Err(format!("no right to look into {name} ({pid}): {reason}").into());
    };
    let names = sockets.of(namespace, inner);
    ring(names, pid, session).map_err(|obstacle| {
        let maps = fs::read_to_string(folder.join("maps")).ok();
        let has_library = maps.as_ref().is_none_or(|maps| maps.contains("libtompion"));
        let reason = if has_library {
            let found = obstacle.describe(pid, &Surroundings::of(&folder, maps));
            format!("can't be asked to take part: {found}")
        } else {
            "has not loaded libtompion (not linked with -ltompion?)".to_owned()
        };
        AskError { text: format!("{name} ({pid}) {reason}"), has_library }
    })
}

/// Reason why a process that has the library doesn't get the request.
enum Obstacle {
    /// It listens nowhere.
    NoSocket,
    /// Another process has made the socket that has its name.
    OtherProcess,
    /// Its socket doesn't take the request.
    Failed(io::Error),
}

impl From<io::Error> for Obstacle {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::NoSocket,
            _ => Self::Failed(error),
        }
    }
}

impl Obstacle {
    /// Says what was expected, what was found, and what to do.
    fn describe(&self, pid: u32, surroundings: &Surroundings) -> String {
        match self {
            Self::NoSocket => {
                format!("expected its attach socket, found none; {}", surroundings.explain_absence(pid))
            }
            Self::OtherProcess => {
                "expected its attach socket, found that another process has its name; end that process".into()
            }
            Self::Failed(error) if error.kind() == io::ErrorKind::WouldBlock => {
                format!(
                    "expected room at its attach socket, found it full; is it stopped? (kill -CONT {pid})"
                )
            }
            Self::Failed(error) => {
                format!("expected an answer at its attach socket, found: {error}; try again")
            }
        }
    }
}

/// Facts about a process by which it may have no attach socket here.
#[derive(Default)]
struct Surroundings {
    /// Whether its network namespace is another than this process's; `false` if that is not known.
    is_elsewhere: bool,
    /// Environment with which it was started, if it can be read: `NAME=VALUE`, each with a NUL.
    environment: Option<Vec<u8>>,
    /// Its mappings, if they can be read.
    maps: Option<String>,
}

impl Surroundings {
    /// Reads those of the process that has this folder below `/proc`.
    fn of(folder: &Path, maps: Option<String>) -> Self {
        let namespaces = [Path::new("/proc/self"), folder].map(|it| fs::read_link(it.join("ns/net")).ok());
        Self {
            is_elsewhere: matches!(&namespaces, [Some(own), Some(other)] if own != other),
            environment: fs::read(folder.join("environ")).ok(),
            maps,
        }
    }

    /// Whether the process was started with this variable; `None` if that can't be read.
    fn has(&self, variable: &str, value: &str) -> Option<bool> {
        let wanted = format!("{variable}={value}");
        let mut variables = self.environment.as_ref()?.split(|byte| *byte == 0);
        Some(variables.any(|variable| variable == wanted.as_bytes()))
    }

    /// Names the causes that are possible, and what to do.
    fn explain_absence(&self, pid: u32) -> String {
        let [disable, attach] = [names::DISABLE_VARIABLE, names::ATTACH_VARIABLE];
        if self.is_elsewhere {
            return format!(
                "it is in another network namespace: run tompion there (nsenter --net=/proc/{pid}/ns/net)"
            );
        }
        for (variable, value) in [(disable, "1"), (attach, "0")] {
            if self.has(variable, value) == Some(true) {
                return format!("it was started with {variable}={value}: start it without");
            }
        }
        if self.maps.as_deref().is_some_and(has_preloads) && self.has(attach, "1") != Some(true) {
            return format!("it may have events of --preload alone: start it with {attach}=1");
        }
        let hidden = match self.environment {
            Some(_) => String::new(),
            None => format!("{disable}=1, {attach}=0, "),
        };
        format!(
            "it may have {hidden}no events, or no right to sockets: start it with TOMPION_LOG=debug to see"
        )
    }
}

/// Whether a process has loaded libraries of `--preload`.
fn has_preloads(maps: &str) -> bool {
    ["malloc", "pthread", "func"].iter().any(|name| maps.contains(&format!("/libtompion-{name}.so")))
}

/// Sends the session's name to the one of these sockets where the process itself listens. The
/// others belong to processes that have taken a name like its own.
fn ring(names: impl Iterator<Item = String>, pid: u32, session: &str) -> Result<(), Obstacle> {
    let mut obstacle = Obstacle::NoSocket;
    for name in names {
        match PacketSocket::connect_at_once(&name) {
            Ok(socket) if is_by(&socket, pid)? => {
                return Ok(socket.send(&ToAgent::Join(session.to_owned()).encode(), &[])?);
            }
            Ok(_) => obstacle = Obstacle::OtherProcess,
            Err(error) => obstacle = error.into(),
        }
    }
    Err(obstacle)
}

/// Whether this very process made the listening socket: the number is its own, it is alive, and so
/// no process that had the number before, and the user is one that it is, or root.
fn is_by(socket: &PacketSocket, pid: u32) -> io::Result<bool> {
    let peer = socket.peer()?;
    let is_alive = || socket.peer_watch().is_ok_and(|process| !process.has_ended());
    Ok(peer.pid == pid && (peer.uid == 0 || users_of(pid).contains(&peer.uid)) && is_alive())
}

/// Names of all attach sockets of this network namespace, also of those that only look like one.
#[derive(Debug, Default)]
pub struct AttachSockets(BTreeMap<(u64, u32), Vec<String>>);

impl AttachSockets {
    /// Reads a table of all Unix sockets. Abstract names stand there with an @ before them.
    fn parse(table: &str) -> Self {
        let mut sockets = Self::default();
        let names = table.lines().filter_map(|line| line.split(' ').next_back()?.strip_prefix('@'));
        for name in names {
            if let Some(process) = names::process_of_attach_socket(name) {
                sockets.0.entry(process).or_default().push(name.to_owned());
            }
        }
        sockets
    }

    /// Returns the attach sockets that may be of a process: its pid namespace and its id there.
    fn of(&self, namespace: u64, pid: u32) -> impl Iterator<Item = String> {
        self.0.get(&(namespace, pid)).into_iter().flatten().cloned()
    }

    /// Ids of the processes that seem to have one, as this process sees them: those of its pid
    /// namespace, and of the namespaces below it.
    pub fn processes(&self) -> Vec<u32> {
        let own = tompion_os::pid_namespace().unwrap_or(0);
        let is_here = |process: &&(u64, u32)| process.0 == own;
        let mut processes: Vec<u32> = self.0.keys().filter(is_here).map(|process| process.1).collect();
        if processes.len() < self.0.len() {
            let has_socket = |pid: &u32| {
                let namespace = tompion_os::pid_namespace_of(&pid.to_string());
                let other = namespace.filter(|namespace| *namespace != own);
                other
                    .zip(tompion_os::innermost_pid(*pid))
                    .is_some_and(|process| self.0.contains_key(&process))
            };
            processes.extend(all_processes().filter(has_socket));
        }
        processes
    }
}

/// Finds the attach sockets of this network namespace. Source: `/proc/net/unix` in `proc_net(5)`.
pub fn attach_sockets() -> AttachSockets {
    AttachSockets::parse(&fs::read_to_string("/proc/net/unix").unwrap_or_default())
}

/// Finds programs by their attach sockets, and asks each of them once.
#[derive(Debug)]
pub struct ProgramSearch {
    asked: BTreeSet<u32>,
    next: Instant,
}

impl ProgramSearch {
    /// Begins a search, which has found none yet.
    pub fn begin() -> Self {
        Self { asked: BTreeSet::new(), next: Instant::now() }
    }

    /// Returns when the next round is due.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Asks the programs that have come since the last round and that `is_wanted` accepts.
    pub fn ask_new(&mut self, session: &str, is_wanted: impl Fn(u32) -> bool) {
        let sockets = attach_sockets();
        let processes = sockets.processes();
        let is_asked = |pid: &u32| {
            // Some end at this moment, and some names are strangers'.
            self.asked.contains(pid) || is_wanted(*pid) && is_asked_at(*pid, session, &sockets)
        };
        // A number that is gone may come again, as another process's.
        self.asked = processes.into_iter().filter(is_asked).collect();
        self.next = Instant::now() + SEARCH_INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attach_sockets_are_found_among_all_names() {
        let line = "0000000000000000: 00000002 00000000 00010000 0005 01 4711";
        let other = format!("{line} /run/x\n{line} @tompion-open-0-1\n{line}\n");
        let [one, two] = [1, 2].map(|random| names::attach_socket(9, 42, random));
        let sockets = AttachSockets::parse(&format!("head\n{other}{line} @{one}\n{line} @{two}\n"));
        assert_eq!(sockets.of(9, 42).collect::<Vec<_>>(), [one, two]);
        assert_eq!(sockets.of(9, 4).count() + sockets.of(8, 42).count(), 0);
    }

    #[test]
    fn a_socket_is_a_processs_only_if_it_made_it_and_lives() {
        let own = std::process::id();
        let name = format!("tompion-test-attach-{own}");
        let _listener = tompion_os::Listener::bind(&name).unwrap();
        let socket = PacketSocket::connect_at_once(&name).unwrap();
        assert!(is_by(&socket, own).unwrap() && !is_by(&socket, own + 1).unwrap());
        assert!(users_of(own).contains(&tompion_os::effective_user()));
    }

    #[test]
    fn only_possible_causes_of_a_missing_socket_are_named() {
        let explain = |is_elsewhere, environment: Option<&str>, maps: &str| {
            let environment = environment.map(|text| text.replace(' ', "\0").into_bytes());
            let maps = Some(maps.to_owned());
            Obstacle::NoSocket.describe(41, &Surroundings { is_elsewhere, environment, maps })
        };
        let own = "/usr/lib/libtompion.so.0";
        let preload = "/usr/lib/libtompion.so.0\n/usr/lib/libtompion-malloc.so";
        for (text, expected, absent) in [
            (explain(true, Some("TOMPION_DISABLE=1"), own), "nsenter --net=/proc/41/ns/net", "DISABLE"),
            (explain(false, Some("A=b TOMPION_DISABLE=1 C=d"), own), "TOMPION_DISABLE=1: start it", "ATTACH"),
            (explain(false, Some("TOMPION_ATTACH=0"), preload), "TOMPION_ATTACH=0: start it", "DISABLE"),
            (
                explain(false, Some("TOMPION_DISABLE=10"), preload),
                "start it with TOMPION_ATTACH=1",
                "DISABLE",
            ),
            (explain(false, Some("TOMPION_ATTACH=1"), preload), "no events", "ATTACH"),
            (explain(false, Some(""), own), "it may have no events", "DISABLE"),
            (explain(false, None, own), "TOMPION_DISABLE=1, TOMPION_ATTACH=0, no events", "namespace"),
        ] {
            assert!(text.starts_with("expected its attach socket, found none; "), "{text}");
            assert!(text.contains(expected) && !text.contains(absent), "{text}");
        }
        let full = Obstacle::from(io::Error::from(io::ErrorKind::WouldBlock));
        let full = full.describe(41, &Surroundings::default());
        assert!(full.contains("found it full") && full.contains("kill -CONT 41"), "{full}");
    }

    #[test]
    fn processes_that_cannot_be_asked_are_named() {
        assert_eq!(ask(u32::MAX / 2, "x").unwrap_err().text, format!("there is no process {}", u32::MAX / 2));
        let own = ask(std::process::id(), "x").unwrap_err().text;
        assert!(own.contains("has not loaded libtompion") || own.contains("can't be asked"), "{own}");
    }
}
