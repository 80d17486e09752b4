//! How Tompion speaks to people: one line each, on standard error.

use std::{fmt::Display, process::ExitCode};

/// Exit code: it could not be done.
pub const FAILED: u8 = 1;
/// Exit code: the command line was wrong.
pub const WRONG_USAGE: u8 = 2;

/// Says something.
pub fn say(text: impl Display) {
    anstream::eprintln!("tompion: {text}");
}

/// Says why something failed. A reader who went away (`| head`) is no failure.
pub fn failure(error: &anyhow::Error, verbose: bool) -> ExitCode {
    if is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
    if verbose {
        say(chain.join(": "));
    } else {
        // The cause of an operating system's refusal belongs to the line; longer chains wait for -v.
        say(chain.iter().take(2).cloned().collect::<Vec<_>>().join(": "));
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

/// A number with its thousands set apart: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index != 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 event`, `2 events`.
pub fn counted(number: u64, noun: &str) -> String {
    let (plural, noun) = match noun.strip_suffix("ss") {
        Some(stem) => ("sses", stem),
        None => ("s", noun),
    };
    let ending = match (number, plural) {
        (1, "sses") => "ss",
        (1, _) => "",
        (_, plural) => plural,
    };
    format!("{} {noun}{ending}", grouped(number))
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
    fn numbers_and_plurals() {
        assert_eq!(counted(1, "event"), "1 event");
        assert_eq!(counted(1_234_567, "event"), "1,234,567 events");
        assert_eq!(counted(0, "process"), "0 processes");
        assert_eq!(counted(1, "process"), "1 process");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
    }

    #[test]
    fn the_nearest_names_come_first() {
        let known = ["db:query_start", "db:query_done", "net:packet"];
        assert_eq!(nearest("db:query_don", known.into_iter())[0], "db:query_done");
        assert!(nearest("zzz", known.into_iter()).is_empty());
    }
}
