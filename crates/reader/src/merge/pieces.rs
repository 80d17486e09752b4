//! The files of one stream, and in which order their packets are read.
//!
//! ```text
//! file 0     │ packet │ packet │ packet │
//! file 1                  │ packet │           │ packet │
//! pieces     └─ 0 ────────────┘└ 1 ┘└─ 2 ──┘   └─ 3 ────┘
//! ```
//!
//! Most streams are one file, or files whose times follow each other, each of which is one piece.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::IndexProblem;
use super::index::{self, Index};
use super::source::Source;
use super::windows::{Mark, Scan};
use crate::discover::Trace;

/// A file, or some packets of it that follow each other.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub path: PathBuf,
    /// The trace's index in the set.
    pub trace: usize,
    /// Where the first packet begins, in bytes.
    pub from: u64,
    /// Where the packet behind the last one begins; nothing up to the file's end.
    pub to: Option<u64>,
}

impl Piece {
    /// All of a file.
    pub fn whole(path: PathBuf, trace: usize) -> Self {
        Self { path, trace, from: 0, to: None }
    }

    fn is_whole(&self) -> bool {
        self.from == 0 && self.to.is_none()
    }

    /// In bytes, if the file says its size.
    fn size(&self) -> u64 {
        let end = self.to.or_else(|| self.path.metadata().ok().map(|file| file.len()));
        end.unwrap_or(0).saturating_sub(self.from)
    }
}

/// The pieces of a stream in order of time. Readers of the same stream share what is open.
pub(super) struct Files {
    list: Vec<Piece>,
    open: Mutex<Vec<(usize, Weak<File>)>>,
    /// Files whose indexes are not used, and why.
    bad_indexes: Mutex<BTreeMap<usize, String>>,
}

impl Files {
    /// None of them is open.
    pub fn new(list: Vec<Piece>) -> Self {
        Self { list, open: Mutex::default(), bad_indexes: Mutex::default() }
    }

    /// A piece.
    pub fn piece(&self, index: usize) -> Option<Piece> {
        self.list.get(index).cloned()
    }

    /// A piece's path, and the index of its trace.
    pub fn get(&self, index: usize) -> Option<(&Path, usize)> {
        self.list.get(index).map(|piece| (piece.path.as_path(), piece.trace))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Sizes of all in bytes, as far as they say one.
    pub fn size(&self) -> u64 {
        self.list.iter().map(Piece::size).sum()
    }

    fn bad_indexes(&self) -> MutexGuard<'_, BTreeMap<usize, String>> {
        self.bad_indexes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index of a file, if all of the file is one piece and it has an index that is of use so far.
    pub fn index(&self, file: usize) -> Option<Index> {
        let piece = self.list.get(file).filter(|piece| piece.is_whole())?;
        if self.bad_indexes().contains_key(&file) {
            return None;
        }
        Index::open(&piece.path).unwrap_or_else(|problem| {
            self.leave_index(file, problem);
            None
        })
    }

    /// The index of a file is not used any more.
    pub fn leave_index(&self, file: usize, problem: String) {
        self.bad_indexes().entry(file).or_insert(problem);
    }

    /// What is wrong with indexes.
    pub fn index_problems(&self) -> Vec<IndexProblem> {
        let bad = self.bad_indexes();
        let problem = |(&file, problem): (&usize, &String)| {
            Some(IndexProblem { path: index::path_of(self.get(file)?.0)?, problem: problem.clone() })
        };
        bad.iter().filter_map(problem).collect()
    }

    /// Opens the file of a piece.
    pub fn open(&self, index: usize, path: &Path) -> io::Result<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let known = open.iter().find(|(known, _)| *known == index);
        if let Some(file) = known.and_then(|(_, file)| file.upgrade()) {
            return Ok(file);
        }
        let file = Arc::new(File::open(path)?);
        open.retain(|(_, file)| file.strong_count() > 0);
        open.push((index, Arc::downgrade(&file)));
        Ok(file)
    }
}

impl Source {
    /// A stream of files, one after the other.
    pub(super) fn in_files(files: Vec<(i64, Piece)>, _: &Arc<[Trace]>) -> Self {
        Self::new(Arc::new(Files::new(files.into_iter().map(|(_, piece)| piece).collect())))
    }

    /// A stream of files, in the order of the times at which packets begin. Each file comes with the time at which its
    /// first packet begins.
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
        Self::new(Arc::new(Files::new(take_apart(files, traces))))
    }
}

/// Packets of several files in the order in which they begin. Those of one file stay in its order; one that several files
/// have, as snapshots that overlap, is taken once.
fn take_apart(files: Vec<Piece>, traces: &Arc<[Trace]>) -> Vec<Piece> {
    let scan = |file: &Piece| Scan::new(&Arc::new(Files::new(vec![file.clone()])));
    let mut scans: Vec<Scan> = files.iter().map(scan).collect();
    let mut next = BinaryHeap::new();
    for (index, scan) in scans.iter_mut().enumerate() {
        next.extend(scan.next_mark(traces).map(|(mark, place)| Reverse((mark.begin, index, place, mark))));
    }
    let mut pieces = Pieces { list: Vec::new(), open: files.iter().map(|_| Open::AtBeginning).collect() };
    let mut marks: Vec<(Mark, usize)> = Vec::new();
    while let Some(Reverse((begin, index, place, mark))) = next.pop() {
        marks.retain(|(mark, _)| mark.begin == begin);
        match marks.iter().any(|&(known, file)| known == mark && file != index) {
            true => pieces.leave(index, place),
            false => pieces.take(&files, index, place),
        }
        marks.push((mark, index));
        let following = scans.get_mut(index).and_then(|scan| scan.next_mark(traces));
        next.extend(following.map(|(mark, place)| Reverse((mark.begin.max(begin), index, place, mark))));
    }
    // There may be something wrong in files without a sound packet.
    let unsound = files.into_iter().zip(pieces.open).filter(|(_, open)| matches!(open, Open::AtBeginning));
    pieces.list.extend(unsound.map(|(file, _)| file));
    pieces.list
}

/// Pieces so far.
struct Pieces {
    list: Vec<Piece>,
    open: Vec<Open>,
}

/// How far a file got into pieces.
enum Open {
    /// Nothing of it.
    AtBeginning,
    /// What is behind the beginning of this piece may still belong to it.
    In(usize),
    /// Up to a packet that another file has, too.
    Left,
}

impl Pieces {
    /// Adds the packet at a place of a file.
    fn take(&mut self, files: &[Piece], index: usize, place: u64) {
        let (Some(file), Some(open)) = (files.get(index), self.open.get_mut(index)) else { return };
        if matches!(open, Open::In(last) if *last + 1 == self.list.len()) {
            return;
        }
        // What is before its first sound packet belongs to a file, too.
        let from = if matches!(open, Open::AtBeginning) { 0 } else { place };
        if let Open::In(last) = std::mem::replace(open, Open::In(self.list.len())) {
            self.end(last, place);
        }
        self.list.push(Piece { from, ..file.clone() });
    }

    /// Passes over it.
    fn leave(&mut self, index: usize, place: u64) {
        let Some(open) = self.open.get_mut(index) else { return };
        if let Open::In(last) = std::mem::replace(open, Open::Left) {
            self.end(last, place);
        }
    }

    fn end(&mut self, piece: usize, place: u64) {
        if let Some(piece) = self.list.get_mut(piece) {
            piece.to = Some(place);
        }
    }
}
