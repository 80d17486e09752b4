//! Tests of the programs in the running kernel. Where that isn't permitted, they are skipped with a
//! message.

mod test_monitor;

use std::{
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    thread::clock_nanosleep_absolute,
    time::{ClockId, Timespec},
};
use test_monitor::{ENOUGH, TestMonitor, codes, count_of, sleep_in_real_time};
use tompion_latency::{Begun, Group, Kind, Kinds, Maximum, Monitor};
use tompion_os::{gettid, run_fifo, thread_usage};

#[test]
fn every_wake_up_of_a_real_time_thread_is_counted() {
    let Some(own) = TestMonitor::new("counted") else { return };
    let mut monitor = own.begin();
    let (tid, slept) = sleep_in_real_time(3000);
    let report = monitor.report(None);
    let thread = report.threads.iter().find(|thread| thread.tid == tid).expect("the thread's row");
    println!("{} of {slept} seen, {:?}", thread.count, report.wakeups);
    // Some kernels run no programs while certain processes run (docs/design/kernel.md).
    assert!(thread.count <= slept + 50 && thread.count * 100 >= slept * 95, "{} of {slept}", thread.count);
    assert_eq!(thread.priority, "rt 80");
    assert!(thread.max_us >= thread.p999_us && thread.p999_us >= thread.p50_us && thread.p50_us > 0.0);

    // The sums agree: wakeups by outcome, and the histograms of each outcome.
    let wakeups = report.wakeups;
    assert_eq!(wakeups.difference, 0, "{wakeups:?}");
    // Kernel threads continue to be woken while the histograms are read one by one.
    for (kind, ended) in
        [(Kind::Wakeup, wakeups.wakeup), (Kind::Shared, wakeups.shared), (Kind::Preempted, wakeups.preempted)]
    {
        assert!(
            count_of(&report, kind).abs_diff(ended) <= 20,
            "{kind}: {} {wakeups:?}",
            count_of(&report, kind)
        );
    }
    let of_timers = count_of(&report, Kind::TimerWakeupAll);
    assert!(of_timers >= count_of(&report, Kind::TimerWakeup) && of_timers >= thread.count * 95 / 100);
    assert!(count_of(&report, Kind::MissedTimer) >= thread.count * 95 / 100);
}

#[test]
fn the_longest_is_known_in_its_parts() {
    let Some(own) = TestMonitor::new("parts") else { return };
    let mut monitor = own.begin();
    sleep_in_real_time(500);
    let report = monitor.report(None);
    for cpu in &report.cpus {
        for (kind, found) in &cpu.kinds {
            assert_eq!(found.max_is, Maximum::Exact, "{kind}");
            assert_eq!(found.histogram.iter().map(|place| place.1).sum::<u64>(), found.count);
            let late = found.worst.as_ref().expect("the longest");
            let parts = [late.timer_us, late.handler_us, late.wakeup_us].into_iter().flatten();
            let all = match kind {
                Kind::Wakeup | Kind::Shared | Kind::Preempted => late.wakeup_us.expect("a wake-up"),
                _ => parts.sum(),
            };
            // A timer expires early by less than the clock's resolution, which is no latency.
            assert!((all - late.latency_us).abs() < 1.0, "{kind}: {late:?}");
            assert!(late.tid != 0 && !late.name.is_empty() && late.time_ns > report.from_ns, "{late:?}");
        }
    }
}

#[test]
fn the_code_that_had_the_cpu_is_named() {
    let Some(own) = TestMonitor::new("code") else { return };
    let mut monitor = own.begin();
    monitor.set_groups(&[Group::threads("*").unwrap()]).unwrap();
    let [mut of_cpus, mut of_groups] = [Vec::new(), Vec::new()];
    // If all maxima came while programs ran, there is none.
    for _ in 0..20 {
        sleep_in_real_time(200);
        let report = monitor.report(None);
        of_cpus.extend(codes(report.cpus.iter().flat_map(|cpu| cpu.kinds.values())));
        of_groups.extend(codes(report.groups.iter().flat_map(|group| group.kinds.values())));
        monitor.reset().unwrap();
        if !of_cpus.is_empty() && !of_groups.is_empty() {
            break;
        }
    }
    assert!(
        of_cpus.iter().chain(&of_groups).all(|function| function.contains('+')),
        "{of_cpus:?} {of_groups:?}"
    );
    assert!(!of_cpus.is_empty() && !of_groups.is_empty(), "no code: {of_cpus:?} {of_groups:?}");
}

#[test]
fn counting_goes_on_without_a_reader_and_a_reset_loses_nothing() {
    let Some(own) = TestMonitor::new("resumed") else { return };
    drop(own.begin());
    let (first, _) = sleep_in_real_time(400);
    let (mut monitor, begun) = Monitor::begin(&own.0, Kinds::ALL).unwrap();
    assert_eq!(begun, Begun::Before);
    let before = monitor.report(None);
    let of_first = before.threads.iter().find(|thread| thread.tid == first).expect("a thread that has ended");
    assert!(of_first.count >= 2 * ENOUGH, "{}", of_first.count);

    let begin = monitor.snapshot();
    monitor.reset().unwrap();
    let (second, _) = sleep_in_real_time(400);
    let after = Monitor::resume(&own.0).unwrap().report(None);
    assert!(
        after.from_ns > before.from_ns
            && after.counting_since_ns.abs_diff(before.counting_since_ns) < 1_000_000_000
    );
    assert!(after.threads.iter().all(|thread| thread.tid != first));
    assert!(after.threads.iter().any(|thread| thread.tid == second && thread.max_is == Maximum::Exact));
    // A time before the reset has all counts since then, and no others.
    let since = monitor.report(Some(&begin));
    assert!(since.wakeups.woken >= after.wakeups.woken && since.wakeups.difference == 0);
    assert!(since.threads.iter().all(|thread| thread.tid != first));

    drop(monitor);
    assert!(Monitor::stop(&own.0).unwrap());
    assert!(!Monitor::stop(&own.0).unwrap());
    // Nothing is left behind.
    assert!(!std::path::Path::new("/run").join(&own.0).exists());
    assert!(matches!(Monitor::resume(&own.0), Err(tompion_latency::Error::NotCounting)));
}

#[test]
fn kinds_are_switched_while_threads_are_woken() {
    let Some(own) = TestMonitor::new("kinds") else { return };
    let mut monitor = own.begin();
    monitor.set_kinds([Kind::MissedTimer].into_iter().collect());
    // Wait for wakeups under way.
    thread::sleep(Duration::from_millis(10));
    let begin = monitor.snapshot();
    let (tid, _) = sleep_in_real_time(200);
    let report = monitor.report(Some(&begin));
    assert_eq!(report.kinds, [Kind::MissedTimer]);
    assert!(count_of(&report, Kind::MissedTimer) >= ENOUGH);
    assert_eq!(count_of(&report, Kind::Wakeup) + count_of(&report, Kind::TimerWakeupAll), 0);
    // Sums are checked and threads have slots, whatever is counted.
    assert!(report.wakeups.wakeup + report.wakeups.shared + report.wakeups.preempted >= ENOUGH);
    assert!(report.threads.iter().any(|thread| thread.tid == tid && thread.count >= ENOUGH));
    monitor.set_kinds(Kinds::ALL);
    let begin = monitor.snapshot();
    sleep_in_real_time(200);
    assert!(count_of(&monitor.report(Some(&begin)), Kind::TimerWakeupAll) >= ENOUGH);
}

#[test]
fn a_thread_that_is_behind_its_own_plan_has_misses() {
    let Some(own) = TestMonitor::new("misses") else { return };
    let mut monitor = own.begin();
    let plan = thread::spawn(|| {
        run_fifo(70).expect("a real-time priority");
        let now = tompion_os::monotonic_ns();
        for round in 1..=100u64 {
            // Every tenth time is past, as after a computation that took too long.
            let time = if round % 10 == 0 { now } else { tompion_os::monotonic_ns() + 1_000_000 };
            let time =
                Timespec { tv_sec: (time / 1_000_000_000) as i64, tv_nsec: (time % 1_000_000_000) as i64 };
            clock_nanosleep_absolute(ClockId::Monotonic, &time).expect("a time to sleep until");
        }
        gettid()
    });
    let tid = plan.join().expect("a thread with a plan");
    let report = monitor.report(None);
    let thread = report.threads.iter().find(|thread| thread.tid == tid).expect("the thread's row");
    assert!((9..=12).contains(&thread.misses), "{thread:?}");
    // An overrun is not the kernel's latency: for a past time, it begins when the timer was armed.
    assert!(report.wakeups.difference == 0 && thread.max_us < 50_000.0, "{thread:?}");
}

/// Gives the calling thread 3 ms of each 6 ms by SCHED_DEADLINE.
fn take_deadline() -> bool {
    let tid = gettid().to_string();
    let settings = ["-d", "-T", "3000000", "-D", "6000000", "-P", "6000000", "-p", "0", &tid];
    Command::new("chrt").args(settings).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[test]
fn threads_with_deadlines_are_counted_also_when_they_wait_for_their_period() {
    let Some(own) = TestMonitor::new("deadlines") else { return };
    let mut monitor = own.begin();
    let thread = thread::spawn(|| {
        let has_deadline = take_deadline();
        let slept = thread_usage().expect("the thread's usage").voluntary_switches;
        (0..100).for_each(|_| thread::sleep(Duration::from_millis(1)));
        let slept = thread_usage().expect("the thread's usage").voluntary_switches - slept;
        // Ends the period: it continues in the next one.
        (0..100).for_each(|_| thread::yield_now());
        (has_deadline, gettid(), slept)
    });
    let (has_deadline, tid, slept) = thread.join().expect("a thread with a deadline");
    if !has_deadline {
        return eprintln!("SKIPPED: no deadlines here, or no chrt");
    }
    let report = monitor.report(None);
    let thread = report.threads.iter().find(|thread| thread.tid == tid).expect("the thread's row");
    println!("{} seen, {slept} slept: {thread:?}", thread.count);
    assert_eq!(thread.priority, "deadline");
    assert!(thread.count >= slept + 90 && thread.count <= slept + 150, "{thread:?}");
    assert_eq!(report.wakeups.difference, 0);
}
