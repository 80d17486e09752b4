//! Pages over HTTP, for Prometheus and others: `GET` and `HEAD`, and nothing else. Whoever asks may be anybody.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{IpAddr, TcpStream},
    time::{Duration, Instant},
};

/// Longest head of a request that is read.
const LONGEST_HEAD: usize = 8192;
/// How long one who asks may take for asking, and again for listening.
const PATIENCE: Duration = Duration::from_secs(2);

/// What pages for Prometheus are, to those who read them.
pub const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// What other pages are.
pub const JSON: &str = "application/json";
/// What is said in words.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// Which pages there are.
pub const PAGES: &str = "/metrics and /api/report; with --history also /api/history and /api/maxima";

/// What is answered.
#[derive(Clone, Debug)]
pub struct Page {
    /// What it is: [`METRICS`], [`JSON`] or [`TEXT`].
    pub kind: &'static str,
    /// All of it.
    pub body: String,
}

/// The names by which a server may be asked. A page of anybody's can make a browser ask here by a name of its own that leads to this
/// machine ("DNS rebinding"), and would read the answer; it can do so by no number and by none of these names.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<String>);

impl Names {
    /// Those that were given, and what the machine calls itself.
    pub fn new(given: &[String]) -> Self {
        // Source: `proc_sys_kernel(5)`.
        let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let all = given.iter().map(String::as_str).chain([own.trim(), "localhost"]);
        Self(all.filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// Whether what a request has for its `Host` is one of them, or a number.
    fn has(&self, host: &str) -> bool {
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let name = match host.rsplit_once(':') {
            Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => name,
            _ => host,
        };
        let number = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let name = name.strip_suffix('.').unwrap_or(name);
        number.parse::<IpAddr>().is_ok() || self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Answers one request and closes the connection; `page` makes what is asked for, if there is such a page, or says what is wrong
/// with the question.
///
/// # Errors
/// If who asked has gone or is too slow.
pub fn answer(
    mut connection: TcpStream,
    names: &Names,
    page: impl FnOnce(&Request<'_>) -> Result<Option<Page>, String>,
) -> io::Result<()> {
    connection.set_nonblocking(false)?;
    let head = read_head(&mut connection)?;
    let asked = parse(&head);
    let text = |body: String| Page { kind: TEXT, body };
    let stranger = asked.as_ref().and_then(|asked| asked.host.filter(|host| !names.has(host)));
    let (status, page) = match asked.as_ref().map(|asked| &asked.request) {
        None => ("400 Bad Request", text("expected GET /metrics HTTP/1.1\n".into())),
        Some(_) if stranger.is_some() => {
            let host: String = stranger.unwrap_or_default().chars().filter(|it| !it.is_control()).collect();
            let line = format!(
                "expected a number or a known name of this machine, found {host}; --host makes it known\n"
            );
            ("403 Forbidden", text(line))
        }
        Some(request) => match page(request) {
            Ok(Some(page)) => ("200 OK", page),
            Ok(None) => ("404 Not Found", text(format!("expected one of {PAGES}\n"))),
            Err(wrong) => ("400 Bad Request", text(format!("{wrong}\n"))),
        },
    };
    let Page { kind, body } = page;
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let wants_body = asked.is_none_or(|asked| !asked.is_about_head);
    let until = Instant::now() + PATIENCE;
    write_until(&mut connection, head.as_bytes(), until)?;
    if wants_body { write_until(&mut connection, body.as_bytes(), until) } else { Ok(()) }
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

/// A request, by whom it believes to ask, and whether it wants to know about the answer alone.
#[derive(Debug)]
struct Asked<'a> {
    request: Request<'a>,
    /// Browsers always say this.
    host: Option<&'a str>,
    is_about_head: bool,
}

/// The first line of a request, and its `Host`.
fn parse(head: &[u8]) -> Option<Asked<'_>> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.lines();
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_whole = words.next().is_none() && matches!(version, "HTTP/1.0" | "HTTP/1.1");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let fields = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    let mut hosts = fields.filter(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, host)| host.trim());
    let host = hosts.next();
    let is_known = matches!(method, "GET" | "HEAD") && hosts.next().is_none();
    let request = Request { path, query };
    (is_whole && is_known).then_some(Asked { request, host, is_about_head: method == "HEAD" })
}

/// What is left of the time until then; an error if nothing is.
fn left(until: Instant) -> io::Result<Duration> {
    let rest = until.saturating_duration_since(Instant::now());
    if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(rest) }
}

/// Reads up to the empty line behind the head.
fn read_head(connection: &mut TcpStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while head.len() < LONGEST_HEAD && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        connection.set_read_timeout(Some(left(until)?))?;
        match connection.read(&mut bytes)? {
            0 => break,
            count => head.extend(bytes.iter().take(count)),
        }
    }
    Ok(head)
}

/// Writes all of it by then: who reads a little at a time must not keep others waiting for as long as that takes.
fn write_until(connection: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        connection.set_write_timeout(Some(left(until)?))?;
        match connection.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = bytes.get(count..).unwrap_or_default(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    /// Has somebody ask, and answers; what both found.
    fn meet<T: Send + 'static>(
        ask: impl FnOnce(TcpStream) -> T + Send + 'static,
        page: impl FnOnce(&Request<'_>) -> Result<Option<Page>, String>,
    ) -> (T, io::Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asking = thread::spawn(move || ask(TcpStream::connect(address).unwrap()));
        let names = Names(vec!["robot.example".into(), "localhost".into()]);
        let answered = answer(listener.accept().unwrap().0, &names, page);
        (asking.join().unwrap(), answered)
    }

    /// What a request gets.
    fn asked(request: &[u8]) -> String {
        let request = request.to_vec();
        let ask = move |mut connection: TcpStream| {
            // The answer may come, and the connection be closed, before all is said.
            let _ = connection.write_all(&request);
            let _ = connection.shutdown(std::net::Shutdown::Write);
            let mut text = String::new();
            connection.read_to_string(&mut text).map(|_| text).unwrap_or_default()
        };
        let page = |request: &Request<'_>| match (request.path, request.value("x")) {
            ("/metrics", Some("0")) => Err("expected another x".into()),
            ("/metrics", x) => Ok(Some(Page { kind: METRICS, body: format!("the page{}", x.unwrap_or("")) })),
            _ => Ok(None),
        };
        meet(ask, page).0
    }

    #[test]
    fn the_page_is_told_and_nothing_else() {
        let page = asked(b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\nthe page1"), "{page}");
        let head = asked(b"HEAD /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(head, page.strip_suffix("the page1").unwrap());
        for (request, status) in [
            (&b"GET /etc/passwd HTTP/1.1\r\n\r\n"[..], "404"),
            (b"HEAD /etc/passwd HTTP/1.1\r\n\r\n", "404"),
            (b"GET /metrics?y=1&x=0 HTTP/1.1\r\n\r\n", "400"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "400"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", "400"),
            (b"\xff\xfe\r\n\r\n", "400"),
            (b"", "400"),
        ] {
            assert!(asked(request).starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}");
        }
        assert!(asked(&vec![b'x'; 2 * LONGEST_HEAD]).len() < 200);
        let unknown = asked(b"GET /metric HTTP/1.1\r\n\r\n");
        for page in ["/metrics", "/api/report", "/api/history", "/api/maxima"] {
            assert!(unknown.contains(page), "{page}: {unknown}");
        }
    }

    #[test]
    fn given_a_name_of_somebody_elses_then_nothing_is_told() {
        let by = |host: &str| asked(format!("GET /metrics HTTP/1.1\r\nhOST: {host}\r\n\r\n").as_bytes());
        for own in
            ["localhost", "127.0.0.1:9464", "[::1]:9464", "10.1.2.3", "Robot.example:80", "robot.example."]
        {
            assert!(by(own).starts_with("HTTP/1.1 200 "), "{own}");
        }
        for other in
            ["evil.example", "localhost.evil.example:9464", "10.1.2.3.evil.example", "robot", "", "::1:x"]
        {
            let page = by(other);
            assert!(page.starts_with("HTTP/1.1 403 ") && !page.contains("the page"), "{other}: {page}");
            assert!(page.contains(&format!("found {other}; --host makes it known")), "{page}");
        }
    }

    #[test]
    fn given_the_machines_own_name_then_it_is_known() {
        let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let names = Names::new(&["given.example".into()]);
        assert!(names.has(own.trim()) && names.has("given.example:9464") && names.has("LOCALHOST"));
        assert!(!names.has("another.example"));
    }

    #[test]
    fn given_one_who_reads_a_little_at_a_time_then_others_need_not_wait_for_the_end() {
        const SIZE: usize = 64 << 20;
        let ask = |mut connection: TcpStream| {
            connection.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            let mut bytes = vec![0; 32 << 10];
            let (mut count, begun) = (0, Instant::now());
            // Never for so long without reading that one write alone would take too long.
            while begun.elapsed() < Duration::from_secs(60) {
                match connection.read(&mut bytes) {
                    Ok(0) | Err(_) => break,
                    Ok(more) => count += more,
                }
                thread::sleep(Duration::from_millis(20));
            }
            count
        };
        let page = |_: &Request<'_>| Ok(Some(Page { kind: METRICS, body: "x".repeat(SIZE) }));
        let (count, answered) = meet(ask, page);
        let error = answered.expect_err("it was too slow").kind();
        assert!(matches!(error, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
        assert!(count < SIZE, "{count}");
    }
}
