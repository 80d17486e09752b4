//! Prints the states in traces: `states DIR…`, or their total durations: `states --sum DIR…`.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write, stdout};

use tompion_analysis::state::{self, Instant, Interval, State, Visitor};

struct Printer<W>(W);

impl<W: Write> Visitor for Printer<W> {
    fn interval(&mut self, interval: &Interval) {
        let Interval { track, state, begin, end, seen } = interval;
        let (from, to) = (if seen.begin { "" } else { "~" }, if seen.end { "" } else { "~" });
        let _ = writeln!(self.0, "{from}{begin} {to}{end} {track:?}: {state:?}");
    }

    fn instant(&mut self, instant: &Instant) {
        let _ = writeln!(self.0, "{} {:?}", instant.time, instant.what);
    }
}

/// Number and total duration of intervals, by the kind of their state.
#[derive(Default)]
struct Sum(BTreeMap<&'static str, (u64, i64)>);

impl Visitor for Sum {
    fn interval(&mut self, interval: &Interval) {
        let kind = match interval.state {
            State::Unknown => "unknown",
            State::Idle => "idle",
            State::Runs { .. } => "processor runs a thread",
            State::New => "new",
            State::Running { .. } => "running",
            State::Ready(_) => "ready",
            State::Blocked { .. } => "blocked",
            State::Syscall(_) => "system call",
            State::Interrupt(_) => "interrupt",
            State::SoftInterrupt(_) => "soft interrupt",
            State::Span(_) => "span",
            State::Function(_) => "function",
        };
        let (count, total) = self.0.entry(kind).or_default();
        *count += 1;
        *total += interval.end - interval.begin;
    }
}

fn main() {
    let mut paths: Vec<std::path::PathBuf> = std::env::args_os().skip(1).map(Into::into).collect();
    let is_sum = paths.first().is_some_and(|path| path.as_os_str() == "--sum");
    if is_sum {
        paths.remove(0);
    }
    let mut traces = match tompion_reader::open(&paths) {
        Ok(traces) => traces,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    if is_sum {
        let mut sum = Sum::default();
        state::run(&mut traces, &mut sum);
        for (kind, (count, total)) in sum.0 {
            println!("{count:10} {:14.6} s  {kind}", total as f64 / 1e9);
        }
    } else {
        state::run(&mut traces, &mut Printer(BufWriter::new(stdout().lock())));
    }
}
