//! Descriptions of events in the parts in which providers of LTTng-UST's tracepoints carry them.
//!
//! ```text
//! tracepoint: magic u32 "TPN1" │ size u32 │ provider_size u16 │ name_size u16 │ provider │ name
//! class:      magic u32 "TEC1" │ size u32 │ fields u16 │ provider_size u16 │ name_size u16
//!             │ provider │ name │ field, …
//! instance:   magic u32 "TEI1" │ size u32 │ provider_size u16 │ name_size u16
//!             │ class_provider_size u16 │ class_name_size u16 │ provider │ name
//!             │ class_provider │ class_name
//! attribute:  magic u32 "TEA1" │ size u32 │ key u16 │ provider_size u16 │ name_size u16
//!             │ text_size u16 │ number i32 │ provider │ name │ text
//! labels:     magic u32 "TEL1" │ size u32 │ version u16 │ labels u16 │ name_size u16 │ name
//!             │ label, …
//! label:      low i64 │ high i64 │ flags u16 │ name_size u16 │ name
//! ```
//!
//! Names end with a NUL, which their sizes include. A class has fields that several events share.
//! An attribute says something of an event whose macro may stand in another place: key 1 is its
//! level, key 2 the URI of its model. Flag 1 of a label: its value is one more than the end of the
//! label before, or 0. `include/lttng-ust/lttng/private` makes these bytes.

use std::{borrow::Cow, collections::BTreeMap};

use crate::{
    DescriptionError, EVENT_MAGIC, Kind, Level, MAX_FIELDS, MAX_NAME,
    description::{
        ATTRIBUTE_MODEL, ATTRIBUTE_ORIGIN, Cursor, ENUM_MAGIC, Result, VERSION, push_attribute, push_name,
    },
};

/// First word of a tracepoint's name.
pub const TRACEPOINT_MAGIC: u32 = u32::from_le_bytes(*b"TPN1");
/// First word of a class of events.
pub const CLASS_MAGIC: u32 = u32::from_le_bytes(*b"TEC1");
/// First word of an event of a class.
pub const INSTANCE_MAGIC: u32 = u32::from_le_bytes(*b"TEI1");
/// First word of an attribute.
pub const ATTRIBUTE_MAGIC: u32 = u32::from_le_bytes(*b"TEA1");
const LABELS_MAGIC: u32 = u32::from_le_bytes(*b"TEL1");

const KEY_LEVEL: u16 = 1;
const KEY_MODEL: u16 = 2;
const LABEL_AUTO: u16 = 1;
/// Origin of all events of providers.
pub const ORIGIN: &str = "LTTng-UST";

/// Names of an event and of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance<'a> {
    /// Provider of the event.
    pub provider: &'a str,
    /// Name of the event.
    pub name: &'a str,
    /// Provider of the class.
    pub class_provider: &'a str,
    /// Name of the class.
    pub class_name: &'a str,
}

/// Attributes of an event, as the macros beside it say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// Level; none if it is not said.
    pub level: Option<Level>,
    /// URI of a model, `TRACEPOINT_MODEL_EMF_URI`.
    pub model: Option<&'a str>,
}

/// Reads the names of a tracepoint: provider and event.
pub fn decode_tracepoint(bytes: &[u8]) -> Result<(&str, &str)> {
    let mut cursor = begin(bytes, TRACEPOINT_MAGIC, "tracepoint")?;
    let (provider_size, name_size) = (cursor.u16()?, cursor.u16()?);
    Ok((cursor.name(provider_size, "provider")?, cursor.name(name_size, "event")?))
}

/// Reads the names of an event and its class.
pub fn decode_instance(bytes: &[u8]) -> Result<Instance<'_>> {
    let mut cursor = begin(bytes, INSTANCE_MAGIC, "event")?;
    let sizes = [cursor.u16()?, cursor.u16()?, cursor.u16()?, cursor.u16()?];
    Ok(Instance {
        provider: cursor.name(sizes[0], "provider")?,
        name: cursor.name(sizes[1], "event")?,
        class_provider: cursor.name(sizes[2], "provider")?,
        class_name: cursor.name(sizes[3], "class")?,
    })
}

/// Reads the names of a class: provider and class.
pub fn decode_class(bytes: &[u8]) -> Result<(&str, &str)> {
    let (_, provider, name, _) = class_parts(bytes)?;
    Ok((provider, name))
}

/// Reads an attribute: provider and event that it belongs to, and what it says. An unknown one says
/// nothing.
pub fn decode_attribute(bytes: &[u8]) -> Result<(&str, &str, Attributes<'_>)> {
    let mut cursor = begin(bytes, ATTRIBUTE_MAGIC, "attribute")?;
    let key = cursor.u16()?;
    let sizes = [cursor.u16()?, cursor.u16()?, cursor.u16()?];
    let number = cursor.u32()? as i32;
    let (provider, name) = (cursor.name(sizes[0], "provider")?, cursor.name(sizes[1], "event")?);
    let mut said = Attributes::default();
    match key {
        KEY_LEVEL => said.level = Some(u8::try_from(number).map_or(Level::DEFAULT, Level::from_number)),
        KEY_MODEL => said.model = Some(cursor.name(sizes[2], "URI")?),
        _ => {}
    }
    Ok((provider, name, said))
}

impl<'a> Attributes<'a> {
    /// Returns what both say; the first one counts.
    pub fn or(self, other: Attributes<'a>) -> Self {
        Self { level: self.level.or(other.level), model: self.model.or(other.model) }
    }
}

/// Composes the description of an event, followed by the enumerations of its fields, as
/// [`crate::decode`] reads them. Of fields with one name, the later ones get a number.
///
/// `labels` are those of the class's enum fields, in order.
pub fn compose(
    instance: &[u8],
    class: &[u8],
    labels: &[&[u8]],
    attributes: Attributes<'_>,
) -> Result<Vec<u8>> {
    let names = decode_instance(instance)?;
    let (count, _, _, mut fields) = class_parts(class)?;
    if usize::from(count) > MAX_FIELDS {
        return Err(DescriptionError::Fields(count.into()));
    }
    let level = attributes.level.unwrap_or(Level::DEFAULT);
    let mut bytes = Vec::with_capacity(class.len() + instance.len() + 64);
    bytes.extend(EVENT_MAGIC.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([Kind::Instant as u8, level.number()]);
    bytes.extend(0u16.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend((names.provider.len() as u16 + 1).to_le_bytes());
    bytes.extend((names.name.len() as u16 + 1).to_le_bytes());
    push_name(&mut bytes, names.provider);
    push_name(&mut bytes, names.name);
    copy_fields(&mut bytes, &mut fields, count)?;
    if let Some(model) = attributes.model {
        push_attribute(&mut bytes, ATTRIBUTE_MODEL, model);
    }
    push_attribute(&mut bytes, ATTRIBUTE_ORIGIN, ORIGIN);
    let size = bytes.len() as u32;
    bytes[4..8].copy_from_slice(&size.to_le_bytes());
    for labels in labels {
        compose_labels(&mut bytes, labels)?;
    }
    Ok(bytes)
}

/// Parts of descriptions that a file has, in any order.
#[derive(Debug, Default)]
pub struct Parts<'a> {
    instances: Vec<&'a [u8]>,
    classes: BTreeMap<(&'a str, &'a str), &'a [u8]>,
    attributes: BTreeMap<(&'a str, &'a str), Attributes<'a>>,
}

impl<'a> Parts<'a> {
    /// Takes the part that begins here. Returns its size; none if there is no part.
    pub fn add(&mut self, bytes: &'a [u8]) -> Option<usize> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let size = u32::from_le_bytes(*rest.first_chunk()?) as usize;
        let part = bytes.get(..size)?;
        match u32::from_le_bytes(*magic) {
            INSTANCE_MAGIC => self.instances.push(part),
            CLASS_MAGIC => {
                self.classes.insert(decode_class(part).ok()?, part);
            }
            ATTRIBUTE_MAGIC => {
                let (provider, name, said) = decode_attribute(part).ok()?;
                let known = self.attributes.entry((provider, name)).or_default();
                *known = known.or(said);
            }
            _ => return None,
        }
        Some(size)
    }

    /// The descriptions of all events, without enumerations: for [`crate::decode_outline`].
    pub fn outlines(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.instances.iter().filter_map(|instance| {
            let names = decode_instance(instance).ok()?;
            let class = self.classes.get(&(names.class_provider, names.class_name))?;
            let said = self.attributes.get(&(names.provider, names.name)).copied().unwrap_or_default();
            compose(instance, class, &[], said).ok()
        })
    }
}

fn begin<'a>(bytes: &'a [u8], magic: u32, what: &'static str) -> Result<Cursor<'a>> {
    Cursor { rest: bytes, what }.structure(magic, what)
}

/// Number of fields, provider, name, and the fields.
fn class_parts(bytes: &[u8]) -> Result<(u16, &str, &str, Cursor<'_>)> {
    let mut cursor = begin(bytes, CLASS_MAGIC, "class")?;
    let (count, provider_size, name_size) = (cursor.u16()?, cursor.u16()?, cursor.u16()?);
    let provider = cursor.name(provider_size, "provider")?;
    let name = cursor.name(name_size, "class")?;
    Ok((count, provider, name, cursor))
}

fn copy_fields<'a>(bytes: &mut Vec<u8>, fields: &mut Cursor<'a>, count: u16) -> Result<()> {
    let mut names: Vec<Cow<'a, str>> = Vec::with_capacity(count.min(64).into());
    fields.what = "field";
    for _ in 0..count {
        let size = usize::from(fields.u16()?).checked_sub(2).ok_or(DescriptionError::Cut("field"))?;
        let mut field = Cursor { rest: fields.take(size)?, what: "field" };
        let head = field.take(8)?;
        let name_size = field.u16()?;
        let name = unique(field.name(name_size, "field")?, &names);
        bytes.extend((name.len() as u16 + 13).to_le_bytes());
        bytes.extend(head);
        bytes.extend((name.len() as u16 + 1).to_le_bytes());
        push_name(bytes, &name);
        names.push(name);
    }
    Ok(())
}

/// The name, or the name with the first number that no field has.
fn unique<'a>(name: &'a str, taken: &[Cow<'a, str>]) -> Cow<'a, str> {
    let is_taken = |name: &str| taken.iter().any(|other| other == name);
    if !is_taken(name) {
        return Cow::Borrowed(name);
    }
    let room = MAX_NAME - 6;
    let stem = name.get(..name.len().min(room)).unwrap_or(name);
    let numbered = (2..).map(|number| format!("{stem}_{number}")).find(|name| !is_taken(name));
    numbered.map_or(Cow::Borrowed(name), Cow::Owned)
}

fn compose_labels(bytes: &mut Vec<u8>, labels: &[u8]) -> Result<()> {
    let start = bytes.len();
    let mut cursor = begin(labels, LABELS_MAGIC, "enumeration")?;
    let version = cursor.u16()?;
    if version != VERSION {
        return Err(DescriptionError::Version(version));
    }
    let (count, name_size) = (cursor.u16()?, cursor.u16()?);
    let name = cursor.name(name_size, "enumeration")?;
    bytes.extend(ENUM_MAGIC.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend((name.len() as u16 + 1).to_le_bytes());
    push_name(bytes, name);
    let mut next = 0i64;
    for _ in 0..count {
        let (low, high, flags) = (cursor.i64()?, cursor.i64()?, cursor.u16()?);
        let name_size = cursor.u16()?;
        let name = cursor.name(name_size, "label")?;
        let (low, high) = if flags & LABEL_AUTO != 0 { (next, next) } else { (low, high) };
        next = high.wrapping_add(1);
        bytes.extend(low.to_le_bytes());
        bytes.extend(high.to_le_bytes());
        bytes.extend((name.len() as u16 + 1).to_le_bytes());
        push_name(bytes, name);
    }
    let size = (bytes.len() - start) as u32;
    bytes[start + 4..start + 8].copy_from_slice(&size.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Type, decode};

    fn structure(magic: u32, body: &[&[u8]]) -> Vec<u8> {
        let body = body.concat();
        [&magic.to_le_bytes()[..], &(body.len() as u32 + 8).to_le_bytes(), &body].concat()
    }

    fn field(code: u8, element: u8, name: &str) -> Vec<u8> {
        let name_size = name.len() as u16 + 1;
        let parts: [&[u8]; 7] = [
            &(12 + name_size).to_le_bytes(),
            &[code, element],
            &[0; 4],
            &[0; 2],
            &name_size.to_le_bytes(),
            name.as_bytes(),
            &[0],
        ];
        parts.concat()
    }

    fn class(fields: &[Vec<u8>]) -> Vec<u8> {
        let sizes = [fields.len() as u16, 2, 2].map(u16::to_le_bytes).concat();
        structure(CLASS_MAGIC, &[&sizes, b"p\0", b"c\0", &fields.concat()])
    }

    fn instance() -> Vec<u8> {
        let sizes = [2u16, 4, 2, 2].map(u16::to_le_bytes).concat();
        structure(INSTANCE_MAGIC, &[&sizes, b"p\0", b"one\0", b"p\0", b"c\0"])
    }

    fn label(low: i64, high: i64, flags: u16, name: &str) -> Vec<u8> {
        let parts: [&[u8]; 6] = [
            &low.to_le_bytes(),
            &high.to_le_bytes(),
            &flags.to_le_bytes(),
            &(name.len() as u16 + 1).to_le_bytes(),
            name.as_bytes(),
            &[0],
        ];
        parts.concat()
    }

    fn labels(of: &[Vec<u8>]) -> Vec<u8> {
        let head = [VERSION, of.len() as u16, 4].map(u16::to_le_bytes).concat();
        structure(LABELS_MAGIC, &[&head, b"p_e\0", &of.concat()])
    }

    #[test]
    fn an_event_is_composed_of_class_instance_and_attributes() {
        let class = class(&[field(3, 0, "x"), field(16, 0, "text"), field(3, 0, "x")]);
        let attributes = Attributes { level: Some(Level::from_number(6)), model: Some("http://x") };
        let bytes = compose(&instance(), &class, &[], attributes).unwrap();
        let event = decode(&bytes).unwrap();
        assert_eq!(event.full_name(), "p:one");
        assert_eq!(event.level, Level::from_number(6));
        assert_eq!(event.attributes.model.as_deref(), Some("http://x"));
        assert_eq!(event.attributes.origin.as_deref(), Some("LTTng-UST"));
        let names: Vec<&str> = event.fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["x", "text", "x_2"], "a second `x` has a number");
    }

    #[test]
    fn labels_count_on_from_the_one_before() {
        let of = [
            label(0, 0, LABEL_AUTO, "first"),
            label(10, 20, 0, "range"),
            label(0, 0, LABEL_AUTO, "behind"),
            label(0, 0, LABEL_AUTO, "last"),
        ];
        let class = class(&[field(21, 5, "state")]);
        let bytes = compose(&instance(), &class, &[&labels(&of)], Attributes::default()).unwrap();
        let event = decode(&bytes).unwrap();
        assert_eq!(event.level, Level::DEFAULT, "none was said");
        let Type::Enum(_, enumeration) = &event.fields[0].ty else { panic!("{event:?}") };
        let found: Vec<_> =
            enumeration.labels.iter().map(|label| (&*label.name, label.low, label.high)).collect();
        assert_eq!(found, [("first", 0, 0), ("range", 10, 20), ("behind", 21, 21), ("last", 22, 22)]);
    }

    #[test]
    fn an_attribute_names_its_event() {
        let head = [KEY_LEVEL, 2, 4, 1].map(u16::to_le_bytes).concat();
        let bytes = structure(ATTRIBUTE_MAGIC, &[&head, &6i32.to_le_bytes(), b"p\0", b"one\0", b"\0"]);
        let (provider, name, said) = decode_attribute(&bytes).unwrap();
        assert_eq!((provider, name, said.level), ("p", "one", Some(Level::from_number(6))));
    }

    #[test]
    fn bytes_that_are_cut_anywhere_are_refused_and_never_panic() {
        let class = class(&[field(3, 0, "x"), field(21, 5, "state")]);
        let labels = labels(&[label(1, 2, 0, "a")]);
        for end in 0..class.len() {
            assert!(compose(&instance(), &class[..end], &[&labels], Attributes::default()).is_err());
        }
        for end in 0..labels.len() {
            assert!(compose(&instance(), &class, &[&labels[..end]], Attributes::default()).is_err());
        }
        for end in 0..instance().len() {
            assert!(decode_instance(&instance()[..end]).is_err());
        }
    }
}
