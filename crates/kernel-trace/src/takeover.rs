//! Take-over of the kernel's trace from a recorder that was killed.
//!
//! 1. The rings are mapped, and the programs leave out the calls of this process.
//! 2. Programs forget which stacks they have described: this recorder knows none of them.
//! 3. Streams are cut behind their last whole packets, and the rings are read from there on.
//! 4. Room up to there is given back, and the losses that the packets count are removed. The
//!    recorder before may have been killed within this step.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
};

use tompion_ctf::metadata::Uuid;
use tompion_keeper::Keeper;
use tompion_kernel::{
    Recorder,
    objects::{Key, Kind, Objects},
    ring::Span,
};
use tompion_os::{DirHandle, FileRights};
use tompion_restart_state::ProcessBegin;
use tompion_writer::{
    SavedState,
    resume::{Error as ResumeError, Expected},
};

use crate::{
    account::RingAccount,
    choice::KernelChoice,
    drain::Drain,
    keeping::{Keeping, SavedHeld, SavedKernel},
    outcome::Outcome,
    recording::{Kernel, Plan, read_state},
};

/// Bytes behind a stream's last whole packet that a recorder can have been writing.
const MAX_TORN: u64 = 64 << 20;

/// Notes the choice of events of a recording that is to outlast its recorder, before it begins.
/// `filter` is the text of the recording's.
///
/// # Errors
/// The note can't be written.
pub fn note_choice(backing: &DirHandle, choice: &KernelChoice, filter: Option<&str>) -> io::Result<()> {
    SavedKernel::new(choice, filter).write(backing)
}

/// The kernel's part of a recording, as a recorder has left it that was killed.
#[derive(Debug)]
pub struct LeftKernel {
    saved: SavedKernel,
    objects: Objects,
    /// The same choice of events.
    pub choice: KernelChoice,
}

/// The kernel's part of a recording that a keeper holds, to be completed.
#[derive(Debug)]
pub struct HeldKernel {
    /// The part; or a line that says why it can't be completed.
    pub left: Result<LeftKernel, String>,
    /// The keeper.
    pub keeper: Arc<Keeper>,
    /// Folder of the recording's state.
    pub backing: DirHandle,
}

impl HeldKernel {
    /// Finds what was left; none if nothing of the kernel is held.
    pub fn find(held: BTreeMap<u64, OwnedFd>, keeper: &Arc<Keeper>, backing: &DirHandle) -> Option<Self> {
        let (keeper, backing) = (keeper.clone(), backing.clone());
        let is_there = !held.is_empty();
        is_there.then(|| Self { left: LeftKernel::find(&backing, &keeper, held), keeper, backing })
    }
}

/// Trace of a recorder that was killed.
#[derive(Debug)]
pub struct LeftTrace {
    uuid: Uuid,
    held: SavedHeld,
    begin: Option<ProcessBegin>,
}

impl LeftKernel {
    /// Finds what was left: the state below a recording's, and what its keeper holds. It keeps
    /// nothing of it if this fails.
    ///
    /// # Errors
    /// A line for people: it can't go on, so kernel events end.
    pub fn find(backing: &DirHandle, keeper: &Keeper, held: BTreeMap<u64, OwnedFd>) -> Result<Self, String> {
        let all: Vec<u64> = held.keys().copied().collect();
        let found = Self::check(backing, Objects::new(held));
        let has_begun = found.as_ref().is_ok_and(Self::has_begun);
        if !has_begun && !all.is_empty() {
            // Its programs would write on for no reader.
            let _ = keeper.release_objects(all.into_iter());
        }
        found
    }

    fn check(backing: &DirHandle, objects: Objects) -> Result<Self, String> {
        let saved = SavedKernel::read(backing)?.ok_or("its choice of kernel events was not saved")?;
        saved.check_version()?;
        // What programs are loaded with is root's to read. Paths of probes are not: the folder's
        // owner may have written them.
        let _rights = if saved.names_files() { None } else { FileRights::of_the_process().ok() };
        let mut choice = saved.choice()?;
        choice.is_taken_over = saved.held.is_some();
        Ok(Self { saved, objects, choice })
    }

    /// Whether anything can have been recorded. Else it begins as a new one does.
    pub fn has_begun(&self) -> bool {
        self.saved.held.is_some()
    }

    /// Takes over. `begin` is the state with which the open chunk began.
    ///
    /// # Errors
    /// A line for people: it can't go on.
    pub fn take_over(self, plan: &Plan<'_>, begin: Option<ProcessBegin>) -> Result<Kernel, String> {
        let all: Vec<u64> = self.objects.keys().map(Key::to_number).collect();
        self.try_to_take_over(plan, begin).inspect_err(|_| {
            // Its programs would write on for no reader.
            let _ = plan.keep.map(|keep| keep.keeper.release_objects(all.into_iter()));
        })
    }

    fn try_to_take_over(self, plan: &Plan<'_>, begin: Option<ProcessBegin>) -> Result<Kernel, String> {
        let Self { saved, objects, choice } = self;
        let keep = plan.keep.ok_or("it has no keeper")?;
        let held = saved.held.clone().ok_or("nothing of it is held")?;
        let (uuid, geometry) = (held.uuid()?, held.geometry()?);
        let vocabulary = held.vocabulary(&choice)?;
        let links = objects.count(Kind::Link);
        let keys: Vec<_> = objects.keys().collect();
        let recorder =
            Recorder::of_held(objects, geometry, choice.contexts).map_err(|error| error.to_string())?;
        let (commands, inbox) = mpsc::channel();
        let mut drain = Drain::new(recorder, Arc::new(vocabulary), plan, (uuid, inbox));
        drain.problems.clone_from(&held.problems);
        if links < held.links && !held.is_changing {
            let text =
                "a recorder was killed while it ended; kernel events from then on are not in the trace";
            drain.problems.push(text.into());
            drain.losses_unknown = true;
        }
        if held.is_changing {
            let text =
                "a recorder was killed while it changed its kernel events; some of them may be missing";
            drain.problems.push(text.into());
            drain.losses_unknown = true;
        }
        drain.has_state = held.has_state;
        drain.left = Some(LeftTrace { uuid, held, begin });
        let keeping = Keeping::new(keep.keeper.clone(), keep.backing.clone(), saved, keys.into_iter());
        drain.keeping = Some(keeping);
        Ok(Kernel::of(drain, plan, commands))
    }

    /// Completes the trace, in the folder of the plan: that of the recording, or of its open chunk.
    ///
    /// # Errors
    /// A line for people: it can't be completed with what the rings hold.
    pub fn complete(self, plan: &Plan<'_>, begin: Option<ProcessBegin>) -> Result<Outcome, String> {
        let mut drain = self.take_over(plan, begin)?.into_drain().ok_or("its thread runs")?;
        let folder = drain.folder.clone();
        if let Some(left) = drain.left.take() {
            drain.continue_trace(folder, left);
        }
        if drain.state.take().is_some() {
            // What processes are now is not what they were.
            drain.problems.push("the kernel's initial state is not complete".into());
        }
        Ok(drain.finish())
    }
}

impl Drain {
    /// Continues a trace in a folder that the recorder before has left.
    pub fn continue_trace(&mut self, folder: DirHandle, left: LeftTrace) {
        let LeftTrace { uuid, held, begin } = left;
        let ProcessBegin { counts, trace } = begin.clone().unwrap_or_default();
        let copies = self.keeping.as_ref().map_or_else(|| folder.clone(), Keeping::copies);
        let state = SavedState { copies: &copies, trace: begin.as_ref().map(|_| &trace) };
        self.folder = folder.clone();
        self.writer.set_folder(folder);
        self.writer.begun_at(held.begun_ns);
        let most_torn = MAX_TORN + 4 * self.recorder.geometry().ring_size();
        let released = |cpu: usize| self.recorder.ring(cpu as u32).released();
        let expected = |cpu| Expected { uuid, trusted: Some(released(cpu)), most_torn };
        let expected: Vec<_> = (0..self.read.len()).map(expected).collect();
        let resumed = match self.writer.resume_in_chunk(state, &expected) {
            Ok(resumed) => resumed,
            Err(error) => {
                self.fail_to_continue(&error);
                Default::default()
            }
        };
        self.losses_unknown |= !resumed.damage.is_empty();
        self.problems.extend(resumed.damage);
        (0..self.read.len()).for_each(|cpu| self.continue_ring(cpu));
        if let Some(chunks) = &mut self.chunks {
            self.overwritten = counts.overwritten;
            chunks.counts_before = counts;
            let sum = |of: fn(&RingAccount) -> u64| self.accounts.iter().map(of).fold(0, u64::saturating_add);
            let known = [self.writer.written_of_rings(), sum(|it| it.unwanted), sum(|it| it.refused)];
            let known = known.into_iter().fold(0, u64::saturating_add);
            chunks.dropped = sum(|it| it.records).saturating_sub(known);
        }
        self.stacks.resume(u32::try_from(resumed.initial.catalog).unwrap_or(u32::MAX));
        self.state_bytes = self.writer.initial_bytes();
        self.is_state_complete = self.state_bytes > 0 && resumed.initial.pinned != 0;
        if self.has_state && !self.is_state_complete {
            // What processes are is root's to read.
            let _rights = FileRights::of_the_process().ok();
            self.state = read_state().ok();
        }
    }

    /// Without its files, the trace ends; what comes is counted.
    fn fail_to_continue(&mut self, error: &ResumeError) {
        self.stop(&io::Error::other(error.to_string()));
        self.losses_unknown = true;
    }

    /// Reads a ring on where its packets end.
    fn continue_ring(&mut self, cpu: usize) {
        let mark = self.writer.mark(cpu);
        self.accounts[cpu] = mark.into();
        self.losses[cpu].full = self.accounts[cpu].full;
        if let Some(switch_gaps) = &mut self.switch_gaps {
            switch_gaps.interrupt(cpu);
        }
        let ring = self.recorder.ring(cpu as u32);
        let (mut end, released) = (mark.ring_end, ring.released());
        if !self.overwrite {
            if released > end {
                // The recorder before could not write, and gave room back all the same.
                end = released;
                self.losses_unknown = true;
                self.attempt(|drain| drain.writer.interrupt(cpu, mark));
            } else {
                ring.release(Span { begin: released, end });
            }
        }
        (self.read[cpu], self.converted[cpu], self.released[cpu]) = (end, end, end);
    }
}
