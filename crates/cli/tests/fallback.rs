//! Programs without restartable sequences: the same values, kills, modes and forks, by the other
//! way to append.

use std::{ffi::OsStr, process::Command};

use serde_json::Value;

use crate::{
    emit_log::{record, recorded_by},
    kills::{Progress, ROOMY, found_in, numbers_of},
    support::{TestDir, Trace, run, tompion},
};

/// Variable that disables a program's restartable sequences.
pub const WITHOUT_RSEQ: (&str, &str) = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");

fn producers(trace: &Trace) -> Vec<Value> {
    let stat = trace.stat();
    stat["processes"]
        .as_array()
        .expect("processes")
        .iter()
        .map(|process| process["producer"].clone())
        .collect()
}

#[test]
fn traces_say_how_their_processes_append() {
    let dir = TestDir::new();
    let program = dir.program("emitter");
    for (without, producer) in [(true, "reserve"), (false, "rseq")] {
        let progress = Progress::new(dir.path("progress"));
        let command: [&dyn AsRef<OsStr>; 5] = [&program, &progress.path(), &"20", &"0", &"500"];
        let mut recording = dir.recording(producer, &[], &command);
        if without {
            recording.env(WITHOUT_RSEQ.0, WITHOUT_RSEQ.1);
        }
        run(&mut recording).succeeded();
        let trace = dir.trace(producer);
        assert_eq!(producers(&trace), [producer]);
        assert_eq!(trace.manifest()["sources"][0]["producer"], producer);
        let text = run(tompion().arg("stat").arg(&trace.folder)).succeeded().out;
        assert_eq!(text.contains("(without rseq)"), without, "{text}");
        // Its own folder, without the manifest beside it, tells it, too.
        std::fs::remove_file(trace.folder.join("tompion.json")).expect("a manifest");
        assert_eq!(producers(&trace), [producer]);
        assert!(trace.agreed_text() >= 500);
    }
}

#[test]
fn doctor_says_what_it_costs_to_be_without_rseq() {
    let doctor = |command: &mut Command| -> Value {
        let rows: Value = serde_json::from_str(&run(command.args(["doctor", "--json"])).out).expect("JSON");
        rows[0].clone()
    };
    let without = doctor(tompion().env(WITHOUT_RSEQ.0, WITHOUT_RSEQ.1));
    assert_eq!((&without["name"], &without["state"]), (&Value::from("rseq"), &Value::from("drawback")));
    assert_eq!(doctor(&mut tompion())["state"], "good");
}

#[test]
fn children_of_all_kinds_are_recorded() {
    let dir = TestDir::new();
    let program = dir.program("lineage");
    let env = dir.path("without");
    let script = format!("#!/bin/sh\nexport {}={}\nexec \"$@\"\n", WITHOUT_RSEQ.0, WITHOUT_RSEQ.1);
    std::fs::write(&env, script).expect("a script");
    run(Command::new("chmod").arg("+x").arg(&env)).succeeded();
    for (how, role, count) in
        [("brood", "child again", 4), ("threads", "child", 4), ("clone", "grandchild", 1)]
    {
        let recording = record(&dir, &[], &[&env, &program, &how, &"4"]);
        assert_eq!(recording.count(role), count, "{how}");
        let producers = producers(&dir.trace("trace"));
        assert!(!producers.is_empty() && producers.iter().all(|producer| producer == "reserve"), "{how}");
        std::fs::remove_dir_all(dir.path("trace")).expect("the trace can be removed");
    }
}

#[test]
fn a_program_is_left_and_taken_again() {
    let dir = TestDir::new();
    let program = dir.program("emitter");
    let progress = Progress::new(dir.path("progress"));
    let mut command = Command::new(&program);
    command.arg(progress.path()).args(["20", "200", "0", "alone"]).env(WITHOUT_RSEQ.0, WITHOUT_RSEQ.1);
    let mut child = command.spawn().expect("the program");
    let pid = progress.pid().to_string();
    for round in 0..6 {
        let mode: &[&str] = if round % 2 == 0 { &[] } else { &["--mode", "overwrite"] };
        let name = format!("trace-{round}");
        let mut recording = dir.tompion(&["record", "-p", &pid, "-o", &name, "--duration", "100ms"]);
        run(recording.args(["--subbuf-size", "64K"]).args(mode)).succeeded();
        let trace = dir.trace(&name);
        assert_eq!(producers(&trace)[..1], ["reserve"]);
        assert!(trace.agreed_count() > 0, "round {round}");
    }
    child.kill().expect("the program is there");
    child.wait().expect("a child of this test");
}

/// Variable that makes the recorder treat this kernel as one that restarts no sections;
/// `os/src/rseq_check.rs` tests the check.
const DISTRUST: (&str, &str) = ("TOMPION_RSEQ", "0");

#[test]
fn programs_use_reserve_commit_where_sections_are_not_restarted() {
    let dir = TestDir::new();
    let program = dir.program("emitter");
    let progress = Progress::new(dir.path("progress"));
    // Both threads, and the handlers that interrupt them, append on one CPU.
    let command: [&dyn AsRef<OsStr>; 8] =
        [&"taskset", &"-c", &"0", &program, &progress.path(), &"20", &"100", &"3000"];
    run(dir.recording("trace", ROOMY, &command).env(DISTRUST.0, DISTRUST.1)).succeeded();
    let trace = dir.trace("trace");
    assert_eq!(producers(&trace), ["reserve"]);
    let (found, returned) = (found_in(&trace), progress.returned());
    for (source, last) in returned.into_iter().enumerate() {
        assert!(numbers_of(&found, source).into_iter().eq(1..=last), "source {source}");
    }
    assert_eq!(returned[..2], [3000; 2]);
}

#[test]
fn programs_with_areas_of_their_own_are_recorded_and_their_sections_come_out_right() {
    let dir = TestDir::new();
    let program = dir.program("own_rseq");
    for (how, without) in [("own", true), ("long", true), ("cached", true), ("cached", false)] {
        let mut command = dir.recording("trace", ROOMY, &[&program, &how, &"2000"]);
        if without {
            command.env(WITHOUT_RSEQ.0, WITHOUT_RSEQ.1);
        }
        let recording = recorded_by(&dir, &mut command);
        assert_eq!(producers(&recording.trace), [if without { "reserve" } else { "rseq" }], "{how}");
        assert_eq!(recording.emitted.len(), 4001, "{how}");
        assert_eq!(recording.printed("counted "), 4000, "{how}");
    }
}

#[test]
fn a_registration_that_a_program_takes_back_costs_its_events_and_they_are_counted() {
    let dir = TestDir::new();
    let program = dir.program("own_rseq");
    let said = run(&mut dir.recording("trace", ROOMY, &[&program, &"taken", &"500"])).succeeded();
    assert!(said.out.contains("counted 1000"), "{}", said.out);
    let stat = dir.trace("trace").stat();
    assert_eq!((&stat["events"], &stat["lost"]["no_rseq"]), (&1.into(), &1000.into()), "{stat:#}");
}
