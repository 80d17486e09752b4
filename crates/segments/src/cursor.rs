//! Place up to which a file was sent, and the segment that comes next.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
};

use crate::{FileState, Header, Kind, LocalFile, Place, Segment, packets};

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
}

/// Identity of a file's content, as far as the file system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
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

    /// Makes the segment that comes next; `None` if there is nothing to send now. Its packets are
    /// on the medium: if the machine fails, recovery finds them, and sending goes on behind them.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn next(&mut self, place: &Place, file: &LocalFile, is_final: bool) -> io::Result<Option<Segment>> {
        let opened = file.folder.read(&file.name)?;
        let metadata = opened.metadata()?;
        let length = file.limit.map_or(metadata.len(), |limit| limit.min(metadata.len()));
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        let identity = Identity { device: metadata.dev(), inode: metadata.ino(), length, modified };
        if self.idle == Some(identity) && !is_final {
            return Ok(None);
        }
        let offset = self.offset(place, file, &opened, identity)?;
        let begins =
            self.state.is_none_or(|state| state.header.is_removed || offset == 0 && state.total() > 0);
        let end = match file.kind {
            Kind::Packets if !is_final && file.limit.is_none() => self.whole_end(&opened, offset, length)?,
            _ => length.min(offset.saturating_add(MAX_PIECE)),
        };
        let is_incomplete = self.state.is_some_and(|state| !state.header.is_whole);
        let is_due = end > offset || (begins || is_incomplete) && (file.kind == Kind::File || is_final);
        if !is_due {
            self.idle = Some(identity);
            return Ok(None);
        }
        if file.kind == Kind::Packets {
            opened.sync_data()?;
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
        self.state = Some(FileState { sequence: segment.name.sequence, header: segment.header });
    }

    fn next_sequence(&self) -> u64 {
        self.state.map_or(1, |state| state.sequence.saturating_add(1))
    }

    /// Offset at which the file is continued; 0 if it isn't the one of which the receiver has a
    /// part.
    fn offset(&mut self, place: &Place, file: &LocalFile, opened: &File, now: Identity) -> io::Result<u64> {
        let Some(state) = self.state.filter(|state| !state.header.is_removed) else { return Ok(0) };
        let same_inode = |old: Identity| (old.device, old.inode) == (now.device, now.inode);
        let is_same = match file.kind {
            Kind::Packets => self.verified.is_some_and(|old| same_inode(old) && old.length <= now.length),
            _ => self.verified == Some(now),
        };
        if is_same || holds(place, file, opened, &state, now.length)? {
            self.verified = Some(now);
            return Ok(state.total());
        }
        self.whole_to = 0;
        Ok(0)
    }

    /// End of what can be sent of a stream that grows.
    fn whole_end(&mut self, opened: &File, offset: u64, length: u64) -> io::Result<u64> {
        let enough = offset.saturating_add(MAX_PIECE);
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
