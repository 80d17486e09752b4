//! A display that fills the terminal and is refreshed: frames, lines of its width, and styles.

use std::{
    io::{self, Write},
    os::fd::AsFd,
};

/// Begins bold text.
pub const BOLD: &str = "\x1b[1m";
/// Begins dim text.
pub const DIM: &str = "\x1b[2m";
/// Begins red text.
pub const RED: &str = "\x1b[31m";
/// Begins green text.
pub const GREEN: &str = "\x1b[32m";
/// Begins yellow text.
pub const YELLOW: &str = "\x1b[33m";
/// Begins cyan text.
pub const CYAN: &str = "\x1b[36m";
/// Ends all styles.
pub const END: &str = "\x1b[0m";

/// All styles.
pub const STYLES: [&str; 7] = [BOLD, DIM, RED, GREEN, YELLOW, CYAN, END];

/// Columns and rows of a terminal that doesn't report them.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

/// Enters the alternate screen, hides the cursor and disables line wrapping.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Undoes [`ENTER`].
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The terminal as one display. It has its old content again when this is dropped.
#[derive(Debug)]
pub struct Screen<O: Write + AsFd>(O);

impl<O: Write + AsFd> Screen<O> {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn enter(mut output: O) -> io::Result<Self> {
        write!(output, "{ENTER}")?;
        Ok(Self(output))
    }

    /// Returns the columns and rows that a frame has.
    pub fn size(&self) -> (u16, u16) {
        tompion_os::terminal_size(self.0.as_fd()).unwrap_or(DEFAULT_SIZE)
    }

    /// Shows a frame instead of the last one.
    ///
    /// # Errors
    /// If the terminal can't be written.
    pub fn draw(&mut self, frame: &str) -> io::Result<()> {
        // Each line is cleared before it is written: clearing behind a full line would remove its
        // last character.
        let frame = styled(frame).replace('\n', "\r\n\x1b[K");
        write!(self.0, "\x1b[H\x1b[K{frame}\x1b[J")?;
        self.0.flush()
    }
}

impl<O: Write + AsFd> Drop for Screen<O> {
    fn drop(&mut self) {
        let _ = write!(self.0, "{LEAVE}").and_then(|()| self.0.flush());
    }
}

/// Removes colours if `NO_COLOR` is set.
fn styled(frame: &str) -> String {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if is_plain { plain(frame) } else { frame.to_owned() }
}

/// Returns a text without its styles.
pub fn plain(text: &str) -> String {
    STYLES.iter().fold(text.to_owned(), |text, style| text.replace(style, ""))
}

/// Truncates a line to a number of characters; styles take no room and stay.
pub fn truncate(line: &str, max: usize) -> String {
    let (mut left, mut is_style) = (max, false);
    line.chars()
        .filter(|letter| {
            let belongs = is_style || *letter == '\x1b';
            if belongs {
                is_style = *letter != 'm';
                return true;
            }
            let has_room = left > 0;
            left = left.saturating_sub(1);
            has_room
        })
        .collect()
}

/// Returns as much of a text as a terminal of this size has room for.
pub fn fit(text: &str, (columns, rows): (u16, u16)) -> String {
    let lines = text.lines().take(usize::from(rows));
    lines.map(|line| truncate(line, usize::from(columns))).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_take_no_room() {
        assert_eq!(truncate(&format!("{BOLD}highest{END} µs"), 9), format!("{BOLD}highest{END} µ"));
        assert_eq!(truncate(&format!("{RED}ab{END}"), 1), format!("{RED}a{END}"));
        assert_eq!(plain(&format!("{RED}ab{END}c")), "abc");
        assert_eq!(fit("abc\nd\ne", (2, 2)), "ab\nd");
    }
}
