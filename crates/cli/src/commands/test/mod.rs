//! `tompion test …`: real-time tests.

mod maxrate;
mod npt;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use tompion_rttest::{Buffers, peer::Lttng};

use crate::{
    messages::{self, say},
    units,
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    sudo tompion test npt                              # how long is a real-time loop kept from going on?\n  \
    sudo tompion test npt --trace user --peer lttng    # what does recording add?\n  \
    tompion test maxrate                               # how many events a second arrive?")]
pub struct Arguments {
    #[command(subcommand)]
    test: Test,
}

#[derive(Subcommand)]
enum Test {
    /// Measure how long a loop that nothing should interrupt is interrupted, with and without recording
    Npt(npt::Arguments),
    /// Find the highest rate of events that is recorded without loss
    Maxrate(maxrate::Arguments),
    /// The loop, started by `npt`
    #[command(hide = true)]
    Loop(Subject),
    /// The threads that record, started by `maxrate`
    #[command(hide = true)]
    Produce(Subject),
}

/// A program under test.
#[derive(Args)]
struct Subject {
    /// What to do
    spec: String,
    /// Where to write what was found
    result: PathBuf,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.test {
        Test::Npt(arguments) => npt::run(arguments),
        Test::Maxrate(arguments) => maxrate::run(arguments),
        Test::Loop(subject) => Ok(told(tompion_rttest::npt::run_loop(&subject.spec, &subject.result))),
        Test::Produce(subject) => Ok(told(tompion_rttest::maxrate::produce(&subject.spec, &subject.result))),
    }
}

/// What a program under test says is read by the one that has started it.
fn told(result: Result<(), tompion_rttest::Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let chain = anyhow::Error::from(error);
            anstream::eprintln!("{}{chain:#}", tompion_rttest::SAYS);
            ExitCode::from(messages::FAILED)
        }
    }
}

/// Another tracer to measure beside.
#[derive(Clone, Copy, ValueEnum)]
enum Peer {
    /// LTTng-UST
    Lttng,
}

/// The rings of the recordings.
#[derive(Args)]
struct BufferArguments {
    /// Size of a sub-buffer
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = units::size)]
    subbuf_size: u64,
    /// Number of sub-buffers for each CPU
    #[arg(long, value_name = "N", default_value_t = 4)]
    subbufs: u64,
}

impl BufferArguments {
    fn buffers(&self) -> Buffers {
        Buffers { size: self.subbuf_size, count: self.subbufs }
    }
}

/// This program, and the library with the event of its loops.
fn program_and_library() -> anyhow::Result<(PathBuf, PathBuf)> {
    let program = std::env::current_exe().context("can't tell where this program is")?;
    Ok((program, super::library("libtompion-npt.so")?))
}

/// The other tracer, ready; where it isn't, one line says why, and the test goes on without.
fn prepare_peer(peer: Option<Peer>) -> Option<Lttng> {
    match peer {
        None => None,
        Some(Peer::Lttng) => Lttng::prepare().inspect_err(|error| say(error)).ok(),
    }
}

/// Whether a folder for a trace can be made: it must not be there.
fn is_free(folder: Option<&Path>) -> anyhow::Result<()> {
    match folder {
        Some(folder) if folder.exists() => {
            anyhow::bail!("{} exists already; choose another folder with -o, or remove it", folder.display())
        }
        _ => Ok(()),
    }
}
