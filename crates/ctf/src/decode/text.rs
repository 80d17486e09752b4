//! Text in encodings other than UTF-8.

use crate::metadata::{ByteOrder, Encoding};

/// Returns the size in bytes of the text before the first code unit that is 0; `None` without one.
pub(super) fn length(bytes: &[u8], encoding: Encoding) -> Option<usize> {
    let unit = encoding.unit();
    bytes.chunks_exact(unit).position(|unit| unit.iter().all(|&byte| byte == 0)).map(|index| index * unit)
}

/// Appends text converted to UTF-8. Invalid characters are replaced.
pub(super) fn to_utf8(bytes: &[u8], encoding: Encoding, text: &mut Vec<u8>) {
    let mut push = |character: char| text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    match encoding {
        Encoding::None | Encoding::Utf8 | Encoding::Ascii => text.extend_from_slice(bytes),
        Encoding::Utf16(order) => {
            let units = bytes.chunks_exact(2).map(|unit| match (order, unit.first_chunk()) {
                (ByteOrder::Little, Some(&unit)) => u16::from_le_bytes(unit),
                (ByteOrder::Big, Some(&unit)) => u16::from_be_bytes(unit),
                (_, None) => 0,
            });
            let characters = char::decode_utf16(units);
            characters.for_each(|character| push(character.unwrap_or(char::REPLACEMENT_CHARACTER)));
        }
        Encoding::Utf32(order) => {
            let units = bytes.chunks_exact(4).map(|unit| match (order, unit.first_chunk()) {
                (ByteOrder::Little, Some(&unit)) => u32::from_le_bytes(unit),
                (ByteOrder::Big, Some(&unit)) => u32::from_be_bytes(unit),
                (_, None) => 0,
            });
            units.for_each(|unit| push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)));
        }
    }
}
