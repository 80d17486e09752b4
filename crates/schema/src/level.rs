//! Log levels, with the numbers and names of LTTng-UST (`lttng-ust(3)`).

/// Log level of an event; smaller is more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

/// Names of the levels by number.
const NAMES: [&str; 15] = [
    "emerg",
    "alert",
    "crit",
    "err",
    "warning",
    "notice",
    "info",
    "debug_system",
    "debug_program",
    "debug_process",
    "debug_module",
    "debug_unit",
    "debug_function",
    "debug_line",
    "debug",
];

impl Level {
    /// Level of an event without one: `debug_line`, as in LTTng.
    pub const DEFAULT: Self = Self(13);
    /// Least severe level.
    pub const LOWEST: Self = Self(14);

    /// Returns the level with this number; numbers beyond the last one count as the last.
    pub const fn from_number(number: u8) -> Self {
        if number < NAMES.len() as u8 { Self(number) } else { Self::LOWEST }
    }

    /// Returns the level's number, 0 (most severe) to 14.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the level's name, `warning` for example.
    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }

    /// Returns the names of all levels, the most severe first.
    pub fn names() -> &'static [&'static str] {
        &NAMES
    }

    /// Finds a level by its name in any case, or by its number.
    pub fn parse(text: &str) -> Option<Self> {
        let number = match text.parse::<usize>() {
            Ok(number) if number < NAMES.len() => number,
            Ok(_) => return None,
            Err(_) => NAMES.iter().position(|name| name.eq_ignore_ascii_case(text))?,
        };
        Some(Self(number as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_found_by_name_and_number() {
        assert_eq!(Level::parse("WARNING"), Some(Level::from_number(4)));
        assert_eq!(Level::parse("13"), Some(Level::DEFAULT));
        assert_eq!(Level::parse("15"), None);
        assert_eq!(Level::parse("loud"), None);
        assert_eq!(Level::from_number(200), Level::LOWEST);
        assert_eq!(Level::DEFAULT.name(), "debug_line");
    }
}
