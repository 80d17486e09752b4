//! `tompion ship` and `tompion receive` under load: both are killed at any instant and the link is
//! cut, and what arrives is the local recording, event for event.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use tompion_testing::{Random, seed};

use crate::support::{TestDir, Trace, finish, rounds, run, start, tompion, wait_until};

/// Rings that lose nothing when the machine is busy.
const LARGE_RINGS: [&str; 4] = ["--subbuf-size", "1M", "--subbufs", "8"];
/// Kills and cuts of one recording.
const KILLS: u32 = 40;

/// A link to an address: connections that can be cut.
struct Link {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Link {
    fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let open = Arc::new(Mutex::new(Vec::new()));
        let streams = open.clone();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // The receiver may be dead.
                let Ok(far) = TcpStream::connect(to) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().expect("a copy"), to.try_clone().expect("a copy"));
                    thread::spawn(move || pass(from, to));
                }
                streams.lock().expect("a lock").extend([near, far]);
            }
        });
        Self { address, open }
    }

    /// Cuts all connections, wherever their bytes are.
    fn cut(&self) {
        for stream in self.open.lock().expect("a lock").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// A free address for a receiver that is started again and again.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

fn silent(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    tompion_os::Inheritance::current().hand_on_to_companion(&mut command);
    command.spawn().expect("the command")
}

fn receive(dir: &TestDir, address: SocketAddr) -> Child {
    silent(dir.tompion(&[
        "receive",
        "--min-free",
        "1M",
        "--store",
        "store",
        "--listen",
        &address.to_string(),
    ]))
}

fn ship(dir: &TestDir, trace: &str, to: SocketAddr) -> Command {
    dir.tompion(&["ship", trace, "--to", &format!("http://{to}")])
}

fn kill(child: &mut Child) {
    child.kill().expect("a child that runs");
    child.wait().expect("its end");
}

/// The only recording in the store.
fn stored(dir: &TestDir) -> Trace {
    Trace { folder: find_stored(dir).expect("a recording in the store") }
}

fn find_stored(dir: &TestDir) -> Option<PathBuf> {
    ["host=", "boot=", "session="].iter().try_fold(dir.path("store"), |folder, prefix| {
        let entries = fs::read_dir(folder).ok()?.map_while(Result::ok);
        let mut named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        let found = named.next()?.path();
        assert!(named.next().is_none(), "more than one");
        Some(found)
    })
}

fn recording(dir: &TestDir, options: &[&str], milliseconds: u32) -> Command {
    let program = dir.program("paced");
    let milliseconds = milliseconds.to_string();
    let options = [&LARGE_RINGS[..], options].concat();
    dir.recording("trace", &options, &[&program, &"2", &milliseconds, &"20"])
}

#[test]
fn sender_and_receiver_are_killed_and_the_link_cut_and_each_event_arrives_once() {
    let mut random = Random(seed());
    for round in 0..rounds(1, 25) {
        let dir = TestDir::new();
        let options: &[&str] = if round % 2 == 0 { &["--rotate", "300ms"] } else { &[] };
        let mut record = start(&mut recording(&dir, options, 3000));
        wait_until("a recording", || dir.path("trace/tompion.json").exists());
        let address = free_address();
        let link = Link::new(address);
        let mut receiver = receive(&dir, address);
        let mut sender = silent(ship(&dir, "trace", link.address));
        for _ in 0..KILLS {
            thread::sleep(Duration::from_millis(random.below(160)));
            match random.below(3) {
                0 => link.cut(),
                1 => {
                    kill(&mut receiver);
                    receiver = receive(&dir, address);
                }
                // It may have ended: all was sent.
                _ => {
                    let _ = sender.kill();
                    sender.wait().expect("its end");
                    sender = silent(ship(&dir, "trace", link.address));
                }
            }
        }
        let _ = sender.kill();
        sender.wait().expect("its end");
        assert!(record.wait().expect("its end").success());
        run(&mut ship(&dir, "trace", link.address)).succeeded();
        kill(&mut receiver);
        let (local, there) = (dir.trace("trace"), stored(&dir));
        assert_eq!(local.stat()["lost"]["total"], 0);
        let (here, arrived) = (local.printed(), there.printed());
        assert!(here.lines().count() > 1000, "there was load");
        assert!(here == arrived, "round {round}: {} and {} bytes", here.len(), arrived.len());
        assert_eq!(local.babeltrace().out, there.babeltrace().out);
        let again = free_address();
        let mut receiver = receive(&dir, again);
        let said = run(&mut ship(&dir, "trace", again)).succeeded().err;
        assert!(said.contains("0 segments sent now"), "{said}");
        kill(&mut receiver);
    }
}

#[test]
fn chunks_that_were_removed_unsent_are_shown_as_holes() {
    let dir = TestDir::new();
    run(&mut recording(&dir, &["--rotate", "100ms", "--keep", "count=2"], 1500)).succeeded();
    let address = free_address();
    let mut receiver = receive(&dir, address);
    run(&mut ship(&dir, "trace", address)).succeeded();
    kill(&mut receiver);
    let there = stored(&dir);
    let stat = there.stat();
    let holes = stat["dropped_chunks"].as_array().expect("holes");
    assert!(holes.len() >= 3, "{stat}");
    assert_eq!(holes[0]["number"], 1);
    assert!(holes[0]["before_ns"].as_i64().is_some(), "{stat}");
    assert_eq!(stat["losses_unknown"], true);
    let printed = run(tompion().arg("print").arg(&there.folder)).succeeded();
    assert!(printed.err.contains("warning: Chunk 1 is missing before ["), "{}", printed.err);
    assert!(printed.out == dir.trace("trace").printed());
    let text = run(tompion().arg("stat").arg(&there.folder)).succeeded().out;
    assert!(text.contains("missing      chunk 1 before "), "{text}");
}

#[test]
fn a_received_recording_is_followed_while_it_grows() {
    let dir = TestDir::new();
    let address = free_address();
    let mut receiver = receive(&dir, address);
    let mut record = start(&mut recording(&dir, &["--rotate", "300ms"], 1500));
    wait_until("a recording", || dir.path("trace/tompion.json").exists());
    let sender = start(&mut ship(&dir, "trace", address));
    wait_until("its copy", || find_stored(&dir).is_some_and(|folder| folder.join("tompion.json").exists()));
    let there = stored(&dir);
    let following = [dir.trace("trace").folder, there.folder.clone()]
        .map(|folder| start(tompion().args(["print", "--follow"]).arg(folder)));
    let refused = run(tompion().arg("recover").arg(&there.folder)).exited(1);
    assert!(refused.err.contains("a receiver's copy"), "{}", refused.err);
    assert!(record.wait().expect("its end").success());
    finish(sender, "ship").succeeded();
    let whole = dir.trace("trace").printed();
    for follow in following {
        let followed = finish(follow, "print --follow").succeeded();
        let mut lines = events_of(&followed.out);
        let mut expected = events_of(&whole);
        // One that comes late is printed when it comes.
        lines.sort_unstable();
        expected.sort_unstable();
        assert!(lines == expected, "{} and {} events", lines.len(), expected.len());
    }
    kill(&mut receiver);
}

/// Lines of events without the time since the line before. A follower sees the initial state of
/// each chunk.
fn events_of(text: &str) -> Vec<&str> {
    let events = text.lines().filter(|line| !line.contains(" paced:settings: "));
    events.map(|line| line.split_once(") ").map_or(line, |(_, rest)| rest)).collect()
}

/// Starts `tompion live`, and returns it with its address.
fn live(dir: &TestDir, folder: &str) -> (Child, SocketAddr) {
    let address = free_address();
    let child = silent(dir.tompion(&["live", folder, "--listen", &address.to_string()]));
    wait_until("a server", || TcpStream::connect(address).is_ok());
    (child, address)
}

/// Starts babeltrace2, which reads along the only session of a server.
fn read_along(address: SocketAddr) -> Child {
    let babeltrace = |url: &str| {
        let mut command = Command::new("babeltrace2");
        command.env("TZ", "UTC").args(["-i", "lttng-live", url]);
        command
    };
    let list = run(&mut babeltrace(&format!("net://{address}"))).succeeded().out;
    let url = list.split_whitespace().find(|word| word.starts_with("net://")).expect("a session");
    start(&mut babeltrace(url))
}

#[test]
fn babeltrace_reads_a_running_recording_along_to_the_text_of_the_complete_one() {
    let dir = TestDir::new();
    let mut record = start(&mut recording(&dir, &[], 1500));
    wait_until("a recording", || dir.path("trace/tompion.json").exists());
    let (mut server, address) = live(&dir, "trace");
    let reader = read_along(address);
    assert!(record.wait().expect("its end").success());
    let along = finish(reader, "babeltrace2").succeeded();
    let (mut server_of_complete, address) = live(&dir, "trace");
    let after = finish(read_along(address), "babeltrace2").succeeded();
    kill(&mut server);
    kill(&mut server_of_complete);
    let local = dir.trace("trace").babeltrace().out;
    for read in [along.out, after.out] {
        assert!(read == local, "{} and {} lines", read.lines().count(), local.lines().count());
    }
}
