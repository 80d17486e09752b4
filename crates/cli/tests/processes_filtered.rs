//! Programs that forbid themselves system calls (seccomp): the library makes none that they don't
//! know of.
//!
//! The lists are in `programs/filtered.c`, and for people in `docs/design/processes.md`.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::process::Signal;

use crate::support::{TestDir, finish, signal, start, wait_until};

/// A program that does its next step when it gets a word.
struct Stepwise {
    child: Child,
    input: ChildStdin,
    words: BufReader<ChildStdout>,
}

impl Stepwise {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
        let words = BufReader::new(child.stdout.take().expect("its words"));
        let input = child.stdin.take().expect("its input");
        Self { child, input, words }
    }

    /// Reads on to a line that ends so.
    fn hear(&mut self, word: &str) {
        let mut line = String::new();
        while !line.trim_end().ends_with(word) {
            line.clear();
            let length = self.words.read_line(&mut line).expect("a word");
            assert_ne!(length, 0, "ended before it said `{word}`: {:?}", self.child.wait());
        }
    }

    fn go_on(&mut self) {
        self.input.write_all(b"x").expect("a program that listens");
    }

    fn end(mut self) {
        self.go_on();
        let status = self.child.wait().expect("its end");
        assert!(status.success(), "{status}");
    }
}

const RECORD: [&str; 7] = ["record", "-o", "trace", "--subbuf-size", "64K", "--subbufs", "32"];

/// Returns the number of a role's events in the trace.
fn count(dir: &TestDir, role: &str) -> usize {
    let events = dir.trace("trace").events();
    events.iter().filter(|event| event.fields["role"] == role).count()
}

/// The ring files that a process has mapped, by their inodes.
fn rings(pid: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let rings = maps.lines().filter(|line| line.contains("tompion-rings"));
    rings.filter_map(|line| line.split_whitespace().nth(4)).map(str::to_owned).collect()
}

/// Returns whether the library's thread has begun and waits in `poll`.
fn thread_waits(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let mut own = tasks.map(|task| task.path()).filter(|task| read(task.join("comm")) == "tompion\n");
    own.any(|task| read(task.join("syscall")).starts_with(POLL))
}

/// Beginning of `/proc/PID/task/TID/syscall` in `poll`.
const POLL: &str = if cfg!(target_arch = "x86_64") { "7 " } else { "73 " };

/// Returns whether a process has no memory any more.
fn has_ended(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default().is_empty()
}

#[test]
fn recording_goes_on_in_a_thread_that_may_only_write() {
    let dir = TestDir::new();
    let program = dir.program("filtered");
    let mut program = Stepwise::start(&mut dir.recording("trace", &RECORD[3..], &[&program, &"alone"]));
    for word in ["ready", "filtered"] {
        program.hear(word);
        program.go_on();
    }
    program.hear(" handler");
    program.end();
    assert_eq!(
        ["before", "thread", "filtered", "handler", "after"].map(|role| count(&dir, role)),
        [1, 1, 3000, 1, 1]
    );
}

#[test]
fn the_librarys_thread_makes_no_system_call_that_is_not_listed() {
    for asked in [false, true] {
        let dir = TestDir::new();
        let mut command = Command::new(dir.program("filtered"));
        let command = command.arg("all").args(asked.then_some("asked"));
        let mut program = Stepwise::start(command);
        program.hear("ready");
        wait_until("the library's thread has begun", || thread_waits(program.child.id()));
        if asked {
            program.go_on();
            program.hear("filtered");
        }
        let pid = program.child.id();
        let mut record = dir.tompion(&RECORD);
        let recording = start(record.args(["-p", &pid.to_string()]));
        wait_until("the program is recorded", || {
            assert!(!has_ended(pid), "the program was killed");
            dir.path("trace/user").exists()
        });
        let ours: Vec<String> = rings(recording.id());
        if !asked {
            program.go_on();
            program.hear("filtered");
        }
        program.go_on();
        program.hear(" handler");
        signal(recording.id(), Signal::INT);
        finish(recording, "record -p").succeeded();
        // The library's thread notices in its own time.
        wait_until("the program has left", || {
            assert!(!has_ended(pid), "the program was killed");
            !rings(pid).iter().any(|ring| ours.contains(ring))
        });
        program.end();
        assert_eq!(["thread", "filtered", "handler"].map(|role| count(&dir, role)), [1, 3000, 1], "{asked}");
    }
}
