//! Children of every kind, daemons, servers, and programs that know nothing of Tompion.

use std::{
    ffi::OsStr,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Event, TestDir, Trace, finish, repository, run, signal, start, tompion, wait_until};

/// Options for programs with many allocations.
const ROOMY: [&str; 4] = ["--subbuf-size", "4M", "--subbufs", "8"];

/// Records `children HOW`; its output is the same as without recording.
fn children(dir: &TestDir, how: &str) -> Trace {
    let program = dir.program("children");
    let alone = run(Command::new(&program).arg(how)).succeeded();
    let recorded = run(&mut dir.recording("trace", &[], &[&program, &how])).succeeded();
    assert_eq!(recorded.out, alone.out);
    let trace = dir.trace("trace");
    trace.agreed_count();
    trace
}

/// The roles that processes told, sorted, and how many processes that were.
fn roles(events: &[Event]) -> (Vec<&str>, usize) {
    let mut roles: Vec<&str> = events.iter().filter_map(|event| event.fields["role"].as_str()).collect();
    let mut sources: Vec<&str> = events.iter().map(|event| event.source.as_str()).collect();
    roles.sort();
    sources.sort();
    sources.dedup();
    (roles, sources.len())
}

/// Returns the sorted ends of a trace's processes.
fn ends(trace: &Trace) -> Vec<String> {
    let stat = trace.stat();
    let processes = stat["processes"].as_array().expect("processes");
    let mut ends: Vec<String> =
        processes.iter().map(|process| process["end"].as_str().expect("an end").to_owned()).collect();
    ends.sort();
    ends
}

#[test]
fn a_forked_child_has_a_source_of_its_own() {
    let dir = TestDir::new();
    let trace = children(&dir, "fork");
    assert_eq!(roles(&trace.events()), (vec!["child", "parent"], 2));
    let ends = ends(&trace);
    // Older kernels don't tell how the child has ended once its parent has waited for it.
    assert!(ends == ["ended", "exited with 0"] || ends == ["exited with 0", "exited with 3"], "{ends:?}");
}

#[test]
fn a_child_is_recorded_before_and_after_exec() {
    let dir = TestDir::new();
    let events = children(&dir, "fork+exec").events();
    assert_eq!(roles(&events).0, ["child", "leaf", "parent"]);
}

#[test]
fn the_recording_waits_for_a_daemon() {
    let dir = TestDir::new();
    let trace = children(&dir, "daemon");
    assert_eq!(roles(&trace.events()), (vec!["daemon", "parent"], 2));
}

#[test]
fn programs_started_by_vfork_spawn_and_shells_are_recorded() {
    for (how, expected) in [
        ("vfork+exec", &["leaf", "parent", "parent again"][..]),
        ("posix_spawn", &["leaf", "parent"]),
        ("system", &["leaf", "parent"]),
        ("popen", &["leaf", "parent"]),
    ] {
        let dir = TestDir::new();
        let events = children(&dir, how).events();
        assert_eq!(roles(&events), (expected.to_vec(), 2), "{how}");
    }
}

#[test]
fn a_program_is_recorded_whose_starter_ends_at_once() {
    let dir = TestDir::new();
    let trace = children(&dir, "posix_spawn and go");
    assert_eq!(roles(&trace.events()), (vec!["leaf", "parent"], 2));
}

#[test]
fn an_event_of_a_vfork_child_is_not_traced_and_not_lost() {
    let dir = TestDir::new();
    let trace = children(&dir, "vfork");
    assert_eq!(roles(&trace.events()), (vec!["parent", "parent again"], 1));
    let stat = trace.stat();
    assert_eq!((&stat["lost"], &stat["not_traced"]), (&json!({"total": 0}), &json!(1)));
    let text = run(tompion().arg("stat").arg(&trace.folder)).succeeded().out;
    let lines: Vec<&str> = text.lines().take(3).collect();
    assert_eq!(lines[1..], ["lost         0", "not traced   1 event of vfork children"]);
}

#[test]
fn a_program_that_closes_all_descriptors_is_recorded_on() {
    let dir = TestDir::new();
    let trace = children(&dir, "closing all");
    assert_eq!(roles(&trace.events()), (vec!["after", "before", "child"], 2));
}

/// Records the allocations of a command that says the same with the recording as without it.
fn with_malloc(dir: &TestDir, command: &[&str]) -> Trace {
    let alone = run(Command::new(command[0]).args(&command[1..])).succeeded();
    let words: Vec<&dyn AsRef<OsStr>> = command.iter().map(|word| word as &dyn AsRef<OsStr>).collect();
    let options = [&["--preload", "malloc"][..], &ROOMY].concat();
    let recorded = run(&mut dir.recording("trace", &options, &words)).succeeded();
    assert_eq!(recorded.out, alone.out, "{command:?}");
    let trace = dir.trace("trace");
    assert!(trace.agreed_count() > 0);
    trace
}

#[test]
fn a_command_finds_its_signals_and_limits_as_they_were() {
    let dir = TestDir::new();
    with_malloc(&dir, &["sh", "-c", "grep ^SigBlk /proc/self/status; ulimit -a"]);
}

/// The interpreter itself, not a script that looks for it.
fn python() -> String {
    run(Command::new("python3").args(["-c", "import sys; print(sys.executable, end='')"])).succeeded().out
}

fn names(trace: &Trace) -> Vec<String> {
    let stat = trace.stat();
    let processes = stat["processes"].as_array().expect("processes");
    processes.iter().map(|process| process["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn find_and_python_are_recorded_without_recompiling() {
    let python = python();
    for command in [
        &["find", env!("CARGO_MANIFEST_DIR"), "-name", "*.rs"][..],
        &[&python, "-c", "print(sum(len(str(n)) for n in range(1000)))"],
    ] {
        let dir = TestDir::new();
        let trace = with_malloc(&dir, command);
        assert_eq!(names(&trace).len(), 1);
        assert!(trace.stat()["by_event"]["lttng_ust_libc:malloc"].as_u64() > Some(0));
    }
}

#[test]
fn all_programs_of_a_compilation_are_recorded() {
    let dir = TestDir::new();
    let source = dir.path("main.c");
    std::fs::write(&source, "int main(void) { return 42; }\n").unwrap();
    let (source, program) = (source.display().to_string(), dir.path("main").display().to_string());
    let trace = with_malloc(&dir, &["gcc", "-O1", &source, "-o", &program]);

    let names = names(&trace);
    for name in ["gcc", "cc1", "as", "ld"] {
        assert!(names.iter().any(|found| found.starts_with(name)), "{name} in {names:?}");
    }
    run(&mut Command::new(&program)).exited(42);
}

/// A server: its command line, what to ask it, and how its answer begins.
struct Server {
    program: &'static str,
    arguments: Vec<String>,
    request: &'static str,
    answer: &'static str,
}

const GET: &str = "GET /index.html HTTP/1.0\r\n\r\n";

/// Returns the installed servers; python always is.
fn servers(folder: &Path, port: u16) -> Vec<Server> {
    std::fs::write(folder.join("index.html"), "<p>here</p>\n").unwrap();
    let place = folder.display().to_string();
    std::fs::write(folder.join("nginx.conf"), nginx_configuration(&place, port)).unwrap();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let all = [
        Server {
            program: "python3",
            arguments: words(&format!("-m http.server {port} --bind 127.0.0.1 --directory {place}")),
            request: GET,
            answer: "HTTP/1.0 200 OK",
        },
        Server {
            program: "nginx",
            arguments: words(&format!("-p {place} -c {place}/nginx.conf -e {place}/error.log")),
            request: GET,
            answer: "HTTP/1.1 200 OK",
        },
        Server {
            program: "redis-server",
            arguments: words(&format!("--port {port} --bind 127.0.0.1 --save --dir {place}")),
            request: "PING\r\nQUIT\r\n",
            answer: "+PONG",
        },
    ];
    all.into_iter().filter(|server| installed(server.program)).collect()
}

fn nginx_configuration(folder: &str, port: u16) -> String {
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let places = kinds.map(|kind| format!("{kind}_temp_path {folder}/{kind};")).join(" ");
    format!(
        "daemon off; worker_processes 2; pid {folder}/nginx.pid; events {{}} \
         http {{ access_log off; {places} server {{ listen 127.0.0.1:{port}; root {folder}; }} }}"
    )
}

fn installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&folders).chain([PathBuf::from("/usr/sbin")]);
    folders.any(|folder| folder.join(program).exists())
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr()).expect("a free port").port()
}

fn ask(port: u16, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}

/// Returns the recorded command's process, by its unique command line.
fn child_of(parent: u32) -> u32 {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let text = std::fs::read_to_string(children).expect("the children of the recording");
    text.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("one child")
}

#[test]
fn servers_serve_while_they_are_recorded_and_end_when_asked() {
    let count = servers(TestDir::new().path("").as_path(), 1).len();
    for index in 0..count {
        let (dir, port) = (TestDir::new(), free_port());
        let Server { program, arguments, request, answer } = servers(&dir.path(""), port).swap_remove(index);
        let options = [&["--preload", "malloc"][..], &ROOMY].concat();
        let mut words: Vec<&dyn AsRef<OsStr>> = vec![&program];
        words.extend(arguments.iter().map(|word| word as &dyn AsRef<OsStr>));
        let recording = start(dir.recording("trace", &options, &words).env("PATH", path_with_sbin()));

        wait_until(program, || ask(port, request).is_some());
        for _ in 0..20 {
            let found = ask(port, request).unwrap();
            assert!(found.starts_with(answer), "{program}: {found}");
        }
        signal(child_of(recording.id()), Signal::TERM);
        let finished = finish(recording, program);

        // As the server itself, which ends by the signal or takes it as a request.
        let ended = (finished.status.code(), finished.status.signal());
        assert!(matches!(ended, (Some(0), None) | (None, Some(15))), "{program}: {finished:?}");
        assert!(dir.trace("trace").agreed_count() > 100, "{program}: {finished:?}");
        println!("{program}: {}", finished.err.trim());
    }
}

fn path_with_sbin() -> String {
    format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default())
}

#[test]
fn a_program_that_only_may_have_the_library_finds_the_recorders() {
    let dir = TestDir::new();
    let (source, program) = (repository().join("examples/hello.c"), dir.path("hello"));
    let mut cc = Command::new("cc");
    cc.args(["-DTOMPION_OPTIONAL", "-I"]).arg(repository().join("include"));
    run(cc.arg(source).arg("-o").arg(&program)).succeeded();
    let record = |path: &str| {
        let mut recording = dir.recording(path, &[], &[&program, &"3"]);
        run(recording.env_remove("LD_LIBRARY_PATH")).succeeded();
        dir.trace(path).agreed_count()
    };
    assert!(record("trace") > 0);
    run(Command::new(&program).arg("3").env_remove("LD_LIBRARY_PATH")).succeeded();
}
