//! Messages of LTTng's live protocol 2.4, as far as a server that only reads needs them.
//!
//! ```text
//! request   u64 length of what follows, u32 command, u32 version; then the command's own words
//! answer    the command's own words, without a header
//! ```
//!
//! Numbers are big-endian, and nothing is padded. Source: `lttng-viewer-abi.h` of lttng-tools 2.13,
//! read for its layout.

/// Length of a request's header in bytes.
pub const HEADER: usize = 16;
/// Longest body of a request that is taken, in bytes; the longest known one has 20.
pub const MAX_BODY: u64 = 64;
/// Version that is spoken.
pub const MAJOR: u32 = 2;
/// Minor version that is spoken.
pub const MINOR: u32 = 4;

/// Lengths of texts in answers.
const HOST: usize = 64;
const NAME: usize = 255;
const PATH: usize = 4096;

/// Request of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Begin, with the reader's version.
    Connect {
        /// Major version.
        major: u32,
        /// Minor version.
        minor: u32,
        /// Kind of the connection.
        kind: u32,
    },
    /// List of sessions.
    ListSessions,
    /// Attach to a session.
    Attach {
        /// Its id.
        session: u64,
    },
    /// Next packet's place in a stream.
    NextIndex {
        /// The stream's id.
        stream: u64,
    },
    /// Bytes of a packet.
    Packet {
        /// The stream's id.
        stream: u64,
        /// Offset in its file.
        offset: u64,
        /// Number of bytes.
        length: u32,
    },
    /// New part of a description.
    Metadata {
        /// The id of its stream.
        stream: u64,
    },
    /// Streams that are new.
    NewStreams {
        /// The session's id.
        session: u64,
    },
    /// Begin of a viewer's session.
    CreateSession,
    /// Detach from a session.
    Detach {
        /// Its id.
        session: u64,
    },
}

/// Request that is refused, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

/// Reads big-endian numbers one after the other.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
}

/// Length of the body, and the command, of a request's header.
///
/// # Errors
/// If the body is too long.
pub fn parse_header(bytes: &[u8; HEADER]) -> Result<(usize, u32), Refused> {
    let mut words = Words(bytes);
    let (length, command) = (words.u64().unwrap_or(u64::MAX), words.u32().unwrap_or(0));
    if length > MAX_BODY {
        return Err(Refused(format!("expected a request of at most {MAX_BODY} bytes, found {length}")));
    }
    Ok((length as usize, command))
}

/// Parses the body of a command.
///
/// # Errors
/// If the command is not known, or its body has another length.
pub fn parse(command: u32, body: &[u8]) -> Result<Request, Refused> {
    let mut words = Words(body);
    let request = parse_words(command, &mut words);
    match request {
        Some(request) if words.0.is_empty() => Ok(request),
        _ => Err(Refused(format!("expected a known command, found {command} with {} bytes", body.len()))),
    }
}

fn parse_words(command: u32, words: &mut Words<'_>) -> Option<Request> {
    Some(match command {
        1 => {
            words.u64()?;
            Request::Connect { major: words.u32()?, minor: words.u32()?, kind: words.u32()? }
        }
        2 => Request::ListSessions,
        3 => {
            let session = words.u64()?;
            // Where to begin: all is sent from its begin.
            words.take::<12>()?;
            Request::Attach { session }
        }
        4 => Request::NextIndex { stream: words.u64()? },
        5 => Request::Packet { stream: words.u64()?, offset: words.u64()?, length: words.u32()? },
        6 => Request::Metadata { stream: words.u64()? },
        7 => Request::NewStreams { session: words.u64()? },
        8 => Request::CreateSession,
        9 => Request::Detach { session: words.u64()? },
        _ => return None,
    })
}

/// Session in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Id.
    pub id: u64,
    /// Number of streams.
    pub streams: u32,
    /// Name of the host.
    pub host: String,
    /// Name of the session.
    pub name: String,
}

/// Stream of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Id.
    pub id: u64,
    /// Id of its trace.
    pub trace: u64,
    /// Whether it has the trace's description.
    pub is_metadata: bool,
    /// Folder of the trace.
    pub path: String,
    /// Name of its file.
    pub channel: String,
}

/// State of a stream behind the last packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A packet.
    Packet(Index),
    /// Nothing yet: ask again.
    Retry,
    /// The stream has ended.
    Over,
    /// The stream is idle: no later event is older than this time.
    Idle {
        /// The time, in the clock's ticks.
        until: u64,
        /// Id of the stream's class.
        class: u64,
    },
}

/// Place and times of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Offset in the stream.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// Size up to the end of the last event, in bytes.
    pub content: u64,
    /// Begin, in the clock's ticks.
    pub begin: u64,
    /// End, in the clock's ticks.
    pub end: u64,
    /// Number of events that were lost up to its end.
    pub discarded: u64,
    /// Id of the stream's class.
    pub class: u64,
}

/// News beside an answer, as bits in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The description has more.
    pub metadata: bool,
    /// There are more streams.
    pub streams: bool,
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `Connect`, with the minor version that both speak, and the kind of the connection.
    Connected(u32, u32),
    /// To `ListSessions`.
    Sessions(Vec<Session>),
    /// To `CreateSession`.
    Created,
    /// To `Attach`; `None` if there is no such session.
    Attached(Option<Vec<Stream>>),
    /// To `NewStreams`; `None` if nothing more comes.
    NewStreams(Option<Vec<Stream>>),
    /// To `NextIndex`; `None` if there is no such stream.
    Next(Option<Next>, News),
    /// To `Packet`; `None` if it can't be read.
    Packet(Option<Vec<u8>>),
    /// To `Metadata`; empty if there is nothing new, `None` if there is no such stream.
    Metadata(Option<Vec<u8>>),
    /// To `Detach`: whether it was attached.
    Detached(bool),
}

impl Answer {
    /// Encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Connected(minor, kind) => {
                put64(&mut out, 1);
                [MAJOR, *minor, *kind].iter().for_each(|word| put32(&mut out, *word));
            }
            Self::Sessions(sessions) => {
                put32(&mut out, sessions.len() as u32);
                for session in sessions {
                    put64(&mut out, session.id);
                    // Its timer in microseconds, and the number of readers.
                    [1_000_000, 0, session.streams].iter().for_each(|word| put32(&mut out, *word));
                    put_text(&mut out, &session.host, HOST);
                    put_text(&mut out, &session.name, NAME);
                }
            }
            Self::Created => put32(&mut out, 1),
            Self::Attached(None) => [3, 0].iter().for_each(|word| put32(&mut out, *word)),
            Self::NewStreams(None) => [4, 0].iter().for_each(|word| put32(&mut out, *word)),
            Self::NewStreams(Some(streams)) if streams.is_empty() => {
                [2, 0].iter().for_each(|word| put32(&mut out, *word));
            }
            Self::Attached(Some(streams)) | Self::NewStreams(Some(streams)) => {
                [1, streams.len() as u32].iter().for_each(|word| put32(&mut out, *word));
                streams.iter().for_each(|stream| put_stream(&mut out, stream));
            }
            Self::Next(next, news) => put_next(&mut out, *next, *news),
            Self::Packet(Some(bytes)) => {
                [1, bytes.len() as u32, 0].iter().for_each(|word| put32(&mut out, *word));
                out.extend_from_slice(bytes);
            }
            Self::Packet(None) => [3, 0, 0].iter().for_each(|word| put32(&mut out, *word)),
            Self::Metadata(bytes) => {
                let status = match bytes {
                    Some(bytes) if !bytes.is_empty() => 1,
                    Some(_) => 2,
                    None => 3,
                };
                put64(&mut out, bytes.as_ref().map_or(0, |bytes| bytes.len() as u64));
                put32(&mut out, status);
                out.extend_from_slice(bytes.as_deref().unwrap_or_default());
            }
            Self::Detached(was_attached) => put32(&mut out, if *was_attached { 1 } else { 2 }),
        }
        out
    }
}

fn put_next(out: &mut Vec<u8>, next: Option<Next>, news: News) {
    let (index, status) = match next {
        Some(Next::Packet(index)) => (index, 1),
        Some(Next::Retry) => (Index::default(), 2),
        Some(Next::Over) => (Index::default(), 3),
        None => (Index::default(), 4),
        Some(Next::Idle { until, class }) => (Index { end: until, class, ..Index::default() }, 5),
    };
    let Index { offset, size, content, begin, end, discarded, class } = index;
    let in_bits = |bytes: u64| bytes.saturating_mul(8);
    [offset, in_bits(size), in_bits(content), begin, end, discarded, class]
        .iter()
        .for_each(|word| put64(out, *word));
    put32(out, status);
    put32(out, u32::from(news.metadata) | u32::from(news.streams) << 1);
}

fn put_stream(out: &mut Vec<u8>, stream: &Stream) {
    put64(out, stream.id);
    put64(out, stream.trace);
    put32(out, stream.is_metadata.into());
    put_text(out, &stream.path, PATH);
    put_text(out, &stream.channel, NAME);
}

fn put32(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_be_bytes());
}

fn put64(out: &mut Vec<u8>, word: u64) {
    out.extend_from_slice(&word.to_be_bytes());
}

/// A text that ends with a zero, in a field of fixed length.
fn put_text(out: &mut Vec<u8>, text: &str, length: usize) {
    let mut end = text.len().min(length - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let begin = out.len();
    out.extend_from_slice(text.get(..end).unwrap_or_default().as_bytes());
    out.resize(begin + length, 0);
}

#[cfg(test)]
mod tests {
    use tompion_testing::{Random, executions, seed};

    use super::*;

    fn body(words: &[&[u8]]) -> Vec<u8> {
        words.concat()
    }

    #[test]
    fn requests_are_parsed_and_others_refused() {
        let seven = 7_u64.to_be_bytes();
        for (command, bytes, expected) in [
            (2, body(&[]), Request::ListSessions),
            (4, body(&[&seven]), Request::NextIndex { stream: 7 }),
            (3, body(&[&seven, &seven, &[0, 0, 0, 1]]), Request::Attach { session: 7 }),
            (
                5,
                body(&[&seven, &seven, &[0, 0, 1, 0]]),
                Request::Packet { stream: 7, offset: 7, length: 256 },
            ),
            (
                1,
                body(&[&seven, &[0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1]]),
                Request::Connect { major: 2, minor: 4, kind: 1 },
            ),
        ] {
            assert_eq!(parse(command, &bytes), Ok(expected));
            assert!(parse(command, &[&bytes[..], b"x"].concat()).is_err());
            if !bytes.is_empty() {
                assert!(parse(command, &bytes[1..]).is_err());
            }
        }
        assert!(parse(0, &[]).is_err() && parse(10, &[]).is_err());
        let mut header = [0; HEADER];
        header[11] = 2;
        assert_eq!(parse_header(&header), Ok((0, 2)));
        header[7] = MAX_BODY as u8 + 1;
        assert!(parse_header(&header).is_err());
        header[0] = 0xff;
        assert!(parse_header(&header).is_err());
    }

    #[test]
    fn answers_have_the_lengths_of_the_protocol() {
        let session = Session { id: 1, streams: 2, host: "ä".repeat(200), name: "night".into() };
        let stream =
            Stream { id: 1, trace: 1, is_metadata: true, path: "p".repeat(9000), channel: "c".into() };
        for (answer, length) in [
            (Answer::Connected(4, 1), 20),
            (Answer::Sessions(vec![session.clone(), session]), 4 + 2 * 339),
            (Answer::Created, 4),
            (Answer::Attached(None), 8),
            (Answer::Attached(Some(vec![stream.clone()])), 8 + 4371),
            (Answer::NewStreams(Some(Vec::new())), 8),
            (Answer::NewStreams(Some(vec![stream])), 8 + 4371),
            (Answer::Next(Some(Next::Retry), News::default()), 64),
            (Answer::Packet(Some(vec![7; 10])), 22),
            (Answer::Metadata(Some(vec![7; 10])), 22),
            (Answer::Detached(true), 4),
        ] {
            assert_eq!(answer.encode().len(), length, "{answer:?}");
        }
        let news = News { metadata: true, streams: true };
        let index = Index { offset: 1, size: 2, content: 3, begin: 4, end: 5, discarded: 6, class: 7 };
        let bytes = Answer::Next(Some(Next::Packet(index)), news).encode();
        let words: Vec<u64> =
            bytes.chunks(8).map(|word| u64::from_be_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, [1, 16, 24, 4, 5, 6, 7, 1 << 32 | 3]);
    }

    #[test]
    fn garbage_is_refused_and_nothing_else_happens() {
        let mut random = Random(seed());
        let mut known = 0;
        for _ in 0..executions(20_000, 100_000_000) {
            let mut bytes: Vec<u8> = (0..random.index(80)).map(|_| random.below(256) as u8).collect();
            random.mutate(&mut bytes, b"\0\x01\xff");
            if let Some((header, body)) = bytes.split_first_chunk::<HEADER>() {
                known += u32::from(parse_header(header).is_ok());
                known += u32::from(parse(random.below(12) as u32, body).is_ok());
            }
        }
        assert!(known > 0);
    }
}
