//! Memory files of recorded processes: made when a process introduces itself, or prepared for the
//! next children of one that forks.
//!
//! A forked child would otherwise wait until the session has run and made its memory, which takes
//! as long as all the rest of its recording. Prepared memory waits on the parent's connection: the
//! kernel's queue gives it to one child only. The child records into it at once, and names it in
//! its `Hello`.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use tompion_counting::CountFile;
use tompion_firings::MatchCounts;
use tompion_layout::{
    LAYOUT_VERSION, control,
    record::WriteProtocol,
    ring::{self, Geometry},
    triggers::Epochs,
};
use tompion_os::{PacketSocket, SharedMap, create_memfd};
use tompion_protocol::{
    message::{Hello, ToAgent},
    rules::Rules,
};
use tompion_ring::{captures, rules_text};
use tompion_triggers::EventTable;

use crate::target::Admission;
use crate::{
    filter,
    session_config::{SessionConfig, form_for},
};

/// Maximum number of memories that wait for the children of one process: a pipeline's two.
const MAX_PREPARED_OF_ONE: usize = 2;
/// The same while children come one after the other: those of two [`crate::pace::BATCH_INTERVAL`]s.
const MAX_PREPARED_IF_STEADY: usize = 8;
/// Maximum number that wait for the children of all.
const MAX_PREPARED: usize = 64;
/// Time after which prepared memory is lost if a child found none, or if its parent is gone: the
/// child that took it has ended without a `Hello`.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(1);

/// Format of what a process writes into its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    /// Form of records in the rings.
    pub form: WriteProtocol,
    /// Timestamps are CLOCK_MONOTONIC.
    pub given_time: bool,
    /// Size of its control file.
    pub control_size: u64,
    /// Sizes of its rings.
    pub geometry: Geometry,
    /// It counts events in place.
    pub counts: bool,
    /// It follows triggers that change.
    pub follows_triggers: bool,
}

/// Expectation of a process's next children, from the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Format in which they write.
    pub writing: Writing,
    /// CPU on which they run, if the last one has told.
    pub cpu: Option<u32>,
    /// Whether they come one after the other, so that the session looks after several at a time.
    pub is_steady: bool,
}

/// The mapped memory of a process.
#[derive(Debug)]
pub struct MappedMemory {
    /// Control file.
    pub control: SharedMap,
    /// Ring file.
    pub rings: SharedMap,
    /// Count file, if the process counts.
    pub counts: Option<CountFile>,
    /// Triggers that were written there, and their matches.
    pub match_counts: MatchCounts,
}

impl SessionConfig {
    /// Format in which a process writes into its memory.
    pub fn writing(&self, hello: &Hello) -> Writing {
        let control_size = control::file_size_for(hello.control_size);
        let given_time = !(self.tsc && hello.tsc);
        let has_room = self.backing.is_none() || self.keeper.is_some();
        let has_counts = self.counting.as_ref().is_some_and(|counting| counting.has_room());
        let counts = hello.counts && has_counts && has_room;
        Writing {
            form: form_for(hello),
            given_time,
            control_size,
            geometry: self.geometry,
            counts,
            follows_triggers: hello.follows_triggers,
        }
    }

    /// Makes two sealed memory files, with the header of a process that writes like this.
    pub fn create_memory(&self, writing: Writing) -> io::Result<(MappedMemory, [OwnedFd; 2])> {
        let new = |name: &CStr, size| -> io::Result<(OwnedFd, SharedMap)> {
            let file = create_memfd(name, size)?;
            let map = SharedMap::new(file.as_fd(), size)?;
            Ok((file, map))
        };
        let (control_file, control) = new(c"tompion-control", writing.control_size)?;
        let (ring_file, rings) = new(c"tompion-rings", writing.geometry.file_size())?;
        self.write_header(&control, writing);
        let counting = self.counting.as_ref().filter(|_| writing.counts);
        let counts = counting.map(|counting| counting.create_file()).transpose()?;
        let match_counts = MatchCounts::new(&self.event_triggers, writing.follows_triggers);
        Ok((MappedMemory { control, rings, counts, match_counts }, [control_file, ring_file]))
    }

    /// Makes memory for a child, with the pages present that each child needs if it runs on this
    /// CPU, and sends it. The child then only maps them.
    fn prepare_memory(
        &self,
        socket: &PacketSocket,
        expected: Expected,
        number: u64,
    ) -> io::Result<MappedMemory> {
        let (memory, files) = self.create_memory(expected.writing)?;
        let catalog = memory.control.base().wrapping_add(control::CATALOG as usize);
        tompion_os::populate(catalog, tompion_layout::PAGE as usize);
        let geometry = expected.writing.geometry;
        if let Some(cpu) = expected.cpu.filter(|cpu| *cpu < geometry.cpus()) {
            let ring = (geometry.cpu_stride() * u64::from(cpu)) as usize;
            let len = ring::FIRST_OF_CHILD.min(memory.rings.len());
            tompion_os::populate(memory.rings.base().wrapping_add(ring), len);
        }
        let message = ToAgent::Prepared { number };
        self.send_memory(socket, &message, files.each_ref().map(AsFd::as_fd), memory.counts.as_ref())?;
        Ok(memory)
    }

    /// Makes all pages present that events of a process write, if the session is to.
    pub fn prefault(&self, control: &SharedMap, rings: &SharedMap) -> io::Result<()> {
        if !self.prefault {
            return Ok(());
        }
        control.prefault(control::PINNED as usize)?;
        rings.prefault(0)
    }

    /// Sends memory files with a message, what selects the buffer, and the count file.
    pub fn send_memory(
        &self,
        socket: &PacketSocket,
        message: &ToAgent,
        files: [BorrowedFd<'_>; 2],
        counts: Option<&CountFile>,
    ) -> io::Result<()> {
        let selector = self.selector.as_ref().map(|array| array.as_fd());
        let files: Vec<_> = files.into_iter().chain(selector).chain(counts.map(CountFile::as_fd)).collect();
        socket.send(&message.encode(), &files)
    }

    /// Writes the configuration that a process needs into its control file.
    pub fn write_header(&self, map: &SharedMap, writing: Writing) {
        let geometry = writing.geometry;
        let flags = if self.overwrite { control::FLAG_OVERWRITE } else { 0 }
            | if writing.given_time { control::FLAG_MONOTONIC } else { 0 }
            | if writing.form == WriteProtocol::ReserveCommit { control::FLAG_RESERVE } else { 0 }
            | if self.backing.is_some() { control::FLAG_PERSISTENT } else { 0 }
            | if writing.counts { control::FLAG_COUNTS } else { 0 }
            | if self.prefault { control::FLAG_PREFAULT } else { 0 }
            | if self.application_contexts { control::FLAG_CONTEXTS } else { 0 };
        // Ordering: the file is passed on afterwards, by a system call.
        let half = |offset, value| map.half(offset).store(value, Ordering::Relaxed);
        let word = |offset, value| map.word(offset).store(value, Ordering::Relaxed);
        word(control::OFFSET_MAGIC, control::MAGIC);
        half(control::OFFSET_VERSION, LAYOUT_VERSION);
        half(control::OFFSET_FLAGS, flags);
        word(control::OFFSET_SUBBUF_SIZE, geometry.subbuf_size());
        word(control::OFFSET_SUBBUF_COUNT, geometry.subbuf_count());
        half(control::OFFSET_CPUS, geometry.cpus());
        half(control::OFFSET_BUFFERS, geometry.buffers());
        rules_text::publish(map, self.rules.to_text().as_bytes());
        let (triggers, epochs) = (self.event_triggers.text(), self.event_triggers.epochs());
        if !triggers.is_empty() || epochs != Epochs::default() {
            captures::publish(map, triggers.as_bytes(), &epochs);
        }
    }

    /// Whether a child may record before the session has seen it. Not where the session needs to
    /// see it alive: for its threads, its descent, its share of the memory, the files with it. Nor
    /// where memory takes long to make.
    fn allow_prepared(&self) -> bool {
        let looks_at_threads =
            !self.contexts.is_empty() || self.rules.filter.as_deref().is_some_and(filter::needs_session);
        let is_for_anyone = matches!(self.admission, Admission::Anyone);
        is_for_anyone
            && !looks_at_threads
            && self.backing.is_none()
            && self.jobs.is_none()
            && self.memory.is_none()
            && !self.prefault
    }
}

/// Memory that waits for a child.
#[derive(Debug)]
struct Prepared {
    number: u64,
    parent: u64,
    since: Instant,
    /// Time at which the parent's connection ended.
    orphaned: Option<Instant>,
    writing: Writing,
    memory: MappedMemory,
}

/// All memory that waits for children.
#[derive(Debug, Default)]
pub struct PreparedMemory(Vec<Prepared>);

impl PreparedMemory {
    /// Prepares memory for the next children of a process, which has this key and connection.
    pub fn prepare(&mut self, key: u64, socket: &PacketSocket, expected: Expected, config: &SessionConfig) {
        if !config.allow_prepared() {
            return;
        }
        let is_lost = |it: &Prepared| it.orphaned.is_some_and(|when| when.elapsed() >= CLAIM_TIMEOUT);
        self.0.retain(|prepared| !is_lost(prepared));
        let of_parent = self.0.iter().filter(|prepared| prepared.parent == key).count();
        let wanted = if expected.is_steady { MAX_PREPARED_IF_STEADY } else { MAX_PREPARED_OF_ONE };
        for _ in of_parent..wanted.min(of_parent + MAX_PREPARED.saturating_sub(self.0.len())) {
            // A random number, so that only a child that received the memory can claim it.
            let (number, _) = uuid::Uuid::new_v4().as_u64_pair();
            match config.prepare_memory(socket, expected, number) {
                Ok(memory) => {
                    let writing = expected.writing;
                    let (parent, since, orphaned) = (key, Instant::now(), None);
                    self.0.push(Prepared { number, parent, since, orphaned, writing, memory });
                }
                // Its children wait for an answer.
                Err(_) => return,
            }
        }
    }

    /// Replaces the rules in all memory that waits.
    pub fn set_rules(&self, rules: &Rules) {
        let text = rules.to_text();
        self.0.iter().for_each(|prepared| rules_text::publish(&prepared.memory.control, text.as_bytes()));
    }

    /// Replaces the triggers on events in all memory that waits.
    pub fn set_triggers(&mut self, table: &EventTable) {
        for Prepared { memory, .. } in &mut self.0 {
            memory.match_counts.change(&memory.control, table);
        }
    }

    /// Takes the memory that a child has named. Returns it with the parent's key.
    pub fn claim(&mut self, number: u64, writing: Writing) -> Option<(u64, MappedMemory)> {
        let index = self.0.iter().position(|it| it.number == number && it.writing == writing)?;
        let Prepared { parent, memory, .. } = self.0.swap_remove(index);
        Some((parent, memory))
    }

    /// Forgets memory that a child did not find: another one took it and never sent a `Hello`.
    pub fn forget_taken(&mut self, key: u64) {
        self.0.retain(|prepared| prepared.parent != key || prepared.since.elapsed() < CLAIM_TIMEOUT);
    }

    /// Notes that a parent's connection has ended. Children that have memory are on their way.
    pub fn orphan(&mut self, key: u64) {
        for prepared in self.0.iter_mut().filter(|prepared| prepared.parent == key) {
            prepared.orphaned.get_or_insert_with(Instant::now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writing() -> Writing {
        let geometry = Geometry::new(4096, 2, 1, 1).unwrap();
        let control_size = control::FILE_SIZE;
        Writing {
            form: WriteProtocol::Rseq,
            given_time: false,
            control_size,
            geometry,
            counts: false,
            follows_triggers: true,
        }
    }

    fn prepared(number: u64, parent: u64) -> Prepared {
        let writing = writing();
        let file = create_memfd(c"test", 4096).unwrap();
        let map = || SharedMap::new(file.as_fd(), 4096).unwrap();
        let memory =
            MappedMemory { control: map(), rings: map(), counts: None, match_counts: MatchCounts::default() };
        Prepared { number, parent, since: Instant::now(), orphaned: None, writing, memory }
    }

    #[test]
    fn memory_is_claimed_once_and_only_by_who_writes_as_it_was_made_for() {
        let mut all = PreparedMemory(vec![prepared(1, 10), prepared(2, 20)]);
        assert!(all.claim(3, writing()).is_none());
        assert!(all.claim(2, Writing { given_time: true, ..writing() }).is_none());
        assert_eq!(all.claim(2, writing()).map(|(parent, _)| parent), Some(20));
        assert!(all.claim(2, writing()).is_none());
    }

    #[test]
    fn memory_on_its_way_is_not_forgotten() {
        let mut all = PreparedMemory(vec![prepared(1, 10)]);
        all.forget_taken(10);
        all.orphan(10);
        assert!(all.claim(1, writing()).is_some());
    }
}
