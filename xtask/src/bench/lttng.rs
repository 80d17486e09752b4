//! LTTng as its users run it: a session daemon, and a session with one channel for each measurement.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::programs;
use super::{BUFFER_SIZE, BUFFERS, Mode};
use crate::shell;

/// The session daemon: ours, or the one that was there.
pub struct Daemon {
    ours: Option<Child>,
}

impl Daemon {
    /// Starts a daemon unless one answers.
    pub fn start() -> Result<Self> {
        if answers() {
            return Ok(Self { ours: None });
        }
        let child = Command::new("lttng-sessiond")
            .arg("--no-kernel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run lttng-sessiond")?;
        let daemon = Self { ours: Some(child) };
        let begin = Instant::now();
        while !answers() {
            if begin.elapsed() > Duration::from_secs(10) {
                bail!("lttng-sessiond does not answer");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let Some(child) = &mut self.ours else { return };
        // SIGTERM, not SIGKILL: the daemon takes its consumer and its sockets with it.
        let _ = Command::new("kill").arg(child.id().to_string()).status();
        let _ = child.wait();
    }
}

fn answers() -> bool {
    shell::capture(Command::new("lttng").args(["--no-sessiond", "list"])).is_ok()
}

/// What a session records.
pub struct Settings<'a> {
    /// Where the trace goes.
    pub folder: &'a Path,
    /// Events by name.
    pub events: &'a str,
    /// What happens when the buffers are full.
    pub mode: Mode,
    /// Whether each event carries its thread.
    pub tid: bool,
}

/// A session that records.
pub struct Session {
    name: String,
    folder: PathBuf,
    mode: Mode,
}

impl Session {
    /// Creates a session and starts it.
    pub fn start(settings: &Settings) -> Result<Self> {
        programs::remove(settings.folder)?;
        let name = format!("tompion-bench-{}", std::process::id());
        let session = Self { name, folder: settings.folder.to_owned(), mode: settings.mode };
        let name = session.name.as_str();
        let output = format!("--output={}", settings.folder.display());
        let (size, count) = (format!("--subbuf-size={BUFFER_SIZE}"), format!("--num-subbuf={BUFFERS}"));
        match settings.mode {
            Mode::Overwrite => lttng(&["create", name, &output, "--snapshot"])?,
            Mode::Discard => lttng(&["create", name, &output])?,
        }
        let mode = match settings.mode {
            Mode::Overwrite => "--overwrite",
            Mode::Discard => "--discard",
        };
        lttng(&["enable-channel", "-u", "-s", name, &size, &count, mode, "bench"])?;
        lttng(&["enable-event", "-u", "-s", name, "-c", "bench", settings.events])?;
        if settings.tid {
            lttng(&["add-context", "-u", "-s", name, "-c", "bench", "-t", "vtid"])?;
        }
        lttng(&["start", name])?;
        Ok(session)
    }

    /// Stops the session, saves what a flight recorder holds, and returns the trace's folder.
    pub fn finish(self) -> Result<PathBuf> {
        lttng(&["stop", &self.name])?;
        if self.mode == Mode::Overwrite {
            lttng(&["snapshot", "record", "-s", &self.name])?;
        }
        Ok(self.folder.clone())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = lttng(&["destroy", &self.name]);
    }
}

fn lttng(arguments: &[&str]) -> Result<()> {
    shell::run_quietly(Command::new("lttng").args(arguments))
}
