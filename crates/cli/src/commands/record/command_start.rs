//! Place where the recorded command begins, in a command line without `--`.
//!
//! `-k` takes a value if one follows, so that `record -k ls /usr` reads as a pattern `ls`. Where
//! the word after `-k` is a program and no event of the kernel's, a `--` is put before it.

use std::{
    ffi::{OsStr, OsString},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, Command};
use tompion_kernel::{AvailableEvents, Selection};

/// Long name of the option whose value is optional.
const KERNEL: &str = "kernel";

/// Returns the words of a command line, with a `--` before the recorded command where `-k` would
/// take its name for a pattern. `cli` describes the whole command line; only `record` needs it.
pub fn separate(mut words: Vec<OsString>, cli: impl FnOnce() -> Command) -> Vec<OsString> {
    let Some(subcommand) = place_of_record(&words) else { return words };
    let cli = cli();
    let Some(record) = cli.find_subcommand("record") else { return words };
    if let Some(place) = command_after_kernel(&words, subcommand + 1, record, is_command) {
        words.insert(place, "--".into());
    }
    words
}

/// Finds the word `record` if that is the subcommand: the first word behind the program's name that
/// is no option.
pub fn place_of_record(words: &[OsString]) -> Option<usize> {
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    let subcommand = words.iter().skip(1).position(|word| !is_option(word))? + 1;
    (words[subcommand] == "record").then_some(subcommand)
}

/// Finds the word after `-k` that begins the command, among words of which the options begin at
/// `first`.
fn command_after_kernel(
    words: &[OsString],
    first: usize,
    record: &Command,
    is_command: impl Fn(&str) -> bool,
) -> Option<usize> {
    if words.iter().any(|word| word == "--") {
        return None;
    }
    let mut place = first;
    loop {
        let option = words.get(place)?.to_str()?;
        place += 1;
        match value_of(option, record) {
            Value::NoOption => return None,
            Value::Attached => {}
            Value::Next => place += 1,
            Value::Optional => match words.get(place)?.to_str()? {
                next if next.starts_with('-') => {}
                next if is_command(next) => return Some(place),
                _ => place += 1,
            },
        }
    }
}

/// Position of an option's value.
enum Value {
    /// The word is no option.
    NoOption,
    /// The value is in the same word, or there is none.
    Attached,
    /// The value is the next word.
    Next,
    /// The value is the next word, if that is a value.
    Optional,
}

fn value_of(word: &str, record: &Command) -> Value {
    let takes_value = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let place = |arg: &Arg| match arg.get_long() {
        Some(KERNEL) => Value::Optional,
        _ => Value::Next,
    };
    if let Some(long) = word.strip_prefix("--") {
        let named = record.get_arguments().find(|arg| arg.get_long() == Some(long));
        return named.filter(takes_value).map_or(Value::Attached, place);
    }
    let Some(cluster) = word.strip_prefix('-') else { return Value::NoOption };
    for (index, letter) in cluster.char_indices() {
        let named = record.get_arguments().find(|arg| arg.get_short() == Some(letter));
        if let Some(arg) = named.filter(takes_value) {
            let rest = &cluster[index + letter.len_utf8()..];
            return if rest.is_empty() { place(arg) } else { Value::Attached };
        }
    }
    Value::Attached
}

/// Says whether a word names a program and can't name events of the kernel.
fn is_command(word: &str) -> bool {
    let is_pattern = word.contains(['*', '?', '[', ',', ':']);
    let is_event = || Selection::matching(&AvailableEvents::of_this_kernel(), &[word.to_owned()]).is_ok();
    !is_pattern && find_program(OsStr::new(word)).is_some() && !is_event()
}

/// Finds a program as a shell does: by its path, or in the folders of `PATH`.
fn find_program(name: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    tompion_os::find_on_path(name, is_program)
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;
    use crate::commands::record::Arguments;

    fn found(line: &str) -> Option<String> {
        let record = Arguments::augment_args(Command::new("record"));
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let place = command_after_kernel(&words, 0, &record, |word| word == "ls" || word == "./ls")?;
        Some(words[place..].join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn record_is_the_subcommand_where_it_comes_first() {
        let place = |line: &str| place_of_record(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert_eq!(place("tompion record -k ls"), Some(1));
        assert_eq!(place("tompion -v record"), Some(2));
        for line in ["tompion", "tompion -v", "record", "tompion print record -k ls"] {
            assert_eq!(place(line), None, "{line}");
        }
    }

    #[test]
    fn a_program_behind_the_option_for_the_kernel_begins_the_command() {
        assert_eq!(found("-k ls /usr").unwrap(), "ls /usr");
        assert_eq!(found("-o k --kernel ./ls -k").unwrap(), "./ls -k");
        assert_eq!(found("--mode overwrite -vk ls").unwrap(), "ls");
        assert_eq!(found("-k sched_switch -k ls").unwrap(), "ls");
    }

    #[test]
    fn a_pattern_and_the_words_of_the_command_stay_what_they_are() {
        for line in ["-k sched_* ls", "-k ls -- ls", "-kls", "-k -o ls", "sh -k ls", "-o -k ls", "-k"] {
            assert_eq!(found(line), None, "{line}");
        }
    }
}
