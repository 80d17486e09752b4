//! `x bench read`: how fast traces are counted and printed.

mod lengthen;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::results::{Figure, Results, Who};
use super::tompion::{Settings, Source, Tompion};
use super::{Mode, Options, Report, count, programs, progress};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

const METHOD: &str = "\
Million events a second, whole processes, traces in memory, output to nowhere. The traces are of LTTng's kernel tracer \
(`many-threads`, eight streams), of LTTng-UST (`ros2`, four streams, with the contexts vtid, vpid and procname) and \
Tompion's own (`find /usr` with its allocations). Each is made long by copies that are later by a multiple of 2³² \
cycles. babeltrace2 and `tompion` are pinned to one CPU. babeltrace2 counts with `-o dummy`, which decodes each event, \
and `tompion` with `stat`, which doesn't. Both count as many events, and print the same text (but for babeltrace2's \
error with empty texts). What two CPUs bring is measured with traces four times as long, since starting a process and \
reading a description is nothing they could share. *Two processes* read a trace each, one on each CPU: so much and no \
more the machine gives to two threads that have nothing to do with each other.\n";

/// Folder of real traces of other tracers, beside the repository.
const CORPUS: &str = "../shared/ctf-corpus";
/// A trace has at least so many events.
const EVENTS: u64 = 5_000_000;
const QUICK_EVENTS: u64 = 300_000;
/// Factor by which traces for two CPUs are longer.
const LONGER: u64 = 4;

/// A trace that was made long.
struct Trace {
    name: &'static str,
    short: Long,
    long: Long,
}

/// Copies of a trace.
struct Long {
    folder: PathBuf,
    events: u64,
}

/// CPUs on which processes run.
#[derive(Clone, Copy, PartialEq)]
enum Where {
    /// One process on one CPU.
    One,
    /// One process on two CPUs.
    Two,
    /// A process on each of two CPUs.
    Each,
}

/// Task on a trace.
#[derive(Clone, Copy)]
struct Task {
    group: &'static str,
    who: Who,
    label: &'static str,
    /// The reader's words before the trace.
    words: &'static [&'static str],
    place: Where,
    /// Whether it reads the longer traces.
    is_long: bool,
}

/// All that is done, in the order of the tables.
fn tasks() -> Vec<Task> {
    let both = [
        ("counting", "counting on two CPUs", &["-o", "dummy"][..], &["stat", "--no-durations"][..]),
        ("text", "text on two CPUs", &[][..], &["print"][..]),
    ];
    let of = |(group, on_two, theirs, ours)| {
        let short = |who, label, words| Task { group, who, label, words, place: Where::One, is_long: false };
        let long = |label, place| Task {
            group: on_two,
            who: Who::Tompion,
            label,
            words: ours,
            place,
            is_long: true,
        };
        [
            short(Who::Babeltrace, "babeltrace2", theirs),
            short(Who::Tompion, "Tompion", ours),
            long("Tompion, one CPU", Where::One),
            long("Tompion, two CPUs", Where::Two),
            long("Tompion, two processes", Where::Each),
        ]
    };
    both.into_iter().flat_map(of).collect()
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    ensure!(shell::exists("babeltrace2"), "babeltrace2 is not there (apt install babeltrace2)");
    let tompion = Tompion::build(workspace)?.context("Tompion is not there")?;
    let folder = programs::memory_folder(workspace)?.join("read");
    programs::remove(&folder)?;
    let events = if options.quick { QUICK_EVENTS } else { EVENTS };
    let traces = prepare(workspace, &tompion, &folder, events)?;
    let mut figures: Vec<Figure> = Vec::new();
    let tasks = tasks();
    let each = || tasks.iter().flat_map(|task| traces.iter().map(move |trace| (task, trace)));
    for (task, trace) in each() {
        let unit = "million events a second";
        figures.push(Figure::new(task.group, task.who, task.label, trace.name, unit));
    }
    for repetition in 1..=options.repetitions {
        for ((task, trace), figure) in each().zip(&mut figures) {
            progress(&format!(
                "repetition {repetition}/{}: {}, {}",
                options.repetitions, task.label, trace.name
            ));
            figure.note(rate(&tompion, task, if task.is_long { &trace.long } else { &trace.short }));
        }
    }
    progress("");
    programs::remove(&folder)?;
    let results = Results::new("read", options.repetitions, figures)?;
    Ok(Report { text: results.text(), markdown: results.markdown("Reading traces", METHOD), results })
}

/// Makes the traces, and sees that both readers find the same in them.
fn prepare(workspace: &Workspace, tompion: &Tompion, folder: &Path, events: u64) -> Result<Vec<Trace>> {
    fs::create_dir_all(folder)?;
    let recorded = folder.join("recorded");
    let settings = Settings { mode: Mode::Discard, ..Settings::new(&recorded, Source::Preload("malloc")) };
    let mut record = tompion.record(&settings)?;
    shell::run_quietly(record.args(["find", "/usr", "-xdev", "-regex", ".*a"]))?;
    let corpus = workspace.root.join(CORPUS);
    let sources = [
        ("LTTng's kernel tracer", corpus.join("many-threads"), "kernel"),
        ("LTTng-UST", corpus.join("ros2"), "ust"),
        ("Tompion", recorded, "own"),
    ];
    let mut traces = Vec::new();
    for (name, source, place) in sources {
        if !source.is_dir() {
            eprintln!("left out: {name}, for {} is not there", source.display());
            continue;
        }
        let copies = events.div_ceil(tompion.count(&source)?.max(1));
        let copied = |folder: PathBuf, copies| -> Result<Long> {
            lengthen::lengthen(&source, &folder, copies)?;
            Ok(Long { events: tompion.count(&folder)?, folder })
        };
        let short = copied(folder.join(place), copies)?;
        let long = copied(folder.join(format!("{place}-long")), copies * LONGER)?;
        let theirs = count::events(&short.folder)?;
        let events = short.events;
        ensure!(events == theirs, "babeltrace2 counted {theirs} events of {name}, `tompion stat` {events}");
        traces.push(Trace { name, short, long });
    }
    traces.iter().try_for_each(|trace| same_text(tompion, &trace.short.folder))?;
    Ok(traces)
}

/// Whether both readers print the same, but for empty texts: babeltrace2 2.0.4 shows the text of an
/// earlier event.
fn same_text(tompion: &Tompion, trace: &Path) -> Result<()> {
    let text = |command: &mut Command, name: &str| -> Result<BufReader<File>> {
        let file = trace.with_extension(name);
        let output = File::create(&file)?;
        let status = command.arg(trace).stdin(Stdio::null()).stdout(output).stderr(Stdio::null()).status()?;
        ensure!(status.success(), "{name} cannot print {}", trace.display());
        let opened = File::open(&file)?;
        fs::remove_file(file)?;
        Ok(BufReader::new(opened))
    };
    let ours = text(tompion.command().args(["print", "--no-symbols"]), "ours")?;
    let mut theirs = text(&mut Command::new("babeltrace2"), "theirs")?.lines();
    for line in ours.lines() {
        let (ours, theirs) = (line?, theirs.next().context("babeltrace2 printed less")??);
        let same = ours == theirs || ours.contains("\"\"") && without_texts(&ours) == without_texts(&theirs);
        ensure!(same, "the readers print different lines:\n{ours}\n{theirs}");
    }
    ensure!(theirs.next().is_none(), "babeltrace2 printed more");
    Ok(())
}

/// Text outside of quotation marks.
fn without_texts(line: &str) -> String {
    line.split('"').step_by(2).collect()
}

/// Reads a trace once, in each process; returns how many million events a second.
fn rate(tompion: &Tompion, task: &Task, trace: &Long) -> Result<f64> {
    let cpus: &[&str] = match task.place {
        Where::One => &["1"],
        Where::Two => &["0,1"],
        Where::Each => &["0", "1"],
    };
    let reader = match task.who {
        Who::Babeltrace => Command::new("babeltrace2"),
        _ => tompion.command(),
    };
    let start = |cpus: &&str| -> Result<_> {
        let mut command = Command::new("taskset");
        command.args(["-c", cpus]).arg(reader.get_program()).args(task.words).arg(&trace.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process =
            command.spawn().with_context(|| format!("cannot run `{}`", shell::describe(&command)))?;
        Ok((command, process))
    };
    let begin = Instant::now();
    let started: Vec<_> = cpus.iter().map(start).collect::<Result<_>>()?;
    for (command, mut process) in started {
        let status = process.wait()?;
        ensure!(status.success(), "`{}` failed: {status}", shell::describe(&command));
    }
    let events = trace.events * cpus.len() as u64;
    Ok(events as f64 / begin.elapsed().as_secs_f64() / 1e6)
}
