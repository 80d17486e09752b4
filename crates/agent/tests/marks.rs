//! Libraries of other tracers' marks: their limits, each as a part of a program that takes them to
//! these; and the headers in place of Tracy's.

use std::path::{Path, PathBuf};
use std::process::Command;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/marks").join(name)
}

/// Compiles a source with the compiler, and returns the output's path.
fn compile(compiler: &str, standard: &str, name: &str, more: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("marks");
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    let output = folder.join(format!("{name}.{compiler}.{standard}"));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    run(Command::new(compiler)
        .arg(format!("-std={standard}"))
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(include.join("tracy"))
        .arg("-I")
        .arg(&include)
        .arg(source(name))
        .args(more)
        .arg("-o")
        .arg(&output));
    output
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
}

/// Runs a program of which a library is a part. A mock in libtompion's place wants no event.
fn check(name: &str) {
    let mock = source("../header/mock.c");
    let program = compile("cc", "gnu11", name, &[mock.to_str().expect("a path of text")]);
    run(Command::new(program).envs([("MOCK_IDLE", "1"), ("MOCK_QUIET", "1"), ("MOCK_OUT", "/dev/null")]));
}

#[test]
fn names_strings_and_objects_of_nvtx_are_limited() {
    check("nvtx.c");
}

#[test]
fn names_and_counters_of_itt_are_limited_and_there_once() {
    check("itt.c");
}

#[test]
fn each_announced_lock_of_tracy_is_one_of_its_own() {
    check("tracy.c");
}

#[test]
fn headers_of_graphics_and_newer_macros_compile() {
    let installed = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    for compiler in ["g++", "clang++"].iter().filter(|name| installed(name)) {
        for standard in ["c++11", "c++20"] {
            compile(compiler, standard, "headers.cpp", &["-c"]);
        }
    }
}

#[test]
fn libraries_stay_as_long_as_the_process() {
    // Destructors of threads' values are theirs.
    let options = Path::new(env!("CARGO_MANIFEST_DIR")).join("preload/options");
    let options = std::fs::read_to_string(options).expect("the compiler's options");
    assert!(options.contains("-z,nodelete"), "{options}");
}
