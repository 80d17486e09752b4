//! Backing files, which outlast the session: the rings, and beside them what recovery needs.
//!
//! ```text
//! FILE/                     what `--backing FILE` names; only its owner may look into it
//! ├── session.json          the session's configuration, and the trace's folder
//! ├── clock                 samples of the clocks: "TOMPCLK1", then tsc, ns and check for each
//! └── find-1234/            for each process that takes part, named as its trace is
//!     ├── process.json      its `Hello`, and its trace's id
//!     ├── threads.json      contexts of its threads, if the trace or the filter wants it
//!     ├── control           its two memory files, all their space reserved
//!     └── rings
//! ```
//!
//! A process gets descriptors of its own two files and of nothing else here. Its folder goes when
//! the manifest on the medium has what became of it, the whole when the recording has ended well.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use tompion_chunks::Policy;
use tompion_counting::Collector;
use tompion_counts::{Rule, RuleError};
use tompion_firings::SavedNumbers;
use tompion_keeper::Keeper;
use tompion_layout::{LAYOUT_VERSION, control, ring::Geometry};
use tompion_os::{DirHandle, ProcessWatch, SharedMap, create_memfd, reserve};
use tompion_programs::ProgramSets;
use tompion_protocol::rules::Rules;
pub use tompion_restart_state::{ClockFile, SavedIdentity, SavedProcess, has_clock, processes, read_clock};
use tompion_restart_state::{PROCESS_FILE, SavedPolicy};
use tompion_schema::Level;
use tompion_triggers::EventTable;

use crate::{
    context::{Context, Values},
    record::Config,
    ring_budget::RingMemory,
    session_config::SessionConfig,
    target::{Admission, ProcessTree, Target},
};

mod triggers;

pub use triggers::keep_triggers;

/// Version of these files.
const SCHEMA: u32 = 1;
/// Configuration of the session, as it is saved.
pub const SESSION_FILE: &str = "session.json";
/// Contexts of a process's threads.
const THREADS_FILE: &str = "threads.json";
const CONTROL_FILE: &str = "control";
const RINGS_FILE: &str = "rings";
/// Largest description.
const MAX_JSON: u64 = 16 << 20;

/// The session as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedSession {
    schema: u32,
    layout: u32,
    /// Distinguishes this recording from all others.
    pub id: String,
    /// Folder of the trace.
    pub folder: PathBuf,
    hostname: String,
    /// The boot in which it was recorded.
    pub boot_id: String,
    clock_offset_ns: i64,
    tsc: bool,
    subbuf_size: u64,
    subbufs: u64,
    cpus: u32,
    buffers: u32,
    /// Memory that all rings share, and whether they keep their sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<(u64, bool)>,
    #[serde(default)]
    prefault: bool,
    overwrite: bool,
    tid: bool,
    contexts: Vec<String>,
    application_contexts: bool,
    filter: Option<String>,
    /// Limits of its chunks, if it is in chunks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<SavedPolicy>,
    /// Rules by which events are counted in place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    counts: Vec<String>,
    /// State for a recorder that comes back; none without a keeper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restart: Option<SavedRestart>,
}

/// Part of a session by which a recorder continues one that was killed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedRestart {
    /// Name of the socket to which programs connect.
    pub socket: String,
    /// Name of the keeper's socket.
    pub keeper: String,
    /// Name under which other commands find the recording.
    pub name: Option<String>,
    /// The command's process, once it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<SavedCommand>,
    target: SavedTarget,
    /// Sets of programs that the recording wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<ProgramSets>,
    /// Name of the socket in the folder where programs look, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_socket: Option<String>,
    include: Vec<String>,
    exclude: Vec<String>,
    level: u8,
    /// Texts of its triggers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    triggers: Vec<String>,
    /// Numbers of those on events, where they have changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_numbers: Option<SavedNumbers>,
}

/// Process of a command.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct SavedCommand {
    pid: u32,
    /// Its start time, in clock ticks since the machine was started.
    start_ticks: u64,
}

/// Target of a recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum SavedTarget {
    Command(Vec<String>),
    Processes { named: Vec<u32>, descendants: Vec<u32>, has_descendants: bool },
    Everything,
}

impl SavedRestart {
    /// Returns the part of a configuration that a recorder needs which comes back.
    pub fn new(config: &Config, socket: &str) -> Self {
        let Config { target, programs, rules, session, triggers, .. } = config;
        Self {
            socket: socket.to_owned(),
            keeper: format!("tompion-keeper-{}", uuid::Uuid::new_v4().simple()),
            name: session.clone(),
            command: None,
            target: match target {
                Target::Command(words) => SavedTarget::Command(words.clone()),
                Target::Processes(ProcessTree { named, descendants, has_descendants, .. }) => {
                    SavedTarget::Processes {
                        named: named.clone(),
                        descendants: descendants.clone(),
                        has_descendants: *has_descendants,
                    }
                }
                Target::Everything | Target::SharedFolder(_) => SavedTarget::Everything,
            },
            programs: programs.clone(),
            join_socket: None,
            include: rules.include.clone(),
            exclude: rules.exclude.clone(),
            level: rules.level.number(),
            triggers: triggers.iter().map(|trigger| trigger.text.clone()).collect(),
            event_numbers: None,
        }
    }

    /// Watches the command, if it still runs.
    pub fn watch_command(&self) -> Option<ProcessWatch> {
        let SavedCommand { pid, start_ticks: expected } = self.command?;
        let watch = ProcessWatch::new(pid).ok()?;
        // Another process may have its number by now.
        (tompion_os::start_ticks(pid) == Some(expected) && !watch.has_ended()).then_some(watch)
    }

    /// Returns the target.
    pub fn target(&self) -> Target {
        match self.target.clone() {
            SavedTarget::Command(words) => Target::Command(words),
            SavedTarget::Processes { named, descendants, has_descendants } => {
                Target::Processes(ProcessTree { named, descendants, has_descendants, was_there: true })
            }
            SavedTarget::Everything => Target::Everything,
        }
    }
}

impl SavedSession {
    /// Returns the part of this configuration that recovery needs.
    pub fn new(session_config: &SessionConfig, id: String) -> Self {
        let name_of = |wanted: &Context| Context::ALL.iter().find(|(_, context)| context == wanted);
        Self {
            schema: SCHEMA,
            layout: LAYOUT_VERSION,
            id,
            folder: session_config.folder.path().to_owned(),
            hostname: session_config.hostname.clone(),
            boot_id: session_config.boot_id.clone(),
            clock_offset_ns: session_config.clock_offset_ns,
            tsc: session_config.tsc,
            subbuf_size: session_config.geometry.subbuf_size(),
            subbufs: session_config.geometry.subbuf_count(),
            cpus: session_config.geometry.cpus(),
            buffers: session_config.geometry.buffers(),
            memory: session_config.memory.map(|memory| (memory.bytes, memory.fixed.is_some())),
            prefault: session_config.prefault,
            overwrite: session_config.overwrite,
            tid: session_config.tid,
            contexts: session_config
                .contexts
                .iter()
                .filter_map(name_of)
                .map(|(name, _)| (*name).into())
                .collect(),
            application_contexts: session_config.application_contexts,
            filter: session_config.rules.filter.clone(),
            chunks: None,
            counts: session_config.counting.iter().flat_map(|all| all.rules()).map(Rule::to_text).collect(),
            restart: None,
        }
    }

    /// Adds the limits of chunks.
    pub fn with_chunks(self, policy: Option<Policy>) -> Self {
        Self { chunks: policy.map(SavedPolicy::from), ..self }
    }

    /// Adds what a recorder needs that comes back.
    pub fn with_restart(self, restart: Option<SavedRestart>) -> Self {
        Self { restart, ..self }
    }

    /// Returns what a recorder needs that comes back; none if the recording has no keeper.
    pub fn restart(&self) -> Option<&SavedRestart> {
        self.restart.as_ref()
    }

    /// Returns the rules.
    fn rules(&self) -> Rules {
        let filter = self.filter.clone();
        let Some(SavedRestart { include, exclude, level, .. }) = self.restart.clone() else {
            return Rules { filter, ..Rules::all() };
        };
        let level = Level::parse(&level.to_string()).unwrap_or(Level::LOWEST);
        Rules { include, exclude, level, filter }
    }

    /// Replaces the rules.
    fn set_rules(&mut self, rules: &Rules) {
        self.filter.clone_from(&rules.filter);
        if let Some(restart) = &mut self.restart {
            restart.include.clone_from(&rules.include);
            restart.exclude.clone_from(&rules.exclude);
            restart.level = rules.level.number();
        }
    }

    /// Counts by the saved rules.
    fn counting(&self) -> Result<Option<Arc<Collector>>, String> {
        let rules: Result<Vec<Rule>, RuleError> = self.counts.iter().map(|text| text.parse()).collect();
        let rules = rules.map_err(|error| format!("a rule that counts: {error}"))?;
        let collector = Collector::new(&rules, self.cpus).map_err(|error| error.to_string())?;
        Ok(collector.map(Collector::for_next_recorder).map(Arc::new))
    }

    /// Reads a backing folder's.
    pub fn read(folder: &DirHandle) -> Result<Self, String> {
        let saved: Self = read_json(folder, SESSION_FILE)?;
        if (saved.schema, saved.layout) != (SCHEMA, LAYOUT_VERSION) {
            return Err(format!(
                "{}: expected schema {SCHEMA} with memory layout {LAYOUT_VERSION}, found {} with {}: recover it \
                 with the tompion that recorded it",
                folder.path().join(SESSION_FILE).display(),
                saved.schema,
                saved.layout
            ));
        }
        Ok(saved)
    }

    /// Returns the configuration, as far as recovery needs it, for a trace in this folder.
    pub fn session_config(&self, folder: &DirHandle) -> Result<SessionConfig, String> {
        let geometry = Geometry::new(self.subbuf_size, self.subbufs, self.cpus, self.buffers);
        let context = |name: &String| {
            let known = Context::ALL.iter().find(|(known, _)| known == name);
            known.map(|(_, context)| *context).ok_or_else(|| format!("no context `{name}` is known"))
        };
        let geometry = geometry.map_err(|error| error.to_string())?;
        let (cpus, buffers) = (self.cpus, self.buffers);
        let memory = self.memory.map(|(bytes, keeps_sizes)| {
            let fixed = keeps_sizes.then_some(geometry);
            RingMemory { bytes, fixed, cpus, buffers }
        });
        Ok(SessionConfig {
            geometry,
            memory,
            prefault: self.prefault,
            rules: self.rules(),
            event_triggers: EventTable::default(),
            overwrite: self.overwrite,
            tid: self.tid,
            contexts: self.contexts.iter().map(context).collect::<Result<_, _>>()?,
            application_contexts: self.application_contexts,
            tsc: self.tsc,
            // Each process's own is kept with it.
            rseq: true,
            folder: folder.clone(),
            hostname: self.hostname.clone(),
            boot_id: self.boot_id.clone(),
            clock_offset_ns: self.clock_offset_ns,
            users: Vec::new(),
            admission: Admission::Anyone,
            is_in_chunks: self.chunks.is_some(),
            programs: None,
            has_command: false,
            backing: None,
            keeper: None,
            jobs: None,
            counting: self.counting()?,
            selector: None,
        })
    }
}

/// Reads a description of bounded size. Errors are lines for people.
fn read_json<T: for<'a> Deserialize<'a>>(folder: &DirHandle, name: &str) -> Result<T, String> {
    let path = folder.path().join(name);
    let bytes =
        folder.read_bounded(name, MAX_JSON).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

fn write_json(folder: &DirHandle, name: &str, value: &impl Serialize, durable: bool) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    folder.replace(name, text.as_bytes(), durable)
}

/// Writes the session's configuration into the folder.
pub fn keep_session(folder: &DirHandle, saved: &SavedSession) -> io::Result<()> {
    write_json(folder, SESSION_FILE, saved, true)?;
    folder.sync_name()
}

/// Notes the command's process in the folder, for a recorder that comes back.
pub fn keep_command(folder: &DirHandle, pid: u32) -> io::Result<()> {
    let command = tompion_os::start_ticks(pid).map(|start_ticks| SavedCommand { pid, start_ticks });
    change(folder, |saved| saved.restart.iter_mut().for_each(|restart| restart.command = command))
}

/// Replaces the rules in the folder, for a recorder that comes back.
pub fn keep_rules(folder: &DirHandle, rules: &Rules) -> io::Result<()> {
    change(folder, |saved| saved.set_rules(rules))
}

/// Notes the socket in the folder where programs look, for a recorder that comes back.
pub fn keep_join_socket(folder: &DirHandle, name: &str) -> io::Result<()> {
    change(folder, |saved| saved.restart.iter_mut().for_each(|it| it.join_socket = Some(name.into())))
}

fn change(folder: &DirHandle, change: impl FnOnce(&mut SavedSession)) -> io::Result<()> {
    let mut saved = SavedSession::read(folder).map_err(io::Error::other)?;
    change(&mut saved);
    write_json(folder, SESSION_FILE, &saved, false)
}

/// Entry of rings in a program's mappings. Source: `proc_pid_maps(5)`.
#[derive(Debug)]
pub enum RingsInMaps {
    /// A file's path.
    Path(PathBuf),
    /// Number of a memory file.
    Inode(u64),
}

impl RingsInMaps {
    /// Whether a list of mappings has it.
    pub fn is_in(&self, maps: &str) -> bool {
        match self {
            Self::Path(path) => maps.contains(&*path.to_string_lossy()),
            Self::Inode(inode) => {
                let inode = inode.to_string();
                let is_it = |line: &str| {
                    line.contains("/memfd:tompion-rings") && line.split(' ').any(|word| word == inode)
                };
                maps.lines().any(is_it)
            }
        }
    }
}

/// Entry of a process in the backing folder, and with the recording's keeper.
#[derive(Debug)]
pub struct ProcessEntry {
    folder: DirHandle,
    /// The keeper that holds the process's files, which are memory then, and its number.
    held: Option<(Arc<Keeper>, u64)>,
}

impl ProcessEntry {
    /// The entry of a process that a session has left; `keeper` is the recording's.
    pub fn of(backing: &DirHandle, saved: &SavedProcess, keeper: Option<&Arc<Keeper>>) -> Self {
        let held = keeper.map(|keeper| (keeper.clone(), saved.key));
        Self { folder: backing.join(&saved.folder), held }
    }

    /// Removes the entry. The manifest must tell of the process by now: it could not be recovered
    /// any more.
    pub fn remove(&self) -> io::Result<()> {
        let removed = self.folder.remove_all();
        self.held.iter().for_each(|(keeper, key)| keeper.release(*key));
        removed
    }
}

/// The memory files of one process.
#[derive(Debug)]
pub struct ProcessBacking {
    entry: ProcessEntry,
    control: File,
    rings: File,
}

impl ProcessBacking {
    /// Makes the files of a process, all their space reserved. Until [`ProcessBacking::describe`],
    /// there is nothing to recover.
    pub fn create(backing: &DirHandle, saved: &SavedProcess, geometry: Geometry) -> io::Result<Self> {
        let folder = backing.create_below(&saved.folder)?;
        let sizes = [control::file_size_for(saved.control_size), geometry.file_size()];
        let make = || -> io::Result<Self> {
            let new = |name, size| -> io::Result<File> {
                let file = folder.create_new(name)?;
                reserve(&file, size)?;
                Ok(file)
            };
            let (control, rings) = (new(CONTROL_FILE, sizes[0])?, new(RINGS_FILE, sizes[1])?);
            let entry = ProcessEntry { folder: folder.clone(), held: None };
            Ok(Self { entry, control, rings })
        };
        make().map_err(|error| {
            let _ = folder.remove_all();
            let size: u64 = sizes.iter().sum();
            let text = format!("can't reserve {size} bytes in {}: {error}", backing.path().display());
            io::Error::new(error.kind(), text)
        })
    }

    /// Makes the files of a process in sealed memory, which the keeper is to hold.
    pub fn in_memory(
        backing: &DirHandle,
        saved: &SavedProcess,
        geometry: Geometry,
        keeper: &Arc<Keeper>,
    ) -> io::Result<Self> {
        let control = create_memfd(c"tompion-control", control::file_size_for(saved.control_size))?;
        let rings = create_memfd(c"tompion-rings", geometry.file_size())?;
        let folder = backing.create_below(&saved.folder)?;
        Ok(Self::held(folder, [control, rings], keeper, saved.key))
    }

    /// The files of a process, control and rings, that its keeper holds.
    pub fn held(folder: DirHandle, files: [OwnedFd; 2], keeper: &Arc<Keeper>, key: u64) -> Self {
        let [control, rings] = files.map(File::from);
        let held = Some((keeper.clone(), key));
        Self { entry: ProcessEntry { folder, held }, control, rings }
    }

    /// Whether the files are memory, which doesn't outlast the machine.
    pub fn is_memory(&self) -> bool {
        self.entry.held.is_some()
    }

    /// Tells whose files these are, once the control file says how the rings are written.
    pub fn describe(&self, saved: &SavedProcess) -> io::Result<()> {
        write_json(&self.entry.folder, PROCESS_FILE, saved, false).inspect_err(|_| {
            let _ = self.remove();
        })
    }

    /// Opens the files that a session has left.
    pub fn open(folder: DirHandle) -> io::Result<Self> {
        let (control, rings) = (folder.write(CONTROL_FILE)?, folder.write(RINGS_FILE)?);
        Ok(Self { entry: ProcessEntry { folder, held: None }, control, rings })
    }

    /// Both files, mapped: control and rings.
    pub fn map(&self, geometry: Geometry) -> io::Result<(SharedMap, SharedMap)> {
        let map = |name: &str, file: &File, size| {
            let mapped = match self.is_memory() {
                true => SharedMap::new(file.as_fd(), size),
                false => SharedMap::guarded(file.as_fd(), size),
            };
            mapped.map_err(|error| {
                let path = self.entry.folder.path().join(name);
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })
        };
        // As long as the agent knew it. One of another length is refused.
        let control_size = control::file_size_for(self.control.metadata()?.len());
        let control = map(CONTROL_FILE, &self.control, control_size)?;
        Ok((control, map(RINGS_FILE, &self.rings, geometry.file_size())?))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.entry.folder.path()
    }

    /// The same, to reach what is in it.
    pub fn folder_handle(&self) -> &DirHandle {
        &self.entry.folder
    }

    /// Entry of the rings in the list of a program's mappings.
    pub fn rings_in_maps(&self) -> io::Result<RingsInMaps> {
        match self.is_memory() {
            true => Ok(RingsInMaps::Inode(self.rings.metadata()?.ino())),
            false => Ok(RingsInMaps::Path(self.entry.folder.path().join(RINGS_FILE))),
        }
    }

    /// The two files, for the process.
    pub fn files(&self) -> [&File; 2] {
        [&self.control, &self.rings]
    }

    /// Sees to it that the medium has the files, though not yet what is in the rings.
    pub fn settle(&self) -> io::Result<()> {
        if self.is_memory() {
            return Ok(());
        }
        self.entry.folder.read(PROCESS_FILE)?.sync_all()?;
        match self.entry.folder.read(THREADS_FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            threads => threads?.sync_all()?,
        }
        self.control.sync_all()?;
        self.rings.sync_all()?;
        self.entry.folder.sync_up()
    }

    /// Sees to it that the medium has the control file.
    pub fn sync_control(&self) -> io::Result<()> {
        if self.is_memory() { Ok(()) } else { self.control.sync_data() }
    }

    /// Stores the names and values of the process's threads.
    pub fn keep_threads(&self, known: &BTreeMap<u32, &Values>) -> io::Result<()> {
        write_json(&self.entry.folder, THREADS_FILE, known, false)
    }

    /// Returns the contexts of the process's threads.
    pub fn threads(&self) -> BTreeMap<u32, Values> {
        read_json(&self.entry.folder, THREADS_FILE).unwrap_or_default()
    }

    /// Takes the files away.
    pub fn remove(&self) -> io::Result<()> {
        self.entry.remove()
    }
}
