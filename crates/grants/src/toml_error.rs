//! Errors of TOML files, in one line.

/// Describes an error in one line, with its place.
pub fn describe_toml_error(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().replace('\n', " ");
    match error.span() {
        Some(span) => {
            let line = text.get(..span.start).map_or(1, |before| before.matches('\n').count() + 1);
            format!("line {line}: {message}")
        }
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_line_and_no_line_break() {
        let text = "a = 1\nb = ";
        let error = text.parse::<toml::Table>().expect_err("no value");
        let described = describe_toml_error(&error, text);
        assert!(described.starts_with("line 2: ") && !described.contains('\n'), "{described}");
    }
}
