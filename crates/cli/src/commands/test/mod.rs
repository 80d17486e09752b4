//! `tompion test …`: real-time tests.

mod cyclic;
mod hwgap;
mod maxrate;
mod npt;
mod preempt;
mod report;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use tompion_machine::CpuSet;
use tompion_os::FileRights;
use tompion_rttest::{Buffers, peer::Lttng, prepare};

use crate::{
    messages::{self, print_status},
    units,
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    sudo tompion test npt                              # how long is a real-time loop interrupted?\n  \
    sudo tompion test npt --trace user --peer lttng    # what does recording add?\n  \
    tompion test maxrate                               # how many events per second without loss?\n  \
    sudo tompion test cyclic                           # wakeup latency\n  \
    sudo tompion test preempt                          # does a higher priority preempt a lower one?\n  \
    sudo tompion test hwgap                            # does firmware or a hypervisor stop the CPUs?\n  \
    sudo tompion test report                           # all of these under load, as an HTML page")]
pub struct Arguments {
    #[command(subcommand)]
    test: Test,
}

#[derive(Subcommand)]
enum Test {
    /// Measure gaps in a real-time loop, with and without recording
    Npt(npt::Arguments),
    /// Find the highest event rate that is recorded without loss
    Maxrate(maxrate::Arguments),
    /// Measure the wakeup latency of periodic threads
    Cyclic(cyclic::Arguments),
    /// Check that a higher priority preempts a lower one, and measure how fast
    Preempt(preempt::Arguments),
    /// Find gaps caused by firmware or a hypervisor
    Hwgap(hwgap::Arguments),
    /// Run all tests under load, and write an HTML page with a verdict, plots and tables
    Report(report::Arguments),
    /// The loop, started by `npt`
    #[command(hide = true)]
    Loop(Subject),
    /// The threads that record, started by `maxrate`
    #[command(hide = true)]
    Produce(Subject),
    /// The threads that are woken, started by `report`
    #[command(hide = true)]
    Wake(Subject),
}

/// Program under test.
#[derive(Args)]
struct Subject {
    /// Specification of the test
    spec: String,
    /// File for the result
    result: PathBuf,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    // Measurements need the machine's own files, and a folder that only root can write to. Files
    // that the user names are read and written with the user's rights.
    let _rights = FileRights::of_the_process().ok();
    match &arguments.test {
        Test::Npt(arguments) => npt::run(arguments),
        Test::Maxrate(arguments) => maxrate::run(arguments),
        Test::Cyclic(arguments) => cyclic::run(arguments),
        Test::Preempt(arguments) => preempt::run(arguments),
        Test::Hwgap(arguments) => hwgap::run(arguments),
        Test::Report(arguments) => report::run(arguments),
        Test::Wake(subject) => {
            Ok(report_to_parent(tompion_rttest::campaign::run_wakeups(&subject.spec, &subject.result)))
        }
        Test::Loop(subject) => {
            Ok(report_to_parent(tompion_rttest::npt::run_loop(&subject.spec, &subject.result)))
        }
        Test::Produce(subject) => {
            Ok(report_to_parent(tompion_rttest::maxrate::produce(&subject.spec, &subject.result)))
        }
    }
}

/// Writes the error of a program under test for the parent process, which reads it.
fn report_to_parent(result: Result<(), tompion_rttest::Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let chain = anyhow::Error::from(error);
            anstream::eprintln!("{}{chain:#}", tompion_rttest::SAYS);
            ExitCode::from(messages::FAILED)
        }
    }
}

/// Another tracer to measure for comparison.
#[derive(Clone, Copy, ValueEnum)]
enum Peer {
    /// LTTng-UST
    Lttng,
}

/// Rings of the recordings.
#[derive(Args)]
struct BufferArguments {
    /// Set the size of a sub-buffer
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = units::size)]
    subbuf_size: u64,
    /// Set the number of sub-buffers per CPU
    #[arg(long, value_name = "N", default_value_t = 4)]
    subbufs: u64,
}

impl BufferArguments {
    fn buffers(&self) -> Buffers {
        Buffers { size: self.subbuf_size, count: self.subbufs }
    }
}

/// Returns the paths of this program, and of the library with the event of its loops.
fn program_and_library() -> anyhow::Result<(PathBuf, PathBuf)> {
    let program = std::env::current_exe().context("can't tell where this program is")?;
    Ok((program, tompion_installation::library("libtompion-npt.so")?))
}

/// Prepares the other tracer. If that fails, reports why, and the test continues without it.
fn prepare_peer(peer: Option<Peer>) -> Option<Lttng> {
    match peer {
        None => None,
        Some(Peer::Lttng) => Lttng::prepare().inspect_err(|error| print_status(error)).ok(),
    }
}

/// Returns the requested CPUs, or all that this process may use.
fn choose_cpus(cpus: Option<&CpuSet>) -> anyhow::Result<Vec<u32>> {
    let wanted: Option<Vec<u32>> = cpus.map(|cpus| cpus.iter().collect());
    anyhow::ensure!(
        wanted.as_ref().is_none_or(|cpus| !cpus.is_empty()),
        "expected at least one CPU in --cpus"
    );
    Ok(prepare::choose_cpus(wanted.as_deref())?)
}

/// Writes what could not be set up for the threads, each line once.
fn write_limitations<'a>(lines: impl Iterator<Item = &'a String>, output: &mut dyn Write) -> io::Result<()> {
    let mut written: Vec<&String> = Vec::new();
    for line in lines {
        if !written.contains(&line) {
            written.push(line);
            writeln!(output, "\x1b[33mcould not\x1b[0m {line}")?;
        }
    }
    Ok(())
}

/// Checks that the folder for a trace doesn't exist.
fn check_output_folder(folder: Option<&Path>) -> anyhow::Result<()> {
    match folder {
        Some(folder) if folder.exists() => {
            anyhow::bail!("{} exists already; choose another folder with -o, or remove it", folder.display())
        }
        _ => Ok(()),
    }
}
