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
use crate::metadata::{ByteOrder, Enum, Field, Form, Integer, Role, Scope, Struct, Type, Variant, Version};

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
    pub fn of(header: &Struct, version: Version) -> Option<Self> {
        let align_mask = u64::from(header.effective_alignment().max(8)) - 1;
        if header.effective_alignment() < 8 {
            return None;
        }
        let [first, second] = header.fields.as_slice() else { return None };
        let id = first.ty.as_integer().filter(|id| is_plain(id))?;
        if !is_id(first, id, version) {
            return None;
        }
        let (time, id_limit) = match (&first.ty, &second.ty) {
            (Type::Integer(_), Type::Integer(time)) => (time, u64::MAX),
            (_, Type::Variant(variant)) if variant.selector.path == [first.name.as_str()] => {
                let (option, limit) = match (&first.ty, &variant.ranges) {
                    (Type::Enum(labels), None) => short_label(labels, variant)?,
                    (_, Some(_)) => short_range(variant)?,
                    _ => return None,
                };
                (short_time(option)?, limit)
            }
            _ => return None,
        };
        let time_shift = id.bits.next_multiple_of(time.alignment.max(1));
        let fits = time_shift + time.bits <= 64 && time.bits < 64 && id.clock.is_none();
        // Else the gap would depend on where the header begins.
        let steady = header.effective_alignment() >= time.alignment;
        let sound = is_plain(time) && is_time(time) && fits && steady;
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

/// Whether a field has the number of the event class, and nothing else.
fn is_id(field: &Field, integer: &Integer, version: Version) -> bool {
    match version {
        Version::One => Role::of_name(Scope::EventHeader, &field.name) == Some(Role::EventId),
        Version::Two => integer.roles.iter().eq([Role::EventId]),
    }
}

/// Whether an integer is a value of the clock, and nothing else.
fn is_time(integer: &Integer) -> bool {
    integer.clock.is_some() && integer.roles.is_empty()
}

/// The option that small numbers select by their label, and the first number that doesn't.
fn short_label<'t>(labels: &Enum, variant: &'t Variant) -> Option<(&'t Type, u64)> {
    let [short, long] = labels.mappings.as_slice() else { return None };
    let limit = u64::try_from(short.high.checked_add(1)?).ok()?;
    let option = variant.options.iter().find(|option| option.name == short.label)?;
    (short.low == 0 && long.low > short.high).then_some((&option.ty, limit))
}

/// The option that small numbers select, and the first number that doesn't.
fn short_range(variant: &Variant) -> Option<(&Type, u64)> {
    let [first, second] = variant.ranges.as_deref()? else { return None };
    let (short, long) = if first.low == 0 { (first, second) } else { (second, first) };
    let limit = u64::try_from(short.high.checked_add(1)?).ok()?;
    let option = variant.options.get(short.option)?;
    (short.low == 0 && long.low > short.high).then_some((&option.ty, limit))
}

/// The timestamp that is all of an option.
fn short_time(option: &Type) -> Option<&Integer> {
    let Type::Struct(Struct { fields, .. }) = option else { return None };
    let [Field { ty: Type::Integer(time), .. }] = fields.as_slice() else { return None };
    // The structure's alignment must not move the timestamp beyond where its own does.
    (option.alignment() == time.alignment.max(1)).then_some(time)
}

fn is_plain(integer: &Integer) -> bool {
    let is_little = integer.byte_order == ByteOrder::Little && integer.form == Form::Fixed;
    is_little && !integer.signed && (1..=64).contains(&integer.bits)
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
        let short = ShortHeader::of(&header, Version::One).unwrap();
        let bytes = [9, 7, 0, 5, 5, 1, 2, 3, 4];
        let found = short.read(Input::new(&bytes, u64::MAX), 3);
        assert!(found.is_none(), "eight bytes are needed behind the alignment of four");
        let found = short.read(Input::new(&bytes, u64::MAX), 0).unwrap();
        assert_eq!((found.id, found.time, found.end), (0x0709, 0x0302_0105, 64));
        let wide = Type::Integer(Integer::unsigned(64, ByteOrder::Little).with_clock("c"));
        assert_eq!(
            ShortHeader::of(
                &Struct::new(vec![Field::new("id", id), Field::new("timestamp", wide)]),
                Version::One
            ),
            None
        );
    }
}
