//! Converts syntax to the model by resolving names and references.
//!
//! Names of types belong to nested scopes. An alias stores its syntax and the scope where it was
//! defined. Its type is built again wherever the alias is used, because a reference inside it
//! (`variant <id>`) refers to the field that precedes it *there*. Building is limited in depth and
//! in the number of types, so that aliases of aliases cannot grow without end.

use std::collections::{BTreeMap, HashMap};

use super::attributes::{
    self, Names, assignments, boolean, byte_order, name, number, position, text, unknown, uuid,
};
use super::remarks::Remarks;
use super::syntax::{Declarator, Item, TypeExpr, Value};
use super::types::Place;
use super::{Error, Position};
use crate::Description;
use crate::metadata::{
    ByteOrder, Clock, Enum, EnvironmentValue, Event, Field, Scope, Stream, Struct, Trace, Type,
};

pub(super) type Result<T> = std::result::Result<T, Error>;

/// Maximum number of types in one trace.
const MAX_TYPES: usize = 1 << 19;
/// Maximum nesting of types, aliases included.
const MAX_DEPTH: usize = 128;

/// Builds the model, with remarks on what is odd.
pub(super) fn resolve(items: &[Item], remarks: Remarks) -> Result<Description> {
    let mut resolver = Resolver {
        remarks,
        mapped: BTreeMap::new(),
        stated: environment_values(items),
        trace: Trace { byte_order: byte_order_of_trace(items)?, ..Trace::default() },
        scopes: vec![NameScope::default()],
        types: 0,
        depth: 0,
        stream_of_events: Vec::new(),
    };
    for item in items {
        resolver.top_item(item)?;
    }
    resolver.finish()?;
    super::roles::check(&resolver.trace)?;
    Ok(Description { trace: resolver.trace, warnings: resolver.remarks.into_texts() })
}

/// Returns an error about invalid content.
pub(super) fn wrong<T>(at: Position, message: impl Into<String>) -> Result<T> {
    Err(Error::Invalid { at, message: message.into() })
}

/// Finds the trace's byte order first: types are built while the trace is read, and need it.
fn byte_order_of_trace(items: &[Item]) -> Result<ByteOrder> {
    let mut blocks = items.iter().filter_map(|item| match item {
        Item::Block { kind, items, at } if kind == "trace" => Some((items, *at)),
        _ => None,
    });
    let Some((items, at)) = blocks.next() else {
        return wrong(Position { line: 1, column: 1 }, "expected a `trace` block, found none");
    };
    if let Some((_, at)) = blocks.next() {
        return wrong(at, "expected one `trace` block, found another");
    }
    let order = items.iter().find_map(|item| match item {
        Item::Assign { name, value, at } if name == "byte_order" => Some((value, *at)),
        _ => None,
    });
    match order {
        Some((value, at)) => byte_order(value, None, at),
        None => wrong(at, "expected `byte_order` in the trace, found none"),
    }
}

/// Finds the environment first: lengths of arrays refer to it.
fn environment_values(items: &[Item]) -> Vec<(&str, &Value)> {
    let blocks = items.iter().filter_map(|item| match item {
        Item::Block { kind, items, .. } if kind == "env" => Some(items),
        _ => None,
    });
    let values = blocks.flatten().filter_map(|item| match item {
        Item::Assign { name, value, .. } => Some((name.as_str(), value)),
        _ => None,
    });
    values.collect()
}

/// Scope: names of types, and the enclosing scope.
#[derive(Default)]
struct NameScope<'a> {
    parent: usize,
    names: HashMap<String, Alias<'a>>,
}

/// Type that a name refers to.
#[derive(Clone, Copy)]
pub(super) struct Alias<'a> {
    pub ty: &'a TypeExpr,
    /// Array lengths of a `typedef`.
    pub declarator: Option<&'a Declarator>,
    /// Scope in which names of the type are looked up.
    pub scope: usize,
}

pub(super) struct Resolver<'a> {
    pub trace: Trace,
    pub remarks: Remarks,
    /// Clocks that integers are mapped to, with the first position of each.
    pub mapped: BTreeMap<String, Position>,
    /// Values of the environment, to which lengths may refer.
    pub stated: Vec<(&'a str, &'a Value)>,
    scopes: Vec<NameScope<'a>>,
    types: usize,
    depth: usize,
    /// Events that wait until all streams are known, with the number of their stream if stated.
    stream_of_events: Vec<(Option<u64>, Event, Position)>,
}

impl<'a> Resolver<'a> {
    /// Opens a scope inside another one.
    pub fn open_scope(&mut self, parent: usize) -> usize {
        self.scopes.push(NameScope { parent, names: HashMap::new() });
        self.scopes.len() - 1
    }

    /// Defines the name of a type. A type that is built again defines its own name again.
    pub fn define(&mut self, scope: usize, name: String, alias: Alias<'a>) -> Result<()> {
        let Some(scope) = self.scopes.get_mut(scope) else { return Ok(()) };
        let before = scope.names.get(&name);
        if before.is_some_and(|before| !std::ptr::eq(before.ty, alias.ty)) {
            return wrong(alias.ty.at, format!("expected one type named `{name}`, found another"));
        }
        scope.names.insert(name, alias);
        Ok(())
    }

    /// Looks up a name in the enclosing scopes, innermost first.
    pub fn look_up(&self, mut scope: usize, name: &str) -> Option<Alias<'a>> {
        loop {
            let names = self.scopes.get(scope)?;
            if let Some(alias) = names.names.get(name) {
                return Some(*alias);
            }
            if scope == 0 {
                return None;
            }
            scope = names.parent;
        }
    }

    /// Builds a type one level deeper, and counts it.
    pub fn nested<T>(&mut self, at: Position, build: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.types += 1;
        if self.types > MAX_TYPES {
            return wrong(at, format!("more than {MAX_TYPES} types"));
        }
        if self.depth == MAX_DEPTH {
            return wrong(at, format!("types are nested more than {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        let result = build(self);
        self.depth -= 1;
        result
    }

    fn top_item(&mut self, item: &'a Item) -> Result<()> {
        match item {
            Item::Block { kind, items, at } => match kind.as_str() {
                "trace" => self.trace_block(items, *at),
                "env" => self.environment(items),
                "clock" => self.clock(items, *at),
                "stream" => self.stream(items, *at),
                "event" => self.event(items, *at),
                _ => Ok(()),
            },
            other => self.declaration(other, 0),
        }
    }

    /// Defines the names in a declaration.
    pub fn declaration(&mut self, item: &'a Item, scope: usize) -> Result<()> {
        match item {
            Item::Aliases { ty, declarators } => self.declare(ty, declarators, scope),
            Item::Declare { ty } => self.declare(ty, &[], scope),
            other => {
                let found = match other {
                    Item::Field { .. } => "a field",
                    Item::Block { .. } => "a block",
                    _ => "an assignment",
                };
                wrong(position(other), format!("expected the declaration of a type here, found {found}"))
            }
        }
    }

    fn trace_block(&mut self, items: &'a [Item], block: Position) -> Result<()> {
        const KNOWN: [&str; 4] = ["uuid", "major", "minor", "byte_order"];
        let scope = self.open_scope(0);
        let mut names = Names::default();
        for item in items {
            match item {
                Item::Assign { name, value, at } => {
                    names.once(name, *at)?;
                    match name.as_str() {
                        "uuid" => self.trace.uuid = Some(uuid(value, *at)?),
                        "major" => expect_version(value, 1, *at)?,
                        "minor" => expect_version(value, 8, *at)?,
                        "byte_order" => {}
                        name => unknown(name, &KNOWN, (&mut self.remarks, *at)),
                    }
                }
                Item::Bind { name, ty } => {
                    names.once(name, ty.at)?;
                    match name.as_str() {
                        "packet.header" => {
                            self.trace.packet_header = Some(self.root(ty, scope, Scope::PacketHeader)?);
                        }
                        other => return unknown_structure(other, "packet.header", ty.at),
                    }
                }
                other => self.declaration(other, scope)?,
            }
        }
        if !names.has("major") || !names.has("minor") {
            self.remarks.add(block, "expected `major = 1; minor = 8;` in the trace, found no version");
        }
        Ok(())
    }

    fn environment(&mut self, items: &[Item]) -> Result<()> {
        for item in items {
            let Item::Assign { name, value, at } = item else {
                self.remarks
                    .add(position(item), "expected values in the environment, ignored something else");
                continue;
            };
            let value = environment_value(value, *at)?;
            if self.trace.environment_value(name).is_some_and(|before| *before != value) {
                self.remarks
                    .add(*at, format!("expected one value {name:?} in the environment, found several"));
            }
            self.trace.environment.push((name.clone(), value));
        }
        Ok(())
    }

    fn clock(&mut self, items: &[Item], block: Position) -> Result<()> {
        const KNOWN: [&str; 8] =
            ["name", "uuid", "description", "freq", "precision", "offset_s", "offset", "absolute"];
        let mut clock = Clock::nanoseconds("", 0);
        for (attribute, value, at) in assignments(items, &KNOWN, &mut self.remarks)? {
            match attribute {
                "name" => clock.name = name(value, at)?,
                "uuid" => clock.uuid = Some(uuid(value, at)?),
                "description" => {
                    clock.description = text(value);
                    if clock.description.is_none() {
                        self.remarks.add(at, "expected a text as the description of a clock, found a number");
                    }
                }
                "freq" => clock.frequency = number(value, at)?,
                "precision" => clock.precision = Some(number(value, at)?),
                "offset_s" => clock.offset_seconds = number(value, at)?,
                "offset" => clock.offset_cycles = number(value, at)?,
                _ => clock.absolute = boolean(value, at)?,
            }
        }
        if clock.name.is_empty() {
            return wrong(block, "a clock without a name");
        }
        // The largest number is what tracers write for an unknown one.
        if matches!(clock.frequency, 0 | u64::MAX) {
            return wrong(block, format!("clock {} has the frequency {}", clock.name, clock.frequency));
        }
        if clock.offset_cycles < 0 {
            let remark = format!("expected an `offset` of at least 0 cycles, found {}", clock.offset_cycles);
            self.remarks.add(block, remark);
        }
        if self.trace.clock(&clock.name).is_some() {
            return wrong(block, format!("clock {} is defined twice", clock.name));
        }
        self.trace.clocks.push(clock);
        Ok(())
    }

    fn stream(&mut self, items: &'a [Item], block: Position) -> Result<()> {
        let scope = self.open_scope(0);
        let mut stream = Stream::default();
        let mut names = Names::default();
        for item in items {
            match item {
                Item::Assign { name, value, at } => {
                    names.once(name, *at)?;
                    match name.as_str() {
                        "id" => stream.id = number(value, *at)?,
                        name => unknown(name, &["id"], (&mut self.remarks, *at)),
                    }
                }
                Item::Bind { name, ty } => {
                    names.once(name, ty.at)?;
                    let (part, root) = match name.as_str() {
                        "packet.context" => (&mut stream.packet_context, Scope::PacketContext),
                        "event.header" => (&mut stream.event_header, Scope::EventHeader),
                        "event.context" => (&mut stream.event_context, Scope::StreamEventContext),
                        other => {
                            let known = "packet.context, event.header or event.context";
                            return unknown_structure(other, known, ty.at);
                        }
                    };
                    *part = Some(self.root(ty, scope, root)?);
                }
                other => self.declaration(other, scope)?,
            }
        }
        if self.trace.stream(stream.id).is_some() {
            return wrong(block, format!("stream {} is defined twice", stream.id));
        }
        self.trace.streams.push(stream);
        Ok(())
    }

    fn event(&mut self, items: &'a [Item], block: Position) -> Result<()> {
        let scope = self.open_scope(0);
        let mut event = Event::default();
        let (mut stream, mut names) = (None, Names::default());
        for item in items {
            match item {
                Item::Assign { name, value, at } => {
                    names.once(name, *at)?;
                    match name.as_str() {
                        "name" => event.name = attributes::name(value, *at)?,
                        "id" => event.id = number(value, *at)?,
                        "stream_id" => stream = Some(number(value, *at)?),
                        "loglevel" => event.log_level = self.log_level(value, *at),
                        _ => event.attributes.push((name.clone(), environment_value(value, *at)?)),
                    }
                }
                Item::Bind { name, ty } => {
                    names.once(name, ty.at)?;
                    match name.as_str() {
                        "context" => event.context = Some(self.root(ty, scope, Scope::EventContext)?),
                        "fields" => event.payload = Some(self.root(ty, scope, Scope::Payload)?),
                        other => return unknown_structure(other, "context or fields", ty.at),
                    }
                }
                other => self.declaration(other, scope)?,
            }
        }
        if !names.has("name") {
            self.remarks.add(block, "expected the name of an event, found none");
        }
        let is_number =
            |(name, value): &(String, EnvironmentValue)| name == "model.emf.uri" && value.as_text().is_none();
        if event.attributes.iter().any(is_number) {
            self.remarks.add(block, "expected a text as `model.emf.uri`, found a number");
        }
        self.stream_of_events.push((stream, event, block));
        Ok(())
    }

    /// Returns a log level. One that is no small number is left out.
    fn log_level(&mut self, value: &Value, at: Position) -> Option<i64> {
        let level = number::<i64>(value, at).ok();
        if level.is_none_or(|level| level < 0) {
            self.remarks.add(at, "expected a number of at least 0 as log level, found something else");
        }
        level
    }

    /// Builds one of the outermost structures.
    fn root(&mut self, ty: &'a TypeExpr, scope: usize, root: Scope) -> Result<Struct> {
        match self.build(ty, scope, &mut Place::new(root))? {
            Type::Struct(structure) => Ok(structure),
            _ => wrong(ty.at, "expected a structure"),
        }
    }

    /// Assigns the events to their streams.
    fn finish(&mut self) -> Result<()> {
        if self.trace.streams.is_empty() {
            self.trace.streams.push(Stream::default());
        }
        let mut position: HashMap<u64, usize> = HashMap::new();
        for (index, stream) in self.trace.streams.iter().enumerate() {
            position.insert(stream.id, index);
        }
        let mut seen: HashMap<(usize, u64), ()> = HashMap::new();
        for (stream, event, at) in std::mem::take(&mut self.stream_of_events) {
            let index = match stream {
                Some(id) => position.get(&id).copied(),
                None if self.trace.streams.len() == 1 => Some(0),
                None => position.get(&0).copied(),
            };
            let Some(index) = index else {
                return wrong(at, format!("event {:?} belongs to a stream that is not defined", event.name));
            };
            if seen.insert((index, event.id), ()).is_some() {
                return wrong(at, format!("event number {} is defined twice in its stream", event.id));
            }
            if let Some(stream) = self.trace.streams.get_mut(index) {
                stream.events.push(event);
            }
        }
        for (name, at) in std::mem::take(&mut self.mapped) {
            if self.trace.clock(&name).is_none() {
                let found = "to which fields are mapped, found none: its times are unknown";
                self.remarks.add(at, format!("expected a clock named {name}, {found}"));
            }
        }
        map_timestamps(&mut self.trace);
        Ok(())
    }
}

/// Assigns timestamps without a clock to the only clock, or to a nanosecond clock if there is none.
/// Old tracers omit the clock.
fn map_timestamps(trace: &mut Trace) {
    if trace.clocks.len() > 1 {
        return;
    }
    let clock = trace.clocks.first().map_or(DEFAULT_CLOCK, |clock| &clock.name).to_owned();
    let mut mapped = false;
    for stream in &mut trace.streams {
        let mut map = |root: &mut Option<Struct>, names: &[&str]| {
            let fields = root.iter_mut().flat_map(|structure| &mut structure.fields);
            fields.for_each(|field| mapped |= map_timestamp(field, names, &clock));
        };
        map(&mut stream.packet_context, &["timestamp_begin", "timestamp_end"]);
        map(&mut stream.event_header, &["timestamp"]);
    }
    if mapped && trace.clocks.is_empty() {
        trace.clocks.push(Clock { absolute: true, ..Clock::nanoseconds(DEFAULT_CLOCK, 0) });
    }
}

/// Name of the clock for timestamps of a description without clocks.
const DEFAULT_CLOCK: &str = "default";

/// Maps a field with one of these names, or fields in it, to a clock; returns whether there was
/// one.
fn map_timestamp(field: &mut Field, names: &[&str], clock: &str) -> bool {
    let fields = match &mut field.ty {
        Type::Integer(integer) | Type::Enum(Enum { integer, .. }) => {
            let is_timestamp = names.contains(&field.name.as_str()) && integer.clock.is_none();
            if is_timestamp {
                integer.clock = Some(clock.into());
            }
            return is_timestamp;
        }
        Type::Struct(structure) => &mut structure.fields,
        Type::Variant(variant) => &mut variant.options,
        _ => return false,
    };
    fields.iter_mut().fold(false, |mapped, field| mapped | map_timestamp(field, names, clock))
}

/// Refuses a structure of unknown purpose: the bytes that it describes would be taken for others.
fn unknown_structure(name: &str, known: &str, at: Position) -> Result<()> {
    wrong(at, format!("expected one of the structures {known}, found `{name}`"))
}

fn environment_value(value: &Value, at: Position) -> Result<EnvironmentValue> {
    Ok(match value {
        Value::Number(number) => EnvironmentValue::Integer(match i64::try_from(*number) {
            Ok(number) => number,
            Err(_) => match u64::try_from(*number) {
                Ok(number) => number as i64,
                Err(_) => return wrong(at, format!("{number} has more than 64 bits")),
            },
        }),
        Value::Text(text) | Value::Word(text) => EnvironmentValue::Text(text.clone()),
    })
}

fn expect_version(value: &Value, expected: u64, at: Position) -> Result<()> {
    let found: u64 = number(value, at)?;
    if found == expected {
        return Ok(());
    }
    wrong(at, format!("expected version 1.8 of the format, found {found} instead of {expected}"))
}
