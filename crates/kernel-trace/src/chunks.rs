//! Kernel's trace in chunks: it goes on in one folder after the other.
//!
//! The consumer of programs' rings rotates. It has this thread end its part of the chunk, commits
//! the chunk, and says where to go on. Meanwhile rings are emptied, and what is in them waits:
//!
//! ```text
//! consumer: settle ──EndChunk──►      manifest, rename, next folder ──NextChunk──►
//! kernel:                  collect, flush ──ChunkPart──► copy, copy, copy …       convert
//! ```

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use tompion_manifest::{self as manifest, KERNEL};
use tompion_os::{DirHandle, FileRights};
use tompion_restart_state::ProcessBegin;

use crate::{
    drain::{CopiedBytes, Drain},
    recording::{KernelCommand, read_state},
};

/// Interval at which rings are emptied while a chunk is committed.
const COPY_INTERVAL: Duration = Duration::from_millis(1);
/// Bytes that may wait meanwhile; then rings fill, and count what they lose.
const MAX_WAITING: usize = 256 << 20;
/// Bytes of stacks' definitions that each chunk repeats, at most, besides twice the initial state.
const MAX_REPEATED_BYTES: u64 = 4 << 20;

/// End of a chunk, as the kernel's thread is told of it.
#[derive(Debug)]
pub struct ChunkEnd {
    /// Receives the part of the chunk, once it is written.
    done: Sender<ChunkPart>,
    /// Says where the trace goes on. If it is closed instead, the recording has failed.
    next: Receiver<NextChunk>,
}

/// Place where the trace goes on.
#[derive(Debug)]
enum NextChunk {
    /// In this chunk: the one before is committed.
    Begun(DirHandle),
    /// In this chunk, in place of one that was dropped.
    Replaced(DirHandle),
}

/// The kernel's part of a chunk.
#[derive(Clone, Debug)]
pub struct ChunkPart {
    /// The kernel in the chunk's manifest.
    pub source: manifest::Source,
    /// Bytes of its packets.
    pub bytes: u64,
    /// State with which another recorder would begin a chunk, if the recording outlasts its own.
    pub begins: Option<Box<Begins>>,
}

/// State with which another recorder would begin a chunk.
#[derive(Clone, Debug)]
pub struct Begins {
    /// The next one.
    pub next: ProcessBegin,
    /// This one again, if it is dropped.
    pub again: ProcessBegin,
}

/// Control of the chunks of the kernel's trace.
#[derive(Debug)]
pub struct ChunkControl {
    commands: Sender<KernelCommand>,
    /// Sender of the next chunk, for which the thread waits.
    next: Option<Sender<NextChunk>>,
    bytes: Arc<AtomicU64>,
}

impl ChunkControl {
    /// Has the trace end in the open chunk. The part comes once it is written; if none comes, the
    /// kernel's thread is ending. It goes on when the next chunk begins.
    pub fn end(&mut self) -> Receiver<ChunkPart> {
        let (done, part) = mpsc::channel();
        let (sender, next) = mpsc::channel();
        self.next = Some(sender);
        let _ = self.commands.send(KernelCommand::EndChunk(ChunkEnd { done, next }));
        part
    }

    /// Has the trace go on in this chunk: the one before is committed, or this is the first.
    pub fn begin(&mut self, chunk: &DirHandle) {
        self.go_on(NextChunk::Begun(chunk.join(KERNEL)));
    }

    /// Has the trace go on in this chunk, in place of one that was dropped.
    pub fn replace(&mut self, chunk: &DirHandle) {
        self.go_on(NextChunk::Replaced(chunk.join(KERNEL)));
    }

    fn go_on(&mut self, next: NextChunk) {
        // The thread may have ended.
        if let Some(sender) = self.next.take() {
            let _ = sender.send(next);
        }
        // Ordering: a number by itself.
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Has the trace end for good, since no chunk can begin.
    pub fn fail(&mut self) {
        self.next = None;
    }

    /// Bytes that were written into the open chunk, as of a moment ago. Copies of the initial state
    /// are none.
    pub fn bytes(&self) -> u64 {
        // Ordering: a number by itself.
        self.bytes.load(Ordering::Relaxed)
    }
}

/// State of a trace in chunks.
#[derive(Debug)]
pub struct ChunkState {
    /// Counts at the begin of the present chunk.
    pub counts_before: manifest::Counts,
    /// Events that were dropped with their chunks.
    pub dropped: u64,
    /// Receiver of the first chunk, for which the thread waits.
    first: Option<Receiver<NextChunk>>,
    bytes: Arc<AtomicU64>,
}

/// Puts a trace that is not written yet into chunks.
pub fn control(drain: &mut Drain, commands: Sender<KernelCommand>) -> ChunkControl {
    let (sender, first) = mpsc::channel();
    let bytes = Arc::<AtomicU64>::default();
    drain.chunks = Some(ChunkState {
        counts_before: manifest::Counts::default(),
        dropped: 0,
        first: Some(first),
        bytes: Arc::clone(&bytes),
    });
    ChunkControl { commands, next: Some(sender), bytes }
}

impl Drain {
    /// Waits for the first chunk, if the recording is in chunks, and continues the trace of another
    /// recorder, if there is one.
    pub fn begin_trace(&mut self) {
        if let Some(first) = self.chunks.as_mut().and_then(|state| state.first.take()) {
            self.go_on_in(&first, None);
        } else if let Some(left) = self.left.take() {
            self.continue_trace(self.folder.clone(), left);
        }
    }

    /// Tells the consumer how large the chunk has become.
    pub fn tell_bytes(&self) {
        if let Some(state) = &self.chunks {
            // Ordering: a number by itself.
            state.bytes.store(self.writer.new_bytes(), Ordering::Relaxed);
        }
    }

    /// Writes all that was read into the chunk, and goes on in the next.
    pub fn end_chunk(&mut self, end: ChunkEnd) {
        let ChunkEnd { done, next } = end;
        self.end_change();
        if !self.overwrite {
            self.collect();
        }
        self.write_definitions();
        self.flush_all();
        let source = self.source();
        let counts = source.counts();
        let before = self.chunks.as_ref().map(|state| state.counts_before.clone()).unwrap_or_default();
        self.give_room_back();
        let begins = self.save_begins(&counts, &before).map(Box::new);
        // The consumer may have gone.
        let _ = done.send(ChunkPart { source: source.since(&before), bytes: self.writer.bytes(), begins });
        self.go_on_in(&next, Some(counts));
    }

    /// Saves the state with which another recorder would begin the next chunk, or this one again;
    /// none if the recording ends with its recorder.
    fn save_begins(&mut self, counts: &manifest::Counts, before: &manifest::Counts) -> Option<Begins> {
        let copies = self.keeping.as_ref()?.copies();
        self.attempt(|drain| drain.writer.keep_copies(&copies, false));
        let trace = self.writer.saved(false);
        let trace = if self.restarts_state() { trace.without_initial_state() } else { trace };
        let next = ProcessBegin { counts: counts.clone(), trace };
        Some(Begins { next, again: ProcessBegin { counts: before.clone(), trace: self.writer.saved(true) } })
    }

    /// Whether the initial state, with the descriptions of stacks, is too large to be repeated once
    /// more.
    fn restarts_state(&self) -> bool {
        let limit = self.state_bytes.saturating_mul(2).saturating_add(MAX_REPEATED_BYTES);
        self.state.is_none() && self.writer.initial_bytes() > limit
    }

    /// Empties rings until it is known where the trace goes on; then what waits is converted.
    /// `counts` are those at the end of the chunk before, if there is one.
    fn go_on_in(&mut self, next: &Receiver<NextChunk>, counts: Option<manifest::Counts>) {
        let mut waiting = VecDeque::new();
        let place = loop {
            match next.recv_timeout(COPY_INTERVAL) {
                Ok(place) => break Some(place),
                Err(RecvTimeoutError::Disconnected) => break None,
                Err(RecvTimeoutError::Timeout) if self.overwrite || self.left.is_some() => {}
                Err(RecvTimeoutError::Timeout) => self.copy_into(&mut waiting),
            }
        };
        match place {
            Some(NextChunk::Begun(folder)) => {
                if let Some(state) = &mut self.chunks {
                    state.counts_before = counts.unwrap_or_default();
                }
                match self.left.take() {
                    Some(left) => self.continue_trace(folder, left),
                    None => self.enter(folder),
                }
            }
            Some(NextChunk::Replaced(folder)) => self.enter_again(folder),
            None => self.stop_at_chunk(),
        }
        for copied in waiting {
            self.convert_copied(copied);
        }
    }

    /// Takes what is new in all rings, as far as there is room for it.
    fn copy_into(&mut self, waiting: &mut VecDeque<CopiedBytes>) {
        if waiting.iter().map(|copied| copied.bytes.len()).sum::<usize>() >= MAX_WAITING {
            return;
        }
        for cpu in 0..self.read.len() {
            waiting.extend(self.copy(cpu, Vec::new()).filter(|copied| !copied.bytes.is_empty()));
        }
    }

    fn enter(&mut self, folder: DirHandle) {
        let restarts = self.restarts_state();
        self.writer.continue_in(folder);
        if !restarts {
            return;
        }
        self.writer.restart_initial_state();
        self.stacks.describe_again(tompion_os::monotonic_ns());
        if self.has_state {
            self.is_state_complete = false;
            // What processes are is root's to read.
            let _rights = FileRights::of_the_process().ok();
            self.state = read_state().ok();
        }
    }

    /// Goes on in place of a chunk that was dropped: its events are no loss.
    fn enter_again(&mut self, folder: DirHandle) {
        let before = self.writer.written_of_rings();
        self.writer.continue_in(folder);
        self.writer.forget_folder();
        let dropped = before.saturating_sub(self.writer.written_of_rings());
        if let Some(state) = &mut self.chunks {
            state.dropped = state.dropped.saturating_add(dropped);
        }
    }
}
