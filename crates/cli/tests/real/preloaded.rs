//! Programs of others under the libraries of `--preload`: what they print, how they end, how many
//! threads they have.

use std::{ffi::OsStr, fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Command};

use crate::support::{Finished, TestDir, beside, installed, libraries, run};

/// Libraries for programs without instrumentation.
const PRELOADS: [&str; 3] = ["malloc", "pthread", "func"];

/// Room for the events of a large program.
const ROOMY: [&str; 4] = ["--subbuf-size", "1M", "--subbufs", "8"];

/// The library of a `--preload`.
fn library(name: &str) -> PathBuf {
    libraries().join(format!("libtompion-{name}.so"))
}

/// A command without anything of ours, or with a preloaded library and no recording.
fn plain(words: &[&str], preload: Option<&str>) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env_remove("TOMPION_SESSION").env_remove("LD_PRELOAD");
    if let Some(name) = preload {
        command.env("LD_PRELOAD", library(name));
    }
    command
}

/// Output of a program, and its exit status; none if a signal ended it.
struct Ran {
    out: String,
    err: String,
    code: Option<i32>,
}

impl Ran {
    fn of(finished: Finished) -> Self {
        Self { code: finished.status.code(), out: finished.out, err: finished.err }
    }

    /// `tompion record` says how the program ended, and ends with a status of its own.
    fn recorded(finished: Finished) -> Self {
        let said = finished.err.lines().find_map(|line| line.split_once("` ended with "));
        let code = match said {
            Some((_, how)) => how.strip_prefix("exit status: ").and_then(|code| code.parse().ok()),
            None => Some(0),
        };
        Self { code, out: finished.out, err: finished.err }
    }
}

/// Runs a command by itself, with each preloaded library, and recorded with each: `same` compares
/// the first with the others. Returns how many events each recording has.
fn compare(dir: &TestDir, words: &[&str], same: impl Fn(&Ran, &Ran, &str)) -> Vec<u64> {
    let alone = Ran::of(run(plain(words, None).current_dir(dir.path(""))));
    let mut counts = Vec::new();
    for preload in PRELOADS {
        let unrecorded = run(plain(words, Some(preload)).current_dir(dir.path("")));
        same(&alone, &Ran::of(unrecorded), preload);
        let command: Vec<&dyn AsRef<OsStr>> = words.iter().map(|word| word as &dyn AsRef<OsStr>).collect();
        let options = [&["--preload", preload][..], &ROOMY].concat();
        let recorded = run(&mut dir.recording("trace", &options, &command));
        same(&alone, &Ran::recorded(recorded), &format!("{preload}, recorded"));
        let exists = dir.path("trace").exists();
        counts.push(if exists { dir.trace("trace").stat()["events"].as_u64().unwrap() } else { 0 });
        let _ = fs::remove_dir_all(dir.path("trace"));
    }
    counts
}

#[track_caller]
fn same_output(alone: &Ran, other: &Ran, how: &str) {
    assert_eq!(other.out, alone.out, "{how}: {}", other.err);
    assert_eq!(other.code, alone.code, "{how}: {}{}", other.out, other.err);
}

/// Its zygote refuses to fork if it has a second thread.
#[test]
fn chromium_shows_a_page() {
    if !installed("chromium") {
        return eprintln!("SKIPPED, chromium is not installed");
    }
    let dir = TestDir::new();
    fs::write(dir.path("page.html"), "<p id=x></p><script>x.textContent = 6 * 7</script>").expect("a page");
    let (profile, page) = (dir.path("profile"), dir.path("page.html"));
    let (profile, page) =
        (format!("--user-data-dir={}", profile.display()), format!("file://{}", page.display()));
    let words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", &profile, "--dump-dom", &page];
    let alone = run(&mut plain(&words, None));
    if !alone.out.contains("42") {
        return eprintln!("SKIPPED, chromium doesn't show a page here: {}", alone.err);
    }
    let counts = compare(&dir, &words, same_output);
    assert!(counts[0] > 1000, "{counts:?}");
}

/// As a user who has no rights, Chromium runs in its sandbox: namespaces, and filters of system
/// calls for all threads.
#[test]
fn chromium_shows_a_page_in_its_sandbox() {
    if !installed("chromium") || !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED, chromium is not installed, or this is not root");
    }
    let dir = TestDir::new();
    fs::write(dir.path("page.html"), "<p id=x></p><script>x.textContent = 6 * 7</script>").expect("a page");
    for name in ["tompion", "libtompion.so.0", "libtompion-malloc.so"] {
        fs::copy(libraries().join(name), dir.path(name)).expect("a copy that all users may read");
    }
    fs::set_permissions(dir.path(""), fs::Permissions::from_mode(0o777)).expect("a folder for all users");
    let folder = dir.path("").display().to_string();
    let page = format!("file://{folder}/page.html");
    let profile = format!("--user-data-dir={folder}/profile");
    let browser = ["chromium", "--headless", "--disable-gpu", &profile, "--dump-dom", &page];
    let as_unprivileged = |words: &[&str]| {
        let rights = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env"];
        let home = format!("HOME={folder}");
        let mut command = plain(&[&rights[..], &[&home], words].concat(), None);
        Ran::of(run(command.current_dir(&folder)))
    };
    let alone = as_unprivileged(&browser);
    if !alone.out.contains("42") {
        return eprintln!("SKIPPED, chromium has no sandbox here: {}", alone.err);
    }
    let preload = format!("LD_PRELOAD={folder}/libtompion-malloc.so");
    same_output(&alone, &as_unprivileged(&[&[&*preload][..], &browser].concat()), "preloaded");
    let command = format!("{folder}/tompion");
    let record = [&*command, "record", "-o", "trace", "--preload", "malloc", "--"];
    let recorded = as_unprivileged(&[&record[..], &browser].concat());
    same_output(&alone, &recorded, "recorded");
    assert!(!recorded.err.contains("nothing recorded"), "{}", recorded.err);
}

#[test]
fn clang_compiles_the_same() {
    if !installed("clang") {
        return eprintln!("SKIPPED, clang is not installed");
    }
    let dir = TestDir::new();
    let source = beside("programs/pthread_calls.c");
    let source = source.to_str().expect("a path in UTF-8");
    let include = format!("-I{}", crate::support::repository().join("include").display());
    let words = ["clang", "-std=gnu11", "-O2", &include, "-c", "-o", "object", source];
    let object = dir.path("object");
    run(plain(&words, None).current_dir(dir.path(""))).succeeded();
    let expected = fs::read(&object).expect("an object file");
    let counts = compare(&dir, &words, |alone, other, how| {
        same_output(alone, other, how);
        assert!(fs::read(&object).is_ok_and(|bytes| bytes == expected), "{how}");
        let _ = fs::remove_file(&object);
    });
    assert!(counts[0] > 1000, "{counts:?}");
}

/// Way in which a sanitizer is part of a program: linked, or as a library that must come first.
fn sanitizer_builds() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut builds = Vec::new();
    for sanitizer in ["-fsanitize=address", "-fsanitize=thread", "-fsanitize=undefined"] {
        builds.push(("gcc", vec![sanitizer]));
        builds.push(("clang", vec![sanitizer]));
        builds.push(("clang", vec![sanitizer, "-shared-libsan"]));
    }
    builds
}

/// Builds `sanitized.c`. None where the compiler can't.
fn sanitized(dir: &TestDir, cc: &str, flags: &[&str]) -> Option<PathBuf> {
    let program = dir.path("sanitized");
    let mut command = Command::new(cc);
    command
        .args(["-O1", "-g", "-pthread"])
        .args(flags)
        .arg(beside("programs/sanitized.c"))
        .arg("-o")
        .arg(&program);
    if flags.contains(&"-shared-libsan") {
        let folder = Command::new(cc).arg("-print-runtime-dir").output().ok()?.stdout;
        command.arg(format!("-Wl,-rpath,{}", String::from_utf8_lossy(&folder).trim()));
    }
    let is_built = command.output().is_ok_and(|output| output.status.success());
    // The shared one of clang 14 for threads dies in any program.
    (is_built
        && plain(&[program.to_str()?], None).output().is_ok_and(|output| output.status.code() == Some(3)))
    .then_some(program)
}

#[test]
fn programs_with_sanitizers_find_the_same() {
    for (cc, flags) in sanitizer_builds() {
        let dir = TestDir::new();
        let name = format!("{cc} {}", flags.join(" "));
        let Some(program) = sanitized(&dir, cc, &flags) else {
            eprintln!("SKIPPED, programs can't be built with {name}, or don't run");
            continue;
        };
        let program = program.to_str().expect("a path in UTF-8");
        for fault in ["none", "race", "freed"] {
            println!("{name}, {fault}");
            let counts = compare(&dir, &[program, fault], |alone, other, how| {
                same_output(alone, other, &format!("{name}, {fault}, {how}"));
                let has_report = |ran: &Ran| ran.err.contains("SUMMARY: ");
                assert_eq!(has_report(other), has_report(alone), "{name}, {fault}, {how}: {}", other.err);
            });
            let has_own_malloc = cc == "clang" && flags.len() == 1 && !flags[0].ends_with("undefined");
            assert!(counts[0] > 1000 || has_own_malloc || fault != "none", "{name}: {counts:?}");
        }
    }
}

const GO: &str = r#"package main
%IMPORT%
import (
	"fmt"
	"os"
	"runtime"
	"sync"
)

func main() {
	var wait sync.WaitGroup
	sums := make([]int, 8)
	for index := range sums {
		wait.Add(1)
		go func(index int) {
			defer wait.Done()
			runtime.LockOSThread()
			for _, number := range make([]int, 1000) {
				sums[index] += number + index
			}
		}(index)
	}
	wait.Wait()
	fmt.Println(sums, %CALL%)
	os.Exit(5)
}
"#;

/// Go's own runtime makes threads, and takes signals; with cgo it is a program of libc's.
#[test]
fn programs_in_go_do_the_same() {
    let go = ["go", "/usr/local/go/bin/go"]
        .into_iter()
        .find(|go| Command::new(go).arg("version").output().is_ok_and(|output| output.status.success()));
    let Some(go) = go else { return eprintln!("SKIPPED, Go is not installed") };
    let dir = TestDir::new();
    let cgo = "// #include <stdlib.h>\nimport \"C\"\n";
    for (name, import, call) in [("pure", "", "0"), ("cgo", cgo, "C.abs(-3)")] {
        let source = dir.path(&format!("{name}.go"));
        fs::write(&source, GO.replace("%IMPORT%", import).replace("%CALL%", call)).expect("a source");
        let mut build = Command::new(go);
        build.args(["build", "-o", name]).arg(&source).current_dir(dir.path(""));
        build.env("CGO_ENABLED", if name == "cgo" { "1" } else { "0" }).env("GOPROXY", "off");
        if std::env::var_os("HOME").is_none() {
            build.env("GOCACHE", dir.path("cache"));
        }
        run(&mut build).succeeded();
        let program = dir.path(name);
        let counts = compare(&dir, &[program.to_str().expect("a path in UTF-8")], same_output);
        assert!(counts[0] > 0 || name == "pure", "{counts:?}");
    }
}

/// A shell has one thread, which it counts.
#[test]
fn no_thread_is_started_in_programs_that_have_no_events_of_their_own() {
    let dir = TestDir::new();
    compare(&dir, &["sh", "-c", "ls /proc/$$/task | wc -l"], |alone, other, how| {
        assert_eq!(alone.out.trim(), "1");
        same_output(alone, other, how);
    });
}
