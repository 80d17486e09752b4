//! Evaluation of the history: `tompion monitor report`, `plot` and `compare`.

mod axis;
mod compare;
mod labels;
mod page;
mod plot;
mod report;
mod selection;
mod times;

pub use compare::{Arguments as CompareArgs, run as compare};
pub use plot::HistoryPlotArgs;
pub use report::{Arguments as ReportArgs, run as report};
pub use selection::file_rights;
