//! `tompion monitor`: every wake-up of real-time threads, for as long as the machine runs.

mod catch;
mod commands;
mod explain;
mod groups;
mod history;
mod job_table;
mod jobs;
mod keep;
mod live;
mod picture;
mod programs;
mod serve;
mod text;

use std::{
    io::{self, IsTerminal, Write},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use tompion_history::plot::{Curve, histograms};
use tompion_latency::{Begun, Fate, Kind, Kinds, Monitor, Report};
use tompion_os::{Inheritance, Interest, Poller, Signals};

use crate::{
    messages::{self, pluralize, print_status},
    units,
};
use catch::Catcher;
use keep::{Beside, Keeping, Stopped};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    sudo tompion monitor                       # count, and show a live table of the real-time threads\n  \
    sudo tompion monitor --duration 10s        # count for ten seconds\n  \
    sudo tompion monitor --once --json         # print the counts so far, as JSON\n  \
    sudo tompion monitor --kinds timer-wakeup  # count only this kind; --kinds all counts all\n  \
    sudo tompion monitor --cgroup robot.slice  # count the threads of a cgroup separately, too\n  \
    sudo tompion monitor --listen 127.0.0.1:9464 # serve /metrics to Prometheus\n  \
    sudo tompion monitor --history             # append to a history every five minutes\n  \
    sudo tompion monitor report --last week    # summarize the history\n  \
    sudo tompion monitor plot -o latency.svg   # draw histograms\n  \
    tompion monitor plot --last year -o y.png  # draw the max of each period of a year\n  \
    sudo tompion monitor --threshold 100us     # save an incident for each wakeup later than that\n  \
    tompion monitor explain                    # explain the newest incident\n  \
    sudo tompion monitor --job 'motor:*'       # response times and missed deadlines of jobs\n  \
    sudo tompion monitor --history --job 'motor:*'  # and append them to the history\n  \
    sudo tompion monitor reset                 # restart the reports at zero\n  \
    sudo tompion monitor stop                  # stop counting\n\n\
Counting continues in the kernel after this command ends, until `stop` or shutdown; the next command shows all of it. \
With --duration, counting that this command started ends with it.\n\n\
Exit status 3: `tompion monitor stop` ended this command. Systemd units list it in RestartPreventExitStatus=.")]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    watch: Watch,
    /// Choose the monitor, where several count at the same time
    #[arg(long, value_name = "NAME", default_value = "tompion-monitor", global = true)]
    name: String,
}

#[derive(Subcommand)]
enum Action {
    /// Compare latencies between two periods or two kernels
    Compare(history::CompareArguments),
    /// Explain an incident that --threshold or --deadline-misses saved
    Explain(explain::Wish),
    /// Draw histograms since the last reset, or the history, as SVG or PNG
    Plot(Plot),
    /// Summarize the history: maxima, percentiles, threads and times
    Report(history::ReportArguments),
    /// Restart reports at zero; no wakeup is missed
    Reset,
    /// Stop counting, and discard the counts
    Stop,
    /// Hear what programs say of their jobs (used by --job)
    #[command(hide = true)]
    TellJobs(jobs::Telling),
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    sudo tompion monitor plot -o latency.svg                 # histograms since the last reset\n  \
    tompion monitor plot --last 30h -o 30h.png               # the history: the max of each five minutes\n  \
    tompion monitor plot --last year --theme dark -o year.svg\n  \
    tompion monitor plot --last week --histograms -o week.svg")]
struct Plot {
    #[command(flatten)]
    output: picture::Output,
    #[command(flatten)]
    history: history::PlotWish,
}

#[derive(Args)]
struct Watch {
    /// Print the counts since the last reset and exit [default if standard output is no terminal]
    #[arg(long, conflicts_with = "duration")]
    once: bool,
    /// Count for this time, print and exit: 10s, 5m
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    duration: Option<Duration>,
    #[command(flatten)]
    serve: serve::Wish,
    /// Append to a history every five minutes, until Ctrl-C [default:
    /// /var/lib/tompion/history.sqlite]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with_all = ["once", "duration", "json"])]
    history: Option<Option<PathBuf>>,
    /// Count only these kinds, separated by commas, or `all` [default: unchanged, initially all]
    #[arg(long, value_name = "KINDS", value_parser = kinds)]
    kinds: Option<Kinds>,
    #[command(flatten)]
    groups: groups::Wish,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    jobs: jobs::Wish,
    #[command(flatten)]
    catch: catch::Wish,
}

/// `wakeup,missed-timer`.
fn kinds(text: &str) -> Result<Kinds, String> {
    if text == "all" {
        return Ok(Kinds::ALL);
    }
    let kind = |name: &str| {
        Kind::of_name(name).ok_or_else(|| {
            let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            format!("expected `all`, or some of {}; found `{name}`", names.join(", "))
        })
    };
    text.split(',').map(kind).collect()
}

impl Watch {
    /// Whether anything was asked for that only the display understands.
    fn is_asked_for(&self) -> bool {
        let is_shown = self.once || self.json || self.duration.is_some() || self.kinds.is_some();
        is_shown || self.is_to_last() || self.jobs.is_asked_for() || self.groups.is_asked_for()
    }

    /// Whether anything was asked for that goes on until the user ends it, also without a terminal.
    fn is_to_last(&self) -> bool {
        self.serve.listen.is_some() || self.history.is_some() || self.catch.is_asked_for()
    }
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.action.is_some() && arguments.watch.is_asked_for() {
        print_status("display options such as --once can't be combined with a subcommand");
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    if let Err(error) = arguments.watch.catch.check() {
        print_status(error.to_string());
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    match &arguments.action {
        None => return watch(&arguments.name, &arguments.watch).or_else(stopped),
        Some(Action::Explain(wish)) => explain::run(wish)?,
        Some(Action::Plot(wish)) => plot(&arguments.name, wish)?,
        Some(Action::Compare(wish)) => history::compare(wish)?,
        Some(Action::Report(wish)) => history::report(wish)?,
        Some(Action::TellJobs(telling)) => jobs::tell(telling)?,
        Some(Action::Reset) => {
            Monitor::resume(&arguments.name)?.reset()?;
            print_status("reports restart at zero; counting continues");
        }
        Some(Action::Stop) => match Monitor::stop(&arguments.name)? {
            true => print_status("counting stopped; counts discarded"),
            false => print_status("nothing is being counted"),
        },
    }
    Ok(ExitCode::SUCCESS)
}

/// Somebody has stopped the monitor: that is no failure, unless another one counts that could be
/// looked at.
fn stopped(error: anyhow::Error) -> anyhow::Result<ExitCode> {
    match error.downcast_ref::<Stopped>() {
        Some(stopped) if !stopped.is_replaced => {
            print_status(stopped);
            Ok(ExitCode::from(messages::ENDED))
        }
        _ => Err(error),
    }
}

fn watch(name: &str, watch: &Watch) -> anyhow::Result<ExitCode> {
    let is_live = io::stdout().is_terminal() && !watch.json;
    if watch.jobs.is_asked_for() && watch.duration.is_none() && !watch.is_to_last() && !is_live {
        bail!(
            "jobs are monitored only while the command runs: add --duration TIME, --listen ADDRESS:PORT, --history or --deadline-misses"
        );
    }
    // Before anything begins, so that Ctrl-C ends it in order.
    let inheritance = Inheritance::current();
    let end = End::new()?;
    let keeping = |path: &Option<PathBuf>| Keeping::begin(path.as_deref(), name);
    let mut keeping = watch.history.as_ref().map(keeping).transpose()?;
    let (mut monitor, begun) = begin(name, watch)?;
    let session = watch.groups.begin(&monitor);
    let session = session.and_then(|()| watch.jobs.begin(name, &mut monitor, inheritance));
    let session = match session {
        Ok(session) => session,
        Err(error) => {
            // What was refused leaves nothing behind.
            if begun == Begun::Now {
                drop(monitor);
                Monitor::stop(name)?;
            }
            return Err(error);
        }
    };
    // To begin took far more than to look on does.
    tompion_os::release_unused_memory();
    let looked = if watch.catch.is_asked_for() {
        let mut catcher = Catcher::begin((name, &monitor), &watch.catch, &end, inheritance)?;
        let mut beside = Beside { keeping: keeping.as_mut(), catcher: Some(&mut catcher) };
        let looked = match watch.serve.listen {
            Some(address) => serve::run(&mut monitor, beside, (address, &watch.serve, &end)),
            None => beside.run(&mut monitor, (&end, watch.duration)),
        };
        catcher.finish();
        looked
    } else {
        look(&mut monitor, keeping.as_mut(), (watch, &end))
    };
    if looked.is_ok() {
        keeping.map_or(Ok(()), |keeping| keeping.finish(&mut monitor))?;
    }
    let counts_on = monitor.fate() == Fate::GoesOn;
    if begun == Begun::Now && watch.duration.is_some() && counts_on {
        drop(monitor);
        Monitor::stop(name)?;
    } else if begun == Begun::Now && !watch.catch.is_asked_for() && counts_on {
        print_status(
            "counting continues in the kernel: tompion monitor shows it, tompion monitor stop ends it",
        );
    }
    looked.and_then(|()| session.map_or(Ok(()), jobs::Session::finish)).map(|()| ExitCode::SUCCESS)
}

/// Begins, or goes on with what counts already. Where a history is kept, nobody may be there to
/// mend what an earlier version has left.
fn begin(name: &str, watch: &Watch) -> anyhow::Result<(Monitor, Begun)> {
    let kinds = watch.kinds.unwrap_or(Kinds::ALL);
    let (monitor, begun) = match Monitor::begin(name, kinds) {
        Err(error) if watch.history.is_some() && error.calls_for_a_new_beginning() => {
            print_status(
                "the running monitor is of an earlier version, or incomplete; counting restarts, and the history notes the gap",
            );
            Monitor::stop(name)?;
            Monitor::begin(name, kinds)?
        }
        begun => begun?,
    };
    if begun == Begun::Before {
        if !monitor.is_of_this_build() {
            print_status(
                "the running BPF programs are of another build of Tompion; to replace them, run tompion monitor stop and start again",
            );
        }
        if let Some(kinds) = watch.kinds {
            monitor.set_kinds(kinds);
        }
    }
    Ok((monitor, begun))
}

/// Shows, serves or keeps what is counted.
fn look(
    monitor: &mut Monitor,
    keeping: Option<&mut Keeping>,
    (watch, end): (&Watch, &End),
) -> anyhow::Result<()> {
    if let Some(duration) = watch.duration {
        let report = of_duration(monitor, duration, end)?;
        show(&report, watch.json)?;
        return Ok(keep::still_counts(monitor)?);
    }
    let is_terminal = io::stdout().is_terminal();
    if let Some(address) = watch.serve.listen {
        serve::run(monitor, Beside { keeping, catcher: None }, (address, &watch.serve, end))
    } else if keeping.is_some() && !is_terminal {
        Beside { keeping, catcher: None }.run(monitor, (end, None))
    } else if watch.once || watch.json || !is_terminal {
        show(&monitor.report(None), watch.json)
    } else {
        live::run(monitor, keeping, end)
    }
}

fn plot(name: &str, wish: &Plot) -> anyhow::Result<()> {
    wish.output.check()?;
    if wish.history.is_of_history() {
        return wish.history.draw(&wish.output);
    }
    let report = Monitor::resume(name)?.report(None);
    let curves = Curve::of_each(&report.cpus);
    wish.output.write(&histograms(&curves, &text::title(&report), wish.output.theme()))?;
    if wish.output.output != Path::new("-") {
        let path = wish.output.output.display();
        print_status(format!("{path}: histograms of {}", pluralize(report.wakeups.woken, "wakeup")));
    }
    text::unseen(&report).into_iter().for_each(print_status);
    Ok(())
}

/// What happens in a time, or until the user ends it.
fn of_duration(monitor: &mut Monitor, duration: Duration, end: &End) -> anyhow::Result<Report> {
    let begin = monitor.snapshot();
    monitor.look_from_now();
    let until = Instant::now() + duration;
    while let Some(rest) = until.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
        // Threads that come meanwhile are looked at, too.
        if end.comes_within(rest.min(Duration::from_secs(1)))? || monitor.fate() != Fate::GoesOn {
            break;
        }
        monitor.look();
    }
    Ok(monitor.report(Some(&begin)))
}

fn show(report: &Report, json: bool) -> anyhow::Result<()> {
    let mut output = anstream::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut output, report)?;
        writeln!(output)?;
    } else {
        write!(output, "{}", text::whole(report))?;
    }
    Ok(())
}

/// By which the user's wish is told from other things that are waited for.
const SIGNALS: Interest = 0;

/// The user's wish to end.
struct End {
    signals: Signals,
    poller: Poller,
}

impl End {
    fn new() -> anyhow::Result<Self> {
        const SIGHUP: i32 = 1;
        const SIGINT: i32 = 2;
        const SIGTERM: i32 = 15;
        let signals = Signals::take(&[SIGHUP, SIGINT, SIGTERM]).context("can't take signals")?;
        let poller = Poller::new().context("can't wait")?;
        poller.add(signals.as_fd(), SIGNALS).context("can't wait for signals")?;
        Ok(Self { signals, poller })
    }

    /// Waits so long, or until the user wants to end.
    fn comes_within(&self, time: Duration) -> anyhow::Result<bool> {
        self.poller.wait(Some(time)).context("can't wait")?;
        Ok(self.has_come())
    }

    /// Whether the user wanted to end.
    fn has_come(&self) -> bool {
        self.signals.next().is_some()
    }
}
