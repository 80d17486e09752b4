//! What Tompion's recordings say of themselves in `tompion.json`.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tompion_reader::{TraceSet, manifest};

/// Largest file in bytes.
const MAX_SIZE: u64 = 64 << 20;
/// How many folders up from a trace the file is looked for.
const LEVELS: usize = 4;

/// What recordings tell.
#[derive(Debug, Default)]
pub struct Told {
    /// Folders of the traces of which losses are told.
    pub traces: Vec<PathBuf>,
    /// Lost events of all.
    pub lost: u64,
    /// Overwritten events of each trace.
    pub overwritten: Vec<(PathBuf, u64)>,
    /// What was wrong.
    pub damages: Vec<String>,
}

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    state: String,
}

/// What the recordings of these traces tell.
pub fn told(traces: &TraceSet) -> Told {
    let mut told = Told::default();
    let mut folders: BTreeMap<PathBuf, ()> = BTreeMap::new();
    for trace in traces.traces() {
        for folder in trace.path.ancestors().take(LEVELS) {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            folders.insert(folder.into(), ());
        }
    }
    for folder in folders.into_keys() {
        let path = folder.join(manifest::NAME);
        let Some(bytes) = read(&path, MAX_SIZE) else { continue };
        let manifest: manifest::Manifest = match serde_json::from_slice(&bytes) {
            Ok(manifest) => manifest,
            Err(error) => {
                told.damages.push(format!("{}: {error}", path.display()));
                continue;
            }
        };
        for source in manifest.sources {
            let place = folder.join(&source.path);
            if traces.traces().iter().any(|trace| trace.path == place) {
                told.lost = source.lost.values().fold(told.lost, |sum, lost| sum.saturating_add(*lost));
                if source.overwritten > 0 {
                    told.overwritten.push((place.clone(), source.overwritten));
                }
                told.traces.push(place);
            }
        }
    }
    told
}

#[derive(Deserialize)]
struct Recorded {
    #[serde(default)]
    command: Vec<String>,
}

/// Returns the names of the programs that recordings at these paths started.
pub fn commands(paths: &[PathBuf]) -> Vec<String> {
    let name = |folder: &Path| {
        let bytes = read(&folder.join(manifest::NAME), MAX_SIZE)?;
        let recorded: Recorded = serde_json::from_slice(&bytes).ok()?;
        let program = Path::new(recorded.command.first()?).file_name()?;
        Some(program.to_string_lossy().into_owned())
    };
    paths.iter().filter_map(|path| path.ancestors().take(LEVELS).find_map(name)).collect()
}

/// Whether one of these folders is of a recording that goes on.
pub fn is_recording(paths: &[PathBuf]) -> bool {
    let mut folders = paths.iter().flat_map(|path| path.ancestors().take(LEVELS));
    folders.any(|folder| {
        let bytes = read(&folder.join(manifest::NAME), MAX_SIZE);
        let state = bytes.and_then(|bytes| serde_json::from_slice::<State>(&bytes).ok());
        state.is_some_and(|state| state.state == "recording")
    })
}

/// What stands beside a trace, if it is a file and no larger: a pipe would never end.
pub fn read(path: &Path, max_size: u64) -> Option<Vec<u8>> {
    let file = tompion_os::open_regular(path).ok()?;
    let mut bytes = Vec::new();
    file.take(max_size.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= max_size).then_some(bytes)
}
