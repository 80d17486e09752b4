//! Tests of the programs in the running kernel. Where that isn't permitted, they are skipped with a
//! message.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::*;
use crate::{Kind, incident::Incident, test_monitor::TestMonitor};

/// Watcher with a threshold that every wakeup of a thread exceeds.
fn watch(own: &TestMonitor, kind: Option<Kind>, threads: &str) -> ThresholdWatcher {
    let rule = ThresholdRule { kind, threads: threads.into(), limit: 1 };
    ThresholdWatcher::begin(own.name(), &[rule]).unwrap_or_else(|error| panic!("{error}"))
}

/// Real-time thread that sleeps repeatedly.
struct Sleeper {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sleeper {
    fn begin(name: &str, time: Duration) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ordered = is_over.clone();
        let sleeper = thread::Builder::new().name(name.into()).spawn(move || {
            tompion_os::run_fifo(60).expect("a real-time priority");
            while !ordered.load(Relaxed) {
                thread::sleep(time);
            }
        });
        Self { is_over, thread: Some(sleeper.expect("a thread")) }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Waits for the first capture that fulfils a condition.
fn caught(watch: &mut ThresholdWatcher, is_so: impl Fn(&Capture) -> bool) -> Capture {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if let Some(caught) = watch.take() {
            if is_so(&caught) {
                return caught;
            }
            watch.go_on(caught.crossing.side, Duration::ZERO);
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("nothing was caught")
}

#[test]
fn given_two_that_watch_the_same_thread_then_both_catch_it() {
    let Some((own, _monitor)) = TestMonitor::new("two") else { return };
    let mut watches = [watch(&own, None, "watched-by-two"), watch(&own, None, "watched-by-two")];
    let _sleeper = Sleeper::begin("watched-by-two", Duration::from_millis(1));
    for watch in &mut watches {
        assert_eq!(caught(watch, |_| true).crossing.name, "watched-by-two");
    }
}

#[test]
fn given_interrupts_when_watching_begins_then_nothing_is_known_of_them() {
    let Some((own, _monitor)) = TestMonitor::new("begin") else { return };
    let _sleeper = Sleeper::begin("from-begin", Duration::from_micros(50));
    for _ in 0..5 {
        let mut watch = watch(&own, None, "from-begin");
        let caught = caught(&mut watch, |_| true);
        for noted in &caught.history.cpus {
            let first = noted.events.first().map(|event| event.time);
            assert!(first.is_none_or(|first| first >= noted.known_from), "{first:?} {}", noted.known_from);
        }
    }
}

#[test]
fn given_a_thread_that_did_not_get_to_sleep_then_it_is_caught() {
    let Some((own, _monitor)) = TestMonitor::new("awake") else { return };
    let mut watch = watch(&own, None, "never-asleep");
    // The timer expires before the thread sleeps.
    let _sleeper = Sleeper::begin("never-asleep", Duration::from_nanos(1));
    let caught = caught(&mut watch, |caught| caught.crossing.kind == Kind::TimerWakeupAll.number() as u32);
    let incident = Incident::of(&caught, 0);
    assert_eq!((incident.class.as_str(), incident.before.tid), ("timer-wakeup-all", incident.thread.tid));
    assert!(incident.question.intended > 0 && incident.latency_ns > 0, "{incident:?}");
    assert_eq!(incident.segments.iter().map(|segment| segment.length()).sum::<u64>(), incident.latency_ns);
}

#[test]
fn given_a_limit_from_the_wakeup_on_then_the_incident_says_so() {
    let Some((own, _monitor)) = TestMonitor::new("from") else { return };
    let mut watch = watch(&own, Some(Kind::Wakeup), "from-waking");
    let _sleeper = Sleeper::begin("from-waking", Duration::from_millis(1));
    let caught = caught(&mut watch, |caught| caught.crossing.intended > 0);
    let incident = Incident::of(&caught, 0);
    let from_waking = incident.question.end - incident.question.woken;
    assert_eq!(incident.from_waking_ns, Some(from_waking));
    assert!(from_waking < incident.latency_ns, "{incident:?}");
}

#[test]
fn given_no_room_for_a_message_then_the_next_late_one_is_caught_all_the_same() {
    let Some((own, _monitor)) = TestMonitor::new("room") else { return };
    let mut watch = watch(&own, None, "no-room");
    let _sleeper = Sleeper::begin("no-room", Duration::from_micros(300));
    let begun = Instant::now();
    let (mut kept, mut stays) = (0, 0);
    // Until no message is left, though the next one may be.
    while stays < 20 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{kept} kept");
        watch.memory.arm();
        thread::sleep(Duration::from_millis(5));
        let (late, not_saved) = watch.late();
        stays = if late - not_saved == kept { stays + 1 } else { 0 };
        kept = late - not_saved;
    }
    // Messages are read and dropped.
    while watch.messages.next().is_some() {}
    caught(&mut watch, |_| true);
}

#[test]
fn given_a_program_that_was_not_started_then_an_incident_says_so() {
    let Some((own, _monitor)) = TestMonitor::new("misses") else { return };
    let mut watch = watch(&own, None, "not-started");
    let _sleeper = Sleeper::begin("not-started", Duration::from_millis(1));
    let caught = Capture { not_started: 3, ..caught(&mut watch, |_| true) };
    let problems = Incident::of(&caught, 0).problems;
    assert!(problems.iter().any(|problem| problem.starts_with("3 events are missing")), "{problems:?}");
}
