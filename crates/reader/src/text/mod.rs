//! Prints events as lines of text, in the format of babeltrace2 2.0.4.
//!
//! ```text
//! [17:46:22.794565804] (+?.?????????) box sched_waking: { cpu_id = 2 }, { comm = "sh", tid = 42 }
//! ```
//!
//! With decoded system calls, their events end with ` # flags = O_RDONLY|O_CLOEXEC`. With resolved
//! addresses, events that have some end with ` # compute(int) from main+0x1b`. An event's stacks
//! follow in lines of their own.

mod digits;
mod header;
mod layout;
mod time;
mod value;

use std::io::Write;
use std::sync::Arc;

use crate::dropped::{DroppedChunk, dropped_chunks};
use crate::lines::{self, First, Lines, Moment};
use crate::symbols::{self, Symbols};
use crate::syscall_decode::{self, SyscallDecoder};
use crate::{Error, Event, Loss, LossKind, TraceSet};
pub use header::HeaderFields;
use header::Origin;
use layout::Layout;
pub(crate) use time::Times;
pub use time::{ClockFormat, TimeFormat};
use tompion_ctf::decode::Value;
use tompion_ctf::metadata::{Field, Version};

/// Options of text output.
#[derive(Clone, Debug, Default)]
pub struct PrintOptions {
    /// Format of times.
    pub time: TimeFormat,
    /// Whether to omit the time since the preceding event.
    pub no_delta: bool,
    /// Properties before an event's name.
    pub fields: HeaderFields,
    /// Choice of names.
    pub names: Names,
    /// Whether to colour names of events and fields, by the sequences in [`COLOURS`].
    pub colour: bool,
    /// Whether to append the C names of flags, commands and errors to events of system calls.
    pub explain: bool,
}

/// Choice of names to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Names of event fields.
    pub payload: bool,
    /// Names of context fields.
    pub context: bool,
    /// Names of the structures themselves: `event.fields = { … }`.
    pub scope: bool,
    /// Names of the properties at the beginning: `timestamp = …, name = …`.
    pub header: bool,
}

impl Names {
    /// No names.
    pub const NONE: Self = Self { payload: false, context: false, scope: false, header: false };
    /// All names.
    pub const ALL: Self = Self { payload: true, context: true, scope: true, header: true };
}

impl Default for Names {
    fn default() -> Self {
        Self { payload: true, context: true, ..Self::NONE }
    }
}

/// All terminal sequences that coloured lines contain.
pub const COLOURS: [&str; 3] = [NAME_COLOUR, FIELD_COLOUR, NO_COLOUR];
const NAME_COLOUR: &str = "\x1b[1;32m";
const FIELD_COLOUR: &str = "\x1b[36m";
const NO_COLOUR: &str = "\x1b[0m";

/// Names of packet context fields that are used only for reading packets.
const PACKET_FIELDS: [&str; 6] =
    ["timestamp_begin", "timestamp_end", "content_size", "packet_size", "events_discarded", "packet_seq_num"];

/// Returns the packet context without fields that are used only for reading packets.
pub(crate) fn packet_fields<'a>(event: &Event<'a>) -> impl Iterator<Item = (&'a str, Value<'a>)> {
    let version = event.trace().metadata().version;
    let context = event.packet_context();
    let is_shown = move |name: &str, field: &Field| match version {
        Version::One => !PACKET_FIELDS.contains(&name),
        Version::Two => {
            field.ty.as_integer().is_none_or(|integer| integer.roles.is_empty() && integer.clock.is_none())
        }
    };
    let types = context.types().iter();
    types.zip(context).filter(move |(field, (name, _))| is_shown(name, field)).map(|(_, field)| field)
}

/// Prints all remaining events on several threads; returns their number.
///
/// # Errors
///
/// Fails if the output cannot be written.
pub fn print(traces: &mut TraceSet, options: &PrintOptions, output: &mut dyn Write) -> Result<u64, Error> {
    let new = lines(traces, options);
    lines::print(traces, &new, output)
}

/// Returns a function that creates printers.
pub(crate) fn lines(traces: &mut TraceSet, options: &PrintOptions) -> impl Fn() -> Printer + use<> {
    let origin = |trace| Origin::new(trace, options.fields);
    let origins: Arc<[Origin]> = traces.traces().iter().map(origin).collect();
    let (symbols, options) = (traces.symbols.take(), options.clone());
    move || Printer {
        symbols: symbols.clone(),
        times: Times::new(&options.time, !options.no_delta).with_names(options.names.header),
        options: options.clone(),
        origins: origins.clone(),
        sources: Vec::new(),
        first: None,
    }
}

/// Returns a [`loss_warning`] for each loss, in order of time.
pub fn loss_warnings(traces: &TraceSet, options: &PrintOptions) -> Vec<String> {
    let mut losses: Vec<&Loss> = traces.losses().iter().collect();
    losses.sort_by_key(|loss| loss.between.0);
    losses.into_iter().map(|loss| loss_warning(traces, loss, options)).collect()
}

/// Formats all losses, and the holes of the recordings, a line each.
pub fn all_warnings(traces: &TraceSet, options: &PrintOptions) -> Vec<String> {
    let losses = traces.losses().iter().map(|loss| loss_warning(traces, loss, options));
    let dropped = dropped_chunks(traces);
    losses.chain(dropped.iter().map(|dropped| dropped_warning(dropped, options))).collect()
}

/// Formats a hole of a recording: `Chunk 3 is missing after [17:46:22.794565804] and
/// before [17:46:23.000000000] in recording "…": …`.
pub fn dropped_warning(dropped: &DroppedChunk, options: &PrintOptions) -> String {
    let mut times = Times::new(&options.time, false);
    let mut bound = |word: &str, time: Option<i64>, text: &mut Vec<u8>| {
        let Some(time) = time else { return };
        text.extend_from_slice(word.as_bytes());
        times.time(time, text);
        text.push(b']');
    };
    let mut text = format!("Chunk {} is missing", dropped.number).into_bytes();
    match (dropped.after_ns, dropped.before_ns) {
        (None, None) => text.extend_from_slice(b" (unknown time range)"),
        (after, before) => {
            bound(" after [", after, &mut text);
            let word = if after.is_some() { " and before [" } else { " before [" };
            bound(word, before, &mut text);
        }
    }
    let (text, path) = (String::from_utf8_lossy(&text), dropped.recording.display());
    format!("{text} in recording \"{path}\": {}", dropped.reason)
}

/// Formats a loss as babeltrace2 does: `Tracer discarded 3 events between [17:46:22.794565804] and
/// [17:46:23.000000000] in trace "…" …`. For an upper bound, which babeltrace2 doesn't report, it
/// says that the tracer may have discarded up to that number.
pub fn loss_warning(traces: &TraceSet, loss: &Loss, options: &PrintOptions) -> String {
    let unit = match (loss.kind, loss.count) {
        (LossKind::EventsUnknown, _) => "events",
        (LossKind::Events | LossKind::EventsAtMost, 1) => "event",
        (LossKind::Events | LossKind::EventsAtMost, _) => "events",
        (LossKind::Packets, 1) => "packet",
        (LossKind::Packets, _) => "packets",
    };
    let mut times = Times::new(&options.time, false);
    let discarded = match loss.kind {
        LossKind::EventsAtMost => "may have discarded up to",
        LossKind::Events | LossKind::EventsUnknown | LossKind::Packets => "discarded",
    };
    let count = match loss.kind {
        LossKind::EventsUnknown => "an unknown number of".into(),
        _ => loss.count.to_string(),
    };
    let mut text = format!("Tracer {discarded} {count} {unit}").into_bytes();
    match loss.between {
        (Some(from), Some(to)) => {
            text.extend_from_slice(b" between [");
            times.time(from, &mut text);
            text.extend_from_slice(b"] and [");
            times.time(to, &mut text);
            text.push(b']');
        }
        _ => text.extend_from_slice(b" (unknown time range)"),
    }
    let text = String::from_utf8_lossy(&text);
    let (mut name, mut uuid) = (String::new(), String::new());
    if let Some(trace) = traces.traces().get(loss.trace) {
        name = trace.name().to_owned();
        uuid = trace.metadata().uuid.map(|uuid| format!(" (UUID: {uuid})")).unwrap_or_default();
    }
    let path = std::path::absolute(&loss.path).unwrap_or_else(|_| loss.path.clone());
    let stream = loss.stream.map(|stream| format!(", stream ID: {stream}")).unwrap_or_default();
    format!(
        "{text} in trace \"{name}\"{uuid} within stream \"{}\" (stream class ID: {}{stream}).",
        path.display(),
        loss.stream_class
    )
}

/// Returns the fields of an event as its line shows them, with their names: of the packet, of the
/// contexts, and its own.
pub fn fields(event: &Event<'_>) -> Vec<(String, String)> {
    let contexts = event.stream_context().chain(event.context());
    let all = packet_fields(event).chain(contexts).chain(event.payload());
    all.map(|(name, value)| (name.to_owned(), value_text(value))).collect()
}

/// Returns an event's own fields in one line: `rows = 12, table = "orders"`.
pub fn payload(event: &Event<'_>) -> String {
    let mut line = Vec::new();
    for (name, value) in event.payload() {
        if !line.is_empty() {
            line.extend_from_slice(b", ");
        }
        value::field(name, value, true, &mut line);
    }
    String::from_utf8_lossy(&line).into_owned()
}

/// Formats a value as in a line.
pub fn value_text(value: Value<'_>) -> String {
    let mut text = Vec::new();
    value::value(value, true, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Text that lines of one source share.
#[derive(Default)]
struct SourceLines {
    /// Number of the packet whose context this is.
    packet: u64,
    trace: usize,
    stream: usize,
    context: Vec<u8>,
    classes: Vec<Option<ClassLines>>,
}

/// Text that lines of one class in one packet share.
struct ClassLines {
    packet: u64,
    /// Text from the time to the first value.
    begin: Vec<u8>,
    layout: Layout,
    /// Whether there are fields with addresses.
    has_addresses: bool,
    /// Decoder of the numbers, if they are to be decoded.
    decoder: Option<SyscallDecoder>,
}

pub(crate) struct Printer {
    symbols: Option<Symbols>,
    times: Times,
    options: PrintOptions,
    origins: Arc<[Origin]>,
    sources: Vec<SourceLines>,
    first: Option<First>,
}

impl Lines for Printer {
    #[inline]
    fn line(&mut self, event: &Event<'_>, line: &mut Vec<u8>) {
        if let Some(time) = event.timestamp() {
            let moment = Moment { time, cycles: event.cycles() };
            if self.times.last().is_none() {
                let begin = line.len();
                self.times.write(moment, line);
                self.first = Some(First { place: begin..line.len(), moment });
            } else {
                self.times.write(moment, line);
            }
        }
        if self.sources.len() <= event.source() {
            self.sources.resize_with(event.source() + 1, SourceLines::default);
        }
        let Some(source) = self.sources.get_mut(event.source()) else { return };
        let packet = event.packet_number();
        let place = event.place();
        if source.packet != packet {
            source.begin_packet(event, self.options.names);
        }
        if source.classes.len() <= place.class {
            source.classes.resize_with(place.class + 1, || None);
        }
        let Some(lines) = source.classes.get_mut(place.class) else { return };
        let lines = match lines {
            Some(lines) if lines.packet == packet => lines,
            stale => {
                let Some(origin) = self.origins.get(place.trace) else { return };
                let begin = origin.begin(event.class(), event.timestamp().is_some(), &self.options);
                let layout = stale.take().map(|lines| lines.layout);
                stale.insert(ClassLines::new(event, (&begin, &source.context), layout, &self.options))
            }
        };
        line.extend_from_slice(&lines.begin);
        // The layout includes the end of the line.
        lines.layout.write(event.values(), line);
        if let Some(decoder) = &lines.decoder {
            line.pop();
            syscall_decode::write_text(decoder, event, line);
            line.push(b'\n');
        }
        if let Some(symbols) = self.symbols.as_mut().filter(|_| lines.has_addresses) {
            line.pop();
            symbols.write_text(event, line);
            line.push(b'\n');
            symbols.write_stacks(event, line);
        }
    }

    fn begin(&mut self) {
        self.times.set_last(None);
        self.first = None;
    }

    fn first(&mut self) -> Option<First> {
        self.first.take()
    }

    fn last(&self) -> Option<Moment> {
        self.times.last()
    }

    fn link(&mut self, before: Option<Moment>, first: &First, text: &mut Vec<u8>) {
        let last = self.times.last();
        self.times.set_last(before);
        self.times.write(first.moment, text);
        self.times.set_last(last);
    }
}

impl SourceLines {
    fn begin_packet(&mut self, event: &Event<'_>, names: Names) {
        let place = event.place();
        self.packet = event.packet_number();
        if (self.trace, self.stream) != (place.trace, place.stream) {
            (self.trace, self.stream) = (place.trace, place.stream);
            self.classes.clear();
        }
        self.context.clear();
        for (name, value) in packet_fields(event) {
            if self.context.is_empty() {
                self.context.extend_from_slice(if names.scope { b"stream.packet.context = " } else { b"" });
                self.context.extend_from_slice(b"{ ");
            } else {
                self.context.extend_from_slice(b", ");
            }
            value::field(name, value, names.context, &mut self.context);
        }
        if !self.context.is_empty() {
            self.context.extend_from_slice(b" }");
        }
    }
}

impl ClassLines {
    /// Reuses the layout of an earlier packet, if there is one.
    fn new(
        event: &Event<'_>,
        (begin, context): (&[u8], &[u8]),
        layout: Option<Layout>,
        options: &PrintOptions,
    ) -> Self {
        let layout = match (layout, event.stream_class()) {
            (Some(layout), _) => layout,
            (None, Some(stream)) => Layout::new(stream, event.class(), !context.is_empty(), options),
            (None, None) => Layout::default(),
        };
        let begin = [begin, context, &layout.begin].concat();
        let has_addresses = symbols::has_names(event);
        let decoder = options.explain.then(|| SyscallDecoder::of(event.name())).flatten();
        Self { packet: event.packet_number(), begin, layout, has_addresses, decoder }
    }
}
