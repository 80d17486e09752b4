//! A trace, written as another one: what was decoded is encoded again, for whichever version of the format.
//!
//! ```text
//! metadata::Trace ──Transcript::new──► description (TSDL or JSON)
//!                          │
//! packets, events ──────► Writer ────► packets
//! ```
//!
//! Fields keep their names, types and values. Headers, and what packets say of themselves, are written anew:
//! so packets can lack events, or be parts of larger ones, without any timestamp becoming ambiguous.
//!
//! | | becomes |
//! |---|---|
//! | headers of packets and events | those that Tompion writes ([`crate::encode`]) |
//! | fields with roles in packet contexts | integers of 64 bits, in front of the other fields |
//! | text with a length that another field says, text in UTF-16 or UTF-32 | text up to a NUL, in UTF-8 |
//!
//! What CTF 1.8 has no word for becomes what comes next to it; [`Transcript::notes`] says so:
//!
//! | CTF 2 | CTF 1.8 |
//! |---|---|
//! | boolean, bits | integer |
//! | integer of variable size | integer of 64 bits |
//! | bits in the order opposite to that of the byte order | in the order of the byte order |
//! | blob | array or sequence of bytes |
//! | optional field | variant of nothing and the field, behind a tag |
//! | variant that ranges select | variant behind a tag, unless labels of the selector do as well |
//! | a name that is no identifier | one with `_` for what is impossible |

mod bits;
mod frame;
mod model;
mod names;
mod places;
mod shape;
mod writer;

use crate::metadata::{Trace, Version};

pub use model::Inexpressible;
pub use shape::Misfit;
pub use writer::{Start, Times, Writer};

/// How a trace is written as another one.
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
    /// If its fields refer to one another in a way that the new trace cannot say.
    pub fn new(source: &Trace, version: Version) -> Result<Self, Inexpressible> {
        model::translate(source, version)
    }

    /// What the new trace says about itself.
    pub fn target(&self) -> &Trace {
        &self.target
    }

    /// The text of the new trace's `metadata` file.
    pub fn description(&self) -> String {
        match self.target.version {
            Version::One => crate::tsdl::write(&self.target),
            Version::Two => crate::json::write(&self.target),
        }
    }

    /// What had to be said otherwise, each in a few words.
    pub fn notes(&self) -> &[&'static str] {
        &self.notes
    }
}
