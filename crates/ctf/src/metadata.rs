//! Model of a trace's description: clocks, streams, events, and the types of all their fields.
//!
//! ```text
//! Trace ─┬─ environment, clocks
//!        ├─ packet header                         once in every packet
//!        └─ Stream ─┬─ packet context             once in every packet of the stream
//!                   ├─ event header, context      in every event of the stream
//!                   └─ Event ── context, payload  in every event of this class
//! ```
//!
//! The model is the same for all versions of the format. Names are those that users see: where CTF
//! 1.8 text has a `_` before a name, the model omits it. Numbers are not checked here; the
//! decoder's compiler refuses what cannot be decoded.

mod types;

use std::fmt;

use tompion_schema::{Level, Names};

use crate::event_kind::EventKindInfo;

pub use types::{
    Array, Base, BitArray, Blob, Encoding, Enum, Field, Float, Form, Integer, Length, Mapping, OptionRange,
    Optional, Reference, Role, Roles, Scope, Selection, Sequence, Struct, Text, Type, Variant,
};

/// Description of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Version of the format.
    pub version: Version,
    /// Identity of a trace without a UUID: namespace, name, and a unique id chosen by the producer.
    pub identity: Option<Identity>,
    /// Attributes in CTF 2: a JSON object.
    pub attributes: Option<String>,
    /// Byte order of values without one of their own.
    pub byte_order: ByteOrder,
    /// Unique id of the trace; also in the header of each packet.
    pub uuid: Option<Uuid>,
    /// Properties of the machine and the tracer, in order.
    pub environment: Vec<(String, EnvironmentValue)>,
    /// Clocks, which fields refer to by name.
    pub clocks: Vec<Clock>,
    /// First structure of each packet: magic number, UUID, stream class.
    pub packet_header: Option<Struct>,
    /// Classes of data streams.
    pub streams: Vec<Stream>,
}

impl Trace {
    /// Returns the environment value with this name.
    pub fn environment_value(&self, name: &str) -> Option<&EnvironmentValue> {
        self.environment.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Returns the clock with this name.
    pub fn clock(&self, name: &str) -> Option<&Clock> {
        self.clocks.iter().find(|clock| clock.name == name)
    }

    /// Returns the stream class with this number.
    pub fn stream(&self, id: u64) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.id == id)
    }
}

/// Version of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// CTF 1.8, described in TSDL: the purpose of special fields follows from their names.
    #[default]
    One,
    /// CTF 2, described in JSON: the purpose of special fields follows from their roles.
    Two,
}

/// Identity of a trace or clock in CTF 2.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Namespace of the name and the unique id.
    pub namespace: Option<String>,
    /// Name of the trace.
    pub name: Option<String>,
    /// Id that is unique among traces of this name.
    pub uid: Option<String>,
}

/// Identity and attributes of a class in CTF 2, which readers only hand on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Namespace and unique id, and the name unless it stands apart.
    pub identity: Identity,
    /// Attributes without meaning to Tompion: a JSON object.
    pub attributes: Option<String>,
    /// Attributes of its field classes.
    pub fields: Vec<FieldAttributes>,
}

/// Attributes of a field class in CTF 2, which readers only hand on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldAttributes {
    /// Scope of the outermost structure.
    pub scope: Scope,
    /// Steps from there in the description.
    pub path: Vec<String>,
    /// A JSON object.
    pub attributes: String,
}

/// Byte order: least or most significant byte first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first, as on networks.
    Big,
}

/// UUID, displayed as `624b19d9-19cd-4eae-bab8-8342e1b96a5d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Parses 32 hexadecimal digits, with or without hyphens.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        let mut digits = text.chars().filter(|&character| character != '-');
        for byte in &mut bytes {
            let high = digits.next()?.to_digit(16)?;
            let low = digits.next()?.to_digit(16)?;
            *byte = (high * 16 + low) as u8;
        }
        digits.next().is_none().then_some(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                formatter.write_str("-")?;
            }
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Value in the environment, or of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvironmentValue {
    /// Integer value.
    Integer(i64),
    /// Text value.
    Text(String),
}

impl EnvironmentValue {
    /// Returns the text; `None` for an integer.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Integer(_) => None,
        }
    }

    /// Returns the integer; `None` for a text.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

impl From<&str> for EnvironmentValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for EnvironmentValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for EnvironmentValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl fmt::Display for EnvironmentValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => write!(formatter, "{number}"),
            Self::Text(text) => formatter.write_str(text),
        }
    }
}

/// Clock. Its value of `c` cycles is the time `offset_seconds + (offset_cycles + c) / frequency`
/// seconds after its origin.
///
/// Times of a clock that doesn't count nanoseconds are rounded down to nanoseconds as in
/// babeltrace2, so that users can compare them: cycles are divided as floats. Beyond 2⁵³ cycles,
/// times are inexact by a few nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Name by which integers refer to the clock.
    pub name: String,
    /// Origin of a clock that doesn't start at the Unix epoch.
    pub origin: Option<Identity>,
    /// Unique id of this clock (of one boot of one machine).
    pub uuid: Option<Uuid>,
    /// Description for humans.
    pub description: Option<String>,
    /// Cycles per second, never 0.
    pub frequency: u64,
    /// Precision in cycles.
    pub precision: Option<u64>,
    /// Accuracy in cycles.
    pub accuracy: Option<u64>,
    /// Identity and attributes of a clock of CTF 2.
    pub details: Option<Details>,
    /// Seconds from the origin to the clock's zero.
    pub offset_seconds: i64,
    /// Cycles to add to the seconds.
    pub offset_cycles: i64,
    /// Whether the clock can be compared with clocks of other traces with the same origin.
    pub absolute: bool,
}

impl Clock {
    /// Creates a clock that counts nanoseconds, with its zero `offset_ns` after the Unix epoch.
    pub fn nanoseconds(name: &str, offset_ns: i64) -> Self {
        Self {
            name: name.into(),
            origin: None,
            uuid: None,
            description: None,
            frequency: NANOSECONDS,
            precision: None,
            accuracy: None,
            details: None,
            offset_seconds: 0,
            offset_cycles: offset_ns,
            absolute: false,
        }
    }

    /// Converts a value to nanoseconds after the origin, limited to the range of `i64`.
    pub fn to_nanoseconds(&self, cycles: u64) -> i64 {
        self.exactly(cycles).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// Converts a value to nanoseconds after the origin; `None` beyond the range of `i64`, some 292
    /// years around the origin.
    pub fn checked_nanoseconds(&self, cycles: u64) -> Option<i64> {
        self.exactly(cycles).try_into().ok()
    }

    fn exactly(&self, cycles: u64) -> i128 {
        let offset = match (self.offset_cycles, i64::try_from(self.frequency)) {
            (cycles, Ok(frequency)) if (0..frequency).contains(&cycles) => self.duration(cycles as u64),
            (cycles, _) => {
                let (cycles, frequency) = (i128::from(cycles), i128::from(self.frequency.max(1)));
                cycles.div_euclid(frequency) * NS + self.duration(cycles.rem_euclid(frequency) as u64)
            }
        };
        i128::from(self.offset_seconds) * NS + offset + self.duration(cycles)
    }

    /// Returns the duration of this many cycles in nanoseconds.
    fn duration(&self, cycles: u64) -> i128 {
        let nanoseconds = match self.frequency {
            NANOSECONDS => cycles,
            frequency => (1e9 * cycles as f64 / frequency.max(1) as f64) as u64,
        };
        nanoseconds.into()
    }

    /// Shifts all times by this many nanoseconds (negative: to earlier), exact to one cycle.
    pub fn shift(&mut self, nanoseconds: i64) {
        let (seconds, rest) =
            (i128::from(nanoseconds).div_euclid(NS), i128::from(nanoseconds).rem_euclid(NS));
        let cycles = (rest * i128::from(self.frequency.max(1)) + NS / 2) / NS;
        self.offset_seconds = self.offset_seconds.saturating_add(seconds as i64);
        self.offset_cycles = self.offset_cycles.saturating_add(i64::try_from(cycles).unwrap_or(i64::MAX));
    }
}

const NANOSECONDS: u64 = 1_000_000_000;
const NS: i128 = NANOSECONDS as i128;

/// Class of data streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// Number by which packet headers refer to the class.
    pub id: u64,
    /// Name, if it has one.
    pub name: Option<String>,
    /// Identity and attributes in CTF 2.
    pub details: Details,
    /// Second structure of each packet: sizes, timestamps, counters.
    pub packet_context: Option<Struct>,
    /// First structure of each event: event class and timestamp.
    pub event_header: Option<Struct>,
    /// Context fields of every event of the stream.
    pub event_context: Option<Struct>,
    /// Event classes.
    pub events: Vec<Event>,
}

impl Stream {
    /// Returns the event class with this number.
    pub fn event(&self, id: u64) -> Option<&Event> {
        self.events.iter().find(|event| event.id == id)
    }
}

/// Class of events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    /// Number by which event headers refer to the class.
    pub id: u64,
    /// Full name, `provider:name` or `name`.
    pub name: String,
    /// Log level, with LTTng-UST's numbers.
    pub log_level: Option<i64>,
    /// Other attributes, `model.emf.uri` for example. babeltrace2 2.0.4 knows only this one and
    /// warns about others.
    pub attributes: Vec<(String, EnvironmentValue)>,
    /// Identity and other attributes in CTF 2.
    pub details: Details,
    /// Context fields of this class alone.
    pub context: Option<Struct>,
    /// Fields of the event.
    pub payload: Option<Struct>,
}

impl Event {
    /// Name of a class that has none.
    pub const UNNAMED: &str = "<unknown>";

    /// Splits `provider:name`; the provider is empty if there is none.
    pub fn provider_and_name(&self) -> (&str, &str) {
        self.name.split_once(':').unwrap_or(("", &self.name))
    }

    /// Returns the kind of the event and the format of a mark; an instant if the class has no kind.
    pub fn kind_info(&self) -> EventKindInfo {
        EventKindInfo::from_attributes(&self.attributes)
    }

    /// Returns the names and level, against which rules are matched.
    pub fn names(&self) -> Names<'_> {
        let (provider, name) = self.provider_and_name();
        let level = self.log_level.and_then(|level| u8::try_from(level).ok());
        let level = level.map_or(Level::DEFAULT, Level::from_number);
        let EventKindInfo { kind, init, .. } = self.kind_info();
        Names { provider, name, level, kind, init }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_and_shown() {
        let text = "624b19d9-19cd-4eae-bab8-8342e1b96a5d";
        assert_eq!(Uuid::parse(text).unwrap().to_string(), text);
        assert_eq!(Uuid::parse(&text.replace('-', "")), Uuid::parse(text));
        assert_eq!(Uuid::parse("624b19d9"), None);
        assert_eq!(Uuid::parse(&format!("{text}0")), None);
        assert_eq!(Uuid::parse("zz4b19d9-19cd-4eae-bab8-8342e1b96a5d"), None);
    }

    #[test]
    fn a_clock_counts_from_its_origin() {
        let clock = Clock::nanoseconds("monotonic", 1_000_000_007);
        assert_eq!(clock.to_nanoseconds(3), 1_000_000_010);
        let clock = Clock { frequency: 3, offset_seconds: -2, offset_cycles: 1, ..clock };
        assert_eq!(clock.to_nanoseconds(3), -666_666_667);
        let clock = Clock { frequency: 1, offset_seconds: i64::MAX, ..clock };
        assert_eq!(clock.to_nanoseconds(u64::MAX), i64::MAX);
        assert_eq!(clock.checked_nanoseconds(0), None);
        assert_eq!(Clock::nanoseconds("monotonic", -7).checked_nanoseconds(0), Some(-7));
    }

    #[test]
    fn cycles_are_divided_as_floats() {
        // Values printed by babeltrace2 2.0.4.
        let clock = Clock { frequency: 27_000_000, ..Clock::nanoseconds("slow", 0) };
        assert_eq!(clock.to_nanoseconds(1_000_000_007), 37_037_037_296);
        let clock = Clock { frequency: 2_399_998_000, ..clock };
        assert_eq!(clock.to_nanoseconds(98_765_432_109_876_543), 41152297672696624);
    }

    #[test]
    fn a_clock_is_shifted_back_and_forth() {
        let mut clock = Clock::nanoseconds("monotonic", 5);
        clock.shift(-1_000_000_007);
        assert_eq!(clock.to_nanoseconds(0), -1_000_000_002);
        clock.shift(1_000_000_007);
        assert_eq!(clock.to_nanoseconds(0), 5);
        let mut slow = Clock { frequency: 1000, ..Clock::nanoseconds("slow", 0) };
        slow.shift(-2_499_600);
        assert_eq!(slow.to_nanoseconds(0), -2_000_000, "to within a cycle of a millisecond");
        slow.shift(i64::MIN);
        slow.shift(i64::MAX);
    }
}
