//! Work beside a display or a server: the history is written, incidents are saved.

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use tompion_latency::{Fate, Monitor, OfProcess};

use super::{history_session::HistorySession, incidents::IncidentRecorder, stop_signals::StopSignals};

/// Maximum time between two checks of the monitor, within which its stop is noticed.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Error of a command after its monitor was stopped.
#[derive(Debug)]
pub struct MonitorStopped {
    /// Whether another monitor counts in its place.
    pub is_replaced: bool,
    /// History that has all counts of the stopped monitor.
    history: Option<PathBuf>,
}

impl fmt::Display for MonitorStopped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the monitor was stopped")?;
        if self.is_replaced {
            formatter.write_str(" and another one started")?;
        }
        match &self.history {
            Some(path) => write!(formatter, "; {} has its counts", path.display()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for MonitorStopped {}

/// Checks that the monitor still counts.
///
/// # Errors
/// The monitor was stopped.
pub fn check_running(monitor: &Monitor) -> Result<(), MonitorStopped> {
    match monitor.fate() {
        Fate::GoesOn => Ok(()),
        fate => Err(MonitorStopped { is_replaced: fate == Fate::Replaced, history: None }),
    }
}

/// Tasks that run beside a display or a server.
#[derive(Default)]
pub struct BackgroundTasks<'a, 'b> {
    /// History to write.
    pub history: Option<&'a mut HistorySession>,
    /// Recorder of incidents.
    pub incidents: Option<&'a mut IncidentRecorder<'b>>,
}

impl BackgroundTasks<'_, '_> {
    /// Returns the time until the next task is due.
    pub fn time_until_due(&self) -> Duration {
        if self.incidents.as_ref().is_some_and(|incidents| incidents.may_have_more()) {
            return Duration::ZERO;
        }
        self.history.as_ref().map_or(CHECK_INTERVAL, |history| history.time_until_due().min(CHECK_INTERVAL))
    }

    /// Returns the state of this process for the metrics.
    pub fn process_state(&self) -> OfProcess {
        OfProcess {
            history_written_ns: self.history.as_ref().map(|history| history.written_ns()),
            incidents: self.incidents.as_ref().map(|incidents| incidents.counts()),
        }
    }

    /// Runs the tasks that are due.
    ///
    /// # Errors
    /// The monitor was stopped ([`MonitorStopped`]); the history is complete then. Or standard
    /// output, which names incidents, was closed.
    pub fn run_due(&mut self, monitor: &mut Monitor) -> anyhow::Result<()> {
        let saved = self.incidents.as_mut().map(|incidents| incidents.save_next(monitor)).transpose()?;
        if let (Some((incident, folder)), Some(history)) = (saved.flatten(), &mut self.history) {
            history.record_incident(&incident, &folder);
        }
        if let Err(stopped) = check_running(monitor) {
            let history = self.history.as_mut().and_then(|history| history.write_last(monitor));
            return Err(MonitorStopped { history, ..stopped }.into());
        }
        if let Some(history) = &mut self.history {
            history.write_if_due(monitor);
        }
        Ok(())
    }

    /// Returns whether as many incidents were saved as requested.
    pub fn is_complete(&self) -> bool {
        self.incidents.as_ref().is_some_and(|incidents| incidents.is_complete())
    }

    /// Runs the tasks until the user ends the command, the time is over, or the requested number of
    /// incidents is saved.
    pub fn run(
        &mut self,
        monitor: &mut Monitor,
        stop: &StopSignals,
        duration: Option<Duration>,
    ) -> anyhow::Result<()> {
        let until = duration.map(|duration| Instant::now() + duration);
        // The first look is the base of the comparison with the scheduler's count.
        monitor.look();
        while !self.is_complete() {
            let rest = until.map_or(CHECK_INTERVAL, |until| until.saturating_duration_since(Instant::now()));
            let is_over = until.is_some_and(|until| until <= Instant::now());
            if is_over || stop.wait(rest.min(self.time_until_due()))? {
                break;
            }
            self.run_due(monitor)?;
        }
        Ok(())
    }
}
