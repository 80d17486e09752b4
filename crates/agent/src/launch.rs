//! `TOMPION_RECORD=DIR`: starting the session of a folder from inside a program, with no launcher.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use tompion_os::Ready;
use tompion_protocol::names;

/// Starts `tompion record` for a folder, under the name where programs look for it. None if there
/// is no such command beside this library or on the path.
///
/// Should another program do the same at this moment, one of the two sessions finds the name taken
/// and ends.
pub fn start_session(folder: &Path, name: &str) -> Option<Ready> {
    let programs = candidates();
    let programs: Vec<&Path> = programs.iter().map(PathBuf::as_path).collect();
    let options = std::env::var_os(names::RECORD_OPTIONS_VARIABLE).unwrap_or_default();
    let options = options.as_bytes().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let fixed: [&[u8]; 5] =
        [b"record", b"--gather-in", folder.as_os_str().as_bytes(), b"--gather-as", name.as_bytes()];
    let arguments: Vec<&[u8]> = fixed.into_iter().chain(options).collect();
    tompion_os::spawn_detached(&programs, &arguments, is_for_programs).ok()
}

/// Returns whether a variable is meant for recorded programs, and not for the recorder.
fn is_for_programs(name: &[u8]) -> bool {
    name.starts_with(b"TOMPION_") || name == b"LD_PRELOAD"
}

/// Paths of the command: beside this library, where an installation puts it, on the path.
fn candidates() -> Vec<PathBuf> {
    let here = tompion_os::object_of(start_session as *const ());
    let folder = here.as_deref().and_then(Path::parent);
    let near = folder.into_iter().flat_map(|folder| [folder.join("tompion"), folder.join("../bin/tompion")]);
    // Debian keeps libraries one folder deeper (lib/x86_64-linux-gnu).
    let deep = folder.into_iter().map(|folder| folder.join("../../bin/tompion"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<_> = std::env::split_paths(&path).map(|folder| folder.join("tompion")).collect();
    near.chain(deep).chain(on_path).filter(|program| program.is_file()).collect()
}
