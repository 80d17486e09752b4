//! State of a trace at the begin of a folder, for a recorder that comes back.
//!
//! A chunk's folder has only what was written in it. What came before is numbers in [`SavedTrace`],
//! and copies of the metadata and of the initial state in a folder of the session's own: chunks may
//! be removed.

use std::io::{self, Write as _};

use serde::{Deserialize, Serialize};
use tompion_ctf::encode::{Origin, Tally};
use tompion_os::DirHandle;

use super::{
    SourceWriter,
    succession::{InitialFile, Suspended},
};
use crate::{
    disk::PacketFile,
    resume::{self, Expected, InitialCut},
    stream_writer::{INITIAL_STREAM, InitialMark, Mark, StreamWriter},
};

/// Number of a stream that comes from no ring.
const NO_RING: u32 = u32::MAX;
/// Name of the copy of the metadata.
const METADATA: &str = "metadata";

/// Numbers of a trace at the begin of one of its folders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTrace {
    /// Streams that earlier folders have, by their numbers. That of the initial state is the last.
    streams: Vec<Option<SavedStream>>,
    /// Events of rings in earlier folders.
    events_of_rings: u64,
    /// Events of the initial state in files that are not repeated any more.
    initial_before: u64,
    /// Bytes of the initial state that the folder repeats, and its events.
    initial: Option<(u64, u64)>,
}

/// Numbers of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SavedStream {
    cpu: u32,
    sequence: u64,
    discarded: u64,
    reported: u64,
    last_moment: u64,
    ring_end: u64,
    accounted: u64,
    written: u64,
    overwritten: u64,
    refused: u64,
    missing: u64,
    unfinished: u64,
}

/// State of a trace that is continued.
#[derive(Debug, Default)]
pub struct ResumedTrace {
    /// A line for each damage that was found.
    pub damage: Vec<String>,
    /// The part of the initial state that is there.
    pub initial: InitialMark,
    /// The position up to which each CPU's ring is repeated in it.
    pub repeated: Vec<(u32, u64)>,
}

/// A recorder's folder for a trace, and the trace's state at the begin of its present folder.
#[derive(Clone, Copy, Debug)]
pub struct SavedState<'a> {
    /// Folder with copies of what every folder of the trace repeats.
    pub copies: &'a DirHandle,
    /// Numbers; none in the first folder.
    pub trace: Option<&'a SavedTrace>,
}

impl SavedTrace {
    /// The same of a folder in which the initial state begins again, and repeats nothing.
    #[must_use]
    pub fn without_initial_state(mut self) -> Self {
        if let Some((_, events)) = self.initial.take() {
            self.initial_before = self.initial_before.saturating_add(events);
            if let Some(Some(stream)) = self.streams.last_mut() {
                stream.written = 0;
            }
        }
        self
    }
}

impl SavedStream {
    fn of(origin: &Origin, (reported, last_moment, ring_end): (u64, u64, u64)) -> Self {
        let Origin { cpu, sequence, discarded, tally, .. } = *origin;
        let Tally { accounted, written, overwritten, refused, missing, unfinished } = tally;
        Self {
            cpu,
            sequence,
            discarded,
            reported,
            last_moment,
            ring_end,
            accounted,
            written,
            overwritten,
            refused,
            missing,
            unfinished,
        }
    }

    fn suspended(self, ring_id: u32, initial: Option<InitialFile>) -> Suspended {
        let Self { cpu, sequence, discarded, reported, last_moment, ring_end, .. } = self;
        let Self { accounted, written, overwritten, refused, missing, unfinished, .. } = self;
        let tally = Tally { accounted, written, overwritten, refused, missing, unfinished };
        let origin = Origin { ring_id, ring_begin: 0, ring_end, tally, cpu, sequence, discarded };
        Suspended { origin, reported, last_moment, ring_end, initial }
    }
}

impl SourceWriter {
    /// State with which the trace goes on in the next folder. All packets must be written. If
    /// `drops_folder`, the present one is removed, and packets are numbered as if it had not been.
    pub fn saved(&self, drops_folder: bool) -> SavedTrace {
        let initial = self.initial_stream();
        let stream = |number: usize| {
            let mut saved = match &self.streams[number] {
                Some(StreamWriter { origin, reported, last_moment, ring_end, .. }) => {
                    SavedStream::of(origin, (*reported, *last_moment, *ring_end))
                }
                None => {
                    let Suspended { origin, reported, last_moment, ring_end, .. } =
                        self.succession.suspended.get(number)?.as_ref()?;
                    SavedStream::of(origin, (*reported, *last_moment, *ring_end))
                }
            };
            if number != initial {
                saved.written = 0;
                if drops_folder {
                    saved.sequence = self.succession.begins.get(number).copied().unwrap_or(0);
                }
            }
            Some(saved)
        };
        let here: u64 = self.streams[..initial].iter().flatten().map(StreamWriter::written).sum();
        let here = if drops_folder { 0 } else { here };
        SavedTrace {
            streams: (0..self.streams.len()).map(stream).collect(),
            events_of_rings: self.succession.events_of_rings.saturating_add(here),
            initial_before: self.succession.initial_before,
            initial: self.initial_file().map(|InitialFile { size, events, .. }| (size, events)),
        }
    }

    /// Events that the trace has if the present folder is dropped.
    pub fn written_before(&self) -> u64 {
        let initial = self.initial_file().map_or(0, |file| file.events);
        let before = self.succession.events_of_rings.saturating_add(self.succession.initial_before);
        before.saturating_add(initial)
    }

    fn initial_file(&self) -> Option<InitialFile> {
        let initial = self.initial_stream();
        if let Some(stream) = &self.streams[initial] {
            return Some(InitialFile {
                file: stream.file.clone(),
                size: stream.size,
                events: stream.written(),
            });
        }
        self.succession.suspended.get(initial)?.as_ref()?.initial.clone()
    }

    /// Copies what every folder of the trace repeats, as far as it is new: the metadata and the
    /// initial state. All packets must be written.
    ///
    /// # Errors
    /// The copies can't be written.
    pub fn keep_copies(&mut self, copies: &DirHandle, is_durable: bool) -> io::Result<()> {
        if self.classes.len() > self.succession.kept_classes {
            let text = tompion_ctf::tsdl::write(&self.trace(self.classes.clone()));
            copies.replace(METADATA, text.as_bytes(), is_durable)?;
            self.succession.kept_classes = self.classes.len();
        }
        let Some(InitialFile { file, size, .. }) = self.initial_file() else { return Ok(()) };
        if size > self.succession.kept_initial {
            let fresh = format!("{INITIAL_STREAM}.new");
            let mut copy = copies.recreate(&fresh)?;
            file.copy_data_to(&copy)?;
            copy.flush()?;
            if is_durable {
                copy.sync_data()?;
            }
            copies.rename(&fresh, copies, INITIAL_STREAM)?;
            if is_durable {
                copies.sync()?;
            }
            self.succession.kept_initial = size;
        }
        Ok(())
    }

    /// Continues a trace in one of its folders, which a recorder before this one has left.
    /// `expected` is what is known of each ring's packets.
    ///
    /// # Errors
    /// A file is not what it should be, or can't be used.
    pub fn resume_in_chunk(
        &mut self,
        SavedState { copies, trace }: SavedState<'_>,
        expected: &[Expected],
    ) -> Result<ResumedTrace, resume::Error> {
        let none = SavedTrace::default();
        let saved = trace.unwrap_or(&none);
        let initial = self.initial_stream();
        let of_initial = Expected {
            uuid: self.description.uuid,
            trusted: None,
            most_torn: expected.first().map_or(u64::MAX, |expected| expected.most_torn),
        };
        self.restore(saved, copies, &of_initial)?;
        let here = resume::metadata(&self.folder, self.description.uuid)?;
        self.described = here.as_ref().map_or(0, |trace| classes_of(trace).len());
        let known = match here {
            Some(trace) => Some(trace),
            None => resume::metadata(copies, self.description.uuid)?,
        };
        self.classes = known.as_ref().map_or(Vec::new(), |trace| classes_of(trace).to_vec());
        self.plans = self.classes.iter().map(|_| None).collect();
        self.counts = vec![0; self.classes.len()];
        let mut resumed = ResumedTrace::default();
        for (ring, expected) in expected.iter().enumerate() {
            let name = format!("stream_{ring}");
            let cut = resume::cut(&self.folder, &name, expected)?.filter(|cut| cut.last.is_some());
            self.continue_stream_behind(ring, cut, &mut resumed.damage)?;
        }
        let least = saved.initial.map_or(1, |(size, _)| size);
        let found = resume::initial_stream(&self.folder, &of_initial)?;
        // A copy that is not whole is made again.
        let found = found.filter(|found| found.cut.size >= least);
        let cut = found.map(|InitialCut { cut, repeated }| {
            resumed.repeated = repeated;
            cut
        });
        self.continue_stream_behind(initial, cut, &mut resumed.damage)?;
        resumed.initial = self.mark(initial).into();
        Ok(resumed)
    }

    /// Goes on behind what the present folder has of a stream, or as earlier folders left it.
    fn continue_stream_behind(
        &mut self,
        stream: usize,
        cut: Option<resume::Cut>,
        damage: &mut Vec<String>,
    ) -> Result<(), resume::Error> {
        let is_initial = stream == self.initial_stream();
        let Some(cut) = cut else {
            let name = if is_initial { INITIAL_STREAM.into() } else { format!("stream_{stream}") };
            return resume::remove_stream(&self.folder, &name);
        };
        let ring = if is_initial { NO_RING } else { stream as u32 };
        let (writer, found) = resume::continue_behind(&self.folder, &self.description, ring, cut)?;
        damage.extend(found);
        self.streams[stream] = Some(writer);
        if let Some(suspended) = self.succession.suspended.get_mut(stream) {
            *suspended = None;
        }
        Ok(())
    }

    /// Restores what earlier folders have left.
    fn restore(
        &mut self,
        saved: &SavedTrace,
        copies: &DirHandle,
        expected: &Expected,
    ) -> Result<(), resume::Error> {
        let initial = self.initial_stream();
        let mut file = match saved.initial {
            Some((size, events)) => {
                Some(initial_copy(copies, size, expected)?).map(|file| InitialFile { file, size, events })
            }
            None => None,
        };
        let succession = &mut self.succession;
        succession.suspended = (0..self.streams.len())
            .map(|number| {
                let stream = (*saved.streams.get(number)?)?;
                let of_initial = if number == initial { file.take() } else { None };
                Some(stream.suspended(if number == initial { NO_RING } else { number as u32 }, of_initial))
            })
            .collect();
        let sequences = saved.streams.iter().map(|stream| stream.map_or(0, |stream| stream.sequence));
        succession.begins = sequences.collect();
        succession.events_of_rings = saved.events_of_rings;
        succession.events_before = saved.events_of_rings;
        succession.initial_before = saved.initial_before;
        succession.kept_initial = saved.initial.map_or(0, |(size, _)| size);
        Ok(())
    }

    /// Mark of a stream that the present folder does not have.
    pub(super) fn suspended_mark(&self, stream: usize) -> Option<Mark> {
        let suspended = self.succession.suspended.get(stream)?.as_ref()?;
        Some(Mark { ring_end: suspended.ring_end, tally: suspended.origin.tally })
    }
}

fn classes_of(trace: &tompion_ctf::metadata::Trace) -> &[tompion_ctf::metadata::Event] {
    trace.streams.first().map_or(&[], |stream| &stream.events)
}

/// The copy of an initial state that has so many bytes.
fn initial_copy(
    copies: &DirHandle,
    size: u64,
    expected: &Expected,
) -> Result<std::sync::Arc<PacketFile>, resume::Error> {
    let path = copies.path().join(INITIAL_STREAM);
    let failed = |error| resume::Error::Io { path: path.clone(), error };
    // It may have more, of a rotation that was not done.
    let file = copies.write(INITIAL_STREAM).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > size {
        file.set_len(size).map_err(failed)?;
    }
    match resume::cut(copies, INITIAL_STREAM, expected)? {
        Some(cut) if cut.size == size => Ok(PacketFile::new(cut.data, cut.index)),
        found => {
            let found = found.map_or(0, |cut| cut.size);
            let what = format!("expected {size} bytes of the initial state, found {found}");
            Err(resume::Error::Damaged { path, offset: found, what })
        }
    }
}

#[cfg(test)]
mod tests {
    use tompion_ctf::encode::{self, Record};
    use tompion_testing::TestDir;

    use super::*;
    use crate::{
        source::shared::tests::{description, event},
        stream_writer::WriteMode,
    };

    fn writer(folder: DirHandle) -> SourceWriter {
        let description = encode::Source { numbers_streams: true, ..description() };
        SourceWriter::new(folder, description, 2, WriteMode::Immediate)
    }

    /// Writes one event to a stream, as a packet.
    fn write(writer: &mut SourceWriter, stream: usize, time: u64, mark: Mark) {
        let id = match writer.plans.first() {
            Some(Some(_)) => 0,
            _ => writer.add_class(&event()),
        };
        let record = Record { id, time, tid: 1, context: &[], payload: &[1] };
        writer.push(stream, 0, 0, &record).unwrap();
        writer.flush(stream, mark).unwrap();
    }

    fn at(ring_end: u64) -> Mark {
        Mark { ring_end, ..Mark::default() }
    }

    fn expected() -> [Expected; 2] {
        [Expected { uuid: description().uuid, trusted: None, most_torn: 1 << 20 }; 2]
    }

    #[test]
    fn a_trace_goes_on_in_a_folder_in_which_it_has_nothing_yet() {
        let dir = TestDir::new("saved");
        let root = DirHandle::open(&dir).unwrap();
        let copies = root.create_below("copies").unwrap();
        let mut writer = self::writer(root.join("1"));
        let initial = writer.initial_stream();
        let mark = InitialMark { catalog: 7, pinned: 8, ..InitialMark::default() };
        write(&mut writer, initial, 1, mark.into());
        write(&mut writer, 0, 2, at(16));
        writer.keep_copies(&copies, false).unwrap();
        let saved = writer.saved(false);
        let state = writer.initial_bytes();
        drop(writer);
        // The first folder is removed: all that is needed is in the copies.
        root.join("1").remove_all().unwrap();

        let mut writer = self::writer(root.join("2"));
        let state_saved = SavedState { copies: &copies, trace: Some(&saved) };
        let resumed = writer.resume_in_chunk(state_saved, &expected()).unwrap();
        assert_eq!((resumed.initial, writer.mark(0)), (mark, at(16)));
        assert_eq!((writer.written(), writer.written_of_rings(), writer.written_before()), (2, 1, 2));
        write(&mut writer, 0, 3, at(32));
        assert_eq!((writer.written(), writer.bytes() - writer.new_bytes()), (3, state), "with a copy");
        assert_eq!(writer.streams[0].as_ref().unwrap().origin.sequence, 2);
        assert_eq!(writer.classes_count(), 1, "the same number");

        // Killed once more, behind a packet of this folder.
        let mut writer = self::writer(root.join("2"));
        let resumed = writer.resume_in_chunk(state_saved, &expected()).unwrap();
        assert_eq!((resumed.initial, writer.mark(0).ring_end, writer.written()), (mark, 32, 3));
        write(&mut writer, 1, 4, at(8));
        assert_eq!(writer.written(), 4);
        let dropped = writer.saved(true);
        assert_eq!(dropped.streams[0].unwrap().sequence, 1, "as if the folder had not been");
        assert_eq!((dropped.events_of_rings, writer.written_before()), (1, 2));
    }

    #[test]
    fn a_trace_goes_on_in_a_folder_in_which_its_initial_state_begins_again() {
        let dir = TestDir::new("restarted");
        let root = DirHandle::open(&dir).unwrap();
        let copies = root.create_below("copies").unwrap();
        let mut writer = self::writer(root.join("1"));
        let initial = writer.initial_stream();
        let mark = InitialMark { catalog: 7, ..InitialMark::default() };
        write(&mut writer, initial, 1, mark.into());
        write(&mut writer, 0, 2, at(16));
        writer.keep_copies(&copies, false).unwrap();
        let saved = writer.saved(false).without_initial_state();
        let mut writer = self::writer(root.join("2"));
        let state = SavedState { copies: &copies, trace: Some(&saved) };
        let resumed = writer.resume_in_chunk(state, &expected()).unwrap();
        assert_eq!((writer.written(), writer.initial_bytes(), resumed.initial), (2, 0, mark));
        write(&mut writer, 0, 3, at(32));
        assert!(!dir.join("2/stream_initial").exists(), "nothing is repeated");
        write(&mut writer, initial, 4, mark.into());
        let resumed = self::writer(root.join("2")).resume_in_chunk(state, &expected()).unwrap();
        assert_eq!((writer.written(), resumed.initial), (4, mark));
    }

    #[test]
    fn a_batch_of_the_initial_state_that_is_not_whole_is_cut() {
        let dir = TestDir::new("batch");
        let root = DirHandle::open(&dir).unwrap();
        let copies = root.create_below("copies").unwrap();
        let mut writer = self::writer(root.join("1"));
        let initial = writer.initial_stream();
        let mark = |catalog, repeated_until, is_within_batch| {
            Mark::from(InitialMark { catalog, repeated_until, is_within_batch, ..InitialMark::default() })
        };
        write(&mut writer, initial, 1, mark(0, 16, true));
        write(&mut writer, initial, 2, mark(5, 0, false));
        let whole = writer.initial_bytes();
        write(&mut writer, initial, 3, mark(5, 24, true));
        drop(writer);
        let mut writer = self::writer(root.join("1"));
        let state = SavedState { copies: &copies, trace: None };
        let resumed = writer.resume_in_chunk(state, &expected()).unwrap();
        assert_eq!((resumed.initial.catalog, writer.initial_bytes()), (5, whole));
        assert_eq!(resumed.repeated, [(0, 16)], "what was cut is repeated again");
        write(&mut writer, initial, 4, mark(9, 24, false));
        let resumed = self::writer(root.join("1")).resume_in_chunk(state, &expected()).unwrap();
        assert_eq!((resumed.initial.catalog, resumed.repeated), (9, vec![(0, 16), (0, 24)]));
    }
}
