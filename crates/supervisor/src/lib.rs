//! Sessions from files: a supervisor that starts their recorders, watches them, and changes them.
//!
//! ```text
//! NAME.toml, NAME.toml.d/*.toml ─► SessionFile ─► difference ─► recorders (`tompion record`)
//!                                                    ▲               │ pidfd
//!                      Apply, Stop, Create ─varlink──┴── supervisor ◄┘
//! ```
//!
//! No event passes through it: each recorder is a process of its own that answers for itself, and
//! runs on when the supervisor ends. The next supervisor finds them by their process ids and start
//! times.
#![forbid(unsafe_code)]

pub mod client;
mod difference;
mod disk;
mod files;
mod grant_service;
mod grantee;
mod intent;
mod key;
mod process;
mod recorder;
mod service;
mod session_file;
mod start_triggers;
mod state;
mod supervisor;
mod types;

pub use client::{Instance, SupervisorError};
pub use files::SessionFiles;
pub use session_file::{Channel, SessionFile, Start};
pub use supervisor::{ServeError, Supervisor};
pub use types::{Applied, ChannelStatus, RecorderState, SessionStatus, Sessions};

/// Name of the interface.
pub const INTERFACE: &str = "io.tompion.Supervisor1";
/// Its description.
pub const DESCRIPTION: &str = include_str!("io.tompion.Supervisor1.varlink");

/// Returns the full name of an error or a method of the interface.
fn qualified(name: &str) -> String {
    format!("{INTERFACE}.{name}")
}
