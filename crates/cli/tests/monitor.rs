//! The latency monitor: what it shows, that it outlives its reader, and that nothing is lost.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::Command,
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{finish, run, signal, start, tompion, wait_until};

/// Monitor of a test, stopped at its end.
pub struct Own(String);

impl Own {
    pub fn new(test: &str) -> Option<Self> {
        let own = Self(format!("tompion-cli-{test}-{}", std::process::id()));
        let begun = run(&mut own.monitor(&["--once"]));
        if begun.status.success() {
            assert!(begun.err.contains("counting continues in the kernel"), "{}", begun.err);
            return Some(own);
        }
        // It says why, and what to do.
        assert!(begun.err.lines().count() == 1 && begun.err.contains('('), "{}", begun.err);
        eprintln!("SKIPPED, latencies can't be counted here: {}", begun.err);
        None
    }

    /// Returns the monitor's name.
    pub fn name(&self) -> &str {
        &self.0
    }

    pub fn monitor(&self, arguments: &[&str]) -> Command {
        let mut command = tompion();
        command.args(["monitor", "--name", &self.0]).args(arguments);
        command
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let out = run(self.monitor(arguments).arg("--json")).succeeded().out;
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        run(&mut self.monitor(&["stop"]));
    }
}

/// Runs a real-time thread that sleeps this many times, and returns its thread id.
fn sleep_in_real_time(times: u32) -> u64 {
    let sleeper = thread::spawn(move || {
        tompion_os::run_fifo(60).expect("a real-time priority");
        (0..times).for_each(|_| thread::sleep(Duration::from_micros(500)));
        u64::from(tompion_os::gettid())
    });
    sleeper.join().expect("a thread that sleeps")
}

/// Returns a thread's number of wakeups in a report.
fn wakeups(report: &Value, tid: u64) -> u64 {
    let threads = report["threads"].as_array().expect("threads");
    let thread = threads.iter().find(|thread| thread["tid"] == tid);
    thread.map_or(0, |thread| thread["count"].as_u64().expect("a count"))
}

#[test]
fn wake_ups_are_counted_while_the_reader_is_killed() {
    let Some(own) = Own::new("killed") else { return };
    let mut reader = start(&mut own.monitor(&["--duration", "1h"]));
    let first = sleep_in_real_time(500);
    signal(reader.id(), Signal::KILL);
    reader.wait().unwrap();
    let second = sleep_in_real_time(500);
    let report = own.json(&["--once"]);
    for tid in [first, second] {
        let count = wakeups(&report, tid);
        assert!((475..=520).contains(&count), "{count}");
    }
    assert_eq!(report["wakeups"]["difference"], 0, "{report}");
    // What programs ask for: the longest by CPU and kind.
    let longest = report["max_us"].as_object().expect("CPUs").values().next().expect("a CPU");
    assert!(longest["timer-wakeup-all"].as_f64().expect("microseconds") > 0.0);
    let text = run(&mut own.monitor(&["--once"])).succeeded().out;
    for words in ["timer → running", "accounting is exact", "rt 60", "maxima"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn timers_are_counted_however_a_thread_waits_for_them() {
    const LOOPS: u64 = 200;
    let Some(own) = Own::new("timers") else { return };
    let handled = || {
        let report = own.json(&["--once"]);
        let cpus = report["cpus"].as_array().expect("CPUs");
        cpus.iter().filter_map(|cpu| cpu["kinds"]["missed-timer"]["count"].as_u64()).sum::<u64>()
    };
    for (wakeup, policy) in [("timerfd", "fifo"), ("timer", "rr"), ("nanosleep", "deadline")] {
        run(&mut own.monitor(&["reset"])).succeeded();
        let mut command = tompion();
        command.args(["test", "cyclic", "--cpus", "0", "--loops", &LOOPS.to_string(), "-i", "500us"]);
        run(command.args(["--wakeup", wakeup, "--policy", policy])).succeeded();
        // No thread waits for a timer that expires while it runs. Other real-time threads are
        // counted, too.
        assert!(handled() >= LOOPS * 9 / 10, "{wakeup}: {}", handled());
    }
}

#[test]
fn a_reset_restarts_reports() {
    let Some(own) = Own::new("reset") else { return };
    let first = sleep_in_real_time(200);
    run(&mut own.monitor(&["reset"])).succeeded();
    let second = sleep_in_real_time(200);
    let report = own.json(&["--once"]);
    assert_eq!(wakeups(&report, first), 0);
    assert!(wakeups(&report, second) >= 190);
}

#[test]
fn a_time_is_measured_by_itself_and_ends_on_request() {
    let Some(own) = Own::new("time") else { return };
    let before = sleep_in_real_time(200);
    let reader = start(&mut own.monitor(&["--duration", "1h", "--json"]));
    // It takes signals and its first look within no time of ours: threads come until it has seen
    // one.
    let mut last = 0;
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        last = sleep_in_real_time(50);
    }
    signal(reader.id(), Signal::INT);
    let out = finish(reader, "monitor --duration").succeeded().out;
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    assert_eq!(wakeups(&report, before), 0, "{report}");
    assert!(wakeups(&report, last) >= 40, "{report}");
}

#[test]
fn kinds_are_switched_and_what_does_not_count_is_said() {
    let Some(own) = Own::new("kinds") else { return };
    let report = own.json(&["--once", "--kinds", "wakeup,missed-timer"]);
    assert_eq!(report["kinds"].to_string(), r#"["wakeup","missed-timer"]"#);
    let text = run(&mut own.monitor(&["--once"])).succeeded().out;
    assert!(text.contains("not counted: shared, preempted, timer-wakeup, timer-wakeup-all"), "{text}");
    let wrong = run(&mut own.monitor(&["--kinds", "wakeups"])).exited(2);
    assert!(wrong.err.contains("timer-wakeup-all; found `wakeups`"), "{}", wrong.err);
    let both = run(&mut own.monitor(&["--once", "reset"])).exited(2);
    assert_eq!(both.err, "tompion: display options such as --once can't be combined with a subcommand\n");
    run(&mut own.monitor(&["stop"])).succeeded();
    let nothing = run(&mut own.monitor(&["reset"])).exited(1);
    assert_eq!(nothing.err, "tompion: nothing is counted yet; begin with: tompion monitor\n");
}

#[test]
fn a_monitor_that_duration_started_ends_with_it() {
    let Some(own) = Own::new("ends") else { return };
    run(&mut own.monitor(&["stop"])).succeeded();
    let report = own.json(&["--duration", "200ms"]);
    assert_eq!(report["wakeups"]["difference"], 0);
    let folder = std::path::Path::new("/sys/fs/bpf").join(&own.0);
    wait_until("nothing is pinned", || !folder.exists());
}

/// The metrics that are served at an address.
pub fn page(url: &str) -> String {
    fetch(url, "/metrics")
}

/// Another page there.
pub fn fetch(url: &str, path: &str) -> String {
    let address = url.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let mut connection = TcpStream::connect(address.expect("an address")).unwrap();
    connection.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    body.to_owned()
}

/// The values of all lines that begin so.
pub fn values(page: &str, name: &str) -> Vec<f64> {
    let lines = page.lines().filter(|line| line.starts_with(name));
    lines.map(|line| line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a value")).collect()
}

#[test]
fn prometheus_gets_histograms_whose_counts_rise() {
    let Some(own) = Own::new("page") else { return };
    let mut server = start(&mut own.monitor(&["--listen", "127.0.0.1:0"]));
    let mut url = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let mut before = 0.0;
    for _ in 0..2 {
        sleep_in_real_time(200);
        let page = page(&url);
        let count: f64 = values(&page, "tompion_latency_seconds_count").iter().sum();
        assert!(count >= before + 190.0, "{before} {page}");
        before = count;
        for cpu in 0..2 {
            let labels = format!("{{cpu=\"{cpu}\",kind=\"timer-wakeup-all\"");
            let buckets = values(&page, &format!("tompion_latency_seconds_bucket{labels}"));
            assert!(buckets.is_empty() || buckets.len() == 22, "{page}");
            assert!(buckets.windows(2).all(|pair| pair[0] <= pair[1]), "{page}");
            assert_eq!(
                buckets.last(),
                values(&page, &format!("tompion_latency_seconds_count{labels}")).first()
            );
        }
        assert_eq!(values(&page, "tompion_wakeup_accounting_error"), [0.0]);
        assert_eq!(values(&page, "tompion_sums_difference"), [0.0], "the deprecated name");
        // After a reset, maxima restart; counts continue.
        run(&mut own.monitor(&["reset"])).succeeded();
    }
    signal(server.id(), Signal::INT);
    finish(server, "monitor --listen").succeeded();
}

#[test]
fn histograms_are_drawn() {
    let Some(own) = Own::new("plot") else { return };
    sleep_in_real_time(200);
    let picture = run(&mut own.monitor(&["plot", "-o", "-"])).succeeded().out;
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    for words in ["timer → running, all", "timer-wakeup-all, max", "CPU "] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    for (open, close) in [("<text", "</text>"), ("<g ", "</g>")] {
        assert_eq!(picture.matches(open).count(), picture.matches(close).count());
    }
    let wrong = run(&mut own.monitor(&["plot", "-o", "/nowhere/x.svg"])).exited(1);
    assert!(wrong.err.contains("can't write /nowhere/x.svg"), "{}", wrong.err);
}
