//! `tompion print --calls`, held against strace on the same program.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::Command;

use crate::kernel::permitted;
use crate::support::{TestDir, finish, installed, run, start, tompion, wait_until};

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
fn the_return_from_a_signal_handler_is_a_call() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let trace = dir.record(&["-k"], &[&"sh", &"-c", &"trap : USR1; kill -USR1 $$; sleep 0.01"]);
    let text = run(tompion().args(["print", "--calls"]).arg(&trace.folder)).succeeded().out;
    let returns = of_call(&text, "rt_sigreturn");
    assert!(!returns.is_empty() && returns.iter().all(|call| call.contains(" = ")), "{returns:?}");
    assert!(returns.iter().all(|call| !call.contains("unfinished")), "{returns:?}");
    assert!(!text.contains("unknown(<entry not seen>"), "{text}");
    let stat = trace.stat();
    let rows = stat["durations"]["syscalls"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["name"] == "rt_sigreturn").expect("the call");
    assert_eq!((&row["count"], &row["unfinished"]), (&returns.len().into(), &0.into()), "{row}");
}

#[test]
fn workers_that_execute_nothing_are_listed_with_their_ends() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let script = "(exit 7) & (kill -9 $BASHPID) & wait";
    let command: [&dyn AsRef<std::ffi::OsStr>; 3] = [&"bash", &"-c", &script];
    dir.record(&["-k"], &command);
    let shown = run(&mut dir.tompion(&["print", "--calls", "trace"])).succeeded().out;
    for end in ["+++ exited with 7 +++", "+++ killed by SIGKILL +++", "+++ exited with 0 +++"] {
        assert!(shown.contains(end), "{end}");
    }
    let stat = run(&mut dir.tompion(&["stat", "trace"])).succeeded().out;
    let (_, workers) = stat.split_once("children that executed no program\n").expect("workers");
    let workers: Vec<&str> = workers.lines().take_while(|line| !line.is_empty()).collect();
    assert!(workers.iter().any(|line| line.contains("exited with 7  (child of ")), "{workers:?}");
    assert!(workers.iter().any(|line| line.contains("killed by signal 9  (child of ")), "{workers:?}");
}

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

/// Events of calls that return addresses.
const RETURNING: &str = "syscall_*_accept,syscall_*_accept4,syscall_*_getsockname,syscall_*_getpeername,\
                         syscall_*_recvfrom";

#[test]
fn addresses_that_calls_return_are_what_the_program_got() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let program = dir.link("returned_addresses", &["returned_addresses.c"], &[]);
    let recorded = run(&mut dir.recording("trace", &["-k", RETURNING], &[&program])).succeeded();
    let trace = dir.trace("trace");
    let text = run(tompion().args(["print", "--calls"]).arg(&trace.folder)).succeeded().out;
    let calls: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once("] ")?.1)).collect();
    let got: Vec<&str> = recorded.out.lines().collect();
    assert_eq!(calls.len(), got.len(), "{text}");
    for (call, got) in calls.iter().zip(got) {
        let (name, address) = got.split_once(' ').expect("a call and what it got");
        assert!(call.contains(&format!(": {name}(")), "{got}: {call}");
        match address {
            "failed" => assert!(call.contains(", 0x") && !call.contains('{'), "{call}"),
            "without" => assert!(call.contains(", 0, NULL, 0) = 1"), "{call}"),
            address => assert!(call.contains(&format!(", {address}")), "{got}: {call}"),
        }
    }
    trace.agreed_text();
    // Exits alone have them, too.
    let exits = "syscall_exit_accept4,syscall_exit_recvfrom";
    run(&mut dir.recording("exits", &["-k", exits], &[&program])).succeeded();
    let events = dir.trace("exits").events();
    let sizes = |name: &str, size: &str| -> Vec<u64> {
        let events = events.iter().filter(|event| event.name == name);
        events.filter_map(|event| event.fields[size].as_u64()).collect()
    };
    assert_eq!(sizes("syscall_exit_accept4", "upeer_addrlen"), [16, 16, 28, 28, 2]);
    assert_eq!(sizes("syscall_exit_recvfrom", "addr_len"), [16, 28]);
    assert!(events.iter().all(|event| event.name.starts_with("syscall_exit_")));
}

/// Waits for a connection while another thread makes calls.
const WAITS: &str = "\
import socket, threading, time
def tick():
    while True: time.sleep(0.001)
listener = socket.create_server(('127.0.0.1', 0))
threading.Thread(target=tick, daemon=True).start()
print(listener.getsockname()[1], flush=True)
listener.accept()
listener.getsockname()
";

#[test]
fn a_call_whose_entry_was_not_seen_has_no_address() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let mut waits = start(Command::new("python3").args(["-c", WAITS]));
    let mut port = String::new();
    BufReader::new(waits.stdout.take().expect("a pipe")).read_line(&mut port).expect("its port");
    // It waits in the call.
    wait_until("accept", || syscall_of(waits.id()) == Some(ACCEPT4));
    let options = ["record", "-o", "trace", "-k", "syscall_*", "-p", &waits.id().to_string()];
    let recording = start(&mut dir.tompion(&options));
    wait_until("events", || {
        let files = std::fs::read_dir(dir.path("trace").join("kernel")).into_iter().flatten().flatten();
        let is_stream = |name: &str| name.starts_with("stream_") && name != "stream_initial";
        let mut streams = files.filter(|file| file.file_name().to_str().is_some_and(is_stream));
        streams.any(|file| file.metadata().is_ok_and(|data| data.len() > 0))
    });
    let port: u16 = port.trim().parse().expect("a number");
    let _connection = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
    finish(recording, "record -p").succeeded();
    assert!(waits.wait().expect("a child").success());
    let text = run(tompion().args(["print", "--calls"]).arg(dir.path("trace"))).succeeded().out;
    let call = |name: &str| text.lines().find(|line| line.contains(name)).expect(name);
    assert!(call("accept4").contains("accept4(<entry not seen>) = "), "{}", call("accept4"));
    assert!(call("getsockname").contains(&format!("{{AF_INET, 127.0.0.1:{port}}}, [16]) = 0")), "{text}");
}

/// Number of the call that a process's first thread is in.
fn syscall_of(pid: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Number of `accept4`.
const ACCEPT4: u32 = if cfg!(target_arch = "aarch64") { 242 } else { 288 };

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

pub fn installed_strace() -> bool {
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
