//! Completion: of processes that have ended, and of the recording.

use tompion_manifest::{self as manifest, Clock};

use super::{Consumer, RecordingSummary, no_longer};
use crate::{messages::reason, process::Process, targets};

/// End of a process that runs on when its recording has ended.
pub(super) const STILL_RUNNING: &str = "running when the recording ended";

impl Consumer {
    /// Takes the last events of a process that has ended, and completes its trace.
    pub(super) fn complete(&mut self, key: u64, how: String) {
        let Some(index) = self.processes.iter().position(|process| process.key == key) else { return };
        // Rings that still run are converted with this one: bytes wait in order.
        self.sample();
        let mut process = self.processes.remove(index);
        self.appended_by_ended = self.appended_by_ended.saturating_add(process.appended());
        process.end.get_or_insert(how);
        self.look_for_matches_of(&mut process);
        if self.stopped.is_some() {
            process.give_up();
        } else {
            if self.manifest.session.channel.mode == manifest::OVERWRITE {
                process.save_history();
            } else {
                process.collect_all();
            }
            self.sample();
            if let Err(error) = self.convert_ended(&mut process) {
                process.give_up();
                self.report_failure(no_longer(&process, &error) + &self.kept_rings(), &error);
            }
        }
        if self.jobs.is_some() {
            process.tell_end_of_jobs();
            return self.flush_jobs();
        }
        self.ended_names.add_trace(process.writer());
        process.read_catalog();
        if let (Some(counting), Some(counts)) = (&self.counting, &process.counts) {
            counting.end(counts, process.key);
        }
        self.manifest.beyond_limits.descriptions += process.descriptions_beyond_budget();
        self.remember_names(&process);
        self.report_conflicts(&process);
        if process.was_cut() {
            self.report_once(format!("{} ({}) cut off its own rings", process.hello.name, process.pid));
        }
        let summary = process.summary(self.root().path());
        if process.is_durable() && process.is_given_up() && self.manifest.session.is_durable() {
            // Its rings have what its trace has not: it is left for recovery.
            return self.left.push(summary);
        }
        self.add_source(summary);
        if let Some(chunks) = &mut self.chunks {
            chunks.add(&mut process);
        }
        if process.is_durable() {
            self.finished.push(process);
        }
    }

    /// Completes all processes, for the recording ends.
    pub(super) fn complete_all(&mut self) {
        self.processes.iter_mut().for_each(Process::disconnect);
        for key in self.processes.iter().map(|process| process.key).collect::<Vec<_>>() {
            self.complete(key, STILL_RUNNING.into());
        }
    }

    /// Completes the recording.
    pub(super) fn finish(mut self) -> RecordingSummary {
        self.complete_all();
        targets::note_ends(&mut self.manifest.targets);
        self.retire_finished();
        self.complete_shared();
        self.end_firing_trace();
        let folder = self.folder.clone();
        let counts = self.counting.as_ref().map(|counting| counting.write_last(&folder, self.notice));
        self.clock.thin_out();
        let samples = self.clock.samples().iter().map(|pair| (pair.tsc, pair.ns)).collect();
        self.manifest.session.clock = Clock { samples, ..self.manifest.session.clock };
        self.manifest.session.problems.extend(self.stopped.clone());
        let is_durable = self.manifest.session.is_durable();
        // What is left in rings that are kept can still be recovered.
        let mut is_complete = !is_durable || self.stopped.is_none() && self.left.is_empty();
        if is_complete {
            self.commit_last_chunk();
            is_complete = !is_durable || self.stopped.is_none();
        }
        (self.manifest.session.backing, self.manifest.session.keeper) = (None, false);
        let backing = self.backing.take();
        if is_complete {
            // Also a full disk has room for the manifest then.
            self.reserve = None;
            self.manifest.state = manifest::COMPLETE.into();
            (self.manifest.session.recorder, self.manifest.session.snapshot) = (None, None);
            if let Err(error) = self.write_manifest_of_recording(is_durable) {
                is_complete = false;
                let text = format!("can't write to {}: {}", self.folder.path().display(), reason(&error));
                // Where the disk is full, that was told.
                if self.stopped.is_none() {
                    (self.notice)(&text);
                    self.stopped = Some(text);
                }
            }
        }
        self.manifest.sources.append(&mut self.left);
        if let (Some(backing), true) = (backing, is_complete) {
            if let Err(error) = backing.remove_all() {
                (self.notice)(&format!("can't remove {}: {error}", backing.path().display()));
            }
        }
        let stopped = self.stopped.or(self.kernel_stopped);
        let known = self.known.into_iter().collect();
        RecordingSummary { manifest: self.manifest, known, stopped, is_complete, counts }
    }
}
