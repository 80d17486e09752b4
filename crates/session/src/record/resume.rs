//! Continuation of a recording whose recorder was killed.

use std::{io, os::unix::fs::MetadataExt as _, sync::Arc, thread, time::Duration};

use tompion_chunks::Policy;
use tompion_clock::ClockMap;
use tompion_keeper::{HandOver, Keeper, TakeError};
use tompion_kernel_trace::LeftKernel;
use tompion_manifest::{KERNEL, Manifest};
use tompion_os::{DirHandle, Listener, Lock, User, sample_clocks, try_lock};
use tompion_restart_state::{self as restart_state, TakeOver};

use super::{
    Config, Error, Mode, Outcome,
    begin::{Left, RESTART_FOLDER, Start, admission, new_clock, users},
    kernel::take_over_kernel,
    record_into,
};
use tompion_running::own_recorder;
use tompion_triggers::{Action, Trigger};

use crate::{
    backing::{self, SavedRestart, SavedSession},
    recover, rseq,
    session_config::SessionConfig,
    target::Target,
};

/// Number of times that the lock of a recorder which has just been killed is tried.
const LOCK_ATTEMPTS: u32 = 100;
/// Time between them.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// Mode bits of a folder that other users may change.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// A recording whose recorder was killed.
pub(super) struct Unfinished {
    /// Keeps other recorders away.
    lock: Lock,
    folder: DirHandle,
    backing: DirHandle,
    saved: SavedSession,
    manifest: Manifest,
    keeper: Arc<Keeper>,
    kept: HandOver,
    /// The kernel, if it was recorded; or a line that says why that ends.
    kernel: Option<Result<LeftKernel, String>>,
}

impl Unfinished {
    /// Finds the recording in the folder of a configuration; none if there is no such folder.
    pub fn find(config: &Config) -> Result<Option<Self>, Error> {
        let failed = |text: String| Error::Resume(config.folder.clone(), text);
        let folder = match DirHandle::open(&config.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            folder => folder.map_err(|error| failed(error.to_string()))?,
        };
        let lock = lock(&folder).map_err(failed)?;
        let manifest = Manifest::read(&folder).map_err(failed)?;
        if !manifest.is_recording() {
            return Err(Error::FolderExists(config.folder.clone()));
        }
        if !manifest.session.keeper {
            return Err(failed("it was recorded without --linger; tompion recover completes it".into()));
        }
        let backing = folder.join(RESTART_FOLDER);
        let saved = SavedSession::read(&backing).map_err(failed)?;
        if manifest.session.id.as_ref() != Some(&saved.id) {
            return Err(failed(format!("{RESTART_FOLDER} is another recording's")));
        }
        if !recover::is_this_boot(&saved.boot_id) {
            return Err(failed("the machine has stopped since; tompion recover completes it".into()));
        }
        let restart = saved.restart().ok_or_else(|| failed("it has no keeper".into()))?;
        let (keeper, mut kept) = Keeper::take(&restart.keeper, &saved.id).map_err(|error| match error {
            TakeError::Gone => {
                failed(format!("{error}, so what the rings held is lost; tompion recover completes it"))
            }
            error => failed(error.to_string()),
        })?;
        let objects = std::mem::take(&mut kept.objects);
        let kernel = manifest.session.kernel.then(|| LeftKernel::find(&backing, &keeper, objects));
        Ok(Some(Self { lock, folder, backing, saved, manifest, keeper: Arc::new(keeper), kept, kernel }))
    }

    /// Records on.
    pub fn record(self, config: &Config, notice: fn(&str)) -> Result<Outcome, Error> {
        let failed = |text: String| Error::Resume(config.folder.clone(), text);
        let restart = self.saved.restart().ok_or_else(|| failed("it has no keeper".into()))?;
        let saved = self.saved.session_config(&self.folder).map_err(failed)?;
        let triggers = self.triggers(restart, config).map_err(failed)?;
        let config = Config {
            target: restart.target(),
            programs: restart.programs.clone(),
            session: restart.name.clone(),
            rules: saved.rules.clone(),
            triggers,
            mode: if saved.overwrite { Mode::Overwrite } else { Mode::Discard },
            subbuf_size: saved.geometry.subbuf_size(),
            subbufs: saved.geometry.subbuf_count(),
            kernel: self.kernel.as_ref().and_then(|it| it.as_ref().ok()).map(|it| it.choice.clone()),
            chunks: self.saved.chunks.map(Policy::from),
            ..config.clone()
        };
        let session_config = SessionConfig {
            rseq: rseq::is_usable(),
            event_triggers: restart.event_table(&config.triggers),
            users: users(&config),
            programs: config.programs.clone(),
            has_command: matches!(config.target, Target::Command(_)),
            admission: admission(&config),
            backing: Some(self.backing.clone()),
            keeper: Some(self.keeper.clone()),
            ..saved
        };
        let processes = self.kept.processes.len();
        notice(&format!("continuing the recording in {}, of {processes} processes", config.folder.display()));
        record_into(&config, session_config, Some(self), notice)
    }

    /// Triggers of the recording. Those that run programs are only taken from the user that the
    /// programs run as.
    fn triggers(&self, restart: &SavedRestart, config: &Config) -> Result<Vec<Trigger>, String> {
        let triggers = restart.triggers()?;
        let runs = |action: &Action| matches!(action, Action::Run(_));
        if triggers.iter().any(|trigger| trigger.actions.iter().any(runs)) {
            let user = config.user.as_ref().map_or_else(tompion_os::effective_user, User::uid);
            // The trace's folder may be its group's: what says the triggers is in the private one.
            check_owner(&self.folder, user, 0)
                .and_then(|()| check_owner(&self.backing, user, OTHERS_MAY_WRITE))
                .map_err(|error| format!("a trigger runs a program: {error}"))?;
        }
        Ok(triggers)
    }

    /// Begins again with what there is. Returns the lock, too.
    pub fn begin(
        self,
        config: &Config,
        session_config: &SessionConfig,
        notice: fn(&str),
    ) -> Result<(Start, Lock), Error> {
        let Self { lock, folder, backing, saved, mut manifest, keeper, mut kept, kernel } = self;
        let failed = |text: String| Error::Resume(folder.path().to_owned(), text);
        let is_durable = manifest.session.is_durable();
        let taken = saved.chunks.map(|_| restart_state::take_over(&folder, &backing, is_durable));
        let mut chunk = taken.transpose().map_err(failed)?;
        let (mut processes, wrong) = backing::processes(&backing)?;
        manifest.session.problems.extend(wrong);
        processes.retain(|process| {
            let path = format!("user/{}", process.folder);
            let ended = chunk.iter().flat_map(|chunk| &chunk.ended.in_all);
            let is_complete = manifest.sources.iter().chain(ended).any(|source| source.path == path);
            if is_complete {
                let _ = backing.join(&process.folder).remove_all();
                keeper.release(process.key);
                kept.processes.remove(&process.key);
            }
            !is_complete
        });
        let clock = clock(&backing).map_err(failed)?;
        let kernel = kernel.filter(|_| !is_kernel_complete(&manifest, chunk.as_ref()));
        let begin = chunk.as_ref().and_then(|chunk| chunk.begin.kernel.clone());
        let taken = take_over_kernel(kernel, begin, (config, session_config), notice);
        let kernel = taken.unwrap_or_else(|line| {
            let problems = match &mut chunk {
                None => recover::complete_kernel(&folder, &mut manifest),
                Some(chunk) => recover::complete_kernel_in_chunk(&folder, &backing, &mut manifest, chunk),
            };
            let line = line.map(|line| format!("kernel events end with the recorder before: {line}"));
            line.iter().for_each(|line| notice(line));
            manifest.session.problems.extend(line.into_iter().chain(problems));
            manifest.session.kernel = false;
            None
        });
        manifest.session.restarts += 1;
        manifest.session.recorder = own_recorder();
        manifest.write(&folder, is_durable)?;
        manifest.sources.extend(chunk.iter().flat_map(|chunk| chunk.ended.in_all.clone()));
        let name = saved.restart().map(|restart| restart.socket.clone()).unwrap_or_default();
        let command = saved.restart().and_then(SavedRestart::watch_command);
        let join_socket = saved.restart().and_then(|restart| restart.join_socket.clone());
        // Held first, since the command finds the session by it.
        let listener = match kept.listeners.is_empty() {
            true => Listener::bind(&name)?,
            false => kept.listeners.remove(0),
        };
        let ended = manifest.sources.iter().map(|source| source.path.clone()).collect();
        let left = Some(Left { kept, processes, command, join_socket, ended });
        Ok((Start { manifest, clock, name, listener, left, chunk, kernel }, lock))
    }
}

/// Whether the kernel's trace was completed before the recorder was killed.
fn is_kernel_complete(manifest: &Manifest, chunk: Option<&TakeOver>) -> bool {
    let ended = chunk.iter().flat_map(|chunk| &chunk.ended.in_all);
    manifest.sources.iter().chain(ended).any(|source| source.kind == KERNEL)
}

/// Checks that a folder is a user's or root's, and has none of these mode bits.
fn check_owner(folder: &DirHandle, user: u32, refused: u32) -> Result<(), String> {
    let shown = folder.path().display();
    let found = folder.metadata().map_err(|error| format!("{shown}: {error}"))?;
    if ![user, 0].contains(&found.uid()) || found.mode() & refused != 0 {
        let (owner, mode) = (found.uid(), found.mode() & 0o7777);
        return Err(format!(
            "{shown}: expected that only user {user} can change it, found user {owner}'s with mode {mode:o}"
        ));
    }
    Ok(())
}

/// The samples of the clock, up to now.
fn clock(backing: &DirHandle) -> Result<ClockMap, String> {
    let mut clock = match backing::has_clock(backing) {
        true => backing::read_clock(backing)?,
        // It was killed before a program could join.
        false => new_clock(),
    };
    clock.add(sample_clocks());
    Ok(clock)
}

/// Locks a trace's folder. A recorder that was killed may still be on its way out.
fn lock(folder: &DirHandle) -> Result<Lock, String> {
    for _ in 0..LOCK_ATTEMPTS {
        match try_lock(folder) {
            Ok(Some(lock)) => return Ok(lock),
            Ok(None) => thread::sleep(LOCK_INTERVAL),
            Err(error) => return Err(format!("can't lock it: {error}")),
        }
    }
    Err("it is still being recorded or recovered".into())
}
