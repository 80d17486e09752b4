//! Conditions on events.

use tompion_filter::Scope;
use tompion_protocol::triggers::{EventTrigger, Over, split};

use crate::{Condition, Trigger, parse::TriggerError};

/// Maximum number of triggers on events of a recording.
pub const MAX_EVENT_TRIGGERS: usize = 16;
/// Maximum length of a glob in bytes.
const MAX_GLOB: usize = 200;
/// Maximum length of a filter in bytes.
const MAX_FILTER: usize = 768;
/// Contexts that a program can evaluate by itself.
const CONTEXTS: [&str; 2] = ["tid", "pid"];

/// Events, or spans, that make a trigger fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventCondition {
    /// Time that a span must have lasted; none for events.
    pub over: Option<Over>,
    /// Glob of `provider:name`.
    pub glob: String,
    /// Filter that they must pass, if there is one.
    pub filter: Option<String>,
}

impl EventCondition {
    /// Parses `GLOB` or `GLOB ? FILTER`, of an event or of a job that is late.
    pub(crate) fn parse(text: &str, over: Option<Over>) -> Result<Self, TriggerError> {
        let (glob, filter) = split(text);
        let is_glob = !glob.is_empty() && !glob.contains(char::is_whitespace) && glob.len() <= MAX_GLOB;
        if !is_glob || glob.contains(char::is_control) || glob.starts_with('>') {
            return Err(TriggerError(format!(
                "expected an event such as app:request or db:*, of at most {MAX_GLOB} bytes, found `{glob}`"
            )));
        }
        let filter = filter.map(check_filter).transpose()?;
        Ok(Self { over, glob: glob.into(), filter })
    }

    /// Parses `GLOB > TIME` or `GLOB > TIME ? FILTER`.
    pub(crate) fn parse_span(text: &str) -> Result<Self, TriggerError> {
        let (span, filter) = split(text);
        let Some((glob, time)) = span.split_once('>') else {
            return Err(TriggerError(format!("expected a span such as app:request > 10ms, found `{span}`")));
        };
        let time = tompion_units::latency(time.trim()).map_err(TriggerError)?;
        let over = Over::Time(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let filter = filter.map(check_filter).transpose()?;
        Ok(Self { filter, ..Self::parse(glob, Some(over))? })
    }
}

/// Checks a filter that programs evaluate. Returns it on one line.
fn check_filter(text: &str) -> Result<String, TriggerError> {
    let in_words = |error: tompion_filter::FilterError| TriggerError(format!("the filter `{text}`: {error}"));
    let expression = tompion_filter::parse(text).map_err(in_words)?;
    tompion_filter::compile_unbound(&expression).map_err(in_words)?;
    let is_elsewhere =
        |name: &&tompion_filter::Name| name.scope == Scope::Context && !CONTEXTS.contains(&name.head());
    if let Some(name) = expression.contexts().find(|name| is_elsewhere(name)) {
        return Err(TriggerError(format!(
            "programs evaluate the filters of triggers, and don't know ${}; expected fields, $tid, $pid or $app.…",
            name.head()
        )));
    }
    let text = expression.to_text();
    if text.len() > MAX_FILTER {
        let found = text.len();
        return Err(TriggerError(format!(
            "expected a filter of at most {MAX_FILTER} bytes behind an event, found {found}"
        )));
    }
    Ok(text)
}

/// The triggers on events, in the order by which programs number them.
pub fn event_triggers(triggers: &[Trigger]) -> impl Iterator<Item = (&Trigger, &EventCondition)> + Clone {
    let events = triggers.iter().filter_map(|trigger| match &trigger.condition {
        Condition::Event(event) => Some((trigger, event)),
        _ => None,
    });
    events.take(MAX_EVENT_TRIGGERS)
}

/// Text of the triggers on events as programs read it; empty if there are none.
pub fn event_text(triggers: &[Trigger]) -> String {
    let numbered = event_triggers(triggers).enumerate();
    let line = |(index, (_, event)): (usize, (&Trigger, &EventCondition))| {
        EventTrigger { index, over: event.over, glob: &event.glob, filter: event.filter.as_deref() }.to_line()
    };
    numbered.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(text: &str) -> Trigger {
        text.parse().expect(text)
    }

    #[test]
    fn an_event_has_a_glob_and_may_have_a_filter_and_fields() {
        let full = trigger(
            "event:app:req* ? ns > 10M && url == \"/a -> b\" -> snapshot, notify capture ns, url after 5s limit 5/h",
        );
        let Condition::Event(event) = &full.condition else { panic!("{full:?}") };
        assert_eq!(event.glob, "app:req*");
        assert!(event.filter.as_deref().is_some_and(|filter| filter.contains("/a -> b")), "{event:?}");
        assert_eq!((full.fields, full.actions.len()), (vec!["ns".to_owned(), "url".into()], 2));
        let short = trigger("event:app:request -> notify");
        let event = EventCondition { over: None, glob: "app:request".into(), filter: None };
        assert_eq!((short.condition, short.fields.len()), (Condition::Event(event), 0));
        let span = trigger("span:app:request > 1.5ms ? url == \"a > b\" -> snapshot");
        let late = trigger("late:motor:* -> notify");
        assert_eq!(
            event_text(&[span, late]),
            "0 >1500000 app:request ? url == \"a > b\"\n1 >deadline motor:*\n"
        );
        // The word belongs to the program's arguments.
        let run = trigger("loss -> run ./x capture y");
        assert_eq!(run.actions, [crate::Action::Run(["./x", "capture", "y"].map(str::to_owned).to_vec())]);
    }

    #[test]
    fn programs_read_the_triggers_on_events_by_their_numbers() {
        let texts =
            ["loss -> notify", "event:a:b ? n > 1 -> notify", "killed -> notify", "event:c:* -> stop"];
        let triggers = texts.map(trigger);
        assert_eq!(event_text(&triggers), "0 a:b ? n > 1\n1 c:*\n");
        let many = vec![trigger("event:a:b -> notify"); MAX_EVENT_TRIGGERS + 5];
        assert_eq!(event_text(&many).lines().count(), MAX_EVENT_TRIGGERS);
        let glob = "x".repeat(MAX_GLOB);
        let longest = format!("event:{glob} ? a == \"{}\" -> notify", "y".repeat(250));
        assert!(event_text(&vec![trigger(&longest); MAX_EVENT_TRIGGERS]).len() < 4 * 4096);
        const { assert!(MAX_EVENT_TRIGGERS * (MAX_GLOB + MAX_FILTER + 10) < 4 * 4096) };
    }

    #[test]
    fn events_that_can_not_be_are_refused_with_the_reason() {
        for (text, expected) in [
            ("event: -> notify", "such as app:request"),
            ("event:a b -> notify", "such as app:request"),
            ("span:app:request -> notify", "such as app:request > 10ms"),
            ("span:app:request > 10 -> notify", "with a unit"),
            ("span:> 10ms -> notify", "such as app:request or"),
            ("late: -> notify", "such as app:request or"),
            ("event:>1 -> notify", "such as app:request or"),
            ("event:a:b ? ns > -> notify", "the filter `ns >`"),
            ("event:a:b ? $comm == \"x\" -> notify", "don't know $comm"),
            ("event:a:b -> notify capture", "expected fields"),
            ("event:a:b -> notify capture a b", "expected fields"),
            ("event:a:b -> snapshot capture a limit 5", "such as 5/h"),
        ] {
            let error = text.parse::<Trigger>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
