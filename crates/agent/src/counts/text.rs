//! Texts as words of a key.

/// Bytes of a text up to its end or its first NUL, in at most `WORDS` words of a key. A text is
/// read once: another thread may change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextWords<const WORDS: usize> {
    words: [u64; WORDS],
    used: usize,
    /// Number of bytes.
    pub len: usize,
    /// Whether the text goes on behind them.
    pub is_cut: bool,
}

impl<const WORDS: usize> TextWords<WORDS> {
    /// The words of a text.
    pub fn of(text: &[u8]) -> Self {
        let mut all = Self { words: [0; WORDS], used: 0, len: 0, is_cut: false };
        let mut rest = text;
        for place in &mut all.words {
            let word = if rest.len() < 8 { last_word(rest) } else { whole_word(rest) };
            let (word, len) = before_nul(word);
            *place = word;
            all.used += usize::from(len != 0);
            all.len += len;
            if len < 8 {
                return all;
            }
            rest = rest.get(8..).unwrap_or(&[]);
        }
        all.is_cut = rest.first().is_some_and(|byte| *byte != 0);
        all
    }

    /// The words that have bytes of the text.
    pub fn used(&self) -> &[u64] {
        self.words.get(..self.used).unwrap_or(&self.words)
    }
}

/// A text of at most `WORDS` words that has no NUL but at its end. Its words are read where they
/// are, more than once.
#[derive(Clone, Copy, Debug)]
pub struct PlainText<'a, const WORDS: usize> {
    whole: &'a [u8],
    /// The last word, if it has a byte of the text.
    last: Option<u64>,
    /// Number of bytes.
    pub len: usize,
}

impl<'a, const WORDS: usize> PlainText<'a, WORDS> {
    /// The text, if it is such a one.
    #[inline(always)]
    pub fn of(text: &'a [u8]) -> Option<Self> {
        if text.len() >= WORDS * 8 {
            return None;
        }
        // The last word has at least a byte, because it may be the NUL.
        let whole = text.get(..text.len().saturating_sub(1) & !7)?;
        if whole.chunks_exact(8).fold(0, |nuls, chunk| nuls | nuls_in(whole_word(chunk))) != 0 {
            return None;
        }
        let (last, len) = before_nul(last_word(text));
        Some(Self { whole, last: (len != 0).then_some(last), len: whole.len() + len })
    }

    /// The words.
    #[inline(always)]
    pub fn words(self) -> impl Iterator<Item = u64> + Clone {
        self.whole.chunks_exact(8).map(whole_word).chain(self.last)
    }
}

/// Eight bytes, the first one lowest.
#[inline(always)]
fn whole_word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Up to eight bytes at the end, behind a multiple of eight; the others are zero.
#[inline(always)]
fn last_word(text: &[u8]) -> u64 {
    match text.last_chunk() {
        Some(last) => u64::from_le_bytes(*last) >> (8 * (text.len().wrapping_neg() % 8)),
        None => short_word(text),
    }
}

/// Up to seven bytes.
#[inline(always)]
fn short_word(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => {
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            u64::from(first) | u64::from(last) << (8 * (bytes.len() - 4))
        }
        _ => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// The bytes of a word below the first that is zero, and their number.
#[inline(always)]
const fn before_nul(word: u64) -> (u64, usize) {
    let nuls = nuls_in(word);
    // All bits below the lowest one; all bits if there is none.
    let below = nuls.wrapping_sub(1) & !nuls;
    (word & below, nuls.trailing_zeros() as usize / 8)
}

/// Not zero if a byte of the word is; the lowest bit is in the first such byte.
#[inline(always)]
const fn nuls_in(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    // A borrow, which would make a bit of a byte that is not zero, comes only from a lower one.
    word.wrapping_sub(ONES) & !word & ONES << 7
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, byte by byte.
    fn expected<const WORDS: usize>(text: &[u8]) -> TextWords<WORDS> {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        let len = end.min(WORDS * 8);
        let mut words = [0; WORDS];
        for (index, byte) in text[..len].iter().enumerate() {
            words[index / 8] |= u64::from(*byte) << (8 * (index % 8));
        }
        TextWords { words, used: len.div_ceil(8), len, is_cut: end > WORDS * 8 }
    }

    #[test]
    fn words_are_the_bytes_before_the_first_nul() {
        for size in 0..70 {
            let text: Vec<u8> = (0..size).map(|index| [0x01, 0x80, 0xff, b'a'][index % 4]).collect();
            for nul in 0..=size {
                let mut text = text.clone();
                text.iter_mut().skip(nul).take(1).for_each(|byte| *byte = 0);
                assert_eq!(TextWords::<6>::of(&text), expected(&text), "{text:?}");
                assert_eq!(TextWords::<3>::of(&text), expected(&text), "{text:?}");
                assert_eq!(TextWords::<6>::of(&text).used().len(), expected::<6>(&text).used);
            }
        }
    }

    #[test]
    fn plain_texts_have_the_same_words() {
        for size in 0..60 {
            let mut text: Vec<u8> = (0..size).map(|index| [0x01, 0x80, 0xff, b'a'][index % 4]).collect();
            for ending in [&[][..], &[0]] {
                text.extend(ending);
                let plain = PlainText::<6>::of(&text);
                assert_eq!(plain.is_some(), text.len() < 48, "{text:?}");
                if let Some(plain) = plain {
                    assert!(plain.words().eq(expected::<6>(&text).used().iter().copied()), "{text:?}");
                    assert_eq!(plain.len, size);
                }
            }
        }
        assert!(PlainText::<6>::of(b"GET\0POST more").is_none());
    }

    #[test]
    fn bytes_behind_a_nul_are_left_out() {
        assert_eq!(TextWords::<6>::of(b"GET\0POST"), TextWords::of(b"GET"));
        assert_eq!(TextWords::<6>::of(b"GET /abc\0"), TextWords::of(b"GET /abc"));
    }
}
