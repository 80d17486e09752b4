//! `--threshold` and `--deadline-misses`: saves an incident for each late wakeup or job.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::{ArgGroup, Args};
use jiff::{Timestamp, tz::TimeZone};
use tompion_latency::{
    Incidents, Monitor,
    incident::{self, Incident},
    syslog,
    threshold::{Capture, ThresholdRule, ThresholdWatcher, check_rules},
};
use tompion_os::{DirHandle, Inheritance, Interest};

use super::{
    exec::ExecCommands,
    explain,
    program_recorder::{self, ProgramRecorder, RecorderOptions},
    stop_signals::StopSignals,
};
use crate::{
    messages::{escape_control, pluralize, print_status},
    units,
};

/// Interest of the poller in captures and missed deadlines.
const CAPTURED: Interest = 2;
/// Interval at which captures that were not saved are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Args)]
#[group(skip)]
#[command(group(ArgGroup::new("captures").args(["rules", "deadline_misses"]).multiple(true)))]
pub struct IncidentArgs {
    /// Save an incident for each wakeup latency above this: 100us; for some threads: 'ctl*=50us';
    /// for one kind: 'wakeup:ctl*=20us' (as --kinds, without missed-timer). The first one that
    /// matches a thread decides (repeatable)
    #[arg(long = "threshold", value_name = "[KIND:][THREADS=]DURATION", value_parser = rule, conflicts_with_all = ["once", "json"])]
    rules: Vec<ThresholdRule>,
    /// With --job, save an incident for each missed deadline
    #[arg(long, alias = "misses", requires = "jobs", conflicts_with_all = ["once", "json"])]
    deadline_misses: bool,
    /// With --threshold or --deadline-misses, save incidents below this folder
    #[arg(long, value_name = "DIR", default_value = ".", requires = "captures")]
    incidents: PathBuf,
    /// With --threshold or --deadline-misses, save no incident for this time after one
    #[arg(long, alias = "pause", value_name = "DURATION", value_parser = units::duration, default_value = "10s", requires = "captures")]
    cooldown: Duration,
    /// With --threshold or --deadline-misses, exit after saving N incidents
    #[arg(long, alias = "most", value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "captures")]
    max_incidents: Option<u64>,
    /// With --threshold or --deadline-misses, run this shell command for each incident, at most
    /// eight at a time. $TOMPION_INCIDENT is its folder, $TOMPION_LATENCY_NS its latency,
    /// $TOMPION_THREAD the thread's name
    #[arg(long, value_name = "COMMAND", requires = "captures")]
    exec: Option<String>,
    /// With --threshold or --deadline-misses, save these events of programs too, as far back as
    /// their rings reach: 'app:*' (repeatable)
    #[arg(long, alias = "with", value_name = "EVENTS", requires = "captures")]
    capture: Vec<String>,
    /// With --threshold or --deadline-misses, keep at most N incidents: remove the oldest in the
    /// folder when one is added [default: keep all]
    #[arg(long, alias = "keep", value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "captures")]
    retain: Option<u64>,
}

fn rule(text: &str) -> Result<ThresholdRule, String> {
    ThresholdRule::parse(text, units::latency)
}

impl IncidentArgs {
    /// Returns whether incidents are to be saved.
    pub fn is_requested(&self) -> bool {
        !self.rules.is_empty() || self.deadline_misses
    }

    /// Checks the rules, before anything starts.
    pub fn check(&self) -> Result<(), tompion_latency::Error> {
        check_rules(&self.rules)
    }
}

/// Recorder of incidents: late wakeups and missed deadlines, each in a folder of its own.
pub struct IncidentRecorder<'a> {
    args: &'a IncidentArgs,
    /// Parent folder of the incidents.
    folder: DirHandle,
    watcher: ThresholdWatcher,
    inheritance: Inheritance,
    recorder: Option<ProgramRecorder>,
    commands: ExecCommands,
    saved: u64,
    /// Whether the last poll found a capture.
    may_have_more: bool,
    /// Number of incidents that could not be written.
    failed: u64,
    /// Number of captures that were not saved at the last report.
    reported_unsaved: u64,
    reported_at: Instant,
}

impl<'a> IncidentRecorder<'a> {
    /// Watches for late wakeups and jobs from now on. Commands inherit from this process as it was
    /// before it took signals.
    pub fn begin(
        name: &str,
        monitor: &Monitor,
        args: &'a IncidentArgs,
        stop: &StopSignals,
        inheritance: Inheritance,
    ) -> anyhow::Result<Self> {
        let folder = DirHandle::open_or_create(&args.incidents);
        let folder = folder.with_context(|| format!("can't make {}", args.incidents.display()))?;
        program_recorder::remove_stale(&folder);
        let watcher = ThresholdWatcher::begin(name, &args.rules)?;
        let recorder = match &args.capture[..] {
            [] => None,
            events => {
                let (events, selector) = (events.to_vec(), watcher.selector()?);
                let options = RecorderOptions { events, inheritance, selector };
                Some(ProgramRecorder::begin(&folder, options)?)
            }
        };
        stop.poller.add(watcher.descriptor(), CAPTURED).context("can't wait for late wakeups")?;
        let mut awaited = Vec::new();
        if !args.rules.is_empty() {
            let limits: Vec<String> = args.rules.iter().map(describe_rule).collect();
            awaited.push(format!("wakeup latency above {}", limits.join(", ")));
        }
        if let Some(jobs) = monitor.jobs().filter(|_| args.deadline_misses) {
            stop.poller.add(jobs.descriptor(), CAPTURED).context("can't wait for missed deadlines")?;
            jobs.save_missed(watcher.trigger()?);
            awaited.push("missed deadlines".into());
        }
        print_status(format!("waiting for {}; Ctrl-C ends it", awaited.join(" and ")));
        Ok(Self {
            args,
            folder,
            watcher,
            inheritance,
            recorder,
            commands: ExecCommands::default(),
            saved: 0,
            may_have_more: false,
            failed: 0,
            reported_unsaved: 0,
            reported_at: Instant::now(),
        })
    }

    /// Returns whether the requested number of incidents is saved.
    pub fn is_complete(&self) -> bool {
        self.args.max_incidents.is_some_and(|max| self.saved >= max)
    }

    /// Returns whether there may be captures that [`IncidentRecorder::save_next`] has not saved.
    pub fn may_have_more(&self) -> bool {
        self.may_have_more && !self.is_complete()
    }

    /// Saves the next capture, if there is one, and returns the incident and its folder. Saves only
    /// one: when captures come faster than they are written, signals and requests are still
    /// answered in between.
    pub fn save_next(&mut self, monitor: &mut Monitor) -> anyhow::Result<Option<(Incident, PathBuf)>> {
        let capture = if self.is_complete() { None } else { self.next_capture(monitor) };
        self.may_have_more = capture.is_some();
        let saved = capture.map(|capture| self.save(&capture, monitor)).transpose()?.flatten();
        if self.reported_at.elapsed() >= REPORT_INTERVAL {
            self.report_unsaved();
        }
        Ok(saved)
    }

    fn next_capture(&mut self, monitor: &Monitor) -> Option<Capture> {
        let missed = || Some(self.watcher.read_missed(&monitor.jobs()?.take_missed()?));
        let missed = if self.args.deadline_misses { missed() } else { None };
        missed.or_else(|| self.watcher.take())
    }

    fn save(
        &mut self,
        capture: &Capture,
        monitor: &mut Monitor,
    ) -> anyhow::Result<Option<(Incident, PathBuf)>> {
        // At once, because programs continue to write.
        self.recorder.iter_mut().for_each(ProgramRecorder::request_save);
        let report = monitor.report(None);
        let mut incident = Incident::of(capture, self.watcher.late().1);
        incident.look_up_name(&report);
        let name = self.new_name(&incident);
        let folder = self.folder.join(&name);
        let path = self.args.incidents.join(&name);
        let invocation: Vec<String> = std::env::args().collect();
        let saved = incident.save(&folder, capture, &report, &invocation);
        if let Some(recorder) = &mut self.recorder {
            // An incident without program events is still useful, and the next one may have room.
            if let Err(error) = recorder.move_to(saved.is_ok().then_some(&folder)) {
                print_status(format!("can't save program events: {error:#}"));
            }
        }
        self.watcher.go_on(capture.crossing.side, self.args.cooldown);
        if let Err(error) = saved {
            // The next one may have room.
            self.failed += 1;
            print_status(format!("can't save the incident: {:#}", anyhow::Error::from(error)));
            // The folder may have been removed and made again.
            if let Ok(folder) = DirHandle::open_or_create(&self.args.incidents) {
                self.folder = folder;
            }
            return Ok(None);
        }
        self.saved += 1;
        self.announce(&incident, &path)?;
        self.remove_oldest();
        Ok(Some((incident, path)))
    }

    /// Announces an incident on standard output and in the system log, and runs `--exec`.
    ///
    /// # Errors
    /// Standard output was closed.
    fn announce(&mut self, incident: &Incident, folder: &Path) -> anyhow::Result<()> {
        let sentence = explain::sentence(incident);
        let mut output = std::io::stdout().lock();
        let written = writeln!(output, "{}: {sentence}", escape_control(&folder.display().to_string()))
            .and_then(|()| output.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(error.into()),
            // Standard output may be a file on a full disk.
            Err(error) => {
                print_status(format!("{}: {sentence} (standard output: {error})", folder.display()))
            }
            Ok(()) => {}
        }
        let path = folder.display().to_string();
        let latency = incident.latency_ns.to_string();
        // There may be no system log.
        let _ = syslog::warn(&sentence, &[("TOMPION_INCIDENT", &path), ("TOMPION_LATENCY_NS", &latency)]);
        if let Some(command) = &self.args.exec {
            self.commands.run(command, incident, folder, self.inheritance);
        }
        Ok(())
    }

    /// Removes the oldest incidents beyond `--retain`.
    fn remove_oldest(&self) {
        let Some(max) = self.args.retain else { return };
        let folders = incident::folders(&self.args.incidents);
        let surplus = folders.len().saturating_sub(usize::try_from(max).unwrap_or(usize::MAX));
        for (_, folder) in folders.iter().take(surplus) {
            let Some(name) = folder.file_name() else { continue };
            if let Err(error) = self.folder.join(name).remove_all() {
                print_status(format!("can't remove {}: {error}", folder.display()));
            }
        }
    }

    /// Counts the incidents that were saved, and those that were not.
    pub fn counts(&self) -> Incidents {
        Incidents { kept: self.saved, too_soon: self.watcher.late().1, failed: self.failed }
    }

    /// Returns the noun for captures in messages.
    fn noun(&self) -> &'static str {
        match (self.args.rules.is_empty(), self.args.deadline_misses) {
            (_, false) => "late wakeup",
            (true, true) => "missed deadline",
            (false, true) => "capture",
        }
    }

    fn report_unsaved(&mut self) {
        let unsaved = self.watcher.late().1;
        if unsaved > self.reported_unsaved {
            let more = pluralize(unsaved - self.reported_unsaved, self.noun());
            let cooldown = self.args.cooldown;
            print_status(format!("{more} not saved: within {cooldown:?} of another one (--cooldown)"));
        }
        self.reported_unsaved = unsaved;
        self.reported_at = Instant::now();
    }

    /// Reports the counts, and waits for running commands, for a bounded time.
    pub fn finish(mut self) {
        let (late, unsaved) = self.watcher.late();
        let saved = pluralize(self.saved, "incident");
        let failed = match self.failed {
            0 => String::new(),
            failed => format!("; {failed} could not be written"),
        };
        print_status(format!(
            "{saved} saved of {}; {unsaved} not saved (--cooldown){failed}",
            pluralize(late, self.noun())
        ));
        self.commands.finish();
    }

    /// Returns a free name: `tompion-incident-TIME-THREAD`, with a number if that is taken.
    fn new_name(&self, incident: &Incident) -> String {
        let time = Timestamp::from_nanosecond(incident.time_ns.into()).unwrap_or_default();
        let time = time.to_zoned(TimeZone::system()).strftime("%Y%m%d-%H%M%S-%6f").to_string();
        let is_plain = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
        let thread: String = incident
            .thread
            .label()
            .chars()
            .map(|letter| if is_plain(letter) { letter } else { '_' })
            .collect();
        let name = format!("{}{time}-{thread}", incident::FOLDER);
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        names.find(|name| !self.folder.has(name)).unwrap_or_default()
    }
}

/// Formats a rule: `100 µs`, `50 µs (ctl*)`.
fn describe_rule(rule: &ThresholdRule) -> String {
    let limit = units::format_duration(rule.limit as f64);
    let kind = rule.kind.map(|kind| format!("{kind}")).unwrap_or_default();
    match (rule.threads.as_str(), kind.is_empty()) {
        ("*", true) => limit,
        ("*", false) => format!("{limit} ({kind})"),
        (threads, true) => format!("{limit} ({threads})"),
        (threads, false) => format!("{limit} ({kind} of {threads})"),
    }
}
