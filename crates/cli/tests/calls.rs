//! `tompion print --calls`, held against strace on the same program.

use std::process::Command;

use crate::kernel::permitted;
use crate::support::{TestDir, installed, run, tompion};

/// A call without its time, duration and pointers.
fn shape(call: &str) -> String {
    let call = call.rsplit_once(" <").map_or(call, |(call, _)| call);
    let (arguments, result) = call.rsplit_once(" = ").unwrap_or((call, ""));
    // strace adds what an error means.
    let result = result.split(" (").next().unwrap_or_default().trim();
    format!("{} = {result}", arguments.trim())
}

/// The calls of one name that the program made, each as its line has it.
fn of_call<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let at = |line: &'a str| {
        let (before, _) = line.split_once(&format!("{name}("))?;
        before.ends_with([' ', ':']).then(|| &line[before.len()..])
    };
    text.lines().filter_map(at).collect()
}

/// Gives sockets addresses of each family, and one that can't be read.
const SOCKETS: &str = "\
import ctypes, socket
unix = socket.socket(socket.AF_UNIX)
unix.bind('\\0tompion-test-socket')
for family, to in ((socket.AF_INET, ('127.0.0.1', 9)), (socket.AF_INET6, ('::1', 9))):
    datagrams = socket.socket(family, socket.SOCK_DGRAM)
    try: datagrams.sendto(b'x', to)
    except OSError: pass
    try: datagrams.connect(to)
    except OSError: pass
try: socket.socket(socket.AF_UNIX).connect('/nowhere/socket')
except OSError: pass
ctypes.CDLL(None).connect(unix.fileno(), ctypes.c_void_p(4096), 16)
";

#[test]
fn addresses_of_sockets_are_shown() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let options = ["-k", "syscall_*_connect,syscall_*_bind,syscall_*_sendto"];
    run(&mut dir.recording("trace", &options, &[&"python3", &"-c", &SOCKETS])).succeeded();
    let text = run(tompion().args(["print", "--calls"]).arg(dir.path("trace"))).succeeded().out;
    for expected in [
        ": bind(3, {AF_UNIX, @\"tompion-test-socket\"}, 22) = 0",
        "{AF_INET, 127.0.0.1:9}, 16) = 1",
        "{AF_INET, 127.0.0.1:9}, 16) = 0",
        "{AF_INET6, [::1]:9}, 28) = ",
        "{AF_UNIX, \"/nowhere/socket\"}, 18) = -1 ENOENT",
        "connect(3, 0x1000, 16) = -1 EFAULT",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn calls_are_shown_as_strace_shows_them() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let program = dir.link("calls", &["calls.c"], &[]);
    run(&mut dir.recording("trace", &["-k", "syscall_*"], &[&program])).exited(7);
    let trace = dir.trace("trace");
    let text = run(tompion().args(["print", "--calls"]).arg(&trace.folder)).succeeded().out;
    // strace prints the same, from tables of its own.
    let expected = [
        "openat(AT_FDCWD, \"/nonexistent\", O_RDONLY|O_CLOEXEC) = -1 ENOENT",
        "openat(AT_FDCWD, \"made\", O_RDWR|O_CREAT|O_TRUNC, 0640) = ",
        "socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, ",
        "fcntl(",
        "mprotect(",
        "prctl(PR_SET_NAME, ",
        "prlimit64(0, RLIMIT_NOFILE, NULL, 0x",
        "mkdirat(AT_FDCWD, \"made.d\", 0750) = ",
    ];
    for call in expected {
        assert!(text.contains(call), "{call} is not in:\n{text}");
    }
    assert!(
        text.contains("SOL_SOCKET, SO_REUSEADDR, ") && text.contains("F_SETFD, FD_CLOEXEC) = 0"),
        "{text}"
    );
    assert!(text.contains("exit_group(7) = ?"), "{text}");
    if !installed_strace() {
        eprintln!("not compared with strace, which is not there or may not trace");
        return;
    }
    let dir = TestDir::new();
    let program = dir.link("calls", &["calls.c"], &[]);
    let strace = run(Command::new("strace").args(["-f", "-T", "-o"]).arg(dir.path("text")).arg(&program));
    assert_eq!(strace.status.code(), Some(7), "{strace:?}");
    let theirs = std::fs::read_to_string(dir.path("text")).expect("strace's text");
    for name in ["openat", "socket", "mkdirat", "close", "unlinkat"] {
        // What the loader opens is not the program's.
        let shapes = |text: &str| {
            let calls = of_call(text, name).into_iter().map(shape);
            calls.filter(|call| !call.contains("lib") && !call.contains("/etc/ld")).collect::<Vec<_>>()
        };
        let (ours, theirs) = (of_program(&shapes(&text)), of_program(&shapes(&theirs)));
        assert_eq!(ours, theirs, "{name}");
        assert!(!ours.is_empty(), "{name}");
    }
}

/// The calls of `calls.c`: those with numbers of descriptors differ, since a recorded program has
/// others open.
fn of_program(calls: &[String]) -> Vec<String> {
    let known = ["nonexistent", "made", "AF_INET", "close(-1", "close(999"];
    let calls = calls.iter().filter(|call| known.iter().any(|known| call.contains(known)));
    let without_number = |call: &String| match call.rsplit_once(" = ") {
        Some((call, result)) if result.parse::<u32>().is_ok_and(|number| number > 2) => format!("{call} = N"),
        _ => call.clone(),
    };
    calls.map(without_number).collect()
}

fn installed_strace() -> bool {
    installed("strace") && run(Command::new("strace").args(["-o", "/dev/null", "true"])).status.success()
}

#[test]
fn marks_are_text() {
    let dir = TestDir::new();
    let program = dir.link("span", &["span.c"], &[]);
    let trace = dir.record(&[], &[&program]);
    let text = run(tompion().args(["print", "--calls"]).arg(&trace.folder)).succeeded().out;
    let shown: Vec<&str> = text.lines().filter_map(|line| line.split(" span: ").nth(1)).collect();
    assert_eq!(
        shown,
        [
            "mark:loaded: rows 12 of 'orders'",
            "mark:loaded: rows 13 of 'a\\u{1b}[2J'",
            "planner:step begins: number = 1",
            "planner:step ends: ",
        ]
    );
}

#[test]
fn options_that_calls_cannot_have_are_refused() {
    let dir = TestDir::new();
    for option in [&["--format", "json"][..], &["--filter", "ret > 1"], &["--follow"], &["--explain"]] {
        let mut print = dir.tompion(&["print", "--calls"]);
        let err = run(print.args(option).arg("nothing")).exited(2).err;
        assert!(err.contains("--calls"), "{err}");
    }
}
