//! `tompion test npt`: gaps in a real-time loop, with and without recording.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tompion_rttest::{
    accumulator::Summary,
    npt::{self, LONG_NS, Outcome, Plan, Recorder, Trace},
    peer::Timer,
    prepare::{self, PrepareOptions},
};

use super::{BufferArguments, Peer};
use crate::{
    messages::{self, pluralize, print_status, with_thousands},
    units,
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    sudo tompion test npt                               # without recording\n  \
    sudo tompion test npt --trace user                  # with one event per iteration\n  \
    sudo tompion test npt --trace kernel --loops 10M    # with the kernel recorded\n  \
    sudo tompion test npt --trace user --peer lttng     # compared with LTTng-UST\n  \
    tompion test npt --cpu 3 --rate 500k --json\n\n\
Each iteration reads the counter, records an event if asked to, and reads the counter again; the difference is a gap. \
Gaps above 1 µs are reported by cause. Without root, the loop runs without real-time priority, and the test says so.")]
pub struct Arguments {
    /// Record this during the test [default: none; with --peer, user]
    #[arg(long, value_enum, value_name = "WHAT")]
    trace: Option<TraceArgument>,
    /// Run this many iterations
    #[arg(long, value_name = "N", default_value = "100M", value_parser = units::count)]
    loops: u64,
    /// Ignore this many iterations at the start
    #[arg(long, value_name = "N", default_value = "10k", value_parser = units::count)]
    discard: u64,
    /// Run at most this many iterations per second, or `max` for no limit
    #[arg(long, value_name = "N", default_value = "2M", value_parser = rate)]
    rate: Rate,
    /// Run on this CPU [default: the last isolated CPU, or the last CPU]
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// Set the SCHED_FIFO priority, 1 to 99
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=99))]
    priority: u32,
    #[command(flatten)]
    buffers: BufferArguments,
    /// Also measure another tracer, with and without its read timer
    #[arg(long, value_enum, value_name = "TRACER")]
    peer: Option<Peer>,
    /// Keep the trace in this folder, which must not exist [default: discard it]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TraceArgument {
    /// Nothing; no event in the loop
    None,
    /// Nothing; one more clock read per iteration, the minimum of any recorder
    Clock,
    /// Nothing; a disabled event in the loop
    Disabled,
    /// One event per iteration
    User,
    /// Kernel events, as with `record -k`
    Kernel,
    /// User and kernel events
    Both,
}

impl From<TraceArgument> for Trace {
    fn from(argument: TraceArgument) -> Self {
        match argument {
            TraceArgument::None => Self::None,
            TraceArgument::Clock => Self::Clock,
            TraceArgument::Disabled => Self::Disabled,
            TraceArgument::User => Self::User,
            TraceArgument::Kernel => Self::Kernel,
            TraceArgument::Both => Self::Both,
        }
    }
}

/// Iterations per second; none for no limit.
#[derive(Clone, Copy)]
struct Rate(Option<f64>);

fn rate(text: &str) -> Result<Rate, String> {
    if text == "max" {
        return Ok(Rate(None));
    }
    let number =
        units::count(text).map_err(|_| format!("expected a rate such as 500k, 2M or max, found `{text}`"))?;
    Ok(Rate(Some(number as f64)))
}

/// Period of LTTng's read timer in microseconds, as in the published measurements.
const READ_TIMER: u32 = 10_000;

/// Result of a recorder.
#[derive(Serialize)]
struct Column {
    recorder: &'static str,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
struct Report<'a> {
    test: &'static str,
    trace: Trace,
    #[serde(flatten)]
    own: &'a Column,
    #[serde(skip_serializing_if = "<[Column]>::is_empty")]
    peers: &'a [Column],
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let with_peer = arguments.peer.is_some();
    let trace = arguments.trace.unwrap_or(if with_peer { TraceArgument::User } else { TraceArgument::None });
    if with_peer && trace != TraceArgument::User {
        print_status("--peer lttng measures the event in the loop: it goes with --trace user");
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    super::check_output_folder(arguments.output.as_deref())?;
    let (tompion, library) = super::program_and_library()?;
    let options =
        PrepareOptions { cpu: prepare::choose_cpu(arguments.cpu)?, priority: Some(arguments.priority) };
    let mut plan = Plan {
        loops: arguments.loops,
        discard: arguments.discard,
        rate: arguments.rate.0,
        options,
        buffers: arguments.buffers.buffers(),
        output: arguments.output.clone(),
        tompion,
        library,
    };
    let lttng = super::prepare_peer(arguments.peer);
    let trace = Trace::from(trace);
    announce(&plan, lttng.as_ref().map_or(1, |_| 3));
    let mut columns =
        vec![Column { recorder: name(trace), outcome: npt::run(&plan, Recorder::Tompion(trace))? }];
    plan.output = None;
    if let Some(lttng) = &lttng {
        for (recorder, timer) in
            [("LTTng, read timer", Timer::Period(READ_TIMER)), ("LTTng, wakeups", Timer::WakeUps)]
        {
            columns.push(Column { recorder, outcome: npt::run(&plan, Recorder::Lttng(lttng, timer))? });
        }
    }
    let mut output = anstream::stdout().lock();
    if let (true, [own, peers @ ..]) = (arguments.json, &columns[..]) {
        serde_json::to_writer_pretty(&mut output, &Report { test: "npt", trace, own, peers })?;
        writeln!(output)?;
    } else {
        write_text(&columns, &mut output)?;
    }
    Ok(ExitCode::SUCCESS)
}

const fn name(trace: Trace) -> &'static str {
    match trace {
        Trace::None => "nothing recorded",
        Trace::Clock => "clock read, nothing recorded",
        Trace::Disabled => "event not recorded",
        Trace::User => "Tompion",
        Trace::Kernel => "Tompion, the kernel",
        Trace::Both => "Tompion, kernel too",
    }
}

/// Announces the duration on a terminal, if it is more than two seconds.
fn announce(plan: &Plan, runs: u64) {
    let seconds = plan.rate.map_or(0.0, |rate| plan.loops as f64 / rate) * runs as f64;
    if seconds > 2.0 && io::IsTerminal::is_terminal(&io::stderr()) {
        print_status(format!("measuring for some {seconds:.0} s ..."));
    }
}

fn write_text(columns: &[Column], output: &mut dyn Write) -> io::Result<()> {
    let Some(first) = columns.first() else { return Ok(()) };
    write_head(&first.outcome, output)?;
    write_statistics(columns, output)?;
    write_histogram(columns, output)?;
    for column in columns {
        if columns.len() > 1 {
            writeln!(output, "\n\x1b[1m{}\x1b[0m", column.recorder)?;
        }
        write_causes(&column.outcome, output)?;
        write_counters(&column.outcome, output)?;
        write_trace(&column.outcome, output)?;
    }
    Ok(())
}

/// Writes the CPU and the scheduling of the loop.
fn write_head(outcome: &Outcome, output: &mut dyn Write) -> io::Result<()> {
    let Outcome { setup, clock, .. } = outcome;
    let mut got = vec![if setup.pinned { format!("on CPU {}", setup.cpu) } else { "on any CPU".into() }];
    got.push(setup.fifo.map_or("an ordinary thread".into(), |priority| format!("SCHED_FIFO {priority}")));
    got.push(if setup.locked { "memory locked".into() } else { "memory not locked".into() });
    writeln!(output, "{}, {}", pluralize(outcome.loops, "loop"), got.join(", "))?;
    for line in &setup.could_not {
        writeln!(output, "\x1b[33mcould not\x1b[0m {line}")?;
    }
    writeln!(
        output,
        "reading the counter takes {}, between fences {}; it advances by {}\n",
        units::format_duration(clock.read_ns),
        units::format_duration(clock.read_in_place_ns),
        units::format_duration(clock.step_ns)
    )
}

/// Width of a column with a time in it.
const WIDTH: usize = 13;
/// Width of the names of rows.
const NAMES: usize = 12;

fn write_statistics(columns: &[Column], output: &mut dyn Write) -> io::Result<()> {
    if columns.len() > 1 {
        write!(output, "{:NAMES$}", "")?;
        for column in columns {
            write!(output, "\x1b[1m{:>width$}\x1b[0m", column.recorder, width = 2 * WIDTH)?;
        }
        writeln!(output)?;
    }
    write!(output, "{:NAMES$}", "gaps")?;
    for _ in columns {
        write!(output, "{:>WIDTH$}{:>WIDTH$}", "all", "undisturbed")?;
    }
    writeln!(output)?;
    let mut row = |name: &str, value: &dyn Fn(&Summary) -> f64| {
        write!(output, "{name:NAMES$}")?;
        for summary in columns.iter().flat_map(|column| [&column.outcome.gaps, &column.outcome.undisturbed]) {
            write!(output, "{:>WIDTH$}", units::format_duration(value(summary)))?;
        }
        writeln!(output)
    };
    row("minimum", &|summary| summary.min_ns)?;
    row("mean", &|summary| summary.mean_ns)?;
    row("deviation", &|summary| summary.deviation_ns)?;
    for share in columns.first().iter().flat_map(|column| column.outcome.gaps.percentiles.keys()) {
        row(&format!("{share} %"), &|summary| summary.percentiles.get(share).copied().unwrap_or(0.0))?;
    }
    row("maximum", &|summary| summary.max_ns)
}

/// Bounds of the histogram's rows: 1, 2, 5, 10 …, in nanoseconds.
fn bounds() -> impl Iterator<Item = u64> {
    (0..10).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)))
}

/// Columns of the longest bar.
const BAR_WIDTH: usize = 40;

fn write_histogram(columns: &[Column], output: &mut dyn Write) -> io::Result<()> {
    let within = |summary: &Summary, from: u64, to: u64| -> u64 {
        summary.histogram.iter().filter(|(ns, _)| (from..to).contains(ns)).map(|(_, count)| count).sum()
    };
    let starts: Vec<u64> = std::iter::once(0).chain(bounds()).collect();
    let ends = starts.iter().skip(1).copied().chain([u64::MAX]);
    let rows: Vec<(u64, Vec<u64>)> = starts
        .iter()
        .zip(ends)
        .map(|(from, to)| {
            (*from, columns.iter().map(|column| within(&column.outcome.gaps, *from, to)).collect())
        })
        .collect();
    let is_empty = |row: &&(u64, Vec<u64>)| row.1.iter().all(|count| *count == 0);
    let first = rows.iter().position(|row| !is_empty(&row)).unwrap_or(0);
    let last = rows.iter().rposition(|row| !is_empty(&row)).unwrap_or(0);
    writeln!(output, "\ngaps of at least")?;
    for (from, counts) in rows.get(first..=last).unwrap_or_default() {
        write!(output, "{:>NAMES$}", format_bound(*from))?;
        for count in counts {
            write!(
                output,
                "{:>width$}",
                with_thousands(*count),
                width = if counts.len() > 1 { 2 * WIDTH } else { WIDTH }
            )?;
        }
        if let ([count], total @ 1..) =
            (&counts[..], columns.first().map_or(0, |column| column.outcome.loops))
        {
            // Logarithmic, so that rare values are visible.
            let length = (*count as f64 + 1.0).ln() / (total as f64 + 1.0).ln() * BAR_WIDTH as f64;
            match length.round() as usize {
                0 => {}
                length => write!(output, "  \x1b[36m{}\x1b[0m", "▇".repeat(length))?,
            }
        }
        writeln!(output)?;
    }
    Ok(())
}

/// Formats a round number of nanoseconds.
fn format_bound(ns: u64) -> String {
    match ns {
        0..1000 => format!("{ns} ns"),
        1000..1_000_000 => format!("{} µs", ns / 1000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{} s", ns / 1_000_000_000),
    }
}

fn write_causes(outcome: &Outcome, output: &mut dyn Write) -> io::Result<()> {
    if outcome.causes.is_empty() {
        return writeln!(output, "\nno gap above {}, and no disturbance", units::format_duration(LONG_NS));
    }
    writeln!(output, "\n{:<30}{:>WIDTH$}{:>WIDTH$}{:>WIDTH$}", "cause", "gaps", "max", "total")?;
    for disturbance in &outcome.causes {
        let name = disturbance.cause.words();
        let (longest, together) =
            (units::format_duration(disturbance.longest_ns), units::format_duration(disturbance.together_ns));
        let gaps = with_thousands(disturbance.gaps);
        writeln!(output, "  {name:<28}{gaps:>WIDTH$}{longest:>WIDTH$}{together:>WIDTH$}")?;
    }
    writeln!(output, "undisturbed excludes the first three kinds, which the machine causes")
}

/// Maximum number of kinds of interrupts that the text names.
const MAX_KINDS: usize = 6;

fn write_counters(outcome: &Outcome, output: &mut dyn Write) -> io::Result<()> {
    let counters = &outcome.counters;
    let some = |kinds: Vec<String>| if kinds.is_empty() { "none".into() } else { kinds.join(", ") };
    let interrupts = counters.interrupts.iter().take(MAX_KINDS);
    let interrupts =
        interrupts.map(|kind| format!("{} ({}) {}", kind.name, kind.what, with_thousands(kind.count)));
    let softirqs = counters.softirqs.iter().map(|(name, count)| format!("{name} {}", with_thousands(*count)));
    writeln!(
        output,
        "\non CPU {} during these {}",
        outcome.setup.cpu,
        units::format_duration(outcome.took_ns as f64)
    )?;
    writeln!(output, "  interrupts       {}", some(interrupts.collect()))?;
    writeln!(output, "  soft interrupts  {}", some(softirqs.collect()))?;
    writeln!(output, "  stolen time      {}", units::format_duration(counters.steal_ns as f64))
}

fn write_trace(outcome: &Outcome, output: &mut dyn Write) -> io::Result<()> {
    let Some(trace) = &outcome.trace else { return Ok(()) };
    write!(output, "\nin the trace: ")?;
    if outcome.events != 0 || outcome.lost != 0 {
        let lost = match outcome.lost {
            0 => "\x1b[32mnone lost\x1b[0m".to_owned(),
            lost => {
                format!(
                    "\x1b[31m{} LOST\x1b[0m (a lower --rate or a larger --subbuf-size)",
                    with_thousands(lost)
                )
            }
        };
        let (events, loops) = (pluralize(outcome.events, "event"), pluralize(outcome.loops, "loop"));
        write!(output, "{events} of {loops}, {lost}")?;
    }
    let between = if outcome.events != 0 { "; " } else { "" };
    if trace.others != 0 {
        write!(output, "{between}{} of the kernel", pluralize(trace.others, "event"))?;
    }
    writeln!(output)?;
    if !trace.lost.is_empty() {
        let causes: Vec<_> =
            trace.lost.iter().map(|(cause, count)| format!("{cause} {}", with_thousands(*count))).collect();
        writeln!(output, "losses by cause: {}", causes.join(", "))?;
    }
    Ok(())
}
