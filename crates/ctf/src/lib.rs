//! The Common Trace Format: what traces say about themselves, and how their bytes become events.
//!
//! ```text
//! metadata text ──► tsdl::parse ──► metadata::Trace ──► decode::Decoder ──► values of events
//!                   tsdl::write ◄──        │
//! ```
//!
//! [`metadata`] is the model of a trace, the same for every version of the format. [`tsdl`] reads and
//! writes the description language of CTF 1.8. [`decode`] compiles the model into flat plans, once for
//! each class, and runs these over the bytes of packets.
//!
//! Every byte of a trace is hostile until one of these has checked it: nothing here panics, reads
//! unchecked or allocates by a size that was not compared with what is there. Files, folders and the
//! order of events of several streams are the business of `tompion-reader`.
#![forbid(unsafe_code)]

pub mod decode;
pub mod encode;
pub mod meaning;
pub mod metadata;
pub mod tsdl;
