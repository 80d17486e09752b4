//! Converts numbers to text, eight digits at a time.
//!
//! Digits are computed in all bytes of a word at once, the first digit in the lowest byte. Always a
//! whole word is appended, and its unused part is truncated: a copy of constant size is a single
//! store.

/// 10⁸: a number below it splits into two numbers from 0 to 9999, one in each half.
const EIGHT: u32 = 100_000_000;
/// Character `0` in each byte.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Returns the eight digits of a number below 10⁸, as numbers.
#[inline]
fn digits(number: u32) -> u64 {
    // Two numbers below 10⁴, four below 100, eight below 10. The factors are reciprocals, exact for
    // such numbers.
    let pair = u64::from(number / 10_000) | u64::from(number % 10_000) << 32;
    let hundreds = (pair * 10_486) >> 20 & 0x0000_007f_0000_007f;
    let fours = hundreds | (pair - hundreds * 100) << 16;
    let tens = (fours * 103) >> 10 & 0x000f_000f_000f_000f;
    tens | (fours - tens * 10) << 8
}

/// Returns the eight digits of a number below 10⁸, with leading zeros.
#[inline]
fn eight(number: u32) -> [u8; 8] {
    (digits(number) | ZEROS).to_le_bytes()
}

/// Writes the nine digits of a number below 10⁹.
#[inline]
pub(super) fn nine(number: u32, text: &mut [u8; 9]) {
    let [first, rest @ ..] = text;
    *first = b'0' + (number / EIGHT % 10) as u8;
    *rest = eight(number % EIGHT);
}

/// Appends an unsigned number.
#[inline]
pub(super) fn unsigned(number: u64, line: &mut Vec<u8>) {
    if number < u64::from(EIGHT) {
        let digits = digits(number as u32);
        let zeros = (digits.trailing_zeros() / 8).min(7);
        line.extend_from_slice(&((digits | ZEROS) >> (zeros * 8)).to_le_bytes());
        line.truncate(line.len() - zeros as usize);
    } else {
        large(number, line);
    }
}

/// Appends a number of more than eight digits.
fn large(number: u64, line: &mut Vec<u8>) {
    unsigned(number / u64::from(EIGHT), line);
    line.extend_from_slice(&eight((number % u64::from(EIGHT)) as u32));
}

/// Appends a signed number.
#[inline]
pub(super) fn signed(number: i64, line: &mut Vec<u8>) {
    if number < 0 {
        line.push(b'-');
    }
    unsigned(number.unsigned_abs(), line);
}

/// Returns the hexadecimal digits of a number, the first in the highest byte.
#[inline]
fn nibbles(number: u32) -> u64 {
    let mut word = u64::from(number);
    word = (word | word << 16) & 0x0000_ffff_0000_ffff;
    word = (word | word << 8) & 0x00ff_00ff_00ff_00ff;
    word = (word | word << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // For digits from ten on, adding six carries into the fifth bit; they are letters.
    let letters = (word + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    (word | ZEROS) + letters * u64::from(b'A' - b'9' - 1)
}

/// Appends a number in base 16, without leading zeros.
#[inline]
pub(super) fn hexadecimal(number: u64, line: &mut Vec<u8>) {
    let zeros = (number.leading_zeros() / 4).min(15);
    let text = u128::from(nibbles((number >> 32) as u32)) << 64 | u128::from(nibbles(number as u32));
    line.extend_from_slice(&(text << (zeros * 8)).to_be_bytes());
    line.truncate(line.len() - zeros as usize);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers around all powers of both bases, and some between.
    fn numbers() -> impl Iterator<Item = u64> {
        let powers =
            (0..20).map(|exponent| 10u64.saturating_pow(exponent)).chain((0..64).map(|bit| 1 << bit));
        let scattered = (1..2000u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let near = powers.flat_map(|power| [power - 1, power, power.saturating_add(1), power / 7 * 5]);
        near.chain(scattered.clone()).chain(scattered.map(|number| number >> (number % 64))).chain([u64::MAX])
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_does() {
        for number in numbers().chain(0..20_000) {
            let mut line = b"x".to_vec();
            unsigned(number, &mut line);
            signed(number as i64, &mut line);
            hexadecimal(number, &mut line);
            let expected = format!("x{number}{}{number:X}", number as i64);
            assert_eq!(String::from_utf8_lossy(&line), expected);
        }
    }

    #[test]
    fn fractions_of_a_second_have_nine_digits() {
        for number in numbers().map(|number| (number % 1_000_000_000) as u32) {
            let mut text = [0; 9];
            nine(number, &mut text);
            assert_eq!(String::from_utf8_lossy(&text), format!("{number:09}"));
        }
    }
}
