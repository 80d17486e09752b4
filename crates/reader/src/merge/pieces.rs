//! Files of one stream, and the order in which their packets are read.
//!
//! ```text
//! file 0     │ packet │ packet │ packet │
//! file 1                  │ packet │           │ packet │
//! pieces     └─ 0 ────────────┘└ 1 ┘└─ 2 ──┘   └─ 3 ────┘
//! ```
//!
//! Most streams are one file, or files whose times follow each other. Each of these is one piece.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tompion_ctf::decode::Packet;

use super::index::{self, Index};
use super::source::Source;
use super::windows::{Mark, Scan};
use super::{Identity, IndexProblem};
use crate::discover::Trace;

/// File, or consecutive packets of it.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub path: PathBuf,
    /// Index of the trace in the set.
    pub trace: usize,
    /// Position of the first packet in bytes.
    pub from: u64,
    /// Position behind the last packet; `None` for the end of the file.
    pub to: Option<u64>,
    /// Identity of the file, whatever its path.
    pub id: Option<FileId>,
}

/// Identity of a file that another one may have replaced, or that may have been moved, as in a
/// rotation. Inode numbers are used again, so the first packet belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
    /// Stream, if packets state it.
    pub stream: Option<Identity>,
    /// Begin time in cycles and sequence number of the first packet.
    first: (Option<u64>, Option<u64>),
}

impl FileId {
    /// Identifies an open file with this first packet.
    pub fn new(file: &Metadata, stream: Option<Identity>, first: &Packet) -> Self {
        Self { device: file.dev(), inode: file.ino(), stream, first: (first.begin, first.sequence) }
    }
}

impl Piece {
    /// Creates a piece that covers a whole file.
    pub fn whole(path: PathBuf, trace: usize, id: Option<FileId>) -> Self {
        Self { path, trace, from: 0, to: None, id }
    }

    fn is_whole(&self) -> bool {
        self.from == 0 && self.to.is_none()
    }

    /// Returns the size in bytes, or 0 if the file's size is unknown.
    fn size(&self) -> u64 {
        let end = self.to.or_else(|| self.path.metadata().ok().map(|file| file.len()));
        end.unwrap_or(0).saturating_sub(self.from)
    }
}

/// Pieces of a stream in order of time. Readers of the same stream share open files.
pub(super) struct Files {
    list: Vec<Piece>,
    open: Mutex<Vec<(usize, Weak<File>)>>,
    /// Whether descriptors stay open between reads.
    pub keeps_open: bool,
    /// Largest size in bytes that each file had when it was opened.
    sizes: Mutex<BTreeMap<usize, u64>>,
    /// Files whose indexes are unusable, with the reason.
    bad_indexes: Mutex<BTreeMap<usize, String>>,
}

impl Files {
    /// Creates the list without opening any file.
    pub fn new(list: Vec<Piece>) -> Self {
        Self {
            list,
            open: Mutex::default(),
            keeps_open: true,
            sizes: Mutex::default(),
            bad_indexes: Mutex::default(),
        }
    }

    /// Returns a piece.
    pub fn piece(&self, index: usize) -> Option<Piece> {
        self.list.get(index).cloned()
    }

    /// Leaves out the packets of a piece before a position in its file.
    pub fn begin_at(&mut self, index: usize, position: u64) {
        self.list.iter_mut().skip(index).take(1).for_each(|piece| piece.from = position);
    }

    /// Returns the path of a piece and the index of its trace.
    pub fn get(&self, index: usize) -> Option<(&Path, usize)> {
        self.list.get(index).map(|piece| (piece.path.as_path(), piece.trace))
    }

    /// Returns the number of pieces.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Returns the total size in bytes of the pieces with known sizes.
    pub fn size(&self) -> u64 {
        self.list.iter().map(Piece::size).sum()
    }

    fn bad_indexes(&self) -> MutexGuard<'_, BTreeMap<usize, String>> {
        self.bad_indexes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the index of a file, if the whole file is one piece and the index was usable so far.
    pub fn index(&self, file: usize) -> Option<Index> {
        let piece = self.list.get(file).filter(|piece| piece.is_whole())?;
        if self.bad_indexes().contains_key(&file) {
            return None;
        }
        Index::open(&piece.path).unwrap_or_else(|problem| {
            self.disable_index(file, problem);
            None
        })
    }

    /// Stops using the index of a file.
    pub fn disable_index(&self, file: usize, problem: String) {
        self.bad_indexes().entry(file).or_insert(problem);
    }

    /// Returns the problems found in indexes.
    pub fn index_problems(&self) -> Vec<IndexProblem> {
        let bad = self.bad_indexes();
        let problem = |(&file, problem): (&usize, &String)| {
            Some(IndexProblem { path: index::path_of(self.get(file)?.0)?, problem: problem.clone() })
        };
        bad.iter().filter_map(problem).collect()
    }

    /// Notes the size of a file that was just opened; returns the largest one noted.
    pub fn seen_size(&self, index: usize, size: u64) -> u64 {
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = sizes.entry(index).or_default();
        *seen = size.max(*seen);
        *seen
    }

    /// Opens the file of a piece, or shares it if it is open.
    pub fn open(&self, index: usize, path: &Path) -> io::Result<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let known = open.iter().find(|(known, _)| *known == index);
        if let Some(file) = known.and_then(|(_, file)| file.upgrade()) {
            return Ok(file);
        }
        let file = Arc::new(tompion_os::open_regular(path)?);
        open.retain(|(_, file)| file.strong_count() > 0);
        open.push((index, Arc::downgrade(&file)));
        Ok(file)
    }
}

impl Source {
    /// Creates a stream whose files are read one after the other.
    pub(super) fn in_files(files: Vec<(i64, Piece)>, _: &Arc<[Trace]>) -> Self {
        Self::new(Arc::new(Files::new(files.into_iter().map(|(_, piece)| piece).collect())))
    }

    /// Creates a stream whose packets are read in the order of their begin times. Each file comes
    /// with the begin time of its first packet.
    pub(super) fn in_order_of_time(files: Vec<(i64, Piece)>, traces: &Arc<[Trace]>) -> Self {
        let latest_begin = |piece: &Piece| {
            let file = Arc::new(Files::new(vec![piece.clone()]));
            file.indexed_begin(traces).or_else(|| Scan::latest_begin(&file, traces))
        };
        let pairs = files.iter().zip(files.iter().skip(1));
        let mut pairs = pairs.map(|((_, file), (begin, _))| latest_begin(file) < Some(*begin));
        if pairs.all(|follows| follows) {
            return Self::in_files(files, traces);
        }
        let files = files.into_iter().map(|(_, piece)| piece).collect();
        Self::new(Arc::new(Files::new(split_by_time(files, traces))))
    }
}

/// Splits files into pieces, so that packets are read in the order of their begin times. Packets of
/// one file keep their order. A packet that several files contain, as overlapping snapshots do, is
/// read once.
fn split_by_time(files: Vec<Piece>, traces: &Arc<[Trace]>) -> Vec<Piece> {
    let scan = |file: &Piece| Scan::new(&Arc::new(Files::new(vec![file.clone()])));
    let mut scans: Vec<Scan> = files.iter().map(scan).collect();
    let mut next = BinaryHeap::new();
    for (index, scan) in scans.iter_mut().enumerate() {
        next.extend(scan.next_mark(traces).map(|(mark, place)| Reverse((mark.begin, index, place, mark))));
    }
    let mut pieces = Pieces { list: Vec::new(), open: files.iter().map(|_| Open::Untouched).collect() };
    let mut marks: Vec<(Mark, usize)> = Vec::new();
    while let Some(Reverse((begin, index, place, mark))) = next.pop() {
        marks.retain(|(mark, _)| mark.begin == begin);
        match marks.iter().any(|&(known, file)| known == mark && file != index) {
            true => pieces.skip(index, place),
            false => pieces.add(&files, index, place),
        }
        marks.push((mark, index));
        let following = scans.get_mut(index).and_then(|scan| scan.next_mark(traces));
        next.extend(following.map(|(mark, place)| Reverse((mark.begin.max(begin), index, place, mark))));
    }
    // Files without an intact packet are kept, so that their corruption is reported.
    let unsound = files.into_iter().zip(pieces.open).filter(|(_, open)| matches!(open, Open::Untouched));
    pieces.list.extend(unsound.map(|(file, _)| file));
    pieces.list
}

/// Pieces found so far.
struct Pieces {
    list: Vec<Piece>,
    open: Vec<Open>,
}

/// State of a file that is being split.
enum Open {
    /// No packet was seen.
    Untouched,
    /// The piece with this index is still open: following packets may belong to it.
    In(usize),
    /// The last packet was skipped, because another file has it too.
    Skipped,
}

impl Pieces {
    /// Adds the packet at a position of a file.
    fn add(&mut self, files: &[Piece], index: usize, place: u64) {
        let (Some(file), Some(open)) = (files.get(index), self.open.get_mut(index)) else { return };
        if matches!(open, Open::In(last) if *last + 1 == self.list.len()) {
            return;
        }
        // Bytes before the first intact packet belong to the file, too.
        let from = if matches!(open, Open::Untouched) { 0 } else { place };
        if let Open::In(last) = std::mem::replace(open, Open::In(self.list.len())) {
            self.end(last, place);
        }
        self.list.push(Piece { from, ..file.clone() });
    }

    /// Skips the packet at a position of a file.
    fn skip(&mut self, index: usize, place: u64) {
        let Some(open) = self.open.get_mut(index) else { return };
        if let Open::In(last) = std::mem::replace(open, Open::Skipped) {
            self.end(last, place);
        }
    }

    fn end(&mut self, piece: usize, place: u64) {
        if let Some(piece) = self.list.get_mut(piece) {
            piece.to = Some(place);
        }
    }
}
