//! Configuration of a session: what all its processes have in common.

use std::{os::fd::OwnedFd, sync::Arc};

use crate::target::Admission;
use tompion_counting::Collector;
use tompion_ctf::{encode, metadata::Uuid};
use tompion_jobs::JobSink;
use tompion_keeper::Keeper;
use tompion_layout::{record::WriteProtocol, ring::Geometry};
use tompion_manifest as manifest;
use tompion_os::DirHandle;
use tompion_programs::ProgramSets;
use tompion_protocol::{message::Hello, rules::Rules};
use tompion_triggers::EventTable;
use tompion_writer::environment;

use crate::{context::Context, ring_budget::RingMemory};

/// Configuration that all processes of the session share.
#[derive(Debug)]
pub struct SessionConfig {
    /// Sizes of its rings, of the first program's where programs get shares of the memory.
    pub geometry: Geometry,
    /// Memory that all rings share, where it is limited.
    pub memory: Option<RingMemory>,
    /// Whether all pages of the rings are made present before the first event.
    pub prefault: bool,
    /// Rules that enable events.
    pub rules: Rules,
    /// Triggers on events.
    pub event_triggers: EventTable,
    /// Overwrite mode; else discard mode.
    pub overwrite: bool,
    /// Whether events carry the id of their thread.
    pub tid: bool,
    /// Context of events about their threads.
    pub contexts: Vec<Context>,
    /// Whether events carry the application's contexts.
    pub application_contexts: bool,
    /// Whether this machine's TSC is fit for timestamps.
    pub tsc: bool,
    /// Whether this machine's kernel restarts sections as it must.
    pub rseq: bool,
    /// Folder of the trace.
    pub folder: DirHandle,
    /// Name of the machine.
    pub hostname: String,
    /// Identifies the boot.
    pub boot_id: String,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC in nanoseconds.
    pub clock_offset_ns: i64,
    /// User ids that may take part.
    pub users: Vec<u32>,
    /// Rule for which of their processes may.
    pub admission: Admission,
    /// Whether the recording is in chunks.
    pub is_in_chunks: bool,
    /// Sets of programs that may take part, where it is for sets to say.
    pub programs: Option<ProgramSets>,
    /// Whether the session has started a command, which takes part with all that it starts.
    pub has_command: bool,
    /// Folder in which the processes' memory is kept, if it is.
    pub backing: Option<DirHandle>,
    /// Keeper of the processes' memory, if they are to outlast the recorder alone.
    pub keeper: Option<Arc<Keeper>>,
    /// Sink of jobs; then nothing is written.
    pub jobs: Option<JobSink>,
    /// Counts of events, if some are counted in place.
    pub counting: Option<Arc<Collector>>,
    /// The array whose first word selects the buffer, where that isn't for the session to say.
    pub selector: Option<Arc<OwnedFd>>,
}

/// Description of the trace of a process.
pub fn describe(config: &SessionConfig, hello: &Hello, pid: u32, uuid: Uuid) -> encode::Source {
    let SessionConfig { hostname, boot_id, clock_offset_ns, tid, contexts, .. } = config;
    let mut environment = environment::of_process(hostname, pid, &hello.name);
    environment.extend([
        environment::text("ring_producer", manifest::producer(form_for(hello))),
        environment::text("executable", &hello.executable),
    ]);
    encode::Source {
        uuid,
        environment,
        clock_uuid: Uuid::parse(boot_id),
        clock_offset_ns: *clock_offset_ns,
        clock_precision_ns: 20,
        numbers_streams: config.is_in_chunks,
        tid: *tid,
        context: contexts.iter().flat_map(|context| context.fields()).collect(),
    }
}

/// The form of a process's rings: without restartable sequences it has to reserve its records.
pub const fn form_for(hello: &Hello) -> WriteProtocol {
    if hello.rseq { WriteProtocol::Rseq } else { WriteProtocol::ReserveCommit }
}
