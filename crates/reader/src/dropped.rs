//! Chunks that a receiver never got: their sender removed them before all of them was sent, and
//! said so by a tombstone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tompion_chunks::committed_chunks;
use tompion_manifest::{DroppedChunk as Tombstone, Manifest};
use tompion_os::DirHandle;

use crate::TraceSet;

/// Number of folders above a trace that are searched for chunks.
const LEVELS: usize = 4;

/// Hole of a recording: a chunk that is missing, or of which only a part is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DroppedChunk {
    /// Folder of the recording.
    #[serde(skip)]
    pub recording: PathBuf,
    /// Number of the chunk.
    pub number: u64,
    /// Reason, in words.
    pub reason: String,
    /// End of the chunk before it, in nanoseconds since 1970, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ns: Option<i64>,
    /// Begin of the chunk behind it, in nanoseconds since 1970, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_ns: Option<i64>,
}

impl DroppedChunk {
    /// Row for a summary: `chunk 3 after … and before …  (why)`; `moment` shows times.
    pub fn row(&self, moment: &dyn Fn(i64) -> String) -> String {
        let bound = |word: &str, time: Option<i64>| {
            time.map_or(String::new(), |time| format!(" {word} {}", moment(time)))
        };
        let (after, before) = (bound("after", self.after_ns), bound("before", self.before_ns));
        format!("chunk {}{after}{before}  ({})", self.number, self.reason)
    }
}

/// Finds the chunks that are missing in the recordings of some traces, in the order of their
/// numbers.
pub fn dropped_chunks(traces: &TraceSet) -> Vec<DroppedChunk> {
    let is_opened = |folder: &Path| traces.roots().iter().any(|root| folder.starts_with(root));
    let opened = traces.traces().iter().map(|trace| trace.path.as_path());
    let all = opened.chain(traces.roots().iter().map(PathBuf::as_path));
    let folders = all.flat_map(|path| path.ancestors().take(LEVELS)).filter(|folder| is_opened(folder));
    let folders: BTreeSet<&Path> = folders.collect();
    folders.into_iter().flat_map(of_recording).collect()
}

fn of_recording(folder: &Path) -> Vec<DroppedChunk> {
    let Ok(handle) = DirHandle::open(folder) else { return Vec::new() };
    let chunks = committed_chunks(&handle).unwrap_or_default();
    let times = |chunk: &DirHandle| {
        let bytes = chunk.read_bounded(tompion_manifest::FILE, tompion_manifest::MAX_BYTES).ok()?;
        Manifest::parse(&bytes).ok()?.chunk
    };
    let mut dropped = Vec::new();
    for (index, (number, chunk)) in chunks.iter().enumerate() {
        let Some(Tombstone { reason, .. }) = Tombstone::read(chunk) else { continue };
        let (before, behind) = chunks.split_at(index);
        let after_ns = before.iter().rev().find_map(|(_, chunk)| times(chunk)?.end_ns);
        let before_ns = behind.iter().skip(1).find_map(|(_, chunk)| times(chunk)?.begin_ns);
        let recording = folder.to_owned();
        dropped.push(DroppedChunk { recording, number: *number, reason, after_ns, before_ns });
    }
    dropped
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tompion_testing::TestDir;

    use super::*;

    #[test]
    fn holes_are_between_the_chunks_that_are_there() {
        let dir = TestDir::new("holes");
        for number in 1..=4_i64 {
            let folder = dir.join(format!("chunk-{number:06}"));
            fs::create_dir(&folder).unwrap();
            let (begin, end) = (number * 10, number * 10 + 9);
            let manifest = serde_json::json!({
                "schema": 1, "state": "complete", "sources": [],
                "chunk": { "number": number, "begin_ns": begin, "end_ns": end },
            });
            fs::write(folder.join("tompion.json"), manifest.to_string()).unwrap();
        }
        assert_eq!(of_recording(&dir), []);
        for number in [2, 3] {
            let handle = DirHandle::open(&dir.join(format!("chunk-00000{number}"))).unwrap();
            fs::remove_file(handle.path().join("tompion.json")).unwrap();
            Tombstone { number, reason: "removed".into() }.write(&handle).unwrap();
        }
        let found: Vec<_> =
            of_recording(&dir).into_iter().map(|it| (it.number, it.after_ns, it.before_ns)).collect();
        assert_eq!(found, [(2, Some(19), Some(40)), (3, Some(19), Some(40))]);
    }
}
