//! A page for Prometheus over HTTP: `GET /metrics`, and nothing else. Whoever asks may be anybody.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

/// Longest head of a request that is read.
const LONGEST_HEAD: usize = 8192;
/// How long one who asks may take for asking and listening.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the page is, to those who read it.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers one request and closes the connection; `page` is made if it is asked for.
///
/// # Errors
/// If who asked has gone or is too slow.
pub fn answer(mut connection: TcpStream, page: impl FnOnce() -> String) -> io::Result<()> {
    connection.set_nonblocking(false)?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let head = read_head(&mut connection)?;
    let (status, body) = match parse(&head) {
        Some(Request { path: "/metrics", .. }) => ("200 OK", page()),
        Some(Request { path: "/", .. }) => ("200 OK", "what was counted is at /metrics\n".into()),
        Some(_) => ("404 Not Found", "expected /metrics\n".into()),
        None => ("400 Bad Request", "expected GET /metrics HTTP/1.1\n".into()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    connection.write_all(head.as_bytes())?;
    connection.write_all(body.as_bytes())
}

struct Request<'a> {
    path: &'a str,
}

/// The first line of a request, without what stands behind a question mark.
fn parse(head: &[u8]) -> Option<Request<'_>> {
    let text = std::str::from_utf8(head).ok()?;
    let mut words = text.lines().next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_whole = words.next().is_none() && matches!(version, "HTTP/1.0" | "HTTP/1.1");
    (is_whole && method == "GET").then(|| Request { path: target.split('?').next().unwrap_or_default() })
}

/// Reads up to the empty line behind the head.
fn read_head(connection: &mut TcpStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while head.len() < LONGEST_HEAD && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        connection.set_read_timeout(Some(rest))?;
        match connection.read(&mut bytes)? {
            0 => break,
            count => head.extend(bytes.iter().take(count)),
        }
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What a request gets.
    fn asked(request: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let request = request.to_vec();
        let asking = std::thread::spawn(move || {
            let mut connection = TcpStream::connect(address).unwrap();
            // The answer may come, and the connection be closed, before all is said.
            let _ = connection.write_all(&request);
            let _ = connection.shutdown(std::net::Shutdown::Write);
            let mut text = String::new();
            connection.read_to_string(&mut text).map(|_| text).unwrap_or_default()
        });
        let _ = answer(listener.accept().unwrap().0, || "the page".into());
        asking.join().unwrap()
    }

    #[test]
    fn the_page_is_told_and_nothing_else() {
        let page = asked(b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\nthe page"), "{page}");
        for (request, status) in [
            (&b"GET /etc/passwd HTTP/1.1\r\n\r\n"[..], "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "400"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"\xff\xfe\r\n\r\n", "400"),
            (b"", "400"),
        ] {
            assert!(asked(request).starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}");
        }
        assert!(asked(&vec![b'x'; 2 * LONGEST_HEAD]).len() < 200);
    }
}
