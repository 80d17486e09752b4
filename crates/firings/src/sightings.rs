//! Matches that the consumer has seen, until the control thread takes them.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{Mutex, PoisonError},
};

use crate::Matches;

/// Maximum number of captured events of one firing.
const MAX_CAPTURES: usize = 8;

/// Matches that were seen and not followed yet, by trigger. Those of several programs and rounds
/// become one, so that their room is bounded.
#[derive(Debug)]
pub struct Sightings {
    waiting: Mutex<BTreeMap<usize, Matches>>,
    /// Readable when there are some.
    bell: UnixStream,
    ringer: UnixStream,
}

impl Sightings {
    /// None so far.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ringer.set_nonblocking(true)?;
        Ok(Self { waiting: Mutex::default(), bell, ringer })
    }

    /// Adds matches, and wakes the thread that polls this.
    pub fn add(&self, matches: Matches) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = waiting.is_empty();
        let Matches { trigger, count, captures } = matches;
        let all = waiting.entry(trigger).or_default();
        all.trigger = trigger;
        all.count = all.count.saturating_add(count);
        let room = MAX_CAPTURES.saturating_sub(all.captures.len());
        all.captures.extend(captures.into_iter().take(room));
        if is_first {
            // A full socket has rung already.
            let _ = (&self.ringer).write(&[0]);
        }
    }

    /// Takes all.
    pub fn take(&self) -> Vec<Matches> {
        let mut bell = &self.bell;
        while matches!(bell.read(&mut [0; 64]), Ok(1..)) {}
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_values().collect()
    }
}

impl AsFd for Sightings {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use tompion_manifest::Capture;

    use super::*;

    #[test]
    fn matches_of_a_trigger_become_one_with_its_first_events() {
        let sightings = Sightings::new().expect("a pair");
        let captures =
            |from: i64| (0..4).map(|n| Capture { time_ns: from + n, ..Capture::default() }).collect();
        for round in 0..3 {
            sightings.add(Matches { trigger: 5, count: 100, captures: captures(round * 4) });
        }
        sightings.add(Matches { trigger: 1, count: 1, captures: Vec::new() });
        let taken = sightings.take();
        assert_eq!(taken.iter().map(|it| (it.trigger, it.count)).collect::<Vec<_>>(), [(1, 1), (5, 300)]);
        let times: Vec<i64> = taken[1].captures.iter().map(|capture| capture.time_ns).collect();
        assert_eq!(times, (0..8).collect::<Vec<_>>());
        assert_eq!(sightings.take(), []);
    }

    #[test]
    fn each_first_match_rings() {
        let sightings = Sightings::new().expect("a pair");
        let has_rung = || (&sightings.bell).read(&mut [0; 8]).is_ok();
        for _ in 0..3 {
            assert!(!has_rung());
            sightings.add(Matches { count: 1, ..Matches::default() });
            sightings.add(Matches { count: 1, ..Matches::default() });
            assert!(has_rung());
            sightings.take();
        }
    }
}
