//! Text patterns with globs: `*` matches any run of characters, `?` any single one, and `\` makes
//! the next byte literal.

use std::ffi::CStr;

/// Text literal. Its bytes are escaped: literal `*`, `?` and `\` have a preceding `\`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    bytes: Vec<u8>,
}

/// Simplest form of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    /// Exactly these bytes.
    Is(Vec<u8>),
    /// Texts that begin with these bytes.
    Begins(Vec<u8>),
    /// Text that matches these bytes, which are escaped.
    Matches(Vec<u8>),
}

impl Pattern {
    /// Appends a literal byte.
    pub(crate) fn push(&mut self, byte: u8) {
        if matches!(byte, b'*' | b'?' | b'\\') {
            self.bytes.push(b'\\');
        }
        self.bytes.push(byte);
    }

    /// Appends the wildcard `*` or `?`.
    pub(crate) fn push_wild(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Returns the escaped bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the simplest test that is equivalent to the pattern.
    pub(crate) fn test(&self) -> Test {
        let mut plain = Vec::with_capacity(self.bytes.len());
        let mut bytes = self.bytes.iter().copied();
        while let Some(byte) = bytes.next() {
            match byte {
                b'\\' => plain.extend(bytes.next()),
                b'*' if bytes.len() == 0 => return Test::Begins(plain),
                b'*' | b'?' => return Test::Matches(self.bytes.clone()),
                byte => plain.push(byte),
            }
        }
        Test::Is(plain)
    }
}

/// Next item of a pattern.
enum Next {
    Byte(u8),
    One,
    Run,
    End,
}

/// Returns the pattern's item at `at`, and its length.
fn item(pattern: &[u8], at: usize) -> (Next, usize) {
    match pattern.get(at) {
        None => (Next::End, 0),
        Some(b'*') => (Next::Run, 1),
        Some(b'?') => (Next::One, 1),
        Some(b'\\') => pattern.get(at + 1).map_or((Next::Byte(b'\\'), 1), |&byte| (Next::Byte(byte), 2)),
        Some(&byte) => (Next::Byte(byte), 1),
    }
}

/// Returns the length in bytes of the first character of `text`; 1 for an invalid byte.
fn character(text: &[u8]) -> usize {
    let length = match text.first() {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => 1,
    };
    let continued = text.iter().skip(1).take(length - 1).take_while(|&&byte| byte & 0xc0 == 0x80).count();
    if continued + 1 == length { length } else { 1 }
}

/// Whether all of `text` matches `pattern`. Does not allocate; the time is at most the product of
/// both lengths.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        let rest = text.get(t..).unwrap_or_default();
        let (next, length) = item(pattern, p);
        let step = match next {
            Next::Run => {
                p += length;
                star = Some((p, t));
                continue;
            }
            Next::End if rest.is_empty() => return true,
            Next::One if !rest.is_empty() => character(rest),
            Next::Byte(byte) if rest.first() == Some(&byte) => 1,
            _ => 0,
        };
        if step > 0 {
            p += length;
            t += step;
            continue;
        }
        // The last star matched too little; the rest of the text is left to match.
        match &mut star {
            Some((star_p, star_t)) if *star_t < text.len() => {
                *star_t += character(text.get(*star_t..).unwrap_or_default());
                (p, t) = (*star_p, *star_t);
            }
            _ => return false,
        }
    }
}

/// Returns a text up to its first NUL, which ends it in every trace.
#[inline]
pub(crate) fn until_nul(text: &[u8]) -> &[u8] {
    CStr::from_bytes_until_nul(text).map_or(text, CStr::to_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_questions_and_escapes() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("orders*", "orders_2026", true),
            ("orders*", "order", false),
            ("*er*", "orders", true),
            ("o?ders", "orders", true),
            ("o?ders", "oders", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("a**", "a", true),
            ("", "", true),
            ("", "x", false),
            ("?", "é", true),
            ("??", "é", false),
            ("*é", "caffé", true),
            ("*?", "é", true),
            (r"\*", "*", true),
            (r"\*", "x", false),
            (r"a\?*", "a?b", true),
            (r"\\*", r"\x", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_question_mark_matches_an_invalid_byte() {
        assert!(matches(b"?", b"\xff"));
        assert!(matches(b"??", b"\xe2\x82"));
        assert!(!matches(b"?", b"\xe2\x82"));
    }

    /// Reference implementation, directly from the definition.
    fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|taken| by_definition(rest, &text[taken..])),
            Some((b'?', rest)) => !text.is_empty() && by_definition(rest, &text[1..]),
            Some((byte, rest)) => text.first() == Some(byte) && by_definition(rest, &text[1..]),
        }
    }

    #[test]
    fn all_short_patterns_on_all_short_texts() {
        let words = |letters: &[u8], longest: usize| {
            let mut all = vec![Vec::new()];
            let mut from = 0;
            for _ in 0..longest {
                let to = all.len();
                for index in from..to {
                    all.extend(
                        letters
                            .iter()
                            .map(|&letter| [&all[index][..], &[letter]].concat())
                            .collect::<Vec<_>>(),
                    );
                }
                from = to;
            }
            all
        };
        for pattern in words(b"ab*?", 5) {
            for text in words(b"ab", 5) {
                let expected = by_definition(&pattern, &text);
                assert_eq!(matches(&pattern, &text), expected, "{pattern:?} on {text:?}");
            }
        }
    }
}
