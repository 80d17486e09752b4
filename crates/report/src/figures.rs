//! Figures of several runs: medians and ranges, and curves of all runs together.

use std::collections::BTreeMap;

use tompion_rttest::{
    accumulator::Summary,
    campaign::{Loops, Who},
    npt::Outcome,
};

use super::document::Document;

/// Median and range of a figure over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (values.first(), values.last()) else { return Self::default() };
        let at = |index: usize| values.get(index).copied().unwrap_or_default();
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle - 1), at(middle)) };
        Self { median, min: *min, max: *max }
    }
}

/// Figure of the loop's gaps: its name, and the function that reads it.
pub type Measure = (&'static str, fn(&Summary) -> f64);

fn share(summary: &Summary, name: &str) -> f64 {
    summary.percentiles.get(name).copied().unwrap_or_default()
}

pub const MEASURES: [Measure; 7] = [
    ("mean", |summary| summary.mean_ns),
    ("50 %", |summary| share(summary, "50")),
    ("99 %", |summary| share(summary, "99")),
    ("99.9 %", |summary| share(summary, "99.9")),
    ("99.99 %", |summary| share(summary, "99.99")),
    ("99.9999 %", |summary| share(summary, "99.9999")),
    ("max", |summary| summary.max_ns),
];

/// Choice of gaps: all, or those that the machine did not lengthen.
pub type GapChoice = fn(&Outcome) -> &Summary;

pub const ALL: GapChoice = |outcome| &outcome.gaps;
pub const UNDISTURBED: GapChoice = |outcome| &outcome.undisturbed;

/// Returns a figure of the chosen gaps over all runs of a recorder.
pub fn spread(loops: &Loops, choice: GapChoice, (_, measure): Measure) -> Spread {
    Spread::of(loops.runs.iter().map(|run| measure(choice(run))).collect())
}

/// Counts the events that are missing in the traces of all runs, and those that are there.
pub fn losses(loops: &Loops) -> (u64, u64) {
    let lost = |run: &Outcome| {
        let counted: u64 = run.trace.iter().flat_map(|trace| trace.lost.values()).sum();
        counted.max(run.lost)
    };
    let arrived = |run: &Outcome| run.trace.as_ref().map_or(0, |trace| trace.loops + trace.others);
    (loops.runs.iter().map(lost).sum(), loops.runs.iter().map(arrived).sum())
}

/// Returns the runs of one recorder, if it was measured.
pub fn of(document: &Document, recorder: Who) -> Option<&Loops> {
    document.results.npt.iter().find(|loops| loops.recorder == recorder && !loops.runs.is_empty())
}

/// Minimum factor between neighbouring points of a curve.
const STEP: f64 = 1.02;

/// Returns for each length the share of values that are at least as long, of all summaries
/// together.
pub fn curve<'a>(summaries: impl Iterator<Item = &'a Summary>) -> Vec<(f64, f64)> {
    let mut counts = BTreeMap::<u64, u64>::new();
    let mut max = 0.0_f64;
    for summary in summaries {
        max = max.max(summary.max_ns);
        for (ns, count) in &summary.histogram {
            *counts.entry(*ns).or_default() += count;
        }
    }
    let total: u64 = counts.values().sum();
    let mut left = total;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (ns, count) in counts {
        let point = (ns.max(1) as f64, left as f64 / total as f64);
        left -= count;
        let last = points.last();
        if left == 0 || last.is_none_or(|last| point.0 > last.0 * STEP || point.1 * STEP < last.1) {
            points.push(point);
        }
    }
    if let Some((_, share)) = points.last().copied() {
        points.push((max, share));
    }
    points
}

/// Columns of a histogram for each decade.
const COLUMNS: f64 = 20.0;

/// Counts the values in each column of a logarithmic scale: the columns' middles, and the counts.
pub fn histogram<'a>(summaries: impl Iterator<Item = &'a Summary>) -> Vec<(f64, f64)> {
    let mut columns = BTreeMap::<i64, u64>::new();
    for (ns, count) in summaries.flat_map(|summary| &summary.histogram) {
        *columns.entry(((*ns).max(1) as f64).log10().mul_add(COLUMNS, 0.0).floor() as i64).or_default() +=
            count;
    }
    let middle = |column: i64| 10_f64.powf((column as f64 + 0.5) / COLUMNS);
    columns.into_iter().map(|(column, count)| (middle(column), count as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(histogram: &[(u64, u64)]) -> Summary {
        let max_ns = histogram.last().map_or(0.0, |(ns, _)| *ns as f64 + 0.5);
        Summary { histogram: histogram.to_vec(), max_ns, ..Summary::default() }
    }

    #[test]
    fn medians_have_as_many_above_as_below() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(vec![4.0, 1.0]).median, 2.5);
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }

    #[test]
    fn curves_fall_from_one_to_the_maximum() {
        let (first, second) = (summary(&[(10, 900)]), summary(&[(10, 90), (1000, 9), (50_000, 1)]));
        let curve = curve([&first, &second].into_iter());
        assert_eq!(curve, [(10.0, 1.0), (1000.0, 0.01), (50_000.0, 0.001), (50_000.5, 0.001)]);
    }

    #[test]
    fn columns_hold_all_values() {
        let columns = histogram([&summary(&[(0, 1), (10, 5), (11, 2), (1000, 3)])].into_iter());
        assert_eq!(columns.iter().map(|(_, count)| count).sum::<f64>(), 11.0);
        assert!(columns.is_sorted_by(|a, b| a.0 < b.0) && columns.len() == 3, "{columns:?}");
    }
}
