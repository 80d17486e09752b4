//! What a trace says about itself: clocks, streams, events, and the types of all their fields.
//!
//! ```text
//! Trace ─┬─ environment, clocks
//!        ├─ packet header                         once in every packet
//!        └─ Stream ─┬─ packet context             once in every packet of the stream
//!                   ├─ event header, context      in every event of the stream
//!                   └─ Event ── context, payload  in every event of this class
//! ```
//!
//! The model is the same for all versions of the format. Names are those that users see: where the
//! CTF 1.8 language puts `_` before a name, the name here is without it. Numbers are not checked here;
//! whoever compiles the model refuses what cannot be decoded.

mod types;

use std::fmt;

use tompion_schema::{Level, Names};

use crate::event_kind::EventKindInfo;

pub use types::{
    Array, Base, BitArray, Blob, Encoding, Enum, Field, Float, Form, Integer, Length, Mapping, OptionRange,
    Optional, Reference, Role, Roles, Scope, Sequence, Struct, Text, Type, Variant,
};

/// A whole trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The version of the format.
    pub version: Version,
    /// What distinguishes this trace from others, where that is no UUID: namespace, name and whatever the
    /// producer chose.
    pub identity: Option<Identity>,
    /// Byte order of values which don't say theirs.
    pub byte_order: ByteOrder,
    /// What distinguishes this trace from all others; also in the header of each packet.
    pub uuid: Option<Uuid>,
    /// Facts about the machine and the tracer, in order.
    pub environment: Vec<(String, EnvironmentValue)>,
    /// Clocks that fields refer to by name.
    pub clocks: Vec<Clock>,
    /// First structure of each packet: magic number, UUID, stream class.
    pub packet_header: Option<Struct>,
    /// Classes of data streams.
    pub streams: Vec<Stream>,
}

impl Trace {
    /// The environment's value of this name.
    pub fn environment_value(&self, name: &str) -> Option<&EnvironmentValue> {
        self.environment.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The clock of this name.
    pub fn clock(&self, name: &str) -> Option<&Clock> {
        self.clocks.iter().find(|clock| clock.name == name)
    }

    /// The stream class with this number.
    pub fn stream(&self, id: u64) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.id == id)
    }
}

/// A version of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// CTF 1.8, described in TSDL: what fields are for is said by their names.
    #[default]
    One,
    /// CTF 2, described in JSON: what fields are for is said by their roles.
    Two,
}

/// What distinguishes a trace of CTF 2 from others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Whose names these are.
    pub namespace: Option<String>,
    /// The trace's name.
    pub name: Option<String>,
    /// What no other trace of this name has.
    pub uid: Option<String>,
}

/// Least or most significant byte first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first, as on networks.
    Big,
}

/// A UUID, shown as `624b19d9-19cd-4eae-bab8-8342e1b96a5d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Reads 32 hexadecimal digits, with hyphens or without.
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

/// One value of the environment or of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvironmentValue {
    /// A number.
    Integer(i64),
    /// A text.
    Text(String),
}

impl EnvironmentValue {
    /// The text, unless it is a number.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Integer(_) => None,
        }
    }

    /// The number, unless it is a text.
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

/// A clock. Its value of `c` cycles is the moment
/// `offset_seconds + (offset_cycles + c) / frequency` seconds after its origin.
///
/// Where it doesn't count nanoseconds, moments are rounded down to nanoseconds as babeltrace2 rounds them, whose times
/// users compare with these: cycles are divided as floats, so that beyond 2⁵³ cycles moments are a few nanoseconds off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The name by which integers refer to it.
    pub name: String,
    /// The moment from which it counts, where that is no Unix epoch: what else there is to say of it.
    pub origin: Option<Identity>,
    /// What distinguishes this clock (of this boot of this machine) from all others.
    pub uuid: Option<Uuid>,
    /// What it is, in words.
    pub description: Option<String>,
    /// Cycles per second, never 0.
    pub frequency: u64,
    /// How exact it is, in cycles.
    pub precision: Option<u64>,
    /// Seconds from the origin to the clock's zero.
    pub offset_seconds: i64,
    /// Cycles to add to the seconds.
    pub offset_cycles: i64,
    /// Whether clocks of other traces with the same origin can be compared with it.
    pub absolute: bool,
}

impl Clock {
    /// A clock that counts nanoseconds, whose zero is `offset_ns` after the Unix epoch.
    pub fn nanoseconds(name: &str, offset_ns: i64) -> Self {
        Self {
            name: name.into(),
            origin: None,
            uuid: None,
            description: None,
            frequency: NANOSECONDS,
            precision: None,
            offset_seconds: 0,
            offset_cycles: offset_ns,
            absolute: false,
        }
    }

    /// The moment of a value, in nanoseconds after the origin; beyond the range of `i64`, its end.
    pub fn to_nanoseconds(&self, cycles: u64) -> i64 {
        self.exactly(cycles).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// The same; nothing beyond the range of `i64`, some 292 years around the origin.
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

    /// Nanoseconds that so many cycles take.
    fn duration(&self, cycles: u64) -> i128 {
        let nanoseconds = match self.frequency {
            NANOSECONDS => cycles,
            frequency => (1e9 * cycles as f64 / frequency.max(1) as f64) as u64,
        };
        nanoseconds.into()
    }

    /// Makes all its moments so many nanoseconds later (negative: earlier), to within a cycle.
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

/// A class of data streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// The number by which packet headers refer to it.
    pub id: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Second structure of each packet: sizes, timestamps, counters.
    pub packet_context: Option<Struct>,
    /// First structure of each event: event class and timestamp.
    pub event_header: Option<Struct>,
    /// Context fields that every event of the stream has.
    pub event_context: Option<Struct>,
    /// Event classes.
    pub events: Vec<Event>,
}

impl Stream {
    /// The event class with this number.
    pub fn event(&self, id: u64) -> Option<&Event> {
        self.events.iter().find(|event| event.id == id)
    }
}

/// A class of events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    /// The number by which event headers refer to it.
    pub id: u64,
    /// Its whole name, `provider:name` or `name`.
    pub name: String,
    /// How important the event is; LTTng-UST's numbers.
    pub log_level: Option<i64>,
    /// Anything else that is said of it, `model.emf.uri` for example. babeltrace2 2.0.4 knows only
    /// this one and warns of others.
    pub attributes: Vec<(String, EnvironmentValue)>,
    /// Context fields of this class alone.
    pub context: Option<Struct>,
    /// Its fields.
    pub payload: Option<Struct>,
}

impl Event {
    /// The name of a class that has none.
    pub const UNNAMED: &str = "<unknown>";

    /// `provider:name`, taken apart; the provider is empty when there is none.
    pub fn provider_and_name(&self) -> (&str, &str) {
        self.name.split_once(':').unwrap_or(("", &self.name))
    }

    /// What kind of event it is and, for a mark, its format: an instant, where nothing is said.
    pub fn kind_info(&self) -> EventKindInfo {
        EventKindInfo::from_attributes(&self.attributes)
    }

    /// The names and what else rules are matched against.
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
        // What babeltrace2 2.0.4 prints of these.
        let clock = Clock { frequency: 27_000_000, ..Clock::nanoseconds("slow", 0) };
        assert_eq!(clock.to_nanoseconds(1_000_000_007), 37_037_037_296);
        let clock = Clock { frequency: 2_399_998_000, ..clock };
        assert_eq!(clock.to_nanoseconds(98_765_432_109_876_543), 41152297672696624);
    }

    #[test]
    fn a_clock_is_shifted_to_and_fro() {
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
