//! Writes decoded events as another trace, of either version of the format.
//!
//! ```text
//! metadata::Trace ──Transcript::new──► description (TSDL or JSON)
//!                          │
//! packets, events ──────► Writer ────► packets
//! ```
//!
//! Fields keep their names, types and values. Headers and packet properties are written again. So
//! packets can omit events, or be combined to larger ones, and timestamps stay unambiguous.
//!
//! | source | becomes |
//! |---|---|
//! | headers of packets and events | those that Tompion writes ([`tompion_ctf::encode`]) |
//! | fields with roles in packet contexts | integers of 64 bits, before the other fields |
//! | text whose length is another field, text in UTF-16 or UTF-32 | text up to a NUL, in UTF-8 |
//!
//! CTF 1.8 lacks some types. They become the closest equivalent, and [`Transcript::notes`] lists
//! them:
//!
//! | CTF 2 | CTF 1.8 |
//! |---|---|
//! | boolean, bits | integer |
//! | integer of variable size | integer of 64 bits |
//! | bit order opposite to that of the byte order | bit order of the byte order |
//! | blob | array or sequence of bytes |
//! | optional field | variant of nothing and the field, after a tag |
//! | variant selected by ranges | variant after a tag, unless labels of the selector suffice |
//! | a name that is not an identifier | one with `_` for each invalid character |

mod bits;
mod frame;
mod model;
mod names;
mod places;
mod shape;
#[cfg(test)]
mod tests;
mod writer;

use tompion_ctf::metadata::{Trace, Version};

pub use model::Inexpressible;
pub use shape::Misfit;
pub use writer::{Start, Times, Writer};

/// Plan for writing one trace as another.
#[derive(Debug)]
pub struct Transcript {
    target: Trace,
    streams: Vec<shape::StreamShape>,
    notes: Vec<&'static str>,
}

impl Transcript {
    /// Plans how a trace is written in a version of the format.
    ///
    /// # Errors
    ///
    /// Fails if its fields refer to one another in a way that the new trace cannot express, or are
    /// nested more deeply than its description can be read.
    pub fn new(source: &Trace, version: Version) -> Result<Self, Inexpressible> {
        let transcript = model::translate(source, version)?;
        // A description that cannot be read back would lose the trace.
        match tompion_ctf::parse(transcript.description().as_bytes()) {
            Ok(_) => Ok(transcript),
            Err(reason) => Err(Inexpressible {
                place: "the new description".into(),
                message: format!("no reader takes back: {reason}"),
            }),
        }
    }

    /// Returns the description of the new trace.
    pub fn target(&self) -> &Trace {
        &self.target
    }

    /// Returns the text of the new trace's `metadata` file.
    pub fn description(&self) -> String {
        match self.target.version {
            Version::One => tompion_ctf::tsdl::write(&self.target),
            Version::Two => tompion_ctf::json::write(&self.target),
        }
    }

    /// Returns short notes about everything that had to be expressed differently.
    pub fn notes(&self) -> &[&'static str] {
        &self.notes
    }
}
