//! Budgets of the design for the monitor's accuracy and its cost.

use super::super::budgets::Budget;
use super::super::results::Results;
use super::super::statistics::{Series, Statistic};
use super::{accuracy, overhead, soak};

fn most(what: &str, measured: f64, limit: f64) -> Budget {
    Budget { what: what.into(), measured, at_best: None, limit, at_least: false }
}

/// Budgets of the agreement between the monitor's wakeups and a program's. The line and how well it
/// fits are those of wakeups in which nothing came between the switch, where the monitor's latency
/// ends, and the program's look at the clock; the page has those of all beside.
pub fn of_accuracy(results: &Results) -> Vec<Budget> {
    let value = |label| results.find(accuracy::GROUP, label, accuracy::TOGETHER)?.median();
    let budget = |what: &str, measured: Option<f64>, limit, at_least| {
        Some(Budget {
            what: format!("monitor beside a program, {what}"),
            measured: measured?,
            at_best: None,
            limit,
            at_least,
        })
    };
    let off = |value: f64| (value - 1.0).abs();
    [
        budget(
            "wake-ups matched one by one, thousands",
            value(accuracy::MATCHED).map(|count| count / 1e3),
            100.0,
            true,
        ),
        budget("slope is off 1 by, %", value(accuracy::SLOPE).map(|slope| off(slope) * 100.0), 1.0, false),
        budget("intercept, µs", value(accuracy::ALONE_INTERCEPT).map(f64::abs), 2.0, false),
        budget(
            "correlation is off 1 by, thousandths",
            value(accuracy::ALONE_R).map(|r| off(r) * 1e3),
            1.0,
            false,
        ),
        budget(
            "the same wake-up is the longest of 100 ms, %",
            value(accuracy::SAME).map(|share| share * 100.0),
            95.0,
            true,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Budgets of the monitor's cost. A pair of ordinary tasks is judged twice: where each switch has a
/// wakeup, and where only about half of them do; by the median of the differences within rounds,
/// beside the shortest rounds. The lower quartile of the latter is no judge: rounds with and
/// without differ there by more than what is added.
///
/// Of the ratio to ftrace, what disturbs both only ever makes a round longer: the lower quartiles
/// of rounds are compared.
pub fn of_overhead(results: &Results) -> Vec<Budget> {
    let added = |label, place, statistic| added(results, (label, place), statistic);
    let taken = |place| results.find(overhead::TAKEN, overhead::MONITOR, place)?.median();
    let ordinary = |place, words: &str| {
        let what = format!("monitor, added to an ordinary wake-up and switch ({words}), ns");
        let median = results.find(overhead::ADDED, overhead::MONITOR, place)?.median()?;
        Some(Budget { at_best: added(overhead::MONITOR, place, Series::min), ..most(&what, median, 60.0) })
    };
    let real_time = |statistic| {
        let ours = added(overhead::MONITOR, overhead::REAL_TIME, statistic)?;
        Some(ours / added(overhead::FTRACE, overhead::REAL_TIME, statistic)?)
    };
    let of_core =
        taken(overhead::PROGRAMS).zip(taken(overhead::READING)).map(|(ours, reading)| ours + reading);
    let memories = [overhead::MEMORY, overhead::MEMORY_WITH_HISTORY, overhead::MEMORY_OF_ALL];
    let memory = memories.into_iter().filter_map(taken).max_by(f64::total_cmp);
    let rounds = |what, value: &dyn Fn(Statistic) -> Option<f64>, limit| {
        let at_best = value(Series::min);
        Some(Budget { at_best, ..most(what, value(Series::lower_quartile)?, limit) })
    };
    [
        ordinary(overhead::BATCH, "SCHED_BATCH: each switch has one"),
        ordinary(overhead::ORDINARY, "SCHED_OTHER: about half of them"),
        rounds("monitor, added to a real-time one ÷ what ftrace adds", &real_time, 0.5),
        of_core.map(|value| most("monitor, 4 threads of 1 kHz: % of a core", value, 1.0)),
        memory.map(|value| most("monitor, memory of the process, MiB", value, 20.0)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Difference that something adds, by a statistic of all rounds with it and all rounds without.
pub fn added(results: &Results, (label, place): (&str, &str), statistic: Statistic) -> Option<f64> {
    let of = |label| Some(statistic(&results.find(overhead::PAIR, label, place)?.series()));
    Some(of(label)? - of(overhead::WITHOUT)?)
}

/// Whether it lasts.
pub fn of_soak(results: &Results) -> Vec<Budget> {
    let found = |label| results.find(soak::GROUP, label, "")?.median();
    let budget = |what, label, limit| found(label).map(|value| most(what, value, limit));
    [
        budget("soak, sums that disagree", soak::DIFFERENCE, 0.0),
        budget("soak, wake-ups that are not in the history once", soak::MISCOUNTED, 0.0),
        budget("soak, memory of the process, MiB", soak::MEMORY, 20.0),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::results::{Figure, Who};
    use super::*;

    #[test]
    fn given_pairs_of_which_half_have_no_wake_up_then_those_of_which_all_have_one_are_judged_too() {
        let mut figures = Vec::new();
        let mut note = |group: &str, who, label: &str, place: &str, values: &[f64]| {
            let mut figure = Figure::new(group, who, label, place, "ns");
            values.iter().for_each(|value| figure.note(Ok(*value)));
            figures.push(figure);
        };
        for (place, added) in
            [(overhead::ORDINARY, [20.0, 30.0, 50.0]), (overhead::BATCH, [126.0, 134.0, 140.0])]
        {
            note(overhead::PAIR, Who::Plain, overhead::WITHOUT, place, &[1000.0; 3]);
            note(overhead::PAIR, Who::Tompion, overhead::MONITOR, place, &added.map(|ns| 1000.0 + ns));
            note(overhead::ADDED, Who::Tompion, overhead::MONITOR, place, &added);
        }
        let results = Results {
            benchmark: "monitor-overhead".into(),
            date: "2026-01-31".into(),
            machine: Vec::new(),
            repetitions: 3,
            figures,
        };
        let judged: Vec<_> =
            of_overhead(&results).iter().map(|it| (it.measured, it.at_best, it.is_kept())).collect();
        assert_eq!(judged, [(134.0, Some(126.0), false), (30.0, Some(20.0), true)]);
    }
}
