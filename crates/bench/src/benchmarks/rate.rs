//! `x bench rate`: the highest rate that is recorded without loss.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::lttng::{self, Daemon};
use super::results::{Figure, Results, Who};
use super::tompion::{self, Source, Tompion};
use super::{Buffers, Mode, Options, Report, count, programs, progress};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

const METHOD: &str = "\
Million events a second, two 8-byte fields each, without contexts, all producers together, at which nothing is \
lost: by halving the interval between a rate that was borne and one that was not, down to 6 %. Each trial \
lasts 1.5 s; a producer, pinned to a CPU of its own, emits its share in each millisecond and sleeps for the rest \
of it. A rate is borne if the trace has all events and the producer was not late by more than 5 %. The \
recorder has the CPU time that producers leave, on the same CPUs. Both have four equal sub-buffers for each \
CPU: of 8 MiB, and of 1 MiB, which are full after some milliseconds at these rates, so that they show for how long the \
machine keeps the recorder from running (a hypervisor stops a processor for 14 ms at times) more than what the recorder \
can do. Searches are interleaved (Tompion, LTTng, Tompion, …). Events were counted by `tompion stat`, at the end of \
each search also by babeltrace2. Then 0.9 of the least rate is tried for six seconds: `held`. On disk, \
that is in the kernel's page cache for the most part, as it is for every recorder that does not wait for its disk.\n";

const MILLISECONDS: u64 = 1_500;
const QUICK_MILLISECONDS: u64 = 150;
const HELD_MILLISECONDS: u64 = 6_000;
/// A run that takes longer hangs.
const MAX_SECONDS: u64 = 60;
const MAX_REPETITIONS: usize = 3;
/// Events a second at which a first search begins.
const FIRST_GUESS: f64 = 2e6;
/// Nothing lies beyond these.
const BOUNDS: (f64, f64) = (1e4, 2e8);
/// Ratio of the rate that is borne and the one that is not, at which a search ends.
const NEAR: f64 = 1.06;
const QUICK_NEAR: f64 = 2.0;
/// Ratio by which a producer may be later than planned at the end.
const STRETCHED: f64 = 1.05;
/// Share of the least found rate that is held for longer.
const HELD: f64 = 0.9;
/// Events that babeltrace2 counts in bearable time.
const COUNTABLE: f64 = 2e7;

/// Search for the best rate of one recorder under one condition.
struct Search {
    who: Who,
    producers: usize,
    output: Output,
    best: Option<f64>,
    rate: Figure,
    held: Figure,
}

/// Destination of a trace, and its medium.
#[derive(Clone)]
struct Output {
    folder: PathBuf,
    buffers: Buffers,
    /// Name of both in tables.
    name: &'static str,
}

const LARGE: Buffers = Buffers { size: "8M", count: "4" };

struct Bench {
    tompion: (Tompion, PathBuf),
    lttng: Option<(Daemon, PathBuf)>,
    quick: bool,
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let bench = Bench::prepare(workspace, options)?;
    let repetitions = options.repetitions.min(MAX_REPETITIONS);
    let mut searches = bench.searches(workspace)?;
    for repetition in 1..=repetitions {
        for search in &mut searches {
            progress(&format!("repetition {repetition}/{repetitions}: {}", search.name()));
            let found = bench.search(search);
            match &found {
                Ok(best) => search.best = Some(*best),
                Err(_) => bench.revive(),
            }
            search.rate.note(found.map(|rate| rate / 1e6));
        }
    }
    if !options.quick {
        for search in &mut searches {
            progress(&format!("held: {}", search.name()));
            let held = bench.hold(search);
            search.held.note(held.map(|rate| rate / 1e6));
        }
    }
    progress("");
    let (rates, held): (Vec<_>, Vec<_>) =
        searches.into_iter().map(|search| (search.rate, search.held)).unzip();
    let held = held.into_iter().filter(|figure| !figure.values.is_empty() || figure.failure.is_some());
    let results = Results::new("rate", repetitions, rates.into_iter().chain(held).collect())?;
    let markdown = results.markdown("The highest rate without loss", METHOD);
    Ok(Report { text: results.text(), markdown, results })
}

impl Search {
    fn new(who: Who, producers: usize, output: Output) -> Self {
        let label = if who == Who::Lttng { "LTTng-UST" } else { "Tompion" };
        let plural = if producers == 1 { "" } else { "s" };
        let place = format!("{producers} producer{plural}, {}", output.name);
        let figure = |group| Figure::new(group, who, label, &place, "million events a second");
        let (rate, held) = (figure("without loss for 1.5 s"), figure("held for 6 s"));
        Self { who, producers, output, best: None, rate, held }
    }

    fn name(&self) -> String {
        format!("{}, {}", self.rate.label, self.rate.at)
    }
}

impl Bench {
    fn prepare(workspace: &Workspace, options: &Options) -> Result<Self> {
        let build = |name, source, flags: &[String]| {
            let sources = &["rate/paced.c", "event/values.c", source];
            programs::build(workspace, &programs::Program { name, sources, flags })
        };
        let tompion = Tompion::build(workspace)?.context("Tompion is not there")?;
        let ours = build("paced-tompion", "event/tompion.c", &programs::tompion_flags(workspace))?;
        let lttng = match Daemon::if_installed() {
            Some(daemon) => Some((daemon, build("paced-lttng", "event/lttng.c", &programs::lttng_flags())?)),
            None => None,
        };
        Ok(Self { tompion: (tompion, ours), lttng, quick: options.quick })
    }

    fn searches(&self, workspace: &Workspace) -> Result<Vec<Search>> {
        let disk = programs::folder(workspace)?.join("rate-trace");
        let memory = programs::memory_folder(workspace)?.join("rate-trace");
        let outputs = [
            Output { folder: disk.clone(), buffers: LARGE, name: "to disk, 4 × 8 MiB" },
            Output { folder: disk, buffers: Buffers::USUAL, name: "to disk, 4 × 1 MiB" },
            Output { folder: memory, buffers: LARGE, name: "to memory, 4 × 8 MiB" },
        ];
        let most_producers = std::thread::available_parallelism().map_or(1, usize::from).min(2);
        let mut searches = Vec::new();
        for output in outputs {
            for producers in 1..=most_producers {
                searches.push(Search::new(Who::Tompion, producers, output.clone()));
                if self.lttng.is_some() {
                    searches.push(Search::new(Who::Lttng, producers, output.clone()));
                }
            }
        }
        Ok(searches)
    }

    fn revive(&self) {
        if let Some(Err(error)) = self.lttng.as_ref().map(|(daemon, _)| daemon.make_sure()) {
            eprintln!("{error:#}");
        }
    }

    /// The highest rate that is borne, near enough.
    fn search(&self, search: &Search) -> Result<f64> {
        let near = if self.quick { QUICK_NEAR } else { NEAR };
        let milliseconds = if self.quick { QUICK_MILLISECONDS } else { MILLISECONDS };
        let (guess, step) = search.best.map_or((FIRST_GUESS, 2.0), |best| (best, 1.25));
        let trial = |rate: f64| self.is_borne(search, rate, milliseconds);
        let best = highest(guess, step, near, trial)?;
        // Our own reader must not be alone in what it says.
        if best * HELD * (milliseconds as f64) / 1e3 <= COUNTABLE {
            self.compare_counts(search, best * HELD, milliseconds)?;
        }
        Ok(best)
    }

    /// Has babeltrace2 count what `tompion stat` counts.
    fn compare_counts(&self, search: &Search, rate: f64, milliseconds: u64) -> Result<()> {
        let (emitted, _) = self.record(search, rate, milliseconds)?;
        let (theirs, ours) =
            (count::events(&search.output.folder)?, self.tompion.0.count(&search.output.folder)?);
        programs::remove(&search.output.folder)?;
        ensure!(theirs == ours, "babeltrace2 counted {theirs} events, `tompion stat` {ours}, of {emitted}");
        Ok(())
    }

    /// A rate that is borne for longer: a little less than the least that was found, or less than
    /// that.
    fn hold(&self, search: &Search) -> Result<f64> {
        let least = search.rate.values.first().context("no rate was found")? * 1e6;
        for share in [HELD, HELD * HELD, 0.5 * HELD] {
            if self.is_borne(search, least * share, HELD_MILLISECONDS)? {
                return Ok(least * share);
            }
        }
        anyhow::bail!("not even half of it was held")
    }

    /// Tries one rate. Returns whether all events arrived and the producer kept its pace.
    fn is_borne(&self, search: &Search, rate: f64, milliseconds: u64) -> Result<bool> {
        let (emitted, stretched) = self.record(search, rate, milliseconds)?;
        let arrived = self.tompion.0.count(&search.output.folder)?;
        programs::remove(&search.output.folder)?;
        ensure!(arrived > 0, "nothing was recorded");
        ensure!(arrived <= emitted, "{arrived} events of {emitted} arrived");
        Ok(arrived == emitted && stretched <= STRETCHED)
    }

    /// Emits at this rate and records; returns the number of events, and how late the producer was.
    fn record(&self, search: &Search, rate: f64, milliseconds: u64) -> Result<(u64, f64)> {
        let (trace, buffers): (&Path, _) = (&search.output.folder, search.output.buffers);
        let words =
            ["fields_2".into(), search.producers.to_string(), format!("{rate:.0}"), milliseconds.to_string()];
        let text = if search.who == Who::Lttng {
            let (_, program) = self.lttng.as_ref().context("LTTng is not there")?;
            let settings = lttng::Settings {
                mode: Mode::Discard,
                buffers: Some(buffers),
                ..lttng::Settings::new(trace, "bench:*")
            };
            let session = lttng::Session::start(&settings)?;
            let text = shell::capture(&mut shell::limited(MAX_SECONDS, Command::new(program).args(words)))?;
            session.finish()?;
            text
        } else {
            let (tompion, program) = &self.tompion;
            let mut command = tompion.record(&tompion::Settings {
                mode: Mode::Discard,
                tid: false,
                buffers: Some(buffers),
                ..tompion::Settings::new(trace, Source::Events("bench:*"))
            })?;
            shell::capture(command.arg(program).args(words))?
        };
        let line: Value = serde_json::from_str(text.trim()).context("the producer printed no JSON")?;
        let reported = line["emitted"].as_u64().zip(line["stretched"].as_f64());
        reported.context("the producer did not tell what it emitted")
    }
}

/// The highest rate that is borne, by doubling or halving from a guess, then by halving the
/// interval.
fn highest(guess: f64, step: f64, near: f64, mut is_borne: impl FnMut(f64) -> Result<bool>) -> Result<f64> {
    let (mut borne, mut too_much) = (None, None);
    let mut rate = guess;
    let mut step = step;
    loop {
        if is_borne(rate)? {
            borne = Some(rate);
        } else {
            too_much = Some(rate);
        }
        rate = match (borne, too_much) {
            (Some(low), Some(high)) if high / low <= near => return Ok(low),
            (Some(low), Some(high)) => (low * high).sqrt(),
            (Some(low), None) if low >= BOUNDS.1 => return Ok(low),
            (Some(low), None) => low * step,
            (None, high) => {
                let high = high.unwrap_or(guess);
                ensure!(high > BOUNDS.0, "not even {:.0} events a second arrive", BOUNDS.0);
                high / step
            }
        };
        // A guess that was far off is left faster.
        step = step.max(1.25) * if borne.is_some() && too_much.is_some() { 1.0 } else { 1.2 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_found_from_any_guess() {
        for guess in [1e5, 3e6, 5e7] {
            let mut trials = 0;
            let found = highest(guess, 2.0, NEAR, |rate| {
                trials += 1;
                Ok(rate <= 4e6)
            });
            let found = found.unwrap();
            assert!((4e6 / NEAR..=4e6).contains(&found), "{found} from {guess}");
            assert!(trials <= 14, "{trials} trials from {guess}");
        }
    }

    #[test]
    fn a_recorder_that_bears_nothing_is_an_error() {
        assert!(highest(1e6, 2.0, NEAR, |_| Ok(false)).is_err());
    }
}
