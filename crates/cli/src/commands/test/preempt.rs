//! `tompion test preempt`: whether a higher priority preempts a lower one, and how fast.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Args;
use serde::Serialize;
use tompion_rttest::{
    preempt::{self, Config, Outcome, Way},
    prepare,
};

use crate::{
    messages::{self, with_thousands},
    units,
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    sudo tompion test preempt\n  \
    sudo tompion test preempt --cpu 3 --rounds 100k --json\n\n\
Runs two threads on one CPU. The lower-priority thread wakes the higher one, or spins until a timer wakes it. It is \
preempted if the higher one runs before it continues. Exit status 1: it was not preempted every time.")]
pub struct Arguments {
    /// Run on this CPU [default: the last isolated CPU, or the last CPU]
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// Set the SCHED_FIFO priority of the lower thread, 1 to 98; the other has one more
    #[arg(short, long, value_name = "N", default_value_t = 79, value_parser = clap::value_parser!(u32).range(1..=98))]
    priority: u32,
    /// Run this many rounds of each kind
    #[arg(long, value_name = "N", default_value = "2k", value_parser = units::count)]
    rounds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    test: &'static str,
    cpu: u32,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let cpu = prepare::choose_cpu(arguments.cpu)?;
    let outcome = preempt::run(Config { cpu, priority: arguments.priority, rounds: arguments.rounds })?;
    let mut output = anstream::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut output, &Report { test: "preempt", cpu, outcome: &outcome })?;
        writeln!(output)?;
    } else {
        write_text(cpu, &outcome, &mut output)?;
    }
    let always = [&outcome.by_thread, &outcome.by_timer].iter().all(|way| way.preempted == way.rounds);
    Ok(if always { ExitCode::SUCCESS } else { ExitCode::from(messages::FAILED) })
}

/// Width of a column.
const WIDTH: usize = 11;

fn write_text(cpu: u32, outcome: &Outcome, output: &mut dyn Write) -> io::Result<()> {
    let priorities = outcome.threads.each_ref().map(|thread| thread.fifo);
    let scheduling = match priorities {
        [Some(lower), Some(higher)] => format!("SCHED_FIFO {lower} and {higher}"),
        _ => "ordinary threads: neither is preferred".into(),
    };
    writeln!(output, "two threads on CPU {cpu}, {scheduling}")?;
    super::write_limitations(outcome.threads.iter().flat_map(|thread| &thread.could_not), output)?;
    write!(output, "\n\x1b[1m{:<18}{:>9}{:>11}", "woken by", "rounds", "preempted")?;
    for head in ["min", "mean", "99 %", "99.9 %", "max"] {
        write!(output, "{head:>WIDTH$}")?;
    }
    writeln!(output, "  (µs until it runs)\x1b[0m")?;
    for (name, way) in [("the lower thread", &outcome.by_thread), ("a timer", &outcome.by_timer)] {
        write_way(name, way, output)?;
    }
    Ok(())
}

fn write_way(name: &str, way: &Way, output: &mut dyn Write) -> io::Result<()> {
    let colour = if way.preempted == way.rounds { 32 } else { 31 };
    write!(
        output,
        "{name:<18}{:>9}\x1b[{colour}m{:>11}\x1b[0m",
        with_thousands(way.rounds),
        with_thousands(way.preempted)
    )?;
    let late = &way.until_running;
    let share = |name: &str| late.percentiles.get(name).copied().unwrap_or(0.0);
    for ns in [late.min_ns, late.mean_ns, share("99"), share("99.9"), late.max_ns] {
        write!(output, "{:>WIDTH$.1}", ns / 1000.0)?;
    }
    writeln!(output)
}
