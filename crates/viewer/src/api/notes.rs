//! Bookmarks, notes and clock offsets of traces.
//!
//! Track numbers belong to an index, and times count from its base; notes outlive both. So a note
//! is saved with its track's identity and its base, and gets the track's current number when it is
//! requested.

use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use super::answers::{NoteList, SavedNotes};
use super::{ApiError, ApiRequest, ApiResult, MAX_TIME_NS};
use tompion_index::index_storage::hash;
use tompion_index::indexer::is_of_kernel;
use tompion_index::{Index, Track, TrackKind};

/// Maximum number of notes.
const MAX_NOTES: usize = 10_000;

/// Bookmark, or note on a time or an interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS), ts(optional_fields))]
pub struct Note {
    /// Time, or begin of the interval.
    time: i64,
    /// End of the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<i64>,
    /// Text of the user.
    #[serde(default)]
    text: String,
    /// Current number of the track. It is not saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    track: Option<u32>,
    /// Identity of the track; the page hands it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<TrackIdentity>,
    /// Base of the times in nanoseconds since the epoch. Times of the page start at the index's
    /// base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<i64>,
}

/// Identity of a track that survives a new index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS), ts(optional_fields))]
pub struct TrackIdentity {
    /// Kind of the track.
    kind: String,
    /// Name of the machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(test, ts(as = "Option<String>"))]
    host: String,
    /// Number of a CPU, process or thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<i64>,
    /// Name of other tracks, which have no stable number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(test, ts(as = "Option<String>"))]
    name: String,
}

impl TrackIdentity {
    fn of(request: &ApiRequest<'_>, index: &Index, track: &Track) -> Self {
        let is_of_machine = |trace: &usize| index.machine_of(*trace) == track.machine;
        let trace = (0..request.opened.traces.len()).find(is_of_machine);
        let host = trace.and_then(|trace| request.opened.traces.get(trace)).map(|trace| trace.host.clone());
        let has_number = matches!(track.kind, TrackKind::Cpu | TrackKind::Process | TrackKind::Thread);
        let name = index.label(track.name).filter(|_| !has_number);
        Self {
            kind: track.kind.name().into(),
            host: host.unwrap_or_default(),
            number: has_number.then_some(track.number),
            name: name.map(ToString::to_string).unwrap_or_default(),
        }
    }

    /// Returns the number of the track with this identity. Of threads that reused a number, it is
    /// the one that lived at the time.
    fn find(&self, request: &ApiRequest<'_>, index: &Index, time: i64) -> Option<u32> {
        let is_it = |(_, track): &(usize, &Track)| {
            self.kind == track.kind.name()
                && self.number.is_none_or(|number| number == track.number)
                && *self == Self::of(request, index, track)
        };
        let was_there = |(_, track): &(usize, &Track)| {
            let lanes = track.lanes.iter().filter_map(|lane| index.lanes.get(*lane as usize));
            lanes.filter_map(|lane| lane.levels.bounds()).any(|(first, last)| first <= time && time <= last)
        };
        let mut found = index.tracks.iter().enumerate().filter(is_it).peekable();
        let first = found.peek().map(|(number, _)| *number);
        found.find(was_there).map(|(number, _)| number).or(first).map(|number| number as u32)
    }
}

impl Note {
    /// Returns the note as it is saved.
    fn keep(mut self, request: &ApiRequest<'_>, index: &Index) -> Self {
        let track = self.track.take().and_then(|track| index.tracks.get(track as usize));
        self.of = track.map(|track| TrackIdentity::of(request, index, track)).or(self.of);
        self.base = Some(index.base);
        self
    }

    /// Returns the note as the page shows it.
    fn show(mut self, request: &ApiRequest<'_>, index: &Index) -> Self {
        let moved = self.base.take().map_or(0, |base| base.saturating_sub(index.base));
        self.time = self.time.saturating_add(moved);
        self.end = self.end.map(|end| end.saturating_add(moved));
        self.track = self.of.as_ref().and_then(|of| of.find(request, index, self.time));
        self
    }
}

/// Notes as they are saved.
struct NotesFile {
    /// Hash of the file's contents, which changes with every write.
    version: String,
    notes: Vec<Note>,
    /// Message about a damaged file, whose notes are missing.
    damage: Option<String>,
}

impl NotesFile {
    fn read(request: &ApiRequest<'_>) -> Result<Self, ApiError> {
        let wrong = |error| ApiError { status: 500, line: format!("notes cannot be read: {error}") };
        let bytes = request.workspace.storage.notes().map_err(wrong)?;
        let version = version(&bytes);
        if bytes.is_empty() {
            return Ok(Self { version, notes: Vec::new(), damage: None });
        }
        Ok(match serde_json::from_slice(&bytes) {
            Ok(notes) => Self { version, notes, damage: None },
            Err(error) => {
                let line = format!(
                    "the notes that were kept are damaged: expected a list of notes, found {error}; \
                     notes that are written now are kept beside them"
                );
                Self { version, notes: Vec::new(), damage: Some(line) }
            }
        })
    }
}

fn version(bytes: &[u8]) -> String {
    format!("{:016x}", hash(bytes, bytes.len() as u64))
}

/// Answers with all notes, and the version that the next write must name.
pub fn notes(request: &ApiRequest<'_>) -> ApiResult<NoteList> {
    let NotesFile { version, notes, damage } = NotesFile::read(request)?;
    let index = request.opened.index();
    let notes = notes.into_iter().map(|note| note.show(request, &index)).collect();
    Ok(NoteList { version, notes, remark: damage })
}

/// Notes to save, and the version of the notes that they replace.
#[derive(Deserialize)]
#[cfg_attr(test, derive(TS))]
pub struct NewNotes {
    /// Version that the client read.
    version: String,
    /// All notes.
    notes: Vec<Note>,
}

/// Replaces all notes, unless another client has written since the version that the request names.
pub fn write_notes(request: &ApiRequest<'_>, body: &[u8]) -> ApiResult<SavedNotes> {
    let NewNotes { version: read, notes } = serde_json::from_slice(body).map_err(|error| {
        ApiError::bad_request(format!("expected {{\"version\":…,\"notes\":[…]}}: {error}"))
    })?;
    if notes.len() > MAX_NOTES {
        return Err(ApiError::bad_request(format!(
            "expected at most {MAX_NOTES} notes, found {}",
            notes.len()
        )));
    }
    let kept: Vec<Note> = {
        let index = request.opened.index();
        notes.iter().map(|note| note.clone().keep(request, &index)).collect()
    };
    let text = serde_json::to_vec_pretty(&kept).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let wrong = |error: std::io::Error| match request.vanished() {
        Some(line) => ApiError::gone(format!("{line}, so notes cannot be kept beside it")),
        None => ApiError { status: 500, line: format!("notes cannot be written: {error}") },
    };
    let _alone = request.workspace.notes();
    let before = NotesFile::read(request)?;
    if before.version != read {
        let line = "others have written notes meanwhile; ask for these, and write them together with yours";
        return Err(ApiError { status: 409, line: line.into() });
    }
    let storage = &request.workspace.storage;
    let aside = before.damage.map(|_| storage.set_notes_aside()).transpose().map_err(wrong)?;
    storage.write_notes(&text).map_err(wrong)?;
    let remark = aside.map(|name| format!("the damaged notes are in {name} now, beside the others"));
    Ok(SavedNotes { version: version(&text), remark })
}

/// Clock offset of a trace: the request to set it, and its answer.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
pub struct ClockOffset {
    /// Number of the trace.
    trace: usize,
    /// Offset in nanoseconds.
    offset_ns: i64,
}

/// Sets the clock offset of a trace. Its entries stay as they are: answers are shifted.
pub fn shift(request: &ApiRequest<'_>, body: &[u8]) -> ApiResult<ClockOffset> {
    let ClockOffset { trace, offset_ns } = serde_json::from_slice(body).map_err(|error| {
        ApiError::bad_request(format!("expected {{\"trace\":…,\"offset_ns\":…}}: {error}"))
    })?;
    let offset_ns = offset_ns.clamp(-MAX_TIME_NS, MAX_TIME_NS);
    if let Some(other) = beside(request, trace).filter(|_| offset_ns != 0) {
        return Err(ApiError::bad_request(format!(
            "not shifted: the kernel of one machine recorded this and {other}, and its processors and threads have one track each, \
             which would stay; open them one by one"
        )));
    }
    if !request.workspace.shift(trace, offset_ns) {
        return Err(ApiError::bad_request("there is no such trace"));
    }
    Ok(ClockOffset { trace, offset_ns })
}

/// Returns another kernel trace of the same machine. Their slices share lanes, so neither can be
/// shifted alone.
fn beside(request: &ApiRequest<'_>, trace: usize) -> Option<String> {
    let index = request.opened.index.read();
    let machine = index.machines.get(trace)?;
    let traces = request.opened.set.traces();
    if !is_of_kernel(traces.get(trace)?) {
        return None;
    }
    let all = traces.iter().zip(&index.machines).enumerate();
    let mut others =
        all.filter(|(number, (other, of))| *number != trace && *of == machine && is_of_kernel(other));
    let (number, _) = others.next()?;
    request.opened.traces.get(number).map(|trace| trace.path.clone())
}
