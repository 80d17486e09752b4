//! Reads `tompion.json`, in which a Tompion recording describes its sources beyond their traces.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Corruption, TraceSet};

/// Name of the file, in the recording's top folder.
pub const NAME: &str = "tompion.json";
/// Schema version that this reader supports.
pub const SCHEMA: u64 = 1;
/// Cause under which a source counts events of children that run on their parent's memory.
pub const VFORK_CHILD: &str = "vfork_child";
/// End of a process of which the recorder saw only that it was gone.
const ENDED: &str = "ended";
/// Maximum size of the file in bytes.
const MAX_SIZE: u64 = 64 << 20;
/// Number of folders above a trace that are searched for the file.
const LEVELS: usize = 4;

/// Content of the file.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Manifest {
    /// Schema version of the file.
    #[serde(default)]
    pub schema: u64,
    /// Recorded command and its arguments; empty if processes were recorded that ran already.
    #[serde(default)]
    pub command: Vec<String>,
    /// End of the command, if the recording waited for it.
    #[serde(default)]
    pub command_end: Option<CommandEnd>,
    /// Programs that the recorded processes and their descendants executed, as far as seen.
    #[serde(default)]
    pub programs: Vec<Program>,
    /// Descendants of the recorded processes, as far as the kernel's events told of them.
    #[serde(default)]
    pub children: Vec<Child>,
    /// Sources of events that were recorded.
    #[serde(default)]
    pub sources: Vec<Source>,
    /// Whether more events were lost than the sources state. Their number cannot be known.
    #[serde(default)]
    pub losses_unknown: bool,
    /// Number of processes that asked to take part and could not.
    #[serde(default, alias = "left_out")]
    pub rejected_processes: u64,
    /// Counts of what programs sent beyond the limits of a recording, which was not kept.
    #[serde(default)]
    pub beyond_limits: BTreeMap<String, u64>,
}

/// End of a recorded command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct CommandEnd {
    /// Process id.
    pub pid: i64,
    /// End in words: `exited with 7`, `killed by signal 9`.
    pub end: String,
}

/// Descendant of the recorded processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Child {
    /// Process id.
    pub pid: i64,
    /// Process that forked it.
    pub parent: i64,
    /// Its end in words; none if it was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

/// Program that a process executed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Program {
    /// Process id.
    pub pid: i64,
    /// The program's file.
    pub file: String,
    /// The process, if the recording names one child of this number and no second one.
    #[serde(skip)]
    pub child: Option<Child>,
}

/// Content of all manifests that belong to a set of traces.
#[derive(Debug, Default)]
pub(crate) struct ManifestInfo {
    /// Commands of the recordings, each with its end if that is known.
    pub commands: Vec<(Vec<String>, Option<CommandEnd>)>,
    /// Programs that the recorded processes and their descendants executed.
    pub programs: Vec<Program>,
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
    /// Problems with the files.
    pub corruptions: Vec<Corruption>,
}

/// Source of events: a process, or the kernel.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Source {
    /// Folder of the trace, relative to the recording's top folder.
    pub path: PathBuf,
    /// Kind of the source: `user` or `kernel`.
    #[serde(default)]
    pub kind: String,
    /// Process id.
    #[serde(default)]
    pub pid: Option<i64>,
    /// Name of the process.
    #[serde(default)]
    pub name: Option<String>,
    /// Path of the program.
    #[serde(default)]
    pub executable: Option<String>,
    /// Parent of the process when it joined the recording; 0 if unknown.
    #[serde(default)]
    pub parent: i64,
    /// Command line of the process when it joined, cut to a bounded length; empty if unknown.
    #[serde(default)]
    pub command_line: Vec<String>,
    /// Write protocol of the producer: `rseq`, or `reserve` where restartable sequences were
    /// unavailable. Older recordings don't have it.
    #[serde(default)]
    pub producer: Option<String>,
    /// State at the end: `exited`, `killed by signal 9`, `running`.
    #[serde(default)]
    pub end: Option<String>,
    /// Number of recorded events.
    #[serde(default)]
    pub events: u64,
    /// Number of lost events by cause.
    #[serde(default)]
    pub lost: BTreeMap<String, u64>,
    /// Number of events that the flight recorder overwrote.
    #[serde(default)]
    pub overwritten: u64,
    /// Whether its loss counters are impossible, so that its losses are unknown.
    #[serde(default)]
    pub losses_unknown: bool,
}

impl Source {
    /// Returns whether the source is the kernel, or a process whose id is known.
    pub(crate) fn names_processes(&self) -> bool {
        self.kind == "kernel" || self.pid.is_some()
    }
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
    let mut info = ManifestInfo::default();
    for (folder, manifest) in folders {
        match manifest {
            Ok(None) => {}
            Ok(Some(mut manifest)) => {
                join_children(&mut manifest);
                info.losses_unknown |= manifest.losses_unknown;
                info.programs.extend(manifest.programs);
                info.children.extend(manifest.children);
                if !manifest.command.is_empty() {
                    info.commands.push((manifest.command, manifest.command_end));
                }
                info.rejected_processes = info.rejected_processes.saturating_add(manifest.rejected_processes);
                for (what, count) in manifest.beyond_limits {
                    let sum = info.beyond_limits.entry(what).or_default();
                    *sum = sum.saturating_add(count);
                }
                let found = manifest.sources.into_iter().filter(|source| stays_below(&source.path));
                let found = found.map(|source| (plain(&folder.join(&source.path)), source));
                info.sources.extend(found.filter(|(path, _)| is_below(path, traces.roots())));
            }
            Err(corruption) => info.corruptions.push(corruption),
        }
    }
    info
}

/// Adds what a recording says of its children to its programs, and to processes of which it says
/// only that they have ended. Numbers that were used twice, or may have been, join nothing: they
/// don't tell which process is meant.
fn join_children(manifest: &mut Manifest) {
    if manifest.beyond_limits.get("children").is_some_and(|unlisted| *unlisted > 0) {
        return;
    }
    let Manifest { children, programs, sources, .. } = manifest;
    let mut by_pid: BTreeMap<i64, Option<&Child>> = BTreeMap::new();
    for child in &*children {
        by_pid.entry(child.pid).and_modify(|known| *known = None).or_insert(Some(child));
    }
    let child_of = |pid: i64| by_pid.get(&pid).copied().flatten();
    for program in programs {
        program.child = child_of(program.pid).cloned();
    }
    let mut processes: BTreeMap<i64, usize> = BTreeMap::new();
    sources.iter().filter_map(|source| source.pid).for_each(|pid| *processes.entry(pid).or_default() += 1);
    for source in sources.iter_mut().filter(|source| source.end.as_deref() == Some(ENDED)) {
        let pid = source.pid.filter(|pid| processes.get(pid) == Some(&1));
        if let Some(end) = pid.and_then(child_of).and_then(|child| child.end.clone()) {
            source.end = Some(end);
        }
    }
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
    if size > MAX_SIZE {
        return Err(corruption(format!("expected at most {MAX_SIZE} bytes, found {size}")));
    }
    let mut bytes = Vec::new();
    let file = tompion_os::open_regular(&path).map_err(|error| corruption(error.to_string()))?;
    file.take(MAX_SIZE).read_to_end(&mut bytes).map_err(|error| corruption(error.to_string()))?;
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|error| corruption(error.to_string()))?;
    if manifest.schema != SCHEMA {
        return Err(corruption(format!("expected schema {SCHEMA}, found {}", manifest.schema)));
    }
    Ok(Some(manifest))
}
