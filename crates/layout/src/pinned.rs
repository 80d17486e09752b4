//! Pinned events, which a flight recorder never overwrites: those with the attribute `init`.
//!
//! They are stored in the control file after the catalog, one after the other, until it is full;
//! later ones go to the rings like any other event. Threads append without a lock: the thread that
//! changes the first word of the free space from zero to a length owns that many bytes. A thread
//! that is killed before it has committed leaves an entry of known length without content.
//!
//! ```text
//! 0   hint u64      a place at or before the first free one               (agent)
//! 8   entry, entry, …, zeros
//!
//! entry   0  length u64, a multiple of 8, with COMMITTED once all the rest is there
//!         8  number u32   12  cpu u32
//!        16  time u64
//!        24  thread u32   28  length of the payload u32
//!        32  check u64 over all the words of the entry but the first and this one, see [`check`]
//!        40  payload: fixed part and tails, zeros to a multiple of 8
//! ```
//!
//! The check is for lists in a file when the machine stopped, whose pages may be from different
//! times. It is not used otherwise.

/// Offset of the hint.
pub const HINT: usize = 0;
/// Offset of the first entry.
pub const ENTRIES: usize = 8;
/// Size of an entry's header in bytes.
pub const HEADER: usize = 40;
/// Offset of the check in an entry.
pub const CHECK: usize = 32;
/// Limit in bytes of the list for events of state dumps. The rest is for other events.
pub const STATE_DUMP_ROOM: usize = crate::control::PINNED_SIZE as usize / 2;
/// Flag in an entry's first word once the entry is complete.
pub const COMMITTED: u64 = 1 << 63;

/// Returns the size in bytes of an entry with this many bytes of payload.
pub const fn entry_len(payload: usize) -> usize {
    (HEADER + payload + 7) & !7
}

/// Computes the check of an entry at an offset in the list, from its words in order, without the
/// first and the check itself. Never 0.
pub fn check(at: usize, words: impl Iterator<Item = u64>) -> u64 {
    let mixed = words.fold(at as u64 ^ 0x9e37_79b9_7f4a_7c15, |sum, word| {
        let sum = (sum ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        sum ^ sum >> 29
    });
    mixed | 1
}

/// Returns the length in an entry's first word; `None` if no entry begins there, or if it is
/// impossible.
pub const fn length(word: u64, room: usize) -> Option<usize> {
    let length = word & !COMMITTED;
    if length % 8 != 0 || length < HEADER as u64 || length > room as u64 {
        return None;
    }
    Some(length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_cannot_be_are_none() {
        assert_eq!(entry_len(1), HEADER + 8);
        assert_eq!(length(COMMITTED | 40, 40), Some(40));
        for (word, room) in [(0, 100), (47, 100), (32, 100), (48, 40), (u64::MAX, usize::MAX >> 1)] {
            assert_eq!(length(word, room), None, "{word:#x}");
        }
    }
}
