//! `tompion recover`: completes the trace of a session that was killed, or whose machine stopped.
//!
//! For each process that the backing folder still has, and that the manifest doesn't tell of:
//!
//! 1. streams are cut behind their last whole packet, indexes are made      `SourceWriter::resume`
//! 2. what the rings hold behind that is copied and checked                 `Process::recover`
//! 3. packets are written, then synchronised                               `Process::finish`
//! 4. the manifest tells of the process, on the medium                      `Recovery::complete`
//! 5. the process's files go                                                `Process::remove_files`
//!
//! Of the kernel, and of processes whose rings were not kept, the trace is completed with what is
//! in its files.
//!
//! At last the manifest's state becomes `recovered`, and the backing folder goes. A recovery that
//! is killed in between has done nothing that the next one doesn't find done or does again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tompion_clock::ClockMap;
use tompion_counting::{Collector, FILE_NAME as COUNTS_FILE};
use tompion_ctf::metadata::{EnvironmentValue, Trace};
use tompion_keeper::{HeldProcess, Keeper};
use tompion_kernel_trace::HeldKernel;
use tompion_manifest::{self as manifest, KERNEL, Manifest, REFUSED, Source, USER, add_counted};
use tompion_os::{DirHandle, Lock, sample_clocks, try_lock};
use tompion_writer::resume::{self, Cut, Expected};

mod chunk;
mod kernel;

use chunk::OpenChunk;
pub use chunk::complete_kernel_in_chunk;

use crate::{
    acceptor::adopt::add_counts,
    backing::{self, ProcessBacking, RingsInMaps, SESSION_FILE, SavedProcess, SavedSession},
    process::{Process, TracePlace},
    session_config::SessionConfig,
};

/// Time for which a reader that checks whether a trace is being recorded may hold its lock.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);
/// Time within which programs may leave a session that is gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes behind a stream's last whole packet that a session without kept rings can have been
/// writing.
const MAX_TORN: u64 = 64 << 20;

/// The recording to which a path belongs, if its session was killed before it had ended it.
pub fn incomplete(path: &Path) -> Option<PathBuf> {
    const LEVELS: usize = 4;
    let folder = path.ancestors().take(LEVELS).find(|folder| folder.join(manifest::FILE).is_file())?;
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let opened = DirHandle::open(folder).ok()?;
    let is_recording = Manifest::read(&opened).is_ok_and(|manifest| manifest.is_recording());
    // What a receiver copies has its recorder on another machine.
    let is_own = !opened.has_directory(manifest::RECEIVED_FOLDER);
    (is_recording && is_own && tompion_os::is_unlocked(folder)).then(|| folder.to_owned())
}

/// Result of a recovery.
#[derive(Debug)]
pub struct Recovered {
    /// The trace's folder.
    pub folder: PathBuf,
    /// The manifest as it is now; that of the chunk that was completed, if there is one.
    pub manifest: Manifest,
    /// Problems for users, one line each.
    pub problems: Vec<String>,
    /// Whether there was nothing to do.
    pub was_complete: bool,
    /// Whether the trace is as complete as it can become.
    pub is_complete: bool,
}

/// Completes the trace in `folder`, or the one whose rings are kept in `folder`.
///
/// # Errors
/// A line for people: what was expected, what was found, where, and what to do. The trace is then
/// as it was, or completed in part; what is left can be completed later.
pub fn recover(folder: &Path) -> Result<Recovered, String> {
    if folder.join(manifest::RECEIVED_FOLDER).is_dir() {
        let shown = folder.display();
        return Err(format!("{shown}: expected a recording, found a receiver's copy: recover the original"));
    }
    let named = open(folder)?;
    // Root completes what another user recorded with no more than that user's file rights: nothing
    // that lies there, nor the paths that the descriptions name, can lead to what is root's.
    let _rights =
        named.take_owners_rights().map_err(|error| format!("{}: {error}", named.path().display()))?;
    let Where { folder, backing } = find(named, &folder.display().to_string())?;
    let _lock = lock(&folder)?;
    // Another recovery may have been faster.
    let mut manifest = Manifest::read(&folder)?;
    if !manifest.is_recording() {
        // Killed before it could take away what isn't needed any more.
        backing.iter().for_each(|backing| drop(backing.remove_all()));
        return Ok(Recovered {
            folder: folder.path().to_owned(),
            manifest,
            problems: Vec::new(),
            was_complete: true,
            is_complete: true,
        });
    }
    let same_boot = is_this_boot(&manifest.session.host.boot_id);
    let (files, kernel) = match &backing {
        Some(backing) if manifest.session.keeper => KeptFiles::of_keeper(backing),
        _ => (KeptFiles::OnDisk, None),
    };
    let mut recovery = Recovery { same_boot, kernel, ..Recovery::of(folder, files) };
    let mut chunk = None;
    match &backing {
        Some(backing) if manifest.is_in_chunks => {
            chunk = recovery.complete_rings_in_chunk(backing, &mut manifest)?;
        }
        Some(backing) => recovery.complete_rings(backing, &mut manifest)?,
        None if manifest.is_in_chunks => {
            chunk = recovery.complete_chunk(&manifest)?;
            manifest.losses_unknown = true;
        }
        None => recovery.complete_files(&mut manifest)?,
    }
    if !manifest.is_in_chunks {
        recovery.complete_held_kernel(&mut manifest, None);
        recovery.complete_kernel(&mut manifest);
    }
    recovery.write_counts();
    manifest.session.problems.extend(recovery.problems.iter().cloned());
    if recovery.is_complete {
        manifest.state = manifest::RECOVERED.into();
        (manifest.session.recorder, manifest.session.snapshot) = (None, None);
        (manifest.session.backing, manifest.session.keeper) = (None, false);
        recovery.write(&manifest)?;
        if let Some(backing) = backing {
            backing
                .remove_all()
                .map_err(|error| format!("can't remove {}: {error}", backing.path().display()))?;
        }
    }
    if let Some(chunk) = chunk {
        manifest = chunk;
    }
    if let (KeptFiles::Held(keeper, _), true) = (&recovery.files, recovery.is_complete) {
        keeper.end();
    }
    let Recovery { folder, problems, is_complete, .. } = recovery;
    Ok(Recovered { folder: folder.path().to_owned(), manifest, problems, was_complete: false, is_complete })
}

fn open(folder: &Path) -> Result<DirHandle, String> {
    DirHandle::open(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// A trace's folder, and where its rings are kept.
struct Where {
    folder: DirHandle,
    backing: Option<DirHandle>,
}

/// Finds the trace and its rings by either folder, which the user called `shown`.
fn find(named: DirHandle, shown: &str) -> Result<Where, String> {
    if named.has(SESSION_FILE) {
        let saved = SavedSession::read(&named)?;
        let folder = open(&saved.folder)?;
        let manifest = Manifest::read(&folder)
            .map_err(|error| format!("{error}; the trace whose rings are in {shown} should be there"))?;
        if manifest.session.id.as_ref() != Some(&saved.id) {
            let trace = folder.path().display();
            return Err(format!("{trace} is not the recording whose rings are in {shown}"));
        }
        return Ok(Where { folder, backing: Some(named) });
    }
    if !named.has(manifest::FILE) {
        let expected = manifest::FILE;
        return Err(format!(
            "{shown}: expected a recording's folder, with {expected}, or that of its rings, with {SESSION_FILE}; found \
             neither"
        ));
    }
    let manifest = Manifest::read(&named)?;
    let Some(kept) = manifest.session.backing else { return Ok(Where { folder: named, backing: None }) };
    let backing = DirHandle::open(&kept).ok().filter(|backing| backing.has(SESSION_FILE));
    let kept = kept.display();
    let Some(backing) = backing else {
        return Err(format!(
            "{kept} is not there, or keeps no rings; {shown} needs them: mount what they are on (if they are lost for \
             ever, remove \"backing\" from tompion.json: what is in the trace is completed then)"
        ));
    };
    let saved = SavedSession::read(&backing)?;
    if manifest.session.id.as_ref() != Some(&saved.id) {
        return Err(format!("{kept} has the rings of another recording than {shown}"));
    }
    Ok(Where { folder: named, backing: Some(backing) })
}

fn lock(folder: &DirHandle) -> Result<Lock, String> {
    let begin = Instant::now();
    loop {
        match try_lock(folder) {
            Ok(Some(lock)) => return Ok(lock),
            Ok(None) if begin.elapsed() < LOCK_TIMEOUT => thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let folder = folder.path().display();
                return Err(format!("{folder} is still being recorded or recovered; end that first"));
            }
            Err(error) => return Err(format!("can't lock {}: {error}", folder.path().display())),
        }
    }
}

/// End of a process whose recorder was killed.
const UNKNOWN_END: &str = "not known: its session was killed";

/// More events than any recording can have lost: a damaged packet says so.
const MAX_COUNT: u64 = 1 << 62;

struct Recovery {
    /// Folder of the recording, or of its chunk that is completed.
    folder: DirHandle,
    problems: Vec<String>,
    /// Whether nothing is left to be recovered.
    is_complete: bool,
    /// Whether the machine has run on since it was recorded.
    same_boot: bool,
    files: KeptFiles,
    /// The chunk that was open, in a recording in chunks with kept rings.
    open: Option<OpenChunk>,
    /// Counts of events, if some were counted in place, and the folder in which they are saved.
    counting: Option<(Arc<Collector>, DirHandle)>,
    /// The kernel's part that the keeper holds.
    kernel: Option<HeldKernel>,
}

/// Files with the memory of processes.
enum KeptFiles {
    /// They are beside the descriptions of the processes.
    OnDisk,
    /// A keeper has given them back.
    Held(Arc<Keeper>, BTreeMap<u64, HeldProcess>),
    /// The keeper is gone, and they with it.
    Gone,
}

impl KeptFiles {
    /// Takes what the keeper of a recording holds, that of the kernel apart.
    fn of_keeper(backing: &DirHandle) -> (Self, Option<HeldKernel>) {
        let saved = SavedSession::read(backing).ok();
        let taken = saved.and_then(|saved| Keeper::take(&saved.restart()?.keeper, &saved.id).ok());
        let Some((keeper, kept)) = taken else { return (Self::Gone, None) };
        let keeper = Arc::new(keeper);
        let kernel = HeldKernel::find(kept.objects, &keeper, backing);
        (Self::Held(keeper, kept.processes), kernel)
    }

    /// Whether the memory of a process is there.
    fn has(&self, key: u64) -> bool {
        match self {
            Self::OnDisk => true,
            Self::Held(_, processes) => processes.contains_key(&key),
            Self::Gone => false,
        }
    }

    /// The files of a process, and its count file; none if they are lost.
    fn take(
        &mut self,
        folder: &DirHandle,
        saved: &SavedProcess,
    ) -> io::Result<Option<(ProcessBacking, Option<OwnedFd>)>> {
        match self {
            Self::OnDisk => ProcessBacking::open(folder.clone()).map(|files| Some((files, None))),
            Self::Held(keeper, processes) => Ok(processes.remove(&saved.key).map(|kept| {
                let HeldProcess { socket, control, rings, counts, .. } = kept;
                // The program leaves when its connection ends. The keeper holds the rings until
                // they are written: a recovery that is killed can be done again.
                socket.shut_down();
                (ProcessBacking::held(folder.clone(), [control, rings], keeper, saved.key), counts)
            })),
            Self::Gone => Ok(None),
        }
    }
}

/// State of a session whose processes are completed one after the other.
struct RecoveryState<'a> {
    config: &'a SessionConfig,
    clock: &'a mut ClockMap,
    manifest: &'a mut Manifest,
}

impl Recovery {
    /// A recovery, of a machine that has run on.
    fn of(folder: DirHandle, files: KeptFiles) -> Self {
        let (problems, open, counting) = (Vec::new(), None, None);
        Self { folder, problems, is_complete: true, same_boot: true, files, open, counting, kernel: None }
    }

    fn write(&self, manifest: &Manifest) -> Result<(), String> {
        let written = manifest.write(&self.folder, true);
        written.map_err(|error| format!("can't write to {}: {error}", self.folder.path().display()))
    }

    /// Completes the traces of the processes whose rings are kept.
    fn complete_rings(&mut self, backing: &DirHandle, manifest: &mut Manifest) -> Result<(), String> {
        let saved = SavedSession::read(backing)?;
        let session_config = saved
            .session_config(&self.folder)
            .map_err(|error| format!("{}: {error}", backing.path().join(SESSION_FILE).display()))?;
        let same_boot = is_this_boot(&saved.boot_id);
        self.same_boot = same_boot;
        let read =
            backing::processes(backing).map_err(|error| format!("{}: {error}", backing.path().display()));
        let (processes, wrong) = read?;
        self.is_complete &= wrong.is_empty();
        self.problems.extend(wrong);
        if processes.is_empty() && !backing::has_clock(backing) {
            // It was stopped while it began: processes come behind the clock.
            self.tell_of_a_stop(manifest);
            return Ok(());
        }
        let mut clock = backing::read_clock(backing)?;
        if same_boot {
            // The clocks still run: the last events lie between two samples.
            clock.add(sample_clocks());
        } else {
            clock.expect_missing_samples();
        }
        self.restore_counts(&session_config, backing, &processes, manifest)?;
        for process in processes {
            let folder = backing.join(&process.folder);
            let path = Path::new("user").join(&process.folder);
            let ended = self.open.iter().flat_map(|open| &open.ended.in_all);
            if manifest.sources.iter().chain(ended).any(|source| Path::new(&source.path) == path) {
                let _ = folder.remove_all();
                continue;
            }
            if let Err(problem) = self.complete(
                folder,
                &process,
                RecoveryState { config: &session_config, clock: &mut clock, manifest },
            ) {
                self.is_complete = false;
                self.problems.push(problem);
            }
        }
        self.tell_of_a_stop(manifest);
        manifest.session.clock.samples = clock.samples().iter().map(|pair| (pair.tsc, pair.ns)).collect();
        Ok(())
    }

    /// Takes the counts of processes that have ended. Those of processes with memory that is still
    /// there are read again.
    fn restore_counts(
        &mut self,
        config: &SessionConfig,
        backing: &DirHandle,
        processes: &[SavedProcess],
        manifest: &Manifest,
    ) -> Result<(), String> {
        let Some(counting) = &config.counting else { return Ok(()) };
        let ended = self.open.iter().flat_map(|open| &open.ended.in_all);
        let named: BTreeSet<&str> =
            manifest.sources.iter().chain(ended).map(|source| source.path.as_str()).collect();
        let is_open = |process: &&SavedProcess| !named.contains(format!("user/{}", process.folder).as_str());
        let open: BTreeSet<u64> = processes.iter().filter(is_open).map(|process| process.key).collect();
        counting.resume(backing, true, |key| open.contains(&key) && self.files.has(key))?;
        self.counting = Some((counting.clone(), backing.clone()));
        Ok(())
    }

    /// Saves what a process has counted, before it is named: a recovery that is killed in between
    /// reads it again.
    fn save_counts(&self, process: &Process) -> Result<(), String> {
        let (Some((counting, backing)), Some(counts)) = (&self.counting, &process.counts) else {
            return Ok(());
        };
        counting.end(counts, process.key);
        let written = counting.saved().write(backing, true);
        written.map_err(|error| format!("{}: {error}", backing.path().display()))
    }

    /// Writes the counts of the recording into its folder.
    fn write_counts(&mut self) {
        let Some((counting, _)) = &self.counting else { return };
        if counting.write_last(&self.folder, |_| {}).is_unwritten {
            self.is_complete = false;
            let shown = self.folder.path().display();
            self.problems.push(format!("can't write {COUNTS_FILE} in {shown}"));
        }
    }

    /// Reports what the machine's stop means for the trace, if there was one.
    fn tell_of_a_stop(&mut self, manifest: &mut Manifest) {
        if self.same_boot {
            return;
        }
        let text = "the machine has stopped since: what it had not written back is lost, and of what was recorded \
                    after the last time that it did, even how much";
        self.problems.push(text.into());
        manifest.losses_unknown = true;
    }

    /// Completes the trace of one process, and names the process in the manifest.
    fn complete(
        &mut self,
        folder: DirHandle,
        saved: &SavedProcess,
        RecoveryState { config, clock, manifest }: RecoveryState<'_>,
    ) -> Result<(), String> {
        let same_boot = self.same_boot;
        let shown = folder.path().display().to_string();
        let taken = self.files.take(&folder, saved).map_err(|error| format!("{shown}: {error}"))?;
        let Some((kept_in, counts)) = taken else {
            if let (Some(counting), Some(_)) = (&config.counting, &saved.counts) {
                counting.add(saved.pid, &saved.hello().name, None);
            }
            let LostProcess { source, problems } = lost_process(self.place(), saved);
            self.problems.extend(problems);
            manifest.losses_unknown = true;
            self.name(source, saved.key, manifest)?;
            return folder.remove_all().map_err(|error| format!("can't remove {shown}: {error}"));
        };
        let rings = kept_in.rings_in_maps().map_err(|error| format!("{shown}: {error}"))?;
        let lives = same_boot && !has_left(saved.pid, &rings);
        let name = format!("{} ({})", saved.hello().name, saved.pid);
        if lives {
            let more = "its later events are not in the trace";
            self.problems.push(format!("{name} still writes to its rings and may be stopped; {more}"));
        }
        let mut process = Process::resume(kept_in, saved, config, self.place(), !same_boot)?;
        process.lineage = saved.lineage();
        process.counts = add_counts(config.counting.as_deref(), saved, counts)?;
        self.problems.extend(process.damage());
        let how = if lives { "running when it was recovered" } else { UNKNOWN_END };
        process.end = Some(how.into());
        process.recover(clock).map_err(|error| format!("{name}: {error}"))?;
        if process.was_cut() {
            self.problems.push(format!("{name} cut off its own rings"));
        }
        self.save_counts(&process)?;
        let source = process.summary(self.folder.path());
        self.name(source, saved.key, manifest)?;
        process.remove_files().map_err(|error| format!("can't remove {shown}: {error}"))
    }

    /// Place of the processes' traces.
    fn place(&self) -> TracePlace<'_> {
        TracePlace { root: &self.folder, begin: self.open.as_ref().map(|open| &open.begin) }
    }

    /// Names a process on the medium: in the manifest, or in the list of those that the chunk's is
    /// to name.
    fn name(&mut self, source: Source, key: u64, manifest: &mut Manifest) -> Result<(), String> {
        match &mut self.open {
            Some(open) => open.name(source, key),
            None => {
                manifest.sources.push(source);
                self.write(manifest)
            }
        }
    }

    /// Completes traces whose rings are gone.
    fn complete_files(&mut self, manifest: &mut Manifest) -> Result<(), String> {
        let user = self.folder.join("user");
        let mut names = match user.names() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            names => names.map_err(|error| format!("{}: {error}", user.path().display()))?,
        };
        names.sort();
        for name in names {
            self.complete_source(&user.join(name), manifest);
        }
        let text = "recorded without --backing: what the rings held when the session was killed is lost, and how \
                    much that was can't be known";
        self.problems.push(text.into());
        if !self.same_boot {
            let text =
                "the machine has stopped since: parts of the trace that were not written back are lost too";
            self.problems.push(text.into());
        }
        manifest.losses_unknown = true;
        self.folder.sync().map_err(|error| format!("{}: {error}", self.folder.path().display()))
    }

    /// Completes the kernel's trace: its rings went with the session.
    fn complete_kernel(&mut self, manifest: &mut Manifest) {
        // The session may have done it before it was killed.
        if !manifest.session.kernel || manifest.sources.iter().any(|source| source.kind == KERNEL) {
            return;
        }
        self.complete_source(&self.folder.join(KERNEL), manifest);
        let text = "kernel events still in the rings were lost with the session; their number is unknown";
        self.problems.push(text.into());
        manifest.losses_unknown = true;
    }

    /// Completes a trace with what is in its files, and has the manifest tell of it.
    fn complete_source(&mut self, folder: &DirHandle, manifest: &mut Manifest) {
        // What a machine had not written back when it stopped may be missing anywhere in a file.
        let trusted = self.same_boot.then_some(u64::MAX);
        match source_of(folder, self.folder.path(), trusted) {
            Ok(Some((source, damage))) => {
                add_counted(&mut manifest.sources, source);
                self.problems.extend(damage);
            }
            Ok(None) => {}
            Err(error) => {
                self.is_complete = false;
                self.problems.push(error.to_string());
            }
        }
    }
}

/// The rest of a process whose rings are lost.
#[derive(Debug)]
pub struct LostProcess {
    /// The process, as its trace's files tell of it.
    pub source: Source,
    /// Problems for users, one line each.
    pub problems: Vec<String>,
}

/// A process of a recorder that was killed, whose rings are lost: its trace ends with what is in
/// its files.
pub fn lost_process(place: TracePlace<'_>, saved: &SavedProcess) -> LostProcess {
    let folder = place.root;
    let hello = saved.hello();
    let name = format!("{} ({})", hello.name, saved.pid);
    let mut problems = vec![format!("{name}: what its rings held when the recorder was killed is lost")];
    let path = folder.join("user").join(&saved.folder);
    let found = match source_of(&path, folder.path(), Some(u64::MAX)) {
        Ok(found) => found,
        Err(error) => {
            problems.push(error.to_string());
            None
        }
    };
    let (source, damage) = found.unwrap_or_default();
    problems.extend(damage);
    let source = Source {
        path: format!("user/{}", saved.folder),
        kind: USER.into(),
        pid: Some(saved.pid.into()),
        name: Some(hello.name),
        executable: Some(hello.executable),
        end: source.end.or_else(|| Some(UNKNOWN_END.into())),
        losses_unknown: true,
        ..source
    };
    LostProcess { source, problems }
}

/// Completes the kernel's trace of a recorder that was killed, if there is one, with what is in its
/// files. Returns problems for users, one line each.
pub fn complete_kernel(folder: &DirHandle, manifest: &mut Manifest) -> Vec<String> {
    let mut recovery = Recovery::of(folder.clone(), KeptFiles::Gone);
    recovery.complete_kernel(manifest);
    recovery.problems
}

/// Whether this is the boot of an id.
pub fn is_this_boot(id: &str) -> bool {
    let this = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    this.is_ok_and(|this| this.trim() == id)
}

/// Whether a process has left the recording with these rings, or is gone; waits for it a while. One
/// whose memory can't be read is taken to be there.
fn has_left(pid: u32, rings: &RingsInMaps) -> bool {
    const ESRCH: i32 = 3;
    let begin = Instant::now();
    let is_there = || match fs::read_to_string(format!("/proc/{pid}/maps")) {
        Ok(maps) => rings.is_in(&maps),
        Err(error) => error.kind() != io::ErrorKind::NotFound && error.raw_os_error() != Some(ESRCH),
    };
    while is_there() {
        if begin.elapsed() > EXIT_TIMEOUT {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

/// A process, or the kernel, of which only the trace is left. Its streams are cut behind their last
/// whole packets, of which those up to the position `trusted` need no look at their bytes. Returns
/// a line for each damage as well.
fn source_of(
    folder: &DirHandle,
    root: &Path,
    trusted: Option<u64>,
) -> Result<Option<(Source, Vec<String>)>, resume::Error> {
    let Some(trace) = resume::any_metadata(folder)? else { return Ok(None) };
    let Some(uuid) = trace.uuid else { return Ok(None) };
    let mut names: Vec<String> = folder
        .names()
        .into_iter()
        .flatten()
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with("stream_"))
        .collect();
    names.sort();
    let (mut events, mut overwritten, mut lost) = (0u64, 0u64, BTreeMap::<String, u64>::new());
    let (mut damage, mut is_unknown) = (Vec::new(), false);
    let expected = Expected { uuid, trusted, most_torn: MAX_TORN };
    for name in names {
        let Some(Cut { data, last: Some(last), damage: found, .. }) = resume::cut(folder, &name, &expected)?
        else {
            continue;
        };
        damage.extend(found);
        let _ = data.sync_data();
        events = events.saturating_add(last.origin.tally.written);
        overwritten = overwritten.saturating_add(last.origin.tally.overwritten);
        for (cause, count) in [("discarded", last.origin.discarded), (REFUSED, last.origin.tally.refused)] {
            if count > MAX_COUNT {
                is_unknown = true;
            } else if count != 0 {
                let sum = lost.entry(cause.into()).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }
    let text = |name: &str| {
        let value = trace.environment_value(name).and_then(EnvironmentValue::as_text);
        value.filter(|value| !value.is_empty()).map(str::to_owned)
    };
    let path = folder.path().strip_prefix(root).unwrap_or(folder.path()).to_string_lossy().into_owned();
    let is_kernel = path == KERNEL;
    let source = Source {
        path,
        kind: if is_kernel { KERNEL } else { USER }.into(),
        pid: pid_of(&trace),
        name: Some(name_of(&trace, is_kernel)),
        executable: text("executable"),
        producer: if is_kernel { Some("bpf".into()) } else { text("ring_producer") },
        end: Some(UNKNOWN_END.into()),
        events,
        lost,
        overwritten,
        losses_unknown: is_unknown || !damage.is_empty(),
        ..Source::default()
    };
    Ok(Some((source, damage)))
}

/// The name of a trace's process, or what it is the trace of.
fn name_of(trace: &Trace, is_kernel: bool) -> String {
    let name = trace.environment_value("procname").and_then(EnvironmentValue::as_text);
    let other = if is_kernel { KERNEL } else { "short-lived processes" };
    name.filter(|_| !is_kernel).unwrap_or(other).to_owned()
}

fn pid_of(trace: &Trace) -> Option<i64> {
    let pid = trace.environment_value("vpid").and_then(EnvironmentValue::as_integer)?;
    u32::try_from(pid).ok().filter(|pid| *pid != 0).map(i64::from)
}
