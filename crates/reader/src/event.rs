//! One event, with typed access to its fields.

use tompion_ctf::decode::{Fields, Value, Values};
use tompion_ctf::metadata;

use crate::discover::Trace;
use crate::file::StreamFile;

/// An event. Its values borrow the reader's window until the next event is read.
pub struct Event<'a> {
    trace: &'a Trace,
    trace_index: usize,
    source: usize,
    file: &'a StreamFile,
    class: &'a metadata::Event,
    timestamp: Option<i64>,
}

/// An event class by its indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// In [`crate::TraceSet::traces`].
    pub trace: usize,
    /// In the trace's `streams`.
    pub stream: usize,
    /// In the stream's `events`.
    pub class: usize,
}

impl<'a> Event<'a> {
    #[inline]
    pub(crate) fn new(
        trace: &'a Trace,
        (trace_index, source): (usize, usize),
        file: &'a StreamFile,
        timestamp: Option<i64>,
    ) -> Option<Self> {
        let class = file.decoder.stream(file.stream())?.events.get(file.class)?;
        Some(Self { trace, trace_index, source, file, class, timestamp })
    }

    /// The trace that it is from.
    pub fn trace(&self) -> &'a Trace {
        self.trace
    }

    /// The index of its trace in [`crate::TraceSet::traces`].
    pub fn trace_index(&self) -> usize {
        self.trace_index
    }

    /// Where its class stands in the descriptions.
    pub fn place(&self) -> Place {
        Place { trace: self.trace_index, stream: self.file.stream(), class: self.file.class }
    }

    /// The index of its stream among all streams of the set.
    pub fn source(&self) -> usize {
        self.source
    }

    /// Its class: names, level, types.
    pub fn class(&self) -> &'a metadata::Event {
        self.class
    }

    /// `provider:name`.
    pub fn name(&self) -> &'a str {
        &self.class.name
    }

    /// When it happened, in nanoseconds since the epoch (or since the clock's own origin); nothing if
    /// the trace has no clock.
    pub fn timestamp(&self) -> Option<i64> {
        self.timestamp
    }

    /// The value of its stream's clock when it happened, in cycles; 0 without a clock.
    pub fn cycles(&self) -> u64 {
        self.file.decoder.cycles(&self.file.state)
    }

    /// The context of its packet, sizes and counters included.
    pub fn packet_context(&self) -> Fields<'a> {
        match &self.file.packet {
            Some(packet) => self.file.decoder.packet_context(packet, self.file.packet_input()),
            None => self.payload(),
        }
    }

    /// The context that all events of its stream have.
    pub fn stream_context(&self) -> Fields<'a> {
        self.file.decoder.stream_context(self.file.stream(), self.file.input(), &self.file.state)
    }

    /// The context that events of its class have.
    pub fn context(&self) -> Fields<'a> {
        let class = (self.file.stream(), self.file.class);
        self.file.decoder.event_context(class, self.file.body, self.file.input(), &self.file.state)
    }

    /// Its own fields.
    pub fn payload(&self) -> Fields<'a> {
        let class = (self.file.stream(), self.file.class);
        self.file.decoder.payload(class, self.file.body, self.file.input(), &self.file.state)
    }

    /// Its values: both contexts' and its own.
    #[inline]
    pub(crate) fn values(&self) -> Values<'a> {
        self.file.decoder.values(self.file.input(), &self.file.state)
    }

    /// What distinguishes its packet from all others in the file.
    pub(crate) fn packet_number(&self) -> u64 {
        self.file.packets
    }

    /// The field of this name: its own, or else of its contexts.
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        let scopes = [self.payload(), self.context(), self.stream_context(), self.packet_context()];
        scopes.into_iter().find_map(|fields| fields.get(name))
    }

    /// The CPU on which it was recorded, if the packet says so.
    pub fn cpu(&self) -> Option<u64> {
        self.file.cpu.or_else(|| self.payload().get("perf_cpu")?.as_integer()?.try_into().ok())
    }

    /// Whether the class of its stream has such a structure.
    pub(crate) fn stream_class(&self) -> Option<&'a metadata::Stream> {
        self.file.decoder.stream(self.file.stream())
    }
}
