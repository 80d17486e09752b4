//! Prints events as lines of JSON or as comma-separated values.
//!
//! ```text
//! {"timestamp_ns":1457113582794565804,"event":"db:query","cpu":2,"trace":"t","context":{…},"fields":{…}}
//! {…,"event":"mark:done",…,"fields":{"rows":5},"message":"rows 5"}
//! {…,"fields":{"addr":94254…},"symbols":{"addr":"compute(int)"}}
//! {…,"fields":{"ret":-2},"meanings":{"ret":"ENOENT"}}
//! {…,"stacks":{"kernel":["schedule+0x23",…],"user":["main+0x1b (server)"]}}
//! {…,"packet":{"net":3},"context":{…},…}
//! timestamp_ns,event,cpu,trace,context,fields,packet
//! 1457113582794565804,db:query,2,t,"{""vtid"":7}","{""rows"":1}",{}
//! ```
//!
//! `packet` is the context of the event's packet, without its CPU and without fields that only
//! readers need.
//!
//! A mark also has the message that its format makes of its fields. An event with addresses has
//! their names, if they are wanted. Values are represented as follows:
//!
//! - an enumeration is an object with its `value` and `labels`
//! - a variant is an object with the selected option
//! - a blob is its bytes in hexadecimal
//! - an absent optional field is `null`
//! - a float that is not a number or infinite is `"NaN"`, `"Infinity"` or `"-Infinity"`
//! - bytes that are not UTF-8 are replaced

use std::collections::HashMap;
use std::io::Write;

use tompion_ctf::decode::{Fields, Value};

use crate::lines::{self, Lines};
use crate::message::Message;
use crate::symbols::{Stack, Symbols};
use crate::syscall_decode::{self, SyscallDecoder};
use crate::text::packet_fields;
use crate::{Error, Event, Place, TraceSet};

/// Additional content of the JSON objects.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonOptions {
    /// Whether to add the C names of flags, commands and errors of system calls.
    pub explain: bool,
}

/// Prints all remaining events as JSON, one object per line, on several threads. Returns the number
/// of events.
///
/// # Errors
///
/// Fails if the output cannot be written.
pub fn print(traces: &mut TraceSet, options: JsonOptions, output: &mut dyn Write) -> Result<u64, Error> {
    let symbols = traces.symbols.take();
    let new = || JsonLines { symbols: symbols.clone(), ..JsonLines::new(options) };
    lines::print(traces, &new, output)
}

/// Header line with the names of the columns.
pub const CSV_COLUMNS: &[u8] = b"timestamp_ns,event,cpu,trace,context,fields,packet\n";

/// Prints all remaining events as comma-separated values with a header line. Returns the number of
/// events.
///
/// # Errors
///
/// Fails if the output cannot be written.
pub fn print_csv(traces: &mut TraceSet, output: &mut dyn Write) -> Result<u64, Error> {
    output.write_all(CSV_COLUMNS)?;
    lines::print(traces, &CsvLines::default, output)
}

#[derive(Default)]
pub(crate) struct JsonLines {
    /// Parsed message formats.
    messages: HashMap<Place, Option<Message>>,
    scratch: Vec<u8>,
    symbols: Option<Symbols>,
    options: JsonOptions,
    /// Decoders by event class.
    decoders: HashMap<Place, Option<SyscallDecoder>>,
    packets: Packets,
}

/// Cached text of each source's current packet.
#[derive(Default)]
struct Packets(HashMap<usize, (u64, Vec<u8>)>);

impl Packets {
    /// Returns a JSON object with the context of the event's packet.
    fn of(&mut self, event: &Event<'_>) -> &[u8] {
        let (number, text) = self.0.entry(event.source()).or_insert_with(|| (u64::MAX, Vec::new()));
        if *number != event.packet_number() {
            *number = event.packet_number();
            text.clear();
            object(packet_fields(event).filter(|(name, _)| *name != "cpu_id"), text);
        }
        text
    }
}

impl JsonLines {
    pub(crate) fn new(options: JsonOptions) -> Self {
        Self { options, ..Self::default() }
    }
}

impl Lines for JsonLines {
    fn line(&mut self, event: &Event<'_>, line: &mut Vec<u8>) {
        json_line(event, self.packets.of(event), line);
        push_message(event, &mut self.messages, &mut self.scratch, line);
        if self.options.explain {
            let decoder =
                self.decoders.entry(event.place()).or_insert_with(|| SyscallDecoder::of(event.name()));
            let explained =
                decoder.as_ref().map(|decoder| syscall_decode::explain(decoder, event)).unwrap_or_default();
            push_texts("meanings", &explained, line);
        }
        if let Some(symbols) = &mut self.symbols {
            push_texts("symbols", &symbols.names_of(event), line);
            push_stacks(&symbols.stacks_of(event), line);
        }
        line.extend_from_slice(b"}\n");
    }
}

#[derive(Default)]
pub(crate) struct CsvLines {
    scratch: Vec<u8>,
    packets: Packets,
}

impl Lines for CsvLines {
    fn line(&mut self, event: &Event<'_>, line: &mut Vec<u8>) {
        csv_line(event, &mut self.scratch, line);
        line.push(b',');
        column(self.packets.of(event), line);
        line.push(b'\n');
    }
}

/// Appends the text of a mark.
fn push_message(
    event: &Event<'_>,
    messages: &mut HashMap<Place, Option<Message>>,
    scratch: &mut Vec<u8>,
    line: &mut Vec<u8>,
) {
    let message = messages.entry(event.place()).or_insert_with(|| Message::of(event.class()));
    let Some(message) = message else { return };
    scratch.clear();
    message.write(event.payload(), scratch);
    line.extend_from_slice(b",\"message\":");
    text(scratch, line);
}

/// Appends an object that maps fields to names; nothing if there are no names.
fn push_texts(what: &str, names: &[(&str, impl AsRef<str>)], line: &mut Vec<u8>) {
    for (index, (field, name)) in names.iter().enumerate() {
        line.push(b',');
        if index == 0 {
            text(what.as_bytes(), line);
            line.extend_from_slice(b":{");
        }
        text(field.as_bytes(), line);
        line.push(b':');
        text(name.as_ref().as_bytes(), line);
    }
    if !names.is_empty() {
        line.push(b'}');
    }
}

/// Appends the call stacks of the event, innermost function first.
fn push_stacks(stacks: &[Stack], line: &mut Vec<u8>) {
    for (index, (whose, names)) in stacks.iter().enumerate() {
        line.extend_from_slice(if index == 0 { b",\"stacks\":{" } else { b"," });
        text(whose.as_bytes(), line);
        line.extend_from_slice(b":[");
        for (index, name) in names.iter().enumerate() {
            if index > 0 {
                line.push(b',');
            }
            text(name.as_bytes(), line);
        }
        line.push(b']');
    }
    if !stacks.is_empty() {
        line.push(b'}');
    }
}

/// Appends an object without its closing brace.
fn json_line(event: &Event<'_>, packet: &[u8], line: &mut Vec<u8>) {
    line.push(b'{');
    if let Some(time) = event.timestamp() {
        line.extend_from_slice(b"\"timestamp_ns\":");
        number(time, line);
        line.push(b',');
    }
    line.extend_from_slice(b"\"event\":");
    text(event.name().as_bytes(), line);
    if let Some(cpu) = event.cpu() {
        line.extend_from_slice(b",\"cpu\":");
        number(cpu, line);
    }
    line.extend_from_slice(b",\"trace\":");
    text(event.trace().path.as_os_str().as_encoded_bytes(), line);
    if packet != b"{}" {
        line.extend_from_slice(b",\"packet\":");
        line.extend_from_slice(packet);
    }
    line.extend_from_slice(b",\"context\":");
    object(event.stream_context().chain(event.context()), line);
    line.extend_from_slice(b",\"fields\":");
    object(event.payload(), line);
}

fn csv_line(event: &Event<'_>, scratch: &mut Vec<u8>, line: &mut Vec<u8>) {
    if let Some(time) = event.timestamp() {
        number(time, line);
    }
    line.push(b',');
    column(event.name().as_bytes(), line);
    line.push(b',');
    if let Some(cpu) = event.cpu() {
        number(cpu, line);
    }
    line.push(b',');
    column(event.trace().path.as_os_str().as_encoded_bytes(), line);
    for fields in [event.stream_context().chain(event.context()), event.payload().chain(Fields::EMPTY)] {
        line.push(b',');
        scratch.clear();
        object(fields, scratch);
        column(scratch, line);
    }
}

/// Appends a CSV column, quoted if necessary.
fn column(text: &[u8], line: &mut Vec<u8>) {
    if !text.iter().any(|byte| matches!(byte, b'"' | b',' | b'\n' | b'\r')) {
        line.extend_from_slice(text);
        return;
    }
    line.push(b'"');
    for &byte in text {
        if byte == b'"' {
            line.push(b'"');
        }
        line.push(byte);
    }
    line.push(b'"');
}

fn number(number: impl itoa::Integer, line: &mut Vec<u8>) {
    line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn object<'a>(fields: impl Iterator<Item = (&'a str, Value<'a>)>, line: &mut Vec<u8>) {
    line.push(b'{');
    for (index, (name, field)) in fields.enumerate() {
        if index > 0 {
            line.push(b',');
        }
        text(name.as_bytes(), line);
        line.push(b':');
        value(field, line);
    }
    line.push(b'}');
}

fn value(value: Value<'_>, line: &mut Vec<u8>) {
    match value {
        Value::Unsigned(value, _) => number(value, line),
        Value::Signed(value, _) => number(value, line),
        Value::Float(value) if value.is_finite() => {
            let _ = write!(line, "{value:?}");
        }
        Value::Float(value) if value.is_nan() => line.extend_from_slice(b"\"NaN\""),
        Value::Float(value) if value > 0.0 => line.extend_from_slice(b"\"Infinity\""),
        Value::Float(_) => line.extend_from_slice(b"\"-Infinity\""),
        Value::Text(value) => text(value, line),
        Value::Boolean(value) => line.extend_from_slice(if value { b"true" } else { b"false" }),
        Value::Bits(value, _) => number(value, line),
        Value::Blob(bytes) => {
            line.push(b'"');
            bytes.iter().for_each(|byte| {
                let _ = write!(line, "{byte:02x}");
            });
            line.push(b'"');
        }
        Value::Optional(inner) => match inner.and_then(tompion_ctf::decode::Inner::value) {
            Some(value) => self::value(value, line),
            None => line.extend_from_slice(b"null"),
        },
        Value::Enum(_, ty) => {
            let value = value.as_integer().unwrap_or(0);
            line.extend_from_slice(b"{\"value\":");
            number(value, line);
            line.extend_from_slice(b",\"labels\":[");
            for (index, label) in ty.labels_of(value).enumerate() {
                if index > 0 {
                    line.push(b',');
                }
                text(label.as_bytes(), line);
            }
            line.extend_from_slice(b"]}");
        }
        Value::Struct(fields) | Value::Variant(_, fields) => object(fields, line),
        Value::Array(elements) => {
            line.push(b'[');
            for (index, element) in elements.enumerate() {
                if index > 0 {
                    line.push(b',');
                }
                self::value(element, line);
            }
            line.push(b']');
        }
    }
}

fn text(text: &[u8], line: &mut Vec<u8>) {
    line.push(b'"');
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => line.extend_from_slice(b"\\\""),
                '\\' => line.extend_from_slice(b"\\\\"),
                '\n' => line.extend_from_slice(b"\\n"),
                '\t' => line.extend_from_slice(b"\\t"),
                '\r' => line.extend_from_slice(b"\\r"),
                control if control.is_ascii_control() => {
                    let _ = write!(line, "\\u{:04x}", u32::from(control));
                }
                other => line.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            line.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    line.push(b'"');
}
