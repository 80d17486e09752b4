//! Years of history: what the monitor counted every five minutes, in a SQLite file that survives
//! kills and power cuts.
//!
//! ```text
//! counters ──► HistoryWriter ──► rows of five minutes ──► hours ──► days
//!                   └─────────────── SQLite ────────────────────┘ ──► Period ──► reports, plots
//! ```
//!
//! [`HistoryWriter`] writes what the kernel's programs have counted since the last row. The counters'
//! state at that time changes in the same transaction, so a kill loses nothing and doubles nothing.
//! [`Store`] is the file, and [`Period`] what it holds about a time. The command shows it.
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

/// Why a history can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be used.
    #[error("{what} {path}")]
    File {
        /// What was to be done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is something else.
    #[error(
        "{path}: expected a history of tompion monitor, found {found}; it was left as it is (--history names another file)"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// Another version of Tompion made it.
    #[error(
        "{path}: expected a history of version {expected}, found version {found}; read it with the Tompion that wrote it"
    )]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Ours.
        expected: i64,
    },
    /// Another monitor writes into it.
    #[error("{path}: a history of the monitor {found}, not of {expected}; name another file for this one")]
    OtherMonitor {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Who wanted it.
        expected: String,
    },
    /// What is in it can't have been written by us.
    #[error("{path} is damaged: {what}; it was left as it is (move it away to start a new one)")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found, and where.
        what: String,
    },
    /// The database refused something.
    #[error("{path}: {what}")]
    Database {
        /// The file.
        path: PathBuf,
        /// What it says.
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
            // A column that has another type, a table without what it should have.
            E::FromSqlConversionFailure(..)
            | E::IntegralValueOutOfRange(..)
            | E::InvalidColumnType(..)
            | E::QueryReturnedNoRows
            | E::SqlInputError { .. } => Self::Damaged { path, what: error.to_string() },
            _ => Self::Database { path, what: error.to_string() },
        }
    }
}
