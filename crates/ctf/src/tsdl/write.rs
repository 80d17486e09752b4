//! Writes the model as TSDL text.
//!
//! Field names in contexts and payloads are written with a `_` prefix, which every reader removes,
//! so that no name collides with a keyword. Header fields have names that readers look for, and
//! stay as they are.

use std::fmt::Write;

use crate::metadata::{
    Array, Base, ByteOrder, Clock, Encoding, Enum, EnvironmentValue, Event, Field, Float, Integer, Reference,
    Scope, Selection, Sequence, Stream, Struct, Trace, Type, Variant,
};

/// Reserved words of TSDL.
const KEYWORDS: [&str; 27] = [
    "align",
    "callsite",
    "char",
    "clock",
    "const",
    "double",
    "enum",
    "env",
    "event",
    "float",
    "floating_point",
    "int",
    "integer",
    "long",
    "short",
    "signed",
    "stream",
    "string",
    "struct",
    "trace",
    "typealias",
    "typedef",
    "unsigned",
    "variant",
    "void",
    "_Bool",
    "_Complex",
];

/// Writes the description of a trace for readers of CTF 1.8.
///
/// [`crate::tsdl::parse`] reads it back to the same model. Names of clocks must be identifiers.
///
/// ```
/// use tompion_ctf::metadata::{Event, Stream, Trace};
/// let trace = Trace {
///     streams: vec![Stream {
///         events: vec![Event { name: "db:query".into(), ..Event::default() }],
///         ..Stream::default()
///     }],
///     ..Trace::default()
/// };
/// assert!(tompion_ctf::tsdl::write(&trace).contains("name = \"db:query\";"));
/// ```
pub fn write(trace: &Trace) -> String {
    let mut writer = Writer { text: String::from("/* CTF 1.8 */\n"), trace, depth: 0 };
    writer.trace_block();
    writer.environment();
    trace.clocks.iter().for_each(|clock| writer.clock(clock));
    for stream in &trace.streams {
        writer.stream(stream);
        stream.events.iter().for_each(|event| writer.event(stream.id, event));
    }
    writer.text
}

struct Writer<'a> {
    text: String,
    trace: &'a Trace,
    depth: usize,
}

/// Position of a type: the enclosing structures and variants.
#[derive(Clone)]
struct Place<'a> {
    scope: Scope,
    path: Vec<&'a str>,
    /// Fields of the outermost structure, and of each enclosing one.
    frames: Vec<&'a [Field]>,
}

impl<'a> Place<'a> {
    fn inside(&self, name: &'a str) -> Self {
        let mut place = self.clone();
        place.path.push(name);
        place
    }

    fn among(&self, fields: &'a [Field]) -> Self {
        let mut place = self.clone();
        place.frames.push(fields);
        place
    }

    /// Whether a bare name refers to a field of these parents: they enclose this position, and no
    /// closer one has the name.
    fn sees(&self, parents: &[String], name: &str) -> bool {
        let is_around =
            self.path.len() >= parents.len() && self.path.iter().zip(parents).all(|(a, b)| a == b);
        let mut closer = self.frames.iter().skip(parents.len() + 1).flat_map(|fields| *fields);
        is_around && !closer.any(|field| field.name == name)
    }
}

impl<'a> Writer<'a> {
    fn line(&mut self, text: &str) {
        self.indent();
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn indent(&mut self) {
        self.text.extend(std::iter::repeat_n('\t', self.depth));
    }

    fn open(&mut self, block: &str) {
        self.text.push('\n');
        self.line(&format!("{block} {{"));
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("};");
    }

    fn trace_block(&mut self) {
        self.open("trace");
        self.line("major = 1;");
        self.line("minor = 8;");
        if let Some(uuid) = self.trace.uuid {
            self.line(&format!("uuid = \"{uuid}\";"));
        }
        self.line(&format!("byte_order = {};", byte_order(self.trace.byte_order)));
        self.root("packet.header", Scope::PacketHeader, self.trace.packet_header.as_ref());
        self.close();
    }

    fn environment(&mut self) {
        if self.trace.environment.is_empty() {
            return;
        }
        self.open("env");
        for (name, value) in &self.trace.environment {
            self.line(&format!("{name} = {};", literal(value)));
        }
        self.close();
    }

    fn clock(&mut self, clock: &Clock) {
        self.open("clock");
        self.line(&format!("name = {};", quoted(&clock.name)));
        if let Some(uuid) = clock.uuid {
            self.line(&format!("uuid = \"{uuid}\";"));
        }
        if let Some(description) = &clock.description {
            self.line(&format!("description = {};", quoted(description)));
        }
        self.line(&format!("freq = {};", clock.frequency));
        if let Some(precision) = clock.precision {
            self.line(&format!("precision = {precision};"));
        }
        let (seconds, cycles) = offset(clock);
        if seconds != 0 {
            self.line(&format!("offset_s = {seconds};"));
        }
        self.line(&format!("offset = {cycles};"));
        if clock.absolute {
            self.line("absolute = true;");
        }
        self.close();
    }

    fn stream(&mut self, stream: &'a Stream) {
        self.open("stream");
        self.line(&format!("id = {};", stream.id));
        self.root("packet.context", Scope::PacketContext, stream.packet_context.as_ref());
        self.root("event.header", Scope::EventHeader, stream.event_header.as_ref());
        self.root("event.context", Scope::StreamEventContext, stream.event_context.as_ref());
        self.close();
    }

    fn event(&mut self, stream: u64, event: &'a Event) {
        self.open("event");
        self.line(&format!("name = {};", quoted(&event.name)));
        self.line(&format!("id = {};", event.id));
        self.line(&format!("stream_id = {stream};"));
        if let Some(level) = event.log_level {
            self.line(&format!("loglevel = {level};"));
        }
        for (name, value) in &event.attributes {
            self.line(&format!("{name} = {};", literal(value)));
        }
        self.root("context", Scope::EventContext, event.context.as_ref());
        self.root("fields", Scope::Payload, event.payload.as_ref());
        self.close();
    }

    /// Writes `name := struct { … };`.
    fn root(&mut self, name: &str, scope: Scope, structure: Option<&'a Struct>) {
        let Some(structure) = structure else { return };
        self.indent();
        self.text.push_str(name);
        self.text.push_str(" := ");
        self.structure(structure, &Place { scope, path: Vec::new(), frames: Vec::new() });
        self.text.push_str(";\n");
    }

    fn structure(&mut self, structure: &'a Struct, place: &Place<'a>) {
        self.text.push_str("struct {\n");
        let names = structure.fields.iter().map(|field| field_name(place.scope, &field.name));
        self.fields(&structure.fields, names.collect(), place);
        self.indent();
        self.text.push('}');
        if structure.alignment > 1 {
            let _ = write!(self.text, " align({})", structure.alignment);
        }
    }

    /// Writes fields with these names.
    fn fields(&mut self, fields: &'a [Field], names: Vec<String>, place: &Place<'a>) {
        self.depth += 1;
        let place = &place.among(fields);
        for (field, name) in fields.iter().zip(names) {
            self.indent();
            self.field(field, place, &name);
        }
        self.depth -= 1;
    }

    /// Writes `type name[length]…;`.
    fn field(&mut self, field: &'a Field, place: &Place<'a>, name: &str) {
        let inside = place.inside(&field.name);
        let mut lengths = String::new();
        let mut ty = &field.ty;
        loop {
            match ty {
                Type::Array(Array { element, length, .. }) => {
                    let _ = write!(lengths, "[{length}]");
                    ty = element;
                }
                Type::Sequence(Sequence { element, length, .. }) => {
                    let _ = write!(lengths, "[{}]", reference(length, place));
                    ty = element;
                }
                _ => break,
            }
        }
        match ty {
            Type::Integer(integer) => self.integer(integer),
            Type::Float(float) => self.float(float),
            Type::String(encoding) => self.string(*encoding),
            Type::Enum(enumeration) => self.enumeration(enumeration),
            Type::Struct(structure) => self.structure(structure, &inside),
            Type::Variant(variant) => self.variant(variant, place, &inside),
            Type::Boolean(integer) => self.integer(integer),
            Type::Bits(array) => self.integer(&array.integer),
            Type::Array(_) | Type::Sequence(_) | Type::Text(_) | Type::Blob(_) | Type::Optional(_) => {}
        }
        let _ = writeln!(self.text, " {name}{lengths};");
    }

    fn integer(&mut self, integer: &Integer) {
        let Integer { bits, alignment, signed, .. } = integer;
        let base = match integer.base {
            Base::Binary => 2,
            Base::Octal => 8,
            Base::Decimal => 10,
            Base::Hexadecimal => 16,
        };
        let encoding = encoding(integer.encoding);
        let _ = write!(
            self.text,
            "integer {{ size = {bits}; align = {alignment}; signed = {signed}; encoding = {encoding}; base = {base};"
        );
        self.byte_order(integer.byte_order);
        if let Some(clock) = &integer.clock {
            let _ = write!(self.text, " map = clock.{clock}.value;");
        }
        self.text.push_str(" }");
    }

    fn byte_order(&mut self, order: ByteOrder) {
        if order != self.trace.byte_order {
            let _ = write!(self.text, " byte_order = {};", byte_order(order));
        }
    }

    fn float(&mut self, float: &Float) {
        let (exponent, mantissa) = if float.bits == 32 { (8, 24) } else { (11, 53) };
        let _ = write!(
            self.text,
            "floating_point {{ exp_dig = {exponent}; mant_dig = {mantissa}; align = {};",
            float.alignment
        );
        self.byte_order(float.byte_order);
        self.text.push_str(" }");
    }

    fn string(&mut self, text: Encoding) {
        match text {
            Encoding::Utf8 => self.text.push_str("string"),
            other => {
                let _ = write!(self.text, "string {{ encoding = {}; }}", encoding(other));
            }
        }
    }

    fn enumeration(&mut self, enumeration: &Enum) {
        self.text.push_str("enum : ");
        self.integer(&enumeration.integer);
        self.text.push_str(" {");
        for mapping in &enumeration.mappings {
            let _ = write!(self.text, " {} = {}", quoted(&mapping.label), mapping.low);
            if mapping.high != mapping.low {
                let _ = write!(self.text, " ... {}", mapping.high);
            }
            self.text.push(',');
        }
        self.text.push_str(" }");
    }

    fn variant(&mut self, variant: &'a Variant, place: &Place<'a>, inside: &Place<'a>) {
        let _ = writeln!(self.text, "variant <{}> {{", reference(&variant.selector, place));
        // Readers look for the label with exactly the option's name.
        let names = match &variant.selection {
            Selection::Labels(labels) => labels.clone(),
            Selection::Ranges(_) => variant.options.iter().map(|it| escaped_name(&it.name)).collect(),
        };
        self.fields(&variant.options, names, inside);
        self.indent();
        self.text.push('}');
    }
}

/// Escapes a name for TSDL.
fn field_name(scope: Scope, name: &str) -> String {
    match scope {
        Scope::PacketHeader | Scope::PacketContext | Scope::EventHeader => escaped_name(name),
        Scope::StreamEventContext | Scope::EventContext | Scope::Payload => format!("_{name}"),
    }
}

/// Escapes a name only if it is a keyword, or if readers would remove its own `_`.
pub fn escaped_name(name: &str) -> String {
    if is_plain(name) { name.into() } else { format!("_{name}") }
}

/// Whether a name needs no `_` before it: it is no keyword, and has none of its own.
pub fn is_plain(name: &str) -> bool {
    !name.starts_with('_') && !is_keyword(name)
}

/// Whether a word is reserved.
pub(super) fn is_keyword(name: &str) -> bool {
    KEYWORDS.contains(&name)
}

/// Writes a reference by its bare name if that is unambiguous, otherwise by its absolute path.
/// babeltrace2 2.0.4 doesn't accept absolute paths as selectors of variants.
fn reference(reference: &Reference, place: &Place<'_>) -> String {
    let Some((name, parents)) = reference.path.split_last() else { return String::new() };
    if reference.scope == place.scope && place.sees(parents, name) {
        return field_name(reference.scope, name);
    }
    let mut text = String::from(match reference.scope {
        Scope::PacketHeader => "trace.packet.header",
        Scope::PacketContext => "stream.packet.context",
        Scope::EventHeader => "stream.event.header",
        Scope::StreamEventContext => "stream.event.context",
        Scope::EventContext => "event.context",
        Scope::Payload => "event.fields",
    });
    for name in &reference.path {
        let _ = write!(text, ".{}", field_name(reference.scope, name));
    }
    text
}

/// Converts negative cycles, which TSDL doesn't have, to whole seconds.
fn offset(clock: &Clock) -> (i64, i64) {
    let frequency = i64::try_from(clock.frequency).unwrap_or(i64::MAX).max(1);
    if clock.offset_cycles >= 0 {
        return (clock.offset_seconds, clock.offset_cycles);
    }
    let seconds = clock.offset_seconds.saturating_add(clock.offset_cycles.div_euclid(frequency));
    (seconds, clock.offset_cycles.rem_euclid(frequency))
}

fn byte_order(order: ByteOrder) -> &'static str {
    match order {
        ByteOrder::Little => "le",
        ByteOrder::Big => "be",
    }
}

fn encoding(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::None => "none",
        Encoding::Ascii => "ASCII",
        Encoding::Utf8 | Encoding::Utf16(_) | Encoding::Utf32(_) => "UTF8",
    }
}

fn literal(value: &EnvironmentValue) -> String {
    match value {
        EnvironmentValue::Integer(number) => number.to_string(),
        EnvironmentValue::Text(text) => quoted(text),
    }
}

/// Writes a string literal. Control characters become octal escapes; a NUL, which no reader
/// accepts, ends the string.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars().take_while(|&character| character != '\0') {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            _ if character.is_ascii_control() => {
                let _ = write!(quoted, "\\{:03o}", u32::from(character));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}
