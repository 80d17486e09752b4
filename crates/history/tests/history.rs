//! Histories: rows survive kills, damage and wrong clocks, and reports agree with them.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use tompion_history::{
    Choice, Comparison, Event, EventKind, Fact, HistoryReport, Incident, Longest, Row, Span, Store,
    simulate::{Dice, Machine},
};
use tompion_latency::{Kind, Maximum};

const FIVE_MINUTES: i64 = 300_000;
const HOUR: i64 = 12 * FIVE_MINUTES;
const DAY: i64 = 24 * HOUR;
/// Begin of a day, in milliseconds since 1970.
const BEGIN: i64 = 20_000 * DAY;

/// History in a temporary folder.
struct TestHistory {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl TestHistory {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { path: folder.path().join("history.sqlite"), _folder: folder }
    }

    fn report(&self, from_ms: i64, to_ms: i64) -> HistoryReport {
        let choice = Choice::of(Span { from_ms, to_ms });
        Store::open_to_read(&self.path).unwrap().period(&choice).unwrap().report()
    }

    /// Reads all gaps and discontinuities.
    fn events(&self) -> Vec<Event> {
        Store::open_to_read(&self.path).unwrap().outline(&Choice::of(Span::ALL)).unwrap().events
    }

    /// Reads the longest latency of a CPU and kind in each row, in nanoseconds.
    fn maxima(&self, choice: &Choice, cpu: u32, kind: Kind) -> Vec<(i64, u64)> {
        let mut found = Vec::new();
        Store::open_to_read(&self.path)
            .unwrap()
            .maxima(choice, |longest| match longest {
                Longest::Latency(point) if (point.cpu, point.kind) == (cpu, kind) => {
                    found.push((point.start_ms, point.ns));
                }
                _ => {}
            })
            .unwrap();
        found
    }

    /// Reads the longest response of a job in each row, in nanoseconds, and the sum of all misses.
    fn responses(&self, choice: &Choice, job: &str) -> (Vec<(i64, u64)>, u64) {
        let (mut found, mut misses) = (Vec::new(), 0);
        Store::open_to_read(&self.path)
            .unwrap()
            .maxima(choice, |longest| match longest {
                Longest::Response(response) if response.job == job => {
                    found.push((response.start_ms, response.ns));
                    misses += response.misses;
                }
                _ => {}
            })
            .unwrap();
        (found, misses)
    }
}

fn system(store: &mut Store, kernel: &str) -> i64 {
    let facts = [Fact { name: "kernel".into(), value: kernel.into() }];
    store.begin("tompion-monitor", &facts, ("boot", BEGIN)).unwrap()
}

/// Simulates `count` rows from `start` on.
fn rows(machine: &mut Machine, system: i64, start: i64, count: i64) -> Vec<Row> {
    let row = |number: i64| {
        let start = start + number * FIVE_MINUTES;
        let end = (start + FIVE_MINUTES) as u64 * 1_000_000;
        Row { start, duration: FIVE_MINUTES, system, body: machine.count(300, end) }
    };
    (0..count).map(row).collect()
}

/// Wakeups per row on a simulated machine of two CPUs.
const WOKEN: u64 = 2 * 300 * 1000;

/// Activations per row of its first job.
const RESPONSES: u64 = 300 * 1000;

fn counted(report: &HistoryReport) -> u64 {
    report.cpus.iter().flat_map(|cpu| cpu.kinds.values()).map(|kind| kind.count).sum()
}

#[test]
fn every_time_has_what_was_counted_in_it() {
    let own = TestHistory::new();
    let mut store = Store::open(&own.path).unwrap();
    let number = system(&mut store, "6.12");
    let mut machine = Machine::new(2, 1);
    machine.jobs = 2;
    // More than three days, so that rows are parts of hours and days, or not yet.
    let all = rows(&mut machine, number, BEGIN, 3 * 288 + 17);
    store.append(&all).unwrap();
    let mut dice = Dice::new(5);
    for _ in 0..30 {
        let (one, other) = (dice.below(all.len() as u64) as i64, dice.below(all.len() as u64) as i64);
        let (first, last) = (one.min(other), one.max(other) + 1);
        let report = own.report(BEGIN + first * FIVE_MINUTES, BEGIN + last * FIVE_MINUTES);
        assert_eq!(report.wakeups.woken, (last - first) as u64 * WOKEN);
        assert_eq!(report.coverage.rows as i64, last - first);
        assert_eq!(report.coverage.counted_ms, (last - first) * FIVE_MINUTES);
        // The maximum is that of the rows, with its thread.
        let choice = Choice::of(Span { from_ms: report.from_ms, to_ms: report.to_ms });
        let maxima = own.maxima(&choice, 1, Kind::TimerWakeup);
        let found = &report.cpus[1].kinds[&Kind::TimerWakeup];
        assert_eq!(maxima.len() as i64, last - first);
        let longest = maxima.iter().max_by_key(|point| point.1).unwrap();
        assert_eq!((found.max_us * 1000.0).round() as u64, longest.1);
        assert_eq!((found.max_is, report.max_us[&1][&Kind::TimerWakeup]), (Maximum::Exact, found.max_us));
        let late = found.worst.as_ref().unwrap();
        let time_ms = (late.time_ns / 1_000_000) as i64;
        assert!(time_ms >= longest.0 && time_ms <= longest.0 + FIVE_MINUTES, "{late:?} {longest:?}");
        // The same for jobs.
        let jobs = report.jobs.as_ref().unwrap();
        assert_eq!((jobs.watched_ms as i64, jobs.lost), ((last - first) * FIVE_MINUTES, 0));
        let control = &jobs.jobs[0];
        assert_eq!(
            (control.name.as_str(), control.activations),
            ("motor:control", (last - first) as u64 * RESPONSES)
        );
        assert_eq!(control.places.count(), control.activations);
        let (responses, misses) = own.responses(&choice, "motor:control");
        assert_eq!((responses.len() as i64, misses), (last - first, control.misses));
        let (start, ns) = *responses.iter().max_by_key(|response| response.1).unwrap();
        let longest = control.longest.as_ref().unwrap();
        assert_eq!(((control.max_us * 1000.0).round() as u64, control.max_us), (ns, longest.response_us));
        let time_ms = (longest.time_ns / 1_000_000) as i64;
        assert!(time_ms >= start && time_ms <= start + FIVE_MINUTES, "{longest:?} {start}");
    }
    let whole = own.report(Span::ALL.from_ms, Span::ALL.to_ms);
    assert_eq!(whole.wakeups.woken, all.len() as u64 * WOKEN);
    assert_eq!((whole.from_ms, whole.to_ms), (BEGIN, BEGIN + all.len() as i64 * FIVE_MINUTES));
    // Nothing before the first row.
    assert_eq!(own.report(BEGIN - DAY, BEGIN).coverage.rows, 0);
}

/// History of more than two hours.
fn of_two_hours() -> (TestHistory, Store) {
    let own = TestHistory::new();
    let mut store = Store::open(&own.path).unwrap();
    let number = system(&mut store, "6.12");
    store.append(&rows(&mut Machine::new(1, 1), number, BEGIN, 27)).unwrap();
    (own, store)
}

#[test]
fn given_a_time_within_a_row_then_it_has_all_of_it_and_says_so() {
    let (own, store) = of_two_hours();
    let minute = FIVE_MINUTES / 5;
    let row = BEGIN + 25 * FIVE_MINUTES;
    for incident in [row + 4 * minute, row + FIVE_MINUTES] {
        let found = Incident {
            time_ns: incident as u64 * 1_000_000,
            cpu: 0,
            tid: 7,
            thread: "axis-x".into(),
            kind: Some(Kind::Wakeup),
            latency_ns: 345_678,
            cause: "an interrupt".into(),
            folder: "/nowhere".into(),
        };
        store.record_incident(&found).unwrap();
    }
    let span = |from, to| Span { from_ms: row + from, to_ms: row + to };
    let about = |span: Span| own.report(span.from_ms, span.to_ms);
    let woken = WOKEN / 2;
    for asked in [span(minute, 3 * minute), span(0, 3 * minute), span(minute, FIVE_MINUTES)] {
        let found = about(asked);
        assert_eq!((found.wakeups.woken, found.span()), (woken, span(0, FIVE_MINUTES)), "{asked:?}");
        assert!(asked.is_exceeded_by(found.span()), "{asked:?}");
        assert_eq!(found.incidents.len(), 1, "what happened in the row, and no later");
        assert_eq!(own.maxima(&Choice::of(asked), 0, Kind::TimerWakeup).len(), 1);
    }
    let two = about(span(minute, FIVE_MINUTES + minute));
    assert_eq!((two.wakeups.woken, two.span()), (2 * woken, span(0, 2 * FIVE_MINUTES)));
    // Full five minutes stay five minutes, also where rows begin and end slightly late.
    for moment in [0, 999] {
        let asked = span(-moment, FIVE_MINUTES - moment);
        let found = about(span(FIVE_MINUTES - moment, 3 * FIVE_MINUTES));
        assert_eq!(found.wakeups.woken, woken, "{moment}");
        assert!(!asked.is_exceeded_by(span(0, FIVE_MINUTES)), "{moment}");
    }
}

#[test]
fn given_two_times_that_meet_within_a_row_then_one_side_has_it() {
    let (_own, store) = of_two_hours();
    let meeting = BEGIN + 25 * FIVE_MINUTES + FIVE_MINUTES / 2;
    let sides = [Span { to_ms: meeting, ..Span::ALL }, Span { from_ms: meeting, ..Span::ALL }];
    let compared = |[one, other]: [Span; 2]| {
        let sides = [("one".into(), Choice::of(one)), ("other".into(), Choice::of(other))];
        let found = Comparison::of(&store, sides).unwrap();
        let rows = found.kinds.first().map(|kind| kind.sides.each_ref().map(|side| side.rows));
        (found.reports.map(|report| (report.coverage.rows, report.span())), rows)
    };
    let end = meeting + FIVE_MINUTES / 2;
    let (before, after) = (
        (26, Span { from_ms: BEGIN, to_ms: end }),
        (1, Span { from_ms: end, to_ms: BEGIN + 27 * FIVE_MINUTES }),
    );
    assert_eq!(compared(sides), ([before, after], Some([26, 1])));
    assert_eq!(compared([sides[1], sides[0]]), ([after, before], Some([1, 26])));
    // Within one row, nothing is left for the later side.
    let within = Span { from_ms: meeting - 60_000, to_ms: meeting };
    let later = Span { from_ms: meeting, to_ms: meeting + 60_000 };
    assert_eq!(compared([within, later]).0.map(|side| side.0), [1, 0]);
    // Overlapping intervals share rows, as requested.
    assert_eq!(compared([Span::ALL, sides[1]]).0.map(|side| side.0), [27, 2]);
}

#[test]
fn systems_are_distinct_within_an_hour() {
    let own = TestHistory::new();
    let mut store = Store::open(&own.path).unwrap();
    let (old, new) = (system(&mut store, "6.1"), system(&mut store, "6.12"));
    assert_eq!(system(&mut store, "6.1"), old);
    let mut machine = Machine::new(2, 2);
    store.append(&rows(&mut machine, old, BEGIN, 5)).unwrap();
    machine.slowness = 5.0;
    store.append(&rows(&mut machine, new, BEGIN + 5 * FIVE_MINUTES, 20)).unwrap();
    let report = |systems| {
        let choice = Choice { span: Span::ALL, systems };
        Store::open_to_read(&own.path).unwrap().period(&choice).unwrap().report()
    };
    assert_eq!(report(Some(vec![old])).wakeups.woken, 5 * WOKEN);
    assert_eq!(report(Some(vec![new])).wakeups.woken, 20 * WOKEN);
    let both = report(None);
    assert_eq!(counted(&both), counted(&report(Some(vec![old]))) + counted(&report(Some(vec![new]))));
    let kernels: Vec<_> = both.systems.iter().map(|system| system.fact("kernel")).collect();
    assert_eq!(kernels, [Some("6.1"), Some("6.12")]);
    assert_eq!(both.starts.len(), 3);
}

#[test]
fn age_takes_details_and_leaves_sums_and_maxima() {
    let own = TestHistory::new();
    let mut store = Store::open(&own.path).unwrap();
    let number = system(&mut store, "6.12");
    let mut machine = Machine::new(1, 3);
    machine.jobs = 1;
    let days = 40;
    for day in 0..days {
        store.append(&rows(&mut machine, number, BEGIN + day * DAY, 288)).unwrap();
    }
    let woken = WOKEN / 2;
    assert_eq!(own.report(0, Span::ALL.to_ms).wakeups.woken, days as u64 * 288 * woken);
    // Each row has its maximum, however old.
    let maxima = own.maxima(&Choice::of(Span::ALL), 0, Kind::MissedTimer);
    assert_eq!(maxima.len() as i64, days * 288);
    let (responses, misses) = own.responses(&Choice::of(Span::ALL), "motor:control");
    assert_eq!(responses.len() as i64, days * 288);
    let whole = own.report(0, Span::ALL.to_ms).jobs.unwrap();
    assert_eq!((whole.jobs[0].activations, whole.jobs[0].misses), (days as u64 * 288 * RESPONSES, misses));
    // Data older than a month exists by the hour: part of an hour becomes all of it, and the report
    // says so.
    let old = own.report(BEGIN + DAY + 10 * FIVE_MINUTES, BEGIN + DAY + 14 * FIVE_MINUTES);
    assert_eq!((old.from_ms, old.to_ms), (BEGIN + DAY, BEGIN + DAY + 2 * HOUR));
    assert_eq!(old.wakeups.woken, 24 * woken);
    let young = own.report(BEGIN + 39 * DAY + FIVE_MINUTES, BEGIN + 39 * DAY + 2 * FIVE_MINUTES);
    assert_eq!(young.wakeups.woken, woken);
}

#[test]
fn a_clock_that_goes_back_loses_nothing() {
    let own = TestHistory::new();
    let mut store = Store::open(&own.path).unwrap();
    let number = system(&mut store, "6.12");
    let mut machine = Machine::new(2, 4);
    // Back by two days within a day, then far ahead, then correct.
    for (start, count) in [(BEGIN + 3 * DAY, 40), (BEGIN + DAY + FIVE_MINUTES, 60), (BEGIN + 30_000 * DAY, 3)]
    {
        store.append(&rows(&mut machine, number, start, count)).unwrap();
    }
    store.append(&rows(&mut machine, number, BEGIN + 3 * DAY + FIVE_MINUTES, 50)).unwrap();
    assert_eq!(own.report(0, Span::ALL.to_ms).wakeups.woken, 153 * WOKEN);
    assert_eq!(own.report(BEGIN + 3 * DAY, BEGIN + 4 * DAY).wakeups.woken, 90 * WOKEN);
    assert_eq!(own.report(BEGIN + DAY, BEGIN + 2 * DAY).wakeups.woken, 60 * WOKEN);
}

#[test]
fn incidents_are_kept_with_their_causes() {
    let own = TestHistory::new();
    let store = Store::open(&own.path).unwrap();
    let incident = |number: u64| Incident {
        time_ns: BEGIN as u64 * 1_000_000 + number,
        cpu: 1,
        tid: 4711,
        thread: "axis-x".into(),
        // One incident is of a job.
        kind: (number != 1).then_some(Kind::TimerWakeup),
        latency_ns: 1_234_567,
        cause: "interrupts off in e1000_watchdog".into(),
        folder: "/var/lib/tompion/incidents/1".into(),
    };
    (0..3).for_each(|number| store.record_incident(&incident(number)).unwrap());
    let report = own.report(BEGIN, BEGIN + 1);
    assert_eq!(report.incidents, [0, 1, 2].map(incident));
    assert_eq!(own.report(BEGIN + 1, BEGIN + 2).incidents, []);
    assert_eq!(report.events, Vec::<Event>::new());
}

#[test]
fn a_history_without_jobs_is_read_and_goes_on_with_them() {
    const WOKEN_BEFORE: u64 = 326;
    let own = TestHistory::new();
    let connection = rusqlite::Connection::open(&own.path).unwrap();
    connection.execute_batch(include_str!("history_version_1.sql")).unwrap();
    drop(connection);
    let file = || std::fs::read(&own.path).unwrap();
    let before = file();
    let old = own.report(0, Span::ALL.to_ms);
    assert_eq!((old.wakeups.woken, old.coverage.rows, old.jobs.is_none()), (WOKEN_BEFORE, 3, true));
    assert_eq!(old.max_us[&1][&Kind::Wakeup], 74.333);
    let maxima = own.maxima(&Choice::of(Span::ALL), 1, Kind::Wakeup);
    assert_eq!(maxima.iter().map(|point| point.1).max(), Some(74_333));
    assert_eq!(file(), before, "the reader changed it");

    // Two more hours, so that the old rows become part of hours and days with jobs.
    let mut store = Store::open(&own.path).unwrap();
    let number = system(&mut store, "6.18");
    let mut machine = Machine::new(2, 8);
    machine.jobs = 1;
    store.append(&rows(&mut machine, number, old.to_ms, 24)).unwrap();
    let new = own.report(0, Span::ALL.to_ms);
    assert_eq!((new.wakeups.woken, new.coverage.rows), (WOKEN_BEFORE + 24 * WOKEN, 27));
    let jobs = new.jobs.unwrap();
    assert_eq!((jobs.jobs[0].activations, jobs.watched_ms as i64), (24 * RESPONSES, 24 * FIVE_MINUTES));
    assert_eq!(own.responses(&Choice::of(Span::ALL), "motor:control").0.len(), 24);
    // The old rows are unchanged.
    assert_eq!(own.report(0, old.to_ms).wakeups.woken, WOKEN_BEFORE);
}

#[test]
fn another_monitors_history_is_left_alone() {
    let own = TestHistory::new();
    let mut store = Store::open(&own.path).unwrap();
    system(&mut store, "6.12");
    let error = store.begin("another", &[], ("boot", 0)).unwrap_err().to_string();
    assert!(error.contains("a history of the monitor tompion-monitor, not of another"), "{error}");
    assert!(!error.contains('\n'));
}

/// Not a test: the process that [`kills_lose_nothing_and_double_nothing`] kills.
#[test]
#[ignore = "it is started by a test, and never ends"]
fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os("TOMPION_TEST_HISTORY") else { return };
    let path = Path::new(&path);
    let mut store = Store::open(path).unwrap();
    let number = system(&mut store, "6.12");
    let mut machine = Machine::new(2, 6);
    machine.jobs = 1;
    loop {
        let written = Store::open_to_read(path).unwrap().period(&Choice::of(Span::ALL)).unwrap().report();
        let start = if written.coverage.rows == 0 { BEGIN } else { written.coverage.last_ms };
        store.append(&rows(&mut machine, number, start, 1)).unwrap();
    }
}

#[test]
fn kills_lose_nothing_and_double_nothing() {
    let own = TestHistory::new();
    drop(Store::open(&own.path).unwrap());
    let mut dice = Dice::new(std::process::id().into());
    let mut before = 0;
    for round in 0..300 {
        // Often enough, and until rows are parts of hours.
        if round >= 25 && before > 12 {
            break;
        }
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writes_until_it_is_killed", "--ignored"])
            .env("TOMPION_TEST_HISTORY", &own.path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(20 + dice.below(180)));
        writer.kill().unwrap();
        writer.wait().unwrap();
        // The next writer rolls an unfinished transaction back, and so does a reader with the
        // owner's rights.
        let connection = rusqlite::Connection::open(&own.path).unwrap();
        let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok", "round {round}");
        drop(connection);
        let report = own.report(0, Span::ALL.to_ms);
        // Rows, hours and days agree, and each row exists once.
        assert_eq!(report.wakeups.woken, report.coverage.rows * WOKEN, "round {round}");
        let responses: u64 =
            report.jobs.iter().flat_map(|found| &found.jobs).map(|job| job.activations).sum();
        assert_eq!(responses, report.coverage.rows * RESPONSES, "round {round}");
        let starts: Vec<i64> =
            own.maxima(&Choice::of(Span::ALL), 0, Kind::Wakeup).iter().map(|point| point.0).collect();
        let expected: Vec<i64> =
            (0..report.coverage.rows as i64).map(|row| BEGIN + row * FIVE_MINUTES).collect();
        assert_eq!(starts, expected, "round {round}");
        assert!(report.coverage.rows >= before, "round {round}");
        before = report.coverage.rows;
    }
    assert!(before > 12, "no row was part of an hour: {before}");
}

#[test]
fn given_damaged_rows_then_the_history_goes_on_without_them_and_says_so() {
    let own = TestHistory::new();
    let mut store = Store::open(&own.path).unwrap();
    let number = system(&mut store, "6.12");
    let mut machine = Machine::new(2, 9);
    // An hour that is part of its day, and an unfinished one.
    store.append(&rows(&mut machine, number, BEGIN, 24)).unwrap();
    let connection = rusqlite::Connection::open(&own.path).unwrap();
    connection.execute("UPDATE bodies SET body = x'0102030405060708' WHERE id = 20", []).unwrap();
    connection.execute("UPDATE bodies SET body = 'a text' WHERE id = 22", []).unwrap();
    let next = rows(&mut machine, number, BEGIN + 24 * FIVE_MINUTES, 12);
    store.append(&next).unwrap();
    let report = own.report(0, Span::ALL.to_ms);
    // Two rows are lost; that they were counted and their maxima are still known.
    assert_eq!((report.wakeups.woken, report.coverage.rows), (34 * WOKEN, 36));
    let time_ms = BEGIN + 25 * FIVE_MINUTES;
    let event = |amount_ms| Event { time_ms, kind: EventKind::Damaged, amount_ms };
    assert_eq!(report.events, [event(FIVE_MINUTES), event(FIVE_MINUTES)]);
    assert_eq!(own.maxima(&Choice::of(Span::ALL), 0, Kind::Wakeup).len(), 36);

    // An unreadable hour and day start again with the next rows.
    connection.execute("UPDATE hours SET body = x'ff'", []).unwrap();
    connection.execute("UPDATE days SET body = x'ff'", []).unwrap();
    store.append(&rows(&mut machine, number, BEGIN + 36 * FIVE_MINUTES, 1)).unwrap();
    let damaged: Vec<i64> = own.events().iter().map(|event| event.amount_ms).collect();
    assert_eq!(damaged, [FIVE_MINUTES, FIVE_MINUTES, DAY]);
    let day = own.report(BEGIN, BEGIN + DAY);
    assert_eq!(day.wakeups.woken, 13 * WOKEN, "the last whole hour, and what is part of none");
}

#[test]
fn given_a_page_of_the_database_that_is_damaged_then_its_advice_is_what_saves_the_rest() {
    let (own, store) = of_two_hours();
    drop(store);
    let connection = rusqlite::Connection::open(&own.path).unwrap();
    let number = |what: &str| connection.query_row(what, [], |row| row.get::<_, i64>(0)).unwrap();
    let size = number("PRAGMA page_size");
    let begin = (number("SELECT rootpage FROM sqlite_schema WHERE name = 'rows'") - 1) * size;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    let mut bytes = std::fs::read(&own.path).unwrap();
    bytes[begin as usize..][..64].fill(0xff);
    std::fs::write(&own.path, bytes).unwrap();
    let store = Store::open_to_read(&own.path).unwrap();
    let error = store.outline(&Choice::of(Span::ALL)).map(drop).unwrap_err().to_string();
    let advice =
        format!("sqlite3 {} .recover | sqlite3 NEW saves what can be read; it was left", own.path.display());
    assert!(error.contains("is damaged: ") && error.contains(&advice), "{error}");
}

#[test]
fn damaged_bytes_are_named_and_left_as_they_are() {
    let own = TestHistory::new();
    let mut store = Store::open(&own.path).unwrap();
    let number = system(&mut store, "6.12");
    let mut machine = Machine::new(2, 7);
    machine.jobs = 1;
    store.append(&rows(&mut machine, number, BEGIN, 30)).unwrap();
    drop(store);
    let connection = rusqlite::Connection::open(&own.path).unwrap();
    connection.execute("UPDATE jobs SET id = 9", []).unwrap();
    let nameless =
        Store::open_to_read(&own.path).unwrap().maxima(&Choice::of(Span::ALL), |_| {}).unwrap_err();
    assert!(
        nameless.to_string().ends_with(
            "rows, number 1: a job without a name; it was left as it is (move it away to start a new one)"
        ),
        "{nameless}"
    );
    connection.execute("UPDATE jobs SET id = 1", []).unwrap();
    connection.execute("UPDATE bodies SET body = x'0102030405060708' WHERE id = 30", []).unwrap();
    connection.execute("UPDATE rows SET maxima = x'ff' WHERE id = 4", []).unwrap();
    drop(connection);
    let store = Store::open_to_read(&own.path).unwrap();
    let errors = [
        store.period(&Choice::of(Span::ALL)).map(drop).unwrap_err().to_string(),
        store.maxima(&Choice::of(Span::ALL), |_| {}).unwrap_err().to_string(),
    ];
    for (error, place) in errors.iter().zip(["rows, number 30", "rows, number 4"]) {
        assert!(error.contains("is damaged") && error.contains(place) && !error.contains('\n'), "{error}");
    }
    drop(store);

    // Damage anywhere in the file: an error in one line or an answer, never a panic, never a
    // change.
    let good = std::fs::read(&own.path).unwrap();
    let mut dice = Dice::new(11);
    for _ in 0..60 {
        let mut bytes = good.clone();
        for _ in 0..1 + dice.below(30) {
            let place = 16 + dice.below(bytes.len() as u64 - 16) as usize;
            bytes[place] = dice.below(256) as u8;
        }
        bytes.truncate(
            good.len() - if dice.below(2) == 0 { 0 } else { dice.below(good.len() as u64) as usize },
        );
        std::fs::write(&own.path, &bytes).unwrap();
        let read = Store::open_to_read(&own.path)
            .and_then(|store| store.period(&Choice::of(Span::ALL)).map(|period| drop(period.report())));
        if let Err(error) = read {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        assert_eq!(std::fs::read(&own.path).unwrap(), bytes);
    }
}
