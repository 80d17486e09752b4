//! Sending of one recording, as far as it can be sent now.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use tompion_segments::{
    Cursor, End, FilePath, Kind, Label, LocalChunk, LocalFile, Look, Place, Recording, Segment, digest,
};

use crate::{Pace, Target, Trouble};

/// Maximum number of segments of a file before the others have their turn.
const MAX_IN_A_ROW: usize = 8;

/// Means of sending.
pub(crate) struct Means<'a> {
    pub(crate) target: &'a dyn Target,
    pub(crate) pace: &'a Pace,
    pub(crate) connections: usize,
    pub(crate) sent: &'a Sent,
}

/// Counts of what was acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) segments: AtomicUsize,
    pub(crate) bytes: AtomicUsize,
}

/// Recording that is sent.
pub(crate) struct Session {
    recording: Recording,
    /// Chunks that have ended at the target.
    done: BTreeSet<Label>,
    /// Places in the files of the others.
    open: BTreeMap<Label, Cursors>,
    problems: BTreeSet<String>,
}

type Cursors = BTreeMap<FilePath, Mutex<Cursor>>;

/// State of a recording after an attempt.
pub(crate) struct Progress {
    /// Whether the target has all of it, and nothing more comes.
    pub(crate) is_complete: bool,
    /// Whether more can be sent at once.
    pub(crate) has_more: bool,
    /// Files that can't be sent, one line each.
    pub(crate) problems: Vec<String>,
}

/// No thread panics while it holds these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Means<'_> {
    fn put(&self, segment: &Segment) -> Result<(), Trouble> {
        self.pace.wait(segment.content.len());
        self.target.put(segment)?;
        // Ordering: counts for a line at the end, which is written after all threads have joined.
        self.sent.segments.fetch_add(1, Ordering::Relaxed);
        self.sent.bytes.fetch_add(segment.content.len(), Ordering::Relaxed);
        Ok(())
    }
}

impl Session {
    pub(crate) fn open(folder: &Path) -> Result<Self, String> {
        let recording = Recording::open(folder)?;
        Ok(Self { recording, done: BTreeSet::new(), open: BTreeMap::new(), problems: BTreeSet::new() })
    }

    pub(crate) fn path(&self) -> &Path {
        self.recording.path()
    }

    /// Looks at the recording.
    ///
    /// # Errors
    /// If it can't be read, in words.
    pub(crate) fn look(&self) -> Result<Look, String> {
        self.recording.look(&|label| self.done.contains(label))
    }

    /// Sends what a look has found and the target doesn't have.
    ///
    /// # Errors
    /// The first trouble; what was acknowledged before stays so.
    pub(crate) fn send(&mut self, look: &Look, means: &Means<'_>) -> Result<Progress, Trouble> {
        self.problems.extend(look.problems.iter().cloned());
        let mut has_more = false;
        for chunk in &look.chunks {
            match self.send_chunk(chunk, means) {
                // What the target has is asked for again.
                Err(trouble @ Trouble::Conflict(_)) => {
                    self.open.remove(&chunk.label);
                    return Err(trouble);
                }
                result => has_more |= !result?,
            }
        }
        let is_done = |chunk: &LocalChunk| self.done.contains(&chunk.label);
        Ok(Progress {
            has_more,
            is_complete: look.is_complete && look.chunks.iter().all(is_done),
            problems: self.problems.iter().cloned().collect(),
        })
    }

    /// False if more can be sent at once.
    fn send_chunk(&mut self, chunk: &LocalChunk, means: &Means<'_>) -> Result<bool, Trouble> {
        let place = self.recording.chunk_place(&chunk.label);
        if !self.open.contains_key(&chunk.label) {
            let state = means.target.chunk_state(&place)?;
            if state.end.is_some() {
                self.done.insert(chunk.label.clone());
                return Ok(true);
            }
            let cursors =
                state.files.into_iter().map(|(path, state)| (path, Mutex::new(Cursor::new(Some(state)))));
            self.open.insert(chunk.label.clone(), cursors.collect());
        }
        let Some(cursors) = self.open.get_mut(&chunk.label) else { return Ok(true) };
        for file in &chunk.files {
            cursors.entry(file.path.clone()).or_default();
        }
        let sending =
            Sending { place, chunk, cursors, means, problems: Mutex::default(), gone: Mutex::default() };
        let is_sent = sending.send_files()?;
        let has_ended = is_sent && sending.end()?;
        self.problems.extend(sending.problems.into_inner().unwrap_or_else(PoisonError::into_inner));
        if has_ended {
            self.open.remove(&chunk.label);
            self.done.insert(chunk.label.clone());
        }
        Ok(is_sent)
    }
}

/// Sending of one chunk.
struct Sending<'a> {
    place: Place,
    chunk: &'a LocalChunk,
    cursors: &'a Cursors,
    means: &'a Means<'a>,
    problems: Mutex<Vec<String>>,
    /// Files that were there at the look and can't be read.
    gone: Mutex<BTreeSet<FilePath>>,
}

impl Sending<'_> {
    /// Sends the chunk's files, several at a time; its manifest last. False if there is more.
    fn send_files(&self) -> Result<bool, Trouble> {
        let (last, others): (Vec<_>, Vec<_>) =
            self.chunk.files.iter().partition(|file| file.path.split() == (None, "tompion.json"));
        let (next, is_sent) = (AtomicUsize::new(0), AtomicUsize::new(1));
        let trouble = Mutex::new(None);
        let work = || {
            // Ordering: each file is taken once; its cursor has a lock.
            while let Some(file) = others.get(next.fetch_add(1, Ordering::Relaxed)) {
                if lock(&trouble).is_some() {
                    return;
                }
                match self.send_file(file) {
                    Ok(true) => {}
                    Ok(false) => is_sent.store(0, Ordering::Relaxed),
                    Err(found) => {
                        lock(&trouble).get_or_insert(found);
                        return;
                    }
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.means.connections.min(others.len()) {
                scope.spawn(work);
            }
            work();
        });
        if let Some(trouble) = trouble.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(trouble);
        }
        let mut is_sent = is_sent.into_inner() == 1;
        let is_due = is_sent || self.chunk.end.is_none();
        for file in last.into_iter().filter(|_| is_due) {
            is_sent &= self.send_file(file)?;
        }
        Ok(is_sent)
    }

    /// Sends a file as far as it goes. False if there is more.
    fn send_file(&self, file: &LocalFile) -> Result<bool, Trouble> {
        let Some(cursor) = self.cursors.get(&file.path) else { return Ok(true) };
        let mut cursor = lock(cursor);
        for _ in 0..MAX_IN_A_ROW {
            let Some(segment) = self.next_segment(&mut cursor, file) else { return Ok(true) };
            if file.kind == Kind::Packets {
                self.send_description(file)?;
            }
            self.means.put(&segment)?;
            cursor.advance(&segment);
        }
        Ok(false)
    }

    fn next_segment(&self, cursor: &mut Cursor, file: &LocalFile) -> Option<Segment> {
        match cursor.next(&self.place, file, self.chunk.end.is_some()) {
            Ok(segment) => segment,
            Err(error) => {
                let is_gone = error.kind() == io::ErrorKind::NotFound;
                if !is_gone || self.chunk.end.is_some() {
                    lock(&self.problems).push(format!("{}/{}: left out: {error}", self.place, file.path));
                    lock(&self.gone).insert(file.path.clone());
                }
                None
            }
        }
    }

    /// Sends what the description of a stream's events has more by now: it must be there before
    /// packets whose events it describes.
    fn send_description(&self, stream: &LocalFile) -> Result<(), Trouble> {
        let (folder, _) = stream.path.split();
        let of_folder = |file: &&LocalFile| file.path.split() == (folder, "metadata");
        match self.chunk.files.iter().find(of_folder) {
            Some(description) => self.send_file(description).map(drop),
            None => Ok(()),
        }
    }

    /// Ends the chunk at the target if it has ended here. False if it has not.
    fn end(&self) -> Result<bool, Trouble> {
        let Some(end) = self.chunk.end else { return Ok(false) };
        let gone = lock(&self.gone);
        let here: BTreeSet<&FilePath> =
            self.chunk.files.iter().map(|file| &file.path).filter(|path| !gone.contains(*path)).collect();
        if end == End::Committed {
            for (path, cursor) in self.cursors.iter().filter(|(path, _)| !here.contains(path)) {
                let mut cursor = lock(cursor);
                if let Some(segment) = cursor.removal(&self.place, path) {
                    self.means.put(&segment)?;
                    cursor.advance(&segment);
                }
            }
        }
        let states: BTreeMap<FilePath, _> = self
            .cursors
            .iter()
            .filter_map(|(path, cursor)| Some((path.clone(), *lock(cursor).state()?)))
            .collect();
        let (file, kind, content) = match end {
            End::Committed => (FilePath::commit(), Kind::Commit, digest(states.iter()).to_string()),
            End::Dropped => {
                let reason = r#"{"reason":"removed before all of it was sent"}"#;
                (FilePath::dropped(), Kind::Dropped, reason.to_owned())
            }
        };
        let name = self.place.name(file, 1);
        self.means.put(&Segment::new(name, Segment::header(kind, 0, true), content.into_bytes()))?;
        Ok(true)
    }
}
