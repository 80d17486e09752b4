//! Processes of a recorder that was killed, taken over by the one that comes back.
//!
//! The keeper has their descriptors, and the recording's folder their descriptions. A process is
//! taken over if both are there and agree. What the keeper has alone was never given to a program:
//! its connection is closed, and its agent tries again. What the folder has alone has lost its
//! rings.

use std::{hash::BuildHasher as _, io, os::fd::OwnedFd, sync::Arc};

use tompion_counting::{Collector, CountFile, ProcessCounts};
use tompion_keeper::{HandOver, HeldProcess};
use tompion_lineage::{Lineage, inner_pid};
use tompion_os::{DirHandle, Peer, Poller};
use tompion_protocol::message::ToAgent;

use super::{Client, ClientAcceptor};
use crate::{
    backing::{ProcessBacking, ProcessEntry, SavedIdentity, SavedProcess},
    consumer::ConsumerCommand,
    process::{Adoption, Process, ThreadContextSources, TracePlace},
    recover,
};

/// Has the counts of a process be read again, if it counts.
pub fn add_counts(
    counting: Option<&Collector>,
    saved: &SavedProcess,
    file: Option<OwnedFd>,
) -> Result<Option<Arc<ProcessCounts>>, String> {
    let (Some(counting), Some(SavedIdentity { cgroup }), Some(file)) = (counting, saved.counts.clone(), file)
    else {
        return Ok(None);
    };
    let file =
        CountFile::received(file, counting.geometry()).map_err(|error| format!("its counts: {error}"))?;
    Ok(counting.add_of_cgroup((saved.pid, &saved.hello().name), cgroup, Some(file)))
}

impl ClientAcceptor {
    /// Accepts connections of further sockets that the keeper has held. `join_socket` is the name
    /// of the one in the folder where programs look.
    pub fn adopt_listeners(
        &mut self,
        kept: &mut HandOver,
        join_socket: Option<&str>,
        poller: &Poller,
    ) -> io::Result<()> {
        let listeners = std::mem::take(&mut kept.listeners);
        let adopted = join_socket.map(|name| self.entrances.adopt_join_socket(name, &listeners));
        if let Some(Err(error)) = adopted {
            self.report_problem(format!("programs may not find the recording any more: {error}"));
        }
        listeners.into_iter().try_for_each(|listener| self.entrances.adopt(listener, poller))
    }

    /// Takes over the processes of a recorder that was killed, whose traces are at a place. `since`
    /// is the time of CLOCK_MONOTONIC at which the recording began.
    pub fn adopt(
        &mut self,
        mut kept: HandOver,
        saved: Vec<SavedProcess>,
        (place, since): (TracePlace<'_>, u64),
        poller: &Poller,
    ) {
        for saved in saved {
            self.next_key = self.next_key.max(saved.key);
            let Some(process) = kept.processes.remove(&saved.key) else {
                self.give_up(&saved, place);
                continue;
            };
            if let Err(problem) = self.adopt_process(&saved, process, (place, since), poller) {
                kept.refused += 1;
                let name = saved.hello().name;
                self.report_problem(format!("{name} ({}) is not recorded on: {problem}", saved.pid));
                self.give_up(&saved, place);
            }
        }
        // They were never given to a program.
        if let Some(keeper) = &self.config.keeper {
            kept.processes.keys().for_each(|key| keeper.release(*key));
        }
        if kept.refused != 0 {
            self.report_problem(format!("refused {} entries of the recording's keeper", kept.refused));
            let _ = self.commands.send(ConsumerCommand::ProcessRejected(kept.refused as i64));
        }
    }

    /// Remembers the names of sources' folders that are there already, and of traces that were.
    pub fn note_folders(&mut self, root: &DirHandle, ended: &[String]) {
        let ended = ended.iter().filter_map(|path| path.strip_prefix("user/"));
        self.folders.extend(ended.map(|name| self.hasher.hash_one(name)));
        let names = root.join("user").names().unwrap_or_default();
        let backing = self.config.backing.iter().flat_map(|backing| backing.names().unwrap_or_default());
        let names = names.into_iter().chain(backing).filter_map(|name| name.into_string().ok());
        self.folders.extend(names.map(|name| self.hasher.hash_one(&name)));
    }

    /// Has the trace of a process end with what its files hold: its rings are lost.
    fn give_up(&self, saved: &SavedProcess, place: TracePlace<'_>) {
        let (backing, keeper) = (self.config.backing.as_ref(), self.config.keeper.as_ref());
        let entry = backing.map(|backing| ProcessEntry::of(backing, saved, keeper));
        if let (Some(counting), Some(_)) = (&self.config.counting, &saved.counts) {
            // What it has counted is lost, too.
            counting.add(saved.pid, &saved.hello().name, None);
        }
        let lost = recover::lost_process(place, saved);
        let _ = self.commands.send(ConsumerCommand::Lost(Box::new(lost), entry));
    }

    fn adopt_process(
        &mut self,
        saved: &SavedProcess,
        kept: HeldProcess,
        (place, begin_ns): (TracePlace<'_>, u64),
        poller: &Poller,
    ) -> Result<(), String> {
        let HeldProcess { socket, control, rings, counts, watch } = kept;
        let peer = socket.peer().map_err(|error| error.to_string())?;
        if peer.pid != saved.pid {
            return Err(format!("expected the connection of process {}, found {}'s", saved.pid, peer.pid));
        }
        let (Some(backing), Some(keeper)) = (&self.config.backing, &self.config.keeper) else {
            return Err("its recording has no keeper".into());
        };
        let kept_in = ProcessBacking::held(backing.join(&saved.folder), [control, rings], keeper, saved.key);
        let mut process = Process::resume(kept_in, saved, &self.config, place, false)?;
        process.check_control()?;
        process.counts = add_counts(self.config.counting.as_deref(), saved, counts)?;
        process.ring_share = self.ring_budget.as_ref().map(|budget| budget.keep(process.ring_sizes()));
        self.report_damage(&process);
        let has_ended = watch.has_ended();
        if !has_ended && !process.has_begun() {
            // The old recorder may have been killed before it sent them. An agent that has them
            // closes these.
            let sent = process.send_files(&socket, &ToAgent::Welcome);
            sent.map_err(|error| format!("it can't be given its memory: {error}"))?;
        }
        let socket = Arc::new(socket);
        let adoption = Adoption {
            socket: socket.clone(),
            budget: self.budget_of(peer),
            context_sources: (!has_ended).then(|| self.context_sources_of(saved, peer)),
            begin_ns,
            triggers: self.config.event_triggers.clone(),
        };
        let mut process = process.adopt(adoption);
        process.lineage = Lineage { inner_pid: inner_pid(saved.pid), ..saved.lineage() };
        self.introductions.add(saved.pid, &process.hello.executable);
        let client = Client {
            pid: saved.pid,
            name: process.hello.name.clone(),
            lineage: process.lineage.clone(),
            socket: Some(socket),
            watch: Some(watch),
            is_besides_command: false,
        };
        self.add_client(saved.key, client, poller)?;
        let _ = self.commands.send(ConsumerCommand::Joined(Box::new(process)));
        Ok(())
    }

    fn context_sources_of(&self, saved: &SavedProcess, peer: Peer) -> ThreadContextSources {
        ThreadContextSources::new(&self.config, peer, saved.hello().pid, saved.given_time)
    }

    fn report_damage(&mut self, process: &Process) {
        process.damage().into_iter().for_each(|damage| self.report_problem(damage));
    }
}
