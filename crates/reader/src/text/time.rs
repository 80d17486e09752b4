//! Times of events.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// How times are shown.
#[derive(Clone, Debug, Default)]
pub struct TimeFormat {
    /// Seconds, or time of day.
    pub clock: ClockFormat,
    /// The date before the time of day.
    pub date: bool,
    /// Coordinated universal time, not local time.
    pub utc: bool,
}

/// Seconds, or time of day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockFormat {
    /// `17:46:22.794565804`
    #[default]
    TimeOfDay,
    /// `1457113582.794565804`
    Seconds,
}

const SECOND: i64 = 1_000_000_000;

/// Writes times, remembering what neighbours have in common.
pub(crate) struct Times {
    format: TimeFormat,
    zone: TimeZone,
    delta: bool,
    last: Option<i64>,
    /// The second whose text is kept, and that text.
    second: i64,
    text: Vec<u8>,
}

impl Times {
    pub fn new(format: &TimeFormat, delta: bool) -> Self {
        let zone = if format.utc { TimeZone::UTC } else { TimeZone::system() };
        Self { format: format.clone(), zone, delta, last: None, second: i64::MIN, text: Vec::new() }
    }

    /// `[17:46:22.794565804] (+0.000001868) `
    pub fn write(&mut self, time: i64, line: &mut Vec<u8>) {
        line.push(b'[');
        self.time(time, line);
        let last = self.last.replace(time).filter(|_| self.delta);
        match last.map(|last| time.saturating_sub(last)) {
            None if self.delta => line.extend_from_slice(b"] (+?.?????????) "),
            None => line.extend_from_slice(b"] "),
            Some(delta @ 0..SECOND) => {
                let mut text = *b"] (+0.000000000) ";
                fraction(delta, &mut text, 6);
                line.extend_from_slice(&text);
            }
            Some(delta) => {
                line.extend_from_slice(b"] (+");
                line.extend_from_slice(itoa::Buffer::new().format(delta.div_euclid(SECOND)).as_bytes());
                let mut text = *b".000000000) ";
                fraction(delta.rem_euclid(SECOND), &mut text, 1);
                line.extend_from_slice(&text);
            }
        }
    }

    /// `17:46:22.794565804`
    pub fn time(&mut self, time: i64, line: &mut Vec<u8>) {
        let mut second = self.second;
        let begun = self.text.is_empty();
        let known = second.checked_mul(SECOND).and_then(|start| time.checked_sub(start));
        if begun || !known.is_some_and(|since| (0..SECOND).contains(&since)) {
            second = time.div_euclid(SECOND);
        }
        if begun || second != self.second {
            self.second = second;
            self.text = self.second_text(second).into_bytes();
        }
        line.extend_from_slice(&self.text);
        let mut text = *b".000000000";
        // The beginning of the first second lies before the first time that there is.
        fraction(time.wrapping_sub(second.wrapping_mul(SECOND)), &mut text, 1);
        line.extend_from_slice(&text);
    }

    fn second_text(&self, second: i64) -> String {
        if self.format.clock == ClockFormat::Seconds {
            return second.to_string();
        }
        let Ok(time) = Timestamp::from_second(second) else { return second.to_string() };
        let time = time.to_zoned(self.zone.clone());
        let date = if self.format.date {
            format!("{:04}-{:02}-{:02} ", time.year(), time.month(), time.day())
        } else {
            String::new()
        };
        format!("{date}{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second())
    }
}

/// Writes the nine digits of a fraction of a second at a place in a text.
#[inline]
fn fraction(nanoseconds: i64, text: &mut [u8], at: usize) {
    let mut rest = nanoseconds as u32;
    for digit in text.iter_mut().skip(at).take(9).rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_times_that_a_trace_can_claim_are_written() {
        let format = TimeFormat { clock: ClockFormat::Seconds, date: false, utc: true };
        for times in [[0, 5, i64::MIN, i64::MAX], [i64::MAX, i64::MIN, -1, 0]] {
            let mut writer = Times::new(&format, true);
            for time in times {
                let mut line = Vec::new();
                writer.write(time, &mut line);
                let second = time.div_euclid(SECOND);
                let expected = format!("[{second}.{:09}] ", time.rem_euclid(SECOND));
                assert!(line.starts_with(expected.as_bytes()), "{}", String::from_utf8_lossy(&line));
            }
        }
    }
}
