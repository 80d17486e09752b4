//! Sizes, times and numbers with units, as users type them in options and session files.
#![forbid(unsafe_code)]

use std::time::Duration;

/// Parses a number of bytes: `4096`, `256K`, `1M`, `2G`.
///
/// # Errors
/// A line that says what was expected.
pub fn size(text: &str) -> Result<u64, String> {
    let expected = || format!("expected a size such as 256K or 1M, found `{text}`");
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(expected()),
    };
    let number: u64 = digits.parse().map_err(|_| expected())?;
    number.checked_mul(factor).ok_or_else(expected)
}

/// Parses a duration: `10s`, `500ms`, `2m`, `1h`, `7d`; a number alone is seconds.
///
/// # Errors
/// As of [`size`].
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a duration such as 10s or 500ms, found `{text}`");
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(expected()),
    };
    let number: f64 = digits.parse().map_err(|_| expected())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| expected())
}

/// Parses a latency, an interval or a deadline: `100us`, `1ms`. A number alone may mean
/// microseconds, so it needs a unit.
///
/// # Errors
/// As of [`size`].
pub fn latency(text: &str) -> Result<Duration, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("expected a duration with a unit, such as 100us, found `{text}`"));
    }
    duration(text)
}

/// Parses a number: `100000000`, `500k`, `100M`.
///
/// # Errors
/// As of [`size`].
pub fn count(text: &str) -> Result<u64, String> {
    let expected = || format!("expected a number such as 500k or 100M, found `{text}`");
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let factor: u64 = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        _ => return Err(expected()),
    };
    let number: u64 = digits.replace('_', "").parse().map_err(|_| expected())?;
    number.checked_mul(factor).filter(|number| *number != 0).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        assert_eq!(size("256K"), Ok(256 << 10));
        assert_eq!(size("1MiB"), Ok(1 << 20));
        assert_eq!(size("0"), Ok(0));
        assert!(size("K").is_err() && size("1X").is_err() && size("-1").is_err() && size("").is_err());
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2d"), Ok(Duration::from_secs(172_800)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert!(duration("soon").is_err() && duration("-1s").is_err() && duration("1 fortnight").is_err());
        assert_eq!(latency("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(latency("100"), Err("expected a duration with a unit, such as 100us, found `100`".into()));
        assert!(latency("").is_err() && latency("1.5").is_err() && latency("soon").is_err());
    }

    #[test]
    fn counts() {
        assert_eq!(count("100M"), Ok(100_000_000));
        assert_eq!(count("1_000"), Ok(1000));
        assert_eq!(count("5k"), Ok(5000));
        assert!(count("0").is_err() && count("M").is_err() && count("-1").is_err() && count("9x").is_err());
        assert!(count("99999999999999G").is_err());
    }
}
