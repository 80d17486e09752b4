//! Texts that programs send about themselves.

/// Longest name of a process in bytes; names of files have at most 255, and this is a part of one.
pub const MAX_NAME: usize = 200;
/// Longest path of an executable in bytes. Source: `PATH_MAX` in `limits.h`.
pub const MAX_PATH: usize = 4096;
/// Longest reason for anything in bytes.
pub const MAX_REASON: usize = 300;
/// Longest line about a problem in bytes.
pub const MAX_PROBLEM: usize = 1000;

/// A text without control characters, which would act on a reader's terminal, cut to a length in
/// bytes.
pub fn tidy(text: &str, most: usize) -> String {
    let end = (0..=text.len().min(most)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text[..end].chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_what_is_too_long_are_taken_away() {
        assert_eq!(tidy("\u{1b}[31mred\n\u{9b}0m", 100), "?[31mred??0m");
        assert_eq!(tidy("ééé", 5), "éé");
        assert_eq!(tidy("find", MAX_NAME), "find");
    }
}
