//! Objects in the kernel that record, as their recorder has them: rings in mapped arrays, and
//! descriptors of maps, programs and links.
//!
//! ```text
//! links ──► programs ──► maps: rings, data │ followed │ known stacks │ the recorder's number
//!   │          │           │
//!   └──────────┴───────────┴── descriptors: of the recorder that loaded them, of its keeper,
//!                              and of the recorder that comes after
//! ```
//!
//! Nothing is pinned: all of it is gone with the last descriptor. Loading and attaching is left to
//! `tompion_kernel`, the meaning of records, too.
#![forbid(unsafe_code)]

pub mod objects;
pub mod ring;
