//! Pages over HTTP, for Prometheus and others: `GET`, and nothing else. Whoever asks may be anybody.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

/// Longest head of a request that is read.
const LONGEST_HEAD: usize = 8192;
/// How long one who asks may take for asking and listening.
const PATIENCE: Duration = Duration::from_secs(2);

/// What pages for Prometheus are, to those who read them.
pub const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// What other pages are.
pub const JSON: &str = "application/json";
/// What is said of what went wrong.
const TEXT: &str = "text/plain; charset=utf-8";

/// What is answered.
#[derive(Clone, Debug)]
pub struct Page {
    /// What it is: [`METRICS`] or [`JSON`].
    pub kind: &'static str,
    /// All of it.
    pub body: String,
}

/// Answers one request and closes the connection; `page` makes what is asked for, if there is such a page, or says what is wrong
/// with the question.
///
/// # Errors
/// If who asked has gone or is too slow.
pub fn answer(
    mut connection: TcpStream,
    page: impl FnOnce(&Request<'_>) -> Result<Option<Page>, String>,
) -> io::Result<()> {
    connection.set_nonblocking(false)?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let head = read_head(&mut connection)?;
    let text = |body: String| Page { kind: TEXT, body };
    let (status, page) = match parse(&head).map(|request| page(&request)) {
        Some(Ok(Some(page))) => ("200 OK", page),
        Some(Ok(None)) => ("404 Not Found", text("expected /metrics or /api/report\n".into())),
        Some(Err(wrong)) => ("400 Bad Request", text(format!("{wrong}\n"))),
        None => ("400 Bad Request", text("expected GET /metrics HTTP/1.1\n".into())),
    };
    let Page { kind, body } = page;
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    connection.write_all(head.as_bytes())?;
    connection.write_all(body.as_bytes())
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Which page.
    pub path: &'a str,
    query: &'a str,
}

impl<'a> Request<'a> {
    /// What stands behind a name and `=` in the part after the question mark; as it was sent.
    pub fn value(&self, name: &str) -> Option<&'a str> {
        self.query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

/// The first line of a request.
fn parse(head: &[u8]) -> Option<Request<'_>> {
    let text = std::str::from_utf8(head).ok()?;
    let mut words = text.lines().next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_whole = words.next().is_none() && matches!(version, "HTTP/1.0" | "HTTP/1.1");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    (is_whole && method == "GET").then_some(Request { path, query })
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
        let _ = answer(listener.accept().unwrap().0, |request| match (request.path, request.value("x")) {
            ("/metrics", Some("0")) => Err("expected another x".into()),
            ("/metrics", x) => Ok(Some(Page { kind: METRICS, body: format!("the page{}", x.unwrap_or("")) })),
            _ => Ok(None),
        });
        asking.join().unwrap()
    }

    #[test]
    fn the_page_is_told_and_nothing_else() {
        let page = asked(b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\nthe page1"), "{page}");
        for (request, status) in [
            (&b"GET /etc/passwd HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /metrics?y=1&x=0 HTTP/1.1\r\n\r\n", "400"),
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
