//! Events of the kernel: programs that the kernel runs for us at its tracepoints, without a module.
//!
//! ```text
//! src/bpf/*.h ──► programs ──► rings (BPF arrays) ──mmap──► RingReader ──► Records ──► Decoder
//! ```
//!
//! Programs reserve and commit as `models/reserve.pml` says; [`ring`] reads what they have
//! committed; [`decode`] says what it means, in the words of [`events`], [`syscalls`] and
//! [`tracepoints`]. Where the trace goes is left to others.
#![forbid(unsafe_code)]

mod change;
pub mod context;
pub mod decode;
pub mod events;
pub mod filter;
mod fitness;
mod load;
pub mod probes;
pub mod records;
mod select;
pub mod stacks;
pub mod state;
pub mod switch_gaps;
pub mod syscalls;
pub mod tracepoints;
mod words;

pub use change::add_tracepoints;
pub use fitness::{Obstacle, obstacles};
pub use load::{Error, OBJECT, Options, Programs, Recorder, chain, refused};
pub use select::{AvailableEvents, Selection, UnknownEvent};
pub use tompion_kernel_objects::{
    objects::{self, misses_of},
    ring,
};
pub use words::Words;
