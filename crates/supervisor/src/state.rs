//! Sessions that a supervisor knows, and what it writes down for the next one.
//!
//! ```text
//! .supervisor/NAME.json        a session that was started and not stopped
//! .supervisor/UID.NAME.json    one of a user with a grant
//! ```
//!
//! A start is written down before it is made ([`crate::intent`]).
//!
//! These files are in memory (`/run`). After the machine starts again there are none, and only
//! sessions with `start = "boot"` begin.

use std::{collections::BTreeMap, io, path::PathBuf, time::Instant};

use serde::{Deserialize, Serialize};
use tompion_grants::Grant;
use tompion_os::DirHandle;

use crate::{
    grantee::{Grantee, Used, memory_of},
    intent::{self, Intent},
    key::SessionKey,
    process::ProcessIdentity,
    recorder::{Launcher, Recorder, SavedRecorder},
    session_file::SessionFile,
};

/// Largest file of a session that is read.
const MAX_FILE: u64 = 1 << 20;
const ENDING: &str = ".json";

/// Recorders by sessions and channels.
#[derive(Debug, Default)]
pub struct State {
    /// Sessions that were started.
    pub sessions: BTreeMap<SessionKey, BTreeMap<String, Recorder>>,
    /// Changes of users' sessions that are under way, and whether root has ended the session since:
    /// root waits for no turn.
    changes: BTreeMap<SessionKey, bool>,
}

/// A channel, as it is written down.
#[derive(Debug, Serialize, Deserialize)]
struct SavedChannel {
    session: SessionFile,
    /// Its recorder, if it ran.
    process: Option<ProcessIdentity>,
    folder: Option<PathBuf>,
    restarts: u32,
    /// The user that it records for, if that is by a grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grantee: Option<Grantee>,
}

impl State {
    /// Finds what an earlier supervisor has left, and takes its recorders over. What can't be read
    /// is reported and left alone.
    pub fn load(launcher: &Launcher) -> Self {
        let mut state = Self::default();
        let names = launcher.runtime.names().unwrap_or_default();
        for name in names.iter().filter_map(|name| name.to_str()?.strip_suffix(ENDING)) {
            match read(&launcher.runtime, name) {
                Ok(channels) => {
                    let key = SessionKey::of_file(name);
                    let adopt = |(channel, saved): (String, SavedChannel)| {
                        let SavedChannel { session, process, folder, restarts, grantee } = saved;
                        let mut recorder = Recorder::new(&key, &channel, session).for_grantee(grantee);
                        recorder.adopt(SavedRecorder { process, folder, restarts }, launcher);
                        (channel, recorder)
                    };
                    let recorders = channels.into_iter().map(adopt).collect();
                    state.sessions.insert(key.clone(), recorders);
                }
                Err(error) => (launcher.report)(&format!("{name}{ENDING} of an earlier supervisor: {error}")),
            }
        }
        for (file, intent) in intent::read_all(&launcher.runtime) {
            match intent {
                Ok(intent) => state.adopt_start(intent, launcher),
                Err(error) => (launcher.report)(&format!("{file} of an earlier supervisor: {error}")),
            }
        }
        state
    }

    /// Takes over a recorder whose start an earlier supervisor has written down. If none was
    /// started, it is now, as one that has failed.
    fn adopt_start(&mut self, intent: Intent, launcher: &Launcher) {
        let (key, process) = (intent.key(), intent.process());
        let Intent { channel, session, folder, restarts, grantee, .. } = intent;
        let known = self.recorder(&key, &channel);
        let is_known = known.is_some_and(|known| process.is_none() || known.process() == process);
        if !is_known {
            let mut recorder = Recorder::new(&key, &channel, session).for_grantee(grantee);
            recorder.adopt(SavedRecorder { process, folder: Some(folder), restarts }, launcher);
            self.insert(&key, &channel, recorder);
        }
        if let Err(error) = self.save(&key, &launcher.runtime) {
            (launcher.report)(&format!("{key}: can't be written down for the next supervisor: {error}"));
        }
    }

    /// Writes a session down, or removes what was written of one that was stopped.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn save(&self, key: &SessionKey, runtime: &DirHandle) -> io::Result<()> {
        let file = key.file(&format!("{}{ENDING}", key.name));
        let active = self.sessions.get(key).into_iter().flatten().filter(|(_, it)| it.is_active());
        let saved = |(channel, recorder): (&String, &Recorder)| {
            let saved = SavedChannel {
                grantee: recorder.grantee.clone(),
                session: recorder.session.clone(),
                process: recorder.process(),
                folder: recorder.folder().map(PathBuf::from),
                restarts: recorder.restarts(),
            };
            (channel.clone(), saved)
        };
        let channels: BTreeMap<String, SavedChannel> = active.map(saved).collect();
        if channels.is_empty() {
            self.forget_starts(key, runtime);
            return match runtime.remove(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        runtime.replace(&file, &serde_json::to_vec_pretty(&channels)?, false)?;
        self.forget_starts(key, runtime);
        Ok(())
    }

    /// Removes what was written about the starts of a session's recorders: its own file has them.
    fn forget_starts(&self, key: &SessionKey, runtime: &DirHandle) {
        for recorder in self.sessions.get(key).into_iter().flat_map(BTreeMap::values) {
            // Without a start since, there is none.
            let _ = runtime.remove(recorder.intent_name());
        }
    }

    /// Begins a change of a user's session. Changes of one follow one another.
    pub fn begin_change(&mut self, key: &SessionKey) {
        self.changes.insert(key.clone(), false);
    }

    /// Ends a change.
    pub fn end_change(&mut self, key: &SessionKey) {
        self.changes.remove(key);
    }

    /// Notes that root ends a session.
    pub fn note_end_by_root(&mut self, key: &SessionKey) {
        self.changes.get_mut(key).into_iter().for_each(|is_ended| *is_ended = true);
    }

    /// Whether root has ended a session since its change began.
    pub fn is_ended_by_root(&self, key: &SessionKey) -> bool {
        self.changes.get(key) == Some(&true)
    }

    /// Looks at all recorders, and starts those again whose pause is over. Returns the sessions
    /// that have changed.
    pub fn look(&mut self, launcher: &Launcher) -> Vec<SessionKey> {
        let mut changed = Vec::new();
        for (key, recorders) in &mut self.sessions {
            for recorder in recorders.values_mut() {
                let before = recorder.status();
                recorder.look(launcher);
                recorder.start_again(launcher);
                let after = recorder.status();
                if (before.state, before.pid, before.restarts) != (after.state, after.pid, after.restarts) {
                    changed.push(key.clone());
                }
            }
        }
        changed.dedup();
        changed
    }

    /// Instant at which the next recorder is to be started again.
    pub fn due(&self) -> Option<Instant> {
        self.sessions.values().flat_map(BTreeMap::values).filter_map(Recorder::due).min()
    }

    /// Returns the channels of a session whose recorders run, with the session as each follows it.
    pub fn running(&self, key: &SessionKey) -> BTreeMap<String, SessionFile> {
        let recorders = self.sessions.get(key).into_iter().flatten();
        let running = recorders.filter(|(_, recorder)| recorder.pid().is_some());
        running.map(|(channel, recorder)| (channel.clone(), recorder.session.clone())).collect()
    }

    /// Returns a channel's recorder.
    pub fn recorder(&mut self, key: &SessionKey, channel: &str) -> Option<&mut Recorder> {
        self.sessions.get_mut(key)?.get_mut(channel)
    }

    /// Looks at a channel's recorder. Returns whether its end is open still.
    pub fn has_open_end(&mut self, key: &SessionKey, channel: &str, launcher: &Launcher) -> bool {
        self.recorder(key, channel).is_some_and(|recorder| {
            recorder.look(launcher);
            recorder.has_open_end()
        })
    }

    /// Returns the sessions of a user with a grant.
    pub fn of_user(&self, user: u32) -> Vec<SessionKey> {
        self.sessions.keys().filter(|key| key.user == Some(user)).cloned().collect()
    }

    /// Whether a user with a grant has sessions.
    pub fn has_user(&self, user: u32) -> bool {
        self.sessions.keys().any(|key| key.user == Some(user))
    }

    /// Whether any recorder of a session runs, or will be started again.
    pub fn is_active(&self, key: &SessionKey) -> bool {
        self.sessions.get(key).is_some_and(|recorders| recorders.values().any(Recorder::is_active))
    }

    /// Returns what a user's sessions take of its grant, apart from one.
    pub fn used(&self, user: u32, apart_from: &SessionKey) -> Used {
        let mut used = Used::default();
        for key in self.of_user(user).iter().filter(|key| *key != apart_from) {
            used.sessions = used.sessions.saturating_add(1);
            used.memory = used.memory.saturating_add(self.memory(key));
        }
        used
    }

    /// Returns what a session that runs has beyond a grant, if anything.
    pub fn beyond(&self, key: &SessionKey, grant: &Grant) -> Option<String> {
        let user = key.user?;
        let recorders = self.sessions.get(key)?.values().filter(|recorder| recorder.is_active());
        let followed = recorders.map(|recorder| recorder.beyond(grant, user));
        let beyond = followed.flatten().next();
        beyond.or_else(|| {
            // Sessions in the order of their names: those behind the limit are beyond it.
            let mut taken = Used::default();
            let active: Vec<_> = self.of_user(user).into_iter().filter(|key| self.is_active(key)).collect();
            for other in active.iter().take_while(|other| *other <= key) {
                taken.sessions = taken.sessions.saturating_add(1);
                taken.memory = taken.memory.saturating_add(self.memory(other));
            }
            let is_within = taken.sessions <= grant.sessions && taken.memory <= grant.memory;
            (!is_within && self.is_active(key)).then(|| format!("it is beyond {}", grant.file.display()))
        })
    }

    /// Returns the bytes that the rings of a session's active recorders can take.
    pub fn memory(&self, key: &SessionKey) -> u64 {
        let recorders = self.sessions.get(key).into_iter().flatten();
        let active = recorders.filter(|(_, recorder)| recorder.is_active());
        let memory = active.map(|(channel, recorder)| {
            let mut session = recorder.session.clone();
            session.channel.retain(|name, _| name == channel);
            memory_of(&session).unwrap_or(u64::MAX)
        });
        memory.fold(0, u64::saturating_add)
    }

    /// Adds a channel's recorder.
    pub fn insert(&mut self, key: &SessionKey, channel: &str, recorder: Recorder) {
        self.sessions.entry(key.clone()).or_default().insert(channel.to_owned(), recorder);
    }

    /// Removes a channel's recorder, unless it runs: it is not started again.
    pub fn take_idle(&mut self, key: &SessionKey, channel: &str) -> Option<Recorder> {
        let recorders = self.sessions.get_mut(key)?;
        recorders.remove(channel).and_then(|recorder| {
            if recorder.pid().is_none() {
                return Some(recorder);
            }
            recorders.insert(channel.to_owned(), recorder);
            None
        })
    }
}

fn read(runtime: &DirHandle, name: &str) -> Result<BTreeMap<String, SavedChannel>, String> {
    let bytes =
        runtime.read_bounded(format!("{name}{ENDING}"), MAX_FILE).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}
