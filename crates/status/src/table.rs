//! Rates between two looks.

use std::time::Duration;

use serde::Serialize;
use tompion_control::{Loss, Mode, Process as Recorded};

use crate::{
    look::{Answer, Look},
    recording::ring_bytes,
};

/// Rates between two looks, with the state at the second one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Time between the looks, in nanoseconds.
    pub interval_ns: u64,
    /// Recordings, those with the highest rate first.
    pub recordings: Vec<Recording>,
    /// Recorders that did not answer, one line each.
    pub silent: Vec<String>,
}

/// A recording with the sums of its running processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recording {
    /// Its name.
    pub name: String,
    /// The recorder's process id.
    pub pid: u32,
    /// Treatment of new events when a ring is full.
    pub mode: Mode,
    /// Whether kernel events are recorded, too. They are in no number here.
    pub kernel: bool,
    /// Events per second of processes that ran at both looks, or joined between them.
    pub events_per_s: f64,
    /// Bytes per second that these events took in the rings.
    pub bytes_per_s: f64,
    /// Lost events per second.
    pub lost_per_s: f64,
    /// Lost events since the begin, also of processes that have ended; none if unknown.
    pub lost: Option<u64>,
    /// Bytes that the rings may take. Pages that were never written are not taken.
    pub ring_bytes: u64,
    /// Share of one CPU that the recorder took; none if unknown.
    pub cpu: Option<f64>,
    /// Processes that have ended since the begin. Events after the first look are in no rate.
    pub ended: u64,
    /// Running processes, those with the highest rate first.
    pub processes: Vec<Process>,
}

/// A recorded process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Process {
    /// Its id, in the recorder's pid namespace.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Events per second.
    pub events_per_s: f64,
    /// Bytes per second that these events took in the rings.
    pub bytes_per_s: f64,
    /// Lost events per second.
    pub lost_per_s: f64,
    /// Lost events since it joined; none if unknown.
    pub lost: Option<u64>,
    /// Share of its fullest ring that holds events: those that wait to be written, or a flight
    /// recorder's history. In percent.
    pub fill_percent: u64,
    /// Seconds of history that the ring with the highest rate holds once it is full; none without a
    /// rate, and in discard mode.
    pub history_s: Option<f64>,
}

impl Table {
    /// Compares two looks.
    pub fn between(before: &Look, after: &Look) -> Self {
        let interval = after.at.saturating_duration_since(before.at);
        let mut recordings: Vec<_> = after
            .recordings
            .iter()
            .map(|found| {
                let same =
                    |it: &&Answer| it.status.name == found.status.name && it.status.pid == found.status.pid;
                recording(before.recordings.iter().find(same), found)
            })
            .collect();
        recordings.sort_by(|one, other| other.events_per_s.total_cmp(&one.events_per_s));
        Self {
            interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
            recordings,
            silent: after.silent.iter().map(|silent| silent.error.clone()).collect(),
        }
    }
}

/// A recording that was not there at the first look has no rates yet.
fn recording(before: Option<&Answer>, after: &Answer) -> Recording {
    let interval = before.map_or(Duration::ZERO, |before| after.at.saturating_duration_since(before.at));
    let status = &after.status;
    let is_flight_recorder = status.mode == Mode::Overwrite;
    let mut processes: Vec<_> = status
        .processes
        .iter()
        .map(|process| {
            let same = |it: &&Recorded| it.pid == process.pid && it.appended <= process.appended;
            let earlier = before.map(|before| before.status.processes.iter().find(same));
            // Recorders of before have one size for all.
            let ring = if process.ring_bytes == 0 { status.ring_bytes } else { process.ring_bytes };
            let history = if is_flight_recorder { ring } else { 0 };
            rates(earlier, process, Interval { seconds: interval.as_secs_f64(), history })
        })
        .collect();
    processes.sort_by(|one, other| other.events_per_s.total_cmp(&one.events_per_s));
    let lost = |found: &Answer| found.status.processes.iter().map(lost).fold(ended(found), sum);
    let all_lost = lost(after);
    let since = before.and_then(lost).zip(all_lost).map_or(0, |(before, after)| after.saturating_sub(before));
    let cpu = before.and_then(|before| before.cpu).zip(after.cpu);
    Recording {
        name: status.name.clone(),
        pid: status.pid,
        mode: status.mode,
        kernel: status.kernel,
        events_per_s: processes.iter().map(|process| process.events_per_s).sum(),
        bytes_per_s: processes.iter().map(|process| process.bytes_per_s).sum(),
        lost_per_s: per_second(since, interval.as_secs_f64()),
        lost: all_lost,
        ring_bytes: ring_bytes(status),
        cpu: cpu.map(|(before, after)| share(after.saturating_sub(before), interval)),
        ended: status.ended_processes,
        processes,
    }
}

/// Time between two looks.
#[derive(Clone, Copy)]
struct Interval {
    seconds: f64,
    /// Bytes of history of a flight recorder's ring; 0 in discard mode.
    history: u64,
}

/// `earlier` is none if the recording was not seen, and holds none if the process was not.
fn rates(earlier: Option<Option<&Recorded>>, process: &Recorded, interval: Interval) -> Process {
    let rate = |of: &dyn Fn(&Recorded) -> u64| {
        let new = earlier.map_or(0, |earlier| of(process).saturating_sub(earlier.map_or(0, of)));
        per_second(new, interval.seconds)
    };
    let rings = 0..process.appended_bytes.len();
    let of_rings = rings.map(|ring| rate(&|process| process.appended_bytes.get(ring).copied().unwrap_or(0)));
    let of_rings: Vec<f64> = of_rings.collect();
    let highest = of_rings.iter().copied().fold(0.0, f64::max);
    let knows_losses = earlier.flatten().is_none_or(|earlier| lost(earlier).is_some());
    let has_history = interval.history > 0 && highest > 0.0;
    Process {
        pid: process.pid,
        name: process.name.clone(),
        events_per_s: rate(&|process| process.appended),
        bytes_per_s: of_rings.iter().sum(),
        lost_per_s: if knows_losses { rate(&|process| lost(process).unwrap_or(0)) } else { 0.0 },
        lost: lost(process),
        fill_percent: process.fill_percent.min(100),
        history_s: has_history.then(|| interval.history as f64 / highest),
    }
}

/// Events that a process has lost; none if its counters are impossible.
fn lost(process: &Recorded) -> Option<u64> {
    (!process.losses_unknown).then(|| total(&process.lost))
}

fn ended(found: &Answer) -> Option<u64> {
    Some(total(&found.status.ended_lost))
}

fn total(losses: &[Loss]) -> u64 {
    losses.iter().map(|loss| loss.events).fold(0, u64::saturating_add)
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.saturating_add(other?))
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

fn share(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Instant;

    use tompion_control::{Following, Rules, Status};

    use super::*;

    pub fn process(pid: u32, appended: u64, lost: Option<u64>) -> Recorded {
        Recorded {
            pid,
            name: format!("program-{pid}"),
            command_line: Vec::new(),
            events: 0,
            overwritten: 0,
            lost: vec![Loss { cause: "full".into(), events: lost.unwrap_or(u64::MAX) }],
            losses_unknown: lost.is_none(),
            rules: Following::Current,
            triggers: Following::Current,
            appended,
            appended_bytes: vec![appended * 24, appended * 8],
            fill_percent: 50,
            ring_bytes_in_all: 0,
            ring_bytes: 0,
        }
    }

    pub fn found(name: &str, mode: Mode, processes: Vec<Recorded>) -> Answer {
        let status = Status {
            name: name.into(),
            pid: 7,
            version: String::new(),
            folder: String::new(),
            command: Vec::new(),
            mode,
            begin_ns: 0,
            rules: Rules { include: Vec::new(), exclude: Vec::new(), level: 14, filter: None },
            rule_changes: 0,
            triggers: Vec::new(),
            kernel: false,
            kernel_events: Vec::new(),
            processes,
            ended_processes: 0,
            ended_events: 0,
            ended_lost: Vec::new(),
            rejected_processes: 0,
            programs: Vec::new(),
            refused: Vec::new(),
            ring_bytes_per_process: 1 << 20,
            ring_bytes: 1 << 19,
            memory: None,
            problems: Vec::new(),
        };
        Answer { at: Instant::now(), status, cpu: Some(Duration::from_millis(100)) }
    }

    pub fn looks(before: Vec<Answer>, after: Vec<Answer>) -> (Look, Look) {
        let look = |at, recordings: Vec<Answer>| {
            let recordings = recordings.into_iter().map(|found| Answer { at, ..found }).collect();
            Look { at, recordings, silent: Vec::new() }
        };
        let at = Instant::now();
        (look(at, before), look(at + Duration::from_secs(2), after))
    }

    #[test]
    fn rates_are_of_what_came_between_the_looks() {
        let before = found("one", Mode::Overwrite, vec![process(1, 1000, Some(5)), process(2, 10, Some(0))]);
        let mut after =
            found("one", Mode::Overwrite, vec![process(1, 3000, Some(25)), process(3, 500, Some(0))]);
        after.cpu = Some(Duration::from_millis(400));
        let (before, after) = looks(vec![before], vec![after]);
        let table = Table::between(&before, &after);
        let [one] = &table.recordings[..] else { panic!("{table:?}") };
        assert_eq!((one.events_per_s, one.lost_per_s, one.lost), (1250.0, 10.0, Some(25)));
        assert_eq!(one.cpu.map(|share| (share * 1000.0).round()), Some(150.0));
        let of = |pid| one.processes.iter().find(|process| process.pid == pid).expect("a process");
        // The second has ended; the third came between the looks, with all its events.
        assert_eq!((of(1).events_per_s, of(1).bytes_per_s), (1000.0, 32000.0));
        assert_eq!((of(3).events_per_s, one.processes.len()), (250.0, 2));
        let history = of(1).history_s.expect("a flight recorder's");
        assert!((history - f64::from(1 << 19) / 24000.0).abs() < 1e-9, "{history}");
    }

    #[test]
    fn what_is_not_known_is_not_counted() {
        let after = found("new", Mode::Discard, vec![process(1, 3000, None)]);
        let (before, after) = looks(Vec::new(), vec![after]);
        let table = Table::between(&before, &after);
        let new = &table.recordings[0];
        // Its events may be older than the first look.
        assert_eq!((new.events_per_s, new.lost, new.cpu), (0.0, None, None));
        assert_eq!(new.processes[0].history_s, None);
    }

    #[test]
    fn losses_that_become_known_are_no_rate() {
        let before = found("one", Mode::Discard, vec![process(1, 10, None)]);
        let after = found("one", Mode::Discard, vec![process(1, 10, Some(1_000_000))]);
        let (before, after) = looks(vec![before], vec![after]);
        let table = Table::between(&before, &after);
        let one = &table.recordings[0];
        assert_eq!((one.lost, one.lost_per_s, one.processes[0].lost_per_s), (Some(1_000_000), 0.0, 0.0));
    }

    /// A process id that is used again, or counters that a program has changed.
    #[test]
    fn counters_that_go_back_are_another_process() {
        let before = found("one", Mode::Discard, vec![process(1, 1_000_000, Some(0))]);
        let after = found("one", Mode::Discard, vec![process(1, 100, Some(0))]);
        let (before, after) = looks(vec![before], vec![after]);
        assert_eq!(Table::between(&before, &after).recordings[0].events_per_s, 50.0);
    }
}
