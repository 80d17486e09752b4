//! Event headers of the usual form, read by one load.
//!
//! ```text
//! bits   0      id_bits   time_shift        time_shift + time_bits
//!        │ id    │ (gap)   │ timestamp       │
//! ```
//!
//! Both numbers are little-endian and lie within eight bytes. In headers of tracers, one value of
//! the number selects a longer form that follows, with its own number and timestamp:
//!
//! ```text
//! bytes  id           time                 size
//!        │ id         │ timestamp (8)      │
//! ```
//!
//! Any other header, and one too close to the end of the input, is decoded by the plan.

use super::bits::mask;
use super::run::Input;
use crate::metadata::{
    ByteOrder, Enum, Field, Form, Integer, OptionRange, Role, Scope, Selection, Struct, Type, Variant,
    Version,
};

/// Positions of the two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShortHeader {
    align_mask: u64,
    id_bits: u32,
    /// Limit of the event class numbers in the short form.
    id_limit: u64,
    time_shift: u32,
    /// Size of the timestamp in bits.
    time_bits: u32,
    long: Option<LongHeader>,
}

/// Positions of the two numbers in the longer form, in bytes from the beginning of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LongHeader {
    /// Range of numbers that select the longer form.
    first: u64,
    last: u64,
    id: usize,
    id_bits: u32,
    time: usize,
    size: usize,
}

/// Decoded header.
pub(super) struct Short {
    pub id: u64,
    pub time: u64,
    /// Size of the timestamp in bits.
    pub time_bits: u32,
    pub end: u64,
}

impl ShortHeader {
    /// Recognizes a header of the usual form.
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
        let (time, options) = match (&first.ty, &second.ty) {
            (Type::Integer(_), Type::Integer(time)) => (time, None),
            (_, Type::Variant(variant)) if variant.selector.path == [first.name.as_str()] => {
                let options = match (&first.ty, &variant.selection) {
                    (Type::Enum(labels), Selection::Labels(_)) => by_label(labels, variant)?,
                    (_, Selection::Ranges(ranges)) => by_range(variant, ranges)?,
                    _ => return None,
                };
                (short_time(options.short)?, Some(options))
            }
            _ => return None,
        };
        let id_limit = options.as_ref().map_or(u64::MAX, |options| options.limit);
        let long = options.and_then(|options| LongHeader::of(&options, id.bits, header, version));
        let time_shift = id.bits.next_multiple_of(time.alignment.max(1));
        let fits = time_shift + time.bits <= 64 && time.bits < 64 && id.clock.is_none();
        // Otherwise the gap would depend on the position of the header.
        let steady = header.effective_alignment() >= time.alignment;
        let sound = is_plain(time) && is_time(time) && fits && steady;
        sound.then_some(Self {
            align_mask,
            id_bits: id.bits,
            id_limit,
            time_shift,
            time_bits: time.bits,
            long,
        })
    }

    /// Reads the header at a bit position, if it has the short form.
    #[inline]
    pub fn read(&self, input: Input<'_>, bit: u64) -> Option<Short> {
        let begin = bit.checked_add(bit.wrapping_neg() & self.align_mask)?;
        let bytes = input.bytes().get(usize::try_from(begin / 8).ok()?..)?;
        let word = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
        let id = word & mask(self.id_bits);
        let found = if id < self.id_limit {
            let end = begin + u64::from(self.time_shift + self.time_bits);
            let time = word >> self.time_shift & mask(self.time_bits);
            Short { id, time, time_bits: self.time_bits, end }
        } else {
            self.long.as_ref().filter(|long| (long.first..=long.last).contains(&id))?.read(bytes, begin)?
        };
        (found.end <= input.bits()).then_some(found)
    }
}

impl LongHeader {
    /// Recognizes the longer form: a number and a whole timestamp, at known positions.
    fn of(options: &Options<'_>, bits: u32, header: &Struct, version: Version) -> Option<Self> {
        let Type::Struct(Struct { fields, .. }) = options.long else { return None };
        let [number, time] = fields.as_slice() else { return None };
        let (Type::Integer(id), Type::Integer(stamp)) = (&number.ty, &time.ty) else { return None };
        let is_sound = is_plain(id) && is_id(number, id, version) && is_plain(stamp) && is_time(stamp);
        let steady = header.effective_alignment() >= options.long.alignment();
        let option = bits.next_multiple_of(options.long.alignment().max(1));
        let id_place = option.next_multiple_of(id.alignment.max(1));
        let time_place = (id_place + id.bits).next_multiple_of(stamp.alignment.max(1));
        let whole = id_place % 8 == 0 && time_place % 8 == 0 && matches!(id.bits, 8 | 16 | 32 | 64);
        let fits = is_sound && steady && whole && id.clock.is_none() && stamp.bits == 64;
        fits.then_some(Self {
            first: options.limits.0,
            last: options.limits.1,
            id: (id_place / 8) as usize,
            id_bits: id.bits,
            time: (time_place / 8) as usize,
            size: (time_place / 8) as usize + 8,
        })
    }

    #[inline]
    fn read(&self, bytes: &[u8], begin: u64) -> Option<Short> {
        let bytes = bytes.get(..self.size)?;
        let time = u64::from_le_bytes(*bytes.get(self.time..)?.first_chunk()?);
        // The timestamp follows the number, so there are eight bytes from here on.
        let id = u64::from_le_bytes(*bytes.get(self.id..)?.first_chunk()?) & mask(self.id_bits);
        Some(Short { id, time, time_bits: 64, end: begin + self.size as u64 * 8 })
    }
}

/// Two options of a header.
struct Options<'t> {
    short: &'t Type,
    /// First number that is not of the short form.
    limit: u64,
    long: &'t Type,
    /// First and last number that select the longer form.
    limits: (u64, u64),
}

/// Whether a field is the number of the event class, and nothing else.
fn is_id(field: &Field, integer: &Integer, version: Version) -> bool {
    match version {
        Version::One => Role::of_name(Scope::EventHeader, &field.name) == Some(Role::EventId),
        Version::Two => integer.roles.iter().eq([Role::EventId]),
    }
}

/// Whether an integer is a clock value, and nothing else.
fn is_time(integer: &Integer) -> bool {
    integer.clock.is_some() && integer.roles.is_empty()
}

/// Returns the options that numbers select by their labels.
fn by_label<'t>(labels: &Enum, variant: &'t Variant) -> Option<Options<'t>> {
    let [short, long] = labels.mappings.as_slice() else { return None };
    let option = |label: &str| variant.options.get(variant.selection.option_of(label, &labels.mappings)?);
    let limit = u64::try_from(short.high.checked_add(1)?).ok()?;
    let limits = (u64::try_from(long.low).ok()?, u64::try_from(long.high).ok()?);
    let options = Options { short: &option(&short.label)?.ty, limit, long: &option(&long.label)?.ty, limits };
    (short.low == 0 && long.low > short.high).then_some(options)
}

/// Returns the options that numbers select by their ranges.
fn by_range<'t>(variant: &'t Variant, ranges: &[OptionRange]) -> Option<Options<'t>> {
    let [first, second] = ranges else { return None };
    let (short, long) = if first.low == 0 { (first, second) } else { (second, first) };
    let option = |index: usize| variant.options.get(index);
    let limit = u64::try_from(short.high.checked_add(1)?).ok()?;
    let limits = (u64::try_from(long.low).ok()?, u64::try_from(long.high).ok()?);
    let options = Options { short: &option(short.option)?.ty, limit, long: &option(long.option)?.ty, limits };
    (short.low == 0 && long.low > short.high).then_some(options)
}

/// Returns the timestamp that is the only content of an option.
fn short_time(option: &Type) -> Option<&Integer> {
    let Type::Struct(Struct { fields, .. }) = option else { return None };
    let [Field { ty: Type::Integer(time), .. }] = fields.as_slice() else { return None };
    // The structure's alignment must not move the timestamp beyond its own alignment.
    (option.alignment() == time.alignment.max(1)).then_some(time)
}

fn is_plain(integer: &Integer) -> bool {
    let is_little = integer.byte_order == ByteOrder::Little && integer.form == Form::Fixed;
    is_little && !integer.signed && (1..=64).contains(&integer.bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Mapping, Reference};

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

    #[test]
    fn the_longer_form_has_both_numbers() {
        let little = ByteOrder::Little;
        let time = |bits| Type::Integer(Integer::unsigned(bits, little).with_clock("c").with_alignment(1));
        let id = Type::Integer(Integer::unsigned(32, little).with_alignment(8));
        let whole = Type::Integer(Integer::unsigned(64, little).with_clock("c").with_alignment(8));
        let mapping = |low, high, label: &str| Mapping { low, high, label: label.into() };
        let integer = Integer::unsigned(5, little).with_alignment(1);
        let labels = Enum { integer, mappings: vec![mapping(0, 30, "short"), mapping(31, 31, "long")] };
        let option = |fields: Vec<Field>| Type::Struct(Struct { alignment: 1, fields });
        let variant = Variant::of_labels(
            Reference { scope: Scope::EventHeader, path: vec!["id".into()] },
            vec![
                Field::new("short", option(vec![Field::new("timestamp", time(27))])),
                Field::new("long", option(vec![Field::new("id", id), Field::new("timestamp", whole)])),
            ],
        );
        let fields = vec![Field::new("id", Type::Enum(labels)), Field::new("v", Type::Variant(variant))];
        let header = Struct { alignment: 8, fields };
        let form = ShortHeader::of(&header, Version::One).unwrap();
        let mut bytes = vec![0xff, 0x34, 0x12, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let found = form.read(Input::new(&bytes, u64::MAX), 0).unwrap();
        assert_eq!((found.id, found.time, found.time_bits), (0x1234, 0x0807_0605_0403_0201, 64));
        assert_eq!(found.end, 13 * 8);
        assert!(form.read(Input::new(&bytes, 103), 0).is_none(), "one bit is missing");
        bytes[0] = 3 | 1 << 5;
        let found = form.read(Input::new(&bytes, u64::MAX), 0).unwrap();
        assert_eq!((found.id, found.time, found.end), (3, 0x91a1, 32));
    }
}
