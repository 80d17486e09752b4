//! Account of a ring in its packets: what a recorder goes on with that takes over.

use tompion_ctf::encode::Tally;
use tompion_writer::Mark;

/// Account of a ring up to some position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingAccount {
    /// Records that were read.
    pub records: u64,
    /// Records among them that did not pass the filter.
    pub unwanted: u64,
    /// Records that don't fit their description, and bytes that are none.
    pub refused: u64,
    /// Events that were lost for want of room in front of the sub-buffers up to there.
    pub full: u64,
}

impl RingAccount {
    /// Returns the mark of a packet, behind which the ring goes on at a position.
    pub fn mark(self, ring_end: u64) -> Mark {
        let Self { records, unwanted, refused, full } = self;
        let tally =
            Tally { accounted: records, unfinished: unwanted, refused, missing: full, ..Tally::default() };
        Mark { ring_end, tally }
    }
}

impl From<Mark> for RingAccount {
    fn from(Mark { tally, .. }: Mark) -> Self {
        let Tally { accounted, unfinished, refused, missing, .. } = tally;
        Self { records: accounted, unwanted: unfinished, refused, full: missing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_survives_the_round_trip() {
        let account = RingAccount { records: 1, unwanted: 2, refused: 3, full: 4 };
        let mark = account.mark(64);
        assert_eq!((RingAccount::from(mark), mark.ring_end, mark.tally.overwritten), (account, 64, 0));
    }
}
