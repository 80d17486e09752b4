//! `tompion monitor --history`: what is counted goes into a file, every five minutes.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tompion_history::{self as history, Fact, HistoryWriter, Incident, Store};
use tompion_latency::{Fate, Kind, Monitor, OfProcess, incident, jobs::Jobs};
use tompion_machine::{Root, description};

use super::{End, catch::Catcher};
use crate::messages::print_status;

/// Maximum time between two looks, within which a stopped monitor is noticed.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Why a command ends by itself that looks at a monitor.
#[derive(Debug)]
pub struct Stopped {
    /// Whether another one counts in its place.
    pub is_replaced: bool,
    /// The history that has all of it.
    kept: Option<PathBuf>,
}

impl fmt::Display for Stopped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the monitor was stopped")?;
        if self.is_replaced {
            formatter.write_str(" and another one started")?;
        }
        match &self.kept {
            Some(path) => write!(formatter, "; {} has its counts", path.display()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Stopped {}

/// An error if the monitor was stopped.
pub fn still_counts(monitor: &Monitor) -> Result<(), Stopped> {
    match monitor.fate() {
        Fate::GoesOn => Ok(()),
        fate => Err(Stopped { is_replaced: fate == Fate::Replaced, kept: None }),
    }
}

/// A history that is written beside what else the command does.
pub struct Keeping {
    history: HistoryWriter,
    /// Where it is, if somebody has named it.
    named: Option<PathBuf>,
    /// What was said last of why it can't be written.
    failure: String,
    /// Whether it was said why programs aren't heard.
    is_deafness_said: bool,
}

impl Keeping {
    /// Begins to write; at the usual place where none is named.
    pub fn begin(path: Option<&Path>, monitor: &str) -> anyhow::Result<Self> {
        let named = path.map(Path::to_path_buf);
        let _rights = super::history::rights(path);
        let path = path.map_or_else(history::default_path, Path::to_path_buf);
        let facts = description::describe(&Root::default());
        let facts: Vec<Fact> =
            facts.into_iter().map(|fact| Fact { name: fact.name, value: fact.value }).collect();
        let history = HistoryWriter::begin(&path, monitor, &facts)?;
        Ok(Self { history, named, failure: String::new(), is_deafness_said: false })
    }

    /// The file.
    pub fn store(&self) -> &Store {
        self.history.store()
    }

    /// How long nothing is to be done.
    pub fn rest(&self) -> Duration {
        self.history.time_until_due()
    }

    /// When it was written last, in nanoseconds since 1970.
    fn written_ns(&self) -> u64 {
        self.history.written_ns()
    }

    /// Writes if it is time. What can't be written now is in the next row; each reason is said
    /// once, until it is over.
    fn look(&mut self, monitor: &mut Monitor) {
        if let Some(failure) = monitor.jobs().and_then(Jobs::failure).filter(|_| !self.is_deafness_said) {
            self.is_deafness_said = true;
            print_status(format!("jobs of programs are no longer counted: {failure}"));
        }
        let _rights = super::history::rights(self.named.as_deref());
        match self.history.write_if_due(monitor) {
            Ok(true) if !self.failure.is_empty() => {
                self.failure.clear();
                print_status(format!(
                    "{} is written again, with all counts since",
                    self.store().path().display()
                ));
            }
            Ok(_) => {}
            Err(error) if error.to_string() == self.failure => {}
            Err(error) => {
                self.failure = error.to_string();
                print_status(format!(
                    "{error}; counting continues, and writing is retried every five minutes"
                ));
            }
        }
    }

    /// Writes what a monitor counted that was stopped. Where it is, if it could be written.
    fn write_last(&mut self, monitor: &mut Monitor) -> Option<PathBuf> {
        let _rights = super::history::rights(self.named.as_deref());
        match self.history.write(monitor) {
            Ok(()) => Some(self.store().path().to_owned()),
            Err(error) => {
                print_status(error);
                None
            }
        }
    }

    /// Keeps that a wake-up was late, and where its folder is.
    fn note(&mut self, late: &incident::Incident, folder: &Path) {
        let cause = late.verdict().map(|verdict| verdict.words).unwrap_or_default();
        let cause = match &late.job {
            Some(job) => format!("{} missed its deadline: {cause}", job.name),
            None => cause,
        };
        let incident = Incident {
            time_ns: late.time_ns,
            cpu: late.question.cpu,
            tid: late.thread.tid,
            thread: late.thread.label(),
            kind: Kind::of_name(&late.class),
            latency_ns: late.latency_ns,
            cause,
            folder: folder.canonicalize().unwrap_or_else(|_| folder.into()),
        };
        let _rights = super::history::rights(self.named.as_deref());
        if let Err(error) = self.history.record_incident(&incident) {
            print_status(format!("{error}; the incident's folder exists nevertheless"));
        }
    }

    /// Writes what there is.
    pub fn finish(mut self, monitor: &mut Monitor) -> anyhow::Result<()> {
        let _rights = super::history::rights(self.named.as_deref());
        self.history.write(monitor)?;
        let path = self.history.store().path().display().to_string();
        print_status(format!("{path} has all counts until now: tompion monitor report"));
        Ok(())
    }
}

/// What is done beside a display or a server.
pub struct Beside<'a, 'b> {
    /// A history is written.
    pub keeping: Option<&'a mut Keeping>,
    /// Late wake-ups are kept.
    pub catcher: Option<&'a mut Catcher<'b>>,
}

impl Beside<'_, '_> {
    /// How long nothing is to be done, if nothing comes.
    pub fn rest(&self) -> Duration {
        if self.catcher.as_ref().is_some_and(|catcher| catcher.may_have_more()) {
            return Duration::ZERO;
        }
        self.keeping.as_ref().map_or(LOOK_INTERVAL, |keeping| keeping.rest().min(LOOK_INTERVAL))
    }

    /// What the page tells of it.
    pub fn of_process(&self) -> OfProcess {
        OfProcess {
            history_written_ns: self.keeping.as_ref().map(|keeping| keeping.written_ns()),
            incidents: self.catcher.as_ref().map(|catcher| catcher.incidents()),
        }
    }

    /// Does what is to be done now. An error if the monitor was stopped: then all is written
    /// ([`Stopped`]).
    pub fn look(&mut self, monitor: &mut Monitor) -> anyhow::Result<()> {
        let caught = self.catcher.as_mut().map(|catcher| catcher.look(monitor)).transpose()?.flatten();
        if let Some(keeping) = &mut self.keeping {
            caught.iter().for_each(|(incident, folder)| keeping.note(incident, folder));
        }
        if let Err(stopped) = still_counts(monitor) {
            let kept = self.keeping.as_mut().and_then(|keeping| keeping.write_last(monitor));
            return Err(Stopped { kept, ..stopped }.into());
        }
        if let Some(keeping) = &mut self.keeping {
            keeping.look(monitor);
        }
        Ok(())
    }

    /// Whether as many late wake-ups were kept as were asked for.
    pub fn has_enough(&self) -> bool {
        self.catcher.as_ref().is_some_and(|catcher| catcher.has_enough())
    }

    /// Until the user ends it, the time is up, or enough was caught.
    pub fn run(
        &mut self,
        monitor: &mut Monitor,
        (end, time): (&End, Option<Duration>),
    ) -> anyhow::Result<()> {
        let until = time.map(|time| Instant::now() + time);
        // The scheduler's count is compared from the first look on.
        monitor.look();
        while !self.has_enough() {
            let rest = until.map_or(LOOK_INTERVAL, |until| until.saturating_duration_since(Instant::now()));
            let rest = rest.min(self.rest());
            let is_over = until.is_some_and(|until| until <= Instant::now());
            if is_over || end.comes_within(rest)? {
                break;
            }
            self.look(monitor)?;
        }
        Ok(())
    }
}
