//! `tompion snapshot`: a flight recorder is saved on request of permitted users, without harm to
//! others.

use std::{
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;

use crate::{
    kills::Progress,
    support::{Finished, TOMPION, TestDir, finish, run, signal, start, tompion, wait_until},
};

const UNPRIVILEGED_UID: u32 = 65_534;

/// A program that is recorded until it is told to end.
struct Recording {
    child: Child,
    progress: Progress,
}

impl Recording {
    fn start(dir: &TestDir, name: &str, mode: &str) -> Self {
        let (program, progress) =
            (dir.program("emitter"), Progress::new(dir.path(&format!("{name}.progress"))));
        let options = ["--mode", mode, "--subbuf-size", "1M", "--subbufs", "8"];
        let child =
            start(&mut dir.recording(name, &options, &[&program, &progress.path(), &"20000", &"0", &"0"]));
        progress.pid();
        wait_until("some events", || progress.returned()[0] >= 500);
        Self { child, progress }
    }

    fn end(self) -> Finished {
        signal(self.progress.pid(), Signal::TERM);
        finish(self.child, "record")
    }
}

fn snapshot(dir: &TestDir, arguments: &[&str]) -> Finished {
    run(dir.tompion(&["snapshot"]).args(arguments))
}

/// Returns the number of saved events.
fn saved(finished: Finished) -> u64 {
    let err = finished.succeeded().err;
    let number = err.strip_prefix("tompion: saved ").and_then(|rest| rest.split(' ').next());
    let number = number.and_then(|number| number.replace(',', "").parse().ok());
    number.unwrap_or_else(|| panic!("expected `saved N events in …`, found `{err}`"))
}

#[test]
fn a_flight_recorder_is_saved_by_its_folder_and_by_its_process() {
    let dir = TestDir::new();
    let recording = Recording::start(&dir, "trace", "overwrite");
    let by_folder = saved(snapshot(&dir, &["trace"]));
    assert!(by_folder >= 500);
    // It is on disk by now.
    let printed = || dir.trace("trace").printed().lines().count() as u64;
    assert_eq!(printed(), by_folder);
    let by_process = saved(snapshot(&dir, &[&recording.child.id().to_string()]));
    assert_eq!(printed(), by_folder + by_process);
    let manifest = dir.trace("trace").manifest();
    assert_eq!(manifest["recorder"]["pid"], recording.child.id());
    assert_eq!(manifest["snapshot"]["events"], by_process);
    recording.end();
    let trace = dir.trace("trace");
    assert_eq!(
        (trace.manifest()["recorder"].is_null(), trace.manifest()["snapshot"].is_null()),
        (true, true)
    );
    assert!(trace.agreed_count() >= by_folder + by_process);
    let over = snapshot(&dir, &["trace"]).exited(1).err;
    assert!(over.contains("trace is no longer being recorded"), "{over}");
}

#[test]
fn only_flight_recorders_take_snapshots() {
    let dir = TestDir::new();
    let recording = Recording::start(&dir, "trace", "discard");
    let refused = snapshot(&dir, &["trace"]).exited(1).err;
    assert!(refused.contains("in discard mode") && refused.lines().count() == 1, "{refused}");
    let refused = snapshot(&dir, &[&std::process::id().to_string()]).exited(1).err;
    assert!(refused.contains("is not a running recorder"), "{refused}");
    let refused = snapshot(&dir, &["no-such-trace"]).exited(1).err;
    assert!(refused.contains("no-such-trace") && refused.lines().count() == 1, "{refused}");
    // The program that is recorded is no recorder.
    let refused = snapshot(&dir, &[&recording.progress.pid().to_string()]).exited(1).err;
    assert!(refused.contains("is not a running recorder"), "{refused}");
    recording.end();
}

#[test]
fn a_recording_whose_recorder_was_killed_is_not_asked() {
    let dir = TestDir::new();
    let mut recording = Recording::start(&dir, "trace", "overwrite");
    signal(recording.child.id(), Signal::KILL);
    recording.child.wait().unwrap();
    signal(recording.progress.pid(), Signal::KILL);
    let refused = snapshot(&dir, &["trace"]).exited(1).err;
    assert!(refused.contains("next: tompion recover trace"), "{refused}");
}

#[test]
fn a_manifest_that_names_another_process_leads_nowhere() {
    let dir = TestDir::new();
    let recording = Recording::start(&dir, "trace", "overwrite");
    let mut victim = start(Command::new("sleep").arg("600"));
    std::fs::create_dir(dir.path("made-up")).unwrap();
    for pid in [victim.id(), recording.child.id()] {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let ticks: u64 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
        let mut manifest = dir.trace("trace").manifest();
        manifest["recorder"] = serde_json::json!({ "pid": pid, "start_ticks": ticks });
        std::fs::write(dir.path("made-up/tompion.json"), manifest.to_string()).unwrap();
        let refused = snapshot(&dir, &["made-up"]).exited(1).err;
        assert!(refused.contains("made-up is no longer recorded"), "{refused}");
    }
    assert!(victim.try_wait().unwrap().is_none(), "it got no signal");
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(dir.trace("trace").manifest()["snapshot"].is_null());
    recording.end();
}

/// Runs as a user of its own, so that no other recording of this machine is listed.
#[test]
fn without_an_argument_the_only_one_is_saved_and_several_are_listed() {
    const USER: u32 = 61_447;
    if tompion_os::effective_user() != 0 {
        return eprintln!("SKIPPED, another user: only root can be one");
    }
    let dir = TestDir::new();
    let folder = dir.path("");
    std::os::unix::fs::chown(&folder, Some(USER), Some(USER)).unwrap();
    let as_user = |arguments: &[&str]| {
        let mut command = tompion();
        command.args(arguments).current_dir(&folder).uid(USER).gid(USER);
        command
    };
    let alone = run(&mut as_user(&["snapshot"])).exited(1).err;
    assert!(alone.contains("no flight recorder of this user is running"), "{alone}");
    let record = |name: &str| {
        let words = ["record", "-o", name, "--mode", "overwrite", "--", "sleep", "600"];
        let child = start(&mut as_user(&words));
        let manifest = folder.join(name).join("tompion.json");
        wait_until("a manifest", || manifest.exists());
        child
    };
    let one = record("one");
    saved(run(&mut as_user(&["snapshot"])));
    let two = record("two");
    let list = run(&mut as_user(&["snapshot"])).exited(2).err;
    for recording in [&one, &two] {
        assert!(list.contains(&format!("tompion snapshot {} ", recording.id())), "{list}");
    }
    // Another user may not, root may.
    let mut stranger = tompion();
    let stranger =
        run(stranger.args(["snapshot", &one.id().to_string()]).uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID))
            .exited(1);
    let expected = format!("belongs to user {USER}");
    assert!(
        stranger.err.contains(&expected) && stranger.err.contains(&format!("sudo {TOMPION} snapshot")),
        "{}",
        stranger.err
    );
    saved(run(tompion().args(["snapshot", &one.id().to_string()])));
    for child in [one, two] {
        signal(child.id(), Signal::INT);
        finish(child, "record");
    }
}

/// Sends the signal that a recorder handles, and its neighbour, to all processes of that name.
#[test]
fn signals_that_mean_nothing_to_a_command_end_none() {
    let dir = TestDir::new();
    let hello = dir.link("hello", &["../../../../examples/hello.c"], &[]);
    dir.record(&[], &[&hello]);
    let trace = dir.path("trace");
    let mut view = tompion().args(["view", "--no-open"]).arg(&trace).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(view.stdout.as_mut().unwrap()), &mut line)
        .unwrap();
    for each in [Signal::USR1, Signal::USR2, Signal::USR1] {
        signal(view.id(), each);
    }
    let address = line.trim().strip_prefix("http://").unwrap().split_once('/').unwrap().0.to_owned();
    assert!(std::net::TcpStream::connect(address).is_ok());
    assert!(view.try_wait().unwrap().is_none(), "it goes on");
    view.kill().unwrap();
    view.wait().unwrap();

    // What is recorded has the signals' usual actions.
    let words: [&dyn AsRef<std::ffi::OsStr>; 3] = [&"sh", &"-c", &"kill -USR2 $$"];
    let recorded = run(&mut dir.recording("children", &[], &words));
    assert!(recorded.err.contains("ended with signal: 12"), "{}", recorded.err);
}
