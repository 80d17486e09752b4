//! Sending of one recording, as far as it can be sent now.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tompion_segments::{
    Cursor, End, FilePath, Kind, Label, LocalChunk, LocalFile, Look, MAX_PIECE, Place, Recording, Segment,
    digest,
};

use crate::{Pace, Target, Trouble};

/// Number of the error for a link where none is followed. Source: `errno(3)` of Linux.
const ELOOP: i32 = 40;
/// Maximum number of segments of a file before the others have their turn.
const MAX_IN_A_ROW: usize = 8;

/// Means of sending.
pub(crate) struct Means<'a> {
    pub(crate) target: &'a dyn Target,
    pub(crate) pace: &'a Pace,
    pub(crate) connections: usize,
    pub(crate) sent: &'a Sent,
    pub(crate) piece: Piece,
}

/// Length of segments, in bytes: shorter ones on slow links, so that each takes seconds.
#[derive(Debug)]
pub(crate) struct Piece(AtomicU64);

/// Shortest length.
const MIN_PIECE: u64 = 16 << 10;
/// Time that a segment may take before the next ones are shorter, and below which they are longer.
const LONG_TIME: Duration = Duration::from_secs(8);
const SHORT_TIME: Duration = Duration::from_secs(2);

impl Default for Piece {
    fn default() -> Self {
        Self(AtomicU64::new(MAX_PIECE))
    }
}

impl Piece {
    // Ordering: a hint for later segments; nothing is published by it.
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes how long a segment took; without a time, it was not taken.
    fn note(&self, took: Option<Duration>) {
        let change = |piece: u64| match took {
            Some(took) if took <= SHORT_TIME => Some((piece * 2).min(MAX_PIECE)),
            Some(took) if took <= LONG_TIME => None,
            _ => Some((piece / 2).max(MIN_PIECE)),
        };
        // Ordering: as in `get`.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }
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
        let begun = Instant::now();
        let result = self.target.put(segment);
        match &result {
            Ok(()) => self.piece.note(Some(begun.elapsed())),
            Err(Trouble::Broken(_)) => self.piece.note(None),
            Err(_) => {}
        }
        result?;
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

    /// Whether its folder was removed, or another recording is at its place.
    pub(crate) fn is_gone(&self) -> bool {
        self.recording.is_gone()
    }

    /// Looks at the recording.
    ///
    /// # Errors
    /// If it can't be read, in words.
    pub(crate) fn look(&self) -> Result<Look, String> {
        self.recording.look(&|label| self.done.contains(label))
    }

    /// Sends what a look has found and the target doesn't have. A chunk that the target refuses
    /// doesn't keep the others.
    ///
    /// # Errors
    /// The first trouble; what was acknowledged before stays so.
    pub(crate) fn send(&mut self, look: &Look, means: &Means<'_>) -> Result<Progress, Trouble> {
        self.problems.extend(look.problems.iter().cloned());
        let (mut has_more, mut refused) = (false, None);
        for chunk in &look.chunks {
            match self.send_chunk(chunk, means) {
                // What the target has is asked for again.
                Err(trouble @ Trouble::Conflict(_)) => {
                    self.open.remove(&chunk.label);
                    refused.get_or_insert(trouble);
                }
                Err(trouble @ Trouble::Refused(_)) => drop(refused.get_or_insert(trouble)),
                result => has_more |= !result?,
            }
        }
        if let Some(trouble) = refused {
            return Err(trouble);
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
        let recording = &self.recording;
        let sending = Sending {
            place,
            recording,
            chunk,
            cursors,
            means,
            problems: Mutex::default(),
            left_out: Mutex::default(),
            gone: AtomicBool::new(false),
        };
        let is_sent = sending.send_files()?;
        // Of a chunk that was removed meanwhile, the next look says so.
        let has_ended = is_sent && !sending.gone.load(Ordering::Relaxed) && sending.end()?;
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
    recording: &'a Recording,
    chunk: &'a LocalChunk,
    cursors: &'a Cursors,
    means: &'a Means<'a>,
    problems: Mutex<Vec<String>>,
    /// Files that are no regular ones.
    left_out: Mutex<BTreeSet<FilePath>>,
    /// Whether a file has vanished since the look.
    gone: AtomicBool,
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
                // Where no thread can be begun, this one does the work.
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
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
            let Some(segment) = self.next_segment(&mut cursor, file)? else { return Ok(true) };
            if file.kind == Kind::Packets {
                self.send_description(file)?;
            }
            self.means.put(&segment)?;
            cursor.advance(&segment);
        }
        Ok(false)
    }

    /// The segment that comes next. A file that can't be read is no file that isn't there: it is
    /// tried again.
    fn next_segment(&self, cursor: &mut Cursor, file: &LocalFile) -> Result<Option<Segment>, Trouble> {
        let is_final = self.chunk.end.is_some();
        let error = match cursor.next(&self.place, file, is_final, self.means.piece.get()) {
            Ok(segment) => return Ok(segment),
            Err(error) => error,
        };
        let text = || format!("{}/{}: {error}", self.place, file.path);
        match error.kind() {
            // Ordering: read when all threads have joined.
            io::ErrorKind::NotFound => self.gone.store(true, Ordering::Relaxed),
            // A link, or no regular file.
            kind if kind == io::ErrorKind::InvalidInput || error.raw_os_error() == Some(ELOOP) => {
                if is_final {
                    lock(&self.problems).push(format!("{}/{}: left out: {error}", self.place, file.path));
                    lock(&self.left_out).insert(file.path.clone());
                }
            }
            // It was cut while it was read.
            io::ErrorKind::UnexpectedEof if !is_final => {}
            _ => return Err(Trouble::Refused(text())),
        }
        Ok(None)
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
        match self.chunk.end {
            None => Ok(false),
            Some(End::Dropped) => {
                let reason = r#"{"reason":"removed before all of it was sent"}"#;
                self.put_end(FilePath::dropped(), Kind::Dropped, reason.into()).map(|()| true)
            }
            Some(End::Committed) => self.commit(),
        }
    }

    fn put_end(&self, file: FilePath, kind: Kind, content: String) -> Result<(), Trouble> {
        let name = self.place.name(file, 1);
        self.means.put(&Segment::new(name, Segment::header(kind, 0, true), content.into_bytes()))
    }

    /// Commits the chunk, if it is still there whole. A file of which the target has another
    /// content begins again.
    fn commit(&self) -> Result<bool, Trouble> {
        let left_out = lock(&self.left_out);
        let files: BTreeMap<&FilePath, &LocalFile> =
            self.chunk.files.iter().map(|file| (&file.path, file)).collect();
        let here = |path: &FilePath| files.get(path).filter(|_| !left_out.contains(path));
        let unreadable = |error: io::Error| Trouble::Refused(format!("{}: {error}", self.place));
        let mut sums = BTreeMap::new();
        for (path, cursor) in self.cursors {
            let mut cursor = lock(cursor);
            match here(path) {
                Some(file) => match cursor.content(file) {
                    Ok(sum) => drop(sums.insert(path, sum)),
                    // Removed or cut since it was sent.
                    Err(error) if is_change(&error) => return Ok(false),
                    Err(error) => return Err(unreadable(error)),
                },
                None => {
                    if let Some(segment) = cursor.removal(&self.place, path) {
                        self.means.put(&segment)?;
                        cursor.advance(&segment);
                    }
                }
            }
        }
        if !self.recording.has_files_of(self.chunk).map_err(unreadable)? {
            return Ok(false);
        }
        let content = digest(sums.iter().map(|(path, sum)| (*path, *sum))).to_string();
        let conflict = match self.put_end(FilePath::commit(), Kind::Commit, content) {
            Err(trouble @ Trouble::Conflict(_)) => trouble,
            result => return result.map(|()| true),
        };
        let there = self.means.target.contents(&self.place)?;
        let mut is_different = false;
        for (path, (_, sum)) in &sums {
            if there.get(*path).is_some_and(|other| other != sum)
                && let Some(cursor) = self.cursors.get(*path)
            {
                lock(cursor).begin_again();
                is_different = true;
            }
        }
        // Otherwise the state is asked for again.
        if is_different { Ok(false) } else { Err(conflict) }
    }
}

/// Whether a file has changed, and can be looked at again.
fn is_change(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_shorter_where_links_are_slow() {
        let piece = Piece::default();
        piece.note(Some(Duration::from_secs(5)));
        assert_eq!(piece.get(), MAX_PIECE);
        piece.note(Some(Duration::from_secs(9)));
        piece.note(None);
        assert_eq!(piece.get(), MAX_PIECE / 4);
        (0..100).for_each(|_| piece.note(None));
        assert_eq!(piece.get(), MIN_PIECE);
        (0..100).for_each(|_| piece.note(Some(Duration::from_secs(1))));
        assert_eq!(piece.get(), MAX_PIECE);
    }
}
