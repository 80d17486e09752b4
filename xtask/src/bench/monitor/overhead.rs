//! `x bench monitor-overhead`: what the monitor adds to a wake-up and switch, beside ftrace, and what it takes by itself.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::super::kernel::tracers::{State, Tracers, Variant, WAKE_UPS};
use super::super::programs::{self, Program};
use super::super::results::{Figure, Results, Who};
use super::super::tompion::Tompion;
use super::super::{Options, Report, progress};
use super::{build, report};
use crate::shell;
use crate::workspace::Workspace;

const METHOD: &str = "\
Two processes on one CPU wake each other by a byte through a pipe: each wake-up and the switch that follows. In each round, in turns: \
without anything, with the monitor, without, with ftrace (an instance whose rings are a flight recorder: sched_waking, \
sched_switch, hrtimer_start, hrtimer_expire_entry), without, with the monitor and `--threshold 1s`; the differences are the figures. Real-time: the same under SCHED_FIFO 50. \
Then two threads on each CPU sleep a millisecond again and again (`tompion test cyclic`), and the kernel measures how \
long the monitor's programs run; and what `tompion monitor --listen` takes while it is asked every five seconds.\n";

/// Wake-ups with what they cost.
pub const ADDED: &str = "added to a wake-up and switch";
pub const ORDINARY: &str = "ordinary tasks";
pub const REAL_TIME: &str = "real-time tasks";
pub const MONITOR: &str = "Tompion's monitor";
pub const FTRACE: &str = "ftrace, four events";
/// With the programs that look for who made a thread late.
const THRESHOLD: &str = "the monitor with --threshold";
/// What it takes by itself.
pub const TAKEN: &str = "taken by 4 threads of 1 kHz";
pub const PROGRAMS: &str = "programs, % of a core";
pub const READING: &str = "a reading each 5 s, % of a core";
pub const MEMORY: &str = "memory of the process, MiB";

const PAIRS: u64 = 60_000;
const QUICK_PAIRS: u64 = 10_000;
/// Rounds for each repetition.
const ROUNDS: usize = 4;
const MOST_SECONDS: u64 = 60;
const SECONDS: u64 = 30;
const QUICK_SECONDS: u64 = 2;
const READINGS: u32 = 20;
const READING_PERIOD: Duration = Duration::from_secs(5);
/// How long the page may take.
const PATIENCE: Duration = Duration::from_secs(30);

struct Bench {
    tompion: Tompion,
    tracers: Tracers,
    micro: std::path::PathBuf,
    pairs: u64,
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let tompion = Tompion::build(workspace)?.context("Tompion is not there")?;
    let cost = build(workspace, "cost")?;
    let program = Program { name: "micro", sources: &["kernel/micro.c"], flags: &[] };
    let bench = Bench {
        tompion,
        tracers: Tracers::new(None, programs::folder(workspace)?.join("monitor-trace")),
        micro: programs::build(workspace, &program)?,
        pairs: if options.quick { QUICK_PAIRS } else { PAIRS },
    };
    ensure!(
        bench.tracers.can(Who::Ftrace),
        "tracefs has no instances (mount -t tracefs nodev /sys/kernel/tracing)"
    );
    let mut figures = Vec::new();
    for place in [ORDINARY, REAL_TIME] {
        let new = |who, label| Figure::new(ADDED, who, label, place, "ns");
        let (mut ours, mut theirs) = (new(Who::Tompion, MONITOR), new(Who::Ftrace, FTRACE));
        let mut without = new(Who::Plain, "without");
        let mut watched = new(Who::Tompion, THRESHOLD);
        for round in 1..=options.repetitions * ROUNDS {
            progress(&format!("{place}, round {round}/{}", options.repetitions * ROUNDS));
            let before = bench.pair(place)?;
            without.note(Ok(before));
            ours.note(bench.with_monitor(place).map(|with| with - before));
            let before = bench.pair(place)?;
            theirs.note(bench.with_ftrace(place).map(|with| with - before));
            let before = bench.pair(place)?;
            watched.note(bench.with_threshold(place).map(|with| with - before));
        }
        figures.extend([without, ours, watched, theirs]);
    }
    progress("the monitor by itself");
    figures.extend(bench.taken(&cost, if options.quick { QUICK_SECONDS } else { SECONDS })?);
    progress("");
    let results = Results::new("monitor-overhead", options.repetitions, figures)?;
    report::write(workspace, options, &results, None)?;
    Ok(Report { text: results.text(), markdown: results.markdown("What the monitor costs", METHOD), results })
}

impl Bench {
    /// Nanoseconds of a wake-up and switch.
    fn pair(&self, place: &str) -> Result<f64> {
        let mut command = Command::new(&self.micro);
        command.args(["switch", &self.pairs.to_string(), "1"]);
        if place == REAL_TIME {
            let mut chrt = Command::new("chrt");
            chrt.args(["--fifo", "50"]);
            command = shell::wrapped(chrt, &command);
        }
        let text = shell::capture(&mut shell::limited(MOST_SECONDS, &command))?;
        text.trim().parse().with_context(|| format!("no number: {text}"))
    }

    fn with_monitor(&self, place: &str) -> Result<f64> {
        let running = Counting::begin(&self.tompion)?;
        let with = self.pair(place);
        drop(running);
        with
    }

    /// While somebody waits for what never comes.
    fn with_threshold(&self, place: &str) -> Result<f64> {
        let running = Counting::begin(&self.tompion)?;
        let mut command = running.command(&["--threshold", "1s"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut waiting = Serving(child);
        let mut line = String::new();
        BufReader::new(waiting.0.stderr.take().context("no messages")?).read_line(&mut line)?;
        ensure!(line.contains("waiting for wake-ups"), "expected that it waits: {line}");
        self.pair(place)
    }

    fn with_ftrace(&self, place: &str) -> Result<f64> {
        let running = self.tracers.start(Variant::On(Who::Ftrace, State::Recorder), &WAKE_UPS)?;
        let with = self.pair(place);
        if let Some(running) = running {
            running.stop()?;
        }
        with
    }

    fn taken(&self, cost: &std::path::Path, seconds: u64) -> Result<Vec<Figure>> {
        let new = |place: &str, value| {
            let mut figure = Figure::new(TAKEN, Who::Tompion, MONITOR, place, "");
            figure.note(Ok(value));
            figure
        };
        let mut command = Command::new(cost);
        let cyclic = shell::describe(self.tompion.command().args(["test", "cyclic", "--json", "-i", "1ms"]));
        // Two threads on each CPU.
        let both = format!("for i in 1 2; do {cyclic} -p 80 --duration {seconds}s >/dev/null & done; wait");
        command.args(["sh", "-c", &both]);
        let text = shell::capture(&mut shell::limited(seconds + MOST_SECONDS, &command))?;
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [passed, within, wakeups] = numbers[..] else { anyhow::bail!("expected three numbers: {text}") };
        // As many wake-ups as four threads of 1 kHz would have.
        let share = within / wakeups * 4000.0 / 1e9;
        ensure!(wakeups > passed / 1e9 * 1000.0, "only {wakeups} wake-ups in {passed} ns");
        let counting = Counting::begin(&self.tompion)?;
        let (reading, memory) = counting.read()?;
        Ok(vec![
            new(PROGRAMS, share * 100.0),
            new(READING, reading / READING_PERIOD.as_secs_f64() * 100.0),
            new(MEMORY, memory),
        ])
    }
}

/// A monitor of the benchmark's own, which goes with it.
struct Counting<'a> {
    tompion: &'a Tompion,
    name: String,
}

impl<'a> Counting<'a> {
    fn begin(tompion: &'a Tompion) -> Result<Self> {
        let counting = Self { tompion, name: format!("tompion-bench-{}", std::process::id()) };
        shell::run_quietly(&mut counting.command(&["--once"]))?;
        Ok(counting)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.tompion.command();
        command.args(["monitor", "--name", &self.name]).args(words);
        command
    }

    /// Seconds of processor time that a reading of the page takes, and the process's memory in MiB.
    fn read(&self) -> Result<(f64, f64)> {
        let mut command = self.command(&["--listen", "127.0.0.1:0"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut serving = Serving(child);
        let output = serving.0.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.with_context(|| format!("no address: {line}"))?;
        // The first one touches memory for the first time.
        ask(address)?;
        let before = serving.seconds()?;
        for _ in 0..READINGS {
            ask(address)?;
        }
        Ok(((serving.seconds()? - before) / f64::from(READINGS), serving.memory()?))
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        let mut stop = self.tompion.command();
        if let Err(error) = shell::run_quietly(stop.args(["monitor", "stop", "--name", &self.name])) {
            eprintln!("{error:#}");
        }
    }
}

fn ask(address: &str) -> Result<()> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
    let (mut text, begin) = (String::new(), Instant::now());
    connection.read_to_string(&mut text)?;
    ensure!(text.contains("tompion_wakeups_begun_total"), "no page after {:?}", begin.elapsed());
    Ok(())
}

/// The process that answers.
struct Serving(Child);

impl Serving {
    /// Processor time so far, from `/proc/PID/schedstat`, which has nanoseconds.
    fn seconds(&self) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.0.id()))?;
        let ns: f64 = text.split(' ').next().context("no schedstat")?.parse()?;
        Ok(ns / 1e9)
    }

    fn memory(&self) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
