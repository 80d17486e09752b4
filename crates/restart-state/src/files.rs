//! Files of the state: their names, and how they are read and written.

use std::io;

use serde::{Serialize, de::DeserializeOwned};
use tompion_os::DirHandle;

/// Largest file.
const MAX_BYTES: u64 = 64 << 20;
/// Names' parts.
const BEGIN: &str = "chunk-";
const CLEARED: &str = "cleared-";
const END: &str = ".json";

/// Returns the name of the state with which a chunk begins.
pub fn begin_of(number: u64) -> String {
    format!("{BEGIN}{number:06}{END}")
}

/// Returns the name of the state with which a chunk begins again.
pub fn cleared(number: u64) -> String {
    format!("{CLEARED}{number:06}{END}")
}

/// Returns the number of the chunk with the state of this name.
pub fn number_in(name: &str) -> Option<u64> {
    let number = name.strip_prefix(BEGIN).or_else(|| name.strip_prefix(CLEARED))?;
    number.strip_suffix(END)?.parse().ok()
}

/// Writes a value as a file.
pub fn write(folder: &DirHandle, name: &str, value: &impl Serialize, is_durable: bool) -> io::Result<()> {
    let text = serde_json::to_vec(value).map_err(io::Error::other)?;
    folder.replace(name, &text, is_durable)
}

/// Reads a file; none if there is none. Errors are lines for people.
pub fn read<T: DeserializeOwned>(folder: &DirHandle, name: &str) -> Result<Option<T>, String> {
    let shown = || folder.path().join(name).display().to_string();
    let bytes = match folder.read_bounded(name, MAX_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(|error| format!("{}: {error}", shown()))?,
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| format!("{}: {error}", shown()))
}
