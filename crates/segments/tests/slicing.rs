//! Recordings that grow, are cut, cleared and completed are sent piece by piece, and are the same
//! at the other end.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use tompion_ctf::{
    encode::{self, Record},
    metadata::Uuid,
};
use tompion_manifest::{self as manifest, Manifest, Session};
use tompion_os::DirHandle;
use tompion_schema::{Event, Field, Integer, Kind as EventKind, Level, Type};
use tompion_segments::{
    Admission, ChunkState, ContentSum, Cursor, End, FilePath, Kind, LocalChunk, MAX_PIECE, Place, Recording,
    Segment, digest,
};
use tompion_testing::{Random, TestDir, rounds, seed};
use tompion_writer::{Mark, SourceWriter, WriteMode, resume};

const UUID: Uuid = Uuid([7; 16]);

/// A process's trace that is being written.
struct Trace {
    writer: SourceWriter,
    time: u64,
}

impl Trace {
    fn description() -> encode::Source {
        encode::Source {
            uuid: UUID,
            environment: Vec::new(),
            clock_uuid: None,
            clock_offset_ns: 0,
            clock_precision_ns: 1,
            numbers_streams: true,
            tid: true,
            context: Vec::new(),
        }
    }

    fn new(folder: &Path, rings: usize) -> Self {
        let folder = DirHandle::open(folder).unwrap().join("user/a-1");
        Self { writer: SourceWriter::new(folder, Self::description(), rings, WriteMode::Immediate), time: 1 }
    }

    /// Writes so many events of a class to a ring, and ends the packet.
    fn write(&mut self, ring: usize, class: u32, events: u64) {
        let event = Event {
            provider: "p".into(),
            name: format!("e{class}"),
            level: Level::DEFAULT,
            kind: EventKind::Instant,
            init: false,
            format: None,
            attributes: Default::default(),
            fields: vec![Field::new("x", Type::Integer(Integer::unsigned(8)))],
        };
        while self.writer.classes_count() <= class as usize {
            self.writer.add_class(&event);
        }
        for _ in 0..events {
            self.time += 1;
            let payload = [self.time as u8];
            let record = Record { id: class, time: self.time, tid: 1, context: &[], payload: &payload };
            self.writer.push(ring, ring as u32, self.time, &record).unwrap();
        }
        self.writer.flush(ring, Mark { ring_end: self.time, ..Mark::default() }).unwrap();
    }
}

fn write_manifest(folder: &Path, state: &str, is_in_chunks: bool) {
    let mut session = Session::default();
    session.host.name = "robot".into();
    session.host.boot_id = "boot".into();
    let manifest = Manifest { schema: 1, state: state.into(), is_in_chunks, session, ..Manifest::default() };
    manifest.write(&DirHandle::open(folder).unwrap(), false).unwrap();
}

/// The other end: its ledger, and files in memory.
#[derive(Default)]
struct Mirror {
    ledgers: BTreeMap<String, ChunkState>,
    files: BTreeMap<(String, FilePath), Vec<u8>>,
    segments: u64,
}

impl Mirror {
    fn take(&mut self, segment: &Segment) {
        let segment = Segment::decode(segment.name.clone(), &segment.encode()).unwrap();
        let chunk = segment.name.place.chunk.as_str().to_owned();
        let ledger = self.ledgers.entry(chunk.clone()).or_default();
        let admission = ledger.admit(&segment).unwrap();
        ledger.note(&segment.name.file, segment.name.sequence, segment.header);
        self.segments += 1;
        let key = (chunk, segment.name.file);
        match admission {
            Admission::Append => self.files.get_mut(&key).unwrap().extend_from_slice(&segment.content),
            Admission::Restart => drop(self.files.insert(key, segment.content)),
            Admission::Remove => drop(self.files.remove(&key)),
            Admission::Known => panic!("sent twice"),
            Admission::End(End::Committed) => {
                let of_chunk = self.files.iter().filter(|((other, _), _)| *other == key.0);
                let sums = of_chunk.map(|((_, path), bytes)| {
                    let mut sum = ContentSum::default();
                    sum.add(bytes);
                    (path, sum.sum())
                });
                assert_eq!(digest(sums).to_string().as_bytes(), segment.content);
            }
            Admission::End(End::Dropped) => {}
        }
    }

    /// Sends what can be sent of a chunk by a sender that knows nothing.
    fn send(&mut self, place: &Place, chunk: &LocalChunk) {
        let is_final = chunk.end.is_some();
        let ledger = self.ledgers.get(place.chunk.as_str()).cloned().unwrap_or_default();
        if ledger.end.is_some() {
            return;
        }
        for file in &chunk.files {
            let mut cursor = Cursor::new(ledger.files.get(&file.path).copied());
            while let Some(segment) = cursor.next(place, file, is_final, MAX_PIECE).unwrap() {
                self.take(&segment);
                cursor.advance(&segment);
            }
        }
        let Some(end) = chunk.end else { return };
        for (path, state) in &ledger.files {
            if end == End::Committed && !chunk.files.iter().any(|file| file.path == *path) {
                self.take(&Cursor::new(Some(*state)).removal(place, path).unwrap());
            }
        }
        let (file, kind, content) = match end {
            End::Committed => (FilePath::commit(), Kind::Commit, local_digest(chunk)),
            End::Dropped => (FilePath::dropped(), Kind::Dropped, "{}".into()),
        };
        self.take(&Segment::new(place.name(file, 1), Segment::header(kind, 0, true), content.into()));
    }

    fn send_all(&mut self, folder: &Path) {
        let recording = Recording::open(folder).unwrap();
        let look = recording.look(&|_| false).unwrap();
        assert_eq!(look.problems, [""; 0]);
        for chunk in &look.chunks {
            self.send(&recording.chunk_place(&chunk.label), chunk);
        }
    }

    /// Compares a chunk with its folder.
    fn assert_equal(&self, folder: &Path, chunk: &str) {
        let mut local = BTreeMap::new();
        let skip = |name: &str| chunk == "whole" && name.starts_with("chunk-");
        read_tree(folder, &mut PathBuf::new(), &skip, &mut local);
        let here = self.files.iter().filter(|((other, _), _)| other == chunk);
        let here: BTreeMap<_, _> =
            here.map(|((_, path), bytes)| (path.as_str().to_owned(), bytes.clone())).collect();
        assert_eq!(local.keys().collect::<Vec<_>>(), here.keys().collect::<Vec<_>>());
        assert!(local == here, "contents differ");
    }
}

/// Digest of a chunk by its files alone.
fn local_digest(chunk: &LocalChunk) -> String {
    let mut sums = BTreeMap::new();
    for file in &chunk.files {
        // A cursor that has sent everything at once.
        let mut cursor = Cursor::default();
        let name = Place::parse("/v1/h/b/s/whole").unwrap();
        while let Some(segment) = cursor.next(&name, file, true, MAX_PIECE).unwrap() {
            cursor.advance(&segment);
        }
        sums.insert(file.path.clone(), cursor.content(file).unwrap());
    }
    digest(sums.iter().map(|(path, sum)| (path, *sum))).to_string()
}

fn read_tree(
    folder: &Path,
    below: &mut PathBuf,
    skip: &dyn Fn(&str) -> bool,
    files: &mut BTreeMap<String, Vec<u8>>,
) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if skip(&name) {
            continue;
        }
        below.push(&name);
        if entry.file_type().unwrap().is_dir() {
            read_tree(&entry.path(), below, skip, files);
        } else {
            files.insert(below.to_str().unwrap().into(), fs::read(entry.path()).unwrap());
        }
        below.pop();
    }
}

#[test]
fn given_a_recording_that_grows_then_whole_packets_are_sent_once() {
    let dir = TestDir::new("grow");
    write_manifest(&dir, manifest::RECORDING, false);
    let mut trace = Trace::new(&dir, 2);
    let mut mirror = Mirror::default();
    let stream = dir.join("user/a-1/stream_0");
    let mut random = Random(seed());
    for round in 0..rounds(30, 300) {
        trace.write(random.index(2), random.below(20) as u32, random.below(4000));
        mirror.send_all(&dir);
        // A packet is about to be written.
        let torn = fs::read(&stream).unwrap_or_default();
        if !torn.is_empty() {
            let piece = random.index(torn.len().min(3000));
            OpenOptions::new().append(true).open(&stream).unwrap().write_all(&torn[..piece]).unwrap();
            let before = mirror.files.get(&("whole".into(), "user/a-1/stream_0".parse().unwrap())).cloned();
            mirror.send_all(&dir);
            let key = ("whole".into(), "user/a-1/stream_0".parse().unwrap());
            assert!(mirror.files.get(&key) == before.as_ref(), "round {round}: a torn packet was sent");
            OpenOptions::new().write(true).open(&stream).unwrap().set_len(torn.len() as u64).unwrap();
        }
    }
    let sent = mirror.segments;
    mirror.send_all(&dir);
    assert_eq!(mirror.segments, sent, "nothing was new");
    write_manifest(&dir, manifest::COMPLETE, false);
    mirror.send_all(&dir);
    mirror.assert_equal(&dir, "whole");
    assert_eq!(mirror.ledgers["whole"].end, Some(End::Committed));
}

#[test]
fn given_a_killed_recorder_then_recovery_cuts_nothing_that_was_sent() {
    let dir = TestDir::new("cut");
    let mut random = Random(seed());
    write_manifest(&dir, manifest::RECORDING, false);
    let mut mirror = Mirror::default();
    let (mut rounds, mut time) = (rounds(10, 100), 1);
    let key = ("whole".to_owned(), "user/a-1/stream_0".parse().unwrap());
    while rounds > 0 {
        rounds -= 1;
        let mut trace = Trace::new(&dir, 1);
        let expected = resume::Expected { uuid: UUID, trusted: None, most_torn: 1 << 20 };
        trace.writer.resume(&[expected]).unwrap();
        trace.time = time;
        trace.write(0, 0, 100 + random.below(1000));
        let stream = dir.join("user/a-1/stream_0");
        let whole = fs::metadata(&stream).unwrap().len();
        trace.write(0, 0, 100);
        time = trace.time;
        // Killed while it wrote.
        let torn = whole + random.below(fs::metadata(&stream).unwrap().len() - whole);
        OpenOptions::new().write(true).open(&stream).unwrap().set_len(torn).unwrap();
        mirror.send_all(&dir);
        assert_eq!(mirror.files[&key].len() as u64, whole);
        assert_eq!(mirror.ledgers["whole"].files[&key.1].total(), whole, "it never began again");
    }
    let last = mirror.files[&key].clone();
    let local = fs::read(dir.join("user/a-1/stream_0")).unwrap();
    assert!(local.starts_with(&last));
}

#[test]
fn given_a_chunk_that_is_cleared_then_it_begins_again() {
    let dir = TestDir::new("clear");
    write_manifest(&dir, manifest::RECORDING, true);
    let open = dir.join("chunk-000001.open");
    fs::create_dir(&open).unwrap();
    let mut trace = Trace::new(&open, 2);
    let mut mirror = Mirror::default();
    trace.write(0, 0, 3000);
    trace.write(1, 0, 3000);
    mirror.send_all(&dir);
    fs::remove_dir_all(&open).unwrap();
    fs::create_dir(&open).unwrap();
    let mut again = Trace::new(&open, 2);
    again.time = trace.time;
    again.write(0, 0, 100);
    mirror.send_all(&dir);
    again.write(0, 0, 3000);
    write_manifest(&open, manifest::COMPLETE, false);
    fs::rename(&open, dir.join("chunk-000001")).unwrap();
    mirror.send_all(&dir);
    mirror.assert_equal(&dir.join("chunk-000001"), "chunk-000001");
}

#[test]
fn given_chunks_that_were_removed_unsent_then_there_are_tombstones() {
    let dir = TestDir::new("dropped");
    write_manifest(&dir, manifest::RECORDING, true);
    for number in 3..=5 {
        let open = dir.join(format!("chunk-{number:06}.open"));
        fs::create_dir(&open).unwrap();
        Trace::new(&open, 1).write(0, 0, 100);
        if number < 5 {
            write_manifest(&open, manifest::COMPLETE, false);
            fs::rename(&open, dir.join(format!("chunk-{number:06}"))).unwrap();
        }
    }
    let mut mirror = Mirror::default();
    mirror.send_all(&dir);
    let ends: Vec<_> = mirror.ledgers.iter().map(|(chunk, ledger)| (chunk.as_str(), ledger.end)).collect();
    let (dropped, committed) = (Some(End::Dropped), Some(End::Committed));
    assert_eq!(
        ends,
        [
            ("chunk-000001", dropped),
            ("chunk-000002", dropped),
            ("chunk-000003", committed),
            ("chunk-000004", committed),
            ("chunk-000005", None),
            ("whole", None)
        ]
    );
    mirror.assert_equal(&dir.join("chunk-000004"), "chunk-000004");
    write_manifest(&dir, manifest::COMPLETE, true);
    mirror.send_all(&dir);
    assert_eq!(mirror.ledgers["whole"].end, None, "a chunk is still open");
}

#[test]
fn given_odd_names_and_links_then_they_are_left_out() {
    let dir = TestDir::new("names");
    write_manifest(&dir, manifest::COMPLETE, false);
    fs::write(dir.join(".hidden"), "hidden").unwrap();
    fs::write(dir.join("a\nb"), "odd").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.join("link")).unwrap();
    let recording = Recording::open(&dir).unwrap();
    let look = recording.look(&|_| false).unwrap();
    assert_eq!(look.problems.len(), 1, "{:?}", look.problems);
    let files: Vec<_> = look.chunks[0].files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(files, ["link", manifest::FILE]);
    let place = recording.chunk_place(&look.chunks[0].label);
    assert!(
        Cursor::new(None).next(&place, &look.chunks[0].files[0], true, MAX_PIECE).is_err(),
        "links are not followed"
    );
}

#[test]
fn given_a_file_with_the_inode_of_an_older_one_then_it_begins_again() {
    let dir = TestDir::new("inode");
    write_manifest(&dir, manifest::RECORDING, false);
    let folder = dir.join("user/a-1");
    let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(folder.join("stream_0")).unwrap());
    let recording = Recording::open(&dir).unwrap();
    let place = recording.chunk_place(&tompion_segments::Label::new("whole").unwrap());
    let next = |cursor: &mut Cursor| {
        let look = recording.look(&|_| false).unwrap();
        let stream = |file: &&tompion_segments::LocalFile| file.path.as_str() == "user/a-1/stream_0";
        let file = look.chunks[0].files.iter().find(stream).unwrap().clone();
        cursor.next(&place, &file, false, MAX_PIECE).unwrap()
    };
    let (mut cursor, mut reused, mut events) = (Cursor::default(), false, 100);
    // File systems give an inode away again soon; ext4 does at once.
    for _ in 0..100 {
        let old = folder.exists().then(inode);
        let _ = fs::remove_dir_all(&folder);
        Trace::new(&dir, 1).write(0, 0, events);
        let segment = next(&mut cursor).unwrap();
        assert_eq!(segment.header.offset, 0, "another file is not continued");
        assert_eq!(segment.content, fs::read(folder.join("stream_0")).unwrap());
        cursor.advance(&segment);
        reused |= old == Some(inode());
        events += 100;
    }
    println!("an inode was used again: {reused}");
}

#[test]
fn given_recordings_of_one_name_in_one_boot_then_their_ids_tell_them_apart() {
    let dir = TestDir::new("ids");
    let place = |id: Option<&str>, begin: i64| {
        let mut session = Session { id: id.map(Into::into), ..Session::default() };
        (session.host.name, session.host.boot_id) = ("robot".into(), "boot".into());
        session.clock.realtime_offset_ns = begin;
        let state = manifest::COMPLETE.into();
        let manifest = Manifest { schema: 1, state, session, ..Manifest::default() };
        manifest.write(&DirHandle::open(&dir).unwrap(), false).unwrap();
        Recording::open(&dir).unwrap()
    };
    let first = place(Some("one"), 7);
    assert_eq!(first.place, place(Some("one"), 8).place, "its clock was set");
    let second = place(Some("two"), 7);
    assert_ne!(first.place, second.place);
    assert!(first.look(&|_| false).unwrap_err().contains("another recording"));
    assert!(second.look(&|_| false).is_ok());
    assert_ne!(place(None, 7).place, place(None, 8).place, "older versions wrote no id");
}

#[test]
fn given_a_chunk_that_is_removed_after_the_look_then_it_is_not_whole() {
    let dir = TestDir::new("removed");
    write_manifest(&dir, manifest::RECORDING, true);
    let chunk = dir.join("chunk-000001");
    fs::create_dir(&chunk).unwrap();
    Trace::new(&chunk, 2).write(0, 0, 100);
    fs::create_dir(dir.join("chunk-000002.open")).unwrap();
    let recording = Recording::open(&dir).unwrap();
    let look = recording.look(&|_| false).unwrap();
    assert!(recording.has_files_of(&look.chunks[0]).unwrap());
    fs::remove_file(chunk.join("user/a-1/stream_0")).unwrap();
    assert!(!recording.has_files_of(&look.chunks[0]).unwrap());
    fs::remove_dir_all(chunk).unwrap();
    assert!(!recording.has_files_of(&look.chunks[0]).unwrap());
    assert_eq!(recording.look(&|_| false).unwrap().chunks[0].end, Some(End::Dropped));
}

#[test]
fn given_a_file_that_was_changed_unnoticed_then_its_sum_tells() {
    let dir = TestDir::new("sums");
    write_manifest(&dir, manifest::COMPLETE, false);
    let recording = Recording::open(&dir).unwrap();
    let look = recording.look(&|_| false).unwrap();
    let file = &look.chunks[0].files[0];
    let place = recording.chunk_place(&look.chunks[0].label);
    let mut cursor = Cursor::default();
    let sent = cursor.next(&place, file, true, 10).unwrap().unwrap();
    assert_eq!(sent.content.len(), 10, "pieces are as long as they may be");
    cursor.advance(&sent);
    while let Some(segment) = cursor.next(&place, file, true, MAX_PIECE).unwrap() {
        cursor.advance(&segment);
    }
    let before = cursor.content(file).unwrap();
    let mut bytes = fs::read(dir.join(manifest::FILE)).unwrap();
    assert_eq!(before.0, bytes.len() as u64);
    bytes[0] = b'[';
    fs::write(dir.join(manifest::FILE), &bytes).unwrap();
    assert_ne!(cursor.content(file).unwrap(), before);
    cursor.begin_again();
    assert_eq!(cursor.next(&place, file, true, MAX_PIECE).unwrap().unwrap().content, bytes);
}
