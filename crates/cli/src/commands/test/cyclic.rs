//! `tompion test cyclic`: wakeup latency of periodic threads.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tompion_machine::CpuSet;
use tompion_os::{
    Poller, Signals,
    signal::{SIGINT, SIGTERM, SIGUSR1},
};
use tompion_protocol::names::SESSION_VARIABLE;
use tompion_rttest::cyclic::{self, Break, Config, Measured, Outcome, Policy, Progress, Running, Wakeup};

use crate::{
    messages::{self, pluralize, print_status, with_thousands},
    units,
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    sudo tompion test cyclic                                  # all CPUs, every millisecond, for 10 s\n  \
    sudo tompion test cyclic --interval 200us --duration 1h --histogram\n  \
    sudo tompion test cyclic --cpus 2-3 --wakeup timerfd --policy rr --priority 50 --json\n  \
    sudo tompion record --as-root -k --mode overwrite -o late -- tompion test cyclic --break-trace 200us\n  \
    sudo tompion shield 3 --as-root -- tompion test cyclic --cpus 3\n\n\
Measures the time from a timer's expiry until its thread runs. Without root, the threads run without real-time priority, \
and the test says so. Exit status 1: --break-trace ended the test.")]
pub struct Arguments {
    /// Run a thread on each of these CPUs: 3, or 0,2-3 [default: all allowed CPUs]
    #[arg(long, value_name = "LIST", value_parser = CpuSet::from_list)]
    cpus: Option<CpuSet>,
    /// Wake each thread once per interval
    #[arg(short, long, value_name = "DURATION", default_value = "1ms", value_parser = interval)]
    interval: Duration,
    /// Measure for this time
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = units::duration)]
    duration: Duration,
    /// Stop after this many wakeups per CPU
    #[arg(short, long, value_name = "N", value_parser = units::count, conflicts_with = "duration")]
    loops: Option<u64>,
    /// Choose how the threads sleep
    #[arg(long, value_enum, value_name = "HOW", default_value = "nanosleep")]
    wakeup: WakeupArgument,
    /// Choose the scheduling policy
    #[arg(long, value_enum, value_name = "POLICY", default_value = "fifo")]
    policy: PolicyArgument,
    /// Set the priority for fifo and rr, 1 to 99
    #[arg(short, long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=99))]
    priority: u32,
    /// Stop at the first wakeup latency above this, and trigger a snapshot of the flight recorder
    #[arg(long, value_name = "DURATION", value_parser = units::latency)]
    break_trace: Option<Duration>,
    /// Process id of the flight recorder to trigger [default: the one that records this command]
    #[arg(long, value_name = "PID", requires = "break_trace")]
    recorder: Option<u32>,
    /// Print a histogram of the wakeup latency in microseconds
    #[arg(long)]
    histogram: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WakeupArgument {
    /// Absolute clock_nanosleep
    Nanosleep,
    /// Read of a timerfd
    Timerfd,
    /// POSIX timer with a signal (timer_create)
    Timer,
    /// Timed futex wait, as condition variables do
    Futex,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyArgument {
    /// SCHED_FIFO
    Fifo,
    /// SCHED_RR
    Rr,
    /// SCHED_DEADLINE, a tenth of each interval; on any CPU
    Deadline,
    /// As ordinary programs
    Other,
}

/// Minimum interval; a wakeup takes about as long.
const MIN_INTERVAL: Duration = Duration::from_micros(10);

/// Parses an interval within its bounds.
pub fn interval(text: &str) -> Result<Duration, String> {
    let time = units::latency(text)?;
    if (MIN_INTERVAL..=Duration::from_secs(60)).contains(&time) {
        Ok(time)
    } else {
        Err(format!("expected 10us to 60s, found `{text}`"))
    }
}

impl Arguments {
    fn policy(&self) -> Policy {
        match self.policy {
            PolicyArgument::Fifo => Policy::Fifo(self.priority),
            PolicyArgument::Rr => Policy::RoundRobin(self.priority),
            PolicyArgument::Deadline => Policy::Deadline,
            PolicyArgument::Other => Policy::Other,
        }
    }

    fn wakeup(&self) -> Wakeup {
        match self.wakeup {
            WakeupArgument::Nanosleep => Wakeup::Nanosleep,
            WakeupArgument::Timerfd => Wakeup::Timerfd,
            WakeupArgument::Timer => Wakeup::Timer,
            WakeupArgument::Futex => Wakeup::Futex,
        }
    }
}

/// Interval at which the live table is redrawn and signals are checked.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Serialize)]
struct Report<'a> {
    test: &'static str,
    interval_ns: u64,
    wakeup: Wakeup,
    policy: Policy,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let cpus = super::choose_cpus(arguments.cpus.as_ref())?;
    // Taken before the threads start, so that signals are delivered to this thread only.
    let signals = Signals::take(&[SIGINT, SIGUSR1, SIGTERM])?;
    let config = Config {
        cpus,
        interval: arguments.interval,
        loops: arguments.loops,
        duration: arguments.loops.is_none().then_some(arguments.duration),
        wakeup: arguments.wakeup(),
        policy: arguments.policy(),
        break_at: arguments.break_trace,
        recorder: arguments.recorder.or_else(own_recorder).filter(|_| arguments.break_trace.is_some()),
    };
    if arguments.break_trace.is_some() && config.recorder.is_none() {
        print_status(
            "no recording: a late wakeup ends the test and saves nothing; tompion record -k --mode overwrite -- …",
        );
    }
    let running = cyclic::start(config);
    let shown = wait(&running, &signals, arguments.json)?;
    let outcome = running.finish()?;
    write_outcome(arguments, &outcome, shown)?;
    Ok(if outcome.broken.is_some() { ExitCode::from(messages::FAILED) } else { ExitCode::SUCCESS })
}

/// Returns the recorder of this process: its parent, if that is `tompion record` and its session is
/// in the environment.
fn own_recorder() -> Option<u32> {
    std::env::var_os(SESSION_VARIABLE).filter(|names| !names.is_empty())?;
    let parent = std::os::unix::process::parent_id();
    (tompion_os::name_of(&parent.to_string())? == "tompion").then_some(parent)
}

/// Waits until the test ends, or a signal ends it. Returns the number of lines on the terminal.
fn wait(running: &Running, signals: &Signals, quiet: bool) -> io::Result<usize> {
    let poller = Poller::new()?;
    poller.add(std::os::fd::AsFd::as_fd(signals), 0)?;
    let is_live = !quiet && io::stdout().is_terminal();
    let mut shown = 0;
    while running.goes_on() {
        poller.wait(Some(REFRESH_INTERVAL))?;
        // SIGUSR1 requests snapshots of all programs of this name: it must not end the test.
        if signals.next().is_some_and(|(signal, _)| signal != SIGUSR1) {
            break;
        }
        if is_live {
            let mut output = anstream::stdout().lock();
            erase_lines(&mut output, shown)?;
            shown = write_live(&mut output, &running.progress())?;
            output.flush()?;
        }
    }
    Ok(shown)
}

/// Moves the cursor to the first of these lines, and erases them.
fn erase_lines(output: &mut dyn Write, lines: usize) -> io::Result<()> {
    if lines != 0 { write!(output, "\x1b[{lines}A\x1b[J") } else { Ok(()) }
}

/// Width of a column.
const WIDTH: usize = 11;

/// Formats nanoseconds as microseconds.
fn us(ns: f64) -> String {
    format!("{:.1}", ns / 1000.0)
}

fn write_live(output: &mut dyn Write, progress: &[Progress]) -> io::Result<usize> {
    write!(output, "{:>4}{:>14}", "CPU", "wakeups")?;
    for head in ["min", "now", "mean", "max"] {
        write!(output, "{head:>WIDTH$}")?;
    }
    writeln!(output, "  (µs)")?;
    for thread in progress {
        write!(output, "{:>4}{:>14}", thread.cpu, with_thousands(thread.count))?;
        for ns in [thread.min_ns as f64, thread.last_ns as f64, thread.mean_ns, thread.max_ns as f64] {
            write!(output, "{:>WIDTH$}", us(ns))?;
        }
        writeln!(output)?;
    }
    Ok(progress.len() + 1)
}

fn write_outcome(arguments: &Arguments, outcome: &Outcome, shown: usize) -> anyhow::Result<()> {
    let mut output = anstream::stdout().lock();
    if arguments.json {
        let report = Report {
            test: "cyclic",
            interval_ns: arguments.interval.as_nanos() as u64,
            wakeup: arguments.wakeup(),
            policy: arguments.policy(),
            outcome,
        };
        serde_json::to_writer_pretty(&mut output, &report)?;
        writeln!(output)?;
    } else {
        erase_lines(&mut output, shown)?;
        write_text(arguments, outcome, &mut output)?;
    }
    output.flush()?;
    if let Some(broken) = &outcome.broken {
        print_status(describe_break(broken));
    }
    Ok(())
}

fn describe_break(broken: &Break) -> String {
    let Break { cpu, late_ns, expected_ns, asked } = broken;
    let asked = match asked {
        Some(pid) => format!("process {pid} saves a snapshot"),
        None => "no recording".into(),
    };
    let (late, second) = (units::format_duration(*late_ns as f64), *expected_ns as f64 / 1e9);
    format!("CPU {cpu} woke {late} late, expected at {second:.6} s of CLOCK_MONOTONIC; {asked}")
}

fn write_text(arguments: &Arguments, outcome: &Outcome, output: &mut dyn Write) -> io::Result<()> {
    let how = match arguments.wakeup {
        WakeupArgument::Nanosleep => "clock_nanosleep",
        WakeupArgument::Timerfd => "timerfd",
        WakeupArgument::Timer => "timer_create",
        WakeupArgument::Futex => "futex",
    };
    let policy = match arguments.policy() {
        Policy::Fifo(priority) => format!("SCHED_FIFO {priority}"),
        Policy::RoundRobin(priority) => format!("SCHED_RR {priority}"),
        Policy::Deadline => "SCHED_DEADLINE".into(),
        Policy::Other => "ordinary threads".into(),
    };
    let cpus = pluralize(outcome.cpus.len() as u64, "CPU");
    let every = units::format_duration(arguments.interval.as_nanos() as f64);
    writeln!(output, "{cpus}, woken every {every} by {how}, {policy}")?;
    let limitations = outcome.cpus.iter().flat_map(|measured| &measured.prepared.could_not);
    super::write_limitations(limitations.chain(&outcome.could_not), output)?;
    writeln!(output)?;
    write!(output, "\x1b[1m{:>4}{:>14}", "CPU", "wakeups")?;
    for head in ["min", "mean", "50 %", "99 %", "99.99 %", "max"] {
        write!(output, "{head:>WIDTH$}")?;
    }
    writeln!(output, "{:>WIDTH$}  (µs)\x1b[0m", "missed")?;
    for Measured { prepared, late, missed } in &outcome.cpus {
        write!(output, "{:>4}{:>14}", prepared.cpu, with_thousands(late.count))?;
        let share = |name: &str| late.percentiles.get(name).copied().unwrap_or(0.0);
        for ns in [late.min_ns, late.mean_ns, share("50"), share("99"), share("99.99"), late.max_ns] {
            write!(output, "{:>WIDTH$}", us(ns))?;
        }
        writeln!(output, "{:>WIDTH$}", with_thousands(*missed))?;
    }
    if arguments.histogram { write_histogram(outcome, output) } else { Ok(()) }
}

/// Microseconds below which each has a row of the histogram; from here on, ten rows per power of
/// ten.
const SINGLE_ROWS: u64 = 100;

/// Returns the first microsecond of a value's row.
fn row_of(us: u64) -> u64 {
    let mut step = 1;
    while us / step >= SINGLE_ROWS {
        step *= 10;
    }
    us / step * step
}

fn write_histogram(outcome: &Outcome, output: &mut dyn Write) -> io::Result<()> {
    let mut rows = std::collections::BTreeMap::<u64, Vec<u64>>::new();
    for (index, measured) in outcome.cpus.iter().enumerate() {
        for (ns, count) in &measured.late.histogram {
            let row = rows.entry(row_of(ns / 1000)).or_insert_with(|| vec![0; outcome.cpus.len()]);
            if let Some(sum) = row.get_mut(index) {
                *sum += count;
            }
        }
    }
    write!(output, "\n\x1b[1m{:>12}", "from µs")?;
    for measured in &outcome.cpus {
        write!(output, "{:>14}", format!("CPU {}", measured.prepared.cpu))?;
    }
    writeln!(output, "\x1b[0m")?;
    let max = rows.values().map(|row| row.iter().sum::<u64>()).max().unwrap_or(1);
    for (from, counts) in rows {
        write!(output, "{from:>12}")?;
        for count in &counts {
            write!(output, "{:>14}", with_thousands(*count))?;
        }
        // Logarithmic, so that rare values are visible.
        let sum = counts.iter().sum::<u64>();
        let length = (sum as f64 + 1.0).ln() / (max as f64 + 1.0).ln() * BAR_WIDTH;
        writeln!(output, "  \x1b[36m{}\x1b[0m", "▇".repeat(length.round() as usize))?;
    }
    Ok(())
}

/// Columns of the longest bar.
const BAR_WIDTH: f64 = 40.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_get_coarser() {
        let rows = [
            (0, 0),
            (99, 99),
            (100, 100),
            (109, 100),
            (110, 110),
            (999, 990),
            (1234, 1200),
            (98_765, 98_000),
        ];
        for (us, row) in rows {
            assert_eq!(row_of(us), row);
        }
    }

    #[test]
    fn intervals_have_bounds() {
        assert_eq!(interval("200us"), Ok(Duration::from_micros(200)));
        assert_eq!(interval("1ns"), Err("expected 10us to 60s, found `1ns`".into()));
        assert!(interval("2m").is_err() && interval("x").is_err());
    }
}
