//! Causes of lost events. Every loss is counted under one of these causes.

/// Cause of a loss. The list can grow; numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Cause {
    /// Discard mode: the reader was behind, and no sub-buffer was free.
    Full = 0,
    /// The record was larger than 64 KiB or than half a sub-buffer.
    TooLarge = 1,
    /// The append was restarted too often (a debugger stepping through it, a storm of signals).
    Retries = 2,
    /// The thread had no restartable-sequence area, or ran on a CPU number that the session doesn't
    /// know.
    NoRseq = 3,
    /// The thread was a vfork child, which must not touch its parent's rings.
    VforkChild = 4,
    /// The event could not be described: the catalog was full.
    CatalogFull = 5,
    /// The reader found bytes that no correct application writes.
    Invalid = 6,
    /// The trace could not be written any more (a full disk).
    NotWritten = 7,
    /// Rings in reserve form: the record's space was reserved, and its thread was killed (or had
    /// not resumed when a flight recorder was saved). Or the event needed space that is still
    /// reserved from an earlier lap.
    Unfinished = 8,
    /// The event was in a ring, and had not reached the medium when the machine stopped.
    NotPersisted = 9,
    /// The kernel did not run a probe, because it was already running on that CPU.
    Reentrant = 10,
    /// The CPU is unknown to the recording of the kernel.
    NoRing = 11,
    /// The event was part of a state dump, for which there was no more room.
    StateDumpFull = 12,
}

impl Cause {
    /// Number of words in a table of counters; larger than the number of causes, for growth.
    pub const SLOTS: usize = 16;

    /// All causes, ordered by their numbers.
    pub const ALL: [Cause; 13] = [
        Cause::Full,
        Cause::TooLarge,
        Cause::Retries,
        Cause::NoRseq,
        Cause::VforkChild,
        Cause::CatalogFull,
        Cause::Invalid,
        Cause::NotWritten,
        Cause::Unfinished,
        Cause::NotPersisted,
        Cause::Reentrant,
        Cause::NoRing,
        Cause::StateDumpFull,
    ];

    /// Returns the name of the cause in reports and in `--json` output.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Full => "full",
            Cause::TooLarge => "too_large",
            Cause::Retries => "retries",
            Cause::NoRseq => "no_rseq",
            Cause::VforkChild => "vfork_child",
            Cause::CatalogFull => "catalog_full",
            Cause::Invalid => "refused",
            Cause::NotWritten => "not_written",
            Cause::Unfinished => "unfinished",
            Cause::NotPersisted => "not_on_medium",
            Cause::Reentrant => "nested",
            Cause::NoRing => "no_ring",
            Cause::StateDumpFull => "state_dump_full",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_numbered_in_order_and_fit_the_table() {
        assert!(Cause::ALL.windows(2).all(|pair| (pair[0] as usize) < pair[1] as usize));
        assert!(Cause::ALL.iter().all(|cause| (*cause as usize) < Cause::SLOTS));
    }
}
