//! Answers of the API, as they are sent in JSON.
//!
//! The page's types are generated from these by a test: `web/src/data/wire.ts`. All times are
//! nanoseconds after the traces' base, with the clock offset of their trace. Durations are
//! nanoseconds. `null` means that there is nothing of the kind, or that it is unknown.

mod events;
mod files;
mod slices;
mod statistics;
mod timeline;
#[cfg(test)]
mod typescript;

pub use events::*;
pub use files::*;
pub use slices::*;
pub use statistics::*;
pub use timeline::*;
