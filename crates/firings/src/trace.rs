//! Firings as events: a trace of the recorder's own, beside those of the programs.

use std::io;

use tompion_ctf::{
    encode::{self, Record, Tally},
    metadata::Uuid,
};
use tompion_manifest::{self as manifest, Firing};
use tompion_os::DirHandle;
use tompion_schema::{Event, Field, Integer, Kind, Level, Type};
use tompion_writer::{HostInfo, Mark, Pushed, SourceWriter, WriteMode, environment};

/// Maximum number of firings in one trace. Triggers without limits can fire in each round.
const MAX_FIRINGS: u64 = 10_000;
/// Maximum length of a text in bytes.
const MAX_TEXT: usize = 4096;
/// Maximum number of folders beside each other: each recorder that comes back has its own.
const MAX_FOLDERS: u32 = 1000;
/// Name of the process in the trace.
const PROGRAM: &str = "tompion";

/// Trace of the firings of a recording, or of one of its chunks. Each is on disk at once.
#[derive(Debug)]
pub struct FiringTrace {
    path: String,
    writer: SourceWriter,
    class: u32,
    written: u64,
    /// Firings beyond the limit.
    beyond: u64,
    /// Time of the last one.
    last_ns: u64,
}

/// Machine and clock of a recording, of which its traces tell.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The machine.
    pub host: &'a HostInfo,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC in nanoseconds.
    pub clock_offset_ns: i64,
}

/// The event.
fn class() -> Event {
    let text = |name: &str| Field::new(name, Type::String);
    let number = |name: &str| Field::new(name, Type::Integer(Integer::unsigned(64)));
    let texts = ["trigger", "cause", "incident"].map(text);
    let numbers = ["matches", "suppressed"].map(number);
    Event {
        provider: PROGRAM.into(),
        name: "firing".into(),
        level: Level::DEFAULT,
        kind: Kind::Instant,
        init: false,
        format: None,
        attributes: Default::default(),
        fields: texts.into_iter().chain(numbers).collect(),
    }
}

/// The event's fields: the fixed part, and the texts.
fn payload(firing: &Firing) -> Vec<u8> {
    let texts = [&firing.trigger, &firing.cause, &firing.incident].map(|text| cut(text));
    let mut payload = Vec::new();
    for text in &texts {
        payload.extend((text.len() as u32).to_le_bytes());
    }
    payload.extend(firing.matches.to_le_bytes());
    payload.extend(firing.suppressed.to_le_bytes());
    texts.iter().for_each(|text| payload.extend(text.as_bytes()));
    payload
}

/// The begin of a text, without what ends a text in a trace.
fn cut(text: &str) -> String {
    let end = (0..=text.len().min(MAX_TEXT)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default().replace('\0', " ")
}

impl FiringTrace {
    /// Begins a trace in the first free folder `recorder`, `recorder-2` and so on. Nothing is on
    /// disk before the first firing.
    pub fn begin(root: &DirHandle, origin: Origin<'_>) -> Self {
        let name = |number: u32| match number {
            1 => manifest::RECORDER.to_owned(),
            number => format!("{}-{number}", manifest::RECORDER),
        };
        let free = (1..MAX_FOLDERS).map(name).find(|name| !root.path().join(name).exists());
        let path = free.unwrap_or_else(|| name(MAX_FOLDERS));
        let Origin { host, clock_offset_ns } = origin;
        let description = encode::Source {
            uuid: Uuid(uuid::Uuid::new_v4().into_bytes()),
            environment: environment::of_process(&host.hostname, std::process::id(), PROGRAM),
            clock_uuid: Uuid::parse(&host.boot_id),
            clock_offset_ns,
            clock_precision_ns: 20,
            numbers_streams: false,
            tid: true,
            context: Vec::new(),
        };
        let mut writer = SourceWriter::new(root.join(&path), description, 1, WriteMode::Immediate);
        let class = writer.add_class(&class());
        Self { path, writer, class, written: 0, beyond: 0, last_ns: 0 }
    }

    /// Writes a firing, unless there are too many.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&mut self, firing: &Firing) -> io::Result<()> {
        if self.written >= MAX_FIRINGS {
            self.beyond = self.beyond.saturating_add(1);
            return Ok(());
        }
        // It fired a moment ago. The clock of CLOCK_REALTIME may have been set since the begin.
        let ago = i64::try_from(tompion_os::realtime_ns()).unwrap_or(i64::MAX).saturating_sub(firing.time_ns);
        let time = tompion_os::monotonic_ns().saturating_sub(ago.max(0).unsigned_abs()).max(self.last_ns);
        let (tid, cpu) = (std::process::id(), tompion_os::current_cpu());
        let payload = payload(firing);
        let record = Record { id: self.class, time, tid, context: &[], payload: &payload };
        if self.writer.push(0, cpu, self.written, &record)? == Pushed::Misfit {
            return Err(io::Error::other("a firing doesn't fit its description"));
        }
        (self.written, self.last_ns) = (self.written + 1, time);
        self.writer.flush(0, self.mark())
    }

    /// Completes the trace. Returns its entry in the manifest, if it has any firing, and the number
    /// of those beyond the limit.
    ///
    /// # Errors
    /// What the file system says.
    pub fn finish(mut self) -> io::Result<(Option<manifest::Source>, u64)> {
        self.writer.finish(0, 0, self.mark())?;
        let source = manifest::Source {
            path: self.path,
            kind: manifest::RECORDER.into(),
            name: Some(PROGRAM.into()),
            events: self.writer.written(),
            ..manifest::Source::default()
        };
        Ok(((source.events != 0).then_some(source), self.beyond))
    }

    /// There is no ring: positions are numbers of events.
    fn mark(&self) -> Mark {
        let written = self.written;
        Mark { ring_end: written, tally: Tally { accounted: written, written, ..Tally::default() } }
    }
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use super::*;

    fn firing(cause: &str) -> Firing {
        let now = i64::try_from(tompion_os::realtime_ns()).expect("a time");
        let (trigger, incident) = ("loss -> notify".to_owned(), "web-17".to_owned());
        Firing { time_ns: now, trigger, cause: cause.into(), incident, matches: 3, ..Firing::default() }
    }

    #[test]
    fn texts_are_behind_the_numbers_and_have_an_end() {
        let bytes = payload(&firing("a\0é"));
        let expected = [&14u32.to_le_bytes()[..], &4u32.to_le_bytes(), &6u32.to_le_bytes()].concat();
        assert_eq!(bytes[..12], expected);
        assert_eq!(bytes[12..28], [3u64.to_le_bytes(), 0u64.to_le_bytes()].concat());
        assert_eq!(&bytes[28..], "loss -> notifya éweb-17".as_bytes());
        assert_eq!(bytes.len(), class().fixed_size() + 24);
        assert_eq!(cut(&"é".repeat(MAX_TEXT)).len(), MAX_TEXT);
    }

    #[test]
    fn each_recorder_has_a_folder_and_firings_have_a_limit() {
        let dir = TestDir::new("firing-trace");
        let root = DirHandle::open(dir.path()).expect("a folder");
        let host = HostInfo::read();
        let begin = || FiringTrace::begin(&root, Origin { host: &host, clock_offset_ns: 0 });
        let (none, beyond) = begin().finish().expect("a trace");
        assert!(none.is_none() && beyond == 0 && !dir.join("recorder").exists());
        let mut first = begin();
        first.write(&firing("one")).expect("a disk");
        assert!(dir.join("recorder/metadata").exists() && dir.join("recorder/stream_0").exists());
        let mut second = begin();
        second.written = MAX_FIRINGS - 1;
        (0..3).for_each(|_| second.write(&firing("more")).expect("a disk"));
        let source = first.finish().expect("a disk").0.expect("an entry");
        assert_eq!((source.path.as_str(), source.kind.as_str(), source.events), ("recorder", "recorder", 1));
        let (source, beyond) = second.finish().expect("a disk");
        assert_eq!((source.expect("an entry").path.as_str(), beyond), ("recorder-2", 2));
    }
}
