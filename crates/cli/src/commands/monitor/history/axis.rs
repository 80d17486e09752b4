//! Ticks of a time axis and their labels.

use jiff::{Timestamp, ToSpan as _, Zoned, tz::TimeZone};
use tompion_history::{Span, plot::Tick};

/// Maximum number of ticks.
const MAX_TICKS: i64 = 11;
const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

/// Distance between ticks.
#[derive(Clone, Copy)]
enum Step {
    Minutes(i64),
    Days(i64),
    Months(i64),
}

const STEPS: [Step; 18] = [
    Step::Minutes(1),
    Step::Minutes(5),
    Step::Minutes(15),
    Step::Minutes(60),
    Step::Minutes(180),
    Step::Minutes(360),
    Step::Minutes(720),
    Step::Days(1),
    Step::Days(2),
    Step::Days(7),
    Step::Days(14),
    Step::Months(1),
    Step::Months(3),
    Step::Months(6),
    Step::Months(12),
    Step::Months(24),
    Step::Months(60),
    Step::Months(120),
];

impl Step {
    /// Returns the approximate length, in milliseconds.
    const fn length(self) -> i64 {
        match self {
            Self::Minutes(number) => number * MINUTE,
            Self::Days(number) => number * DAY,
            Self::Months(number) => number * 30 * DAY,
        }
    }

    /// Returns the last round time before another.
    fn floor(self, time: &Zoned) -> Option<Zoned> {
        match self {
            Self::Minutes(_) | Self::Days(_) => time.start_of_day().ok(),
            Self::Months(1..12) => time.first_of_year().ok()?.start_of_day().ok(),
            Self::Months(number) => {
                let years = (number / 12).max(1) as i16;
                let year = time.year().div_euclid(years) * years;
                time.first_of_year().ok()?.with().year(year).build().ok()?.start_of_day().ok()
            }
        }
    }

    fn next(self, time: &Zoned) -> Option<Zoned> {
        match self {
            Self::Minutes(number) => time.checked_add(number.minutes()).ok(),
            Self::Days(number) => time.checked_add(number.days()).ok(),
            Self::Months(number) => time.checked_add(number.months()).ok(),
        }
    }

    fn label(self, time: &Zoned) -> String {
        let format = match self {
            Self::Minutes(_) if (time.hour(), time.minute()) != (0, 0) => "%H:%M",
            Self::Minutes(_) | Self::Days(_) => "%-d %b",
            Self::Months(_) if time.month() == 1 => "%Y",
            Self::Months(_) => "%b",
        };
        time.strftime(format).to_string()
    }
}

/// Returns ticks at round times within a span.
pub fn ticks(span: Span, zone: &TimeZone) -> Vec<Tick> {
    let length = span.to_ms - span.from_ms;
    let fits = |step: &&Step| length / step.length() <= MAX_TICKS;
    let step = STEPS.iter().find(fits).or(STEPS.last()).copied().unwrap_or(Step::Days(1));
    let Ok(from) = Timestamp::from_millisecond(span.from_ms) else { return Vec::new() };
    let mut time = step.floor(&from.to_zoned(zone.clone()));
    let mut found = Vec::new();
    while let Some(now) = time {
        let time_ms = now.timestamp().as_millisecond();
        if time_ms > span.to_ms || found.len() as i64 > 4 * MAX_TICKS {
            break;
        }
        if time_ms >= span.from_ms {
            found.push(Tick { time_ms, label: step.label(&now) });
        }
        time = step.next(&now);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01 in UTC.
    const BEGIN: i64 = 1_767_225_600_000;

    fn labels(from_ms: i64, length: i64) -> String {
        let found = ticks(Span { from_ms, to_ms: from_ms + length }, &TimeZone::UTC);
        found.into_iter().map(|tick| tick.label).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn times_are_round_and_few() {
        assert_eq!(labels(BEGIN + 20 * 60 * MINUTE, 30 * 60 * MINUTE), {
            "21:00 2 Jan 03:00 06:00 09:00 12:00 15:00 18:00 21:00 3 Jan"
        });
        assert_eq!(labels(BEGIN, 7 * DAY), "1 Jan 2 Jan 3 Jan 4 Jan 5 Jan 6 Jan 7 Jan 8 Jan");
        assert_eq!(labels(BEGIN - 200 * DAY, 365 * DAY), "Jul Oct 2026 Apr");
        assert_eq!(labels(BEGIN, 3653 * DAY).split(' ').count(), 11);
        assert_eq!(labels(BEGIN, 1000), "1 Jan");
    }
}
