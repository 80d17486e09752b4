//! Appends values at any bit position, as the counterpart of the decoder.

use tompion_ctf::metadata::ByteOrder;

/// Growing buffer of bits.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    bytes: Vec<u8>,
    /// Number of bits written.
    len: u64,
}

impl Bits {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.len = 0;
    }

    /// Returns the number of bits written.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the written bytes, the last one filled up.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Truncates to a bit position. Remaining bits of the last byte are overwritten by the next
    /// value.
    pub fn truncate(&mut self, bits: u64) {
        self.bytes.truncate(bits.div_ceil(8) as usize);
        self.len = self.len.min(bits);
    }

    /// Aligns to a multiple of this many bits, a power of two.
    pub fn align(&mut self, alignment: u32) {
        let gap = self.len.wrapping_neg() & u64::from(alignment.max(1) - 1);
        self.len += gap;
        self.bytes.resize(self.len.div_ceil(8) as usize, 0);
    }

    /// Appends whole bytes at a byte boundary.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        self.align(8);
        self.bytes.extend_from_slice(bytes);
        self.len += bytes.len() as u64 * 8;
    }

    /// Appends the lowest `bits` bits of a value, 1 to 64, at any position.
    pub fn put(&mut self, value: u64, bits: u32, order: ByteOrder) {
        let whole = (bits / 8) as usize;
        if self.len % 8 == 0 && bits % 8 == 0 {
            match order {
                ByteOrder::Little => self.bytes.extend(value.to_le_bytes().into_iter().take(whole)),
                ByteOrder::Big => self.bytes.extend(value.to_be_bytes().into_iter().skip(8 - whole)),
            }
            self.len += u64::from(bits);
            return;
        }
        for index in 0..bits {
            let (source, place) = match order {
                ByteOrder::Little => (index, self.len % 8),
                ByteOrder::Big => (bits - 1 - index, 7 - self.len % 8),
            };
            if self.len % 8 == 0 {
                self.bytes.push(0);
            }
            let bit = u8::from(value >> source & 1 == 1) << place;
            if let Some(last) = self.bytes.last_mut() {
                *last = *last & !(1 << place) | bit;
            }
            self.len += 1;
        }
    }

    /// Appends a value of variable size (LEB128): seven bits per byte, the lowest first.
    pub fn put_variable(&mut self, value: u64, signed: bool) {
        self.align(8);
        let mut rest = value;
        loop {
            let part = (rest & 0x7f) as u8;
            rest = if signed { ((rest as i64) >> 7) as u64 } else { rest >> 7 };
            let sign = part & 0x40 != 0;
            let is_last = if signed { rest == 0 && !sign || rest == u64::MAX && sign } else { rest == 0 };
            self.bytes.push(if is_last { part } else { part | 0x80 });
            self.len += 8;
            if is_last {
                return;
            }
        }
    }

    /// Overwrites eight bytes at a byte position, little-endian.
    pub fn patch(&mut self, byte: usize, value: u64) {
        if let Some(place) = self.bytes.get_mut(byte..byte + 8) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tompion_ctf::decode::{Decoder, Input, Value};
    use tompion_ctf::metadata::{Event, Field, Integer, Stream, Struct, Trace, Type, Version};

    /// Values that the decoder reads back.
    fn decoded(integers: &[(Integer, u64)]) -> Vec<u64> {
        let mut bits = Bits::default();
        let mut fields = Vec::new();
        for (index, (integer, value)) in integers.iter().enumerate() {
            fields.push(Field::new(&format!("f{index}"), Type::Integer(integer.clone())));
            match integer.form {
                tompion_ctf::metadata::Form::Variable => bits.put_variable(*value, integer.signed),
                _ => {
                    bits.align(integer.alignment);
                    bits.put(*value, integer.bits, integer.byte_order);
                }
            }
        }
        let payload = Some(Struct { fields, alignment: 1 });
        let stream = Stream { events: vec![Event { payload, ..Event::default() }], ..Stream::default() };
        let trace = Trace { version: Version::Two, streams: vec![stream], ..Trace::default() };
        let decoder = Decoder::new(trace).unwrap();
        let (mut state, input) = (decoder.state(), Input::new(bits.bytes(), bits.len()));
        let body = decoder.event_body(0, 0, input, (0, &mut state)).unwrap();
        assert_eq!(body.end, bits.len());
        let fields = decoder.payload((0, 0), body, input, &state);
        let value = |value: Value<'_>| value.as_integer().unwrap() as u64;
        fields.map(|(_, found)| value(found)).collect()
    }

    #[test]
    fn what_is_written_at_any_bit_is_read_there() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let integers: Vec<_> =
                [(3, 5), (7, 0x55), (64, 0x0123_4567_89ab_cdef), (1, 1), (13, 0x1234), (8, 255)]
                    .map(|(bits, value)| (Integer::unsigned(bits, order).with_alignment(1), value))
                    .into();
            let expected: Vec<u64> = integers.iter().map(|(_, value)| *value).collect();
            assert_eq!(decoded(&integers), expected);
        }
        let aligned = Integer::unsigned(16, ByteOrder::Big).with_alignment(32);
        let flag = Integer::unsigned(1, ByteOrder::Big);
        assert_eq!(decoded(&[(flag, 1), (aligned, 0xbeef)]), [1, 0xbeef]);
    }

    #[test]
    fn integers_take_the_bytes_that_they_need() {
        for value in [0i64, 1, -1, 63, 64, -64, -65, i64::MAX, i64::MIN] {
            assert_eq!(decoded(&[(Integer::variable(true), value as u64)]), [value as u64]);
        }
        for value in [0, 127, 128, u64::MAX] {
            assert_eq!(decoded(&[(Integer::variable(false), value)]), [value]);
        }
    }
}
