//! Monitor that counts in the running kernel for one test, and threads for it to count.
#![allow(dead_code, reason = "each test program uses a part")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::thread::{CpuSet, sched_setaffinity};
use tompion_latency::{Begun, Kind, KindReport, Kinds, Monitor, Report};
use tompion_os::{gettid, run_fifo, thread_usage};

/// Monitor of one test, stopped when it is dropped.
pub struct TestMonitor(pub String);

impl TestMonitor {
    pub fn new(test: &str) -> Option<Self> {
        let found: Vec<String> = tompion_latency::obstacles().into_iter().map(|it| it.found).collect();
        if !found.is_empty() {
            eprintln!("SKIPPED, latencies can't be counted here: {}", found.join("; "));
            return None;
        }
        Some(Self(format!("tompion-test-{test}-{}", std::process::id())))
    }

    pub fn begin(&self) -> Monitor {
        let (monitor, begun) = Monitor::begin(&self.0, Kinds::ALL).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(begun, Begun::Now);
        monitor
    }
}

impl Drop for TestMonitor {
    fn drop(&mut self) {
        let _ = Monitor::stop(&self.0);
    }
}

/// Minimum number of 200 wakeups that are seen: on a busy machine the kernel skips a program now
/// and then, which reports show.
pub const ENOUGH: u64 = 150;

/// Sleeps repeatedly in a real-time thread; returns its number and its sleeps by the scheduler's
/// count.
pub fn sleep_in_real_time(times: u32) -> (u32, u64) {
    let sleeper = thread::spawn(move || {
        run_fifo(80).expect("a real-time priority");
        let before = thread_usage().expect("the thread's usage").voluntary_switches;
        for _ in 0..times {
            thread::sleep(Duration::from_micros(300));
        }
        (gettid(), thread_usage().expect("the thread's usage").voluntary_switches - before)
    });
    sleeper.join().expect("a thread that sleeps")
}

pub fn count_of(report: &Report, kind: Kind) -> u64 {
    report.cpus.iter().filter_map(|cpu| cpu.kinds.get(&kind)).map(|kind| kind.count).sum()
}

/// Functions that had the CPU in the maxima.
pub fn codes<'a>(kinds: impl Iterator<Item = &'a KindReport>) -> Vec<String> {
    kinds.filter_map(|kind| kind.worst.as_ref()).flat_map(|late| late.code.clone()).collect()
}

/// Has a real-time thread wait for one of higher priority on the first CPU, for `ms` milliseconds.
/// On a busy machine either may start late, so it sleeps repeatedly while the other one runs.
pub fn wait_behind_another(ms: u64) {
    let [has_begun, is_over] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let on_first_cpu = |priority: u32, work: Box<dyn FnOnce() + Send>| {
        thread::spawn(move || {
            let mut first = CpuSet::new();
            first.set(0);
            sched_setaffinity(None, &first).expect("the first CPU");
            run_fifo(priority).expect("a real-time priority");
            work();
        })
    };
    let nap = || thread::sleep(Duration::from_millis(1));
    let (begun, over) = (has_begun.clone(), is_over.clone());
    let waiting = on_first_cpu(
        50,
        Box::new(move || {
            begun.store(true, Ordering::Relaxed);
            while !over.load(Ordering::Relaxed) {
                nap();
            }
        }),
    );
    let spinning = on_first_cpu(
        60,
        Box::new(move || {
            while !has_begun.load(Ordering::Relaxed) {
                nap();
            }
            // More than once: the kernel may skip the program for a wakeup.
            for _ in 0..3 {
                thread::sleep(Duration::from_millis(8));
                let until = tompion_os::monotonic_ns() + ms * 1_000_000;
                while tompion_os::monotonic_ns() < until {}
            }
            is_over.store(true, Ordering::Relaxed);
        }),
    );
    waiting.join().expect("a thread that waits");
    spinning.join().expect("a thread that spins");
}
