//! Limits of sending: bytes per second, and hours of the day.

use std::{
    str::FromStr,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use jiff::{Zoned, civil::Time};

/// Longest wait for a window before the clock is looked at again: it may be set.
const WINDOW_INTERVAL: Duration = Duration::from_secs(20);

/// Hours of the day, in local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    begin: Time,
    end: Time,
}

/// Window that can't be, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected two times of day as in 22:00-06:00, found `{0}`")]
pub struct WindowError(String);

impl FromStr for Window {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<Self, WindowError> {
        let wrong = || WindowError(text.to_owned());
        let time = |text: &str| -> Option<Time> {
            let (hour, minute) = text.split_once(':')?;
            let is_plain = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            (is_plain(hour) && is_plain(minute)).then_some(())?;
            Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
        };
        let (begin, end) = text.split_once('-').ok_or_else(wrong)?;
        let (begin, end) = (time(begin).ok_or_else(wrong)?, time(end).ok_or_else(wrong)?);
        if begin == end { Err(wrong()) } else { Ok(Self { begin, end }) }
    }
}

impl Window {
    /// Whether a time of day is in it; one that begins in the evening goes on in the morning.
    fn has(self, time: Time) -> bool {
        let Self { begin, end } = self;
        if begin < end { begin <= time && time < end } else { begin <= time || time < end }
    }
}

/// Limits of sending, shared by all connections.
#[derive(Debug, Default)]
pub struct Pace {
    bytes_per_second: Option<u64>,
    window: Option<Window>,
    /// Time from which on the next byte may be sent.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// Limits by a rate and a window.
    pub fn new(bytes_per_second: Option<u64>, window: Option<Window>) -> Self {
        Self { bytes_per_second, window, next: Mutex::default() }
    }

    /// Waits until so many bytes may be sent.
    pub(crate) fn wait(&self, bytes: usize) {
        while self.window.is_some_and(|window| !window.has(Zoned::now().time())) {
            thread::sleep(WINDOW_INTERVAL);
        }
        let wait = self.reserve(bytes, Instant::now());
        if !wait.is_zero() {
            thread::sleep(wait);
        }
    }

    /// Reserves time for bytes; returns how long it is until it begins.
    fn reserve(&self, bytes: usize, now: Instant) -> Duration {
        let Some(rate) = self.bytes_per_second else { return Duration::ZERO };
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = next.unwrap_or(now).max(now);
        let time = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        *next = Some(begin + time.min(Duration::from_secs(3600)));
        begin - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_two_times_of_day() {
        let night: Window = "22:00-06:00".parse().unwrap();
        let day: Window = "09:30-17:00".parse().unwrap();
        let time = |hour, minute| Time::new(hour, minute, 0, 0).unwrap();
        assert!(night.has(time(22, 0)) && night.has(time(0, 0)) && night.has(time(5, 59)));
        assert!(!night.has(time(6, 0)) && !night.has(time(21, 59)));
        assert!(day.has(time(9, 30)) && !day.has(time(17, 0)) && !day.has(time(0, 0)));
        for text in ["", "22:00", "22-06", "24:00-06:00", "22:60-06:00", "06:00-06:00", "+1:00-06:00"] {
            assert!(text.parse::<Window>().is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_wait_for_those_before() {
        let pace = Pace::new(Some(1000), None);
        let now = Instant::now();
        assert_eq!(pace.reserve(500, now), Duration::ZERO);
        assert_eq!(pace.reserve(1500, now), Duration::from_millis(500));
        assert_eq!(pace.reserve(1, now), Duration::from_millis(2000));
        let later = now + Duration::from_secs(60);
        assert_eq!(pace.reserve(1, later), Duration::ZERO, "nothing is saved up");
        assert_eq!(Pace::default().reserve(usize::MAX, now), Duration::ZERO);
    }
}
