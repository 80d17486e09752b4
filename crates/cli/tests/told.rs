//! Programs that tell on standard output which events they record (`programs/told.h`), held against what
//! is in the trace.

use std::{collections::BTreeMap, ffi::OsStr, process::Command};

use serde_json::Value;

use crate::support::{Event, Finished, Trace, Workshop, run};

/// One event, as its program told it or as it stands in the trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    /// The process, by the number that it knows itself by.
    pub pid: u64,
    /// The thread.
    pub tid: u64,
    /// The how manieth of its process and those that it was copied from.
    pub number: u64,
    /// What was told.
    pub role: String,
}

/// What a program told, in the order of numbers in each process.
pub fn told_in(out: &str) -> Vec<Told> {
    let mut told: Vec<Told> = out.lines().filter_map(|line| parse(line.strip_prefix("told ")?)).collect();
    told.sort();
    told
}

fn parse(line: &str) -> Option<Told> {
    let mut words = line.splitn(4, ' ');
    let mut number = || words.next().and_then(|word| word.parse().ok());
    let (pid, tid, number) = (number()?, number()?, number()?);
    Some(Told { pid, tid, number, role: words.next()?.to_owned() })
}

/// The event as its program should have told it; the thread that wrote it is the one that the context names.
fn recorded(event: &Event) -> Told {
    assert_eq!(event.name, "told:step", "{event:?}");
    let number = |field| event.number(field);
    if let Some(tid) = event.context["vtid"].as_u64() {
        assert_eq!(tid, number("tid"), "the context's thread in {event:?}");
    }
    let role = event.fields["role"].as_str().expect("a role").to_owned();
    Told { pid: number("pid"), tid: number("tid"), number: number("number"), role }
}

/// A recording whose events are those that were told.
pub struct Recording {
    pub trace: Trace,
    /// What `tompion record` and the program said.
    pub said: Finished,
    /// The events, in the order of numbers in each process.
    pub told: Vec<Told>,
}

impl Recording {
    /// How many events of this role.
    pub fn count(&self, role: &str) -> usize {
        self.told.iter().filter(|told| told.role == role).count()
    }

    /// The losses of the whole trace.
    pub fn lost(&self) -> Value {
        self.trace.stat()["lost"].clone()
    }

    /// A number that the program printed behind these words.
    #[track_caller]
    pub fn printed(&self, words: &str) -> u64 {
        let mut numbers =
            self.said.out.lines().filter_map(|line| line.strip_prefix(words)?.trim().parse().ok());
        numbers.next_back().unwrap_or_else(|| panic!("no `{words}` in {}", self.said.out))
    }
}

/// Records a program that must end well, and compares each value that it told with what is in the trace: each
/// event once, in the source of its own process, in order.
///
/// On a machine that is too busy, children give up waiting for the session. Then as many processes are missing as the
/// recording says that it left out, whole, and not more than half of them.
#[track_caller]
pub fn record(shop: &Workshop, options: &[&str], command: &[&dyn AsRef<OsStr>]) -> Recording {
    recorded_by(shop, &mut shop.recording("trace", options, command))
}

/// The same for a command that was put together by the caller; it records into `trace`.
#[track_caller]
pub fn recorded_by(shop: &Workshop, command: &mut Command) -> Recording {
    let _ = std::fs::remove_dir_all(shop.path("trace"));
    let said = run(command).succeeded();
    let trace = shop.trace("trace");
    let told = told_in(&said.out);
    let events = trace.events();
    let mut found: Vec<Told> = events.iter().map(recorded).collect();
    found.sort();
    let missing = missing_processes(&found, &told);
    assert_eq!(missing as u64, trace.left_out(), "processes are missing: {}", said.err);
    assert!(2 * missing <= processes(&told).len(), "{missing} processes are missing: {}", said.err);
    each_in_its_own_source(&events);
    assert_eq!(trace.agreed_count(), found.len() as u64);
    Recording { trace, said, told }
}

fn processes(told: &[Told]) -> BTreeMap<u64, Vec<&Told>> {
    let mut processes = BTreeMap::<_, Vec<_>>::new();
    told.iter().for_each(|told| processes.entry(told.pid).or_default().push(told));
    processes
}

/// How many processes told something of which nothing was recorded. Of the others, all must be there.
#[track_caller]
fn missing_processes(found: &[Told], told: &[Told]) -> usize {
    let (mut found, told) = (processes(found), processes(told));
    let missing = told.iter().filter(|(pid, told)| {
        let recorded = found.remove(pid);
        assert!(
            recorded.is_none() || recorded.as_ref() == Some(told),
            "recorded {recorded:?}, told {told:?}"
        );
        recorded.is_none()
    });
    let missing = missing.count();
    assert!(found.is_empty(), "recorded, and never told: {found:?}");
    missing
}

/// No source has events of two processes that don't say whose they are, and within a thread numbers rise with time.
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
