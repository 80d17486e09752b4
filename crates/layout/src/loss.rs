//! Why an event was not recorded. Every loss is counted under one of these causes.

/// A cause of loss. The list can grow; numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Cause {
    /// Discard mode: the reader was behind, no free sub-buffer.
    Full = 0,
    /// The record was larger than 64 KiB or than half a sub-buffer.
    TooLarge = 1,
    /// The append was restarted too often (a debugger stepping through it, a storm of signals).
    Retries = 2,
    /// The thread had no restartable-sequence area, or ran on a CPU number the session doesn't know.
    NoRseq = 3,
    /// The thread was a vfork child, which must not touch its parent's rings.
    VforkChild = 4,
    /// The event could not be described: the catalog was full.
    CatalogFull = 5,
    /// The reader found bytes that no sound application writes.
    Refused = 6,
    /// The trace could not be written any more (a full disk).
    NotWritten = 7,
    /// Rings in reserve form: the record's place was taken, and its thread was killed (or had not come back when
    /// a flight recorder was saved). Or the event would have had to go where an earlier lap has such a place.
    Unfinished = 8,
    /// It was in a ring, and had not reached the medium when the machine stopped.
    NotOnMedium = 9,
    /// The kernel did not start a probe, because the same one ran on that CPU already.
    Nested = 10,
    /// A CPU of which a recording of the kernel didn't know.
    NoRing = 11,
}

impl Cause {
    /// How many words a table of counters has; larger than the number of causes, for growth.
    pub const SLOTS: usize = 16;

    /// All causes, in the order of their numbers.
    pub const ALL: [Cause; 12] = [
        Cause::Full,
        Cause::TooLarge,
        Cause::Retries,
        Cause::NoRseq,
        Cause::VforkChild,
        Cause::CatalogFull,
        Cause::Refused,
        Cause::NotWritten,
        Cause::Unfinished,
        Cause::NotOnMedium,
        Cause::Nested,
        Cause::NoRing,
    ];

    /// The name by which reports and `--json` call it.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Full => "full",
            Cause::TooLarge => "too_large",
            Cause::Retries => "retries",
            Cause::NoRseq => "no_rseq",
            Cause::VforkChild => "vfork_child",
            Cause::CatalogFull => "catalog_full",
            Cause::Refused => "refused",
            Cause::NotWritten => "not_written",
            Cause::Unfinished => "unfinished",
            Cause::NotOnMedium => "not_on_medium",
            Cause::Nested => "nested",
            Cause::NoRing => "no_ring",
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
