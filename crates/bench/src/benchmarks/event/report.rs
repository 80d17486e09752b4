//! The tables of `x bench event`.

use super::super::budgets;
use super::super::results::Results;
use super::variant::{COUNTER, EMPTY, QUEUE, Surroundings, Tracer, Variant};
use super::{Finding, Report, in_bursts};
use tompion_plot::with_thousands;
use tompion_tasks::table::Table;

/// Losses above this share make a figure in discard mode doubtful: a lost event has another price.
const TOLERABLE_LOSS: f64 = 0.001;

const METHOD: &str = "\
Variants are interleaved (A B C … A B C …); a figure is the median over the repetitions, beside the \
smallest and the largest. A repetition is a process of its own: threads pinned, buffers touched by a \
warm-up, five batches of a million events (tight and work) or a hundred bursts of 4,000 events with \
pauses of 5 ms between them (discard), its figure the median batch. With two threads the slower one \
counts. Both tracers have four sub-buffers of 1 MiB on each CPU. Every trace was read with \
babeltrace2, and the loop's last events were found in it.\n";

type Measured = [(Variant, Finding)];

/// Makes the report.
pub fn report(measured: &Measured, kept: Results) -> Report {
    let sections = [
        ("Flight recorder (overwrite), nanoseconds an event", tight(measured)),
        ("To disk (discard), in bursts, nanoseconds an event", bursts(measured)),
        ("Amid 50 dependent multiplications, nanoseconds added", work(measured)),
    ];
    let mut text = String::new();
    let machine: String = kept.machine.iter().map(|line| format!("- {line}\n")).collect();
    let mut markdown =
        format!("# What an event costs\n\n{machine}- repetitions: {}\n\n{METHOD}", kept.repetitions);
    for (title, table) in &sections {
        text += &format!("{title}\n{}\n", table.text());
        markdown += &format!("\n## {title}\n\n{}", table.markdown());
    }
    let budgets = budgets::table(&budgets::of_event(&kept));
    text += &format!("Budgets\n{}", budgets.text());
    markdown += &format!("\n## Budgets\n\n{}", budgets.markdown());
    for line in doubts(measured) {
        text += &format!("{line}\n");
        markdown += &format!("\n**{line}**\n");
    }
    let failures = kept.failures();
    text += &failures;
    markdown += &failures;
    Report { text, markdown, results: kept }
}

fn cost(results: &Measured, tracer: Tracer, surroundings: Surroundings, threads: usize) -> Option<f64> {
    let wanted = Variant { surroundings, threads, ..Variant::tight(tracer) };
    let (_, finding) = results.iter().find(|(variant, _)| *variant == wanted)?;
    Some(finding.cost.median()).filter(|median| !median.is_nan())
}

fn ratio(value: f64, base: Option<f64>) -> String {
    base.filter(|_| !value.is_nan()).map_or_else(|| "–".into(), |base| format!("{:.2}", value / base))
}

fn number(value: f64) -> String {
    if value.is_nan() { "failed".into() } else { format!("{value:.2}") }
}

/// LTTng's counterpart of a Tompion variant.
fn peer(variant: &Variant) -> Option<Tracer> {
    match variant.tracer {
        Tracer::Tompion(recording) | Tracer::Fallback(recording) => Some(Tracer::Lttng(recording)),
        Tracer::TompionDisabled => Some(Tracer::LttngDisabled),
        _ => None,
    }
}

fn figures(results: &Measured, (variant, finding): &(Variant, Finding)) -> Vec<String> {
    let Variant { surroundings, threads, .. } = *variant;
    let median = finding.cost.median();
    let to_peer = peer(variant).and_then(|peer| cost(results, peer, surroundings, threads));
    vec![
        variant.label(),
        threads.to_string(),
        number(median),
        number(finding.cost.min()),
        number(finding.cost.max()),
        ratio(median, cost(results, COUNTER, surroundings, threads)),
        ratio(median, cost(results, QUEUE, surroundings, threads)),
        ratio(median, to_peer),
    ]
}

fn tight(results: &Measured) -> Table {
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
        row.push(with_thousands(finding.emitted));
        row.push(finding.arrived.map_or_else(|| "–".into(), |(fewest, _)| with_thousands(fewest)));
        table.row(row);
    }
    table
}

fn bursts(results: &Measured) -> Table {
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
        row.push(with_thousands(result.1.emitted));
        row.push(most_lost(&result.1).map_or_else(|| "–".into(), with_thousands));
        table.row(row);
    }
    table
}

/// Events lost in the worst repetition.
fn most_lost(finding: &Finding) -> Option<u64> {
    finding.arrived.map(|(fewest, _)| finding.emitted.saturating_sub(fewest))
}

fn work(results: &Measured) -> Table {
    let mut table = Table::new(&["", "median", "added"]);
    let base = cost(results, EMPTY, Surroundings::Work, 1);
    for (variant, finding) in results.iter().filter(|(variant, _)| variant.surroundings == Surroundings::Work)
    {
        let median = finding.cost.median();
        let added = base.map_or_else(|| "–".into(), |base| format!("{:+.2}", median - base));
        let label = if variant.tracer == EMPTY { "the work alone".into() } else { variant.label() };
        table.row(vec![label, number(median), added]);
    }
    table
}

/// Figures of discard mode that losses make doubtful.
fn doubts(results: &Measured) -> Vec<String> {
    let uncertain = |(variant, finding): &(Variant, Finding)| {
        let lost = most_lost(finding).filter(|_| in_bursts(variant))?;
        let share = lost as f64 / finding.emitted as f64;
        (share > TOLERABLE_LOSS).then(|| {
            format!(
                "{variant} lost {:.1} % of its events: its figure is not the price of a recorded one.",
                share * 100.0
            )
        })
    };
    results.iter().filter_map(uncertain).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Mode;
    use super::super::variant::{Context, Recording};
    use super::*;

    fn finding(cost: f64, arrived: Option<u64>) -> Finding {
        Finding {
            cost: std::iter::once(cost).collect(),
            emitted: 1000,
            arrived: arrived.map(|count| (count, count)),
            ..Finding::default()
        }
    }

    #[test]
    fn a_run_that_loses_is_reported_as_such() {
        let recording = Recording { mode: Mode::Discard, context: Context::None };
        let burst = Variant { surroundings: Surroundings::Burst, ..Variant::tight(Tracer::Lttng(recording)) };
        assert!(doubts(&[(burst, finding(70.0, Some(1000)))]).is_empty());
        assert!(doubts(&[(burst, finding(70.0, Some(800)))])[0].contains("lost 20.0 %"));
    }
}
