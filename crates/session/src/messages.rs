//! Texts in messages for users: reasons of failures, and short lists of names.

pub use tompion_writer::reason;

/// The first three of some names, and how many there are besides.
pub fn summarize_names(names: &[String]) -> String {
    let more = if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
    names.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ") + &more
}
