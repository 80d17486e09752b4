//! Traces, packet by packet into another folder.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tompion_ctf::metadata::Version;
use tompion_ctf::transcribe::{Start, Times, Transcript, Writer};
use tompion_os::DirHandle;
use tompion_reader::{Event, PacketView, TraceSet, Visitor, manifest};

use crate::Error;
use crate::output::{Places, copy, in_new_folder};

/// Largest packet in bytes; what is larger becomes several.
const MAX_PACKET: u64 = 16 << 20;
/// How long after the end of a packet its events may have happened: old tracers took its time too early.
const LATE: i64 = 1_000_000_000;

/// What to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// In which version of the format; nothing for each trace's own.
    pub version: Option<Version>,
    /// Whether but a part is written: packets without events outside of this range of times, in nanoseconds since
    /// the epoch, are left out, and so are traces without packets.
    pub part: Option<(Option<i64>, Option<i64>)>,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// Events.
    pub events: u64,
    /// Packets.
    pub packets: u64,
    /// Traces.
    pub traces: usize,
    /// What had to be said otherwise.
    pub notes: BTreeSet<&'static str>,
}

/// Writes all selected events of traces into a new folder.
///
/// What is damaged is left out; [`TraceSet::damages`] tells of it.
///
/// # Errors
///
/// If the folder is there, cannot be written, or a trace cannot be said in the new format; nothing is left then.
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
            // A part in which nothing happened is still a trace.
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

/// Recordings keep what they say of their sources.
fn copy_manifests(places: &Places) -> Result<(), Error> {
    for (root, place) in places.iter() {
        let from = root.join(manifest::NAME);
        if from.is_file() {
            copy(&from, place, manifest::NAME)?;
        }
    }
    Ok(())
}

/// A trace and what becomes of it.
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

/// What is known of a stream, over all of its files.
#[derive(Clone, Copy, Debug, Default)]
struct StreamState {
    /// Events that were discarded before what is written.
    discarded_before: u64,
    /// Those that the last packet counts.
    discarded: u64,
    /// Packets more than the stream had.
    added: u64,
    /// The number of the first packet behind those that are not written.
    first: u64,
}

struct Rewriter<'t> {
    targets: &'t [Target],
    /// Which traces have been begun.
    written: Vec<bool>,
    range: (Option<i64>, Option<i64>),
    streams: Vec<StreamState>,
    /// For trace, stream class and what a stream of it is called: which stream it is.
    instances: HashMap<(usize, usize, u64), usize>,
    /// The files that were written: one comes again whose packets stand among those of others.
    begun: HashSet<PathBuf>,
    open: Option<Open<'t>>,
    events: u64,
    packets: u64,
}

/// The file that is being written.
struct Open<'t> {
    stream: usize,
    trace: usize,
    /// The old file.
    from: PathBuf,
    /// The new one, and what writes it, once there is something.
    to: PathBuf,
    folder: &'t DirHandle,
    file: Option<BufWriter<File>>,
    writer: Writer<'t>,
    packet: Option<Pending>,
}

/// The packet that is being written.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    begin: Option<u64>,
    end: Option<u64>,
    discarded: u64,
    /// The same of the packet before.
    discarded_before: u64,
    sequence: u64,
    /// Whether it begins before the range of times, or may end behind it.
    cut: (bool, bool),
    /// Whether none of it need be in the range.
    is_outside: bool,
    first_event: Option<u64>,
    last_event: Option<u64>,
}

impl<'t> Rewriter<'t> {
    /// Begins a trace: its folder and description.
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

    /// Writes the packet that was begun, unless it is of no interest.
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

    /// Writes what is there of a packet that is too large, and goes on with another one.
    fn split_packet(&mut self) -> Result<(), Error> {
        let Some(Pending { discarded, end, cut, .. }) = self.open.as_ref().and_then(|open| open.packet)
        else {
            return Ok(());
        };
        let Some(open) = &mut self.open else { return Ok(()) };
        let Some(state) = self.streams.get_mut(open.stream) else { return Ok(()) };
        let mut next = None;
        if let Some(packet) = &mut open.packet {
            // What was lost may have been lost up to the end of the last part.
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
        // Where a tracer had no time left to end the packet, its last event did.
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
            // What is discarded in the first packet is known then.
            state.first = view.packet.sequence.map_or(0, |sequence| sequence.saturating_add(1));
        } else if discarded < state.discarded_before {
            // A counter that went back was begun anew.
            state.discarded_before = 0;
        }
        let is_early =
            end.is_some_and(|end| matches!(self.range.0, Some(from) if end < from.saturating_sub(LATE)));
        if is_early || is_behind {
            return Ok(false);
        }
        let misfit = |reason| Error::Misfit { path: open.from.clone(), event: "(packet)".into(), reason };
        // A packet that is cut begins with whichever event comes first.
        let begin = view.packet.begin.filter(|_| !cut.0);
        let trace = open.trace;
        let of_class = |instance| (trace, view.packet.stream, instance);
        let mut instance = view.packet.instance;
        // Streams that say they are the same one, and aren't, are one to other readers.
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
