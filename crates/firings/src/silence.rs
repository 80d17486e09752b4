//! Silences: times in which an event did not come in a program.
//!
//! The program counts the event, as matches of any trigger. A silence begins when the count was
//! last seen to move, and is too long once it lasts as long as the trigger says. Before the first
//! event in a program, there is none.

use std::time::{Duration, Instant};

/// Silence of one event in one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Silence {
    /// The event has not come so far, or the program can't be watched any more.
    #[default]
    Unarmed,
    /// The event was last seen to have come at this time.
    Since(Instant),
    /// It was too long, and has not ended.
    Reported,
}

impl Silence {
    /// Notes that the event was seen to have come.
    pub fn note_event(&mut self, now: Instant) {
        *self = Self::Since(now);
    }

    /// Returns the silence's length if it has just become too long.
    pub fn take_too_long(&mut self, limit: Duration, now: Instant) -> Option<Duration> {
        let Self::Since(begin) = *self else { return None };
        let length = now.saturating_duration_since(begin);
        (length >= limit).then(|| {
            *self = Self::Reported;
            length
        })
    }

    /// Ends the watch for good: the program is gone. Returns whether it was waited for the event.
    pub fn end(&mut self) -> bool {
        matches!(std::mem::take(self), Self::Since(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_reported_once_and_ends_with_the_next_event() {
        let (begin, limit) = (Instant::now(), Duration::from_secs(5));
        let at = |ms| begin + Duration::from_millis(ms);
        let mut silence = Silence::default();
        assert_eq!(silence.take_too_long(limit, at(60_000)), None, "no event so far");
        silence.note_event(at(0));
        assert_eq!(silence.take_too_long(limit, at(4999)), None);
        silence.note_event(at(4999));
        assert_eq!(silence.take_too_long(limit, at(5001)), None);
        assert_eq!(silence.take_too_long(limit, at(10_004)), Some(Duration::from_millis(5005)));
        assert_eq!(silence.take_too_long(limit, at(60_000)), None, "told already");
        silence.note_event(at(70_000));
        assert_eq!(silence.take_too_long(limit, at(75_000)), Some(limit));
        assert!(!silence.end());
        silence.note_event(at(80_000));
        assert!(silence.end() && !silence.end());
        assert_eq!(silence.take_too_long(limit, at(100_000)), None, "the program is gone");
    }
}
