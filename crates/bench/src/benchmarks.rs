//! `x bench`: Tompion beside its peers, in one run on one machine, so that ratios mean something.

mod budgets;
mod bytes;
mod count;
mod counts;
mod cyclic;
mod event;
mod find;
mod gaps;
mod history;
mod kernel;
mod lttng;
mod machine;
mod memory;
mod monitor;
mod monitor_blame;
mod npt;
mod page;
mod plot;
pub mod programs;
mod rate;
mod read;
mod results;
mod rt_report;
mod servers;
mod shapes;
mod short;
mod statistics;
pub mod tompion;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use results::Results;
use tompion_tasks::table::Table;
use tompion_tasks::workspace::Workspace;

/// Repetitions of an ordinary run; fewer give no median worth keeping.
const REPETITIONS: usize = 9;
/// Repetitions of `--quick`, which shows that everything works.
const QUICK_REPETITIONS: usize = 1;

/// The rings of each CPU, the same for all that are compared.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Size of a sub-buffer.
    pub size: &'static str,
    /// Sub-buffers of each CPU.
    pub count: &'static str,
}

impl Buffers {
    /// Default buffers.
    pub const USUAL: Self = Self { size: "1M", count: "4" };
}

/// Treatment of new events when the buffers are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A flight recorder: the oldest events give way; nothing goes to disk before the end.
    Overwrite,
    /// To disk all the time; events are lost when the disk is behind.
    Discard,
}

impl Mode {
    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite",
            Self::Discard => "discard",
        }
    }
}

/// Options of a benchmark.
#[derive(Clone, Copy)]
pub struct Options {
    /// Number of measurements of each variant.
    pub repetitions: usize,
    /// Short loops, and no result file.
    pub quick: bool,
    /// Duration of long benchmarks, if given.
    pub minutes: Option<u64>,
}

/// Report of a benchmark.
pub struct Report {
    /// Tables for the terminal.
    pub text: String,
    /// Tables for the result file.
    pub markdown: String,
    /// Figures for plots and the page.
    pub results: Results,
}

impl Report {
    /// Report of a benchmark that shows its results in one table.
    pub fn of_table(title: &str, method: &str, table: &Table, results: Results) -> Self {
        let failures = results.failures();
        Self {
            text: format!("{title}\n{}{failures}", table.text()),
            markdown: format!("{}{}{failures}", results.heading(title, method), table.markdown()),
            results,
        }
    }
}

type Benchmark = (&'static str, fn(&Workspace, &Options) -> Result<Report>);

/// All benchmarks, in the order in which they run.
const BENCHMARKS: &[Benchmark] = &[
    ("event", event::run),
    ("shapes", shapes::run),
    ("counts", counts::run),
    ("sessions", counts::run_sessions),
    ("gaps", gaps::run),
    ("memory", memory::run),
    ("bytes", bytes::run),
    ("rate", rate::run),
    ("find", find::run),
    ("short", short::run),
    ("servers", servers::run),
    ("read", read::run),
    ("kernel", kernel::run),
    ("npt", npt::run),
    ("cyclic", cyclic::run),
    ("monitor-accuracy", monitor::accuracy::run),
    ("monitor-overhead", monitor::overhead::run),
    ("monitor-blame", monitor_blame::run),
    ("monitor-history", history::run),
    ("monitor-soak", monitor::soak::run),
];

const USAGE: &str = "usage: ./x bench [all | page | NAME…] [--quick] [--repetitions N] [--minutes N]";

/// Request of the command line.
struct Wanted {
    /// Names of benchmarks; all if none.
    names: Vec<String>,
    /// Whether the page is written afterwards.
    page: bool,
}

/// `x bench [all | page | NAME…] [--quick] [--repetitions N] [--minutes N]`
pub fn command(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode> {
    let (wanted, options) = parse(arguments)?;
    let mut code = ExitCode::SUCCESS;
    let mut fresh = Vec::new();
    let begin = Instant::now();
    for (name, benchmark) in BENCHMARKS {
        if !wanted.names.iter().any(|chosen| chosen == name) {
            continue;
        }
        progress("");
        println!("── {name} (after {:.1} min)", begin.elapsed().as_secs_f64() / 60.0);
        // One that cannot run leaves the others their turn.
        match benchmark(workspace, &options) {
            Ok(report) => {
                println!("{}", report.text);
                if !options.quick {
                    println!("kept in {}", keep(workspace, name, &report)?.display());
                }
                fresh.push(report.results);
            }
            Err(error) => {
                eprintln!("{name} failed: {error:#}");
                code = ExitCode::FAILURE;
            }
        }
    }
    if wanted.page {
        let stored = page::Stored::load(workspace, BENCHMARKS.iter().map(|(name, _)| *name), &fresh)?;
        // A quick run shows that the page can be made, beside what it measured.
        let folder = if options.quick {
            programs::folder(workspace)?.join("page")
        } else {
            workspace.root.join("docs")
        };
        println!("{}", budgets::table(&stored.budgets()).text());
        println!("page: {}", page::write(&stored, &folder)?.display());
        if !options.quick {
            rt_report::write(workspace, None)?;
        }
    }
    println!("all in {:.1} min", begin.elapsed().as_secs_f64() / 60.0);
    Ok(code)
}

fn parse(arguments: &[String]) -> Result<(Wanted, Options)> {
    let mut wanted = Wanted { names: Vec::new(), page: false };
    let mut options = Options { repetitions: REPETITIONS, quick: false, minutes: None };
    let mut chosen = None;
    let mut all = false;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => options.quick = true,
            "--repetitions" | "--minutes" => {
                let number = words.next().with_context(|| format!("{word} needs a number"))?;
                let number: usize = number.parse().with_context(|| format!("no number: {number}"))?;
                if word == "--minutes" {
                    options.minutes = Some(number as u64);
                } else {
                    chosen = Some(number);
                }
            }
            "all" => all = true,
            "page" => wanted.page = true,
            name if BENCHMARKS.iter().any(|(known, _)| *known == name) => wanted.names.push(name.into()),
            _ => {
                let known: Vec<_> = BENCHMARKS.iter().map(|(name, _)| *name).collect();
                bail!("{USAGE}; names: {}", known.join(" "));
            }
        }
    }
    if all || (wanted.names.is_empty() && !wanted.page) {
        wanted.page = true;
        wanted.names = BENCHMARKS.iter().map(|(name, _)| (*name).to_owned()).collect();
    }
    options.repetitions =
        chosen.unwrap_or(if options.quick { QUICK_REPETITIONS } else { REPETITIONS }).max(1);
    Ok((wanted, options))
}

fn keep(workspace: &Workspace, name: &str, report: &Report) -> Result<PathBuf> {
    let data = report.results.save(workspace)?;
    let file = data.with_file_name(format!("{name}-{}.md", report.results.date));
    fs::write(&file, &report.markdown).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// A line that says how far a benchmark is, on a terminal only.
pub fn progress(text: &str) {
    if tompion_tasks::shell::watched() {
        eprint!("\r\x1b[K{text}");
    }
}
