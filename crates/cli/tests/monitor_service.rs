//! The monitor as a service: it ends when the monitor is stopped, replaces an earlier version, and
//! its unit is sound.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command},
    thread,
    time::Duration,
};

use aya::maps::{Array, Map, MapData};
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    monitor::{Own, page, values},
    support::{finish, installed, repository, run, signal, start, tompion, wait_until},
};

/// Exit status of a command whose monitor was stopped.
const ENDED: i32 = 3;

/// Address of its page, and its messages at the end.
fn url_of(server: &mut Child) -> (String, BufReader<ChildStdout>) {
    let (mut url, mut output) = (String::new(), BufReader::new(server.stdout.take().unwrap()));
    output.read_line(&mut url).unwrap();
    (url, output)
}

#[test]
fn given_a_stop_then_all_who_look_on_end() {
    let Some(own) = Own::new("stopped") else { return };
    let folder = tempfile::tempdir().unwrap();
    let incidents = folder.path().display().to_string();
    let mut server = start(&mut own.monitor(&["--listen", "127.0.0.1:0"]));
    let _output = url_of(&mut server);
    let waiting = start(&mut own.monitor(&["--threshold", "nobody=1h", "--incidents", &incidents]));
    let lasting = start(&mut own.monitor(&["--duration", "1h", "--json"]));
    let screen = installed("script").then(|| {
        let words = own.monitor(&[]);
        let words = std::iter::once(words.get_program()).chain(words.get_args());
        let line: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let mut command = Command::new("script");
        start(command.args(["-qec", &line.join(" "), "/dev/null"]))
    });
    // Those who come too late to see it count would begin to count themselves.
    thread::sleep(Duration::from_secs(2));
    run(&mut own.monitor(&["stop"])).succeeded();
    for (child, name) in [(server, "--listen"), (waiting, "--threshold"), (lasting, "--duration")] {
        let ended = finish(child, name).exited(ENDED);
        assert!(ended.err.ends_with("the monitor was stopped\n"), "{name}: {}", ended.err);
        // What was counted until then is told.
        assert!(name != "--duration" || ended.out.starts_with('{'), "{}", ended.out);
    }
    if let Some(screen) = screen {
        let ended = finish(screen, "the live table").exited(ENDED);
        assert!(ended.out.contains("the monitor was stopped"), "{}", ended.out);
    }
}

#[test]
fn given_another_one_in_its_place_then_who_looked_on_may_begin_again() {
    let Some(own) = Own::new("replaced") else { return };
    let server = start(&mut own.monitor(&["--listen", "127.0.0.1:0"]));
    thread::sleep(Duration::from_secs(1));
    // It looks every few seconds: between these two it may have ended with the other status, so the
    // pause is as short as can be.
    run(&mut own.monitor(&["stop"])).succeeded();
    run(&mut own.monitor(&["--once"])).succeeded();
    let ended = finish(server, "--listen");
    let code = ended.status.code();
    if code == Some(ENDED) {
        return;
    }
    assert_eq!(code, Some(1));
    assert!(ended.err.ends_with("the monitor was stopped and another one started\n"), "{}", ended.err);
}

/// Writes a number into what programs and their readers share, as another version has it.
fn overwrite(own: &Own, at: usize, number: u32) {
    let path = Path::new("/sys/fs/bpf").join(own.name()).join("array-control");
    let map = Map::Array(MapData::from_pin(path).expect("the pinned array"));
    let mut array: Array<_, [u8; 64]> = map.try_into().expect("an array");
    let mut control = array.get(&0, 0).expect("its entry");
    control[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    array.set(0, control, 0).expect("a change");
}

const LAYOUT: usize = 8;
const BUILD: usize = 60;

#[test]
fn given_an_earlier_layout_then_the_service_restarts_and_others_refuse() {
    let Some(own) = Own::new("earlier") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let keep = format!("--history={}", path.display());
    let report = || {
        let said = run(tompion().args(["monitor", "report", "--json", "--history"]).arg(&path)).out;
        serde_json::from_str::<Value>(&said).unwrap_or_default()
    };
    let begun = |number: usize| {
        wait_until("it has begun", || report()["starts"].as_array().map_or(0, Vec::len) == number);
    };
    let end = |keeper: Child| {
        // It is told to end once it counts.
        thread::sleep(Duration::from_secs(1));
        signal(keeper.id(), Signal::TERM);
        finish(keeper, "--history").succeeded().err
    };
    let keeper = start(&mut own.monitor(&[&keep]));
    begun(1);
    end(keeper);
    overwrite(&own, LAYOUT, 1);
    let refused = run(&mut own.monitor(&["--once"])).exited(1).err;
    assert!(refused.contains("in a layout of another version (found 1, expected "), "{refused}");
    // One of a later version is left alone.
    overwrite(&own, LAYOUT, 1000);
    let refused = run(&mut own.monitor(&[&keep])).exited(1).err;
    assert!(refused.contains("in a layout of another version (found 1000, expected "), "{refused}");
    overwrite(&own, LAYOUT, 1);
    let keeper = start(&mut own.monitor(&[&keep]));
    begun(3);
    let said = end(keeper);
    assert!(said.contains("counting restarts, and the history notes the gap"), "{said}");
    let report = report();
    let events = report["events"].as_array().expect("events");
    assert!(events.iter().any(|event| event["kind"] == "not-counted"), "{report}");
    assert_eq!(report["coverage"]["rows"], 2, "{report}");
    run(&mut own.monitor(&["--once"])).succeeded();
}

#[test]
fn given_a_monitor_of_another_build_then_readers_say_so() {
    let Some(own) = Own::new("build") else { return };
    let same = run(&mut own.monitor(&["--once"])).succeeded();
    assert_eq!(same.err, "");
    overwrite(&own, BUILD, 1);
    let other = run(&mut own.monitor(&["--once"])).succeeded();
    assert!(
        other.err.contains("another build of Tompion; to replace them, run tompion monitor stop"),
        "{}",
        other.err
    );
    assert_eq!(other.err.lines().count(), 1);
}

#[test]
fn given_a_history_and_incidents_then_the_page_tells_of_them() {
    let Some(own) = Own::new("duties") else { return };
    let folder = tempfile::tempdir().unwrap();
    let keep = format!("--history={}", folder.path().join("history.sqlite").display());
    let parent = folder.path().join("incidents");
    fs::create_dir(&parent).unwrap();
    let mut command =
        own.monitor(&["--listen", "127.0.0.1:0", &keep, "--threshold", "*=10ns", "--cooldown", "10ms"]);
    let mut server = start(command.arg("--incidents").arg(&parent));
    let (url, _output) = url_of(&mut server);
    let sleep = || {
        let sleeper = thread::spawn(|| {
            tompion_os::run_fifo(60).expect("a real-time priority");
            (0..50).for_each(|_| thread::sleep(Duration::from_millis(1)));
        });
        sleeper.join().expect("a thread that sleeps");
    };
    let value = |name: &str| values(&page(&url), name).iter().sum::<f64>();
    wait_until("a folder", || {
        sleep();
        value("tompion_incidents_total ") >= 1.0
    });
    assert!(value("tompion_incidents_not_saved_total{reason=\"pause\"}") >= 1.0);
    assert_eq!(value("tompion_incidents_not_saved_total{reason=\"failed\"}"), 0.0);
    assert!(value("tompion_history_last_write_timestamp_seconds ") > 1.7e9);
    wait_until("a latency between two looks", || {
        sleep();
        value("tompion_latency_recent_max_seconds") > 0.0
    });
    // A file where folders should be: none can be written. The command goes on, and says how many.
    fs::remove_dir_all(&parent).unwrap();
    fs::write(&parent, "").unwrap();
    wait_until("one that failed", || {
        sleep();
        value("tompion_incidents_not_saved_total{reason=\"failed\"}") >= 1.0
    });
    let kept = value("tompion_incidents_total ");
    fs::remove_file(&parent).unwrap();
    wait_until("another folder", || {
        sleep();
        value("tompion_incidents_total ") > kept
    });
    signal(server.id(), Signal::INT);
    let ended = finish(server, "--listen --threshold").succeeded();
    assert!(
        ended.err.contains("can't save the incident: ") && ended.err.contains(" could not be written\n"),
        "{}",
        ended.err
    );
}

/// The unit, with the command that was built.
fn unit(folder: &Path) -> (String, std::path::PathBuf) {
    let text = fs::read_to_string(repository().join("integrations/systemd/tompion-monitor.service")).unwrap();
    let command = tompion();
    let with = text.replace("/usr/bin/tompion", &command.get_program().to_string_lossy());
    let path = folder.join("tompion-monitor.service");
    fs::write(&path, with).unwrap();
    (text, path)
}

#[test]
fn the_unit_is_sound() {
    let folder = tempfile::tempdir().unwrap();
    let (text, path) = unit(folder.path());
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    assert_eq!(line("RestartPreventExitStatus="), format!("RestartPreventExitStatus={ENDED}"));
    assert_eq!(line("UMask="), "UMask=0077", "the history is root's to read");
    assert_eq!(line("StateDirectoryMode="), "StateDirectoryMode=0700");
    assert!(text.lines().any(|line| line == "SystemCallFilter=bpf perf_event_open"), "{text}");
    assert_eq!(line("MemoryMax="), "", "arrays are as large as the machine has CPUs");
    if !installed("systemd-analyze") {
        return eprintln!("SKIPPED, systemd-analyze is missing");
    }
    let verify = |path: &Path| {
        let mut command = Command::new("systemd-analyze");
        // Other units of this machine are none of ours.
        let said = run(command.args(["verify", "--man=no", "--recursive-errors=no"]).arg(path));
        let lines: Vec<String> = format!("{}{}", said.out, said.err)
            .lines()
            .filter(|line| line.contains("tompion"))
            .map(str::to_owned)
            .collect();
        lines
    };
    let found = verify(&path);
    assert!(found.is_empty(), "{found:?}");
    // It would say so.
    fs::write(&path, text.replace("[Service]\n", "[Service]\nRestartPreventExitStatus=never\n")).unwrap();
    assert!(!verify(&path).is_empty());
}
