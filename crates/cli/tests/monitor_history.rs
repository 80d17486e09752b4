//! The monitor's history: written while it counts, and what is said of it.

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tompion_history::{Fact, Incident, Row, Store, simulate::Machine};

use crate::support::{finish, run, signal, start, tompion, wait_until};

const FIVE_MINUTES: i64 = 300_000;
const DAY: i64 = 288 * FIVE_MINUTES;
/// 2026-01-01 in UTC, in milliseconds since 1970.
const BEGIN: i64 = 1_767_225_600_000;

/// Simulated history.
struct Own {
    folder: tempfile::TempDir,
}

impl Own {
    fn path(&self) -> PathBuf {
        self.folder.path().join("history.sqlite")
    }

    fn empty() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// Four days; for the last two the system is another one, and slower.
    fn simulated() -> Self {
        let own = Self::empty();
        let mut store = Store::open(&own.path()).unwrap();
        let mut machine = Machine::new(2, 1);
        machine.jobs = 3;
        for (day, kernel) in (0..).zip(["6.1.0-rt", "6.1.0-rt", "6.12.0-rt", "6.12.0-rt"]) {
            let facts = [("kernel", kernel), ("processor", "A CPU")];
            let facts = facts.map(|(name, value)| Fact { name: name.into(), value: value.into() });
            let begin = BEGIN + day * DAY;
            let system = store.begin("tompion-monitor", &facts, ("boot", begin)).unwrap();
            machine.slowness = if day < 2 { 1.0 } else { 3.0 };
            let row = |number: i64| {
                let start = begin + number * FIVE_MINUTES;
                let body = machine.count(300, (start + FIVE_MINUTES) as u64 * 1_000_000);
                Row { start, duration: FIVE_MINUTES, system, body }
            };
            store.append(&(0..288).map(row).collect::<Vec<_>>()).unwrap();
        }
        let incident = Incident {
            time_ns: (BEGIN + DAY) as u64 * 1_000_000,
            cpu: 1,
            tid: 1201,
            thread: "axis-x".into(),
            kind: Some(tompion_latency::Kind::TimerWakeup),
            latency_ns: 345_678,
            cause: "interrupts off in e1000_watchdog".into(),
            folder: "/var/lib/tompion/incidents/1".into(),
        };
        store.record_incident(&incident).unwrap();
        own
    }

    fn said(&self, words: &[&str]) -> String {
        let mut command = tompion();
        command.env("TZ", "UTC").args(["monitor", words[0], "--history"]).arg(self.path()).args(&words[1..]);
        run(&mut command).succeeded().out
    }

    fn json(&self, words: &[&str]) -> Value {
        let out = self.said(&[words, &["--json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }
}

#[test]
fn a_report_has_figures_systems_and_incidents() {
    let own = Own::simulated();
    let text = own.said(&["report"]);
    for words in [
        "691,200,000 wakeups from 2026-01-01 00:00 to 2026-01-05 00:00",
        "counted for 4 d 0 h, 100 % of this time, in 1,152 intervals",
        "timer → running",
        "axis-x",
        "1 incident\n2026-01-02 00:00:00  CPU 1      346 µs  axis-x 1201: interrupts off in e1000_watchdog",
        "on several systems",
        "6.1.0-rt, A CPU  2 starts\n6.12.0-rt, A CPU  2 starts",
        "accounting is exact",
        "motor:control        345,600,000 ",
        "  all      from timer due 345,600,000\n  max      ",
        "jobs were monitored for 4 d 0 h",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let first = own.json(&["report", "--from", "2026-01-01", "--to", "2026-01-03"]);
    let second = own.json(&["report", "--from", "2026-01-03 00:00", "--to", "2026-01-05"]);
    let longest = |report: &Value| report["max_us"]["1"]["timer-wakeup-all"].as_f64().unwrap();
    assert!(longest(&second) > longest(&first), "{first}");
    let count = |report: &Value| report["wakeups"]["woken"].as_u64().unwrap();
    assert_eq!((count(&first), count(&second)), (345_600_000, 345_600_000));
    assert_eq!(first["systems"].as_array().unwrap().len(), 1);
    assert_eq!(first["incidents"][0]["cause"], "interrupts off in e1000_watchdog");
    let jobs = |report: &Value| report["jobs"]["jobs"].as_array().unwrap().clone();
    assert_eq!((jobs(&first).len(), &jobs(&first)[1]["name"]), (3, &"motor:control".into()));
    assert!(jobs(&second)[1]["p50_us"].as_f64() > jobs(&first)[1]["p50_us"].as_f64(), "{second}");
    let nothing = own.said(&["report", "--to", "2025-01-01"]);
    assert_eq!(nothing, "nothing was counted before 2025-01-01 00:00\n");
}

#[test]
fn given_a_time_within_five_minutes_then_all_of_them_are_reported() {
    let own = Own::simulated();
    let text = own.said(&["report", "--from", "2026-01-02 02:56", "--to", "2026-01-02 02:58"]);
    for words in [
        "600,000 wakeups from 2026-01-02 02:55 to 2026-01-02 03:00\n",
        "in 1 interval\nrequested: from 2026-01-02 02:56 to 2026-01-02 02:58; rows (five minutes",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!own.said(&["report", "--from", "2026-01-02 02:55"]).contains("requested:"));
    let text =
        own.said(&["compare", "2026-01-02 02:50..2026-01-02 02:58", "2026-01-02 02:58..2026-01-02 03:05"]);
    for words in [
        "1,200,000 wakeups, 2026-01-02 02:50 to 2026-01-02 03:00\nrequested: from 2026-01-02 02:50 to",
        "600,000 wakeups, 2026-01-02 03:00 to 2026-01-02 03:05\n",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn given_a_history_without_rows_then_that_is_said() {
    let own = Own::empty();
    drop(Store::open(&own.path()).unwrap());
    let nothing = "nothing written yet: a row is appended every five minutes\n";
    assert_eq!(own.said(&["report"]), nothing);
    assert_eq!(own.said(&["report", "--last", "week"]), nothing);
    let picture = own.folder.path().join("x.svg");
    for command in ["plot", "report"] {
        let mut drawn = tompion();
        drawn.args(["monitor", command, "--history"]).arg(own.path()).arg("-o").arg(&picture);
        assert_eq!(run(&mut drawn).exited(1).err, format!("tompion: {nothing}"));
    }
}

/// Returns whether every element is closed.
fn is_balanced(document: &str) -> bool {
    ["svg", "g", "text", "table", "tr", "figure"].iter().all(|name| {
        let begun =
            document.matches(&format!("<{name}>")).count() + document.matches(&format!("<{name} ")).count();
        begun == document.matches(&format!("</{name}>")).count()
    })
}

#[test]
fn a_page_needs_nothing_else_and_pictures_are_drawn() {
    let own = Own::simulated();
    let file = |name: &str| own.folder.path().join(name).display().to_string();
    own.said(&["report", "-o", &file("page.html")]);
    let page = std::fs::read_to_string(file("page.html")).unwrap();
    for words in [
        "<!doctype html>",
        "timer → running",
        "1 incident",
        "6.12.0-rt, A CPU",
        "axis-x 1201",
        "Jobs and their deadlines",
        "<td>motor:plan</td><td>34,560,000</td>",
        "Jobs were monitored for 4 d 0 h.",
        "deadline (dashed) 3.0 ms",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert_eq!(page.matches("<svg ").count(), 3);
    assert!(is_balanced(&page) && !page.contains("src=") && !page.contains("<script"));

    own.said(&["plot", "--from", "2026-01-01", "-o", &file("days.svg"), "--theme", "dark"]);
    let picture = std::fs::read_to_string(file("days.svg")).unwrap();
    for words in [
        "Maximum latencies and response times from 2026-01-01 00:00 to 2026-01-05 00:00",
        "3 Jan",
        "CPU 1",
        "6.12.0-rt",
        ">can:receive<",
    ] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    assert!(is_balanced(&picture) && !picture.contains("@media"));
    own.said(&["plot", "--from", "2026-01-02", "--histograms", "-o", &file("all.png")]);
    let png = std::fs::read(file("all.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG") && png.len() > 20_000, "{}", png.len());
    let wrong = run(tompion().args(["monitor", "plot", "--last", "30h", "-o", "x.gif"])).exited(1);
    assert_eq!(wrong.err, "tompion: expected a picture NAME.svg or NAME.png, found x.gif\n");
}

#[test]
fn kernels_and_times_are_compared() {
    let own = Own::simulated();
    let text = own.said(&["compare", "6.1.0-rt", "6.12"]);
    assert!(text.contains("6.12 is worse than 6.1.0-rt. Its max latency is "), "{text}");
    assert!(text.contains("less than once in a million comparisons"), "{text}");
    let back = own.said(&["compare", "2026-01-03..", "..2026-01-03"]);
    assert!(back.contains("..2026-01-03 is better than 2026-01-03... Its max latency is "), "{back}");
    let line =
        |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
    assert!(line("motor:plan ").ends_with("worse"), "{text}");
    let same = own.json(&["compare", "2026-01-01..2026-01-02", "2026-01-02..2026-01-03"]);
    let kinds = same["kinds"].as_array().unwrap();
    assert_eq!(kinds.len(), 6);
    assert!(kinds.iter().filter(|kind| kind["verdict"] == "same").count() >= 5, "{same}");
    assert_eq!(kinds[0]["sides"][1]["rows"], 288);
    let jobs = same["jobs"].as_array().unwrap();
    assert_eq!((jobs.len(), &jobs[0]["sides"][0]["count"]), (3, &43_200_000.into()), "{same}");
    assert!(jobs.iter().filter(|job| job["verdict"] == "same").count() >= 2, "{same}");
    let picture = own.folder.path().join("both.svg").display().to_string();
    own.said(&["compare", "6.1.0-rt", "6.12.0-rt", "-o", &picture]);
    let picture = std::fs::read_to_string(picture).unwrap();
    assert!(is_balanced(&picture) && picture.contains("6.1.0-rt and 6.12.0-rt"));
    let mut unknown = tompion();
    unknown.args(["monitor", "compare", "6.2.0-rt", "7.0", "--history"]).arg(own.path());
    let unknown = run(&mut unknown).exited(1).err;
    assert!(unknown.contains("a kernel of the history (6.12.0-rt, 6.1.0-rt), found `6.2.0-rt`"), "{unknown}");
}

#[test]
fn a_file_that_is_no_history_is_reported_in_a_line() {
    let own = Own::empty();
    let report = || run(tompion().args(["monitor", "report", "--history"]).arg(own.path())).exited(1).err;
    assert!(report().ends_with("no history; start one: tompion monitor --history\n"), "{}", report());
    std::fs::write(own.path(), "my thesis").unwrap();
    let keep = format!("--history={}", own.path().display());
    let refused = run(tompion().args(["monitor", "--name", "tompion-cli-none", &keep])).exited(1).err;
    for error in [report(), refused] {
        assert!(error.contains("found a file of another kind; it was left as it is"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
    assert_eq!(std::fs::read(own.path()).unwrap(), b"my thesis");
    let wrong = run(tompion().args(["monitor", "report", "--last", "soon"])).exited(2);
    assert!(
        wrong.err.contains("expected a time such as 30h, 7d, 4w, 1y or week, found `soon`"),
        "{}",
        wrong.err
    );
}

#[test]
fn counts_reach_the_history_of_a_killed_command() {
    let own = Own::empty();
    let name = format!("tompion-cli-history-{}", std::process::id());
    let keep = format!("--history={}", own.path().display());
    let monitor = |words: &[&str]| {
        let mut command = tompion();
        command.args(["monitor", "--name", &name]).args(words);
        command
    };
    let begun = run(&mut monitor(&["--once"]));
    if !begun.status.success() {
        return eprintln!("SKIPPED, latencies can't be counted here: {}", begun.err);
    }
    // None while the file is being made.
    let starts = || {
        let report = run(tompion().args(["monitor", "report", "--json", "--history"]).arg(own.path()));
        let report: Value = serde_json::from_str(&report.out).unwrap_or_default();
        report["starts"].as_array().map_or(0, Vec::len)
    };
    let mut keeper = start(&mut monitor(&[&keep]));
    wait_until("it has begun", || starts() == 1);
    sleep_in_real_time();
    signal(keeper.id(), Signal::KILL);
    keeper.wait().unwrap();
    sleep_in_real_time();
    let keeper = start(&mut monitor(&[&keep]));
    wait_until("the next one has begun", || starts() == 2);
    sleep_in_real_time();
    let before: Value = serde_json::from_str(&run(&mut monitor(&["--json"])).succeeded().out).unwrap();
    // It takes its signals before it opens the file.
    signal(keeper.id(), Signal::TERM);
    let ended = finish(keeper, "monitor --history").succeeded();
    assert!(ended.err.contains("has all counts until now"), "{}", ended.err);
    let after: Value = serde_json::from_str(&run(&mut monitor(&["--json"])).succeeded().out).unwrap();
    let woken = |report: &Value| report["wakeups"]["woken"].as_u64().unwrap();
    let kept = own.json(&["report"]);
    assert!(woken(&kept) >= woken(&before) && woken(&kept) <= woken(&after), "{kept}");
    assert!(woken(&kept) >= 1000, "{kept}");

    // One whose monitor is stopped ends with that, and has its counts.
    let mut keeper = start(&mut monitor(&[&keep, "--listen", "127.0.0.1:0"]));
    let mut url = String::new();
    BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut url).unwrap();
    run(&mut monitor(&["stop"])).succeeded();
    let ended = finish(keeper, "monitor --history --listen").exited(3);
    assert!(ended.err.contains("the monitor was stopped"), "{}", ended.err);
    let rows = |report: &Value| report["coverage"]["rows"].as_u64().unwrap();
    assert!(rows(&own.json(&["report"])) > rows(&kept));
}

/// A real-time thread that sleeps 500 times.
fn sleep_in_real_time() {
    let sleeper = thread::spawn(|| {
        tompion_os::run_fifo(60).expect("a real-time priority");
        (0..500).for_each(|_| thread::sleep(Duration::from_micros(500)));
    });
    sleeper.join().expect("a thread that sleeps");
}
