//! Accepts a comma after the last element or property, which JSON forbids.

use std::borrow::Cow;

/// Replaces such commas by spaces; the text keeps its length.
pub(super) fn without_last_commas(text: &str) -> Cow<'_, str> {
    let mut found = Vec::new();
    // Position of the last comma, if only white space follows it so far.
    let mut comma = None;
    let (mut in_text, mut is_escaped) = (false, false);
    for (place, byte) in text.bytes().enumerate() {
        if in_text {
            in_text = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            continue;
        }
        match byte {
            b',' => comma = Some(place),
            b'}' | b']' => found.extend(comma.take()),
            byte if byte.is_ascii_whitespace() => {}
            byte => {
                in_text = byte == b'"';
                comma = None;
            }
        }
    }
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut found = found.into_iter().peekable();
    let keep = |(place, character)| if found.next_if_eq(&place).is_some() { ' ' } else { character };
    text.char_indices().map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::without_last_commas;

    #[test]
    fn only_commas_before_an_end_are_left_out() {
        let same = r#"{"a,}": [1, 2], "b": "\\\",]", "c": {}}"#;
        assert_eq!(without_last_commas(same), same);
        assert_eq!(without_last_commas("{\"ä,]\": [1,2 ,\n],\n}"), "{\"ä,]\": [1,2  \n] \n}");
        assert_eq!(without_last_commas("[,],,]"), "[ ], ]");
        assert_eq!(without_last_commas("\"open,]"), "\"open,]");
    }
}
