//! Triggers on events as a session writes them into the control file: a line for each, with its
//! number, the glob that events must match, and a filter that they must pass, if it has one.
//!
//! ```text
//! 0 app:request ? ns > 10000000
//! 2 db:*
//! ```

use tompion_schema::{Kind, Names};

use crate::rules;

/// Text between glob and filter.
const FILTER: &str = " ? ";

/// Trigger on an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTrigger<'a> {
    /// Its number in the session.
    pub index: usize,
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
            let (glob, filter) = split(rest);
            Some(EventTrigger { index: index.parse().ok()?, glob, filter })
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
    /// Whether it waits for this event. The name of a span stands for its begin.
    ///
    /// Does not allocate.
    pub fn wants(&self, event: &Names<'_>) -> bool {
        let is_begin = matches!(event.kind, Kind::Begin | Kind::Job);
        rules::matches_name(self.glob, event.provider, event.name)
            || is_begin && rules::matches_name(self.glob, event.provider, event.base())
    }

    /// Formats the trigger as a line.
    pub fn to_line(&self) -> String {
        let one_line = |text: &str| text.replace('\n', " ");
        let filter = self.filter.map(|filter| format!("{FILTER}{}", one_line(filter)));
        format!("{} {}{}\n", self.index, one_line(self.glob), filter.unwrap_or_default())
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
            EventTrigger { index: 0, glob: "app:request", filter: Some("ns > 10 && url == \"/a?b\"") },
            EventTrigger { index: 15, glob: "db:q?ery*", filter: None },
        ];
        let text: String = triggers.iter().map(EventTrigger::to_line).collect();
        assert_eq!(EventTriggers(&text).iter().collect::<Vec<_>>(), triggers);
        let lines = EventTriggers("\nx a:b\n3\n 4 a:b\n5  a:b  ?  ns\n").iter().collect::<Vec<_>>();
        assert_eq!(lines, [EventTrigger { index: 5, glob: "a:b", filter: Some("ns") }]);
    }

    #[test]
    fn the_name_of_a_span_is_its_begin() {
        let trigger = |glob| EventTrigger { index: 0, glob, filter: None };
        assert!(trigger("app:request").wants(&event("request", Kind::Instant)));
        assert!(trigger("request").wants(&event("request_begin", Kind::Begin)));
        assert!(trigger("app:request").wants(&event("request_begin", Kind::Job)));
        assert!(!trigger("app:request").wants(&event("request_end", Kind::End)));
        assert!(trigger("app:request_end").wants(&event("request_end", Kind::End)));
        assert!(!trigger("db:*").wants(&event("request", Kind::Instant)));
    }
}
