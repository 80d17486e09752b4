//! Parses printf formats of marks: their pieces, and the names that they give to arguments.
//!
//! ```text
//! "took %d ms, rows=%5.1f table '%s'"      conversions 1, 2, 3 of arguments 1, 2, 3
//!                 names:  arg1, rows, table
//! ```
//!
//! The language is that of C and POSIX (`fprintf(3)`), with glibc's additions and C23's `%b`:
//! flags, width and precision (also `*`), `%1$d`. Anything else is text. Formatting messages is the
//! job of `tompion-reader`.

use crate::{Field, Integer, MAX_NAME, Type};

/// Piece of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Literal text; `%%` has become `%`.
    Text(&'a str),
    /// Conversion, which is replaced by a value.
    Conversion(Conversion),
}

/// Conversion: `%-8.3f` and similar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conversion {
    /// Number of the argument, from 1 on; `None` for `%m`, which has no argument.
    pub argument: Option<u32>,
    /// Left-aligned: `-`.
    pub left: bool,
    /// Sign before positive numbers: `+`.
    pub plus: bool,
    /// Space before positive numbers: a space.
    pub space: bool,
    /// Alternate form: `#`.
    pub alternate: bool,
    /// Padded with zeros: `0`.
    pub zero: bool,
    /// Minimum width in characters.
    pub width: Option<Size>,
    /// Number of digits, or maximum number of bytes of a text.
    pub precision: Option<Size>,
    /// Number of bits to which `hh` and `h` truncate an integer.
    pub bits: Option<u8>,
    /// Wide character: `l`.
    pub long: bool,
    /// Conversion letter: one of `diouxXbBeEfFgGaAcCsSpnm`.
    pub letter: u8,
}

/// Width or precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Number in the format.
    Number(u32),
    /// Argument with this number, from 1 on.
    Argument(u32),
}

/// Splits a format into its pieces, in order.
///
/// ```
/// use tompion_schema::format::{Piece, pieces};
/// let mut pieces = pieces("rows %d");
/// assert_eq!(pieces.next(), Some(Piece::Text("rows ")));
/// assert!(matches!(pieces.next(), Some(Piece::Conversion(it)) if it.letter == b'd'));
/// ```
pub fn pieces(format: &str) -> Pieces<'_> {
    Pieces { rest: format, next: 1 }
}

/// Iterator that [`pieces`] returns.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    rest: &'a str,
    /// Number of the next argument without an explicit number.
    next: u32,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let first = *self.rest.as_bytes().first()?;
        if first != b'%' {
            let end = self.rest.find('%').unwrap_or(self.rest.len());
            return Some(Piece::Text(self.cut(end)));
        }
        let mut scan = Scan { bytes: self.rest.as_bytes().get(1..).unwrap_or_default(), next: self.next };
        let Some(conversion) = scan.conversion() else { return Some(Piece::Text(self.cut(1))) };
        let read = self.rest.len() - scan.bytes.len();
        self.next = scan.next;
        let text = self.cut(read);
        match conversion.letter {
            b'%' => Some(Piece::Text(text.get(read - 1..).unwrap_or("%"))),
            _ => Some(Piece::Conversion(conversion)),
        }
    }
}

impl<'a> Pieces<'a> {
    fn cut(&mut self, at: usize) -> &'a str {
        let (head, rest) = self.rest.split_at_checked(at).unwrap_or((self.rest, ""));
        self.rest = rest;
        head
    }
}

/// Scanner of a conversion, starting after its `%`.
struct Scan<'a> {
    bytes: &'a [u8],
    next: u32,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.first().copied()
    }

    fn skip(&mut self, count: usize) {
        self.bytes = self.bytes.get(count..).unwrap_or_default();
    }

    fn take_if(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.skip(found.into());
        found
    }

    /// Scans all following digits; limited to the largest number.
    fn number(&mut self) -> Option<u32> {
        let mut number = None;
        while let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(10)) {
            number = Some(number.unwrap_or(0u32).saturating_mul(10).saturating_add(digit));
            self.skip(1);
        }
        number
    }

    /// Scans `3$`.
    fn position(&mut self) -> Option<u32> {
        let before = self.bytes;
        let number = self.number().filter(|&number| number > 0);
        if number.is_some() && self.take_if(b'$') {
            return number;
        }
        self.bytes = before;
        None
    }

    fn next_argument(&mut self) -> u32 {
        let number = self.next;
        self.next = number.saturating_add(1);
        number
    }

    /// Scans a number, `*` or `*3$`.
    fn size(&mut self) -> Option<Size> {
        if self.take_if(b'*') {
            return Some(Size::Argument(self.position().unwrap_or_else(|| self.next_argument())));
        }
        self.number().map(Size::Number)
    }

    fn conversion(&mut self) -> Option<Conversion> {
        let mut found = Conversion::default();
        let position = self.position();
        self.flags(&mut found);
        found.width = self.size();
        if self.take_if(b'.') {
            found.precision = Some(self.size().unwrap_or(Size::Number(0)));
        }
        self.length(&mut found);
        found.letter = self.peek()?;
        self.skip(1);
        match found.letter {
            b'%' | b'm' => Some(found),
            b'd' | b'i' | b'o' | b'u' | b'x' | b'X' | b'b' | b'B' | b'e' | b'E' | b'f' | b'F' | b'g'
            | b'G' | b'a' | b'A' | b'c' | b'C' | b's' | b'S' | b'p' | b'n' => {
                found.argument = Some(position.unwrap_or_else(|| self.next_argument()));
                Some(found)
            }
            _ => None,
        }
    }

    fn flags(&mut self, found: &mut Conversion) {
        while let Some(byte) = self.peek() {
            match byte {
                b'-' => found.left = true,
                b'+' => found.plus = true,
                b' ' => found.space = true,
                b'#' => found.alternate = true,
                b'0' => found.zero = true,
                // Grouping and alternative digits depend on the locale, which a trace doesn't have.
                b'\'' | b'I' => {}
                _ => return,
            }
            self.skip(1);
        }
    }

    /// Scans `hh`, `l`, `w16` and similar. The field's type has the size already, except for those
    /// that truncate an `int`.
    fn length(&mut self, found: &mut Conversion) {
        if self.take_if(b'h') {
            found.bits = Some(if self.take_if(b'h') { 8 } else { 16 });
        } else if self.take_if(b'w') {
            self.take_if(b'f');
            found.bits = match self.number() {
                Some(8) => Some(8),
                Some(16) => Some(16),
                _ => None,
            };
        } else {
            found.long = self.peek() == Some(b'l');
            while matches!(self.peek(), Some(b'l' | b'q' | b'L' | b'j' | b'z' | b'Z' | b't')) {
                self.skip(1);
            }
        }
    }
}

/// Renames the fields `arg1`, `arg2`, … by the format, and displays in hexadecimal those that the
/// format does.
///
/// A name is the identifier directly before the conversion. Between them, only spaces, `=`, `:`,
/// opening quotes and brackets, `#` and `0x` are allowed. A word directly after the preceding
/// conversion is that one's unit, not a name; `arg` with a number is not a name either. Repeated
/// names get a number. Without a name, `argN` remains.
pub(crate) fn name_fields(format: &str, fields: &mut [Field]) {
    // Literal text since the last conversion, and whether there was one.
    let (mut before, mut behind_conversion) = (String::new(), false);
    for piece in pieces(format) {
        let conversion = match piece {
            Piece::Text(text) => {
                before.push_str(text);
                continue;
            }
            Piece::Conversion(conversion) => conversion,
        };
        let word = word_before(&before, behind_conversion).map(str::to_owned);
        before.clear();
        behind_conversion = true;
        let Some(number) = conversion.argument else { continue };
        let argument = format!("arg{number}");
        let Some(index) = fields.iter().position(|field| field.name == argument) else { continue };
        let name = word.and_then(|word| unique(&word, fields));
        let Some(field) = fields.get_mut(index) else { continue };
        if let (Type::Integer(integer), b'x' | b'X' | b'p') = (&mut field.ty, conversion.letter) {
            *integer = Integer { signed: false, hex: true, ..*integer };
        }
        field.name = name.unwrap_or(argument);
    }
}

/// Returns the identifier at the end of a literal text.
fn word_before(text: &str, behind_conversion: bool) -> Option<&str> {
    let text = text.strip_suffix("0x").or_else(|| text.strip_suffix("0X")).unwrap_or(text);
    let separator = |c: char| {
        c.is_ascii_whitespace() || matches!(c, '=' | ':' | '"' | '\'' | '(' | '[' | '{' | '<' | '#')
    };
    let text = text.trim_end_matches(separator);
    let begin = text.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |place| {
        place + text.get(place..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8)
    });
    let word = text.get(begin..)?;
    let is_unit = behind_conversion && begin == 0;
    let digits = word.strip_prefix("arg").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let is_argument = digits.is_some_and(|digits| !digits.is_empty());
    Some(word).filter(|word| !is_unit && !is_argument && crate::description::is_identifier(word))
}

/// Returns the word, or the word with the first number that makes it unique among the fields.
fn unique(word: &str, fields: &[Field]) -> Option<String> {
    let is_free = |name: &str| fields.iter().all(|field| field.name != name);
    let numbered = (2..=fields.len() + 1).map(|number| format!("{word}_{number}"));
    std::iter::once(word.to_owned()).chain(numbered).find(|name| name.len() <= MAX_NAME && is_free(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(format: &str) -> Vec<String> {
        let count = pieces(format).filter(|piece| matches!(piece, Piece::Conversion(_))).count();
        let argument = |number| Field::new(&format!("arg{number}"), Type::Integer(Integer::signed(32)));
        let mut fields: Vec<Field> = (1..=count + 1).map(argument).collect();
        name_fields(format, &mut fields);
        fields.into_iter().take(count).map(|field| format!("{} {}", field.ty, field.name)).collect()
    }

    #[test]
    fn names_are_the_words_before_conversions() {
        for (format, expected) in [
            ("rows %d table %s", "i32 rows, i32 table"),
            ("rows=%d", "i32 rows"),
            ("rows: %d (of %u), name='%s', at [%d:%d]", "i32 rows, i32 of, i32 name, i32 at, i32 arg5"),
            ("%d rows, %d", "i32 arg1, i32 arg2"),
            ("%dms %d", "i32 arg1, i32 arg2"),
            ("100%% done %d, 100%%d", "i32 done"),
            ("a.b %d 2nd %d ü %d é_x %d", "i32 b, i32 arg2, i32 arg3, i32 _x"),
            ("at 0x%lx, p %p, n %#hhX", "x32 at, x32 p, x32 n"),
            ("n %d n %d n_2 %d n %d", "i32 n, i32 n_2, i32 n_2_2, i32 n_3"),
            ("arg2 %d x %d arg %d", "i32 arg1, i32 x, i32 arg"),
            ("", ""),
        ] {
            assert_eq!(names(format).join(", "), expected, "{format}");
        }
    }

    #[test]
    fn repeated_names_get_a_number() {
        let mut fields: Vec<Field> = ["arg1", "rows"].map(|name| Field::new(name, Type::Bool)).into();
        name_fields("rows %d", &mut fields);
        assert_eq!([&*fields[0].name, &*fields[1].name], ["rows_2", "rows"]);
    }

    #[test]
    fn widths_and_precisions_may_be_arguments() {
        let conversion = |format| match pieces(format).next() {
            Some(Piece::Conversion(conversion)) => conversion,
            other => panic!("{format}: {other:?}"),
        };
        let found = conversion("%-+ #0*.*lld");
        assert_eq!((found.width, found.precision), (Some(Size::Argument(1)), Some(Size::Argument(2))));
        assert_eq!((found.argument, found.letter, found.bits), (Some(3), b'd', None));
        assert!(found.left && found.plus && found.space && found.alternate && found.zero);
        let found = conversion("%2$*1$.3hhu");
        assert_eq!((found.width, found.precision), (Some(Size::Argument(1)), Some(Size::Number(3))));
        assert_eq!((found.argument, found.letter, found.bits), (Some(2), b'u', Some(8)));
        assert_eq!(conversion("%.s").precision, Some(Size::Number(0)));
        assert_eq!(conversion("%99999999999d").width, Some(Size::Number(u32::MAX)));
        assert_eq!(conversion("%m").argument, None);
    }

    #[test]
    fn anything_but_conversions_is_text() {
        let text = |format| {
            pieces(format)
                .map(|piece| match piece {
                    Piece::Text(text) => text.to_owned(),
                    Piece::Conversion(_) => "\u{1}".to_owned(),
                })
                .collect::<String>()
        };
        assert_eq!(text("50%% of %d"), "50% of \u{1}");
        assert_eq!(text("a%"), "a%");
        assert_eq!(text("%y %-5k%é"), "%y %-5k%é");
        assert_eq!(text("%5%"), "%");
        assert_eq!(text("%0$d"), "%0$d");
    }
}
