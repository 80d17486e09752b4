//! Marks of programs (USDT): the notes that `sys/sdt.h` leaves in a file, and its little language
//! for arguments.
//!
//! Source: "User Space Probe Implementation" of SystemTap's wiki.

use super::value::{Place, Value, register};

/// A note, as it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// Address of the instruction.
    pub pc: u64,
    /// Address of `.stapsdt.base` when the note was written.
    pub base: u64,
    /// Address of the counter; 0 if there is none.
    pub semaphore: u64,
    pub provider: String,
    pub name: String,
    /// Its arguments; none for one that no register and no memory has as an integer.
    pub values: Vec<Option<Value>>,
}

/// The kind of the notes.
const STAPSDT: u32 = 3;
/// Their owner, with its NUL.
const OWNER: &[u8] = b"stapsdt\0";

/// All marks in the bytes of a section of notes, of a 64-bit little-endian file. What is no note
/// ends it.
pub(super) fn notes(mut bytes: &[u8]) -> Vec<Note> {
    let mut found = Vec::new();
    while let Some((note, rest)) = next(bytes) {
        found.extend(note);
        bytes = rest;
    }
    found
}

/// The next note, if it is of the kind, and what is behind it.
fn next(bytes: &[u8]) -> Option<(Option<Note>, &[u8])> {
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let (owner, size, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
    let begin = owner.checked_next_multiple_of(4)?.checked_add(12)?;
    let end = begin.checked_add(size)?;
    let description = bytes.get(begin..end)?;
    let is_mark = kind == STAPSDT && bytes.get(12..12 + owner)? == OWNER;
    // The last one may lack its padding.
    let rest = bytes.get(end.checked_next_multiple_of(4)?..).unwrap_or_default();
    Some((is_mark.then(|| parse(description)).flatten(), rest))
}

fn parse(description: &[u8]) -> Option<Note> {
    let word = |at: usize| Some(u64::from_le_bytes(*description.get(at..)?.first_chunk()?));
    let mut texts = description.get(24..)?.split(|byte| *byte == 0);
    let mut text = || Some(std::str::from_utf8(texts.next()?).ok()?.to_owned());
    let (provider, name, arguments) = (text()?, text()?, text()?);
    let values = words(&arguments).map(value).collect();
    Some(Note { pc: word(0)?, base: word(8)?, semaphore: word(16)?, provider, name, values })
}

/// Words, apart by white space, but for that in brackets: `8@[sp, 24]` is one.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    let ends = move |letter: char| {
        inside = letter == '[' || inside && letter != ']';
        !inside && letter.is_ascii_whitespace()
    };
    text.split(ends).filter(|word| !word.is_empty())
}

/// An argument: `-4@%eax` is a signed number of four bytes in a register.
fn value(text: &str) -> Option<Value> {
    let (size, place) = text.split_once('@')?;
    let (signed, size) = size.strip_prefix('-').map_or((false, size), |size| (true, size));
    let size = size.parse().ok().filter(|size| [1, 2, 4, 8].contains(size))?;
    Some(Value { place: self::place(place)?, size, signed })
}

fn number(text: &str) -> Option<u64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { value.wrapping_neg() } else { value })
}

/// In the words of the GNU assembler: `$-5`, `%rax`, `-24(%rbp)`, `8(%rax,%rbx,4)`. Not the places
/// of variables.
#[cfg(target_arch = "x86_64")]
fn place(text: &str) -> Option<Place> {
    let named = |text: &str| register(text.trim().strip_prefix('%')?);
    if let Some(constant) = text.strip_prefix('$') {
        return number(constant).map(Place::Constant);
    }
    if text.starts_with('%') {
        return named(text).map(Place::Register);
    }
    let (displacement, registers) = text.strip_suffix(')')?.split_once('(')?;
    let displacement = if displacement.is_empty() { 0 } else { number(displacement)? };
    let mut parts = registers.split(',');
    let base = parts.next().filter(|base| !base.is_empty()).map(named);
    let index = parts.next().map(named);
    let scale: u8 = parts.next().map_or(Some(1), |scale| scale.trim().parse().ok())?;
    // A register that isn't known is none that can be left out.
    if base == Some(None) || index == Some(None) || !scale.is_power_of_two() || scale > 8 {
        return None;
    }
    let shift = scale.trailing_zeros() as u8;
    Some(Place::Memory { base: base.flatten(), index: index.flatten(), shift, displacement })
}

/// Parses a place in the syntax of the GNU assembler: `5`, `x0`, `[sp, 24]`, `[x1]`.
#[cfg(not(target_arch = "x86_64"))]
fn place(text: &str) -> Option<Place> {
    if let Some(inside) = text.strip_prefix('[') {
        let inside = inside.strip_suffix(']')?;
        let (base, displacement) = inside.split_once(',').unwrap_or((inside, "0"));
        let base = Some(register(base.trim())?);
        let displacement = number(displacement.trim().trim_start_matches('#'))?;
        return Some(Place::Memory { base, index: None, shift: 0, displacement });
    }
    register(text).map(Place::Register).or_else(|| number(text).map(Place::Constant))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(arguments: &str) -> Vec<u8> {
        let mut description: Vec<u8> =
            [0x1000u64, 0x2000, 0x3000].iter().flat_map(|word| word.to_le_bytes()).collect();
        description.extend(b"shop\0sale\0");
        description.extend(arguments.as_bytes());
        description.push(0);
        let words = [8, description.len() as u32, STAPSDT];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(OWNER);
        bytes.extend(description);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn notes_are_found_among_others() {
        let mut bytes = note("");
        bytes.extend([4, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, b'G', b'N', b'U', 0, 1, 2, 3, 4]);
        bytes.extend(note("-4@5"));
        let found = notes(&bytes);
        assert_eq!(found.len(), 2);
        assert_eq!((&*found[0].provider, &*found[0].name, found[0].values.len()), ("shop", "sale", 0));
        assert_eq!((found[1].pc, found[1].base, found[1].semaphore), (0x1000, 0x2000, 0x3000));
        for length in 0..bytes.len() {
            notes(&bytes[..length]);
            let mut broken = bytes.clone();
            broken[length] = 0xff;
            notes(&broken);
        }
    }

    #[test]
    fn brackets_keep_words_together() {
        assert_eq!(words(" -4@x0  8@[sp, 24] 1@5").collect::<Vec<_>>(), ["-4@x0", "8@[sp, 24]", "1@5"]);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn places_are_read_in_the_assemblers_words() {
        let memory =
            |base, index, shift, displacement| Some(Place::Memory { base, index, shift, displacement });
        let cases = [
            ("$-5", Some(Place::Constant(5u64.wrapping_neg()))),
            ("%edi", Some(Place::Register(112))),
            ("%r9b", Some(Place::Register(64))),
            ("-24(%rbp)", memory(Some(32), None, 0, 24u64.wrapping_neg())),
            ("(%rsp)", memory(Some(152), None, 0, 0)),
            ("8(%rax,%rbx,4)", memory(Some(80), Some(40), 2, 8)),
            ("(,%rbx,8)", memory(None, Some(40), 3, 0)),
            ("%xmm0", None),
            ("%ah", None),
            ("counter(%rip)", None),
            ("8(%rax,%rbx,3)", None),
        ];
        for (text, expected) in cases {
            assert_eq!(place(text), expected, "{text}");
        }
        assert_eq!(value("-4@%edi"), Some(Value { place: Place::Register(112), size: 4, signed: true }));
        assert_eq!(value("8f@%xmm0"), None);
    }
}
