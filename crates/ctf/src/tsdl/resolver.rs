//! Converts syntax to the model by resolving names and references.
//!
//! Names of types belong to nested scopes. An alias stores its syntax and the scope where it was
//! defined. Its type is built again wherever the alias is used, because a reference inside it
//! (`variant <id>`) refers to the field that precedes it *there*. Building is limited in depth and
//! in the number of types, so that aliases of aliases cannot grow without end.

use std::collections::HashMap;

use super::syntax::{Declarator, Item, TypeExpr, Value};
use super::types::Place;
use super::{Error, Position};
use crate::metadata::{
    ByteOrder, Clock, Enum, EnvironmentValue, Event, Field, Scope, Stream, Struct, Trace, Type, Uuid,
};

pub(super) type Result<T> = std::result::Result<T, Error>;

/// Maximum number of types in one trace.
const MAX_TYPES: usize = 1 << 19;
/// Maximum nesting of types, aliases included.
const MAX_DEPTH: usize = 128;

/// Builds the model.
pub(super) fn resolve(items: &[Item]) -> Result<Trace> {
    let mut resolver = Resolver {
        trace: Trace { byte_order: byte_order_of_trace(items)?, ..Trace::default() },
        scopes: vec![NameScope::default()],
        types: 0,
        depth: 0,
        stream_of_events: Vec::new(),
    };
    for item in items {
        resolver.top_item(item)?;
    }
    resolver.finish()
}

/// Returns an error about invalid content.
pub(super) fn wrong<T>(at: Position, message: impl Into<String>) -> Result<T> {
    Err(Error::Invalid { at, message: message.into() })
}

/// Finds the trace's byte order first: types are built while the trace is read, and need it.
fn byte_order_of_trace(items: &[Item]) -> Result<ByteOrder> {
    let blocks = items.iter().filter_map(|item| match item {
        Item::Block { kind, items, .. } if kind == "trace" => Some(items),
        _ => None,
    });
    for item in blocks.flatten() {
        match item {
            Item::Assign { name, value, at } if name == "byte_order" => {
                return byte_order(value, ByteOrder::Little, *at);
            }
            _ => {}
        }
    }
    Ok(ByteOrder::Little)
}

pub(super) fn byte_order(value: &Value, native: ByteOrder, at: Position) -> Result<ByteOrder> {
    match text(value).as_deref() {
        Some("le") => Ok(ByteOrder::Little),
        Some("be" | "network") => Ok(ByteOrder::Big),
        Some("native") => Ok(native),
        _ => wrong(at, "expected a byte order: `le`, `be`, `network` or `native`"),
    }
}

/// Returns a word or a string.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) | Value::Word(text) => Some(text.clone()),
        Value::Number(_) => None,
    }
}

pub(super) fn boolean(value: &Value, at: Position) -> Result<bool> {
    match value {
        Value::Number(number) => Ok(*number != 0),
        Value::Word(word) | Value::Text(word) if word.eq_ignore_ascii_case("true") => Ok(true),
        Value::Word(word) | Value::Text(word) if word.eq_ignore_ascii_case("false") => Ok(false),
        _ => wrong(at, "expected `true` or `false`"),
    }
}

/// Returns a number that fits the requested type.
pub(super) fn number<N: TryFrom<i128>>(value: &Value, at: Position) -> Result<N> {
    match value {
        Value::Number(number) => {
            N::try_from(*number).or_else(|_| wrong(at, format!("{number} is out of range")))
        }
        Value::Text(text) | Value::Word(text) => wrong(at, format!("expected a number, found {text:?}")),
    }
}

fn uuid(value: &Value, at: Position) -> Result<Uuid> {
    let text = text(value).unwrap_or_default();
    Uuid::parse(&text).map_or_else(|| wrong(at, format!("expected a UUID, found {text:?}")), Ok)
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

    /// Defines the name of a type.
    pub fn define(&mut self, scope: usize, name: String, alias: Alias<'a>) {
        if let Some(scope) = self.scopes.get_mut(scope) {
            scope.names.insert(name, alias);
        }
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
                "trace" => self.trace_block(items),
                "env" => self.environment(items),
                "clock" => self.clock(items, *at),
                "stream" => self.stream(items, *at),
                "event" => self.event(items, *at),
                _ => Ok(()),
            },
            Item::Field { declarators, .. } => {
                let at = declarators.first().map_or_else(Position::default, |declarator| declarator.at);
                wrong(at, "expected a block or the declaration of a type, found a field")
            }
            Item::Assign { at, .. } => wrong(*at, "expected a block, found an assignment"),
            Item::Bind { ty, .. } => wrong(ty.at, "expected a block, found an assignment"),
            other => self.declaration(other, 0),
        }
    }

    /// Defines the names in a declaration.
    pub fn declaration(&mut self, item: &'a Item, scope: usize) -> Result<()> {
        match item {
            Item::Aliases { ty, declarators } => {
                self.declare_names(ty, scope);
                for declarator in declarators {
                    let alias = Alias { ty, declarator: Some(declarator), scope };
                    self.define(scope, declarator.name.clone(), alias);
                }
            }
            Item::Declare { ty } => self.declare_names(ty, scope),
            _ => {}
        }
        Ok(())
    }

    fn trace_block(&mut self, items: &'a [Item]) -> Result<()> {
        let scope = self.open_scope(0);
        for item in items {
            match item {
                Item::Assign { name, value, at } => match name.as_str() {
                    "uuid" => self.trace.uuid = Some(uuid(value, *at)?),
                    "major" => expect_version(value, 1, *at)?,
                    "minor" => expect_version(value, 8, *at)?,
                    _ => {}
                },
                Item::Bind { name, ty } if name == "packet.header" => {
                    self.trace.packet_header = Some(self.root(ty, scope, Scope::PacketHeader)?);
                }
                other => self.declaration(other, scope)?,
            }
        }
        Ok(())
    }

    fn environment(&mut self, items: &[Item]) -> Result<()> {
        for item in items {
            let Item::Assign { name, value, at } = item else { continue };
            self.trace.environment.push((name.clone(), environment_value(value, *at)?));
        }
        Ok(())
    }

    fn clock(&mut self, items: &[Item], block: Position) -> Result<()> {
        let mut clock = Clock::nanoseconds("", 0);
        for item in items {
            let Item::Assign { name, value, at } = item else { continue };
            match name.as_str() {
                "name" => clock.name = text(value).unwrap_or_default(),
                "uuid" => clock.uuid = Some(uuid(value, *at)?),
                "description" => clock.description = text(value),
                "freq" => clock.frequency = number(value, *at)?,
                "precision" => clock.precision = Some(number(value, *at)?),
                "offset_s" => clock.offset_seconds = number(value, *at)?,
                "offset" => clock.offset_cycles = number(value, *at)?,
                "absolute" => clock.absolute = boolean(value, *at)?,
                _ => {}
            }
        }
        if clock.name.is_empty() {
            return wrong(block, "a clock without a name");
        }
        if clock.frequency == 0 {
            return wrong(block, format!("clock {} has the frequency 0", clock.name));
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
        for item in items {
            match item {
                Item::Assign { name, value, at } if name == "id" => stream.id = number(value, *at)?,
                Item::Bind { name, ty } => match name.as_str() {
                    "packet.context" => {
                        stream.packet_context = Some(self.root(ty, scope, Scope::PacketContext)?);
                    }
                    "event.header" => stream.event_header = Some(self.root(ty, scope, Scope::EventHeader)?),
                    "event.context" => {
                        stream.event_context = Some(self.root(ty, scope, Scope::StreamEventContext)?);
                    }
                    _ => {}
                },
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
        let mut stream = None;
        for item in items {
            match item {
                Item::Assign { name, value, at } => match name.as_str() {
                    "name" => event.name = text(value).unwrap_or_default(),
                    "id" => event.id = number(value, *at)?,
                    "stream_id" => stream = Some(number(value, *at)?),
                    "loglevel" => event.log_level = Some(number(value, *at)?),
                    _ => event.attributes.push((name.clone(), environment_value(value, *at)?)),
                },
                Item::Bind { name, ty } => match name.as_str() {
                    "context" => event.context = Some(self.root(ty, scope, Scope::EventContext)?),
                    "fields" => event.payload = Some(self.root(ty, scope, Scope::Payload)?),
                    _ => {}
                },
                other => self.declaration(other, scope)?,
            }
        }
        self.stream_of_events.push((stream, event, block));
        Ok(())
    }

    /// Builds one of the outermost structures.
    fn root(&mut self, ty: &'a TypeExpr, scope: usize, root: Scope) -> Result<Struct> {
        match self.build(ty, scope, &mut Place::new(root))? {
            Type::Struct(structure) => Ok(structure),
            _ => wrong(ty.at, "expected a structure"),
        }
    }

    /// Assigns the events to their streams.
    fn finish(mut self) -> Result<Trace> {
        if self.trace.streams.is_empty() {
            self.trace.streams.push(Stream::default());
        }
        let mut position: HashMap<u64, usize> = HashMap::new();
        for (index, stream) in self.trace.streams.iter().enumerate() {
            position.insert(stream.id, index);
        }
        let mut seen: HashMap<(usize, u64), ()> = HashMap::new();
        for (stream, event, at) in self.stream_of_events {
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
        map_timestamps(&mut self.trace);
        Ok(self.trace)
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
