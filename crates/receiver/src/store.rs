//! Store of segments: folders `host=…/boot=…/session=…`, each a recording that readers open.
//!
//! A segment is taken in this order: its bytes are written and synchronised; a line in the chunk's
//! journal is written and synchronised; it is acknowledged. So a line tells of bytes that are
//! there, and bytes without a line are cut off when the chunk is next opened. A file that is
//! replaced is written beside the old one, and renamed when it is whole.

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tompion_os::{DirHandle, Lock};
use tompion_segments::{
    Admission, ChunkState, Conflict, End, FilePath, FileState, Header, Journal, JournalError, Kind, Place,
    Segment, WHOLE,
};

/// Maximum number of chunks that are held open.
const MAX_OPEN: usize = 256;
/// End of the folder's name of a chunk that has not ended.
const OPEN: &str = ".open";

/// Limits of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreLimits {
    /// Bytes of the file system that stay free.
    pub min_free: u64,
    /// Maximum number of hosts, of boots of each, and of sessions of each.
    pub max_names: usize,
    /// Maximum number of files of a chunk.
    pub max_files: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self { min_free: 64 << 20, max_names: 10_000, max_files: 100_000 }
    }
}

/// Outcome of a segment that is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was stored.
    Stored,
    /// It was there already.
    Known,
}

/// Reason why a segment is not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It doesn't continue what is there.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Another segment has its name.
    #[error("expected the segment that is there, found another one under its name")]
    Different,
    /// There is no room.
    #[error("the disk is full: segments are taken again when it has room")]
    Full,
    /// There are too many names or files.
    #[error("expected at most {0} of them, found one more")]
    TooMany(usize),
    /// The journal is damaged.
    #[error(transparent)]
    Journal(JournalError),
    /// The system refuses.
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Io(error),
        }
    }
}

impl From<JournalError> for Refusal {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Io(error) => error.into(),
            damaged @ JournalError::Damaged { .. } => Self::Journal(damaged),
        }
    }
}

/// Store of segments, in one folder. One program at a time has it.
#[derive(Debug)]
pub struct Store {
    root: DirHandle,
    limits: StoreLimits,
    chunks: Mutex<Chunks>,
    _lock: Lock,
}

/// Slot of a chunk: it is read from its journal when a segment comes, and after a failure.
type Slot = Arc<Mutex<Option<OpenChunk>>>;

/// Chunks that are held open.
#[derive(Debug, Default)]
struct Chunks {
    /// Their slots, and when each was used last.
    by_place: HashMap<Place, (u64, Slot)>,
    uses: u64,
}

/// Chunk that is held open.
#[derive(Debug)]
struct OpenChunk {
    place: Place,
    session: DirHandle,
    state: ChunkState,
    journal: File,
}

/// No thread panics while it holds these locks, and what they guard is sound at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Opens a store; its folder is made if it isn't there.
    ///
    /// # Errors
    /// If that can't be, or another program has it.
    pub fn open(folder: &Path, limits: StoreLimits) -> io::Result<Self> {
        let root = DirHandle::open_or_create(folder)?;
        let Some(lock) = tompion_os::try_lock(&root)? else {
            return Err(io::Error::other("another receiver has this store: end it, or take another folder"));
        };
        Ok(Self { root, limits, chunks: Mutex::default(), _lock: lock })
    }

    /// State of a chunk; empty if there is none.
    ///
    /// # Errors
    /// If its journal can't be read.
    pub fn chunk_state(&self, place: &Place) -> Result<ChunkState, Refusal> {
        let open = lock(&self.chunks).find(place);
        if let Some(state) = open.and_then(|open| lock(&open).as_ref().map(|chunk| chunk.state.clone())) {
            return Ok(state);
        }
        // Nothing is made or mended for a question.
        let journal = Journal::new(&self.root.join(place.session.folder()), &place.chunk);
        Ok(journal.read()?.0)
    }

    /// Takes a segment: on return, the medium has it.
    ///
    /// # Errors
    /// If it is not taken. What was there is unchanged.
    pub fn put(&self, segment: &Segment) -> Result<Taken, Refusal> {
        let open = lock(&self.chunks).hold(&segment.name.place);
        let mut slot = lock(&open);
        let chunk = match &mut *slot {
            Some(chunk) => chunk,
            empty => empty.insert(self.open_chunk(&segment.name.place)?),
        };
        let admission = chunk.state.admit(segment)?;
        if admission == Admission::Known {
            return chunk.compare(segment);
        }
        self.check_room(segment, chunk)?;
        let result = chunk.take(segment, admission);
        if result.is_err() {
            // It is read again, and what has no line is cut off.
            *slot = None;
        }
        result.map(|()| Taken::Stored)
    }

    fn open_chunk(&self, place: &Place) -> Result<OpenChunk, Refusal> {
        let session = self.make_session(place)?;
        let journal = Journal::new(&session, &place.chunk);
        let (state, length) = journal.read()?;
        let journal = journal.open(length)?;
        let mut chunk = OpenChunk { place: place.clone(), session, state, journal };
        chunk.mend()?;
        Ok(chunk)
    }

    /// Makes the folder of a session, unless there are too many.
    fn make_session(&self, place: &Place) -> Result<DirHandle, Refusal> {
        let mut folder = self.root.clone();
        for name in place.session.folder().split('/') {
            if !folder.has_directory(name) {
                if folder.names()?.len() > self.limits.max_names {
                    return Err(Refusal::TooMany(self.limits.max_names));
                }
                folder.join(name).make()?;
                folder.sync()?;
            }
            folder = folder.join(name);
        }
        Ok(folder)
    }

    fn check_room(&self, segment: &Segment, chunk: &OpenChunk) -> Result<(), Refusal> {
        let is_new = !chunk.state.files.contains_key(&segment.name.file);
        if is_new && chunk.state.files.len() >= self.limits.max_files {
            return Err(Refusal::TooMany(self.limits.max_files));
        }
        let space = rustix::fs::fstatvfs(&chunk.journal).map_err(io::Error::from)?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        match free.checked_sub(segment.content.len() as u64) {
            Some(left) if left >= self.limits.min_free => Ok(()),
            _ => Err(Refusal::Full),
        }
    }
}

impl Chunks {
    fn find(&self, place: &Place) -> Option<Slot> {
        self.by_place.get(place).map(|(_, chunk)| chunk.clone())
    }

    /// Returns the slot of a chunk. The one that was used longest ago is closed for it.
    fn hold(&mut self, place: &Place) -> Slot {
        self.uses += 1;
        let uses = self.uses;
        if !self.by_place.contains_key(place) && self.by_place.len() >= MAX_OPEN {
            let idle = self.by_place.iter().filter(|(_, (_, chunk))| Arc::strong_count(chunk) == 1);
            let oldest = idle.min_by_key(|(_, (used, _))| *used).map(|(place, _)| place.clone());
            oldest.map(|place| self.by_place.remove(&place));
        }
        let (used, chunk) = self.by_place.entry(place.clone()).or_default();
        *used = uses;
        chunk.clone()
    }
}

impl OpenChunk {
    /// Folder of the chunk's files.
    fn folder(&self) -> DirHandle {
        match (self.place.chunk.as_str(), self.state.end) {
            (WHOLE, _) => self.session.clone(),
            (name, None) => self.session.join(format!("{name}{OPEN}")),
            (name, Some(_)) => self.session.join(name),
        }
    }

    fn place_of<'a>(&self, file: &'a FilePath) -> (DirHandle, &'a str) {
        let (below, name) = file.split();
        let folder = self.folder();
        (below.map_or(folder.clone(), |below| folder.join(below)), name)
    }

    /// Compares a segment with the one that has its name.
    fn compare(&self, segment: &Segment) -> Result<Taken, Refusal> {
        let name = &segment.name;
        let last = self.state.files.get(&name.file).filter(|state| state.sequence == name.sequence);
        let known = match last {
            Some(state) => Some(state.header.checksum),
            None => Journal::new(&self.session, &self.place.chunk).find(&name.file, name.sequence)?,
        };
        if known == Some(segment.header.checksum) { Ok(Taken::Known) } else { Err(Refusal::Different) }
    }

    fn take(&mut self, segment: &Segment, admission: Admission) -> Result<(), Refusal> {
        match admission {
            Admission::Append => self.append(segment)?,
            Admission::Restart => self.restart(segment)?,
            Admission::Remove => self.remove(&segment.name.file)?,
            Admission::End(_) | Admission::Known => {}
        }
        self.note(&segment.name.file, segment.name.sequence, segment.header)?;
        if let Admission::End(end) = admission {
            self.finish(end)?;
        }
        Ok(())
    }

    /// Writes a line to the journal, and takes it into the state when the medium has it.
    fn note(&mut self, file: &FilePath, sequence: u64, header: Header) -> io::Result<()> {
        Journal::write(&self.journal, file, sequence, &header)?;
        self.journal.sync_data()?;
        self.state.note(file, sequence, header);
        Ok(())
    }

    fn append(&self, segment: &Segment) -> io::Result<()> {
        let (folder, name) = self.place_of(&segment.name.file);
        let was_whole = self.state.files.get(&segment.name.file).is_some_and(|state| state.header.is_whole);
        let staged = staging(name);
        let file = folder.write(if was_whole { name } else { &staged })?;
        let offset = segment.header.offset;
        let written = file.write_all_at(&segment.content, offset).and_then(|()| file.sync_data());
        if let Err(error) = written {
            let _ = file.set_len(offset);
            return Err(error);
        }
        if was_whole || !segment.header.is_whole {
            return Ok(());
        }
        folder.rename(&staged, &folder, name)?;
        folder.sync()
    }

    /// Begins a file again: beside the old one, until it is whole.
    fn restart(&self, segment: &Segment) -> io::Result<()> {
        let (folder, name) = self.place_of(&segment.name.file);
        let is_new = !folder.exists();
        folder.make()?;
        let staged = staging(name);
        let file = folder.recreate(&staged)?;
        let written = file.write_all_at(&segment.content, 0).and_then(|()| file.sync_data());
        if let Err(error) = written {
            let _ = folder.remove(&staged);
            return Err(error);
        }
        if segment.header.is_whole {
            folder.rename(&staged, &folder, name)?;
        }
        if is_new { folder.sync_up() } else { folder.sync() }
    }

    fn remove(&self, file: &FilePath) -> io::Result<()> {
        let (folder, name) = self.place_of(file);
        for name in [name, &staging(name)] {
            match folder.remove(name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives the folder of a chunk that has ended its final name.
    fn finish(&self, _: End) -> io::Result<()> {
        let name = self.place.chunk.as_str();
        let open = self.session.join(format!("{name}{OPEN}"));
        if name == WHOLE || !open.exists() {
            return Ok(());
        }
        open.rename_to(&self.session.join(name))?;
        self.session.sync()
    }

    /// Makes files what the journal says, after a crash.
    fn mend(&mut self) -> Result<(), Refusal> {
        if let Some(end) = self.state.end {
            return Ok(self.finish(end)?);
        }
        for (path, state) in self.state.files.clone() {
            if !state.header.is_removed && !self.is_as_noted(&path, &state)? {
                log::warn!("{}: {path}: not what was received: it is asked for again", self.place);
                self.remove(&path)?;
                let header = Header { is_removed: true, ..Segment::header(state.header.kind, 0, false) };
                self.note(&path, state.sequence, header)?;
            }
        }
        Ok(())
    }

    /// Cuts a file to the length that the journal says. False if it is shorter or gone.
    fn is_as_noted(&self, path: &FilePath, state: &FileState) -> io::Result<bool> {
        let (folder, name) = self.place_of(path);
        let staged = staging(name);
        let is_there = |name: &str| -> io::Result<bool> {
            let file = match folder.write(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                file => file?,
            };
            let length = file.metadata()?.len();
            if length > state.total() {
                file.set_len(state.total())?;
            }
            Ok(length >= state.total())
        };
        let found = is_there(if state.header.is_whole { name } else { &staged })?;
        if state.header.is_whole {
            let _ = folder.remove(&staged);
        }
        Ok(found || state.header.kind == Kind::Packets && state.total() == 0)
    }
}

/// Name of a file that is not whole yet. It is hidden, so readers don't take it for a stream.
fn staging(name: &str) -> String {
    format!(".{name}.part")
}
