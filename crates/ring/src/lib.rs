//! The per-CPU ring.
//!
//! [`producer`] appends a record, header and fields, inside one restartable section whose last
//! instruction stores the new write position: whatever interrupts it before that instruction leaves
//! nothing behind. [`reader`] takes what lies below the write position, or copies a ring that goes on
//! being overwritten and keeps what stayed intact. [`records`] walks the copied bytes, which it does not
//! trust. [`kept`] is for the few events that must not be overwritten.
//!
//! The bytes themselves are drawn in `tompion-layout`; `docs/design/ring.md` has the argument why
//! readers and writers agree. This crate knows nothing of events, files or sockets.

pub mod kept;
pub mod producer;
pub mod reader;
pub mod records;
mod section;
