//! Entries of lanes, and their encoding in rows; blocks in the file have [`crate::columns`].
//!
//! ```text
//! style | seen | merged   1 byte: 5 bits, 1 for each end, 1
//! begin                   varint, zigzag: relative to the end of the previous entry
//! duration, label, extra  varints
//! count                   varint, if merged
//! last, min, max          8 bytes each, of counters; min and max if merged
//! ```
//!
//! An entry of a busy lane takes seven or eight bytes.

use crate::extra::Extra;
use crate::slice_kind;

/// Slice, point or mark of a lane, or several of them merged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Entry {
    /// Begin in nanoseconds from the index's base.
    pub begin: i64,
    /// End in nanoseconds from the index's base; equal to the begin if it takes no time.
    pub end: i64,
    /// One of [`crate::slice_kind`].
    pub style: u8,
    /// Whether its begin (bit 0) and its end (bit 1) were observed.
    pub seen: u8,
    /// Number of its label; 0 for none.
    pub label: u32,
    /// Data of its kind: a thread, a CPU, the source of a wakeup.
    pub extra: Extra,
    /// Number of merged entries; 1 for a single one.
    pub count: u64,
    /// Values of a counter.
    pub values: Values,
}

/// Values of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Values {
    /// Last value.
    pub last: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

impl Values {
    /// Makes the values of a single point.
    pub fn one(value: f64) -> Self {
        Self { last: value, min: value, max: value }
    }
}

/// Minimum bytes of an entry: the first byte and four varints.
pub const MIN_BYTES: u32 = 5;
/// Bits of the first byte that tell the kind.
pub const STYLE_MASK: u8 = 0x1f;
/// Bit of the first byte of merged entries.
pub const MERGED: u8 = 0x80;

impl Entry {
    /// Appends the entry; `last` is the end of the previous one and is updated.
    pub fn write(&self, last: &mut i64, bytes: &mut Vec<u8>) {
        let merged = self.count != 1;
        bytes.push(self.style & STYLE_MASK | (self.seen & 3) << 5 | if merged { MERGED } else { 0 });
        write_number(zigzag(self.begin.wrapping_sub(*last)), bytes);
        write_number(self.end.saturating_sub(self.begin).max(0) as u64, bytes);
        write_number(self.label.into(), bytes);
        write_number(self.extra.encode(self.style), bytes);
        if merged {
            write_number(self.count, bytes);
        }
        if self.style == slice_kind::COUNTER {
            bytes.extend(self.values.last.to_le_bytes());
            if merged {
                bytes.extend(self.values.min.to_le_bytes());
                bytes.extend(self.values.max.to_le_bytes());
            }
        }
        *last = self.end.max(self.begin);
    }

    /// Reads the next entry; `None` at the end or if the bytes are invalid.
    pub fn read(last: &mut i64, bytes: &mut &[u8]) -> Option<Self> {
        let (&head, rest) = bytes.split_first()?;
        *bytes = rest;
        let merged = head & MERGED != 0;
        let begin = last.wrapping_add(unzigzag(read_number(bytes)?));
        let end = begin.saturating_add_unsigned(read_number(bytes)?);
        let label = read_number(bytes)?.try_into().ok()?;
        let extra = Extra::decode(head & STYLE_MASK, read_number(bytes)?)?;
        let count = if merged { read_number(bytes)? } else { 1 };
        let mut entry = Self {
            begin,
            end,
            style: head & STYLE_MASK,
            seen: head >> 5 & 3,
            label,
            extra,
            count,
            values: Values::default(),
        };
        if entry.style == slice_kind::COUNTER {
            entry.values = Values::one(read_float(bytes)?);
            if merged {
                entry.values.min = read_float(bytes)?;
                entry.values.max = read_float(bytes)?;
            }
        }
        *last = end;
        Some(entry)
    }

    /// Returns the duration in nanoseconds.
    pub fn duration(&self) -> i64 {
        self.end.saturating_sub(self.begin)
    }
}

/// Appends a number as a varint.
pub fn write_number(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a varint.
#[inline]
pub fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0u64, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(number);
        }
        shift += 7;
    }
}

fn read_float(bytes: &mut &[u8]) -> Option<f64> {
    let (value, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(f64::from_le_bytes(*value))
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_were() {
        let plain = Entry {
            begin: 5,
            end: 17,
            style: slice_kind::RUNNING,
            seen: 3,
            label: 7,
            extra: Extra::Cpu(42),
            count: 1,
            ..Entry::default()
        };
        let many = Entry {
            begin: -3,
            end: i64::MAX / 2,
            count: 1 << 40,
            extra: Extra::Thread(u32::MAX),
            seen: 1,
            ..plain
        };
        let point =
            Entry { style: slice_kind::COUNTER, extra: Extra::None, values: Values::one(-1.5), ..plain };
        let points = Entry { count: 3, values: Values { last: 1.0, min: 0.25, max: 1e9 }, ..point };
        let entries = [plain, many, point, points, plain];
        let (mut bytes, mut last) = (Vec::new(), 0);
        entries.iter().for_each(|entry| entry.write(&mut last, &mut bytes));
        let (mut rest, mut last) = (bytes.as_slice(), 0);
        for entry in entries {
            assert_eq!(Entry::read(&mut last, &mut rest), Some(entry));
        }
        assert_eq!(Entry::read(&mut last, &mut rest), None);
    }

    #[test]
    fn bytes_that_are_none_of_ours_end_it() {
        for bytes in
            [&[0x80u8][..], &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], &[31]]
        {
            let (mut rest, mut last) = (bytes, i64::MAX);
            while Entry::read(&mut last, &mut rest).is_some() {}
        }
    }
}
