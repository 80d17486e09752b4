//! Programs that were compiled with earlier headers, under the library as it is now.

use std::path::PathBuf;

use object::Object;
use serde_json::json;

use crate::support::{TestDir, beside, installed, libraries, run};

/// Content of `crates/agent/tests/abi`.
fn kept(name: &str) -> PathBuf {
    beside("../../agent/tests/abi").join(name)
}

/// Names and fields of what the program of a header's folder recorded.
fn recorded(folder: &str, compiler: &str, flags: &[&str]) -> Vec<(String, serde_json::Value)> {
    let dir = TestDir::new();
    let program = dir.path("program");
    let mut compile = dir.compile(compiler, &program);
    compile.args(flags).args(["-x", if compiler.contains("++") { "c++" } else { "c" }]);
    compile.arg(kept(folder).join("program.c")).args(["-x", "none", "-ltompion"]);
    run(&mut compile).succeeded();
    let trace = dir.record(&[], &[&program]);
    assert_eq!(trace.agreed_text(), 9);
    trace.events().into_iter().map(|event| (event.name, event.fields)).collect()
}

fn expected_of_v1(language: &str) -> Vec<(String, serde_json::Value)> {
    let event = |name: &str, fields| (format!("v1:{name}"), fields);
    vec![
        event("constructor", json!({"language": language})),
        event(
            "integers",
            json!({"a": -1, "b": -2, "c": -3, "d": -4, "e": 5, "f": 6, "g": 7, "h": 8,
                   "i": 9, "j": 10, "k": 11, "l": 12}),
        ),
        event(
            "others",
            json!({"f": 1.5, "g": -0.25, "yes": 1, "text": "hello", "cut": "he", "_raw_length": 3,
                   "raw": [97, 98, 99], "fixed": [1, -2, 3], "_some_length": 2, "some": [1, 2],
                   "state": {"value": 5, "labels": ["running"]}}),
        ),
        event("large", json!({"text": "x".repeat(600)})),
        event("loop", json!({"i": 0})),
        event("loop", json!({"i": 1})),
        event("loop", json!({"i": 2})),
        event("asked", json!({})),
        event("destructor", json!({})),
    ]
}

#[test]
fn programs_of_the_first_header_are_recorded_in_full() {
    for (compiler, language) in [("gcc", "C"), ("g++", "C++"), ("clang", "C"), ("clang++", "C++")] {
        if !installed(compiler) {
            continue;
        }
        for flags in [&["-O0"][..], &["-O2"]] {
            assert_eq!(recorded("v1", compiler, flags), expected_of_v1(language), "{compiler} {flags:?}");
        }
    }
}

/// Anything without a name here may change at any time.
#[test]
fn the_library_exports_what_the_contract_has_and_nothing_else() {
    let bytes = std::fs::read(libraries().join("libtompion.so")).expect("the library");
    let library = object::File::parse(&*bytes).expect("an ELF file");
    let exports = library.exports().expect("exports");
    let mut names: Vec<_> = exports.iter().map(|export| String::from_utf8_lossy(export.name())).collect();
    names.sort();
    let ours = ["tompion_agent_v1", "tompion_context_v1", "tompion_object_v1", "tompion_state_dump_v1"];
    let libcs = ["_Fork", "clone", "pthread_exit", "setns", "unshare", "vfork"];
    let identities = [
        "setegid",
        "seteuid",
        "setgid",
        "setgroups",
        "setregid",
        "setresgid",
        "setresuid",
        "setreuid",
        "setuid",
    ];
    let mut expected = [&ours[..], &libcs, &identities].concat();
    expected.sort_unstable();
    assert_eq!(names, expected);
}
