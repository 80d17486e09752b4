//! Parses literals: numbers with units, characters, and texts with escapes and globs.

use crate::MAX_LITERAL;
use crate::error::Span;
use crate::pattern::Pattern;
use crate::value::Value;

/// Error in a literal, with positions relative to its beginning.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub at: Span,
    pub expected: &'static str,
    pub found: String,
}

type Result<T> = std::result::Result<T, Wrong>;

/// Value of a literal, and its length in bytes.
pub(crate) type Taken<T> = (T, usize);

const UNITS_IN_WORDS: &str = "a unit (ns, us, ms, s, m, h, K, M, G, T)";

/// Units that may follow a number: sizes in bytes, times in nanoseconds.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("B", 1),
    ("K", 1 << 10),
    ("KB", 1 << 10),
    ("KiB", 1 << 10),
    ("M", 1 << 20),
    ("MB", 1 << 20),
    ("MiB", 1 << 20),
    ("G", 1 << 30),
    ("GB", 1 << 30),
    ("GiB", 1 << 30),
    ("T", 1 << 40),
    ("TB", 1 << 40),
    ("TiB", 1 << 40),
];

fn wrong<T>(begin: usize, end: usize, expected: &'static str, found: &str) -> Result<T> {
    let found = if found.is_empty() { "the end".into() } else { quoted(found) };
    Err(Wrong { at: Span::between(begin, end), expected, found })
}

/// Formats a part of a filter's text for messages.
pub(crate) fn quoted(text: &str) -> String {
    format!("`{}`", shown(text))
}

/// Formats a text for messages: shortened, and without control characters.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN: usize = 40;
    let shown: String = text.chars().take(SHOWN).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("{}{more}", shown.replace(char::is_control, " "))
}

/// Returns the length of the longest prefix of `text` whose characters are all accepted.
fn span_of(text: &str, wanted: impl Fn(char) -> bool) -> usize {
    text.find(|character| !wanted(character)).unwrap_or(text.len())
}

/// Parses the number at the beginning of `text`, whose first character is a digit.
pub(crate) fn number(text: &str) -> Result<Taken<Value>> {
    let prefixed = [("0x", 16), ("0X", 16), ("0b", 2), ("0B", 2), ("0o", 8), ("0O", 8)];
    if let Some((_, radix)) = prefixed.iter().find(|(prefix, _)| text.starts_with(prefix)) {
        let end = 2 + span_of(&text[2..], |character| character.is_ascii_alphanumeric() || character == '_');
        return Ok((digits(text, 2, end, *radix)?.into(), end));
    }
    let whole = span_of(text, |character| character.is_ascii_digit() || character == '_');
    let fraction = match text[whole..].strip_prefix('.') {
        Some(rest) if rest.starts_with(|character: char| character.is_ascii_digit()) => {
            1 + span_of(rest, |character| character.is_ascii_digit() || character == '_')
        }
        _ => 0,
    };
    let mantissa = whole + fraction;
    let exponent = exponent(&text[mantissa..]);
    let end = mantissa + exponent;
    let unit = span_of(&text[end..], |character| character.is_alphanumeric() || character == '_');
    if unit > 0 {
        let factor = UNITS.iter().find(|(name, _)| *name == &text[end..end + unit]);
        return match factor {
            Some(_) if exponent > 0 => {
                wrong(0, end + unit, "a number without an exponent before a unit", &text[..end + unit])
            }
            Some((_, factor)) => with_unit(text, whole, end, unit, *factor),
            None => wrong(end, end + unit, UNITS_IN_WORDS, &text[end..end + unit]),
        };
    }
    if fraction + exponent > 0 {
        return float(&text[..end]).map(|value| (value, end));
    }
    let is_octal = whole > 1 && text.starts_with('0');
    Ok((digits(text, 0, whole, if is_octal { 8 } else { 10 })?.into(), whole))
}

/// Returns the length of the exponent at the beginning of `text`; 0 if there is none.
fn exponent(text: &str) -> usize {
    let Some(rest) = text.strip_prefix(['e', 'E']) else { return 0 };
    let sign = usize::from(rest.starts_with(['+', '-']));
    match span_of(&rest[sign..], |character| character.is_ascii_digit()) {
        0 => 0,
        digits => 1 + sign + digits,
    }
}

fn float(text: &str) -> Result<Value> {
    match text.replace('_', "").parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value.into()),
        _ => wrong(0, text.len(), "a number up to 1.7976931348623157e308", text),
    }
}

/// Parses the digits from `begin` to `end`.
fn digits(text: &str, begin: usize, end: usize, radix: u32) -> Result<u64> {
    const TOO_LARGE: &str = "a number up to 18446744073709551615";
    let (kind, kinds) = match radix {
        2 => ("a binary digit", "binary digits"),
        8 => ("an octal digit", "octal digits"),
        10 => ("a digit", "digits"),
        _ => ("a hexadecimal digit", "hexadecimal digits"),
    };
    let mut value = 0u64;
    let mut any = false;
    for (offset, character) in text[begin..end].char_indices().filter(|(_, character)| *character != '_') {
        let at = begin + offset;
        let Some(digit) = character.to_digit(radix) else {
            return wrong(at, at + character.len_utf8(), kind, &text[at..at + character.len_utf8()]);
        };
        any = true;
        let next = value.checked_mul(radix.into()).and_then(|value| value.checked_add(digit.into()));
        let Some(next) = next else { return wrong(0, end, TOO_LARGE, &text[..end]) };
        value = next;
    }
    if any { Ok(value) } else { wrong(0, end, kinds, &text[..end]) }
}

/// Parses a number such as `1.5ms`: it must be a whole number of bytes or nanoseconds.
fn with_unit(text: &str, whole: usize, end: usize, unit: usize, factor: u64) -> Result<Taken<Value>> {
    let all = end + unit;
    let fail = |expected| wrong(0, all, expected, &text[..all]);
    if whole > 1 && text.starts_with('0') {
        return fail("a number without a leading 0 before a unit");
    }
    let (mut value, mut divisor, mut behind_point) = (0u128, 1u128, false);
    for character in text[..end].chars() {
        let Some(digit) = character.to_digit(10) else {
            behind_point |= character == '.';
            continue;
        };
        let next = value.checked_mul(10).and_then(|value| value.checked_add(digit.into()));
        let scale = divisor.checked_mul(if behind_point { 10 } else { 1 });
        let (Some(next), Some(scale)) = (next, scale) else { return fail("fewer digits before a unit") };
        (value, divisor) = (next, scale);
    }
    let Some(product) = value.checked_mul(factor.into()) else { return fail("fewer digits before a unit") };
    if product % divisor != 0 {
        return fail("a whole number of bytes or nanoseconds");
    }
    match u64::try_from(product / divisor) {
        Ok(value) => Ok((value.into(), all)),
        Err(_) => fail("a number up to 18446744073709551615"),
    }
}

/// Parses an escape; returns its byte and length. `text` begins after the `\`.
fn escape(text: &str, at: usize, own: &[char]) -> Result<Taken<u8>> {
    let Some(character) = text.chars().next() else { return wrong(at, at + 1, "an escape", "") };
    let plain = match character {
        'n' => b'\n',
        't' => b'\t',
        'r' => b'\r',
        '0' => 0,
        '\\' | '"' | '\'' => character as u8,
        'x' => {
            let digits = text.get(1..3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
            return match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                Some(byte) => Ok((byte, 3)),
                None => wrong(at, at + 2, "two hexadecimal digits behind `\\x`", &text[..1]),
            };
        }
        _ if own.contains(&character) => character as u8,
        _ => {
            let end = at + 1 + character.len_utf8();
            let found = format!("\\{character}");
            return wrong(
                at,
                end,
                r#"an escape (\n \t \r \0 \\ \" \' \xNN, in texts also \* and \?)"#,
                &found,
            );
        }
    };
    Ok((plain, 1))
}

/// Parses the character literal at the beginning of `text`, including its quotes, to a byte.
pub(crate) fn character_literal(text: &str) -> Result<Taken<Value>> {
    const EXPECTED: &str = "a character of ASCII between single quotes (texts stand between double quotes)";
    let inner = text.get(1..).unwrap_or_default();
    let (byte, length) = match inner.chars().next() {
        Some('\\') => {
            let (byte, length) = escape(&inner[1..], 1, &[])?;
            (byte, length + 1)
        }
        Some(character) if character.is_ascii() && character != '\'' && !character.is_control() => {
            (character as u8, 1)
        }
        _ => (0, 0),
    };
    if length == 0 || !inner[length..].starts_with('\'') {
        let end = inner.find('\'').map_or(text.len(), |quote| quote + 2);
        return wrong(0, end, EXPECTED, &text[..end]);
    }
    Ok((u64::from(byte).into(), length + 2))
}

/// Parses the text literal at the beginning of `text`, including its quotes.
pub(crate) fn text_literal(text: &str) -> Result<Taken<Pattern>> {
    const NO_NUL: &str = "a character other than NUL in a text";
    let mut pattern = Pattern::default();
    let mut at = 1;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let Some(character) = rest.chars().next() else {
            return wrong(0, text.len(), "a closing `\"`", "");
        };
        at += character.len_utf8();
        match character {
            '"' => break,
            '*' | '?' => pattern.push_wild(character as u8),
            '\0' => return wrong(at - 1, at, NO_NUL, "\\0"),
            '\\' => {
                let (byte, length) = escape(&rest[1..], at - 1, &['*', '?'])?;
                if byte == 0 {
                    return wrong(at - 1, at + length, NO_NUL, "\\0");
                }
                pattern.push(byte);
                at += length;
            }
            _ => rest[..character.len_utf8()].bytes().for_each(|byte| pattern.push(byte)),
        }
    }
    if pattern.bytes().len() > MAX_LITERAL {
        return wrong(0, at, "a text of at most 255 bytes", &text[..at]);
    }
    Ok((pattern, at))
}
