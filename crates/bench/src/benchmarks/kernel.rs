//! `x bench kernel`: what recording the kernel costs, beside ftrace and perf.

pub mod tracers;
mod workloads;

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::results::{Figure, Results, Who, reason};
use super::tompion::Tompion;
use super::{Options, Report, progress};
use tompion_tasks::workspace::Workspace;
use tracers::{CALLS, State, Tracers, USUAL, Variant};
use workloads::{Large, MICRO, NULL_CALL, Workloads};

const METHOD: &str = "\
All record the whole machine, into rings of 4 MiB for each CPU. `added to a system call`: a loop of getppid on one \
CPU, flight recorders, entry and exit of all system calls and nothing else; in each round a run without a tracer \
and one with it, and the difference is the figure. Everywhere else: entry and exit of all system calls, switches, \
wakings, fork, exec and exit of processes, page faults of programs. Tompion also reads the paths among the \
arguments. Stopped: tracing_on is 0, perf has not enabled its events, and Tompion is attached to the system calls of \
another process, which sleeps. To disk: Tompion writes a CTF trace, a `cat` for each CPU ftrace's pages as \
`trace-cmd record` does (which insists on writing a sysctl, and not every user may), perf its file. One CPU: the \
programs have only that, recorders may use the other. Microbenchmarks are of lmbench's kind, a process on each CPU, \
of which the slowest counts; `tbench` and `dbench` (in /dev/shm) run with a client for each CPU, hackbench with one \
group, the compiler with as many at once as CPUs. What ftrace and Tompion lost to disk is reported; perf's losses are not \
known.\n";

/// The name of the group that the budgets are about.
pub const ADDED: &str = "added to a system call";
/// Its place.
pub const BOTH_EVENTS: &str = "null call, both events";
/// All variants take minutes.
const MAX_REPETITIONS: usize = 3;
/// Rounds of the null call for each repetition of the others.
const ROUNDS: usize = 3;

/// Tools of the measurement.
struct Bench {
    tracers: Tracers,
    workloads: Workloads,
    most_cpus: usize,
}

/// Figures by group, label and place, in the order in which they came.
#[derive(Default)]
struct Figures {
    list: Vec<Figure>,
    places: BTreeMap<(String, String, String), usize>,
}

impl Figures {
    fn note(&mut self, (group, unit): (&str, &str), variant: Variant, place: &str, measured: Result<f64>) {
        let label = variant.label();
        let key = (group.to_owned(), label.clone(), place.to_owned());
        let list = &mut self.list;
        let at = *self.places.entry(key).or_insert_with(|| {
            list.push(Figure::new(group, variant.who(), &label, place, unit));
            list.len() - 1
        });
        list[at].note(measured);
    }

    fn lost(&mut self, variant: Variant, lost: f64) {
        let label = variant.label();
        for figure in self.list.iter_mut().filter(|figure| figure.label == label && figure.group != ADDED) {
            let most = figure.counts.entry("lost, of all programs together".into()).or_default();
            *most = most.max(lost);
        }
    }

    /// Group by group, as they are first met.
    fn sorted(self) -> Vec<Figure> {
        let groups: Vec<String> = self.list.iter().map(|figure| figure.group.clone()).collect();
        let mut list = self.list;
        list.sort_by_key(|figure| groups.iter().position(|group| *group == figure.group));
        list
    }
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    if let Some(package) = workloads::missing() {
        bail!("a program is missing (apt install {package})");
    }
    let bench = Bench {
        tracers: Tracers::new(Tompion::build(workspace)?, workloads::trace_folder(workspace)?),
        workloads: Workloads::prepare(workspace, options.quick)?,
        most_cpus: std::thread::available_parallelism().map_or(1, usize::from).min(2),
    };
    let repetitions = options.repetitions.min(MAX_REPETITIONS);
    let mut figures = Figures::default();
    for round in 1..=repetitions * ROUNDS {
        progress(&format!("null call, round {round}/{}", repetitions * ROUNDS));
        bench.added(&mut figures);
    }
    for repetition in 1..=repetitions {
        for variant in Variant::ALL.into_iter().filter(|variant| bench.tracers.can(variant.who())) {
            progress(&format!("repetition {repetition}/{repetitions}: {}", variant.label()));
            bench.measure(variant, &mut figures);
        }
    }
    progress("");
    let results = Results::new("kernel", repetitions, figures.sorted())?;
    Ok(Report { text: results.text(), markdown: results.markdown("The kernel", METHOD), results })
}

impl Bench {
    /// Measures one round of the null call: without and with each tracer, in turns.
    fn added(&self, figures: &mut Figures) {
        for who in [Who::Tompion, Who::Ftrace, Who::Perf] {
            if self.tracers.can(who) {
                let variant = Variant::On(who, State::Recorder);
                figures.note((ADDED, "ns"), variant, BOTH_EVENTS, self.added_by(variant));
            }
        }
    }

    fn added_by(&self, variant: Variant) -> Result<f64> {
        let without = self.workloads.micro(&NULL_CALL, 1)?;
        let running = self.tracers.start(variant, &CALLS)?;
        let with = self.workloads.micro(&NULL_CALL, 1);
        if let Some(running) = running {
            running.stop()?;
        }
        Ok(with? - without)
    }

    /// Everything with one variant.
    fn measure(&self, variant: Variant, figures: &mut Figures) {
        let running = match self.tracers.start(variant, &USUAL) {
            Ok(running) => running,
            Err(error) => {
                progress("");
                eprintln!("failed: {}: {}", variant.label(), reason(&error));
                return;
            }
        };
        for cpus in 1..=self.most_cpus {
            let on = if cpus == 1 { "one CPU" } else { "two CPUs" };
            let table = format!("microbenchmarks on {on}");
            for micro in &MICRO {
                figures.note((&table, "ns"), variant, micro.place, self.workloads.micro(micro, cpus));
            }
            for large in Large::ALL {
                let (table, unit) = large.table();
                let table = format!("{table} on {on}");
                figures.note((&table, unit), variant, large.place(), self.workloads.large(large, cpus));
            }
        }
        match running.map(tracers::Running::stop).transpose() {
            Ok(lost) => figures.lost(variant, lost.flatten().unwrap_or(0.0)),
            Err(error) => eprintln!("failed: {}: {}", variant.label(), reason(&error)),
        }
    }
}
