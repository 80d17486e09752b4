//! The language check: words that a reader of the field cannot search for, and lines that are too
//! long to read. `docs/style.md` has the rules and `docs/glossary.md` the words to use instead.
//!
//! Prose is checked in comments and in Markdown outside code blocks; names are checked in code.
//! Text that users read is prose in string literals and is checked with the comments' list.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::source_files;

mod vocabulary;

use vocabulary::{
    BANNED_IN_NAMES, BANNED_IN_PROSE, BANNED_OPENINGS, BANNED_PREFIXES, EXEMPT, PENDING, PEOPLE,
};

/// Longest line of a comment or a document, in characters.
const MAX_PROSE_COLUMNS: usize = 100;
/// Columns of a tab, as editors and rustfmt count it.
const TAB_COLUMNS: usize = 4;

/// Checks every source file and document below the workspace's root and names each break.
pub fn breaks(root: &Path) -> Result<Vec<String>> {
    let mut breaks = Vec::new();
    let mut pending: BTreeSet<&str> = PENDING.iter().copied().collect();
    for file in checked_files(root)? {
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        if EXEMPT.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let bytes = fs::read(&file).with_context(|| format!("cannot read {name}"))?;
        let found = findings(&name, &String::from_utf8_lossy(&bytes));
        match PENDING.iter().find(|prefix| name.starts_with(**prefix)) {
            Some(prefix) if !found.is_empty() => _ = pending.remove(prefix),
            Some(_) => {}
            None => breaks.extend(found),
        }
    }
    let stale = pending.iter().map(|prefix| {
        format!("{prefix}: keeps the language rules now; take it off PENDING in vocabulary.rs")
    });
    breaks.extend(stale);
    Ok(breaks)
}

/// Sources and documents, in order.
fn checked_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = source_files(root)?;
    files.extend(crate::links::documents(root)?);
    Ok(files)
}

/// What breaks the rules in one file.
fn findings(name: &str, text: &str) -> Vec<String> {
    let is_document = name.ends_with(".md");
    let mut found = Vec::new();
    let mut in_block = false;
    let mut opens_doc = true;
    for (index, line) in text.lines().enumerate() {
        let mut report = |what: String| found.push(format!("{name}:{}: {what}", index + 1));
        if is_document {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
                continue;
            }
            if !in_block {
                check_width(line, line, &mut report);
                check_prose(line, &mut report);
            }
            continue;
        }
        let (code, comment) = split(line, name);
        if let Some(comment) = comment {
            if code.trim().is_empty() {
                check_width(line, comment, &mut report);
            }
            check_prose(comment, &mut report);
            if is_doc_comment(line) && std::mem::replace(&mut opens_doc, false) {
                check_opening(comment, &mut report);
            }
        }
        opens_doc |= !is_doc_comment(line);
        check_strings(code, &mut report);
        check_names(code, &mut report);
    }
    found
}

/// The code and the comment of a line.
fn split<'a>(line: &'a str, name: &str) -> (&'a str, Option<&'a str>) {
    let trimmed = line.trim_start();
    if trimmed.starts_with("//") || trimmed.starts_with("* ") || trimmed.starts_with("/*") {
        return ("", Some(trimmed.trim_start_matches(['/', '*', '!']).trim()));
    }
    let hash_comments = [".py", ".sh"].iter().any(|ending| name.ends_with(ending));
    if hash_comments && trimmed.starts_with('#') {
        return ("", Some(trimmed.trim_start_matches(['#', '!']).trim()));
    }
    match line.find(" // ") {
        Some(at) if !hash_comments => (&line[..at], Some(&line[at + 4..])),
        _ => (line, None),
    }
}

fn is_doc_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("///") || line.starts_with("//!")
}

/// Long lines break the rule unless they can't be wrapped: links, tables, pictures, drawings.
fn check_width(line: &str, text: &str, report: &mut impl FnMut(String)) {
    let columns: usize = line.chars().map(|c| if c == '\t' { TAB_COLUMNS } else { 1 }).sum();
    let is_table = ["|", "!["].iter().any(|begin| text.trim_start().starts_with(begin));
    let longest_word = text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
    if columns > MAX_PROSE_COLUMNS && !is_table && longest_word < 60 {
        report(format!("{columns} columns; comments and documents have at most {MAX_PROSE_COLUMNS}"));
    }
}

/// Words of an English of our own, and pronouns for what is no person.
fn check_prose(text: &str, report: &mut impl FnMut(String)) {
    let text = without_code(text);
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    for (index, word) in words.iter().enumerate() {
        if let Some((_, instead)) = BANNED_IN_PROSE.iter().find(|(banned, _)| banned == word) {
            report(format!("\"{word}\": {instead}"));
        }
        let before = index.checked_sub(1).map_or("", |before| words[before].as_str());
        if matches!(word.as_str(), "who" | "whom") && !PEOPLE.contains(&before) {
            report(format!("\"{word}\": a thread, process or request is \"it\"; name the role"));
        }
    }
}

/// A doc comment's first word: a noun or a verb, never a free relative clause.
fn check_opening(text: &str, report: &mut impl FnMut(String)) {
    let first = text.split_whitespace().next().unwrap_or("");
    if BANNED_OPENINGS.contains(&first) {
        report(format!("a doc comment begins with what the item is or does, not with \"{first}\""));
    }
}

/// Prose in string literals. A literal of one word is a name or a key, not prose.
fn check_strings(code: &str, report: &mut impl FnMut(String)) {
    let literals = code.split('"').skip(1).step_by(2);
    literals.filter(|literal| literal.contains(' ')).for_each(|literal| check_prose(literal, report));
}

/// Words within identifiers, split at underscores and capitals.
fn check_names(code: &str, report: &mut impl FnMut(String)) {
    let code: String = code.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    for name in code.split(|c: char| !c.is_alphanumeric() && c != '_') {
        if let Some((prefix, instead)) = BANNED_PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)) {
            report(format!("`{name}`: {prefix}… is {instead}"));
        }
        for part in parts(name) {
            if let Some((_, instead)) = BANNED_IN_NAMES.iter().find(|(banned, _)| *banned == part) {
                report(format!("`{name}`: {instead}"));
            }
        }
    }
}

/// The words of an identifier in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut after_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && after_lower) {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().expect("never empty").extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase() || c.is_ascii_digit();
    }
    parts
}

/// Prose without code between backticks and without the targets of links.
fn without_code(text: &str) -> String {
    let prose = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let mut parts = prose.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, rest| text + " " + rest.split_once(')').map_or("", |(_, behind)| behind))
}

#[cfg(test)]
mod tests {
    use super::findings;

    fn check(name: &str, text: &str, expected: &[&str]) {
        let found = findings(name, text);
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found} lacks {expected}");
        }
    }

    #[test]
    fn pronouns_for_processes_are_found() {
        check("a.rs", "// Whoever reads this waits.", &["\"whoever\""]);
        check("a.rs", "// The thread who holds the lock.", &["\"who\""]);
        check("a.rs", "// Users who run it as root.", &[]);
        check("a.md", "The user `nobody` owns it.", &[]);
        check("a.md", "See [sharing](b.md#who-may-read).", &[]);
    }

    #[test]
    fn doc_comments_begin_with_a_noun_or_a_verb() {
        check("a.rs", "/// What came last.\nfn f() {}", &["begins with"]);
        check("a.rs", "/// Newest event.\n/// What follows is free.\nfn f() {}", &[]);
    }

    #[test]
    fn names_are_split_into_words() {
        check("a.rs", "struct Watchmen;\nlet watchmen_of = 1;", &["StallWatchdog", "StallWatchdog"]);
        check("a.rs", "const MOST_THINGS: usize = 1;", &["MAX_"]);
        check("a.rs", "let almost = 1;", &[]);
    }

    #[test]
    fn messages_are_prose_and_keys_are_not() {
        check("a.rs", r#"eprintln!("somebody came"); get("told");"#, &["\"somebody\""]);
    }

    #[test]
    fn long_comments_are_found_and_tables_are_not() {
        let words = "word ".repeat(30);
        check("a.rs", &format!("// {words}"), &["153 columns"]);
        check("a.md", &format!("| {words}"), &[]);
        check("a.md", &format!("```\n{words}\n```"), &[]);
    }
}
