//! Facts that Tompion's recordings state in `tompion.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tompion_index::recorded_losses::{LEVELS, read};
use tompion_reader::manifest;

use crate::workspace::TraceInfo;
#[cfg(test)]
use ts_rs::TS;

/// Returns what the recording in a folder says of itself; `None` if it says nothing readable.
fn manifest_in(folder: &Path) -> Option<manifest::Manifest> {
    manifest::Manifest::parse(&read(&folder.join(manifest::NAME), manifest::MAX_BYTES)?).ok()
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
    /// Host on which it ran: process ids are unique on one only.
    pub host: String,
    /// Process that forked it, or its parent when it joined the recording.
    pub parent: Option<i64>,
    /// Command line, as a shell would take it, or else the program's file.
    pub command: String,
    /// Its end, in words.
    pub end: String,
}

/// Returns the processes that the recording at these paths names, if there is one alone: process
/// ids of several would be mistaken for each other.
pub fn processes(paths: &[PathBuf], traces: &[TraceInfo]) -> Vec<RecordedProcess> {
    let folders = paths.iter().flat_map(|path| path.ancestors().take(LEVELS));
    let mut manifests: BTreeMap<&Path, manifest::Manifest> =
        folders.filter_map(|folder| Some((folder, manifest_in(folder)?))).collect();
    let (Some((folder, manifest)), true) = (manifests.pop_first(), manifests.is_empty()) else {
        return Vec::new();
    };
    let host = host_of(folder, traces);
    let of_host = |process| RecordedProcess { host: host.to_owned(), ..process };
    processes_of(manifest).into_iter().map(of_host).collect()
}

/// Returns the host of the traces in a recording's folder.
fn host_of<'t>(folder: &Path, traces: &'t [TraceInfo]) -> &'t str {
    let is_in = |trace: &&TraceInfo| Path::new(&trace.path).starts_with(folder);
    traces.iter().find(is_in).map_or("", |trace| &trace.host)
}

/// Returns the processes of a recording: those with programs, events or a command line, those that
/// were named, and the children that the kernel saw, also those that execute no program, such as a
/// server's workers.
fn processes_of(mut manifest: manifest::Manifest) -> Vec<RecordedProcess> {
    let children = manifest.join_children();
    let mut found: BTreeMap<i64, RecordedProcess> = BTreeMap::new();
    for program in &manifest.programs {
        let command = program.file.clone();
        found.insert(program.pid, RecordedProcess { pid: program.pid, command, ..Default::default() });
    }
    for child in children.values() {
        let process = found.entry(child.pid).or_default();
        process.pid = child.pid;
        process.parent = Some(child.parent).filter(|parent| *parent > 0);
        process.end = child.end.clone().unwrap_or_default();
    }
    for target in &manifest.targets {
        let process = found.entry(target.pid).or_default();
        process.pid = target.pid;
        process.parent = Some(target.parent).filter(|parent| *parent > 0).or(process.parent);
        process.command = command_line(&target.command_line);
        if process.end.is_empty() {
            process.end = target.end.clone().unwrap_or_default();
        }
    }
    for source in &manifest.sources {
        let Some(pid) = source.pid.filter(|pid| *pid > 0) else { continue };
        let process = found.entry(pid).or_default();
        process.pid = pid;
        process.parent = Some(source.parent).filter(|parent| *parent > 0).or(process.parent);
        process.end = source.end.clone().unwrap_or_default();
        if !source.command_line.is_empty() {
            process.command = command_line(&source.command_line);
        }
    }
    if let Some(end) = &manifest.command_end {
        let process = found.entry(end.pid).or_default();
        (process.pid, process.end) = (end.pid, end.end.clone());
        process.command = command_line(&manifest.command);
    }
    let named = named_first(&manifest, children.keys().copied());
    found.into_values().filter(|process| named.contains(&process.pid)).collect()
}

/// Returns the process ids that are sent: children that nothing else names only if there is room.
fn named_first(manifest: &manifest::Manifest, children: impl Iterator<Item = i64>) -> BTreeSet<i64> {
    let command = manifest.command_end.iter().map(|end| end.pid);
    let targets = manifest.targets.iter().map(|target| target.pid);
    let sources = manifest.sources.iter().filter_map(|source| source.pid.filter(|pid| *pid > 0));
    let programs = manifest.programs.iter().map(|program| program.pid);
    let mut named = BTreeSet::new();
    for pid in command.chain(targets).chain(sources).chain(programs).chain(children) {
        if named.len() == MAX_PROCESSES {
            break;
        }
        named.insert(pid);
    }
    named
}

/// Formats a command line as a shell would take it, cut to a bounded length.
fn command_line(words: &[String]) -> String {
    manifest::shell_line(words).chars().take(MAX_COMMAND_LINE).collect()
}

/// Whether one of these folders belongs to a running recording.
pub fn is_recording(paths: &[PathBuf]) -> bool {
    let mut folders = paths.iter().flat_map(|path| path.ancestors().take(LEVELS));
    folders.any(|folder| manifest_in(folder).is_some_and(|manifest| manifest.is_recording()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_have_the_host_of_the_recordings_traces() {
        let trace = |path: &str, host: &str| TraceInfo {
            path: path.into(),
            name: String::new(),
            tracer: String::new(),
            host: host.into(),
        };
        let traces = [trace("/traces/lttng/kernel", "b"), trace("/traces/tompion/kernel", "a")];
        assert_eq!(host_of(Path::new("/traces/tompion"), &traces), "a");
        assert_eq!(host_of(Path::new("/traces/tom"), &traces), "");
    }

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
        let found = processes_of(serde_json::from_value(manifest).unwrap());
        let found: Vec<_> = found.iter().map(|it| (it.pid, it.parent, &*it.command, &*it.end)).collect();
        assert_eq!(found, [(7, Some(3), "nginx", "exited with 0"), (8, Some(7), "", "exited with 1")]);
    }

    #[test]
    fn processes_that_were_named_are_there_without_events_or_children() {
        let manifest = serde_json::json!({
            "targets": [
                { "pid": 7, "parent": 1, "name": "nginx", "command_line": ["nginx: master"], "end": "ended" },
                { "pid": 8, "parent": 7, "name": "nginx" },
            ],
            "sources": [{ "path": "", "pid": 8, "end": "exited", "command_line": ["nginx: worker"] }],
        });
        let found = processes_of(serde_json::from_value(manifest).unwrap());
        let found: Vec<_> = found.iter().map(|it| (it.pid, it.parent, &*it.command, &*it.end)).collect();
        assert_eq!(
            found,
            [(7, Some(1), "'nginx: master'", "ended"), (8, Some(7), "'nginx: worker'", "exited")]
        );
    }

    #[test]
    fn a_source_that_only_ended_has_the_end_that_the_kernel_saw() {
        let ends = |sources: serde_json::Value| {
            let manifest = serde_json::json!({
                "children": [{ "pid": 8, "parent": 7, "end": "exited with 1" }],
                "sources": sources,
            });
            let found = processes_of(serde_json::from_value(manifest).unwrap());
            found.into_iter().map(|it| (it.pid, it.parent, it.end)).collect::<Vec<_>>()
        };
        let source =
            |parent: i64| serde_json::json!({ "path": "", "pid": 8, "end": "ended", "parent": parent });
        let expected = |parent, end: &str| vec![(8, Some(parent), end.to_owned())];
        assert_eq!(ends(serde_json::json!([source(0)])), expected(7, "exited with 1"));
        assert_eq!(ends(serde_json::json!([source(7)])), expected(7, "exited with 1"));
        assert_eq!(ends(serde_json::json!([source(6)])), expected(6, "ended"));
        assert_eq!(ends(serde_json::json!([source(7), source(7)])), expected(7, "ended"));
    }

    #[test]
    fn children_leave_room_for_the_command_and_for_sources_and_programs() {
        let last = MAX_PROCESSES as i64 + 10;
        let child = |pid| manifest::Child { pid, parent: 1, end: None };
        let source = manifest::Source { pid: Some(last + 1), ..Default::default() };
        let found = processes_of(manifest::Manifest {
            children: (10..=last).map(child).collect(),
            sources: vec![source],
            programs: vec![manifest::Program { pid: last + 2, file: "/bin/one".into() }],
            command_end: Some(manifest::CommandEnd { pid: last + 3, end: "exited with 0".into() }),
            ..Default::default()
        });
        let pids: Vec<i64> = found.iter().map(|process| process.pid).collect();
        assert_eq!(
            (pids.len(), &pids[pids.len() - 3..]),
            (MAX_PROCESSES, &[last + 1, last + 2, last + 3][..])
        );
        assert_eq!(pids[..2], [10, 11]);
    }

    #[test]
    fn recordings_of_another_schema_are_not_understood() {
        let dir = tempfile::tempdir().unwrap();
        let of = |schema: u64| {
            let manifest = serde_json::json!({
                "schema": schema, "state": "recording", "command": ["/bin/one"],
                "sources": [{ "path": "", "pid": 8 }],
            });
            std::fs::write(dir.path().join(manifest::NAME), manifest.to_string()).unwrap();
            let paths = [dir.path().to_owned()];
            (is_recording(&paths), commands(&paths), processes(&paths, &[]).len())
        };
        assert_eq!(of(1), (true, vec!["one".to_owned()], 1));
        assert_eq!(of(2), (false, vec![], 0));
    }
}
