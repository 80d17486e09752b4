//! Sessions with `start = "trigger:SESSION"`: they begin when a trigger of another one notifies.
//!
//! A thread for each recorder of such a source waits for its firings. No event passes through: the
//! recorder says that a trigger has fired, as to any other program that watches.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tompion_control::{Recording, TriggerWatch};

use crate::{key::SessionKey, session_file::Start, supervisor::Shared};

/// Time for a recorder to listen after its start, and interval between two tries.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);
const INTERVAL: Duration = Duration::from_millis(20);

/// Sessions that begin by triggers of others.
#[derive(Debug, Default)]
pub struct StartTriggers {
    /// Those that begin, by the sessions with the triggers.
    targets: Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// Recorders that are watched: names of recordings with process ids.
    watched: Mutex<BTreeSet<(String, u32)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StartTriggers {
    /// Sessions that begin by triggers of this one.
    fn targets_of(&self, source: &str) -> Vec<String> {
        lock(&self.targets).get(source).into_iter().flatten().cloned().collect()
    }

    /// Sessions with triggers that others wait for.
    fn sources(&self) -> Vec<String> {
        lock(&self.targets).keys().cloned().collect()
    }
}

impl Shared {
    /// Reads again which sessions begin by triggers. A disk may let this wait.
    pub fn read_start_triggers(&self) {
        let mut targets = BTreeMap::<String, BTreeSet<String>>::new();
        for name in self.files.names() {
            let described = self.files.read(&name).and_then(|described| described.session.ok());
            if let Some(Start::Trigger(source)) = described.map(|session| session.start) {
                targets.entry(source).or_default().insert(name);
            }
        }
        *lock(&self.start_triggers.targets) = targets;
    }

    /// Has a thread watch each recorder with triggers that other sessions wait for. Waits for
    /// nothing.
    pub fn watch_start_triggers(self: &Arc<Self>) {
        for source in self.start_triggers.sources() {
            let key = SessionKey::own(&source);
            let recorders: Vec<(String, u32)> = {
                let state = self.state();
                let recorders = state.sessions.get(&key).into_iter().flat_map(BTreeMap::values);
                recorders.filter_map(|it| Some((it.recording.clone(), it.pid()?))).collect()
            };
            for recorder in recorders {
                if lock(&self.start_triggers.watched).insert(recorder.clone()) {
                    self.watch_recorder(&source, recorder);
                }
            }
        }
    }

    fn watch_recorder(self: &Arc<Self>, source: &str, recorder: (String, u32)) {
        let (shared, source, watched) = (Arc::clone(self), source.to_owned(), recorder.clone());
        let watch = move || {
            let (recording, pid) = &watched;
            if let Some(watch) = shared.begin_watch(recording, *pid) {
                shared.follow_firings(&source, watch);
            }
            // One that runs on, without having been heard to the end, is watched again.
            thread::sleep(INTERVAL);
            lock(&shared.start_triggers.watched).remove(&watched);
            shared.wake();
        };
        if let Err(error) = thread::Builder::new().name("triggers".into()).spawn(watch) {
            lock(&self.start_triggers.watched).remove(&recorder);
            (self.launcher.report)(&format!("{}: its triggers can't be watched: {error}", recorder.0));
        }
    }

    /// Watches a recorder's triggers, as soon as it listens. None if it does not.
    fn begin_watch(&self, recording: &str, pid: u32) -> Option<TriggerWatch> {
        let deadline = Instant::now() + LISTEN_TIMEOUT;
        loop {
            let watch = Recording::of_recorder(recording, pid, None).and_then(Recording::watch_triggers);
            match watch {
                Ok(watch) => return Some(watch),
                Err(error) if Instant::now() >= deadline => {
                    (self.launcher.report)(&format!("{recording}: its triggers can't be watched: {error}"));
                    return None;
                }
                Err(_) if tompion_os::start_ticks(pid).is_none() => return None,
                Err(_) => thread::sleep(INTERVAL),
            }
        }
    }

    /// Starts sessions as triggers fire, until the recorder ends.
    fn follow_firings(&self, source: &str, mut watch: TriggerWatch) {
        while let Ok(Some(firing)) = watch.next_firing() {
            for target in self.start_triggers.targets_of(source) {
                self.operate(&target, || self.start_by_trigger(&target, source, &firing.cause));
            }
        }
    }

    /// Starts a session that waits for a trigger of this other one, unless it runs.
    fn start_by_trigger(&self, name: &str, source: &str, cause: &str) {
        let described = self.files.read(name).and_then(|described| described.session.ok());
        let waits = |start: &Start| matches!(start, Start::Trigger(of) if of == source);
        let Some(session) = described.filter(|session| waits(&session.start)) else { return };
        let key = SessionKey::own(name);
        {
            let mut state = self.state();
            if state.is_active(&key) {
                return;
            }
            // What has ended only says how.
            self.forget(&mut state, &key);
        }
        (self.launcher.report)(&format!("{name}: begins by a trigger of {source}: {cause}"));
        self.start_channels(&key, &session);
    }
}
