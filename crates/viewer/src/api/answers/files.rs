//! Answers about what the server writes: notes and exports.

use serde::Serialize;
#[cfg(test)]
use ts_rs::TS;

use crate::api::notes::Note;

/// The notes. Answer of `/api/notes`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct NoteList {
    /// Version, which the next write must name.
    pub version: String,
    /// All notes.
    pub notes: Vec<Note>,
    /// Message about saved notes that are damaged, in one line.
    pub remark: Option<String>,
}

/// Confirmation that notes were saved.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct SavedNotes {
    /// Version, which the next write must name.
    pub version: String,
    /// Message about a damaged file that was set aside, in one line.
    pub remark: Option<String>,
}

/// Progress of an export. Answer of `/api/exporting`.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct ExportProgress {
    /// Share of the events that was read, from 0 to 1; 0 for an unknown export.
    pub share: f64,
    /// Size in bytes once the export is complete.
    pub bytes: Option<u64>,
    /// Whether the export failed.
    pub failed: bool,
}

/// Trace that an export wrote.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct ExportedTrace {
    /// Its folder.
    pub path: String,
    /// Number of events.
    pub events: u64,
    /// Size in bytes.
    pub bytes: u64,
}
