//! Messages to the user: one line each, on standard error.

use std::{
    borrow::Cow,
    fmt::Display,
    io::{self, IsTerminal, Write},
    path::Path,
    process::ExitCode,
    sync::{
        Once, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

pub use tompion_report::format::{pluralize, with_thousands};

/// Exit code: the command failed.
pub const FAILED: u8 = 1;
/// Exit code: the command line was wrong.
pub const WRONG_USAGE: u8 = 2;
/// Exit code: another command stopped the monitor on purpose. Systemd units list it, so that they
/// don't restart the service.
pub const ENDED: u8 = 3;

/// Most bytes of messages that others can have printed.
const MAX_MESSAGES: usize = 64 << 10;

/// System's error for a process that may not open more files.
const TOO_MANY_FILES: &str = "Too many open files (os error 24)";

/// Prints a message, without control characters.
pub fn print_status(text: impl Display) {
    static ADVICE: Once = Once::new();
    let text = text.to_string();
    let text = as_typed(&text);
    let lines: Vec<_> = text.split('\n').map(escape_control).collect();
    anstream::eprintln!("tompion: {}", lines.join("\n"));
    if text.contains(TOO_MANY_FILES) {
        ADVICE.call_once(|| anstream::eprintln!("tompion: {}", file_limit_advice()));
    }
}

/// Prints a message that another user can have printed as often as it likes, up to a limit of all
/// such messages.
pub fn print_within_limit(text: &str) {
    static PRINTED: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: the sum alone counts, and orders nothing.
    let before = PRINTED.fetch_add(text.len(), Ordering::Relaxed);
    if before + text.len() <= MAX_MESSAGES {
        print_status(text);
    } else if before <= MAX_MESSAGES {
        print_status("further messages are left out");
    }
}

/// Folders in which sudo looks for commands: `secure_path` of Debian, Ubuntu and Fedora.
const SUDO_FOLDERS: [&str; 4] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];

/// Returns a text whose command lines with sudo work as typed: where sudo would not find this
/// program, they name its file.
pub fn as_typed(text: &str) -> Cow<'_, str> {
    match program_for_sudo() {
        Some(program) if text.contains("sudo ") => Cow::Owned(with_program(text, program)),
        _ => Cow::Borrowed(text),
    }
}

/// Returns this program's file as a shell takes it; none where sudo finds the program by its name.
fn program_for_sudo() -> Option<&'static str> {
    static PROGRAM: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        let program = std::env::current_exe().ok()?;
        let mut files = SUDO_FOLDERS.iter().map(|folder| Path::new(folder).join("tompion"));
        let by_name = files.find(|file| file.is_file()).and_then(|file| file.canonicalize().ok());
        let words = [program.to_str()?.to_owned()];
        (by_name.as_ref() != Some(&program)).then(|| tompion_reader::manifest::shell_line(&words))
    };
    PROGRAM.get_or_init(find).as_deref()
}

/// Puts `program` in the place of `tompion` where sudo runs it, and where that command runs it
/// again.
fn with_program(text: &str, program: &str) -> String {
    let line = |line: &str| {
        let Some((before, command)) = line.split_once("sudo ") else { return line.to_owned() };
        let (mut is_awaited, mut words) = (true, Vec::new());
        for word in command.split(' ') {
            let is_program = word == "tompion" && is_awaited;
            is_awaited = word == "--" || is_awaited && !is_program;
            words.push(if is_program { program } else { word });
        }
        format!("{before}sudo {}", words.join(" "))
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Returns advice for opening more files, by this process's limits.
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

/// Replaces control characters by question marks: names in programs and traces can contain
/// anything, and a terminal would obey them.
pub fn escape_control(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_control) {
        Cow::Owned(text.replace(char::is_control, "?"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Maximum length of a command line in messages, in characters.
const MAX_COMMAND_LINE: usize = 160;

/// Formats a command line as a shell takes it, without control characters, with a bounded length.
pub fn command_line(words: &[String]) -> String {
    let line = tompion_reader::manifest::shell_line(words);
    let line = escape_control(&line);
    match line.char_indices().nth(MAX_COMMAND_LINE) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.into_owned(),
    }
}

/// Returns standard output for traces. On a terminal, control characters become question marks,
/// except for these sequences.
pub fn output(known: &'static [&'static str]) -> Box<dyn Write> {
    let output = io::stdout().lock();
    if output.is_terminal() {
        Box::new(ControlEscaper { output, after_c2: false, known })
    } else {
        Box::new(output)
    }
}

/// Writer that replaces control characters of ASCII, except line breaks and tabs, and those from
/// U+0080 to U+009F in UTF-8.
struct ControlEscaper<W> {
    output: W,
    /// Whether the previous byte begins a character from U+0080 to U+00BF.
    after_c2: bool,
    /// Sequences that pass. They don't change the meaning of a line, wherever they are.
    known: &'static [&'static str],
}

impl<W: Write> Write for ControlEscaper<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut escaped = bytes.to_vec();
        for (index, byte) in escaped.iter_mut().enumerate() {
            let after_c2 = std::mem::replace(&mut self.after_c2, *byte == 0xc2);
            // A single byte from 0x80 on is no control character in UTF-8.
            let is_control = byte.is_ascii_control() && !matches!(*byte, b'\n' | b'\t');
            let rest = bytes.get(index..).unwrap_or_default();
            if is_control && self.known.iter().any(|known| rest.starts_with(known.as_bytes())) {
                continue;
            }
            if is_control || after_c2 && (0x80..0xa0).contains(byte) {
                *byte = b'?';
            }
        }
        self.output.write_all(&escaped)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// Reports a failure. A closed pipe (`| head`) is no failure.
pub fn failure(error: &anyhow::Error, verbose: bool) -> ExitCode {
    if is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
    if verbose {
        print_status(chain.join(": "));
    } else {
        // The line has the operating system's reason; -v prints longer chains.
        print_status(chain.iter().take(2).cloned().collect::<Vec<_>>().join(": "));
    }
    ExitCode::from(FAILED)
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        io.or(json) == Some(io::ErrorKind::BrokenPipe)
    })
}

/// Prints a usage error, the help or the version.
pub fn usage(error: &clap::Error) -> ExitCode {
    let text = error.render().ansi().to_string();
    let text = as_typed(&text);
    // A reader who went away needs no answer.
    if error.use_stderr() {
        let _ = write!(anstream::stderr(), "{text}");
        ExitCode::from(WRONG_USAGE)
    } else {
        let _ = write!(anstream::stdout(), "{text}");
        ExitCode::SUCCESS
    }
}

/// Describes counts beyond the limits of a recording, by the manifest's names; none if all are
/// zero.
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

/// Returns at most three known words that are similar to an unknown one, the most similar first.
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
    fn control_characters_are_replaced() {
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
    fn a_reader_of_json_who_goes_away_is_no_failure() {
        let (end, pipe) = io::pipe().unwrap();
        drop(end);
        let error = serde_json::to_writer_pretty(pipe, &[1]).unwrap_err();
        assert!(is_closed_pipe(&error.into()));
        assert!(!is_closed_pipe(&serde_json::from_str::<u8>("x").unwrap_err().into()));
    }

    #[test]
    fn hints_name_a_program_that_sudo_would_not_find() {
        for (text, expected) in [
            ("try: sudo tompion snapshot 7", "try: sudo '/a b/tompion' snapshot 7"),
            (
                "record as root: sudo env -u A tompion record …",
                "record as root: sudo env -u A '/a b/tompion' record …",
            ),
            (
                "  sudo tompion shield 3 -- tompion test tompion",
                "  sudo '/a b/tompion' shield 3 -- '/a b/tompion' test tompion",
            ),
            ("next: tompion print a\nsudo tompion stat", "next: tompion print a\nsudo '/a b/tompion' stat"),
            ("sudo prlimit --pid $$", "sudo prlimit --pid $$"),
        ] {
            assert_eq!(with_program(text, "'/a b/tompion'"), expected);
        }
    }

    #[test]
    fn the_nearest_names_come_first() {
        let known = ["db:query_start", "db:query_done", "net:packet"];
        assert_eq!(nearest("db:query_don", known.into_iter())[0], "db:query_done");
        assert!(nearest("zzz", known.into_iter()).is_empty());
    }
}
