//! `x bench monitor-accuracy`: the same wake-ups by the monitor and by a program that reads the
//! clock.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::super::cyclic::Load;
use super::super::results::{Figure, Results, Who};
use super::super::{Options, Report, progress};
use super::comparison::Pairs;
use super::{build, report};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

const METHOD: &str = "\
A thread on each CPU (SCHED_FIFO 95) sleeps until the next multiple of an interval by clock_nanosleep and reads the clock when it \
goes on, as cyclictest does; the monitor sees the same wake-ups. Both are matched one by one, by thread and intended time. Under \
load: hackbench, with intervals of 200 µs and of 1 ms. Interrupts off, preemption off: with intervals of 500 µs, BPF programs keep a thread of lower \
priority on the CPU for 0 to 400 µs, in the kernel's hrtimer_start and sys_enter, over every second or third of these moments. \
Other BPF programs count interrupts, so that it is known in which wake-ups one came between the switch to the thread and its look at \
the clock.\n";

const SECONDS: u64 = 40;
const QUICK_SECONDS: u64 = 5;
/// A run that takes longer than it should by this hangs.
const GRACE: u64 = 120;

/// The group of figures: a row for each of [`Phase::ALL`] and for [`TOGETHER`].
pub const GROUP: &str = "the program's latency from the monitor's";
/// All phases at once.
pub const TOGETHER: &str = "all together";
/// The phase that the plot leaves out: it has room for three.
pub const SLOW: &str = "under load, each 1 ms";
/// Figures of each, and their units.
pub const MATCHED: &str = "matched";
pub const UNMATCHED: &str = "unmatched";
pub const SLOPE: &str = "slope";
pub const INTERCEPT: &str = "intercept, µs";
pub const R: &str = "r";
pub const INTERRUPTED: &str = "interrupted between";
/// Intercept of the wakeups that were not interrupted, in microseconds.
pub const ALONE_INTERCEPT: &str = "intercept of the others, µs";
pub const ALONE_R: &str = "r of the others";
pub const SAME: &str = "same longest in 100 ms";

/// Load in the background.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Load,
    SlowLoad,
    InterruptsOff,
    PreemptionOff,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Load, Self::SlowLoad, Self::InterruptsOff, Self::PreemptionOff];

    const fn name(self) -> &'static str {
        match self {
            Self::Load => "under load, each 200 µs",
            Self::SlowLoad => SLOW,
            Self::InterruptsOff => "interrupts off",
            Self::PreemptionOff => "preemption off",
        }
    }

    /// Name in the program.
    const fn word(self) -> &'static str {
        match self {
            Self::Load | Self::SlowLoad => "nothing",
            Self::InterruptsOff => "interrupts",
            Self::PreemptionOff => "preemption",
        }
    }

    const fn interval_us(self) -> &'static str {
        match self {
            Self::Load => "200",
            Self::SlowLoad => "1000",
            Self::InterruptsOff | Self::PreemptionOff => "500",
        }
    }

    const fn is_loaded(self) -> bool {
        matches!(self, Self::Load | Self::SlowLoad)
    }
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let program = build(workspace, "accuracy")?;
    let seconds = if options.quick { QUICK_SECONDS } else { SECONDS };
    let mut found = Vec::new();
    for phase in Phase::ALL {
        progress(&format!("{}, {seconds} s", phase.name()));
        let load = if phase.is_loaded() { Some(Load::start()?) } else { None };
        let mut command = Command::new(&program);
        command.args([&seconds.to_string(), phase.interval_us(), phase.word()]);
        let text = shell::capture(&mut shell::limited(seconds + GRACE, &command))?;
        drop(load);
        let pairs = Pairs::parse(&text)?;
        ensure!(phase.is_loaded() || pairs.delays > seconds, "nothing was delayed on purpose");
        found.push((phase.name(), pairs));
    }
    progress("");
    let together = found.iter().fold(Pairs::default(), |all, (_, pairs)| all.and(pairs));
    let mut figures = Vec::new();
    for (name, pairs) in &found {
        figures.extend(figures_of(name, pairs)?);
    }
    figures.extend(figures_of(TOGETHER, &together)?);
    let results = Results::new("monitor-accuracy", 1, figures)?;
    let markdown = results.markdown("The monitor beside a program that looks at the clock", METHOD);
    report::write(workspace, options, &results, Some(&found))?;
    Ok(Report { text: report::accuracy_table(&results).text(), markdown, results })
}

fn figures_of(phase: &str, pairs: &Pairs) -> Result<Vec<Figure>> {
    let fit = pairs.fit(false).with_context(|| format!("{phase}: no wake-ups were matched"))?;
    let of_alone = pairs.fit(true).with_context(|| format!("{phase}: interrupts came between in all"))?;
    let (same, _) = pairs.same_longest();
    let values = [
        (MATCHED, pairs.matched.len() as f64),
        (UNMATCHED, pairs.unmatched as f64),
        (SLOPE, fit.slope),
        (INTERCEPT, fit.intercept),
        (R, fit.r),
        (INTERRUPTED, pairs.interrupted()),
        (ALONE_INTERCEPT, of_alone.intercept),
        (ALONE_R, of_alone.r),
        (SAME, same),
    ];
    let figure = |(label, value): (&str, f64)| {
        let mut figure = Figure::new(GROUP, Who::Tompion, label, phase, "");
        figure.note(Ok(value));
        figure
    };
    Ok(values.into_iter().map(figure).collect())
}

#[cfg(test)]
mod tests {
    use super::super::super::budgets::Budget;
    use super::super::budgets::of_accuracy;
    use super::*;

    /// Results of wake-ups that the program sees later by `more` µs than the monitor, of which some
    /// are stretched.
    fn results(more: f64, stretch: f64) -> Results {
        let line = |(at, late): (u64, f64)| {
            let intended = at * 1_000_000;
            let ran = |late: f64| intended + (late * 1e3) as u64;
            format!(
                "program 1 {intended} {} alone\nmonitor 1 {intended} {}\n",
                ran(late * stretch + more),
                ran(late)
            )
        };
        let text: String = (1..=400).map(|at| (at, (at * 37 % 400) as f64)).map(line).collect();
        let figures = figures_of(TOGETHER, &Pairs::parse(&text).unwrap()).unwrap();
        Results {
            benchmark: "monitor-accuracy".into(),
            date: "2026-01-31".into(),
            machine: Vec::new(),
            repetitions: 1,
            figures,
        }
    }

    #[test]
    fn a_monitor_that_is_off_misses_its_budgets() {
        let kept = |results| of_accuracy(&results).iter().map(Budget::is_kept).collect::<Vec<_>>();
        // Too few were matched for the first budget in all of these.
        assert_eq!(kept(results(1.5, 1.0)), [false, true, true, true, true]);
        assert_eq!(kept(results(3.0, 1.0)), [false, true, false, true, true]);
        assert_eq!(kept(results(1.5, 1.02)), [false, false, true, true, true]);
    }
}
