//! Store of segments: folders `host=…/boot=…/session=…`, each a recording that readers open.
//!
//! A segment is taken in this order: its bytes are written and synchronised; a line in the chunk's
//! journal is written and synchronised; it is acknowledged. So a line tells of bytes that are
//! there, and bytes without a line are cut off when the chunk is next opened. A file that is
//! replaced is written beside the old one, and renamed when it is whole.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs::File,
    io::{self, Read as _},
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tompion_manifest::DroppedChunk;
use tompion_os::{DirHandle, Lock};
use tompion_segments::{
    Admission, Checksum, ChunkState, Conflict, ContentSum, End, FilePath, FileState, Header, Journal,
    JournalError, Kind, Label, Place, Segment, SessionPlace, WHOLE, digest,
};

/// Maximum number of chunks that are held open.
const MAX_OPEN: usize = 256;
/// Maximum number of bytes of a file that are read at one time.
const MAX_READ: u64 = 1 << 20;
/// Number of files that the file system can still have when it is full.
const MIN_FREE_FILES: u64 = 1000;
/// End of the folder's name of a chunk that has not ended.
const OPEN: &str = ".open";

/// Limits of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreLimits {
    /// Bytes of the file system that stay free.
    pub min_free: u64,
    /// Maximum number of hosts, of boots of each, and of sessions of each.
    pub max_names: usize,
    /// Maximum number of chunks of a session.
    pub max_chunks: usize,
    /// Maximum number of files of a chunk.
    pub max_files: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self { min_free: 64 << 20, max_names: 10_000, max_chunks: 1_000_000, max_files: 100_000 }
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
    /// Chunks that have not ended, the journals of which this process has written whole: the medium
    /// has what they say.
    trusted: HashSet<Place>,
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
    /// Contents of the files that came whole since it was opened.
    contents: BTreeMap<FilePath, ContentSum>,
    /// Folders that the medium has.
    folders: BTreeSet<Option<String>>,
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
        let store = Self { root, limits, chunks: Mutex::default(), _lock: lock };
        store.finish_ended();
        Ok(store)
    }

    /// Finishes the chunks that had ended when a receiver was killed.
    fn finish_ended(&self) {
        for place in self.session_places() {
            let session = self.root.join(place.folder());
            let names = session.names().unwrap_or_default().into_iter();
            let open = names.filter_map(|name| Some(name.to_str()?.strip_suffix(OPEN)?.to_owned()));
            for chunk in open.filter_map(|name| Label::new(&name).ok()) {
                let place = Place { session: place.clone(), chunk };
                // One that can't be finished now is when something asks for it.
                if let Err(refusal) = self.chunk_state(&place) {
                    log::warn!("{place}: {refusal}");
                }
            }
        }
    }

    /// Places of all sessions.
    pub fn session_places(&self) -> Vec<SessionPlace> {
        let below = |folder: &DirHandle, prefix: &str| -> Vec<Label> {
            let names = folder.names().unwrap_or_default().into_iter();
            names.filter_map(|name| Label::new(name.to_str()?.strip_prefix(prefix)?).ok()).collect()
        };
        let mut places = Vec::new();
        for host in below(&self.root, "host=") {
            let of_host = self.root.join(format!("host={host}"));
            for boot in below(&of_host, "boot=") {
                let of_boot = of_host.join(format!("boot={boot}"));
                places.extend(below(&of_boot, "session=").into_iter().map(|session| SessionPlace {
                    host: host.clone(),
                    boot: boot.clone(),
                    session,
                }));
            }
        }
        places.sort();
        places
    }

    /// Chunks of a session, and their ends.
    ///
    /// # Errors
    /// If a journal can't be read.
    pub fn chunks(&self, session: &SessionPlace) -> Result<BTreeMap<Label, Option<End>>, Refusal> {
        let folder = self.root.join(session.folder());
        let mut chunks = BTreeMap::new();
        for chunk in Journal::chunks(&folder)? {
            let place = Place { session: session.clone(), chunk };
            let end = self.chunk_state(&place)?.end;
            chunks.insert(place.chunk, end);
        }
        Ok(chunks)
    }

    /// Reads so many bytes of a file from an offset on, as far as they are acknowledged.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn read(&self, place: &Place, path: &FilePath, from: u64) -> Result<Option<Vec<u8>>, Refusal> {
        let state = self.chunk_state(place)?;
        let Some(file) = state.files.get(path).filter(|file| !file.header.is_removed) else {
            return Ok(None);
        };
        let session = self.root.join(place.session.folder());
        let (folder, name) = place_of(&chunk_folder(&session, place, state.end), path);
        let opened = match folder.read(name) {
            // It is not whole yet, or its chunk has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let length = opened.metadata()?.len().min(file.total());
        let count = length.saturating_sub(from).min(MAX_READ);
        let mut bytes = vec![0; count as usize];
        opened.read_exact_at(&mut bytes, from.min(length))?;
        Ok(Some(bytes))
    }

    /// Contents of a chunk's files.
    ///
    /// # Errors
    /// If one can't be read.
    pub fn contents(&self, place: &Place) -> Result<BTreeMap<FilePath, Checksum>, Refusal> {
        let slot = lock(&self.chunks).hold(place);
        let mut slot = lock(&slot);
        if slot.is_none() {
            let session = self.root.join(place.session.folder());
            if Journal::new(&session, &place.chunk).read()?.0 == ChunkState::default() {
                return Ok(BTreeMap::new());
            }
            *slot = Some(self.open_chunk(place)?);
        }
        let Some(chunk) = &mut *slot else { return Ok(BTreeMap::new()) };
        Ok(chunk.sums()?.into_iter().map(|(path, (_, sum))| (path, sum)).collect())
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
        // Nothing is made for a question.
        let session = self.root.join(place.session.folder());
        let state = Journal::new(&session, &place.chunk).read()?.0;
        if state.end.is_some() && session.has_directory(format!("{}{OPEN}", place.chunk)) {
            // A receiver was killed between its end and its new name.
            let slot = lock(&self.chunks).hold(place);
            let mut slot = lock(&slot);
            if slot.is_none() {
                *slot = Some(self.open_chunk(place)?);
            }
        }
        Ok(state)
    }

    /// Takes a segment: on return, the medium has it.
    ///
    /// # Errors
    /// If it is not taken. What was there is unchanged.
    pub fn put(&self, segment: &Segment) -> Result<Taken, Refusal> {
        let place = &segment.name.place;
        let open = lock(&self.chunks).hold(place);
        let mut slot = lock(&open);
        let chunk = match &mut *slot {
            Some(chunk) => chunk,
            empty => {
                self.check_first(segment)?;
                empty.insert(self.open_chunk(place)?)
            }
        };
        let admission = chunk.state.admit(segment)?;
        if admission == Admission::Known {
            return chunk.compare(segment);
        }
        if let Admission::End(End::Committed) = admission
            && chunk.digest()? != segment.content
        {
            return Err(Conflict::Digest.into());
        }
        self.check_room(segment, &chunk.state, admission)?;
        let result = chunk.take(segment, admission);
        if result.is_err() {
            // It is read again, and what has no line is cut off.
            *slot = None;
        }
        if result.is_err() || matches!(admission, Admission::End(_)) {
            lock(&self.chunks).trusted.remove(place);
        }
        result.map(|()| Taken::Stored)
    }

    /// Checks the first segment of a chunk since it was opened: nothing is made for one that is
    /// refused.
    fn check_first(&self, segment: &Segment) -> Result<(), Refusal> {
        let session = self.root.join(segment.name.place.session.folder());
        let (state, _) = Journal::new(&session, &segment.name.place.chunk).read()?;
        match state.admit(segment)? {
            Admission::Known => Ok(()),
            Admission::End(End::Committed)
                if state.files.is_empty() && segment.content != digest_of(BTreeMap::new()) =>
            {
                Err(Conflict::Digest.into())
            }
            admission => self.check_room(segment, &state, admission),
        }
    }

    fn open_chunk(&self, place: &Place) -> Result<OpenChunk, Refusal> {
        let session = self.make_session(place)?;
        let journal = Journal::new(&session, &place.chunk);
        let (state, length) = journal.read()?;
        if length == 0 && Journal::chunks(&session)?.len() >= self.limits.max_chunks {
            return Err(Refusal::TooMany(self.limits.max_chunks));
        }
        if state.end.is_none() && !lock(&self.chunks).trusted.contains(place) {
            journal.rewrite(length)?;
        }
        let file = journal.open(length)?;
        let mut chunk = OpenChunk {
            place: place.clone(),
            session,
            state,
            journal: file,
            contents: BTreeMap::new(),
            folders: BTreeSet::new(),
        };
        chunk.mend()?;
        if chunk.state.end.is_none() {
            lock(&self.chunks).trusted.insert(place.clone());
        }
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

    fn check_room(&self, segment: &Segment, state: &ChunkState, admission: Admission) -> Result<(), Refusal> {
        if matches!(admission, Admission::End(_) | Admission::Remove) {
            // A full medium must not keep what makes room for others.
            return Ok(());
        }
        let is_new = !state.files.contains_key(&segment.name.file);
        if is_new && state.files.len() >= self.limits.max_files {
            return Err(Refusal::TooMany(self.limits.max_files));
        }
        let space = rustix::fs::statvfs(self.root.path()).map_err(io::Error::from)?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        // Some file systems have no number of files.
        if space.f_files > 0 && space.f_favail < MIN_FREE_FILES {
            return Err(Refusal::Full);
        }
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
    fn place_of<'a>(&self, file: &'a FilePath) -> (DirHandle, &'a str) {
        place_of(&chunk_folder(&self.session, &self.place, self.state.end), file)
    }

    /// Lengths and contents of the files that are there.
    fn sums(&mut self) -> io::Result<BTreeMap<FilePath, (u64, Checksum)>> {
        let mut sums = BTreeMap::new();
        for (path, state) in self.state.files.iter().filter(|(_, state)| !state.header.is_removed) {
            let known = self.contents.remove(path).filter(|sum| sum.length() == state.total());
            let sum = match known {
                Some(sum) => sum,
                None => {
                    let (folder, name) = self.place_of(path);
                    let staged = staging(name);
                    ContentSum::of_file(
                        &folder.read(if state.header.is_whole { name } else { &staged })?,
                        state.total(),
                    )?
                }
            };
            sums.insert(path.clone(), (sum, state.total()));
        }
        let ready = sums.iter().map(|(path, (sum, _))| (path.clone(), sum.sum())).collect();
        self.contents = sums.into_iter().map(|(path, (sum, _))| (path, sum)).collect();
        Ok(ready)
    }

    /// Digest that a commit of the present files has.
    fn digest(&mut self) -> io::Result<Vec<u8>> {
        Ok(digest_of(self.sums()?))
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
        let path = &segment.name.file;
        match admission {
            Admission::Append => self.append(segment)?,
            Admission::Restart => self.restart(segment)?,
            Admission::Remove => self.remove(path)?,
            // The tombstone needs a place.
            Admission::End(End::Dropped) => chunk_folder(&self.session, &self.place, None).make()?,
            Admission::End(End::Committed) | Admission::Known => {}
        }
        self.note(path, segment.name.sequence, segment.header)?;
        match admission {
            Admission::Append => self.contents.get_mut(path).into_iter().for_each(|sum| {
                sum.add(&segment.content);
            }),
            Admission::Restart => {
                let mut sum = ContentSum::default();
                sum.add(&segment.content);
                self.contents.insert(path.clone(), sum);
            }
            Admission::Remove => drop(self.contents.remove(path)),
            Admission::End(end) => self.finish(end)?,
            Admission::Known => {}
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
        let (staged, offset) = (staging(name), segment.header.offset);
        let is_in_place = was_whole && segment.header.is_whole;
        let file = match was_whole {
            _ if is_in_place => folder.write(name)?,
            true => copy(&folder, name, offset)?,
            false => folder.write(&staged)?,
        };
        let written = file.write_all_at(&segment.content, offset).and_then(|()| file.sync_data());
        if let Err(error) = written {
            let _ = file.set_len(offset);
            return Err(error);
        }
        if is_in_place {
            return Ok(());
        }
        if segment.header.is_whole {
            folder.rename(&staged, &folder, name)?;
        }
        folder.sync()
    }

    /// Begins a file again: beside the old one, until it is whole.
    fn restart(&mut self, segment: &Segment) -> io::Result<()> {
        let (folder, name) = self.place_of(&segment.name.file);
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
        let below = segment.name.file.split().0.map(str::to_owned);
        if self.folders.contains(&below) {
            return folder.sync();
        }
        folder.sync_up()?;
        self.folders.insert(below);
        Ok(())
    }

    fn remove(&self, file: &FilePath) -> io::Result<()> {
        let (folder, name) = self.place_of(file);
        let mut is_changed = false;
        for name in [name, &staging(name)] {
            match folder.remove(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => {
                    result?;
                    is_changed = true;
                }
            }
        }
        if is_changed { folder.sync() } else { Ok(()) }
    }

    /// Gives the folder of a chunk that has ended its final name; one that was dropped gets a
    /// tombstone, which readers show.
    fn finish(&self, end: End) -> io::Result<()> {
        let name = self.place.chunk.as_str();
        let open = chunk_folder(&self.session, &self.place, None);
        if end == End::Dropped && open.exists() {
            let number = name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0);
            DroppedChunk { number, reason: "removed by its sender before all of it was sent".into() }
                .write(&open)?;
        }
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
            if state.header.is_removed {
                self.remove(&path)?;
            } else if !self.is_as_noted(&path, &state)? {
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

/// Folder of a chunk's files.
fn chunk_folder(session: &DirHandle, place: &Place, end: Option<End>) -> DirHandle {
    match (place.chunk.as_str(), end) {
        (WHOLE, _) => session.clone(),
        (name, None) => session.join(format!("{name}{OPEN}")),
        (name, Some(_)) => session.join(name),
    }
}

fn place_of<'a>(chunk: &DirHandle, file: &'a FilePath) -> (DirHandle, &'a str) {
    let (below, name) = file.split();
    (below.map_or(chunk.clone(), |below| chunk.join(below)), name)
}

/// Content of the commit of these files.
fn digest_of(files: BTreeMap<FilePath, (u64, Checksum)>) -> Vec<u8> {
    digest(files.iter().map(|(path, sum)| (path, *sum))).to_string().into_bytes()
}

/// Copies the first bytes of a file beside it, where it is continued until it is whole.
fn copy(folder: &DirHandle, name: &str, length: u64) -> io::Result<File> {
    let mut copy = folder.recreate(staging(name))?;
    io::copy(&mut folder.read(name)?.take(length), &mut copy)?;
    Ok(copy)
}

/// Name of a file that is not whole yet. It is hidden, so readers don't take it for a stream.
fn staging(name: &str) -> String {
    format!(".{name}.part")
}

#[cfg(test)]
mod tests {
    use tompion_segments::Name;
    use tompion_testing::TestDir;

    use super::*;

    #[test]
    fn after_a_journal_that_could_not_be_synchronised_its_lines_are_written_again() {
        let dir = TestDir::new("journal-sync");
        let store = Store::open(&dir, StoreLimits { min_free: 0, ..StoreLimits::default() }).unwrap();
        let segment = |sequence: u64, offset, content: &[u8]| {
            let name = Name::parse(&format!("/v1/robot/boot/night/whole/stream_0/{sequence}")).unwrap();
            Segment::new(name, Segment::header(Kind::Packets, offset, true), content.to_vec())
        };
        store.put(&segment(1, 0, b"first")).unwrap();
        let place = segment(1, 0, b"").name.place;
        let journal = dir.join("host=robot/boot=boot/session=night/.segments/whole.journal");
        let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&journal).unwrap());
        let before = inode();
        // Pipes take what is written and can't be synchronised.
        let (_reader, writer) = io::pipe().unwrap();
        let slot = lock(&store.chunks).find(&place).unwrap();
        lock(&slot).as_mut().unwrap().journal = File::from(std::os::fd::OwnedFd::from(writer));
        assert!(matches!(store.put(&segment(2, 5, b"second")), Err(Refusal::Io(_))));
        assert_eq!(store.chunk_state(&place).unwrap().files.values().next().unwrap().sequence, 1);
        assert_eq!(store.put(&segment(2, 5, b"second")).unwrap(), Taken::Stored);
        assert_ne!(inode(), before, "the old one may lack lines on the medium");
        assert_eq!(store.put(&segment(1, 0, b"first")).unwrap(), Taken::Known);
        let stream = dir.join("host=robot/boot=boot/session=night/stream_0");
        assert_eq!(std::fs::read_to_string(stream).unwrap(), "firstsecond");
    }
}
