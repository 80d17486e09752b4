//! Globs on event names: `*` matches any run of characters, `?` any single one. Matching doesn't
//! allocate, and is linear in time except for backtracking to the last star.

/// Whether the whole of `text` matches `pattern`.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match &mut star {
                Some((star_p, star_t)) => {
                    *star_t += 1;
                    (p, t) = (*star_p + 1, *star_t);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "db:query", true),
            ("db:*", "db:query", true),
            ("db:*", "dc:query", false),
            ("*:q*y", "db:query", true),
            ("*:q*y", "db:queries", false),
            ("d?:query", "db:query", true),
            ("", "", true),
            ("", "x", false),
            ("a*b*c", "aXbYbZc", true),
            ("a**", "a", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }
}
