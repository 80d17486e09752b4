//! The programs in the running kernel. Where that isn't permitted, a line says so and nothing is tested.

use std::{
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    thread::{CpuSet, clock_nanosleep_absolute, sched_setaffinity},
    time::{ClockId, Timespec},
};
use tompion_latency::{
    Begun, Group, Kind, KindReport, Kinds, Maximum, Monitor, Report,
    history::{Choice, EventKind, Keeper, Longest, Span, Store},
};
use tompion_os::{gettid, run_fifo, thread_usage};

/// A monitor of a test's own, which goes with it.
struct Own(String);

impl Own {
    fn new(test: &str) -> Option<Self> {
        let found: Vec<String> = tompion_latency::obstacles().into_iter().map(|it| it.found).collect();
        if !found.is_empty() {
            eprintln!("SKIPPED, latencies can't be counted here: {}", found.join("; "));
            return None;
        }
        Some(Self(format!("tompion-test-{test}-{}", std::process::id())))
    }

    fn begin(&self) -> Monitor {
        let (monitor, begun) = Monitor::begin(&self.0, Kinds::ALL).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(begun, Begun::Now);
        monitor
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = Monitor::stop(&self.0);
    }
}

/// Of 200 wake-ups at least so many are seen: on a busy machine the kernel doesn't start a program now and then, which reports tell.
const ENOUGH: u64 = 150;

/// Sleeps so many times in a real-time thread; its number, and how often the scheduler says that it slept.
fn sleep_in_real_time(times: u32) -> (u32, u64) {
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

fn count_of(report: &Report, kind: Kind) -> u64 {
    report.cpus.iter().filter_map(|cpu| cpu.kinds.get(&kind)).map(|kind| kind.count).sum()
}

#[test]
fn every_wake_up_of_a_real_time_thread_is_counted() {
    let Some(own) = Own::new("counted") else { return };
    let mut monitor = own.begin();
    let (tid, slept) = sleep_in_real_time(3000);
    let report = monitor.report(None);
    let thread = report.threads.iter().find(|thread| thread.tid == tid).expect("the thread's row");
    println!("{} of {slept} seen, {:?}", thread.count, report.wakeups);
    // There are kernels that start no programs while certain processes run (docs/design/kernel.md).
    assert!(thread.count <= slept + 50 && thread.count * 100 >= slept * 95, "{} of {slept}", thread.count);
    assert_eq!(thread.priority, "rt 80");
    assert!(thread.max_us >= thread.p999_us && thread.p999_us >= thread.p50_us && thread.p50_us > 0.0);

    // The sums agree: by how wake-ups ended, and by the histograms of each way.
    let wakeups = report.wakeups;
    assert_eq!(wakeups.difference, 0, "{wakeups:?}");
    // Threads of the kernel go on being woken while the histograms are read, one behind the other.
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
    let Some(own) = Own::new("parts") else { return };
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
            // A timer goes off early by less than the clock's step, which is no latency.
            assert!((all - late.latency_us).abs() < 1.0, "{kind}: {late:?}");
            assert!(late.tid != 0 && !late.name.is_empty() && late.time_ns > report.from_ns, "{late:?}");
        }
    }
}

#[test]
fn the_code_that_had_the_cpu_is_named() {
    let Some(own) = Own::new("code") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let mut monitor = own.begin();
    monitor.set_groups(&[Group::threads("*").unwrap()]).unwrap();
    let mut keeper = Keeper::begin(&path, &own.0, &[]).unwrap();
    let [mut of_cpus, mut of_groups] = [Vec::new(), Vec::new()];
    // Where all that is longest came while programs ran, there is none.
    for _ in 0..20 {
        sleep_in_real_time(200);
        let report = monitor.report(None);
        of_cpus.extend(codes(report.cpus.iter().flat_map(|cpu| cpu.kinds.values())));
        of_groups.extend(codes(report.groups.iter().flat_map(|group| group.kinds.values())));
        keeper.write(&mut monitor).unwrap();
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
    // Addresses are of no use in a history, which outlives the kernel that has them.
    let report = Store::open_to_read(&path).unwrap().period(&Choice::of(Span::ALL)).unwrap().report();
    let kept = codes(report.cpus.iter().flat_map(|cpu| cpu.kinds.values()));
    assert!(!kept.is_empty() && kept.iter().all(|function| !function.contains("0x")), "{kept:?}");
}

/// Functions that had the CPU in what is longest.
fn codes<'a>(kinds: impl Iterator<Item = &'a KindReport>) -> Vec<String> {
    kinds.filter_map(|kind| kind.worst.as_ref()).flat_map(|late| late.code.clone()).collect()
}

#[test]
fn counting_goes_on_without_a_reader_and_a_reset_loses_nothing() {
    let Some(own) = Own::new("resumed") else { return };
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
    // A moment before the reset has all that came since then, and nothing else.
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
    let Some(own) = Own::new("kinds") else { return };
    let mut monitor = own.begin();
    monitor.set_kinds([Kind::MissedTimer].into_iter().collect());
    // What was under way when that was said.
    thread::sleep(Duration::from_millis(10));
    let begin = monitor.snapshot();
    let (tid, _) = sleep_in_real_time(200);
    let report = monitor.report(Some(&begin));
    assert_eq!(report.kinds, [Kind::MissedTimer]);
    assert!(count_of(&report, Kind::MissedTimer) >= ENOUGH);
    assert_eq!(count_of(&report, Kind::Wakeup) + count_of(&report, Kind::TimerWakeupAll), 0);
    // Sums are checked, and threads have their rows, whatever is counted.
    assert!(report.wakeups.wakeup + report.wakeups.shared + report.wakeups.preempted >= ENOUGH);
    assert!(report.threads.iter().any(|thread| thread.tid == tid && thread.count >= ENOUGH));
    monitor.set_kinds(Kinds::ALL);
    let begin = monitor.snapshot();
    sleep_in_real_time(200);
    assert!(count_of(&monitor.report(Some(&begin)), Kind::TimerWakeupAll) >= ENOUGH);
}

#[test]
fn a_thread_that_is_behind_its_own_plan_has_misses() {
    let Some(own) = Own::new("misses") else { return };
    let mut monitor = own.begin();
    let plan = thread::spawn(|| {
        run_fifo(70).expect("a real-time priority");
        let now = tompion_os::monotonic_ns();
        for round in 1..=100u64 {
            // Each tenth time is one that has passed, as after a computation that took too long.
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
    // Being late is not the kernel's latency: the time that had passed begins when the timer was armed.
    assert!(report.wakeups.difference == 0 && thread.max_us < 50_000.0, "{thread:?}");
}

/// Gives the calling thread 3 ms in each 6 ms, before everybody else.
fn take_deadline() -> bool {
    let tid = gettid().to_string();
    let settings = ["-d", "-T", "3000000", "-D", "6000000", "-P", "6000000", "-p", "0", &tid];
    Command::new("chrt").args(settings).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[test]
fn threads_with_deadlines_are_counted_also_when_they_wait_for_their_period() {
    let Some(own) = Own::new("deadlines") else { return };
    let mut monitor = own.begin();
    let thread = thread::spawn(|| {
        let has_deadline = take_deadline();
        let slept = thread_usage().expect("the thread's usage").voluntary_switches;
        (0..100).for_each(|_| thread::sleep(Duration::from_millis(1)));
        let slept = thread_usage().expect("the thread's usage").voluntary_switches - slept;
        // Ends the period: it goes on in the next one.
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

#[test]
fn a_history_has_everything_once_however_often_its_keeper_is_replaced() {
    let Some(own) = Own::new("history") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let mut monitor = own.begin();
    let keep = |monitor: &mut Monitor| Keeper::begin(&path, &own.0, &[]).unwrap().write(monitor).unwrap();
    sleep_in_real_time(300);
    keep(&mut monitor);
    // Nobody writes for a while; another one takes it up.
    sleep_in_real_time(300);
    drop(monitor);
    let mut monitor = Monitor::resume(&own.0).unwrap();
    keep(&mut monitor);
    // A reset is not the history's business.
    monitor.reset().unwrap();
    sleep_in_real_time(300);
    let before = monitor.report(Some(&monitor.snapshot().of_the_beginning()));
    keep(&mut monitor);
    let after = monitor.report(Some(&monitor.snapshot().of_the_beginning()));

    let history = Store::open_to_read(&path).unwrap();
    let report = history.period(&Choice::of(Span::ALL)).unwrap().report();
    assert_eq!(report.coverage.rows, 3);
    for kind in Kind::ALL {
        let found: u64 =
            report.cpus.iter().filter_map(|cpu| cpu.kinds.get(&kind)).map(|kind| kind.count).sum();
        assert!(found >= count_of(&before, kind) && found <= count_of(&after, kind), "{kind}: {found}");
    }
    assert!(report.wakeups.woken >= before.wakeups.woken && report.wakeups.woken <= after.wakeups.woken);
    assert_eq!(report.wakeups.difference, 0);
    for kind in report.cpus.iter().flat_map(|cpu| cpu.kinds.values()) {
        assert!(kind.max_is == Maximum::Exact && kind.max_us > 0.0 && kind.worst.is_some(), "{kind:?}");
    }
    // Each row has the longest of its own time.
    let mut of_rows = std::collections::BTreeMap::new();
    history
        .maxima(&Choice::of(Span::ALL), |longest| {
            let Longest::Latency(point) = longest else { panic!("nobody watches jobs: {longest:?}") };
            let longest = of_rows.entry((point.cpu, point.kind)).or_insert(0);
            *longest = point.ns.max(*longest);
        })
        .unwrap();
    for ((cpu, kind), ns) in of_rows {
        assert_eq!((report.max_us[&cpu][&kind] * 1000.0).round() as u64, ns);
    }
}

/// Has a real-time thread wait for one of a higher priority on the first CPU, for so many milliseconds. On a busy machine either may
/// begin late, so it sleeps, again and again, as long as the other one is there.
fn wait_behind_another(ms: u64) {
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
            // More than once: there may be a wake-up that the kernel starts no program for.
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

#[test]
fn given_a_history_that_cannot_be_written_for_long_then_the_longest_is_known_exactly_all_the_same() {
    let Some(own) = Own::new("full") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let mut monitor = own.begin();
    let mut keeper = Keeper::begin(&path, &own.0, &[]).unwrap();
    // The longest since the reset is older than what can't be written.
    wait_behind_another(60);
    keeper.write(&mut monitor).unwrap();
    let coverage = || Store::open_to_read(&path).unwrap().outline(&Choice::of(Span::ALL)).unwrap().coverage;
    let first = coverage();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("ALTER TABLE rows RENAME TO away").unwrap();
    wait_behind_another(20);
    for _ in 0..4 {
        assert!(keeper.write(&mut monitor).is_err(), "there is no place for rows");
        sleep_in_real_time(50);
    }
    other.execute_batch("ALTER TABLE away RENAME TO rows").unwrap();
    keeper.write(&mut monitor).unwrap();
    let span = Span { from_ms: first.last_ms - 1, ..Span::ALL };
    let report = Store::open_to_read(&path).unwrap().period(&Choice::of(span)).unwrap().report();
    assert_eq!(report.coverage.rows, 1);
    let found = &report.cpus[0].kinds[&Kind::Preempted];
    assert!(found.max_is == Maximum::Exact && found.max_us > 5_000.0, "{found:?}");
    let late = found.worst.as_ref().expect("whose it was");
    assert!(late.time_ns / 1_000_000 >= first.last_ms as u64, "{late:?}");
    // And the next row has what came after it.
    let second = coverage();
    sleep_in_real_time(50);
    keeper.write(&mut monitor).unwrap();
    let span = Span { from_ms: second.last_ms - 1, ..Span::ALL };
    let report = Store::open_to_read(&path).unwrap().period(&Choice::of(span)).unwrap().report();
    for kind in report.cpus.iter().flat_map(|cpu| cpu.kinds.values()) {
        assert!(kind.worst.as_ref().is_none_or(|late| late.time_ns >= found.worst.as_ref().unwrap().time_ns));
    }
}

#[test]
fn given_counters_that_cannot_be_read_then_the_history_goes_on_from_there() {
    let Some(own) = Own::new("lost") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let mut monitor = own.begin();
    let mut keeper = Keeper::begin(&path, &own.0, &[]).unwrap();
    sleep_in_real_time(300);
    keeper.write(&mut monitor).unwrap();
    let report = || Store::open_to_read(&path).unwrap().period(&Choice::of(Span::ALL)).unwrap().report();
    let before = report().wakeups.woken;
    rusqlite::Connection::open(&path).unwrap().execute("UPDATE counters SET counters = x'ff'", []).unwrap();
    let mut keeper = Keeper::begin(&path, &own.0, &[]).unwrap();
    keeper.write(&mut monitor).unwrap();
    sleep_in_real_time(300);
    keeper.write(&mut monitor).unwrap();
    let after = report();
    // Nothing twice, and what came later once. Threads of the kernel are woken meanwhile, too.
    let woken = after.wakeups.woken - before;
    assert!((ENOUGH..2 * before.max(1000)).contains(&woken), "{before} {woken}");
    assert_eq!(after.events.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::Damaged]);
    assert!(keeper.written_ns() > 0);
}
