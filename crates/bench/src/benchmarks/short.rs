//! `x bench short`: what recording adds to a shell that starts 800 short processes.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::results::{Figure, Results, Who};
use super::tompion::{Settings, Source, Tompion};
use super::{Mode, Options, Report, programs, progress};
use tompion_tasks::shell;
use tompion_tasks::table::Table;
use tompion_tasks::workspace::Workspace;

const PROCESSES: u32 = 800;
const QUICK_PROCESSES: u32 = 50;

const METHOD: &str = "\
Variants interleaved; wall time of the shell with the recorder around it, whose start and end are in it. The shell \
starts one child after the other, `x=$(echo hi)`. Files are those and the folders of the recording.\n";

/// Variant that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Plain,
    Recorded(Mode),
}

const ALL: [Variant; 3] =
    [Variant::Plain, Variant::Recorded(Mode::Discard), Variant::Recorded(Mode::Overwrite)];

impl Variant {
    const fn label(self) -> &'static str {
        match self {
            Self::Plain => "no tracer",
            Self::Recorded(Mode::Discard) => "Tompion, --preload malloc, to disk",
            Self::Recorded(Mode::Overwrite) => "Tompion, --preload malloc, flight recorder",
        }
    }

    const fn who(self) -> Who {
        match self {
            Self::Plain => Who::Plain,
            Self::Recorded(_) => Who::Tompion,
        }
    }
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let tompion = Tompion::build(workspace)?.context("Tompion is not built")?;
    let folder = programs::folder(workspace)?.join("short-trace");
    let processes = if options.quick { QUICK_PROCESSES } else { PROCESSES };
    let script = format!("i=0; while [ $i -lt {processes} ]; do x=$(echo hi); i=$((i+1)); done");
    let mut figures: Vec<Figure> = ALL
        .iter()
        .map(|variant| Figure::new("short", variant.who(), variant.label(), "wall time", "seconds"))
        .collect();
    for repetition in 0..options.repetitions {
        for (variant, figure) in ALL.into_iter().zip(&mut figures) {
            progress(&format!("repetition {}/{}: {}", repetition + 1, options.repetitions, variant.label()));
            let mut command = match variant {
                Variant::Plain => Command::new("bash"),
                Variant::Recorded(mode) => {
                    let settings =
                        Settings { mode, buffers: None, ..Settings::new(&folder, Source::Preload("malloc")) };
                    let mut command = tompion.record(&settings)?;
                    command.arg("bash");
                    command
                }
            };
            figure.note(time(command.args(["-c", &script])));
            if variant != Variant::Plain {
                let processes = processes_of(&tompion, &folder)?;
                figure.counts.insert("processes".into(), processes as f64);
                figure.counts.insert("files".into(), count_files(&folder)? as f64);
                programs::remove(&folder)?;
            }
        }
    }
    progress("");
    report(figures, processes, options.repetitions)
}

/// Seconds that a command takes.
fn time(command: &mut Command) -> Result<f64> {
    let begin = Instant::now();
    let output = command.stdin(Stdio::null()).output()?;
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(output.status.success(), "`{}`: {}", shell::describe(command), output.status);
    Ok(seconds)
}

/// Number of processes of a recording.
fn processes_of(tompion: &Tompion, folder: &std::path::Path) -> Result<usize> {
    let text = shell::capture(tompion.command().args(["stat", "--json"]).arg(folder))?;
    let stat: serde_json::Value = serde_json::from_str(&text).context("`tompion stat` wrote no JSON")?;
    Ok(stat["processes"].as_array().map_or(0, Vec::len))
}

/// Files and folders below a folder.
fn count_files(folder: &std::path::Path) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        count += 1 + if path.is_dir() { count_files(&path)? } else { 0 };
    }
    Ok(count)
}

fn report(figures: Vec<Figure>, processes: u32, repetitions: usize) -> Result<Report> {
    let plain = figures.first().and_then(Figure::median).context("the plain run is always there")?;
    let mut table = Table::new(&["", "seconds", "× plain", "ms a process", "processes", "files"]);
    for figure in &figures {
        let median = figure.median().unwrap_or(f64::NAN);
        let count =
            |name: &str| figure.counts.get(name).map_or_else(|| "–".into(), |count| format!("{count}"));
        table.row(vec![
            figure.label.clone(),
            figure.cell(),
            format!("{:.2}", median / plain),
            format!("{:+.2}", (median - plain) * 1e3 / f64::from(processes)),
            count("processes"),
            count("files"),
        ]);
    }
    let title = format!("{processes} short processes of a shell, every allocation recorded");
    let results = Results::new("short", repetitions, figures)?;
    Ok(Report::of_table(&title, METHOD, &table, results))
}
