//! What a history says: `tompion monitor report`, `plot` and `compare`.

mod axis;
mod compare;
mod page;
mod plot;
mod report;
mod times;

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use tompion_latency::history::{Choice, Store, default_path};

pub use compare::{Arguments as CompareArguments, run as compare};
pub use plot::Wish as PlotWish;
pub use report::{Arguments as ReportArguments, run as report};

/// Which part of which history.
#[derive(Args)]
// The commands' own arguments are a group of this name.
#[group(skip)]
pub struct Part {
    /// The history [default: /var/lib/tompion/history.sqlite; who isn't root and has one, their own below ~/.local/state]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// From this time on: 2026-10-01, `2026-10-01 14:00`, or a time of today
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Until this time
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// The last while: 30h, 7d, 4w, 1y, or day, week, month, year
    #[arg(long, value_name = "TIME", conflicts_with_all = ["from", "to"], value_parser = times::last)]
    last: Option<i64>,
}

impl Part {
    /// Whether any of it was named.
    pub fn is_asked_for(&self) -> bool {
        self.history.is_some() || self.from.is_some() || self.to.is_some() || self.last.is_some()
    }

    /// Opens the history.
    pub fn open(&self) -> anyhow::Result<Store> {
        open(self.history.as_ref())
    }

    /// The part of it.
    pub fn choice(&self) -> anyhow::Result<Choice> {
        Ok(Choice::of(times::span(self.from.as_deref(), self.to.as_deref(), self.last)?))
    }
}

/// Opens a history, or the usual one.
fn open(path: Option<&PathBuf>) -> anyhow::Result<Store> {
    let usual = default_path();
    let path = path.unwrap_or(&usual);
    if !path.exists() {
        bail!("{}: there is no history; write one with: tompion monitor --history", path.display());
    }
    Ok(Store::open_to_read(path)?)
}
