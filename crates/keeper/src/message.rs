//! Messages between a recorder and its keeper.
//!
//! ```text
//! kind u32 │ version u32 │ key u64 │ text, to the packet's end
//! ```
//!
//! Descriptors come with `Hold` and `Held`.

/// Version of the messages.
const VERSION: u32 = 1;
/// Bytes before the text.
const HEAD: usize = 16;
/// Longest text in bytes: a socket's name, or a recording's id.
pub const MAX_TEXT: usize = 128;
/// Size of the largest message.
pub const MAX_MESSAGE: usize = HEAD + MAX_TEXT;

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A listening socket.
    Listener,
    /// A process: its connection, control file, ring file and watch.
    Process,
    /// A map, program or link in the kernel.
    Object,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The recorder's first: the id of its recording.
    Begin(String),
    /// The keeper is to hold the descriptors that come with this.
    Hold(Kind, u64),
    /// The keeper is to close an entry of a process.
    Release(u64),
    /// The keeper is to close an object of the kernel.
    ReleaseObject(u64),
    /// The keeper is to answer, once it has followed all that came before.
    Ask,
    /// The recording has ended.
    End,
    /// The keeper's first: the id of the recording; empty if none has begun.
    Recording(String),
    /// An entry, with its descriptors.
    Held(Kind, u64),
    /// There are no more entries.
    Complete,
    /// The answer to [`Message::Ask`].
    Done,
}

impl Message {
    /// Encodes the message as one packet.
    pub fn encode(&self) -> Vec<u8> {
        let (number, key, text) = match self {
            Self::Begin(id) => (1, 0, id.as_str()),
            Self::Hold(Kind::Listener, key) => (2, *key, ""),
            Self::Hold(Kind::Process, key) => (3, *key, ""),
            Self::Release(key) => (4, *key, ""),
            Self::End => (5, 0, ""),
            Self::Hold(Kind::Object, key) => (6, *key, ""),
            Self::ReleaseObject(key) => (7, *key, ""),
            Self::Ask => (8, 0, ""),
            Self::Recording(id) => (101, 0, id.as_str()),
            Self::Held(Kind::Listener, key) => (102, *key, ""),
            Self::Held(Kind::Process, key) => (103, *key, ""),
            Self::Complete => (104, 0, ""),
            Self::Held(Kind::Object, key) => (105, *key, ""),
            Self::Done => (106, 0, ""),
        };
        let mut bytes = Vec::with_capacity(HEAD + text.len());
        bytes.extend(u32::to_le_bytes(number));
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(u64::to_le_bytes(key));
        bytes.extend(&text.as_bytes()[..text.len().min(MAX_TEXT)]);
        bytes
    }

    /// Decodes a packet; none if it is no message.
    pub fn decode(packet: &[u8]) -> Option<Self> {
        let (head, text) = packet.split_at_checked(HEAD)?;
        let number = u32::from_le_bytes(head[..4].try_into().ok()?);
        let version = u32::from_le_bytes(head[4..8].try_into().ok()?);
        let key = u64::from_le_bytes(head[8..].try_into().ok()?);
        let text = || String::from_utf8(text.to_vec()).ok();
        match (version, number) {
            (VERSION, 1) => text().map(Self::Begin),
            (VERSION, 2) => Some(Self::Hold(Kind::Listener, key)),
            (VERSION, 3) => Some(Self::Hold(Kind::Process, key)),
            (VERSION, 4) => Some(Self::Release(key)),
            (VERSION, 5) => Some(Self::End),
            (VERSION, 6) => Some(Self::Hold(Kind::Object, key)),
            (VERSION, 7) => Some(Self::ReleaseObject(key)),
            (VERSION, 8) => Some(Self::Ask),
            (VERSION, 101) => text().map(Self::Recording),
            (VERSION, 102) => Some(Self::Held(Kind::Listener, key)),
            (VERSION, 103) => Some(Self::Held(Kind::Process, key)),
            (VERSION, 104) => Some(Self::Complete),
            (VERSION, 105) => Some(Self::Held(Kind::Object, key)),
            (VERSION, 106) => Some(Self::Done),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_round_trip_and_others_are_none() {
        let messages = [
            Message::Begin("7f".into()),
            Message::Hold(Kind::Listener, 1),
            Message::Hold(Kind::Process, u64::MAX),
            Message::Release(3),
            Message::Hold(Kind::Object, 1 << 32),
            Message::ReleaseObject(7),
            Message::Ask,
            Message::End,
            Message::Recording(String::new()),
            Message::Held(Kind::Listener, 0),
            Message::Held(Kind::Process, 9),
            Message::Held(Kind::Object, u64::MAX),
            Message::Complete,
            Message::Done,
        ];
        for message in messages {
            let packet = message.encode();
            assert_eq!(Message::decode(&packet), Some(message));
            assert_eq!(Message::decode(&packet[..HEAD - 1]), None);
            let mut other = packet.clone();
            other[4] = 9;
            assert_eq!(Message::decode(&other), None);
            other = packet;
            other[0] = 77;
            assert_eq!(Message::decode(&other), None);
        }
        assert!(Message::Begin("x".repeat(1000)).encode().len() <= MAX_MESSAGE);
    }
}
