//! Requests and answers, as bytes and as values. Requests are hostile bytes: every length has a
//! limit.

use std::io::{self, BufWriter, Read, Write};

use crate::{Peer, slots::Bodies};

/// Maximum length of a request's head in bytes.
const MAX_HEAD: usize = 16 << 10;
/// Maximum number of headers.
const MAX_HEADERS: usize = 64;

/// Request of a peer.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET`, `POST`…
    pub method: String,
    /// The path, decoded.
    pub path: String,
    /// Parameters behind `?`, decoded.
    pub query: Query,
    /// Names in small letters, and values.
    headers: Vec<(String, String)>,
    /// Whether connections stay where nothing is said.
    is_of_http_1_1: bool,
    /// Bytes that were sent with it.
    pub body: Vec<u8>,
    /// Peer at the other end of the connection.
    pub peer: Peer,
}

impl Request {
    /// Returns a header by its name in small letters, the first of several.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns all headers of a name, which is in small letters.
    pub fn headers<'r>(&'r self, name: &'r str) -> impl Iterator<Item = &'r str> {
        self.headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Says whether the peer has more to ask for.
    pub(crate) fn is_kept_alive(&self) -> bool {
        self.is_of_http_1_1
            && self.header("connection").is_none_or(|value| !value.eq_ignore_ascii_case("close"))
    }
}

/// Parameters of a request.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a text `a=1&b=2`.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(a, b)| (decode(a), decode(b)))
                .collect(),
        )
    }

    /// The text of a parameter.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter.
    pub fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// `%41+b` as `A b`.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let hex = |byte: u8| char::from(byte).to_digit(16);
        match (byte, behind) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, behind @ ..]) => match hex(*high).zip(hex(*low)) {
                Some((high, low)) => {
                    bytes.push((high * 16 + low) as u8);
                    rest = behind;
                }
                None => bytes.push(byte),
            },
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Answer to a request.
#[derive(Debug)]
pub struct Response {
    /// Its number.
    pub status: u16,
    /// Media type of the body.
    pub content_type: &'static str,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Body,
}

/// Body of an answer.
#[derive(Debug)]
pub enum Body {
    /// Bytes.
    Bytes(Vec<u8>),
    /// So many bytes of a file.
    File(std::fs::File, u64),
}

impl Body {
    /// Returns its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, length) => *length,
        }
    }
}

impl Response {
    /// An answer with a body.
    pub fn new(status: u16, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type, headers: Vec::new(), body: Body::Bytes(body.into()) }
    }

    /// One line that says what is wrong.
    pub fn error(status: u16, line: &str) -> Self {
        let body = serde_json::json!({ "error": line.lines().next().unwrap_or_default() }).to_string();
        Self::new(status, "application/json", body)
    }

    /// Writes all of it, or its head alone.
    pub(crate) fn write(self, stream: &mut dyn Write, keep_alive: bool, with_body: bool) -> io::Result<()> {
        let reason = match self.status {
            200 => "OK",
            201 => "Created",
            204 => "No Content",
            303 => "See Other",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            409 => "Conflict",
            410 => "Gone",
            412 => "Precondition Failed",
            413 => "Content Too Large",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            507 => "Insufficient Storage",
            _ => "Internal Server Error",
        };
        let length = self.body.len();
        let mut stream = BufWriter::with_capacity(64 << 10, stream);
        write!(
            stream,
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {length}\r\nConnection: {}\r\n",
            self.status,
            self.content_type,
            if keep_alive { "keep-alive" } else { "close" }
        )?;
        for (name, value) in &self.headers {
            write!(stream, "{name}: {value}\r\n")?;
        }
        stream.write_all(b"\r\n")?;
        match self.body {
            _ if !with_body => {}
            Body::Bytes(bytes) => stream.write_all(&bytes)?,
            Body::File(file, length) => {
                let copied = io::copy(&mut file.take(length), &mut stream)?;
                if copied < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        stream.flush()
    }
}

/// Reason why there is no request.
pub(crate) enum Refusal {
    /// The connection ended, or the request's time is over.
    Over,
    /// The request is answered with this at once, since it is invalid.
    Answer(Response),
}

impl From<io::Error> for Refusal {
    fn from(_: io::Error) -> Self {
        Self::Over
    }
}

/// Connection from which requests are read.
pub(crate) trait Input: Read {
    /// Gives the request the time that a body of this length needs.
    fn expect(&mut self, body: usize);
}

/// Check of a request by its head.
pub(crate) type Check<'a> = &'a dyn Fn(&Request) -> Result<(), Response>;

/// Manner in which a connection's requests are read.
pub(crate) struct Reading<'a> {
    pub(crate) max_body: usize,
    pub(crate) peer: Peer,
    pub(crate) gate: Option<Check<'a>>,
}

/// Reads a request; `pending` has what came behind the one before.
pub(crate) fn read(
    stream: &mut dyn Input,
    pending: &mut Vec<u8>,
    manner: &Reading<'_>,
    memory: &mut Bodies,
) -> Result<Request, Refusal> {
    let max_body = manner.max_body;
    let wrong = |status, line: &str| Refusal::Answer(Response::error(status, line));
    let (mut request, head) = loop {
        if let Some(parsed) = parse(pending)? {
            break parsed;
        }
        if pending.len() >= MAX_HEAD {
            return Err(wrong(431, "expected a request of at most 16384 bytes, found a longer one"));
        }
        read_more(&mut *stream, pending)?;
    };
    if request.header("transfer-encoding").is_some() {
        return Err(wrong(400, "expected a body with its length, found one in chunks"));
    }
    let length = content_length(&request)?;
    if length > max_body {
        return Err(wrong(413, &format!("expected a body of at most {max_body} bytes, found a longer one")));
    }
    request.peer = manner.peer;
    // A peer without rights is refused before its body is read.
    if let Some(gate) = manner.gate {
        gate(&request).map_err(Refusal::Answer)?;
    }
    if !memory.take(length) {
        return Err(wrong(503, "expected fewer large requests at one time: try again later"));
    }
    stream.expect(length);
    let behind = head.saturating_add(length).min(pending.len());
    let mut body = Vec::with_capacity(length);
    body.extend_from_slice(pending.get(head..behind).unwrap_or_default());
    pending.drain(..behind);
    while body.len() < length {
        let mut piece = [0; 8192];
        let most = (length - body.len()).min(piece.len());
        let count = stream.read(&mut piece[..most])?;
        if count == 0 {
            return Err(Refusal::Over);
        }
        body.extend_from_slice(&piece[..count]);
    }
    request.body = body;
    Ok(request)
}

/// Length of the body. Two lengths, or one that isn't a plain number, could be read in another way
/// by a proxy in between.
fn content_length(request: &Request) -> Result<usize, Refusal> {
    let wrong = || Refusal::Answer(Response::error(400, "expected one plain number as Content-Length"));
    let mut lengths = request.headers("content-length");
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(0),
        (Some(length), None) if !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()) => {
            length.parse().map_err(|_| wrong())
        }
        _ => Err(wrong()),
    }
}

/// Reads the bytes that come next.
pub(crate) fn read_more(stream: &mut (impl Input + ?Sized), pending: &mut Vec<u8>) -> Result<(), Refusal> {
    let mut bytes = [0; 8192];
    let count = stream.read(&mut bytes)?;
    if count == 0 {
        return Err(Refusal::Over);
    }
    pending.extend_from_slice(bytes.get(..count).unwrap_or_default());
    Ok(())
}

/// The head of a request and its length; nothing if it is not whole yet.
fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(Refusal::Answer(Response::error(400, &format!("expected HTTP: {error}")))),
    };
    let target = parsed.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |header: &httparse::Header<'_>| {
        (header.name.to_ascii_lowercase(), String::from_utf8_lossy(header.value).into_owned())
    };
    let request = Request {
        method: parsed.method.unwrap_or_default().into(),
        path: decode(path),
        query: Query::parse(query),
        headers: parsed.headers.iter().map(header).collect(),
        is_of_http_1_1: parsed.version == Some(1),
        body: Vec::new(),
        peer: Peer::Unknown,
    };
    Ok(Some((request, length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_BODY;

    impl Input for &[u8] {
        fn expect(&mut self, _: usize) {}
    }

    const READING: Reading<'static> = Reading { max_body: MAX_BODY, peer: Peer::Unknown, gate: None };

    #[test]
    fn requests_come_whole_or_in_pieces() {
        let text = b"POST /api/notes?a=%41+b&c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n";
        let mut pending = Vec::new();
        let mut input = &text[..];
        let mut memory = Bodies::new(1 << 20);
        let mut read = |input: &mut &[u8]| read(input, &mut pending, &READING, &mut memory);
        let Ok(first) = read(&mut input) else { panic!("a request") };
        assert_eq!((first.method.as_str(), first.path.as_str()), ("POST", "/api/notes"));
        assert_eq!(first.query.text("a"), Some("A b"));
        assert_eq!(first.query.text("c"), Some(""));
        assert_eq!(first.body, b"abc");
        let Ok(second) = read(&mut input) else { panic!("another one") };
        assert_eq!(second.path, "/");
        assert!(matches!(read(&mut input), Err(Refusal::Over)));
    }

    #[test]
    fn bodies_beyond_the_memory_are_refused_until_others_are_gone() {
        let mut memory = Bodies::new(100_000);
        let text = |length: usize| {
            format!("PUT / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length))
        };
        let try_one = |memory: &mut Bodies, length| match read(
            &mut text(length).as_bytes(),
            &mut Vec::new(),
            &READING,
            memory,
        ) {
            Ok(request) => request.body.len(),
            Err(Refusal::Answer(response)) => response.status.into(),
            Err(Refusal::Over) => 0,
        };
        let mut other = memory.another();
        assert_eq!(try_one(&mut memory, 90_000), 90_000);
        assert_eq!(try_one(&mut other, 90_000), 503);
        assert_eq!(try_one(&mut other, 10), 10, "small ones always have room");
        drop(memory);
        assert_eq!(try_one(&mut other, 90_000), 90_000);
    }

    #[test]
    fn one_peer_has_a_part_of_the_memory() {
        let mut first = Bodies::new(100_000).with_max_per_peer(50_000);
        let mut second = first.another();
        assert!(first.take(40_000) && !second.take(40_000), "both are of one peer");
        let mut other = first.of_peer(Peer::OtherUser(7));
        assert!(other.take(50_000) && !other.take(20_000));
        drop(first);
        assert!(second.take(40_000));
    }

    #[test]
    fn a_peer_without_rights_is_refused_before_its_body_is_read() {
        let gate = |_: &Request| Err(Response::error(403, "no right"));
        let reading = Reading { gate: Some(&gate), ..READING };
        // Its body never comes.
        let mut input = &b"PUT / HTTP/1.1\r\nContent-Length: 900000\r\n\r\n"[..];
        let mut memory = Bodies::new(1 << 20);
        match read(&mut input, &mut Vec::new(), &reading, &mut memory) {
            Err(Refusal::Answer(response)) => assert_eq!(response.status, 403),
            _ => panic!("expected 403"),
        }
        assert!(memory.take(1 << 20), "no memory was taken");
    }

    #[test]
    fn what_is_too_long_or_no_request_is_refused() {
        let long = [&b"GET /"[..], &[b'a'; 20_000]].concat();
        let body = b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n".to_vec();
        let chunks = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        let lengths = |lines: &str| format!("POST / HTTP/1.1\r\n{lines}\r\n\r\nabcdef").into_bytes();
        for (bytes, status) in [
            (long, 431),
            (body, 413),
            (chunks, 400),
            (b"\0\0\r\n\r\n".to_vec(), 400),
            (lengths("Content-Length: +5"), 400),
            (lengths("Content-Length: 5\r\nContent-Length: 6"), 400),
            (lengths("Content-Length: 5\r\nContent-Length: 5"), 400),
            (lengths("Content-Length: 5, 5"), 400),
            (lengths("Content-Length: 99999999999999999999999"), 400),
            (lengths("Content-Length:"), 400),
        ] {
            match read(&mut &bytes[..], &mut Vec::new(), &READING, &mut Bodies::new(1 << 20)) {
                Err(Refusal::Answer(response)) => assert_eq!(response.status, status),
                _ => panic!("expected {status}"),
            }
        }
    }
}
