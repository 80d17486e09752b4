//! Data of processes that the consumer keeps beyond their end, within limits: their entries in the
//! manifest, names of events, problems, and backing files until the manifest is on the medium.

use std::{fs::File, io, time::Instant};

use tompion_layout::loss::Cause;
use tompion_lineage::untrusted_text::{MAX_PROBLEM, tidy};
use tompion_manifest::{self as manifest, BeyondLimits, Manifest, Snapshot};
use tompion_os::DirHandle;

use super::{Consumer, MANIFEST_ROOM, MAX_NOTICES};
use crate::{backing::ProcessEntry, messages::reason};
use crate::{
    budget::{MANY_SOURCE_BYTES, MAX_NAME_BYTES, MAX_NAMES, MAX_NAMES_OF_PROCESS, MAX_SOURCE_BYTES},
    process::{Process, SHARED_FOLDER},
};

impl Consumer {
    /// Notes in the manifest that a snapshot is on disk.
    pub(super) fn note_snapshot(&mut self, snapshot: Snapshot) {
        self.manifest.session.snapshot = Some(snapshot);
        self.write_manifest("the snapshot");
    }

    /// Writes the manifest while the recording goes on. `news` is what it tells for the first time.
    pub(super) fn write_manifest(&mut self, news: &str) {
        if let Err(error) = self.write_manifest_of_recording(self.manifest.session.is_durable()) {
            let folder = self.folder.path().display();
            (self.notice)(&format!("can't note {news} in {folder}: {}", reason(&error)));
        }
    }

    /// Takes away the kept rings of processes that are complete, once the medium has a manifest
    /// that tells of them: one for many, since it takes as long for one.
    pub(super) fn retire_finished(&mut self) {
        self.retired = Instant::now();
        let (finished, lost) = (std::mem::take(&mut self.finished), std::mem::take(&mut self.lost));
        if finished.is_empty() && lost.is_empty() || self.stopped.is_some() {
            return;
        }
        // Counts come first: a process that is named is not read again.
        let written = self.write_counts();
        let is_durable = self.manifest.session.is_durable();
        let written = written.and_then(|()| self.write_manifest_of_recording(is_durable));
        let written = written.and_then(|()| self.write_ended());
        let removed = written.and_then(|()| {
            lost.iter().try_for_each(ProcessEntry::remove)?;
            finished.iter().try_for_each(Process::remove_files)
        });
        if let Err(error) = removed {
            return self.stop(&error);
        }
        if let Some(counting) = &self.counting {
            counting.settle(finished.iter().map(|process| process.key));
        }
    }

    /// Has a recorder that comes back know the counts of processes that have ended.
    fn write_counts(&self) -> io::Result<()> {
        let counting = self.counting.as_ref().filter(|counting| counting.is_for_next_recorder());
        let (Some(backing), Some(counting)) = (&self.backing, counting) else { return Ok(()) };
        counting.saved().write(backing, self.manifest.session.is_durable())
    }

    /// Waits until the shared trace is written. What was not is taken from those that came last.
    pub(super) fn complete_shared(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        self.ended_names.add_trace(&shared);
        if let Err(error) = shared.settle() {
            self.stop(&error);
        }
        let mut dropped = shared.dropped();
        let mut in_chunk = dropped;
        take_from_shared(&mut self.manifest.sources, &mut dropped);
        if let Some(chunks) = &mut self.chunks {
            take_from_shared(chunks.sources(), &mut in_chunk);
            chunks.add_shared(&shared);
        }
    }

    /// Remembers the names of a process's events, as many as there is room for.
    pub(super) fn remember_names(&mut self, process: &Process) {
        let mut room = MAX_NAMES_OF_PROCESS;
        for (provider, name) in process.event_names() {
            let bytes = provider.len() + name.len();
            let names = (provider.to_owned(), name.to_owned());
            if self.known.contains(&names) {
                continue;
            }
            if room == 0 || self.known.len() >= MAX_NAMES || self.known_bytes + bytes > MAX_NAME_BYTES {
                self.manifest.beyond_limits.event_names += 1;
                continue;
            }
            room -= 1;
            self.known_bytes += bytes;
            self.known.insert(names);
        }
    }

    /// Has the manifest tell of a process, as long as there is room for more of them.
    pub(super) fn add_source(&mut self, source: manifest::Source) {
        let Manifest { sources, beyond_limits, .. } = &mut self.manifest;
        add_source(sources, &mut self.source_bytes, beyond_limits, source);
    }

    /// Says which names stand for several things, once each.
    pub(super) fn report_conflicts(&mut self, process: &Process) {
        for (name, count) in process.conflicts() {
            let program = &process.hello.name;
            let problem = format!("{program} describes {name} in {count} ways, which are kept apart");
            self.report_once(problem);
        }
    }

    /// Tells a problem that doesn't end the recording, once, and not too many of them.
    pub(super) fn report_once(&mut self, problem: String) {
        let problem = tidy(&problem, MAX_PROBLEM);
        let problems = &mut self.manifest.session.problems;
        if problems.contains(&problem) {
            return;
        }
        if problems.len() >= MAX_NOTICES {
            self.manifest.beyond_limits.problems += 1;
            return;
        }
        (self.notice)(&problem);
        problems.push(problem);
    }
}

/// Adds a source to a list that has so many bytes in a manifest, as long as there is room for it.
pub(super) fn add_source(
    sources: &mut Vec<manifest::Source>,
    list_bytes: &mut usize,
    beyond: &mut BeyondLimits,
    mut source: manifest::Source,
) {
    if *list_bytes >= MANY_SOURCE_BYTES {
        source.executable = None;
        source.command_line = Vec::new();
    }
    let bytes = source.size_in_manifest();
    if *list_bytes + bytes <= MAX_SOURCE_BYTES {
        *list_bytes += bytes;
        return sources.push(source);
    }
    beyond.processes += 1;
    beyond.events = beyond.events.saturating_add(source.events);
    beyond.lost = source.lost.values().fold(beyond.lost, |sum, count| sum.saturating_add(*count));
}

/// Counts events of the shared trace that were not written as losses of those that came last.
fn take_from_shared(sources: &mut [manifest::Source], dropped: &mut u64) {
    let path = format!("user/{SHARED_FOLDER}");
    for source in sources.iter_mut().rev().filter(|source| source.path == path) {
        let lost = (*dropped).min(source.events);
        if lost != 0 {
            source.events -= lost;
            *source.lost.entry(Cause::NotWritten.name().to_owned()).or_default() += lost;
            *dropped -= lost;
        }
    }
}

/// Reserves room for the manifest, in a file that has no name any more.
pub(super) fn reserve_room(folder: &DirHandle) -> io::Result<File> {
    let name = "tompion.json.room";
    let file = folder.create_new(name)?;
    let reserved = tompion_os::reserve(&file, MANIFEST_ROOM);
    folder.remove(name)?;
    reserved.map(|()| file)
}
