//! Session's part of filters, where agents left the verdict to it because it alone knows the
//! context.

use tompion_filter::{
    Contexts, EventSchema, Expression, FilterError, Found, Kind, Name, Place, Program, RecordValues, Schema,
    Scope, Shape, Span, Value, Verdict,
};
use tompion_schema::{Event, Kind as EventKind};

use crate::{self as context, Values};

const TID: u16 = 0;
const CPU: u16 = 1;

/// A filter on the events of one class that the session must decide.
#[derive(Debug)]
pub struct SessionFilter {
    /// None if the filter doesn't fit the class: then it lets nothing through.
    program: Option<Program>,
    shape: Shape,
    /// Names of contexts, by their numbers in the program less two.
    names: Vec<String>,
}

/// Place and thread in which an event was recorded.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The thread's id in its own pid namespace.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// Context of the thread; none for one that was not seen before its session was gone.
    pub values: Option<&'a Values>,
}

/// The contexts that filters may ask for, without their sign. Applications have others, `$app.…`.
pub fn filter_contexts() -> impl Iterator<Item = String> {
    context::names()
}

/// Contexts in a filter that no recording knows, and where they stand.
pub fn unknown_contexts(expression: &Expression) -> impl Iterator<Item = (&Name, Span)> {
    expression
        .names()
        .filter(|(name, _)| name.scope == Scope::Context && context::kind(name.head()).is_none())
}

/// Holds a filter against what is known before there are events: what the contexts are.
///
/// # Errors
///
/// If operators don't fit the contexts, or the filter is too large.
pub fn check_filter(expression: &Expression) -> Result<(), FilterError> {
    tompion_filter::compile(expression, &Circumstantial).map(drop)
}

/// Knowledge of the names in a filter before there are events.
struct Circumstantial;

impl Schema for Circumstantial {
    fn find(&self, name: &Name) -> Found<'_> {
        let context = (name.scope == Scope::Context).then(|| context::kind(name.head())).flatten();
        let kind = match (context, name.path.len()) {
            (Some(_), 2..) => Kind::Unusable("no part of that context".into()),
            (kind, _) => kind.unwrap_or(Kind::Any),
        };
        Found { place: Place::ByName, kind }
    }
}

/// Whether a filter asks for something that only a session knows.
pub fn needs_session(filter: &str) -> bool {
    asks(filter, &|name| name.scope == Scope::Context && !matches!(name.head(), "tid" | "pid"))
}

/// Whether the session must have the application's contexts with each event, because the filter
/// asks for them and for something that only the session knows.
pub fn needs_application(filter: &str) -> bool {
    needs_session(filter) && asks(filter, &|name| name.scope == Scope::Application)
}

fn asks(filter: &str, what: &dyn Fn(&Name) -> bool) -> bool {
    tompion_filter::parse(filter).is_ok_and(|expression| expression.contexts().any(what))
}

impl SessionFilter {
    /// The filter for events of this class.
    pub fn new(filter: &str, event: &Event) -> Self {
        let names = tompion_filter::parse(filter).map_or(Vec::new(), |expression| {
            let contexts = expression.contexts().filter(|name| name.scope == Scope::Context);
            contexts.map(|name| name.head().to_owned()).collect()
        });
        Self { program: compile(filter, event, &names), shape: Shape::new(event), names }
    }

    /// Whether the filter lets a record through. At this place, unknown counts as false, but for
    /// the end of a span whose begin the agent has let through by its fields, since it has none
    /// itself, and for threads of which nothing is known: rather too many events than too few.
    pub fn passes(&self, payload: &[u8], circumstances: &Circumstances<'_>, follows: bool) -> bool {
        let (fixed, tails) = self.shape.split(payload);
        let here = Here { names: &self.names, circumstances };
        let values = RecordValues::new(fixed, &tails).with_contexts(&here);
        let verdict = self.program.as_ref().map_or(Verdict::False, |program| program.evaluate(&values));
        let is_open = follows || circumstances.values.is_none();
        verdict.is_true() || is_open && verdict == Verdict::Unknown
    }
}

/// The name of a span whose begin this is and has all the fields that a filter asks for.
pub fn span_with_fields(filter: &str, event: &Event) -> Option<String> {
    let expression = tompion_filter::parse(filter).ok()?;
    let mut asked = expression.names().filter(|(name, _)| name.scope == Scope::Field);
    let is_begin = matches!(event.kind, EventKind::Begin | EventKind::Job);
    let has = |name: &Name| event.fields.iter().any(|field| field.name == name.head());
    (is_begin && asked.all(|(name, _)| has(name))).then(|| event.span_name())
}

/// The program of a filter for events of a class; none if it doesn't fit them.
fn compile(filter: &str, event: &Event, names: &[String]) -> Option<Program> {
    let expression = tompion_filter::parse(filter).ok()?;
    let known = |number, kind| Found { place: Place::Context(number), kind };
    let values = Values::default();
    let find = |name: &Name| match (name.scope, name.head()) {
        (Scope::Context, _) if name.path.len() > 1 => Found::ABSENT,
        (Scope::Context, "tid") => known(TID, Kind::Integer),
        (Scope::Context, "cpu") => known(CPU, Kind::Integer),
        (Scope::Context, head) => match names.iter().position(|known| known == head) {
            Some(at) if values.text(head).is_some() => known(at as u16 + 2, Kind::Text),
            Some(at) => known(at as u16 + 2, Kind::Integer),
            None => Found::ABSENT,
        },
        // Not among the record's fields: the application hadn't this context yet.
        _ => Found::ABSENT,
    };
    tompion_filter::compile(&expression, &EventSchema::new(event, &find)).ok()
}

struct Here<'a> {
    names: &'a [String],
    circumstances: &'a Circumstances<'a>,
}

impl Here<'_> {
    fn name(&self, context: u16) -> Option<&str> {
        self.names.get(usize::from(context.checked_sub(2)?)).map(String::as_str)
    }
}

impl Contexts for Here<'_> {
    fn number(&self, context: u16) -> Value {
        let value = match context {
            TID => Some(self.circumstances.tid.into()),
            CPU => Some(self.circumstances.cpu.into()),
            _ => self.name(context).and_then(|name| self.circumstances.values?.number(name)),
        };
        value.map_or(Value::UNKNOWN, Value::from)
    }

    fn text(&self, context: u16) -> Option<&[u8]> {
        self.circumstances.values?.text(self.name(context)?)
    }
}

#[cfg(test)]
mod tests {
    use tompion_schema::{Field, Integer, Level, Type};

    use super::*;

    fn event() -> Event {
        Event {
            provider: "db".into(),
            name: "query".into(),
            level: Level::DEFAULT,
            kind: EventKind::Instant,
            init: false,
            format: None,
            attributes: Default::default(),
            fields: vec![
                Field::new("table", Type::String),
                Field::new("rows", Type::Integer(Integer::unsigned(32))),
            ],
        }
    }

    #[test]
    fn the_session_decides_by_thread_and_fields() {
        let values = Values { comm: "worker-3".into(), ..Values::default() };
        let mut payload = 6u32.to_le_bytes().to_vec();
        payload.extend(100u32.to_le_bytes());
        payload.extend(b"orders");
        for (filter, expected) in [
            (r#"$comm == "worker*" && rows == 100"#, true),
            (r#"$comm == "worker*" && table == "orders""#, true),
            (r#"$comm == "worker*" && table == "other""#, false),
            ("$cpu == 2 && $tid == 7", true),
            ("$prio < 100 && $cpu == 1", false),
            ("$comm == \"w*\" && missing == 1", false),
            ("$comm == 5 || rows == 100", false),
        ] {
            let filter_of = SessionFilter::new(filter, &event());
            let circumstances = Circumstances { tid: 7, cpu: 2, values: Some(&values) };
            assert_eq!(filter_of.passes(&payload, &circumstances, false), expected, "{filter}");
            // Cut off, a record says nothing, and only the thread is known.
            let expected = expected && filter.starts_with("$cpu");
            assert_eq!(
                filter_of.passes(&payload[..3], &circumstances, false),
                expected,
                "{filter} on a short payload"
            );
        }
    }

    #[test]
    fn nothing_is_left_out_by_what_is_not_known_of_its_thread() {
        let payload = [&6u32.to_le_bytes()[..], &100u32.to_le_bytes(), b"orders"].concat();
        for (filter, expected) in [
            (r#"$comm == "worker*""#, true),
            (r#"rows >= 100 && $comm == "worker*""#, true),
            (r#"rows < 100 && $comm == "worker*""#, false),
            ("$cpu == 1", false),
        ] {
            let circumstances = Circumstances { tid: 7, cpu: 2, values: None };
            let filter_of = SessionFilter::new(filter, &event());
            assert_eq!(filter_of.passes(&payload, &circumstances, false), expected, "{filter}");
        }
    }

    #[test]
    fn the_end_of_a_span_follows_its_begin() {
        let values = Values { comm: "worker-3".into(), ..Values::default() };
        let begin = Event { kind: EventKind::Begin, name: "query_begin".into(), ..event() };
        assert_eq!(span_with_fields("rows > 1 && $cpu == 1", &begin).as_deref(), Some("db:query"));
        assert_eq!(span_with_fields("rows > 1 && missing == 1", &begin), None);
        assert_eq!(span_with_fields("rows > 1", &event()), None);
        let end = Event { kind: EventKind::End, name: "query_end".into(), fields: Vec::new(), ..event() };
        for (filter, expected) in [
            (r#"rows > 100 && $comm == "worker*""#, true),
            (r#"rows > 100 && $comm == "main""#, false),
            (r#"rows > 100 || $comm == "worker*""#, true),
            ("$cpu == 1", false),
        ] {
            let circumstances = Circumstances { tid: 7, cpu: 2, values: Some(&values) };
            assert_eq!(SessionFilter::new(filter, &end).passes(&[], &circumstances, true), expected);
        }
    }
}
