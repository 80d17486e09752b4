//! Counts of a recording: those of running processes, read when they are asked for, and the sums of
//! processes that have ended.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tompion_counts::{Key, Rule};
use tompion_layout::counts::CountGeometry;
use tompion_os::DirHandle;

use crate::{
    CountFile,
    document::{Aggregation, Document, FILE_NAME, KeyValue, Processes, SCHEMA},
    file::Completion,
    saved::SavedCounts,
    sums::{AggregationSums, Room},
};

/// Maximum number of names of processes that can't count.
const MAX_UNABLE_NAMES: usize = 16;
/// Maximum number of event names of a process.
const MAX_EVENT_NAMES: usize = 1 << 16;

/// Values of a process for keys that all of its events have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Identity {
    pid: u32,
    name: String,
    /// Its control group, if it could be read.
    cgroup: Option<String>,
}

/// Control group of a process, in the unified hierarchy.
fn cgroup_of(pid: u32) -> Option<String> {
    let lines = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    lines.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}

/// Counts of one process.
#[derive(Debug)]
pub struct ProcessCounts {
    identity: Identity,
    file: CountFile,
    /// Names of its events by number, if a rule has them as a key.
    events: Mutex<BTreeMap<u32, String>>,
    names_events: bool,
}

/// Counts of a recording.
#[derive(Debug)]
pub struct Collector {
    rules: Vec<Rule>,
    geometry: CountGeometry,
    /// Maximum number of bytes of the files of all processes that run, if there is one.
    limit: Option<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    running: Vec<Arc<ProcessCounts>>,
    /// Sums of processes that have ended, one for each aggregation.
    ended: Arc<Vec<AggregationSums>>,
    /// Room that they leave.
    room: Room,
    ended_processes: u64,
    unable: u64,
    unable_names: Vec<String>,
    /// Counts for a recorder that comes back, if there is to be one.
    for_next: Option<ForNext>,
}

/// Counts of ended processes, by whether their memory is still there.
#[derive(Debug, Default)]
struct ForNext {
    sums: Vec<AggregationSums>,
    processes: u64,
    pending: BTreeMap<u64, Vec<AggregationSums>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProcessCounts {
    /// Its file.
    pub fn file(&self) -> &CountFile {
        &self.file
    }

    /// Notes the name of an event.
    pub fn name_event(&self, number: u32, name: impl FnOnce() -> String) {
        let mut events = lock(&self.events);
        if self.names_events && events.len() < MAX_EVENT_NAMES {
            events.entry(number).or_insert_with(name);
        }
    }

    fn read(&self, rules: &[Rule], geometry: &CountGeometry) -> Vec<AggregationSums> {
        let Identity { pid, name, cgroup } = &self.identity;
        let of_process = |key: &Key| match key {
            Key::Command => KeyValue::Text(name.clone()),
            Key::Process => KeyValue::Natural((*pid).into()),
            Key::Cgroup => cgroup.clone().map_or(KeyValue::Absent, KeyValue::Text),
            Key::Field(_) | Key::Event | Key::Thread => KeyValue::Absent,
        };
        let events = lock(&self.events).clone();
        self.file.read(rules, geometry, &Completion { events: &events, of_process: &of_process })
    }
}

impl Collector {
    /// Counts by these rules on a machine with so many CPUs. None without rules.
    ///
    /// # Errors
    /// The rules together need too much memory.
    pub fn new(rules: &[Rule], cpus: u32) -> io::Result<Option<Self>> {
        if rules.is_empty() {
            return Ok(None);
        }
        let sizes: Vec<_> = rules.iter().map(Rule::size).collect();
        let too_large = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the counts (--count) need too much memory together; give them smaller limits",
            )
        };
        let geometry = CountGeometry::new(&sizes, cpus).ok_or_else(too_large)?;
        let ended = Arc::new(vec![AggregationSums::default(); rules.len()]);
        let state = Mutex::new(State {
            running: Vec::new(),
            ended,
            room: Room::of_recording(),
            ended_processes: 0,
            unable: 0,
            unable_names: Vec::new(),
            for_next: None,
        });
        Ok(Some(Self { rules: rules.to_vec(), geometry, limit: None, state }))
    }

    /// Gives the files of all processes that run this many bytes together. Processes beyond that
    /// can't count.
    #[must_use]
    pub fn limited_to(self, bytes: u64) -> Self {
        Self { limit: Some(bytes), ..self }
    }

    /// Whether there is room for the file of one more process.
    pub fn has_room(&self) -> bool {
        let files = || lock(&self.state).running.len() as u64 + 1;
        self.limit.is_none_or(|limit| files().saturating_mul(self.geometry.file_size()) <= limit)
    }

    /// Makes the count file of a process.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn create_file(&self) -> io::Result<CountFile> {
        CountFile::create(&self.rules, &self.geometry)
    }

    fn has_key(&self, key: &Key) -> bool {
        self.rules.iter().any(|rule| rule.keys.contains(key))
    }

    /// Keeps what a recorder needs that comes back.
    #[must_use]
    pub fn for_next_recorder(self) -> Self {
        let sums = vec![AggregationSums::default(); self.rules.len()];
        lock(&self.state).for_next = Some(ForNext { sums, ..ForNext::default() });
        self
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Sizes of the processes' files.
    pub fn geometry(&self) -> &CountGeometry {
        &self.geometry
    }

    /// Control group of a process, if a rule asks for it.
    pub fn cgroup_of(&self, pid: u32) -> Option<String> {
        if self.has_key(&Key::Cgroup) { cgroup_of(pid) } else { None }
    }

    /// Adds a process by its id and name, with its file; without one it can't count.
    pub fn add(&self, pid: u32, name: &str, file: Option<CountFile>) -> Option<Arc<ProcessCounts>> {
        let cgroup = self.cgroup_of(pid);
        self.add_of_cgroup((pid, name), cgroup, file)
    }

    /// The same for a process with a known control group.
    pub fn add_of_cgroup(
        &self,
        (pid, name): (u32, &str),
        cgroup: Option<String>,
        file: Option<CountFile>,
    ) -> Option<Arc<ProcessCounts>> {
        let Some(file) = file else {
            let mut state = lock(&self.state);
            state.unable = state.unable.saturating_add(1);
            if state.unable_names.len() < MAX_UNABLE_NAMES {
                state.unable_names.push(format!("{name} ({pid})"));
            }
            return None;
        };
        let identity = Identity { pid, name: name.to_owned(), cgroup };
        let names_events = self.has_key(&Key::Event);
        let mut state = lock(&self.state);
        let process = Arc::new(ProcessCounts { identity, file, events: Mutex::default(), names_events });
        state.running.push(Arc::clone(&process));
        Some(process)
    }

    /// Adds what a process has counted to the sums of those that have ended. It counts nothing any
    /// more. `key` is its number in the session.
    pub fn end(&self, process: &Arc<ProcessCounts>, key: u64) {
        let sums = process.read(&self.rules, &self.geometry);
        let mut state = lock(&self.state);
        let before = state.running.len();
        state.running.retain(|running| !Arc::ptr_eq(running, process));
        if state.running.len() == before {
            return;
        }
        state.ended_processes = state.ended_processes.saturating_add(1);
        // Copied if a document is being made of them.
        let State { ended, room, for_next, .. } = &mut *state;
        for ((rule, all), sums) in self.rules.iter().zip(Arc::make_mut(ended)).zip(&sums) {
            all.add_all(rule, sums, room);
        }
        if let Some(for_next) = for_next {
            for_next.pending.insert(key, sums);
        }
    }

    /// Returns what a recorder needs that comes back: the counts of processes that have ended.
    pub fn saved(&self) -> SavedCounts {
        let state = lock(&self.state);
        let none = ForNext::default();
        let ForNext { sums, processes, pending } = state.for_next.as_ref().unwrap_or(&none);
        let saved = |sums: &Vec<AggregationSums>| sums.iter().map(Into::into).collect();
        SavedCounts {
            sums: saved(sums),
            pending: pending.iter().map(|(key, sums)| (*key, saved(sums))).collect(),
            ended: *processes,
            unable: state.unable,
            unable_names: state.unable_names.clone(),
        }
    }

    /// The memory of these processes is gone, so that no recorder reads it again.
    pub fn settle(&self, keys: impl Iterator<Item = u64>) {
        let mut state = lock(&self.state);
        let Some(for_next) = &mut state.for_next else { return };
        let mut room = Room::of_recording();
        for key in keys {
            let Some(sums) = for_next.pending.remove(&key) else { continue };
            for_next.processes += 1;
            for ((rule, all), sums) in self.rules.iter().zip(&mut for_next.sums).zip(&sums) {
                all.add_all(rule, sums, &mut room);
            }
        }
    }

    /// Goes on with what a recorder before this one has saved in a folder. Processes with memory
    /// that is still there, by their numbers, are read again. Errors are lines for people.
    ///
    /// The others are settled there at once: their numbers are given to new processes.
    ///
    /// # Errors
    /// What was saved can't be read, or not be written.
    pub fn resume(
        &self,
        folder: &DirHandle,
        is_durable: bool,
        still_there: impl Fn(u64) -> bool,
    ) -> Result<(), String> {
        self.restore(SavedCounts::read(folder)?, still_there);
        let written = self.saved().write(folder, is_durable);
        written.map_err(|error| format!("{}: {error}", folder.path().display()))
    }

    fn restore(&self, saved: SavedCounts, still_there: impl Fn(u64) -> bool) {
        let SavedCounts { sums, pending, ended, unable, unable_names } = saved;
        let mut all = vec![AggregationSums::default(); self.rules.len()];
        let mut room = Room::of_recording();
        let gone = pending.into_iter().filter(|(key, _)| !still_there(*key));
        let gone: Vec<_> = gone.map(|(_, sums)| sums).collect();
        let processes = ended.saturating_add(gone.len() as u64);
        for sums in std::iter::once(sums).chain(gone) {
            for ((rule, all), sums) in self.rules.iter().zip(&mut all).zip(sums) {
                all.add_all(rule, &sums.into(), &mut room);
            }
        }
        let mut state = lock(&self.state);
        if let Some(for_next) = &mut state.for_next {
            (for_next.sums, for_next.processes) = (all.clone(), processes);
        }
        (state.ended, state.room, state.ended_processes) = (Arc::new(all), room, processes);
        (state.unable, state.unable_names) = (unable, unable_names);
    }

    /// Reads what was counted so far. Processes go on meanwhile, and so do sessions: nothing is
    /// locked while memory is read.
    pub fn document(&self) -> Document {
        let (running, ended, room, processes) = {
            let state = lock(&self.state);
            let processes = Processes {
                counting: state.running.len() as u64,
                ended: state.ended_processes,
                unable: state.unable,
                unable_names: state.unable_names.clone(),
            };
            (state.running.clone(), Arc::clone(&state.ended), state.room, processes)
        };
        let mut sums = AggregationSumsOfAll(self, (*ended).clone(), room);
        drop(ended);
        running.iter().for_each(|process| sums.add(process));
        let aggregations = self.rules.iter().zip(sums.1).map(|(rule, sums)| {
            let (entries, other) = sums.to_entries();
            Aggregation {
                name: rule.name.clone(),
                rule: rule.to_text(),
                function: rule.function.word().into(),
                keys: rule.keys.iter().map(Key::label).collect(),
                entries,
                other,
                lost: sums.lost,
                refused: sums.refused,
                not_counting: sums.not_counting,
                unfit: sums.unfit,
            }
        });
        let time_ns = i64::try_from(tompion_os::realtime_ns()).unwrap_or(i64::MAX);
        let aggregations = aggregations.collect();
        Document { schema: SCHEMA, time_ns, processes, aggregations, is_unwritten: false }
    }
}

impl Collector {
    /// Whether another recorder may go on.
    pub fn is_for_next_recorder(&self) -> bool {
        lock(&self.state).for_next.is_some()
    }

    /// Writes the last counts of a recording into its folder, and returns them.
    pub fn write_last(&self, folder: &DirHandle, notice: fn(&str)) -> Document {
        let mut document = self.document();
        // Another recorder, which was killed, may have begun to.
        let written = match self.is_for_next_recorder() {
            true => folder.replace(FILE_NAME, &document.to_json(), false),
            false => folder.create_new(FILE_NAME).and_then(|mut file| file.write_all(&document.to_json())),
        };
        if let Err(error) = written {
            notice(&format!("can't write {FILE_NAME}: {error}"));
            document.is_unwritten = true;
        }
        document
    }
}

/// Sums of all aggregations, to which processes are added.
struct AggregationSumsOfAll<'a>(&'a Collector, Vec<AggregationSums>, Room);

impl AggregationSumsOfAll<'_> {
    fn add(&mut self, process: &ProcessCounts) {
        let read = process.read(&self.0.rules, &self.0.geometry);
        for ((rule, all), sums) in self.0.rules.iter().zip(&mut self.1).zip(&read) {
            all.add_all(rule, sums, &mut self.2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A collector for a recording that outlasts its recorder.
    fn lasting() -> Collector {
        let rules = ["n = sum of x by pid".parse().expect("a rule")];
        Collector::new(&rules, 1).expect("room").expect("rules").for_next_recorder()
    }

    /// Has a process count by itself: a cell for all other keys, which every process has.
    fn count(collector: &Collector, pid: u32, events: u64) -> Arc<ProcessCounts> {
        let file = collector.create_file().expect("memory");
        let place = &collector.geometry().aggregations()[0];
        let cell = collector.geometry().areas() + place.cells + u64::from(place.size.slots) * 16;
        file.store(cell, events);
        file.store(cell + 8, events * 10);
        collector.add(pid, "program", Some(file)).expect("a process that counts")
    }

    fn total(collector: &Collector) -> (u64, u64) {
        let document = collector.document();
        let other = document.aggregations[0].other.clone().unwrap_or_default();
        (other.count, document.processes.ended)
    }

    #[test]
    fn processes_beyond_a_limit_of_memory_can_not_count() {
        let rules = ["n = sum of x by pid".parse().expect("a rule")];
        let collector = Collector::new(&rules, 1).expect("room").expect("rules");
        let size = collector.geometry().file_size();
        let collector = collector.limited_to(2 * size + size / 2);
        let first = count(&collector, 1, 1);
        assert!(collector.has_room());
        let _second = count(&collector, 2, 1);
        assert!(!collector.has_room());
        collector.end(&first, 0);
        assert!(collector.has_room(), "one has ended");
    }

    #[test]
    fn counts_of_ended_processes_are_there_once_whether_their_memory_is_or_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = DirHandle::open(folder.path()).expect("a folder");
        let first = lasting();
        first.end(&count(&first, 1, 3), 1);
        first.settle([1].into_iter());
        first.end(&count(&first, 2, 40), 2);
        assert_eq!(total(&first), (43, 2));
        first.saved().write(&folder, false).expect("a file");

        // The memory of the second is gone, or is read again.
        let next = lasting();
        next.restore(SavedCounts::read(&folder).expect("counts"), |_| false);
        assert_eq!(total(&next), (43, 2));
        let next = lasting();
        next.resume(&folder, false, |key| key == 2).expect("counts");
        assert_eq!(total(&next), (3, 1));
        next.end(&count(&next, 2, 41), 2);
        assert_eq!(total(&next), (44, 2));
        next.saved().write(&folder, false).expect("a file");
        let last = lasting();
        last.resume(&folder, false, |_| false).expect("counts");
        assert_eq!(total(&last), (44, 2));
    }

    #[test]
    fn a_process_may_get_the_number_of_one_that_has_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = DirHandle::open(folder.path()).expect("a folder");
        let first = lasting();
        first.end(&count(&first, 1, 3), 1);
        // It was killed when the memory was gone, before it saved that.
        first.saved().write(&folder, false).expect("a file");
        lasting().resume(&folder, false, |_| false).expect("counts");
        // The next one was killed as well, while another process had the number.
        let last = lasting();
        last.resume(&folder, false, |key| key == 1).expect("counts");
        assert_eq!(total(&last), (3, 1));
    }

    #[test]
    fn counts_that_cannot_be_written_say_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = DirHandle::open(folder.path()).expect("a folder");
        let rules = ["n = count".parse().expect("a rule")];
        let collector = Collector::new(&rules, 1).expect("room").expect("rules");
        assert!(!collector.write_last(&folder, |problem| panic!("{problem}")).is_unwritten);
        // The file is there already.
        assert!(collector.write_last(&folder, |_| {}).is_unwritten);
    }
}
