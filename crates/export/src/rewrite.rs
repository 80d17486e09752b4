//! Rewrites traces packet by packet into another folder.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tompion_ctf::metadata::Version;
use tompion_os::DirHandle;
use tompion_reader::{Event, PacketView, TraceSet, Visitor, manifest};

use crate::Error;
use crate::output::{Places, copy, in_new_folder};
use crate::transcribe::{Start, Times, Transcript, Writer};

/// Maximum size of a packet in bytes; a larger one is split.
const MAX_PACKET: u64 = 16 << 20;
/// Tolerance in nanoseconds by which events may be later than the end of their packet: old tracers
/// took the end time too early.
const PACKET_END_SLACK_NS: i64 = 1_000_000_000;

/// Options of a rewrite.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// Version of the format; `None` keeps each trace's own.
    pub version: Option<Version>,
    /// Range of times in nanoseconds since the epoch, if only a part is written. Packets without
    /// events in the range are omitted, and so are traces without packets.
    pub part: Option<(Option<i64>, Option<i64>)>,
}

/// Summary of a rewrite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// Number of events.
    pub events: u64,
    /// Number of packets.
    pub packets: u64,
    /// Number of traces.
    pub traces: usize,
    /// Notes about content that had to be expressed differently.
    pub notes: BTreeSet<&'static str>,
}

/// Writes all selected events of traces into a new folder.
///
/// Corrupt parts are omitted; [`TraceSet::corruptions`] reports them.
///
/// # Errors
///
/// Fails if the folder exists or cannot be written, or if the new format cannot express a trace;
/// the folder is removed then.
pub fn rewrite(traces: &mut TraceSet, plan: Plan, out: &Path) -> Result<Rewritten, Error> {
    in_new_folder(out, |out| {
        let places = Places::new(traces.roots(), out);
        let targets = traces.traces().iter().map(|trace| Target::new(trace, plan, &places));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let mut rewriter = Rewriter {
            range: plan.part.unwrap_or_default(),
            written: targets.iter().map(|_| false).collect(),
            targets: &targets,
            streams: Vec::new(),
            instances: HashMap::new(),
            begun: HashSet::new(),
            open: None,
            events: 0,
            packets: 0,
        };
        traces.walk(&mut rewriter)?;
        rewriter.close()?;
        let none = rewriter.written.iter().all(|written| !written);
        for trace in 0..targets.len() {
            // A part without events is still a trace.
            if plan.part.is_none() || none {
                rewriter.describe(trace)?;
            }
        }
        if plan.part.is_none() {
            copy_manifests(&places)?;
        }
        Ok(Rewritten {
            events: rewriter.events,
            packets: rewriter.packets,
            traces: rewriter.written.iter().filter(|&&written| written).count(),
            notes: targets.iter().flat_map(|target| target.transcript.notes()).copied().collect(),
        })
    })
}

/// Copies the manifests of recordings.
fn copy_manifests(places: &Places) -> Result<(), Error> {
    for (root, place) in places.iter() {
        let from = root.join(manifest::NAME);
        if from.is_file() {
            copy(&from, place, manifest::NAME)?;
        }
    }
    Ok(())
}

/// Trace and its output.
struct Target {
    transcript: Transcript,
    folder: DirHandle,
}

impl Target {
    fn new(trace: &tompion_reader::Trace, plan: Plan, places: &Places) -> Result<Self, Error> {
        let version = plan.version.unwrap_or(trace.metadata().version);
        let transcript = Transcript::new(trace.metadata(), version);
        let transcript =
            transcript.map_err(|reason| Error::Inexpressible { path: trace.path.clone(), reason })?;
        let outside = || Error::io(&trace.path)(std::io::ErrorKind::NotFound.into());
        Ok(Self { transcript, folder: places.of(&trace.path).ok_or_else(outside)? })
    }
}

/// State of a stream, across all of its files.
#[derive(Clone, Copy, Debug, Default)]
struct StreamState {
    /// Number of events discarded before the written part.
    discarded_before: u64,
    /// Count of discarded events in the last packet.
    discarded: u64,
    /// Number of packets added by splitting.
    added: u64,
    /// Sequence number of the first packet in the written part.
    first: u64,
}

struct Rewriter<'t> {
    targets: &'t [Target],
    /// Traces whose output was begun.
    written: Vec<bool>,
    range: (Option<i64>, Option<i64>),
    streams: Vec<StreamState>,
    /// Stream by trace, stream class and stream number.
    instances: HashMap<(usize, usize, u64), usize>,
    /// Files that were written. A file comes again if its packets alternate with those of others.
    begun: HashSet<PathBuf>,
    open: Option<Open<'t>>,
    events: u64,
    packets: u64,
}

/// File that is being written.
struct Open<'t> {
    stream: usize,
    trace: usize,
    /// Source file.
    from: PathBuf,
    /// Output file, and its writer once there is content.
    to: PathBuf,
    folder: &'t DirHandle,
    file: Option<BufWriter<File>>,
    writer: Writer<'t>,
    packet: Option<Pending>,
}

/// Packet that is being written.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    begin: Option<u64>,
    end: Option<u64>,
    discarded: u64,
    /// Discarded events of the preceding packet.
    discarded_before: u64,
    sequence: u64,
    /// Whether it begins before the range of times, and whether it may end after it.
    cut: (bool, bool),
    /// Whether the whole packet may be outside of the range.
    is_outside: bool,
    first_event: Option<u64>,
    last_event: Option<u64>,
}

impl<'t> Rewriter<'t> {
    /// Begins the output of a trace: its folder and description.
    fn describe(&mut self, trace: usize) -> Result<(), Error> {
        let (Some(target), Some(written)) = (self.targets.get(trace), self.written.get_mut(trace)) else {
            return Ok(());
        };
        if std::mem::replace(written, true) {
            return Ok(());
        }
        let (folder, text) = (&target.folder, target.transcript.description());
        let write = || folder.make().and_then(|()| folder.create_new("metadata")?.write_all(text.as_ref()));
        write().map_err(Error::io(folder.path().join("metadata")))
    }

    fn close(&mut self) -> Result<(), Error> {
        self.finish_packet()?;
        let Some(open) = self.open.take() else { return Ok(()) };
        open.file.map_or(Ok(()), |mut file| file.flush()).map_err(Error::io(open.to))
    }

    /// Writes the pending packet, unless it is not needed.
    fn finish_packet(&mut self) -> Result<(), Error> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let Some(packet) = open.packet.take() else { return Ok(()) };
        if open.writer.is_empty() && packet.is_outside {
            return Ok(());
        }
        let trace = open.trace;
        self.describe(trace)?;
        let Some(open) = &mut self.open else { return Ok(()) };
        let bytes = open.writer.finish(packet.times());
        let file = match &mut open.file {
            Some(file) => file,
            none => {
                let is_new = self.begun.insert(open.to.clone());
                let name = open.to.file_name().unwrap_or_default();
                let file = match is_new {
                    true => open.folder.create_new(name),
                    false => open.folder.append(name),
                };
                none.insert(BufWriter::new(file.map_err(Error::io(&open.to))?))
            }
        };
        file.write_all(bytes).map_err(Error::io(&open.to))?;
        self.packets += 1;
        Ok(())
    }

    /// Writes the first part of a packet that is too large, and continues with another one.
    fn split_packet(&mut self) -> Result<(), Error> {
        let Some(Pending { discarded, end, cut, .. }) = self.open.as_ref().and_then(|open| open.packet)
        else {
            return Ok(());
        };
        let Some(open) = &mut self.open else { return Ok(()) };
        let Some(state) = self.streams.get_mut(open.stream) else { return Ok(()) };
        let mut next = None;
        if let Some(packet) = &mut open.packet {
            // The losses may have happened up to the end of the last part.
            packet.discarded = packet.discarded_before;
            packet.end = None;
            packet.cut.1 = true;
            next = Some(Pending {
                begin: packet.last_event,
                end,
                discarded,
                discarded_before: packet.discarded_before,
                sequence: packet.sequence.saturating_add(1),
                cut: (false, cut.1),
                ..Pending::default()
            });
            state.added += 1;
        }
        self.finish_packet()?;
        let Some(open) = &mut self.open else { return Ok(()) };
        open.packet = next;
        open.writer.begin_again(next.and_then(|packet| packet.begin).unwrap_or(0));
        Ok(())
    }

    fn is_before(&self, end: Option<i64>) -> bool {
        matches!((end, self.range.0), (Some(end), Some(from)) if end < from)
    }

    fn is_behind(&self, begin: Option<i64>) -> bool {
        matches!((begin, self.range.1), (Some(begin), Some(to)) if begin > to)
    }
}

impl Pending {
    fn times(&self) -> Times {
        let begin =
            if self.cut.0 { self.first_event.or(self.begin) } else { self.begin.or(self.first_event) };
        let begin = begin.unwrap_or(0);
        let end = if self.cut.1 { self.last_event.or(self.end) } else { self.end.or(self.last_event) };
        // A tracer that could not end its packet: the last event gives the end time.
        let end = end.unwrap_or(begin).max(self.last_event.unwrap_or(begin)).max(begin);
        Times { begin, end, sequence: self.sequence, discarded: self.discarded }
    }
}

impl Visitor for Rewriter<'_> {
    type Error = Error;

    fn file(&mut self, stream: usize, trace: usize, path: &Path) -> Result<(), Error> {
        self.close()?;
        if self.streams.len() <= stream {
            self.streams.resize(stream + 1, StreamState::default());
        }
        let Some(target) = self.targets.get(trace) else { return Ok(()) };
        self.open = Some(Open {
            stream,
            trace,
            from: path.into(),
            to: target.folder.path().join(path.file_name().unwrap_or_default()),
            folder: &target.folder,
            file: None,
            writer: target.transcript.writer(),
            packet: None,
        });
        Ok(())
    }

    fn packet(&mut self, view: &PacketView<'_>) -> Result<bool, Error> {
        self.finish_packet()?;
        let end = view.end.filter(|&end| view.begin.is_none_or(|begin| begin <= end));
        let is_before = self.is_before(end);
        let is_behind = self.is_behind(view.begin);
        let discarded = view.packet.discarded.unwrap_or(0);
        let cut = (self.is_before(view.begin), self.is_behind(end));
        let Some(open) = &mut self.open else { return Ok(false) };
        let Some(state) = self.streams.get_mut(open.stream) else { return Ok(false) };
        if is_before {
            state.discarded_before = discarded;
            // Discarded events of the first packet are counted then.
            state.first = view.packet.sequence.map_or(0, |sequence| sequence.saturating_add(1));
        } else if discarded < state.discarded_before {
            // A counter that decreased was restarted.
            state.discarded_before = 0;
        }
        let is_early = end.is_some_and(
            |end| matches!(self.range.0, Some(from) if end < from.saturating_sub(PACKET_END_SLACK_NS)),
        );
        if is_early || is_behind {
            return Ok(false);
        }
        let misfit = |reason| Error::Misfit { path: open.from.clone(), event: "(packet)".into(), reason };
        // A cut packet begins with its first event.
        let begin = view.packet.begin.filter(|_| !cut.0);
        let trace = open.trace;
        let of_class = |instance| (trace, view.packet.stream, instance);
        let mut instance = view.packet.instance;
        // Streams with the same number would be one stream for other readers.
        while instance
            .is_some_and(|it| *self.instances.entry(of_class(it)).or_insert(open.stream) != open.stream)
        {
            instance = instance.map(|instance| instance.wrapping_add(1));
        }
        let start = Start { begin, instance };
        open.writer.begin(view.packet, start, view.context).map_err(misfit)?;
        open.packet = Some(Pending {
            begin: view.packet.begin,
            end: view.packet.end.filter(|_| end.is_some()),
            discarded: discarded - state.discarded_before,
            discarded_before: std::mem::replace(&mut state.discarded, discarded - state.discarded_before),
            sequence: view
                .packet
                .sequence
                .unwrap_or(0)
                .saturating_sub(state.first)
                .saturating_add(state.added),
            cut,
            is_outside: is_before,
            ..Pending::default()
        });
        Ok(true)
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), Error> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let Some(packet) = &mut open.packet else { return Ok(()) };
        let fields = [event.stream_context(), event.context(), event.payload()];
        let time = event.cycles();
        open.writer.push(event.place().class, time, fields).map_err(|reason| Error::Misfit {
            path: open.from.clone(),
            event: event.name().into(),
            reason,
        })?;
        packet.first_event = Some(packet.first_event.map_or(time, |first| first.min(time)));
        packet.last_event = Some(packet.last_event.map_or(time, |last| last.max(time)));
        self.events += 1;
        if open.writer.len() >= MAX_PACKET { self.split_packet() } else { Ok(()) }
    }
}
