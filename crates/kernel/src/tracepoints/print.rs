//! Parser of a tracepoint's `print fmt`: which fields are shown in hexadecimal, and what values are
//! called.
//!
//! ```text
//! "dev %d flags %s ip %pS", REC->dev, __print_flags(REC->flags, "|", { 1, "A" }),
//!     (void *)REC->ip
//! ```
//!
//! The expressions are C. Only a field by itself is looked at, with casts and parentheses around
//! it; whatever is computed of fields says nothing of how they are to be shown.

use std::collections::BTreeMap;

use tompion_schema::{
    MAX_NAME,
    format::{Piece, pieces},
};

use super::constant;

/// Display of a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Whether the field is shown in hexadecimal, or as an address.
    pub hex: bool,
    /// Names of its values, or of its bits.
    pub labels: Vec<(i128, String)>,
}

/// Returns the display of each field from the text behind `print fmt:`.
pub fn looks(text: &str) -> BTreeMap<String, Look> {
    let mut looks: BTreeMap<String, Look> = BTreeMap::new();
    let parts = split(text);
    let (format, arguments) =
        parts.split_first().map_or((String::new(), &[][..]), |(first, rest)| (quoted(first), rest));
    for piece in pieces(&format) {
        let Piece::Conversion(conversion) = piece else { continue };
        let place = conversion.argument.and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
        let field = place.and_then(|place| field_of(arguments.get(place)?));
        if let Some(field) = field.filter(|_| matches!(conversion.letter, b'x' | b'X' | b'p')) {
            looks.entry(field.into()).or_default().hex = true;
        }
    }
    for (call, behind) in [("__print_symbolic", 1), ("__print_flags", 2)] {
        for arguments in calls(text, call) {
            let Some(field) = arguments.first().and_then(|first| field_of(first)) else { continue };
            let look = looks.entry(field.into()).or_default();
            if look.labels.is_empty() {
                look.labels = arguments.iter().skip(behind).filter_map(|text| label(text)).collect();
            }
        }
    }
    looks
}

/// The arguments of each call of a function, in a text of C.
fn calls<'a>(text: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let places = text.match_indices(name).map(|(at, _)| &text[at + name.len()..]);
    // `__print_flags_u64` and `__print_symbolic64` are the same for wider values.
    let opened =
        places.filter_map(|rest| rest.trim_start_matches("_u64").trim_start_matches("64").strip_prefix('('));
    opened.map(split).collect()
}

/// Splits at commas that stand in no brackets, up to the bracket that closes what was opened before
/// the text.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth, mut in_quotes, mut escaped) = (Vec::new(), 0, 0usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        if in_quotes {
            in_quotes = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_quotes = true,
            b'(' | b'{' | b'[' => depth += 1,
            b')' | b'}' | b']' if depth == 0 => {
                parts.push(text[begin..at].trim());
                return parts;
            }
            b')' | b'}' | b']' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts
}

/// The text of string literals that stand one behind the other.
fn quoted(text: &str) -> String {
    let (mut out, mut in_quotes, mut characters) = (String::new(), false, text.chars());
    while let Some(character) = characters.next() {
        match character {
            '"' => in_quotes = !in_quotes,
            '\\' if in_quotes => match characters.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(other) => out.push(other),
                None => {}
            },
            _ if in_quotes => out.push(character),
            _ => {}
        }
    }
    out
}

/// The field that an expression is, with casts and parentheses.
fn field_of(expression: &str) -> Option<&str> {
    let mut text = expression.trim();
    while let Some(rest) = text.strip_prefix('(') {
        let inside = *split(rest).first()?;
        let behind =
            rest.get(inside.as_ptr() as usize - rest.as_ptr() as usize + inside.len()..)?.trim_start();
        let behind = behind.strip_prefix(')')?.trim();
        text = match (behind.is_empty(), constant::is_type(inside)) {
            (true, _) => inside,
            (false, true) => behind,
            (false, false) => return None,
        };
    }
    let name = text.strip_prefix("REC->")?.trim();
    let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

/// `{ 1 << 2, "NAME" }`.
fn label(text: &str) -> Option<(i128, String)> {
    let parts = split(text.strip_prefix('{')?);
    let [value, name] = parts[..] else { return None };
    let name = quoted(name);
    let sound = !name.is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control);
    sound.then_some((constant::value(value)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_bases_are_found() {
        let text = r#""dev %d,%d flags %s ip " "%pS n %llx (%s)", ((unsigned int) ((REC->dev) >> 20)), REC->minor,
            (REC->flags) ? __print_flags((unsigned long)REC->flags, "|", { 1UL << 0, "A,\"(" }, {UNKNOWN, "U"},
            { 2, "B" }) : "none", (void *)(REC->ip), REC->n + 1, __print_symbolic64(REC->why, { -1, "bad" })"#;
        let found = looks(text);
        assert_eq!(found["flags"].labels, [(1, "A,\"(".into()), (2, "B".into())]);
        assert_eq!(found["why"].labels, [(-1, "bad".into())]);
        assert!(found["ip"].hex && !found.contains_key("dev") && !found.contains_key("n"), "{found:?}");
    }

    #[test]
    fn no_text_makes_it_panic() {
        for text in [
            "",
            "\"",
            "\"%x\", (",
            "\"%x\", ((",
            "__print_flags(",
            "__print_symbolic({",
            "\"%x\", ()",
            "\"\\",
        ] {
            looks(text);
        }
        let deep = format!("\"%x\", {}REC->a", "(".repeat(100_000));
        looks(&deep);
    }
}
