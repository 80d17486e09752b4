//! Jobs: response times and deadlines, as programs tell them and as probes see them.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;
use serde_json::Value;
use tompion_protocol::names;

use crate::{
    monitor::{Own, fetch, page, values},
    monitor_incidents::folders,
    support::{TestDir, finish, run, signal, start, tompion, wait_until},
};

/// Activations of `programs/jobs.c`, and how many are late on purpose.
const ACTIVATIONS: u64 = 300;
const LATE: u64 = 2;

/// Returns whether a process has a child that hears programs.
fn session(parent: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children.split(' ').next()?.parse().ok()
}

/// Starts a monitor that serves its counts, and returns its address. `specs` are jobs or options.
fn serve(own: &Own, specs: &[&str]) -> (Child, String) {
    let mut command = own.monitor(&["--listen", "127.0.0.1:0"]);
    for spec in specs {
        match spec.starts_with("--") {
            true => command.arg(spec),
            false => command.args(["--job", spec]),
        };
    }
    let mut server = start(&mut command);
    let mut url = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut url).unwrap();
    (server, url)
}

fn end(server: Child) {
    signal(server.id(), Signal::INT);
    finish(server, "monitor --listen --job").succeeded();
}

fn report(url: &str) -> Value {
    serde_json::from_str(&fetch(url, "/api/report")).expect("JSON")
}

/// Returns whether jobs of these names have so many activations.
fn have(report: &Value, names: &[&str], activations: u64) -> bool {
    let jobs = report["jobs"]["jobs"].as_array().expect("jobs");
    let is_there = |job: &Value, name: &str| job["name"] == name && job["activations"] == activations;
    names.iter().all(|name| jobs.iter().any(|job| is_there(job, name)))
}

/// The report in which jobs of these names have all their activations.
fn whole_report(url: &str, names: &[&str]) -> Value {
    wait_until("all activations", || have(&report(url), names, ACTIVATIONS));
    report(url)
}

fn job<'a>(report: &'a Value, name: &str) -> &'a Value {
    let jobs = report["jobs"]["jobs"].as_array().unwrap_or_else(|| panic!("{report}"));
    jobs.iter().find(|job| job["name"] == name).unwrap_or_else(|| panic!("no {name}: {}", report["jobs"]))
}

/// Asserts the properties of that program's job, whatever its source.
fn holds(job: &Value) {
    assert_eq!((&job["activations"], &job["misses"]), (&ACTIVATIONS.into(), &LATE.into()), "{job}");
    assert_eq!((&job["overruns"], &job["threads"]), (&LATE.into(), &1.into()), "{job}");
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number: {job}"));
    let longest = &job["longest"];
    let parts = ["until_running_us", "until_begin_us", "execution_us"].map(|part| number(&longest[part]));
    assert!(parts[2] >= 450_000.0, "{job}");
    assert!((parts.iter().sum::<f64>() - number(&longest["response_us"])).abs() < 1.0, "{job}");
    assert_eq!(job["response"]["max_us"], longest["response_us"], "{job}");
    assert!(number(&job["response"]["p50_us"]) < 400_000.0, "{job}");
    // The first wakeup came before the monitor knew the thread; later ones slept until a time.
    // While some processes run, the test machine's kernel starts no BPF program: on a busy one, for
    // a sixth of the wakeups.
    let released = |by: &str| job["released_by"][by].as_u64().unwrap_or(0);
    assert!(released("timer") >= ACTIVATIONS / 2, "{job}");
    assert_eq!(released("timer") + released("begin") + released("wakeup"), ACTIVATIONS, "{job}");
}

/// The program with the job `motor:NAME`: monitors hear all programs, and each test only has ears
/// for its own.
fn program(dir: &TestDir, name: &str) -> PathBuf {
    dir.link("jobs", &["jobs.c"], &[&format!("-DJOB={name}")])
}

fn run_program(program: &Path) {
    run(&mut Command::new(program)).succeeded();
}

/// The same. The monitor hears of its first activation before the others: on a busy machine that
/// takes as long as many of them.
fn run_heard(program: &Path, url: &str, names: &[&str]) {
    let mut child = Command::new(program).arg("heard").stdin(Stdio::piped()).spawn().expect("the program");
    wait_until("the first activation", || have(&report(url), names, 1));
    // Its input ends, and it goes on.
    drop(child.stdin.take());
    assert!(child.wait().expect("its end").success());
}

#[test]
fn each_activation_of_a_job_is_held_against_its_deadline() {
    let Some(own) = Own::new("jobs") else { return };
    let dir = TestDir::new();
    let program = program(&dir, "whole");
    let (server, url) = serve(&own, &["motor:whol*"]);
    run_heard(&program, &url, &["motor:whole"]);
    let heard = whole_report(&url, &["motor:whole"]);
    holds(job(&heard, "motor:whole"));
    let jobs = &heard["jobs"];
    assert_eq!((&jobs["lost_events"], &jobs["lost_messages"]), (&0.into(), &0.into()), "{jobs}");
    // A span is no job.
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1), "{jobs}");
    end(server);
}

#[test]
fn jobs_are_on_the_page_with_other_deadlines_too() {
    let Some(own) = Own::new("job-page") else { return };
    let dir = TestDir::new();
    let program = program(&dir, "paged");
    // A deadline that every activation misses.
    let (server, url) = serve(&own, &["motor:paged,deadline=1ns"]);
    run_program(&program);
    whole_report(&url, &["motor:paged"]);
    let page = page(&url);
    assert_eq!(
        values(&page, "tompion_job_misses_total{name=\"motor:paged\"}"),
        [ACTIVATIONS as f64],
        "{page}"
    );
    assert_eq!(values(&page, "tompion_job_deadline_seconds"), [1e-9], "{page}");
    let (parts, longest) = (
        values(&page, "tompion_job_worst_response_seconds"),
        values(&page, "tompion_job_response_max_seconds"),
    );
    assert!(parts.len() == 3 && (parts.iter().sum::<f64>() - longest[0]).abs() < 1e-6, "{page}");
    let buckets = values(&page, "tompion_job_response_seconds_bucket");
    assert!(buckets.len() == 20 && buckets.windows(2).all(|pair| pair[0] <= pair[1]), "{page}");
    assert_eq!(values(&page, "tompion_job_events_lost_total"), [0.0], "{page}");
    end(server);
}

#[test]
fn functions_of_programs_that_say_nothing_are_jobs() {
    let Some(own) = Own::new("job-probe") else { return };
    let dir = TestDir::new();
    let program = program(&dir, "probed");
    let spec = format!("cycle={}:on_cycle,deadline=400ms", program.display());
    // One that the program tells of itself is there beside it.
    let (server, url) = serve(&own, &[&spec, "motor:probed"]);
    run_heard(&program, &url, &["cycle", "motor:probed"]);
    let report = whole_report(&url, &["cycle", "motor:probed"]);
    holds(job(&report, "cycle"));
    holds(job(&report, "motor:probed"));
    end(server);
}

#[test]
fn the_time_between_two_probes_is_a_job() {
    let Some(own) = Own::new("job-marks") else { return };
    let dir = TestDir::new();
    // Nothing of ours is in it.
    let program = dir.link("job_marks", &["job_marks.c"], &["-Wl,--as-needed"]);
    let path = program.display();
    let spec = format!("cycle=usdt:{path}:loop:begin,usdt:{path}:loop:end,deadline=400ms");
    let (server, url) = serve(&own, &[&spec]);
    run_program(&program);
    let report = whole_report(&url, &["cycle"]);
    let found = job(&report, "cycle");
    holds(found);
    assert_eq!(
        (&found["deadline_us"], &found["longest"]["deadline_us"]),
        (&400_000.0.into(), &400_000.0.into())
    );
    assert_eq!((&found["without_end"], &found["without_begin"]), (&0.into(), &0.into()), "{found}");
    end(server);
}

/// Returns the jobs of a history.
fn kept(history: &Path) -> Value {
    let mut report = tompion();
    report.args(["monitor", "report", "--json", "--history"]).arg(history);
    let report: Value = serde_json::from_str(&run(&mut report).succeeded().out).expect("JSON");
    report["jobs"].clone()
}

#[test]
fn jobs_are_kept_in_the_history_once() {
    let Some(own) = Own::new("job-kept") else { return };
    let dir = TestDir::new();
    let program = program(&dir, "kept");
    let history = dir.path("history.sqlite");
    let keep = format!("--history={}", history.display());
    // Without a job, there is none.
    signal_when_begun(own.monitor(&[&keep]), &history, Signal::TERM);
    assert_eq!(kept(&history), Value::Null);

    // All of it is there when the command ends, whatever the time of the day.
    let (keeper, url) = serve(&own, &["motor:kep*", &keep]);
    run_program(&program);
    whole_report(&url, &["motor:kept"]);
    end(keeper);
    let jobs = kept(&history);
    let found = &jobs["jobs"][0];
    assert_eq!(
        (&found["name"], &found["activations"]),
        (&"motor:kept".into(), &ACTIVATIONS.into()),
        "{jobs}"
    );
    assert_eq!((&found["misses"], &found["overruns"]), (&LATE.into(), &LATE.into()), "{jobs}");
    assert_eq!(found["deadlines_us"], serde_json::json!([400_000.0, 400_000.0]), "{jobs}");
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number: {jobs}"));
    let longest = &found["longest"];
    let parts = ["until_running_us", "until_begin_us", "execution_us"].map(|part| number(&longest[part]));
    assert!((parts.iter().sum::<f64>() - number(&longest["response_us"])).abs() < 1.0, "{jobs}");
    assert!(number(&longest["response_us"]) >= 450_000.0 && longest["thread"] == "jobs", "{jobs}");
    assert_eq!(found["max_us"], longest["response_us"], "{jobs}");
    let places = found["histogram"].as_array().expect("a histogram");
    assert_eq!(places.iter().filter_map(|place| place[1].as_u64()).sum::<u64>(), ACTIVATIONS, "{jobs}");
    let watched = number(&jobs["watched_ms"]);
    assert!(watched >= 900.0 && jobs["lost"] == 0, "{jobs}");

    // One that is killed has written nothing that is there already.
    let (mut keeper, url) = serve(&own, &["motor:kep*", &keep]);
    run_program(&program);
    whole_report(&url, &["motor:kept"]);
    signal(keeper.id(), Signal::KILL);
    keeper.wait().unwrap();
    let after = kept(&history);
    // Unless five minutes were over meanwhile.
    let count = after["jobs"][0]["activations"].as_u64();
    assert!(count >= Some(ACTIVATIONS) && count <= Some(2 * ACTIVATIONS), "{after}");
    let text = run(tompion().args(["monitor", "report", "--history"]).arg(&history)).succeeded().out;
    for words in ["job  ", "motor:kept", "400 ms", "  all      from ", "; jobs ", "jobs were monitored for "]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Ends a command as soon as it has begun to write a history.
fn signal_when_begun(mut command: Command, history: &Path, with: Signal) {
    let keeper = start(&mut command);
    let mut report = tompion();
    report.args(["monitor", "report", "--json", "--history"]).arg(history);
    wait_until("a start", || run(&mut report).out.contains("\"boot\""));
    signal(keeper.id(), with);
    finish(keeper, "monitor --history").succeeded();
}

#[test]
fn a_missed_deadline_becomes_a_folder_that_says_why() {
    let Some(own) = Own::new("job-missed") else { return };
    let dir = TestDir::new();
    let program = program(&dir, "missed");
    let parent = dir.path("incidents");
    let arguments = [
        "--job",
        "motor:miss*",
        "--deadline-misses",
        "--cooldown",
        "0s",
        "--max-incidents",
        "1",
        "--incidents",
    ];
    let catcher = start(own.monitor(&arguments).arg(&parent));
    // The first activation may run before the monitor waits for misses.
    let has_caught = || parent.exists() && !folders(&parent).is_empty();
    // A program that starts when the monitor has enough waits for it in vain.
    let mut jobs = start(&mut Command::new(&program));
    wait_until("a folder", || {
        if jobs.try_wait().expect("a child of this test").is_some() {
            jobs = start(&mut Command::new(&program));
        }
        has_caught()
    });
    jobs.kill().and_then(|()| jobs.wait()).expect("its end");
    let finished = finish(catcher, "monitor --deadline-misses").succeeded();
    assert!(finished.out.contains("motor:missed (jobs, thread "), "{}", finished.out);
    assert!(finished.err.contains("1 incident saved of "), "{}", finished.err);
    let found = folders(&parent);
    let path = found.first().expect("a folder").to_str().unwrap();
    let json = run(tompion().args(["monitor", "explain", "--json", path])).succeeded().out;
    let incident: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&incident["class"], &incident["job"]["name"]),
        (&"job".into(), &"motor:missed".into()),
        "{json}"
    );
    assert_eq!(incident["limit_ns"], 400_000_000, "{json}");
    let segments = incident["segments"].as_array().expect("segments");
    let length = |segment: &Value| segment["end"].as_u64().unwrap() - segment["begin"].as_u64().unwrap();
    assert_eq!(Some(segments.iter().map(length).sum()), incident["latency_ns"].as_u64(), "{json}");
    assert!(incident["latency_ns"].as_u64() >= Some(450_000_000), "{json}");
    // It slept, as far back as the moments reach.
    let has_slept = segments.iter().any(|segment| segment["cause"] == "waiting");
    assert!(has_slept || json.contains("µs are unknown"), "{json}");
    let text = run(tompion().args(["monitor", "explain", path])).succeeded().out;
    for words in ["motor:missed", ", of 400 ms at most", "begun after", "end", "the trace: tompion view"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // The trace has the response as a job with its deadline, and where its code began.
    let trace = run(tompion().arg("print").arg(path)).succeeded().out;
    let lines = |name: &str| trace.lines().filter(|line| line.contains(name)).collect::<Vec<_>>();
    let (begins, jobs) = (lines(" late:response_begin: "), lines(" late:job_begins: "));
    assert!(
        begins.len() == 1 && begins[0].contains("deadline_ns = 400000000, why = \"motor:missed took "),
        "{begins:?}"
    );
    assert!(jobs.len() == 1 && jobs[0].contains("why = \"motor:missed begins\""), "{jobs:?}");
    let order =
        [" late:response_begin: ", " late:job_begins: ", " late:response_end: "].map(|name| trace.find(name));
    assert!(order[0].is_some() && order.is_sorted(), "{order:?}");
}

#[test]
fn a_session_of_jobs_ends_with_the_monitor_that_is_killed() {
    let Some(own) = Own::new("job-killed") else { return };
    let mut monitor = start(&mut own.monitor(&["--job", "motor:*", "--duration", "1h"]));
    let parent = monitor.id();
    wait_until("a session", || session(parent).is_some());
    let session = session(parent).unwrap();
    signal(parent, Signal::KILL);
    monitor.wait().unwrap();
    let is_gone = || !Path::new(&format!("/proc/{session}")).exists();
    wait_until("the session's end", is_gone);
    let begin = format!("tompion-jobs-{session}-");
    let is_left = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(&begin);
    let left = || std::fs::read_dir(std::env::temp_dir()).expect("a folder").flatten();
    wait_until("nothing is left", || !left().any(|entry| is_left(&entry.file_name())));
}

#[test]
fn invalid_jobs_are_reported() {
    let Some(own) = Own::new("job-wrong") else { return };
    let wrong = run(&mut own.monitor(&["--job", "control=/nowhere/app:f", "--duration", "1s"])).exited(1);
    assert!(wrong.err.contains("there is no program or library `/nowhere/app`"), "{}", wrong.err);
    let piped = run(&mut own.monitor(&["--job", "motor:*"])).exited(1);
    assert!(
        piped.err.contains("add --duration TIME, --listen ADDRESS:PORT, --history or --deadline-misses"),
        "{}",
        piped.err
    );
}

/// A user and group that every machine has, with no rights.
const UNPRIVILEGED_UID: u32 = 65534;

/// Another user's program has a job of the same name, counts losses that can't be, and ends: none
/// of it is the others'.
#[test]
fn a_program_of_another_user_has_a_row_of_its_own_and_loses_nothing_for_others() {
    if fs::metadata("/proc/self").is_ok_and(|process| process.uid() != 0) {
        return eprintln!("SKIPPED, only root hears the programs of other users");
    }
    let Some(own) = Own::new("job-others") else { return };
    let dir = TestDir::new();
    fs::set_permissions(dir.path(""), fs::Permissions::from_mode(0o755)).expect("a folder for all");
    let sound = program(&dir, "shared");
    let hostile = dir.link("hostile_jobs", &["hostile_jobs.c"], &["-DJOB=shared"]);
    let mut hostile = Command::new(hostile)
        .uid(UNPRIVILEGED_UID)
        .gid(UNPRIVILEGED_UID)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    // It can be asked to take part once its attach socket listens.
    wait_until("its attach socket", || {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let names = sockets.lines().filter_map(|line| line.split_once('@'));
        let mut processes = names.filter_map(|(_, name)| names::process_of_attach_socket(name));
        processes.any(|(_, pid)| pid == hostile.id())
    });
    let (server, url) = serve(&own, &["motor:shared"]);
    let mut line = String::new();
    BufReader::new(hostile.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "done\n");
    let theirs = format!("motor:shared (user {UNPRIVILEGED_UID})");
    wait_until("the other's activations", || have(&report(&url), &[&theirs], 50));
    wait_until("its losses", || report(&url)["jobs"]["losses_unknown"] == 1);

    run_heard(&sound, &url, &["motor:shared"]);
    drop(hostile.stdin.take());
    hostile.wait().expect("its end");
    let heard = whole_report(&url, &["motor:shared"]);
    holds(job(&heard, "motor:shared"));
    assert_eq!(job(&heard, &theirs)["misses"], 50, "{heard}");
    let jobs = &heard["jobs"];
    assert_eq!((&jobs["lost_events"], &jobs["losses_unknown"]), (&0.into(), &1.into()), "{jobs}");
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(2), "{jobs}");
    let page = page(&url);
    assert_eq!(values(&page, "tompion_job_events_lost_total"), [0.0], "{page}");
    assert_eq!(values(&page, "tompion_job_processes_with_unknown_losses_total"), [1.0], "{page}");
    // It is heard on.
    run_program(&sound);
    wait_until("more activations", || have(&report(&url), &["motor:shared"], 2 * ACTIVATIONS));
    end(server);
}

/// A thread's begin is in one CPU's ring, and its end in another's, which is read first.
#[test]
fn an_activation_that_migrates_is_one_activation() {
    const MIGRATIONS: u64 = 2000;
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return eprintln!("SKIPPED, nothing migrates on one CPU");
    }
    let Some(own) = Own::new("job-migrates") else { return };
    let dir = TestDir::new();
    let program = dir.link("migrating_jobs", &["migrating_jobs.c"], &[]);
    let (server, url) = serve(&own, &["motor:migrating"]);
    run_program(&program);
    wait_until("all ends", || {
        let found = report(&url);
        let jobs = found["jobs"]["jobs"].as_array().expect("jobs");
        let count = |key: &str| jobs.first().and_then(|job| job[key].as_u64()).unwrap_or(0);
        count("activations") + count("without_begin") == MIGRATIONS
    });
    let found = report(&url);
    let job = job(&found, "motor:migrating");
    let odd = ["activations", "without_end", "without_begin", "across_losses"].map(|key| job[key].as_u64());
    assert_eq!(odd, [Some(MIGRATIONS), Some(0), Some(0), Some(0)], "{job}");
    end(server);
}

#[test]
fn activations_with_losses_have_no_response() {
    let Some(own) = Own::new("job-losses") else { return };
    let dir = TestDir::new();
    let program = dir.link("jobs_with_losses", &["jobs_with_losses.c"], &[]);
    let (server, url) = serve(&own, &["motor:lossy", "motor:filler"]);
    let hears = session(server.id()).expect("a session");
    let mut command = Command::new(program);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
    let mut output = child.stdout.take().expect("its output");
    let mut input = child.stdin.take().expect("its input");
    let mut is_done = || output.read_exact(&mut [0]).expect("a step");
    let mut go_on = || input.write_all(b"\n").expect("a step");
    is_done();
    // While the ring is not read, it fills up: the first end and the second begin are lost.
    signal(hears, Signal::STOP);
    go_on();
    is_done();
    signal(hears, Signal::CONT);
    wait_until("losses", || report(&url)["jobs"]["lost_events"].as_u64() > Some(0));
    // The second end is not the first begin's.
    go_on();
    is_done();
    go_on();
    assert!(child.wait().expect("its end").success());
    wait_until("the third activation", || have(&report(&url), &["motor:lossy"], 1));
    let found = report(&url);
    let lossy = job(&found, "motor:lossy");
    // The second one's end tells that there was one, or came too late for that.
    assert!(lossy["across_losses"].as_u64() >= Some(1), "{lossy}");
    assert_eq!((&lossy["without_end"], &lossy["without_begin"]), (&0.into(), &0.into()), "{lossy}");
    let page = page(&url);
    let reported = values(&page, "tompion_job_across_losses_total{name=\"motor:lossy\"}");
    assert!(reported.len() == 1 && reported[0] >= 1.0, "{page}");
    end(server);
}
