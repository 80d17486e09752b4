//! `x bench`: Tompion beside its peers, in one run on one machine, so that ratios mean something.

mod count;
mod event;
mod find;
mod lttng;
mod machine;
pub mod programs;
mod statistics;
pub mod tompion;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// Repetitions of an ordinary run; fewer give no median worth keeping.
const REPETITIONS: usize = 9;
/// Repetitions of `--quick`, which shows that everything works.
const QUICK_REPETITIONS: usize = 2;

/// Size of a sub-buffer, the same for all.
const BUFFER_SIZE: &str = "1M";
/// Sub-buffers of each CPU, the same for all.
const BUFFERS: &str = "4";

/// What happens when the buffers are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A flight recorder: the oldest events give way; nothing goes to disk before the end.
    Overwrite,
    /// To disk all the time; events are lost when the disk is behind.
    Discard,
}

impl Mode {
    /// What the tables call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite",
            Self::Discard => "discard",
        }
    }
}

/// How a benchmark runs.
pub struct Options {
    /// How often each variant is measured.
    pub repetitions: usize,
    /// Short loops, and no result file.
    pub quick: bool,
}

/// What a benchmark found.
pub struct Report {
    /// For the terminal.
    pub text: String,
    /// For the result file.
    pub markdown: String,
}

type Benchmark = (&'static str, fn(&Workspace, &Options) -> Result<Report>);

const BENCHMARKS: &[Benchmark] = &[("event", event::run), ("find", find::run)];

/// `x bench [NAME…] [--quick] [--repetitions N]`
pub fn command(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode> {
    let (names, options) = parse(arguments)?;
    for (name, benchmark) in BENCHMARKS {
        if !names.is_empty() && !names.iter().any(|chosen| chosen == name) {
            continue;
        }
        let report = benchmark(workspace, &options)?;
        println!("{}", report.text);
        if !options.quick {
            let file = keep(workspace, name, &report.markdown)?;
            println!("kept in {}", file.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(arguments: &[String]) -> Result<(Vec<String>, Options)> {
    let mut names = Vec::new();
    let mut options = Options { repetitions: REPETITIONS, quick: false };
    let mut chosen = None;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => options.quick = true,
            "--repetitions" => {
                let number = words.next().context("--repetitions needs a number")?;
                chosen = Some(number.parse().with_context(|| format!("no number: {number}"))?);
            }
            name if BENCHMARKS.iter().any(|(known, _)| *known == name) => names.push(name.into()),
            _ => {
                let known: Vec<_> = BENCHMARKS.iter().map(|(name, _)| *name).collect();
                bail!("usage: ./x bench [NAME…] [--quick] [--repetitions N]; names: {}", known.join(" "));
            }
        }
    }
    options.repetitions =
        chosen.unwrap_or(if options.quick { QUICK_REPETITIONS } else { REPETITIONS }).max(1);
    Ok((names, options))
}

fn keep(workspace: &Workspace, name: &str, markdown: &str) -> Result<PathBuf> {
    let folder = workspace.root.join("benches/results");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join(format!("{name}-{}.md", machine::date()?));
    fs::write(&file, markdown).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// A line that says how far a benchmark is, on a terminal only.
pub fn progress(text: &str) {
    if crate::shell::watched() {
        eprint!("\r\x1b[K{text}");
    }
}
