//! Text of triggers.

use std::{str::FromStr, time::Duration};

use tompion_protocol::triggers::Over;

use crate::{Action, Condition, EventCondition, Limit, Trigger};

/// Maximum length of a word by which an external trigger is known.
const MAX_WORD: usize = 64;
/// Maximum number of fields that a firing tells.
const MAX_FIELDS: usize = 16;
/// Maximum time for which a snapshot goes on.
pub const MAX_AFTER: Duration = Duration::from_secs(3600);

/// Trigger that can't be, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TriggerError(pub(crate) String);

fn error<T>(text: String) -> Result<T, TriggerError> {
    Err(TriggerError(text))
}

impl FromStr for Trigger {
    type Err = TriggerError;

    /// Parses `WHEN -> DO, DO… [capture FIELD, FIELD…] [after TIME] [limit N/UNIT]`.
    fn from_str(text: &str) -> Result<Self, TriggerError> {
        let Some((condition, effect)) = split_effect(text) else {
            return error(format!("expected WHEN -> DO, such as `killed -> notify`, found `{text}`"));
        };
        let (effect, limit) = match effect.rsplit_once(" limit ") {
            Some((effect, limit)) => (effect, Some(limit.trim().parse()?)),
            None => (effect, None),
        };
        let (effect, after) = match effect.rsplit_once(" after ") {
            Some((effect, after)) => (effect, tompion_units::duration(after.trim()).map_err(TriggerError)?),
            None => (effect, Duration::ZERO),
        };
        let condition = condition.parse()?;
        let captured = match &condition {
            Condition::Event(_) => format!("{effect} ")
                .split_once(" capture ")
                .map(|(effect, names)| fields(names).map(|names| (effect.to_owned(), names))),
            _ => None,
        };
        let (effect, fields) = captured.transpose()?.unwrap_or_else(|| (effect.to_owned(), Vec::new()));
        let actions = effect.split(',').map(str::parse).collect::<Result<Vec<Action>, _>>()?;
        if after > MAX_AFTER {
            return error("expected at most 1h behind `after`".into());
        }
        if !after.is_zero() && !actions.contains(&Action::Snapshot) {
            return error(format!("only a snapshot goes on after its trigger, found none in `{text}`"));
        }
        let text = match condition {
            // Spaces in a filter's texts have a meaning.
            Condition::Event(_) => text.trim().replace(char::is_control, " "),
            _ => text.split_whitespace().collect::<Vec<_>>().join(" "),
        };
        Ok(Self { text, condition, actions, fields, after, limit })
    }
}

impl FromStr for Condition {
    type Err = TriggerError;

    fn from_str(text: &str) -> Result<Self, TriggerError> {
        match text.trim() {
            "killed" => Ok(Self::Killed),
            "loss" => Ok(Self::Loss),
            other => match other.split_once(':') {
                Some(("external", word)) if is_word(word) => Ok(Self::External(word.into())),
                Some(("external", word)) => {
                    error(format!("expected letters, digits, - and _, found `{word}`"))
                }
                Some(("event", event)) => EventCondition::parse(event, None).map(Self::Event),
                Some(("span", span)) => EventCondition::parse_span(span).map(Self::Event),
                Some(("silence", event)) => EventCondition::parse_silence(event).map(Self::Event),
                Some(("killed", name)) => killed(name),
                Some(("late", job)) => EventCondition::parse(job, Some(Over::Deadline)).map(Self::Event),
                Some(("fill", percent)) => fill(percent),
                Some(("rate", rate)) => self::rate(rate),
                _ => error(format!(
                    "expected event:GLOB, span:GLOB > TIME, late:GLOB, silence:GLOB for TIME, killed, killed:NAME, \
                     loss, fill:PERCENT%, rate:EVENTS/s or external:WORD, found `{other}`"
                )),
            },
        }
    }
}

/// Splits at the first arrow that is in no text of a filter.
fn split_effect(text: &str) -> Option<(&str, &str)> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if std::mem::take(&mut is_escaped) => {}
            '\\' => is_escaped = is_quoted,
            '"' => is_quoted = !is_quoted,
            '-' if !is_quoted && text[at..].starts_with("->") => return Some((&text[..at], &text[at + 2..])),
            _ => {}
        }
    }
    None
}

/// Parses `ns, url`.
fn fields(text: &str) -> Result<Vec<String>, TriggerError> {
    let is_word = |name: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !name.is_empty() && name.len() <= MAX_WORD && name.bytes().all(is_plain)
    };
    let names: Vec<&str> = text.split(',').map(str::trim).collect();
    match names.iter().all(|name| is_word(name)) && names.len() <= MAX_FIELDS {
        true => Ok(names.into_iter().map(str::to_owned).collect()),
        false => {
            error(format!("expected fields such as `capture ns, url`, at most {MAX_FIELDS}, found `{text}`"))
        }
    }
}

/// Parses the glob of programs' names.
fn killed(name: &str) -> Result<Condition, TriggerError> {
    let is_name = !name.is_empty() && name.len() <= MAX_WORD && !name.contains(char::is_control);
    match is_name && !name.contains(char::is_whitespace) {
        true => Ok(Condition::KilledProgram(name.into())),
        false => error(format!("expected a program's name such as nginx or worker*, found `{name}`")),
    }
}

/// Parses `90%`.
fn fill(text: &str) -> Result<Condition, TriggerError> {
    let percent = text.strip_suffix('%').and_then(|digits| digits.parse().ok());
    match percent.filter(|percent| (1..=100).contains(percent)) {
        Some(percent) => Ok(Condition::Fill(percent)),
        None => error(format!("expected a share of a ring such as 90%, found `{text}`")),
    }
}

/// Parses `100k/s`.
fn rate(text: &str) -> Result<Condition, TriggerError> {
    let rate = text.strip_suffix("/s").and_then(|count| tompion_units::count(count).ok());
    match rate.filter(|rate| *rate > 0) {
        Some(rate) => Ok(Condition::Rate(rate)),
        None => error(format!("expected events per second such as 100k/s, found `{text}`")),
    }
}

/// Whether an external trigger can have this name.
fn is_word(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=MAX_WORD).contains(&text.len()) && text.bytes().all(is_plain)
}

impl FromStr for Action {
    type Err = TriggerError;

    fn from_str(text: &str) -> Result<Self, TriggerError> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let first = words.next().unwrap_or_default();
        let rest: Vec<String> = words.collect();
        match (first.as_str(), rest.is_empty()) {
            ("snapshot", true) => Ok(Self::Snapshot),
            ("rotate", true) => Ok(Self::Rotate),
            ("stop", true) => Ok(Self::Stop),
            ("notify", true) => Ok(Self::Notify),
            ("run", false) => Ok(Self::Run(rest)),
            _ => error(format!(
                "expected snapshot, rotate, stop, notify or `run PROGRAM`, found `{}`",
                text.trim()
            )),
        }
    }
}

impl FromStr for Limit {
    type Err = TriggerError;

    /// Parses `5/h`, `1/10s`.
    fn from_str(text: &str) -> Result<Self, TriggerError> {
        let expected = || TriggerError(format!("expected a limit such as 5/h, found `{text}`"));
        let (count, per) = text.split_once('/').ok_or_else(expected)?;
        let with_number = if per.starts_with(|letter: char| letter.is_ascii_digit()) { "" } else { "1" };
        let per = tompion_units::duration(&format!("{with_number}{per}")).map_err(|_| expected())?;
        match count.parse() {
            Ok(count) if count > 0 && !per.is_zero() => Ok(Self { count, per }),
            _ => Err(expected()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_has_a_condition_and_actions() {
        let trigger: Trigger =
            "external:slow  -> snapshot, notify, run ./collect.sh --now after 2s limit 5/h"
                .parse()
                .expect("one");
        let run = Action::Run(vec!["./collect.sh".into(), "--now".into()]);
        assert_eq!(trigger.condition, Condition::External("slow".into()));
        assert_eq!(trigger.actions, [Action::Snapshot, Action::Notify, run]);
        assert_eq!(trigger.after, Duration::from_secs(2));
        assert_eq!(trigger.limit, Some(Limit { count: 5, per: Duration::from_secs(3600) }));
        assert!(trigger.text.starts_with("external:slow -> snapshot"));
        let plain: Trigger = "killed -> stop".parse().expect("one");
        assert_eq!((plain.condition, plain.limit), (Condition::Killed, None));
        assert_eq!("fill:90%".parse(), Ok(Condition::Fill(90)));
        assert_eq!("rate:100k/s".parse(), Ok(Condition::Rate(100_000)));
        assert_eq!("1/10s".parse(), Ok(Limit { count: 1, per: Duration::from_secs(10) }));
    }

    #[test]
    fn what_can_not_be_is_refused_with_the_reason() {
        for (text, expected) in [
            ("killed", "expected WHEN -> DO"),
            ("killed -> dance", "expected snapshot, rotate"),
            ("killed -> run", "run PROGRAM"),
            ("killed -> notify twice", "expected snapshot, rotate"),
            ("dead -> notify", "expected event:GLOB, span:GLOB > TIME"),
            ("external: -> notify", "expected letters"),
            ("external:a/b -> notify", "expected letters"),
            ("fill:101% -> notify", "such as 90%"),
            ("fill:90 -> notify", "such as 90%"),
            ("rate:0/s -> notify", "such as 100k/s"),
            ("rate:100k -> notify", "such as 100k/s"),
            ("loss -> notify after 2s", "only a snapshot"),
            ("loss -> snapshot after 2h", "at most 1h"),
            ("loss -> notify limit 0/h", "such as 5/h"),
            ("loss -> notify limit 5", "such as 5/h"),
        ] {
            let error = text.parse::<Trigger>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
