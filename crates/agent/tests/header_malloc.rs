//! The malloc preload library in real programs, with `header/mock.c` in libtompion's place.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn run(command: &mut Command) -> Output {
    // cargo's own setting would put the real library in the mock's place.
    if !command.get_envs().any(|(name, _)| name == "LD_LIBRARY_PATH") {
        command.env_remove("LD_LIBRARY_PATH");
    }
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

/// A folder with libtompion-malloc.so and the mock as libtompion.so.0.
fn preload(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header-malloc").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    let build = |file: &str, name: &str, more: &[&str]| {
        run(Command::new("cc")
            .args(["-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-fno-builtin"])
            .arg("-ftls-model=initial-exec")
            .arg("-I")
            .arg(source("../../include"))
            .arg(format!("-Wl,-soname,{name}"))
            .arg(source(file))
            .args(more)
            .args(["-o", name])
            .current_dir(&folder))
    };
    build("tests/header/mock.c", "libtompion.so.0", &[]);
    build(
        "preload/malloc.c",
        "libtompion-malloc.so",
        &["-L.", "-l:libtompion.so.0", "-ldl", "-Wl,-rpath,$ORIGIN", "-Wl,--auxiliary=libtompion.so.0"],
    );
    folder
}

/// Runs the program without and with the library; expects the same output and at least `least`
/// events.
fn same_with_preload(folder: &Path, program: &str, args: &[&str], least: u64) {
    let command = || {
        let mut command = Command::new(program);
        command.args(args).current_dir(folder);
        command
    };
    let plain = run(&mut command());
    let count = folder.join("count");
    let _ = std::fs::remove_file(&count);
    let library = folder.join("libtompion-malloc.so");
    let traced = run(command().env("LD_PRELOAD", &library).env("MOCK_QUIET", "1").env("MOCK_OUT", &count));
    assert_eq!(traced.stdout, plain.stdout, "{program} {args:?}");
    let text = std::fs::read_to_string(&count).unwrap_or_default();
    let numbers = text.lines().filter_map(|line| line.strip_prefix("events "));
    let most = numbers.filter_map(|number| number.parse::<u64>().ok()).max();
    assert!(most >= Some(least), "{program} {args:?}: {most:?} events, expected {least}");
}

fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn programs_do_the_same_with_the_library_and_are_recorded() {
    let folder = preload("programs");
    let hello = folder.join("hello.c");
    std::fs::write(&hello, "#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n")
        .expect("a source file");
    same_with_preload(&folder, "find", &["/usr/include", "-name", "std*.h"], 100);
    same_with_preload(&folder, "cc", &["-O2", "-o", "hello", "hello.c"], 500);
    if installed("python3") {
        let program = "import json, threading\n\
                       t = [threading.Thread(target=lambda: json.dumps(list(range(9999)))) for _ in range(4)]\n\
                       [x.start() for x in t]; [x.join() for x in t]; print(sum(map(len, map(str, range(99999)))))";
        same_with_preload(&folder, "python3", &["-c", program], 1000);
    }
    if installed("c++") {
        run(Command::new("c++")
            .args(["-std=c++17", "-O2", "-pthread", "-o", "threads"])
            .arg(source("tests/header/threads.cc"))
            .current_dir(&folder));
        same_with_preload(&folder, "./threads", &[], 80_000);
    }
}

#[test]
fn limits_errno_and_fork_are_as_without_the_library() {
    let folder = preload("limits");
    run(Command::new("cc")
        .args(["-std=gnu11", "-O1", "-fno-builtin", "-pthread", "-w", "-o", "allocations"])
        .arg(source("tests/header/allocations.c"))
        .current_dir(&folder));
    same_with_preload(&folder, "./allocations", &[], 24_000);
}
