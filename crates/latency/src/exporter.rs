//! HTTP pages for Prometheus and other programs: `GET` and `HEAD` only. Clients are untrusted.

use std::{net::IpAddr, time::Duration};

use tompion_http::{Limits, Request, Response};

/// Limits of a client: two seconds for the request, two for the response, one request per
/// connection.
pub const LIMITS: Limits = Limits {
    max_connections: 64,
    max_per_peer: 16,
    request_timeout: Duration::from_secs(2),
    idle_timeout: None,
    answer_timeout: Duration::from_secs(2),
    min_bytes_per_second: None,
    min_body_bytes_per_second: None,
    max_body: tompion_http::MAX_BODY,
    max_bodies: tompion_http::MAX_BODIES,
    max_bodies_per_peer: tompion_http::MAX_BODIES,
};

/// Content type of pages for Prometheus.
pub const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Content type of JSON pages.
pub const JSON: &str = "application/json";
/// Content type of error messages.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// List of all pages.
pub const PAGES: &str = "/metrics and /api/report; with --history also /api/history and /api/maxima";

/// Response to a request.
#[derive(Clone, Debug)]
pub struct Page {
    /// Content type: [`METRICS`], [`JSON`] or [`TEXT`].
    pub kind: &'static str,
    /// Content of the page.
    pub body: String,
}

/// Host names under which the server may be asked. A foreign web page can make a browser send
/// requests here under its own host name ("DNS rebinding") and read the answers, but not under an
/// address or one of these names.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<String>);

impl Names {
    /// Allows the given names and those of the machine.
    pub fn new(given: &[String]) -> Self {
        let own = tompion_os::host_name().into_iter().chain(["localhost".to_owned()]);
        let given = given.iter().filter(|name| !name.is_empty()).cloned();
        Self(given.chain(own).collect())
    }

    /// Returns whether the `Host` of a request is an allowed name or an address.
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

/// Answers a request. `page` makes the requested page, returns none if it doesn't exist, or an
/// error message for the client.
pub fn respond(
    request: &Request,
    names: &Names,
    page: impl FnOnce(&Request) -> Result<Option<Page>, String>,
) -> Response {
    let text = |status, line: String| Response::new(status, TEXT, line);
    let mut hosts = request.headers("host");
    let host = hosts.next();
    if !matches!(request.method.as_str(), "GET" | "HEAD") || hosts.next().is_some() {
        return text(400, "expected GET /metrics HTTP/1.1\n".into());
    }
    if let Some(stranger) = host.filter(|host| !names.has(host)) {
        let stranger: String = stranger.chars().filter(|it| !it.is_control()).collect();
        let line = format!(
            "expected a number or a known name of this machine, found {stranger}; --host makes it known\n"
        );
        return text(403, line);
    }
    match page(request) {
        Ok(Some(Page { kind, body })) => Response::new(200, kind, body),
        Ok(None) => text(404, format!("expected one of {PAGES}\n")),
        Err(wrong) => text(400, format!("{wrong}\n")),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{SocketAddr, TcpStream},
        sync::Arc,
        thread,
        time::Instant,
    };

    use tompion_http::{Answer, Server};

    use super::*;

    /// Address of a server that runs until the program ends.
    fn serve(page: fn(&Request) -> Result<Option<Page>, String>) -> SocketAddr {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), LIMITS).unwrap();
        let address = server.address();
        let names = Names(vec!["robot.example".into(), "localhost".into()]);
        let answer: Answer = Arc::new(move |request| respond(request, &names, page));
        thread::spawn(move || server.run(&answer));
        address
    }

    /// Response to a request.
    fn asked(request: &[u8]) -> String {
        let address = serve(|request| match (request.path.as_str(), request.query.text("x")) {
            ("/metrics", Some("0")) => Err("expected another x".into()),
            ("/metrics", x) => Ok(Some(Page { kind: METRICS, body: format!("the page{}", x.unwrap_or("")) })),
            _ => Ok(None),
        });
        let mut connection = TcpStream::connect(address).unwrap();
        // The server may answer and close the connection before everything is sent.
        let _ = connection.write_all(request);
        let _ = connection.shutdown(std::net::Shutdown::Write);
        let mut text = String::new();
        connection.read_to_string(&mut text).map(|_| text).unwrap_or_default()
    }

    #[test]
    fn only_the_page_is_served() {
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
        ] {
            assert!(asked(request).starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}");
        }
        assert!(asked(&vec![b'x'; 20_000]).len() < 200);
        let unknown = asked(b"GET /metric HTTP/1.1\r\n\r\n");
        for page in ["/metrics", "/api/report", "/api/history", "/api/maxima"] {
            assert!(unknown.contains(page), "{page}: {unknown}");
        }
    }

    #[test]
    fn given_a_foreign_name_then_nothing_is_answered() {
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
        let own = tompion_os::host_name().unwrap();
        let names = Names::new(&["given.example".into()]);
        assert!(names.has(&own) && names.has("given.example:9464") && names.has("LOCALHOST"));
        assert!(!names.has("another.example"));
    }

    #[test]
    fn given_one_who_reads_a_little_at_a_time_then_the_connection_ends() {
        const SIZE: usize = 64 << 20;
        let address = serve(|_| Ok(Some(Page { kind: METRICS, body: "x".repeat(SIZE) })));
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut bytes = vec![0; 32 << 10];
        let (mut count, begun) = (0, Instant::now());
        // Reads often enough that no write blocks for too long.
        let is_ended = loop {
            match connection.read(&mut bytes) {
                Ok(0) | Err(_) => break true,
                Ok(_) if begun.elapsed() > Duration::from_secs(60) => break false,
                Ok(more) => count += more,
            }
            thread::sleep(Duration::from_millis(20));
        };
        assert!(is_ended && count < SIZE, "{count}");
    }
}
