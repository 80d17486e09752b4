//! Codec for numbers and texts: LEB128, seven bits per byte. The reader accepts arbitrary bytes.

/// Error for bytes that this code can't have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(pub &'static str);

/// Maximum length of a text, in bytes; longer texts are cut.
pub const MAX_TEXT: usize = 4096;

/// Encoder; small numbers take few bytes.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Appends a number, in one to ten bytes.
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Appends a signed number; values near zero take few bytes (zigzag).
    pub fn signed(&mut self, number: i64) {
        self.number((number << 1 ^ number >> 63) as u64);
    }

    /// Appends a text, cut at [`MAX_TEXT`].
    pub fn text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let bytes = bytes.get(..MAX_TEXT).unwrap_or(bytes);
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Returns all encoded bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Decoder for the bytes of a [`Writer`].
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts at the beginning of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads a number.
    ///
    /// # Errors
    /// If the bytes end within the number, or it has more than 64 bits.
    pub fn number(&mut self) -> Result<u64, Damaged> {
        let mut number = 0;
        for place in 0..10 {
            let (byte, rest) = self.0.split_first().ok_or(Damaged("bytes end within a number"))?;
            self.0 = rest;
            if place == 9 && *byte > 1 {
                break;
            }
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Damaged("a number has more than 64 bits"))
    }

    /// Reads a number that is at most `bound`.
    ///
    /// # Errors
    /// If the number is larger (`what` says of which), or as [`Reader::number`].
    pub fn up_to(&mut self, bound: u64, what: &'static str) -> Result<u64, Damaged> {
        let number = self.number()?;
        if number > bound { Err(Damaged(what)) } else { Ok(number) }
    }

    /// Reads a signed number.
    ///
    /// # Errors
    /// As [`Reader::number`].
    pub fn signed(&mut self) -> Result<i64, Damaged> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Reads a text; invalid UTF-8 is replaced.
    ///
    /// # Errors
    /// If the bytes end within the text, or it is too long.
    pub fn text(&mut self) -> Result<String, Damaged> {
        let length = self.up_to(MAX_TEXT as u64, "a text is too long")? as usize;
        let (text, rest) = self.0.split_at_checked(length).ok_or(Damaged("bytes end within a text"))?;
        self.0 = rest;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    /// If bytes are left.
    pub fn end(&self) -> Result<(), Damaged> {
        if self.0.is_empty() { Ok(()) } else { Err(Damaged("more bytes than belong there")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_come_back() {
        let numbers = [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX];
        let signed = [0, -1, 1, -64, 64, i64::MIN, i64::MAX];
        let mut writer = Writer::default();
        numbers.iter().for_each(|number| writer.number(*number));
        signed.iter().for_each(|number| writer.signed(*number));
        writer.text("robot ü");
        writer.text(&"x".repeat(5000));
        let bytes = writer.into_bytes();
        let mut reader = Reader::new(&bytes);
        assert_eq!(numbers.map(|_| reader.number().unwrap()), numbers);
        assert_eq!(signed.map(|_| reader.signed().unwrap()), signed);
        assert_eq!(reader.text().unwrap(), "robot ü");
        assert_eq!(reader.text().unwrap().len(), MAX_TEXT);
        reader.end().unwrap();
    }

    #[test]
    fn small_numbers_are_short() {
        let length = |number| {
            let mut writer = Writer::default();
            writer.number(number);
            writer.into_bytes().len()
        };
        assert_eq!([0, 127, 128, 16_383, 16_384, u64::MAX].map(length), [1, 1, 2, 2, 3, 10]);
    }

    #[test]
    fn invalid_bytes_are_refused() {
        for bytes in [
            &[][..],
            &[0x80],
            &[0xff; 10],
            &[0xff; 9],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert!(Reader::new(bytes).number().is_err(), "{bytes:?}");
        }
        assert!(Reader::new(&[5, b'a']).text().is_err());
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 1]).text().is_err());
        assert_eq!(Reader::new(&[2, 0xff, b'a']).text().unwrap(), "\u{fffd}a");
        assert!(Reader::new(&[0]).end().is_err());
    }
}
