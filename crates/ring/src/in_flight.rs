//! Counts the threads that are in the slow part of an append, where they look at a recording's
//! memory and nothing restarts them, so that this memory can be unmapped when there are none.
//!
//! ```text
//! an append's slow part                      the thread that ends a recording
//!   count + 1, fence (SeqCst)                  cpus = 0
//!   loads `cpus`; if not 0, uses the memory    restarts all sections (membarrier), fence (SeqCst)
//!   count - 1     (release)                    count of each shard = 0? (acquire)  then unmaps
//! ```
//!
//! - Of the two fences one comes first. If it is the append's, its count is seen, until the append
//!   has left: nothing is unmapped. If it is the other's, the append finds `cpus` to be 0 and uses
//!   nothing.
//! - The fast part of an append is a restartable section: the barrier sends a thread inside to its
//!   beginning, where it finds `cpus` to be 0. It counts nothing.
//! - A count is taken back where it was added, so shards may be read one after the other. A thread
//!   that was there before the fence is counted in its shard until it leaves; a thread that comes
//!   behind the fence uses nothing.
//! - A thread that never comes back from a slow part (a handler leaves it by `longjmp`) is counted
//!   for ever, and so are the parent's threads that were there when a child was forked. Then
//!   nothing is unmapped any more, which is safe.
//!
//! Appends in reserve form are not counted: each would have to be, on its only path.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};

/// Counts of threads, in a place of its own for each of some CPUs, so that threads don't wait for
/// each other's cache line.
#[repr(align(64))]
struct Shard(AtomicU32);

/// Counts the calling thread until it is dropped.
pub(crate) struct InFlight<'a>(&'a AtomicU32);

impl<'a> InFlight<'a> {
    fn enter_at(shard: &'a Shard) -> Self {
        // Ordering: the fence pairs with the one in `is_any_of`; the count alone says nothing.
        shard.0.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Self(&shard.0)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        // Ordering: pairs with the acquire load in `is_any_of`: what was done to the memory is done
        // before.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

fn is_any_of(shards: &[Shard]) -> bool {
    // Ordering: pairs with the fence in `enter_at`.
    fence(Ordering::SeqCst);
    // Ordering: pairs with the release in `drop`.
    shards.iter().any(|shard| shard.0.load(Ordering::Acquire) != 0)
}

#[cfg(not(loom))]
mod process {
    use super::{AtomicU32, InFlight, Shard, is_any_of};
    use crate::section;

    const SHARDS: usize = 64;

    static COUNTS: [Shard; SHARDS] = [const { Shard(AtomicU32::new(0)) }; SHARDS];

    impl InFlight<'static> {
        /// Counts the caller: from now on, no memory is unmapped of a recording that it finds
        /// active.
        #[inline]
        pub(crate) fn enter() -> Self {
            Self::enter_at(&COUNTS[section::current_cpu() as usize % SHARDS])
        }
    }

    /// Returns whether some thread may still use the memory of recordings that were ended before.
    pub fn is_any() -> bool {
        is_any_of(&COUNTS)
    }
}

#[cfg(not(loom))]
pub use process::is_any;

/// Loom's tests: their names begin as those in `loom_tests.rs`.
#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use loom::{cell::UnsafeCell, thread};

    use super::{AtomicU32, InFlight, Ordering, Shard, is_any_of};

    /// Two CPUs' counts, a recording's `cpus`, and its memory: true while it is mapped.
    struct Process {
        shards: [Shard; 2],
        cpus: AtomicU32,
        is_mapped: UnsafeCell<bool>,
    }

    // SAFETY: loom watches the cell.
    unsafe impl Sync for Process {}

    impl Process {
        /// The slow part of an append, as in `producer.rs`.
        fn append(&self, cpu: usize, is_counted: bool) {
            let counted = is_counted.then(|| InFlight::enter_at(&self.shards[cpu]));
            if self.cpus.load(Ordering::Acquire) != 0 {
                // SAFETY: loom tells if it is unmapped at the same time.
                self.is_mapped.with(|mapped| assert!(unsafe { *mapped }));
            }
            drop(counted);
        }

        /// The end of the recording, as in the agent's `session.rs`.
        fn end(&self) {
            self.cpus.store(0, Ordering::Release);
            if !is_any_of(&self.shards) {
                // SAFETY: as above.
                self.is_mapped.with_mut(|mapped| unsafe { *mapped = false });
            }
        }
    }

    fn explore(is_counted: bool) {
        loom::model(move || {
            let shard = || Shard(AtomicU32::new(0));
            let (shards, cpus) = ([shard(), shard()], AtomicU32::new(1));
            let process = Arc::new(Process { shards, cpus, is_mapped: UnsafeCell::new(true) });
            let appends = [0, 1].map(|cpu| {
                let process = process.clone();
                thread::spawn(move || process.append(cpu, is_counted))
            });
            process.end();
            appends.into_iter().for_each(|append| append.join().unwrap());
        });
    }

    #[test]
    fn memory_is_unmapped_only_when_no_thread_is_in_flight() {
        explore(true);
    }

    #[test]
    #[should_panic(expected = "")]
    fn threads_that_are_not_counted_are_found() {
        explore(false);
    }
}
