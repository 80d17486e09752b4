//! Ledger of the segments that a receiver has: by it the receiver decides what it takes, and the
//! sender where it goes on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Checksum, FilePath, Header, Kind, Segment};

/// State of a file: its last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct FileState {
    /// Sequence number of the last segment.
    pub sequence: u64,
    /// Header of the last segment.
    pub header: Header,
}

/// State of a file in JSON.
#[derive(Serialize, Deserialize)]
struct Wire {
    kind: u8,
    sequence: u64,
    offset: u64,
    length: u32,
    #[serde(default)]
    whole: bool,
    #[serde(default)]
    removed: bool,
    checksum: String,
}

impl From<FileState> for Wire {
    fn from(FileState { sequence, header }: FileState) -> Self {
        let Header { kind, is_whole: whole, is_removed: removed, offset, length, checksum } = header;
        Self { kind: kind.number(), sequence, offset, length, whole, removed, checksum: checksum.to_string() }
    }
}

impl From<Wire> for FileState {
    /// Takes words of another version or a broken receiver for a state that matches nothing, so
    /// that the file begins again.
    fn from(wire: Wire) -> Self {
        let Wire { kind, sequence, offset, length, whole: is_whole, removed: is_removed, checksum } = wire;
        let kind = Kind::from_number(kind).unwrap_or(Kind::File);
        let checksum = Checksum::parse(&checksum).unwrap_or(Checksum([0; 32]));
        Self { sequence, header: Header { kind, is_whole, is_removed, offset, length, checksum } }
    }
}

impl FileState {
    /// Length of the file in bytes.
    pub fn total(&self) -> u64 {
        self.header.offset.saturating_add(self.header.length.into())
    }
}

/// End of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// All of it is there.
    Committed,
    /// The sender removed it before all of it was sent.
    Dropped,
}

/// State of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkState {
    /// End, if it has one. Then nothing more is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// Its files by their paths.
    #[serde(default)]
    pub files: BTreeMap<FilePath, FileState>,
}

/// Way in which a segment goes into its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// At the end of the file.
    Append,
    /// In place of the file.
    Restart,
    /// The file is removed.
    Remove,
    /// The chunk ends.
    End(End),
    /// It is there already, if its checksum is that of the segment with its number.
    Known,
}

/// Reason why a segment is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Others must come before.
    #[error("expected segment {expected} of the file next, found a later one")]
    Gap {
        /// Number of the next one.
        expected: u64,
    },
    /// It continues the file elsewhere.
    #[error("expected a segment that continues at byte {expected} or begins the file again")]
    Offset {
        /// Length of the file.
        expected: u64,
    },
    /// The chunk has ended.
    #[error("expected no more segments of this chunk: it has ended")]
    Ended,
    /// Files are missing, or differ.
    #[error("expected a commit of the files that are there, found one of others: compare them")]
    Digest,
}

impl ChunkState {
    /// Decides how a segment is taken. A commit's digest is compared where the contents are.
    ///
    /// # Errors
    /// If it can't be.
    pub fn admit(&self, segment: &Segment) -> Result<Admission, Conflict> {
        let Segment { name, header, .. } = segment;
        if name.file.is_reserved() {
            return self.admit_end(header.kind);
        }
        let known = self.files.get(&name.file);
        let expected = known.map_or(1, |state| state.sequence.saturating_add(1));
        if name.sequence < expected {
            return Ok(Admission::Known);
        }
        if self.end.is_some() {
            return Err(Conflict::Ended);
        }
        if name.sequence > expected {
            return Err(Conflict::Gap { expected });
        }
        let goes_on = known.is_some_and(|state| !state.header.is_removed && state.header.kind == header.kind);
        match known.map_or(0, FileState::total) {
            _ if header.is_removed => Ok(Admission::Remove),
            // A file that is whole is continued in place, one that isn't beside the old one.
            length if goes_on && length == header.offset && length > 0 => Ok(Admission::Append),
            _ if header.offset == 0 => Ok(Admission::Restart),
            length => Err(Conflict::Offset { expected: length }),
        }
    }

    fn admit_end(&self, kind: Kind) -> Result<Admission, Conflict> {
        let end = if kind == Kind::Commit { End::Committed } else { End::Dropped };
        match self.end {
            Some(known) if known == end => return Ok(Admission::Known),
            Some(_) => return Err(Conflict::Ended),
            None => {}
        }
        let are_whole = self.files.values().all(|state| state.header.is_whole || state.header.is_removed);
        if end == End::Committed && !are_whole {
            return Err(Conflict::Digest);
        }
        Ok(Admission::End(end))
    }

    /// Notes a segment that was taken.
    pub fn note(&mut self, file: &FilePath, sequence: u64, header: Header) {
        match header.kind {
            Kind::Commit => self.end = Some(End::Committed),
            Kind::Dropped => self.end = Some(End::Dropped),
            Kind::Packets | Kind::File => {
                self.files.insert(file.clone(), FileState { sequence, header });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;

    fn segment(file: &str, sequence: u64, offset: u64, content: &[u8]) -> Segment {
        let name = Name::parse(&format!("/v1/h/b/s/whole/{file}/{sequence}")).unwrap();
        let kind = match file {
            FilePath::COMMIT => Kind::Commit,
            FilePath::DROPPED => Kind::Dropped,
            _ => Kind::Packets,
        };
        Segment::new(name, Segment::header(kind, offset, true), content.to_vec())
    }

    fn take(state: &mut ChunkState, segment: &Segment) -> Result<Admission, Conflict> {
        let admission = state.admit(segment)?;
        if admission != Admission::Known {
            state.note(&segment.name.file, segment.name.sequence, segment.header);
        }
        Ok(admission)
    }

    #[test]
    fn segments_come_in_order_and_once() {
        let mut state = ChunkState::default();
        assert_eq!(take(&mut state, &segment("a", 2, 0, b"x")), Err(Conflict::Gap { expected: 1 }));
        assert_eq!(take(&mut state, &segment("a", 1, 5, b"x")), Err(Conflict::Offset { expected: 0 }));
        assert_eq!(take(&mut state, &segment("a", 1, 0, b"first")), Ok(Admission::Restart));
        assert_eq!(take(&mut state, &segment("a", 1, 0, b"first")), Ok(Admission::Known));
        assert_eq!(take(&mut state, &segment("a", 2, 5, b"second")), Ok(Admission::Append));
        assert_eq!(take(&mut state, &segment("a", 3, 4, b"x")), Err(Conflict::Offset { expected: 11 }));
        assert_eq!(take(&mut state, &segment("a", 3, 0, b"again")), Ok(Admission::Restart));
        assert_eq!(state.files[&"a".parse().unwrap()].total(), 5);
    }

    #[test]
    fn a_commit_ends_the_chunk() {
        let mut state = ChunkState::default();
        take(&mut state, &segment("a", 1, 0, b"content")).unwrap();
        let commit = segment("@commit", 1, 0, b"digest");
        assert_eq!(take(&mut state, &commit), Ok(Admission::End(End::Committed)));
        assert_eq!(take(&mut state, &commit), Ok(Admission::Known));
        assert_eq!(take(&mut state, &segment("a", 1, 0, b"content")), Ok(Admission::Known));
        assert_eq!(take(&mut state, &segment("a", 2, 7, b"more")), Err(Conflict::Ended));
        assert_eq!(take(&mut state, &segment("@dropped", 1, 0, b"{}")), Err(Conflict::Ended));
    }

    #[test]
    fn a_file_that_is_not_whole_or_was_removed_is_seen() {
        let mut state = ChunkState::default();
        let mut part = segment("a", 1, 0, b"part");
        part.header.is_whole = false;
        take(&mut state, &part).unwrap();
        assert_eq!(take(&mut state, &segment("@commit", 1, 0, b"digest")), Err(Conflict::Digest));
        let mut removed = segment("a", 2, 0, b"");
        removed.header.is_removed = true;
        assert_eq!(take(&mut state, &removed), Ok(Admission::Remove));
        assert_eq!(take(&mut state, &segment("a", 3, 4, b"x")), Err(Conflict::Offset { expected: 0 }));
        let commit = segment("@commit", 1, 0, b"digest");
        assert_eq!(take(&mut state, &commit), Ok(Admission::End(End::Committed)));
    }

    #[test]
    fn states_are_json() {
        let mut state = ChunkState::default();
        take(&mut state, &segment("user/a b/stream_0", 1, 0, b"content")).unwrap();
        take(&mut state, &segment("@dropped", 1, 0, b"{}")).unwrap();
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<ChunkState>(&text).unwrap(), state, "{text}");
        assert!(serde_json::from_str::<ChunkState>(&text.replace("user/a b", "../..")).is_err());
    }
}
