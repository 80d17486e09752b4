//! Labels of reports: shares, interruptions and systems.

use tompion_history::{Event, EventKind, System};

use super::times::format_length;
use crate::messages::escape_control;

/// Returns the share of a period that was counted, in percent, rounded down to hundredths: never
/// 100 % of less than all.
pub fn counted_percent(covered: i64, all: i64) -> f64 {
    if all <= 0 { 100.0 } else { (covered as f64 / all as f64 * 10_000.0).floor().min(10_000.0) / 100.0 }
}

/// Describes an interruption of counting.
pub fn format_event(event: &Event) -> String {
    let amount = format_length(event.amount_ms.abs());
    match event.kind {
        EventKind::ClockStep if event.amount_ms < 0 => format!("the clock was set back by {amount}"),
        EventKind::ClockStep => format!("the clock was set forward by {amount}"),
        EventKind::Suspended => format!("the machine was suspended for {amount}"),
        EventKind::NotCounted => format!("nothing was counted for {amount} before"),
        EventKind::Damaged if event.amount_ms == 0 => {
            "the counters could not be read; the history continues from there".into()
        }
        EventKind::Damaged => format!("{amount} of the history could not be read and was taken out"),
    }
}

/// Describes a system in a line: its kernel, processor and distribution.
pub fn system_name(system: &System) -> String {
    let facts = ["kernel", "processor", "distribution"].into_iter().filter_map(|name| system.fact(name));
    let words: Vec<_> = facts.map(|fact| escape_control(fact).into_owned()).collect();
    if words.is_empty() { "a system of which nothing is known".into() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_all_is_never_called_all() {
        assert_eq!(
            (
                counted_percent(100, 100),
                counted_percent(99_999, 100_000),
                counted_percent(1, 3),
                counted_percent(5, 0)
            ),
            (100.0, 99.99, 33.33, 100.0)
        );
        assert_eq!(counted_percent(120, 100), 100.0);
    }
}
