//! Processes of a recording, as they are described beside its memory.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};
use tompion_layout::ring::Geometry;
use tompion_lineage::Lineage;
use tompion_os::DirHandle;
use tompion_protocol::message::{Hello, Origin};

use crate::files;

/// Name of a process's description.
pub const PROCESS_FILE: &str = "process.json";

/// A process as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedProcess {
    /// Number in the session, in the order of coming.
    pub key: u64,
    /// Its id.
    pub pid: u32,
    inner_pid: u32,
    /// Whether it has restartable sequences: how records stand in its rings.
    rseq: bool,
    tsc: bool,
    agent_version: String,
    name: String,
    executable: String,
    /// Whether its timestamps are CLOCK_MONOTONIC.
    pub given_time: bool,
    /// Name of its trace's folder.
    pub folder: String,
    /// Its trace's id.
    pub uuid: String,
    /// Sizes of its rings where they are its own: bytes of a sub-buffer, and their number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rings: Option<(u64, u64)>,
    #[serde(default)]
    has_listener: bool,
    /// Size of its control file, as its agent knows it.
    #[serde(default)]
    pub control_size: u64,
    /// Whether it follows triggers that change.
    #[serde(default)]
    follows_triggers: bool,
    #[serde(default)]
    parent: u32,
    #[serde(default)]
    command_line: Vec<String>,
    /// Identity of a process that counts in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<SavedIdentity>,
}

/// Identity of a process that counts, besides its name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SavedIdentity {
    /// Its control group, where a rule asks for it.
    pub cgroup: Option<String>,
}

impl SavedProcess {
    /// Writes the description into the process's folder.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write(&self, folder: &DirHandle) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        folder.replace(PROCESS_FILE, text.as_bytes(), false)
    }

    /// Returns the part of a process's data that recovery needs.
    pub fn new(hello: &Hello, pid: u32, folder: &Path, uuid: &str) -> Self {
        Self {
            key: 0,
            pid,
            inner_pid: hello.pid,
            rseq: hello.rseq,
            tsc: hello.tsc,
            agent_version: hello.agent_version.clone(),
            name: hello.name.clone(),
            executable: hello.executable.clone(),
            given_time: false,
            folder: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            uuid: uuid.to_owned(),
            rings: None,
            has_listener: hello.has_listener,
            control_size: hello.control_size,
            follows_triggers: hello.follows_triggers,
            parent: 0,
            command_line: Vec::new(),
            counts: None,
        }
    }

    /// Adds the origin of the process.
    pub fn with_lineage(self, Lineage { parent, command_line, .. }: Lineage) -> Self {
        Self { parent, command_line, ..self }
    }

    /// Adds the sizes of the process's rings.
    pub fn with_rings(self, sizes: Geometry) -> Self {
        Self { rings: Some((sizes.subbuf_size(), sizes.subbuf_count())), ..self }
    }

    /// Returns the sizes of its rings; `session` has those of processes without their own.
    ///
    /// # Errors
    /// The sizes can't be.
    pub fn geometry(&self, session: Geometry) -> Result<Geometry, String> {
        let Some((size, count)) = self.rings else { return Ok(session) };
        Geometry::new(size, count, session.cpus(), session.buffers()).map_err(|error| error.to_string())
    }

    /// The origin of the process, as far as it was known.
    pub fn lineage(&self) -> Lineage {
        Lineage { parent: self.parent, command_line: self.command_line.clone(), ..Lineage::default() }
    }

    /// Its introduction again.
    pub fn hello(&self) -> Hello {
        Hello {
            pid: self.inner_pid,
            origin: Origin::Exec,
            rseq: self.rseq,
            tsc: self.tsc,
            agent_version: self.agent_version.clone(),
            name: self.name.clone(),
            executable: self.executable.clone(),
            has_listener: self.has_listener,
            prepared: None,
            cpu: None,
            counts: false,
            notices_withdrawal: false,
            control_size: self.control_size,
            follows_triggers: self.follows_triggers,
        }
    }
}

/// The processes that a session has left in a backing folder, in the order of their coming, and
/// what is wrong with others.
///
/// # Errors
/// The folder can't be read.
pub fn processes(backing: &DirHandle) -> io::Result<(Vec<SavedProcess>, Vec<String>)> {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for name in backing.names()? {
        let folder = backing.join(&name);
        if !folder.has(PROCESS_FILE) {
            continue;
        }
        match files::read::<SavedProcess>(&folder, PROCESS_FILE) {
            Ok(None) => {}
            Ok(Some(saved)) if *name == *saved.folder => {
                found.push(saved);
            }
            Ok(Some(saved)) => wrong.push(format!(
                "{}: expected the process of this folder, found {}",
                folder.path().join(PROCESS_FILE).display(),
                saved.folder
            )),
            Err(error) => wrong.push(error),
        }
    }
    found.sort_by_key(|saved| saved.key);
    Ok((found, wrong))
}
