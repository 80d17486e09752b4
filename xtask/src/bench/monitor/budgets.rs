//! What the monitor is held to: the design's budgets for its accuracy and its cost.

use super::super::budgets::Budget;
use super::super::results::Results;
use super::{accuracy, overhead};

fn most(what: &str, measured: f64, limit: f64) -> Budget {
    Budget { what: what.into(), measured, at_best: None, limit, at_least: false }
}

/// How the monitor's wake-ups agree with a program's.
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
        budget("intercept, µs", value(accuracy::INTERCEPT).map(f64::abs), 2.0, false),
        budget("correlation is off 1 by, thousandths", value(accuracy::R).map(|r| off(r) * 1e3), 1.0, false),
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

/// What the monitor costs.
pub fn of_overhead(results: &Results) -> Vec<Budget> {
    let added = |label, place| results.find(overhead::ADDED, label, place)?.median();
    let taken = |place| results.find(overhead::TAKEN, overhead::MONITOR, place)?.median();
    let ordinary = added(overhead::MONITOR, overhead::ORDINARY);
    let real_time = added(overhead::MONITOR, overhead::REAL_TIME)
        .zip(added(overhead::FTRACE, overhead::REAL_TIME))
        .map(|(ours, theirs)| ours / theirs);
    let of_core =
        taken(overhead::PROGRAMS).zip(taken(overhead::READING)).map(|(ours, reading)| ours + reading);
    [
        ordinary.map(|value| most("monitor, added to an ordinary wake-up and switch, ns", value, 60.0)),
        real_time.map(|value| most("monitor, added to a real-time one ÷ what ftrace adds", value, 0.5)),
        of_core.map(|value| most("monitor, 4 threads of 1 kHz: % of a core", value, 1.0)),
        taken(overhead::MEMORY).map(|value| most("monitor, memory of the process, MiB", value, 20.0)),
    ]
    .into_iter()
    .flatten()
    .collect()
}
