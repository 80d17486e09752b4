//! Placement of a process's events: in a trace of its own, or in one that short processes share.
//!
//! Nothing is converted before that is decided, so a process that ends soon costs no file. It gets
//! a trace of its own when its events can't wait any longer, or when it has something to say that a
//! shared trace has no place for: losses, an initial state.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use tompion_ctf::{encode, metadata::Uuid};
use tompion_os::DirHandle;
use tompion_writer::{IdentityFields, SourceWriter};

use super::Process;

/// Name of the shared trace's folder. Those of processes end with a process id.
pub const SHARED_FOLDER: &str = "short-lived";
/// So long may events wait for the end of their process.
const MAX_WAIT: Duration = Duration::from_millis(200);
/// So many bytes of a process may.
const MAX_WAITING_BYTES: u64 = 64 << 10;
/// A process that describes more events has a trace of its own: descriptions stay in the shared one
/// for good.
const MAX_SHARED_DESCRIPTIONS: usize = 64;

/// Trace of a process's events.
#[derive(Debug)]
pub(super) enum Placement {
    /// Not decided yet, with the time since when events wait.
    Undecided(Option<Instant>),
    /// Events go to a trace of the process's own.
    Own,
    /// Events go to the trace that short processes share.
    Shared {
        /// The process, as each of its events says it.
        identity: Vec<u8>,
        /// Number of its events there, once they are written.
        events: u64,
    },
}

impl Process {
    /// Whether it is open where the process's events go.
    pub fn is_undecided(&self) -> bool {
        matches!(self.placement, Placement::Undecided(_))
    }

    /// Whether events wait for a decision and must not wait any longer.
    pub fn must_be_placed(&mut self) -> bool {
        let Placement::Undecided(since) = &mut self.placement else { return false };
        let waiting = self.states.iter().flat_map(|state| &state.pending);
        let waiting: u64 = waiting.map(|(span, _)| span.end - span.begin).sum();
        if waiting == 0 {
            return false;
        }
        let since = *since.get_or_insert_with(Instant::now);
        waiting > MAX_WAITING_BYTES || since.elapsed() >= MAX_WAIT
    }

    /// Gives the process a trace of its own.
    pub fn place_apart(&mut self) {
        self.placement = Placement::Own;
    }

    /// Whether a process that has ended can share a trace with others.
    pub fn may_share(&mut self) -> bool {
        if !self.is_undecided() || self.is_durable() || self.context_sources.jobs.is_some() || self.given_up {
            return false;
        }
        self.read_catalog();
        self.read_kept();
        let losses = self.losses(|_| true);
        let lost = losses.total != 0 || losses.unknown;
        !lost && self.initial.is_empty() && self.classes.len() <= MAX_SHARED_DESCRIPTIONS
    }

    /// Has events go to the recording's shared trace from now on, which is made with the first
    /// process that needs it. Pairs with [`Process::leave_shared`].
    pub fn enter_shared(&mut self, shared: &mut Option<SourceWriter>, recording: &DirHandle) {
        let description = self.writer.description();
        let fields = IdentityFields::beside(&description.context);
        let identity = fields.encode(self.pid, &self.hello.name);
        let mut writer = shared.take().unwrap_or_else(|| {
            let folder = recording.join("user").join(SHARED_FOLDER);
            SourceWriter::shared(folder, description_of_many(description, fields))
        });
        writer.begin_process(self.states.len());
        *shared = Some(std::mem::replace(&mut self.writer, writer));
        self.placement = Placement::Shared { identity, events: 0 };
    }

    /// Gives the shared trace back.
    pub fn leave_shared(&mut self, shared: &mut Option<SourceWriter>) {
        let written = self.writer.end_process();
        if let Placement::Shared { events, .. } = &mut self.placement {
            *events = written;
        }
        if let Some(own) = shared {
            std::mem::swap(&mut self.writer, own);
        }
    }

    /// Events of the rings in whole packets.
    pub(super) fn written_of_rings(&self) -> u64 {
        match self.placement {
            Placement::Shared { events, .. } => events,
            _ => self.writer.written_of_rings(),
        }
    }

    /// All events in whole packets.
    pub(super) fn written(&self) -> u64 {
        match self.placement {
            Placement::Shared { events, .. } => events,
            _ => self.writer.written(),
        }
    }

    /// The folder with the process's events.
    pub(super) fn trace_folder(&self) -> PathBuf {
        let own = self.writer.folder().path();
        match self.placement {
            Placement::Shared { .. } => own.with_file_name(SHARED_FOLDER),
            _ => own.to_owned(),
        }
    }
}

/// Description of a trace of many processes, in which each event names its own.
fn description_of_many(one: &encode::Source, fields: IdentityFields) -> encode::Source {
    const OF_ONE: [&str; 4] = ["vpid", "procname", "executable", "ring_producer"];
    let environment = one.environment.iter().filter(|(name, _)| !OF_ONE.contains(&name.as_str()));
    encode::Source {
        uuid: Uuid(uuid::Uuid::new_v4().into_bytes()),
        environment: environment.cloned().collect(),
        context: fields.fields().chain(one.context.iter().cloned()).collect(),
        ..one.clone()
    }
}
