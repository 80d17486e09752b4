//! Names of what filters ask for.

use std::borrow::Cow;
use std::fmt;

use crate::token::quote_application_name;

/// What a filter asks for: a field of the event or something of its context.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// Where it is to be found.
    pub scope: Scope,
    /// The way to it; never empty, and the first segment is a [`Segment::Name`].
    pub path: Vec<Segment>,
}

/// Where names are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Scope {
    /// `rows`: the event's fields.
    Field = 0,
    /// `$tid`: what the recording adds to events.
    Context = 1,
    /// `$app.provider:name`: context that the application defines. The path's only segment is
    /// `provider:name`.
    Application = 2,
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// A field, or a member of a structure.
    Name(String),
    /// An element of an array or a sequence, counted from 0.
    Index(u32),
}

impl Name {
    /// The first segment's name, `a` of `a.b[3]`.
    pub fn head(&self) -> &str {
        match self.path.first() {
            Some(Segment::Name(name)) => name,
            _ => "",
        }
    }

    /// The name of the field by which traces carry it: `tid` for `$tid`, and for application context as
    /// LTTng names it, `app_provider_name` for `$app.provider:name`.
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

    /// Whether `text` can stand in a filter without quotes: a letter or `_`, then also digits.
    pub(crate) fn is_word(text: &str) -> bool {
        let mut bytes = text.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }
}

impl fmt::Display for Name {
    /// As it stands in filters: `a.b[3]`, `$tid`, `$app.provider:name`.
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
