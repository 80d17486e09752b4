//! Writes a complete trace from events held in memory, without a ring. Latency incidents use it.
//!
//! The latency monitor's incidents are made so. What the events are is the caller's business.

use std::io;

use tompion_ctf::{
    encode::{self, ContextField, Record, Tally},
    metadata::Uuid,
};
use tompion_manifest::{self as manifest, Channel, Clock, Host, KERNEL, Manifest, SCHEMA, Session, USER};
use tompion_os::DirHandle;
use tompion_schema::Event;

use crate::{
    environment::{self, HostInfo},
    source::{Pushed, SourceWriter},
    stream_writer::{Mark, WriteMode},
};

/// An event that is known.
#[derive(Clone, Debug)]
pub struct SyntheticEvent {
    /// Index among the source's classes.
    pub class: usize,
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub time: u64,
    /// CPU where it happened.
    pub cpu: u32,
    /// The thread.
    pub tid: u32,
    /// Its fields, as `Type::fixed_size` says: the fixed part, and the tails.
    pub payload: Vec<u8>,
}

/// Origin of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The kernel's.
    Kernel,
    /// A program's: its number and name.
    Program(u32, String),
}

/// Events of one source.
#[derive(Clone, Debug)]
pub struct SyntheticSource {
    /// Origin of the events.
    pub origin: Origin,
    /// The classes.
    pub classes: Vec<Event>,
    /// The events, in the order of time.
    pub events: Vec<SyntheticEvent>,
    /// Number of further events, which were overwritten by design.
    pub overwritten: u64,
}

/// Writes a complete trace into a folder that is there. Sources without events have no files.
///
/// # Errors
/// What the file system says.
pub fn write_synthetic_trace(
    folder: &DirHandle,
    traces: &[SyntheticSource],
    invocation: &[String],
    problems: &[String],
) -> io::Result<()> {
    let machine = Machine::now();
    let mut sources = Vec::new();
    for source in traces {
        let (path, kind, pid, name) = match &source.origin {
            Origin::Kernel => (KERNEL.to_owned(), KERNEL, None, KERNEL.to_owned()),
            Origin::Program(pid, name) => {
                (format!("user/{pid}"), USER, Some((*pid).into()).filter(|pid| *pid != 0), name.clone())
            }
        };
        let events = write_source(folder.join(&path), source, &machine)?;
        sources.push(manifest::Source {
            path,
            kind: kind.into(),
            pid,
            name: Some(name),
            producer: Some("bpf".into()),
            events,
            overwritten: source.overwritten,
            ..manifest::Source::default()
        });
    }
    let manifest = Manifest {
        schema: SCHEMA,
        state: manifest::COMPLETE.into(),
        sources,
        session: Session {
            tompion: env!("CARGO_PKG_VERSION").into(),
            invocation: invocation.to_vec(),
            host: Host {
                name: machine.host.hostname.clone(),
                kernel: machine.host.kernel_line(),
                cpus: tompion_os::possible_cpus(),
                boot_id: machine.host.boot_id,
            },
            clock: Clock {
                source: "monotonic".into(),
                realtime_offset_ns: machine.clock_offset_ns,
                error_bound_ns: 1,
                samples: Vec::new(),
            },
            channel: Channel { mode: manifest::OVERWRITE.into(), subbuf_size: 0, subbufs: 0, memory: None },
            kernel: traces.iter().any(|source| source.origin == Origin::Kernel),
            problems: problems.to_vec(),
            ..Session::default()
        },
        ..Manifest::default()
    };
    manifest.write(folder, false)
}

/// The machine and its clock, of which traces tell.
struct Machine {
    host: HostInfo,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC in nanoseconds.
    clock_offset_ns: i64,
}

impl Machine {
    fn now() -> Self {
        let before = tompion_os::monotonic_ns();
        let realtime = tompion_os::realtime_ns();
        let after = tompion_os::monotonic_ns();
        let clock_offset_ns = realtime as i64 - (before + (after - before) / 2) as i64;
        Self { host: HostInfo::read(), clock_offset_ns }
    }

    fn describe(&self, origin: &Origin) -> encode::Source {
        let HostInfo { hostname, kernel, boot_id } = &self.host;
        let (environment, tid, context) = match origin {
            Origin::Kernel => {
                (environment::of_kernel(hostname, kernel), false, vec![ContextField::signed("tid", 32)])
            }
            Origin::Program(pid, name) => (environment::of_process(hostname, *pid, name), true, Vec::new()),
        };
        encode::Source {
            uuid: Uuid(uuid::Uuid::new_v4().into_bytes()),
            environment,
            clock_uuid: Uuid::parse(boot_id),
            clock_offset_ns: self.clock_offset_ns,
            clock_precision_ns: 1,
            numbers_streams: false,
            tid,
            context,
        }
    }
}

fn write_source(folder: DirHandle, source: &SyntheticSource, machine: &Machine) -> io::Result<u64> {
    let cpus = source.events.iter().map(|event| event.cpu as usize + 1).max().unwrap_or(0);
    let mut writer = SourceWriter::new(folder, machine.describe(&source.origin), cpus, WriteMode::Immediate);
    let ids: Vec<_> = source.classes.iter().map(|class| writer.add_class(class)).collect();
    let is_kernel = source.origin == Origin::Kernel;
    let mut written = vec![0u64; cpus];
    for event in &source.events {
        let Some(id) = ids.get(event.class) else { continue };
        let tid = event.tid.to_le_bytes();
        let context: &[u8] = if is_kernel { &tid } else { &[] };
        let record = Record { id: *id, time: event.time, tid: event.tid, context, payload: &event.payload };
        let stream = event.cpu as usize;
        match writer.push(stream, event.cpu, written[stream], &record)? {
            Pushed::Misfit => return Err(io::Error::other("an event doesn't fit its description")),
            Pushed::Taken => written[stream] += 1,
            Pushed::Full => {
                written[stream] += 1;
                writer.flush(stream, mark(written[stream]))?;
            }
        }
    }
    for (stream, written) in written.iter().enumerate() {
        writer.finish(stream, 0, mark(*written))?;
    }
    Ok(writer.written())
}

/// There is no ring: positions are numbers of events.
fn mark(written: u64) -> Mark {
    Mark { ring_end: written, tally: Tally { accounted: written, written, ..Tally::default() } }
}
