//! Numbers as labels of plots and cells of tables.

/// Formats a number with no more decimals than it needs: three at most, none from 100 on.
pub fn plain_number(value: f64) -> String {
    let text = if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") };
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    short.to_owned()
}

/// Formats nanoseconds with a unit: `2.5 µs`.
pub fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        time if time < 1e3 => format!("{} ns", plain_number(time)),
        time if time < 1e6 => format!("{} µs", plain_number(time / 1e3)),
        time if time < 1e9 => format!("{} ms", plain_number(time / 1e6)),
        time => format!("{} s", plain_number(time / 1e9)),
    }
}

/// Formats a number with its thousands set apart: `1,234,567`.
pub fn with_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index != 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        assert_eq!(cases.map(|(number, _)| with_thousands(number)), cases.map(|(_, text)| text));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.5, 20.0, 99.1234, 100.0].map(plain_number), ["0.5", "20", "99.123", "100"]);
        assert_eq!([1.0, 2500.0, 1e5, 1e6, 1e9].map(duration), ["1 ns", "2.5 µs", "100 µs", "1 ms", "1 s"]);
    }
}
