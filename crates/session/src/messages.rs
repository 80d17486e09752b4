//! Texts in messages for users: reasons of failures, and short lists of names.

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

/// The first three of some names, and how many there are besides.
pub fn summarize_names(names: &[String]) -> String {
    let more = if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
    names.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ") + &more
}
