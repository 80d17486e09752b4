//! Tests of rare states: slots of threads and entries of CPUs are changed while the programs run.

use std::{
    sync::mpsc::{Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::*;
use crate::{Monitor, WakeupAccounting, test_monitor::TestMonitor};

use tompion_testing::wait_until;

/// Real-time threads that sleep as often as ordered.
struct Sleepers(Vec<(u32, Sender<u32>, JoinHandle<()>)>);

impl Sleepers {
    fn begin(number: usize, priority: u32) -> Self {
        let begin = || {
            let (tell, ordered) = channel();
            let (tell_tid, tid) = channel();
            let sleeper = thread::spawn(move || {
                tompion_os::run_fifo(priority).expect("a real-time priority");
                let _ = tell_tid.send(tompion_os::gettid());
                for times in ordered {
                    (0..times).for_each(|_| thread::sleep(Duration::from_micros(300)));
                }
            });
            (tid.recv().expect("a thread"), tell, sleeper)
        };
        Self((0..number).map(|_| begin()).collect())
    }

    fn tids(&self) -> Vec<u32> {
        self.0.iter().map(|sleeper| sleeper.0).collect()
    }

    fn sleep(&self, times: u32) {
        self.0.iter().for_each(|(_, tell, _)| tell.send(times).expect("a thread"));
    }

    fn end(self) {
        for (_, tell, thread) in self.0 {
            drop(tell);
            thread.join().expect("a thread that sleeps");
        }
    }
}

/// Fills slots with entries of no thread.
fn fill(memory: &MappedCounters, rows: impl Iterator<Item = usize>) {
    for row in rows {
        memory.threads.word(row * THREAD).store(u64::MAX - row as u64, Ordering::Relaxed);
    }
}

/// Slots of a thread, and its wakeups there.
fn rows_of(memory: &MappedCounters, tid: u32) -> Vec<(usize, u64)> {
    let found = (0..THREADS).filter(|row| {
        memory.threads.half(row * THREAD + 8).load(Ordering::Relaxed) == tid
            && memory.threads.word(row * THREAD).load(Ordering::Relaxed) != 0
    });
    found.map(|row| (row, memory.threads.word(row * THREAD + 24).load(Ordering::Relaxed))).collect()
}

#[test]
fn given_rows_that_were_given_back_then_a_thread_keeps_the_one_it_has() {
    let Some((_own, monitor)) = TestMonitor::new("rows") else { return };
    let memory = monitor.counters();
    // All but every eighth are taken, so that most threads find theirs behind others.
    fill(memory, (0..THREADS).filter(|row| row % 8 != 7));
    let sleepers = Sleepers::begin(8, 61);
    sleepers.sleep(20);
    let counted = |tid: u32, least: u64| rows_of(memory, tid).iter().map(|row| row.1).sum::<u64>() >= least;
    // Two may want the same slot, and then one has none.
    let has_row = |tid: &u32| !rows_of(memory, *tid).is_empty();
    wait_until("threads have rows", || sleepers.tids().iter().filter(|tid| counted(**tid, 15)).count() >= 4);
    let with_rows: Vec<u32> = sleepers.tids().into_iter().filter(has_row).collect();
    for row in (0..THREADS).filter(|row| row % 8 != 7) {
        memory.threads.word(row * THREAD).store(0, Ordering::Release);
    }
    let before: Vec<u64> = with_rows.iter().map(|tid| rows_of(memory, *tid)[0].1).collect();
    sleepers.sleep(20);
    for (tid, before) in with_rows.into_iter().zip(before) {
        wait_until("it is counted", || counted(tid, before + 15));
        assert_eq!(rows_of(memory, tid).len(), 1, "{:?}", rows_of(memory, tid));
    }
    sleepers.end();
}

#[test]
fn given_more_threads_than_rows_then_reports_say_how_many_wake_ups_are_in_none() {
    let Some((_own, mut monitor)) = TestMonitor::new("rowless") else { return };
    fill(monitor.counters(), 0..THREADS);
    let sleepers = Sleepers::begin(1, 62);
    sleepers.sleep(50);
    wait_until("wake-ups without a row", || WakeupAccounting::read(monitor.counters()).without_row >= 40);
    let page = monitor.exposition(&crate::OfProcess::default());
    let ordered = page.lines().find_map(|line| line.strip_prefix("tompion_wakeups_unattributed_total "));
    assert!(
        ordered.is_some_and(|ordered| ordered.parse::<u64>().is_ok_and(|ordered| ordered >= 40)),
        "{page}"
    );
    // A reset restarts that, too. Other threads are woken without a slot all the while.
    monitor.reset().unwrap();
    let since_reset = monitor.report(None).wakeups.without_row;
    assert!(since_reset + 40 <= WakeupAccounting::read(monitor.counters()).without_row, "{since_reset}");
    sleepers.end();
}

#[test]
fn given_wakeups_missed_before_it_started_then_a_reader_reports_them() {
    let Some((own, monitor)) = TestMonitor::new("before") else { return };
    let sleepers = Sleepers::begin(1, 63);
    sleepers.sleep(50);
    let tid = sleepers.tids()[0];
    let memory = monitor.counters();
    wait_until("its wake-ups", || rows_of(memory, tid).iter().any(|row| row.1 >= 45));
    let row = rows_of(memory, tid)[0].0;
    // As if most of them had been missed.
    memory.threads.word(row * THREAD + 24).fetch_sub(40, Ordering::Relaxed);
    let unseen = Monitor::resume(own.name()).unwrap().report(None).unseen.expect("the scheduler's count");
    assert!(unseen.unseen >= 38 && unseen.slept >= 45, "{unseen:?}");
    // From then on, an interval is compared.
    let mut reader = Monitor::resume(own.name()).unwrap();
    reader.look_from_now();
    assert!(reader.report(None).unseen.is_none_or(|unseen| unseen.unseen < 38));
    sleepers.end();
}

/// Repeatedly wakes a thread on its own CPU, each time after a write, until enough were counted.
fn wake_behind(monitor: &Monitor, priority: u32, write: impl Fn(&SharedMap, usize, u32)) -> u32 {
    const TIMES: u64 = 200;
    let cpus = tompion_os::allowed_cpus();
    let cpu = *cpus.last().expect("a CPU");
    tompion_os::set_affinity(tompion_os::gettid(), &[cpu]).expect("a CPU");
    let (wake, woken) = channel::<()>();
    let (tell_tid, tid) = channel();
    let sleeper = thread::spawn(move || {
        tompion_os::run_fifo(priority).expect("a real-time priority");
        let _ = tell_tid.send(tompion_os::gettid());
        for () in woken {}
    });
    let tid = tid.recv().expect("a thread");
    let begun = Instant::now();
    while rows_of(monitor.counters(), tid).iter().all(|row| row.1 < TIMES) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", rows_of(monitor.counters(), tid));
        write(&monitor.counters().processors, cpu as usize * PROCESSOR, tid);
        wake.send(()).expect("a thread");
        thread::sleep(Duration::from_micros(200));
    }
    drop(wake);
    sleeper.join().expect("a thread that was woken");
    tid
}

#[test]
fn given_a_timer_whose_end_was_missed_then_later_wakeups_are_not_its() {
    let Some((_own, mut monitor)) = TestMonitor::new("stale") else { return };
    let begun = tompion_os::monotonic_ns();
    let tid = wake_behind(&monitor, 64, |processors, at, _| {
        // Timer of an ended thread, intended to expire at boot.
        processors.word(at + 24).store(1, Ordering::Relaxed);
        processors.word(at + 8).store(1, Ordering::Relaxed);
        processors.word(at).store(1, Ordering::Relaxed);
    });
    let lasted_us = (tompion_os::monotonic_ns() - begun) as f64 / 1000.0;
    let report = monitor.report(None);
    let thread = report.threads.iter().find(|thread| thread.tid == tid).expect("its row");
    assert!(thread.max_us <= lasted_us, "{thread:?}");
}

#[test]
fn given_a_thread_that_was_woken_before_it_left_its_cpu_then_it_is_no_other_one() {
    const PRIORITY: u32 = 37;
    let Some((_own, mut monitor)) = TestMonitor::new("itself") else { return };
    let shared = |monitor: &mut Monitor| -> u64 {
        let report = monitor.report(None);
        let last = *tompion_os::allowed_cpus().last().expect("a CPU");
        let cpus = report.cpus.iter().filter(|cpu| cpu.cpu == last);
        cpus.filter_map(|cpu| cpu.kinds.get(&Kind::Shared)).map(|kind| kind.count).sum()
    };
    let before = shared(&mut monitor);
    wake_behind(&monitor, PRIORITY, |processors, at, tid| {
        const HEAD: usize = 64;
        const RAN: usize = 72;
        let head = processors.word(at + HEAD).load(Ordering::Relaxed);
        // It leaves the CPU a minute from now: later than any wakeup.
        let last = at + RAN + ((head.wrapping_sub(1) & 7) * 16) as usize;
        let priority = 99 - PRIORITY;
        processors.word(last + 8).store(u64::from(tid) << 32 | u64::from(priority), Ordering::Relaxed);
        processors.word(last).store(tompion_os::monotonic_ns() + 60_000_000_000, Ordering::Relaxed);
    });
    // Of 200; other threads may share the CPU.
    assert!(shared(&mut monitor) - before < 100, "{before} {}", shared(&mut monitor));
}
