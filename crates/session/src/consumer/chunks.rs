//! Recording in chunks: rotation, and the manifests of chunks.
//!
//! A rotation asks no program. What was read is converted and written, the chunk's manifest comes
//! last, its folder is renamed, and the streams go on in the next folder. Rings are emptied
//! meanwhile. Events of processes that may turn out to be short-lived wait for the next chunk.

use std::{io, sync::mpsc::TryRecvError, time::Duration};

use crate::messages::reason;
use tompion_calls::CommittedChunk;
use tompion_chunks::{Committed, Policy, Series};
use tompion_kernel_trace::{Begins, ChunkControl, ChunkPart};
use tompion_manifest::{self as manifest, BeyondLimits, Chunk, Clock, Manifest};
use tompion_os::DirHandle;
use tompion_restart_state::{self as restart_state, ChunkBegin, Ended, ProcessBegin, TakeOver};
use tompion_writer::SourceWriter;

use super::{Backlog, Consumer, keeping::add_source};
use crate::process::Process;

/// Chunks of a recording.
#[derive(Debug)]
pub(super) struct Chunks {
    series: Series,
    /// Time of the open chunk's begin, by CLOCK_MONOTONIC in nanoseconds.
    begin_ns: u64,
    /// Processes that ended in the open chunk, and their bytes in its manifest.
    ended: Vec<manifest::Source>,
    list_bytes: usize,
    /// Those that there is no room for.
    beyond_limits: BeyondLimits,
    /// Bytes of their traces.
    written_bytes: u64,
    /// The kernel, while its thread records.
    kernel: Option<ChunkControl>,
    /// Its part of the chunk that ends.
    kernel_part: Option<ChunkPart>,
    /// Whether no chunk may end yet: processes of a recorder that was killed are still to join.
    is_held: bool,
}

impl Chunks {
    fn begin(folder: DirHandle, policy: Policy) -> io::Result<Self> {
        Ok(Self {
            series: Series::begin(folder, policy)?,
            begin_ns: tompion_os::monotonic_ns(),
            ended: Vec::new(),
            list_bytes: 0,
            beyond_limits: BeyondLimits::default(),
            written_bytes: 0,
            kernel: None,
            kernel_part: None,
            is_held: false,
        })
    }

    /// Goes on with the chunk of a recorder that was killed.
    fn resume(folder: DirHandle, policy: Policy, taken: TakeOver) -> io::Result<Self> {
        let TakeOver { begin: ChunkBegin { number, begin_ns, .. }, ended } = taken;
        let now = tompion_os::monotonic_ns();
        let begin_ns = begin_ns.unwrap_or(now).min(now);
        let age = Duration::from_nanos(now - begin_ns);
        let Ended { in_chunk, beyond_limits, bytes, .. } = ended;
        Ok(Self {
            series: Series::resume(folder, policy, number, age)?,
            begin_ns,
            list_bytes: in_chunk.iter().map(manifest::Source::size_in_manifest).sum(),
            ended: in_chunk,
            beyond_limits,
            written_bytes: bytes,
            kernel: None,
            kernel_part: None,
            is_held: true,
        })
    }

    /// Lets chunks end: all processes that were taken over have joined.
    pub fn release(&mut self) {
        self.is_held = false;
    }

    /// Processes that have ended, for another recorder.
    fn ended(&self, in_all: Vec<manifest::Source>) -> Ended {
        Ended {
            number: self.series.number(),
            in_chunk: self.ended.clone(),
            beyond_limits: self.beyond_limits.clone(),
            bytes: self.written_bytes,
            in_all,
        }
    }

    /// Folder of the open chunk.
    pub fn open(&self) -> &DirHandle {
        self.series.open()
    }

    /// Processes that ended in the open chunk.
    pub fn sources(&mut self) -> &mut [manifest::Source] {
        &mut self.ended
    }

    /// Takes note of the size of the trace that short processes share, which is complete.
    pub fn add_shared(&mut self, shared: &SourceWriter) {
        self.written_bytes = self.written_bytes.saturating_add(shared.bytes());
    }

    /// Has the open chunk's manifest tell of a source that is complete.
    pub fn add_source(&mut self, source: manifest::Source) {
        add_source(&mut self.ended, &mut self.list_bytes, &mut self.beyond_limits, source);
    }

    /// Has the open chunk's manifest tell of a process that has ended.
    pub fn add(&mut self, process: &mut Process) {
        let source = process.end_chunk(self.series.open());
        self.written_bytes = self.written_bytes.saturating_add(process.bytes());
        add_source(&mut self.ended, &mut self.list_bytes, &mut self.beyond_limits, source);
    }

    /// Has the kernel take part: its trace begins in the open chunk.
    pub fn begin_kernel(&mut self, mut kernel: ChunkControl) {
        kernel.begin(self.series.open());
        self.kernel = Some(kernel);
    }

    /// Has the open chunk's manifest tell of the kernel, whose trace is complete.
    pub fn end_kernel(&mut self, part: ChunkPart) {
        self.kernel = None;
        self.written_bytes = self.written_bytes.saturating_add(part.bytes);
        add_source(&mut self.ended, &mut self.list_bytes, &mut self.beyond_limits, part.source);
    }

    /// The recording has failed between two chunks: the kernel's trace can't go on.
    fn fail_kernel(&mut self) {
        self.kernel.iter_mut().for_each(ChunkControl::fail);
    }

    /// Commits the open chunk behind its manifest. Where that fails, the processes that ended in it
    /// are still to be told of.
    fn commit(
        &mut self,
        manifest: &mut Manifest,
        bytes: u64,
        is_durable: bool,
    ) -> io::Result<CommittedChunk> {
        let end_ns = tompion_os::monotonic_ns();
        let clock = &mut manifest.session.clock;
        let since_1970 = |ns: u64| clock.realtime_offset_ns.saturating_add_unsigned(ns);
        manifest.chunk = Some(Chunk {
            number: self.series.number(),
            begin_ns: Some(since_1970(self.begin_ns)),
            end_ns: Some(since_1970(end_ns)),
        });
        // The last sample before the begin belongs to it, too.
        let before = clock.samples.partition_point(|(_, ns)| *ns < self.begin_ns);
        clock.samples.drain(..before.saturating_sub(1));
        let events = manifest.sources.iter().map(|source| source.events);
        let events = events.fold(manifest.beyond_limits.events, u64::saturating_add);
        manifest.write(self.series.open(), is_durable)?;
        let Committed { number, folder, .. } = self.series.commit(bytes)?;
        (self.ended, self.beyond_limits) = (Vec::new(), BeyondLimits::default());
        (self.begin_ns, self.list_bytes, self.written_bytes) = (end_ns, 0, 0);
        Ok(CommittedChunk { number, folder, events })
    }
}

impl Consumer {
    /// Records in chunks, if a policy says so; `taken` is the chunk of a recorder that was killed.
    ///
    /// # Errors
    /// If a chunk's folder can't be made.
    pub fn with_chunks(mut self, policy: Option<Policy>, taken: Option<TakeOver>) -> io::Result<Self> {
        let folder = self.folder.clone();
        self.chunks = match (policy, taken) {
            (None, _) => None,
            (Some(policy), None) => Some(Chunks::begin(folder, policy)?),
            (Some(policy), Some(taken)) => Some(Chunks::resume(folder, policy, taken)?),
        };
        Ok(self)
    }

    /// Folder in which traces are written.
    pub fn root(&self) -> &DirHandle {
        self.chunks.as_ref().map_or(&self.folder, Chunks::open)
    }

    /// Writes the manifest of the recording. That of one in chunks has no sources.
    pub(super) fn write_manifest_of_recording(&mut self, durable: bool) -> io::Result<()> {
        if self.chunks.is_none() {
            return self.manifest.write(&self.folder, durable);
        }
        let sources = std::mem::take(&mut self.manifest.sources);
        let result = self.manifest.write(&self.folder, durable);
        self.manifest.sources = sources;
        result
    }

    /// Has a recorder that comes back know the processes that have ended, of a recording in chunks:
    /// its manifest has no sources.
    pub(super) fn write_ended(&self) -> io::Result<()> {
        let (Some(backing), Some(chunks)) = (&self.backing, &self.chunks) else { return Ok(()) };
        let ended = chunks.ended(self.manifest.sources.clone());
        ended.write(backing, self.manifest.session.is_durable())
    }

    /// Rotates if the open chunk has reached a limit. Its size is looked at now and then.
    pub(super) fn rotate_when_due(&mut self, with_size: bool) {
        let Some(chunks) = &self.chunks else { return };
        let kernel = || chunks.kernel.as_ref().map_or(0, ChunkControl::bytes);
        let bytes = || if with_size { self.chunk_bytes().saturating_add(kernel()) } else { 0 };
        if !chunks.is_held && chunks.series.is_due(bytes) {
            self.rotate();
        }
    }

    /// Bytes of packets in the open chunk, without the kernel's while its thread records.
    fn chunk_bytes(&self) -> u64 {
        let ended = self.chunks.as_ref().map_or(0, |chunks| chunks.written_bytes);
        let shared = self.shared.as_ref().map_or(0, SourceWriter::bytes);
        self.processes.iter().map(Process::bytes).fold(ended.saturating_add(shared), u64::saturating_add)
    }

    /// Ends the open chunk and begins the next. Returns the committed one; none if the recording is
    /// not in chunks, or has failed.
    pub(super) fn rotate(&mut self) -> Option<CommittedChunk> {
        self.chunks.as_ref()?;
        if !self.settle_chunk() {
            return None;
        }
        match self.commit_chunk(true) {
            Ok(chunk) => chunk,
            Err(error) => {
                self.stop(&error);
                self.chunks.iter_mut().for_each(Chunks::fail_kernel);
                None
            }
        }
    }

    /// Writes all that was read. False if the recording has failed, or the kernel's thread is
    /// ending: then so is the recording.
    fn settle_chunk(&mut self) -> bool {
        self.end_firing_trace();
        self.collect();
        self.sample_in_turn();
        self.convert(Backlog::All);
        self.attempt(|process, _| process.flush());
        self.wait_for_disk();
        self.wait_for_shared();
        self.attempt(|process, _| process.check_written());
        self.complete_shared();
        // Their rings go before the list of another chunk takes the place of the one that has them.
        self.retire_finished();
        self.stopped.is_none() && self.settle_kernel()
    }

    /// Has the kernel's thread write what it has read, and wait for the next chunk. False if it is
    /// ending. It comes last, since it waits until the chunk is committed.
    fn settle_kernel(&mut self) -> bool {
        let Some(kernel) = self.chunks.as_mut().and_then(|chunks| chunks.kernel.as_mut()) else {
            return true;
        };
        let part = kernel.end();
        loop {
            match part.try_recv() {
                Ok(part) => {
                    self.chunks.iter_mut().for_each(|chunks| chunks.kernel_part = Some(part.clone()));
                    return true;
                }
                Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => {
                    std::thread::sleep(super::SLEEP.0);
                    self.collect();
                }
            }
        }
    }

    /// Waits until the shared trace is written.
    fn wait_for_shared(&mut self) {
        while self.shared.as_ref().is_some_and(|shared| !shared.is_settled()) {
            std::thread::sleep(super::SLEEP.0);
            self.collect();
        }
    }

    fn commit_chunk(&mut self, goes_on: bool) -> io::Result<Option<CommittedChunk>> {
        let (bytes, mut manifest) = (self.chunk_bytes(), self.manifest_of_chunk());
        if goes_on {
            self.save_next_chunk()?;
        }
        let is_durable = self.manifest.session.is_durable();
        let Some(chunks) = &mut self.chunks else { return Ok(None) };
        let of_kernel = chunks.kernel_part.take().map_or(0, |part| part.bytes);
        let chunk = chunks.commit(&mut manifest, bytes.saturating_add(of_kernel), is_durable)?;
        if is_durable {
            self.folder.sync()?;
        }
        self.processes.iter_mut().for_each(Process::commit_chunk);
        if goes_on {
            chunks.series.begin_next()?;
            self.backing.iter().for_each(|backing| restart_state::forget(backing, chunk.number));
            self.processes.iter_mut().for_each(|process| process.begin_chunk(chunks.series.open()));
            chunks.kernel.iter_mut().for_each(|kernel| kernel.begin(chunks.series.open()));
        }
        if let Err(error) = chunks.series.expire() {
            let text = format!("can't remove an old chunk: {}", reason(&error));
            self.report_once(text);
        }
        Ok(Some(chunk))
    }

    /// Saves what a recorder needs that goes on in the next chunk.
    fn save_next_chunk(&mut self) -> io::Result<()> {
        let number = self.chunks.as_ref().map_or(0, |chunks| chunks.series.number() + 1);
        let kernel = self.kernel_begins().map(|begins| begins.next);
        let begin = ChunkBegin { number, kernel, ..ChunkBegin::default() };
        self.save_begin(begin, Process::save_for_next_chunk, ChunkBegin::write)
    }

    /// State with which the kernel would begin a chunk.
    fn kernel_begins(&self) -> Option<Begins> {
        self.chunks.as_ref()?.kernel_part.as_ref()?.begins.as_deref().cloned()
    }

    /// Saves the state with which a chunk begins, if the processes outlast the recorder.
    fn save_begin(
        &mut self,
        begin: ChunkBegin,
        save: impl Fn(&mut Process, bool) -> io::Result<Option<ProcessBegin>>,
        write: impl Fn(&ChunkBegin, &DirHandle, bool) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(backing) = &self.backing else { return Ok(()) };
        let is_durable = self.manifest.session.is_durable();
        let mut begin = ChunkBegin { begin_ns: Some(tompion_os::monotonic_ns()), ..begin };
        for process in &mut self.processes {
            let state = save(process, is_durable)?;
            begin.processes.extend(state.map(|state| (process.key, state)));
        }
        write(&begin, backing, is_durable)
    }

    /// Drops the open chunk, if the recording is in chunks.
    pub(super) fn drop_chunk(&mut self) {
        if self.chunks.is_none() || !self.settle_chunk() {
            return;
        }
        let replaced = self.replace_open_chunk();
        let Some(chunks) = &mut self.chunks else { return };
        chunks.kernel_part = None;
        match replaced {
            Ok(()) => chunks.kernel.iter_mut().for_each(|kernel| kernel.replace(chunks.series.open())),
            Err(_) => chunks.fail_kernel(),
        }
        self.processes.iter_mut().for_each(|process| process.replace_chunk(chunks.series.open()));
        if let Err(error) = replaced {
            self.stop(&error);
        }
    }

    /// Removes the open chunk and what is known of it, in steps that another recorder can go on
    /// with, and begins it again.
    fn replace_open_chunk(&mut self) -> io::Result<()> {
        let number = self.chunks.as_ref().map_or(0, |chunks| chunks.series.number());
        let kernel = self.kernel_begins().map(|begins| begins.again);
        let begin = ChunkBegin { number, kernel, ..ChunkBegin::default() };
        self.save_begin(begin, Process::save_for_dropped_chunk, ChunkBegin::write_cleared)?;
        let Some(chunks) = &mut self.chunks else { return Ok(()) };
        chunks.series.set_aside()?;
        restart_state::drop_from(&mut self.manifest.sources, chunks.ended.drain(..));
        (chunks.list_bytes, chunks.written_bytes) = (0, 0);
        (chunks.begin_ns, chunks.beyond_limits) = (tompion_os::monotonic_ns(), BeyondLimits::default());
        self.write_ended()?;
        if let Some(backing) = &self.backing {
            ChunkBegin { number, ..ChunkBegin::default() }.confirm_cleared(backing)?;
        }
        self.chunks.as_mut().map_or(Ok(()), |chunks| chunks.series.drop_open())
    }

    /// Commits the last chunk, of a recording that has ended.
    pub(super) fn commit_last_chunk(&mut self) {
        if self.chunks.is_some() {
            // Also a full disk has room for the manifests then.
            self.reserve = None;
        }
        if let Err(error) = self.commit_chunk(false) {
            self.stop(&error);
        }
    }

    /// Manifest of the open chunk, as if the recording ended now. The counts are the chunk's until
    /// it is committed.
    fn manifest_of_chunk(&mut self) -> Manifest {
        let totals = std::mem::take(&mut self.manifest.sources);
        let mut manifest = self.manifest.clone();
        self.manifest.sources = totals;
        manifest.state = manifest::COMPLETE.into();
        manifest.is_in_chunks = false;
        (manifest.session.recorder, manifest.session.snapshot) = (None, None);
        // It is complete in itself.
        (manifest.session.backing, manifest.session.keeper) = (None, false);
        let samples = self.clock.samples().iter().map(|pair| (pair.tsc, pair.ns)).collect();
        manifest.session.clock = Clock { samples, ..manifest.session.clock };
        let Some(chunks) = &mut self.chunks else { return manifest };
        manifest.sources.clone_from(&chunks.ended);
        manifest.beyond_limits = chunks.beyond_limits.clone();
        let mut list_bytes = chunks.list_bytes;
        for process in &mut self.processes {
            let source = process.end_chunk(chunks.series.open());
            let Manifest { sources, beyond_limits, .. } = &mut manifest;
            add_source(sources, &mut list_bytes, beyond_limits, source);
        }
        manifest.sources.extend(chunks.kernel_part.as_ref().map(|part| part.source.clone()));
        manifest
    }
}
