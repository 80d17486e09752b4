//! Cost of one event: the loop program in its variants, run and checked; and `x bench event`, an
//! event with two 8-byte fields beside clocks, a queue and LTTng.

mod report;
pub mod variant;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::count;
use super::lttng::{self, Daemon};
use super::results::{Figure, Results, Who, reason};
use super::statistics::Series;
use super::tompion::{self, Source, Tompion, WITHOUT_RSEQ};
use super::{Mode, Options, Report, programs, progress};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;
use variant::{Context, Recording, Surroundings, Tracer, Variant};

/// A program that measures longer hangs.
const MAX_SECONDS: u64 = 120;

/// Finding of one variant over all repetitions.
#[derive(Default)]
pub struct Finding {
    /// Nanoseconds for an event.
    pub cost: Series,
    /// Events emitted in a repetition.
    pub emitted: u64,
    /// Fewest and most events that arrived in a repetition, where a trace was made.
    pub arrived: Option<(u64, u64)>,
    /// Reason why a repetition has no figure.
    pub failure: Option<String>,
    /// Number of repetitions without one.
    failures: u32,
}

impl Finding {
    /// Whether further repetitions would only take time.
    fn is_hopeless(&self) -> bool {
        self.failures > 1 && self.cost.values().is_empty()
    }
}

/// Everything that a repetition needs.
pub struct Bench {
    folder: PathBuf,
    plain: PathBuf,
    tompion: Option<(Tompion, PathBuf)>,
    lttng: Option<(Daemon, PathBuf)>,
    quick: bool,
}

/// Runs `x bench event`.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let bench = Bench::prepare(workspace, options)?;
    let measured = bench.all(variant::all(available_threads()), options.repetitions);
    let figures = measured.iter().map(|(variant, finding)| figure(variant, finding)).collect();
    let results = Results::new("event", options.repetitions, figures)?;
    Ok(report::report(&measured, results))
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A finding as it is kept.
fn figure(variant: &Variant, finding: &Finding) -> Figure {
    let place = variant.threads.to_string();
    let mut figure =
        Figure::new(variant.surroundings.name(), variant.who(), &variant.label(), &place, "ns an event");
    fill(&mut figure, finding);
    figure
}

/// Takes over what was found.
pub fn fill(figure: &mut Figure, finding: &Finding) {
    figure.values = finding.cost.values().to_vec();
    figure.failure.clone_from(&finding.failure);
    figure.counts.insert("emitted".into(), finding.emitted as f64);
    if let Some((fewest, _)) = finding.arrived {
        figure.counts.insert("arrived".into(), fewest as f64);
    }
}

impl Bench {
    /// Builds what there is to build, and starts LTTng's daemon.
    pub fn prepare(workspace: &Workspace, options: &Options) -> Result<Self> {
        let folder = programs::folder(workspace)?;
        let build = |name, source, flags: &[String]| {
            let sources = &["event/loop.c", "event/values.c", source];
            programs::build(workspace, &programs::Program { name, sources, flags })
        };
        let plain = build("loop-plain", "event/plain.c", &[])?;
        let lttng = match Daemon::if_installed() {
            Some(daemon) => Some((daemon, build("loop-lttng", "event/lttng.c", &programs::lttng_flags())?)),
            None => None,
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

    /// Measures all variants that can be measured here, interleaved. What fails is noted and passed
    /// over.
    pub fn all(&self, variants: Vec<Variant>, repetitions: usize) -> Vec<(Variant, Finding)> {
        let can = variants.into_iter().filter(|variant| self.can(variant));
        let mut measured: Vec<_> = can.map(|variant| (variant, Finding::default())).collect();
        let count = measured.len();
        for repetition in 1..=repetitions {
            for (index, (variant, finding)) in measured.iter_mut().enumerate() {
                if finding.is_hopeless() {
                    continue;
                }
                progress(&format!("repetition {repetition}/{repetitions}, {}/{count}: {variant}", index + 1));
                if let Err(error) = self.measure(variant, finding) {
                    progress("");
                    eprintln!("failed: {variant}: {}", reason(&error));
                    finding.failure.get_or_insert_with(|| reason(&error));
                    finding.failures += 1;
                    self.revive();
                }
            }
        }
        progress("");
        measured
    }

    /// After a failure: LTTng's daemon may have been its cause.
    pub fn revive(&self) {
        if let Some(Err(error)) = self.lttng.as_ref().map(|(daemon, _)| daemon.make_sure()) {
            eprintln!("{error:#}");
        }
    }

    /// Measures one repetition of one variant.
    fn measure(&self, variant: &Variant, finding: &mut Finding) -> Result<()> {
        let (output, recorded) = self.execute(variant)?;
        if let Some((recording, trace)) = recorded {
            let arrived = self.arrived(variant, recording, &trace)?;
            let (fewest, most) = finding.arrived.unwrap_or((arrived, arrived));
            finding.arrived = Some((fewest.min(arrived), most.max(arrived)));
            programs::remove(&trace)?;
        }
        finding.cost.push(output.cost);
        finding.emitted = output.emitted;
        Ok(())
    }

    /// Records a variant, and returns the size of its trace on disk and the number of events in it.
    pub fn size_on_disk(&self, variant: &Variant) -> Result<(u64, u64)> {
        let (output, recorded) = self.execute(variant)?;
        let (_, trace) = recorded.context("this variant records nothing")?;
        let (bytes, events) = (programs::size(&trace)?, count::events(&trace)?);
        ensure!(events == output.emitted, "{events} of {} events arrived", output.emitted);
        programs::remove(&trace)?;
        Ok((bytes, events))
    }

    /// Runs a variant's program; returns what it measured, and the trace if one was made.
    fn execute(&self, variant: &Variant) -> Result<(Output, Option<(Recording, PathBuf)>)> {
        let trace = self.folder.join("event-trace");
        match variant.tracer {
            Tracer::Plain(_) | Tracer::TompionDisabled | Tracer::LttngDisabled => {
                Ok((self.run(self.alone(variant)?, variant)?, None))
            }
            Tracer::Tompion(recording) | Tracer::Fallback(recording) => {
                let mut command = self.record(recording, &trace)?;
                if matches!(variant.tracer, Tracer::Fallback(_)) {
                    command.args(WITHOUT_RSEQ);
                }
                command.arg(self.program(variant)?);
                Ok((self.run(command, variant)?, Some((recording, trace))))
            }
            Tracer::Lttng(recording) => {
                let settings = lttng::Settings {
                    mode: recording.mode,
                    contexts: recording.context.lttng(),
                    filter: recording.context.filter(),
                    ..lttng::Settings::new(&trace, "bench:*")
                };
                let session = lttng::Session::start(&settings)?;
                let output = self.run(self.alone(variant)?, variant)?;
                Ok((output, Some((recording, session.finish()?))))
            }
        }
    }

    /// Whether this variant can be measured here.
    pub fn can(&self, variant: &Variant) -> bool {
        match variant.who() {
            Who::Plain | Who::Babeltrace | Who::Ftrace | Who::Perf | Who::Strace | Who::Cyclictest => true,
            Who::Tompion | Who::Fallback => self.tompion.is_some(),
            Who::Lttng => self.lttng.is_some(),
        }
    }

    /// The start of a command line that records.
    fn record(&self, recording: Recording, trace: &Path) -> Result<Command> {
        let (tompion, _) = self.tompion.as_ref().context("Tompion is not built")?;
        tompion.record(&tompion::Settings {
            mode: recording.mode,
            tid: recording.context.has_tid(),
            context: (recording.context == Context::Application).then_some("app"),
            filter: recording.context.filter(),
            ..tompion::Settings::new(trace, Source::Events("bench:*"))
        })
    }

    /// The program without a recorder around it.
    fn alone(&self, variant: &Variant) -> Result<Command> {
        Ok(shell::limited(MAX_SECONDS, &Command::new(self.program(variant)?)))
    }

    fn program(&self, variant: &Variant) -> Result<&PathBuf> {
        match variant.who() {
            Who::Plain | Who::Babeltrace | Who::Ftrace | Who::Perf | Who::Strace | Who::Cyclictest => {
                Some(&self.plain)
            }
            Who::Tompion | Who::Fallback => self.tompion.as_ref().map(|(_, program)| program),
            Who::Lttng => self.lttng.as_ref().map(|(_, program)| program),
        }
        .context("not built")
    }

    fn run(&self, mut command: Command, variant: &Variant) -> Result<Output> {
        let (events, batches) = variant.size(self.quick);
        command.args([variant.body(), variant.surroundings.name()]);
        command.args([variant.threads.to_string(), events.to_string(), batches.to_string()]);
        Output::parse(&shell::capture(&mut command)?)
    }

    /// Counts a trace's events, and makes sure that the last ones of each batch are among them: of
    /// the last batch only, where the earlier ones were overwritten.
    fn arrived(&self, variant: &Variant, recording: Recording, trace: &Path) -> Result<u64> {
        let (events, _) = variant.size(self.quick);
        // A filter that is never true would leave a trace that is none; so it lets the first ones
        // pass.
        let numbered = variant.is_numbered() && recording.context != Context::FilterFalse;
        let text = if numbered { format!(" a = {},", events - 1) } else { String::new() };
        let counted = count::trace(trace, &text)?;
        ensure!(counted.events > 0, "nothing was recorded");
        // Threads that share a CPU overwrite each other's.
        let alone = recording.mode == Mode::Overwrite && variant.threads <= available_threads();
        let expected = if alone { variant.threads as u64 } else { 1 };
        ensure!(
            !numbered || counted.found >= expected,
            "the trace lacks the last events of the loop: {} events in {}",
            counted.events,
            trace.display()
        );
        Ok(counted.events)
    }
}

/// Output of the bench loop.
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

/// Reads the loop's output: nanoseconds an event, the median of the batches, and events in all.
pub fn loop_output(text: &str) -> Result<(f64, u64)> {
    Output::parse(text).map(|Output { cost, emitted }| (cost, emitted))
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
