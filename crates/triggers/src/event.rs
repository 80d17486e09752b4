//! Conditions on events.

use std::time::Duration;

use tompion_filter::Scope;
use tompion_layout::triggers::TRIGGERS;
use tompion_protocol::triggers::{Over, split};

use crate::parse::TriggerError;

/// Maximum number of triggers on events of a recording.
pub const MAX_EVENT_TRIGGERS: usize = TRIGGERS;
/// Maximum length of a glob in bytes.
const MAX_GLOB: usize = 200;
/// Maximum length of a filter in bytes.
const MAX_FILTER: usize = 768;
/// Shortest silence: events are looked for every 4 ms.
const MIN_SILENCE: Duration = Duration::from_millis(20);
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
    /// Time without the event in a program that makes the trigger fire, instead of the event.
    pub silence: Option<Duration>,
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
        Ok(Self { over, glob: glob.into(), filter, silence: None })
    }

    /// Parses `GLOB for TIME` or `GLOB for TIME ? FILTER`.
    pub(crate) fn parse_silence(text: &str) -> Result<Self, TriggerError> {
        let (event, filter) = split(text);
        let Some((glob, time)) = event.rsplit_once(" for ") else {
            return Err(TriggerError(format!("expected an event such as app:beat for 5s, found `{event}`")));
        };
        let time = tompion_units::duration(time.trim()).map_err(TriggerError)?;
        if time < MIN_SILENCE {
            let least = MIN_SILENCE.as_millis();
            return Err(TriggerError(format!("expected a silence of at least {least} ms, found {time:?}")));
        }
        let filter = filter.map(check_filter).transpose()?;
        Ok(Self { filter, silence: Some(time), ..Self::parse(glob.trim(), None)? })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Condition, EventTable, Trigger};

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
        let event = EventCondition { over: None, glob: "app:request".into(), filter: None, silence: None };
        assert_eq!((short.condition, short.fields.len()), (Condition::Event(event), 0));
        let silence = trigger("silence:app:beat for 2s ? name == \"a for b\" -> notify");
        let Condition::Event(event) = &silence.condition else { panic!("{silence:?}") };
        assert_eq!((event.glob.as_str(), event.silence), ("app:beat", Some(Duration::from_secs(2))));
        assert!(event.filter.as_deref().is_some_and(|filter| filter.contains("a for b")));
        // The word belongs to the program's arguments.
        let run = trigger("loss -> run ./x capture y");
        assert_eq!(run.actions, [crate::Action::Run(["./x", "capture", "y"].map(str::to_owned).to_vec())]);
    }

    #[test]
    fn all_triggers_fit_into_the_text() {
        let glob = "x".repeat(MAX_GLOB);
        let longest = format!("event:{glob} ? a == \"{}\" -> notify", "y".repeat(250));
        assert!(EventTable::new(&vec![trigger(&longest); MAX_EVENT_TRIGGERS]).text().len() < 4 * 4096);
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
            ("silence:app:beat -> notify", "such as app:beat for 5s"),
            ("silence:app:beat for 1ms -> notify", "at least 20 ms"),
            ("silence:a b for 5s -> notify", "such as app:request or"),
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
