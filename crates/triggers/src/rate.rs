//! Limits of rates.

use std::{collections::VecDeque, time::Instant};

use crate::Limit;

/// Outcome for one occurrence of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The trigger fires; so many occurrences were suppressed since it last did.
    Fire {
        /// Number of those.
        suppressed: u64,
    },
    /// The limit is reached; the occurrence is counted.
    Suppress,
}

/// Limiter of one trigger's rate.
#[derive(Debug, Default)]
pub struct RateLimiter {
    /// Times of the last firings, at most as many as the limit allows.
    fired: VecDeque<Instant>,
    suppressed: u64,
}

impl RateLimiter {
    /// Decides about so many occurrences at this time, which together make one firing.
    pub fn decide(&mut self, limit: Option<Limit>, now: Instant, occurrences: u64) -> Decision {
        if let Some(Limit { count, per }) = limit {
            while self.fired.front().is_some_and(|first| now.saturating_duration_since(*first) >= per) {
                self.fired.pop_front();
            }
            if self.fired.len() >= count as usize {
                self.suppressed = self.suppressed.saturating_add(occurrences);
                return Decision::Suppress;
            }
            self.fired.push_back(now);
        }
        Decision::Fire { suppressed: std::mem::take(&mut self.suppressed) }
    }

    /// Number of occurrences that were suppressed since the last firing.
    pub const fn suppressed(&self) -> u64 {
        self.suppressed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_beyond_the_limit_is_counted() {
        let limit = Some(Limit { count: 2, per: Duration::from_secs(10) });
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut limiter = RateLimiter::default();
        let fire = |suppressed| Decision::Fire { suppressed };
        assert_eq!(limiter.decide(limit, at(0), 1), fire(0));
        assert_eq!(limiter.decide(limit, at(5), 1), fire(0));
        assert_eq!(limiter.decide(limit, at(6), 1), Decision::Suppress);
        assert_eq!(limiter.decide(limit, at(9), 5), Decision::Suppress);
        assert_eq!(limiter.suppressed(), 6);
        assert_eq!(limiter.decide(limit, at(10), 1), fire(6), "the first is 10 s ago");
        assert_eq!(limiter.decide(limit, at(11), 1), Decision::Suppress);
        assert_eq!(limiter.decide(None, at(11), 1), fire(1));
    }
}
