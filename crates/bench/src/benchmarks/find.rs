//! `x bench find`: the table of the 2009 paper, `find /usr -regex '.*a'` with its allocations
//! recorded.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::lttng::{self, Daemon};
use super::results::{Figure, Results, Who, reason};
use super::statistics::Series;
use super::tompion::{Source, Tompion};
use super::{Mode, Options, Report, count, programs, progress, tompion};
use tompion_plot::with_thousands;
use tompion_tasks::shell;
use tompion_tasks::table::Table;
use tompion_tasks::workspace::Workspace;

const LTTNG_WRAPPER: &str = "liblttng-ust-libc-wrapper.so";
const WORDS: [&str; 4] = ["find", "/usr", "-regex", ".*a"];

const METHOD: &str = "\
Warm cache; variants interleaved; wall time of `find` itself, not of the recorder around it, medians \
beside the smallest and the largest. Both tracers have four sub-buffers of 1 MiB on each CPU and record \
the thread of each event. The cost of an event is the added time divided by the events that the same \
wrapper recorded and lost while writing to disk.\n";

/// Maximum number of repetitions: more don't change the table.
const MAX_REPETITIONS: usize = 5;

/// Tracer that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tracer {
    Plain,
    TompionIdle,
    Tompion(Mode),
    LttngIdle,
    Lttng(Mode),
}

const ALL: [Tracer; 7] = [
    Tracer::Plain,
    Tracer::TompionIdle,
    Tracer::LttngIdle,
    Tracer::Tompion(Mode::Overwrite),
    Tracer::Lttng(Mode::Overwrite),
    Tracer::Tompion(Mode::Discard),
    Tracer::Lttng(Mode::Discard),
];

impl Tracer {
    const fn label(self) -> &'static str {
        match self {
            Self::Plain => "no tracer",
            Self::TompionIdle => "Tompion, wrapper loaded, not recording",
            Self::Tompion(Mode::Overwrite) => "Tompion, flight recorder",
            Self::Tompion(Mode::Discard) => "Tompion, to disk",
            Self::LttngIdle => "LTTng-UST, wrapper loaded, not recording",
            Self::Lttng(Mode::Overwrite) => "LTTng-UST, flight recorder",
            Self::Lttng(Mode::Discard) => "LTTng-UST, to disk",
        }
    }

    const fn who(self) -> Who {
        match self {
            Self::Plain => Who::Plain,
            Self::TompionIdle | Self::Tompion(_) => Who::Tompion,
            Self::LttngIdle | Self::Lttng(_) => Who::Lttng,
        }
    }

    /// The variant that tells how many events there were.
    const fn counted_by(self) -> Option<Self> {
        match self {
            Self::Plain => None,
            Self::TompionIdle | Self::Tompion(_) => Some(Self::Tompion(Mode::Discard)),
            Self::LttngIdle | Self::Lttng(_) => Some(Self::Lttng(Mode::Discard)),
        }
    }
}

#[derive(Default)]
struct Finding {
    seconds: Series,
    recorded: Option<u64>,
    lost: Option<u64>,
    failure: Option<String>,
}

struct Bench {
    folder: PathBuf,
    stopwatch: PathBuf,
    tompion: Option<Tompion>,
    lttng: Option<Daemon>,
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let repetitions = options.repetitions.min(MAX_REPETITIONS);
    let bench = Bench::prepare(workspace)?;
    let tracers: Vec<Tracer> = ALL.into_iter().filter(|tracer| bench.can(*tracer)).collect();
    bench.measure(Tracer::Plain, &mut Finding::default())?; // fills the cache
    let mut findings: Vec<Finding> = tracers.iter().map(|_| Finding::default()).collect();
    for repetition in 0..repetitions {
        for (&tracer, finding) in tracers.iter().zip(&mut findings) {
            progress(&format!("repetition {}/{repetitions}: {}", repetition + 1, tracer.label()));
            if let Err(error) = bench.measure(tracer, finding) {
                progress("");
                eprintln!("failed: {}: {}", tracer.label(), reason(&error));
                finding.failure.get_or_insert_with(|| reason(&error));
                bench.lttng.as_ref().map_or(Ok(()), Daemon::make_sure)?;
            }
        }
    }
    progress("");
    let results: Vec<_> = tracers.into_iter().zip(findings).collect();
    report(&results, repetitions)
}

impl Bench {
    fn prepare(workspace: &Workspace) -> Result<Self> {
        let stopwatch = programs::build(
            workspace,
            &programs::Program { name: "timed", sources: &["find/timed.c"], flags: &["-static".into()] },
        )?;
        let lttng = Daemon::if_installed();
        let folder = programs::folder(workspace)?;
        let tompion = Tompion::build(workspace)?.filter(|tompion| tompion.wrapper("malloc").is_file());
        Ok(Self { folder, stopwatch, tompion, lttng })
    }

    fn can(&self, tracer: Tracer) -> bool {
        match tracer {
            Tracer::Plain => true,
            Tracer::TompionIdle | Tracer::Tompion(_) => self.tompion.is_some(),
            Tracer::LttngIdle | Tracer::Lttng(_) => self.lttng.is_some(),
        }
    }

    fn measure(&self, tracer: Tracer, finding: &mut Finding) -> Result<()> {
        let trace = self.folder.join("find-trace");
        let (seconds, trace) = match tracer {
            Tracer::Plain => (self.time(Command::new(&self.stopwatch))?, None),
            Tracer::TompionIdle => {
                let tompion = self.tompion.as_ref().context("Tompion is not built")?;
                (self.time(self.preloaded(&tompion.wrapper("malloc")))?, None)
            }
            Tracer::LttngIdle => (self.time(self.preloaded(Path::new(LTTNG_WRAPPER)))?, None),
            Tracer::Tompion(mode) => {
                let tompion = self.tompion.as_ref().context("Tompion is not built")?;
                let source = Source::Preload("malloc");
                let settings = tompion::Settings { mode, ..tompion::Settings::new(&trace, source) };
                let mut command = tompion.record(&settings)?;
                command.arg(&self.stopwatch);
                (self.time(command)?, Some(trace))
            }
            Tracer::Lttng(mode) => {
                let events = "lttng_ust_libc:*";
                let settings =
                    lttng::Settings { mode, contexts: &["vtid"], ..lttng::Settings::new(&trace, events) };
                let session = lttng::Session::start(&settings)?;
                let seconds = self.time(self.preloaded(Path::new(LTTNG_WRAPPER)))?;
                (seconds, Some(session.finish()?))
            }
        };
        finding.seconds.push(seconds);
        if let Some(trace) = trace {
            let counted = count::trace(&trace, "")?;
            ensure!(counted.events > 0, "nothing was recorded in {}", trace.display());
            finding.recorded =
                Some(finding.recorded.map_or(counted.events, |least| least.min(counted.events)));
            finding.lost = finding.lost.max(Some(counted.discarded));
            programs::remove(&trace)?;
        }
        Ok(())
    }

    /// The stopwatch, which starts its command with a library preloaded.
    fn preloaded(&self, library: &Path) -> Command {
        let mut command = Command::new(&self.stopwatch);
        command.env("LD_PRELOAD", library);
        command
    }

    /// Seconds that `find` took, by the stopwatch at the end of this command line.
    fn time(&self, mut command: Command) -> Result<f64> {
        let file = self.folder.join("find-time.json");
        command.arg(&file).args(WORDS).stdin(Stdio::null()).stdout(Stdio::null());
        // `find` fails where it may not read; that is no matter here, so the file tells.
        let _ = std::fs::remove_file(&file);
        let output =
            command.output().with_context(|| format!("cannot run `{}`", shell::describe(&command)))?;
        let text = std::fs::read_to_string(&file).with_context(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("`{}` measured nothing: {}", shell::describe(&command), said.trim_end())
        })?;
        let times: Value = serde_json::from_str(&text)?;
        Ok(times["wall_ns"].as_f64().context("the stopwatch wrote no time")? / 1e9)
    }
}

fn report(results: &[(Tracer, Finding)], repetitions: usize) -> Result<Report> {
    let find =
        |wanted: Tracer| results.iter().find(|(tracer, _)| *tracer == wanted).map(|(_, finding)| finding);
    let plain = find(Tracer::Plain).context("the plain run is always there")?.seconds.median();
    let mut table =
        Table::new(&["", "seconds", "min", "max", "added", "recorded", "lost", "added for an event"]);
    for (tracer, finding) in results {
        let added = finding.seconds.median() - plain;
        let events = tracer
            .counted_by()
            .and_then(find)
            .and_then(|counter| Some(counter.recorded? + counter.lost?))
            .filter(|&events| events > 0);
        let number = |value: Option<u64>| value.map_or_else(|| "–".into(), with_thousands);
        table.row(vec![
            tracer.label().into(),
            format!("{:.3}", finding.seconds.median()),
            format!("{:.3}", finding.seconds.min()),
            format!("{:.3}", finding.seconds.max()),
            format!("{:+.1} %", added / plain * 100.0),
            number(finding.recorded),
            number(finding.lost),
            events.map_or_else(|| "–".into(), |events| format!("{:+.0} ns", added * 1e9 / events as f64)),
        ]);
    }
    let title = "`find /usr -regex '.*a'`, every allocation recorded";
    let figures = results.iter().map(|(tracer, finding)| figure(*tracer, finding)).collect();
    let results = Results::new("find", repetitions, figures)?;
    Ok(Report::of_table(title, METHOD, &table, results))
}

/// A finding as it is kept.
fn figure(tracer: Tracer, finding: &Finding) -> Figure {
    let mut figure = Figure::new("find", tracer.who(), tracer.label(), "wall time", "seconds");
    figure.values = finding.seconds.values().to_vec();
    figure.failure.clone_from(&finding.failure);
    let counts = [("recorded", finding.recorded), ("lost", finding.lost)];
    let counted = counts.into_iter().filter_map(|(name, count)| Some((name.to_owned(), count? as f64)));
    figure.counts = counted.collect();
    figure
}
