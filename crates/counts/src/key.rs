//! Keys by which events are counted.

use std::fmt;

use tompion_filter::{Name, Scope};

use crate::{RuleError, parse::field};

/// Key by which events are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// Field of the event.
    Field(Name),
    /// The event's own name.
    Event,
    /// Id of the thread.
    Thread,
    /// Name of the process.
    Command,
    /// Id of the process.
    Process,
    /// Control group of the process.
    Cgroup,
}

impl Key {
    /// Keys that are no fields, by their words.
    const CONTEXTS: [(&'static str, Self); 5] = [
        ("event", Self::Event),
        ("tid", Self::Thread),
        ("comm", Self::Command),
        ("pid", Self::Process),
        ("cgroup", Self::Cgroup),
    ];

    /// Parses a key. A field that has the name of a context begins with a dot: `.pid`.
    pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
        let word = text.strip_prefix('$').unwrap_or(text);
        if let Some((_, key)) = Self::CONTEXTS.iter().find(|(name, _)| *name == word) {
            return Ok(key.clone());
        }
        if let Some(context) = text.strip_prefix('$') {
            let known: Vec<_> = Self::CONTEXTS.iter().map(|(name, _)| *name).collect();
            return Err(RuleError(format!(
                "expected one of {} behind `by`, or a field, found `${context}`",
                known.join(", ")
            )));
        }
        field(text.strip_prefix('.').unwrap_or(text)).map(Self::Field)
    }

    /// Whether all events of a process have the same one.
    pub const fn is_of_process(&self) -> bool {
        matches!(self, Self::Command | Self::Process | Self::Cgroup)
    }

    /// Name of the key in output: a word, or a field's path.
    pub fn label(&self) -> String {
        match self {
            Self::Field(name) => name.to_string(),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((word, _)) = Self::CONTEXTS.iter().find(|(_, key)| key == self) {
            return f.write_str(word);
        }
        let Self::Field(name) = self else { return Ok(()) };
        let is_word = name.path.len() == 1 && name.scope == Scope::Field;
        if is_word && Self::CONTEXTS.iter().any(|(word, _)| *word == name.head()) {
            f.write_str(".")?;
        }
        name.fmt(f)
    }
}
