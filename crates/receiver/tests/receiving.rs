//! The receiver under senders that repeat, skip, lie, or have no right; and after crashes.

use std::{
    fs::{self, OpenOptions},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    thread,
    time::Duration,
};

use tompion_receiver::{
    Access, Config, ConnectionLimits, Receiver, Refusal, Store, StoreLimits, Taken, Tokens,
    make_certificates, make_token, server_config,
};
use tompion_segments::{Conflict, ContentSum, End, FilePath, Kind, Name, Segment, digest};
use tompion_testing::{Random, TestDir, rounds, seed, wait_until};

fn segment(path: &str, kind: Kind, offset: u64, content: &[u8]) -> Segment {
    let name = Name::parse(&format!("/v1/robot/boot/night/{path}")).unwrap();
    Segment::new(name, Segment::header(kind, offset, true), content.to_vec())
}

fn packets(path: &str, offset: u64, content: &[u8]) -> Segment {
    segment(path, Kind::Packets, offset, content)
}

/// Content of the commit of these files.
fn digest_of(files: &[(&str, &[u8])]) -> String {
    let sums = files.iter().map(|(path, content)| {
        let mut sum = ContentSum::default();
        sum.add(content);
        (path.parse::<FilePath>().unwrap(), sum.sum())
    });
    let sums: Vec<_> = sums.collect();
    digest(sums.iter().map(|(path, sum)| (path, *sum))).to_string()
}

fn limits(min_free: u64) -> StoreLimits {
    StoreLimits { min_free, ..StoreLimits::default() }
}

const STREAM: &str = "host=robot/boot=boot/session=night/chunk-000001.open/user/a-1/stream_0";

fn serve(store: &Path, access: Access, tls: Option<&Path>) -> SocketAddr {
    let tls = tls.map(|folder| server_config(folder).unwrap());
    let listen = "127.0.0.1:0".parse().unwrap();
    let connections = ConnectionLimits::default();
    let config = Config { listen, store: store.to_owned(), limits: limits(0), connections, tls, access };
    let receiver = Receiver::bind(config).unwrap();
    let address = receiver.address();
    thread::spawn(move || receiver.run());
    address
}

/// Sends a request and returns its status and all of the answer.
fn ask(address: SocketAddr, head: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!("{head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    // The receiver may answer and close before it has read all.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), answer)
}

fn put(address: SocketAddr, segment: &Segment, headers: &str) -> u16 {
    let head = format!("PUT {} HTTP/1.1\r\nIf-None-Match: *{headers}", segment.name.to_path());
    ask(address, &head, &segment.encode()).0
}

#[test]
fn segments_become_the_files_of_a_trace() {
    let dir = TestDir::new("store");
    let address = serve(&dir, Access::OwnUser, None);
    let first = packets("chunk-000001/user/a-1/stream_0/1", 0, b"first ");
    let second = packets("chunk-000001/user/a-1/stream_0/2", 6, b"second");
    assert_eq!(put(address, &second, ""), 409, "the first is missing");
    assert_eq!(put(address, &first, ""), 201);
    assert_eq!(put(address, &first, ""), 200);
    assert_eq!(put(address, &second, ""), 201);
    assert_eq!(put(address, &first, ""), 200, "also when it is not the last");
    assert_eq!(put(address, &packets("chunk-000001/user/a-1/stream_0/1", 0, b"FIRST "), ""), 412);
    assert_eq!(put(address, &packets("chunk-000001/user/a-1/stream_0/2", 6, b"SECOND"), ""), 412);
    assert_eq!(fs::read_to_string(dir.join(STREAM)).unwrap(), "first second");

    let (status, answer) =
        ask(address, "HEAD /v1/robot/boot/night/chunk-000001/user/a-1/stream_0 HTTP/1.1", b"");
    assert_eq!(status, 200);
    assert!(answer.contains("Tompion-Sequence: 2\r\nTompion-Length: 12\r\n"), "{answer}");
    let (status, answer) = ask(address, "GET /v1/robot/boot/night/chunk-000001 HTTP/1.1", b"");
    assert_eq!(status, 200);
    let state: tompion_segments::ChunkState =
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!((state.end, state.files.len()), (None, 1));
    let commit = |content: &str| segment("chunk-000001/@commit/1", Kind::Commit, 0, content.as_bytes());
    assert_eq!(put(address, &commit("another"), ""), 409);
    assert_eq!(put(address, &commit(&digest_of(&[("user/a-1/stream_0", b"first SECOND")])), ""), 409);
    let content = digest_of(&[("user/a-1/stream_0", b"first second")]);
    assert_eq!(put(address, &commit(&content), ""), 201);
    assert_eq!(put(address, &commit(&content), ""), 200);
    let committed = STREAM.replace(".open", "");
    assert_eq!(fs::read_to_string(dir.join(committed)).unwrap(), "first second");
    assert_eq!(put(address, &packets("chunk-000001/user/a-1/stream_0/3", 12, b"x"), ""), 409, "it has ended");
}

#[test]
fn hostile_requests_are_refused_and_counted() {
    let dir = TestDir::new("hostile");
    let store = dir.join("store");
    let address = serve(&store, Access::OwnUser, None);
    let sound = packets("whole/stream_0/1", 0, b"content");
    let body = sound.encode();
    for path in [
        "../../../../etc/passwd",
        "%2e%2e/%2e%2e/x/1",
        "whole/..%2f..%2fx/1",
        "whole/.hidden/1",
        "whole/a%00b/1",
        "x",
    ] {
        let head = format!("PUT /v1/robot/boot/night/{path} HTTP/1.1");
        assert_eq!(ask(address, &head, &body).0, 400, "{path}");
    }
    let head = "PUT /v1/robot/boot/night/whole/stream_0/1 HTTP/1.1";
    assert_eq!(ask(address, &format!("{head}\r\nIf-None-Match: \"etag\""), &body).0, 400);
    assert_eq!(ask(address, head, b"garbage").0, 400);
    let mut terabyte = body.clone();
    terabyte[15] = 0xff;
    assert_eq!(ask(address, head, &terabyte).0, 400);
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{head}\r\nContent-Length: 1099511627776\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(ask(address, "DELETE /v1/robot/boot/night/whole HTTP/1.1", b"").0, 405);
    assert_eq!(ask(address, head, &body).0, 201, "others are served");
    let mut random = Random(seed());
    for _ in 0..rounds(200, 20_000) {
        let mut request = format!("{head}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        request.extend_from_slice(&body);
        random.mutate(&mut request, b"\r\n /%\0");
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(&request);
        // Half a request waits for its time; nothing else does.
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    let (status, answer) = ask(address, "GET /v1 HTTP/1.1", b"");
    assert_eq!(status, 200);
    assert!(answer.contains("\"400\":"), "{answer}");
    let hosts: Vec<_> = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        hosts.iter().all(|name| name == "host=robot" || name.to_string_lossy().starts_with('.')),
        "{hosts:?}"
    );
    assert_eq!(fs::read_dir(&*dir).unwrap().count(), 1, "nothing is beside the store");
}

#[test]
fn a_token_is_needed_where_there_are_tokens() {
    let dir = TestDir::new("rights");
    let file = dir.join("tokens");
    let writer = make_token(&file, "write", "robot").unwrap();
    let other = make_token(&file, "write", "cloud").unwrap();
    let reader = make_token(&file, "read", "*").unwrap();
    let address = serve(&dir.join("store"), Access::Tokens(Tokens::read(&file).unwrap()), None);
    let sound = packets("whole/stream_0/1", 0, b"content");
    let with = |token: &str| format!("\r\nAuthorization: Bearer {token}");
    assert_eq!(put(address, &sound, ""), 401);
    assert_eq!(put(address, &sound, &with("guess")), 401);
    assert_eq!(put(address, &sound, &with(&other)), 403);
    assert_eq!(put(address, &sound, &with(&reader)), 403);
    assert_eq!(put(address, &sound, &with(&writer)), 201);
    let state = "GET /v1/robot/boot/night/whole HTTP/1.1";
    assert_eq!(ask(address, state, b"").0, 401);
    assert_eq!(ask(address, &format!("{state}{}", with(&reader)), b"").0, 200);
    assert_eq!(ask(address, &format!("{state}{}", with(&other)), b"").0, 403);
}

#[test]
fn in_the_clear_nothing_is_answered_where_tls_is_spoken() {
    let dir = TestDir::new("tls");
    let certificates = dir.join("tls");
    make_certificates(&certificates, &["localhost".into()]).unwrap();
    let address = serve(&dir.join("store"), Access::Everyone, Some(&certificates));
    assert_eq!(put(address, &packets("whole/stream_0/1", 0, b"content"), ""), 0);
    assert_eq!(
        fs::read_dir(dir.join("store"))
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("host") })
            .count(),
        0
    );
}

#[test]
fn a_full_disk_is_said_and_damages_nothing() {
    let dir = TestDir::new("full");
    let first = packets("whole/stream_0/1", 0, b"content");
    let store = Store::open(&dir, limits(0)).unwrap();
    assert_eq!(store.put(&first).unwrap(), Taken::Stored);
    assert!(Store::open(&dir, limits(0)).is_err(), "one receiver at a time");
    drop(store);
    let store = Store::open(&dir, limits(u64::MAX)).unwrap();
    let next = packets("whole/stream_0/2", 7, b"more");
    assert!(matches!(store.put(&next), Err(Refusal::Full)));
    assert_eq!(store.put(&first).unwrap(), Taken::Known);
    // The sender makes room for others.
    let dropped = segment("chunk-000007/@commit/1", Kind::Dropped, 0, b"{}");
    assert_eq!(store.put(&dropped).unwrap(), Taken::Stored);
    drop(store);
    let store = Store::open(&dir, limits(0)).unwrap();
    assert_eq!(store.put(&next).unwrap(), Taken::Stored);
    let file = dir.join("host=robot/boot=boot/session=night/stream_0");
    assert_eq!(fs::read_to_string(file).unwrap(), "contentmore");
}

#[test]
fn names_and_files_are_limited() {
    let dir = TestDir::new("many");
    let few = StoreLimits { min_free: 0, max_names: 2, max_chunks: 2, max_files: 2 };
    let store = Store::open(&dir, few).unwrap();
    let result = |path: &str| store.put(&packets(path, 0, b"x")).map_err(|error| error.to_string());
    assert!(result("whole/a/1").is_ok() && result("whole/b/1").is_ok());
    assert!(result("whole/c/1").unwrap_err().contains("at most 2"));
    assert!(result("chunk-000001/a/1").is_ok());
    assert!(result("chunk-000002/a/1").unwrap_err().contains("at most 2"));
    let of = |session: u32| {
        let name = Name::parse(&format!("/v1/robot/boot/s{session}/whole/a/1")).unwrap();
        store.put(&Segment::new(name, Segment::header(Kind::Packets, 0, true), Vec::new()))
    };
    assert!((0..5).filter(|session| of(*session).is_ok()).count() <= 3);
}

#[test]
fn after_a_crash_what_was_not_acknowledged_is_cut_off() {
    let dir = TestDir::new("crash");
    let mut random = Random(seed());
    let file = dir.join(STREAM);
    let journal = dir.join("host=robot/boot=boot/session=night/.segments/chunk-000001.journal");
    let mut expected = Vec::new();
    let mut sequence = 0;
    for _ in 0..rounds(30, 1000) {
        let store = Store::open(&dir, limits(0)).unwrap();
        for _ in 0..1 + random.below(3) {
            sequence += 1;
            let content = vec![sequence as u8; random.index(3000)];
            let next = packets(
                &format!("chunk-000001/user/a-1/stream_0/{sequence}"),
                expected.len() as u64,
                &content,
            );
            assert_eq!(store.put(&next).unwrap(), Taken::Stored);
            expected.extend_from_slice(&content);
        }
        drop(store);
        assert!(fs::read(&file).unwrap() == expected);
        // Killed behind the bytes, or inside of the line.
        let torn = vec![0xee; random.index(100)];
        OpenOptions::new().append(true).open(&file).unwrap().write_all(&torn).unwrap();
        let line = &b"1 w- 99999 0 0 00"[..random.index(16)];
        OpenOptions::new().append(true).open(&journal).unwrap().write_all(line).unwrap();
    }
    // Bytes that were acknowledged are gone: the medium failed.
    OpenOptions::new().write(true).open(&file).unwrap().set_len(1).unwrap();
    let store = Store::open(&dir, limits(0)).unwrap();
    let next = |offset, content: &[u8]| {
        packets(&format!("chunk-000001/user/a-1/stream_0/{}", sequence + 1), offset, content)
    };
    let more = store.put(&next(expected.len() as u64, b"more"));
    assert!(matches!(more, Err(Refusal::Conflict(Conflict::Offset { expected: 0 }))), "{more:?}");
    assert_eq!(store.put(&next(0, &expected[..100.min(expected.len())])).unwrap(), Taken::Stored);
}

#[test]
fn a_file_that_is_replaced_is_seen_when_it_is_whole() {
    let dir = TestDir::new("replace");
    let store = Store::open(&dir, limits(0)).unwrap();
    let part = |sequence: u64, offset, is_whole, content: &[u8]| {
        let name = Name::parse(&format!("/v1/robot/boot/night/whole/tompion.json/{sequence}")).unwrap();
        store
            .put(&Segment::new(name, Segment::header(Kind::File, offset, is_whole), content.to_vec()))
            .unwrap()
    };
    let file = dir.join("host=robot/boot=boot/session=night/tompion.json");
    part(1, 0, true, b"old");
    part(2, 0, false, b"new ");
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    part(3, 4, false, b"and ");
    part(4, 8, true, b"longer");
    assert_eq!(fs::read_to_string(&file).unwrap(), "new and longer");
    part(5, 14, true, b", and continued");
    assert_eq!(fs::read_to_string(&file).unwrap(), "new and longer, and continued");
    let state = store.chunk_state(&Name::parse("/v1/robot/boot/night/whole/x/1").unwrap().place).unwrap();
    assert_eq!((state.end, state.files.len()), (None::<End>, 1));
}

#[test]
fn many_silent_and_slow_connections_keep_no_sender_out() {
    let dir = TestDir::new("slow");
    let address = serve(&dir, Access::OwnUser, None);
    let mut idle = Vec::new();
    for number in 0..rounds(300u32, 10_000) {
        let Ok(mut stream) = TcpStream::connect(address) else { continue };
        if number % 2 == 0 {
            let _ = stream.write_all(b"PUT /v1/robot/boot/night/whole/stream_0/1 HTTP/1.1\r\nContent-Le");
        }
        idle.push(stream);
        if idle.len() > 600 {
            idle.drain(..300);
        }
    }
    for sequence in 1..=20u64 {
        let sound = packets(&format!("whole/stream_0/{sequence}"), 4 * (sequence - 1), b"four");
        // A burst may close the connection before its request is seen; senders try again.
        wait_until("an answer", || matches!(put(address, &sound, ""), 200 | 201));
    }
    assert_eq!(fs::metadata(dir.join("host=robot/boot=boot/session=night/stream_0")).unwrap().len(), 80);
}

#[test]
fn a_file_that_grows_by_several_parts_is_seen_as_it_was_until_it_is_whole() {
    let dir = TestDir::new("grows");
    let store = Store::open(&dir, limits(0)).unwrap();
    let part = |sequence: u64, offset, is_whole, content: &[u8]| {
        let name = Name::parse(&format!("/v1/robot/boot/night/whole/metadata/{sequence}")).unwrap();
        let header = Segment::header(Kind::File, offset, is_whole);
        store.put(&Segment::new(name, header, content.to_vec())).unwrap()
    };
    let file = dir.join("host=robot/boot=boot/session=night/metadata");
    part(1, 0, true, b"old");
    part(2, 3, false, b" and");
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    part(3, 7, false, b" more");
    part(4, 12, true, b" text");
    assert_eq!(fs::read_to_string(&file).unwrap(), "old and more text");
}

#[test]
fn a_request_that_is_refused_leaves_no_folder() {
    let dir = TestDir::new("refused");
    let store = dir.join("store");
    let address = serve(&store, Access::OwnUser, None);
    let commit = segment("chunk-000001/@commit/1", Kind::Commit, 0, b"digest");
    for (refused, status) in [
        (packets("whole/stream_0/2", 0, b"x"), 409),
        (packets("whole/stream_0/1", 5, b"x"), 409),
        (commit, 409),
    ] {
        assert_eq!(put(address, &refused, ""), status);
    }
    let names = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.filter(|name| name.to_string_lossy().starts_with("host")).count(), 0);
}

#[test]
fn files_of_no_chunk_are_never_in_a_chunks_folder() {
    let dir = TestDir::new("bypass");
    let address = serve(&dir, Access::OwnUser, None);
    let body = packets("whole/stream_0/1", 0, b"x").encode();
    for path in ["whole/chunk-000001/user/a/1", "whole/chunk-000001.open/a/1", "user/a/1", "x.open/a/1"] {
        let head = format!("PUT /v1/robot/boot/night/{path} HTTP/1.1");
        assert_eq!(ask(address, &head, &body).0, 400, "{path}");
    }
}

#[test]
fn what_a_killed_receiver_had_not_finished_is_finished_by_the_next() {
    let dir = TestDir::new("finish");
    let session = dir.join("host=robot/boot=boot/session=night");
    let store = Store::open(&dir, limits(0)).unwrap();
    for chunk in 1..=2 {
        store.put(&packets(&format!("chunk-00000{chunk}/stream_0/1"), 0, b"content")).unwrap();
        let content = digest_of(&[("stream_0", b"content")]);
        let path = format!("chunk-00000{chunk}/@commit/1");
        store.put(&segment(&path, Kind::Commit, 0, content.as_bytes())).unwrap();
        // Killed between its commit and its name.
        fs::rename(
            session.join(format!("chunk-00000{chunk}")),
            session.join(format!("chunk-00000{chunk}.open")),
        )
        .unwrap();
    }
    // A sender that asks finds it ended, and sends nothing more.
    drop(store);
    drop(Store::open(&dir, limits(0)).unwrap());
    assert!(session.join("chunk-000001/stream_0").exists() && session.join("chunk-000002/stream_0").exists());
}

#[test]
fn a_dropped_chunk_leaves_a_tombstone_for_readers() {
    let dir = TestDir::new("tombstone");
    let session = dir.join("host=robot/boot=boot/session=night");
    let store = Store::open(&dir, limits(0)).unwrap();
    store.put(&packets("chunk-000002/stream_0/1", 0, b"content")).unwrap();
    for chunk in 1..=2 {
        let path = format!("chunk-00000{chunk}/@dropped/1");
        assert_eq!(store.put(&segment(&path, Kind::Dropped, 0, b"{}")).unwrap(), Taken::Stored);
        assert_eq!(store.put(&segment(&path, Kind::Dropped, 0, b"{}")).unwrap(), Taken::Known);
        let folder = tompion_os::DirHandle::open(&session.join(format!("chunk-00000{chunk}"))).unwrap();
        assert_eq!(tompion_manifest::DroppedChunk::read(&folder).unwrap().number, chunk);
    }
    assert!(session.join("chunk-000002/stream_0").exists(), "what came of it stays");
}

#[test]
fn rights_to_read_and_follow_give_what_was_acknowledged() {
    let dir = TestDir::new("read");
    let file = dir.join("tokens");
    let token = |rights: &str, hosts: &str| make_token(&file, rights, hosts).unwrap();
    let (writer, reader, live) = (token("write", "*"), token("read", "robot"), token("live", "robot"));
    let other = token("read,live", "cloud");
    let address = serve(&dir.join("store"), Access::Tokens(Tokens::read(&file).unwrap()), None);
    let with = |token: &str| format!("\r\nAuthorization: Bearer {token}");
    let get = |path: &str, token: &str| {
        let (status, answer) = ask(address, &format!("GET {path} HTTP/1.1{}", with(token)), b"");
        (status, answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
    };
    for chunk in 1..=2 {
        let first = packets(&format!("chunk-00000{chunk}/user/a b/stream_0/1"), 0, b"content");
        assert_eq!(put(address, &first, &with(&writer)), 201);
    }
    let content = digest_of(&[("user/a b/stream_0", b"content")]);
    let commit = segment("chunk-000001/@commit/1", Kind::Commit, 0, content.as_bytes());
    assert_eq!(put(address, &commit, &with(&writer)), 201);
    let of = |chunk: u32, from: u32| {
        format!("/v1/robot/boot/night/chunk-00000{chunk}/user/a%20b/stream_0?from={from}")
    };
    assert_eq!(get(&of(1, 0), &reader), (200, "content".into()));
    assert_eq!(get(&of(1, 3), &reader), (200, "tent".into()));
    assert_eq!(get(&of(1, 99), &reader), (200, String::new()));
    assert_eq!(get(&of(2, 0), &reader).0, 403, "it goes on");
    assert_eq!(get(&of(2, 0), &live), (200, "content".into()));
    assert_eq!(get(&of(1, 0), &live).0, 403);
    assert_eq!(get(&of(1, 0), &writer).0, 403, "a sender need not read");
    assert_eq!(get(&of(1, 0), &other).0, 403);
    assert_eq!(get(&of(1, 0), "guess").0, 401);
    assert_eq!(get(&of(3, 0), &live).0, 404);
    let chunks = r#"{"chunks":{"chunk-000001":"committed","chunk-000002":null}}"#;
    assert_eq!(get("/v1/robot/boot/night", &reader), (200, chunks.into()));
    assert_eq!(get("/v1?sessions=1", &reader), (200, r#"{"sessions":["robot/boot/night"]}"#.into()));
    assert_eq!(get("/v1?sessions=1", &other).0, 403);
}
