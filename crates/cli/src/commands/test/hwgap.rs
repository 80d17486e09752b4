//! `tompion test hwgap`: gaps caused by firmware or a hypervisor.

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use clap::Args;
use serde::Serialize;
use tompion_machine::CpuSet;
use tompion_os::{
    Poller, Signals,
    signal::{SIGINT, SIGTERM},
};
use tompion_rttest::{
    hwgap::{
        self, Config, Gap, Measured, Outcome,
        tracer::{Kind, Reported, Tracer},
    },
    witness::{Cause, Disturbance},
};

use crate::{
    messages::{pluralize, with_thousands},
    units,
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    sudo tompion test hwgap                           # all CPUs at once, for 10 s\n  \
    sudo tompion test hwgap --cpus 3 --threshold 5us --duration 1h\n  \
    sudo tompion test hwgap --json | jq .gaps\n\n\
Finds gaps that no interrupt, context switch or page fault explains: firmware (SMI) or a hypervisor. A real-time thread \
uses most of the time of each CPU. As root, the kernel's hwlat and osnoise tracers then run for the same time each, if \
the kernel has them.")]
pub struct Arguments {
    /// Measure these CPUs at the same time: 3, or 0,2-3 [default: all allowed CPUs]
    #[arg(long, value_name = "LIST", value_parser = CpuSet::from_list)]
    cpus: Option<CpuSet>,
    /// Measure for this time
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = units::duration)]
    duration: Duration,
    /// Report gaps longer than this
    #[arg(long, value_name = "DURATION", default_value = "10us", value_parser = units::latency)]
    threshold: Duration,
    /// Sample for this time in each window
    #[arg(long, value_name = "DURATION", default_value = "80ms", value_parser = units::latency)]
    width: Duration,
    /// Start a sample once per window; other programs run in between
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = units::latency)]
    window: Duration,
    /// Set the SCHED_FIFO priority, 1 to 99
    #[arg(short, long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=99))]
    priority: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const REFRESH_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum time for a sample of the kernel's tracers, which report once a second.
const MIN_SAMPLE_TIME: Duration = Duration::from_millis(1200);

#[derive(Serialize)]
struct Report<'a> {
    test: &'static str,
    threshold_ns: u64,
    #[serde(flatten)]
    outcome: &'a Outcome,
    /// Results of the kernel's own tracers, as far as it has them.
    tracers: &'a [Reported],
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let cpus = super::choose_cpus(arguments.cpus.as_ref())?;
    if arguments.width > arguments.window || arguments.width.is_zero() {
        anyhow::bail!("expected a --width above zero and at most --window");
    }
    let config = Config {
        cpus,
        duration: arguments.duration,
        threshold: arguments.threshold,
        window: arguments.window,
        width: arguments.width,
        priority: arguments.priority,
    };
    let signals = Signals::take(&[SIGINT, SIGTERM])?;
    let (mut outcome, mut goes_on) = measure(config, &signals)?;
    let mut reports = Vec::new();
    for kind in Kind::ALL {
        match Tracer::start(kind) {
            Ok(tracer) if goes_on => {
                let begin = Instant::now();
                goes_on = wait(arguments.duration.max(MIN_SAMPLE_TIME), &signals)?;
                let looked_ns = begin.elapsed().as_nanos() as u64;
                reports.push(Reported { tracer: kind, looked_ns, samples: tracer.samples() });
            }
            Ok(_) => {}
            Err(reason) => {
                outcome.could_not.push(format!("use the kernel's tracer {}: {reason}", kind.name()));
            }
        }
    }
    let mut output = anstream::stdout().lock();
    if arguments.json {
        let report = Report {
            test: "hwgap",
            threshold_ns: arguments.threshold.as_nanos() as u64,
            outcome: &outcome,
            tracers: &reports,
        };
        serde_json::to_writer_pretty(&mut output, &report)?;
        writeln!(output)?;
    } else {
        write_text(arguments, &outcome, &reports, &mut output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for a time. Returns false if a signal came.
fn wait(time: Duration, signals: &Signals) -> io::Result<bool> {
    let poller = Poller::new()?;
    poller.add(std::os::fd::AsFd::as_fd(signals), 0)?;
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        poller.wait(Some(left.min(REFRESH_INTERVAL)))?;
        if signals.next().is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Measures until the time is over, or a signal comes; then the second result is false.
fn measure(config: Config, signals: &Signals) -> anyhow::Result<(Outcome, bool)> {
    let stop = Arc::new(AtomicBool::new(false));
    let is_stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || hwgap::run(&config, &is_stopped));
    let poller = Poller::new()?;
    poller.add(std::os::fd::AsFd::as_fd(signals), 0)?;
    while !thread.is_finished() {
        poller.wait(Some(REFRESH_INTERVAL))?;
        if signals.next().is_some() {
            stop.store(true, Relaxed);
        }
    }
    let outcome = thread.join().map_err(|_| anyhow::anyhow!("the measuring thread panicked"))??;
    Ok((outcome, !stop.load(Relaxed)))
}

fn write_text(
    arguments: &Arguments,
    outcome: &Outcome,
    reports: &[Reported],
    output: &mut dyn Write,
) -> io::Result<()> {
    let looked = outcome.cpus.iter().map(|measured| measured.looked_ns).max().unwrap_or(0);
    writeln!(
        output,
        "{}, measured for {} each; gaps above {}",
        pluralize(outcome.cpus.len() as u64, "CPU"),
        units::format_duration(looked as f64),
        units::format_duration(arguments.threshold.as_nanos() as f64)
    )?;
    let limitations = outcome.cpus.iter().flat_map(|measured| &measured.prepared.could_not);
    super::write_limitations(limitations.chain(&outcome.could_not), output)?;
    write_table(outcome, output)?;
    write_at_once(outcome, output)?;
    write_longest(outcome, output)?;
    reports.iter().try_for_each(|report| write_tracer_report(report, output))
}

/// Writes the result of a tracer of the kernel.
fn write_tracer_report(report: &Reported, output: &mut dyn Write) -> io::Result<()> {
    let hardware: u64 = report.samples.iter().map(|sample| sample.hardware).sum();
    let longest = report.samples.iter().map(|sample| sample.longest_us).max().unwrap_or(0);
    let (looked, gaps) = (units::format_duration(report.looked_ns as f64), pluralize(hardware, "gap"));
    match report.tracer {
        Kind::Hwlat if hardware == 0 => {
            writeln!(output, "\nthe kernel's hwlat, with interrupts off, {looked}: no gap")
        }
        Kind::Hwlat => {
            writeln!(output, "\nthe kernel's hwlat, with interrupts off, {looked}: {gaps}, max {longest} µs")
        }
        Kind::Osnoise => writeln!(
            output,
            "\nthe kernel's osnoise, {looked}: {gaps} of hardware; max of any cause {longest} µs"
        ),
    }
}

/// Width of a column.
const WIDTH: usize = 13;
/// Width of the column with causes.
const CAUSES: usize = 28;

fn write_table(outcome: &Outcome, output: &mut dyn Write) -> io::Result<()> {
    writeln!(
        output,
        "\n\x1b[1m{:>4}  {:<CAUSES$}{:>WIDTH$}{:>WIDTH$}{:>WIDTH$}\x1b[0m",
        "CPU", "cause", "gaps", "max", "total"
    )?;
    for Measured { prepared, causes, smi, .. } in &outcome.cpus {
        if causes.is_empty() {
            writeln!(output, "{:>4}  nothing", prepared.cpu)?;
        }
        for Disturbance { cause, gaps, longest_ns, together_ns } in causes {
            let name = cause.words();
            let is_hardware = matches!(cause, Cause::Steal | Cause::Unknown);
            let (on, off) = if is_hardware { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
            let (longest, together) =
                (units::format_duration(*longest_ns), units::format_duration(*together_ns));
            let gaps = with_thousands(*gaps);
            writeln!(
                output,
                "{:>4}  {on}{name:<CAUSES$}{off}{gaps:>WIDTH$}{longest:>WIDTH$}{together:>WIDTH$}",
                prepared.cpu
            )?;
        }
        if let Some(smi) = smi {
            writeln!(
                output,
                "{:>4}  {:<CAUSES$}{:>WIDTH$}",
                prepared.cpu,
                "system management (SMI)",
                with_thousands(*smi)
            )?;
        }
    }
    Ok(())
}

/// Maximum number of gaps in the text.
const MAX_GAPS: usize = 5;

fn write_at_once(outcome: &Outcome, output: &mut dyn Write) -> io::Result<()> {
    if outcome.cpus.len() < 2 {
        return Ok(());
    }
    let times = pluralize(outcome.at_once.len() as u64, "time");
    match outcome.at_once.iter().map(|time| time.ns).max() {
        Some(longest) => writeln!(
            output,
            "\nall CPUs at once: {times}, max {}; only firmware or a hypervisor can do that",
            units::format_duration(longest as f64)
        ),
        None => writeln!(output, "\nall CPUs at once: never"),
    }
}

fn write_longest(outcome: &Outcome, output: &mut dyn Write) -> io::Result<()> {
    let mut gaps: Vec<&Gap> = outcome.gaps.iter().collect();
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.ns));
    if gaps.is_empty() {
        return Ok(());
    }
    writeln!(output, "\nlargest gaps without a software cause")?;
    for gap in gaps.iter().take(MAX_GAPS) {
        let (long, second) = (units::format_duration(gap.ns as f64), gap.begin_ns as f64 / 1e9);
        writeln!(output, "  {long:>10}  on CPU {}, at {second:.6} s of CLOCK_MONOTONIC", gap.cpu)?;
    }
    Ok(())
}
