//! Event headers of the usual form, read by one load.
//!
//! ```text
//! bits   0      id_bits   time_shift        time_shift + time_bits
//!        │ id    │ (gap)   │ timestamp       │
//! ```
//!
//! Both numbers are little-endian and lie within eight bytes. In tracers' headers one value of the
//! number says that a longer form follows; such a header, and one too near the end of the input, is left
//! to the plan.

use super::bits::mask;
use super::run::Input;
use crate::metadata::{ByteOrder, Enum, Field, Integer, Struct, Type, Variant};

/// Where the two numbers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShortHeader {
    align_mask: u64,
    id_bits: u32,
    /// Numbers of event classes in the short form are smaller than this.
    id_limit: u64,
    time_shift: u32,
    /// Size of the timestamp in bits.
    pub time_bits: u32,
}

/// A header that was read.
pub(super) struct Short {
    pub id: u64,
    pub time: u64,
    pub end: u64,
}

impl ShortHeader {
    /// The form of a header, if it is the usual one.
    pub fn of(header: &Struct) -> Option<Self> {
        let align_mask = u64::from(header.effective_alignment().max(8)) - 1;
        if header.effective_alignment() < 8 {
            return None;
        }
        let [first, second] = header.fields.as_slice() else { return None };
        let id = first.ty.as_integer().filter(|id| first.name == "id" && is_plain(id))?;
        let (time, id_limit) = match (&first.ty, &second.ty) {
            (Type::Integer(_), Type::Integer(time)) => (time, u64::MAX),
            (Type::Enum(labels), Type::Variant(variant)) => short_option(labels, variant)?,
            _ => return None,
        };
        let time_shift = id.bits.next_multiple_of(time.alignment.max(1));
        let fits = time_shift + time.bits <= 64 && time.bits < 64 && id.clock.is_none();
        // Else the gap would depend on where the header begins.
        let steady = header.effective_alignment() >= time.alignment;
        let sound = is_plain(time) && time.clock.is_some() && fits && steady;
        sound.then_some(Self { align_mask, id_bits: id.bits, id_limit, time_shift, time_bits: time.bits })
    }

    /// Reads the header at a bit, if it has the short form.
    #[inline]
    pub fn read(&self, input: Input<'_>, bit: u64) -> Option<Short> {
        let begin = bit.checked_add(bit.wrapping_neg() & self.align_mask)?;
        let bytes = input.bytes().get(usize::try_from(begin / 8).ok()?..)?;
        let word = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
        let id = word & mask(self.id_bits);
        let end = begin + u64::from(self.time_shift + self.time_bits);
        if id >= self.id_limit || end > input.bits() {
            return None;
        }
        Some(Short { id, time: word >> self.time_shift & mask(self.time_bits), end })
    }
}

/// The timestamp of the option that small numbers select, and the first number that doesn't.
fn short_option<'t>(labels: &Enum, variant: &'t Variant) -> Option<(&'t Integer, u64)> {
    let [short, long] = labels.mappings.as_slice() else { return None };
    let limit = u64::try_from(short.high.checked_add(1)?).ok()?;
    let option = variant.options.iter().find(|option| option.name == short.label)?;
    if short.low != 0 || long.low <= short.high || variant.selector.path != ["id"] {
        return None;
    }
    let Type::Struct(Struct { fields, .. }) = &option.ty else { return None };
    let [Field { name, ty: Type::Integer(time) }] = fields.as_slice() else { return None };
    // The structure's alignment must not move the timestamp beyond where its own does.
    let aligned = option.ty.alignment() == time.alignment.max(1);
    (name == "timestamp" && aligned).then_some((time, limit))
}

fn is_plain(integer: &Integer) -> bool {
    integer.byte_order == ByteOrder::Little && !integer.signed && (1..=64).contains(&integer.bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_time_are_read_by_one_load() {
        let id = Type::unsigned(16, ByteOrder::Little);
        let time = Integer::unsigned(32, ByteOrder::Little).with_clock("c").with_alignment(32);
        let fields = vec![Field::new("id", id.clone()), Field::new("timestamp", Type::Integer(time))];
        let header = Struct::new(fields);
        let short = ShortHeader::of(&header).unwrap();
        let bytes = [9, 7, 0, 5, 5, 1, 2, 3, 4];
        let found = short.read(Input::new(&bytes, u64::MAX), 3);
        assert!(found.is_none(), "eight bytes are needed behind the alignment of four");
        let found = short.read(Input::new(&bytes, u64::MAX), 0).unwrap();
        assert_eq!((found.id, found.time, found.end), (0x0709, 0x0302_0105, 64));
        let wide = Type::Integer(Integer::unsigned(64, ByteOrder::Little).with_clock("c"));
        assert_eq!(
            ShortHeader::of(&Struct::new(vec![Field::new("id", id), Field::new("timestamp", wide)])),
            None
        );
    }
}
