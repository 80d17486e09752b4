//! The recorded kernel, as the session's control thread has it: begun, asked, finished.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use tompion_ctf::metadata::Uuid;
use tompion_keeper::Keeper;
use tompion_kernel::{
    Error, Options, Recorder, Selection,
    decode::Vocabulary,
    ring::Geometry,
    state::{self, State},
};
use tompion_kernel_context::filter::KernelFilter;
use tompion_lineage::untraced::ExecutionLog;
use tompion_manifest::KERNEL;
use tompion_os::DirHandle;

use crate::{
    change::KernelChange,
    choice::KernelChoice,
    chunks::{self, ChunkControl, ChunkEnd},
    drain::Drain,
    keeping::{Keeping, SavedHeld, SavedKernel},
    outcome::{Outcome, problems_of},
};

/// Size of the kernel's rings, and destination of their events.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Choice of events.
    pub choice: &'a KernelChoice,
    /// Text of the recording's filter.
    pub filter: Option<&'a str>,
    /// Folder of the recording.
    pub folder: &'a DirHandle,
    /// Whether the recording is in chunks: then [`ChunkControl`] says in which folders.
    pub is_in_chunks: bool,
    /// Overwrite mode; else discard mode.
    pub overwrite: bool,
    /// Name of the machine.
    pub hostname: &'a str,
    /// Identifies the boot.
    pub boot_id: &'a str,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC in nanoseconds.
    pub clock_offset_ns: i64,
    /// Bytes of a CPU's ring.
    pub ring_size: u64,
    /// Processes whose system calls are recorded, with their children's; none for all processes'.
    pub follow: Vec<u32>,
    /// Those of them that the user has named.
    pub named: &'a [u32],
    /// Tells the user something at once.
    pub notice: fn(&str),
    /// Place by which the recording outlasts its recorder; none if it doesn't.
    pub keep: Option<Keep<'a>>,
}

/// Place by which a recording outlasts its recorder.
#[derive(Clone, Copy, Debug)]
pub struct Keep<'a> {
    /// Holder of maps, programs and links.
    pub keeper: &'a Arc<Keeper>,
    /// Folder of the recording's state.
    pub backing: &'a DirHandle,
}

/// Command to the kernel's thread.
#[derive(Debug)]
pub enum KernelCommand {
    /// Save what the flight recorder holds; the answer is how many events that were, and how many
    /// there are in all.
    Snapshot(Sender<(u64, u64)>),
    /// Save what comes until this time, before it is overwritten.
    KeepSaving(Instant),
    /// Pass over what the flight recorder holds.
    DropHistory,
    /// Record other events.
    Change(KernelChange),
    /// End the chunk.
    EndChunk(ChunkEnd),
    /// Complete everything.
    Finish,
}

/// The recorded kernel, before and while its thread runs.
pub struct Kernel {
    /// State that the thread gets when it starts.
    idle: Option<Drain>,
    commands: Sender<KernelCommand>,
    /// Control of its chunks, until it is taken.
    chunks: Option<ChunkControl>,
    thread: Option<JoinHandle<Outcome>>,
}

impl Kernel {
    /// Loads the programs and attaches them.
    ///
    /// # Errors
    /// If the kernel can't be recorded.
    pub fn prepare(plan: &Plan<'_>) -> Result<Self, Error> {
        let KernelChoice { selection, calls, .. } = plan.choice;
        let options = Options {
            selection: selection.clone(),
            overwrite: plan.overwrite,
            geometry: Geometry::of_size(tompion_os::online_cpus(), plan.ring_size),
            follow: plan.follow.clone(),
            filter: plan.choice.filter.clone(),
            contexts: plan.choice.contexts,
        };
        let mut recorder = Recorder::load(&options, calls)?;
        recorder.attach()?;
        let (commands, inbox) = mpsc::channel();
        let uuid = Uuid(uuid::Uuid::new_v4().into_bytes());
        let vocabulary = Arc::new(Vocabulary {
            calls: calls.clone(),
            tracepoints: selection.tracepoints.clone(),
            probes: selection.probes.clone(),
        });
        let mut drain = Drain::new(recorder, vocabulary, plan, (uuid, inbox));
        if let Some(keep) = plan.keep {
            drain.keeping = Some(hold(plan, keep, &drain, uuid)?);
        }
        if selection.state {
            (drain.state, drain.has_state) = (Some(read_state()?), true);
        }
        Ok(Self::of(drain, plan, commands))
    }

    /// The kernel with this state of its thread.
    pub(crate) fn of(mut drain: Drain, plan: &Plan<'_>, commands: Sender<KernelCommand>) -> Self {
        drain.executions = ExecutionLog::new(plan.named);
        if let (Some(filter), Some(text)) = (&plan.choice.filter, plan.filter) {
            drain.filter = Some(KernelFilter::new(text, filter.clone(), Arc::clone(&drain.vocabulary)));
            drain.switch_gaps = None;
        }
        let chunks = plan.is_in_chunks.then(|| chunks::control(&mut drain, commands.clone()));
        Self { idle: Some(drain), commands, chunks, thread: None }
    }

    /// State of the thread, which was not started.
    pub(crate) fn into_drain(self) -> Option<Drain> {
        self.idle
    }

    /// Follows more processes, with the children that they will have. It must not run yet.
    ///
    /// # Errors
    /// If the programs' set of processes can't be changed.
    pub fn follow(&self, pids: &[u32]) -> Result<(), Error> {
        self.idle.as_ref().map_or(Ok(()), |drain| drain.recorder.follow(pids))
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn start(&mut self) -> io::Result<()> {
        let Some(drain) = self.idle.take() else { return Ok(()) };
        self.thread = Some(thread::Builder::new().name(KERNEL.into()).spawn(move || drain.run())?);
        Ok(())
    }

    /// Takes the control of the trace's chunks, if the recording is in chunks. Nothing is written
    /// before it says where.
    pub fn take_chunk_control(&mut self) -> Option<ChunkControl> {
        self.chunks.take()
    }

    /// Has saved what the flight recorder holds. The receiver gets the number of events, and of all
    /// that were ever saved.
    pub fn snapshot(&self) -> mpsc::Receiver<(u64, u64)> {
        let (sender, receiver) = mpsc::channel();
        // Without the thread, the receiver finds the end.
        let _ = self.commands.send(KernelCommand::Snapshot(sender));
        receiver
    }

    /// Has what comes until this time saved before it is overwritten.
    pub fn keep_saving(&self, until: Instant) {
        let _ = self.commands.send(KernelCommand::KeepSaving(until));
    }

    /// Drops what the flight recorder holds: the next snapshot begins behind it.
    pub fn drop_history(&self) {
        let _ = self.commands.send(KernelCommand::DropHistory);
    }

    /// Records other events from now on. `done` receives lines about those that can't be recorded,
    /// once the others are.
    pub fn change(&self, selection: Selection, words: Vec<String>, done: Sender<Vec<String>>) {
        let _ = self.commands.send(KernelCommand::Change(KernelChange { selection, words, done }));
    }

    /// Detaches the programs and completes the trace.
    pub fn finish(mut self) -> Option<Outcome> {
        let _ = self.commands.send(KernelCommand::Finish);
        self.thread.take()?.join().ok()
    }
}

/// Has the keeper hold what records.
fn hold(plan: &Plan<'_>, keep: Keep<'_>, drain: &Drain, uuid: Uuid) -> Result<Keeping, Error> {
    let Keep { keeper, backing } = keep;
    let saved = SavedKernel::new(plan.choice, plan.filter);
    let geometry = drain.recorder.geometry();
    let has_state = plan.choice.selection.state;
    let mut held = SavedHeld::new(uuid, geometry, has_state, &drain.vocabulary);
    held.problems = problems_of(&drain.recorder);
    let keeping = Keeping::new(keeper.clone(), backing.clone(), saved, std::iter::empty());
    let objects = drain.recorder.objects()?;
    keeping.hold(&objects, Some(held)).map_err(|error| {
        // Its programs would write on for no reader.
        let _ = keeper.release_objects(objects.iter().map(|(key, _)| key.to_number()));
        Error::Keeper(error)
    })?;
    Ok(keeping)
}

/// Starts a thread that reads the state of the machine. It has this thread's rights to look into
/// processes.
///
/// # Errors
/// If the system refuses.
pub fn read_state() -> io::Result<Receiver<Vec<State>>> {
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        // Without a receiver recording has ended early, and the rest is not needed.
        state::read(&mut |states| drop(sender.send(states)));
    };
    thread::Builder::new().name("state".into()).spawn(read)?;
    Ok(receiver)
}
