//! `tompion trim`: copies a part of traces.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use tompion_export::Plan;

use crate::{messages, selection};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion trim --last 5s -o end\n  \
    tompion trim --from 14:03:05.25 --to 14:03:06 server-trace/ -o second\n  \
    tompion trim -e 'sched_*' --filter 'prio < 100' kernel-trace/ -o realtime\n\n\
Losses that packets count within the range are kept. Losses that only tompion.json has, for a whole recording, are not.")]
pub struct Arguments {
    /// Folders with CTF traces of any producer [default: the newest in this folder]
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    selection: selection::Arguments,
    /// Read --from and --to in UTC instead of local time
    #[arg(long)]
    clock_gmt: bool,
    /// Write to this folder, which must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let paths = super::traces(&arguments.traces)?;
    super::warn_if_incomplete(&paths);
    let mut traces = tompion_reader::open(&paths)?;
    let zone = selection::zone(arguments.clock_gmt);
    let selection = arguments.selection.selection(&paths, &zone)?;
    let range = (selection.from, selection.to);
    traces.select(selection);
    if !arguments.selection.fits(&traces) {
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    let plan = Plan { version: None, part: Some(range) };
    let rewritten = tompion_export::rewrite(&mut traces, plan, &arguments.output)?;
    Ok(super::export::report(&traces, &rewritten, &arguments.output))
}
