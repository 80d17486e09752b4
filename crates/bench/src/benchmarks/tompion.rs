//! Tompion as its users run it: `tompion record`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Buffers, Mode, programs};
use tompion_tasks::artifacts::{self, Profile};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

/// A recording that takes longer hangs.
const MAX_SECONDS: u64 = 180;

/// Settings of a recording.
pub struct Settings<'a> {
    /// Folder of the trace.
    pub folder: &'a Path,
    /// Source of events: a glob, or a preload wrapper.
    pub source: Source,
    /// Treatment of new events when the buffers are full.
    pub mode: Mode,
    /// Whether each event carries its thread.
    pub tid: bool,
    /// Further context, as `--context` says it.
    pub context: Option<&'a str>,
    /// Predicate of the recorded events.
    pub filter: Option<&'a str>,
    /// The rings; the defaults if none.
    pub buffers: Option<Buffers>,
}

impl<'a> Settings<'a> {
    /// A flight recorder of these events with their threads and nothing else.
    pub const fn new(folder: &'a Path, source: Source) -> Self {
        Self {
            folder,
            source,
            mode: Mode::Overwrite,
            tid: true,
            context: None,
            filter: None,
            buffers: Some(Buffers::USUAL),
        }
    }
}

/// Source of events.
#[derive(Clone, Copy)]
pub enum Source {
    /// Events of the program itself that match a glob.
    Events(&'static str),
    /// A preload wrapper by its name.
    Preload(&'static str),
}

/// Artifacts that were built for this run.
pub struct Tompion {
    folder: PathBuf,
}

impl Tompion {
    /// Builds command and library as users have them, or tells nothing of them where they do not
    /// exist.
    pub fn build(workspace: &Workspace) -> Result<Option<Self>> {
        Self::build_with(workspace, Profile::Release)
    }

    /// Builds Tompion with another profile.
    pub fn build_with(workspace: &Workspace, profile: Profile) -> Result<Option<Self>> {
        if !["tompion-cli", "tompion-agent"].into_iter().all(|name| workspace.has_crate(name)) {
            return Ok(None);
        }
        artifacts::build(workspace, profile)?;
        Ok(Some(Self { folder: profile.folder(workspace) }))
    }

    /// A preload wrapper's library.
    pub fn wrapper(&self, name: &str) -> PathBuf {
        self.folder.join(format!("libtompion-{name}.so"))
    }

    /// The command `tompion`.
    pub fn command(&self) -> Command {
        Command::new(self.folder.join("tompion"))
    }

    /// The number of events in any trace, by our own reader, where babeltrace2 would take too long.
    pub fn count(&self, trace: &Path) -> Result<u64> {
        let text = shell::capture(self.command().args(["stat", "--json"]).arg(trace))?;
        let sums: Value = serde_json::from_str(&text).context("`tompion stat` wrote no JSON")?;
        sums["events"].as_u64().context("`tompion stat` wrote no number of events")
    }

    /// The start of a command line that records the words to be added to it.
    pub fn record(&self, settings: &Settings) -> Result<Command> {
        let mut command = self.begin(settings)?;
        match settings.source {
            Source::Events(glob) => command.args(["-e", glob]),
            Source::Preload(name) => command.args(["--preload", name]),
        };
        if !settings.tid {
            command.arg("--no-tid");
        }
        if let Some(context) = settings.context {
            command.args(["--context", context]);
        }
        if let Some(filter) = settings.filter {
            command.args(["--filter", filter]);
        }
        command.arg("--");
        Ok(shell::limited(MAX_SECONDS, &command))
    }

    /// The start of a command line that records nothing, and counts by a rule.
    pub fn count_in_place(&self, settings: &Settings, rule: &str) -> Result<Command> {
        let mut command = self.begin(settings)?;
        command.args(["-e", "none", "--count", rule, "--"]);
        Ok(shell::limited(MAX_SECONDS, &command))
    }

    fn begin(&self, settings: &Settings) -> Result<Command> {
        programs::remove(settings.folder)?;
        let mut command = self.command();
        command.args(["record", "--mode", settings.mode.name()]);
        if let Some(buffers) = settings.buffers {
            command.args(["--subbuf-size", buffers.size, "--subbufs", buffers.count]);
        }
        command.arg("-o").arg(settings.folder);
        Ok(command)
    }
}

/// The words before a program that keep restartable sequences from it.
pub const WITHOUT_RSEQ: [&str; 2] = ["env", "GLIBC_TUNABLES=glibc.pthread.rseq=0"];
