//! Servers under connections that say nothing, or a byte at a time: others are answered, and what
//! is done beside goes on.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    process::{Child, Command},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    monitor::Own,
    monitor_incidents::{folders, sleep_as},
    support::{TestDir, finish, signal, start, tompion, wait_until},
};

/// A user without any rights.
const UNPRIVILEGED_UID: u32 = 65_534;
/// Connections of each flood: more than a server has places.
const COUNT: &str = "120";
/// Connects, and connects again when a connection is closed. Each sends a byte of a request that
/// never becomes whole.
const SCRIPT: &str = r#"
trap '' PIPE
connect() { eval "exec $1<>/dev/tcp/$2/$3"; } 2>/dev/null
all=$(seq 10 $((9 + $3)))
for number in $all; do connect "$number" "$1" "$2"; done
echo ready
while sleep "$4"; do
    for number in $all; do printf G >&"$number" || connect "$number" "$1" "$2"; done 2>/dev/null
done
"#;

/// Connections that keep others out if they can; closed when this is dropped.
struct Flood(Child);

impl Flood {
    /// Opens connections of a user, who sends a byte on each at this interval (`infinity`: never).
    fn new(address: &str, user: Option<u32>, pace: &str) -> Self {
        let (ip, port) = address.rsplit_once(':').expect("an address");
        let mut command = Command::new("bash");
        command.args(["-c", SCRIPT, "bash", ip, port, COUNT, pace]).current_dir("/").process_group(0);
        if let Some(user) = user {
            command.uid(user);
        }
        let mut child = start(&mut command);
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut ready).expect("a line");
        assert_eq!(ready, "ready\n");
        Self(child)
    }

    /// Silent ones and slow ones, of ourselves and, where we may, of another user.
    fn all(address: &str) -> Vec<Self> {
        let users = if is_root() { vec![None, Some(UNPRIVILEGED_UID)] } else { vec![None] };
        if !is_root() {
            eprintln!("SKIPPED, connections of another user: only root can be one");
        }
        let each = users.iter().flat_map(|user| ["infinity", "0.5"].map(|pace| (*user, pace)));
        each.map(|(user, pace)| Self::new(address, user, pace)).collect()
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_raw(self.0.id() as i32).expect("a process");
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
        let _ = self.0.wait();
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").expect("a process").uid() == 0
}

/// The answer to a request. A burst of our own user's connections may close one before its request
/// is sent, so a client asks again, as browsers do.
fn ask(address: &str, path: &str) -> std::io::Result<String> {
    let answer = || ask_once(address, path).ok().filter(|answer| !answer.is_empty());
    (0..10).find_map(|_| answer()).ok_or_else(|| std::io::ErrorKind::ConnectionReset.into())
}

fn ask_once(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Sends a request as another user.
fn ask_as(user: u32, address: &str, path: &str) -> String {
    let (ip, port) = address.rsplit_once(':').expect("an address");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let script = r#"exec 3<>"/dev/tcp/$1/$2"; printf %s "$3" >&3; cat <&3"#;
    let mut command = Command::new("bash");
    let command = command.args(["-c", script, "bash", ip, port, &request]).current_dir("/").uid(user);
    String::from_utf8_lossy(&command.output().expect("bash").stdout).into_owned()
}

#[test]
fn given_hundreds_of_silent_connections_then_late_wake_ups_are_kept_and_the_page_is_served() {
    const ENOUGH: usize = 50;
    let Some(own) = Own::new("flooded") else { return };
    let folder = tempfile::tempdir().unwrap();
    let parent = folder.path().to_owned();
    let arguments = ["--listen", "127.0.0.1:0", "--threshold", "flooded-cli=10ns", "--cooldown", "0s"];
    let mut command = own.monitor(&arguments);
    let mut server = start(command.arg("--incidents").arg(&parent));
    let mut url = String::new();
    let mut output = BufReader::new(server.stdout.take().unwrap());
    output.read_line(&mut url).unwrap();
    // The line of each incident must be read.
    let reported = thread::spawn(move || output.lines().map_while(Result::ok).count());
    let address = url.trim().strip_prefix("http://").and_then(|url| url.strip_suffix("/metrics")).unwrap();
    let flood = Flood::all(address);
    let pages = AtomicU64::new(0);
    let caught = || folders(&parent).len() >= ENOUGH;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !caught() {
                let page = ask(address, "/metrics").unwrap_or_default();
                assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page:?}");
                pages.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        sleep_as("flooded-cli", "incidents under a flood", caught);
    });
    assert!(pages.load(Ordering::Relaxed) > 0);
    if is_root() {
        // A third user, as Prometheus is one.
        let page = ask_as(UNPRIVILEGED_UID - 1, address, "/metrics");
        assert!(page.contains("tompion_latency_seconds"), "{page:?}");
    }
    drop(flood);
    signal(server.id(), Signal::INT);
    let finished = finish(server, "monitor --listen").succeeded();
    assert!(finished.err.contains(" incidents saved of "), "{}", finished.err);
    assert!(reported.join().unwrap() >= ENOUGH);
}

#[test]
fn given_hundreds_of_slow_connections_then_the_viewers_page_is_served() {
    let dir = TestDir::new();
    let hello = dir.link("hello", &["../../../../examples/hello.c"], &[]);
    dir.record(&[], &[&hello]);
    let mut server = start(tompion().args(["view", "--no-open"]).arg(dir.path("trace")));
    let mut url = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
    let (address, token) = url.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
    let flood = Flood::all(address);
    for _ in 0..20 {
        let page = ask(address, &format!("/api/trace{token}")).unwrap_or_default();
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page:?}");
        thread::sleep(Duration::from_millis(100));
    }
    if is_root() {
        let page = ask_as(UNPRIVILEGED_UID - 1, address, &format!("/api/trace{token}"));
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page:?}");
    }
    drop(flood);
    wait_until("it ends", || {
        let _ = server.kill();
        server.try_wait().unwrap().is_some()
    });
}
