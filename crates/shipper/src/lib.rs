//! Sender of recordings: a follower of trace folders, beside the recorder, that gives their
//! segments to a receiver or a store of objects.
//!
//! ```text
//! trace folders ──look──► chunks ──Cursor──► segments ──pace──► Target: HttpTarget │ S3Target
//!       ▲                                                          │
//!       └────────── again, behind what the target says it has ◄────┘ any failure
//! ```
//!
//! Nothing is kept between two runs: the target says what it has. A failure is waited out, however
//! long it lasts. What a segment is, and what is final in a recording, is left to `segments`.
#![forbid(unsafe_code)]

mod backoff;
mod client;
mod http_target;
mod pace;
mod s3;
mod session;
mod ship;
mod target;

pub use client::{Certificates, ClientError};
pub use http_target::HttpTarget;
pub use pace::{Pace, Window, WindowError};
pub use s3::{Credentials, S3Target};
pub use ship::{Options, Summary, ship};
pub use target::{Target, Trouble};
