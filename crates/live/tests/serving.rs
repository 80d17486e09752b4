//! The server under readers that are wrong, silent, or many.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use tompion_live::LiveServer;
use tompion_testing::{Random, TestDir, rounds, seed, wait_until};

fn serve(dir: &TestDir) -> SocketAddr {
    let server = LiveServer::bind("127.0.0.1:0".parse().unwrap(), vec![dir.path().to_owned()], false);
    let server = server.unwrap();
    let address = server.address().unwrap();
    thread::spawn(move || server.run());
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Sends a command, and reads so many bytes of its answer; fewer if the connection ends.
fn ask(stream: &mut TcpStream, command: u32, body: &[u8], length: usize) -> Vec<u8> {
    let mut request = (body.len() as u64).to_be_bytes().to_vec();
    request.extend_from_slice(&command.to_be_bytes());
    request.extend_from_slice(&[0; 4]);
    request.extend_from_slice(body);
    let mut answer = vec![0; length];
    match stream.write_all(&request).and_then(|()| stream.read_exact(&mut answer)) {
        Ok(()) => answer,
        Err(_) => Vec::new(),
    }
}

/// Body of a connect by a version.
fn version(major: u8) -> [u8; 20] {
    let mut body = [0; 20];
    (body[11], body[15], body[19]) = (major, 4, 1);
    body
}

fn is_served(address: SocketAddr) -> bool {
    ask(&mut connect(address), 1, &version(2), 20).len() == 20
}

#[test]
fn given_a_session_or_stream_that_is_not_there_then_the_answer_says_so() {
    let dir = TestDir::new("live");
    let mut stream = connect(serve(&dir));
    assert_eq!(ask(&mut stream, 1, &version(2), 20)[11], 2);
    assert_eq!(ask(&mut stream, 2, &[], 4), [0, 0, 0, 0], "no session");
    assert_eq!(ask(&mut stream, 8, &[], 4), [0, 0, 0, 1]);
    let seven = 7_u64.to_be_bytes();
    assert_eq!(ask(&mut stream, 3, &[&seven[..], &[0; 12]].concat(), 8)[..4], [0, 0, 0, 3]);
    assert_eq!(ask(&mut stream, 4, &seven, 64)[56..60], [0, 0, 0, 4]);
    assert_eq!(ask(&mut stream, 5, &[&seven[..], &[0xff; 12]].concat(), 12)[..4], [0, 0, 0, 3]);
    assert_eq!(ask(&mut stream, 6, &seven, 12)[8..], [0, 0, 0, 3]);
    assert_eq!(ask(&mut stream, 9, &seven, 4), [0, 0, 0, 2]);
}

#[test]
fn given_garbage_then_the_connection_ends_and_others_are_served() {
    let dir = TestDir::new("garbage");
    let address = serve(&dir);
    assert!(ask(&mut connect(address), 1, &version(3), 20).is_empty(), "another version");
    assert!(ask(&mut connect(address), 77, &[], 4).is_empty(), "another command");
    assert!(ask(&mut connect(address), 2, &[0; 65], 4).is_empty(), "too long");
    let mut random = Random(seed());
    for _ in 0..rounds(200, 20_000) {
        let bytes: Vec<u8> = (0..random.index(60)).map(|_| random.below(256) as u8).collect();
        let mut stream = connect(address);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    wait_until("room", || is_served(address));
}

#[test]
fn given_very_many_readers_then_there_are_64_until_some_end() {
    let dir = TestDir::new("many");
    let address = serve(&dir);
    let mut readers: Vec<TcpStream> = (0..64).map(|_| connect(address)).collect();
    for reader in &mut readers {
        assert_eq!(ask(reader, 1, &version(2), 20).len(), 20);
    }
    assert!(!is_served(address));
    readers.truncate(60);
    wait_until("room for others", || is_served(address));
    assert_eq!(ask(&mut readers[0], 2, &[], 4).len(), 4, "those that are there stay");
}
