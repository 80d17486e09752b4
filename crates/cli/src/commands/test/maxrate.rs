//! `tompion test maxrate`: the highest event rate without loss.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tompion_rttest::maxrate::{self, Found, Load, Plan, Trial};

use super::{BufferArguments, Peer};
use crate::{
    messages::{self, print_status, with_thousands},
    units,
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion test maxrate\n  \
    tompion test maxrate --producers 2 --subbuf-size 8M\n  \
    tompion test maxrate --peer lttng --folder /dev/shm\n  \
    sudo tompion test maxrate --trace syscalls\n  \
    sudo tompion test maxrate --trace all --json\n\n\
Threads record events at a constant rate. A rate passes if the trace has all events. The rate is doubled or halved until \
one passes and the next fails, then bisected.")]
pub struct Arguments {
    /// Record this: program events alone, with system calls, or with all kernel events
    #[arg(long, value_enum, value_name = "WHAT", default_value = "user")]
    trace: LoadArgument,
    /// Run this many producer threads, each on its own CPU
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8192))]
    producers: u32,
    /// Try each rate for this time
    #[arg(long, alias = "for", value_name = "DURATION", default_value = "1500ms", value_parser = units::duration)]
    duration: Duration,
    /// Stop bisecting at this precision, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=100))]
    near: u32,
    #[command(flatten)]
    buffers: BufferArguments,
    /// Also measure another tracer
    #[arg(long, value_enum, value_name = "TRACER")]
    peer: Option<Peer>,
    /// Write temporary traces below this folder [default: the system folder for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LoadArgument {
    /// Program events
    User,
    /// Program events, each followed by a recorded system call
    Syscalls,
    /// With all events of the kernel, and the same system calls
    All,
}

impl From<LoadArgument> for Load {
    fn from(argument: LoadArgument) -> Self {
        match argument {
            LoadArgument::User => Self::User,
            LoadArgument::Syscalls => Self::Syscalls,
            LoadArgument::All => Self::All,
        }
    }
}

/// Result of a recorder.
#[derive(Serialize)]
struct RecorderResult {
    recorder: &'static str,
    #[serde(flatten)]
    found: Found,
}

#[derive(Serialize)]
struct Report<'a> {
    test: &'static str,
    #[serde(flatten)]
    own: &'a RecorderResult,
    #[serde(skip_serializing_if = "<[RecorderResult]>::is_empty")]
    peers: &'a [RecorderResult],
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let cpus = tompion_os::allowed_cpus().len();
    if arguments.producers as usize > cpus {
        print_status(format!(
            "expected --producers of at most {cpus}, one for each CPU, found {}",
            arguments.producers
        ));
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    if arguments.peer.is_some() && arguments.trace != LoadArgument::User {
        print_status("--peer lttng measures events of the program: it goes with --trace user");
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    let (tompion, library) = super::program_and_library()?;
    let plan = Plan {
        load: arguments.trace.into(),
        producers: arguments.producers,
        time: arguments.duration,
        near: 1.0 + f64::from(arguments.near) / 100.0,
        buffers: arguments.buffers.buffers(),
        folder: arguments.folder.clone(),
        tompion,
        library,
    };
    let lttng = super::prepare_peer(arguments.peer);
    let mut results =
        vec![RecorderResult { recorder: "Tompion", found: maxrate::run(&plan, None, &mut progress)? }];
    if let Some(lttng) = &lttng {
        results.push(RecorderResult {
            recorder: "LTTng",
            found: maxrate::run(&plan, Some(lttng), &mut progress)?,
        });
    }
    clear_progress();
    let mut output = anstream::stdout().lock();
    if let (true, [own, peers @ ..]) = (arguments.json, &results[..]) {
        serde_json::to_writer_pretty(&mut output, &Report { test: "maxrate", own, peers })?;
        writeln!(output)?;
    } else {
        results.iter().try_for_each(|result| write_text(result, &mut output))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows progress on a terminal, in a line that the next one replaces.
fn progress(trial: &Trial) {
    if io::stderr().is_terminal() {
        let how = if trial.borne { "passed" } else { "failed" };
        anstream::eprint!("\r\x1b[Ktompion: {} events per second: {how}", with_thousands(trial.rate as u64));
    }
}

fn clear_progress() {
    if io::stderr().is_terminal() {
        anstream::eprint!("\r\x1b[K");
    }
}

/// Columns of the longest bar.
const BAR_WIDTH: usize = 30;

fn write_text(result: &RecorderResult, output: &mut dyn Write) -> io::Result<()> {
    let Found { load, producers, buffers, events_per_second, trials } = &result.found;
    let what = match load {
        Load::User => "events of the program",
        Load::Syscalls => "events of the program, each with a system call that is recorded, too",
        Load::All => "events of the program, each with a system call, and all events of the kernel",
    };
    writeln!(
        output,
        "\x1b[1m{}: {} events per second without loss\x1b[0m",
        result.recorder,
        with_thousands(*events_per_second as u64)
    )?;
    let threads = messages::pluralize(u64::from(*producers), "thread");
    writeln!(output, "{what}; {threads}, {} × {} per CPU\n", buffers.count, size(buffers.size))?;
    writeln!(output, "{:>15}{:>15}{:>12}{:>12}", "requested", "reached", "lost", "share")?;
    let max = trials.iter().map(|trial| trial.rate).fold(1.0, f64::max);
    for trial in trials {
        let lost = trial.lost + trial.kernel_lost;
        let all = trial.events + trial.kernel_events + trial.kernel_lost;
        let bar = "▇".repeat((trial.rate / max * BAR_WIDTH as f64).ceil() as usize);
        let (colour, why) = match (trial.borne, lost) {
            (true, _) => (32, ""),
            (false, 0) => (33, "  late"),
            (false, _) => (31, ""),
        };
        writeln!(
            output,
            "{:>15}{:>15}{:>12}{:>11.3}%  \x1b[{colour}m{bar}\x1b[0m{why}",
            with_thousands(trial.rate as u64),
            with_thousands(trial.reached as u64),
            with_thousands(lost),
            lost as f64 * 100.0 / all.max(1) as f64
        )?;
    }
    writeln!(output)
}

/// Formats a size as it is typed.
fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes % (1 << 20) == 0 => format!("{}M", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("{}K", bytes >> 10),
        bytes => bytes.to_string(),
    }
}
