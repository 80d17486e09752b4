//! Events as lines of text, as babeltrace2 2.0.4 prints them.
//!
//! ```text
//! [17:46:22.794565804] (+?.?????????) wilbrod sched_waking: { cpu_id = 2 }, { comm = "sh", tid = 4297 }
//! ```
//!
//! Where addresses are to be named, events that have some end with ` # compute(int) from main+0x1b`.

mod layout;
mod time;
mod value;

use std::io::Write;

use crate::symbols::{self, Symbols};
use crate::{Error, Event, Loss, LossKind, Trace, TraceSet};
use layout::Layout;
use time::Times;
pub use time::{ClockFormat, TimeFormat};
use tompion_ctf::decode::Value;
use tompion_ctf::metadata::{EnvironmentValue, Field, Version};

/// How to print.
#[derive(Clone, Debug, Default)]
pub struct PrintOptions {
    /// How times are shown.
    pub time: TimeFormat,
    /// Leave out the time since the event before.
    pub no_delta: bool,
}

/// Names of packet context fields that every reader deals with itself.
const PACKET_FIELDS: [&str; 6] =
    ["timestamp_begin", "timestamp_end", "content_size", "packet_size", "events_discarded", "packet_seq_num"];

/// The fields of a packet that readers don't deal with themselves.
fn packet_fields<'a>(event: &Event<'a>) -> impl Iterator<Item = (&'a str, Value<'a>)> {
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

/// Bytes that are gathered before they are written.
const BUFFER: usize = 256 << 10;

/// Prints all events that are left; returns how many.
///
/// # Errors
///
/// If the output cannot be written.
pub fn print(traces: &mut TraceSet, options: &PrintOptions, output: &mut dyn Write) -> Result<u64, Error> {
    let origins: Vec<Vec<u8>> = traces.traces().iter().map(origin).collect();
    let mut printer = Printer {
        symbols: traces.symbols.take(),
        times: Times::new(&options.time, !options.no_delta),
        origins,
        sources: Vec::new(),
        events: 0,
    };
    let mut buffer = Vec::with_capacity(BUFFER + 4096);
    while let Some(event) = traces.next_event() {
        printer.event(&event, &mut buffer);
        if buffer.len() >= BUFFER {
            output.write_all(&buffer)?;
            buffer.clear();
        }
    }
    output.write_all(&buffer)?;
    output.flush()?;
    Ok(printer.events)
}

/// [`loss_warning`] of everything that was lost, in order of time.
pub fn loss_warnings(traces: &TraceSet, options: &PrintOptions) -> Vec<String> {
    let mut losses: Vec<&Loss> = traces.losses().iter().collect();
    losses.sort_by_key(|loss| loss.between.0);
    losses.into_iter().map(|loss| loss_warning(traces, loss, options)).collect()
}

/// What babeltrace2 says when something was lost:
/// `Tracer discarded 3 events between [17:46:22.794565804] and [17:46:23.000000000] in trace "…" …`.
pub fn loss_warning(traces: &TraceSet, loss: &Loss, options: &PrintOptions) -> String {
    let unit = match (loss.kind, loss.count) {
        (LossKind::Events, 1) => "event",
        (LossKind::Events, _) => "events",
        (LossKind::Packets, 1) => "packet",
        (LossKind::Packets, _) => "packets",
    };
    let mut times = Times::new(&options.time, false);
    let mut text = format!("Tracer discarded {} {unit}", loss.count).into_bytes();
    if let (Some(from), Some(to)) = loss.between {
        text.extend_from_slice(b" between [");
        times.time(from, &mut text);
        text.extend_from_slice(b"] and [");
        times.time(to, &mut text);
        text.push(b']');
    }
    let text = String::from_utf8_lossy(&text);
    let (mut name, mut uuid) = (String::new(), String::new());
    if let Some(trace) = traces.traces().get(loss.trace) {
        name = trace_name(traces, trace);
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

/// The host and the trace's folder below the path that was opened.
fn trace_name(traces: &TraceSet, trace: &Trace) -> String {
    let below = traces.roots().iter().find_map(|root| trace.path.strip_prefix(root).ok());
    let below = below.map(|path| path.to_string_lossy().into_owned()).filter(|path| !path.is_empty());
    let host = trace.metadata().environment_value("hostname").map(ToString::to_string);
    host.into_iter().chain(below).collect::<Vec<_>>().join("/")
}

/// `hostname:procname:(vpid) `, as far as the trace has them.
fn origin(trace: &Trace) -> Vec<u8> {
    let value = |name| trace.metadata().environment_value(name);
    let text = |name| value(name).and_then(EnvironmentValue::as_text).map(String::from);
    let process = value("vpid").and_then(EnvironmentValue::as_integer).map(|pid| format!("({pid})"));
    let parts: Vec<String> = [text("hostname"), text("procname"), process].into_iter().flatten().collect();
    if parts.is_empty() { Vec::new() } else { format!("{} ", parts.join(":")).into_bytes() }
}

/// What lines of one source have in common.
#[derive(Default)]
struct SourceLines {
    /// Number of the packet whose context this is.
    packet: u64,
    trace: usize,
    stream: usize,
    context: Vec<u8>,
    classes: Vec<Option<Lines>>,
}

/// What lines of one class in one packet have in common.
struct Lines {
    packet: u64,
    /// From the time to the first value.
    begin: Vec<u8>,
    layout: Layout,
    /// Whether there are fields that can be named.
    has_addresses: bool,
}

struct Printer {
    symbols: Option<Symbols>,
    times: Times,
    origins: Vec<Vec<u8>>,
    sources: Vec<SourceLines>,
    events: u64,
}

impl Printer {
    fn event(&mut self, event: &Event<'_>, line: &mut Vec<u8>) {
        self.events += 1;
        if let Some(time) = event.timestamp() {
            self.times.write(time, line);
        }
        if self.sources.len() <= event.source() {
            self.sources.resize_with(event.source() + 1, SourceLines::default);
        }
        let Some(source) = self.sources.get_mut(event.source()) else { return };
        let packet = event.packet_number();
        let place = event.place();
        if source.packet != packet {
            source.begin_packet(event);
        }
        if source.classes.len() <= place.class {
            source.classes.resize_with(place.class + 1, || None);
        }
        let Some(lines) = source.classes.get_mut(place.class) else { return };
        let lines = match lines {
            Some(lines) if lines.packet == packet => lines,
            stale => {
                let origin = self.origins.get(place.trace).map_or(&[][..], Vec::as_slice);
                let layout = stale.take().map(|lines| lines.layout);
                stale.insert(Lines::new(event, origin, &source.context, layout))
            }
        };
        line.extend_from_slice(&lines.begin);
        // The line's end is the layout's.
        lines.layout.write(event.values(), line);
        if let Some(symbols) = self.symbols.as_mut().filter(|_| lines.has_addresses) {
            line.pop();
            symbols.write_text(event, line);
            line.push(b'\n');
        }
    }
}

impl SourceLines {
    fn begin_packet(&mut self, event: &Event<'_>) {
        let place = event.place();
        self.packet = event.packet_number();
        if (self.trace, self.stream) != (place.trace, place.stream) {
            (self.trace, self.stream) = (place.trace, place.stream);
            self.classes.clear();
        }
        self.context.clear();
        for (name, value) in packet_fields(event) {
            self.context.extend_from_slice(if self.context.is_empty() { b"{ " } else { b", " });
            value::field(name, value, &mut self.context);
        }
        if !self.context.is_empty() {
            self.context.extend_from_slice(b" }");
        }
    }
}

impl Lines {
    /// With the layout of an earlier packet, if there is one.
    fn new(event: &Event<'_>, origin: &[u8], context: &[u8], layout: Option<Layout>) -> Self {
        let layout = match (layout, event.stream_class()) {
            (Some(layout), _) => layout,
            (None, Some(stream)) => Layout::new(stream, event.class(), !context.is_empty()),
            (None, None) => Layout::default(),
        };
        let begin = [origin, event.name().as_bytes(), b": ", context, &layout.begin].concat();
        let has_addresses = !symbols::address_fields(event.name()).is_empty();
        Self { packet: event.packet_number(), begin, layout, has_addresses }
    }
}
