//! Place up to which a file was sent, and the segment that comes next.

use std::{
    fs::{File, Metadata},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    time::SystemTime,
};

use crate::{Checksum, ContentSum, FileState, Header, Kind, LocalFile, Place, Segment, packets};

/// Length at which a segment ends, in bytes: at a packet's end if one is near.
pub const MAX_PIECE: u64 = 1 << 20;

/// Place in a file. It needs nothing but what the receiver says of the file's last segment.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// The last segment that the receiver has.
    state: Option<FileState>,
    /// The file as it was when its last segment was found in it.
    verified: Option<Identity>,
    /// The file as it was when nothing of it was left to be sent.
    idle: Option<Identity>,
    /// Offset up to which packets were found whole.
    whole_to: u64,
    /// Whether the receiver has another content, so that the file begins again.
    is_different: bool,
    /// Content up to here, unless this sender began behind a part of it.
    content: Option<ContentSum>,
}

/// Identity of a file's content, as far as the file system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    /// Inodes are used again; the time of birth tells their files apart.
    birth: Option<SystemTime>,
    length: u64,
    modified: (i64, i64),
}

impl Identity {
    fn of(metadata: &Metadata, length: u64) -> Self {
        let (device, inode, birth) = (metadata.dev(), metadata.ino(), metadata.created().ok());
        Self { device, inode, birth, length, modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }

    /// Whether a stream is the same file, which has grown.
    fn has_grown_from(&self, old: &Self) -> bool {
        let file = |identity: &Self| (identity.device, identity.inode, identity.birth);
        self.birth.is_some() && file(self) == file(old) && old.length <= self.length
    }
}

impl Cursor {
    /// A cursor behind the last segment that a receiver has.
    pub fn new(state: Option<FileState>) -> Self {
        Self { state, ..Self::default() }
    }

    /// The last segment that the receiver has.
    pub fn state(&self) -> Option<&FileState> {
        self.state.as_ref()
    }

    /// Makes the segment that comes next, of at most so many bytes; `None` if there is nothing to
    /// send now. The medium has its bytes: if the machine fails, recovery finds them, and sending
    /// goes on behind them.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn next(
        &mut self,
        place: &Place,
        file: &LocalFile,
        is_final: bool,
        max_piece: u64,
    ) -> io::Result<Option<Segment>> {
        let opened = file.folder.read(&file.name)?;
        let metadata = opened.metadata()?;
        let length = file.limit.map_or(metadata.len(), |limit| limit.min(metadata.len()));
        let identity = Identity::of(&metadata, length);
        if self.idle == Some(identity) && !is_final {
            return Ok(None);
        }
        let offset = self.offset(place, file, &opened, identity)?;
        let begins =
            self.state.is_none_or(|state| state.header.is_removed || offset == 0 && state.total() > 0);
        let piece = max_piece.clamp(1, MAX_PIECE);
        let end = match file.kind {
            Kind::Packets if !is_final && file.limit.is_none() => {
                self.whole_end(&opened, offset, length, piece)?
            }
            _ => length.min(offset.saturating_add(piece)),
        };
        let is_incomplete = self.state.is_some_and(|state| !state.header.is_whole);
        let is_due = end > offset || (begins || is_incomplete) && (file.kind == Kind::File || is_final);
        if !is_due {
            self.idle = Some(identity);
            return Ok(None);
        }
        opened.sync_data()?;
        if begins {
            file.folder.sync_up()?;
        }
        let mut content = vec![0; (end - offset) as usize];
        opened.read_exact_at(&mut content, offset)?;
        let header = Segment::header(file.kind, offset, file.kind == Kind::Packets || end == length);
        self.verified = Some(identity);
        Ok(Some(Segment::new(place.name(file.path.clone(), self.next_sequence()), header, content)))
    }

    /// Makes the segment that says that the file is gone; `None` if the receiver knows.
    pub fn removal(&self, place: &Place, path: &crate::FilePath) -> Option<Segment> {
        let state = self.state.filter(|state| !state.header.is_removed)?;
        let header = Header { is_removed: true, ..Segment::header(state.header.kind, 0, false) };
        Some(Segment::new(place.name(path.clone(), self.next_sequence()), header, Vec::new()))
    }

    /// Notes that the receiver has the segment.
    pub fn advance(&mut self, segment: &Segment) {
        let header = segment.header;
        self.state = Some(FileState { sequence: segment.name.sequence, header });
        self.is_different = false;
        if header.offset == 0 {
            self.content = Some(ContentSum::default());
        }
        self.content = self.content.take().filter(|content| content.length() == header.offset);
        self.content.iter_mut().for_each(|content| content.add(&segment.content));
    }

    /// Notes that the receiver has another content, whatever its last segment is: the file begins
    /// again.
    pub fn begin_again(&mut self) {
        self.is_different = true;
    }

    /// Sum of what was sent of the file, for the chunk's commit. A file that can be replaced is
    /// read for it, so that a change that went unnoticed is found.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn content(&mut self, file: &LocalFile) -> io::Result<(u64, Checksum)> {
        let total = self.state.map_or(0, |state| state.total());
        if file.kind == Kind::File || self.content.as_ref().is_none_or(|sum| sum.length() != total) {
            self.content = Some(ContentSum::of_file(&file.folder.read(&file.name)?, total)?);
        }
        Ok(self.content.as_ref().map(ContentSum::sum).unwrap_or_default())
    }

    fn next_sequence(&self) -> u64 {
        self.state.map_or(1, |state| state.sequence.saturating_add(1))
    }

    /// Offset at which the file is continued; 0 if it isn't the one of which the receiver has a
    /// part.
    fn offset(&mut self, place: &Place, file: &LocalFile, opened: &File, now: Identity) -> io::Result<u64> {
        let Some(state) = self.state.filter(|state| !state.header.is_removed) else { return Ok(0) };
        let is_same = match file.kind {
            Kind::Packets => self.verified.is_some_and(|old| now.has_grown_from(&old)),
            _ => self.verified == Some(now),
        };
        if !self.is_different && (is_same || holds(place, file, opened, &state, now.length)?) {
            self.verified = Some(now);
            return Ok(state.total());
        }
        self.whole_to = 0;
        Ok(0)
    }

    /// End of what can be sent of a stream that grows.
    fn whole_end(&mut self, opened: &File, offset: u64, length: u64, piece: u64) -> io::Result<u64> {
        let enough = offset.saturating_add(piece);
        if self.whole_to < offset || self.whole_to == 0 {
            // Sending may have been interrupted inside of a large packet.
            let Some(begin) = packets::packet_end(opened, offset, length)? else { return Ok(offset) };
            self.whole_to = begin;
        }
        if self.whole_to < enough {
            self.whole_to = packets::whole_end(opened, self.whole_to, length, enough)?;
        }
        Ok(self.whole_to.min(enough).max(offset))
    }
}

/// Whether a file has the receiver's last segment where that says.
fn holds(place: &Place, file: &LocalFile, opened: &File, state: &FileState, length: u64) -> io::Result<bool> {
    let header = &state.header;
    if header.kind != file.kind || state.total() > length || header.length as usize > crate::MAX_RAW {
        return Ok(false);
    }
    // A file is replaced as a whole: a shorter part of another one is no part of this one.
    let mut content = vec![0; header.length as usize];
    opened.read_exact_at(&mut content, header.offset)?;
    let name = place.name(file.path.clone(), state.sequence);
    Ok(header.checksum_of(&name, &content) == header.checksum)
}
