//! Signals with which the user ends the command: SIGHUP, SIGINT and SIGTERM.

use std::{os::fd::AsFd as _, time::Duration};

use anyhow::Context as _;
use tompion_os::{
    Interest, Poller, Signals,
    signal::{SIGHUP, SIGINT, SIGTERM},
};

/// Interest of the poller in these signals.
const SIGNALS: Interest = 0;

/// Signals that end the command, and the poller that waits for them and for other events.
pub struct StopSignals {
    signals: Signals,
    /// Poller to which other events are added.
    pub poller: Poller,
}

impl StopSignals {
    /// Takes the signals from here on.
    pub fn new() -> anyhow::Result<Self> {
        let signals = Signals::take(&[SIGHUP, SIGINT, SIGTERM]).context("can't take signals")?;
        let poller = Poller::new().context("can't wait")?;
        poller.add(signals.as_fd(), SIGNALS).context("can't wait for signals")?;
        Ok(Self { signals, poller })
    }

    /// Waits for a signal or another event, at most for this time. Returns whether a signal came.
    pub fn wait(&self, timeout: Duration) -> anyhow::Result<bool> {
        self.poller.wait(Some(timeout)).context("can't wait")?;
        Ok(self.is_received())
    }

    /// Returns whether a signal came.
    pub fn is_received(&self) -> bool {
        self.signals.next().is_some()
    }
}
