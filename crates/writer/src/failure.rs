//! Failures to write, in words for users.

use std::io;

/// Text of the reason why a file can't be written, with what to do where the system's words don't
/// say it.
pub fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::FileTooLarge => {
            format!("a file has reached the file size limit (ulimit -f): {error}")
        }
        _ => error.to_string(),
    }
}
