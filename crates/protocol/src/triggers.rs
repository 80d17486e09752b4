//! Triggers on events as a session writes them into the control file: a line for each, with its
//! number, the glob that events must match, and a filter that they must pass, if it has one. Before
//! the glob of a span stands how long it must have lasted, in nanoseconds, or that it must have
//! missed its deadline. What later sessions put before a glob begins with `>` too: agents that
//! don't know it pass over the line, and count it as not understood.
//!
//! ```text
//! 0 app:request ? ns > 10000000
//! 2 db:*
//! 3 >10000000 app:request
//! 4 >deadline motor:control ? error > 1
//! ```

use std::fmt;

use tompion_schema::{Kind, Names};

use crate::rules;

/// Text between glob and filter.
const FILTER: &str = " ? ";

/// Time that a span must have lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// More than so many nanoseconds.
    Time(u64),
    /// More than the job's own deadline.
    Deadline,
}

impl Over {
    /// Text for a job's deadline.
    const DEADLINE: &'static str = "deadline";

    fn parse(text: &str) -> Option<Self> {
        match text {
            Self::DEADLINE => Some(Self::Deadline),
            _ => text.parse().ok().map(Self::Time),
        }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(ns) => write!(f, ">{ns}"),
            Self::Deadline => write!(f, ">{}", Self::DEADLINE),
        }
    }
}

/// Part of an event in what a trigger waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is the event.
    Event,
    /// It begins the span.
    Begin,
    /// It ends the span.
    End,
}

/// Trigger on an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTrigger<'a> {
    /// Its number in the session.
    pub index: usize,
    /// Time that a span must have lasted; none if it is for an event.
    pub over: Option<Over>,
    /// Glob of `provider:name`.
    pub glob: &'a str,
    /// Filter that events must pass as well.
    pub filter: Option<&'a str>,
}

/// Triggers given as text. Lines that are none are passed over.
#[derive(Clone, Copy, Debug)]
pub struct EventTriggers<'a>(pub &'a str);

impl<'a> EventTriggers<'a> {
    /// The triggers. Does not allocate.
    pub fn iter(self) -> impl Iterator<Item = EventTrigger<'a>> {
        self.0.lines().filter_map(|line| {
            let (index, rest) = line.split_once(' ')?;
            let (over, rest) = match rest.strip_prefix('>').map(|rest| rest.split_once(' ')) {
                Some(words) => {
                    let (over, rest) = words?;
                    (Some(Over::parse(over)?), rest)
                }
                None => (None, rest),
            };
            let (glob, filter) = split(rest);
            Some(EventTrigger { index: index.parse().ok()?, over, glob, filter })
        })
    }
}

/// Splits `GLOB ? FILTER` or `GLOB`.
pub fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once(FILTER) {
        Some((glob, filter)) => (glob.trim(), Some(filter.trim())),
        None => (text.trim(), None),
    }
}

impl EventTrigger<'_> {
    /// Role of an event for it; none if it doesn't wait for the event. The name of a span stands
    /// for its begin.
    ///
    /// Does not allocate.
    pub fn role(&self, event: &Names<'_>) -> Option<Role> {
        let is_begin = matches!(event.kind, Kind::Begin | Kind::Job);
        let is_base = rules::matches_name(self.glob, event.provider, event.base());
        match (self.over, event.kind) {
            (None, _) => {
                let is_event = rules::matches_name(self.glob, event.provider, event.name);
                (is_event || is_begin && is_base).then_some(Role::Event)
            }
            (Some(_), Kind::Job) | (Some(Over::Time(_)), Kind::Begin) => is_base.then_some(Role::Begin),
            (Some(_), Kind::End) => is_base.then_some(Role::End),
            (Some(_), _) => None,
        }
    }

    /// Formats the trigger as a line.
    pub fn to_line(&self) -> String {
        let one_line = |text: &str| text.replace('\n', " ");
        let filter = self.filter.map(|filter| format!("{FILTER}{}", one_line(filter)));
        let over = self.over.map_or_else(String::new, |over| format!("{over} "));
        format!("{} {over}{}{}\n", self.index, one_line(self.glob), filter.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use tompion_schema::Level;

    use super::*;

    fn event(name: &'static str, kind: Kind) -> Names<'static> {
        Names { provider: "app", name, level: Level::DEFAULT, kind, init: false }
    }

    #[test]
    fn triggers_survive_the_round_trip() {
        let triggers = [
            EventTrigger {
                index: 0,
                over: None,
                glob: "app:request",
                filter: Some("ns > 10 && url == \"/a?b\""),
            },
            EventTrigger { index: 15, over: None, glob: "db:q?ery*", filter: None },
            EventTrigger { index: 3, over: Some(Over::Time(u64::MAX)), glob: "app:request", filter: None },
            EventTrigger { index: 4, over: Some(Over::Deadline), glob: "motor:*", filter: Some("n == 1") },
        ];
        let text: String = triggers.iter().map(EventTrigger::to_line).collect();
        assert_eq!(EventTriggers(&text).iter().collect::<Vec<_>>(), triggers);
        let lines = EventTriggers("\nx a:b\n3\n 4 a:b\n5  a:b  ?  ns\n6 >\n7 >x a:b\n8 >1\n")
            .iter()
            .collect::<Vec<_>>();
        assert_eq!(lines, [EventTrigger { index: 5, over: None, glob: "a:b", filter: Some("ns") }]);
    }

    #[test]
    fn the_name_of_a_span_is_its_begin() {
        let role = |glob, event| EventTrigger { index: 0, over: None, glob, filter: None }.role(&event);
        assert_eq!(role("app:request", event("request", Kind::Instant)), Some(Role::Event));
        assert_eq!(role("request", event("request_begin", Kind::Begin)), Some(Role::Event));
        assert_eq!(role("app:request", event("request_begin", Kind::Job)), Some(Role::Event));
        assert_eq!(role("app:request", event("request_end", Kind::End)), None);
        assert_eq!(role("app:request_end", event("request_end", Kind::End)), Some(Role::Event));
        assert_eq!(role("db:*", event("request", Kind::Instant)), None);
    }

    #[test]
    fn spans_have_a_begin_and_an_end() {
        let role = |over, name, kind| {
            EventTrigger { index: 0, over: Some(over), glob: "app:request", filter: None }
                .role(&event(name, kind))
        };
        let (time, deadline) = (Over::Time(1), Over::Deadline);
        for (over, begin) in [(time, Some(Role::Begin)), (deadline, None)] {
            assert_eq!(role(over, "request_begin", Kind::Begin), begin);
            assert_eq!(role(over, "request_begin", Kind::Job), Some(Role::Begin));
            assert_eq!(role(over, "request_end", Kind::End), Some(Role::End));
            assert_eq!(role(over, "request", Kind::Instant), None);
            assert_eq!(role(over, "other_end", Kind::End), None);
        }
    }
}
