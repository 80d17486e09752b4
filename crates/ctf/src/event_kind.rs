//! Properties of a Tompion event class that CTF cannot express: its kind, whether it belongs to the
//! initial state, and the format of a mark.
//!
//! They are stored in the only attribute of an event class that other readers accept without a
//! warning:
//!
//! ```text
//! model.emf.uri = "tompion:begin";
//! model.emf.uri = "tompion:mark?init&format=rows%20%25d";
//! ```
//!
//! A class without it is an instant. So is one of a kind that this reader doesn't know.

use std::fmt::Write;

use tompion_schema::{self as schema, Kind};

use crate::metadata::EnvironmentValue;

const ATTRIBUTE: &str = "model.emf.uri";
const SCHEME: &str = "tompion:";

/// Kind and properties of an event class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventKindInfo {
    /// Kind of the event.
    pub kind: Kind,
    /// Whether the event belongs to the initial state.
    pub init: bool,
    /// Format of a mark, in the syntax of printf.
    pub format: Option<String>,
}

impl EventKindInfo {
    /// Returns the properties of an event.
    pub fn of(event: &schema::Event) -> Self {
        Self { kind: event.kind, init: event.init, format: event.format.clone() }
    }

    /// Returns the attribute that stores the properties; `None` for an ordinary event.
    pub fn to_attribute(&self) -> Option<(String, EnvironmentValue)> {
        if *self == Self::default() {
            return None;
        }
        let mut uri = format!("{SCHEME}{}", self.kind.name());
        let mut separator = '?';
        if self.init {
            uri.push_str("?init");
            separator = '&';
        }
        if let Some(format) = &self.format {
            uri.push(separator);
            uri.push_str("format=");
            push_encoded(format, &mut uri);
        }
        Some((ATTRIBUTE.into(), uri.into()))
    }

    /// Returns the attribute of an event: its properties, or else the URI of a model, as LTTng
    /// writes it.
    pub fn attribute_of(event: &schema::Event) -> Option<(String, EnvironmentValue)> {
        let model = || event.attributes.model.clone().filter(|uri| !uri.starts_with(SCHEME));
        Self::of(event).to_attribute().or_else(|| Some((ATTRIBUTE.into(), model()?.into())))
    }

    /// Reads the properties from the attributes of a class.
    pub fn from_attributes(attributes: &[(String, EnvironmentValue)]) -> Self {
        let uris = attributes.iter().filter(|(name, _)| name == ATTRIBUTE);
        uris.filter_map(|(_, value)| Self::from_uri(value.as_text()?)).next().unwrap_or_default()
    }

    fn from_uri(uri: &str) -> Option<Self> {
        let text = uri.strip_prefix(SCHEME)?;
        let (kind, query) = text.split_once('?').unwrap_or((text, ""));
        let mut info = Self { kind: Kind::from_name(kind).unwrap_or_default(), ..Self::default() };
        for part in query.split('&') {
            match part.split_once('=') {
                None if part == "init" => info.init = true,
                Some(("format", value)) => info.format = Some(decoded(value)),
                _ => {}
            }
        }
        Some(info)
    }
}

/// Percent-encodes a text: letters, digits and `-._~` stay as they are, other bytes become `%20`
/// (RFC 3986).
fn push_encoded(text: &str, uri: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => uri.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => uri.push(byte.into()),
            _ => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
}

/// Decodes a percent-encoded text; a `%` without two digits is kept.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = behind;
        let digit = |place: usize| behind.get(place).and_then(|&byte| char::from(byte).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = behind.get(2..).unwrap_or_default();
            }
            _ => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_and_format_survive_the_round_trip() {
        for kind in (0..=Kind::Mark as u8).map(Kind::from_number) {
            for init in [false, true] {
                for format in [None, Some(""), Some("100%% of %-5.3s & \"é\"?\n\u{7f}")] {
                    let info = EventKindInfo { kind, init, format: format.map(Into::into) };
                    let attributes: Vec<_> = info.to_attribute().into_iter().collect();
                    assert_eq!(EventKindInfo::from_attributes(&attributes), info, "{attributes:?}");
                }
            }
        }
        assert_eq!(EventKindInfo::default().to_attribute(), None);
    }

    #[test]
    fn other_attributes_mean_an_ordinary_event() {
        let info = |uri: &str| EventKindInfo::from_attributes(&[(ATTRIBUTE.into(), uri.into())]);
        for uri in ["", "http://example.org/?init", "tompion:", "tompion:later?unheard", "tompion:?&=&%"] {
            assert_eq!(info(uri), EventKindInfo::default(), "{uri}");
        }
        assert_eq!(info("tompion:mark?format=%2&format=%zz%4").format.as_deref(), Some("%zz%4"));
        assert_eq!(info("tompion:mark?format=%FF").format.as_deref(), Some("\u{fffd}"));
        assert_eq!(EventKindInfo::from_attributes(&[(ATTRIBUTE.into(), 5.into())]), EventKindInfo::default());
    }
}
