//! Formats times of events.

use std::io::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::digits;
use crate::lines::Moment;

/// Format of times.
#[derive(Clone, Debug, Default)]
pub struct TimeFormat {
    /// Unit: seconds, time of day, or cycles.
    pub clock: ClockFormat,
    /// Whether to print the date before the time of day.
    pub date: bool,
    /// Whether to print UTC instead of local time.
    pub utc: bool,
}

/// Unit of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockFormat {
    /// Time of day: `17:46:22.794565804`.
    #[default]
    TimeOfDay,
    /// Seconds since the epoch: `1457113582.794565804`.
    Seconds,
    /// Clock value without any offset: `00000001967640734196`.
    Cycles,
}

const SECOND: i64 = 1_000_000_000;

/// Writer of times. It caches the text that neighbouring times share.
pub(crate) struct Times {
    format: TimeFormat,
    zone: TimeZone,
    delta: bool,
    /// Whether to print labels.
    names: bool,
    last: Option<Moment>,
    /// Second whose text is cached, and that text.
    second: i64,
    text: Vec<u8>,
    /// Cached beginning of lines in that second.
    template: Option<SecondTemplate>,
}

impl Times {
    pub fn new(format: &TimeFormat, delta: bool) -> Self {
        let zone = if format.utc { TimeZone::UTC } else { TimeZone::system() };
        Self {
            format: format.clone(),
            zone,
            delta,
            names: false,
            last: None,
            second: i64::MIN,
            text: Vec::new(),
            template: None,
        }
    }

    /// Prints times with or without labels: `timestamp = 17:46:22.794565804, delta = +0.000001868`.
    pub fn with_names(self, names: bool) -> Self {
        Self { names, ..self }
    }

    /// Returns the time of the last event.
    #[inline]
    pub fn last(&self) -> Option<Moment> {
        self.last
    }

    /// Sets the time of the preceding event; `None` if it is unknown.
    pub fn set_last(&mut self, last: Option<Moment>) {
        self.last = last;
    }

    /// Writes `[00000001967640734196] (+000000076267) `.
    fn write_cycles(&self, cycles: u64, last: Option<u64>, line: &mut Vec<u8>) {
        let (begin, between, end) = self.frame();
        line.extend_from_slice(begin);
        let _ = write!(line, "{cycles:020}");
        if self.delta {
            line.extend_from_slice(between);
            let _ = match last {
                Some(last) => write!(line, "{:012}", cycles.wrapping_sub(last)),
                None => write!(line, "????????????"),
            };
        }
        line.extend_from_slice(end);
    }

    /// Returns the text before a time, between it and the delta, and after.
    fn frame(&self) -> (&'static [u8], &'static [u8], &'static [u8]) {
        match (self.names, self.delta) {
            (true, _) => (b"timestamp = ", b", delta = +", b""),
            (false, true) => (b"[", b"] (+", b") "),
            (false, false) => (b"[", b"", b"] "),
        }
    }

    /// Writes `[17:46:22.794565804] (+0.000001868) `, or cycles.
    #[inline]
    pub fn write(&mut self, moment: Moment, line: &mut Vec<u8>) {
        let last = self.last.replace(moment);
        if self.format.clock == ClockFormat::Cycles {
            return self.write_cycles(moment.cycles, last.map(|last| last.cycles), line);
        }
        let time = moment.time;
        let delta = last.filter(|_| self.delta).map(|last| time.saturating_sub(last.time));
        let since = self.since_second(time);
        if let (Some(delta @ 0..SECOND), Some(template), Some(since)) =
            (delta, self.template.as_ref().filter(|_| !self.names), since)
        {
            template.write(since, delta as u32, line);
            return;
        }
        let (begin, between, end) = self.frame();
        line.extend_from_slice(begin);
        self.time(time, line);
        if self.delta {
            line.extend_from_slice(between);
            match delta {
                None => line.extend_from_slice(b"?.?????????"),
                Some(delta) => signed_seconds(delta, line),
            }
        }
        line.extend_from_slice(end);
    }

    /// Writes `17:46:22.794565804`.
    pub fn time(&mut self, time: i64, line: &mut Vec<u8>) {
        // As in babeltrace2, times before 1970 are not shown as times of a day.
        if time < 0 {
            return signed_seconds(time, line);
        }
        let second = time.div_euclid(SECOND);
        if self.text.is_empty() || second != self.second {
            self.second = second;
            self.text = self.second_text(second).into_bytes();
            self.template = SecondTemplate::new(&self.text);
        }
        line.extend_from_slice(&self.text);
        fraction(time.rem_euclid(SECOND), line);
    }

    /// Returns the nanoseconds since the cached second, if the time lies in it.
    #[inline]
    fn since_second(&self, time: i64) -> Option<u32> {
        let since = self.second.checked_mul(SECOND).and_then(|start| time.checked_sub(start))?;
        (0..SECOND).contains(&since).then_some(since as u32)
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

/// Text `[17:46:22.794565804] (+0.000001868) `, in which only two fractions of a second change.
struct SecondTemplate([u8; 36]);

impl SecondTemplate {
    /// Creates the text for a second of the template length.
    fn new(second: &[u8]) -> Option<Self> {
        let mut text = *b"[00:00:00.000000000] (+0.000000000) ";
        text.get_mut(1..9)?.copy_from_slice(second.first_chunk::<8>().filter(|_| second.len() == 8)?);
        Some(Self(text))
    }

    #[inline]
    fn write(&self, since: u32, delta: u32, line: &mut Vec<u8>) {
        line.extend_from_slice(&self.0);
        if let Some(text) = line.last_chunk_mut::<36>() {
            let [_, _, _, _, _, _, _, _, _, _, text @ ..] = text;
            if let Some(place) = text.first_chunk_mut() {
                digits::nine(since, place);
            }
            if let Some(place) = text.split_at_mut(15).1.first_chunk_mut() {
                digits::nine(delta, place);
            }
        }
    }
}

/// Writes `-1.000001868`.
fn signed_seconds(nanoseconds: i64, line: &mut Vec<u8>) {
    if nanoseconds < 0 {
        line.push(b'-');
    }
    let size = nanoseconds.unsigned_abs();
    digits::unsigned(size / SECOND as u64, line);
    fraction((size % SECOND as u64) as i64, line);
}

/// Writes `.794565804`.
fn fraction(nanoseconds: i64, line: &mut Vec<u8>) {
    let mut text = [0; 9];
    digits::nine(nanoseconds as u32, &mut text);
    line.push(b'.');
    line.extend_from_slice(&text);
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
                writer.write(Moment { time, cycles: 0 }, &mut line);
                let sign = if time < 0 { "-" } else { "" };
                let (seconds, rest) =
                    (time.unsigned_abs() / SECOND as u64, time.unsigned_abs() % SECOND as u64);
                let expected = format!("[{sign}{seconds}.{rest:09}] ");
                assert!(line.starts_with(expected.as_bytes()), "{}", String::from_utf8_lossy(&line));
            }
        }
    }

    #[test]
    fn times_before_1970_are_seconds_in_all_formats() {
        for date in [false, true] {
            let mut writer = Times::new(&TimeFormat { date, utc: true, ..TimeFormat::default() }, false);
            let mut line = Vec::new();
            for time in [-4_999_999_999, -1, 5] {
                writer.write(Moment { time, cycles: 0 }, &mut line);
            }
            let date = if date { "1970-01-01 " } else { "" };
            let expected = format!("[-4.999999999] [-0.000000001] [{date}00:00:00.000000005] ");
            assert_eq!(String::from_utf8_lossy(&line), expected);
        }
    }

    #[test]
    fn an_earlier_event_has_a_negative_delta() {
        let format = TimeFormat { clock: ClockFormat::Seconds, date: false, utc: true };
        let mut writer = Times::new(&format, true);
        let mut line = Vec::new();
        for time in [10, 5, 2_000_000_000, -1] {
            writer.write(Moment { time, cycles: 0 }, &mut line);
        }
        let expected = "[0.000000010] (+?.?????????) [0.000000005] (+-0.000000005) [2.000000000] (+1.999999995) \
                        [-0.000000001] (+-2.000000001) ";
        assert_eq!(String::from_utf8_lossy(&line), expected);
    }
}
