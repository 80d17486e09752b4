//! The tables of `x bench event`, and how the figures stand against the budgets of the design.

use super::variant::{COUNTER, EMPTY, QUEUE, Recording, Surroundings, Tracer, Variant};
use super::{Finding, Mode, Report, in_bursts};
use crate::table::{Table, grouped};

/// Losses above this share make a figure in discard mode doubtful: a lost event has another price.
const TOLERABLE_LOSS: f64 = 0.001;

const METHOD: &str = "\
Variants are interleaved (A B C … A B C …); a figure is the median over the repetitions, beside the \
smallest and the largest. A repetition is a process of its own: threads pinned, buffers touched by a \
warm-up, five batches of a million events (tight and work) or a hundred bursts of 4,000 events with \
pauses of 5 ms between them (discard), its figure the median batch. With two threads the slower one \
counts. Both tracers have four sub-buffers of 1 MiB on each CPU. Every trace was read with \
babeltrace2, and the loop's last events were found in it.\n";

type Results = [(Variant, Finding)];

/// Makes the report.
pub fn report(results: &Results, repetitions: usize, machine: &str) -> Report {
    let sections = [
        ("Flight recorder (overwrite), nanoseconds an event", tight(results)),
        ("To disk (discard), in bursts, nanoseconds an event", bursts(results)),
        ("Amid 50 dependent multiplications, nanoseconds added", work(results)),
    ];
    let mut text = String::new();
    let mut markdown = format!("# What an event costs\n\n{machine}- repetitions: {repetitions}\n\n{METHOD}");
    for (title, table) in &sections {
        text += &format!("{title}\n{}\n", table.text());
        markdown += &format!("\n## {title}\n\n{}", table.markdown());
    }
    let budgets = budgets(results);
    if !budgets.is_empty() {
        let list: String = budgets.iter().map(|line| format!("- {line}\n")).collect();
        text += &format!("Budgets\n{list}");
        markdown += &format!("\n## Budgets\n\n{list}");
    }
    for line in doubts(results) {
        text += &format!("{line}\n");
        markdown += &format!("\n**{line}**\n");
    }
    Report { text, markdown }
}

fn cost(results: &Results, tracer: Tracer, surroundings: Surroundings, threads: usize) -> Option<f64> {
    let wanted = Variant { tracer, surroundings, threads };
    results.iter().find(|(variant, _)| *variant == wanted).map(|(_, finding)| finding.cost.median())
}

fn ratio(value: f64, base: Option<f64>) -> String {
    base.map_or_else(|| "–".into(), |base| format!("{:.2}", value / base))
}

/// LTTng's counterpart of a Tompion variant.
fn peer(variant: &Variant) -> Option<Tracer> {
    match variant.tracer {
        Tracer::Tompion(recording) => Some(Tracer::Lttng(recording)),
        Tracer::TompionDisabled => Some(Tracer::LttngDisabled),
        _ => None,
    }
}

fn figures(results: &Results, (variant, finding): &(Variant, Finding)) -> Vec<String> {
    let Variant { surroundings, threads, .. } = *variant;
    let median = finding.cost.median();
    let to_peer = peer(variant).and_then(|peer| cost(results, peer, surroundings, threads));
    vec![
        variant.label(),
        threads.to_string(),
        format!("{median:.2}"),
        format!("{:.2}", finding.cost.min()),
        format!("{:.2}", finding.cost.max()),
        ratio(median, cost(results, COUNTER, surroundings, threads)),
        ratio(median, cost(results, QUEUE, surroundings, threads)),
        ratio(median, to_peer),
    ]
}

fn tight(results: &Results) -> Table {
    let mut table = Table::new(&[
        "",
        "threads",
        "median",
        "min",
        "max",
        "× counter",
        "× queue",
        "× LTTng",
        "emitted",
        "kept",
    ]);
    for result in results.iter().filter(|(variant, _)| variant.surroundings == Surroundings::Tight) {
        let mut row = figures(results, result);
        let finding = &result.1;
        row.push(grouped(finding.emitted));
        row.push(finding.arrived.map_or_else(|| "–".into(), |(fewest, _)| grouped(fewest)));
        table.row(row);
    }
    table
}

fn bursts(results: &Results) -> Table {
    let mut table = Table::new(&[
        "",
        "threads",
        "median",
        "min",
        "max",
        "× counter",
        "× queue",
        "× LTTng",
        "emitted",
        "lost",
    ]);
    for result in results.iter().filter(|(variant, _)| in_bursts(variant)) {
        let mut row = figures(results, result);
        row.push(grouped(result.1.emitted));
        row.push(most_lost(&result.1).map_or_else(|| "–".into(), grouped));
        table.row(row);
    }
    table
}

/// Events lost in the worst repetition.
fn most_lost(finding: &Finding) -> Option<u64> {
    finding.arrived.map(|(fewest, _)| finding.emitted.saturating_sub(fewest))
}

fn work(results: &Results) -> Table {
    let mut table = Table::new(&["", "median", "added"]);
    let base = cost(results, EMPTY, Surroundings::Work, 1);
    for (variant, finding) in results.iter().filter(|(variant, _)| variant.surroundings == Surroundings::Work)
    {
        let median = finding.cost.median();
        let added = base.map_or_else(|| "–".into(), |base| format!("{:+.2}", median - base));
        let label = if variant.tracer == EMPTY { "the work alone".into() } else { variant.label() };
        table.row(vec![label, format!("{median:.2}"), added]);
    }
    table
}

/// Figures of discard mode that losses make doubtful.
fn doubts(results: &Results) -> Vec<String> {
    let doubtful = |(variant, finding): &(Variant, Finding)| {
        let lost = most_lost(finding).filter(|_| in_bursts(variant))?;
        let share = lost as f64 / finding.emitted as f64;
        (share > TOLERABLE_LOSS).then(|| {
            format!(
                "{variant} lost {:.1} % of its events: its figure is not the price of a recorded one.",
                share * 100.0
            )
        })
    };
    results.iter().filter_map(doubtful).collect()
}

/// A budget's line: what, measured, allowed.
fn budget(what: &str, value: Option<f64>, base: Option<f64>, most: f64) -> Option<String> {
    let measured = value? / base?;
    let verdict = if measured <= most { "kept" } else { "MISSED" };
    Some(format!("{what}: {measured:.2}, at most {most:.2}: {verdict}"))
}

fn budgets(results: &Results) -> Vec<String> {
    use Surroundings::Tight;
    let tompion = |tid, threads| {
        cost(results, Tracer::Tompion(Recording { mode: Mode::Overwrite, tid }), Tight, threads)
    };
    let lttng = cost(results, Tracer::Lttng(Recording { mode: Mode::Overwrite, tid: false }), Tight, 1);
    let (counter, queue) = (cost(results, COUNTER, Tight, 1), cost(results, QUEUE, Tight, 1));
    let disabled = cost(results, Tracer::TompionDisabled, Tight, 1);
    let lttng_disabled = cost(results, Tracer::LttngDisabled, Tight, 1);
    [
        budget("event without tid / bare cycle counter", tompion(false, 1), counter, 1.2),
        budget("event without tid / LTTng-UST", tompion(false, 1), lttng, 0.18),
        budget("event without tid / per-thread queue", tompion(false, 1), queue, 1.1),
        budget("event with tid / bare cycle counter", tompion(true, 1), counter, 1.3),
        budget("event without tid, 2 threads / 1 thread", tompion(false, 2), tompion(false, 1), 1.1),
        budget("event with tid, 2 threads / 1 thread", tompion(true, 2), tompion(true, 1), 1.1),
        budget("disabled event, nanoseconds", disabled, Some(1.0), 1.0),
        budget("disabled event / LTTng-UST disabled", disabled, lttng_disabled, 1.0),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(cost: f64, arrived: Option<u64>) -> Finding {
        Finding {
            cost: std::iter::once(cost).collect(),
            emitted: 1000,
            arrived: arrived.map(|count| (count, count)),
        }
    }

    fn recording(mode: Mode) -> Recording {
        Recording { mode, tid: false }
    }

    #[test]
    fn budgets_are_judged_by_ratios() {
        let tight = |tracer| Variant { tracer, surroundings: Surroundings::Tight, threads: 1 };
        let results = [
            (tight(COUNTER), finding(10.0, None)),
            (tight(Tracer::Tompion(recording(Mode::Overwrite))), finding(11.0, Some(1000))),
            (tight(Tracer::Lttng(recording(Mode::Overwrite))), finding(55.0, Some(1000))),
        ];
        assert_eq!(
            budgets(&results),
            [
                "event without tid / bare cycle counter: 1.10, at most 1.20: kept",
                "event without tid / LTTng-UST: 0.20, at most 0.18: MISSED",
            ]
        );
    }

    #[test]
    fn a_run_that_loses_is_reported_as_such() {
        let burst = Variant {
            tracer: Tracer::Lttng(recording(Mode::Discard)),
            surroundings: Surroundings::Burst,
            threads: 1,
        };
        assert!(doubts(&[(burst, finding(70.0, Some(1000)))]).is_empty());
        assert!(doubts(&[(burst, finding(70.0, Some(800)))])[0].contains("lost 20.0 %"));
    }
}
