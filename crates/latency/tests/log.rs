//! Tests of the log of single wakeups in the running kernel. Where that isn't permitted, they are
//! skipped with a message.

use std::thread;

use tompion_injector::{Injector, Place};
use tompion_latency::{Kinds, Log, Monitor, Wakeup};
use tompion_os::{gettid, monotonic_ns, run_fifo, sleep_until};

const ROOM: u32 = 100_000;
const ROUNDS: usize = 500;
const INTERVAL: u64 = 400_000;

/// Name of a monitor that is stopped when it is dropped.
struct Name(String);

impl Drop for Name {
    fn drop(&mut self) {
        let _ = Monitor::stop(&self.0);
    }
}

fn name(test: &str) -> Option<Name> {
    let found = tompion_injector::obstacles().into_iter().chain(tompion_latency::obstacles()).next();
    if let Some(found) = found {
        eprintln!("SKIPPED, latencies can't be counted and made here: {}", found.found);
        return None;
    }
    Some(Name(format!("tompion-test-{test}-{}", std::process::id())))
}

/// Sleeps until several times; returns its number, and the times with the clock's readings
/// afterwards.
fn sleep_until_times() -> (u32, Vec<(u64, u64)>) {
    let sleeper = thread::spawn(|| {
        run_fifo(80).expect("a real-time priority");
        let mut time = monotonic_ns() + INTERVAL;
        let mut seen = Vec::with_capacity(ROUNDS);
        while seen.len() < ROUNDS {
            sleep_until(time);
            let now = monotonic_ns();
            seen.push((time, now));
            time = now + INTERVAL;
        }
        (gettid(), seen)
    });
    sleeper.join().expect("a thread that sleeps")
}

#[test]
fn each_wake_up_is_kept_with_the_time_that_was_asked_for() {
    let Some(name) = name("log") else { return };
    let (mut monitor, _) = Monitor::begin_with_log(&name.0, Kinds::ALL, ROOM).unwrap();
    let (tid, seen) = sleep_until_times();
    let log: Log = monitor.log().unwrap();
    let wakeups: Vec<Wakeup> = log.wakeups().into_iter().filter(|wakeup| wakeup.tid == tid).collect();
    let of = |intended| wakeups.iter().find(|wakeup| wakeup.intended_ns == Some(intended));
    let both: Vec<_> = seen.iter().filter_map(|(time, now)| Some((of(*time)?, *now))).collect();
    // Some kernels run no programs while certain processes run (docs/design/kernel.md). So at most
    // a tenth may be missing.
    let not_started = monitor.report(None).not_started as usize;
    assert!(log.room() == u64::from(ROOM) && log.ended() >= both.len() as u64, "{}", log.ended());
    let text = format!("{} of {ROUNDS}, {not_started} programs not started", both.len());
    assert!((both.len() + not_started) * 100 >= ROUNDS * 90 && both.len() * 2 >= ROUNDS, "{text}");
    for (wakeup, now) in both {
        let intended = wakeup.intended_ns.unwrap_or_default();
        // Timers expire early by less than the clock's resolution.
        assert!(wakeup.woken_ns + 1000 >= intended && wakeup.woken_ns <= wakeup.running_ns, "{wakeup:?}");
        assert!(wakeup.running_ns <= now, "{wakeup:?} was over at {now}");
    }
}

#[test]
fn nothing_is_logged_unless_requested() {
    let Some(name) = name("no-log") else { return };
    let (monitor, _) = Monitor::begin(&name.0, Kinds::ALL).unwrap();
    sleep_until_times();
    let log = monitor.log().unwrap();
    assert_eq!((log.room(), log.ended(), log.wakeups()), (0, 0, Vec::new()));
}

#[test]
fn a_delay_with_interrupts_off_is_part_of_the_latency() {
    const DELAY: u64 = 600_000;
    const LEAD: u64 = 100_000;
    let Some(name) = name("delay") else { return };
    let (monitor, _) = Monitor::begin_with_log(&name.0, Kinds::ALL, ROOM).unwrap();
    let injector = Injector::load(&[Place::InterruptsOff]).unwrap();
    let cpu = tompion_os::current_cpu();
    // The time lies within an interval in which another thread of the CPU disables interrupts.
    let late = (0..20).find_map(|_| {
        let moment = monotonic_ns() + 20_000_000;
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                tompion_os::set_affinity(0, &[cpu]).expect("a CPU");
                run_fifo(80).expect("a real-time priority");
                sleep_until(moment);
                gettid()
            });
            let disturber = scope.spawn(|| {
                tompion_os::set_affinity(0, &[cpu]).expect("a CPU");
                run_fifo(70).expect("a real-time priority");
                sleep_until(moment - 2 * LEAD);
                while monotonic_ns() < moment - LEAD {}
                injector.order(gettid(), Place::InterruptsOff, std::time::Duration::from_nanos(DELAY));
                sleep_until(moment + DELAY);
                injector.done(gettid())
            });
            let tid = sleeper.join().expect("a thread that sleeps");
            let done = disturber.join().expect("a thread that disturbs");
            let wakeups = monitor.log().unwrap().wakeups();
            let wakeup = wakeups.into_iter().find(|it| it.tid == tid && it.intended_ns == Some(moment))?;
            // The machine may have been busy elsewhere.
            (done.begun_ns < moment && done.ended_ns > moment).then_some((wakeup, done))
        })
    });
    let (wakeup, done) = late.expect("a wake-up in the middle of a delay, of twenty attempts");
    assert!(wakeup.woken_ns >= done.ended_ns, "{wakeup:?} {done:?}");
    assert!(wakeup.running_ns > done.ended_ns, "{wakeup:?} {done:?}");
}
