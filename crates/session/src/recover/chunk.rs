//! Recovery of the chunk that was being written when the recorder was killed. Committed chunks are
//! complete, and stay as they are.

use std::{collections::BTreeMap, time::Duration};

use tompion_chunks::{Policy, Series};
use tompion_manifest::{self as manifest, Chunk, KERNEL, Manifest, Source};
use tompion_os::DirHandle;
use tompion_restart_state::{ChunkBegin, Ended, TakeOver, take_over};

use super::{KeptFiles, Recovery};

/// The chunk that was open when the recorder was killed, of processes with kept rings.
pub(super) struct OpenChunk {
    backing: DirHandle,
    /// State with which it began.
    pub begin: ChunkBegin,
    /// Processes that have ended, or were completed.
    pub ended: Ended,
}

impl OpenChunk {
    /// Names a process that is complete in the list of those that the chunk's manifest is to name.
    pub fn name(&mut self, source: Source, key: u64) -> Result<(), String> {
        let before = self.begin.processes.get(&key).map(|process| process.counts.clone());
        self.ended.in_all.push(source.clone());
        self.ended.in_chunk.push(source.since(&before.unwrap_or_default()));
        let written = self.ended.write(&self.backing, true);
        written.map_err(|error| format!("can't write to {}: {error}", self.backing.path().display()))
    }
}

/// Completes the part of the kernel's trace that is in the open chunk of a recorder that was
/// killed. Returns problems for users, one line each.
pub fn complete_kernel_in_chunk(
    folder: &DirHandle,
    backing: &DirHandle,
    recording: &mut Manifest,
    TakeOver { begin, ended }: &mut TakeOver,
) -> Vec<String> {
    if !recording.session.kernel {
        return Vec::new();
    }
    let mut recovery = Recovery::of(folder.clone(), KeptFiles::Gone);
    let completed = recovery.earlier_losses().and_then(|earlier| {
        let series = open_series(folder, begin.number)?;
        recovery.folder = series.open().clone();
        let mut chunk = Manifest { session: recording.session.clone(), ..Manifest::default() };
        chunk.sources.extend(ended.in_chunk.iter().filter(|source| source.kind == KERNEL).cloned());
        let known = chunk.sources.len();
        recovery.complete_kernel(&mut chunk);
        for mut source in chunk.sources.drain(known..) {
            ended.in_all.push(source.clone());
            earlier.subtract(&mut source);
            ended.in_chunk.push(source);
        }
        ended.write(backing, true).map_err(|error| error.to_string())
    });
    recovery.problems.extend(completed.err());
    recording.losses_unknown = true;
    recovery.problems
}

/// The series of a recording, with the open chunk of this number. Its folder is made if it is not
/// there.
fn open_series(folder: &DirHandle, number: u64) -> Result<Series, String> {
    let series = Series::resume(folder.clone(), Policy::default(), number, Duration::ZERO);
    series.map_err(|error| format!("{}: {error}", folder.path().display()))
}

impl Recovery {
    /// Completes the traces of the processes with kept rings in the chunk that was open, commits it
    /// and returns its manifest; none if it was not begun.
    pub(super) fn complete_rings_in_chunk(
        &mut self,
        backing: &DirHandle,
        recording: &mut Manifest,
    ) -> Result<Option<Manifest>, String> {
        let TakeOver { begin, ended } = take_over(&self.folder, backing, true)?;
        let mut series = open_series(&self.folder, begin.number)?;
        let earlier = self.earlier_losses()?;
        let (number, begin_of_kernel) = (begin.number, begin.kernel.clone());
        self.open = Some(OpenChunk { backing: backing.clone(), begin, ended });
        let above = std::mem::replace(&mut self.folder, series.open().clone());
        let result = self.complete_rings(backing, recording);
        let Some(OpenChunk { ended, .. }) = self.open.take() else { return Ok(None) };
        result?;
        let mut chunk = Manifest {
            state: manifest::RECOVERED.into(),
            chunk: Some(Chunk { number, begin_ns: earlier.last_end_ns, end_ns: None }),
            is_in_chunks: false,
            sources: ended.in_chunk,
            beyond_limits: ended.beyond_limits,
            ..recording.clone()
        };
        (chunk.session.recorder, chunk.session.snapshot) = (None, None);
        (chunk.session.backing, chunk.session.keeper) = (None, false);
        self.complete_held_kernel(&mut chunk, begin_of_kernel);
        let known = chunk.sources.len();
        self.complete_kernel(&mut chunk);
        recording.losses_unknown = chunk.losses_unknown;
        chunk.sources.iter_mut().skip(known).for_each(|source| earlier.subtract(source));
        if self.is_complete {
            self.write(&chunk)?;
            series.commit(0).map_err(|error| format!("{}: {error}", self.folder.path().display()))?;
        }
        self.folder = above;
        Ok(Some(chunk))
    }

    /// Completes and commits the chunk that was being written, and returns its manifest; none if
    /// all chunks are committed.
    pub(super) fn complete_chunk(&mut self, recording: &Manifest) -> Result<Option<Manifest>, String> {
        let shown = self.folder.path().display().to_string();
        let in_words = |error| format!("{shown}: {error}");
        if let Some((_, dropped)) = tompion_chunks::dropped_chunk(&self.folder).map_err(in_words)? {
            dropped.remove_all().map_err(in_words)?;
        }
        let found = tompion_chunks::open_chunk(&self.folder).map_err(in_words)?;
        let Some((number, open, committed)) = found else { return Ok(None) };
        if !open.has(manifest::FILE) {
            let earlier = self.earlier_losses()?;
            let above = std::mem::replace(&mut self.folder, open.clone());
            let begin_ns = earlier.last_end_ns;
            let mut chunk = Manifest {
                state: manifest::RECOVERED.into(),
                chunk: Some(Chunk { number, begin_ns, end_ns: None }),
                is_in_chunks: false,
                sources: Vec::new(),
                ..recording.clone()
            };
            (chunk.session.recorder, chunk.session.snapshot) = (None, None);
            let result = self.complete_files(&mut chunk);
            self.complete_kernel(&mut chunk);
            chunk.sources.iter_mut().for_each(|source| earlier.subtract(source));
            let result = result.and_then(|()| self.write(&chunk));
            self.folder = above;
            result?;
        }
        // Else it was killed before it could rename it.
        open.rename_to(&committed).map_err(|error| format!("{}: {error}", open.path().display()))?;
        Manifest::read(&committed).map(Some)
    }

    /// Losses that earlier chunks tell of: packets count from the begin of the recording.
    fn earlier_losses(&self) -> Result<EarlierLosses, String> {
        let chunks = tompion_chunks::committed_chunks(&self.folder);
        let chunks = chunks.map_err(|error| format!("{}: {error}", self.folder.path().display()))?;
        let mut earlier = EarlierLosses::default();
        let mut next = 1;
        for (number, folder) in chunks {
            let manifest = Manifest::read(&folder)?;
            earlier.has_gap |= number != next;
            next = number + 1;
            earlier.last_end_ns = manifest.chunk.and_then(|chunk| chunk.end_ns);
            for Source { path, lost, overwritten, .. } in manifest.sources {
                let (sum, of_overwritten) = earlier.by_path.entry(path).or_default();
                *sum = lost.values().fold(*sum, |sum, count| sum.saturating_add(*count));
                *of_overwritten = of_overwritten.saturating_add(overwritten);
            }
        }
        Ok(earlier)
    }
}

/// Losses that earlier chunks tell of.
#[derive(Default)]
struct EarlierLosses {
    /// Lost and overwritten events of each source.
    by_path: BTreeMap<String, (u64, u64)>,
    /// Whether a chunk is missing, so that more were lost.
    has_gap: bool,
    /// End of the newest chunk.
    last_end_ns: Option<i64>,
}

impl EarlierLosses {
    /// Takes the losses of earlier chunks from a source's. The manifest says that losses are not
    /// known.
    fn subtract(&self, source: &mut Source) {
        if self.has_gap {
            source.lost.clear();
            source.overwritten = 0;
            return;
        }
        let (mut lost, overwritten) = self.by_path.get(&source.path).copied().unwrap_or_default();
        source.overwritten = source.overwritten.saturating_sub(overwritten);
        for count in source.lost.values_mut() {
            let earlier = lost.min(*count);
            *count -= earlier;
            lost -= earlier;
        }
        source.lost.retain(|_, count| *count != 0);
    }
}
