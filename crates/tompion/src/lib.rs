#![doc = include_str!("../README.md")]

mod context;
mod description;
pub mod dynamic;
mod enumeration;
mod field;
mod kinds;
mod level;
mod macros;
mod mark;
mod site;
mod state_dump;

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
)))]
#[path = "noop.rs"]
mod platform;
#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
))]
#[path = "linux/mod.rs"]
mod platform;

#[cfg(test)]
mod tests;

/// The guide's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/rust.md")]
mod guide {}

pub use context::{context, text_context, withdraw_context};
pub use field::{Field, Hex, Integers, Network, Text, hex, network, text};
pub use level::Level;
pub use site::Span;
pub use state_dump::{StateDump, state_dump};

/// Items that the macros need; not for use by hand, and without promises.
#[doc(hidden)]
pub mod private {
    pub use std::option::Option::{None, Some};

    pub use crate::{
        description::{Described, Enumeration, Kind, Name, Names, Outline, Shape, check},
        enumeration::label,
        field::{Cons, Element, Nil, Structure},
        kinds::{Deadline, Identity, Quantity},
        site::Probe,
    };
}

/// Requests a snapshot of the flight recorders that record this program.
///
/// Returns whether there was one: false where no flight recorder records the program. Does not wait
/// until the snapshot is saved. May be called from any thread, also in signal handlers.
pub fn snapshot() -> bool {
    platform::request_snapshot()
}

/// Brings the library into a program that was started without a recording, so that `tompion record
/// -p` can take it in later. Returns whether the library is there.
///
/// Programs that are started under a recording need not call this.
pub fn load() -> bool {
    platform::load()
}

/// Whether the library is there, so that the program's events may be recorded, now or later.
pub fn is_loaded() -> bool {
    platform::is_loaded()
}
