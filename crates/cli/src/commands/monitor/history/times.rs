//! Times and time spans of histories: days and weeks rather than seconds.

use anyhow::bail;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use tompion_history::Span;

use crate::selection::parse_moment;

const HOUR: i64 = 3_600_000;

/// Parses a time span: `30h`, `7d`, `week`. Returns milliseconds.
pub fn last(text: &str) -> Result<i64, String> {
    let expected = || format!("expected a time such as 30h, 7d, 4w, 1y or week, found `{text}`");
    let hours = match text {
        "day" => 24,
        "week" => 7 * 24,
        "month" => 31 * 24,
        "year" => 366 * 24,
        _ => {
            let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
            let unit = match &text[digits.len()..] {
                "h" => 1,
                "d" => 24,
                "w" => 7 * 24,
                "y" => 366 * 24,
                _ => return Err(expected()),
            };
            let number: i64 = digits.parse().map_err(|_| expected())?;
            number.checked_mul(unit).filter(|hours| (1..1_000_000).contains(hours)).ok_or_else(expected)?
        }
    };
    Ok(hours * HOUR)
}

/// Parses the span between two times, or the last while.
pub fn span(from: Option<&str>, to: Option<&str>, last: Option<i64>) -> anyhow::Result<Span> {
    if let Some(last) = last {
        let now = Timestamp::now().as_millisecond();
        // Rows of a clock that was ahead belong to the last while, too.
        return Ok(Span { from_ms: now - last, ..Span::ALL });
    }
    let from_ms = from.map_or(Ok(Span::ALL.from_ms), moment)?;
    let to_ms = to.map_or(Ok(Span::ALL.to_ms), moment)?;
    if from_ms >= to_ms {
        bail!(
            "expected a time that begins before it ends, found {} to {}",
            format_time(from_ms),
            format_time(to_ms)
        );
    }
    Ok(Span { from_ms, to_ms })
}

/// Parses a time. Returns milliseconds since 1970.
pub fn moment(text: &str) -> anyhow::Result<i64> {
    let zone = TimeZone::system();
    let ns = parse_moment(text, &zone, || Ok(Zoned::now().date()))?;
    Ok(ns / 1_000_000)
}

/// Formats milliseconds since 1970 as date and time of day.
pub fn format_time(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms).map(|time| time.to_zoned(TimeZone::system()));
    time.map_or_else(|_| "?".into(), |time| time.strftime("%Y-%m-%d %H:%M").to_string())
}

/// Formats milliseconds in two units: `12 s`, `3 min 5 s`, `2 d 4 h`.
pub fn format_length(ms: i64) -> String {
    crate::commands::monitor::table::format_span(ms.max(0).unsigned_abs().saturating_mul(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_names_and_units() {
        assert_eq!(["30h", "1d", "week", "1y"].map(last), [30, 24, 168, 8784].map(|hours| Ok(hours * HOUR)));
        for wrong in ["", "h", "0d", "-1d", "3 weeks", "99999999y", "10s"] {
            assert!(last(wrong).is_err(), "{wrong}");
        }
        let whole = span(Some("2026-10-01"), Some("2026-11-01"), None).unwrap();
        // The clock may change by an hour within it.
        assert!((whole.to_ms - whole.from_ms - 31 * 24 * HOUR).abs() <= HOUR);
        assert!(span(Some("2026-10-02"), Some("2026-10-01"), None).is_err());
        assert_eq!(span(None, None, None).unwrap(), Span::ALL);
        assert_eq!(span(None, None, Some(HOUR)).unwrap().to_ms, Span::ALL.to_ms);
    }
}
