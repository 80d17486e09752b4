//! Memory of a process that takes part: made, kept where it is to outlast the recorder, passed on.

use std::{hash::BuildHasher as _, io, os::fd::AsFd};

use tompion_counting::CountFile;
use tompion_ctf::metadata::Uuid;
use tompion_firings::MatchCounts;
use tompion_layout::ring::Geometry;
use tompion_os::{DirHandle, Peer, SharedMap};
use tompion_protocol::message::ToAgent;

use super::{ClientAcceptor, Introduction};
use crate::{
    backing::{ProcessBacking, SavedIdentity, SavedProcess},
    budget::{Budget, Shared},
    memory::{MappedMemory, Writing},
    process::{self, ThreadContextSources},
    ring_budget::RingShare,
    session_config::describe,
};

impl ClientAcceptor {
    /// Makes the memory files of a process and passes them on, unless it has prepared ones.
    pub(super) fn share_memory(
        &mut self,
        introduction: &Introduction<'_>,
        prepared: Option<MappedMemory>,
    ) -> io::Result<process::Recording> {
        let Introduction { socket, hello, peer, key, .. } = *introduction;
        let pid = peer.pid;
        let (geometry, ring_share) = self.ring_sizes()?;
        let writing = Writing { geometry, ..self.config.writing(hello) };
        let Writing { form, given_time, .. } = writing;
        let folder = self.new_folder(&hello.name, pid);
        let uuid = uuid::Uuid::new_v4();
        let kept_in = match self.config.backing.clone() {
            None => None,
            Some(backing) => {
                let mut saved = SavedProcess::new(hello, pid, folder.path(), &uuid.to_string())
                    .with_lineage(introduction.lineage.clone())
                    .with_rings(geometry);
                (saved.key, saved.given_time) = (key, given_time);
                let counting = self.config.counting.clone().filter(|_| writing.counts);
                saved.counts =
                    counting.as_ref().map(|counting| SavedIdentity { cgroup: counting.cgroup_of(pid) });
                let counts = counting.map(|counting| counting.create_file()).transpose()?;
                let made = self.make_backing(&backing, (&saved, geometry), introduction, counts.as_ref())?;
                Some((made, saved, counts))
            }
        };
        let mut context_sources = ThreadContextSources::new(&self.config, peer, hello.pid, given_time);
        let (kept_in, counts) = match kept_in {
            Some((kept_in, saved, counts)) => (Some((kept_in, saved)), counts),
            None => (None, None),
        };
        let MappedMemory { control, rings, counts, match_counts } = match (&kept_in, prepared) {
            (None, Some(memory)) => memory,
            (None, None) => {
                let (memory, files) = self.config.create_memory(writing)?;
                self.prefault(&memory.control, &memory.rings, &hello.name);
                let files = files.each_ref().map(AsFd::as_fd);
                self.config.send_memory(socket, &ToAgent::Welcome, files, memory.counts.as_ref())?;
                memory
            }
            (Some((kept_in, saved)), _) => {
                let (control, rings) = kept_in.map(geometry)?;
                self.config.write_header(&control, writing);
                self.prefault(&control, &rings, &hello.name);
                // A recovery of its events should know their threads.
                let _ = context_sources.keep(kept_in);
                kept_in.describe(saved)?;
                let files = kept_in.files().map(AsFd::as_fd);
                let sent = self.config.send_memory(socket, &ToAgent::Welcome, files, counts.as_ref());
                sent.inspect_err(|_| {
                    // It has ended meanwhile, and has recorded nothing.
                    let _ = kept_in.remove();
                })?;
                let match_counts = MatchCounts::new(&self.config.event_triggers, writing.follows_triggers);
                MappedMemory { control, rings, counts, match_counts }
            }
        };
        // A recorder that comes back reads on from where room was given back to.
        let can_withdraw = hello.notices_withdrawal && kept_in.is_none() && !self.config.overwrite;
        Ok(process::Recording {
            gives_pages_back: can_withdraw && !self.config.prefault,
            geometry,
            ring_share,
            form,
            overwrite: self.config.overwrite,
            given_time,
            control,
            rings,
            counts: self.config.counting.as_ref().and_then(|all| all.add(pid, &hello.name, counts)),
            match_counts,
            folder,
            description: describe(&self.config, hello, pid, Uuid(uuid.into_bytes())),
            context_sources,
            kept_in: kept_in.map(|(files, _)| files),
            budget: self.budget_of(peer),
        })
    }

    /// Makes pages of a process's memory present, before it has its first event.
    fn prefault(&mut self, control: &SharedMap, rings: &SharedMap, name: &str) {
        if let Err(error) = self.config.prefault(control, rings) {
            self.report_problem(format!("{name}: --prefault: its events may take page faults: {error}"));
        }
    }

    /// Sizes of a process's rings: those of the session, or a share of its memory.
    fn ring_sizes(&self) -> io::Result<(Geometry, Option<RingShare>)> {
        let Some(budget) = &self.ring_budget else { return Ok((self.config.geometry, None)) };
        budget.give().map(|(sizes, share)| (sizes, Some(share))).map_err(io::Error::other)
    }

    /// Keeps memory for the kernel's rings.
    pub fn keep_memory_for_kernel(&mut self) {
        self.kernel_rings = self.ring_budget.as_ref().map(|budget| budget.keep(self.config.geometry));
    }

    /// Makes the files of a process that outlast the recorder.
    fn make_backing(
        &mut self,
        backing: &DirHandle,
        (saved, geometry): (&SavedProcess, Geometry),
        introduction: &Introduction<'_>,
        counts: Option<&CountFile>,
    ) -> io::Result<ProcessBacking> {
        let Some(keeper) = self.config.keeper.clone() else {
            return ProcessBacking::create(backing, saved, geometry);
        };
        let made = ProcessBacking::in_memory(backing, saved, geometry, &keeper)?;
        let [control, rings] = made.files().map(AsFd::as_fd);
        let Some(watch) = introduction.watch else { return Ok(made) };
        // Before the program has them: what it appends then is never in the recorder's hands alone.
        let descriptors = [introduction.socket.as_fd(), control, rings, watch.as_fd()];
        let counts = counts.map(CountFile::as_fd);
        if keeper.hold_process(saved.key, descriptors, counts).is_err() {
            let text = "the recording's keeper has ended: what rings hold is lost if the recorder is killed";
            self.report_problem(text.into());
        }
        Ok(made)
    }

    /// Room for the descriptions of a process that takes part.
    pub(super) fn budget_of(&mut self, peer: Peer) -> Budget {
        let process = self.join_counts.entry(peer.pid).or_default().budget.clone();
        let user = match self.config.users[..] {
            // With one user there is no other one to be protected.
            [_] if self.config.programs.is_none() => Shared::default(),
            _ => self.user_budgets.entry(peer.uid).or_default().clone(),
        };
        Budget::new(process, user, self.budget.clone())
    }

    /// A folder that no other process of this recording has.
    fn new_folder(&mut self, name: &str, pid: u32) -> DirHandle {
        let sound = |character: char| character.is_ascii_alphanumeric() || "._+-".contains(character);
        let name: String = name.chars().map(|c| if sound(c) { c } else { '_' }).collect();
        let name = format!("{}-{pid}", if name.is_empty() { "process" } else { &name });
        let mut unique = name.clone();
        let mut number = 1;
        // Another process may have this name with a number behind it as its own.
        while !self.folders.insert(self.hasher.hash_one(&unique)) {
            number += 1;
            unique = format!("{name}-{number}");
        }
        self.config.folder.join("user").join(unique)
    }
}
