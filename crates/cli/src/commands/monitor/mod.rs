//! `tompion monitor`: counts every wakeup of real-time threads, for as long as the machine runs.

mod background_tasks;
mod exec;
mod explain;
mod groups;
mod history;
mod history_session;
mod incidents;
mod job_table;
mod jobs;
mod live;
mod picture;
mod program_recorder;
mod serve;
mod stop_signals;
mod table;
mod text;

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::{Args, Subcommand};
use tompion_history::plot::{Curve, histograms};
use tompion_latency::{Begun, Fate, Kind, Kinds, Monitor, Report};
use tompion_os::Inheritance;

use crate::{
    messages::{self, pluralize, print_status},
    units,
};
use background_tasks::{BackgroundTasks, MonitorStopped, check_running};
use history_session::HistorySession;
use incidents::IncidentRecorder;
pub use stop_signals::StopSignals;

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
With --duration, counting that this command started ends with it.\n\n\
Exit status 3: `tompion monitor stop` ended this command. Systemd units list it in RestartPreventExitStatus=.")]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    watch: WatchArgs,
    /// Choose the monitor, where several count at the same time
    #[arg(long, value_name = "NAME", default_value = "tompion-monitor", global = true)]
    name: String,
}

#[derive(Subcommand)]
enum Action {
    /// Compare latencies between two periods or two kernels
    Compare(history::CompareArgs),
    /// Explain an incident that --threshold or --deadline-misses saved
    Explain(explain::ExplainArgs),
    /// Draw histograms since the last reset, or the history, as SVG or PNG
    Plot(PlotArgs),
    /// Summarize the history: maxima, percentiles, threads and times
    Report(history::ReportArgs),
    /// Restart reports at zero; no wakeup is missed
    #[command(after_help = "Example:\n  sudo tompion monitor reset")]
    Reset,
    /// Stop counting, and discard the counts
    #[command(after_help = "Example:\n  sudo tompion monitor stop")]
    Stop,
    /// Receive the jobs of programs (used by --job)
    #[command(hide = true, alias = "tell-jobs")]
    JobAgent(jobs::JobAgentArgs),
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    sudo tompion monitor plot -o latency.svg                 # histograms since the last reset\n  \
    tompion monitor plot --last 30h -o 30h.png               # the history: the max of each five minutes\n  \
    tompion monitor plot --last year --theme dark -o year.svg\n  \
    tompion monitor plot --last week --histograms -o week.svg")]
struct PlotArgs {
    #[command(flatten)]
    output: picture::PictureArgs,
    #[command(flatten)]
    history: history::HistoryPlotArgs,
}

#[derive(Args)]
struct WatchArgs {
    /// Print the counts since the last reset and exit [default if standard output is no terminal]
    #[arg(long, conflicts_with = "duration")]
    once: bool,
    /// Count for this time, print and exit: 10s, 5m
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    duration: Option<Duration>,
    #[command(flatten)]
    serve: serve::ServeArgs,
    /// Append to a history every five minutes, until Ctrl-C [default:
    /// /var/lib/tompion/history.sqlite]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with_all = ["once", "duration", "json"])]
    history: Option<Option<PathBuf>>,
    /// Count only these kinds, separated by commas: wakeup, shared, preempted, missed-timer,
    /// timer-wakeup (as cyclictest), timer-wakeup-all; or `all` [default: unchanged, initially all]
    #[arg(long, value_name = "KINDS", value_parser = kinds)]
    kinds: Option<Kinds>,
    #[command(flatten)]
    groups: groups::GroupArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    jobs: jobs::JobArgs,
    #[command(flatten)]
    incidents: incidents::IncidentArgs,
}

/// Parses a list of kinds: `wakeup,missed-timer`.
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

impl WatchArgs {
    /// Returns whether an option was given that only the display understands.
    fn has_display_options(&self) -> bool {
        let is_display = self.once || self.json || self.duration.is_some() || self.kinds.is_some();
        is_display || self.runs_until_stopped() || self.jobs.is_requested() || self.groups.is_requested()
    }

    /// Returns whether the command runs until the user ends it, also without a terminal.
    fn runs_until_stopped(&self) -> bool {
        self.serve.listen.is_some() || self.history.is_some() || self.incidents.is_requested()
    }
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.action.is_some() && arguments.watch.has_display_options() {
        print_status("display options such as --once can't be combined with a subcommand");
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    if let Err(error) = arguments.watch.incidents.check() {
        print_status(error.to_string());
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    match &arguments.action {
        None => return watch(&arguments.name, &arguments.watch).or_else(report_stopped),
        Some(Action::Explain(args)) => explain::run(args)?,
        Some(Action::Plot(args)) => plot(&arguments.name, args)?,
        Some(Action::Compare(args)) => history::compare(args)?,
        Some(Action::Report(args)) => history::report(args)?,
        Some(Action::JobAgent(args)) => jobs::run_agent(args)?,
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

/// Reports that the monitor was stopped. That is no failure, unless another monitor counts in its
/// place.
fn report_stopped(error: anyhow::Error) -> anyhow::Result<ExitCode> {
    match error.downcast_ref::<MonitorStopped>() {
        Some(stopped) if !stopped.is_replaced => {
            print_status(stopped);
            Ok(ExitCode::from(messages::ENDED))
        }
        _ => Err(error),
    }
}

fn watch(name: &str, watch: &WatchArgs) -> anyhow::Result<ExitCode> {
    let is_live = io::stdout().is_terminal() && !watch.json;
    if watch.jobs.is_requested() && watch.duration.is_none() && !watch.runs_until_stopped() && !is_live {
        bail!(
            "jobs are monitored only while the command runs: add --duration TIME, --listen ADDRESS:PORT, --history or --deadline-misses"
        );
    }
    // Taken before anything begins, so that Ctrl-C ends it in order.
    let inheritance = Inheritance::current();
    let stop = StopSignals::new()?;
    let open = |path: &Option<PathBuf>| HistorySession::begin(path.as_deref(), name);
    let mut history = watch.history.as_ref().map(open).transpose()?;
    let (mut monitor, begun) = begin(name, watch)?;
    let session = watch.groups.apply(&monitor);
    let session = session.and_then(|()| watch.jobs.begin(name, &mut monitor, inheritance));
    let session = match session {
        Ok(session) => session,
        Err(error) => {
            // A refused command leaves no monitor behind.
            if begun == Begun::Now {
                drop(monitor);
                Monitor::stop(name)?;
            }
            return Err(error);
        }
    };
    // Starting needs far more memory than running.
    tompion_os::release_unused_memory();
    let result = if watch.incidents.is_requested() {
        let mut incidents = IncidentRecorder::begin(name, &monitor, &watch.incidents, &stop, inheritance)?;
        let mut tasks = BackgroundTasks { history: history.as_mut(), incidents: Some(&mut incidents) };
        let result = match watch.serve.listen {
            Some(address) => serve::run(&mut monitor, tasks, address, &watch.serve, &stop),
            None => tasks.run(&mut monitor, &stop, watch.duration),
        };
        incidents.finish();
        result
    } else {
        show(&mut monitor, history.as_mut(), watch, &stop)
    };
    if result.is_ok() {
        history.map_or(Ok(()), |history| history.finish(&mut monitor))?;
    }
    let counts_on = monitor.fate() == Fate::GoesOn;
    if begun == Begun::Now && watch.duration.is_some() && counts_on {
        drop(monitor);
        Monitor::stop(name)?;
    } else if begun == Begun::Now && !watch.incidents.is_requested() && counts_on {
        print_status(
            "counting continues in the kernel: tompion monitor shows it, tompion monitor stop ends it",
        );
    }
    result.and_then(|()| session.map_or(Ok(()), jobs::JobSession::finish)).map(|()| ExitCode::SUCCESS)
}

/// Begins, or continues with the monitor that counts already. With a history, a monitor of an
/// earlier version is replaced: a service has no user who could do that.
fn begin(name: &str, watch: &WatchArgs) -> anyhow::Result<(Monitor, Begun)> {
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

/// Shows or serves the counts, or writes them to the history.
fn show(
    monitor: &mut Monitor,
    history: Option<&mut HistorySession>,
    watch: &WatchArgs,
    stop: &StopSignals,
) -> anyhow::Result<()> {
    if let Some(duration) = watch.duration {
        let report = count_for(monitor, duration, stop)?;
        write_report(&report, watch.json)?;
        return Ok(check_running(monitor)?);
    }
    let is_terminal = io::stdout().is_terminal();
    if let Some(address) = watch.serve.listen {
        serve::run(monitor, BackgroundTasks { history, incidents: None }, address, &watch.serve, stop)
    } else if history.is_some() && !is_terminal {
        BackgroundTasks { history, incidents: None }.run(monitor, stop, None)
    } else if watch.once || watch.json || !is_terminal {
        write_report(&monitor.report(None), watch.json)
    } else {
        live::run(monitor, history, stop)
    }
}

fn plot(name: &str, args: &PlotArgs) -> anyhow::Result<()> {
    args.output.check()?;
    if args.history.is_of_history() {
        return args.history.draw(&args.output);
    }
    let report = Monitor::resume(name)?.report(None);
    let curves = Curve::of_each(&report.cpus);
    args.output.write(&histograms(&curves, &text::title(&report), args.output.theme()))?;
    if args.output.output != Path::new("-") {
        let path = args.output.output.display();
        print_status(format!("{path}: histograms of {}", pluralize(report.wakeups.woken, "wakeup")));
    }
    text::describe_missed(&report).into_iter().for_each(print_status);
    Ok(())
}

/// Counts for a time, or until the user ends the command.
fn count_for(monitor: &mut Monitor, duration: Duration, stop: &StopSignals) -> anyhow::Result<Report> {
    let begin = monitor.snapshot();
    monitor.look_from_now();
    let until = Instant::now() + duration;
    while let Some(rest) = until.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
        // Looks find threads that start meanwhile.
        if stop.wait(rest.min(Duration::from_secs(1)))? || monitor.fate() != Fate::GoesOn {
            break;
        }
        monitor.look();
    }
    Ok(monitor.report(Some(&begin)))
}

fn write_report(report: &Report, json: bool) -> anyhow::Result<()> {
    let mut output = anstream::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut output, report)?;
        writeln!(output)?;
    } else {
        write!(output, "{}", text::report_text(report))?;
    }
    Ok(())
}
