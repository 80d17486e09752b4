//! `x bench shapes`: what an event costs by its number of fields, their type, the threads that
//! record at once, and what else is recorded with it.

use anyhow::Result;

use super::event::variant::{COUNTER, Context, EMPTY, QUEUE, Recording, Tracer, Variant};
use super::event::{Bench, fill};
use super::results::{Figure, Results, Who};
use super::{Options, Report};
use tompion_tasks::workspace::Workspace;

const METHOD: &str = "\
Nanoseconds an event as a flight recorder (overwrite) into four sub-buffers of 1 MiB for each CPU; without \
contexts where nothing else is said. Median (smallest–largest) over the repetitions, each a process of its \
own, variants interleaved; a repetition is five batches of a million events (125,000 of the large ones), its \
figure the median batch. Integers in `fields` have 8 bytes; sequences and arrays 64 bytes. Up to as many \
threads as CPUs each has one of its own and the slowest counts; more threads share them, and what counts \
then is their CPU time. Every trace was read with babeltrace2.\n";

/// More repetitions would not fit into a run of everything.
const MAX_REPETITIONS: usize = 5;

/// The number of 8-byte fields.
const FIELDS: [(&str, &str); 7] = [
    ("fields_0", "0"),
    ("fields_1", "1"),
    ("fields_2", "2"),
    ("fields_4", "4"),
    ("fields_8", "8"),
    ("fields_16", "16"),
    ("fields_32", "32"),
];

/// One field of each type, and what the tables call it.
const TYPES: [(&str, &str); 13] = [
    ("u8", "u8"),
    ("u16", "u16"),
    ("u32", "u32"),
    ("u64", "u64"),
    ("f64", "f64"),
    ("enumeration", "enum"),
    ("array_u32", "array of 16 u32"),
    ("sequence_u32", "sequence of 16 u32"),
    ("bytes_64", "64 bytes"),
    ("str_8", "text of 8 bytes"),
    ("str_64", "text of 64 bytes"),
    ("str_512", "text of 512 bytes"),
    ("str_4096", "text of 4096 bytes"),
];

const THREADS: [usize; 4] = [1, 2, 4, 8];

/// A variant and the figure that it is for.
type Planned = (Variant, Figure);

/// Runs `x bench shapes`.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let repetitions = options.repetitions.min(MAX_REPETITIONS);
    let bench = Bench::prepare(workspace, options)?;
    let mut planned = plan();
    let mut variants: Vec<Variant> = Vec::new();
    for (variant, _) in &planned {
        if !variants.contains(variant) {
            variants.push(*variant);
        }
    }
    let measured = bench.all(variants, repetitions);
    for (variant, finding) in &measured {
        for (_, figure) in planned.iter_mut().filter(|(wanted, _)| wanted == variant) {
            fill(figure, finding);
        }
    }
    let figures = planned.into_iter().map(|(_, figure)| figure);
    let figures = figures.filter(|figure| !figure.values.is_empty() || figure.failure.is_some()).collect();
    let results = Results::new("shapes", repetitions, figures)?;
    let markdown = results.markdown("What events of different shapes cost", METHOD);
    Ok(Report { text: results.text(), markdown, results })
}

/// The three that are compared nearly everywhere.
fn recorders(context: Context) -> [(Who, &'static str, Tracer); 3] {
    let recording = Recording::overwrite(context);
    [
        (Who::Tompion, "Tompion", Tracer::Tompion(recording)),
        (Who::Fallback, "Tompion without rseq", Tracer::Fallback(recording)),
        (Who::Lttng, "LTTng-UST", Tracer::Lttng(recording)),
    ]
}

fn plan() -> Vec<Planned> {
    let mut planned = Vec::new();
    for (group, events) in [("by number of fields", &FIELDS[..]), ("by type of one field", &TYPES[..])] {
        for &(event, place) in events {
            for (who, label, tracer) in recorders(Context::None) {
                let variant = Variant { event, ..Variant::tight(tracer) };
                planned.push((variant, Figure::new(group, who, label, place, "ns an event")));
            }
        }
    }
    threads(&mut planned);
    contexts(&mut planned);
    planned
}

fn threads(planned: &mut Vec<Planned>) {
    let plain = [
        (Who::Plain, "empty loop", EMPTY),
        (Who::Plain, "bare clock", COUNTER),
        (Who::Plain, "per-thread queue", QUEUE),
    ];
    for threads in THREADS {
        for (who, label, tracer) in plain.into_iter().chain(recorders(Context::Thread)) {
            let variant = Variant { threads, ..Variant::tight(tracer) };
            let figure = Figure::new("by threads", who, label, &threads.to_string(), "ns an event");
            planned.push((variant, figure));
        }
    }
}

fn contexts(planned: &mut Vec<Planned>) {
    let rows: [(Context, &str, bool, bool); 6] = [
        (Context::None, "none", true, true),
        (Context::Thread, "thread", true, true),
        (Context::Process, "process and program's name", false, true),
        (Context::Application, "thread and a value of the program", true, false),
        (Context::FilterTrue, "filter that is true", true, true),
        (Context::FilterFalse, "filter that is false", true, true),
    ];
    for (context, place, ours, theirs) in rows {
        for (who, label, tracer) in recorders(context) {
            if if who == Who::Lttng { theirs } else { ours } {
                let figure = Figure::new("by context", who, label, place, "ns an event");
                planned.push((Variant::tight(tracer), figure));
            }
        }
    }
    for (who, label, tracer) in
        [(Who::Tompion, "Tompion", Tracer::TompionDisabled), (Who::Lttng, "LTTng-UST", Tracer::LttngDisabled)]
    {
        let figure = Figure::new("by context", who, label, "not recorded", "ns an event");
        planned.push((Variant::tight(tracer), figure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_place_of_its_own() {
        let planned = plan();
        for (index, (_, figure)) in planned.iter().enumerate() {
            let same = |(_, other): &Planned| {
                (&other.group, &other.label, &other.at) == (&figure.group, &figure.label, &figure.at)
            };
            assert!(!planned[..index].iter().any(same), "{}: {}", figure.group, figure.at);
        }
    }
}
