//! Layout of the memory that an application and a session share.
//!
//! Two memory files belong to one traced process in one recording. The session creates, sizes and
//! seals both before it passes them on, so neither side can make the other fault by truncating
//! them.
//!
//! ```text
//! control file (see [`control`])                 ring file (see [`ring`])
//! ┌───────────────────────────────┐              ┌──────────────────────────────┐
//! │ header page: sizes, mode      │ session →    │ buffer 0  cpu 0: page, data  │ agent →
//! │ selector line: buffer 0 or 1  │ session →    │           cpu 1: page, data  │
//! │ losses without a ring         │ agent →      │           …                  │
//! ├───────────────────────────────┤              │ buffer 1  cpu 0: page, data  │
//! │ rules: which events to record │ session →    │           …                  │
//! ├───────────────────────────────┤              └──────────────────────────────┘
//! │ catalog: event descriptions   │ agent →
//! │ pinned events                 │ agent →
//! │ triggers: texts, matches      │ both
//! └───────────────────────────────┘
//! ```
//!
//! This crate has numbers and pure functions only. `tompion-ring` defines which side reads and
//! writes each word, in which order, and why that is safe.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod control;
pub mod counts;
pub mod loss;
pub mod pinned;
pub mod record;
pub mod ring;
pub mod triggers;

/// Version of everything in this crate. An agent and a session with different versions do not share
/// memory.
pub const LAYOUT_VERSION: u32 = 2;

/// Size of a memory page, and so of every header that is mapped by itself, in bytes.
pub const PAGE: u64 = 4096;
