//! Messages on a connection, in both directions, each within its time.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

/// Bytes that are read at once.
const CHUNK: usize = 16 << 10;

/// Outcome of reading a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// A message, without its NUL byte.
    Message(Vec<u8>),
    /// The other side has closed the connection.
    End,
    /// More bytes came than a message may have.
    TooLarge,
    /// The message was not complete in time.
    Late,
}

/// A connection with the bytes that were read and belong to later messages.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// Whether bytes of a further message were read already.
    pub(crate) fn has_more(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Whether the other side, which should be silent, has closed the connection or says something.
    pub(crate) fn is_closed(&mut self) -> bool {
        let is_set = self.stream.set_read_timeout(Some(Duration::from_millis(1))).is_ok();
        !is_set || self.stream.read(&mut [0]).map_or_else(|error| !is_timeout(&error), |_| true)
    }

    /// Reads a message of at most `max` bytes. It must be complete within `timeout` of its first
    /// byte; for that byte it is waited at most `idle` (for ever without one).
    pub(crate) fn read(
        &mut self,
        max: usize,
        timeout: Duration,
        idle: Option<Duration>,
    ) -> io::Result<Incoming> {
        let mut searched = 0;
        let mut deadline = self.has_more().then(|| Instant::now() + timeout);
        loop {
            let end = self.buffer[searched..].iter().position(|byte| *byte == 0);
            if let Some(end) = end.map(|end| searched + end) {
                let rest = self.buffer.split_off(end + 1);
                let mut message = std::mem::replace(&mut self.buffer, rest);
                message.pop();
                return Ok(if message.len() > max { Incoming::TooLarge } else { Incoming::Message(message) });
            }
            searched = self.buffer.len();
            if searched > max {
                return Ok(Incoming::TooLarge);
            }
            let wait = match deadline {
                None => idle,
                Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    // A timeout of zero would be none.
                    Some(left) if !left.is_zero() => Some(left),
                    _ => return Ok(Incoming::Late),
                },
            };
            self.stream.set_read_timeout(wait)?;
            let mut chunk = [0; CHUNK];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(Incoming::End),
                Ok(count) => {
                    self.buffer.extend(chunk.get(..count).unwrap_or(&[]));
                    deadline.get_or_insert_with(|| Instant::now() + timeout);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => return Ok(Incoming::Late),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes a whole message within a time.
    pub(crate) fn write(&self, mut message: &[u8], timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        while !message.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_write_timeout(Some(left))?;
            match (&self.stream).write(message) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => message = message.get(count..).unwrap_or(&[]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn messages_are_separated_in_any_pieces() {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let mut connection = Connection::new(server);
        client.write_all(b"one\0two\0th").expect("room");
        let mut read = || connection.read(100, LONG, Some(LONG)).expect("a connection");
        assert_eq!(read(), Incoming::Message(b"one".to_vec()));
        assert_eq!(read(), Incoming::Message(b"two".to_vec()));
        client.write_all(b"ree\0").expect("room");
        assert_eq!(read(), Incoming::Message(b"three".to_vec()));
        drop(client);
        assert_eq!(read(), Incoming::End);
    }

    #[test]
    fn late_and_oversized_messages_are_recognized() {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let mut connection = Connection::new(server);
        assert_eq!(connection.read(4, SHORT, Some(SHORT)).expect("open"), Incoming::Late);
        client.write_all(b"par").expect("room");
        assert_eq!(connection.read(4, SHORT, None).expect("open"), Incoming::Late);
        client.write_all(b"tial").expect("room");
        assert_eq!(connection.read(4, LONG, None).expect("open"), Incoming::TooLarge);
    }

    #[test]
    fn an_unread_reply_times_out() {
        let (_client, server) = UnixStream::pair().expect("a pair");
        let connection = Connection::new(server);
        assert!(connection.write(&vec![0; 8 << 20], SHORT).is_err());
    }
}
