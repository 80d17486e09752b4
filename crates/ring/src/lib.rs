//! The per-CPU ring.
//!
//! [`producer`] appends a record, header and fields, inside one restartable section whose last
//! instruction stores the new write position: whatever interrupts it before that instruction
//! leaves nothing behind. [`reserve`] appends where there are no such sections. [`reader`] takes
//! what lies below the write position, or copies a ring that goes on being overwritten and keeps
//! what stayed intact. [`records`] walks the copied bytes, which it does not trust.
//! [`pinned_events`] is for the few events that must not be overwritten. [`rules_text`] is the
//! text that says which events are recorded. [`captures`] counts and copies events on which
//! triggers wait. [`idle_pages`] gives back what rings don't use any more. [`counts`] counts
//! events by their [`keys`]. [`in_flight`] tells when the memory of a recording can be unmapped.
//! [`versioned`] has words that change while others read them.
//!
//! The bytes themselves are drawn in `tompion-layout`; `docs/design/ring.md` has the argument why
//! readers and writers agree. This crate knows nothing of events, files or sockets.

pub mod captures;
#[cfg(not(loom))]
pub mod counts;
mod event;
#[cfg(not(loom))]
pub mod idle_pages;
pub mod in_flight;
pub mod keys;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod memory;
pub mod pinned_events;
#[cfg(not(loom))]
pub mod producer;
pub mod reader;
pub mod records;
pub mod reserve;
pub mod rules_text;
#[cfg(not(loom))]
mod section;
pub mod torn_pages;
pub mod versioned;
