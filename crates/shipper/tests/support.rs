//! Recordings to be sent, receivers, and a link that breaks.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use tompion_receiver::{Access, Config, ConnectionLimits, Receiver, StoreLimits, server_config};
use tompion_shipper::{Certificates, HttpTarget, Options, Pace};
use tompion_testing::Random;

/// Options of a sender that ends when all is sent.
pub fn options() -> Options {
    Options { connections: 4, follow: false, pace: Pace::default() }
}

/// A receiver in this process, for as long as that runs.
pub fn receiver(store: &Path, access: Access, certificates: Option<&Path>) -> SocketAddr {
    let config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        store: store.to_owned(),
        limits: StoreLimits { min_free: 0, ..StoreLimits::default() },
        connections: ConnectionLimits::default(),
        tls: certificates.map(|folder| server_config(folder).unwrap()),
        access,
    };
    let receiver = Receiver::bind(config).unwrap();
    let address = receiver.address();
    thread::spawn(move || receiver.run());
    address
}

pub fn target(address: SocketAddr) -> HttpTarget {
    HttpTarget::new(&format!("http://{address}"), &Certificates::default(), None, 4).unwrap()
}

/// Writes a complete recording of files that need no packets to be found whole.
pub fn write_recording(folder: &Path, seed: u64) {
    let mut random = Random(seed);
    let manifest = r#"{"schema":1,"state":"complete","host":{"name":"robot","kernel":"","cpus":1,"boot_id":"boot"},
        "clock":{"source":"tsc","realtime_offset_ns":7,"error_bound_ns":1,"samples":[]}}"#;
    for process in 0..3 {
        let trace = folder.join(format!("user/a b+{process}"));
        fs::create_dir_all(trace.join("index")).unwrap();
        for (name, size) in
            [("metadata", 3000), ("stream_0", 3_500_000), ("stream_1", 70_000), ("index/stream_0.idx", 1000)]
        {
            let bytes: Vec<u8> = (0..size).map(|_| random.below(40) as u8).collect();
            fs::write(trace.join(name), bytes).unwrap();
        }
        fs::write(trace.join("stream_initial"), "").unwrap();
    }
    fs::write(folder.join("tompion.json"), manifest).unwrap();
}

/// Folder of the only session below a store.
pub fn stored(store: &Path) -> PathBuf {
    find_stored(store).expect("one session")
}

/// Folders of all sessions below a store.
pub fn find_sessions(store: &Path) -> Vec<PathBuf> {
    ["host=", "boot=", "session="].iter().fold(vec![store.to_owned()], |folders, prefix| {
        let entries = folders.into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
        let named = entries.map_while(Result::ok);
        named
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
            .map(|entry| entry.path())
            .collect()
    })
}

/// The same, if there is one.
pub fn find_stored(store: &Path) -> Option<PathBuf> {
    ["host=", "boot=", "session="].iter().try_fold(store.to_owned(), |folder, prefix| {
        let entries = fs::read_dir(folder).ok()?.map_while(Result::ok);
        let mut named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        let found = named.next()?.path();
        assert!(named.next().is_none(), "more than one");
        Some(found)
    })
}

/// All files below a folder that are not hidden.
pub fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().map(|entry| entry.unwrap()) {
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(path),
                false => {
                    drop(files.insert(path.strip_prefix(folder).unwrap().into(), fs::read(&path).unwrap()))
                }
            }
        }
    }
    files
}

pub fn assert_same(local: &Path, store: &Path) {
    let (here, there) = (tree(local), tree(&stored(store)));
    assert_eq!(here.keys().collect::<Vec<_>>(), there.keys().collect::<Vec<_>>());
    let different: Vec<_> =
        here.iter().filter(|(path, bytes)| there[*path] != **bytes).map(|(path, _)| path).collect();
    assert!(different.is_empty(), "{different:?}");
}

/// A link that breaks: each connection passes a random number of bytes, then it is cut, held, or
/// ends in one direction.
pub fn breaking_link(to: SocketAddr, seed: u64, is_broken: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut random = Random(seed);
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(to)) else { continue };
            let breaks = is_broken.load(Ordering::Relaxed);
            let limit = |random: &mut Random, most| if breaks { random.below(most) } else { u64::MAX };
            let (out, back) = (limit(&mut random, 6_000_000), limit(&mut random, 12_000));
            let hold = Duration::from_millis(random.below(20));
            for (from, to, bytes) in [(&client, &server, out), (&server, &client, back)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                thread::spawn(move || pass(from, to, bytes, hold));
            }
        }
    });
    address
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut bytes: u64, hold: Duration) {
    let mut buffer = vec![0; 32 << 10];
    while bytes > 0 {
        let most = bytes.min(buffer.len() as u64) as usize;
        match from.read(&mut buffer[..most]) {
            Ok(count) if count > 0 && to.write_all(&buffer[..count]).is_ok() => bytes -= count as u64,
            _ => break,
        }
    }
    thread::sleep(hold);
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
