//! `tompion monitor --history`: appends the counts to a history, every five minutes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tompion_history::{self as history, Fact, HistoryWriter, Incident, Store};
use tompion_latency::{Kind, Monitor, incident, jobs::Jobs};
use tompion_machine::{Root, description};

use super::history::file_rights;
use crate::messages::print_status;

/// History that is written while the command does something else.
pub struct HistorySession {
    history: HistoryWriter,
    /// Path that the user gave, if any.
    given_path: Option<PathBuf>,
    /// Last reported reason why the history can't be written; empty if it can.
    failure: String,
    /// Whether it was reported that programs' jobs are no longer counted.
    is_job_failure_reported: bool,
}

impl HistorySession {
    /// Opens the history, at its default path if none is given.
    pub fn begin(path: Option<&Path>, monitor: &str) -> anyhow::Result<Self> {
        let given_path = path.map(Path::to_path_buf);
        let _rights = file_rights(path);
        let path = path.map_or_else(history::default_path, Path::to_path_buf);
        let facts = description::describe(&Root::default());
        let facts: Vec<Fact> =
            facts.into_iter().map(|fact| Fact { name: fact.name, value: fact.value }).collect();
        let history = HistoryWriter::begin(&path, monitor, &facts)?;
        Ok(Self { history, given_path, failure: String::new(), is_job_failure_reported: false })
    }

    /// Returns the file.
    pub fn store(&self) -> &Store {
        self.history.store()
    }

    /// Returns the time until the next row is due.
    pub fn time_until_due(&self) -> Duration {
        self.history.time_until_due()
    }

    /// Returns the time of the last row, in nanoseconds since 1970.
    pub fn written_ns(&self) -> u64 {
        self.history.written_ns()
    }

    /// Writes a row if one is due. After a failure, the next row has its counts. Each reason is
    /// reported once, until writing succeeds.
    pub fn write_if_due(&mut self, monitor: &mut Monitor) {
        let failure = monitor.jobs().and_then(Jobs::failure);
        if let Some(failure) = failure.filter(|_| !self.is_job_failure_reported) {
            self.is_job_failure_reported = true;
            print_status(format!("jobs of programs are no longer counted: {failure}"));
        }
        let _rights = file_rights(self.given_path.as_deref());
        match self.history.write_if_due(monitor) {
            Ok(true) if !self.failure.is_empty() => {
                self.failure.clear();
                let path = self.store().path().display();
                print_status(format!("{path} is written again, with all counts since"));
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

    /// Writes the last counts of a stopped monitor. Returns the path if they could be written.
    pub fn write_last(&mut self, monitor: &mut Monitor) -> Option<PathBuf> {
        let _rights = file_rights(self.given_path.as_deref());
        match self.history.write(monitor) {
            Ok(()) => Some(self.store().path().to_owned()),
            Err(error) => {
                print_status(error);
                None
            }
        }
    }

    /// Writes an incident and the path of its folder.
    pub fn record_incident(&mut self, late: &incident::Incident, folder: &Path) {
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
        let _rights = file_rights(self.given_path.as_deref());
        if let Err(error) = self.history.record_incident(&incident) {
            print_status(format!("{error}; the incident's folder exists nevertheless"));
        }
    }

    /// Writes the counts until now, and ends the history.
    pub fn finish(mut self, monitor: &mut Monitor) -> anyhow::Result<()> {
        let _rights = file_rights(self.given_path.as_deref());
        self.history.write(monitor)?;
        let path = self.history.store().path().display().to_string();
        print_status(format!("{path} has all counts until now: tompion monitor report"));
        Ok(())
    }
}
