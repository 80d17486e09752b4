//! Report of the real-time tests: a verdict, figures, tables and plots on one HTML page.
//!
//! ```text
//! campaign's results ──► Document ──► verdict ──┐
//!  (rttest)              (JSON)   ──► figures ──┴──► tables, plots ──► page
//! ```
//!
//! - [`document`]: everything that was measured, as the JSON beside the page has it;
//! - [`verdict`]: whether the machine keeps its limit, in a few points;
//! - [`page`]: the page of one report, or of two that are compared;
//! - [`html`] and [`mod@format`]: parts of pages and numbers, which other pages use, too.
//!
//! Measuring is the affair of `tompion-rttest`; reading and writing files that of the command.
#![forbid(unsafe_code)]

pub mod document;
mod figures;
pub mod format;
pub mod html;
pub mod page;
mod plot;
mod tables;
pub mod verdict;
