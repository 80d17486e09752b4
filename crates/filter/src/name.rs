//! Names of fields and contexts in filters.

use std::borrow::Cow;
use std::fmt;

use crate::token::quote_application_name;

/// Name of an event field or of a context.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// Scope of the name.
    pub scope: Scope,
    /// Path in that scope; never empty, and the first segment is a [`Segment::Name`].
    pub path: Vec<Segment>,
}

/// Scope in which names are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Scope {
    /// The event's fields: `rows`.
    Field = 0,
    /// Context that the recording adds to events: `$tid`.
    Context = 1,
    /// Context that the application defines: `$app.provider:name`. The path's only segment is
    /// `provider:name`.
    Application = 2,
}

/// Step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// Field, or member of a structure.
    Name(String),
    /// Element of an array or a sequence, counted from 0.
    Index(u32),
}

impl Name {
    /// Returns the name in the first segment: `a` of `a.b[3]`.
    pub fn head(&self) -> &str {
        match self.path.first() {
            Some(Segment::Name(name)) => name,
            _ => "",
        }
    }

    /// Returns the name of the field in traces: `tid` for `$tid`, and LTTng's `app_provider_name`
    /// for the application context `$app.provider:name`.
    pub fn context_field(&self) -> Cow<'_, str> {
        match self.scope {
            Scope::Field | Scope::Context => self.head().into(),
            Scope::Application => {
                let word = |character: char| character.is_ascii_alphanumeric() || character == '_';
                let field = tompion_schema::context_field(self.head());
                field.replace(|character| !word(character), "_").into()
            }
        }
    }

    /// Whether `text` needs no quotes in a filter: a letter or `_`, followed by letters, digits or
    /// `_`.
    pub(crate) fn is_word(text: &str) -> bool {
        let mut bytes = text.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }
}

impl fmt::Display for Name {
    /// Formats the name in the syntax of filters: `a.b[3]`, `$tid`, `$app.provider:name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Scope::Field => {}
            Scope::Context => f.write_str("$")?,
            Scope::Application => f.write_str("$app.")?,
        }
        for (index, segment) in self.path.iter().enumerate() {
            match segment {
                Segment::Name(name) if self.scope == Scope::Application => {
                    f.write_str(&quote_application_name(name))?;
                }
                Segment::Name(name) if index > 0 => write!(f, ".{name}")?,
                Segment::Name(name) => f.write_str(name)?,
                Segment::Index(number) => write!(f, "[{number}]")?,
            }
        }
        Ok(())
    }
}
