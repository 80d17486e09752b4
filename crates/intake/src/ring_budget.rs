//! Memory of rings as one number, shared out to programs.
//!
//! ```text
//! 256 MiB ──► first program: a quarter, 64 MiB ──► second: a quarter of the rest, 32 MiB ──► …
//! ```
//!
//! Sizes are rounded down to powers of two, which rings have. So the first programs have large
//! rings, and later ones find room all the same, down to the smallest rings. What a program got
//! comes back when it has ended. Pages that were never written take no memory, so that the number
//! is what rings may take at most.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tompion_layout::ring::{Geometry, GeometryError, MAX_RING, SUBBUF_SIZE};

/// Share of what is free that a program gets.
const SHARE: u64 = 4;
/// Sub-buffers of a ring, and of one that is too small for so many.
const SUBBUFS: u64 = 8;
const FEWEST_SUBBUFS: u64 = 2;

/// Request for memory, and the sizes that a machine's rings have at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingMemory {
    /// Bytes that all rings may take.
    pub bytes: u64,
    /// Sizes of all rings, if they were chosen.
    pub fixed: Option<Geometry>,
    /// Number of CPUs.
    pub cpus: u32,
    /// Number of buffers.
    pub buffers: u32,
}

impl RingMemory {
    /// Returns the sizes of the first program's rings.
    ///
    /// # Errors
    /// The memory is not enough for any: how much it takes.
    pub fn first(&self) -> Result<Geometry, MemoryError> {
        let smallest = self.fixed.map_or_else(|| self.smallest(), Ok)?;
        let too_little = || MemoryError::TooLittle { wanted: smallest.file_size(), found: self.bytes };
        self.share_of(self.bytes).ok_or_else(too_little)
    }

    fn smallest(&self) -> Result<Geometry, GeometryError> {
        Geometry::new(*SUBBUF_SIZE.start(), FEWEST_SUBBUFS, self.cpus, self.buffers)
    }

    /// Returns the sizes for one more program, where so many bytes are free.
    fn share_of(&self, free: u64) -> Option<Geometry> {
        let sizes = match self.fixed {
            Some(fixed) => fixed,
            None => self.largest_within(free / SHARE).or_else(|| self.smallest().ok())?,
        };
        (sizes.file_size() <= free).then_some(sizes)
    }

    /// Returns the largest rings that take at most so many bytes, without their headers.
    fn largest_within(&self, bytes: u64) -> Option<Geometry> {
        let rings = u64::from(self.cpus) * u64::from(self.buffers);
        let ring = (bytes / rings.max(1)).min(MAX_RING);
        let ring = 1 << ring.checked_ilog2()?;
        let subbufs = SUBBUFS.min(ring / SUBBUF_SIZE.start());
        Geometry::new(ring.checked_div(subbufs)?, subbufs, self.cpus, self.buffers).ok()
    }
}

/// Reason why a number is no memory for rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The sizes can't be.
    #[error(transparent)]
    Sizes(#[from] GeometryError),
    /// It is too little for one program.
    #[error("the rings of one program take at least {wanted} bytes, found {found} as --memory")]
    TooLittle {
        /// Bytes that the smallest rings of one program take.
        wanted: u64,
        /// Bytes that were given.
        found: u64,
    },
}

/// Memory of a recording's rings, and what its programs have of it.
#[derive(Clone, Debug)]
pub struct RingBudget(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    memory: RingMemory,
    free: u64,
    /// Number of shares.
    shares: u64,
}

/// Share of the memory. It comes back when this is dropped.
#[derive(Debug)]
pub struct RingShare {
    budget: RingBudget,
    bytes: u64,
}

impl RingBudget {
    /// Begins with nothing given.
    pub fn new(memory: RingMemory) -> Self {
        Self(Arc::new(Mutex::new(State { memory, free: memory.bytes, shares: 0 })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a program its share.
    ///
    /// # Errors
    /// Too little is left: the reason in words.
    pub fn give(&self) -> Result<(Geometry, RingShare), String> {
        let mut state = self.lock();
        let sizes = state.memory.share_of(state.free).ok_or_else(|| state.refusal())?;
        Ok((sizes, self.note(&mut state, sizes)))
    }

    /// Keeps the share of rings that are there already.
    pub fn keep(&self, sizes: Geometry) -> RingShare {
        self.note(&mut self.lock(), sizes)
    }

    fn note(&self, state: &mut State, sizes: Geometry) -> RingShare {
        let bytes = sizes.file_size().min(state.free);
        state.free -= bytes;
        state.shares += 1;
        RingShare { budget: self.clone(), bytes }
    }
}

impl Drop for RingShare {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.free = state.free.saturating_add(self.bytes).min(state.memory.bytes);
        state.shares = state.shares.saturating_sub(1);
    }
}

impl State {
    fn refusal(&self) -> String {
        let kib = |bytes: u64| bytes.div_ceil(1 << 10);
        format!(
            "no memory is left for its rings: {} shares take {} of the {} KiB of --memory",
            self.shares,
            kib(self.memory.bytes.saturating_sub(self.free)),
            kib(self.memory.bytes)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn memory(bytes: u64) -> RingMemory {
        RingMemory { bytes, fixed: None, cpus: 2, buffers: 1 }
    }

    #[test]
    fn shares_become_smaller_and_never_exceed_the_memory() {
        let whole = memory(256 * MIB);
        let budget = RingBudget::new(whole);
        let (first, first_share) = budget.give().expect("a share");
        assert_eq!(Some(first), whole.first().ok());
        assert_eq!((first.ring_size(), first.subbuf_count()), (32 * MIB, SUBBUFS));
        let (mut all, mut last) = (first.file_size(), first.file_size());
        let mut shares = Vec::new();
        let refusal = loop {
            match budget.give() {
                Ok((next, share)) => {
                    assert!(next.file_size() <= last);
                    last = next.file_size();
                    all += last;
                    shares.push(share);
                }
                Err(refusal) => break refusal,
            }
        };
        let programs = shares.len() + 1;
        assert!(all <= 256 * MIB && programs > 25, "{all} bytes of {programs} programs");
        assert!(refusal.contains(&format!("{programs} shares")), "{refusal}");
        // Less than the smallest rings is left.
        assert!(256 * MIB - all < whole.smallest().expect("sizes").file_size());
        drop(first_share);
        let (again, _share) = budget.give().expect("what came back");
        assert!(again.file_size() <= first.file_size() / 2 && again.file_size() >= first.file_size() / 8);
        drop((shares, _share));
        assert_eq!(budget.give().map(|(sizes, _)| sizes), Ok(first), "all of it came back");
    }

    #[test]
    fn chosen_sizes_are_kept_and_counted() {
        let fixed = Geometry::new(1 << 20, 4, 2, 1).expect("sizes");
        let budget = RingBudget::new(RingMemory { fixed: Some(fixed), ..memory(20 * MIB) });
        let (one, two) = (budget.give().expect("a share"), budget.give().expect("a share"));
        assert_eq!([one.0, two.0], [fixed; 2]);
        assert!(budget.give().is_err());
        drop(one);
        let kept = budget.keep(fixed);
        assert!(budget.give().is_err(), "what a program had before the restart counts");
        // More than there is: the memory may have been less before.
        drop(budget.keep(Geometry::new(1 << 20, 8, 2, 1).expect("sizes")));
        drop((two, kept));
        assert_eq!(budget.lock().free, 20 * MIB);
    }

    #[test]
    fn too_little_is_refused_with_what_it_takes() {
        let refused = memory(4096).first().expect_err("too little");
        let smallest = memory(0).smallest().expect("sizes").file_size();
        assert_eq!(refused, MemoryError::TooLittle { wanted: smallest, found: 4096 });
        assert_eq!(memory(smallest).first().map(|sizes| sizes.file_size()), Ok(smallest));
        let none = RingMemory { cpus: 0, ..memory(MIB) }.first();
        assert_eq!(none, Err(MemoryError::Sizes(GeometryError::Cpus(0))));
        let huge = RingMemory { cpus: 1, ..memory(u64::MAX) }.first().expect("sizes");
        assert!(huge.ring_size() <= MAX_RING);
    }
}
