//! Payloads as in rings.

/// Contribution of a field to a record.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes in the fixed part.
    Fixed(Vec<u8>),
    /// Number of elements in the fixed part, and their bytes in the tails.
    Sequence(u32, Vec<u8>),
    /// Bytes in the tails.
    Array(Vec<u8>),
}

/// Encodes the fixed part and the tails of a record, padded like a record.
pub fn payload(parts: &[Part]) -> Vec<u8> {
    let (mut fixed, mut tails) = (Vec::<u8>::new(), Vec::<u8>::new());
    for part in parts {
        match part {
            Part::Fixed(bytes) => fixed.extend(bytes),
            Part::Sequence(count, bytes) => {
                fixed.extend(count.to_le_bytes());
                tails.extend(bytes);
            }
            Part::Array(bytes) => tails.extend(bytes),
        }
    }
    fixed.extend(tails);
    fixed.resize(fixed.len().next_multiple_of(8), 0);
    fixed
}
