//! Reads `tompion.json`, in which a Tompion recording describes its sources beyond their traces.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;
use tompion_chunks::committed_chunks;
use tompion_manifest::{BeyondLimits, KERNEL, RECORDER};
pub use tompion_manifest::{
    Child, CommandEnd, FILE as NAME, Firing, MAX_BYTES, Manifest, Program, RUNNING, RuleChange, Source,
    Target, TriggerChange, VFORK_CHILD,
};

use tompion_os::DirHandle;

use crate::{Corruption, TraceSet};

/// Number of folders above a trace that are searched for the file.
const LEVELS: usize = 4;

/// Program that a process executed, with what the recording states of the process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ExecutedProgram {
    /// Process id.
    pub pid: i64,
    /// The program's file.
    pub file: String,
    /// The process, if the recording lists exactly one child with this process id.
    #[serde(skip)]
    pub child: Option<Child>,
}

/// Content of all manifests that belong to a set of traces.
#[derive(Debug, Default)]
pub(crate) struct ManifestInfo {
    /// Commands of the recordings, each with its end if that is known.
    pub commands: Vec<(Vec<String>, Option<CommandEnd>)>,
    /// Programs that the recorded processes and their descendants executed.
    pub programs: Vec<ExecutedProgram>,
    /// Descendants of the recorded processes.
    pub children: Vec<Child>,
    /// Sources below the opened paths, each with the folder of its trace.
    pub sources: Vec<(PathBuf, Source)>,
    /// Whether one of the recordings lost more than its sources state.
    pub losses_unknown: bool,
    /// Number of processes that could not take part in the recordings.
    pub rejected_processes: u64,
    /// Counts of what programs sent beyond the limits of the recordings.
    pub beyond_limits: BTreeMap<String, u64>,
    /// Processes that ran already and were named to be recorded.
    pub targets: Vec<Target>,
    /// Changes of the recordings' rules.
    pub rule_changes: Vec<RuleChange>,
    /// Changes of the recordings' triggers.
    pub trigger_changes: Vec<TriggerChange>,
    /// Firings of the recordings' triggers.
    pub firings: Vec<Firing>,
    /// Problems with the files.
    pub corruptions: Vec<Corruption>,
}

impl ManifestInfo {
    /// Adds those sources of a manifest in a folder that are below the opened paths.
    fn add_sources(&mut self, folder: &Path, sources: Vec<Source>, roots: &[PathBuf]) {
        let found = sources.into_iter().filter(|source| stays_below(Path::new(&source.path)));
        let found = found.map(|source| (plain(&folder.join(&source.path)), source));
        self.sources.extend(found.filter(|(path, _)| is_below(path, roots)));
    }
}

/// Whether a source is the kernel, the recorder, or a process of which the id is known.
pub(crate) fn names_processes(source: &Source) -> bool {
    source.kind == KERNEL || source.kind == RECORDER || source.pid.is_some()
}

/// Reads the manifests that belong to a set of traces.
pub(crate) fn read_all(traces: &TraceSet) -> ManifestInfo {
    let mut folders: BTreeMap<PathBuf, Result<Option<Manifest>, Corruption>> = BTreeMap::new();
    let opened = traces.traces().iter().map(|trace| trace.path.as_path());
    for path in opened.chain(traces.roots().iter().map(PathBuf::as_path)) {
        for folder in path.ancestors().take(LEVELS) {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            folders.entry(folder.into()).or_insert_with(|| read(folder));
        }
    }
    for folder in chunks_without_traces(&folders, traces.roots()) {
        folders.entry(folder).or_insert_with_key(|folder| read(folder));
    }
    let is_in_chunks =
        |folder: &Path| matches!(folders.get(folder), Some(Ok(Some(manifest))) if manifest.is_in_chunks);
    let above = |folder: &Path| match folder.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Some(PathBuf::from(".")),
        parent => parent.map(Path::to_owned),
    };
    let is_of_chunk = |folder: &&PathBuf| above(folder).is_some_and(|above| is_in_chunks(&above));
    let of_chunks: HashSet<PathBuf> = folders.keys().filter(is_of_chunk).cloned().collect();
    let mut info = ManifestInfo::default();
    for (folder, manifest) in folders {
        let is_part = of_chunks.contains(&folder);
        match manifest {
            Ok(None) => {}
            // What the recording's own manifest has is not repeated.
            Ok(Some(manifest)) if is_part && manifest.chunk.is_some() => {
                info.losses_unknown |= manifest.losses_unknown;
                info.add_sources(&folder, manifest.sources, traces.roots());
            }
            Ok(Some(mut manifest)) => {
                info.programs.extend(join_children(&mut manifest));
                info.losses_unknown |= manifest.losses_unknown;
                info.children.extend(manifest.children);
                if !manifest.command.is_empty() {
                    info.commands.push((manifest.command, manifest.command_end));
                }
                info.rejected_processes = info.rejected_processes.saturating_add(manifest.rejected_processes);
                add_counts(&mut info.beyond_limits, &manifest.beyond_limits);
                info.rule_changes.append(&mut manifest.rule_changes);
                info.trigger_changes.append(&mut manifest.trigger_changes);
                info.firings.append(&mut manifest.firings);
                info.targets.append(&mut manifest.targets);
                info.add_sources(&folder, manifest.sources, traces.roots());
            }
            Err(corruption) => info.corruptions.push(corruption),
        }
    }
    info
}

/// Returns the chunks of the recordings in these folders: one may have no trace, and yet say how
/// processes ended, and what was lost.
fn chunks_without_traces(
    folders: &BTreeMap<PathBuf, Result<Option<Manifest>, Corruption>>,
    roots: &[PathBuf],
) -> Vec<PathBuf> {
    let in_chunks = folders.iter().filter(|(folder, manifest)| {
        matches!(manifest, Ok(Some(manifest)) if manifest.is_in_chunks) && is_below(&plain(folder), roots)
    });
    let chunks_of = |folder: &PathBuf| {
        let chunks = DirHandle::open(folder).and_then(|handle| committed_chunks(&handle)).unwrap_or_default();
        let names = chunks.into_iter().filter_map(|(_, chunk)| chunk.path().file_name().map(Into::into));
        names.map(|name: PathBuf| folder.join(name)).collect::<Vec<_>>()
    };
    in_chunks.flat_map(|(folder, _)| chunks_of(folder)).collect()
}

/// Adds the counts of a recording that are not 0.
fn add_counts(sums: &mut BTreeMap<String, u64>, of: &BeyondLimits) {
    for (name, count) in of.counts().filter(|(_, count)| *count > 0) {
        let sum = sums.entry(name.to_owned()).or_default();
        *sum = sum.saturating_add(count);
    }
}

/// Takes a recording's programs, each with its process if that is one of the children alone, and
/// gives its sources the ends that its children have.
fn join_children(manifest: &mut Manifest) -> Vec<ExecutedProgram> {
    let children = manifest.join_children();
    let join = |Program { pid, file }| ExecutedProgram { pid, file, child: children.get(&pid).cloned() };
    std::mem::take(&mut manifest.programs).into_iter().map(join).collect()
}

/// Returns for each trace whether the flight recorder has overwritten events of it.
pub fn overwrites(traces: &TraceSet) -> Vec<bool> {
    let sources = read_all(traces).sources;
    let overwritten = sources.iter().filter(|(_, source)| source.overwritten > 0);
    let folders: HashSet<&PathBuf> = overwritten.map(|(path, _)| path).collect();
    traces.traces().iter().map(|trace| folders.contains(&plain(&trace.path))).collect()
}

/// Formats a command line as a shell would take it.
pub fn shell_line(words: &[String]) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_@%+=:,./-".contains(letter);
    let quoted = words.iter().map(|word| match word.chars().all(is_plain) && !word.is_empty() {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Removes `.` from a path, so that equal places compare equal.
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

fn read(folder: &Path) -> Result<Option<Manifest>, Corruption> {
    let path = folder.join(NAME);
    let corruption = |message: String| Corruption { path: path.clone(), offset: None, message };
    let size = match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => return Ok(None),
    };
    if size > MAX_BYTES {
        return Err(corruption(format!("expected at most {MAX_BYTES} bytes, found {size}")));
    }
    let mut bytes = Vec::new();
    let file = tompion_os::open_regular(&path).map_err(|error| corruption(error.to_string()))?;
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(|error| corruption(error.to_string()))?;
    Manifest::parse(&bytes).map(Some).map_err(corruption)
}
