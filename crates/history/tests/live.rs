//! Histories of a monitor that counts in the running kernel. Where that isn't permitted, a line
//! says so and nothing is tested.

#[path = "../../latency/tests/test_monitor/mod.rs"]
mod test_monitor;

use test_monitor::{ENOUGH, TestMonitor, codes, count_of, sleep_in_real_time, wait_behind_another};
use tompion_history::{Choice, EventKind, HistoryWriter, Longest, Span, Store};
use tompion_latency::{Kind, Maximum, Monitor};

#[test]
fn a_history_has_everything_once_however_often_its_writer_is_replaced() {
    let Some(own) = TestMonitor::new("history") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let mut monitor = own.begin();
    let keep =
        |monitor: &mut Monitor| HistoryWriter::begin(&path, &own.0, &[]).unwrap().write(monitor).unwrap();
    sleep_in_real_time(300);
    keep(&mut monitor);
    // No process writes for a while; another one continues.
    sleep_in_real_time(300);
    drop(monitor);
    let mut monitor = Monitor::resume(&own.0).unwrap();
    keep(&mut monitor);
    // A reset doesn't concern the history.
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
    // Each row has the maximum of its own interval.
    let mut of_rows = std::collections::BTreeMap::new();
    history
        .maxima(&Choice::of(Span::ALL), |longest| {
            let Longest::Latency(point) = longest else { panic!("no job is watched: {longest:?}") };
            let longest = of_rows.entry((point.cpu, point.kind)).or_insert(0);
            *longest = point.ns.max(*longest);
        })
        .unwrap();
    for ((cpu, kind), ns) in of_rows {
        assert_eq!((report.max_us[&cpu][&kind] * 1000.0).round() as u64, ns);
    }
}

#[test]
fn given_a_history_that_cannot_be_written_for_long_then_the_longest_is_known_exactly_all_the_same() {
    let Some(own) = TestMonitor::new("full") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let mut monitor = own.begin();
    let mut writer = HistoryWriter::begin(&path, &own.0, &[]).unwrap();
    // The maximum since the reset is older than the failed rows.
    wait_behind_another(60);
    writer.write(&mut monitor).unwrap();
    let coverage = || Store::open_to_read(&path).unwrap().outline(&Choice::of(Span::ALL)).unwrap().coverage;
    let first = coverage();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("ALTER TABLE rows RENAME TO away").unwrap();
    wait_behind_another(20);
    for _ in 0..4 {
        assert!(writer.write(&mut monitor).is_err(), "there is no place for rows");
        sleep_in_real_time(50);
    }
    other.execute_batch("ALTER TABLE away RENAME TO rows").unwrap();
    writer.write(&mut monitor).unwrap();
    let span = Span { from_ms: first.last_ms - 1, ..Span::ALL };
    let report = Store::open_to_read(&path).unwrap().period(&Choice::of(span)).unwrap().report();
    assert_eq!(report.coverage.rows, 1);
    let found = &report.cpus[0].kinds[&Kind::Preempted];
    assert!(found.max_is == Maximum::Exact && found.max_us > 5_000.0, "{found:?}");
    let late = found.worst.as_ref().expect("whose it was");
    assert!(late.time_ns / 1_000_000 >= first.last_ms as u64, "{late:?}");
    // The next row has later samples.
    let second = coverage();
    sleep_in_real_time(50);
    writer.write(&mut monitor).unwrap();
    let span = Span { from_ms: second.last_ms - 1, ..Span::ALL };
    let report = Store::open_to_read(&path).unwrap().period(&Choice::of(span)).unwrap().report();
    for kind in report.cpus.iter().flat_map(|cpu| cpu.kinds.values()) {
        assert!(kind.worst.as_ref().is_none_or(|late| late.time_ns >= found.worst.as_ref().unwrap().time_ns));
    }
}

#[test]
fn given_counters_that_cannot_be_read_then_the_history_goes_on_from_there() {
    let Some(own) = TestMonitor::new("lost") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let mut monitor = own.begin();
    let mut writer = HistoryWriter::begin(&path, &own.0, &[]).unwrap();
    sleep_in_real_time(300);
    writer.write(&mut monitor).unwrap();
    let report = || Store::open_to_read(&path).unwrap().period(&Choice::of(Span::ALL)).unwrap().report();
    let before = report().wakeups.woken;
    rusqlite::Connection::open(&path).unwrap().execute("UPDATE counters SET counters = x'ff'", []).unwrap();
    let mut writer = HistoryWriter::begin(&path, &own.0, &[]).unwrap();
    writer.write(&mut monitor).unwrap();
    sleep_in_real_time(300);
    writer.write(&mut monitor).unwrap();
    let after = report();
    // Nothing twice, and later wakeups once. Kernel threads are woken meanwhile, too.
    let woken = after.wakeups.woken - before;
    assert!((ENOUGH..2 * before.max(1000)).contains(&woken), "{before} {woken}");
    assert_eq!(after.events.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::Damaged]);
    assert!(writer.written_ns() > 0);
}

#[test]
fn code_is_named_without_addresses() {
    let Some(own) = TestMonitor::new("code") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let mut monitor = own.begin();
    let mut writer = HistoryWriter::begin(&path, &own.0, &[]).unwrap();
    // A wakeup that is the longest while BPF programs ran has no stack.
    for _ in 0..20 {
        sleep_in_real_time(200);
        writer.write(&mut monitor).unwrap();
        let report = Store::open_to_read(&path).unwrap().period(&Choice::of(Span::ALL)).unwrap().report();
        let kept = codes(report.cpus.iter().flat_map(|cpu| cpu.kinds.values()));
        // Addresses are invalid after the next boot.
        assert!(kept.iter().all(|function| !function.contains("0x")), "{kept:?}");
        if !kept.is_empty() {
            return;
        }
    }
    panic!("no code in the history");
}
