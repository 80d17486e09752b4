//! LTTng as its users run it: a session daemon, and a session with one channel for each
//! measurement.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::programs;
use super::{Buffers, Mode};
use tompion_tasks::shell;

/// A call of the `lttng` command that takes longer hangs.
const MAX_SECONDS: u64 = 60;

/// The session daemon: ours, or the one that was there.
pub struct Daemon {
    ours: RefCell<Option<Child>>,
}

impl Daemon {
    /// Starts a daemon unless one answers.
    pub fn start() -> Result<Self> {
        let daemon = Self { ours: RefCell::new(None) };
        daemon.make_sure()?;
        Ok(daemon)
    }

    /// Starts a daemon, or says that LTTng is left out.
    pub fn if_installed() -> Option<Self> {
        if !programs::has_lttng_headers() {
            eprintln!("LTTng is missing and left out (apt install lttng-tools liblttng-ust-dev)");
            return None;
        }
        Self::start().map_err(|error| eprintln!("LTTng is left out: {error:#}")).ok()
    }

    /// Starts another one if the one that was there does not answer any more.
    pub fn make_sure(&self) -> Result<()> {
        if answers() {
            return Ok(());
        }
        self.end();
        let child = Command::new("lttng-sessiond")
            .arg("--no-kernel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run lttng-sessiond")?;
        self.ours.replace(Some(child));
        let begin = Instant::now();
        while !answers() {
            if begin.elapsed() > Duration::from_secs(10) {
                bail!("lttng-sessiond does not answer");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Ends ours, if there is one.
    fn end(&self) {
        let Some(mut child) = self.ours.take() else { return };
        // SIGTERM, not SIGKILL: the daemon takes its consumer and its sockets with it.
        let _ = Command::new("kill").arg(child.id().to_string()).status();
        let begin = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if begin.elapsed() > Duration::from_secs(20) {
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

fn answers() -> bool {
    shell::capture(Command::new("lttng").args(["--no-sessiond", "list"])).is_ok()
}

/// Settings of a session.
pub struct Settings<'a> {
    /// Folder of the trace.
    pub folder: &'a Path,
    /// Events by name.
    pub events: &'a str,
    /// Treatment of new events when the buffers are full.
    pub mode: Mode,
    /// Context of each event, as `add-context` calls it.
    pub contexts: &'a [&'a str],
    /// Predicate of the recorded events.
    pub filter: Option<&'a str>,
    /// The rings; the defaults if none.
    pub buffers: Option<Buffers>,
    /// Interval of the consumer, in microseconds; if none, the application wakes it up.
    pub read_timer: Option<u32>,
}

impl<'a> Settings<'a> {
    /// A flight recorder of these events without contexts.
    pub const fn new(folder: &'a Path, events: &'a str) -> Self {
        Self {
            folder,
            events,
            mode: Mode::Overwrite,
            contexts: &[],
            filter: None,
            buffers: Some(Buffers::USUAL),
            read_timer: None,
        }
    }
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
        match settings.mode {
            Mode::Overwrite => lttng(&["create", name, &output, "--snapshot"])?,
            Mode::Discard => lttng(&["create", name, &output])?,
        }
        let mode = match settings.mode {
            Mode::Overwrite => "--overwrite",
            Mode::Discard => "--discard",
        };
        let mut sizes = Vec::new();
        if let Some(Buffers { size, count }) = settings.buffers {
            sizes.extend([format!("--subbuf-size={size}"), format!("--num-subbuf={count}")]);
        }
        sizes.extend(settings.read_timer.map(|period| format!("--read-timer={period}")));
        let mut channel = vec!["enable-channel", "-u", "-s", name, mode];
        channel.extend(sizes.iter().map(String::as_str));
        channel.push("bench");
        lttng(&channel)?;
        let mut events = vec!["enable-event", "-u", "-s", name, "-c", "bench", settings.events];
        events.extend(settings.filter.iter().flat_map(|filter| ["--filter", filter]));
        lttng(&events)?;
        for context in settings.contexts {
            lttng(&["add-context", "-u", "-s", name, "-c", "bench", "-t", context])?;
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
    shell::run_quietly(&mut shell::limited(MAX_SECONDS, Command::new("lttng").args(arguments)))
}
