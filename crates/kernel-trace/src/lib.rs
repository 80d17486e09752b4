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
//! waits for clock samples, and a storm of interrupts delays no application's events. A recording
//! may outlast its recorder (`keeping.rs`); another one takes over (`takeover.rs`). What a ring
//! looks like is `tompion_kernel`'s business, and sessions and chunks' folders are their owners'.
#![forbid(unsafe_code)]

mod account;
mod change;
mod choice;
mod chunks;
mod classes;
mod drain;
mod initial;
mod keeping;
mod losses;
mod outcome;
mod recording;
mod room;
mod takeover;

pub use change::ChangeableChoice;
pub use choice::{ChoiceError, KernelChoice};
pub use chunks::{Begins, ChunkControl, ChunkPart};
pub use drain::MAX_UNSAVED_PERCENT;
pub use outcome::Outcome;
pub use recording::{Keep, Kernel, Plan};
pub use takeover::{HeldKernel, LeftKernel, note_choice};
pub use tompion_kernel::{Error, Selection};
