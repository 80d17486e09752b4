//! The words of the command, to the letter, and its exit codes.
//!
//! The files in `golden/` are sessions at a terminal: lines that begin with `$ ` are run, what
//! follows them is what must come back. `TOMPION_BLESS=1` writes down what comes back now.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    Finished, TOMPION, TestDir, Trace, beside, finish, libraries, run, signal, start, tompion,
};

/// Makes a folder with `hello` from the examples, a file that is no program, and an empty folder.
fn with_hello() -> TestDir {
    let dir = TestDir::new();
    dir.link("hello", &["../../../../examples/hello.c"], &[]);
    fs::write(dir.path("data"), "no program\n").unwrap();
    fs::create_dir(dir.path("empty")).unwrap();
    dir
}

/// Runs a line as a shell does, for a minute at most; both outputs as one, and the exit code if it
/// isn't zero. The command's file, which hints for sudo name, is `tompion`.
fn answer(dir: &TestDir, line: &str) -> String {
    let path = format!("{}:{}", libraries().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("timeout");
    shell.args(["60", "sh", "-c", &format!("exec 2>&1; {line}")]).env("PATH", path).env("LC_ALL", "C");
    shell.env("TZ", "UTC").env("COLUMNS", "100").env_remove("TOMPION_SESSION").current_dir(dir.path(""));
    let Finished { out, status, .. } = run(&mut shell);
    let out = out.replace(TOMPION, "tompion");
    match status.code() {
        Some(0) => out,
        code => format!("{out}[exit {}]\n", code.unwrap_or(-1)),
    }
}

fn session_is_as_written(file: &str) {
    let (dir, file) = (with_hello(), beside("golden").join(file));
    let expected = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = expected.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    let found: Vec<String> = lines.iter().map(|line| format!("$ {line}\n{}\n", answer(&dir, line))).collect();
    let found = found.concat();
    if std::env::var_os("TOMPION_BLESS").is_some() {
        return fs::write(&file, found).unwrap();
    }
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected, "in {}", file.display());
    }
    assert_eq!(found, expected);
}

#[test]
fn help_is_as_written() {
    session_is_as_written("help.txt");
}

#[test]
fn hints_for_sudo_name_a_command_that_it_would_not_find() {
    let help = run(tompion().arg("--help")).succeeded().out;
    assert!(help.contains(&format!("\n  sudo {TOMPION} record -k -- ./server ")), "{help}");
}

#[test]
fn errors_are_as_written() {
    session_is_as_written("errors.txt");
}

#[test]
fn filters_are_as_written() {
    session_is_as_written("filters.txt");
}

fn filter_guide() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/filter.md");
    fs::read_to_string(path).unwrap()
}

#[test]
fn the_filter_guide_is_true() {
    let (dir, guide) = (with_hello(), filter_guide());
    let blocks = guide.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut commands = 0;
    for session in blocks.flat_map(|block| block.split("$ tompion ").skip(1)) {
        let (arguments, expected) = session.split_once('\n').unwrap();
        assert_eq!(answer(&dir, &format!("tompion {arguments}")), expected, "tompion {arguments}");
        commands += 1;
    }
    assert!(commands >= 6);
}

#[test]
fn filters_in_the_guides_tables_are_filters() {
    let guide = filter_guide();
    let tables = guide.split("| filter |").skip(1).map(|rest| rest.split("\n\n").next().unwrap());
    let rows = tables.flat_map(|table| table.lines().skip(2));
    let filters: Vec<&str> = rows.map(|row| row.split('`').nth(1).unwrap()).collect();
    assert!(filters.len() > 10, "{filters:?}");
    for filter in filters {
        if let Err(error) = tompion_filter::parse(filter) {
            panic!("{}", error.render());
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let dir = TestDir::new();
    let trace = dir.record(&["--subbuf-size", "1M"], &[&dir.program("numbered"), &"1", &"20000"]);
    for format in ["text", "json", "csv"] {
        let mut print = start(tompion().args(["print", "--format", format]).arg(&trace.folder));
        let mut first = String::new();
        BufReader::new(print.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(!first.is_empty());
        assert_eq!(finish(print, "print").succeeded().err, "");
    }
}

/// A trace of one stream with several packets, and the path of the stream.
fn long_stream(dir: &TestDir) -> (Trace, PathBuf) {
    let options = ["--subbuf-size", "4M"];
    let program = dir.program("numbered");
    let trace = dir.record(&options, &[&"taskset", &"-c", &"0", &program, &"1", &"100000"]);
    let source = trace.manifest()["sources"][0]["path"].as_str().unwrap().to_owned();
    let stream = trace.folder.join(source).join("stream_0");
    assert!(fs::metadata(&stream).unwrap().len() > 600_000, "several packets");
    (trace, stream)
}

/// Reads a damaged trace: the numbers up to the damage, and the one line that tells of it. A second
/// may say that damaged bytes, read as events, went back in time.
fn read_damaged(trace: &Trace) -> (Vec<u64>, String) {
    let printed = run(tompion().arg("print").arg(&trace.folder)).exited(1);
    run(tompion().args(["stat", "--json"]).arg(&trace.folder)).exited(1);
    let number = |line: &str| line.split_once(", number = ")?.1.split_once(' ')?.0.parse().ok();
    let numbers = printed.out.lines().filter_map(number).collect();
    let reported: Vec<&str> = printed.err.lines().filter(|line| !line.contains("time goes back")).collect();
    assert_eq!(reported.len(), 1, "{}", printed.err);
    (numbers, reported[0].to_owned())
}

#[test]
fn a_stream_that_was_cut_is_read_up_to_the_cut() {
    let dir = TestDir::new();
    let (trace, stream) = long_stream(&dir);
    let size = fs::metadata(&stream).unwrap().len();
    for cut in [size - 1, size - 100_000, 300_000, 100, 10] {
        fs::OpenOptions::new().write(true).open(&stream).unwrap().set_len(cut).unwrap();
        let (numbers, message) = read_damaged(&trace);

        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64));
        assert!(numbers.len() as u64 >= cut.saturating_sub(270_000) / 25, "{} at {cut}", numbers.len());
        assert!(message.contains("stream_0") && message.contains("byte "), "{message}");
    }
}

#[test]
fn random_bytes_in_a_stream_cost_their_packet_and_nothing_before_it() {
    let dir = TestDir::new();
    let (trace, stream) = long_stream(&dir);
    let mut noise = vec![0; 4096];
    fs::File::open("/dev/urandom").unwrap().read_exact(&mut noise).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&stream).unwrap();
    file.write_all_at(&noise, 400_000).unwrap();
    let (numbers, message) = read_damaged(&trace);

    let sound = numbers.iter().zip(1..).take_while(|(found, expected)| **found == *expected).count();
    // A packet whose checksum is wrong is left out whole.
    assert!(sound >= (400_000 - 270_000) / 25, "only {sound} events were read");
    assert!(message.contains("stream_0") && message.contains("byte "), "{message}");
}

#[test]
fn damaged_metadata_is_named() {
    let dir = TestDir::new();
    let (trace, stream) = long_stream(&dir);
    let metadata = stream.with_file_name("metadata");
    fs::write(&metadata, "/* CTF 1.8 */\nevent { name = \n").unwrap();
    let printed = run(tompion().arg("print").arg(&trace.folder)).exited(1);
    assert!(printed.err.contains("metadata"), "{}", printed.err);
    assert_eq!(printed.err.trim().lines().count(), 1, "{}", printed.err);
}

#[test]
fn a_running_process_is_listed_with_its_libraries() {
    let dir = TestDir::new();
    let mut running = start(&mut Command::new(dir.program("stubborn")));
    let mut line = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let listed = run(tompion().args(["list", line.trim()]));
    let json = run(tompion().args(["list", "--json", line.trim()]));
    signal(running.id(), Signal::KILL);
    running.wait().unwrap();

    assert_eq!(listed.succeeded().out, "stubborn:step  [debug_line]  u32 number\n");
    let rows: Value = serde_json::from_str(&json.succeeded().out).unwrap();
    assert_eq!(rows[0]["name"], "stubborn:step");
}

#[test]
fn doctor_reports_every_check_as_json() {
    let rows: Value = serde_json::from_str(&run(tompion().args(["doctor", "--json"])).out).unwrap();
    let rows = rows.as_array().unwrap();
    assert!(rows.len() >= 7);
    for row in rows {
        assert!(["good", "drawback", "bad", "unknown"].contains(&row["state"].as_str().unwrap()), "{row}");
        assert!(row["mend"].is_null() == (row["state"] == "good"), "{row}");
    }
}

/// Records a python script that talks to the session, then `hello` in the same recording.
fn beside_fake_agent(what: &str) -> (Finished, u64) {
    let dir = with_hello();
    let (script, hello) = (beside("programs/fake_agent.py"), dir.path("hello"));
    let command: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"python3", &script, &what, &hello];
    let finished = run(&mut dir.recording("trace", &[], &command)).succeeded();
    (finished, dir.trace("trace").agreed_count())
}

fn problems(finished: &Finished) -> Vec<&str> {
    finished.err.lines().filter(|line| line.contains("refused process")).collect()
}

#[test]
fn an_agent_of_another_version_is_rejected_in_one_line() {
    let (finished, events) = beside_fake_agent("version");
    assert!(events >= 40);
    let reason = "its libtompion speaks protocol 9, this tompion 1: install the same version of both";
    assert!(finished.out.contains(&format!("102 {reason}")), "{}", finished.out);
    let [line] = problems(&finished)[..] else { panic!("expected one line: {}", finished.err) };
    assert!(line.ends_with(reason), "{line}");
}

#[test]
fn a_session_survives_garbage() {
    let (finished, events) = beside_fake_agent("garbage");
    assert!(events >= 40);
    assert!(problems(&finished).len() <= 12, "{}", finished.err);
}

#[test]
fn a_silent_client_delays_no_other() {
    let (finished, events) = beside_fake_agent("silence");
    assert!(events >= 40, "{}", finished.err);
}

#[test]
fn names_that_no_event_of_a_trace_has_are_reported() {
    let dir = with_hello();
    run(&mut dir.recording("trace", &["-e", "db:query_start,db:query_done"], &[&"./hello", &"3"]))
        .succeeded();
    let list = run(&mut dir.tompion(&["print", "-e", "db:query_start,db:query_done", "trace"])).succeeded();
    assert_eq!(list.out.lines().count(), 6);
    for command in ["print", "stat"] {
        let reported = run(&mut dir.tompion(&[command, "-e", "db:query_don", "trace"])).exited(1);
        assert!(reported.err.contains("no event of the trace matches `db:query_don`"), "{}", reported.err);
        assert!(reported.err.contains("; nearest: db:query_done"), "{}", reported.err);
    }
}

#[test]
fn the_newest_trace_is_taken_where_none_is_named() {
    let dir = with_hello();
    run(&mut dir.recording("older", &[], &[&"./hello", &"1"])).succeeded();
    run(&mut dir.recording("newer", &[], &[&"./hello", &"2"])).succeeded();
    let printed = run(&mut dir.tompion(&["print", "-e", "db:query_start"])).succeeded();
    assert_eq!(printed.out.lines().count(), 2);
    assert_eq!(printed.err, "tompion: newest trace in this folder: newer\n");
    assert!(Path::new(&dir.path("older")).is_dir());
}
