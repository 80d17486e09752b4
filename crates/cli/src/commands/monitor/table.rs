//! Parts of the monitor's tables: styles, columns by width, and formats of cells.

use crate::screen::{BOLD, CYAN, END};
use std::fmt::Write;

use jiff::{Timestamp, tz::TimeZone};
use tompion_latency::{Histogram, Late, Maximum, steps};

use crate::{
    messages::{escape_control, with_thousands},
    units,
};

/// Bounds of distributions, in nanoseconds: 1, 2, 5, 10 µs … 10 ms.
const BOUNDS: [u64; 13] = steps(1000);

/// Width of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Room for names, maxima and misses.
    Narrow,
    /// Room for percentiles, too.
    Normal,
    /// Room for distributions, too.
    Wide,
}

impl Width {
    /// Returns the width for a number of columns.
    pub const fn of(columns: u16) -> Self {
        match columns {
            ..80 => Self::Narrow,
            80..98 => Self::Normal,
            _ => Self::Wide,
        }
    }

    /// Returns the heading of distributions.
    pub const fn scale(self) -> &'static str {
        match self {
            Self::Wide => " 1µs      10ms",
            _ => "",
        }
    }

    /// Returns the distribution of a row.
    pub fn bars(self, histogram: &Histogram) -> String {
        if self == Self::Wide { distribution(histogram) } else { String::new() }
    }

    /// Returns columns that a narrow table omits.
    pub fn unless_narrow(self, columns: String) -> String {
        if self == Self::Narrow { String::new() } else { columns }
    }
}

/// Formats a time in nanoseconds since 1970, in local time.
pub fn format_time(ns: u64, format: &str) -> String {
    let time = Timestamp::from_nanosecond(ns.into()).map(|time| time.to_zoned(TimeZone::system()));
    time.map_or_else(|_| "?".into(), |time| time.strftime(format).to_string())
}

/// Formats a time span in two units: `12 s`, `3 min 5 s`, `2 d 4 h`.
pub fn format_span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Formats microseconds in the nearest unit.
pub fn format_us(us: f64) -> String {
    units::format_duration(us * 1000.0)
}

/// Formats a maximum, with a sign if it is not known exactly.
pub fn format_maximum(us: f64, known: Maximum) -> String {
    match known {
        Maximum::Exact => format_us(us),
        Maximum::Below => format!("<{}", format_us(us)),
        Maximum::AtLeast => format!("≥{}", format_us(us)),
    }
}

/// Draws the numbers of latencies between the bounds. Heights are logarithmic, so that rare
/// latencies are visible.
fn distribution(histogram: &Histogram) -> String {
    let mut counts = [0u64; BOUNDS.len() + 1];
    for (begin, count) in histogram.places() {
        if let Some(sum) = counts.get_mut(BOUNDS.partition_point(|bound| *bound <= begin)) {
            *sum += count;
        }
    }
    let max = counts.iter().copied().max().unwrap_or(0);
    let bar = |count: u64| match count {
        0 => '·',
        _ => {
            let height = (count as f64 + 1.0).ln() / (max as f64 + 1.0).ln() * 8.0;
            ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][(height.ceil() as usize).clamp(1, 8) - 1]
        }
    };
    counts.into_iter().map(bar).collect()
}

/// Row of a table of latencies.
pub struct KindRow<'a> {
    /// Name of the kind.
    pub name: &'a str,
    /// All latencies.
    pub histogram: &'a Histogram,
    /// Maximum, in microseconds.
    pub max_us: f64,
    /// Accuracy of the maximum.
    pub max_is: Maximum,
}

/// Writes a row of a table of latencies.
pub fn write_kind_row(text: &mut String, row: &KindRow<'_>, width: Width) {
    let KindRow { name, histogram, max_us, max_is } = *row;
    let below = |share: u64| {
        let ns = histogram.below(share).unwrap_or(0) as f64;
        format_us((ns / 1000.0).min(max_us))
    };
    let _ = writeln!(
        text,
        "{name:<21}{:>13}{}{:>11}{BOLD}{:>11}{END}  {CYAN}{}{END}",
        with_thousands(histogram.count()),
        width.unless_narrow(format!("{:>11}{:>11}", below(500), below(990))),
        below(999),
        format_maximum(max_us, max_is),
        width.bars(histogram)
    );
}

/// Number of a stack's functions that are shown.
const MAX_FUNCTIONS: usize = 3;

/// Formats the phases of a late wakeup, and the thread that had the CPU.
pub fn format_phases(late: &Late) -> String {
    let phases =
        [("timer late", late.timer_us), ("until woken", late.handler_us), ("until running", late.wakeup_us)];
    let mut words: Vec<String> =
        phases.iter().filter_map(|(name, us)| Some(format!("{name} {}", format_us((*us)?)))).collect();
    words.push(match late.other_tid {
        0 => "the CPU was idle".into(),
        tid if tid == late.tid => "it was running itself".into(),
        tid => format!(
            "{} {tid} ({}) had the CPU{}",
            escape_control(&late.other_name),
            late.other_priority,
            code(late)
        ),
    });
    words.join(", ")
}

/// Formats the functions that this thread was in, if they are known, the innermost first.
fn code(late: &Late) -> String {
    let names: Vec<&str> =
        late.code.iter().take(MAX_FUNCTIONS).filter_map(|function| function.split('+').next()).collect();
    if names.is_empty() { String::new() } else { format!(" in {}", escape_control(&names.join(" ← "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_logarithmic() {
        assert_eq!((BOUNDS[0], BOUNDS[1], BOUNDS[12]), (1000, 2000, 10_000_000));
        let mut histogram = Histogram::default();
        for (begin, count) in [(0, 1), (1000, 100_000), (4000, 300), (12_000_000, 1)] {
            histogram.add(begin, begin + 1000, count);
        }
        assert_eq!(distribution(&histogram), "▁█▄··········▁");
        assert_eq!(distribution(&Histogram::default()), "··············");
    }

    #[test]
    fn spans_have_two_units() {
        let spans = [5, 65, 3700, 200_000].map(|seconds| format_span(seconds * 1_000_000_000));
        assert_eq!(spans, ["5 s", "1 min 5 s", "1 h 1 min", "2 d 7 h"]);
    }
}
