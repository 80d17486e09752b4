//! Triggers on events: a region of the control file.
//!
//! The session writes which events each trigger wants, as text. The event path counts matches and
//! copies the events that matched into slots, of which each trigger has a few. The session looks at
//! the counts in each round, takes the copies, and gives the slots back.
//!
//! ```text
//!     0 generation u32, 4 text length u32                session → agent
//!     8 seen u32: generation that the program goes by    agent → session
//!    12 understood u32: lines of its text that it knows
//!    16 unjudged u64: events that no trigger could see   agent → session
//!    64 matches[TRIGGERS] u64: epoch u16, count 48 bits  agent → session
//!   192 followed[TRIGGERS] u64: matches that were read   session
//!  4096 text
//! 20480 slots[TRIGGERS][SLOTS]
//!
//! slot   0 state u64: FREE → CLAIMED (agent) → COMPLETE (agent) → FREE (session)
//!        8 number u32   12 tid u32
//!       16 time u64: CLOCK_MONOTONIC
//!       24 size u32: bytes of the event's payload   28 epoch u32
//!       32 duration u64 of a span in nanoseconds; 0 if it is none
//!       40 the first CAPTURE bytes of the payload: fixed part and tails
//! ```
//!
//! The text has a line for each trigger; `tompion-protocol` has its form.
//!
//! Triggers change while programs run. A number that another trigger gets has its next epoch: the
//! session puts it into the word of its matches, with the count 0, while the generation is odd. The
//! event path adds a match only to the epoch that the program has read with the text. So a thread
//! that is late counts nothing, and its copy is passed over.
//!
//! This is the form of the first release with triggers. Later ones only use what is zero here.

use crate::PAGE;

/// Maximum number of triggers on events.
pub const TRIGGERS: usize = 16;
/// Slots of each trigger.
pub const SLOTS: usize = 4;

/// Offset of the text's generation, and of its length in the word's other half.
pub const GENERATION: usize = 0;
/// Offset of the generation that the program goes by, and of the number of lines that it
/// understands in the word's other half.
pub const SEEN: usize = 8;
/// Offset of the number of events that no trigger could see.
pub const UNJUDGED: usize = 16;
/// Offset of the counts of matches.
pub const MATCHES: usize = 64;
/// Offset of the counts that the session has followed, for a recorder that comes back.
pub const FOLLOWED: usize = MATCHES + 8 * TRIGGERS;
/// Bits of the count in a word of matches. The epoch is above them.
pub const COUNT_BITS: u32 = 48;
/// The count in a word of matches.
pub const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Offset of the text.
pub const TEXT: usize = PAGE as usize;
/// Space for the text in bytes.
pub const TEXT_SIZE: usize = 4 * PAGE as usize;
/// Offset of the slots.
pub const SLOT_TABLE: usize = TEXT + TEXT_SIZE;

/// Maximum number of bytes of an event that are copied.
pub const CAPTURE: usize = 280;
/// Offset of the copied bytes in a slot.
pub const PAYLOAD: usize = 40;
/// Size of a slot in bytes.
pub const SLOT: usize = PAYLOAD + CAPTURE;
/// Size of the region in bytes.
pub const SIZE: u64 = (SLOT_TABLE + TRIGGERS * SLOTS * SLOT) as u64;

/// State of a slot that has no event.
pub const FREE: u64 = 0;
/// State of a slot that is being filled.
pub const CLAIMED: u64 = 1;
/// State of a slot that has an event.
pub const COMPLETE: u64 = 2;

const _: () = assert!(SIZE % PAGE == 0 && FOLLOWED + 8 * TRIGGERS <= TEXT);

/// Epochs of all numbers.
pub type Epochs = [u16; TRIGGERS];

/// Number of a trigger on events, which others have in other epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TriggerNumber {
    /// The number, below [`TRIGGERS`].
    pub index: usize,
    /// The epoch in which it is this trigger's.
    pub epoch: u16,
}

/// Returns the epoch in a word of matches.
pub const fn epoch(word: u64) -> u16 {
    (word >> COUNT_BITS) as u16
}

/// Returns the word of matches of an epoch without any.
pub const fn first_word(epoch: u16) -> u64 {
    (epoch as u64) << COUNT_BITS
}

/// Returns a word of matches with one more; the count begins again at its end.
pub const fn next_word(word: u64) -> u64 {
    word & !COUNT_MASK | (word + 1) & COUNT_MASK
}

/// Returns the offset of a slot.
pub const fn slot(trigger: usize, slot: usize) -> usize {
    SLOT_TABLE + (trigger * SLOTS + slot) * SLOT
}
