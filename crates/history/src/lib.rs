//! History of the monitor over years: what it counted every five minutes, in a SQLite file that
//! survives kills and power cuts.
//!
//! ```text
//! counters ──► HistoryWriter ──► rows of five minutes ──► hours ──► days
//!                   └─────────────── SQLite ────────────────────┘ ──► Period ──► reports, plots
//! ```
//!
//! [`HistoryWriter`] writes what the BPF programs have counted since the last row. The state of the
//! counters is saved in the same transaction, so a kill neither loses nor duplicates anything.
//! [`Store`] is the file; [`Period`] is its content for an interval. The command line shows it.
#![forbid(unsafe_code)]

mod bucket_counts;
mod bytes;
mod compare;
mod database;
mod job;
pub mod plot;
mod query;
mod report;
mod row_codec;
pub mod simulate;
mod store;
mod writer;

use std::{
    io,
    path::{Path, PathBuf},
};

pub use compare::{Comparison, JobComparison, KindComparison, Side, Verdict};
pub use database::default_path;
pub use query::{Choice, Coverage, Longest, Period, Point, Response, Span, Start, System};
pub use report::{HistoryJob, HistoryJobs, HistoryReport, Wakeups};
pub use store::{Event, EventKind, Fact, Incident, Row, Store};
pub use writer::HistoryWriter;

/// Reason why a history can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call on the file failed.
    #[error("{what} {path}")]
    File {
        /// Operation that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The file is no history.
    #[error(
        "{path}: expected a history of tompion monitor, found {found}; it was left as it is (--history names another file)"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Description of its content.
        found: String,
    },
    /// A newer version of Tompion wrote the file.
    #[error(
        "{path}: expected a history of version {expected}, found version {found}; read it with the Tompion that wrote it"
    )]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        found: i64,
        /// Newest version that this build reads.
        expected: i64,
    },
    /// The history belongs to another monitor.
    #[error("{path}: a history of the monitor {found}, not of {expected}; name another file for this one")]
    OtherMonitor {
        /// The file.
        path: PathBuf,
        /// Name of the monitor that owns it.
        found: String,
        /// Name of the monitor that tried to open it.
        expected: String,
    },
    /// The file has content that Tompion can't have written.
    #[error("{path} is damaged: {what}; it was left as it is (move it away to start a new one)")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Damaged part and the reason.
        what: String,
    },
    /// SQLite reported another error.
    #[error("{path}: {what}")]
    Database {
        /// The file.
        path: PathBuf,
        /// Message of SQLite.
        what: String,
    },
}

impl Error {
    fn file(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { what, path: path.into(), source }
    }

    fn database(path: &Path, error: rusqlite::Error) -> Self {
        use rusqlite::{Error as E, ErrorCode};
        let path: PathBuf = path.into();
        match &error {
            E::SqliteFailure(code, _) => match code.code {
                ErrorCode::DatabaseCorrupt => {
                    let saved =
                        format!("sqlite3 {} .recover | sqlite3 NEW saves what can be read", path.display());
                    Self::Damaged { path, what: format!("{code}; {saved}") }
                }
                ErrorCode::NotADatabase => Self::Damaged { path, what: code.to_string() },
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                    Self::Database { path, what: "another process holds its lock".into() }
                }
                ErrorCode::ReadOnly => {
                    Self::Database { path, what: "it can't be written; run as its owner".into() }
                }
                _ => Self::Database { path, what: error.to_string() },
            },
            // A column with another type, or a table without the expected columns.
            E::FromSqlConversionFailure(..)
            | E::IntegralValueOutOfRange(..)
            | E::InvalidColumnType(..)
            | E::QueryReturnedNoRows
            | E::SqlInputError { .. } => Self::Damaged { path, what: error.to_string() },
            _ => Self::Database { path, what: error.to_string() },
        }
    }
}
