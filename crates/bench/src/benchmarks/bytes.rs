//! `x bench bytes`: how large a trace is, for each event in it.

use anyhow::Result;

use super::event::Bench;
use super::event::variant::{Context, Recording, Surroundings, Tracer, Variant};
use super::results::{Figure, Results, Who};
use super::{Mode, Options, Report, progress};
use tompion_tasks::workspace::Workspace;

const METHOD: &str = "\
Bytes of all files of a trace, metadata and indexes too, divided by the events in it, as babeltrace2 counted \
them; none were lost. Bursts of 4,000 events (500 of the large ones) with pauses, 592,000 (74,000) in all. \
Integers in `fields` have 8 bytes.\n";

/// Events, and what the tables call them.
const EVENTS: [(&str, &str); 11] = [
    ("fields_0", "no field"),
    ("u8", "u8"),
    ("u32", "u32"),
    ("fields_1", "u64"),
    ("fields_2", "two u64"),
    ("fields_8", "eight u64"),
    ("enumeration", "enum"),
    ("bytes_64", "64 bytes"),
    ("str_8", "text of 8 bytes"),
    ("str_64", "text of 64 bytes"),
    ("str_512", "text of 512 bytes"),
];

/// Runs the benchmark. Sizes don't vary, so once is enough.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let bench = Bench::prepare(workspace, options)?;
    let mut figures = Vec::new();
    for (group, context) in [("without contexts", Context::None), ("with the thread", Context::Thread)] {
        for (event, place) in EVENTS {
            let recording = Recording { mode: Mode::Discard, context };
            for (who, label, tracer) in [
                (Who::Tompion, "Tompion", Tracer::Tompion(recording)),
                (Who::Lttng, "LTTng-UST", Tracer::Lttng(recording)),
            ] {
                let variant = Variant { event, surroundings: Surroundings::Burst, ..Variant::tight(tracer) };
                if !bench.can(&variant) {
                    continue;
                }
                progress(&format!("{group}: {label}, {place}"));
                let mut figure = Figure::new(group, who, label, place, "bytes an event");
                let measured = bench.size_on_disk(&variant);
                if measured.is_err() {
                    bench.revive();
                }
                figure.note(measured.map(|(bytes, events)| bytes as f64 / events as f64));
                figures.push(figure);
            }
        }
    }
    progress("");
    let results = Results::new("bytes", 1, figures)?;
    Ok(Report { text: results.text(), markdown: results.markdown("Bytes an event on disk", METHOD), results })
}
