//! Tompion as its users run it: `tompion record`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{BUFFER_SIZE, BUFFERS, Mode, programs};
use crate::artifacts::{self, Profile};
use crate::workspace::Workspace;

/// What a recording records.
pub struct Settings<'a> {
    /// Where the trace goes.
    pub folder: &'a Path,
    /// Which events: a glob, or a preload wrapper.
    pub source: Source,
    /// What happens when the buffers are full.
    pub mode: Mode,
    /// Whether each event carries its thread.
    pub tid: bool,
    /// What events must say to be recorded.
    pub filter: Option<&'a str>,
}

/// Where events come from.
#[derive(Clone, Copy)]
pub enum Source {
    /// Events of the program itself that match a glob.
    Events(&'static str),
    /// A preload wrapper by its name.
    Preload(&'static str),
}

/// What was built for this run.
pub struct Tompion {
    folder: PathBuf,
}

impl Tompion {
    /// Builds command and library, or tells nothing of them where they do not exist.
    pub fn build(workspace: &Workspace) -> Result<Option<Self>> {
        if !["tompion-cli", "tompion-agent"].into_iter().all(|name| workspace.has_crate(name)) {
            return Ok(None);
        }
        artifacts::build(workspace, Profile::Release)?;
        Ok(Some(Self { folder: Profile::Release.folder(workspace) }))
    }

    /// A preload wrapper's library.
    pub fn wrapper(&self, name: &str) -> PathBuf {
        self.folder.join(format!("libtompion-{name}.so"))
    }

    /// The start of a command line that records the words to be added to it.
    pub fn record(&self, settings: &Settings) -> Result<Command> {
        programs::remove(settings.folder)?;
        let mut command = Command::new(self.folder.join("tompion"));
        command.args(["record", "--mode", settings.mode.name()]);
        command.args(["--subbuf-size", BUFFER_SIZE, "--subbufs", BUFFERS]);
        match settings.source {
            Source::Events(glob) => command.args(["-e", glob]),
            Source::Preload(name) => command.args(["--preload", name]),
        };
        if !settings.tid {
            command.arg("--no-tid");
        }
        if let Some(filter) = settings.filter {
            command.args(["--filter", filter]);
        }
        command.arg("-o").arg(settings.folder).arg("--");
        Ok(command)
    }
}
