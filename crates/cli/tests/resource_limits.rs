//! Programs that have hardly any memory, descriptors or room in a ring: recorded or not, they run
//! as they would alone.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::support::*;

/// A plugin of many events is loaded where the memory doesn't suffice for what the agent would note
/// of them.
#[test]
fn a_program_without_memory_for_its_events_runs_on() {
    let dir = TestDir::new();
    let program = dir.program("limited");
    let plugin = dir.link("plugin.so", &["limited_plugin.c"], &["-shared", "-fPIC"]);
    let mut short = 0;
    for room in (2..16).map(|step| step * 50_000) {
        let (trace, room) = (format!("room{room}"), room.to_string());
        let recording =
            run(&mut dir.recording(&trace, &[], &[&program, &"memory", &room, &plugin])).succeeded();
        assert!(recording.out.contains("went on"), "{room}: {recording:?}");
        let trace = dir.trace(&trace);
        assert_eq!(trace.events().len(), 10, "{room}");
        let lost = trace.manifest()["sources"][0]["lost"]["catalog_full"].as_u64();
        short += u32::from(recording.out.contains("loaded") && lost.is_some_and(|lost| lost != 0));
    }
    assert_ne!(short, 0, "there was always memory");
}

/// A session can't attach to a program that may not open files; its attempts must not keep the
/// program busy.
#[test]
fn a_program_that_may_open_no_files_can_be_asked_in_vain() {
    let dir = TestDir::new();
    let program = dir.program("limited");
    let mut command = Command::new(program);
    command.arg("files").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program");
    let mut stdin = child.stdin.take().expect("its input");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut line = || lines.next().expect("a line").expect("a line of text");
    assert_eq!(line(), "ready");
    let pid = child.id().to_string();
    // Once it answers, its bell hangs.
    run(&mut dir.tompion(&["record", "-o", "first", "-p", &pid, "--duration", "1ms"]));
    stdin.write_all(b"x").expect("a program that reads");
    assert_eq!(line(), "none");
    let asked = run(&mut dir.tompion(&["record", "-o", "trace", "-p", &pid, "--duration", "1s"]));
    assert_eq!(asked.status.code(), Some(125), "{asked:?}");
    std::thread::sleep(Duration::from_secs(1));
    drop(stdin);
    let busy: u32 = line().parse().expect("a number");
    assert!(busy < 200, "{busy} ms of the processor's time");
    finish(child, "limited").succeeded();
}

/// An event larger than a sub-buffer is lost, and no other event is lost because of it.
#[test]
fn numbers_that_fill_more_than_a_sub_buffer_harm_no_other_event() {
    let dir = TestDir::new();
    let program = dir.program("large");
    for mode in ["discard", "overwrite"] {
        let options = ["--subbuf-size", "4K", "--mode", mode];
        run(&mut dir.recording(mode, &options, &[&program])).succeeded();
        let trace = dir.trace(mode);
        assert_eq!(trace.events().len(), 20, "{mode}");
        assert_eq!(trace.manifest()["sources"][0]["lost"]["too_large"], 20, "{mode}");
    }
    run(&mut dir.recording("default", &[], &[&program])).succeeded();
    let events = dir.trace("default").events();
    assert_eq!(events.len(), 40);
    assert!(events.iter().skip(1).step_by(2).zip(0..).all(|(event, i)| event.fields["s9"]["h7"] == i));
}

/// The limit on the size of files is also one on the size of rings.
#[test]
fn a_limit_on_the_size_of_files_is_named() {
    let dir = TestDir::new();
    let program = dir.program("large");
    for (limit, words) in [("0", "can't set up the session"), ("64", ") is not recorded")] {
        let record = dir.recording("trace", &[], &[&program]);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -f {limit}; exec \"$0\" \"$@\"")]);
        shell.arg(record.get_program()).args(record.get_args()).current_dir(dir.path(""));
        let reported = run(&mut shell).exited(125).err;
        let expected = format!("{words}: a file has reached the file size limit (ulimit -f)");
        assert!(reported.contains(&expected), "{limit}: {reported}");
    }
}

/// A recording of more streams than a reader may have files open is read nevertheless.
#[test]
fn more_streams_than_descriptors_are_read() {
    const METADATA: &str = r#"/* CTF 1.8 */
trace { major = 1; minor = 8; byte_order = le; };
stream { event.header := struct { integer { size = 8; } id; }; };
event { id = 7; name = "seven"; fields := struct { integer { size = 16; } n; }; };
"#;
    const STREAMS: u16 = 700;
    let dir = TestDir::new();
    std::fs::create_dir(dir.path("trace")).unwrap();
    std::fs::write(dir.path("trace/metadata"), METADATA).unwrap();
    for stream in 0..STREAMS {
        let [low, high] = stream.to_le_bytes();
        std::fs::write(dir.path(&format!("trace/stream_{stream}")), [7, low, high]).unwrap();
    }
    let program = tompion().get_program().to_owned();
    let read = |words: &str| {
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n 300; exec \"$0\" {words}")]).arg(&program);
        run(limited.current_dir(dir.path("."))).succeeded()
    };
    let printed = read("print trace");
    assert_eq!((printed.out.lines().count(), printed.err.as_str()), (STREAMS.into(), ""));
    assert!(read("stat trace").out.contains("700"));
    read("export --to ctf1 trace -o copy");
    assert_eq!(read("print copy").out.lines().count(), usize::from(STREAMS));
}

/// However many files can't be opened, one line says what to do, and it is what helps.
#[test]
fn too_many_open_files_are_explained_once() {
    let trace = repository().join("examples/late-trace");
    let program = tompion().get_program().to_owned();
    let print = |limits: &str| {
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("{limits}; exec \"$0\" print \"$1\"")]).arg(&program).arg(&trace);
        run(&mut limited).exited(1).err
    };
    for (limits, advice) in [
        ("ulimit -Sn 5; ulimit -Hn 100", "5 files may be open; allow more with: ulimit -n 100\n"),
        (
            "ulimit -n 5",
            "5 files may be open; allow more in this shell with: sudo prlimit --nofile=65536 --pid $$",
        ),
    ] {
        let reported = print(limits);
        assert!(reported.matches("Too many open files").count() > 1, "{reported}");
        assert_eq!(
            (reported.matches(advice).count(), reported.matches("allow more").count()),
            (1, 1),
            "{reported}"
        );
    }
}

/// Readable events are printed; the exit code reports the others.
#[test]
fn a_description_that_is_refused_is_no_success() {
    const SOUND: &str = r#"/* CTF 1.8 */
trace { major = 1; minor = 8; byte_order = le; };
stream { event.header := struct { integer { size = 8; } id; }; };
event { id = 7; name = "seven"; };
"#;
    let dir = TestDir::new();
    for (name, metadata) in [("sound", SOUND), ("refused", &SOUND.replace("size = 8", "size = 0"))] {
        std::fs::create_dir_all(dir.path(&format!("traces/{name}"))).unwrap();
        std::fs::write(dir.path(&format!("traces/{name}/metadata")), metadata).unwrap();
        std::fs::write(dir.path(&format!("traces/{name}/stream")), [7]).unwrap();
    }
    let print = |path: &str| run(tompion().arg("print").arg(dir.path(path)));
    assert_eq!(print("traces/sound").succeeded().out.lines().count(), 1);
    let both = print("traces").exited(1);
    assert_eq!((both.out.lines().count(), both.err.lines().count()), (1, 1), "{}", both.err);
    assert!(both.err.contains("traces/refused/metadata"), "{}", both.err);
    print("traces/refused").exited(1);
}

/// Records programs of this name, which no other test has.
fn record_with_memory(dir: &TestDir, name: &str, options: &[&str]) -> Child {
    let mut command = dir.tompion(&["record", "--session", "shared", "-o", "trace"]);
    command.args(["--programs", &format!("name={name}")]).args(options);
    command.env("TOMPION_SOCKET", dir.path("join")).env("TOMPION_CONTROL", dir.path("control"));
    let recorder = start(&mut command);
    wait_until("a join socket", || fs::read_dir(dir.path("join")).is_ok_and(|names| names.count() == 1));
    recorder
}

/// State of that recording.
fn status_of_shared(dir: &TestDir) -> Value {
    let mut status = dir.tompion(&["status", "--json", "shared"]);
    let shown = run(status.env("TOMPION_CONTROL", dir.path("control"))).succeeded().out;
    serde_json::from_str::<Value>(&shown).expect("JSON")["recordings"][0].take()
}

/// Starts a ticker, and waits until so many processes are recorded or refused.
fn start_ticker(dir: &TestDir, program: &Path, processes: u64) -> Child {
    let mut command = Command::new(program);
    command.env("TOMPION_SOCKET", dir.path("join")).stdin(Stdio::piped()).stdout(Stdio::null());
    let ticker = command.spawn().expect("a program");
    wait_until("a process", || {
        let status = status_of_shared(dir);
        let known = status["processes"].as_array().map_or(0, Vec::len) as u64;
        let ended = status["ended_processes"].as_u64().expect("a number");
        known + ended + status["rejected_processes"].as_u64().expect("a number") == processes
    });
    ticker
}

fn stop_shared(dir: &TestDir, recorder: Child) -> Finished {
    run(dir.tompion(&["stop", "shared"]).env("TOMPION_CONTROL", dir.path("control"))).succeeded();
    finish(recorder, "tompion record --memory")
}

#[test]
fn a_program_for_which_no_memory_is_left_is_refused_and_others_are_recorded() {
    let dir = TestDir::new();
    let program = dir.link("third-is-refused", &["ticker.c"], &[]);
    // Two programs fit; each ring has a header.
    let each = (4096 + 2 * 4096) * u64::from(tompion_os::possible_cpus());
    let memory = (2 * each + each / 2).to_string();
    let options = ["--memory", &memory, "--subbuf-size", "4K", "--subbufs", "2"];
    let recorder = record_with_memory(&dir, "third-is-refused", &options);
    let mut tickers: Vec<Child> = (1..=3).map(|number| start_ticker(&dir, &program, number)).collect();
    let status = status_of_shared(&dir);
    assert_eq!(
        (status["rejected_processes"].as_u64(), status["memory"].as_u64()),
        (Some(1), memory.parse().ok())
    );
    let problems = status["problems"].to_string();
    assert!(problems.contains("no memory is left for its rings: 2 shares take"), "{problems}");
    let mut first = tickers.remove(0);
    drop(first.stdin.take());
    first.wait().expect("its end");
    wait_until("its memory", || status_of_shared(&dir)["ended_processes"] == 1);
    tickers.push(start_ticker(&dir, &program, 4));
    assert_eq!(status_of_shared(&dir)["rejected_processes"], 1, "the next one has what came back");
    for mut ticker in tickers {
        drop(ticker.stdin.take());
        ticker.wait().expect("its end");
    }
    let said = stop_shared(&dir, recorder).succeeded();
    assert!(said.err.contains("no memory is left for its rings"), "{}", said.err);
    assert_eq!(dir.trace("trace").left_out(), 1);
}

#[test]
fn programs_share_the_memory_of_a_recording() {
    let dir = TestDir::new();
    let program = dir.link("sharing-ticker", &["ticker.c"], &[]);
    let recorder = record_with_memory(&dir, "sharing-ticker", &["--memory", "64M"]);
    let mut tickers: Vec<Child> = (1..=4).map(|number| start_ticker(&dir, &program, number)).collect();
    let status = status_of_shared(&dir);
    let bytes = |process: &Value| process["ring_bytes_in_all"].as_u64().expect("a number");
    let shares: Vec<u64> = status["processes"].as_array().expect("processes").iter().map(bytes).collect();
    assert!(shares.iter().sum::<u64>() <= 64 << 20 && shares[0] > shares[3], "{shares:?}");
    assert!(shares.is_sorted_by(|one, next| one >= next) && shares[3] > 0, "{shares:?}");
    let mut text = dir.tompion(&["status", "shared"]);
    let text = run(text.env("TOMPION_CONTROL", dir.path("control"))).succeeded().out;
    assert!(text.contains(" of 64.0 MiB, shared out to programs"), "{text}");
    for ticker in &mut tickers {
        drop(ticker.stdin.take());
        ticker.wait().expect("its end");
    }
    let said = stop_shared(&dir, recorder).succeeded();
    assert!(said.err.contains("none lost"), "{}", said.err);
    let trace = dir.trace("trace");
    assert_eq!(trace.manifest()["channel"]["memory"], 64 << 20);
    assert_eq!(trace.agreed_count(), trace.events().len() as u64);
    let too_little =
        run(&mut dir.tompion(&["record", "-o", "none", "--memory", "4K", "--", "true"])).exited(125);
    assert!(
        too_little.err.contains("take at least") && too_little.err.contains("found 4096"),
        "{}",
        too_little.err
    );
}
