//! Losses that Tompion's recordings counted in `tompion.json`.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tompion_reader::{TraceSet, dropped, manifest, text};

/// Number of parent folders of a trace in which the file is searched.
pub const LEVELS: usize = 4;

/// Losses as recordings count them.
#[derive(Debug, Default)]
pub struct RecordedLosses {
    /// Folders of the traces with counted losses.
    pub traces: Vec<PathBuf>,
    /// Lost events of all traces.
    pub lost: u64,
    /// Overwritten events of each trace.
    pub overwritten: Vec<(PathBuf, u64)>,
    /// Unreadable files, a line each.
    pub damages: Vec<String>,
}

/// Returns the losses that the recordings of these traces counted.
pub fn recorded_losses(traces: &TraceSet) -> RecordedLosses {
    let mut losses = RecordedLosses::default();
    let dropped = dropped::dropped_chunks(traces);
    let line = |dropped| text::dropped_warning(dropped, &text::PrintOptions::default());
    losses.damages.extend(dropped.iter().map(line));
    let mut folders: BTreeMap<PathBuf, ()> = BTreeMap::new();
    for trace in traces.traces() {
        for folder in trace.path.ancestors().take(LEVELS) {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            folders.insert(folder.into(), ());
        }
    }
    for folder in folders.into_keys() {
        let path = folder.join(manifest::NAME);
        let Some(bytes) = read(&path, manifest::MAX_BYTES) else { continue };
        let manifest = match manifest::Manifest::parse(&bytes) {
            Ok(manifest) => manifest,
            Err(error) => {
                losses.damages.push(format!("{}: {error}", path.display()));
                continue;
            }
        };
        for source in manifest.sources {
            let place = folder.join(&source.path);
            if traces.traces().iter().any(|trace| trace.path == place) {
                losses.lost = source.lost.values().fold(losses.lost, |sum, lost| sum.saturating_add(*lost));
                if source.overwritten > 0 {
                    losses.overwritten.push((place.clone(), source.overwritten));
                }
                losses.traces.push(place);
            }
        }
    }
    losses
}

/// Reads a file beside a trace, if it is a regular file of limited size: a FIFO would never end.
pub fn read(path: &Path, max_size: u64) -> Option<Vec<u8>> {
    let file = tompion_os::open_regular(path).ok()?;
    let mut bytes = Vec::new();
    file.take(max_size.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= max_size).then_some(bytes)
}
