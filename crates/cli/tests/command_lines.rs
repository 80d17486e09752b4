//! Command lines, parents and ends of recorded processes, in `tompion.json` and in `tompion stat`.

use serde_json::json;

use crate::kernel::permitted;
use crate::support::{TestDir, run, tompion};

#[test]
fn processes_have_command_lines_and_parents() {
    let dir = TestDir::new();
    let program = dir.link("span", &["span.c"], &[]);
    let script = format!("{} 'a b' \"$(printf 'x\\033[2J')\" ''; exit 3", program.display());
    run(&mut dir.recording("trace", &[], &[&"sh", &"-c", &script])).exited(3);
    let trace = dir.trace("trace");
    let (manifest, stat) = (trace.manifest(), trace.stat());
    let end = &manifest["command_end"];
    assert_eq!(end["end"], "exited with 3", "{manifest}");
    // The shell has no events: it is the command and no source.
    let [source] = &manifest["sources"].as_array().expect("sources")[..] else { panic!("{manifest}") };
    assert_eq!(source["parent"], end["pid"]);
    let words = json!([program, "a b", "x?[2J", ""]);
    assert_eq!(source["command_line"], words);
    assert_eq!(stat["processes"][0]["command_line"], words);
    assert_eq!(stat["processes"][0]["parent"], end["pid"]);
    let command =
        json!([{ "command_line": ["sh", "-c", script], "pid": end["pid"], "end": "exited with 3" }]);
    assert_eq!(stat["commands"], command);

    let text = run(tompion().arg("stat").arg(&trace.folder)).succeeded().out;
    let line = format!("            {} 'a b' 'x?[2J' ''  (child of {})\n", program.display(), end["pid"]);
    assert!(text.contains(&line), "{text}");
    assert!(text.contains("command      sh -c '"), "{text}");
    assert!(text.contains(&format!(" (process {})\n             exited with 3\n", end["pid"])), "{text}");
}

#[test]
fn a_command_with_events_is_named_once() {
    let dir = TestDir::new();
    let trace = dir.record(&[], &[&dir.program("span"), &"argument"]);
    let text = run(tompion().arg("stat").arg(&trace.folder)).succeeded().out;
    assert_eq!(text.matches("exited with 0").count(), 1, "{text}");
    assert!(text.contains("/span argument  (child of "), "{text}");
}

#[test]
fn a_command_that_only_the_kernel_sees_has_an_end() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    run(&mut dir.recording(
        "trace",
        &["-k", "sched_process_*"],
        &[&"sh", &"-c", &"/bin/true; kill -KILL $$"],
    ));
    let trace = dir.trace("trace");
    let manifest = trace.manifest();
    assert_eq!(manifest["command_end"]["end"], "killed by signal 9");
    let programs = manifest["programs"].as_array().expect("programs");
    assert!(programs.iter().any(|program| program["pid"] == manifest["command_end"]["pid"]), "{manifest}");
    assert!(programs.iter().any(|program| program["file"].as_str() == Some("/bin/true")), "{manifest}");
    let text = run(tompion().arg("stat").arg(&trace.folder)).succeeded().out;
    assert!(text.contains("command      sh -c '/bin/true; kill -KILL $$' (process "), "{text}");
    assert!(text.contains("             killed by signal 9\n"), "{text}");
    let others = text.split("\nother programs executed\n").nth(1).unwrap_or_else(|| panic!("{text}"));
    let others = others.split("\n\n").next().unwrap_or_default();
    let command = &manifest["command_end"]["pid"];
    let [other] = others.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(other.ends_with(&format!("  /bin/true  exited with 0  (child of {command})")), "{text}");
}

#[test]
fn children_have_parents_and_ends_in_the_kernels_events() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let program = dir.link("span", &["span.c"], &[]);
    let script = format!("{} a; (exit 7); sh -c 'kill -TERM $$'; /bin/sleep 30 & exit 0", program.display());
    run(&mut dir.recording("trace", &["-k"], &[&"sh", &"-c", &script])).succeeded();
    let trace = dir.trace("trace");
    let (stat, command) = (trace.stat(), trace.manifest()["command_end"]["pid"].clone());
    let children = stat["children"].as_array().unwrap_or_else(|| panic!("{stat}"));
    // The command is a child of the recorder's.
    let (own, children): (Vec<_>, Vec<_>) = children.iter().partition(|child| child["pid"] == command);
    assert!(own.len() == 1 && own[0]["end"] == "exited with 0", "{stat}");
    assert!(children.iter().all(|child| child["parent"] == command), "{stat}");
    let ends: Vec<_> = children.iter().map(|child| child["end"].as_str()).collect();
    let expected = [Some("exited with 0"), Some("exited with 7"), Some("killed by signal 15"), None];
    assert_eq!(ends, expected, "{stat}");
    // The one that has events says how it ended, too.
    assert_eq!(stat["processes"][0]["end"], "exited with 0", "{stat}");
    let text = run(tompion().arg("stat").arg(&trace.folder)).succeeded().out;
    assert!(text.contains(&format!("  killed by signal 15  (child of {command})\n")), "{text}");
    assert!(text.contains(&format!("sleep  its end was not seen  (child of {command})\n")), "{text}");
}
