//! Evaluates filters on the events of traces of any producer.
//!
//! Names are resolved for each event. `rows` is looked up among the event's own fields, then in the
//! context of its class. `$tid` is looked up in all contexts, under the names that tracers use. A
//! name that an event lacks is unknown. No later information can resolve it, so an unknown verdict
//! counts as false.

use std::collections::BTreeSet;

use tompion_ctf::decode::Value as Decoded;
use tompion_ctf::metadata::{self, EnvironmentValue, Type};
use tompion_filter::{
    Expression, FilterError, Found, Kind, Name, Operand, Place, Program, Schema, Scope, Segment, Span, Value,
    Values, compile, compile_unbound,
};
use tompion_schema::Label;

use crate::{Event, Trace, TraceSet};

/// Prefix of perf's context fields, which are stored among the event's own fields.
const PERF: &str = "perf_";

/// Names under which traces store a context: Tompion's and LTTng's, then those of kernel tracers.
const ALIASES: &[(&str, &[&str])] = &[
    ("tid", &["vtid", "tid", "perf_tid"]),
    ("pid", &["vpid", "pid", "perf_pid"]),
    ("comm", &["procname", "comm", "perf_comm"]),
    ("cpu", &["cpu", "cpu_id", "perf_cpu"]),
    ("prio", &["prio", "priority"]),
];

/// Predicate over events.
#[derive(Clone, Debug)]
pub struct Filter {
    program: Program,
    /// Names under which traces may store each operand.
    names: Vec<Vec<String>>,
}

impl Filter {
    /// Compiles a parsed expression.
    ///
    /// # Errors
    ///
    /// Fails if operators don't fit literals, or if the filter is too large.
    pub fn new(expression: &Expression) -> Result<Self, FilterError> {
        let program = compile_unbound(expression)?;
        let names = program.operands().iter().map(|operand| names_in_traces(&operand.name)).collect();
        Ok(Self { program, names })
    }

    /// Whether the filter is known to be true for the event.
    pub fn takes(&self, event: &Event<'_>) -> bool {
        self.program.evaluate(&EventValues { event, names: &self.names }).is_true()
    }
}

/// Returns the names under which traces may store an operand.
fn names_in_traces(name: &Name) -> Vec<String> {
    let aliases = ALIASES.iter().find(|(known, _)| name.scope == Scope::Context && *known == name.head());
    match aliases {
        Some((_, names)) => names.iter().map(ToString::to_string).collect(),
        None => vec![name.context_field().into_owned()],
    }
}

struct EventValues<'e, 'a> {
    event: &'e Event<'a>,
    names: &'e [Vec<String>],
}

impl<'a> EventValues<'_, 'a> {
    fn find(&self, operand: &Operand) -> Option<Decoded<'a>> {
        let event = self.event;
        let mut names = self.names.get(operand.index)?.iter();
        let value = match operand.name.scope {
            Scope::Field => {
                names.find_map(|name| event.payload().get(name).or_else(|| event.context().get(name)))
            }
            Scope::Context | Scope::Application => names.find_map(|name| self.context(name)),
        };
        descend(value?, operand.name.path.get(1..)?)
    }

    fn context(&self, name: &str) -> Option<Decoded<'a>> {
        let event = self.event;
        let of_class = event.context().get(name).or_else(|| event.stream_context().get(name));
        of_class.or_else(|| event.packet_context().get(name)).or_else(|| {
            let stands_among_fields = name.starts_with(PERF);
            stands_among_fields.then(|| event.payload().get(name)).flatten()
        })
    }

    /// Looks the operand up in the trace's environment, for traces of a single process.
    fn environment(&self, operand: &Operand) -> Option<&'a EnvironmentValue> {
        environment(self.event.trace(), &operand.name, self.names.get(operand.index)?)
    }
}

fn environment<'a>(trace: &'a Trace, name: &Name, names: &[String]) -> Option<&'a EnvironmentValue> {
    // A process has one name, but its threads may have others.
    let is_whole = name.scope == Scope::Context && name.path.len() == 1 && name.head() != "comm";
    names.iter().filter(|_| is_whole).find_map(|name| trace.metadata().environment_value(name))
}

/// Follows the rest of a path into a value. A variant is entered with or without the name of its
/// selected option.
fn descend<'a>(value: Decoded<'a>, path: &[Segment]) -> Option<Decoded<'a>> {
    match (value, path) {
        (Decoded::Variant(_, mut fields), path) => {
            let (option, value) = fields.next()?;
            let is_named = matches!(path.first(), Some(Segment::Name(name)) if name == option);
            descend(value, path.get(usize::from(is_named)..)?)
        }
        (Decoded::Optional(inner), path) => descend(inner?.value()?, path),
        (value, []) => Some(value),
        (Decoded::Struct(fields), [Segment::Name(name), rest @ ..]) => descend(fields.get(name)?, rest),
        (Decoded::Array(mut elements), [Segment::Index(index), rest @ ..]) => {
            descend(elements.nth(usize::try_from(*index).ok()?)?, rest)
        }
        _ => None,
    }
}

impl Values for EventValues<'_, '_> {
    fn number(&self, operand: &Operand) -> Value {
        match self.find(operand) {
            Some(Decoded::Float(number)) => number.into(),
            Some(value) => value.as_integer().map_or(Value::UNKNOWN, Value::integer),
            None => match self.environment(operand) {
                Some(EnvironmentValue::Integer(number)) => (*number).into(),
                _ => Value::UNKNOWN,
            },
        }
    }

    fn text(&self, operand: &Operand) -> Option<&[u8]> {
        match self.find(operand) {
            Some(value) => value.as_text(),
            None => self.environment(operand)?.as_text().map(str::as_bytes),
        }
    }

    fn has_label(&self, operand: &Operand, wanted: &dyn Fn(&[u8]) -> bool) -> Option<bool> {
        let value = self.find(operand)?;
        let (Decoded::Enum(_, ty), number) = (value, value.as_integer()?) else { return None };
        let mut own = ty.mappings.iter().filter(|mapping| (mapping.low..=mapping.high).contains(&number));
        Some(own.any(|mapping| wanted(mapping.label.as_bytes())))
    }
}

/// Event class against which a filter can be checked before there are events.
struct ClassSchema<'a> {
    trace: &'a Trace,
    stream: &'a metadata::Stream,
    class: &'a metadata::Event,
}

impl<'a> ClassSchema<'a> {
    fn parts(&self, scope: Scope) -> Vec<&'a metadata::Struct> {
        let (own, class) = (&self.class.payload, &self.class.context);
        let parts = match scope {
            Scope::Field => vec![own, class],
            _ => vec![class, &self.stream.event_context, &self.stream.packet_context],
        };
        parts.into_iter().flatten().collect()
    }

    fn knows(&self, name: &Name) -> bool {
        self.find(name).place == Place::ByName
    }

    fn type_of(&self, name: &Name, names: &[String]) -> Option<&'a Type> {
        let parts = self.parts(name.scope);
        let among_fields = self.class.payload.as_ref().filter(|_| name.scope == Scope::Context);
        names.iter().find_map(|name| {
            let perf = among_fields.filter(|_| name.starts_with(PERF));
            parts.iter().copied().chain(perf).find_map(|part| part.field(name))
        })
    }
}

impl Schema for ClassSchema<'_> {
    fn find(&self, name: &Name) -> Found<'_> {
        let names = names_in_traces(name);
        let kind = match self.type_of(name, &names) {
            Some(ty) => kind_of(ty, name.path.get(1..).unwrap_or_default()),
            None => match environment(self.trace, name, &names) {
                Some(EnvironmentValue::Integer(_)) => Some(Kind::Integer),
                Some(EnvironmentValue::Text(_)) => Some(Kind::Text),
                None => None,
            },
        };
        kind.map_or(Found::ABSENT, |kind| Found { place: Place::ByName, kind })
    }
}

/// Returns the kind of a type, or of the part of it that a path leads to; `None` if there is no
/// such part.
fn kind_of<'a>(ty: &'a Type, path: &[Segment]) -> Option<Kind<'a>> {
    Some(match (ty, path) {
        (Type::Integer(_) | Type::Boolean(_) | Type::Bits(_), []) => Kind::Integer,
        (Type::Float(_), []) => Kind::Float,
        (Type::String(_) | Type::Text(_), []) => Kind::Text,
        (Type::Enum(ty), []) => Kind::Enumeration(ty.mappings.iter().map(label).collect()),
        (Type::Struct(fields), [Segment::Name(name), rest @ ..]) => {
            return kind_of(fields.field(name)?, rest);
        }
        (Type::Struct(_), []) => Kind::Unusable("a structure".into()),
        (Type::Array(metadata::Array { element, .. }), path)
        | (Type::Sequence(metadata::Sequence { element, .. }), path) => match (&**element, path) {
            (Type::Integer(integer), []) if integer.is_text() => Kind::Text,
            (_, []) => Kind::Unusable("several values".into()),
            (element, [Segment::Index(_), rest @ ..]) => return kind_of(element, rest),
            _ => return None,
        },
        // The selected option is known only for an event.
        (Type::Variant(_) | Type::Optional(_), _) => Kind::Any,
        _ => return None,
    })
}

fn label(mapping: &metadata::Mapping) -> Label {
    Label { low: mapping.low, high: mapping.high, name: mapping.label.clone() }
}

/// Returns the names in a filter that no selected event class has, with their positions. Returns
/// none if there are no classes.
pub fn missing<'e>(expression: &'e Expression, traces: &TraceSet) -> Vec<(&'e Name, Span)> {
    let schemas: Vec<_> = schemas(traces).collect();
    let is_missing = |name: &Name| !schemas.is_empty() && !schemas.iter().any(|schema| schema.knows(name));
    expression.names().filter(|(name, _)| is_missing(name)).collect()
}

/// Whether a name is a context that tracers commonly record.
pub fn is_common_context(name: &Name) -> bool {
    let is_common = |(known, names): &(&str, &[&str])| *known == name.head() || names.contains(&name.head());
    name.scope == Scope::Context && name.path.len() == 1 && ALIASES.iter().any(is_common)
}

/// Checks a filter against the selected event classes.
///
/// # Errors
///
/// Fails if some classes have all names, but the filter's operators fit none of them.
pub fn check(expression: &Expression, traces: &TraceSet) -> Result<(), FilterError> {
    let mut wrong = None;
    for schema in schemas(traces).filter(|schema| expression.names().all(|(name, _)| schema.knows(name))) {
        match compile(expression, &schema) {
            Ok(_) => return Ok(()),
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    wrong.map_or(Ok(()), Err)
}

fn schemas(traces: &TraceSet) -> impl Iterator<Item = ClassSchema<'_>> {
    traces.selected_classes().map(|(trace, stream, class)| ClassSchema { trace, stream, class })
}

/// Returns all names that a filter can use with the selected event classes, in the filter's syntax.
/// Structures are listed without their members.
pub fn names(traces: &TraceSet) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = ALIASES.iter().map(|(name, _)| format!("${name}")).collect();
    for schema in schemas(traces) {
        for (sign, scope) in [("", Scope::Field), ("$", Scope::Context)] {
            let fields = schema.parts(scope).into_iter().flat_map(|part| &part.fields);
            names.extend(fields.map(|field| format!("{sign}{}", field.name)));
        }
    }
    names
}
