//! Bookmarks and notes, and shifts of traces.
//!
//! Numbers of tracks are those of an index, and times count from its base; notes outlive both. So they are kept with what
//! the track is, and with the base, and get the number that the track has now when they are asked for.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Answer, FAR, Question, Wrong};
use crate::index::{Index, Track, TrackKind};

/// Most notes.
const MOST: usize = 10_000;

/// A bookmark, or a note on a time or a while.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Note {
    time: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<i64>,
    #[serde(default)]
    text: String,
    /// The track's number now. It is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    track: Option<u32>,
    /// What the track is; the page hands it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<Identity>,
    /// From when on its times count, in nanoseconds since the epoch; the page's count from the index's base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<i64>,
}

/// What a track is, whatever its number in an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    kind: String,
    /// The machine's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    host: String,
    /// Of a processor, process or thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<i64>,
    /// Of the others, which have no number that stays.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
}

impl Identity {
    fn of(question: &Question<'_>, index: &Index, track: &Track) -> Self {
        let is_of_machine = |trace: &usize| index.machine_of(*trace) == track.machine;
        let trace = (0..question.opened.traces.len()).find(is_of_machine);
        let host = trace.and_then(|trace| question.opened.traces.get(trace)).map(|told| told.host.clone());
        let has_number = matches!(track.kind, TrackKind::Cpu | TrackKind::Process | TrackKind::Thread);
        let name = index.label(track.name).filter(|_| !has_number);
        Self {
            kind: track.kind.name().into(),
            host: host.unwrap_or_default(),
            number: has_number.then_some(track.number),
            name: name.map(ToString::to_string).unwrap_or_default(),
        }
    }

    /// The number of the track that is it; of several threads that had a number one after the other, the one of a time.
    fn find(&self, question: &Question<'_>, index: &Index, time: i64) -> Option<u32> {
        let is_it = |(_, track): &(usize, &Track)| {
            self.kind == track.kind.name()
                && self.number.is_none_or(|number| number == track.number)
                && *self == Self::of(question, index, track)
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
    /// As it is kept.
    fn keep(mut self, question: &Question<'_>, index: &Index) -> Self {
        let track = self.track.take().and_then(|track| index.tracks.get(track as usize));
        self.of = track.map(|track| Identity::of(question, index, track)).or(self.of);
        self.base = Some(index.base);
        self
    }

    /// As the page shows it.
    fn show(mut self, question: &Question<'_>, index: &Index) -> Self {
        let moved = self.base.take().map_or(0, |base| base.saturating_sub(index.base));
        self.time = self.time.saturating_add(moved);
        self.end = self.end.map(|end| end.saturating_add(moved));
        self.track = self.of.as_ref().and_then(|of| of.find(question, index, self.time));
        self
    }
}

/// All notes.
pub fn notes(question: &Question<'_>) -> Answer {
    let bytes = question.view.place.notes().unwrap_or_default();
    // A damaged file has no notes; it is kept until others are written.
    let notes: Vec<Note> = serde_json::from_slice(&bytes).unwrap_or_default();
    let index = question.opened.index();
    Ok(json!(notes.into_iter().map(|note| note.show(question, &index)).collect::<Vec<_>>()))
}

/// Takes the place of all notes.
pub fn write_notes(question: &Question<'_>, body: &[u8]) -> Answer {
    let notes: Vec<Note> = serde_json::from_slice(body)
        .map_err(|error| Wrong::question(format!("expected a list of notes: {error}")))?;
    if notes.len() > MOST {
        return Err(Wrong::question(format!("expected at most {MOST} notes, found {}", notes.len())));
    }
    let kept: Vec<Note> = {
        let index = question.opened.index();
        notes.iter().map(|note| note.clone().keep(question, &index)).collect()
    };
    let text = serde_json::to_vec_pretty(&kept).map_err(|error| Wrong::question(error.to_string()))?;
    let written = question.view.place.write_notes(&text);
    written.map_err(|error| Wrong { status: 500, line: format!("notes cannot be written: {error}") })?;
    Ok(json!(notes))
}

#[derive(Deserialize)]
struct Shift {
    trace: usize,
    offset_ns: i64,
}

/// Shifts a trace. Its entries stay as they are: answers are shifted.
pub fn shift(question: &Question<'_>, body: &[u8]) -> Answer {
    let shift: Shift = serde_json::from_slice(body)
        .map_err(|error| Wrong::question(format!("expected {{\"trace\":…,\"offset_ns\":…}}: {error}")))?;
    let offset = shift.offset_ns.clamp(-FAR, FAR);
    if !question.view.shift(shift.trace, offset) {
        return Err(Wrong::question("there is no such trace"));
    }
    Ok(json!({ "trace": shift.trace, "offset_ns": offset }))
}
