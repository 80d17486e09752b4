//! `--threshold` and `--deadline-misses`: saves an incident for each wakeup or job that is too
//! late.

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
    End,
    commands::Commands,
    explain,
    programs::{self, Recorder},
};
use crate::{
    messages::{escape_control, pluralize, print_status},
    units,
};

/// By which late wake-ups are told from other things that are waited for.
const LATE: Interest = 2;
/// How often those are told that have no folder.
const TELL_EVERY: Duration = Duration::from_secs(60);

#[derive(Args)]
#[group(skip)]
#[command(group(ArgGroup::new("captures").args(["rules", "deadline_misses"]).multiple(true)))]
pub struct Wish {
    /// Save an incident for each wakeup latency above this: 100us; for some threads: 'ctl*=50us';
    /// for one kind: 'wakeup:ctl*=20us'. The first one that matches a thread decides (repeatable)
    #[arg(long = "threshold", value_name = "[KIND:][THREADS=]TIME", value_parser = rule, conflicts_with_all = ["once", "json"])]
    rules: Vec<ThresholdRule>,
    /// With --job, save an incident for each missed deadline
    #[arg(long, alias = "misses", requires = "jobs", conflicts_with_all = ["once", "json"])]
    deadline_misses: bool,
    /// With --threshold or --deadline-misses, save incidents below this folder
    #[arg(long, value_name = "DIR", default_value = ".", requires = "captures")]
    incidents: PathBuf,
    /// With --threshold or --deadline-misses, save no incident for this time after one
    #[arg(long, alias = "pause", value_name = "TIME", value_parser = units::time, default_value = "10s", requires = "captures")]
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
    ThresholdRule::parse(text, units::time)
}

impl Wish {
    /// Whether late wake-ups are to be kept.
    pub fn is_asked_for(&self) -> bool {
        !self.rules.is_empty() || self.deadline_misses
    }

    /// Whether that can be, before anything begins.
    pub fn check(&self) -> Result<(), tompion_latency::Error> {
        check_rules(&self.rules)
    }
}

/// Keeps late wake-ups.
pub struct Catcher<'a> {
    wish: &'a Wish,
    /// Where incidents go.
    incidents: DirHandle,
    watch: ThresholdWatcher,
    inheritance: Inheritance,
    recorder: Option<Recorder>,
    commands: Commands,
    kept: u64,
    /// Whether the last look found something.
    may_have_more: bool,
    /// How many folders could not be written.
    failed: u64,
    /// Of those that were late, how many were not kept when that was told last.
    told: u64,
    told_at: Instant,
}

impl<'a> Catcher<'a> {
    /// Watches from now on. `inheritance` is what commands get of this process as it was before it
    /// took signals.
    pub fn begin(
        (name, monitor): (&str, &Monitor),
        wish: &'a Wish,
        end: &End,
        inheritance: Inheritance,
    ) -> anyhow::Result<Self> {
        let folder = &wish.incidents;
        let incidents = DirHandle::open_or_create(folder);
        let incidents = incidents.with_context(|| format!("can't make {}", folder.display()))?;
        programs::remove_left(&incidents);
        let watch = ThresholdWatcher::begin(name, &wish.rules)?;
        let recorder = match &wish.capture[..] {
            [] => None,
            events => {
                let (events, selector) = (events.to_vec(), watch.selector()?);
                Some(Recorder::begin(&incidents, programs::Wish { events, inheritance, selector })?)
            }
        };
        end.poller.add(watch.descriptor(), LATE).context("can't wait for late wakeups")?;
        let mut awaited = Vec::new();
        if !wish.rules.is_empty() {
            let limits: Vec<String> = wish.rules.iter().map(describe_rule).collect();
            awaited.push(format!("wakeup latency above {}", limits.join(", ")));
        }
        if let Some(jobs) = monitor.jobs().filter(|_| wish.deadline_misses) {
            end.poller.add(jobs.descriptor(), LATE).context("can't wait for missed deadlines")?;
            jobs.keep_missed(watch.trigger()?);
            awaited.push("missed deadlines".into());
        }
        print_status(format!("waiting for {}; Ctrl-C ends it", awaited.join(" and ")));
        Ok(Self {
            wish,
            incidents,
            watch,
            inheritance,
            recorder,
            commands: Commands::default(),
            kept: 0,
            may_have_more: false,
            failed: 0,
            told: 0,
            told_at: Instant::now(),
        })
    }

    /// Whether as many were kept as were asked for.
    pub fn has_enough(&self) -> bool {
        self.wish.max_incidents.is_some_and(|most| self.kept >= most)
    }

    /// Whether more may have been caught than [`Catcher::look`] has kept.
    pub fn may_have_more(&self) -> bool {
        self.may_have_more && !self.has_enough()
    }

    /// Keeps one of those that were caught, if there are any; what was kept, and where. One at a
    /// time: where threads are late faster than folders are written, the user's wish to end and
    /// those who ask for pages have their turn in between.
    pub fn look(&mut self, monitor: &mut Monitor) -> anyhow::Result<Option<(Incident, PathBuf)>> {
        let caught = if self.has_enough() { None } else { self.next_caught(monitor) };
        self.may_have_more = caught.is_some();
        let kept = caught.map(|caught| self.keep(&caught, monitor)).transpose()?.flatten();
        if self.told_at.elapsed() >= TELL_EVERY {
            self.tell_not_kept();
        }
        Ok(kept)
    }

    fn next_caught(&mut self, monitor: &Monitor) -> Option<Capture> {
        let missed = || Some(self.watch.read_missed(&monitor.jobs()?.take_missed()?));
        let missed = if self.wish.deadline_misses { missed() } else { None };
        missed.or_else(|| self.watch.take())
    }

    fn keep(
        &mut self,
        caught: &Capture,
        monitor: &mut Monitor,
    ) -> anyhow::Result<Option<(Incident, PathBuf)>> {
        // At once: programs go on writing.
        self.recorder.iter_mut().for_each(Recorder::ask);
        let report = monitor.report(None);
        let mut incident = Incident::of(caught, self.watch.late().1);
        incident.look_up_name(&report);
        let name = self.new_name(&incident);
        let folder = self.incidents.join(&name);
        let shown = self.wish.incidents.join(&name);
        let invocation: Vec<String> = std::env::args().collect();
        let saved = incident.save(&folder, caught, &report, &invocation);
        if let Some(recorder) = &mut self.recorder {
            // The folder says enough without it; the next one may have room.
            if let Err(error) = recorder.keep(saved.is_ok().then_some(&folder)) {
                print_status(format!("can't save program events: {error:#}"));
            }
        }
        self.watch.go_on(caught.crossing.side, self.wish.cooldown);
        if let Err(error) = saved {
            // The next one may have room.
            self.failed += 1;
            print_status(format!("can't save the incident: {:#}", anyhow::Error::from(error)));
            // The folder may have been removed, and made again since.
            if let Ok(incidents) = DirHandle::open_or_create(&self.wish.incidents) {
                self.incidents = incidents;
            }
            return Ok(None);
        }
        self.kept += 1;
        self.tell(&incident, &shown)?;
        self.forget_oldest();
        Ok(Some((incident, shown)))
    }

    /// An error if nobody reads standard output any more.
    fn tell(&mut self, incident: &Incident, folder: &Path) -> anyhow::Result<()> {
        let sentence = explain::sentence(incident);
        let mut output = std::io::stdout().lock();
        let told = writeln!(output, "{}: {sentence}", escape_control(&folder.display().to_string()))
            .and_then(|()| output.flush());
        match told {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(error.into()),
            // It may be a file on a full disk.
            Err(error) => {
                print_status(format!("{}: {sentence} (standard output: {error})", folder.display()))
            }
            Ok(()) => {}
        }
        let path = folder.display().to_string();
        let latency = incident.latency_ns.to_string();
        // There may be no log at all.
        let _ = syslog::warn(&sentence, &[("TOMPION_INCIDENT", &path), ("TOMPION_LATENCY_NS", &latency)]);
        self.commands.run(&self.wish.exec, (incident, folder), self.inheritance);
        Ok(())
    }

    /// Keeps no more folders than were asked for.
    fn forget_oldest(&self) {
        let Some(most) = self.wish.retain else { return };
        let folders = incident::folders(&self.wish.incidents);
        let surplus = folders.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
        for (_, folder) in folders.iter().take(surplus) {
            let Some(name) = folder.file_name() else { continue };
            if let Err(error) = self.incidents.join(name).remove_all() {
                print_status(format!("can't remove {}: {error}", folder.display()));
            }
        }
    }

    /// How many were kept, and how many not, since it began.
    pub fn incidents(&self) -> Incidents {
        Incidents { kept: self.kept, too_soon: self.watch.late().1, failed: self.failed }
    }

    /// What is caught, for sentences with a number.
    fn what(&self) -> &'static str {
        match (self.wish.rules.is_empty(), self.wish.deadline_misses) {
            (_, false) => "late wakeup",
            (true, true) => "missed deadline",
            (false, true) => "late one",
        }
    }

    fn tell_not_kept(&mut self) {
        let not_saved = self.watch.late().1;
        if not_saved > self.told {
            let more = pluralize(not_saved - self.told, self.what());
            print_status(format!(
                "{more} not saved: within {:?} of another one (--cooldown)",
                self.wish.cooldown
            ));
        }
        self.told = not_saved;
        self.told_at = Instant::now();
    }

    /// Says how many there were, and waits a while for what was begun.
    pub fn finish(mut self) {
        let (late, not_saved) = self.watch.late();
        let kept = pluralize(self.kept, "incident");
        let failed = match self.failed {
            0 => String::new(),
            failed => format!("; {failed} could not be written"),
        };
        print_status(format!(
            "{kept} saved of {}; {not_saved} not saved (--cooldown){failed}",
            pluralize(late, self.what())
        ));
        self.commands.finish();
    }

    /// `tompion-incident-TIME-THREAD`, with a number behind it if that is taken.
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
        names.find(|name| !self.incidents.has(name)).unwrap_or_default()
    }
}

/// `100 µs`, `50 µs (ctl*)`.
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
