//! Choice of a part of a history, and its default file.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use tompion_history::{Choice, HistoryReport, Span, Store, default_path};
use tompion_os::FileRights;

use super::times::{self, format_time};

/// Choice of a history and of a part of it.
#[derive(Args)]
// The commands' own arguments are a group of this name.
#[group(skip)]
pub struct HistorySelection {
    /// Read this history [default: /var/lib/tompion/history.sqlite, or a user's own below
    /// ~/.local/state]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Start at this time: 2026-10-01, `2026-10-01 14:00`, or a time of today
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Stop at this time
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Select the end of the history, this long: 30h, 7d, 4w, 1y, or day, week, month, year
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["from", "to"], value_parser = times::last)]
    last: Option<i64>,
}

impl HistorySelection {
    /// Returns whether any of it was given.
    pub fn is_requested(&self) -> bool {
        self.history.is_some() || self.from.is_some() || self.to.is_some() || self.last.is_some()
    }

    /// Opens the history.
    pub fn open(&self) -> anyhow::Result<Store> {
        open_history(self.history.as_ref())
    }

    /// Takes the rights with which it is read.
    pub fn rights(&self) -> Option<FileRights> {
        file_rights(self.history.as_deref())
    }

    /// Returns the chosen part.
    pub fn choice(&self) -> anyhow::Result<Choice> {
        Ok(Choice::of(times::span(self.from.as_deref(), self.to.as_deref(), self.last)?))
    }
}

/// Takes root's own rights if no path is given: only root can write to the folder of the machine's
/// history. Other files are opened with the rights of the user who called sudo.
pub fn file_rights(path: Option<&Path>) -> Option<FileRights> {
    path.is_none().then(FileRights::of_the_process).and_then(Result::ok)
}

/// Describes why a history has no counts of a period.
pub fn describe_empty(store: &Store, asked: Span) -> anyhow::Result<String> {
    if store.outline(&Choice::of(Span::ALL))?.coverage.rows == 0 {
        return Ok("nothing written yet: a row is appended every five minutes".into());
    }
    Ok(format!("nothing was counted {}", describe_span(asked)))
}

/// Describes a requested period, of which either end may be open.
fn describe_span(asked: Span) -> String {
    let (from, to) = (format_time(asked.from_ms), format_time(asked.to_ms));
    match (asked.from_ms > Span::ALL.from_ms, asked.to_ms < Span::ALL.to_ms) {
        (true, true) => format!("from {from} to {to}"),
        (true, false) => format!("from {from} on"),
        (false, true) => format!("before {to}"),
        (false, false) => "at any time".into(),
    }
}

/// Describes why a report covers more than the requested period, if it does.
pub fn describe_excess(asked: Span, report: &HistoryReport) -> Option<String> {
    let is_exceeded = report.coverage.rows > 0 && asked.is_exceeded_by(report.span());
    is_exceeded.then(|| {
        format!(
            "requested: {}; rows (five minutes; of older times hours or days) are not divided",
            describe_span(asked)
        )
    })
}

/// Opens a history, or the default one.
pub fn open_history(path: Option<&PathBuf>) -> anyhow::Result<Store> {
    let default = default_path();
    let path = path.unwrap_or(&default);
    match path.try_exists() {
        Ok(true) => {}
        Ok(false) => {
            let path = path.display();
            match tompion_os::effective_user() {
                0 => bail!("{path}: no history; start one: tompion monitor --history"),
                _ => bail!(
                    "{path}: no history; start one: sudo tompion monitor --history; root's is read with \
                     sudo, too"
                ),
            }
        }
        Err(error) => {
            bail!("{}: {error}; the machine's history is root's: sudo tompion monitor …", path.display())
        }
    }
    Ok(Store::open_to_read(path)?)
}
