//! Sizes and times with their units, as users type them.

use std::time::Duration;

/// A number of bytes: `4096`, `256K`, `1M`, `2G`.
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

/// A span of time: `10s`, `500ms`, `2m`, `1h`; a number alone is seconds.
pub fn time(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a time such as 10s or 500ms, found `{text}`");
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(expected()),
    };
    let number: f64 = digits.parse().map_err(|_| expected())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| expected())
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
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("1.5"), Ok(Duration::from_millis(1500)));
        assert!(time("soon").is_err() && time("-1s").is_err() && time("1 fortnight").is_err());
    }
}
