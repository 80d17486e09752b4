//! Trace of a process in chunks: it goes on in one folder after the other.
//!
//! Of a process that outlasts its recorder, packets of the initial state say which part of it they
//! have. So the next recorder writes each event of it once ([`InitialMark`]).

use std::io;

use tompion_manifest as manifest;
use tompion_os::DirHandle;
use tompion_restart_state::ProcessBegin;
use tompion_writer::{InitialMark, Mark};

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
    /// Whether an event was not repeated because there was no more room.
    is_full: bool,
    /// Bytes of the catalog and of the pinned events that are in the initial state's packets.
    catalog: usize,
    pinned: usize,
    /// Position of each ring up to which such events are there.
    repeated_until: Vec<u64>,
    /// The packet in the making.
    batch: Batch,
}

/// Packet of the initial state in the making.
#[derive(Debug, Default)]
struct Batch {
    /// CPU of its events.
    cpu: Option<u32>,
    /// Position behind the last of them that was in a ring.
    repeated_until: u64,
    /// Whether more events of the batch come.
    is_open: bool,
    /// Bytes of the catalog and of the pinned events that the batch ends with.
    catalog: usize,
    pinned: usize,
}

impl ChunkState {
    /// Bytes of the catalog of which the initial state is written.
    pub fn written_catalog(&self) -> usize {
        self.catalog
    }
}

impl Process {
    /// Has the trace go on in the folder of another chunk. All packets must be written. One that is
    /// taken over has begun there.
    pub fn begin_chunk(&mut self, chunk: &DirHandle) {
        self.chunk.get_or_insert_default();
        let own = self.writer.folder().path().file_name().map(ToOwned::to_owned).unwrap_or_default();
        self.writer.continue_in(chunk.join("user").join(own));
    }

    /// Whether the process was taken over in a chunk.
    pub fn is_in_chunk(&self) -> bool {
        self.chunk.is_some()
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

    /// State with which the process is to begin the next chunk, once [`Process::end_chunk`] has
    /// counted. All packets must be written.
    ///
    /// # Errors
    /// What each chunk repeats can't be copied.
    pub fn save_for_next_chunk(&mut self, is_durable: bool) -> io::Result<Option<ProcessBegin>> {
        if !self.keep_copies(is_durable)? {
            return Ok(None);
        }
        let counts = self.chunk.as_ref().map(|chunk| chunk.counts_at_end.clone()).unwrap_or_default();
        Ok(Some(ProcessBegin { counts, trace: self.writer.saved(false) }))
    }

    /// State with which the process is to begin its chunk again, which is dropped.
    ///
    /// # Errors
    /// What each chunk repeats can't be copied.
    pub fn save_for_dropped_chunk(&mut self, is_durable: bool) -> io::Result<Option<ProcessBegin>> {
        if !self.keep_copies(is_durable)? {
            return Ok(None);
        }
        let mut counts = self.chunk.as_ref().map(|chunk| chunk.counts_before.clone()).unwrap_or_default();
        counts.events = self.writer.written_before();
        Ok(Some(ProcessBegin { counts, trace: self.writer.saved(true) }))
    }

    fn keep_copies(&mut self, is_durable: bool) -> io::Result<bool> {
        let Some(kept_in) = self.kept_in.as_ref().filter(|_| !self.given_up) else { return Ok(false) };
        self.writer.keep_copies(kept_in.folder_handle(), is_durable)?;
        Ok(true)
    }

    /// Goes on in a chunk that a recorder before this one has left.
    pub(super) fn resume_chunk(
        &mut self,
        counts: manifest::Counts,
        initial: InitialMark,
        repeated: &[(u32, u64)],
    ) {
        let mut repeated_until = vec![0; self.states.len()];
        for (cpu, until) in repeated {
            if let Some(place) = repeated_until.get_mut(*cpu as usize) {
                *place = (*until).max(*place);
            }
        }
        let of_file = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let InitialMark { catalog, pinned, repeated, repeated_bytes, .. } = initial;
        let repeated_bytes = of_file(repeated_bytes);
        self.kept_read = of_file(pinned);
        self.chunk = Some(ChunkState {
            counts_at_end: counts.clone(),
            counts_before: counts,
            repeated_bytes,
            repeated,
            is_full: repeated_bytes >= MAX_REPEATED_BYTES,
            catalog: of_file(catalog),
            pinned: of_file(pinned),
            repeated_until,
            batch: Batch::default(),
        });
        self.place_apart();
    }

    /// Whether another recorder can go on with the process in its chunk.
    pub(super) fn is_resumable_in_chunk(&self) -> bool {
        self.chunk.is_some() && self.is_durable()
    }

    /// Whether an event in a ring describes the initial state, and each chunk is to have it.
    /// `behind` is the position behind it.
    pub(super) fn is_repeated(&mut self, ring: usize, behind: u64, number: u32, payload: &[u8]) -> bool {
        if self.chunk.is_some() && !self.classes.contains_key(&number) {
            self.read_catalog();
        }
        let Some(state) = &mut self.chunk else { return false };
        if !matches!(self.placement, Placement::Own)
            || !self.classes.get(&number).is_some_and(|it| it.event.init)
        {
            return false;
        }
        if state.is_there(ring, behind) {
            return true;
        }
        state.is_full |= state.repeated_bytes + payload.len() > MAX_REPEATED_BYTES;
        !state.is_full
    }

    /// Has each chunk from the present one on repeat an event, which was in a ring, unless a
    /// recorder before this one has written it.
    pub(super) fn repeat(&mut self, ring: usize, initial: Initial) {
        let Some(state) = &mut self.chunk else { return };
        if state.is_there(ring, initial.position) {
            return;
        }
        state.repeated_bytes += initial.payload.len();
        state.repeated += 1;
        self.initial.push(initial);
    }

    /// Begins to write a batch of the initial state.
    pub(super) fn begin_batch(&mut self, initial: &[Initial]) {
        if let Some(state) = &mut self.chunk {
            state.batch.is_open |= !initial.is_empty();
            // More may be read while it is written.
            (state.batch.catalog, state.batch.pinned) = (self.catalog_read, self.kept_read);
        }
    }

    /// Writes the packet of the batch if its events are of another CPU than the next one.
    pub(super) fn settle_cpu_of_batch(&mut self, cpu: u32) -> io::Result<()> {
        let Some(state) = &mut self.chunk else { return Ok(()) };
        if state.batch.cpu.is_some_and(|before| before != cpu) {
            self.flush_stream(self.writer.initial_stream())?;
        }
        self.chunk.iter_mut().for_each(|state| state.batch.cpu = Some(cpu));
        Ok(())
    }

    /// Takes note that the packet has an event up to this position of its ring.
    pub(super) fn note_repeated(&mut self, position: u64) {
        if let Some(state) = &mut self.chunk {
            state.batch.repeated_until = state.batch.repeated_until.max(position);
        }
    }

    /// The batch has all that was read.
    pub(super) fn end_batch(&mut self) {
        if let Some(state) = &mut self.chunk {
            state.batch.is_open = false;
            (state.catalog, state.pinned) = (state.batch.catalog, state.batch.pinned);
        }
    }

    /// Mark of the initial state's packet, which is written now.
    pub(super) fn mark_of_initial(&self) -> Mark {
        let Some(state) = self.chunk.as_ref().filter(|_| self.is_durable()) else { return Mark::default() };
        InitialMark {
            catalog: state.catalog as u64,
            pinned: state.pinned as u64,
            repeated: state.repeated,
            repeated_bytes: state.repeated_bytes as u64,
            repeated_until: state.batch.repeated_until,
            is_within_batch: state.batch.is_open,
        }
        .into()
    }

    /// The packet of the initial state is written: the next one has nothing yet.
    pub(super) fn end_packet_of_initial(&mut self) {
        if let Some(state) = &mut self.chunk {
            (state.batch.cpu, state.batch.repeated_until) = (None, 0);
        }
    }

    /// Bytes of packets in the present chunk.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes()
    }
}

impl ChunkState {
    /// Whether the initial state's packets have the event in front of this position of a ring.
    fn is_there(&self, ring: usize, behind: u64) -> bool {
        self.repeated_until.get(ring).is_some_and(|until| behind <= *until)
    }
}
