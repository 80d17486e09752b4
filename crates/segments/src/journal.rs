//! Journal of a chunk at a receiver: one line for each segment that was taken, in the order of
//! time. It stands in a hidden folder beside the trace, so readers of traces don't see it.
//!
//! ```text
//! session=night-5a0c91d2/
//! ├── .segments/chunk-000003.journal     1 1- 17 4096 8192 SHA256 user/server-4711/stream_0
//! └── chunk-000003.open/user/…           kind, flags, number, offset, length, checksum, file
//! ```
//!
//! A line is written after the medium has the bytes that it tells of. What a file has beyond its
//! lines is cut off.

use std::io::{self, BufRead, BufReader, Read as _, Write};

use tompion_os::DirHandle;

use crate::{Checksum, ChunkState, FilePath, Header, Kind, Label};

/// Folder of the journals in a session's folder.
pub const JOURNAL_FOLDER: &str = tompion_manifest::RECEIVED_FOLDER;
const SUFFIX: &str = ".journal";
/// Longest line that is read, in bytes.
const MAX_LINE: u64 = 2048;

/// Reason why a journal can't be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system refuses.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A line before the last one is damaged.
    #[error("line {line} of the journal is damaged: remove the chunk and its journal, it is sent again")]
    Damaged {
        /// Its number, from 1 on.
        line: u64,
    },
}

/// Journal of one chunk.
#[derive(Clone, Debug)]
pub struct Journal {
    folder: DirHandle,
    file: String,
}

impl Journal {
    /// The journal of a chunk in a session's folder; it need not be there.
    pub fn new(session: &DirHandle, chunk: &Label) -> Self {
        Self { folder: session.join(JOURNAL_FOLDER), file: format!("{chunk}{SUFFIX}") }
    }

    /// Finds the chunks of a session's folder that have a journal.
    ///
    /// # Errors
    /// If the folder can't be read.
    pub fn chunks(session: &DirHandle) -> io::Result<Vec<Label>> {
        let folder = session.join(JOURNAL_FOLDER);
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let names = folder.names()?.into_iter().filter_map(|name| name.into_string().ok());
        let mut chunks: Vec<Label> =
            names.filter_map(|name| Label::new(name.strip_suffix(SUFFIX)?).ok()).collect();
        chunks.sort();
        Ok(chunks)
    }

    /// Reads the journal: the chunk's state, and the length of the lines that are whole.
    ///
    /// # Errors
    /// If it can't be read, or is damaged.
    pub fn read(&self) -> Result<(ChunkState, u64), JournalError> {
        let mut state = ChunkState::default();
        let length = self.lines(|file, sequence, header| state.note(&file, sequence, header))?;
        Ok((state, length))
    }

    /// Finds the checksum of a segment.
    ///
    /// # Errors
    /// If the journal can't be read, or is damaged.
    pub fn find(&self, file: &FilePath, sequence: u64) -> Result<Option<Checksum>, JournalError> {
        let mut found = None;
        self.lines(|other, number, header| {
            if number == sequence && other == *file {
                found = Some(header.checksum);
            }
        })?;
        Ok(found)
    }

    /// Opens it for writing, without what a crash has left of its last line; made if it isn't
    /// there. The medium has its name on return.
    ///
    /// # Errors
    /// If it can't be opened.
    pub fn open(&self, length: u64) -> io::Result<std::fs::File> {
        self.folder.make()?;
        let file = self.folder.append(&self.file)?;
        if file.metadata()?.len() > length {
            file.set_len(length)?;
        }
        // Always: a process that was killed may have made it and not come so far.
        self.folder.sync_up()?;
        Ok(file)
    }

    /// Writes its lines again, to a new file. After a failed synchronisation, the system may have
    /// lines in memory that it never writes.
    ///
    /// # Errors
    /// If the system refuses; then the old one stays.
    pub fn rewrite(&self, length: u64) -> io::Result<()> {
        let mut lines = Vec::new();
        match self.folder.read(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?.take(length).read_to_end(&mut lines)?,
        };
        self.folder.replace(&self.file, &lines, true)
    }

    /// Writes a line of a segment to the open journal.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn write(mut to: &std::fs::File, file: &FilePath, sequence: u64, header: &Header) -> io::Result<()> {
        let flags = match (header.is_whole, header.is_removed) {
            (_, true) => "-x",
            (true, false) => "w-",
            (false, false) => "--",
        };
        let Header { kind, offset, length, checksum, .. } = header;
        let line = format!("{} {flags} {sequence} {offset} {length} {checksum} {file}\n", kind.number());
        to.write_all(line.as_bytes())
    }

    fn lines(&self, mut each: impl FnMut(FilePath, u64, Header)) -> Result<u64, JournalError> {
        let mut file = match self.folder.read(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            file => BufReader::new(file?),
        };
        let (mut length, mut number, mut line) = (0, 0, Vec::new());
        loop {
            line.clear();
            (&mut file).take(MAX_LINE).read_until(b'\n', &mut line)?;
            number += 1;
            let parsed = line.strip_suffix(b"\n").and_then(|line| parse(std::str::from_utf8(line).ok()?));
            match parsed {
                Some((file, sequence, header)) => each(file, sequence, header),
                // A crash cuts the last line.
                None if line.last() != Some(&b'\n') && (line.len() as u64) < MAX_LINE => return Ok(length),
                None => return Err(JournalError::Damaged { line: number }),
            }
            length += line.len() as u64;
        }
    }
}

fn parse(line: &str) -> Option<(FilePath, u64, Header)> {
    let mut words = line.splitn(7, ' ');
    let kind = Kind::from_number(words.next()?.parse().ok()?)?;
    let (is_whole, is_removed) = match words.next()? {
        "-x" => (false, true),
        "w-" => (true, false),
        "--" => (false, false),
        _ => return None,
    };
    let (sequence, offset, length) =
        (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let checksum = Checksum::parse(words.next()?)?;
    let header = Header { kind, is_whole, is_removed, offset, length, checksum };
    Some((words.next()?.parse().ok()?, sequence, header))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tompion_testing::TestDir;

    use super::*;
    use crate::Segment;

    #[test]
    fn lines_are_read_again_up_to_a_torn_one() {
        let dir = TestDir::new("journal");
        let session = DirHandle::open(&dir).unwrap();
        let journal = Journal::new(&session, &Label::new("chunk-000001").unwrap());
        assert_eq!(journal.read().unwrap(), (ChunkState::default(), 0));
        let open = journal.open(0).unwrap();
        let path: FilePath = "user/a b/stream_0".parse().unwrap();
        let header = |offset| Header { length: 10, ..Segment::header(Kind::Packets, offset, true) };
        for sequence in 1..=3 {
            Journal::write(&open, &path, sequence, &header(10 * (sequence - 1))).unwrap();
        }
        let (state, length) = journal.read().unwrap();
        assert_eq!((state.files[&path].sequence, state.files[&path].total()), (3, 30));
        assert_eq!(journal.find(&path, 2).unwrap(), Some(Checksum([0; 32])));
        assert_eq!(journal.find(&path, 4).unwrap(), None);
        let file = dir.join(".segments/chunk-000001.journal");
        assert_eq!(fs::metadata(&file).unwrap().len(), length);
        // Cut anywhere, it ends behind a whole line.
        let whole = fs::read(&file).unwrap();
        for cut in 0..whole.len() {
            fs::write(&file, &whole[..cut]).unwrap();
            let (state, length) = journal.read().unwrap();
            let last_line = whole[..cut].iter().rposition(|byte| *byte == b'\n');
            assert_eq!(length as usize, last_line.map_or(0, |at| at + 1));
            assert_eq!(state.files.len(), usize::from(length > 0));
            drop(journal.open(length).unwrap());
            assert_eq!(fs::metadata(&file).unwrap().len(), length);
        }
        // Written again, it is the same, without what was torn.
        fs::write(&file, [&whole[..], b"1 w"].concat()).unwrap();
        let length = journal.read().unwrap().1;
        journal.rewrite(length).unwrap();
        assert_eq!(fs::read(&file).unwrap(), whole);
        let damaged = [&whole[..20], b"\n", &whole[..]].concat();
        fs::write(&file, damaged).unwrap();
        assert!(matches!(journal.read(), Err(JournalError::Damaged { line: 1 })));
        assert_eq!(Journal::chunks(&session).unwrap(), [Label::new("chunk-000001").unwrap()]);
    }
}
