//! How Tompion speaks to people: one line each, on standard error.

use std::{
    borrow::Cow,
    fmt::Display,
    io::{self, IsTerminal, Write},
    process::ExitCode,
    sync::Once,
};

pub use tompion_report::format::{pluralize, with_thousands};

/// Exit code: it could not be done.
pub const FAILED: u8 = 1;
/// Exit code: the command line was wrong.
pub const WRONG_USAGE: u8 = 2;
/// Exit code: somebody has ended, on purpose, what was looked at. Units name it, so that nobody
/// begins anew what was stopped.
pub const ENDED: u8 = 3;

/// What the system says where this process has as many files open as it may.
const TOO_MANY_FILES: &str = "Too many open files (os error 24)";

/// Says something.
pub fn print_status(text: impl Display) {
    static ADVICE: Once = Once::new();
    let text = text.to_string();
    let lines: Vec<_> = text.split('\n').map(escape_control).collect();
    anstream::eprintln!("tompion: {}", lines.join("\n"));
    if text.contains(TOO_MANY_FILES) {
        ADVICE.call_once(|| anstream::eprintln!("tompion: {}", file_limit_advice()));
    }
}

/// How to have more files open, by this process's limits.
fn file_limit_advice() -> String {
    const ENOUGH: u64 = 65_536;
    match tompion_os::file_limit() {
        Ok(limit) if limit.soft < limit.hard => {
            format!("{} files may be open; allow more with: ulimit -n {}", limit.soft, limit.hard.min(ENOUGH))
        }
        Ok(limit) => {
            let command = format!("prlimit --nofile={} --pid $$", limit.hard.saturating_mul(2).max(ENOUGH));
            format!("{} files may be open; allow more in this shell with: sudo {command}", limit.hard)
        }
        Err(error) => format!("ulimit -n says how many files may be open ({error})"),
    }
}

/// A text with question marks for its control characters: programs and traces can put anything into
/// their names, and a terminal would do what they say.
pub fn escape_control(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_control) {
        Cow::Owned(text.replace(char::is_control, "?"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Longest command line in a text, in characters.
const MAX_COMMAND_LINE: usize = 160;

/// A command line as a shell would take it, without control characters and cut to a bounded length.
pub fn command_line(words: &[String]) -> String {
    let line = tompion_reader::manifest::shell_line(words);
    let line = escape_control(&line);
    match line.char_indices().nth(MAX_COMMAND_LINE) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.into_owned(),
    }
}

/// Standard output, on which traces are printed as they are; a terminal gets question marks for
/// control characters, but for these sequences.
pub fn output(known: &'static [&'static str]) -> Box<dyn Write> {
    let output = io::stdout().lock();
    if output.is_terminal() {
        Box::new(ControlEscaper { output, after_c2: false, known })
    } else {
        Box::new(output)
    }
}

/// Writes bytes without the control characters of ASCII, but for line breaks and tabs, and without
/// those of UTF-8 from U+0080 to U+009F.
struct ControlEscaper<W> {
    output: W,
    /// Whether the byte before was the first of such a character, or of one of the next 32.
    after_c2: bool,
    /// Sequences that are let through. They don't change what a line says, wherever they are.
    known: &'static [&'static str],
}

impl<W: Write> Write for ControlEscaper<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut escape_control = bytes.to_vec();
        for (place, byte) in escape_control.iter_mut().enumerate() {
            let after_c2 = std::mem::replace(&mut self.after_c2, *byte == 0xc2);
            // Half of a character is none to a terminal.
            let is_control = byte.is_ascii_control() && !matches!(*byte, b'\n' | b'\t');
            let rest = bytes.get(place..).unwrap_or_default();
            if is_control && self.known.iter().any(|known| rest.starts_with(known.as_bytes())) {
                continue;
            }
            if is_control || after_c2 && (0x80..0xa0).contains(byte) {
                *byte = b'?';
            }
        }
        self.output.write_all(&escape_control)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// Says why something failed. A reader who went away (`| head`) is no failure.
pub fn failure(error: &anyhow::Error, verbose: bool) -> ExitCode {
    if is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
    if verbose {
        print_status(chain.join(": "));
    } else {
        // The cause of an operating system's refusal belongs to the line; longer chains wait for
        // -v.
        print_status(chain.iter().take(2).cloned().collect::<Vec<_>>().join(": "));
    }
    ExitCode::from(FAILED)
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

/// Answers a wrong command line, or a question for help or the version.
pub fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(WRONG_USAGE) } else { ExitCode::SUCCESS }
}

/// What was counted and not kept, by the manifest's names; none if there was nothing.
pub fn beyond_limits<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> Option<String> {
    let some = counts.filter(|(_, count)| *count != 0);
    let texts = some
        .map(|(what, count)| format!("{} {}", escape_control(what).replace('_', " "), with_thousands(count)));
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Returns the end of a message about an unknown word: the nearest known ones, if any come near.
pub fn nearest_hint<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = nearest(word, known);
    if near.is_empty() { String::new() } else { format!("; nearest: {}", near.join(", ")) }
}

/// The words that come nearest to one that isn't known, the nearest first; at most three.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut near: Vec<_> = known.map(|other| (strsim::jaro_winkler(word, other), other)).collect();
    near.retain(|&(likeness, _)| likeness > 0.6);
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.into_iter().take(3).map(|(_, other)| other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_not_said() {
        assert_eq!(escape_control("\u{1b}]0;title\u{7}\u{9b}31mé\n"), "?]0;title??31mé?");
        assert!(matches!(escape_control("plain"), Cow::Borrowed(_)));
        let mut writer = ControlEscaper { output: Vec::new(), after_c2: false, known: &["\u{1b}[0m"] };
        for bytes in ["\u{1b}[2J\ta\u{9b}2J\u{a0}é\n".as_bytes(), b"\xc2", b"\x9b\x9b\x7f"] {
            writer.write_all(bytes).unwrap();
        }
        assert_eq!(writer.output, b"?[2J\ta\xc2?2J\xc2\xa0\xc3\xa9\n\xc2?\x9b?");
        writer.output.clear();
        writer.write_all(b"\x1b[0ma\x1b[8mb\x1b").unwrap();
        assert_eq!(writer.output, b"\x1b[0ma?[8mb?");
    }

    #[test]
    fn the_nearest_names_come_first() {
        let known = ["db:query_start", "db:query_done", "net:packet"];
        assert_eq!(nearest("db:query_don", known.into_iter())[0], "db:query_done");
        assert!(nearest("zzz", known.into_iter()).is_empty());
    }
}
