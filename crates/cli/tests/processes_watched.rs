//! Programs under sanitizers, valgrind and debuggers; stacks that are small; all the ways to end.

use std::{ffi::OsStr, process::Command};

use crate::{
    emit_log::record,
    kills::Progress,
    support::{TestDir, beside, compiler, installed, libraries, rounds, run},
};

/// Returns whether a compiler has what it takes for a sanitizer.
fn has_sanitizer(dir: &TestDir, cc: &str, sanitizer: &str) -> bool {
    std::fs::write(dir.path("nothing.c"), "int main(void) { return 0; }\n").expect("a source");
    let mut cc = Command::new(cc);
    cc.current_dir(dir.path("")).args([&format!("-fsanitize={sanitizer}"), "nothing.c", "-o", "nothing"]);
    cc.output().is_ok_and(|output| output.status.success())
}

/// They end with an error if they find anything, in the library too.
#[test]
fn programs_under_sanitizers_are_recorded_without_complaint() {
    for cc in ["gcc", "clang"].into_iter().filter(|cc| installed(cc)) {
        for sanitizer in ["address", "thread", "undefined"] {
            let dir = TestDir::new();
            if !has_sanitizer(&dir, cc, sanitizer) {
                println!("left out here: {sanitizer} of {cc}");
                continue;
            }
            let program = dir.path("lineage");
            let mut command = dir.compile(cc, &program);
            command.args(["-std=gnu11", "-O1", "-g", "-Wno-pedantic", "-fno-sanitize-recover=all"]);
            command.arg(format!("-fsanitize={sanitizer}"));
            run(command.arg(beside("programs/lineage.c")).arg("-ltompion")).succeeded();
            for (how, role) in [("brood", "child again"), ("threads", "child"), ("clone", "grandchild")] {
                let recording = record(&dir, &[], &[&program, &how, &"4"]);
                let count = if how == "clone" { 1 } else { 4 };
                assert_eq!(recording.count(role), count, "{how}, {sanitizer} of {cc}");
                assert!(!recording.said.err.contains("WARNING: Thread"), "{}", recording.said.err);
            }
        }
    }
}

#[test]
fn under_valgrind_a_program_is_recorded() {
    if !installed("valgrind") {
        return;
    }
    let dir = TestDir::new();
    let program = dir.program("emitter");
    let progress = Progress::new(dir.path("progress"));
    let words: [&dyn AsRef<OsStr>; 8] =
        [&"valgrind", &"--quiet", &"--error-exitcode=9", &program, &progress.path(), &"20", &"0", &"300"];
    let finished = run(&mut dir.recording("trace", &[], &words)).succeeded();
    assert!(!finished.err.contains("=="), "{}", finished.err);
    let stat = dir.trace("trace").stat();
    let known = stat["events"].as_u64().unwrap() + stat["lost"]["total"].as_u64().unwrap();
    assert_eq!(known, progress.returned().iter().sum::<u64>(), "{stat:#}");
    assert!(progress.is_done() && known > 0);
    assert_eq!(stat["processes"][0]["producer"], "reserve");
}

/// Records a program under a debugger that gets these commands.
fn debugged(commands: &[&str]) {
    let dir = TestDir::new();
    let program = dir.path("stepped");
    let mut cc = compiler();
    cc.args(["-O0", "-g"]).arg(beside("programs/stepped.c")).arg("-L").arg(libraries()).arg("-ltompion");
    run(cc.arg(format!("-Wl,-rpath,{}", libraries().display())).arg("-o").arg(&program)).succeeded();
    let mut words: Vec<&dyn AsRef<OsStr>> = vec![&"gdb", &"-nx", &"-batch"];
    for command in commands {
        words.extend([&"-ex" as &dyn AsRef<OsStr>, command]);
    }
    words.push(&program);
    let finished = run(&mut dir.recording("trace", &[], &words));
    // gdb's own status says how its last command went.
    assert!(finished.out.contains("unharmed"), "{}{}", finished.out, finished.err);
    let events = dir.trace("trace").events();
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    let expected = ["stepped:first", "stepped:second", "stepped:third"];
    assert_eq!(names, [expected, expected].concat(), "{commands:?}: {}", finished.out);
    assert_eq!(dir.trace("trace").stat()["lost"]["total"], 0, "{commands:?}");
}

#[test]
fn a_debugger_may_step_through_events() {
    if !installed("gdb") {
        return;
    }
    let quiet = ["set pagination off", "set debuginfod enabled off", "set confirm off"];
    // Over them by lines; into them by instructions, and on; and with a stop in the middle of the
    // library.
    let by_lines = [&["break first", "break second", "break third", "run"][..], &["next"; 3], &["delete"]];
    let inside = [&["break first", "run", "delete"][..], &["stepi 700", "next 2", "stepi 40"], &["finish"]];
    let within = [&["break first", "run", "break tompion_append_image"][..], &["continue"], &["stepi 15"]];
    for commands in [by_lines, inside, within] {
        let commands = [&quiet[..], commands[0], commands[1], commands[2], &["delete", "continue"]].concat();
        debugged(&commands);
    }
}

/// Bytes of stack that an event in a signal handler may use beyond the handler's own frame, as
/// docs/design/processes.md promises.
const PROMISED: u64 = 3072;
/// Bytes of stack, like [`PROMISED`], for events with the application's contexts.
const PROMISED_WITH_CONTEXTS: u64 = 8192;

#[test]
fn an_event_needs_little_of_a_small_stack() {
    let dir = TestDir::new();
    let program = dir.program("small_stacks");
    let numbers = |out: &str, word: &str| -> Vec<u64> {
        out.lines().filter_map(|line| line.strip_prefix(word)?.trim().parse().ok()).collect()
    };
    let filter = ["--filter", "one != 77"];
    // The filter's events are those where `one` is a number.
    for (options, count, promised) in
        [(&[][..], 8, PROMISED), (&filter, 4, PROMISED), (&["-c", "app"], 8, PROMISED_WITH_CONTEXTS)]
    {
        let generous = run(&mut dir.recording("roomy", options, &[&program])).succeeded();
        let frame = numbers(&generous.out, "frame ").into_iter().max().expect("a frame");
        let needs = numbers(&generous.out, "need ");
        assert_eq!(needs.len(), 6);
        println!("{options:?}: frame {frame}, needs {needs:?}");
        assert!(needs.iter().all(|need| *need <= promised), "{options:?}: {needs:?}");
        std::fs::remove_dir_all(dir.path("roomy")).unwrap();

        let size = (frame + promised).to_string();
        let trace = dir.recording("trace", options, &[&program, &size]);
        run(&mut { trace }).succeeded();
        assert_eq!(dir.trace("trace").events().len(), count, "{options:?}");
        std::fs::remove_dir_all(dir.path("trace")).unwrap();
    }
}

#[test]
fn threads_and_programs_are_recorded_to_their_last_destructor() {
    let dir = TestDir::new();
    let program = dir.path("endings");
    let mut cc = dir.compile("c++", &program);
    cc.args(["-std=c++17", "-O2", "-Wno-pedantic"]);
    run(cc.arg(beside("programs/endings.cc")).arg("-ltompion")).succeeded();
    let begin = ["global begins", "thread_local begins", "thread", "thread_local ends"];
    let begin = [&begin[..], &["key ends"; 3], &["main"]].concat();
    let end = ["on_exit", "atexit", "global ends", "destructor"];
    for round in 0..rounds(1, 20) {
        for (how, ends) in
            [("return", &end[..]), ("pthread_exit", &end), ("quick_exit", &["at_quick_exit"]), ("_Exit", &[])]
        {
            let name = format!("{how}{round}");
            run(&mut dir.recording(&name, &[], &[&program, &how])).succeeded();
            let events = dir.trace(&name).events();
            let roles: Vec<&str> = events.iter().filter_map(|event| event.fields["role"].as_str()).collect();
            assert_eq!(roles, [&begin[..], ends].concat(), "{how}");
        }
    }
}
