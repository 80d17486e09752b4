//! `x bench memory`: what recording adds to a program's memory, and what the recorder's own
//! processes take.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::lttng::{self, Daemon};
use super::results::{Figure, Results, Who};
use super::tompion::{self, Source, Tompion, WITHOUT_RSEQ};
use super::{Mode, Options, Report, count, programs, progress};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

const METHOD: &str = "\
A program with one or two busy threads, each on a CPU of its own, a million events a second each; both \
recorders with their default settings, to disk. With one thread, the whole process stays on one CPU. After the events, with everything still there, the kernel \
tells the memory (`smaps_rollup`): RSS is all that a process has in memory, PSS the same with shared pages \
divided among those who share them. Added is what the program has more than the same program built without \
any tracer. Recorders: `tompion record`; LTTng's session daemon, consumer and their helpers.\n";

const MILLISECONDS: &str = "1500";
const QUICK_MILLISECONDS: &str = "300";
/// A run that takes longer hangs.
const MAX_SECONDS: u64 = 60;
/// Memory hardly varies.
const MAX_REPETITIONS: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tracer {
    Plain,
    TompionIdle,
    Tompion,
    Fallback,
    LttngIdle,
    Lttng,
}

const ALL: [Tracer; 6] =
    [Tracer::Plain, Tracer::TompionIdle, Tracer::Tompion, Tracer::Fallback, Tracer::LttngIdle, Tracer::Lttng];

impl Tracer {
    const fn who(self) -> Who {
        match self {
            Self::Plain => Who::Plain,
            Self::TompionIdle | Self::Tompion => Who::Tompion,
            Self::Fallback => Who::Fallback,
            Self::LttngIdle | Self::Lttng => Who::Lttng,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Plain => "no tracer",
            Self::TompionIdle => "Tompion, not recorded",
            Self::Tompion => "Tompion",
            Self::Fallback => "Tompion without rseq",
            Self::LttngIdle => "LTTng-UST, not recorded",
            Self::Lttng => "LTTng-UST",
        }
    }

    const fn is_recorded(self) -> bool {
        matches!(self, Self::Tompion | Self::Fallback | Self::Lttng)
    }
}

/// RSS and PSS of the program and of the recorder's processes, in MiB.
#[derive(Default)]
struct Memory {
    own: [f64; 2],
    recorder: [f64; 2],
}

struct Bench {
    trace: PathBuf,
    plain: PathBuf,
    tompion: Option<(Tompion, PathBuf)>,
    lttng: Option<(Daemon, PathBuf)>,
    milliseconds: &'static str,
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let bench = Bench::prepare(workspace, options)?;
    let repetitions = options.repetitions.min(MAX_REPETITIONS);
    let most_threads = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    let mut figures = Vec::new();
    for repetition in 1..=repetitions {
        for threads in 1..=most_threads {
            let mut plain = None;
            for tracer in ALL.into_iter().filter(|tracer| bench.can(*tracer)) {
                progress(&format!("repetition {repetition}/{repetitions}: {}", tracer.label()));
                let memory = bench.measure(tracer, threads);
                if let (Tracer::Plain, Ok(memory)) = (tracer, &memory) {
                    plain = Some(memory.own);
                }
                if let (Err(_), Some((daemon, _))) = (&memory, &bench.lttng) {
                    daemon.make_sure()?;
                }
                note(&mut figures, (tracer, threads), memory, plain);
            }
        }
    }
    progress("");
    figures.sort_by_key(|figure: &Figure| GROUPS.iter().position(|group| *group == figure.group));
    let results = Results::new("memory", repetitions, figures)?;
    Ok(Report { text: results.text(), markdown: results.markdown("Memory", METHOD), results })
}

const ADDED: &str = "added to the program's RSS by recording";
const GROUPS: [&str; 4] = [
    ADDED,
    "added to the program's PSS by recording",
    "recorder's processes, RSS",
    "recorder's processes, PSS",
];

/// Enters a measurement into the figures that it is for.
fn note(figures: &mut Vec<Figure>, which: (Tracer, usize), memory: Result<Memory>, plain: Option<[f64; 2]>) {
    let (tracer, threads) = which;
    let place = if threads == 1 { "1 busy thread".into() } else { format!("{threads} busy threads") };
    let mut enter = |group: &str, value: Result<f64>| {
        let is_it =
            |figure: &Figure| figure.group == group && figure.label == tracer.label() && figure.at == place;
        let index = figures.iter().position(is_it).unwrap_or_else(|| {
            figures.push(Figure::new(group, tracer.who(), tracer.label(), &place, "MiB"));
            figures.len() - 1
        });
        figures[index].note(value);
    };
    if tracer == Tracer::Plain {
        return;
    }
    match (memory, plain) {
        (Ok(memory), Some(plain)) => {
            for kind in 0..2 {
                enter(GROUPS[kind], Ok(memory.own[kind] - plain[kind]));
                if tracer.is_recorded() {
                    enter(GROUPS[2 + kind], Ok(memory.recorder[kind]));
                }
            }
        }
        (Err(error), _) => enter(ADDED, Err(error)),
        (Ok(_), None) => enter(ADDED, Err(anyhow::anyhow!("the plain program failed"))),
    }
}

impl Bench {
    fn prepare(workspace: &Workspace, options: &Options) -> Result<Self> {
        let build = |name, source, flags: &[String]| {
            let sources = &["memory/busy.c", "event/values.c", source];
            programs::build(workspace, &programs::Program { name, sources, flags })
        };
        let plain = build("busy-plain", "memory/plain.c", &[])?;
        let tompion = match Tompion::build(workspace)? {
            Some(tompion) => {
                let flags = programs::tompion_flags(workspace);
                Some((tompion, build("busy-tompion", "event/tompion.c", &flags)?))
            }
            None => None,
        };
        let lttng = match Daemon::if_installed() {
            Some(daemon) => Some((daemon, build("busy-lttng", "event/lttng.c", &programs::lttng_flags())?)),
            None => None,
        };
        let milliseconds = if options.quick { QUICK_MILLISECONDS } else { MILLISECONDS };
        Ok(Self {
            trace: programs::folder(workspace)?.join("memory-trace"),
            plain,
            tompion,
            lttng,
            milliseconds,
        })
    }

    fn can(&self, tracer: Tracer) -> bool {
        match tracer.who() {
            Who::Plain | Who::Babeltrace | Who::Ftrace | Who::Perf | Who::Strace | Who::Cyclictest => true,
            Who::Tompion | Who::Fallback => self.tompion.is_some(),
            Who::Lttng => self.lttng.is_some(),
        }
    }

    fn measure(&self, tracer: Tracer, threads: usize) -> Result<Memory> {
        let ours = || self.tompion.as_ref().context("Tompion is not built");
        let theirs = || self.lttng.as_ref().context("LTTng is not there");
        let trace = self.trace.as_path();
        match tracer {
            Tracer::Plain => self.run(alone(&self.plain, threads), threads, ""),
            Tracer::TompionIdle => self.run(alone(&ours()?.1, threads), threads, ""),
            Tracer::LttngIdle => self.run(alone(&theirs()?.1, threads), threads, ""),
            Tracer::Tompion | Tracer::Fallback => {
                let (tompion, program) = ours()?;
                let mut command = tompion.record(&tompion::Settings {
                    mode: Mode::Discard,
                    buffers: None,
                    ..tompion::Settings::new(trace, Source::Events("bench:*"))
                })?;
                if tracer == Tracer::Fallback {
                    command.args(WITHOUT_RSEQ);
                }
                command.args(words(program, threads));
                recorded(self.run(command, threads, "parent")?, trace)
            }
            Tracer::Lttng => {
                let settings = lttng::Settings {
                    mode: Mode::Discard,
                    buffers: None,
                    ..lttng::Settings::new(trace, "bench:*")
                };
                let session = lttng::Session::start(&settings)?;
                let memory = self.run(alone(&theirs()?.1, threads), threads, "lttng-")?;
                recorded(memory, &session.finish()?)
            }
        }
    }

    fn run(&self, mut command: Command, threads: usize, others: &str) -> Result<Memory> {
        command.args(["fields_2", &threads.to_string(), self.milliseconds]);
        command.args(Some(others).filter(|others| !others.is_empty()));
        let text = shell::capture(&mut command)?;
        let mut memory = Memory::default();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
            let kib = |name: &str| line[name].as_f64().with_context(|| format!("no {name}"));
            let place = if line["process"] == "self" { &mut memory.own } else { &mut memory.recorder };
            place[0] += kib("rss_kib")? / 1024.0;
            place[1] += kib("pss_kib")? / 1024.0;
        }
        ensure!(memory.own[0] > 0.0, "the program did not tell its memory");
        ensure!(others.is_empty() || memory.recorder[0] > 0.0, "the recorder's memory can't be read");
        Ok(memory)
    }
}

/// The program's command line; one with a single thread stays on one CPU from its beginning, so
/// that the others are never used.
fn words(program: &Path, threads: usize) -> Vec<OsString> {
    let pinned = if threads == 1 { &["taskset", "--cpu-list", "0"][..] } else { &[] };
    pinned.iter().map(OsString::from).chain([program.into()]).collect()
}

/// The program without a recorder around it.
fn alone(program: &Path, threads: usize) -> Command {
    let words = words(program, threads);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    shell::limited(MAX_SECONDS, &command)
}

/// Makes sure that something was recorded, then removes it.
fn recorded(memory: Memory, trace: &Path) -> Result<Memory> {
    ensure!(count::events(trace)? > 0, "nothing was recorded");
    programs::remove(trace)?;
    Ok(memory)
}
