//! A recorder's states, without a recorder.

use std::sync::mpsc;

use tompion_testing::{TestDir, wait_until};

use super::*;

#[test]
fn the_output_has_the_name_of_the_session_with_all_its_dots() {
    let session = |channels: &str| {
        SessionFile::parse(&format!("output = '/traces/{{name}}'\n{channels}")).expect("a session")
    };
    for channels in ["[channel.main]", "[channel.main]\n[channel.other]"] {
        let recorder = Recorder::new(&SessionKey::own("a.b"), "main", session(channels));
        assert_eq!(recorder.output_folder(), Some("/traces/a.b".into()), "{channels}");
    }
}

#[test]
fn a_failure_is_tried_again_unless_a_caller_waits_for_it() {
    let mut recorder = Recorder::new(&SessionKey::own("a"), "main", SessionFile::default());
    recorder.is_awaited = true;
    recorder.fail("first".into());
    assert_eq!((recorder.status().state, recorder.due()), (RecorderState::Failed, None));
    recorder.end_wait();
    recorder.fail("second".into());
    assert_eq!(recorder.status().state, RecorderState::Waiting);
    assert!(recorder.due().is_some());
}

/// Launcher of a program that need not exist.
fn launcher(dir: &Path, program: &str) -> Launcher {
    Launcher {
        program: program.into(),
        runtime: DirHandle::open(dir).expect("a folder"),
        poller: Poller::new().expect("a poller"),
        disks: Disks::with_timeout(Duration::from_secs(600), None),
        inheritance: Inheritance::current(),
        report: |_| {},
    }
}

#[test]
fn a_start_that_fails_is_tried_again_with_the_same_trace() {
    let dir = TestDir::new("continues");
    let launcher = launcher(&dir, "/no/such/program");
    let session = SessionFile::parse("[channel.main]\nlinger = '20s'").expect("a session");
    let mut recorder = Recorder::new(&SessionKey::own("a"), "main", session);
    (recorder.folder, recorder.continues) = (Some("/traces/a".into()), true);
    recorder.start_now_or_later(&launcher);
    assert!(recorder.is_to_continue());
    assert_eq!(recorder.folder(), Some(Path::new("/traces/a")));
}

/// A recorder that an earlier supervisor has started, with a trace in this folder.
fn adopted(dir: &Path, pid: u32, launcher: &Launcher) -> Recorder {
    let mut recorder = Recorder::new(&SessionKey::own("a"), "main", SessionFile::default());
    let process = Some(ProcessIdentity { pid, start_ticks: 1 });
    let folder = Some(dir.join("traces/a"));
    recorder.adopt(SavedRecorder { process, folder, restarts: 0 }, launcher);
    recorder
}

#[test]
fn a_disk_that_does_not_answer_says_nothing_about_an_end() {
    let dir = TestDir::new("unknown-end");
    let mut launcher = launcher(&dir, "/no/such/program");
    launcher.disks = Disks::with_timeout(Duration::ZERO, None);
    let (release, hang) = mpsc::channel::<()>();
    let hung = launcher.disks.put(&dir.join("traces"), move || hang.recv()).expect("a question");
    let mut recorder = adopted(&dir, u32::MAX, &launcher);
    recorder.look(&launcher);
    recorder.start_again(&launcher);
    assert_eq!((recorder.state(), recorder.restarts()), (RecorderState::Waiting, 0));
    assert!(recorder.process().is_some(), "the next supervisor can't ask");
    assert!(recorder.due().is_some());
    assert!(recorder.failure().is_some_and(|it| it.contains("does not answer")));
    drop((release, hung));
    launcher.disks = Disks::with_timeout(Duration::from_secs(600), None);
    wait_until("the disk's answer", || {
        recorder.look(&launcher);
        recorder.state() == RecorderState::Stopped
    });
    assert_eq!(recorder.failure(), None, "nothing was recorded");
}

#[test]
fn a_disk_that_hangs_holds_up_no_look() {
    let dir = TestDir::new("slow-output");
    let launcher = launcher(&dir, "/no/such/program");
    let output = dir.join("traces");
    let session = format!("output = '{}'\n[channel.main]", output.display());
    let mut recorder =
        Recorder::new(&SessionKey::own("a"), "main", SessionFile::parse(&session).expect("a session"));
    recorder.state = State::Waiting(Instant::now());
    let (release, hang) = mpsc::channel::<()>();
    let _hung = launcher.disks.put(&output, move || hang.recv()).expect("a question");
    recorder.start_again(&launcher);
    assert_eq!((recorder.state(), recorder.restarts()), (RecorderState::Waiting, 0));
    drop(release);
    wait_until("a start", || {
        recorder.start_again(&launcher);
        recorder.restarts() == 1
    });
    assert!(output.is_dir());
    assert!(recorder.failure().is_some(), "there is no program");
}

#[test]
fn a_process_that_cannot_be_watched_yet_runs_on() {
    let dir = TestDir::new("unwatched");
    let launcher = launcher(&dir, "/no/such/program");
    let mut recorder = Recorder::new(&SessionKey::own("a"), "main", SessionFile::default());
    let identity = ProcessIdentity { pid: u32::MAX, start_ticks: 1 };
    let refused = || Err(io::Error::from_raw_os_error(24));
    recorder.watch(identity, refused(), "it ended", &launcher);
    assert_eq!((recorder.state(), recorder.pid()), (RecorderState::Running, Some(u32::MAX)));
    assert_eq!(recorder.process(), Some(identity));
    assert!(recorder.due().is_some_and(|due| due > Instant::now()));
    assert!(recorder.begin_stop());
    recorder.watch(identity, refused(), "it ended", &launcher);
    recorder.watch(identity, Ok(None), "it ended", &launcher);
    assert_eq!((recorder.state(), recorder.failure()), (RecorderState::Stopped, None));
}

#[test]
fn a_recorder_that_does_not_end_with_its_grant_is_killed() {
    let dir = TestDir::new("revoked");
    let launcher = launcher(&dir, "/no/such/program");
    let stubborn = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let mut child = std::process::Command::new("sh")
        .args(["-c", stubborn])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut ready = [0; 6];
    io::Read::read_exact(child.stdout.as_mut().expect("its output"), &mut ready).expect("a line");
    let mut recorder = Recorder::new(&SessionKey::own("a"), "main", SessionFile::default());
    recorder.state = State::Running(Process::started(child, false, &launcher.poller).expect("a process"));
    recorder.revoke("the grant is gone", &launcher);
    recorder.look(&launcher);
    assert_eq!(recorder.state(), RecorderState::Running, "it has not had its time");
    assert!(recorder.due().is_some_and(|due| due > Instant::now()));
    recorder.kill_at = Some(Instant::now());
    wait_until("its end", || {
        recorder.look(&launcher);
        recorder.state() == RecorderState::Stopped
    });
    assert_eq!((recorder.failure(), recorder.due()), (Some("the grant is gone"), None));
}

/// A process with the command line of a recorder of a folder, which ends with its input.
fn as_recorder(dir: &Path, folder: &Path) -> Child {
    std::fs::write(dir.join("record"), "read line").expect("a script");
    let mut command = Command::new("sh");
    command.args(["record", "--session", "a", "--output"]).arg(folder).current_dir(dir);
    command.stdin(Stdio::piped()).spawn().expect("sh")
}

#[test]
fn a_recorder_of_a_supervisor_that_was_killed_at_its_start_is_found() {
    let dir = TestDir::new("intent");
    let launcher = launcher(&dir, "/no/such/program");
    let session = SessionFile::parse("[channel.main]").expect("a session");
    for key in [SessionKey::own("a"), SessionKey::of(1000, "a")] {
        let folder = dir.join(format!("traces/{}", key.file("a-1")));
        let recorder = Recorder::new(&key, "main", session.clone());
        let leave = || recorder.intent(&folder).write(&recorder.intent_name(), &launcher.runtime);
        let load = || crate::state::State::load(&launcher);
        // It was killed before it had made the process: that is done again.
        leave().expect("a file");
        let mut state = load();
        let found = state.recorder(&key, "main").expect("a recorder");
        assert_eq!((found.pid(), found.is_active()), (None, true));
        // And behind it.
        let mut child = as_recorder(&dir, &folder);
        leave().expect("a file");
        let mut state = load();
        let found = state.recorder(&key, "main").expect("a recorder");
        assert_eq!((found.pid(), found.folder()), (Some(child.id()), Some(&*folder)));
        assert!(!dir.join(recorder.intent_name()).exists(), "the session's file has it");
        assert_eq!(load().recorder(&key, "main").and_then(|it| it.pid()), Some(child.id()));
        drop(child.stdin.take());
        child.wait().expect("an end");
        state.sessions.remove(&key);
        state.save(&key, &launcher.runtime).expect("a file");
    }
    // A start that fails leaves nothing.
    let mut recorder = Recorder::new(&SessionKey::own("b"), "main", session);
    recorder.session.output = Some(dir.join("traces").display().to_string());
    recorder.start_now_or_later(&launcher);
    assert!(recorder.failure().is_some() && !dir.join(recorder.intent_name()).exists());
}

/// A recorder that continues a trace, after a process that does what a script says has ended.
fn continued_by(script: &str, launcher: &Launcher) -> Recorder {
    let session = SessionFile::parse("[channel.main]\nlinger = '20s'").expect("a session");
    let mut recorder = Recorder::new(&SessionKey::own("a"), "main", session);
    recorder.folder = Some("/traces/a".into());
    let child = std::process::Command::new("sh").args(["-c", script]).spawn().expect("a shell");
    recorder.state = State::Running(Process::started(child, true, &launcher.poller).expect("a process"));
    wait_until("its end", || {
        recorder.look(launcher);
        recorder.state() == RecorderState::Waiting
    });
    recorder
}

#[test]
fn a_trace_is_continued_again_unless_the_second_recorder_refused_it() {
    let dir = TestDir::new("continued");
    let launcher = launcher(&dir, "/no/such/program");
    assert!(continued_by("kill -KILL $$", &launcher).is_to_continue(), "it was killed as it began");
    assert!(!continued_by("exit 1", &launcher).is_to_continue(), "it failed as it began");
    assert!(!continued_by("kill -ABRT $$", &launcher).is_to_continue(), "it crashed as it began");
}

#[test]
fn the_pause_grows_only_if_a_recorder_ends_soon() {
    let dir = TestDir::new("pauses");
    let launcher = launcher(&dir, "/no/such/program");
    let mut recorder = continued_by("kill -KILL $$", &launcher);
    assert_eq!(recorder.delay, FIRST_DELAY * 2);
    recorder.note_run(CONTINUED_TIME, true);
    assert_eq!(recorder.delay, FIRST_DELAY, "events wait in rings");
    recorder.delay = MAX_DELAY;
    recorder.note_run(CONTINUED_TIME, false);
    assert_eq!(recorder.delay, MAX_DELAY);
    recorder.note_run(SOUND_TIME, false);
    assert_eq!(recorder.delay, FIRST_DELAY);
}
