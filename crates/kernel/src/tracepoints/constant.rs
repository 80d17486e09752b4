//! Constant expressions in C, as far as tracefs has them beside the labels of values: `(1UL << 3) |
//! 0x10`.
//!
//! A name that isn't a type has no value here. The caller leaves out labels without a value.

/// Deepest nesting that is followed.
const MAX_DEPTH: usize = 64;

/// Binary operators, the loosest first. Of those that begin alike the longer comes first.
const OPERATORS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// The value of an expression, if it has one.
pub fn value(text: &str) -> Option<i128> {
    let mut expression = Expression { rest: text, depth: 0 };
    let value = expression.binary(0)?;
    expression.skip_space();
    expression.rest.is_empty().then_some(value)
}

struct Expression<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Expression<'a> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, word: &str) -> bool {
        self.skip_space();
        self.rest.strip_prefix(word).inspect(|rest| self.rest = rest).is_some()
    }

    /// The operator of this level that comes next. `|` is none where `||` stands.
    fn operator(&mut self, level: usize) -> Option<&'static str> {
        self.skip_space();
        let longer = OPERATORS.iter().flat_map(|names| names.iter()).filter(|name| name.len() == 2);
        let found = longer.copied().find(|name| self.rest.starts_with(name));
        let of_level =
            |name: &&&'static str| found.map_or(self.rest.starts_with(**name), |found| found == **name);
        let name = OPERATORS[level].iter().find(of_level).copied()?;
        self.rest = &self.rest[name.len()..];
        Some(name)
    }

    fn binary(&mut self, level: usize) -> Option<i128> {
        if level == OPERATORS.len() {
            return self.unary();
        }
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.operator(level) {
            let right = self.binary(level + 1)?;
            left = apply(operator, left, right)?;
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<i128> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let value = if self.take("-") {
            self.unary()?.checked_neg()
        } else if self.take("~") {
            Some(!self.unary()?)
        } else if self.take("!") {
            Some(i128::from(self.unary()? == 0))
        } else if self.take("+") {
            self.unary()
        } else if self.take("(") {
            self.in_parentheses()
        } else {
            self.literal()
        };
        self.depth -= 1;
        value
    }

    /// An expression in parentheses, or what is behind a cast.
    fn in_parentheses(&mut self) -> Option<i128> {
        let inside = self.rest.split(')').next().unwrap_or_default();
        if is_type(inside) {
            self.rest = self.rest[inside.len()..].strip_prefix(')')?;
            return self.unary();
        }
        let value = self.binary(0)?;
        self.take(")").then_some(value)
    }

    fn literal(&mut self) -> Option<i128> {
        self.skip_space();
        if let Some(rest) = self.rest.strip_prefix('\'') {
            let mut characters = rest.chars();
            let character = characters.next().filter(|it| *it != '\\' && it.is_ascii())?;
            self.rest = characters.as_str().strip_prefix('\'')?;
            return Some((character as u32).into());
        }
        let end = self.rest.find(|it: char| !it.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
        let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            Some(hex) => (hex, 16),
            None if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
            None => (digits, 10),
        };
        u64::from_str_radix(digits, radix).ok().map(i128::from)
    }
}

/// Whether the words name a type: no digit begins one, and there is no operator but `*`.
pub fn is_type(text: &str) -> bool {
    let mut words =
        text.split(|it: char| it == '*' || it.is_whitespace()).filter(|word| !word.is_empty()).peekable();
    let is_name = |word: &str| {
        word.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_')
            && word.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
    };
    words.peek().is_some() && words.all(is_name)
}

fn apply(operator: &str, left: i128, right: i128) -> Option<i128> {
    Some(match operator {
        "||" => i128::from(left != 0 || right != 0),
        "&&" => i128::from(left != 0 && right != 0),
        "|" => left | right,
        "^" => left ^ right,
        "&" => left & right,
        "==" => i128::from(left == right),
        "!=" => i128::from(left != right),
        "<=" => i128::from(left <= right),
        ">=" => i128::from(left >= right),
        "<<" => left.checked_mul(1i128.checked_shl(u32::try_from(right).ok().filter(|bits| *bits < 64)?)?)?,
        ">>" => left.checked_shr(u32::try_from(right).ok()?)?,
        "+" => left.checked_add(right)?,
        "-" => left.checked_sub(right)?,
        "*" => left.checked_mul(right)?,
        "/" => left.checked_div(right)?,
        _ => left.checked_rem(right)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_the_values_that_c_gives_them() {
        let cases = [
            ("0x10", 16),
            (" ( unsigned long)(1UL << 3) | 4 ", 12),
            ("(( gfp_t)((((1UL))) << (20))) & ~(( gfp_t)1)", 1 << 20),
            ("-1", -1),
            ("'R'", 82),
            ("010 + 2 * 3", 14),
            ("(1 << 2) - 1 == 3 && 5", 1),
            ("0xffffffffffffffffUL", u64::MAX.into()),
            ("1 || 0", 1),
        ];
        for (text, expected) in cases {
            assert_eq!(value(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_none_has_no_value() {
        let deep = "(".repeat(10_000);
        for text in ["", "NAME", "1 +", "(1", "sizeof(int)", "1 2", "1 << 1000", "9 / 0", "'", &deep] {
            assert_eq!(value(text), None, "{text}");
        }
    }
}
