//! Budgets of the design, and how a run stands against them. All but one are ratios of things that
//! were measured in the same run.

use super::kernel::{ADDED, BOTH_EVENTS};
use super::monitor;
use super::page::Stored;
use super::results::{Figure, Results, Who, distinct};
use tompion_tasks::table::Table;

/// Size of a CPU's ring with default settings, in MiB.
const DEFAULT_RING: f64 = 1.0;

/// A budget and what was measured.
#[derive(Debug, PartialEq)]
pub struct Budget {
    /// Quantity that is compared.
    pub what: String,
    /// Value by the medians.
    pub measured: f64,
    /// Value by the smallest measurements, where that can differ.
    pub at_best: Option<f64>,
    /// The most that is allowed, or the least.
    pub limit: f64,
    /// Whether the limit is a least one.
    pub at_least: bool,
}

impl Budget {
    /// Whether it is kept.
    pub fn is_kept(&self) -> bool {
        if self.at_least { self.measured >= self.limit } else { self.measured <= self.limit }
    }

    /// Budget that limits a figure to a multiple of another one.
    fn ratio(what: &str, value: Option<&Figure>, base: Option<&Figure>, limit: f64) -> Option<Self> {
        let (value, base) = (value?, base?);
        let measured = value.median()? / base.median()?;
        let at_best = Some(value.series().min() / base.series().min());
        Some(Self { what: what.into(), measured, at_best, limit, at_least: false })
    }

    fn most(what: &str, measured: f64, limit: f64) -> Self {
        Self { what: what.into(), measured, at_best: None, limit, at_least: false }
    }
}

/// All as a table.
pub fn table(budgets: &[Budget]) -> Table {
    let mut table = Table::new(&["budget", "measured", "by the smallest", "allowed", ""]);
    for budget in budgets {
        let sign = if budget.at_least { "≥" } else { "≤" };
        table.row(vec![
            budget.what.clone(),
            format!("{:.2}", budget.measured),
            budget.at_best.map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}")),
            format!("{sign} {:.2}", budget.limit),
            if budget.is_kept() { "kept" } else { "MISSED" }.into(),
        ]);
    }
    table
}

/// Budgets of the cost of an event.
pub fn of_event(results: &Results) -> Vec<Budget> {
    let find = |label: &str, threads: &str| results.find("tight", label, threads);
    let (bare, tid) = ("Tompion, overwrite", "Tompion, overwrite, tid");
    let (counter, queue) =
        (find("bare cycle counter (rdtsc)", "1"), find("per-thread queue, plain stores", "1"));
    let lttng = find("LTTng-UST, overwrite", "1");
    let disabled = find("Tompion, disabled", "1");
    let nanoseconds = disabled.and_then(Figure::median);
    let within_a_nanosecond =
        nanoseconds.map(|value| Budget::most("disabled event, nanoseconds", value, 1.0));
    // A tenth of a nanosecond is less than the loop around it varies.
    let not_more_than_lttng = nanoseconds
        .zip(find("LTTng-UST, disabled", "1").and_then(Figure::median))
        .map(|(ours, theirs)| Budget::most("disabled event ÷ LTTng-UST's", ours / theirs, 1.0));
    [
        Budget::ratio("event ÷ bare clock read", find(bare, "1"), counter, 1.2),
        Budget::ratio("event ÷ LTTng-UST's", find(bare, "1"), lttng, 0.18),
        Budget::ratio("event ÷ a per-thread queue's plain stores", find(bare, "1"), queue, 1.1),
        Budget::ratio("event with the thread (default) ÷ bare clock read", find(tid, "1"), counter, 1.3),
        Budget::ratio("event on 2 threads and CPUs ÷ on 1", find(bare, "2"), find(bare, "1"), 1.1),
        Budget::ratio("event with the thread on 2 threads ÷ on 1", find(tid, "2"), find(tid, "1"), 1.1),
        within_a_nanosecond,
        not_more_than_lttng,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns all budgets with measured figures.
pub fn of_all(stored: &Stored) -> Vec<Budget> {
    let mut budgets = stored.get("event").map(of_event).unwrap_or_default();
    budgets.extend(stored.get("bytes").and_then(of_bytes));
    budgets.extend(stored.get("memory").map(of_memory).unwrap_or_default());
    budgets.extend(stored.get("rate").map(of_rate).unwrap_or_default());
    budgets.extend(stored.get("read").map(of_read).unwrap_or_default());
    budgets.extend(stored.get("kernel").map(of_kernel).unwrap_or_default());
    budgets.extend(stored.get("monitor-accuracy").map(monitor::budgets::of_accuracy).unwrap_or_default());
    budgets.extend(stored.get("monitor-overhead").map(monitor::budgets::of_overhead).unwrap_or_default());
    budgets.extend(stored.get("monitor-soak").map(monitor::budgets::of_soak).unwrap_or_default());
    budgets
}

/// Budgets of what the two events of a system call add to it.
fn of_kernel(results: &Results) -> Vec<Budget> {
    let find = |label: &str| results.find(ADDED, label, BOTH_EVENTS);
    let ours = find("Tompion, flight recorder");
    [
        Budget::ratio(
            "added to a system call ÷ what ftrace adds",
            ours,
            find("ftrace, flight recorder"),
            0.65,
        ),
        Budget::ratio(
            "added to a system call ÷ what perf record adds",
            ours,
            find("perf, flight recorder"),
            0.2,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Tompion's figure and LTTng's at each place of a group.
fn pairs<'a>(results: &'a Results, group: &'a str) -> Vec<(&'a str, f64, f64)> {
    let places = distinct(results.group(group).map(|figure| figure.at.as_str()));
    let median = |who, place| {
        let mut figures = results.group(group).filter(|figure| figure.at == place);
        // Of several of Tompion's, the one that records.
        figures.find(|figure| figure.who == who && !figure.label.contains(", not"))?.median()
    };
    let pair = |place| Some((place, median(Who::Tompion, place)?, median(Who::Lttng, place)?));
    places.into_iter().filter_map(pair).collect()
}

fn of_bytes(results: &Results) -> Option<Budget> {
    let groups = results.groups();
    let ratios = groups.iter().flat_map(|group| {
        pairs(results, group).into_iter().map(move |(place, ours, theirs)| (ours / theirs, *group, place))
    });
    let (ratio, group, place) = ratios.max_by(|(one, ..), (other, ..)| one.total_cmp(other))?;
    let what = format!("bytes an event on disk ÷ LTTng's, at worst ({place}, {group})");
    Some(Budget::most(&what, ratio, 1.0))
}

fn of_memory(results: &Results) -> Vec<Budget> {
    let added = pairs(results, "added to the program's RSS by recording");
    let Some(&(place, ours, theirs)) = added.last() else { return Vec::new() };
    let mut budgets = vec![Budget::most(
        &format!("memory of a traced process ÷ LTTng's ({place}, MiB: {ours:.2} and {theirs:.2})"),
        ours / theirs,
        0.5,
    )];
    if let [(_, one, _), (_, two, _)] = added[..] {
        // Were the second CPU's ring there without being used, using it would add nothing.
        let unused = (DEFAULT_RING - (two - one)).max(0.0);
        budgets.push(Budget::most("memory of a ring whose CPU is never used, MiB", unused, 0.1));
    }
    budgets
}

fn of_rate(results: &Results) -> Vec<Budget> {
    let budget = |(place, ours, theirs): (&str, f64, f64)| Budget {
        what: format!("highest rate without loss ÷ LTTng's ({place})"),
        measured: ours / theirs,
        at_best: None,
        limit: 3.0,
        at_least: true,
    };
    pairs(results, "without loss for 1.5 s").into_iter().map(budget).collect()
}

fn of_read(results: &Results) -> Vec<Budget> {
    let than_other = "events a second ÷ babeltrace2's";
    let than_one = "events a second ÷ on one";
    [
        ("counting", than_other, ("Tompion", "babeltrace2"), 20.0),
        ("text", than_other, ("Tompion", "babeltrace2"), 10.0),
        ("counting on two CPUs", than_one, ("Tompion, two CPUs", "Tompion, one CPU"), 1.8),
        ("text on two CPUs", than_one, ("Tompion, two CPUs", "Tompion, one CPU"), 1.8),
    ]
    .into_iter()
    .filter_map(|(group, what, (value, base), limit)| {
        let places = distinct(results.group(group).map(|figure| figure.at.as_str()));
        let rate = |label: &str, place| results.find(group, label, place)?.median();
        let ratio = |place| Some(rate(value, place)? / rate(base, place)?);
        let measured = places.into_iter().filter_map(ratio).min_by(f64::total_cmp)?;
        let what = format!("reading, {group}: {what}, at worst");
        Some(Budget { what, measured, at_best: None, limit, at_least: true })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(group: &str, figures: &[(Who, &str, &str, f64)]) -> Results {
        let figure = |&(who, label, place, value): &(Who, &str, &str, f64)| {
            let mut figure = Figure::new(group, who, label, place, "ns");
            figure.note(Ok(value));
            figure
        };
        Results {
            benchmark: "any".into(),
            date: "2026-01-31".into(),
            machine: Vec::new(),
            repetitions: 1,
            figures: figures.iter().map(figure).collect(),
        }
    }

    #[test]
    fn budgets_are_judged_by_ratios() {
        let results = results(
            "tight",
            &[
                (Who::Plain, "bare cycle counter (rdtsc)", "1", 10.0),
                (Who::Tompion, "Tompion, overwrite", "1", 11.0),
                (Who::Lttng, "LTTng-UST, overwrite", "1", 55.0),
            ],
        );
        let budgets = of_event(&results);
        let verdicts: Vec<_> = budgets.iter().map(|budget| (budget.measured, budget.is_kept())).collect();
        assert_eq!(verdicts, [(1.1, true), (0.2, false)]);
        assert!(table(&budgets).text().contains("MISSED"));
    }

    #[test]
    fn a_rate_is_to_be_high() {
        let results = results(
            "without loss for 1.5 s",
            &[(Who::Tompion, "Tompion", "1 producer", 7.0), (Who::Lttng, "LTTng-UST", "1 producer", 2.0)],
        );
        assert!(of_rate(&results)[0].is_kept());
    }

    #[test]
    fn a_ring_that_is_not_used_shows_in_the_second_threads_memory() {
        let added = |one: f64| {
            let figures = [
                (Who::Tompion, "Tompion, not recorded", "1 busy thread", 0.5),
                (Who::Tompion, "Tompion", "1 busy thread", one),
                (Who::Tompion, "Tompion", "2 busy threads", 2.5),
                (Who::Lttng, "LTTng-UST", "1 busy thread", 6.0),
                (Who::Lttng, "LTTng-UST", "2 busy threads", 6.1),
            ];
            of_memory(&results("added to the program's RSS by recording", &figures))
        };
        assert!(added(1.5).iter().all(Budget::is_kept));
        assert!(!added(2.5)[1].is_kept());
    }
}
