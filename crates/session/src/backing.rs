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
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use tompion_chunk_state::SavedPolicy;
use tompion_chunks::Policy;
use tompion_clock::ClockMap;
use tompion_keeper::Keeper;
use tompion_layout::{LAYOUT_VERSION, control, ring::Geometry};
use tompion_lineage::Lineage;
use tompion_os::{ClockPair, DirHandle, ProcessWatch, SharedMap, create_memfd, reserve};
use tompion_programs::ProgramSets;
use tompion_protocol::{
    message::{Hello, Origin},
    rules::Rules,
};
use tompion_schema::Level;
use tompion_triggers::{Trigger, TriggerError};

use crate::{
    context::{Context, Values},
    record::Config,
    ring_budget::RingMemory,
    session_config::SessionConfig,
    target::{Admission, ProcessTree, Target},
};

/// Version of these files.
const SCHEMA: u32 = 1;
/// Configuration of the session, as it is saved.
pub const SESSION_FILE: &str = "session.json";
const PROCESS_FILE: &str = "process.json";
/// Contexts of a process's threads.
const THREADS_FILE: &str = "threads.json";
const CLOCK_FILE: &str = "clock";
const CONTROL_FILE: &str = "control";
const RINGS_FILE: &str = "rings";
/// Largest description.
const MAX_JSON: u64 = 16 << 20;
/// Largest file of clock samples: those of some centuries.
const MAX_CLOCK: u64 = 1 << 30;

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
        }
    }

    /// Returns the triggers. Errors are lines for people.
    pub fn triggers(&self) -> Result<Vec<Trigger>, String> {
        let parse = |text: &String| {
            text.parse().map_err(|error: TriggerError| format!("the trigger `{text}`: {error}"))
        };
        self.triggers.iter().map(parse).collect()
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
    #[serde(default)]
    control_size: u64,
    #[serde(default)]
    parent: u32,
    #[serde(default)]
    command_line: Vec<String>,
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
            event_triggers: String::new(),
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
            counting: None,
            selector: None,
        })
    }
}

impl SavedProcess {
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
            parent: 0,
            command_line: Vec::new(),
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
            control_size: self.control_size,
        }
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

/// The processes that a session has left in a backing folder, in the order of their coming, and
/// what is wrong with others.
pub fn processes(backing: &DirHandle) -> io::Result<(Vec<SavedProcess>, Vec<String>)> {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for name in backing.names()? {
        let folder = backing.join(&name);
        if !folder.has(PROCESS_FILE) {
            continue;
        }
        match read_json::<SavedProcess>(&folder, PROCESS_FILE) {
            Ok(saved) if *name == *saved.folder => {
                found.push(saved);
            }
            Ok(saved) => wrong.push(format!(
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

/// First word of a file of clock samples.
const CLOCK_MAGIC: [u8; 8] = *b"TOMPCLK1";
const SAMPLE_SIZE: usize = 24;

/// The clock samples of a session, in a file that only grows, until it is replaced by a shorter
/// one.
#[derive(Debug)]
pub struct ClockFile {
    backing: DirHandle,
    file: File,
    /// Whether the samples outlast the machine.
    is_durable: bool,
}

fn sample_bytes(sample: ClockPair) -> [u8; SAMPLE_SIZE] {
    let check = (sample.tsc.rotate_left(32) ^ sample.ns).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = [0; SAMPLE_SIZE];
    for (place, word) in bytes.chunks_exact_mut(8).zip([sample.tsc, sample.ns, check]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

impl ClockFile {
    /// A file with these samples in a backing folder, in the place of an older one.
    pub fn create(backing: &DirHandle, samples: &[ClockPair], is_durable: bool) -> io::Result<Self> {
        let bytes: Vec<u8> =
            CLOCK_MAGIC.into_iter().chain(samples.iter().copied().flat_map(sample_bytes)).collect();
        backing.replace(CLOCK_FILE, &bytes, is_durable)?;
        Ok(Self { file: backing.append(CLOCK_FILE)?, backing: backing.clone(), is_durable })
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: ClockPair) -> io::Result<()> {
        self.file.write_all(&sample_bytes(sample))
    }

    /// Replaces all samples by fewer.
    pub fn replace(&mut self, samples: &[ClockPair]) -> io::Result<()> {
        *self = Self::create(&self.backing, samples, self.is_durable)?;
        Ok(())
    }

    /// Sees to it that the medium has the samples.
    pub fn sync(&self) -> io::Result<()> {
        if self.is_durable { self.file.sync_data() } else { Ok(()) }
    }
}

/// Whether a backing folder has clock samples, sound or not.
pub fn has_clock(backing: &DirHandle) -> bool {
    backing.has(CLOCK_FILE)
}

/// Reads the samples of a backing folder up to the first that is not whole.
pub fn read_clock(backing: &DirHandle) -> Result<ClockMap, String> {
    let path = backing.path().join(CLOCK_FILE);
    let bytes = backing
        .read_bounded(CLOCK_FILE, MAX_CLOCK)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let Some(bytes) = bytes.strip_prefix(&CLOCK_MAGIC) else {
        return Err(format!("{}: byte 0: expected TOMPCLK1, found something else", path.display()));
    };
    let mut samples = bytes.chunks_exact(SAMPLE_SIZE).map_while(|bytes| {
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let sample = ClockPair { tsc: word(0)?, ns: word(8)? };
        (sample_bytes(sample) == bytes).then_some(sample)
    });
    let (Some(first), Some(second)) = (samples.next(), samples.next()) else {
        let path = path.display();
        return Err(format!("{path}: expected two clock samples at least: timestamps can't be converted"));
    };
    let mut clock = ClockMap::new(first, second);
    samples.for_each(|sample| clock.add(sample));
    Ok(clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_samples_are_read_up_to_the_first_that_is_torn() {
        let desk = tempfile::tempdir().unwrap();
        let folder = DirHandle::open(desk.path()).unwrap();
        let pair = |index: u64| ClockPair { tsc: 1000 * index, ns: 400 * index };
        let mut file = ClockFile::create(&folder, &[pair(1), pair(2)], true).unwrap();
        file.add(pair(3)).unwrap();
        assert_eq!(read_clock(&folder).unwrap().samples().len(), 3);
        file.replace(&[pair(1), pair(3)]).unwrap();
        file.add(pair(4)).unwrap();
        let whole = std::fs::read(folder.path().join(CLOCK_FILE)).unwrap();
        assert_eq!(whole.len(), 8 + 3 * SAMPLE_SIZE);
        for len in 0..whole.len() {
            std::fs::write(folder.path().join(CLOCK_FILE), &whole[..len]).unwrap();
            assert_eq!(read_clock(&folder).is_ok(), len >= 8 + 2 * SAMPLE_SIZE, "{len}");
        }
    }
}
