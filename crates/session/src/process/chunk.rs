//! Trace of a process in chunks: it goes on in one folder after the other.

use tompion_manifest as manifest;
use tompion_os::DirHandle;

use super::{Initial, Placement, Process};

/// Bytes of initial events of a process that each of its chunks repeats, at most.
const MAX_REPEATED_BYTES: usize = 1 << 20;

/// State of a process that is recorded in chunks.
#[derive(Debug, Default)]
pub(super) struct ChunkState {
    /// Counts at the begin of the present chunk, and where it is to end.
    counts_before: manifest::Counts,
    counts_at_end: manifest::Counts,
    /// Bytes of events that rings had and that are repeated, and their number.
    repeated_bytes: usize,
    pub repeated: u64,
}

impl Process {
    /// Has the trace go on in the folder of another chunk. All packets must be written.
    pub fn begin_chunk(&mut self, chunk: &DirHandle) {
        self.chunk.get_or_insert_default();
        let own = self.writer.folder().path().file_name().map(ToOwned::to_owned).unwrap_or_default();
        self.writer.continue_in(chunk.join("user").join(own));
    }

    /// Has the trace go on in the folder of another chunk, in place of one that is dropped. What
    /// was lost meanwhile counts in the new one.
    pub fn replace_chunk(&mut self, chunk: &DirHandle) {
        self.begin_chunk(chunk);
        self.writer.forget_folder();
        let events = self.written();
        self.chunk.get_or_insert_default().counts_before.events = events;
    }

    /// The process in the manifest of a chunk that ends. Once the chunk is committed, what was
    /// counted from here on belongs to the next one: losses go on meanwhile.
    pub fn end_chunk(&mut self, chunk: &DirHandle) -> manifest::Source {
        let summary = self.summary(chunk.path());
        let state = self.chunk.get_or_insert_default();
        state.counts_at_end = summary.counts();
        summary.since(&state.counts_before)
    }

    /// The chunk that ends is committed.
    pub fn commit_chunk(&mut self) {
        let state = self.chunk.get_or_insert_default();
        state.counts_before.clone_from(&state.counts_at_end);
    }

    /// Whether an event in a ring describes the initial state, and each chunk is to have it.
    pub(super) fn is_repeated(&mut self, number: u32, payload: &[u8]) -> bool {
        if self.chunk.is_some() && !self.classes.contains_key(&number) {
            self.read_catalog();
        }
        let Some(state) = &self.chunk else { return false };
        matches!(self.placement, Placement::Own)
            && state.repeated_bytes + payload.len() <= MAX_REPEATED_BYTES
            && self.classes.get(&number).is_some_and(|class| class.event.init)
    }

    /// Has each chunk from the present one on repeat an event, which was in a ring.
    pub(super) fn repeat(&mut self, initial: Initial) {
        if let Some(state) = &mut self.chunk {
            state.repeated_bytes += initial.payload.len();
            state.repeated += 1;
        }
        self.initial.push(initial);
    }

    /// Bytes of packets in the present chunk.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes()
    }
}
