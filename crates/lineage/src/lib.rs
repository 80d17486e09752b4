//! Parents and command lines of processes, as `/proc` tells them.
//!
//! ```text
//! control thread ──pid──► reader thread ──► /proc/PID/stat, /proc/PID/cmdline
//!                ◄─────── Lineage, or nothing after [`ANSWER_TIMEOUT`]
//! ```
//!
//! A command line lies in the process's own memory, so reading it can take as long as the process
//! likes. A thread of its own reads it, and the session waits only a moment for the answer.
//! Whatever was not read in time is unknown.
//!
//! [`untraced`] names executed programs that took no part in a recording. What a recording does
//! with its processes is left to the session.
#![forbid(unsafe_code)]

pub mod proc_files;
pub mod untraced;
pub mod untrusted_text;

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::untrusted_text::tidy;

/// Maximum number of arguments that are kept.
const MAX_ARGUMENTS: usize = 64;
/// Maximum number of bytes that are read of all arguments.
const MAX_BYTES: u64 = 2048;
/// Limit of the session's wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(20);

/// Origin of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// Its parent; 0 if unknown.
    pub parent: u32,
    /// Its command line; empty if unknown. The last argument ends with `…` if more was left out.
    pub command_line: Vec<String>,
    /// Its id in its own pid namespace, where that is another one than the caller's; none if
    /// unknown.
    pub inner_pid: Option<u32>,
}

/// Request for a lineage, and where the answer goes.
struct Request {
    pid: u32,
    answer: SyncSender<Lineage>,
}

/// Returns the lineage of a living process, as far as it can be read at once.
pub fn of(pid: u32) -> Lineage {
    static READER: OnceLock<Mutex<Option<SyncSender<Request>>>> = OnceLock::new();
    let reader = READER.get_or_init(|| Mutex::new(start_reader()));
    let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
    let (answer, answered) = mpsc::sync_channel(1);
    let asked = reader.as_ref().map(|reader| reader.try_send(Request { pid, answer }));
    match asked {
        Some(Ok(())) => answered.recv_timeout(ANSWER_TIMEOUT).unwrap_or_default(),
        // It waits for a process that doesn't let itself be read.
        Some(Err(TrySendError::Full(_))) | None => Lineage::default(),
        Some(Err(TrySendError::Disconnected(_))) => {
            *reader = None;
            Lineage::default()
        }
    }
}

/// Formats the end of a process in words.
pub fn describe_end(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => tompion_manifest::ENDED.into(),
    }
}

fn start_reader() -> Option<SyncSender<Request>> {
    let (requests, receiver) = mpsc::sync_channel(1);
    let started = thread::Builder::new().name("lineage".into()).spawn(move || answer_all(&receiver));
    started.ok().map(|_| requests)
}

fn answer_all(requests: &Receiver<Request>) {
    while let Ok(Request { pid, answer }) = requests.recv() {
        // The session may have given up waiting.
        let _ = answer.try_send(read(pid));
    }
}

fn read(pid: u32) -> Lineage {
    let process = Path::new("/proc").join(pid.to_string());
    let parent = proc_files::parent_of(pid);
    let mut bytes = Vec::new();
    let cmdline = File::open(process.join("cmdline"));
    let found = cmdline.and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    if found.is_err() {
        bytes.clear();
    }
    let parent = parent.unwrap_or(0);
    Lineage { parent, command_line: arguments(&bytes), inner_pid: inner_pid(pid) }
}

/// Returns the id that a process has in its own pid namespace, if that is another one.
pub fn inner_pid(pid: u32) -> Option<u32> {
    tompion_os::innermost_pid(pid).filter(|inner| *inner != pid)
}

/// Takes the end off the last argument. A program that has written a title in the place of its
/// arguments may have filled the rest with more of the kind.
fn without_padding(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    match bytes.len() - end {
        // An empty argument at the end.
        2 => &bytes[..end + 1],
        _ => &bytes[..end],
    }
}

/// Splits a command line as `/proc` has it: a NUL behind each argument.
fn arguments(bytes: &[u8]) -> Vec<String> {
    let is_cut = bytes.len() as u64 > MAX_BYTES;
    let bytes = bytes.get(..MAX_BYTES as usize).unwrap_or(bytes);
    let bytes = without_padding(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    let mut words = bytes.split(|byte| *byte == 0);
    let text = |word: &[u8]| tidy(&String::from_utf8_lossy(word), MAX_BYTES as usize);
    let mut arguments: Vec<String> = words.by_ref().take(MAX_ARGUMENTS).map(text).collect();
    if is_cut || words.next().is_some() {
        arguments.last_mut().into_iter().for_each(|last| last.push('…'));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_bounded_and_harmless() {
        assert_eq!(arguments(b"sh\0-c\0\0a b\0"), ["sh", "-c", "", "a b"]);
        assert_eq!(arguments(b""), Vec::<String>::new());
        assert_eq!(arguments(b"ls\0\0"), ["ls", ""]);
        assert_eq!(arguments(b"nginx: worker process\0\0\0\0\0\0"), ["nginx: worker process"]);
        assert_eq!(arguments(b"a\x1b[2J\n\xff\0"), ["a?[2J?\u{fffd}"]);
        let many = b"x\0".repeat(100);
        let found = arguments(&many);
        assert_eq!((found.len(), found[63].as_str()), (64, "x…"));
        let long = vec![b'y'; 5000];
        let found = arguments(&long);
        assert_eq!((found.len(), found[0].len()), (1, 2048 + '…'.len_utf8()));
    }

    #[test]
    fn a_living_process_has_a_parent_and_a_command_line() {
        let found = of(std::process::id());
        let own: Vec<String> = std::env::args().collect();
        assert_eq!(found.command_line.first(), own.first());
        assert_eq!((found.parent, found.inner_pid), (std::os::unix::process::parent_id(), None));
        // A process that is not there has none.
        assert_eq!(of(u32::MAX), Lineage::default());
    }
}
