//! Numbers as text: thousands, plurals and durations.

pub use tompion_plot::with_thousands;

/// Formats a number with its noun: `1 event`, `2 events`.
pub fn pluralize(number: u64, noun: &str) -> String {
    let (plural, noun) = match noun.strip_suffix("ss") {
        Some(stem) => ("sses", stem),
        None => ("s", noun),
    };
    let ending = match (number, plural) {
        (1, "sses") => "ss",
        (1, _) => "",
        (_, plural) => plural,
    };
    format!("{} {noun}{ending}", with_thousands(number))
}

/// Formats nanoseconds in the nearest unit, with three digits: `12.3 ns`, `4.56 µs`.
pub fn format_duration(ns: f64) -> String {
    let (value, unit) = match ns {
        ..1e3 => (ns, "ns"),
        ..1e6 => (ns / 1e3, "µs"),
        ..1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    let digits = match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_plurals() {
        assert_eq!(pluralize(1, "event"), "1 event");
        assert_eq!(pluralize(1_234_567, "event"), "1,234,567 events");
        assert_eq!(pluralize(0, "process"), "0 processes");
        assert_eq!(pluralize(1, "process"), "1 process");
    }

    #[test]
    fn durations_have_three_digits() {
        let texts: Vec<_> = [0.0, 9.87, 45.62, 999.0, 4560.0, 51_234_567.0, 2e9].map(format_duration).into();
        assert_eq!(texts, ["0.00 ns", "9.87 ns", "45.6 ns", "999 ns", "4.56 µs", "51.2 ms", "2.00 s"]);
    }
}
