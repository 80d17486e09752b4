//! What binds a filter to events of one kind: which fields there are, and where they lie.

use std::borrow::Cow;

use tompion_schema::Label;

use crate::name::Name;
use crate::value::Value;

/// Fields and contexts of events of one kind, at one place (an agent, a kernel, a reader).
pub trait Schema {
    /// What is known here about a name.
    fn find(&self, name: &Name) -> Found<'_>;
}

/// What a [`Schema`] knows about a name.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// Where values are.
    pub place: Place,
    /// What they are.
    pub kind: Kind<'a>,
}

impl Found<'_> {
    /// The event has no such thing, here or anywhere.
    pub const ABSENT: Self = Self { place: Place::Absent, kind: Kind::Any };
    /// Something that this place cannot know, and a later one may.
    pub const ELSEWHERE: Self = Self { place: Place::Elsewhere, kind: Kind::Any };
}

/// What the values of a field or a context are.
#[derive(Clone, Debug)]
pub enum Kind<'a> {
    /// An integer; a boolean is one, too.
    Integer,
    /// A floating-point number.
    Float,
    /// A text.
    Text,
    /// An integer with names for its values.
    Enumeration(Cow<'a, [Label]>),
    /// Nothing that a filter can compare, and why: "an array", "a structure".
    Unusable(String),
    /// Not known before there is a value.
    Any,
}

/// How an operand is loaded. `Values` may have ways of their own and look at the operand's name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// By its name, when there is an event.
    ByName,
    /// Nowhere: the event has no such thing.
    Absent,
    /// Not here; a later place may know it.
    Elsewhere,
    /// In the fixed part of a record.
    Fixed {
        /// Offset in bytes.
        offset: u32,
        /// What stands there.
        scalar: Scalar,
    },
    /// An element of an array or sequence.
    Element {
        /// Number of the tail, counted from 0.
        tail: u16,
        /// Number of the element.
        index: u32,
        /// What the elements are.
        scalar: Scalar,
    },
    /// A text, up to its end or its first NUL.
    Text {
        /// Number of the tail, counted from 0.
        tail: u16,
    },
    /// A context, by a number of the evaluator's own.
    Context(u16),
}

impl Place {
    /// Whether something can be loaded from there.
    pub(crate) fn is_sound(self) -> bool {
        match self {
            Self::Fixed { scalar, .. } | Self::Element { scalar, .. } => scalar.is_sound(),
            Self::ByName | Self::Absent | Self::Elsewhere | Self::Text { .. } | Self::Context(_) => true,
        }
    }
}

/// A number of fixed size in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// 1, 2, 4 or 8 bytes; `Float` has 4 or 8.
    pub size: u8,
    /// What the bytes mean.
    pub encoding: Encoding,
    /// Most significant byte first.
    pub network: bool,
}

/// What the bytes of a [`Scalar`] mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Encoding {
    /// An integer from 0.
    Unsigned = 0,
    /// Two's complement.
    Signed = 1,
    /// IEEE 754.
    Float = 2,
}

impl Scalar {
    /// Whether there is such a number.
    pub(crate) fn is_sound(self) -> bool {
        match self.encoding {
            Encoding::Unsigned | Encoding::Signed => matches!(self.size, 1 | 2 | 4 | 8),
            Encoding::Float => matches!(self.size, 4 | 8),
        }
    }

    /// The value of the bytes at `offset`; nothing if there are too few.
    #[inline]
    pub(crate) fn load(self, bytes: &[u8], offset: usize) -> Option<Value> {
        let bytes = bytes.get(offset..)?;
        // Eight bytes at once, of which the number takes the first ones.
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

    /// The bytes of a number at the end of a record, with zeros behind them.
    #[inline(never)]
    fn load_at_end(self, bytes: &[u8]) -> Option<u64> {
        let mut word = [0; 8];
        let size = usize::from(self.size);
        word.get_mut(..size)?.copy_from_slice(bytes.get(..size)?);
        Some(u64::from_le_bytes(word))
    }
}
