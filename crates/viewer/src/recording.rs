//! Facts that Tompion's recordings state in `tompion.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tompion_index::recorded_losses::{LEVELS, MAX_SIZE, read};
use tompion_reader::manifest;
#[cfg(test)]
use ts_rs::TS;

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    state: String,
}

/// Returns what the recording in a folder says of itself; `None` if it says nothing readable.
fn manifest_in(folder: &Path) -> Option<manifest::Manifest> {
    serde_json::from_slice(&read(&folder.join(manifest::NAME), MAX_SIZE)?).ok()
}

/// Returns the names of the programs that recordings at these paths started.
pub fn commands(paths: &[PathBuf]) -> Vec<String> {
    let name = |folder: &Path| {
        let manifest = manifest_in(folder)?;
        let program = Path::new(manifest.command.first()?).file_name()?;
        Some(program.to_string_lossy().into_owned())
    };
    paths.iter().filter_map(|path| path.ancestors().take(LEVELS).find_map(name)).collect()
}

/// Maximum number of processes that are sent to the page.
const MAX_PROCESSES: usize = 4096;
/// Maximum length of a command line in characters.
const MAX_COMMAND_LINE: usize = 300;

/// Process that a recording names. Texts are empty where nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct RecordedProcess {
    /// Process id.
    pub pid: i64,
    /// Parent when it joined the recording.
    pub parent: Option<i64>,
    /// Command line, as a shell would take it, or else the program's file.
    pub command: String,
    /// Its end, in words.
    pub end: String,
}

/// Returns the processes that the recording at these paths names, if there is one alone: process
/// ids of several would be mistaken for each other.
pub fn processes(paths: &[PathBuf]) -> Vec<RecordedProcess> {
    let folders = paths.iter().flat_map(|path| path.ancestors().take(LEVELS));
    let manifests: BTreeMap<&Path, manifest::Manifest> =
        folders.filter_map(|folder| Some((folder, manifest_in(folder)?))).collect();
    match manifests.into_values().collect::<Vec<_>>().as_slice() {
        [one] => processes_of(one),
        _ => Vec::new(),
    }
}

fn processes_of(manifest: &manifest::Manifest) -> Vec<RecordedProcess> {
    let mut found: BTreeMap<i64, RecordedProcess> = BTreeMap::new();
    for program in &manifest.programs {
        let command = program.file.clone();
        found.insert(program.pid, RecordedProcess { pid: program.pid, command, ..Default::default() });
    }
    for source in &manifest.sources {
        let Some(pid) = source.pid.filter(|pid| *pid > 0) else { continue };
        let process = found.entry(pid).or_default();
        process.pid = pid;
        process.parent = Some(source.parent).filter(|parent| *parent > 0);
        process.end = source.end.clone().unwrap_or_default();
        if !source.command_line.is_empty() {
            process.command = command_line(&source.command_line);
        }
    }
    for child in children_of(manifest) {
        let process = found.entry(child.pid).or_default();
        process.pid = child.pid;
        process.parent = process.parent.or(Some(child.parent).filter(|parent| *parent > 0));
        if process.end.is_empty() {
            process.end = child.end.clone().unwrap_or_default();
        }
    }
    if let Some(end) = &manifest.command_end {
        let process = found.entry(end.pid).or_default();
        (process.pid, process.end) = (end.pid, end.end.clone());
        process.command = command_line(&manifest.command);
    }
    found.into_values().take(MAX_PROCESSES).collect()
}

/// Returns the children that the kernel saw, also those that execute no program, such as a server's
/// workers. A process id that was used twice, or may have been, doesn't say which process is meant.
fn children_of(manifest: &manifest::Manifest) -> impl Iterator<Item = &manifest::Child> {
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    manifest.children.iter().for_each(|child| *counts.entry(child.pid).or_default() += 1);
    let is_complete = manifest.beyond_limits.children == 0;
    manifest.children.iter().filter(move |child| is_complete && counts.get(&child.pid) == Some(&1))
}

/// Formats a command line as a shell would take it, cut to a bounded length.
fn command_line(words: &[String]) -> String {
    manifest::shell_line(words).chars().take(MAX_COMMAND_LINE).collect()
}

/// Whether one of these folders belongs to a running recording.
pub fn is_recording(paths: &[PathBuf]) -> bool {
    let mut folders = paths.iter().flat_map(|path| path.ancestors().take(LEVELS));
    folders.any(|folder| {
        let bytes = read(&folder.join(manifest::NAME), MAX_SIZE);
        let state = bytes.and_then(|bytes| serde_json::from_slice::<State>(&bytes).ok());
        state.is_some_and(|state| state.state == "recording")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_execute_no_program_are_processes_with_parents() {
        let manifest = serde_json::json!({
            "schema": 1, "state": "complete", "command": ["nginx"],
            "command_end": { "pid": 7, "end": "exited with 0" },
            "programs": [{ "pid": 7, "file": "/usr/sbin/nginx" }],
            "children": [
                { "pid": 7, "parent": 3, "end": "exited with 0" },
                { "pid": 8, "parent": 7, "end": "exited with 1" },
                { "pid": 9, "parent": 7 },
                { "pid": 9, "parent": 8 },
            ],
            "sources": [],
        });
        let found = processes_of(&serde_json::from_value(manifest).unwrap());
        let found: Vec<_> = found.iter().map(|it| (it.pid, it.parent, &*it.command, &*it.end)).collect();
        assert_eq!(found, [(7, Some(3), "nginx", "exited with 0"), (8, Some(7), "", "exited with 1")]);
    }
}
