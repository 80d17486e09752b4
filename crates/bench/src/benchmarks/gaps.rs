//! `x bench gaps`: how long a single append takes at worst, of a hundred million.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::lttng::{self, Daemon};
use super::results::{Figure, Results, Who, reason};
use super::statistics;
use super::tompion::{self, Source, Tompion, WITHOUT_RSEQ};
use super::{Mode, Options, Report, programs, progress};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

const METHOD: &str = "\
Nanoseconds between two reads of the cycle counter around one event with two 8-byte fields, each ordered by \
fences, of which the empty loop of the same shape has the two reads and nothing else. A hundred million \
events for each (less in a quick run), in ten blocks, a process each, blocks interleaved; in a block 500 \
bursts of 20,000 events with pauses of 5 ms, and 64 bursts before them as a warm-up. The thread is pinned, \
under SCHED_FIFO, memory is locked. Traces go to memory (/dev/shm); both have four \
sub-buffers of 1 MiB for each CPU, and lost nothing where nothing else is said. The histogram is kept in the \
process; entering a gap into it is in no gap. What interrupts the machine itself interrupts the empty loop, \
too: that is what it is there for. No context is recorded.\n";

const BLOCKS: usize = 10;
const BURSTS: u64 = 500;
const QUICK_BURSTS: u64 = 10;
const EVENTS: u64 = 20_000;
/// A run that takes longer hangs.
const MAX_SECONDS: u64 = 120;
/// Interval of LTTng's consumer when it is not woken up, in microseconds.
const READ_TIMER: u32 = 10_000;
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tracer {
    Bare,
    Tompion,
    Fallback,
    LttngTimer,
    LttngWakeUp,
}

const ALL: [Tracer; 5] =
    [Tracer::Bare, Tracer::Tompion, Tracer::Fallback, Tracer::LttngTimer, Tracer::LttngWakeUp];

impl Tracer {
    const fn who(self) -> Who {
        match self {
            Self::Bare => Who::Plain,
            Self::Tompion => Who::Tompion,
            Self::Fallback => Who::Fallback,
            Self::LttngTimer | Self::LttngWakeUp => Who::Lttng,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Bare => "empty loop",
            Self::Tompion => "Tompion",
            Self::Fallback => "Tompion without rseq",
            Self::LttngTimer => "LTTng-UST, read timer",
            Self::LttngWakeUp => "LTTng-UST, wake-ups (default)",
        }
    }
}

/// All gaps of a variant: nanoseconds in picoseconds, so that they can be keys, and how many.
#[derive(Default)]
struct Gaps {
    histogram: BTreeMap<u64, u64>,
    longest: Vec<f64>,
    lost: u64,
    undisturbed: bool,
    failure: Option<String>,
}

struct Bench {
    trace: PathBuf,
    plain: PathBuf,
    tompion: Option<(Tompion, PathBuf)>,
    lttng: Option<(Daemon, PathBuf)>,
    bursts: u64,
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let bench = Bench::prepare(workspace, options)?;
    let blocks = if options.quick { 1 } else { BLOCKS };
    let tracers: Vec<Tracer> = ALL.into_iter().filter(|tracer| bench.can(*tracer)).collect();
    let mut found: Vec<Gaps> = tracers.iter().map(|_| Gaps::default()).collect();
    for block in 1..=blocks {
        for (&tracer, gaps) in tracers.iter().zip(&mut found) {
            progress(&format!("block {block}/{blocks}: {}", tracer.label()));
            if let Err(error) = bench.measure(tracer, gaps) {
                progress("");
                eprintln!("failed: {}: {}", tracer.label(), reason(&error));
                gaps.failure.get_or_insert_with(|| reason(&error));
                bench.lttng.as_ref().map_or(Ok(()), |(daemon, _)| daemon.make_sure())?;
            }
        }
    }
    progress("");
    let figures = tracers.iter().zip(&found).flat_map(|(tracer, gaps)| figures(*tracer, gaps)).collect();
    let results = Results::new("gaps", blocks, figures)?;
    Ok(Report { text: results.text(), markdown: results.markdown("The worst append", METHOD), results })
}

/// Shares of all appends that are no longer than the figure.
const SHARES: [(&str, f64); 5] =
    [("median", 0.5), ("99 %", 0.99), ("99.99 %", 0.9999), ("99.9999 %", 0.999_999), ("worst of all", 1.0)];

fn figures(tracer: Tracer, gaps: &Gaps) -> Vec<Figure> {
    let new =
        |group: &str, place: &str| Figure::new(group, tracer.who(), tracer.label(), place, "ns an append");
    let mut figures = Vec::new();
    let total: u64 = gaps.histogram.values().sum();
    for (place, share) in SHARES {
        let mut figure = new("an append takes at most", place);
        figure.failure.clone_from(&gaps.failure);
        figure.values = quantile(gaps, share).into_iter().collect();
        figure.counts.insert("appends".into(), total as f64);
        figure.counts.insert("lost".into(), gaps.lost as f64);
        figure
            .counts
            .insert("under SCHED_FIFO with locked memory".into(), f64::from(u8::from(gaps.undisturbed)));
        figures.push(figure);
    }
    let mut worst = new("an append takes at most", "worst of a block");
    worst.values.clone_from(&gaps.longest);
    worst.values.sort_by(f64::total_cmp);
    worst.curve = statistics::curve(&gaps.histogram, 1e3);
    figures.push(worst);
    figures
}

/// Nanoseconds that this share of the gaps does not exceed.
fn quantile(gaps: &Gaps, share: f64) -> Option<f64> {
    if share >= 1.0 {
        return gaps.longest.iter().copied().max_by(f64::total_cmp);
    }
    statistics::quantile(&gaps.histogram, share).map(|picoseconds| picoseconds / 1e3)
}

impl Bench {
    fn prepare(workspace: &Workspace, options: &Options) -> Result<Self> {
        let build = |name, source, flags: &[String]| {
            programs::build(workspace, &programs::Program { name, sources: &[source], flags })
        };
        let lttng_flags = [programs::lttng_flags(), vec![]].concat();
        let plain = build("gaps-plain", "gaps/plain.c", &[])?;
        let tompion = match Tompion::build(workspace)? {
            Some(tompion) => {
                let flags = programs::tompion_flags(workspace);
                Some((tompion, build("gaps-tompion", "gaps/tompion.c", &flags)?))
            }
            None => None,
        };
        let lttng = match Daemon::if_installed() {
            Some(daemon) => Some((daemon, build("gaps-lttng", "gaps/lttng.c", &lttng_flags)?)),
            None => None,
        };
        let trace = programs::memory_folder(workspace)?.join("gaps-trace");
        let bursts = if options.quick { QUICK_BURSTS } else { BURSTS };
        Ok(Self { trace, plain, tompion, lttng, bursts })
    }

    fn can(&self, tracer: Tracer) -> bool {
        match tracer.who() {
            Who::Plain | Who::Babeltrace | Who::Ftrace | Who::Perf | Who::Strace | Who::Cyclictest => true,
            Who::Tompion | Who::Fallback => self.tompion.is_some(),
            Who::Lttng => self.lttng.is_some(),
        }
    }

    fn measure(&self, tracer: Tracer, gaps: &mut Gaps) -> Result<()> {
        let (block, trace) = match tracer {
            Tracer::Bare => (self.run(shell::limited(MAX_SECONDS, &Command::new(&self.plain)))?, None),
            Tracer::Tompion | Tracer::Fallback => {
                let (tompion, program) = self.tompion.as_ref().context("Tompion is not built")?;
                let mut command = tompion.record(&tompion::Settings {
                    mode: Mode::Discard,
                    tid: false,
                    ..tompion::Settings::new(&self.trace, Source::Events("bench:*"))
                })?;
                if tracer == Tracer::Fallback {
                    command.args(WITHOUT_RSEQ);
                }
                command.arg(program);
                (self.run(command)?, Some(self.trace.clone()))
            }
            Tracer::LttngTimer | Tracer::LttngWakeUp => {
                let (_, program) = self.lttng.as_ref().context("LTTng is not there")?;
                let settings = lttng::Settings {
                    mode: Mode::Discard,
                    read_timer: (tracer == Tracer::LttngTimer).then_some(READ_TIMER),
                    ..lttng::Settings::new(&self.trace, "bench:*")
                };
                let session = lttng::Session::start(&settings)?;
                let block = self.run(shell::limited(MAX_SECONDS, &Command::new(program)))?;
                (block, Some(session.finish()?))
            }
        };
        let lost = trace.map_or(Ok(0), |trace| self.lost(&trace, block.emitted))?;
        gaps.add(block, lost);
        Ok(())
    }

    fn run(&self, mut command: Command) -> Result<Block> {
        command.args([self.bursts.to_string(), EVENTS.to_string()]);
        let text = shell::capture(&mut command)?;
        Block::parse(&text)
    }

    /// Number of events that did not arrive.
    fn lost(&self, trace: &Path, emitted: u64) -> Result<u64> {
        let (tompion, _) = self.tompion.as_ref().context("counting needs `tompion stat`")?;
        let arrived = tompion.count(trace)?;
        ensure!(arrived > 0, "nothing was recorded");
        programs::remove(trace)?;
        Ok(emitted.saturating_sub(arrived))
    }
}

/// Numbers that the program printed of a block.
struct Block {
    /// Picoseconds, and how many gaps.
    histogram: Vec<(u64, u64)>,
    longest: f64,
    emitted: u64,
    undisturbed: bool,
}

impl Block {
    fn parse(text: &str) -> Result<Self> {
        let line: Value = serde_json::from_str(text.trim()).context("the loop printed no JSON")?;
        let ticks_for_ns = line["ticks_for_ns"].as_f64().filter(|ticks| *ticks > 0.0).context("no time")?;
        let picoseconds = |ticks: u64| ticks as f64 / ticks_for_ns * 1e3;
        let pair = |pair: &Value| {
            let (ticks, count) = pair[0].as_u64().zip(pair[1].as_u64())?;
            Some((picoseconds(ticks).round() as u64, count))
        };
        let pairs = line["histogram"].as_array().context("no histogram")?.iter().map(pair);
        let longest = line["longest"].as_u64().context("no longest gap")?;
        Ok(Self {
            histogram: pairs.collect::<Option<_>>().context("no pairs of numbers")?,
            longest: picoseconds(longest) / 1e3,
            emitted: line["emitted"].as_u64().context("no number of events")?,
            undisturbed: line["fifo"] == 1 && line["locked"] == 1,
        })
    }
}

impl Gaps {
    fn add(&mut self, block: Block, lost: u64) {
        for (picoseconds, count) in block.histogram {
            *self.histogram.entry(picoseconds).or_default() += count;
        }
        self.longest.push(block.longest);
        self.undisturbed = block.undisturbed;
        self.lost += lost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps() -> Gaps {
        let text = r#"{"emitted":1100,"ticks_for_ns":2.0,"fifo":1,"locked":1,"longest":5000,
            "histogram":[[20,900],[40,99],[4096,1]]}"#;
        let mut gaps = Gaps::default();
        gaps.add(Block::parse(text).unwrap(), 0);
        gaps
    }

    #[test]
    fn shares_are_read_from_the_histogram() {
        let gaps = gaps();
        assert_eq!(quantile(&gaps, 0.5), Some(10.0));
        assert_eq!(quantile(&gaps, 0.99), Some(20.0));
        assert_eq!(quantile(&gaps, 0.9999), Some(2048.0));
        assert_eq!(quantile(&gaps, 1.0), Some(2500.0));
        assert_eq!(quantile(&Gaps::default(), 0.5), None);
    }

    #[test]
    fn the_curve_falls_from_one() {
        assert_eq!(statistics::curve(&gaps().histogram, 1e3), [(10.0, 1.0), (20.0, 0.1), (2048.0, 0.001)]);
    }
}
