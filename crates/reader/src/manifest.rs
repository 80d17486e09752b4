//! `tompion.json`: what a Tompion recording says of its sources beyond their traces.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::{Damage, TraceSet};

/// The file's name, in the recording's top folder.
pub const NAME: &str = "tompion.json";
/// Version that this reader knows.
pub const SCHEMA: u64 = 1;
/// Largest file in bytes.
const MAX_SIZE: u64 = 64 << 20;
/// How many folders up from a trace the file is looked for.
const LEVELS: usize = 4;

/// A recording.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Manifest {
    /// Version of the file.
    #[serde(default)]
    pub schema: u64,
    /// What was recorded.
    #[serde(default)]
    pub sources: Vec<Source>,
    /// Whether more was lost than the sources tell, which nobody can know.
    #[serde(default)]
    pub losses_unknown: bool,
    /// Processes that asked to take part and could not.
    #[serde(default)]
    pub left_out: u64,
}

/// What manifests say of what was opened.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The sources below the paths that were opened, each with its trace's folder.
    pub sources: Vec<(PathBuf, Source)>,
    /// Whether one of the recordings lost more than its sources tell.
    pub losses_unknown: bool,
    /// How many processes could not take part in the recordings.
    pub left_out: u64,
    /// What was wrong.
    pub damages: Vec<Damage>,
}

/// One source of events: a process, or the kernel.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Source {
    /// The trace's folder, from the recording's top folder.
    pub path: PathBuf,
    /// `user` or `kernel`.
    #[serde(default)]
    pub kind: String,
    /// The process.
    #[serde(default)]
    pub pid: Option<i64>,
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its program's file.
    #[serde(default)]
    pub executable: Option<String>,
    /// How it wrote its events: `rseq`, or `reserve` where there were no restartable sequences. Older recordings
    /// don't say it.
    #[serde(default)]
    pub producer: Option<String>,
    /// How it ended: `exited`, `killed by signal 9`, `running`.
    #[serde(default)]
    pub end: Option<String>,
    /// Events recorded.
    #[serde(default)]
    pub events: u64,
    /// Events lost, by cause.
    #[serde(default)]
    pub lost: BTreeMap<String, u64>,
    /// Events that the flight recorder overwrote.
    #[serde(default)]
    pub overwritten: u64,
}

/// Reads the manifests of what was opened.
pub(crate) fn told(traces: &TraceSet) -> Told {
    let mut folders: BTreeMap<PathBuf, Result<Option<Manifest>, Damage>> = BTreeMap::new();
    let opened = traces.traces().iter().map(|trace| trace.path.as_path());
    for path in opened.chain(traces.roots().iter().map(PathBuf::as_path)) {
        for folder in path.ancestors().take(LEVELS) {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            folders.entry(folder.into()).or_insert_with(|| read(folder));
        }
    }
    let mut told = Told::default();
    for (folder, manifest) in folders {
        match manifest {
            Ok(None) => {}
            Ok(Some(manifest)) => {
                told.losses_unknown |= manifest.losses_unknown;
                told.left_out = told.left_out.saturating_add(manifest.left_out);
                let found = manifest.sources.into_iter().filter(|source| stays_below(&source.path));
                let found = found.map(|source| (plain(&folder.join(&source.path)), source));
                told.sources.extend(found.filter(|(path, _)| is_below(path, traces.roots())));
            }
            Err(damage) => told.damages.push(damage),
        }
    }
    told
}

/// A path without `.`, so that equal places compare equal.
pub(crate) fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// Whether a path cannot lead out of the folder that it is joined to.
fn stays_below(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::CurDir | Component::Normal(_)))
}

fn is_below(path: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| path.starts_with(plain(root)))
}

fn read(folder: &Path) -> Result<Option<Manifest>, Damage> {
    let path = folder.join(NAME);
    let damage = |message: String| Damage { path: path.clone(), offset: None, message };
    let size = match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => return Ok(None),
    };
    if size > MAX_SIZE {
        return Err(damage(format!("expected at most {MAX_SIZE} bytes, found {size}")));
    }
    let bytes = fs::read(&path).map_err(|error| damage(error.to_string()))?;
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|error| damage(error.to_string()))?;
    if manifest.schema != SCHEMA {
        return Err(damage(format!("expected schema {SCHEMA}, found {}", manifest.schema)));
    }
    Ok(Some(manifest))
}
