//! Converts fragments to the model.

use std::collections::{HashMap, HashSet};

use super::OWN_NAMESPACE;
use super::attributes::{self, Collector};
use super::fields::Place;
use super::fragment::{Object, Result, inside, number, text, wrong};
use super::value::Json;
use crate::metadata::{
    Clock, Details, EnvironmentValue, Event, FieldAttributes, Identity, Scope, Stream, Struct, Trace, Type,
    Uuid, Version,
};

/// Log levels with their names in babeltrace2 and LTTng, and one alternative. Names with a colon
/// are also accepted with a hyphen instead.
pub(super) const LOG_LEVELS: [(&str, i64); 16] = [
    ("emergency", 0),
    ("alert", 1),
    ("critical", 2),
    ("error", 3),
    ("err", 3),
    ("warning", 4),
    ("notice", 5),
    ("info", 6),
    ("debug:system", 7),
    ("debug:program", 8),
    ("debug:process", 9),
    ("debug:module", 10),
    ("debug:unit", 11),
    ("debug:function", 12),
    ("debug:line", 13),
    ("debug", 14),
];

/// Maximum number of remarks that are kept.
const MAX_REMARKS: usize = 16;

/// State of the description so far.
#[derive(Default)]
pub(super) struct Resolver {
    pub trace: Trace,
    /// Named field classes.
    pub aliases: HashMap<String, Json>,
    /// Number of field classes built.
    pub types: usize,
    /// Remarks on what is odd.
    pub remarks: Vec<String>,
    /// Attributes of the field classes of the current fragment.
    field_attributes: Vec<FieldAttributes>,
    /// Size of all field attributes so far, in bytes.
    field_attributes_size: usize,
    has_trace_class: bool,
    events: HashSet<(u64, u64)>,
}

impl Resolver {
    /// Remarks on an oddity, once and within limits.
    pub fn remark(&mut self, remark: String) {
        if self.remarks.len() < MAX_REMARKS && !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Processes a fragment.
    pub fn fragment(&mut self, fragment: &Json, number: usize) -> Result<()> {
        let object = Object::of(fragment)?;
        let Some(kind) = object.text("type")? else {
            return wrong("expected a property \"type\", found none");
        };
        match (number, kind) {
            (1, "preamble") => inside(kind, self.preamble(object)),
            (1, _) => wrong(format!("expected a preamble as the first fragment, found {kind:?}")),
            (_, "preamble") => wrong("expected one preamble, found another"),
            (_, "field-class-alias") => inside(kind, self.alias(object)),
            (_, "trace-class") => inside(kind, self.trace_class(object)),
            (_, "clock-class") => inside(kind, self.clock(object)),
            (_, "data-stream-class") => inside(kind, self.stream(object)),
            (_, "event-record-class") => inside(kind, self.event(object)),
            _ => wrong(format!("expected a fragment type of CTF 2, found {kind:?}")),
        }
    }

    fn preamble(&mut self, object: Object<'_>) -> Result<()> {
        object.check(&[&["version", "uuid"]])?;
        self.trace.version = Version::Two;
        let version: i64 = inside("version", number(object.need("version")?))?;
        if version != 2 {
            return wrong(format!("expected version 2 of the format, found {version}"));
        }
        self.trace.uuid = object.array("uuid")?.map(|bytes| inside("uuid", uuid(bytes))).transpose()?;
        Ok(())
    }

    fn alias(&mut self, object: Object<'_>) -> Result<()> {
        object.check(&[&["name", "field-class"]])?;
        let name = inside("name", text(object.need("name")?))?;
        let class = object.need("field-class")?;
        // Problems are reported at the definition, not at each use; locations can be resolved only
        // at a use.
        inside("field-class", self.build_unplaced(class))?;
        match self.aliases.insert(name.into(), class.clone()) {
            None => Ok(()),
            Some(_) => wrong(format!("the field class {name:?} is defined twice")),
        }
    }

    fn trace_class(&mut self, object: Object<'_>) -> Result<()> {
        object.check(&[&["namespace", "name", "uid", "uuid", "environment", "packet-header-field-class"]])?;
        if std::mem::replace(&mut self.has_trace_class, true) || !self.trace.streams.is_empty() {
            return wrong("expected one trace class, before all stream classes");
        }
        let of_draft = object.array("uuid")?.map(|bytes| inside("uuid", uuid(bytes))).transpose()?;
        self.trace.uuid = self.trace.uuid.or(of_draft);
        let Details { identity, attributes, .. } = details(object)?;
        self.trace.attributes = attributes;
        self.trace.identity = Some(identity).filter(|identity| *identity != Identity::default());
        if let Some(environment) = object.object("environment")? {
            for (name, value) in environment.entries() {
                let value = inside("environment", inside(name, environment_value(value)))?;
                self.trace.environment.push((name.into(), value));
            }
        }
        self.trace.packet_header =
            self.root(object, "packet-header-field-class", &mut Place::new(Scope::PacketHeader, None))?;
        Ok(())
    }

    fn clock(&mut self, object: Object<'_>) -> Result<()> {
        let names = ["namespace", "name", "uid", "id", "description", "frequency", "precision", "accuracy"];
        object.check(&[&names, &["origin", "offset-from-origin", "uuid"]])?;
        // Clocks of a draft have names only.
        let key = if object.get("id").is_none() && object.get("name").is_some() { "name" } else { "id" };
        let id = inside(key, text(object.need(key)?))?;
        if self.trace.clock(id).is_some() {
            return wrong(format!("clock {id:?} is defined twice"));
        }
        let details = details(object)?;
        let uuid_of_uid = details.identity.uid.as_deref().and_then(Uuid::parse);
        let of_draft = object.array("uuid")?.map(|bytes| inside("uuid", uuid(bytes))).transpose()?;
        let frequency: u64 = inside("frequency", number(object.need("frequency")?))?;
        if frequency == 0 {
            return wrong(format!("clock {id:?} has the frequency 0"));
        }
        let (mut absolute, mut origin) = (false, None);
        match object.get("origin") {
            None => {}
            Some(Json::Text(text)) if text == "unix-epoch" => absolute = true,
            Some(Json::Text(text)) => {
                return inside(
                    "origin",
                    wrong(format!("expected \"unix-epoch\" or an object, found {text:?}")),
                );
            }
            Some(value) => {
                let object = inside("origin", Object::of(value))?;
                inside("origin", object.need("name"))?;
                inside("origin", object.need("uid"))?;
                origin = Some(inside("origin", identity(object))?);
            }
        }
        let offset = object.object("offset-from-origin")?;
        let offset_seconds = offset.map(|offset| offset.number("seconds")).transpose()?.flatten();
        let offset_cycles: Option<u64> = offset.map(|offset| offset.number("cycles")).transpose()?.flatten();
        let offset_cycles = offset_cycles.unwrap_or(0);
        if offset_cycles >= frequency {
            let message =
                format!("expected fewer cycles than a second has ({frequency}), found {offset_cycles}");
            return inside("offset-from-origin", wrong(message));
        }
        self.trace.clocks.push(Clock {
            name: id.into(),
            origin,
            uuid: uuid_of_uid.or(of_draft),
            description: object.text("description")?.map(Into::into),
            frequency,
            precision: object.number("precision")?,
            accuracy: object.number("accuracy")?,
            details: Some(details),
            offset_seconds: offset_seconds.unwrap_or(0),
            // With a frequency beyond the range of signed integers, precision is lost anyway.
            offset_cycles: i64::try_from(offset_cycles).unwrap_or(i64::MAX),
            absolute,
        });
        Ok(())
    }

    fn stream(&mut self, object: Object<'_>) -> Result<()> {
        let fields = [
            "packet-context-field-class",
            "event-record-header-field-class",
            "event-record-common-context-field-class",
        ];
        let clocks = ["default-clock-class-id", "default-clock-class-name"];
        object.check(&[&["namespace", "name", "uid", "id"], &clocks, &fields])?;
        let id = object.number("id")?.unwrap_or(0);
        if self.trace.stream(id).is_some() {
            return wrong(format!("stream class {id} is defined twice"));
        }
        let [by_id, by_name] = clocks;
        let (key, clock) = match object.text(by_id)? {
            None => (by_name, object.text(by_name)?),
            clock => (by_id, clock),
        };
        if let Some(clock) = clock.filter(|clock| self.trace.clock(clock).is_none()) {
            return inside(key, wrong(format!("no clock {clock:?} precedes it")));
        }
        let [packet_context, event_header, event_context] = fields;
        let mut stream = Stream {
            id,
            name: identity(object)?.name,
            details: Details { identity: nameless(object)?, ..details(object)? },
            packet_context: self.root(
                object,
                packet_context,
                &mut Place::new(Scope::PacketContext, clock),
            )?,
            event_header: self.root(object, event_header, &mut Place::new(Scope::EventHeader, clock))?,
            event_context: self.root(
                object,
                event_context,
                &mut Place::new(Scope::StreamEventContext, None),
            )?,
            events: Vec::new(),
        };
        stream.details.fields = std::mem::take(&mut self.field_attributes);
        self.trace.streams.push(stream);
        Ok(())
    }

    fn event(&mut self, object: Object<'_>) -> Result<()> {
        let fields = ["specific-context-field-class", "payload-field-class"];
        object.check(&[&["namespace", "name", "uid", "id", "data-stream-class-id"], &fields])?;
        let id = object.number("id")?.unwrap_or(0);
        let stream = object.number("data-stream-class-id")?.unwrap_or(0);
        if self.trace.stream(stream).is_none() {
            return wrong(format!("no stream class {stream} precedes it"));
        }
        if !self.events.insert((stream, id)) {
            return wrong(format!("event class {id} is defined twice in stream class {stream}"));
        }
        let (log_level, attributes, others) = attributes(object)?;
        let [context, payload] = fields;
        let mut event = Event {
            id,
            name: identity(object)?.name.unwrap_or_else(|| Event::UNNAMED.into()),
            details: Details { identity: nameless(object)?, attributes: others, fields: Vec::new() },
            log_level,
            attributes,
            context: self.root(object, context, &mut Place::new(Scope::EventContext, None))?,
            payload: self.root(object, payload, &mut Place::new(Scope::Payload, None))?,
        };
        event.details.fields = std::mem::take(&mut self.field_attributes);
        if let Some(stream) = self.trace.streams.iter_mut().find(|class| class.id == stream) {
            stream.events.push(event);
        }
        Ok(())
    }

    /// Builds one of the outermost structures.
    fn root(&mut self, object: Object<'_>, name: &str, place: &mut Place<'_>) -> Result<Option<Struct>> {
        let Some(class) = object.get(name) else { return Ok(None) };
        match inside(name, self.build(class, place))? {
            Type::Struct(structure) => {
                self.keep_attributes(class, place.scope);
                Ok(Some(structure))
            }
            _ => inside(name, wrong("expected a structure")),
        }
    }

    /// Keeps the attributes of field classes, but for headers, which a new trace has of its own.
    fn keep_attributes(&mut self, class: &Json, scope: Scope) {
        if matches!(scope, Scope::PacketHeader | Scope::EventHeader) {
            return;
        }
        let room = attributes::MAX_SIZE.saturating_sub(self.field_attributes_size);
        let mut collector =
            Collector { aliases: &self.aliases, scope, room, is_cut: false, found: Vec::new() };
        collector.collect(class, &mut Vec::new());
        let Collector { room: left, is_cut, mut found, .. } = collector;
        self.field_attributes_size += room - left;
        self.field_attributes.append(&mut found);
        if is_cut {
            let size = attributes::MAX_SIZE >> 20;
            self.remark(format!(
                "expected at most {size} MiB of attributes of fields, found more: they are lost"
            ));
        }
    }
}

fn identity(object: Object<'_>) -> Result<Identity> {
    let text = |name| Ok(object.text(name)?.map(String::from));
    Ok(Identity { namespace: text("namespace")?, name: text("name")?, uid: text("uid")? })
}

fn uuid(bytes: &[Json]) -> Result<Uuid> {
    let bytes = bytes.iter().map(number).collect::<Result<Vec<u8>>>()?;
    match <[u8; 16]>::try_from(bytes) {
        Ok(bytes) => Ok(Uuid(bytes)),
        Err(bytes) => wrong(format!("expected 16 bytes, found {}", bytes.len())),
    }
}

fn environment_value(value: &Json) -> Result<EnvironmentValue> {
    match value {
        Json::Text(text) => Ok(EnvironmentValue::Text(text.clone())),
        Json::Integer(number) => match (i64::try_from(*number), u64::try_from(*number)) {
            (Ok(number), _) => Ok(EnvironmentValue::Integer(number)),
            (Err(_), Ok(number)) => Ok(EnvironmentValue::Integer(number as i64)),
            _ => wrong(format!("{number} has more than 64 bits")),
        },
        other => wrong(format!("expected an integer or a text, found {}", other.kind())),
    }
}

/// Returns the identity of a class whose name stands apart.
fn nameless(object: Object<'_>) -> Result<Identity> {
    Ok(Identity { name: None, ..identity(object)? })
}

/// Returns the identity, and all attributes.
fn details(object: Object<'_>) -> Result<Details> {
    let attributes = object.attributes()?.map(|attributes| {
        let entries = attributes.entries().map(|(name, value)| (name.to_owned(), value.clone()));
        Json::Object(entries.collect())
    });
    let attributes = attributes.as_ref().and_then(written);
    Ok(Details { identity: identity(object)?, attributes, fields: Vec::new() })
}

/// Returns attributes as text, if there are any.
fn written(attributes: &Json) -> Option<String> {
    let is_empty = matches!(attributes, Json::Object(entries) if entries.is_empty());
    serde_json::to_string(attributes).ok().filter(|_| !is_empty)
}

/// Log level, supported attributes, and the others as text.
type Attributes = (Option<i64>, Vec<(String, EnvironmentValue)>, Option<String>);

/// Parses the log level and the supported attributes, of any namespace.
fn attributes(object: Object<'_>) -> Result<Attributes> {
    let Some(namespaces) = object.attributes()? else { return Ok((None, Vec::new(), None)) };
    let (mut level, mut attributes, mut others) = (None, Vec::new(), Vec::new());
    for (owner, namespace) in namespaces.entries() {
        let Ok(entries) = Object::of(namespace) else {
            others.push((owner.to_owned(), namespace.clone()));
            continue;
        };
        let mut unknown = Vec::new();
        for (name, value) in entries.entries() {
            match (name, value) {
                ("log-level", Json::Integer(number)) => level = i64::try_from(*number).ok().or(level),
                ("log-level", Json::Text(text)) => {
                    let text = text.replace('-', ":");
                    let known = LOG_LEVELS.iter().find(|(name, _)| *name == text);
                    level = known.map(|(_, number)| *number).or(level);
                }
                ("emf-uri", Json::Text(uri)) => {
                    attributes.push(("model.emf.uri".into(), EnvironmentValue::Text(uri.clone())));
                }
                (name, value) if owner == OWN_NAMESPACE => {
                    let value = environment_value(value).ok();
                    attributes.extend(value.map(|value| (name.to_owned(), value)));
                }
                (name, value) => unknown.push((name.to_owned(), value.clone())),
            }
        }
        if !unknown.is_empty() {
            others.push((owner.to_owned(), Json::Object(unknown)));
        }
    }
    Ok((level, attributes, written(&Json::Object(others))))
}
