//! Reads fields of records that the kernel's programs wrote. Bytes that are missing read as zero.

/// Returns the 64-bit number at an offset.
pub fn word(bytes: &[u8], offset: usize) -> u64 {
    let read = bytes.get(offset..offset + 8).and_then(|bytes| bytes.try_into().ok());
    read.map_or(0, u64::from_ne_bytes)
}

/// Returns the 32-bit number at an offset.
pub fn half(bytes: &[u8], offset: usize) -> u32 {
    let read = bytes.get(offset..offset + 4).and_then(|bytes| bytes.try_into().ok());
    read.map_or(0, u32::from_ne_bytes)
}

/// Returns the text in a field: up to the first zero.
pub fn text(bytes: Option<&[u8]>) -> String {
    let name = bytes.unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_the_first_zero() {
        assert_eq!(text(Some(b"robot\0\0stale")), "robot");
        assert_eq!(text(Some(b"\xffbad")), "\u{fffd}bad");
        assert_eq!(text(None), "");
    }
}
