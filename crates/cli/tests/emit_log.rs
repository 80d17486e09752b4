//! Compares a trace with the log that its programs print of the events that they emit
//! (`programs/emit_log.h`).

use std::{collections::BTreeMap, ffi::OsStr, process::Command};

use serde_json::Value;

use crate::support::{Event, Finished, TestDir, Trace, run};

/// Event as its program logged it or as the trace has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Emitted {
    /// The process, by the number that it knows itself by.
    pub pid: u64,
    /// The thread.
    pub tid: u64,
    /// Number within its process and the processes that it was copied from.
    pub number: u64,
    /// Text that tells events of a test apart.
    pub role: String,
}

/// Parses a program's log; sorted by number in each process.
pub fn emitted_in(out: &str) -> Vec<Emitted> {
    let mut emitted: Vec<Emitted> =
        out.lines().filter_map(|line| parse(line.strip_prefix("emitted ")?)).collect();
    emitted.sort();
    emitted
}

fn parse(line: &str) -> Option<Emitted> {
    let mut words = line.splitn(4, ' ');
    let mut number = || words.next().and_then(|word| word.parse().ok());
    let (pid, tid, number) = (number()?, number()?, number()?);
    Some(Emitted { pid, tid, number, role: words.next()?.to_owned() })
}

/// Converts an event of the trace. Its thread must be the one that the context names.
fn recorded(event: &Event) -> Emitted {
    assert_eq!(event.name, "emit_log:step", "{event:?}");
    let number = |field| event.number(field);
    if let Some(tid) = event.context["vtid"].as_u64() {
        assert_eq!(tid, number("tid"), "the context's thread in {event:?}");
    }
    let role = event.fields["role"].as_str().expect("a role").to_owned();
    Emitted { pid: number("pid"), tid: number("tid"), number: number("number"), role }
}

/// Recording whose events are those of the log.
pub struct Recording {
    pub trace: Trace,
    /// Output of `tompion record` and the program.
    pub said: Finished,
    /// The events, in the order of numbers in each process.
    pub emitted: Vec<Emitted>,
}

impl Recording {
    /// Number of events of this role.
    pub fn count(&self, role: &str) -> usize {
        self.emitted.iter().filter(|emitted| emitted.role == role).count()
    }

    /// The losses of the whole trace.
    pub fn lost(&self) -> Value {
        self.trace.stat()["lost"].clone()
    }

    /// The number of events of vfork children.
    pub fn not_traced(&self) -> u64 {
        self.trace.stat()["not_traced"].as_u64().unwrap_or(0)
    }

    /// Returns the number that the program printed after these words.
    #[track_caller]
    pub fn printed(&self, words: &str) -> u64 {
        let mut numbers =
            self.said.out.lines().filter_map(|line| line.strip_prefix(words)?.trim().parse().ok());
        numbers.next_back().unwrap_or_else(|| panic!("no `{words}` in {}", self.said.out))
    }
}

/// Records a program that must end well, and compares each value that it emitted with what is in
/// the trace: each event once, in the source of its own process, in order.
///
/// On a machine that is too busy, children give up waiting for the session. Then as many processes
/// are missing as the recording says that it left out, whole, and not more than half of them.
#[track_caller]
pub fn record(dir: &TestDir, options: &[&str], command: &[&dyn AsRef<OsStr>]) -> Recording {
    recorded_by(dir, &mut dir.recording("trace", options, command))
}

/// Records with a command of the caller's, which writes to `trace`.
#[track_caller]
pub fn recorded_by(dir: &TestDir, command: &mut Command) -> Recording {
    let _ = std::fs::remove_dir_all(dir.path("trace"));
    let said = run(command).succeeded();
    let trace = dir.trace("trace");
    let emitted = emitted_in(&said.out);
    let events = trace.events();
    let mut found: Vec<Emitted> = events.iter().map(recorded).collect();
    found.sort();
    let missing = missing_processes(&found, &emitted);
    assert_eq!(missing as u64, trace.left_out(), "processes are missing: {}", said.err);
    assert!(2 * missing <= processes(&emitted).len(), "{missing} processes are missing: {}", said.err);
    each_in_its_own_source(&events);
    assert_eq!(trace.agreed_count(), found.len() as u64);
    Recording { trace, said, emitted }
}

fn processes(emitted: &[Emitted]) -> BTreeMap<u64, Vec<&Emitted>> {
    let mut processes = BTreeMap::<_, Vec<_>>::new();
    emitted.iter().for_each(|emitted| processes.entry(emitted.pid).or_default().push(emitted));
    processes
}

/// Counts the processes that emitted events of which none was recorded. All events of the others
/// must be recorded.
#[track_caller]
fn missing_processes(found: &[Emitted], emitted: &[Emitted]) -> usize {
    let (mut found, emitted) = (processes(found), processes(emitted));
    let missing = emitted.iter().filter(|(pid, emitted)| {
        let recorded = found.remove(pid);
        assert!(
            recorded.is_none() || recorded.as_ref() == Some(emitted),
            "recorded {recorded:?}, emitted {emitted:?}"
        );
        recorded.is_none()
    });
    let missing = missing.count();
    assert!(found.is_empty(), "recorded, and never emitted: {found:?}");
    missing
}

/// Asserts that events name their process in sources of several processes, and that numbers rise
/// with time within a thread.
fn each_in_its_own_source(events: &[Event]) {
    let mut pids = BTreeMap::new();
    let mut last = BTreeMap::new();
    for event in events {
        let (pid, tid, number) = (event.number("pid"), event.number("tid"), event.number("number"));
        // In the trace that short-lived processes share, each event says whose it is.
        match event.context["vpid"].as_u64() {
            Some(said) => assert_eq!(said, pid, "another process's event in {}", event.source),
            None => assert_eq!(
                *pids.entry(&event.source).or_insert(pid),
                pid,
                "two processes in {}",
                event.source
            ),
        }
        let before = last.insert((&event.source, tid), number);
        assert!(before < Some(number), "{event:?} after {before:?}");
    }
}
