//! The consumer's part of triggers and of snapshots that go on: what comes is saved before it is
//! overwritten, losses are counted, firings are noted, and history is dropped.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use tompion_manifest::{self as manifest, Firing};

use super::{Backlog, Consumer};
use crate::process::Process;

/// Share of a ring, in percent, that may be unsaved while what comes is saved.
const MAX_UNSAVED_PERCENT: u64 = 25;
/// Maximum number of firings in the manifest, and of their bytes.
const MAX_FIRINGS: usize = 256;

impl Consumer {
    /// Counts losses for a trigger, if one asks for it.
    pub fn with_loss_counter(self, losses: Option<Arc<AtomicU64>>) -> Self {
        Self { losses, ..self }
    }

    pub(super) fn count_losses(&self) {
        let Some(losses) = &self.losses else { return };
        let ended = self.manifest.sources.iter().flat_map(|source| source.lost.values().copied());
        let running = self.processes.iter().map(Process::lost_so_far);
        let all = ended.chain(running).chain([self.manifest.beyond_limits.lost]);
        // Ordering: a counter by itself.
        losses.store(all.fold(0, u64::saturating_add), Ordering::Relaxed);
    }

    /// Notes in the manifest that a trigger has fired.
    pub(super) fn note_firing(&mut self, firing: Firing) {
        if self.manifest.firings.len() >= MAX_FIRINGS {
            self.manifest.beyond_limits.firings += 1;
            return;
        }
        self.manifest.firings.push(firing);
        if self.stopped.is_none() {
            self.write_manifest("the trigger");
        }
    }

    /// Saves what flight recorders have recorded since the last time, if a snapshot goes on and a
    /// ring is a quarter full of it.
    pub(super) fn save_what_comes(&mut self) {
        if self.copy_what_comes() {
            self.place_all();
            self.sample();
            self.convert(Backlog::All);
        }
    }

    /// Copies what [`Self::save_what_comes`] saves. The disk, and whatever else takes time, has to
    /// wait for it. Returns whether there was something. Where much waits already, a gap remains,
    /// which packets show.
    pub(super) fn copy_what_comes(&mut self) -> bool {
        let now = Instant::now();
        if self.saves_until.take_if(|until| *until <= now).is_some() || self.saves_until.is_none() {
            return false;
        }
        let most = self.pending_limit();
        let is_due = |process: &Process| {
            process.unsaved_percent() >= MAX_UNSAVED_PERCENT && process.pending_bytes() < most
        };
        let mut has_copied = false;
        for process in self.processes.iter_mut().filter(|process| is_due(process)) {
            process.save_history();
            has_copied = true;
        }
        has_copied
    }

    /// Drops the open chunk, or the history of flight recorders.
    pub(super) fn clear(&mut self) {
        if self.manifest.session.channel.mode == manifest::OVERWRITE {
            self.processes.iter_mut().for_each(Process::drop_history);
        }
        self.drop_chunk();
    }
}
