//! Begin of a recording: folders, names, configuration, manifest.

use std::{collections::BTreeSet, fs, io, os::unix::fs::MetadataExt, sync::Arc, thread, time::Duration};

use tompion_clock::ClockMap;
use tompion_counting::Collector;
use tompion_keeper::{HandOver, Keeper};
use tompion_kernel_trace::{Kernel, note_choice};
use tompion_layout::ring::Geometry;
use tompion_manifest::{self as manifest, Channel, Clock, Host, Manifest, SCHEMA, Session};
use tompion_os::{DirHandle, Listener, ProcessWatch, sample_clocks};
use tompion_protocol::names::{self, MAX_FOLDER_NAMES};
use tompion_restart_state::TakeOver;
use tompion_writer::HostInfo;

use super::{Config, Error, Mode};
use tompion_running::own_recorder;
use tompion_triggers::EventTable;

use crate::{
    attach,
    backing::{self, SavedProcess, SavedRestart, SavedSession},
    filter, listening, messages, rseq,
    session_config::SessionConfig,
    target::{Admission, Target},
    targets,
};

/// Maximum number of folders for rings beside each other, each of a recording that was killed.
const MAX_BACKINGS: u32 = 16;

/// Time between the first two samples of the clock.
const CLOCK_SAMPLES_APART: Duration = Duration::from_millis(2);

/// Folder in that of the trace with what a recorder needs that comes back.
pub(super) const RESTART_FOLDER: &str = ".restart";

/// State with which the threads of a recording begin.
pub(super) struct Start {
    /// The manifest, which is on disk.
    pub manifest: Manifest,
    /// Samples of the clock so far.
    pub clock: ClockMap,
    /// Name of the socket to which programs connect.
    pub name: String,
    /// The socket.
    pub listener: Listener,
    /// Programs of a recorder that was killed.
    pub left: Option<Left>,
    /// Chunk in which it recorded, if its recording is in chunks.
    pub chunk: Option<TakeOver>,
    /// The kernel, if it is recorded on.
    pub kernel: Option<Kernel>,
}

/// Programs that a recorder has left which was killed.
pub(super) struct Left {
    /// Their descriptors.
    pub kept: HandOver,
    /// Their descriptions.
    pub processes: Vec<SavedProcess>,
    /// The command, if it still runs.
    pub command: Option<ProcessWatch>,
    /// Name of the socket in the folder where programs look.
    pub join_socket: Option<String>,
    /// Paths of the traces of processes that have ended in earlier chunks.
    pub ended: Vec<String>,
}

/// Begins a recording: writes its manifest and listens for programs.
pub(super) fn begin(config: &Config, session_config: &mut SessionConfig) -> Result<Start, Error> {
    let manifest = manifest(config, session_config);
    let in_words = |error: io::Error| io::Error::new(error.kind(), messages::reason(&error));
    manifest.write(&session_config.folder, manifest.session.is_durable()).map_err(in_words)?;
    let (name, listener) = listen(config)?;
    if let (Some(backing), Some(id)) = (&session_config.backing, &manifest.session.id) {
        let restart = config.linger.map(|_| SavedRestart::new(config, &name));
        if let (Some(choice), Some(_)) = (&config.kernel, &restart) {
            let noted = note_choice(backing, choice, session_config.rules.filter.as_deref());
            noted.map_err(|error| Error::Backing(backing.path().to_owned(), error))?;
        }
        let saved = SavedSession::new(session_config, id.clone()).with_chunks(config.chunks);
        let saved = saved.with_restart(restart.clone());
        let kept = backing::keep_session(backing, &saved);
        kept.map_err(|error| Error::Backing(backing.path().to_owned(), error))?;
        if let (Some(restart), Some(linger)) = (restart, config.linger) {
            let keeper = Keeper::start(&restart.keeper, linger, id);
            session_config.keeper = Some(Arc::new(keeper.map_err(Error::Keeper)?));
        }
    }
    Ok(Start { manifest, clock: new_clock(), name, listener, left: None, chunk: None, kernel: None })
}

/// Samples the clock for the first time: two samples, since one has no rate.
pub(super) fn new_clock() -> ClockMap {
    let first = sample_clocks();
    thread::sleep(CLOCK_SAMPLES_APART);
    ClockMap::new(first, sample_clocks())
}

/// Makes the folder for the rings. In a recording that a program has started by itself, no user can
/// choose another one. So where a killed one has left its rings, it gets a folder beside them.
pub(super) fn create_backing(
    config: &Config,
    folder: &DirHandle,
    notice: fn(&str),
) -> Result<Option<DirHandle>, Error> {
    if config.linger.is_some() {
        // The keeper has the rings; this is for what describes them.
        let made = folder.create_below(RESTART_FOLDER);
        return made.map(Some).map_err(|error| Error::Backing(folder.path().join(RESTART_FOLDER), error));
    }
    let Some(wanted) = &config.backing else { return Ok(None) };
    let others = if matches!(config.target, Target::SharedFolder(_)) { MAX_BACKINGS } else { 1 };
    for number in 1..=others {
        let mut folder = wanted.clone();
        if number > 1 {
            folder.as_mut_os_string().push(format!("-{number}"));
        }
        match DirHandle::create_private(&folder) {
            Ok(made) if number > 1 => {
                let (wanted, other) = (wanted.display(), folder.display());
                notice(&format!(
                    "{wanted} exists already, so the rings are in {other}; if a recording was killed there: tompion \
                     recover {wanted}"
                ));
                return Ok(Some(made));
            }
            Ok(made) => return Ok(Some(made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::Backing(folder, error)),
        }
    }
    Err(Error::BackingExists(wanted.clone()))
}

pub(super) fn create_folder(config: &Config) -> Result<DirHandle, Error> {
    let folder = &config.folder;
    // By a grant, this is the first process with its user's file rights.
    match if config.is_granted() { DirHandle::create_all(folder) } else { DirHandle::create(folder) } {
        Ok(made) => Ok(made),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Error::FolderExists(folder.clone()))
        }
        Err(error) => Err(match &config.user {
            Some(user) => Error::UsersFolder { user: user.uid(), folder: folder.clone(), error },
            None => Error::Folder(folder.clone(), error),
        }),
    }
}

/// Listens under the session's own name: a random one, or the first one of a folder's that no other
/// user has.
fn listen(config: &Config) -> io::Result<(String, Listener)> {
    let Target::SharedFolder(first) = &config.target else {
        let name = format!("tompion-{}-{:016x}", std::process::id(), uuid::Uuid::new_v4().as_u64_pair().0);
        return Listener::bind(&name).map(|listener| (name, listener));
    };
    let names = (0..MAX_FOLDER_NAMES).map(|number| names::numbered(first, number));
    let search = listening::listen(names, tompion_os::effective_user(), 1)?;
    let stranger = search.describe_stranger();
    search.found.ok_or_else(|| match search.sessions {
        0 => io::Error::other(format!(
            "all {MAX_FOLDER_NAMES} names where programs look for this session ({first}, {first}-1 and so on) are \
             taken {stranger}"
        )),
        // Another program was quicker and has started one.
        _ => io::ErrorKind::AddrInUse.into(),
    })
}

pub(super) fn session_config(
    config: &Config,
    geometry: Geometry,
    (folder, backing): (DirHandle, Option<DirHandle>),
) -> io::Result<SessionConfig> {
    let host = HostInfo::read();
    let monotonic = tompion_os::monotonic_ns();
    let realtime = tompion_os::realtime_ns();
    let after = tompion_os::monotonic_ns();
    Ok(SessionConfig {
        geometry,
        memory: None,
        prefault: config.prefault,
        rules: config.rules.clone(),
        event_triggers: EventTable::new(&config.triggers),
        overwrite: config.mode == Mode::Overwrite,
        tid: config.tid,
        contexts: config.contexts.clone(),
        application_contexts: config.application_contexts
            || config.rules.filter.as_deref().is_some_and(filter::needs_application),
        tsc: tompion_os::tsc_state().is_ok() && tompion_os::tsc_is_usable(),
        rseq: rseq::is_usable(),
        folder,
        hostname: host.hostname,
        boot_id: host.boot_id,
        clock_offset_ns: realtime as i64 - (monotonic + (after - monotonic) / 2) as i64,
        users: users(config),
        programs: config.programs.clone(),
        has_command: matches!(config.target, Target::Command(_)),
        admission: admission(config),
        is_in_chunks: config.chunks.is_some(),
        backing,
        keeper: None,
        jobs: config.jobs.clone(),
        counting: Collector::new(&config.counts, geometry.cpus())?
            .map(|all| if config.linger.is_some() { all.for_next_recorder() } else { all })
            .map(|all| match config.ring_limit.as_ref().filter(|_| config.is_granted()) {
                Some(limit) => all.limited_to(limit.bytes),
                None => all,
            })
            .map(Arc::new),
        selector: config.selector.clone(),
    })
}

/// Users whose processes may take part. Each once: every one takes a place among the sessions that
/// a user's programs look for.
pub(super) fn users(config: &Config) -> Vec<u32> {
    let own = fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid());
    let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok()).filter(|_| own == 0);
    // Root may name other users' processes.
    let owner = |pid: &u32| fs::metadata(format!("/proc/{pid}")).map(|metadata| metadata.uid()).ok();
    let processes = config.target.processes();
    let asked = processes.iter().filter(|_| own == 0).filter_map(owner);
    // A session that takes jobs of the whole machine also admits all users that have any.
    let all =
        if own == 0 && config.jobs.is_some() { attach::attach_sockets().processes() } else { Vec::new() };
    let all = all.iter().filter_map(owner);
    [own].into_iter().chain(sudo).chain(asked).chain(all).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Rule for which of their processes may.
pub(super) fn admission(config: &Config) -> Admission {
    match &config.target {
        Target::Processes(family) => Admission::ProcessTree(family.members().collect()),
        _ => Admission::Anyone,
    }
}

fn manifest(config: &Config, session_config: &SessionConfig) -> Manifest {
    Manifest {
        schema: SCHEMA,
        state: manifest::RECORDING.into(),
        command: config.target.command().to_vec(),
        targets: targets::describe(&config.target),
        is_in_chunks: config.chunks.is_some(),
        session: Session {
            tompion: env!("CARGO_PKG_VERSION").into(),
            invocation: config.invocation.clone(),
            host: Host {
                name: session_config.hostname.clone(),
                kernel: HostInfo::read().kernel_line(),
                cpus: session_config.geometry.cpus(),
                boot_id: session_config.boot_id.clone(),
            },
            clock: Clock {
                source: if session_config.tsc { "tsc" } else { "monotonic" }.into(),
                realtime_offset_ns: session_config.clock_offset_ns,
                error_bound_ns: if session_config.tsc { 25 } else { 1 },
                samples: Vec::new(),
            },
            channel: Channel {
                mode: if session_config.overwrite { manifest::OVERWRITE } else { "discard" }.into(),
                subbuf_size: session_config.geometry.subbuf_size(),
                subbufs: session_config.geometry.subbuf_count(),
                memory: session_config.memory.map(|memory| memory.bytes),
            },
            kernel: config.kernel.is_some(),
            recorder: own_recorder(),
            backing: session_config.backing.as_ref().map(|backing| backing.path().to_owned()),
            keeper: config.linger.is_some(),
            id: Some(uuid::Uuid::new_v4().to_string()),
            ..Session::default()
        },
        ..Manifest::default()
    }
}
