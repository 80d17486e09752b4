//! What the states of a recording say of the kernel and of programs. Where the kernel can't be
//! recorded, a line says so instead.

use tompion_analysis::state::{self, Happening, Instant, Interval, State, Track, Visitor, Waker, Why};

use crate::kernel::permitted;
use crate::support::TestDir;

#[derive(Default)]
struct Kept(Vec<Interval>, Vec<Instant>);

impl Visitor for Kept {
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
    let mut kept = Kept::default();
    state::run(&mut traces, &mut kept);
    let Kept(intervals, instants) = kept;
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
    let mut kept = Kept::default();
    state::run(&mut traces, &mut kept);
    let Kept(intervals, instants) = kept;
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
