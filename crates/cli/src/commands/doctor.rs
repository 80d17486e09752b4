//! `tompion doctor`: a table of checks. Each has a finding, a reason why it matters, and a remedy.

use std::{io::Write, process::ExitCode};

use clap::Args;
use serde::Serialize;
use tompion_machine::{Root, fitness};
use tompion_os::{Disturbance, FileRights, RseqVerdict};

use crate::messages;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion doctor\n  \
    tompion doctor --json | jq '.[] | select(.state != \"good\")'\n  \
    tompion doctor --rt\n  \
    sudo tompion doctor --rt                # with the kernel's preemption mode and interrupts\n\n\
Exit status 1: recording does not work, or with --rt, no bound on latency can be expected.")]
pub struct Arguments {
    /// Check settings for real-time programs: the value, why it matters, how to change it
    #[arg(long)]
    rt: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    /// Recording works, with a drawback.
    Drawback,
    /// Recording doesn't work.
    Bad,
    /// The check could not run.
    Unknown,
}

struct Finding {
    state: State,
    found: String,
    mend: Option<String>,
}

impl Finding {
    fn good(found: impl Into<String>) -> Self {
        Self { state: State::Good, found: found.into(), mend: None }
    }

    fn other(state: State, found: impl Into<String>, mend: &str) -> Self {
        Self { state, found: found.into(), mend: Some(mend.into()) }
    }
}

/// Check: its name, the reason why it matters, and the function that runs it.
struct Check {
    name: &'static str,
    why: &'static str,
    run: fn() -> Finding,
}

const REGISTERED: &str =
    "use glibc 2.35 or later and Linux 4.18 or later, without GLIBC_TUNABLES=glibc.pthread.rseq=0";

const CHECKS: &[Check] = &[
    Check {
        name: "rseq",
        why: "events are appended in restartable sequences",
        run: || match (tompion_os::rseq_area(), tompion_os::processor().exchanges_16_bytes) {
            (Some(_), _) => Finding::good("registered by the C library"),
            (None, true) => Finding::other(
                State::Drawback,
                "not registered by the C library; programs like this one use reserve/commit instead, \
                 at about four times the cost per event",
                REGISTERED,
            ),
            (None, false) => Finding::other(
                State::Bad,
                "not registered by the C library, and the CPU lacks cmpxchg16b, which reserve/commit needs",
                REGISTERED,
            ),
        },
    },
    Check {
        name: "rseq restarts",
        why: "a section that continues after another one ran on its CPU corrupts events",
        run: restarts,
    },
    Check {
        name: "section barrier",
        why: "a recording ends without disturbing the threads that are recorded",
        run: || match tompion_os::prepare_section_barrier() {
            Ok(()) => Finding::good("membarrier restarts sections"),
            Err(_) if tompion_os::rseq_area().is_none() => Finding::good("not needed: there are no sections"),
            Err(error) => {
                Finding::other(State::Bad, format!("membarrier: {error}"), "use Linux 5.10 or later")
            }
        },
    },
    Check {
        name: "clock",
        why: "the clock is most of an event's cost",
        run: || match tompion_os::tsc_state() {
            Ok(()) => {
                let counter = tompion_os::COUNTER_NAME;
                Finding::good(format!("the kernel keeps time by {counter}; events read it directly"))
            }
            Err(reason) => Finding::other(
                State::Drawback,
                format!("{reason}; events use clock_gettime"),
                "boot with tsc=reliable if the processor's TSC is invariant",
            ),
        },
    },
    Check {
        name: "memory files",
        why: "rings are sealed memory files, which neither side can shrink",
        run: || match tompion_os::create_memfd(c"tompion-doctor", 4096) {
            Ok(_) => Finding::good("can be created and sealed"),
            Err(error) => Finding::other(State::Bad, error.to_string(), "allow memfd_create in the sandbox"),
        },
    },
    Check {
        name: "sockets",
        why: "programs find their session by an abstract Unix socket",
        run: || match tompion_os::Listener::bind(&format!("tompion-doctor-{}", tompion_os::monotonic_ns())) {
            Ok(_) => Finding::good("abstract Unix sockets work"),
            Err(error) => Finding::other(State::Bad, error.to_string(), "allow Unix sockets in the sandbox"),
        },
    },
    Check {
        name: "libtompion",
        why: "programs that are linked with -ltompion load it",
        run: || library("libtompion.so.0"),
    },
    Check {
        name: "kernel events",
        why: "`record -k` shows scheduling, interrupts, system calls and I/O in the same trace",
        run: kernel,
    },
    Check {
        name: "user probes",
        why: "`record -k uprobe:…` and `usdt:` must not change what the probed program computes",
        run: user_probes,
    },
    Check {
        name: "malloc preload",
        why: "`record --preload malloc` records the allocations of any program",
        run: || library("libtompion-malloc.so"),
    },
    Check {
        name: "pthread preload",
        why: "`record --preload pthread` records the locks and threads of any program",
        run: || library("libtompion-pthread.so"),
    },
    Check {
        name: "func preload",
        why: "`record --preload func` records the functions of programs compiled with -finstrument-functions",
        run: || library("libtompion-func.so"),
    },
];

/// Tests with two threads whether the kernel restarts sections.
fn restarts() -> Finding {
    const MEND: &str = "use a kernel that restarts sections; until then, programs use reserve/commit at about \
                        four times the cost per event";
    match tompion_os::rseq_verdict() {
        RseqVerdict::Kept => Finding::good("sections are restarted by preemption and by membarrier"),
        RseqVerdict::Broken(Disturbance::Preemption) => {
            Finding::other(State::Drawback, "this kernel does not restart preempted sections", MEND)
        }
        RseqVerdict::Broken(Disturbance::Barrier) => {
            Finding::other(State::Drawback, "membarrier does not restart sections", MEND)
        }
        RseqVerdict::Unknown(reason) => {
            Finding::other(State::Unknown, format!("could not be tested: {reason}"), MEND)
        }
    }
}

/// Tests on this process whether probes leave the data of programs alone.
fn user_probes() -> Finding {
    match tompion_os::probes_keep_red_zone() {
        Ok(true) => Finding::good("leave the 128 bytes below the stack pointer alone"),
        Ok(false) => Finding::other(
            State::Drawback,
            "this kernel overwrites data below the stack pointer for probes on 5-byte nops; they are refused except at \
             function entries",
            "probe another instruction, or use a kernel whose probes step over the red zone",
        ),
        Err(error) => Finding::other(
            State::Unknown,
            format!("could not be tested: {error}"),
            "run as root; probes at 5-byte nops in the middle of functions are refused",
        ),
    }
}

/// Checks whether the kernel can be recorded, and names all obstacles at once.
fn kernel() -> Finding {
    let obstacles = tompion_kernel::obstacles();
    if obstacles.is_empty() {
        return Finding::good("BPF programs can be loaded; BTF and tracepoint formats exist");
    }
    let found: Vec<String> = obstacles.iter().map(|obstacle| obstacle.found.clone()).collect();
    let mend: Vec<&str> = obstacles.iter().map(|obstacle| obstacle.mend).collect();
    Finding::other(State::Drawback, found.join("; "), &mend.join("; "))
}

fn library(name: &str) -> Finding {
    match tompion_installation::library(name) {
        Ok(path) => Finding::good(path.display().to_string()),
        Err(error) => Finding::other(State::Drawback, error.to_string(), "./x install --prefix DIR"),
    }
}

/// Row of the output.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    state: State,
    found: String,
    why: &'static str,
    mend: Option<String>,
}

impl From<fitness::Finding> for Row {
    fn from(finding: fitness::Finding) -> Self {
        let fitness::Finding { name, state, found, why, mend } = finding;
        let state = match state {
            fitness::State::Good => State::Good,
            fitness::State::Drawback => State::Drawback,
            fitness::State::Bad => State::Bad,
            fitness::State::Unknown => State::Unknown,
        };
        Self { name, state, found, why, mend }
    }
}

/// Runs the checks for recording.
fn recording() -> Vec<Row> {
    let rows = CHECKS.iter().map(|check| {
        let Finding { state, found, mend } = (check.run)();
        Row { name: check.name, state, found, why: check.why, mend }
    });
    rows.collect()
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    // The checked paths belong to the machine; only root can change them.
    let _rights = FileRights::of_the_process().ok();
    let rows = match arguments.rt {
        true => fitness::examine(&Root::default()).into_iter().map(Row::from).collect(),
        false => recording(),
    };
    let mut output = anstream::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut output, &rows)?;
        writeln!(output)?;
    } else {
        write_text(&mut output, &rows)?;
    }
    let bad = rows.iter().any(|row| row.state == State::Bad);
    Ok(if bad { ExitCode::from(messages::FAILED) } else { ExitCode::SUCCESS })
}

fn write_text(output: &mut impl Write, rows: &[Row]) -> std::io::Result<()> {
    for row in rows {
        let sign = match row.state {
            State::Good => "\x1b[32m ok \x1b[0m",
            State::Drawback => "\x1b[33mnote\x1b[0m",
            State::Bad => "\x1b[31m bad\x1b[0m",
            State::Unknown => "\x1b[35m  ? \x1b[0m",
        };
        writeln!(output, "{sign}  {:<16} {}", row.name, messages::escape_control(&row.found))?;
        let Some(mend) = row.mend.as_deref().map(messages::as_typed) else { continue };
        writeln!(output, "      {:<16} why: {}", "", row.why)?;
        for (step, word) in mend.lines().zip(std::iter::once("do: ").chain(std::iter::repeat("    "))) {
            writeln!(output, "      {:<16} {word} {step}", "")?;
        }
    }
    Ok(())
}
