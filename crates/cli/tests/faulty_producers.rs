//! Faulty programs: the events that they appended are in the trace, and each missing one is
//! counted.

use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader},
    os::unix::fs::FileExt,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{
    fallback::WITHOUT_RSEQ,
    kills::{Plan, ROOMY, found_in},
    recovery::{Victim, kept, kill},
    support::{TestDir, run, start_group},
};

/// Without restartable sequences, a thread that is killed during an append leaves its space
/// reserved.
#[test]
fn an_append_that_never_ended_is_counted_by_recovery() {
    for mode in ["discard", "overwrite"] {
        let dir = TestDir::new();
        let program = dir.program("faulty");
        let options = kept(&["--subbuf-size", "64K", "--mode", mode]);
        let mut recording = dir.recording("trace", &options, &[&program, &"torn"]);
        recording.env(WITHOUT_RSEQ.0, WITHOUT_RSEQ.1);
        let mut session = start_group(&mut recording);
        let mut line = String::new();
        BufReader::new(session.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        assert_eq!(line, "caught\n");
        let group = Pid::from_raw(session.id() as i32).expect("a process");
        kill_process_group(group, Signal::KILL).expect("the session and its program");
        session.wait().expect("a child of this test");
        let said = run(&mut dir.tompion(&["recover", "trace"])).succeeded().err;
        assert!(said.contains("8 events of 1 process in trace, 1 LOST (unfinished: 1)"), "{mode}: {said}");
        let stat = dir.trace("trace").stat();
        assert_eq!((&stat["events"], &stat["lost"]["total"]), (&8.into(), &1.into()), "{mode}: {stat:#}");
        assert_eq!(stat["overwritten"], 0, "{mode}");
    }
}

#[test]
fn a_position_that_cannot_be_is_refused_once() {
    let dir = TestDir::new();
    let program = dir.program("faulty");
    run(&mut dir.recording("trace", &[], &[&program, &"far"])).succeeded();
    let stat = dir.trace("trace").stat();
    assert_eq!(stat["events"], 10);
    // Its thread may have been moved.
    let refused = stat["lost"]["refused"].as_u64().expect("a number");
    assert!((1..=4).contains(&refused), "{refused}");
}

#[test]
fn programs_that_may_not_use_membarrier_are_recorded_without_sections() {
    let dir = TestDir::new();
    let program = dir.program("faulty");
    run(&mut dir.recording("trace", &[], &[&program, &"barred"])).succeeded();
    let stat = dir.trace("trace").stat();
    assert_eq!((&stat["events"], &stat["lost"]["total"]), (&10.into(), &0.into()), "{stat:#}");
    let sources = dir.trace("trace").manifest()["sources"].take();
    let of_events = sources.as_array().expect("sources").iter().find(|source| source["events"] == 10);
    assert_eq!(of_events.expect("its trace")["producer"], "reserve");
}

/// The beginning of the control file belongs to the program; recovery doesn't need it.
#[test]
fn a_control_page_that_was_overwritten_does_not_keep_from_recovering() {
    let plan = Plan { delay: Duration::from_millis(50), pause: 2000, storm_us: 0 };
    let killed = kill(&kept(ROOMY), &plan, Victim::Both);
    let folders = std::fs::read_dir(killed.rings()).expect("the rings");
    let folder = folders.map(|entry| entry.expect("an entry").path()).find(|path| path.is_dir());
    let control = folder.expect("the program's folder").join("control");
    let control = OpenOptions::new().write(true).open(control).expect("the control file");
    control.write_all_at(&[0; 64], 0).expect("room");
    let said = killed.recover().succeeded().err;
    assert!(
        said.contains("control: byte 0: expected TOMPCTL1, found 0x0000000000000000: recovered"),
        "{said}"
    );
    let before: u64 = killed.before.iter().sum();
    let found = found_in(&killed.trace()).len() as u64;
    assert!((before..=before + 4).contains(&found), "{found} of {before}");
    assert_eq!(killed.trace().manifest()["state"], "recovered");
    assert!(!killed.rings().exists());
}
