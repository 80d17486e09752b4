//! Reads integers at any bit position.
//!
//! Little-endian integers fill each byte from its least significant bit, big-endian ones from its
//! most significant bit.

use crate::metadata::ByteOrder;

/// Reads an unsigned integer of 1 to 64 bits at `bit`; `None` if it extends beyond the bytes.
#[inline]
pub(super) fn read(bytes: &[u8], bit: u64, bits: u32, order: ByteOrder) -> Option<u64> {
    let first = usize::try_from(bit / 8).ok()?;
    let shift = (bit % 8) as u32;
    let word = bytes.get(first..).and_then(|rest| rest.first_chunk::<8>());
    if let Some(&word) = word.filter(|_| shift + bits <= 64) {
        let value = match order {
            ByteOrder::Little => u64::from_le_bytes(word) >> shift,
            ByteOrder::Big => u64::from_be_bytes(word) << shift >> (64 - bits),
        };
        return Some(value & mask(bits));
    }
    read_at_end(bytes, first, (shift, bits), order)
}

/// Reads an integer in the last bytes, or one that spans nine bytes.
fn read_at_end(bytes: &[u8], first: usize, (shift, bits): (u32, u32), order: ByteOrder) -> Option<u64> {
    let size = (shift + bits).div_ceil(8) as usize;
    let source = bytes.get(first..first.checked_add(size)?)?;
    let mut wide: u128 = 0;
    match order {
        ByteOrder::Little => {
            for (index, &byte) in source.iter().enumerate() {
                wide |= u128::from(byte) << (8 * index);
            }
            wide >>= shift;
        }
        ByteOrder::Big => {
            for &byte in source {
                wide = wide << 8 | u128::from(byte);
            }
            wide >>= 8 * size as u32 - shift - bits;
        }
    }
    Some(wide as u64 & mask(bits))
}

/// Returns a mask of the lowest `bits` bits; all bits from 64 on.
pub(super) const fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Sign-extends a two's complement integer of `bits` bits to 64 bits.
pub(super) const fn extend_sign(value: u64, bits: u32) -> u64 {
    let unused = 64u32.saturating_sub(bits);
    if unused >= 64 { 0 } else { (((value << unused) as i64) >> unused) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_numbered_by_the_byte_order() {
        let bytes = [0b1011_0010, 0b0100_1101, 0xff];
        let little = |bit, bits| read(&bytes, bit, bits, ByteOrder::Little);
        let big = |bit, bits| read(&bytes, bit, bits, ByteOrder::Big);
        assert_eq!((little(0, 3), big(0, 3)), (Some(0b010), Some(0b101)));
        assert_eq!((little(3, 5), big(3, 5)), (Some(0b10110), Some(0b10010)));
        assert_eq!((little(6, 4), big(6, 4)), (Some(0b0110), Some(0b1001)));
        assert_eq!((little(16, 8), little(17, 8)), (Some(255), None));
        assert_eq!(read(&[0xff; 9], 3, 64, ByteOrder::Big), Some(u64::MAX));
        assert_eq!(read(&bytes, u64::MAX, 64, ByteOrder::Big), None);
    }

    #[test]
    fn signs_are_extended() {
        assert_eq!(extend_sign(0b101, 3) as i64, -3);
        assert_eq!(extend_sign(0b011, 3) as i64, 3);
        assert_eq!(extend_sign(u64::MAX, 64) as i64, -1);
    }
}
