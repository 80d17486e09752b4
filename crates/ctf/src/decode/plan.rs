//! Plans: types of structures, reduced to the decisions that remain at decoding.
//!
//! A plan is a flat list of steps. Consecutive byte-aligned fields of whole bytes are one step with
//! one bounds check. Each step appends words to a list, from which values are read later:
//!
//! | type | words |
//! |---|---|
//! | integer, enumeration, bits, boolean | the value, sign-extended |
//! | float | the bits of the value as an `f64` |
//! | text, blob | position (upper half) and length (lower half) in bytes; for UTF-16 and UTF-32, in the converted texts |
//! | array or sequence of plain integers | position (upper half) and count (lower half) |
//! | other array or sequence | count, then the elements |
//! | structure | its fields |
//! | variant | index of the option, then the option |
//! | optional | 0; or 1, then the field |
//!
//! Plain integers have 8, 16, 32 or 64 bits, are byte-aligned, and follow each other without gaps.

use crate::metadata::{ByteOrder, Encoding, Form, Integer, Type};

/// Compiled structure.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub steps: Vec<Step>,
    pub loads: Vec<Load>,
    pub choices: Vec<Choice>,
    /// The whole plan, if it is a single block.
    pub fixed: Option<Fixed>,
    /// Steps for skipping the values, if there are fewer.
    pub skip: Vec<Step>,
    /// All operations, if they skip a fixed number of bytes.
    pub skip_fixed: Option<Fixed>,
}

/// Structure of fixed size whose values are not used while decoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixed {
    pub align_mask: u32,
    pub bytes: u32,
    pub first: u32,
    pub count: u32,
}

impl Plan {
    /// Determines the shorter forms of the plan.
    pub fn finish(&mut self) {
        self.fixed = Self::fixed(&self.steps);
        self.skip = Self::skipping(&self.steps).unwrap_or_default();
        self.skip_fixed = Self::fixed(&self.skip);
    }

    /// Returns the steps without values that are not used while decoding. Steps that others count
    /// are kept.
    fn skipping(steps: &[Step]) -> Option<Vec<Step>> {
        let mut skip: Vec<Step> = Vec::with_capacity(steps.len());
        for step in steps {
            let bytes = match *step {
                Step::Repeat { .. } | Step::Choose { .. } => return None,
                Step::Block { bytes, watched: false, .. } => bytes,
                Step::Plain { count: Count::Fixed(count), size } => count.checked_mul(size.into())?,
                other => {
                    skip.push(other);
                    continue;
                }
            };
            match skip.last_mut() {
                Some(Step::Skip { bytes: before }) => *before = before.checked_add(bytes)?,
                _ => skip.push(Step::Skip { bytes }),
            }
        }
        Some(skip)
    }

    /// Returns the steps as one, if they are a single block.
    fn fixed(steps: &[Step]) -> Option<Fixed> {
        let [Step::Align { mask: align_mask }, rest @ ..] = steps else { return None };
        let align_mask = *align_mask;
        match *rest {
            [] => Some(Fixed { align_mask, bytes: 0, first: 0, count: 0 }),
            [Step::Skip { bytes }] => Some(Fixed { align_mask, bytes, first: 0, count: 0 }),
            [Step::Block { bytes, first, count, watched: false }] => {
                Some(Fixed { align_mask, bytes, first, count })
            }
            _ => None,
        }
    }
}

/// Step of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Aligns to the next multiple of `mask + 1` bits.
    Align { mask: u32 },
    /// Reads `bytes` byte-aligned bytes, and loads some values from them. `watched` states that a
    /// later step uses one of the values.
    Block { bytes: u32, first: u32, count: u32, watched: bool },
    /// Skips `bytes` bytes.
    Skip { bytes: u32 },
    /// Reads an integer at any bit.
    Bits { bits: u8, signed: bool, order: ByteOrder, reversed: bool },
    /// Reads an integer of variable size.
    Variable { signed: bool },
    /// Reads a float at any bit.
    FloatBits { bits: u8, order: ByteOrder, reversed: bool },
    /// Reads bytes up to a NUL.
    Text,
    /// Reads text of another encoding than UTF-8, up to a NUL.
    WideText { encoding: Encoding },
    /// Reads text of another encoding than UTF-8, in a number of bytes.
    SizedText { count: Count, encoding: Encoding },
    /// Reads plain integers of `size` bytes each.
    Plain { count: Count, size: u8 },
    /// Repeats the following `body` steps. `least` is the minimum size of one iteration in bits.
    Repeat { count: Count, body: u32, least: u32 },
    /// Runs the steps of one option.
    Choose { slot: u16, choice: u32 },
    /// Stores the last appended word in a slot.
    Save { slot: u16 },
    /// Stores the last appended word as a property of the packet or event.
    Role { role: crate::metadata::Role },
    /// Stores the time whose lowest bits are the last appended word as a property of the packet.
    /// With `moves`, the clock is set to it. 0 bits stand for the actual size of the integer.
    Time { role: crate::metadata::Role, bits: u8, moves: bool },
    /// Updates the clock by the last appended word. 0 bits stand for the actual size of the
    /// integer.
    Clock { bits: u8 },
}

/// Number of elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    Fixed(u32),
    Slot(u16),
}

/// Value in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub offset: u32,
    pub kind: Kind,
    /// Number of bits, of eight little-endian bytes, that are not part of the value; `None` for
    /// other byte orders and floats.
    unused: Option<u8>,
    signed: bool,
}

impl Load {
    pub fn new(offset: u32, kind: Kind) -> Self {
        use ByteOrder::Little;
        let (unused, signed) = match kind {
            Kind::U8 => (Some(56), false),
            Kind::I8 => (Some(56), true),
            Kind::U16(Little) => (Some(48), false),
            Kind::I16(Little) => (Some(48), true),
            Kind::U32(Little) => (Some(32), false),
            Kind::I32(Little) => (Some(32), true),
            Kind::W64(Little) => (Some(0), false),
            _ => (None, false),
        };
        Self { offset, kind, unused, signed }
    }

    /// Reads the value from a block's bytes; 0 if there are too few.
    #[inline]
    pub fn read(&self, block: &[u8]) -> u64 {
        let bytes = block.get(self.offset as usize..).unwrap_or_default();
        match (self.unused, bytes.first_chunk()) {
            (Some(unused), Some(bytes)) => {
                let value = u64::from_le_bytes(*bytes) << unused;
                if self.signed { (value as i64 >> unused) as u64 } else { value >> unused }
            }
            _ => self.kind.read(bytes),
        }
    }
}

/// Type of a value in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    U8,
    I8,
    U16(ByteOrder),
    I16(ByteOrder),
    U32(ByteOrder),
    I32(ByteOrder),
    W64(ByteOrder),
    F32(ByteOrder),
}

impl Kind {
    /// Returns the kind for an integer of 8, 16, 32 or 64 bits.
    pub fn of(integer: &Integer) -> Option<Self> {
        let order = integer.byte_order;
        if integer.form != Form::Fixed {
            return None;
        }
        Some(match (integer.bits, integer.signed) {
            (8, false) => Self::U8,
            (8, true) => Self::I8,
            (16, false) => Self::U16(order),
            (16, true) => Self::I16(order),
            (32, false) => Self::U32(order),
            (32, true) => Self::I32(order),
            (64, _) => Self::W64(order),
            _ => return None,
        })
    }

    /// Reads the value at the beginning of `bytes`; 0 if there are too few.
    #[inline]
    pub fn read(self, bytes: &[u8]) -> u64 {
        use ByteOrder::{Big, Little};
        fn chunk<const N: usize>(bytes: &[u8]) -> [u8; N] {
            bytes.first_chunk().copied().unwrap_or([0; N])
        }
        match self {
            Self::U8 => chunk::<1>(bytes)[0].into(),
            Self::I8 => chunk::<1>(bytes)[0] as i8 as u64,
            Self::U16(Little) => u16::from_le_bytes(chunk(bytes)).into(),
            Self::U16(Big) => u16::from_be_bytes(chunk(bytes)).into(),
            Self::I16(Little) => i16::from_le_bytes(chunk(bytes)) as u64,
            Self::I16(Big) => i16::from_be_bytes(chunk(bytes)) as u64,
            Self::U32(Little) => u32::from_le_bytes(chunk(bytes)).into(),
            Self::U32(Big) => u32::from_be_bytes(chunk(bytes)).into(),
            Self::I32(Little) => i32::from_le_bytes(chunk(bytes)) as u64,
            Self::I32(Big) => i32::from_be_bytes(chunk(bytes)) as u64,
            Self::W64(Little) => u64::from_le_bytes(chunk(bytes)),
            Self::W64(Big) => u64::from_be_bytes(chunk(bytes)),
            Self::F32(Little) => f64::from(f32::from_le_bytes(chunk(bytes))).to_bits(),
            Self::F32(Big) => f64::from(f32::from_be_bytes(chunk(bytes))).to_bits(),
        }
    }
}

/// Options of a variant, or of an optional field: absent and present.
#[derive(Debug)]
pub(super) struct Choice {
    /// Mask that flips the sign bit of signed selectors, so that all ranges compare unsigned.
    pub bias: u64,
    /// Smallest and largest value (biased), and the option that they select.
    pub ranges: Vec<(u64, u64, u32)>,
    /// Range of steps of each option.
    pub options: Vec<(u32, u32)>,
    /// Option for values outside of all ranges.
    pub otherwise: Option<u32>,
    /// Step after all options.
    pub end: u32,
}

/// Whether arrays of this type are stored as position and count only.
pub(crate) fn plain_kind(element: &Type) -> Option<(Kind, u8)> {
    let Type::Integer(integer) = element else { return None };
    // Values with a meaning for the decoder are read one by one.
    let means_nothing = integer.clock.is_none() && integer.roles.is_empty();
    let packed = integer.alignment % 8 == 0 && integer.alignment <= integer.bits && means_nothing;
    let kind = Kind::of(integer).filter(|_| packed)?;
    Some((kind, (integer.bits / 8) as u8))
}
