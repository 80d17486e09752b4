//! Rules by which an agent enables events, as text in the control file.
//!
//! Each line is a rule. `+LEVEL GLOB` records events that match the glob and are at least as severe
//! as the level's number; `-LEVEL GLOB` excludes matching events. A glob is matched against
//! `provider:name`; for the two events of a span, also against `provider:` and the span's name. An
//! event is recorded if some `+` matches it and no `-` does. A line `? EXPRESSION` is a filter that
//! all events must pass as well.

use tompion_schema::{Level, Names};

use crate::glob;

/// Choice of events to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Globs of events to record.
    pub include: Vec<String>,
    /// Globs of events to exclude.
    pub exclude: Vec<String>,
    /// Least severe level that is recorded.
    pub level: Level,
    /// Filter that events must pass; `None` accepts all.
    pub filter: Option<String>,
}

impl Rules {
    /// Returns the rules that record everything.
    pub fn all() -> Self {
        Self { include: vec!["*".into()], exclude: Vec::new(), level: Level::LOWEST, filter: None }
    }

    /// Formats the rules as text. Globs must not contain line breaks; such a glob matches nothing
    /// anyway.
    pub fn to_text(&self) -> String {
        let level = self.level.number();
        let lowest = Level::LOWEST.number();
        let include = self.include.iter().map(|glob| format!("+{level} {}\n", one_line(glob)));
        let exclude = self.exclude.iter().map(|glob| format!("-{lowest} {}\n", one_line(glob)));
        let filter = self.filter.iter().map(|filter| format!("? {}\n", one_line(filter)));
        // The filter comes first: rules that are too long are cut at the end, and must not lose it.
        filter.chain(include).chain(exclude).collect()
    }
}

/// Returns the filter in rules given as text.
pub fn filter(rules: &str) -> Option<&str> {
    rules.lines().find_map(|line| line.strip_prefix("? "))
}

fn one_line(glob: &str) -> String {
    glob.replace('\n', "\u{fffd}")
}

/// Whether rules given as text record this event. Invalid lines are ignored.
///
/// Does not allocate.
pub fn take(rules: &str, event: &Names<'_>) -> bool {
    let mut taken = false;
    for line in rules.lines() {
        let Some((head, pattern)) = line.split_once(' ') else { continue };
        let Some((sign, number)) = head.split_at_checked(1) else { continue };
        let Ok(least) = number.parse::<u8>() else { continue };
        if event.level.number() > least || !matches_event(pattern, event) {
            continue;
        }
        match sign {
            "+" => taken = true,
            "-" => return false,
            _ => {}
        }
    }
    taken
}

/// Whether a glob matches the event by its name, or by that of the span which it begins or ends.
///
/// Does not allocate.
pub fn matches_event(pattern: &str, event: &Names<'_>) -> bool {
    let base = event.base();
    matches_name(pattern, event.provider, event.name)
        || base.len() < event.name.len() && matches_name(pattern, event.provider, base)
}

/// Whether a glob matches `provider:name`. A glob without a colon is matched against either part.
pub fn matches_name(pattern: &str, provider: &str, name: &str) -> bool {
    match pattern.split_once(':') {
        Some((left, right)) => glob::matches(left, provider) && glob::matches(right, name),
        None => glob::matches(pattern, name) || glob::matches(pattern, provider),
    }
}

#[cfg(test)]
mod tests {
    use tompion_schema::Kind;

    use super::*;

    fn event(provider: &'static str, name: &'static str) -> Names<'static> {
        Names { provider, name, level: Level::DEFAULT, kind: Kind::Instant, init: false }
    }

    #[test]
    fn includes_excludes_and_levels() {
        let rules = Rules {
            include: vec!["db:*".into(), "net:packet".into()],
            exclude: vec!["db:noisy*".into()],
            level: Level::parse("info").unwrap(),
            filter: Some("rows > 1".into()),
        };
        let text = rules.to_text();
        assert_eq!(filter(&text), Some("rows > 1"));
        let info = Level::parse("info").unwrap();
        let at_info = |provider, name| take(&text, &Names { level: info, ..event(provider, name) });
        assert!(at_info("db", "query"));
        assert!(at_info("net", "packet"));
        assert!(!at_info("net", "frame"));
        assert!(!at_info("db", "noisy_loop"));
        assert!(!take(&text, &event("db", "query")));
    }

    #[test]
    fn invalid_lines_are_ignored() {
        assert!(take("\n+\nx\n+9\n+99 *\n? ?", &event("a", "b")));
        assert!(!take("", &event("a", "b")));
    }

    #[test]
    fn a_spans_name_matches_both_of_its_events() {
        let span = |name, kind| Names { kind, ..event("db", name) };
        for event in
            [span("query_begin", Kind::Begin), span("query_begin", Kind::Job), span("query_end", Kind::End)]
        {
            assert!(matches_event("db:query", &event));
            assert!(matches_event("query*", &event));
            assert!(take("+14 *\n", &event) && !take("+14 *\n-14 db:query\n", &event));
        }
        assert!(matches_event("db:query_end", &span("query_end", Kind::End)));
        assert!(!matches_event("db:query_end", &span("query_begin", Kind::Begin)));
        assert!(!matches_event("db:query", &span("query_begin", Kind::Instant)));
        assert!(!matches_event("db:query", &span("query_begin", Kind::End)));
    }
}
