//! Messages between an agent and a session.
//!
//! ```text
//! kind u32 │ version u32 │ body: numbers little-endian, texts as size u32 and bytes
//! ```
//!
//! Sizes are checked, not trusted: a message that does not parse ends the connection.

/// Maximum size of a message in bytes.
pub const MAX_MESSAGE: usize = 16 * 1024;

/// Problem of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The bytes end too early.
    #[error("a message is cut off")]
    Cut,
    /// The kind is unknown.
    #[error("unknown message {0}")]
    Kind(u32),
    /// The other side uses another version.
    #[error("the other side speaks version {found}, this one {}", crate::PROTOCOL_VERSION)]
    Version {
        /// Version of the other side.
        found: u32,
    },
}

/// Reason why a process has an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A program was started.
    Exec,
    /// A recorded process forked.
    Fork,
    /// A running program was asked to take part.
    Request,
}

impl Origin {
    /// Returns the origin with this number; an unknown one counts as a start.
    const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Fork,
            2 => Self::Request,
            _ => Self::Exec,
        }
    }
}

/// First message of an agent, which introduces its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Process id in its own pid namespace.
    pub pid: u32,
    /// Reason why the process has an agent.
    pub origin: Origin,
    /// Whether threads have a restartable-sequence area.
    pub rseq: bool,
    /// Whether user space may read the TSC in this process.
    pub tsc: bool,
    /// Version of the library, `0.1.0` for example.
    pub agent_version: String,
    /// Name of the process (comm).
    pub name: String,
    /// Path of its executable.
    pub executable: String,
    /// Whether a thread of it receives what the session says later.
    pub has_listener: bool,
    /// Number of the prepared memory that it records into, if it doesn't wait for an answer.
    pub prepared: Option<u64>,
    /// CPU on which it runs, where its next siblings probably run. Older versions don't tell.
    pub cpu: Option<u32>,
    /// Size of the longest control file that it knows; 0 for older versions, which don't tell.
    pub control_size: u64,
    /// Whether it can count events in place.
    pub counts: bool,
    /// Whether it follows triggers that change while it runs.
    pub follows_triggers: bool,
    /// Whether its writers notice room that the session withdraws from them. Older versions might
    /// not, on processors that reorder.
    pub notices_withdrawal: bool,
}

/// Message from a session to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToAgent {
    /// Request through the agent's attach socket: the session with this name wants the process to
    /// take part.
    Join(String),
    /// Acceptance. The control file and the ring file come with this message. If the kernel selects
    /// the buffer, so does the array whose first word is the selector.
    Welcome,
    /// Memory for a child that this process forks, with the two files of [`ToAgent::Welcome`]. The
    /// child receives it on this connection, names it in its `Hello`, and gets no answer.
    Prepared {
        /// Number by which the child names it.
        number: u64,
    },
    /// Refusal, with the reason in one line.
    Refused(String),
    /// The rules, or the triggers on events, have changed.
    RulesChanged,
    /// Request to make these bytes of the ring file present before the writer gets there.
    Populate {
        /// Offset in the ring file.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
}

/// Message from an agent to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToSession {
    /// First message.
    Hello(Hello),
    /// The agent could not take part after all, with the reason in one line.
    Failed(String),
    /// The child of a fork could not reach the session, with the reason in one line. It is sent
    /// over its parent's connection.
    ChildFailed(String),
    /// Question of a program that has not loaded the library: whether the session wants it. The
    /// answer is [`ToAgent::Join`] with an empty name, or a refusal.
    Ask,
}

const HELLO: u32 = 1;
const FAILED: u32 = 2;
const CHILD_FAILED: u32 = 3;
const ASK: u32 = 4;
const WELCOME: u32 = 101;
const REFUSED: u32 = 102;
const RULES_CHANGED: u32 = 103;
const POPULATE: u32 = 104;
const JOIN: u32 = 105;
const PREPARED: u32 = 106;

/// Flags of a `Hello`. A version that doesn't know one ignores it.
const RSEQ: u32 = 1;
const TSC: u32 = 1 << 1;
const NO_LISTENER: u32 = 1 << 2;
/// The number of prepared memory follows.
const HAS_PREPARED: u32 = 1 << 3;
/// The CPU follows.
const HAS_CPU: u32 = 1 << 4;
/// The size of the control file follows.
const HAS_CONTROL_SIZE: u32 = 1 << 5;
/// The agent can count events in place.
const COUNTS: u32 = 1 << 6;
/// The agent follows triggers that change.
const FOLLOWS_TRIGGERS: u32 = 1 << 7;
/// The agent's writers notice withdrawn room.
const NOTICES_WITHDRAWAL: u32 = 1 << 8;

struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: u32) -> Self {
        Self(Vec::new()).u32(kind).u32(crate::PROTOCOL_VERSION)
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends a text, cut to a quarter of the maximum message.
    fn text(self, text: &str) -> Self {
        let end =
            (0..=text.len().min(MAX_MESSAGE / 4)).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        let mut writer = self.u32(end as u32);
        writer.0.extend(&text.as_bytes()[..end]);
        writer
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, size: usize) -> Result<&'a [u8], MessageError> {
        let (head, rest) = self.0.split_at_checked(size).ok_or(MessageError::Cut)?;
        self.0 = rest;
        Ok(head)
    }

    fn u32(&mut self) -> Result<u32, MessageError> {
        let bytes = self.take(4)?.try_into().map_err(|_| MessageError::Cut)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn u64(&mut self) -> Result<u64, MessageError> {
        let bytes = self.take(8)?.try_into().map_err(|_| MessageError::Cut)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn text(&mut self) -> Result<String, MessageError> {
        let size = self.u32()? as usize;
        Ok(String::from_utf8_lossy(self.take(size)?).into_owned())
    }

    /// Reads kind and version; refuses other versions.
    fn begin(&mut self) -> Result<u32, MessageError> {
        let kind = self.u32()?;
        match self.u32()? {
            crate::PROTOCOL_VERSION => Ok(kind),
            found => Err(MessageError::Version { found }),
        }
    }
}

impl Hello {
    const fn flags(&self) -> u32 {
        let mut flags = 0;
        flags |= if self.rseq { RSEQ } else { 0 };
        flags |= if self.tsc { TSC } else { 0 };
        flags |= if self.has_listener { 0 } else { NO_LISTENER };
        flags |= if self.prepared.is_some() { HAS_PREPARED } else { 0 };
        flags |= if self.cpu.is_some() { HAS_CPU } else { 0 };
        flags |= if self.counts { COUNTS } else { 0 };
        flags |= if self.follows_triggers { FOLLOWS_TRIGGERS } else { 0 };
        flags |= if self.notices_withdrawal { NOTICES_WITHDRAWAL } else { 0 };
        flags | if self.control_size != 0 { HAS_CONTROL_SIZE } else { 0 }
    }
}

impl ToSession {
    /// Encodes the message as one packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello(hello) => {
                let writer = Writer::new(HELLO)
                    .u32(hello.pid)
                    .u32(hello.origin as u32)
                    .u32(hello.flags())
                    .text(&hello.agent_version)
                    .text(&hello.name)
                    .text(&hello.executable);
                let writer = hello.prepared.into_iter().fold(writer, Writer::u64);
                let writer = hello.cpu.into_iter().fold(writer, Writer::u32);
                if hello.control_size == 0 { writer.0 } else { writer.u64(hello.control_size).0 }
            }
            Self::Failed(reason) => Writer::new(FAILED).text(reason).0,
            Self::ChildFailed(reason) => Writer::new(CHILD_FAILED).text(reason).0,
            Self::Ask => Writer::new(ASK).0,
        }
    }

    /// Decodes a packet.
    pub fn decode(packet: &[u8]) -> Result<Self, MessageError> {
        let mut reader = Reader(packet);
        match reader.begin()? {
            HELLO => {
                let pid = reader.u32()?;
                let origin = Origin::from_number(reader.u32()?);
                let flags = reader.u32()?;
                Ok(Self::Hello(Hello {
                    pid,
                    origin,
                    rseq: flags & RSEQ != 0,
                    tsc: flags & TSC != 0,
                    agent_version: reader.text()?,
                    name: reader.text()?,
                    executable: reader.text()?,
                    has_listener: flags & NO_LISTENER == 0,
                    prepared: if flags & HAS_PREPARED != 0 { Some(reader.u64()?) } else { None },
                    cpu: if flags & HAS_CPU != 0 { Some(reader.u32()?) } else { None },
                    control_size: if flags & HAS_CONTROL_SIZE != 0 { reader.u64()? } else { 0 },
                    counts: flags & COUNTS != 0,
                    follows_triggers: flags & FOLLOWS_TRIGGERS != 0,
                    notices_withdrawal: flags & NOTICES_WITHDRAWAL != 0,
                }))
            }
            FAILED => Ok(Self::Failed(reader.text()?)),
            CHILD_FAILED => Ok(Self::ChildFailed(reader.text()?)),
            ASK => Ok(Self::Ask),
            kind => Err(MessageError::Kind(kind)),
        }
    }
}

impl ToAgent {
    /// Encodes the message as one packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Join(name) => Writer::new(JOIN).text(name).0,
            Self::Welcome => Writer::new(WELCOME).0,
            Self::Prepared { number } => Writer::new(PREPARED).u64(*number).0,
            Self::Refused(reason) => Writer::new(REFUSED).text(reason).0,
            Self::RulesChanged => Writer::new(RULES_CHANGED).0,
            Self::Populate { offset, len } => Writer::new(POPULATE).u64(*offset).u64(*len).0,
        }
    }

    /// Decodes a packet.
    pub fn decode(packet: &[u8]) -> Result<Self, MessageError> {
        let mut reader = Reader(packet);
        match reader.begin()? {
            JOIN => Ok(Self::Join(reader.text()?)),
            WELCOME => Ok(Self::Welcome),
            PREPARED => Ok(Self::Prepared { number: reader.u64()? }),
            REFUSED => Ok(Self::Refused(reader.text()?)),
            RULES_CHANGED => Ok(Self::RulesChanged),
            POPULATE => Ok(Self::Populate { offset: reader.u64()?, len: reader.u64()? }),
            kind => Err(MessageError::Kind(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            pid: 42,
            origin: Origin::Fork,
            rseq: true,
            tsc: false,
            agent_version: "0.1.0".into(),
            name: "find".into(),
            executable: "/usr/bin/find".into(),
            has_listener: true,
            prepared: None,
            cpu: None,
            control_size: 0,
            counts: false,
            follows_triggers: false,
            notices_withdrawal: false,
        }
    }

    #[test]
    fn messages_survive_the_round_trip() {
        let request = Hello { origin: Origin::Request, ..hello() };
        for message in [
            ToSession::Hello(hello()),
            ToSession::Hello(request),
            ToSession::Hello(Hello { has_listener: false, prepared: Some(u64::MAX), ..hello() }),
            ToSession::Hello(Hello { prepared: Some(7), cpu: Some(u32::MAX), ..hello() }),
            ToSession::Hello(Hello { cpu: Some(3), ..hello() }),
            ToSession::Hello(Hello { cpu: Some(3), control_size: 1 << 22, counts: true, ..hello() }),
            ToSession::Hello(Hello { follows_triggers: true, ..hello() }),
            ToSession::Hello(Hello { notices_withdrawal: true, ..hello() }),
            ToSession::Failed("no memory".into()),
            ToSession::ChildFailed("timed out".into()),
            ToSession::Ask,
        ] {
            assert_eq!(ToSession::decode(&message.encode()), Ok(message));
        }
        for message in [
            ToAgent::Join("tompion-1".into()),
            ToAgent::Welcome,
            ToAgent::Prepared { number: 7 },
            ToAgent::Refused("other user".into()),
            ToAgent::RulesChanged,
            ToAgent::Populate { offset: 1 << 40, len: 4096 },
        ] {
            assert_eq!(ToAgent::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn cuts_and_other_versions_are_refused() {
        let packet = ToSession::Hello(hello()).encode();
        for len in 0..packet.len() {
            assert!(ToSession::decode(&packet[..len]).is_err());
        }
        let mut other = packet.clone();
        other[4] = 9;
        assert_eq!(ToSession::decode(&other), Err(MessageError::Version { found: 9 }));
        assert!(ToSession::Hello(Hello { name: "é".repeat(9000), ..hello() }).encode().len() < MAX_MESSAGE);
    }
}
