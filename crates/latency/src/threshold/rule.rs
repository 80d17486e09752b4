//! Threshold rules: `100us`, `ctl*=50us`, `wakeup:ctl*=50us`.

use std::time::Duration;

use crate::{Error, Kind};

/// Maximum number of rules (`RULES`).
pub const MAX_RULES: usize = 16;

/// Checks that there are at most [`MAX_RULES`].
///
/// # Errors
/// If there are more.
pub fn check_rules(rules: &[ThresholdRule]) -> Result<(), Error> {
    if rules.len() <= MAX_RULES {
        return Ok(());
    }
    Err(Error::Obstacle {
        found: format!("expected at most {MAX_RULES} limits (--threshold), found {}", rules.len()),
        mend: "give one to several threads, as in 'ctl*=50us', or watch some with a command beside this one",
    })
}

/// Threshold for some threads, above which a latency is an incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThresholdRule {
    /// Kind of latency; none for all wakeups, from the intended expiry if there is a timer.
    pub kind: Option<Kind>,
    /// Name of the thread, or its beginning and `*`. `*` matches every thread.
    pub threads: String,
    /// Threshold in nanoseconds.
    pub limit: u64,
}

/// Maximum length of a thread's name in Linux, in bytes.
const MAX_THREAD_NAME: usize = 15;

impl ThresholdRule {
    /// Parses `[KIND:][THREADS=]TIME`; `time` parses the time.
    ///
    /// # Errors
    /// One line that says what was expected.
    pub fn parse(text: &str, time: impl Fn(&str) -> Result<Duration, String>) -> Result<Self, String> {
        let (whom, limit) = text.rsplit_once('=').unwrap_or(("", text));
        let kind_of = |name: &str| {
            let kind = Kind::of_name(name).filter(|kind| *kind != Kind::MissedTimer);
            kind.ok_or_else(|| {
                let kinds = Kind::ALL.iter().filter(|kind| **kind != Kind::MissedTimer);
                let names: Vec<&str> = kinds.map(|kind| kind.name()).collect();
                format!("expected one of {} before the colon, found `{name}`", names.join(", "))
            })
        };
        let (kind, threads) = match whom.split_once(':') {
            Some((kind, threads)) => (Some(kind_of(kind)?), threads),
            None => (None, whom),
        };
        let threads = if threads.is_empty() { "*" } else { threads };
        let stem = threads.strip_suffix('*').unwrap_or(threads);
        if stem.contains('*') || stem.len() > MAX_THREAD_NAME {
            return Err(format!(
                "expected a thread's name of at most {MAX_THREAD_NAME} bytes, or its beginning and `*`, found `{threads}`"
            ));
        }
        let limit = time(limit)?.as_nanos() as u64;
        if limit == 0 {
            return Err(format!("expected a time above 0, found `{text}`"));
        }
        Ok(Self { kind, threads: threads.to_owned(), limit })
    }

    /// Encodes the rule for the programs (`struct rule`).
    pub(super) fn bytes(&self) -> [u8; 48] {
        let (mut mask, mut name) = ([0u8; 16], [0u8; 16]);
        let stem = self.threads.strip_suffix('*');
        for (place, byte) in stem.unwrap_or(&self.threads).bytes().take(MAX_THREAD_NAME).enumerate() {
            mask[place] = 0xff;
            name[place] = byte;
        }
        if stem.is_none() {
            // Nothing may follow.
            mask[self.threads.len().min(MAX_THREAD_NAME)] = 0xff;
        }
        let (kinds, since): (u32, u32) = match self.kind {
            None => (0b100_111, 0),
            Some(Kind::Wakeup) => (0b001, 1),
            Some(Kind::Shared) => (0b010, 1),
            Some(Kind::Preempted) => (0b100, 1),
            Some(Kind::TimerWakeup) => (0b001, 2),
            Some(Kind::TimerWakeupAll | Kind::MissedTimer) => (0b100_111, 2),
        };
        let mut bytes = [0; 48];
        let mut at = 0;
        for part in [&self.limit.to_ne_bytes()[..], &mask, &name, &kinds.to_ne_bytes(), &since.to_ne_bytes()]
        {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ThresholdRule, String> {
        let time = |text: &str| {
            let number = text.strip_suffix("us").and_then(|number| number.parse().ok());
            number.map(Duration::from_micros).ok_or_else(|| format!("expected a time, found `{text}`"))
        };
        ThresholdRule::parse(text, time)
    }

    #[test]
    fn rules_say_who_and_from_when_on() {
        let rule = |kind, threads: &str, limit| Ok(ThresholdRule { kind, threads: threads.into(), limit });
        assert_eq!(parse("100us"), rule(None, "*", 100_000));
        assert_eq!(parse("ctl*=50us"), rule(None, "ctl*", 50_000));
        assert_eq!(parse("wakeup:ctl=5us"), rule(Some(Kind::Wakeup), "ctl", 5000));
        assert_eq!(parse("timer-wakeup:=5us"), rule(Some(Kind::TimerWakeup), "*", 5000));
        for wrong in ["", "0us", "x=", "a*b=5us", "sleepy:x=5us", "missed-timer:=5us", "sixteen-letters-=5us"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn more_rules_than_there_is_room_for_are_an_error() {
        let rules = |number| vec![parse("ctl=1us").unwrap(); number];
        assert!(check_rules(&rules(MAX_RULES)).is_ok());
        let error = check_rules(&rules(MAX_RULES + 1)).unwrap_err().to_string();
        assert!(error.contains("at most 16 limits (--threshold), found 17"), "{error}");
    }

    #[test]
    fn who_did_not_get_to_sleep_is_late_from_the_timers_time_on_or_not_at_all() {
        let never_slept = 1 << Kind::TimerWakeupAll.number();
        for (text, is_heard) in [
            ("1us", true),
            ("timer-wakeup-all:=1us", true),
            ("timer-wakeup:=1us", false),
            ("wakeup:=1us", false),
        ] {
            let kinds = u32::from_ne_bytes(parse(text).unwrap().bytes()[40..44].try_into().unwrap());
            assert_eq!(kinds & never_slept != 0, is_heard, "{text}");
        }
    }

    /// Matches as the program does.
    fn takes(rule: &ThresholdRule, name: &str) -> bool {
        let bytes = rule.bytes();
        let mut padded = [0u8; 16];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        (0..16).all(|place| padded[place] & bytes[8 + place] == bytes[24 + place])
    }

    #[test]
    fn names_are_compared_whole_or_by_their_beginnings() {
        let takes = |text: &str, name: &str| takes(&parse(&format!("{text}=1us")).unwrap(), name);
        assert!(takes("*", "anybody") && takes("ctl*", "ctl") && takes("ctl*", "ctl-loop"));
        assert!(takes("ctl", "ctl") && !takes("ctl", "ctl-loop") && !takes("ctl*", "ct"));
        assert!(takes("fifteen-letters", "fifteen-letters"));
    }
}
