//! Translates types of the source trace to those of the new one.

use std::collections::{BTreeSet, HashSet};

use super::Transcript;
use super::frame::{Frame, Plan, is_framed};
use super::names::{Taken, identifier};
use super::places::{NONE, SOME, TAG, VALUE};
use super::shape::{Shape, StreamShape};
use tompion_ctf::decode::clock_name;
use tompion_ctf::metadata::{
    Array, Base, Blob, ByteOrder, Clock, Details, Encoding, Enum, Event, Field, Float, Form, Identity,
    Integer, Length, Mapping, OptionRange, Optional, Reference, Roles, Scope, Selection, Sequence, Stream,
    Struct, Text, Trace, Type, Uuid, Variant, Version,
};
use tompion_ctf::tsdl;

/// Error for a trace that the new version cannot express.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: a field that {message}")]
pub struct Inexpressible {
    /// Event class or other structure.
    pub place: String,
    /// Problem.
    pub message: String,
}

type Result<T> = std::result::Result<T, Inexpressible>;

/// Translator of the structures of a stream class, or of one of its event classes.
pub(super) struct Translator<'s> {
    pub from: Version,
    pub to: Version,
    pub stream: &'s Stream,
    pub event: Option<&'s Event>,
    /// Variants around the type that is translated, and the option that it is in.
    pub options: Vec<(&'s Variant, usize)>,
    /// Names in the new trace from the outermost structure to the current type.
    path: Vec<String>,
    notes: BTreeSet<&'static str>,
}

/// Name of a field in the new trace, and of the tag before it.
pub(super) struct Names {
    pub name: String,
    pub tag: Option<String>,
}

const ORDER: ByteOrder = ByteOrder::Little;
/// Maximum size of a fixed-length text that keeps its type, in bytes.
const MAX_TEXT: u64 = 4096;

pub(super) fn translate(source: &Trace, to: Version) -> Result<Transcript> {
    let mut notes = BTreeSet::new();
    let clocks: Vec<Clock> = source.clocks.iter().map(|clock| new_clock(source, clock, to)).collect();
    let mut target = Trace {
        version: to,
        identity: source.identity.clone().filter(|_| to == Version::Two),
        attributes: source.attributes.clone(),
        byte_order: ORDER,
        uuid: source.uuid,
        environment: source.environment.clone(),
        clocks,
        packet_header: None,
        streams: Vec::new(),
    };
    if to == Version::One {
        plain_environment(source, &mut target);
    }
    if to == Version::One && has_details(source) {
        notes.insert("namespaces, unique ids of classes, accuracies and others' attributes are left out");
    }
    let mut shapes = Vec::new();
    for stream in &source.streams {
        let clock = clock_name(stream).filter(|name| source.clock(name).is_some());
        let clock = clock.map(|name| new_clock_name(name, to));
        let frame = Frame::new(source, stream, Plan { version: to, uuid: target.uuid, clock });
        target.packet_header.get_or_insert_with(|| frame.packet_header());
        let mut translator = Translator {
            from: source.version,
            to,
            stream,
            event: None,
            options: Vec::new(),
            path: Vec::new(),
            notes: BTreeSet::new(),
        };
        let (stream, shape) = translator.stream(frame)?;
        notes.append(&mut translator.notes);
        target.streams.push(stream);
        shapes.push(shape);
    }
    Ok(Transcript { target, streams: shapes, notes: notes.into_iter().collect() })
}

fn new_clock_name(name: &str, to: Version) -> String {
    if to == Version::One { identifier(name) } else { name.into() }
}

fn new_clock(source: &Trace, clock: &Clock, to: Version) -> Clock {
    let tracer = source.environment_value("tracer_name").and_then(|name| name.as_text());
    // LTTng's clocks start at the epoch, whatever their descriptions say.
    let of_lttng = source.version == Version::One && tracer.is_some_and(|name| name.starts_with("lttng"));
    Clock {
        name: new_clock_name(&clock.name, to),
        absolute: clock.absolute || to == Version::Two && of_lttng,
        ..clock.clone()
    }
}

/// Whether a trace states what CTF 1.8 has no words for.
fn has_details(source: &Trace) -> bool {
    let is_bare = |details: &Details| {
        let Identity { namespace, uid, .. } = &details.identity;
        let is_plain = details.attributes.is_none() && details.fields.is_empty();
        namespace.is_none() && uid.is_none() && is_plain
    };
    let of_clock = |clock: &Clock| {
        let attributes = clock.details.as_ref().and_then(|details| details.attributes.as_ref());
        clock.accuracy.is_some() || attributes.is_some()
    };
    source.attributes.is_some()
        || source.clocks.iter().any(of_clock)
        || source.streams.iter().any(|stream| {
            !is_bare(&stream.details) || stream.events.iter().any(|event| !is_bare(&event.details))
        })
}

/// Converts identity and environment for CTF 1.8.
fn plain_environment(source: &Trace, target: &mut Trace) {
    if let Some(identity) = &source.identity {
        target.uuid = target.uuid.or_else(|| Uuid::parse(identity.uid.as_deref()?));
        let name = identity.name.as_deref().filter(|name| !name.is_empty());
        let name = name.filter(|_| source.environment_value("trace_name").is_none());
        target.environment.extend(name.map(|name| ("trace_name".to_owned(), name.into())));
    }
    let mut taken = Taken::default();
    for (name, _) in &mut target.environment {
        *name = taken.name(name, true, None);
    }
}

impl<'s> Translator<'s> {
    pub fn wrong<T>(&self, message: &str) -> Result<T> {
        let place = match self.event {
            Some(event) => format!("event {}", event.name),
            None => format!("stream class {}", self.stream.id),
        };
        Err(Inexpressible { place, message: message.into() })
    }

    fn note(&mut self, note: &'static str) {
        if self.to == Version::One && self.from == Version::Two {
            self.notes.insert(note);
        }
    }

    fn stream(&mut self, frame: Frame) -> Result<(Stream, StreamShape)> {
        let stream = self.stream;
        let (packet_context, packet_shapes) = self.packet_context(stream.packet_context.as_ref(), &frame)?;
        let event_context = self.root(stream.event_context.as_ref(), Scope::StreamEventContext)?;
        let (mut events, mut shapes) = (Vec::new(), Vec::new());
        for event in &stream.events {
            self.event = Some(event);
            let (context, context_shape) = split(self.root(event.context.as_ref(), Scope::EventContext)?);
            let (payload, payload_shape) = split(self.root(event.payload.as_ref(), Scope::Payload)?);
            shapes.push((event.id, context_shape, payload_shape));
            events.push(Event { context, payload, ..event.clone() });
        }
        self.event = None;
        let (event_context, event_context_shape) = split(event_context);
        let packet_context_alignment = packet_context.effective_alignment();
        let shape = StreamShape {
            packet_context: packet_shapes,
            packet_context_alignment,
            event_context: event_context_shape,
            events: shapes,
            frame,
        };
        let stream = Stream {
            id: stream.id,
            name: stream.name.clone(),
            details: stream.details.clone(),
            packet_context: Some(packet_context),
            event_header: Some(shape.frame.event_header()),
            event_context,
            events,
        };
        Ok((stream, shape))
    }

    /// Translates a packet context: the frame's fields, then all others.
    fn packet_context(
        &mut self,
        source: Option<&'s Struct>,
        frame: &Frame,
    ) -> Result<(Struct, Vec<Option<Shape>>)> {
        let (mut fields, mut shapes) = (frame.packet_context(), Vec::new());
        let Some(source) = source else { return Ok((Struct::new(fields), shapes)) };
        for (field, names) in source.fields.iter().zip(self.names(source, Scope::PacketContext)) {
            if is_framed(self.from, field) {
                shapes.push(None);
                continue;
            }
            let (added, shape) = self.member(field, names, Scope::PacketContext)?;
            fields.extend(added);
            shapes.push(Some(shape));
        }
        Ok((Struct { fields, alignment: source.alignment.max(8) }, shapes))
    }

    fn root(&mut self, source: Option<&'s Struct>, scope: Scope) -> Result<Option<(Struct, Shape)>> {
        source.map(|source| self.structure(source, scope)).transpose()
    }

    fn structure(&mut self, source: &'s Struct, scope: Scope) -> Result<(Struct, Shape)> {
        let (mut fields, mut shapes) = (Vec::new(), Vec::new());
        for (field, names) in source.fields.iter().zip(self.names(source, scope)) {
            let (added, shape) = self.member(field, names, scope)?;
            fields.extend(added);
            shapes.push(shape);
        }
        let structure = Struct { fields, alignment: source.alignment };
        let shape = Shape::Struct { alignment: structure.effective_alignment(), fields: shapes };
        Ok((structure, shape))
    }

    /// Translates a field, after its tag if it needs one.
    fn member(&mut self, field: &'s Field, names: Names, scope: Scope) -> Result<(Vec<Field>, Shape)> {
        if names.name != field.name {
            self.note("names that are not identifiers, or differ from others only in a `_`, are changed");
        }
        let tag = names.tag.as_deref().map(|name| Field::new(name, self.tag_type(&field.ty)));
        let (ty, shape) = self.inside(&names.name, &field.ty, names.tag.as_deref(), scope)?;
        Ok((tag.into_iter().chain([Field { name: names.name, ty }]).collect(), shape))
    }

    /// Translates a type with this name in a structure; its tag becomes another member.
    fn inside(
        &mut self,
        name: &str,
        source: &'s Type,
        tag: Option<&str>,
        scope: Scope,
    ) -> Result<(Type, Shape)> {
        let beside = |tag: &str| self.path.iter().cloned().chain([tag.to_owned()]).collect();
        let tag = tag.map(|tag| Reference { scope, path: beside(tag) });
        self.path.push(name.into());
        let result = self.ty(source, tag, scope);
        self.path.pop();
        result
    }

    /// Determines the names of a structure's fields.
    pub fn names(&self, source: &Struct, scope: Scope) -> Vec<Names> {
        let plain = (self.from, self.to) != (Version::Two, Version::One);
        let mut taken = Taken::new(&source.fields);
        let reserved = (scope == Scope::PacketContext).then_some(scope);
        let mut seen = HashSet::new();
        let names = source.fields.iter().map(|field| {
            if plain {
                // Readers refuse two members with the same name.
                let mut name = field.name.clone();
                while !seen.insert(name.clone()) {
                    name.push('_');
                }
                return Names { name, tag: None };
            }
            if scope == Scope::PacketContext && is_framed(self.from, field) {
                return Names { name: field.name.clone(), tag: None };
            }
            let name = taken.name(&field.name, true, reserved);
            let tag = self.needs_tag(&field.ty).then(|| taken.name(&format!("{name}_tag"), false, reserved));
            Names { name, tag }
        });
        names.collect()
    }

    /// Whether a type becomes a variant that nothing selects yet.
    pub fn needs_tag(&self, ty: &Type) -> bool {
        if (self.from, self.to) != (Version::Two, Version::One) {
            return false;
        }
        match ty {
            Type::Optional(_) => true,
            Type::Variant(variant) => !self.labels_select(variant),
            _ => false,
        }
    }

    /// Whether labels of a variant's selector select the same options as the ranges.
    fn labels_select(&self, variant: &Variant) -> bool {
        let Ok(Type::Enum(Enum { mappings, .. })) = self.find_type(&variant.selector) else { return false };
        let Selection::Ranges(ranges) = &variant.selection else { return false };
        let is_same = |(index, option): (usize, &Field)| {
            let labels = mappings.iter().filter(|mapping| mapping.label == option.name);
            let mut labels: Vec<_> = labels.map(|mapping| (mapping.low, mapping.high)).collect();
            let ranges = ranges.iter().filter(|range| range.option == index);
            let mut ranges: Vec<_> = ranges.map(|range| (range.low, range.high)).collect();
            labels.sort_unstable();
            ranges.sort_unstable();
            labels == ranges && identifier(&option.name) == option.name && tsdl::is_plain(&option.name)
        };
        variant.options.iter().enumerate().all(is_same)
    }

    /// Returns the name of an option.
    pub fn option_name(&self, variant: &Variant, index: usize) -> Option<String> {
        let name = &variant.options.get(index)?.name;
        if (self.from, self.to) != (Version::Two, Version::One) || self.labels_select(variant) {
            return Some(name.clone());
        }
        // Numbered to be unique.
        let name = identifier(name);
        let is_same = |option: &Field| identifier(&option.name) == name;
        let is_twice = variant.options.iter().filter(|option| is_same(option)).count() > 1;
        Some(if is_twice || name.starts_with('_') { format!("o{index}_{name}") } else { name })
    }

    /// Returns the labels that select the options in CTF 1.8.
    fn labels(&self, variant: &Variant) -> Vec<String> {
        let names = (0..variant.options.len()).map(|index| self.option_name(variant, index));
        names.map(|name| tsdl::escaped_name(&name.unwrap_or_default())).collect()
    }

    /// Returns the labels that the selector has, where options differ from them in a `_`:
    /// babeltrace2 2.0.4 ends with a failed assertion otherwise. A label that is no identifier, or
    /// a keyword, cannot be the name of an option.
    fn exact_labels(&self, variant: &Variant) -> Selection {
        let Ok(Type::Enum(Enum { mappings, .. })) = self.find_type(&variant.selector) else {
            return variant.selection.clone();
        };
        let Selection::Labels(labels) = &variant.selection else { return variant.selection.clone() };
        let exact = |(index, option): (usize, &String)| {
            let selects = |mapping: &&Mapping| {
                variant.selection.option_of(&mapping.label, mappings) == Some(index)
                    && identifier(&mapping.label) == mapping.label
                    && (mapping.label.starts_with('_') || tsdl::is_plain(&mapping.label))
            };
            let is_known = mappings.iter().any(|mapping| mapping.label == *option);
            let found = mappings.iter().find(selects).filter(|_| !is_known);
            found.map_or_else(|| option.clone(), |mapping| mapping.label.clone())
        };
        Selection::Labels(labels.iter().enumerate().map(exact).collect())
    }

    fn ty(&mut self, source: &'s Type, tag: Option<Reference>, scope: Scope) -> Result<(Type, Shape)> {
        Ok(match source {
            Type::Integer(integer) => {
                let integer = self.integer(integer);
                (Type::Integer(integer.clone()), Shape::Number(integer))
            }
            Type::Boolean(integer) => {
                let integer = self.integer(integer);
                self.note("booleans are integers");
                let ty = match self.to {
                    Version::One => Type::Integer(integer.clone()),
                    Version::Two => Type::Boolean(integer.clone()),
                };
                (ty, Shape::Number(integer))
            }
            Type::Bits(array) => {
                let integer = self.integer(&array.integer);
                self.note("bits are integers");
                let ty = match self.to {
                    Version::One => Type::Integer(integer.clone().with_base(Base::Hexadecimal)),
                    Version::Two => Type::Bits(tompion_ctf::metadata::BitArray {
                        integer: integer.clone(),
                        flags: array.flags.clone(),
                    }),
                };
                (ty, Shape::Number(integer))
            }
            Type::Enum(Enum { integer, mappings }) => {
                let integer = self.integer(integer);
                (enumeration(integer.clone(), mappings.clone()), Shape::Number(integer))
            }
            Type::Float(float) => {
                let float = Float { reversed: false, ..*float };
                let Float { bits, byte_order, alignment, .. } = float;
                (Type::Float(float), Shape::Float { bits, byte_order, alignment })
            }
            Type::String(_) => (Type::STRING, Shape::Text),
            Type::Text(Text { length, encoding }) => match length {
                Length::Fixed(length) if encoding.unit() == 1 => self.text_array(*length),
                _ => (Type::STRING, Shape::Text),
            },
            Type::Blob(blob) => self.blob(blob)?,
            Type::Struct(structure) => {
                let (structure, shape) = self.structure(structure, scope)?;
                (Type::Struct(structure), shape)
            }
            Type::Variant(variant) => self.variant(variant, tag, scope)?,
            Type::Optional(optional) => self.optional(optional, tag, scope)?,
            Type::Array(Array { element, length, .. }) => match &**element {
                Type::Integer(integer) if integer.is_text() => self.text_array(*length),
                element => {
                    let (element, shape) = self.element(element, scope)?;
                    (Type::Array(Array { element, length: *length, alignment: 1 }), shape)
                }
            },
            Type::Sequence(Sequence { element, length, .. }) => match &**element {
                Type::Integer(integer) if integer.is_text() => (Type::STRING, Shape::Text),
                element => {
                    let length = self.find(length)?;
                    let (element, shape) = self.element(element, scope)?;
                    (Type::Sequence(Sequence { element, length, alignment: 1 }), shape)
                }
            },
        })
    }

    /// Translates an integer: without header roles, and in a layout that the version supports.
    fn integer(&mut self, integer: &Integer) -> Integer {
        let mut form = integer.form;
        if form == Form::Reversed {
            form = Form::Fixed;
        }
        if form == Form::Variable && self.to == Version::One {
            self.note("integers of variable size have 64 bits");
            form = Form::Fixed;
        }
        Integer { form, clock: None, roles: Roles::NONE, ..integer.clone() }
    }

    fn text_array(&mut self, length: u64) -> (Type, Shape) {
        if length > MAX_TEXT {
            return (Type::STRING, Shape::Text);
        }
        let ty = match self.to {
            Version::Two => Type::Text(Text { length: Length::Fixed(length), encoding: Encoding::Utf8 }),
            Version::One => {
                let byte = Integer { encoding: Encoding::Utf8, ..Integer::unsigned(8, ORDER) };
                Type::Integer(byte).array(length)
            }
        };
        (ty, Shape::TextArray(length))
    }

    fn blob(&mut self, blob: &Blob) -> Result<(Type, Shape)> {
        self.note("blobs are arrays of bytes");
        let length = match &blob.length {
            Length::Fixed(length) => Length::Fixed(*length),
            Length::Field(reference) => Length::Field(self.find(reference)?),
        };
        let byte = || Type::Integer(Integer::unsigned(8, ORDER).with_base(Base::Hexadecimal));
        let ty = match (self.to, length) {
            (Version::Two, length) => {
                Type::Blob(Blob { length, media_type: blob.media_type.clone(), roles: Roles::NONE })
            }
            (Version::One, Length::Fixed(length)) => byte().array(length),
            (Version::One, Length::Field(reference)) => byte().sequence(reference),
        };
        Ok((ty, Shape::Blob))
    }

    /// Translates the elements of an array.
    fn element(&mut self, element: &'s Type, scope: Scope) -> Result<(Box<Type>, Shape)> {
        let (ty, shape) = self.nameless(element, scope)?;
        let alignment = ty.alignment();
        Ok((Box::new(ty), Shape::Array { alignment, element: Box::new(shape) }))
    }

    /// Translates a type that is not a field of a structure: one that needs a tag is put into a
    /// structure.
    fn nameless(&mut self, source: &'s Type, scope: Scope) -> Result<(Type, Shape)> {
        if !self.needs_tag(source) {
            return self.ty(source, None, scope);
        }
        let tag = Field::new(TAG, self.tag_type(source));
        let (ty, shape) = self.inside(VALUE, source, Some(TAG), scope)?;
        Ok((Type::Struct(Struct::new(vec![tag, Field::new(VALUE, ty)])), shape))
    }

    fn variant(
        &mut self,
        source: &'s Variant,
        tag: Option<Reference>,
        scope: Scope,
    ) -> Result<(Type, Shape)> {
        let (mut options, mut shapes) = (Vec::new(), Vec::new());
        for (index, option) in source.options.iter().enumerate() {
            let name = self.option_name(source, index).unwrap_or_default();
            self.options.push((source, index));
            self.path.push(name.clone());
            let option_type = self.nameless(&option.ty, scope);
            self.path.pop();
            self.options.pop();
            let (ty, shape) = option_type?;
            options.push(Field { name, ty });
            shapes.push(shape);
        }
        let selection = match (self.from, self.to) {
            (Version::Two, Version::One) => Selection::Labels(self.labels(source)),
            (Version::One, Version::Two) => Selection::Ranges(self.ranges(source)?),
            (Version::One, Version::One) => self.exact_labels(source),
            _ => source.selection.clone(),
        };
        let has_tag = tag.is_some();
        if has_tag {
            self.note("variants get their own tags");
        }
        let selector = tag.map_or_else(|| self.find(&source.selector), Ok)?;
        let mut variant = Variant { selector, options, selection };
        if self.to == Version::Two {
            drop_unselected(&mut variant);
        }
        let tag = has_tag.then(|| tag_integer(source.options.len()));
        Ok((Type::Variant(variant), Shape::Variant { tag, options: shapes }))
    }

    /// Creates the enumeration that selects an option by its index.
    fn tag_type(&self, source: &Type) -> Type {
        let labels: Vec<String> = match source {
            Type::Variant(variant) => self.labels(variant),
            _ => [NONE, SOME].map(String::from).into(),
        };
        let integer = tag_integer(labels.len());
        let mapping = |(label, value): (String, i128)| Mapping { label, low: value, high: value };
        Type::Enum(Enum { integer, mappings: labels.into_iter().zip(0..).map(mapping).collect() })
    }

    /// Determines the ranges of a selector's labels without overlaps: the first label takes
    /// precedence.
    fn ranges(&self, variant: &Variant) -> Result<Vec<OptionRange>> {
        let Type::Enum(Enum { integer, mappings }) = self.find_type(&variant.selector)? else {
            return self.wrong("is not selected by an enumeration");
        };
        let (least, most) = integer.range();
        let mut ranges: Vec<OptionRange> = Vec::new();
        for Mapping { label, low, high } in mappings {
            let Some(option) = variant.selection.option_of(label, mappings) else { continue };
            let mut free = vec![((*low).max(least), (*high).min(most))];
            for taken in &ranges {
                free = free.into_iter().flat_map(|range| without(range, (taken.low, taken.high))).collect();
            }
            ranges.extend(free.into_iter().map(|(low, high)| OptionRange { low, high, option }));
        }
        Ok(ranges)
    }

    fn optional(
        &mut self,
        source: &'s Optional,
        tag: Option<Reference>,
        scope: Scope,
    ) -> Result<(Type, Shape)> {
        if tag.is_some() {
            self.path.push(SOME.into());
        }
        let element = self.nameless(&source.element, scope);
        if tag.is_some() {
            self.path.pop();
        }
        let (element, shape) = element?;
        let Some(selector) = tag else {
            let selector = self.find(&source.selector)?;
            let ranges = source.ranges.clone();
            let ty = Type::Optional(Optional { selector, ranges, element: Box::new(element) });
            return Ok((ty, Shape::Optional { tag: None, element: Box::new(shape) }));
        };
        self.note("optional fields are variants");
        let nothing = Type::Struct(Struct::default());
        let options = vec![Field::new(NONE, nothing), Field::new(SOME, element)];
        let variant = Variant::of_labels(selector, options);
        Ok((Type::Variant(variant), Shape::Optional { tag: Some(tag_integer(2)), element: Box::new(shape) }))
    }
}

fn split<A, B>(pair: Option<(A, B)>) -> (Option<A>, Option<B>) {
    pair.map_or((None, None), |(first, second)| (Some(first), Some(second)))
}

/// Creates an enumeration, or an integer if there are no labels.
fn enumeration(integer: Integer, mut mappings: Vec<Mapping>) -> Type {
    let (least, most) = integer.range();
    // In CTF 2, values of labels must be in the range of the integer.
    for mapping in &mut mappings {
        (mapping.low, mapping.high) = (mapping.low.max(least), mapping.high.min(most));
    }
    mappings.retain(|mapping| mapping.low <= mapping.high);
    if mappings.is_empty() { Type::Integer(integer) } else { Type::Enum(Enum { integer, mappings }) }
}

/// Returns an integer that can number this many options.
fn tag_integer(options: usize) -> Integer {
    Integer::unsigned(if options > 256 { 32 } else { 8 }, ORDER)
}

/// Subtracts a range from another: none, one or two ranges remain.
fn without((low, high): (i128, i128), (from, to): (i128, i128)) -> Vec<(i128, i128)> {
    if to < low || high < from {
        return vec![(low, high)].into_iter().filter(|(low, high)| low <= high).collect();
    }
    [(low, from - 1), (to + 1, high)].into_iter().filter(|(low, high)| low <= high).collect()
}

/// Removes options that nothing selects, which CTF 2 doesn't allow.
fn drop_unselected(variant: &mut Variant) {
    let Selection::Ranges(ranges) = &mut variant.selection else { return };
    let is_selected: Vec<bool> =
        (0..variant.options.len()).map(|index| ranges.iter().any(|range| range.option == index)).collect();
    let mut kept = is_selected.iter();
    variant.options.retain(|_| kept.next().copied().unwrap_or(false));
    for range in ranges {
        let before = is_selected.iter().take(range.option);
        range.option = before.filter(|&&is_selected| is_selected).count();
    }
}
