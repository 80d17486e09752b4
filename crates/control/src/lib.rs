//! Control of running recordings: the interface `io.tompion.Recording1`, where a recorder's socket
//! is found, and the types of calls and replies.
//!
//! The interface's description, [`DESCRIPTION`], is the contract with programs that are not ours.
//! A test holds the types here against it. What a recorder does with a call is left to it.
#![forbid(unsafe_code)]

mod permissions;
mod place;
mod recording;
mod types;

pub use permissions::Permissions;
pub use place::{
    CONTROL_FOLDER_VARIABLE, ControlSocket, PlaceError, SYSTEM_FOLDER_VARIABLE, SystemSocket,
    check_session_name, connect_to_supervisor, connect_to_system, control_folder,
};
pub use recording::{ControlError, Recording, TriggerWatch, recordings, save_by_grant};
pub use tompion_varlink::{Call, CallError, Caller, Client, ClientError, Identity, Server, Service};
pub use types::{
    Capture, Chunk, EventCount, EventCounts, Firing, Following, Loss, Mode, Process, Refusal, RuleChange,
    Rules, Status,
};

/// Name of the interface.
pub const INTERFACE: &str = "io.tompion.Recording1";
/// Its description.
pub const DESCRIPTION: &str = include_str!("io.tompion.Recording1.varlink");

/// Returns the full name of an error or a method of the interface.
pub fn qualified(name: &str) -> String {
    format!("{INTERFACE}.{name}")
}
