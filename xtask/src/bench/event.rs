//! `x bench event`: what one event with two 8-byte fields costs, beside clocks, a queue and LTTng.

mod report;
mod variant;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::count;
use super::lttng::{self, Daemon};
use super::statistics::Series;
use super::tompion::{Source, Tompion};
use super::{Mode, Options, Report, machine, programs, progress, tompion};
use crate::shell;
use crate::workspace::Workspace;
use variant::{Surroundings, Tracer, Variant};

/// What one variant showed over all repetitions.
#[derive(Default)]
pub struct Finding {
    /// Nanoseconds for an event.
    pub cost: Series,
    /// Events emitted in a repetition.
    pub emitted: u64,
    /// Fewest and most events that arrived in a repetition, where a trace was made.
    pub arrived: Option<(u64, u64)>,
}

/// Everything that a repetition needs.
struct Bench {
    folder: PathBuf,
    plain: PathBuf,
    tompion: Option<(Tompion, PathBuf)>,
    lttng: Option<(Daemon, PathBuf)>,
    quick: bool,
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let bench = Bench::prepare(workspace, options)?;
    let variants: Vec<Variant> =
        variant::all(available_threads()).into_iter().filter(|variant| bench.can(variant)).collect();
    let mut findings: Vec<Finding> = variants.iter().map(|_| Finding::default()).collect();
    for repetition in 0..options.repetitions {
        for (index, (variant, finding)) in variants.iter().zip(&mut findings).enumerate() {
            let (now, all) = (repetition + 1, options.repetitions);
            progress(&format!("repetition {now}/{all}, variant {}/{}: {variant}", index + 1, variants.len()));
            bench.measure(variant, finding).with_context(|| variant.to_string())?;
        }
    }
    progress("");
    let results: Vec<_> = variants.into_iter().zip(findings).collect();
    Ok(report::report(&results, options.repetitions, &machine::description()?))
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Bench {
    fn prepare(workspace: &Workspace, options: &Options) -> Result<Self> {
        let folder = programs::folder(workspace)?;
        let build = |name, source, flags: &[String]| {
            programs::build(workspace, &programs::Program { name, sources: &["event/loop.c", source], flags })
        };
        let plain = build("loop-plain", "event/plain.c", &[])?;
        let lttng = if programs::has_lttng_headers() {
            let program = build("loop-lttng", "event/lttng.c", &programs::lttng_flags())?;
            Some((Daemon::start()?, program))
        } else {
            eprintln!("LTTng is missing and left out (apt install lttng-tools liblttng-ust-dev)");
            None
        };
        let tompion = match Tompion::build(workspace)? {
            Some(tompion) => {
                let flags = programs::tompion_flags(workspace);
                Some((tompion, build("loop-tompion", "event/tompion.c", &flags)?))
            }
            None => None,
        };
        Ok(Self { folder, plain, tompion, lttng, quick: options.quick })
    }

    fn can(&self, variant: &Variant) -> bool {
        match variant.tracer {
            Tracer::Plain(_) => true,
            Tracer::TompionDisabled | Tracer::Tompion(_) => self.tompion.is_some(),
            Tracer::LttngDisabled | Tracer::Lttng(_) => self.lttng.is_some(),
        }
    }

    /// One repetition of one variant.
    fn measure(&self, variant: &Variant, finding: &mut Finding) -> Result<()> {
        let trace = self.folder.join("event-trace");
        let (output, trace) = match variant.tracer {
            Tracer::Plain(_) | Tracer::TompionDisabled | Tracer::LttngDisabled => {
                (self.run(Command::new(self.program(variant)?), variant)?, None)
            }
            Tracer::Tompion(recording) => {
                let (tompion, program) = self.tompion.as_ref().context("Tompion is not built")?;
                let settings = tompion::Settings {
                    folder: &trace,
                    source: Source::Events("bench:*"),
                    mode: recording.mode,
                    tid: recording.tid,
                    filter: None,
                };
                let mut command = tompion.record(&settings)?;
                command.arg(program);
                (self.run(command, variant)?, Some((recording, trace)))
            }
            Tracer::Lttng(recording) => {
                let settings = lttng::Settings {
                    folder: &trace,
                    events: "bench:*",
                    mode: recording.mode,
                    tid: recording.tid,
                };
                let session = lttng::Session::start(&settings)?;
                let output = self.run(Command::new(self.program(variant)?), variant)?;
                (output, Some((recording, session.finish()?)))
            }
        };
        finding.cost.push(output.cost);
        finding.emitted = output.emitted;
        if let Some((recording, trace)) = trace {
            let arrived = self.arrived(variant, recording.mode, &trace)?;
            let (fewest, most) = finding.arrived.unwrap_or((arrived, arrived));
            finding.arrived = Some((fewest.min(arrived), most.max(arrived)));
            programs::remove(&trace)?;
        }
        Ok(())
    }

    fn program(&self, variant: &Variant) -> Result<&PathBuf> {
        match variant.tracer {
            Tracer::Plain(_) => Some(&self.plain),
            Tracer::TompionDisabled | Tracer::Tompion(_) => self.tompion.as_ref().map(|(_, program)| program),
            Tracer::LttngDisabled | Tracer::Lttng(_) => self.lttng.as_ref().map(|(_, program)| program),
        }
        .context("not built")
    }

    fn run(&self, mut command: Command, variant: &Variant) -> Result<Output> {
        let (events, batches) = variant.size(self.quick);
        command.args([variant.body(), variant.surroundings.name()]);
        command.args([variant.threads.to_string(), events.to_string(), batches.to_string()]);
        Output::parse(&shell::capture(&mut command)?)
    }

    /// Counts a trace's events, and makes sure that the last ones of each batch are among them: of the
    /// last batch only, where the earlier ones were overwritten.
    fn arrived(&self, variant: &Variant, mode: Mode, trace: &std::path::Path) -> Result<u64> {
        let (events, _) = variant.size(self.quick);
        let counted = count::trace(trace, &format!(" a = {},", events - 1))?;
        let expected = match mode {
            Mode::Overwrite => variant.threads as u64,
            Mode::Discard => 1,
        };
        ensure!(
            counted.found >= expected,
            "the trace lacks the last events of the loop: {} events in {}",
            counted.events,
            trace.display()
        );
        Ok(counted.events)
    }
}

/// What the bench loop printed.
struct Output {
    cost: f64,
    emitted: u64,
}

impl Output {
    fn parse(text: &str) -> Result<Self> {
        let mut costs = Vec::new();
        let mut emitted = None;
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
            costs.extend(line["ns_per_event"].as_f64());
            emitted = line["emitted"].as_u64().or(emitted);
        }
        ensure!(!costs.is_empty(), "the loop measured nothing");
        let cost = costs.into_iter().collect::<Series>().median();
        Ok(Self { cost, emitted: emitted.context("the loop did not say how many events it emitted")? })
    }
}

/// Whether a variant runs in bursts with pauses.
fn in_bursts(variant: &Variant) -> bool {
    variant.surroundings == Surroundings::Burst
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loops_lines_are_read() {
        let text = r#"{"body":"queue","batch":0,"ns_per_event":10.5}
{"body":"queue","batch":1,"ns_per_event":12.5}
{"body":"queue","batch":2,"ns_per_event":11.0}
{"emitted":300,"warmup":100}
"#;
        let output = Output::parse(text).unwrap();
        assert_eq!((output.cost, output.emitted), (11.0, 300));
        assert!(Output::parse("").is_err());
        assert!(Output::parse("{\"ns_per_event\":1.0}").is_err());
    }
}
