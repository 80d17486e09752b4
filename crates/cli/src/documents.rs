//! Check of the command lines in README.md and the guides: each one parses.
//!
//! Blocks of code and spans of code are searched for `tompion …`. Nothing is run, and no file that
//! a command line names is looked for.

use std::{fs, path::Path};

use clap::{Parser, error::ErrorKind};

use crate::{Cli, Command};

/// A text that may hold command lines, and where it begins.
struct Snippet {
    line: usize,
    text: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Lines for a shell, or of a unit of systemd.
    Shell,
    /// A program in which a command line stands in quotes.
    Quoted,
    /// Any other block.
    Other,
    /// Words within a sentence, which may leave out what a command needs.
    Span,
}

/// Returns the kind of a block by the word behind its opening fence.
fn kind(fence: &str) -> Kind {
    match fence.trim_matches([' ', '`']) {
        "sh" | "console" | "ini" => Kind::Shell,
        "python" | "xml" => Kind::Quoted,
        _ => Kind::Other,
    }
}

/// Takes the blocks and spans of code out of a document.
fn snippets(document: &str) -> Vec<Snippet> {
    let mut found = Vec::new();
    let (mut prose, mut block) = (String::new(), None::<Snippet>);
    for (index, line) in document.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            match block.take() {
                Some(block) => found.push(block),
                None => block = Some(Snippet { line: index + 1, text: String::new(), kind: kind(line) }),
            }
            prose.push('\n');
            continue;
        }
        let text = block.as_mut().map_or(&mut prose, |block| &mut block.text);
        text.push_str(line);
        text.push('\n');
        if block.is_some() {
            prose.push('\n');
        }
    }
    let mut line = 1;
    for (index, part) in prose.split('`').enumerate() {
        if index % 2 == 1 {
            found.push(Snippet { line, text: part.replace('\n', " "), kind: Kind::Span });
        }
        line += part.matches('\n').count();
    }
    found
}

/// Takes the typed lines out of a block: of a session at a terminal, those after a prompt. Lines
/// that end with a backslash go on.
fn typed_lines(snippet: &Snippet) -> Vec<String> {
    let text = snippet.text.replace("\\\n", " ");
    let is_session = text.lines().any(|line| line.starts_with("$ "));
    let typed = text.lines().filter_map(|line| if is_session { line.strip_prefix("$ ") } else { Some(line) });
    typed.map(str::to_owned).collect()
}

/// Takes a line apart as a shell does: into commands of words, without comments and redirections.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word = None::<String>;
    let mut quote = None;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (Some('"'), '\\') | (None, '\\') => word.get_or_insert_default().extend(letters.next()),
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '|' | ';' | '&' | '(' | ')') => {
                end_word(&mut commands, &mut word);
                commands.push(Vec::new());
            }
            (None, '<' | '>') => {
                // `2>&1`, `> FILE`: the number, the sign and the file are the shell's.
                word = word.filter(|word| word.parse::<u32>().is_err());
                end_word(&mut commands, &mut word);
                while letters.next_if(|next| matches!(next, '>' | '&' | ' ')).is_some() {}
                while letters.next_if(|next| !matches!(next, ' ' | '|' | ';' | '&')).is_some() {}
            }
            (None, ' ' | '\t') => end_word(&mut commands, &mut word),
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    end_word(&mut commands, &mut word);
    commands
}

fn end_word(commands: &mut [Vec<String>], word: &mut Option<String>) {
    if let (Some(command), Some(word)) = (commands.last_mut(), word.take()) {
        command.push(word);
    }
}

/// Says whether a word is the command, also in a unit of systemd.
fn is_tompion(word: &str) -> bool {
    let word = word.strip_prefix("ExecStart=").unwrap_or(word);
    word == "tompion" || word.starts_with('/') && word.ends_with("/bin/tompion")
}

/// Returns the command lines of `tompion` in a snippet. One that another one records counts, too.
fn command_lines(snippet: &Snippet) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for line in typed_lines(snippet) {
        let parts: Vec<&str> = match snippet.kind {
            Kind::Other => Vec::new(),
            Kind::Quoted => line.split('"').skip(1).step_by(2).collect(),
            Kind::Shell | Kind::Span => vec![&line],
        };
        for words in parts.into_iter().flat_map(commands) {
            // To these, it is a file or a package.
            let others = ["ln", "cp", "install", "pkg-config", "cargo"];
            let is_name = words.iter().any(|word| others.contains(&word.as_str()));
            let places = words.iter().enumerate().filter(|(_, word)| !is_name && is_tompion(word));
            found.extend(places.map(|(place, _)| words[place..].to_vec()));
        }
    }
    if snippet.kind == Kind::Span {
        let is_whole = |words: &Vec<String>| words.len() > 1 && !words.iter().any(|word| word.contains('…'));
        found.retain(is_whole);
    }
    found
}

/// Parses a command line as the command does.
fn parse(words: &[String], kind: Kind) -> Result<(), String> {
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            let is_accepted = match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
                ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                    kind == Kind::Span
                }
                _ => false,
            };
            let problem = error.to_string();
            let line = problem.lines().next().unwrap_or_default();
            return if is_accepted { Ok(()) } else { Err(line.to_owned()) };
        }
    };
    match cli.command {
        Command::Record(arguments) => arguments.check_probes(),
        _ => Ok(()),
    }
}

/// Returns the number of command lines in a document, and those that don't parse.
fn check(name: &str, document: &str) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    for snippet in snippets(document) {
        for words in command_lines(&snippet) {
            count += 1;
            if let Err(problem) = parse(&words, snippet.kind) {
                wrong.push(format!("{name}:{}: {}\n{problem}", snippet.line, words.join(" ")));
            }
        }
    }
    (count, wrong)
}

#[test]
fn command_lines_of_documents_parse() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guides = fs::read_dir(top.join("docs/guide")).unwrap();
    let mut files: Vec<_> = guides.map(|entry| entry.unwrap().path()).collect();
    files.push(top.join("README.md"));
    let (mut count, mut wrong) = (0, Vec::new());
    for file in files {
        let found = check(&file.display().to_string(), &fs::read_to_string(&file).unwrap());
        count += found.0;
        wrong.extend(found.1);
    }
    assert!(wrong.is_empty(), "{} of {count} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 200, "only {count} command lines were found");
}

#[test]
fn wrong_command_lines_are_found_wherever_they_are() {
    let wrong = [
        "```sh\nsudo tompion record --keep-going -- ./server   # why\n```\n",
        "```console\n$ LANG=C tompion print --form json \\\n    | head -2\n2 lines\n```\n",
        "```ini\nExecStart=/usr/local/bin/tompion record --evnt x -- ./server\n```\n",
        "```sh\ntompion record -o a -- tompion print --nothing\n```\n",
        "```sh\nsudo tompion record -k 'kprobe:f(a: i31)'\n```\n",
        "```python\nprefix=\"tompion record --preload nothing --\")\n```\n",
        "A sentence with `tompion stat\n--no-such` in it.\n",
    ];
    for document in wrong {
        assert_eq!(check("it", document).1.len(), 1, "{document}");
    }
}

#[test]
fn what_only_looks_like_a_command_line_is_none() {
    let document = "```sh\nsudo ln -s ~/.local/bin/tompion /usr/local/bin/\n```\n\
        ```console\n$ tompion stat 2>&1 >/dev/null | head   # tompion nothing\ntompion: no trace\n```\n\
        ```toml\ntompion = { git = \"https://example.org\" }\n```\n\
        Ask `tompion monitor …`, or `tompion`.\n";
    assert_eq!(check("it", document), (1, Vec::new()));
}
