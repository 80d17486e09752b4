//! Catalog: descriptions of the events that may occur in the rings.
//!
//! ```text
//! 0  used u64          size of the complete entries after these 8 bytes
//!                      (agent; release / session; acquire)
//! 8  entry, entry, …   each: number u32, size u32, then `size` bytes, padded to a multiple of 8
//!
//! bytes of an entry    number              description of the event with this number
//!                      number | INITIAL    a record of it: time u64, thread u32, cpu u32,
//!                                          then the payload
//! ```
//!
//! Records in the catalog describe the state in which a process was found, and its later changes.
//! No ring overwrites them. They may use at most half of the catalog.
//!
//! An entry is written completely before `used` is raised over it, and `used` is raised before the
//! event is enabled. So a record is never found without its description, not even after a kill. The
//! content of entries is opaque here; `tompion-schema` decodes it. Entries never change.

/// Offset of the number of bytes in use.
pub const USED: usize = 0;
/// Offset of the first entry.
pub const ENTRIES: usize = 8;
/// Size of an entry's header in bytes: its number and size.
pub const ENTRY_HEADER: usize = 8;

/// Flag in the number of an entry that is a record.
pub const INITIAL: u32 = 1 << 31;
/// Size of a record's header in bytes: its time, thread and CPU.
pub const INITIAL_HEADER: usize = 16;
/// Limit in bytes of the catalog for records.
pub const INITIAL_ROOM: u64 = crate::control::CATALOG_SIZE / 2;
/// Limit in bytes of the catalog for records that revoke earlier ones.
pub const DOUBT_ROOM: u64 = INITIAL_ROOM + (64 << 10);

/// Returns the header of an entry whose description has `size` bytes.
pub fn entry_header(number: u32, size: usize) -> [u8; ENTRY_HEADER] {
    let mut header = [0; ENTRY_HEADER];
    header[..4].copy_from_slice(&number.to_le_bytes());
    header[4..].copy_from_slice(&(size as u32).to_le_bytes());
    header
}

/// Returns the size in bytes of an entry whose description has `size` bytes.
pub const fn entry_len(size: usize) -> usize {
    (ENTRY_HEADER + size + 7) & !7
}

/// Reason why a catalog could not be read further. Entries read before stay valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogError {
    /// `used` is larger than the catalog.
    Used(u64),
    /// The entry at this offset extends beyond the bytes in use.
    Entry(usize),
}

impl std::fmt::Display for CatalogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Used(used) => write!(f, "the catalog claims {used} bytes, more than it has"),
            Self::Entry(offset) => write!(f, "the catalog's entry at byte {offset} reaches beyond its end"),
        }
    }
}

impl std::error::Error for CatalogError {}

/// Description or record in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntrustedEntry<'a> {
    /// Number of the event; its records have the id [`crate::record::FIRST_EVENT`] plus this.
    pub number: u32,
    /// Description or record.
    pub description: &'a [u8],
}

/// Record in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntrustedInitial<'a> {
    /// Number of the event.
    pub number: u32,
    /// Time of the record, in the clock of the recording's rings.
    pub time: u64,
    /// Thread that wrote it.
    pub tid: u32,
    /// CPU on which it was written.
    pub cpu: u32,
    /// Fixed part and tails.
    pub payload: &'a [u8],
}

impl<'a> UntrustedEntry<'a> {
    /// Whether the entry is a record.
    pub fn is_initial(&self) -> bool {
        self.number & INITIAL != 0
    }

    /// Returns the entry as a record; `None` if it is a description, or too short.
    pub fn initial(&self) -> Option<UntrustedInitial<'a>> {
        let (time, rest) = self.description.split_first_chunk()?;
        let (tid, rest) = rest.split_first_chunk()?;
        let (cpu, payload) = rest.split_first_chunk()?;
        self.is_initial().then_some(UntrustedInitial {
            number: self.number & !INITIAL,
            time: u64::from_le_bytes(*time),
            tid: u32::from_le_bytes(*tid),
            cpu: u32::from_le_bytes(*cpu),
            payload,
        })
    }
}

/// Reads the entry at `offset` of the copied entries; also returns the offset of the next one.
///
/// Returns `None` at the end. The copy must be private to the caller: live catalog bytes may change
/// during the check.
pub fn entry_at(entries: &[u8], offset: usize) -> Result<Option<(UntrustedEntry<'_>, usize)>, CatalogError> {
    let rest = entries.get(offset..).unwrap_or(&[]);
    let Some((header, body)) = rest.split_at_checked(ENTRY_HEADER) else {
        return if rest.is_empty() { Ok(None) } else { Err(CatalogError::Entry(offset)) };
    };
    let number = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let size = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
    let description = body.get(..size).ok_or(CatalogError::Entry(offset))?;
    Ok(Some((UntrustedEntry { number, description }, offset + entry_len(size))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_one_after_the_other() {
        let mut bytes = Vec::new();
        for (number, text) in [(0u32, &b"abc"[..]), (7, b"12345678")] {
            bytes.extend(number.to_le_bytes());
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        let (first, next) = entry_at(&bytes, 0).unwrap().unwrap();
        assert_eq!(first, UntrustedEntry { number: 0, description: b"abc" });
        let (second, end) = entry_at(&bytes, next).unwrap().unwrap();
        assert_eq!(second, UntrustedEntry { number: 7, description: b"12345678" });
        assert_eq!(entry_at(&bytes, end), Ok(None));
    }

    #[test]
    fn an_entry_can_be_a_record() {
        let record = [&7u64.to_le_bytes()[..], &8u32.to_le_bytes(), &9u32.to_le_bytes(), b"payload"].concat();
        let entry = UntrustedEntry { number: INITIAL | 3, description: &record };
        let initial = UntrustedInitial { number: 3, time: 7, tid: 8, cpu: 9, payload: b"payload" };
        assert_eq!(entry.initial(), Some(initial));
        assert_eq!(UntrustedEntry { number: 3, ..entry }.initial(), None);
        assert_eq!(UntrustedEntry { description: &record[..15], ..entry }.initial(), None);
        assert!(UntrustedEntry { description: &[], ..entry }.is_initial());
    }

    #[test]
    fn an_entry_that_reaches_beyond_the_end_is_refused() {
        let mut bytes = 1u32.to_le_bytes().to_vec();
        bytes.extend(100u32.to_le_bytes());
        assert_eq!(entry_at(&bytes, 0), Err(CatalogError::Entry(0)));
        assert_eq!(entry_at(&bytes[..5], 0), Err(CatalogError::Entry(0)));
    }
}
