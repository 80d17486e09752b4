//! What traces mean.
//!
//! ```text
//! TraceSet ──events in order of time──► state::Engine ──intervals, instants──► a Visitor: viewer, analyses
//! ```
//!
//! Reading and merging is `tompion-reader`'s work; here events become states that last from one moment to another.
#![forbid(unsafe_code)]

pub mod quick;
pub mod state;
