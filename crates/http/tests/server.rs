//! The server under peers that are slow, silent, many or wrong.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tompion_http::{Answer, Limits, Peer, Response, Server};

/// Time after which a test gives up.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// So long that nothing ends by it.
const LIMITS: Limits = Limits {
    max_connections: 8,
    max_per_peer: 2,
    request_timeout: TEST_TIMEOUT,
    idle_timeout: Some(TEST_TIMEOUT),
    answer_timeout: TEST_TIMEOUT,
    min_bytes_per_second: None,
    min_body_bytes_per_second: None,
    max_body: tompion_http::MAX_BODY,
    max_bodies: tompion_http::MAX_BODIES,
    max_bodies_per_peer: tompion_http::MAX_BODIES,
};

/// Serves the path of each request, for as long as the program runs.
fn serve(limits: Limits) -> SocketAddr {
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), limits).unwrap();
    let address = server.address();
    let answer: Answer = Arc::new(|request| {
        assert_eq!(request.peer, Peer::OwnUser);
        let status = if request.path == "/secret" { 403 } else { 200 };
        Response::new(status, "text/plain", request.path.as_bytes())
    });
    thread::spawn(move || server.run(&answer));
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

/// All that comes until the connection ends.
fn answer_to(mut stream: TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).map(|_| text).unwrap_or_default()
}

#[test]
fn given_many_silent_connections_of_one_user_then_a_request_is_answered() {
    let address = serve(LIMITS);
    let silent: Vec<TcpStream> = (0..100).map(|_| connect(address)).collect();
    for _ in 0..20 {
        let answer = answer_to(connect(address), "GET /here HTTP/1.1\r\nConnection: close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("/here"), "{answer:?}");
    }
    drop(silent);
}

#[test]
fn given_a_request_that_comes_byte_by_byte_then_its_time_ends() {
    let limits = Limits { request_timeout: Duration::from_millis(500), ..LIMITS };
    let mut slow = connect(serve(limits));
    let begun = Instant::now();
    // Never so slowly that one wait alone would be too long.
    while slow.write_all(b"G").is_ok() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "it is read for ever");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn given_a_second_request_that_comes_byte_by_byte_then_its_time_ends_too() {
    let limits = Limits { request_timeout: Duration::from_millis(500), ..LIMITS };
    let mut slow = connect(serve(limits));
    slow.write_all(b"GET /first HTTP/1.1\r\n\r\n").unwrap();
    let mut bytes = [0; 1024];
    assert!(slow.read(&mut bytes).unwrap() > 0);
    let begun = Instant::now();
    while slow.write_all(b"G").is_ok() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "it is read for ever");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn connections_stay_where_both_want_it() {
    let address = serve(LIMITS);
    let both = "GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\nConnection: close\r\n\r\n";
    let answer = answer_to(connect(address), both);
    assert_eq!(answer.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{answer:?}");
    for (request, end) in [
        ("HEAD /1 HTTP/1.1\r\nConnection: close\r\n\r\n", "\r\n\r\n"),
        ("GET /1 HTTP/1.0\r\n\r\n", "/1"),
        ("GET /secret HTTP/1.1\r\n\r\n", "/secret"),
    ] {
        let answer = answer_to(connect(address), request);
        assert!(answer.contains("Connection: close\r\n") && answer.ends_with(end), "{answer:?}");
    }
    let once = serve(Limits { idle_timeout: None, ..LIMITS });
    assert_eq!(answer_to(connect(once), both).matches("HTTP/1.1 200 OK\r\n").count(), 1);
}

#[test]
fn given_a_body_that_comes_slowly_then_its_length_gives_it_time() {
    let limits =
        Limits { request_timeout: Duration::from_millis(400), min_body_bytes_per_second: Some(10), ..LIMITS };
    let address = serve(limits);
    let mut slow = connect(address);
    slow.write_all(b"PUT /slow HTTP/1.1\r\nConnection: close\r\nContent-Length: 100\r\n\r\n").unwrap();
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(50));
        slow.write_all(b"12345").unwrap();
    }
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("/slow"), "{answer:?}");
    // The head alone has no more time than before.
    let mut slow = connect(address);
    let begun = Instant::now();
    while slow.write_all(b"P").is_ok() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "it is read for ever");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn given_a_request_that_is_refused_by_its_head_then_the_answer_arrives_whatever_still_comes() {
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), LIMITS).unwrap();
    let address = server.address();
    let gate: tompion_http::Gate = Arc::new(|request| match request.path.as_str() {
        "/open" => Ok(()),
        _ => Err(Response::error(401, "expected a token")),
    });
    let answer: Answer = Arc::new(|request| Response::new(200, "text/plain", request.path.as_bytes()));
    thread::spawn(move || server.run_with_gate(&gate, &answer));
    let body = "x".repeat(900_000);
    for (path, status) in [("/open", "200 OK"), ("/closed", "401 Unauthorized")] {
        let head =
            format!("PUT {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        let answer = answer_to(connect(address), &(head + &body));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer:?}");
    }
}
