//! `tompion export`: converts traces to another format.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};
use tompion_export::{Plan, Rewritten};
use tompion_reader::{TraceSet, Version};

use crate::messages::{self, pluralize, print_status};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion export --to ctf2 tompion-find-20260101-120000 -o find-ctf2\n  \
    tompion export --to ctf1 philo.ctf2 -o philo      # for babeltrace2 2.0, Trace Compass")]
pub struct Arguments {
    /// Folders with CTF traces of any producer [default: the newest in this folder]
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Choose the format
    #[arg(long, value_enum)]
    to: Format,
    /// Write to this folder, which must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// CTF 1.8, described in TSDL
    Ctf1,
    /// CTF 2, described in JSON
    Ctf2,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let paths = super::traces(&arguments.traces)?;
    super::warn_if_incomplete(&paths);
    let mut traces = tompion_reader::open(&paths)?;
    let version = match arguments.to {
        Format::Ctf1 => Version::One,
        Format::Ctf2 => Version::Two,
    };
    let plan = Plan { version: Some(version), part: None };
    let rewritten = tompion_export::rewrite(&mut traces, plan, &arguments.output)?;
    Ok(report(&traces, &rewritten, &arguments.output))
}

/// Reports what was written, what the format can't express, and what could not be read.
pub fn report(traces: &TraceSet, rewritten: &Rewritten, output: &std::path::Path) -> ExitCode {
    for note in &rewritten.notes {
        print_status(format!("note: CTF 1.8 can't express everything: {note}"));
    }
    super::report_problems(traces);
    let Rewritten { events, packets, traces: count, .. } = rewritten;
    print_status(format!(
        "{} in {}, {} in {}; next: tompion print {}",
        pluralize(*events, "event"),
        pluralize(*packets, "packet"),
        pluralize(*count as u64, "trace"),
        output.display(),
        output.display()
    ));
    if traces.corruptions().is_empty() { ExitCode::SUCCESS } else { ExitCode::from(messages::FAILED) }
}
