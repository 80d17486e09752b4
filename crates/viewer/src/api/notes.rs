//! Bookmarks and notes, and shifts of traces.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Answer, FAR, Question, Wrong};

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    track: Option<serde_json::Value>,
}

/// All notes.
pub fn notes(question: &Question<'_>) -> Answer {
    let bytes = question.view.place.notes().unwrap_or_default();
    // A damaged file has no notes; it is kept until others are written.
    let notes: Vec<Note> = serde_json::from_slice(&bytes).unwrap_or_default();
    Ok(json!(notes))
}

/// Takes the place of all notes.
pub fn write_notes(question: &Question<'_>, body: &[u8]) -> Answer {
    let notes: Vec<Note> = serde_json::from_slice(body)
        .map_err(|error| Wrong::question(format!("expected a list of notes: {error}")))?;
    if notes.len() > MOST {
        return Err(Wrong::question(format!("expected at most {MOST} notes, found {}", notes.len())));
    }
    let text = serde_json::to_vec_pretty(&notes).map_err(|error| Wrong::question(error.to_string()))?;
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
