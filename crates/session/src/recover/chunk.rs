//! Recovery of the chunk that was being written when the recorder was killed. Committed chunks are
//! complete, and stay as they are.

use std::collections::BTreeMap;

use tompion_manifest::{self as manifest, Chunk, Manifest, Source};

use super::Recovery;

impl Recovery {
    /// Completes and commits the chunk that was being written, and returns its manifest; none if
    /// all chunks are committed.
    pub(super) fn complete_chunk(&mut self, recording: &Manifest) -> Result<Option<Manifest>, String> {
        let shown = self.folder.path().display().to_string();
        let in_words = |error| format!("{shown}: {error}");
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
