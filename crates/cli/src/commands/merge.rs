//! `tompion merge`: copies several traces to one folder.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use crate::messages::{self, pluralize, print_status};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion merge board-a/ board-b/ -o both\n  \
    tompion merge tompion-server-*/ lttng-traces/kernel-*/ -o all\n\n\
Copies each trace unchanged to a folder of its own; readers open all of them as one. Each trace keeps its clock and \
offset, so events of different machines are ordered only as exactly as the machines' clocks agreed.")]
pub struct Arguments {
    /// Folders with CTF traces of any producer
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// Write to this folder, which must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    super::warn_if_incomplete(&arguments.traces);
    let traces = tompion_reader::open(&arguments.traces)?;
    let merged = tompion_export::merge(&traces, &arguments.output)?;
    if merged.hosts.len() > 1 {
        let hosts: Vec<String> = merged.hosts.into_iter().collect();
        print_status(format!(
            "note: the traces are of {} ({}); each keeps its clock's offset, so their order is only as exact as their clocks",
            pluralize(hosts.len() as u64, "machine"),
            crate::messages::escape_control(&hosts.join(", "))
        ));
    }
    print_status(format!(
        "{} in {}; next: tompion print {}",
        pluralize(merged.traces as u64, "trace"),
        arguments.output.display(),
        arguments.output.display()
    ));
    super::report_problems(&traces);
    Ok(if traces.corruptions().is_empty() { ExitCode::SUCCESS } else { ExitCode::from(messages::FAILED) })
}
