//! States of a recording with the kernel. If the kernel can't be recorded, a line says so.

use std::collections::BTreeMap;

use tompion_analysis::state::{self, Happening, Instant, Interval, State, Track, Visitor, Waker, Why};

use crate::kernel::permitted;
use crate::support::{TestDir, Trace};

#[derive(Default)]
struct Collected(Vec<Interval>, Vec<Instant>);

impl Visitor for Collected {
    fn interval(&mut self, interval: &Interval) {
        self.0.push(interval.clone());
    }

    fn instant(&mut self, instant: &Instant) {
        self.1.push(instant.clone());
    }
}

#[test]
fn a_sleep_is_a_blocked_state_in_its_call_that_ends_with_a_wakeup() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let trace = dir.record(&["-k"], &[&"sleep", &"0.05"]);
    let mut traces = tompion_reader::open(std::slice::from_ref(&trace.folder)).expect("traces");
    let mut kept = Collected::default();
    state::run(&mut traces, &mut kept);
    let Collected(intervals, instants) = kept;
    let is_sleep = |it: &&Interval| {
        let call = match &it.state {
            State::Blocked { syscall: Some(call), .. } => &**call,
            _ => "",
        };
        // How long, is not asked: before it could sleep, it may have waited for a processor.
        matches!(call, "clock_nanosleep" | "nanosleep")
    };
    let slept: Vec<_> = intervals.iter().filter(is_sleep).collect();
    assert_eq!(slept.len(), 1, "{slept:#?}");
    let Track::Thread(thread) = slept[0].track else { panic!("{:?}", slept[0]) };
    let of_thread: Vec<_> = intervals.iter().filter(|it| it.track == Track::Thread(thread)).collect();
    assert!(of_thread.windows(2).all(|pair| pair[0].end == pair[1].begin), "{of_thread:#?}");
    let next = of_thread.iter().find(|it| it.begin == slept[0].end).expect("it was woken");
    let State::Ready(Why::Woken(waker)) = next.state else { panic!("{next:?}") };
    assert!(matches!(waker, Waker::OwnTimer { .. }), "no thread has ended the sleep: {next:?}");
    let tid = thread.tid;
    let is_wakeup = |it: &&Instant| it.what == Happening::Wakeup { tid, waker } && it.time == next.begin;
    assert_eq!(instants.iter().filter(is_wakeup).count(), 1, "{next:?}");
    let call = intervals.iter().find(|it| it.track == Track::Syscall(thread) && it.end > slept[0].end);
    let call = call.expect("the call has returned");
    assert!(call.begin <= slept[0].begin && call.seen.begin && call.seen.end, "{call:?}");
}

#[test]
fn a_reader_of_a_pipe_is_woken_by_the_thread_that_writes() {
    if !permitted() {
        return;
    }
    let shop = TestDir::new();
    let trace = shop.record(&["-k"], &[&"sh", &"-c", &"(sleep 0.05; echo x) | cat"]);
    let mut traces = tompion_reader::open(std::slice::from_ref(&trace.folder)).expect("traces");
    let mut kept = Collected::default();
    state::run(&mut traces, &mut kept);
    let Collected(intervals, instants) = kept;
    let cat = instants.iter().find_map(|it| match &it.what {
        Happening::Named { tid, name, .. } if name == "cat" => Some(*tid),
        _ => None,
    });
    let cat = cat.expect("cat has run");
    let is_cat = |it: &&Interval| matches!(it.track, Track::Thread(thread) if thread.tid == cat);
    let of_cat: Vec<_> = intervals.iter().filter(is_cat).collect();
    let waits =
        |it: &Interval| matches!(&it.state, State::Blocked { syscall: Some(call), .. } if &**call == "read");
    let woken: Vec<_> = of_cat.windows(2).filter(|pair| waits(pair[0])).map(|pair| &pair[1].state).collect();
    let is_by_thread = |state: &&&State| matches!(state, State::Ready(Why::Woken(Waker::Thread(_))));
    assert!(woken.iter().any(|state| is_by_thread(&state)), "{woken:?}");
}

/// States computed from `print`'s output of a kernel trace, without the state engine.
#[derive(Default)]
struct Printed {
    /// Nanoseconds from switch to switch on one CPU, by thread.
    ran: BTreeMap<i64, i64>,
    /// Switches away from threads that could go on, by time, with the next thread.
    preempted: BTreeMap<(i64, i64), i64>,
    /// Wakeups that come from threads, by time and thread, with their wakers.
    woken: BTreeMap<(i64, i64), i64>,
    /// Whether the kernel did not show a switch, and counted no loss (docs/design/kernel.md).
    is_incomplete: bool,
}

impl Printed {
    /// `gaps` are the times of each CPU between which events are missing.
    fn of(trace: &Trace, gaps: &[(u32, i64, i64)]) -> Self {
        let mut printed = Self::default();
        let mut last: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
        for event in trace.events() {
            let number = |field: &str| event.fields[field].as_i64().unwrap_or(-1);
            match event.name.as_str() {
                "sched_switch" => {
                    let (previous, next) = (number("prev_tid"), number("next_tid"));
                    let before = last.insert(event.cpu, (event.time, next));
                    let is_over_gap = |since: i64| {
                        gaps.iter()
                            .any(|&(cpu, from, to)| cpu == event.cpu && since <= from && to <= event.time)
                    };
                    if let Some((since, tid)) = before.filter(|&(since, _)| !is_over_gap(since)) {
                        printed.is_incomplete |= tid != previous;
                        *printed.ran.entry(tid).or_default() += event.time - since;
                    }
                    if matches!(number("prev_state"), 0 | 0x100) && previous != 0 {
                        printed.preempted.insert((event.time, previous), next);
                    }
                }
                "sched_waking" if event.fields["waker_context"]["value"] == 1 => {
                    let waker = event.context["tid"].as_i64().unwrap_or(-1);
                    printed.woken.insert((event.time, number("tid")), waker);
                }
                _ => {}
            }
        }
        printed.ran.remove(&0);
        printed
    }
}

/// Compares the states of a kernel trace with what follows from its printed events alone. Returns
/// the number of gaps.
fn assert_states_hold(trace: &Trace) -> usize {
    let mut traces = tompion_reader::open(std::slice::from_ref(&trace.folder)).expect("traces");
    let mut kept = Collected::default();
    state::run(&mut traces, &mut kept);
    let gap =
        |loss: &tompion_reader::Loss| Some((loss.cpu?.try_into().ok()?, loss.between.0?, loss.between.1?));
    let gaps: Vec<(u32, i64, i64)> = traces.losses().iter().filter_map(gap).collect();
    let printed = Printed::of(trace, &gaps);
    if printed.is_incomplete {
        eprintln!("SKIPPED, this kernel did not show every switch, and counted no loss");
        return gaps.len();
    }
    let Collected(intervals, instants) = kept;
    let mut ran: BTreeMap<i64, i64> = BTreeMap::new();
    for interval in &intervals {
        let Track::Thread(thread) = interval.track else { continue };
        let tid = i64::from(thread.tid);
        match interval.state {
            State::Running { .. } if interval.seen.begin && interval.seen.end => {
                *ran.entry(tid).or_default() += interval.end - interval.begin;
            }
            State::Ready(Why::Preempted { by }) => {
                let found = printed.preempted.get(&(interval.begin, tid));
                assert_eq!(found, Some(&i64::from(by)), "{interval:?}");
            }
            _ => {}
        }
    }
    assert_eq!(ran, printed.ran);
    for instant in &instants {
        if let Happening::Wakeup { tid, waker: Waker::Thread(waker) } = instant.what {
            let found = printed.woken.get(&(instant.time, i64::from(tid)));
            assert_eq!(found, Some(&i64::from(waker)), "{instant:?}");
        }
    }
    gaps.len()
}

#[test]
fn states_are_what_the_printed_events_say() {
    if !permitted() {
        return;
    }
    let shop = TestDir::new();
    let work = "for i in 1 2 3 4 5 6 7 8; do (sleep 0.02; echo $i) | cat; done; echo";
    let trace = shop.record(&["-k"], &[&"sh", &"-c", &work]);
    assert_eq!(assert_states_hold(&trace), 0, "nothing was lost");
}

#[test]
fn states_of_a_flight_recorder_with_gaps_are_what_the_printed_events_say() {
    if !permitted() {
        return;
    }
    let shop = TestDir::new();
    let work = "i=0; while [ $i -lt 3 ]; do n=0; while [ $n -lt 1500 ]; do /bin/true; n=$((n + 1)); done; \
                kill -USR1 $PPID; sleep 0.2; i=$((i + 1)); done";
    let options = ["-k", "--mode", "overwrite", "--subbuf-size", "64K", "--subbufs", "2"];
    let trace = shop.record(&options, &[&"sh", &"-c", &work]);
    assert!(assert_states_hold(&trace) > 0, "the snapshots have gaps between them");
}
