//! Chunks of a recording: folders beside each other, each a complete trace in itself.
//!
//! ```text
//! flight/
//! ├── tompion.json          the recording
//! ├── chunk-000001/         committed: a trace with a manifest of its own
//! ├── chunk-000002/
//! └── chunk-000003.open/    being written
//! ```
//!
//! A chunk is written under its open name. Its manifest comes last; then the folder is renamed, and
//! never changes again. A [`Policy`] limits each chunk, and all together. What a chunk contains is
//! left to others.
#![forbid(unsafe_code)]

mod policy;
mod series;

pub use policy::{Policy, PolicyError, Retention, Rotation};
pub use series::{Committed, Listed, Series, committed_chunks, dropped_chunk, list_chunks, open_chunk};
