//! Derives states of threads, CPUs and programs from the events of traces.
//!
//! ```text
//! TraceSet ──events by time──► state::Engine ──intervals, instants──► a Visitor: viewer, analyses
//! ```
//!
//! Reading and merging is the job of `tompion-reader`; this crate turns events into states that
//! last from one time to another.
#![forbid(unsafe_code)]

pub mod durations;
pub mod histogram;
pub mod quick;
pub mod state;
