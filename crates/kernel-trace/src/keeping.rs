//! The kernel's part of a recording that outlasts its recorder: what the keeper holds, and the
//! description beside the trace.
//!
//! ```text
//! .restart/kernel/
//! ├── kernel.json        words, sizes, names by the numbers that they have in records
//! ├── metadata           of a recording in chunks: what each chunk repeats
//! └── stream_initial
//! ```
//!
//! The description is written before the programs are loaded, and again once the keeper has all:
//! maps, programs and links. A recorder that comes back finds nothing held, and begins; or all, and
//! goes on.

use std::{
    collections::BTreeSet,
    io,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use tompion_ctf::metadata::Uuid;
use tompion_keeper::Keeper;
use tompion_kernel::{
    OBJECT, Words,
    context::Contexts,
    decode::Vocabulary,
    objects::{Key, Kind},
    probes::ProbeSpec,
    ring::Geometry,
    tracepoints::Catalog,
};
use tompion_os::DirHandle;
use tompion_schema::Event;

use crate::choice::KernelChoice;

/// Folder in that of the recording's state.
const FOLDER: &str = "kernel";
const FILE: &str = "kernel.json";
/// Largest description.
const MAX_JSON: u64 = 16 << 20;

/// The kernel's part as it is saved.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SavedKernel {
    /// Version of the recorder, and of its programs: numbers in records are theirs.
    tompion: String,
    programs: String,
    words: Vec<String>,
    contexts: u32,
    filter: Option<String>,
    follows: bool,
    /// State of what the keeper holds; none before it holds all.
    pub held: Option<SavedHeld>,
}

/// State of a recording of which the keeper holds all.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SavedHeld {
    /// The trace's id.
    uuid: String,
    /// Time at which it was begun, by CLOCK_MONOTONIC in nanoseconds.
    pub begun_ns: u64,
    cpus: u32,
    subbufs: u32,
    /// Tracepoints and probes in the order of their numbers in records.
    tracepoints: Vec<SavedEvent>,
    probes: Vec<SavedEvent>,
    /// Whether the trace has an initial state.
    pub has_state: bool,
    /// Number of links.
    pub links: usize,
    /// Whether the recorded events are being changed.
    pub is_changing: bool,
    /// Problems for users, one line each.
    pub problems: Vec<String>,
}

/// An event by its name, with the fingerprint of its description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedEvent {
    name: String,
    description: String,
}

impl SavedEvent {
    fn of(event: &Event) -> Self {
        let name = format!("{}:{}", event.provider, event.name);
        Self { name, description: fingerprint(format!("{event:?}").as_bytes()) }
    }
}

/// Returns a number that other bytes are unlikely to have (FNV-1a), in hexadecimal.
fn fingerprint(bytes: &[u8]) -> String {
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

impl SavedKernel {
    /// Returns the state before anything is recorded. `filter` is the text of the recording's.
    pub fn new(choice: &KernelChoice, filter: Option<&str>) -> Self {
        Self {
            tompion: env!("CARGO_PKG_VERSION").into(),
            programs: fingerprint(OBJECT),
            words: choice.words.clone(),
            contexts: choice.contexts.bits(),
            filter: filter.filter(|_| choice.filter.is_some()).map(str::to_owned),
            follows: choice.follows,
            held: None,
        }
    }

    /// Whether it has probes in files.
    pub fn names_files(&self) -> bool {
        Words::parse(&self.words).probes.iter().any(|probe| ProbeSpec::names_file(probe))
    }

    /// Reads the state below a recording's; none if there is none. Errors are lines for people.
    pub fn read(backing: &DirHandle) -> Result<Option<Self>, String> {
        let folder = backing.join(FOLDER);
        let failed =
            |error: &dyn std::fmt::Display| format!("{}: {error}", folder.path().join(FILE).display());
        match folder.read_bounded(FILE, MAX_JSON) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error)),
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(&error)),
        }
    }

    /// Writes the state below a recording's.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write(&self, backing: &DirHandle) -> io::Result<()> {
        let folder = backing.join(FOLDER);
        folder.make()?;
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        folder.replace(FILE, &text, false)
    }

    /// Checks that this program's records mean the same.
    ///
    /// # Errors
    /// A line for people.
    pub fn check_version(&self) -> Result<(), String> {
        let (here, programs) = (env!("CARGO_PKG_VERSION"), fingerprint(OBJECT));
        if (self.tompion.as_str(), &self.programs) == (here, &programs) {
            return Ok(());
        }
        Err(format!(
            "expected kernel events of this tompion ({here}, programs {programs}), found those of tompion {} \
             (programs {}), which alone can read on",
            self.tompion, self.programs
        ))
    }

    /// Chooses the same events again.
    ///
    /// # Errors
    /// A line for people: an event is not there any more.
    pub fn choice(&self) -> Result<KernelChoice, String> {
        let contexts = Contexts::of_bits(self.contexts);
        let choice = KernelChoice::new(&self.words, contexts, self.filter.as_deref(), self.follows);
        choice.map_err(|error| error.to_string())
    }
}

impl SavedHeld {
    /// Returns the state of a recording that begins.
    pub fn new(uuid: Uuid, geometry: Geometry, has_state: bool, vocabulary: &Vocabulary) -> Self {
        let mut saved = Self {
            uuid: uuid.to_string(),
            begun_ns: tompion_os::monotonic_ns(),
            cpus: geometry.cpus,
            subbufs: geometry.subbufs,
            has_state,
            ..Self::default()
        };
        saved.set_names(vocabulary);
        saved
    }

    fn set_names(&mut self, vocabulary: &Vocabulary) {
        let tracepoints = vocabulary.tracepoints.iter().map(|tracepoint| SavedEvent::of(tracepoint.event()));
        self.tracepoints = tracepoints.collect();
        self.probes = vocabulary.probes.iter().map(|probe| SavedEvent::of(probe.event())).collect();
    }

    /// The trace's id.
    ///
    /// # Errors
    /// It is none.
    pub fn uuid(&self) -> Result<Uuid, String> {
        Uuid::parse(&self.uuid).ok_or_else(|| format!("`{}` is no trace's id", self.uuid))
    }

    /// The rings' number and size.
    ///
    /// # Errors
    /// They can't be.
    pub fn geometry(&self) -> Result<Geometry, String> {
        let Self { cpus, subbufs, .. } = *self;
        let found = Geometry::of_size(cpus, u64::from(subbufs) * tompion_kernel::ring::SUBBUF_SIZE);
        if cpus == 0 || cpus > 1 << 16 || found.subbufs != subbufs {
            return Err(format!("expected sizes of rings, found {cpus} rings of {subbufs} sub-buffers"));
        }
        Ok(found)
    }

    /// Finds the events that have numbers in records.
    ///
    /// # Errors
    /// A line for people: one is not there any more, or is described in another way.
    pub fn vocabulary(&self, choice: &KernelChoice) -> Result<Vocabulary, String> {
        let catalog =
            if self.tracepoints.is_empty() { Catalog::default() } else { Catalog::of_this_kernel() };
        let mut tracepoints = Vec::new();
        for saved in &self.tracepoints {
            let name = saved.name.rsplit(':').next().unwrap_or_default();
            let listed = catalog.listed().iter().find(|listed| listed.name == name);
            let listed =
                listed.ok_or_else(|| format!("the kernel's event {} is not there any more", saved.name))?;
            tracepoints.push(catalog.read(listed)?);
        }
        let probes = choice.selection.probes.clone();
        let vocabulary = Vocabulary { calls: choice.calls.clone(), tracepoints, probes };
        let mut found = self.clone();
        found.set_names(&vocabulary);
        let before = self.tracepoints.iter().chain(&self.probes);
        let after = found.tracepoints.iter().chain(&found.probes);
        if let Some((saved, _)) = before.clone().zip(after.clone()).find(|(saved, found)| saved != found) {
            return Err(format!("the kernel's event {} is described in another way than before", saved.name));
        }
        if before.count() != after.count() {
            return Err("the kernel's events are others than before".into());
        }
        Ok(vocabulary)
    }
}

/// The keeper, as the kernel's trace uses it.
#[derive(Clone, Debug)]
pub struct Keeping(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    keeper: Arc<Keeper>,
    backing: DirHandle,
    saved: SavedKernel,
    held: BTreeSet<Key>,
}

impl Keeping {
    /// Goes on with objects of these keys, which the keeper holds.
    pub fn new(
        keeper: Arc<Keeper>,
        backing: DirHandle,
        saved: SavedKernel,
        held: impl Iterator<Item = Key>,
    ) -> Self {
        Self(Arc::new(Mutex::new(State { keeper, backing, saved, held: held.collect() })))
    }

    fn with<T>(&self, step: impl FnOnce(&mut State) -> T) -> T {
        step(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Folder with copies of what each chunk repeats.
    pub fn copies(&self) -> DirHandle {
        self.with(|state| state.backing.join(FOLDER))
    }

    /// Has the keeper hold these objects, and no others; `held` is the state to save.
    ///
    /// # Errors
    /// The keeper has ended, or the state can't be written.
    pub fn hold(&self, objects: &[(Key, BorrowedFd<'_>)], held: Option<SavedHeld>) -> io::Result<()> {
        self.with(|state| {
            for (key, object) in objects {
                if state.held.insert(*key) {
                    state.keeper.hold_object(key.to_number(), *object)?;
                }
            }
            let wanted: BTreeSet<Key> = objects.iter().map(|(key, _)| *key).collect();
            let gone: Vec<Key> = state.held.difference(&wanted).copied().collect();
            state.release(&gone)?;
            if let Some(mut held) = held.or_else(|| state.saved.held.clone()) {
                held.links = wanted.iter().filter(|key| key.0 == Kind::Link).count();
                held.is_changing = false;
                state.saved.held = Some(held);
            }
            state.saved.write(&state.backing)
        })
    }

    /// Notes that other events are about to be recorded, which have numbers in records from now on.
    ///
    /// # Errors
    /// The state can't be written.
    pub fn note_change(&self, words: &[String], vocabulary: &Vocabulary, has_state: bool) -> io::Result<()> {
        self.with(|state| {
            words.clone_into(&mut state.saved.words);
            if let Some(held) = &mut state.saved.held {
                held.set_names(vocabulary);
                (held.is_changing, held.has_state) = (true, has_state);
            }
            state.saved.write(&state.backing)
        })
    }

    /// Has the keeper close all links: programs run on for this process alone.
    pub fn release_links(&self) {
        self.with(|state| {
            let is_link = |key: &&Key| matches!(key.0, Kind::Link | Kind::Event);
            let links: Vec<Key> = state.held.iter().filter(is_link).copied().collect();
            // One that has ended holds none.
            let _ = state.release(&links);
        });
    }
}

impl State {
    fn release(&mut self, keys: &[Key]) -> io::Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        self.held.retain(|key| !keys.contains(key));
        self.keeper.release_objects(keys.iter().map(|key| key.to_number()))
    }
}

#[cfg(test)]
mod tests {
    use tompion_kernel::{Selection, syscalls::Calls};
    use tompion_testing::TestDir;

    use super::*;

    fn choice() -> KernelChoice {
        KernelChoice {
            selection: Selection::default(),
            calls: Calls::without_formats(),
            filter: None,
            contexts: Contexts::of_bits(5),
            words: vec!["sched_switch".into()],
            follows: true,
            is_taken_over: false,
        }
    }

    #[test]
    fn another_version_does_not_read_on() {
        let dir = TestDir::new("saved-kernel");
        let backing = DirHandle::open(&dir).expect("a folder");
        assert!(SavedKernel::read(&backing).expect("no file").is_none());
        let mut saved = SavedKernel::new(&choice(), Some("x > 1"));
        assert_eq!((saved.filter.as_ref(), saved.contexts), (None, 5), "the programs have no filter");
        saved.write(&backing).expect("a file");
        let found = SavedKernel::read(&backing).expect("a file").expect("a state");
        assert_eq!((found.check_version(), found.words), (Ok(()), saved.words.clone()));
        saved.programs = fingerprint(b"others");
        let line = saved.check_version().expect_err("other programs");
        assert!(
            line.starts_with("expected kernel events of this tompion (") && !line.contains('\n'),
            "{line}"
        );
    }

    #[test]
    fn only_probes_in_files_name_files() {
        let names_files = |word: &str| {
            let words = vec!["sched_switch".into(), word.into()];
            SavedKernel { words, ..SavedKernel::default() }.names_files()
        };
        for word in ["uprobe:/bin/sh:main", "uretprobe:sh:main(ret: i32)", "usdt:sh:shop:sale"] {
            assert!(names_files(word), "{word}");
        }
        for word in ["kprobe:do_exit", "uprobe", "syscall_entry_uretprobe", "*"] {
            assert!(!names_files(word), "{word}");
        }
    }

    #[test]
    fn events_that_are_not_there_any_more_or_differ_are_refused() {
        let vocabulary = Vocabulary::of_calls(Calls::without_formats());
        let geometry = Geometry { cpus: 3, subbufs: 4 };
        let held = SavedHeld::new(Uuid([7; 16]), geometry, true, &vocabulary);
        assert_eq!((held.uuid(), held.geometry()), (Ok(Uuid([7; 16])), Ok(geometry)));
        assert!(held.vocabulary(&choice()).is_ok());
        let missing = SavedEvent { name: "kernel:no_such_event".into(), description: fingerprint(b"") };
        let mut other = SavedHeld { tracepoints: vec![missing.clone()], ..held.clone() };
        let found = other.vocabulary(&choice()).map(drop);
        assert_eq!(found, Err("the kernel's event kernel:no_such_event is not there any more".into()));
        other = SavedHeld { probes: vec![missing], ..held.clone() };
        assert!(other.vocabulary(&choice()).is_err(), "its file is another one");
        assert!(SavedHeld { subbufs: 3, ..held.clone() }.geometry().is_err());
        assert!(SavedHeld { uuid: "x".into(), ..held }.uuid().is_err());
    }
}
