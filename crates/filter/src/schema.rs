//! Schemas, which bind a filter to events of one kind: available fields and their places.

use std::borrow::Cow;

use tompion_schema::Label;

use crate::name::Name;
use crate::value::Value;

/// Fields and contexts of events of one kind, as known to one evaluator (an agent, a kernel, a
/// reader).
pub trait Schema {
    /// Resolves a name.
    fn find(&self, name: &Name) -> Found<'_>;
}

/// Result of resolving a name.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// Place of the values.
    pub place: Place,
    /// Kind of the values.
    pub kind: Kind<'a>,
}

impl Found<'_> {
    /// Result for a name that the events don't have anywhere.
    pub const ABSENT: Self = Self { place: Place::Absent, kind: Kind::Any };
    /// Result for a name that this evaluator cannot know, and a later one may.
    pub const ELSEWHERE: Self = Self { place: Place::Elsewhere, kind: Kind::Any };
}

/// Kind of the values of a field or a context.
#[derive(Clone, Debug)]
pub enum Kind<'a> {
    /// Integer, or boolean.
    Integer,
    /// Floating-point number.
    Float,
    /// Text.
    Text,
    /// Integer with names for its values.
    Enumeration(Cow<'a, [Label]>),
    /// Type that a filter cannot compare, with its description: "an array", "a structure".
    Unusable(String),
    /// Unknown until there is a value.
    Any,
}

/// Place from which an operand is loaded. Implementations of `Values` may use the operand's name
/// instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Looked up by name for each event.
    ByName,
    /// Absent: the event has no such field.
    Absent,
    /// Unknown here; a later evaluator may know it.
    Elsewhere,
    /// Value in the fixed part of a record.
    Fixed {
        /// Offset in bytes.
        offset: u32,
        /// Type of the number.
        scalar: Scalar,
    },
    /// Element of an array or sequence.
    Element {
        /// Number of the tail, counted from 0.
        tail: u16,
        /// Number of the element.
        index: u32,
        /// Type of the elements.
        scalar: Scalar,
    },
    /// Text, up to its end or its first NUL.
    Text {
        /// Number of the tail, counted from 0.
        tail: u16,
    },
    /// Context, by a number that the evaluator assigned.
    Context(u16),
}

impl Place {
    /// Whether a value can be loaded from the place.
    pub(crate) fn is_sound(self) -> bool {
        match self {
            Self::Fixed { scalar, .. } | Self::Element { scalar, .. } => scalar.is_sound(),
            Self::ByName | Self::Absent | Self::Elsewhere | Self::Text { .. } | Self::Context(_) => true,
        }
    }
}

/// Number of fixed size in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// Size: 1, 2, 4 or 8 bytes; 4 or 8 for `Float`.
    pub size: u8,
    /// Encoding of the bytes.
    pub encoding: Encoding,
    /// Whether the most significant byte comes first.
    pub network: bool,
}

/// Encoding of a [`Scalar`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Encoding {
    /// Unsigned integer.
    Unsigned = 0,
    /// Two's complement.
    Signed = 1,
    /// IEEE 754.
    Float = 2,
}

impl Scalar {
    /// Whether the size is valid for the encoding.
    pub(crate) fn is_sound(self) -> bool {
        match self.encoding {
            Encoding::Unsigned | Encoding::Signed => matches!(self.size, 1 | 2 | 4 | 8),
            Encoding::Float => matches!(self.size, 4 | 8),
        }
    }

    /// Loads the value at `offset`; `None` if there are too few bytes.
    #[inline]
    pub(crate) fn load(self, bytes: &[u8], offset: usize) -> Option<Value> {
        let bytes = bytes.get(offset..)?;
        // Loads eight bytes at once, of which the number uses the first ones.
        let word = match bytes.first_chunk() {
            Some(chunk) => u64::from_le_bytes(*chunk),
            None => self.load_at_end(bytes)?,
        };
        let spare = 64 - 8 * u32::from(self.size);
        let high = if self.network { word.swap_bytes() } else { word << (spare & 63) };
        Some(match self.encoding {
            Encoding::Unsigned => (high >> (spare & 63)).into(),
            Encoding::Signed => ((high as i64) >> (spare & 63)).into(),
            Encoding::Float if self.size == 4 => f64::from(f32::from_bits((high >> 32) as u32)).into(),
            Encoding::Float => f64::from_bits(high).into(),
        })
    }

    /// Loads a number at the end of a record, padded with zeros.
    #[inline(never)]
    fn load_at_end(self, bytes: &[u8]) -> Option<u64> {
        let mut word = [0; 8];
        let size = usize::from(self.size);
        word.get_mut(..size)?.copy_from_slice(bytes.get(..size)?);
        Some(u64::from_le_bytes(word))
    }
}
