//! Sessions that a supervisor knows, and what it writes down for the next one.
//!
//! ```text
//! .supervisor/NAME.json    a session that was started and not stopped
//! ```
//!
//! These files are in memory (`/run`). After the machine starts again there are none, and only
//! sessions with `start = "boot"` begin.

use std::{collections::BTreeMap, io, path::PathBuf, time::Instant};

use serde::{Deserialize, Serialize};
use tompion_os::DirHandle;

use crate::{
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
    pub sessions: BTreeMap<String, BTreeMap<String, Recorder>>,
}

/// A channel, as it is written down.
#[derive(Debug, Serialize, Deserialize)]
struct SavedChannel {
    session: SessionFile,
    /// Its recorder, if it ran.
    process: Option<ProcessIdentity>,
    folder: Option<PathBuf>,
    restarts: u32,
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
                    let adopt = |(channel, saved): (String, SavedChannel)| {
                        let SavedChannel { session, process, folder, restarts } = saved;
                        let mut recorder = Recorder::new(name, &channel, session);
                        recorder.adopt(SavedRecorder { process, folder, restarts }, launcher);
                        (channel, recorder)
                    };
                    state.sessions.insert(name.to_owned(), channels.into_iter().map(adopt).collect());
                }
                Err(error) => (launcher.report)(&format!("{name}{ENDING} of an earlier supervisor: {error}")),
            }
        }
        state
    }

    /// Writes a session down, or removes what was written of one that was stopped.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn save(&self, name: &str, runtime: &DirHandle) -> io::Result<()> {
        let file = format!("{name}{ENDING}");
        let active = self.sessions.get(name).into_iter().flatten().filter(|(_, it)| it.is_active());
        let saved = |(channel, recorder): (&String, &Recorder)| {
            let saved = SavedChannel {
                session: recorder.session.clone(),
                process: recorder.process(),
                folder: recorder.folder().map(PathBuf::from),
                restarts: recorder.restarts(),
            };
            (channel.clone(), saved)
        };
        let channels: BTreeMap<String, SavedChannel> = active.map(saved).collect();
        if channels.is_empty() {
            return match runtime.remove(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        runtime.replace(&file, &serde_json::to_vec_pretty(&channels)?, false)
    }

    /// Looks at all recorders, and starts those again whose pause is over. Returns the sessions
    /// that have changed.
    pub fn look(&mut self, launcher: &Launcher) -> Vec<String> {
        let mut changed = Vec::new();
        for (name, recorders) in &mut self.sessions {
            for recorder in recorders.values_mut() {
                let before = recorder.status();
                recorder.look(launcher);
                recorder.start_again(launcher);
                let after = recorder.status();
                if (before.state, before.pid, before.restarts) != (after.state, after.pid, after.restarts) {
                    changed.push(name.clone());
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
    pub fn running(&self, name: &str) -> BTreeMap<String, SessionFile> {
        let recorders = self.sessions.get(name).into_iter().flatten();
        let running = recorders.filter(|(_, recorder)| recorder.pid().is_some());
        running.map(|(channel, recorder)| (channel.clone(), recorder.session.clone())).collect()
    }

    /// Returns a channel's recorder.
    pub fn recorder(&mut self, name: &str, channel: &str) -> Option<&mut Recorder> {
        self.sessions.get_mut(name)?.get_mut(channel)
    }

    /// Looks at a channel's recorder. Returns whether its end is open still.
    pub fn has_open_end(&mut self, name: &str, channel: &str, launcher: &Launcher) -> bool {
        self.recorder(name, channel).is_some_and(|recorder| {
            recorder.look(launcher);
            recorder.has_open_end()
        })
    }

    /// Adds a channel's recorder.
    pub fn insert(&mut self, name: &str, channel: &str, recorder: Recorder) {
        self.sessions.entry(name.to_owned()).or_default().insert(channel.to_owned(), recorder);
    }

    /// Removes a channel's recorder, unless it runs: it is not started again.
    pub fn take_idle(&mut self, name: &str, channel: &str) -> Option<Recorder> {
        let recorders = self.sessions.get_mut(name)?;
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
