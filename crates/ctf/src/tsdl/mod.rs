//! TSDL, the description language of CTF 1.8: [`parse`] reads it, [`write()`] writes it.
//!
//! ```text
//! bytes ──packet──► text ──lexer──► tokens ──parser──► syntax ──resolver──► metadata::Trace
//! ```

mod write;

pub use write::write;
