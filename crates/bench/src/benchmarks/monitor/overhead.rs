//! `x bench monitor-overhead`: what the monitor adds to a wake-up and switch, beside ftrace, and
//! what it takes by itself.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::kernel::tracers::{Running, State, Tracers, Variant as Tracer, WAKE_UPS};
use super::super::programs::{self, Program};
use super::super::results::{Figure, Results, Who};
use super::super::tompion::Tompion;
use super::super::{Options, Report, progress};
use super::counting::{Counting, Serving};
use super::{build, report};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

const METHOD: &str = "\
Two processes on one CPU wake each other by a byte through a pipe: each wake-up and the switch that follows; the CPU never idles in between. \
In each round, in random order: without anything, with the monitor, with the monitor and `--threshold 1s`, with ftrace (an \
instance whose rings are a flight recorder: sched_waking, sched_switch, hrtimer_start, hrtimer_expire_entry); a fifth of a second each, \
of which the lower quartile of a hundred parts is taken. Under SCHED_OTHER the woken process runs before the other one sleeps, so that \
a switch has about half a wake-up; under SCHED_BATCH and SCHED_FIFO (50, real-time) each has one. What is added: the difference to the \
same round without anything. Then the kernel measures how long each of the monitor's programs runs, for the same pairs, and for two \
threads on each CPU that sleep a millisecond again and again (`tompion test cyclic`); and what `tompion monitor --listen` takes while \
it is asked every five seconds, and how much memory with `--history`, too.\n";

/// Duration of a wakeup and switch, and the differences to the same rounds without anything.
pub const PAIR: &str = "a wake-up and switch";
pub const ADDED: &str = "added to a wake-up and switch";
pub const ORDINARY: &str = "ordinary tasks";
/// Place where each switch has a wakeup.
pub const BATCH: &str = "ordinary tasks, SCHED_BATCH";
pub const REAL_TIME: &str = "real-time tasks";
/// Places of the measurement, and the program's word for each.
pub const PLACES: [(&str, &str); 3] = [(ORDINARY, "other"), (BATCH, "batch"), (REAL_TIME, "50")];
pub const WITHOUT: &str = "without";
pub const MONITOR: &str = "Tompion's monitor";
pub const FTRACE: &str = "ftrace, four events";
/// Variant with the programs that attribute late wakeups.
pub const THRESHOLD: &str = "the monitor with --threshold";
/// Run time of its programs, by the kernel's own measure.
pub const RUN_TIME: &str = "a run of each program";
const CYCLIC: &str = "threads of 1 kHz";
/// Resources that it takes by itself.
pub const TAKEN: &str = "taken by 4 threads of 1 kHz";
pub const PROGRAMS: &str = "programs, % of a core";
pub const READING: &str = "a reading each 5 s, % of a core";
pub const MEMORY: &str = "memory of the process, MiB";
pub const MEMORY_WITH_HISTORY: &str = "memory with a history, MiB";
/// Of one process that did all of it: began to count, keeps a history, and waits for late ones.
pub const MEMORY_OF_ALL: &str = "memory of the first process, with a history and --threshold, MiB";

/// Parts of a measurement, each of a thousand pairs.
const CHUNKS: u32 = 100;
const QUICK_CHUNKS: u32 = 10;
/// Rounds for each repetition.
const ROUNDS: usize = 4;
/// A program that runs fewer times has no mean worth telling.
const FEWEST_RUNS: f64 = 1000.0;
const MAX_SECONDS: u64 = 60;
const SECONDS: u64 = 30;
const QUICK_SECONDS: u64 = 2;
const READINGS: u32 = 20;
const READING_PERIOD: Duration = Duration::from_secs(5);

/// Variant that runs in the background.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Without,
    Monitor,
    Threshold,
    Ftrace,
}

impl Variant {
    const ALL: [Self; 4] = [Self::Without, Self::Monitor, Self::Threshold, Self::Ftrace];

    const fn figure(self) -> (Who, &'static str) {
        match self {
            Self::Without => (Who::Plain, WITHOUT),
            Self::Monitor => (Who::Tompion, MONITOR),
            Self::Threshold => (Who::Tompion, THRESHOLD),
            Self::Ftrace => (Who::Ftrace, FTRACE),
        }
    }

    /// Returns all variants in random order.
    fn shuffled() -> [Self; 4] {
        let (mut all, chance) = (Self::ALL, RandomState::new());
        all.sort_by_cached_key(|variant| chance.hash_one(*variant as u8));
        all
    }
}

/// Processes started for a variant: they end with this, from the first field to the last.
struct Started<'a> {
    _waiting: Option<Serving>,
    _counting: Option<Counting<'a>>,
    tracing: Option<Running>,
}

struct Bench {
    tompion: Tompion,
    tracers: Tracers,
    pairs: PathBuf,
    chunks: u32,
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let tompion = Tompion::build(workspace)?.context("Tompion is not there")?;
    let cost = build(workspace, "cost")?;
    let program = Program { name: "pairs", sources: &["monitor/pairs.c"], flags: &[] };
    let bench = Bench {
        tompion,
        tracers: Tracers::new(None, programs::folder(workspace)?.join("monitor-trace")),
        pairs: programs::build(workspace, &program)?,
        chunks: if options.quick { QUICK_CHUNKS } else { CHUNKS },
    };
    ensure!(
        bench.tracers.can(Who::Ftrace),
        "tracefs has no instances (mount -t tracefs nodev /sys/kernel/tracing)"
    );
    let mut figures = bench.rounds(options.repetitions * ROUNDS)?;
    progress("the monitor by itself");
    let seconds = if options.quick { QUICK_SECONDS } else { SECONDS };
    figures.extend(bench.taken(&cost, seconds)?);
    figures.extend(bench.looked_at(&programs::folder(workspace)?)?);
    progress("");
    let results = Results::new("monitor-overhead", options.repetitions, figures)?;
    report::write(workspace, options, &results, None)?;
    let text = report::added_table(&results).text() + &results.text();
    Ok(Report { text, markdown: results.markdown("What the monitor costs", METHOD), results })
}

impl Bench {
    /// Pairs with and without everything, in so many rounds.
    fn rounds(&self, rounds: usize) -> Result<Vec<Figure>> {
        let mut pairs = Vec::new();
        for (place, how) in PLACES {
            pairs.push((place, Pairs::start(&self.pairs, how)?));
        }
        let new = |group, variant: Variant, place| {
            let (who, label) = variant.figure();
            Figure::new(group, who, label, place, "ns")
        };
        let each = |group| PLACES.map(|(place, _)| Variant::ALL.map(|variant| new(group, variant, place)));
        let (mut took, mut added) = (each(PAIR), each(ADDED));
        for round in 1..=rounds {
            progress(&format!("round {round}/{rounds}"));
            let mut of_round = PLACES.map(|_| Variant::ALL.map(|_| 0.0));
            for variant in Variant::shuffled() {
                let started = self.start(variant)?;
                for (place, (_, pairs)) in pairs.iter_mut().enumerate() {
                    of_round[place][variant as usize] = pairs.measure(self.chunks)?;
                }
                if let Some(tracing) = started.tracing {
                    tracing.stop()?;
                }
            }
            for (place, values) in of_round.iter().enumerate() {
                for (variant, value) in values.iter().enumerate() {
                    took[place][variant].note(Ok(*value));
                    added[place][variant].note(Ok(value - values[Variant::Without as usize]));
                }
            }
        }
        let added = added.into_iter().flat_map(|place| place.into_iter().skip(1));
        Ok(took.into_iter().flatten().chain(added).collect())
    }

    fn start(&self, variant: Variant) -> Result<Started<'_>> {
        let mut started = Started { _waiting: None, _counting: None, tracing: None };
        match variant {
            Variant::Without => {}
            Variant::Ftrace => {
                started.tracing = self.tracers.start(Tracer::On(Who::Ftrace, State::Recorder), &WAKE_UPS)?;
            }
            Variant::Monitor => started._counting = Some(Counting::begin(&self.tompion)?),
            Variant::Threshold => {
                let counting = Counting::begin(&self.tompion)?;
                started._waiting = Some(counting.wait_for_late_ones()?);
                started._counting = Some(counting);
            }
        }
        Ok(started)
    }

    /// Kernel's counts of the programs, while pairs are measured, and while threads sleep.
    fn taken(&self, cost: &Path, seconds: u64) -> Result<Vec<Figure>> {
        let mut figures = Vec::new();
        for (place, how) in PLACES {
            let pairs = format!("echo {} | {} {} {how}", self.chunks, self.pairs.display(), last_cpu());
            let (_, programs) = measured(cost, &pairs, MAX_SECONDS)?;
            figures.extend(run_times(place, &programs));
        }
        let cyclic = shell::describe(self.tompion.command().args(["test", "cyclic", "--json", "-i", "1ms"]));
        // Two threads on each CPU.
        let both = format!("for i in 1 2; do {cyclic} -p 80 --duration {seconds}s >/dev/null & done; wait");
        let ((passed, wakeups), programs) = measured(cost, &both, seconds + MAX_SECONDS)?;
        figures.extend(run_times(CYCLIC, &programs));
        ensure!(wakeups > passed / 1e9 * 1000.0, "only {wakeups} wake-ups in {passed} ns");
        let within: f64 = programs.iter().map(|program| program.ns).sum();
        // As many wake-ups as four threads of 1 kHz would have.
        let share = within / wakeups * 4000.0 / 1e9;
        figures.push(by_itself(PROGRAMS, share * 100.0));
        Ok(figures)
    }

    /// Cost of reading it.
    fn looked_at(&self, folder: &Path) -> Result<[Figure; 4]> {
        const METRICS: &str = "/metrics";
        let counting = Counting::begin(&self.tompion)?;
        let serving = counting.serve(&[])?;
        // The first one touches memory for the first time.
        serving.ask(METRICS)?;
        let before = serving.seconds()?;
        for _ in 0..READINGS {
            serving.ask(METRICS)?;
        }
        let reading = (serving.seconds()? - before) / f64::from(READINGS);
        let memory = serving.memory("VmHWM")?;
        drop(serving);
        let file = folder.join("overhead.sqlite");
        let _ = std::fs::remove_file(&file);
        let keeping = counting.serve(&[&format!("--history={}", file.display())])?;
        keeping.ask(METRICS)?;
        let with_history = keeping.memory("VmHWM")?;
        drop((keeping, counting));
        let counting = Counting::planned(&self.tompion);
        let beginning = counting.serve(&[&format!("--history={}", file.display()), "--threshold", "1s"])?;
        beginning.ask(METRICS)?;
        let of_all = beginning.memory("VmRSS")?;
        drop((beginning, counting));
        let _ = std::fs::remove_file(&file);
        Ok([
            by_itself(READING, reading / READING_PERIOD.as_secs_f64() * 100.0),
            by_itself(MEMORY, memory),
            by_itself(MEMORY_WITH_HISTORY, with_history),
            by_itself(MEMORY_OF_ALL, of_all),
        ])
    }
}

fn by_itself(place: &str, value: f64) -> Figure {
    let mut figure = Figure::new(TAKEN, Who::Tompion, MONITOR, place, "");
    figure.note(Ok(value));
    figure
}

/// Run time of a program.
struct RunTime {
    name: String,
    runs: f64,
    ns: f64,
}

/// Runs a command of the shell's. How many nanoseconds passed and how many real-time threads were
/// woken, and what the kernel measured of each program.
fn measured(cost: &Path, words: &str, most_seconds: u64) -> Result<((f64, f64), Vec<RunTime>)> {
    let mut command = Command::new(cost);
    command.args(["sh", "-c", words]);
    let text = shell::capture(&mut shell::limited(most_seconds, &command))?;
    let (mut all, mut programs) = (None, Vec::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["all", passed, wakeups] => all = Some((passed.parse()?, wakeups.parse()?)),
            ["program", name, runs, ns] => {
                programs.push(RunTime { name: name.into(), runs: runs.parse()?, ns: ns.parse()? });
            }
            // What the command itself says.
            _ => {}
        }
    }
    Ok((all.with_context(|| format!("expected what passed: {text}"))?, programs))
}

/// Nanoseconds of a run, of the programs that ran often enough.
fn run_times(label: &str, programs: &[RunTime]) -> Vec<Figure> {
    let figure = |program: &RunTime| {
        let mut figure = Figure::new(RUN_TIME, Who::Tompion, label, &program.name, "ns");
        figure.note(Ok(program.ns / program.runs));
        figure
    };
    programs.iter().filter(|program| program.runs >= FEWEST_RUNS).map(figure).collect()
}

/// The first one has more interrupts.
fn last_cpu() -> usize {
    std::thread::available_parallelism().map_or(0, |count| count.get() - 1)
}

/// Two processes that wait to be told to wake each other.
struct Pairs {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Pairs {
    fn start(program: &Path, how: &str) -> Result<Self> {
        let mut command = Command::new(program);
        command.args([&last_cpu().to_string(), how]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, input, output })
    }

    /// Nanoseconds of a wake-up and switch.
    fn measure(&mut self, chunks: u32) -> Result<f64> {
        writeln!(self.input, "{chunks}").context("the pair of processes has ended (real-time needs root)")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.trim().parse().with_context(|| format!("no number: {line}"))
    }
}

impl Drop for Pairs {
    fn drop(&mut self) {
        // The other one ends when its pipe does.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
