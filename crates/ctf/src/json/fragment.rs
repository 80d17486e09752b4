//! Access to properties of JSON objects by name and kind.

use super::value::Json;
use crate::metadata::Mapping;

/// Problem in a fragment, with its location.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Names of properties, from the outermost to the innermost.
    pub path: Vec<String>,
    pub message: String,
}

pub(super) type Result<T> = std::result::Result<T, Wrong>;

/// Returns an error.
pub(super) fn wrong<T>(message: impl Into<String>) -> Result<T> {
    Err(Wrong { path: Vec::new(), message: message.into() })
}

/// Adds the name of the enclosing property to an error.
pub(super) fn inside<T>(name: &str, result: Result<T>) -> Result<T> {
    result.map_err(|mut wrong| {
        wrong.path.insert(0, name.into());
        wrong
    })
}

/// Properties of an object.
#[derive(Clone, Copy)]
pub(super) struct Object<'a>(&'a [(String, Json)]);

impl<'a> Object<'a> {
    pub fn of(value: &'a Json) -> Result<Self> {
        match value {
            Json::Object(properties) => Ok(Self(properties)),
            other => wrong(format!("expected an object, found {}", other.kind())),
        }
    }

    /// Returns all properties, in order.
    pub fn entries(self) -> impl Iterator<Item = (&'a str, &'a Json)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub fn get(self, name: &str) -> Option<&'a Json> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn need(self, name: &str) -> Result<&'a Json> {
        self.get(name).map_or_else(|| wrong(format!("expected a property {name:?}, found none")), Ok)
    }

    pub fn object(self, name: &str) -> Result<Option<Object<'a>>> {
        self.get(name).map(|value| inside(name, Object::of(value))).transpose()
    }

    pub fn text(self, name: &str) -> Result<Option<&'a str>> {
        self.get(name).map(|value| inside(name, text(value))).transpose()
    }

    pub fn array(self, name: &str) -> Result<Option<&'a [Json]>> {
        self.get(name).map(|value| inside(name, array(value))).transpose()
    }

    /// Returns a number that fits the requested type.
    pub fn number<N: TryFrom<i128>>(self, name: &str) -> Result<Option<N>> {
        self.get(name).map(|value| inside(name, number(value))).transpose()
    }

    /// Returns the value for one of some words.
    pub fn word<T: Copy>(self, name: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        let Some(found) = self.text(name)? else { return Ok(None) };
        inside(name, word(found, words)).map(Some)
    }

    /// Returns an alignment in bits.
    pub fn alignment(self, name: &str) -> Result<u32> {
        let alignment: u32 = self.number(name)?.unwrap_or(1);
        match alignment.is_power_of_two() {
            true => Ok(alignment),
            false => inside(name, wrong(format!("expected a power of two, found {alignment}"))),
        }
    }

    /// Returns the attributes by namespace, which are not part of the format.
    pub fn attributes(self) -> Result<Option<Object<'a>>> {
        Ok(self.object("attributes")?.or(self.object("user-attributes")?))
    }

    /// Refuses extensions, none of which are supported, and unknown properties.
    pub fn check(self, known: &[&[&str]]) -> Result<()> {
        if let Some(extensions) = self.object("extensions")? {
            if let Some((name, _)) = extensions.entries().next() {
                return inside("extensions", wrong(format!("expected no extension, found {name:?}")));
            }
        }
        self.attributes()?;
        let is_known = |name: &str| {
            matches!(name, "type" | "attributes" | "user-attributes" | "extensions")
                || known.iter().any(|names| names.contains(&name))
        };
        match self.entries().find(|(name, _)| !is_known(name)) {
            None => Ok(()),
            Some((name, _)) => wrong(format!("unknown property {name:?}")),
        }
    }
}

pub(super) fn text(value: &Json) -> Result<&str> {
    match value {
        Json::Text(text) => Ok(text),
        other => wrong(format!("expected a text, found {}", other.kind())),
    }
}

pub(super) fn array(value: &Json) -> Result<&[Json]> {
    match value {
        Json::Array(elements) => Ok(elements),
        other => wrong(format!("expected an array, found {}", other.kind())),
    }
}

pub(super) fn number<N: TryFrom<i128>>(value: &Json) -> Result<N> {
    match value {
        Json::Integer(number) => N::try_from(*number).or_else(|_| wrong(format!("{number} is out of range"))),
        other => wrong(format!("expected an integer, found {}", other.kind())),
    }
}

/// Returns the value for one of some words.
pub(super) fn word<T: Copy>(found: &str, words: &[(&str, T)]) -> Result<T> {
    match words.iter().find(|(word, _)| *word == found) {
        Some((_, value)) => Ok(*value),
        None => {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            wrong(format!("expected one of {}, found {found:?}", words.join(", ")))
        }
    }
}

/// Parses ranges of integers, at least one.
pub(super) fn ranges(value: &Json) -> Result<Vec<(i128, i128)>> {
    let ranges = array(value)?.iter().map(|range| match array(range)? {
        [low, high] => {
            let (low, high) = (number(low)?, number(high)?);
            if low <= high { Ok((low, high)) } else { wrong(format!("the range [{low}, {high}] is empty")) }
        }
        other => wrong(format!("expected a range of two integers, found {}", other.len())),
    });
    let ranges = ranges.collect::<Result<Vec<_>>>()?;
    if ranges.is_empty() { wrong("expected a range, found none") } else { Ok(ranges) }
}

/// Parses names of ranges, in order.
pub(super) fn mappings(object: Object<'_>) -> Result<Vec<Mapping>> {
    let mut mappings = Vec::new();
    for (label, value) in object.entries() {
        let named = |(low, high)| Mapping { label: label.into(), low, high };
        mappings.extend(inside(label, ranges(value))?.into_iter().map(named));
    }
    Ok(mappings)
}
