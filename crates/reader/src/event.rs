//! Event with typed access to its fields.

use tompion_ctf::decode::{Fields, Value, Values};
use tompion_ctf::metadata;

use crate::discover::Trace;
use crate::file::StreamFile;

/// Event of a trace. Its values borrow the reader's window until the next event is read.
pub struct Event<'a> {
    trace: &'a Trace,
    trace_index: usize,
    source: usize,
    file: &'a StreamFile,
    class: &'a metadata::Event,
    timestamp: Option<i64>,
}

/// Indexes that identify an event class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index in [`crate::TraceSet::traces`].
    pub trace: usize,
    /// Index in the trace's `streams`.
    pub stream: usize,
    /// Index in the stream's `events`.
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

    /// Returns the event's trace.
    pub fn trace(&self) -> &'a Trace {
        self.trace
    }

    /// Returns the index of the event's trace in [`crate::TraceSet::traces`].
    pub fn trace_index(&self) -> usize {
        self.trace_index
    }

    /// Returns the indexes of the event class.
    pub fn place(&self) -> Place {
        Place { trace: self.trace_index, stream: self.file.stream(), class: self.file.class }
    }

    /// Returns the index of the event's stream among all streams of the set.
    pub fn source(&self) -> usize {
        self.source
    }

    /// Returns the event class: names, level, types.
    pub fn class(&self) -> &'a metadata::Event {
        self.class
    }

    /// Returns the name, as `provider:name`.
    pub fn name(&self) -> &'a str {
        &self.class.name
    }

    /// Returns the timestamp in nanoseconds since the epoch (or since the clock's own origin), or
    /// `None` if the trace has no clock.
    pub fn timestamp(&self) -> Option<i64> {
        self.timestamp
    }

    /// Returns the timestamp in cycles of the stream's clock; 0 without a clock.
    pub fn cycles(&self) -> u64 {
        self.file.decoder.cycles(&self.file.state)
    }

    /// Returns the context of the event's packet, sizes and counters included.
    pub fn packet_context(&self) -> Fields<'a> {
        match &self.file.packet {
            Some(packet) => self.file.decoder.packet_context(packet, self.file.packet_input()),
            None => self.payload(),
        }
    }

    /// Returns the context that all events of the stream have.
    pub fn stream_context(&self) -> Fields<'a> {
        self.file.decoder.stream_context(self.file.stream(), self.file.input(), &self.file.state)
    }

    /// Returns the context that events of this class have.
    pub fn context(&self) -> Fields<'a> {
        let class = (self.file.stream(), self.file.class);
        self.file.decoder.event_context(class, self.file.body, self.file.input(), &self.file.state)
    }

    /// Returns the event's own fields.
    pub fn payload(&self) -> Fields<'a> {
        let class = (self.file.stream(), self.file.class);
        self.file.decoder.payload(class, self.file.body, self.file.input(), &self.file.state)
    }

    /// Returns the values of both contexts and of the event itself.
    #[inline]
    pub(crate) fn values(&self) -> Values<'a> {
        self.file.decoder.values(self.file.input(), &self.file.state)
    }

    /// Returns the number that distinguishes the event's packet from all others in the file.
    pub(crate) fn packet_number(&self) -> u64 {
        self.file.packets
    }

    /// Returns the field with this name: the event's own, otherwise one of its contexts'.
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        let scopes = [self.payload(), self.context(), self.stream_context(), self.packet_context()];
        scopes.into_iter().find_map(|fields| fields.get(name))
    }

    /// Returns the CPU on which the event was recorded, if the packet states it.
    pub fn cpu(&self) -> Option<u64> {
        self.file.cpu.or_else(|| self.payload().get("perf_cpu")?.as_integer()?.try_into().ok())
    }

    /// Returns the stream class.
    pub(crate) fn stream_class(&self) -> Option<&'a metadata::Stream> {
        self.file.decoder.stream(self.file.stream())
    }
}
