//! Decoder of records in rings: the class of a record, and its payload in the layout of the event's
//! description.

use std::sync::Arc;

use tompion_schema::{Event, Field, Integer, Type};

use crate::{
    events::{FIRST, KNOWN, SYSCALL_ENTRY, SYSCALL_EXIT, TRACEPOINT, description},
    probes::{PROBE, Probe},
    records::UntrustedRecord,
    stacks::{self, StackEvent},
    state,
    syscalls::{Calls, MAX_ARGUMENTS, MAX_PATHS},
    tracepoints::Tracepoint,
};

/// Said of a call's number by the programs: a 32-bit program on a 64-bit kernel.
const COMPATIBLE: u32 = 1 << 31;
/// Value in the place of a text's length if there is no text (`src/bpf/syscalls.h`).
const NO_TEXT: u32 = u32::MAX;
const UNREADABLE: u32 = u32::MAX - 1;
/// Text for a missing path in traces: an empty path is one that the program gave (as with
/// `AT_EMPTY_PATH`).
const NULL_TEXT: &[u8] = b"<null>\0";
const UNREADABLE_TEXT: &[u8] = b"<unreadable>\0";

/// Field with the bytes of the socket address that a call was given, empty if they were not read,
/// or of the one that it returned.
const ADDRESS: &str = "sockaddr";

/// Key of a class of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// One of [`KNOWN`], by its place.
    Known(usize),
    /// One of [`state::NAMES`], by its place.
    State(usize),
    /// A probe that was asked for, by its place among them.
    Probe(usize),
    /// The entry of a call.
    Entry(Call),
    /// The exit of a call, with the paths (bits by their order) that could not be read at its
    /// entry, or with the address that it returned (bit 0).
    Exit(Call, u8),
    /// Description of a stack.
    Stacks(StackEvent),
    /// A tracepoint without a program of its own, by its place in [`Vocabulary::tracepoints`].
    Tracepoint(usize),
}

/// Descriptions of classes, on one machine and in one recording.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    /// The system calls.
    pub calls: Calls,
    /// The chosen tracepoints without programs of their own, as [`crate::Selection`] has them.
    pub tracepoints: Vec<Tracepoint>,
    /// The probes that were asked for.
    pub probes: Vec<Probe>,
}

/// A call in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// One whose name is known, by its number.
    Known(u32),
    /// Any other; its number is a field.
    Unknown,
    /// Any call of a 32-bit program; its number is a field.
    Compatible,
}

impl Vocabulary {
    /// Vocabulary of events with programs of their own and of system calls.
    pub fn of_calls(calls: Calls) -> Self {
        Self { calls, tracepoints: Vec::new(), probes: Vec::new() }
    }

    /// The description of a class.
    ///
    /// # Panics
    /// If there is no such class. Those that the decoder gives are there.
    pub fn event(&self, class: Class) -> Event {
        let calls = &self.calls;
        match class {
            Class::Known(place) => KNOWN[place].event(),
            Class::Probe(place) => self.probes[place].event().clone(),
            Class::State(place) => state::event(place),
            Class::Stacks(kind) => stacks::event(kind),
            Class::Tracepoint(place) => self.tracepoints[place].event().clone(),
            Class::Entry(call) => {
                let arguments = calls.arguments(number_of(call)).iter();
                let fields = arguments.map(|argument| Field::new(&argument.name, argument.ty.clone()));
                let address = calls.address(number_of(call));
                let address = address.map(|_| Field::new(ADDRESS, Type::Sequence(Integer::hex(8))));
                let fields = id(call).into_iter().chain(fields).chain(address).collect();
                description(&name(calls, "entry", call), fields)
            }
            Class::Exit(call, read) => {
                let ret = Field::new("ret", Type::Integer(Integer::signed(64)));
                let fields = id(call).into_iter().chain([ret]).chain(self.fields_read(call, read)).collect();
                description(&name(calls, "exit", call), fields)
            }
        }
    }

    /// Returns the fields of a call's exit that were read there: paths, or the address that the
    /// call returned, behind its size.
    fn fields_read(&self, call: Call, read: u8) -> Vec<Field> {
        let arguments = self.calls.arguments(number_of(call));
        let has = |place: usize| read >> place & 1 == 1;
        if let Some(address) = self.calls.returned_address(number_of(call)) {
            let size = arguments.get(address + 1).filter(|_| has(0));
            let size = size.map(|size| Field::new(&size.name, Type::Integer(Integer::unsigned(32))));
            let bytes = |_: &Field| Field::new(ADDRESS, Type::Sequence(Integer::hex(8)));
            return size.iter().cloned().chain(size.as_ref().map(bytes)).collect();
        }
        let paths = arguments.iter().filter(|argument| argument.is_path()).zip(0..MAX_PATHS);
        let paths = paths.filter(|(_, place)| has(*place));
        paths.map(|(argument, _)| Field::new(&argument.name, Type::String)).collect()
    }
}

fn name(calls: &Calls, kind: &str, call: Call) -> String {
    let name = calls.event_name(kind, number_of(call));
    if call == Call::Compatible { format!("compat_{name}") } else { name }
}

/// A record that doesn't fit what its number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit;

/// Turns records into events.
#[derive(Debug)]
pub struct Decoder {
    vocabulary: Arc<Vocabulary>,
    payload: Vec<u8>,
}

impl Decoder {
    /// A decoder for a recording with these words.
    pub fn new(vocabulary: Arc<Vocabulary>) -> Self {
        Self { vocabulary, payload: Vec::new() }
    }

    fn call(&self, extra: u32) -> Call {
        match extra {
            _ if extra & COMPATIBLE != 0 && extra != u32::MAX => Call::Compatible,
            number if self.vocabulary.calls.knows(number) => Call::Known(number),
            _ => Call::Unknown,
        }
    }

    /// A record's class, and its payload as the class's description has it.
    #[inline]
    pub fn decode<'a>(&'a mut self, record: &UntrustedRecord<'a>) -> Result<(Class, &'a [u8]), Misfit> {
        match record.number {
            SYSCALL_ENTRY => self.entry(record),
            SYSCALL_EXIT => self.exit(record),
            PROBE => self.probe(record),
            TRACEPOINT => self.tracepoint(record),
            number => {
                let place = usize::from(number).checked_sub(FIRST.into()).ok_or(Misfit)?;
                (place < KNOWN.len()).then_some((Class::Known(place), record.payload)).ok_or(Misfit)
            }
        }
    }

    fn entry<'a>(&'a mut self, record: &UntrustedRecord<'a>) -> Result<(Class, &'a [u8]), Misfit> {
        let call = self.call(record.extra);
        let (numbers, rest) = record.payload.split_at_checked(MAX_ARGUMENTS * 8).ok_or(Misfit)?;
        let texts = Texts::parse(rest)?;
        self.payload.clear();
        self.push_id(call, record.extra);
        let mut tails = Vec::new();
        let mut texts = texts.0.into_iter();
        for (argument, number) in
            self.vocabulary.calls.arguments(number_of(call)).iter().zip(numbers.chunks_exact(8))
        {
            if argument.is_path() {
                let text = texts.next().flatten().unwrap_or(NULL_TEXT);
                self.payload.extend((text.len() as u32).to_le_bytes());
                tails.extend_from_slice(text);
            } else {
                self.payload.extend_from_slice(&number[..argument.ty.fixed_size().min(8)]);
            }
        }
        if self.vocabulary.calls.address(number_of(call)).is_some() {
            let bytes = texts.next().flatten().filter(|bytes| *bytes != UNREADABLE_TEXT).unwrap_or_default();
            self.payload.extend((bytes.len() as u32).to_le_bytes());
            tails.extend_from_slice(bytes);
        }
        self.payload.extend(tails);
        Ok((Class::Entry(call), &self.payload))
    }

    fn exit<'a>(&'a mut self, record: &UntrustedRecord<'a>) -> Result<(Class, &'a [u8]), Misfit> {
        let call = self.call(record.extra);
        let (ret, rest) = record.payload.split_at_checked(8).ok_or(Misfit)?;
        let texts = Texts::parse(rest)?;
        self.payload.clear();
        self.push_id(call, record.extra);
        self.payload.extend_from_slice(ret);
        let number = number_of(call);
        if self.vocabulary.calls.returned_address(number).is_some() {
            let [Some(address), Some(size)] = texts.0 else {
                return Ok((Class::Exit(call, 0), &self.payload));
            };
            let size: [u8; 4] = size.try_into().map_err(|_| Misfit)?;
            self.payload.extend_from_slice(&size);
            self.payload.extend((address.len() as u32).to_le_bytes());
            self.payload.extend_from_slice(address);
            return Ok((Class::Exit(call, 1), &self.payload));
        }
        let paths =
            self.vocabulary.calls.arguments(number).iter().filter(|argument| argument.is_path()).count();
        let mut read = 0;
        let texts = texts.0.into_iter().take(paths).enumerate();
        let there: Vec<_> = texts.filter_map(|(place, text)| Some((place, text?))).collect();
        for (place, text) in &there {
            read |= 1 << place;
            self.payload.extend((text.len() as u32).to_le_bytes());
        }
        there.iter().for_each(|(_, text)| self.payload.extend_from_slice(text));
        Ok((Class::Exit(call, read), &self.payload))
    }

    fn probe<'a>(&'a mut self, record: &UntrustedRecord<'a>) -> Result<(Class, &'a [u8]), Misfit> {
        let place = record.extra as usize;
        self.vocabulary.probes.get(place).ok_or(Misfit)?.payload(record.payload, &mut self.payload)?;
        Ok((Class::Probe(place), &self.payload))
    }

    fn tracepoint<'a>(&'a mut self, record: &UntrustedRecord<'a>) -> Result<(Class, &'a [u8]), Misfit> {
        let place = record.extra as usize;
        let tracepoint = self.vocabulary.tracepoints.get(place).ok_or(Misfit)?;
        tracepoint.payload(record.payload, &mut self.payload).map_err(|_| Misfit)?;
        Ok((Class::Tracepoint(place), &self.payload))
    }

    fn push_id(&mut self, call: Call, extra: u32) {
        if !matches!(call, Call::Known(_)) {
            let number = if extra == u32::MAX { extra } else { extra & !COMPATIBLE };
            self.payload.extend(number.to_le_bytes());
        }
    }
}

/// A number that has the call's name and arguments.
fn number_of(call: Call) -> u32 {
    match call {
        Call::Known(number) => number,
        Call::Unknown | Call::Compatible => u32::MAX,
    }
}

/// The field that has the call's number, where its name doesn't say it.
fn id(call: Call) -> Option<Field> {
    (!matches!(call, Call::Known(_))).then(|| Field::new("id", Type::Integer(Integer::signed(32))))
}

/// The texts of a record, behind their two lengths.
struct Texts<'a>([Option<&'a [u8]>; MAX_PATHS]);

impl<'a> Texts<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Misfit> {
        if bytes.is_empty() {
            return Ok(Self([None; MAX_PATHS]));
        }
        let (lengths, mut rest) = bytes.split_at_checked(8).ok_or(Misfit)?;
        let mut texts = [None; MAX_PATHS];
        for (place, length) in texts.iter_mut().zip(lengths.chunks_exact(4)) {
            *place = match u32::from_le_bytes(length.try_into().map_err(|_| Misfit)?) {
                NO_TEXT => None,
                UNREADABLE => Some(UNREADABLE_TEXT),
                length => {
                    let (text, behind) = rest.split_at_checked(length as usize).ok_or(Misfit)?;
                    rest = behind;
                    Some(text)
                }
            };
        }
        Ok(Self(texts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u16, extra: u32, payload: &[u8]) -> UntrustedRecord<'_> {
        UntrustedRecord { number, tid: 1, pid: 1, time: 1, extra, payload, context: &[] }
    }

    fn decoder() -> Decoder {
        Decoder::new(Arc::new(vocabulary()))
    }

    fn vocabulary() -> Vocabulary {
        Vocabulary::of_calls(Calls::without_formats())
    }

    #[test]
    fn an_unknown_call_has_its_number() {
        let mut decoder = decoder();
        let payload = [7u8; 48];
        let (class, bytes) = decoder.decode(&record(SYSCALL_ENTRY, 9999, &payload)).unwrap();
        assert_eq!((class, bytes.len()), (Class::Entry(Call::Unknown), 52));
        assert_eq!(bytes[..4], 9999u32.to_le_bytes());
        let event = vocabulary().event(class);
        assert_eq!((&*event.name, event.fixed_size()), ("syscall_entry_unknown", 52));
        let (class, _) = decoder.decode(&record(SYSCALL_ENTRY, 5 | COMPATIBLE, &payload)).unwrap();
        assert_eq!(vocabulary().event(class).name, "compat_syscall_entry_unknown");
        // What the kernel says of a call that was ended by a return from a signal.
        let (class, bytes) = decoder.decode(&record(SYSCALL_EXIT, u32::MAX, &payload[..8])).unwrap();
        assert_eq!((class, &bytes[..4]), (Class::Exit(Call::Unknown, 0), &[0xff; 4][..]));
    }

    #[test]
    fn bytes_that_are_too_few_are_refused() {
        let mut decoder = decoder();
        for length in 0..48 {
            assert_eq!(decoder.decode(&record(SYSCALL_ENTRY, 0, &[0; 48][..length])), Err(Misfit));
        }
        let lies = [&[0; 48][..], &100u32.to_le_bytes(), &NO_TEXT.to_le_bytes(), b"abc\0\0\0\0\0"].concat();
        assert_eq!(decoder.decode(&record(SYSCALL_ENTRY, 0, &lies)), Err(Misfit));
        assert_eq!(decoder.decode(&record(999, 0, &[0; 64])), Err(Misfit));
    }

    #[test]
    fn every_class_has_a_description_of_its_own() {
        let known = (0..KNOWN.len()).map(Class::Known);
        let names: Vec<String> = known.map(|class| vocabulary().event(class).full_name()).collect();
        assert!(names.iter().all(|name| !name.contains(':')), "{names:?}");
    }
}
