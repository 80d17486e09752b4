//! `tompion test report`: all tests under load, as an HTML page.

use std::{
    fs,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use tompion_machine::CpuSet;
use tompion_report::{document::Document, page, verdict};
use tompion_rttest::{
    campaign::{self, Plan},
    load::Load,
    npt,
    prepare::{self, PrepareOptions},
};

use super::{BufferArguments, Peer};
use crate::{messages::print_status, units};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    sudo tompion test report                                   # ten minutes, under load\n  \
    sudo tompion test report --duration 8h --limit 50us -o robot.html\n  \
    sudo tompion test report --load hackbench,stress-ng --peer lttng\n  \
    sudo tompion shield 3 --as-root -- tompion test report --cpus 3 --cpu 3\n  \
    tompion test report --compare before.json after.json -o change.html\n\n\
Measures the machine without recording and with each recorder, under load. Writes a self-contained HTML page, and JSON \
beside it: a verdict, the overhead of recording, wakeup latency, and settings to change. Exit status 1: the report could \
not be made. It does not mean that the machine failed.")]
pub struct Arguments {
    /// Write the page to this file, and the JSON beside it
    #[arg(short, long, value_name = "FILE", default_value = "tompion-report.html")]
    output: PathBuf,
    /// Measure for this time in total
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = units::duration)]
    duration: Duration,
    /// Run these loads [default: all that are installed]
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    load: Vec<LoadArgument>,
    /// Fail the verdict above this wakeup latency
    #[arg(long, value_name = "DURATION", default_value = "100us", value_parser = units::latency)]
    limit: Duration,
    /// Measure wakeup latency on these CPUs [default: all allowed CPUs]
    #[arg(long, value_name = "LIST", value_parser = CpuSet::from_list)]
    cpus: Option<CpuSet>,
    /// Run the loop on this CPU [default: the last isolated CPU, or the last CPU]
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// Set the SCHED_FIFO priority, 1 to 99
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=99))]
    priority: u32,
    /// Wake each thread once per interval
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = super::cyclic::interval)]
    interval: Duration,
    /// Run each recorder this many times
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Run this many iterations per second
    #[arg(long, value_name = "N", default_value = "200k", value_parser = units::count)]
    rate: u64,
    #[command(flatten)]
    buffers: BufferArguments,
    /// Also measure another tracer, with and without its read timer
    #[arg(long, value_enum, value_name = "TRACER")]
    peer: Option<Peer>,
    /// Set the title of the report [default: the host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Compare two reports by their JSON, and measure nothing
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    compare: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LoadArgument {
    /// No load
    None,
    /// Many processes that exchange messages
    Hackbench,
    /// CPU, I/O, memory and process creation
    StressNg,
    /// Repeated compilation of a C program
    Build,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let [first, second] = &arguments.compare[..] {
        let (first, second) = (read(first)?, read(second)?);
        write(&arguments.output, &page::of_comparison(&first, &second))?;
        print_status(format!("written: {}", arguments.output.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let json = arguments.output.with_extension("json");
    anyhow::ensure!(
        json != arguments.output,
        "expected a page's name such as report.html, found {}",
        json.display()
    );
    // A file that can't be written is reported now, not after ten minutes.
    write(&arguments.output, "")?;
    let plan = plan(arguments)?;
    let lttng = super::prepare_peer(arguments.peer);
    let begin = Instant::now();
    let mut progress = |step: &str| progress(begin, plan.duration, step);
    let results = campaign::run(&plan, lttng.as_ref(), &mut progress)?;
    clear_progress();
    let name = arguments.name.clone().or_else(tompion_os::host_name);
    let name = name.unwrap_or_else(|| "this machine".into());
    let document =
        Document::new(name, arguments.limit.as_nanos() as u64, begin.elapsed().as_secs_f64(), results);
    write(&json, &(serde_json::to_string(&document)? + "\n"))?;
    write(&arguments.output, &page::of_report(&document))?;
    let verdict = verdict::judge(&document);
    print_status(format!("{}: {}", verdict.words(), verdict.headline));
    print_status(format!("written: {} and {}", arguments.output.display(), json.display()));
    Ok(ExitCode::SUCCESS)
}

/// Reads the JSON of a report, with the rights of the user who named it.
fn read(path: &Path) -> anyhow::Result<Document> {
    let _rights = crate::commands::invoking_users_rights()?;
    let bytes = fs::read(path).with_context(|| format!("can't read {}", path.display()))?;
    Document::parse(&bytes).map_err(|error| anyhow::anyhow!("{error} in {}", path.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    crate::commands::write_file(path, text.as_bytes())
}

fn plan(arguments: &Arguments) -> anyhow::Result<Plan> {
    let (tompion, library) = super::program_and_library()?;
    let options =
        PrepareOptions { cpu: prepare::choose_cpu(arguments.cpu)?, priority: Some(arguments.priority) };
    let rate = arguments.rate as f64;
    let npt = npt::Plan {
        loops: 1,
        discard: DISCARD,
        rate: Some(rate),
        options,
        buffers: arguments.buffers.buffers(),
        output: None,
        tompion,
        library,
    };
    Ok(Plan {
        npt,
        rate,
        cpus: super::choose_cpus(arguments.cpus.as_ref())?,
        priority: arguments.priority,
        interval: arguments.interval,
        duration: arguments.duration,
        rounds: arguments.rounds,
        loads: loads(&arguments.load),
    })
}

/// Iterations before those that count.
const DISCARD: u64 = 10_000;

/// Returns the requested loads that can run, and reports the others.
fn loads(wanted: &[LoadArgument]) -> Vec<Load> {
    let load = |argument: &LoadArgument| match argument {
        LoadArgument::None => None,
        LoadArgument::Hackbench => Some(Load::Hackbench),
        LoadArgument::StressNg => Some(Load::StressNg),
        LoadArgument::Build => Some(Load::Build),
    };
    let wanted: Vec<Load> =
        if wanted.is_empty() { Load::ALL.into() } else { wanted.iter().filter_map(load).collect() };
    wanted
        .into_iter()
        .filter(|load| load.is_there().inspect_err(|reason| print_status(reason)).is_ok())
        .collect()
}

/// Shows progress on a terminal, in a line that the next one replaces.
fn progress(begin: Instant, duration: Duration, step: &str) {
    if io::stderr().is_terminal() {
        let (passed, all) = (begin.elapsed().as_secs() / 60, duration.as_secs().div_ceil(60));
        anstream::eprint!("\r\x1b[Ktompion: {passed} of some {all} minutes: {step}");
    }
}

fn clear_progress() {
    if io::stderr().is_terminal() {
        anstream::eprint!("\r\x1b[K");
    }
}
