//! Control file: settings from the session to the agent, and event descriptions from the agent.
//!
//! The session writes the header and the rules before it passes the file on. Later it changes only
//! the selector and the rules (with the generation), and says that it has ended.
//!
//! ```text
//! header page
//!    0 magic u64   8 version u32  12 flags u32  16 subbuf_size u64  24 subbuf_count u64
//!   32 cpus u32   36 buffers u32
//!  128 selector u32  132 ended u32                        session → event path
//!  192 generation u32, 196 rules_len u32                  session → agent
//!  256 lost[16] u64: losses that have no ring             agent → session
//!  384 snapshots u64: how often the program asked         agent → session
//!  392 rules_seen u64: generation that it goes by         agent → session
//!  400 listens u64: a thread hears what the session says  agent → session
//! ```
//!
//! Regions are added at the end: the length of the file tells which ones there are. An agent says
//! in its `Hello` how long a file it knows, and gets none that is longer.

use crate::PAGE;

/// First word of a control file: `TOMPCTL1`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TOMPCTL1");

/// Offset of the magic word.
pub const OFFSET_MAGIC: usize = 0;
/// Offset of [`crate::LAYOUT_VERSION`].
pub const OFFSET_VERSION: usize = 8;
/// Offset of the flags, see [`FLAG_OVERWRITE`] and the others.
pub const OFFSET_FLAGS: usize = 12;
/// Offset of the sub-buffer's size.
pub const OFFSET_SUBBUF_SIZE: usize = 16;
/// Offset of the number of sub-buffers of a ring.
pub const OFFSET_SUBBUF_COUNT: usize = 24;
/// Offset of the number of CPUs.
pub const OFFSET_CPUS: usize = 32;
/// Offset of the number of buffers.
pub const OFFSET_BUFFERS: usize = 36;
/// Offset of the buffer selector; only its lowest bit is used.
pub const OFFSET_SELECTOR: usize = 128;
/// Offset of the word that isn't 0 once the session has ended. A process without a background
/// thread learns it there, when it opens a sub-buffer. Agents of before don't look at it.
pub const OFFSET_ENDED: usize = 132;
/// Offset of the rules' generation: odd while they are replaced, different afterwards.
pub const OFFSET_GENERATION: usize = 192;
/// Offset of the length of the rules in bytes.
pub const OFFSET_RULES_LEN: usize = 196;
/// Offset of the losses without a ring, [`crate::loss::Cause::SLOTS`] words.
pub const OFFSET_LOST: usize = 256;

/// Offset of the number of snapshots requested by the program.
pub const OFFSET_SNAPSHOTS: usize = OFFSET_LOST + 8 * crate::loss::Cause::SLOTS;

/// Offset of the generation of the rules that the program goes by; 0 in agents of before.
pub const OFFSET_RULES_SEEN: usize = OFFSET_SNAPSHOTS + 8;

/// Offset of the word that isn't 0 once a thread of the program receives what the session says. Of
/// programs that have it from the start, `Hello` says so, too.
pub const OFFSET_LISTENS: usize = OFFSET_RULES_SEEN + 8;

/// Offset of the rules.
pub const RULES: u64 = PAGE;
/// Space for the rules in bytes.
pub const RULES_SIZE: u64 = 16 * PAGE;
/// Offset of the catalog.
pub const CATALOG: u64 = RULES + RULES_SIZE;
/// Space for the catalog in bytes, enough for more than ten thousand events. The file is sparse:
/// unused parts cost nothing, unless the program locks all its memory.
pub const CATALOG_SIZE: u64 = 2 << 20;
/// Offset of the pinned events, see [`crate::pinned`].
pub const PINNED: u64 = CATALOG + CATALOG_SIZE;
/// Space for the pinned events in bytes; also sparse.
pub const PINNED_SIZE: u64 = 1 << 20;
/// Offset of the triggers on events, see [`crate::triggers`].
pub const TRIGGERS: u64 = PINNED + PINNED_SIZE;
/// Size of the whole control file.
pub const FILE_SIZE: u64 = TRIGGERS + crate::triggers::SIZE;

/// Sizes that a control file can have: that of the first agents, then with each further region.
pub const FILE_SIZES: [u64; 2] = [TRIGGERS, FILE_SIZE];

/// Size of the control file for an agent that knows files of up to `known` bytes.
pub fn file_size_for(known: u64) -> u64 {
    FILE_SIZES.into_iter().rev().find(|size| *size <= known).unwrap_or(FILE_SIZES[0])
}

/// Flag: overwrite mode (flight recorder); otherwise discard mode.
pub const FLAG_OVERWRITE: u32 = 1;
/// Flag: timestamps are CLOCK_MONOTONIC nanoseconds; otherwise TSC ticks.
pub const FLAG_MONOTONIC: u32 = 2;
/// Flag: events have the contexts that the application defines.
pub const FLAG_CONTEXTS: u32 = 4;
/// Flag: the rings are in reserve form, see [`crate::record::WriteProtocol`]; otherwise in section
/// form.
pub const FLAG_RESERVE: u32 = 8;
/// Flag: the memory is in files that outlast the session. To make those of a child takes the
/// session longer than to make memory, and the child should wait for it longer.
pub const FLAG_PERSISTENT: u32 = 16;
/// Flag: the last file that comes with this one is a count file, see [`crate::counts`].
pub const FLAG_COUNTS: u32 = 32;
/// Flag: no event is to take a page fault. The session has made all pages of the rings present, and
/// the agent does the same in its own mapping, before the first event.
pub const FLAG_PREFAULT: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_gets_the_longest_file_that_it_knows() {
        assert!(FILE_SIZES.is_sorted() && FILE_SIZES.last() == Some(&FILE_SIZE));
        assert!(FILE_SIZES.iter().all(|size| size % PAGE == 0));
        for size in FILE_SIZES {
            assert_eq!(file_size_for(size), size);
        }
        assert_eq!(file_size_for(0), FILE_SIZES[0]);
        assert_eq!(file_size_for(FILE_SIZE - 1), FILE_SIZES[FILE_SIZES.len() - 2]);
        assert_eq!(file_size_for(u64::MAX), FILE_SIZE);
    }
}
