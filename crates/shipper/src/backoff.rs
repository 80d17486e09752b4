//! Waiting between attempts: longer each time, by chance, without an end.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// Number of failed attempts in a row.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// Returns the time until the next attempt: between a half and all of a time that doubles up
    /// to 30 s. So many senders don't come back at one moment.
    pub(crate) fn next(&mut self) -> Duration {
        let whole = SHORTEST.saturating_mul(1 << self.0.min(16)).min(LONGEST);
        self.0 = self.0.saturating_add(1);
        // Random keys of the standard library's maps.
        let random = RandomState::new().hash_one(self.0) % 1024;
        whole / 2 + whole / 2 * random as u32 / 1024
    }

    /// Notes a success.
    pub(crate) fn reset(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_begin_again() {
        let mut backoff = Backoff::default();
        for attempt in 0..100 {
            let wait = backoff.next();
            let most = SHORTEST.saturating_mul(1 << attempt.min(16)).min(LONGEST);
            assert!(wait >= most / 2 && wait <= most, "attempt {attempt}: {wait:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= SHORTEST);
    }
}
