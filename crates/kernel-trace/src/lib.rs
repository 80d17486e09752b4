//! The kernel's trace of a recording: a thread drains the kernel's rings and writes `kernel/`.
//!
//! ```text
//! Kernel ──commands──► Drain ◄── rings of `tompion_kernel`
//!                        │
//! ChunkControl ──────────┤  end of a chunk, begin of the next
//!                        ▼
//!             packets and metadata in `kernel/`
//! ```
//!
//! It stands beside the consumer of programs' rings: programs in the kernel read no TSC, so nothing
//! waits for clock samples, and a storm of interrupts delays no application's events. What a ring
//! looks like is `tompion_kernel`'s business, and sessions and chunks' folders are their owners'.
#![forbid(unsafe_code)]

mod change;
mod chunks;
mod classes;
mod drain;
mod initial;
mod losses;
mod outcome;
mod recording;

pub use change::ChangeableChoice;
pub use chunks::{ChunkControl, ChunkPart};
pub use drain::MAX_UNSAVED_PERCENT;
pub use outcome::Outcome;
pub use recording::{Kernel, KernelChoice, Plan};
pub use tompion_kernel::{Error, Selection};
