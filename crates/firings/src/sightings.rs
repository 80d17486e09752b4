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

use tompion_layout::triggers::TriggerNumber;

use crate::{Matches, Occurrence, Silent};

/// Maximum number of captured events of one firing.
const MAX_CAPTURES: usize = 8;

/// Sightings that wait to be taken.
#[derive(Debug, Default)]
struct Waiting {
    matches: BTreeMap<TriggerNumber, Matches>,
    /// Silences: the first one of each trigger, and their number.
    silences: BTreeMap<TriggerNumber, (Silent, u64)>,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.matches.is_empty() && self.silences.is_empty()
    }
}

/// Matches that were seen and not followed yet, by trigger. Those of several programs and rounds
/// become one, so that their room is bounded.
#[derive(Debug)]
pub struct Sightings {
    waiting: Mutex<Waiting>,
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
        let all = waiting.matches.entry(trigger).or_default();
        all.trigger = trigger;
        all.count = all.count.saturating_add(count);
        let room = MAX_CAPTURES.saturating_sub(all.captures.len());
        all.captures.extend(captures.into_iter().take(room));
        self.ring(is_first);
    }

    /// Adds an event that did not come, and wakes the thread that polls this.
    pub fn add_silent(&self, silent: Silent) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = waiting.is_empty();
        let entry = waiting.silences.entry(silent.trigger).or_insert((silent, 0));
        entry.1 = entry.1.saturating_add(1);
        self.ring(is_first);
    }

    fn ring(&self, is_first: bool) {
        if is_first {
            // A full socket has rung already.
            let _ = (&self.ringer).write(&[0]);
        }
    }

    /// Takes all.
    pub fn take(&self) -> Vec<Occurrence> {
        let mut bell = &self.bell;
        while matches!(bell.read(&mut [0; 64]), Ok(1..)) {}
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let silences = waiting.silences.into_values();
        let silences = silences.map(|(silent, count)| Occurrence::of_silence(silent, count));
        waiting.matches.into_values().map(Occurrence::of_matches).chain(silences).collect()
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
    use crate::Which;

    fn number(index: usize) -> TriggerNumber {
        TriggerNumber { index, epoch: 2 }
    }

    #[test]
    fn matches_of_a_trigger_become_one_with_its_first_events() {
        let sightings = Sightings::new().expect("a pair");
        let captures =
            |from: i64| (0..4).map(|n| Capture { time_ns: from + n, ..Capture::default() }).collect();
        for round in 0..3 {
            sightings.add(Matches { trigger: number(5), count: 100, captures: captures(round * 4) });
        }
        sightings.add(Matches { trigger: number(1), count: 1, captures: Vec::new() });
        let taken = sightings.take();
        let found: Vec<_> = taken.iter().map(|it| (it.which.clone(), it.matches)).collect();
        assert_eq!(found, [(Which::Event(number(1)), 1), (Which::Event(number(5)), 300)]);
        let times: Vec<i64> = taken[1].captures.iter().map(|capture| capture.time_ns).collect();
        assert_eq!(times, (0..8).collect::<Vec<_>>());
        assert!(sightings.take().is_empty());
        for program in ["a (1)", "b (2)", "c (3)"] {
            sightings
                .add_silent(Silent { trigger: number(2), cause: format!("no x:y for 5 s in {program}") });
        }
        let silent = sightings.take();
        assert_eq!(silent[0].cause, "no x:y for 5 s in a (1), and in 2 more programs");
        assert_eq!((silent.len(), silent[0].matches), (1, 0));
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
