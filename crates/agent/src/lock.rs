//! The agent's only lock. It guards the registry and the heap.
//!
//! The event path never takes it. A thread that holds it is not interrupted: no signal handler runs
//! and no cancellation happens in it until it releases the lock. So no handler finds an agent that
//! the thread below it has half changed. A thread that holds the lock may take it again.
//!
//! The lock is held across a fork, so the child gets a consistent state, and the right to use it.
//!
//! ```text
//! state   FREE ─► TAKEN ─► FREE                 by the thread that takes and releases it
//!         TAKEN ─► AWAITED ─► FREE (wakes one)  by a thread that comes while it is taken
//! owner   thread pointer of the holder; 0 while it is free
//! inside  depth of nested holds and the holder's interruption block; only the holder uses both
//! ```

use std::{
    cell::UnsafeCell,
    marker::PhantomData,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
};

use tompion_os::InterruptionBlock;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// State of a lock that is held, and for which a thread sleeps.
const AWAITED: u32 = 2;

struct Lock {
    state: AtomicU32,
    owner: AtomicUsize,
    inside: UnsafeCell<Inside>,
}

struct Inside {
    depth: u32,
    /// Whether sanitizers are not notified of this hold.
    unwatched: bool,
    /// None for a thread that nothing disturbs anyway.
    undisturbed: Option<InterruptionBlock>,
}

// SAFETY: `inside` is only touched by the thread that has the lock.
unsafe impl Sync for Lock {}

static LOCK: Lock = Lock {
    state: AtomicU32::new(FREE),
    owner: AtomicUsize::new(0),
    inside: UnsafeCell::new(Inside { depth: 0, unwatched: false, undisturbed: None }),
};

/// Thread pointer of the agent's own thread, which takes no signals and is never cancelled.
static OWN_THREAD: AtomicUsize = AtomicUsize::new(0);

/// Says that the calling thread is the agent's own: it takes the lock without a system call.
pub fn mark_agent_thread() {
    // Ordering: only compared with the thread's own pointer.
    OWN_THREAD.store(tompion_os::thread_pointer(), Ordering::Relaxed);
}

/// Says that the agent has no thread any more. Another one may get its thread pointer.
pub fn forget_agent_thread() {
    OWN_THREAD.store(0, Ordering::Relaxed);
}

/// Whether the calling thread is the agent's own.
pub fn is_agent_thread() -> bool {
    // Ordering: as above.
    OWN_THREAD.load(Ordering::Relaxed) == tompion_os::thread_pointer()
}

/// The lock, until it is dropped.
#[derive(Debug)]
pub struct Held(PhantomData<*mut ()>);

/// Waits for the lock.
pub fn hold() -> Held {
    take_or_deepen(false)
}

/// Waits for the lock, and keeps it until [`release_kept`], on both sides of a fork.
///
/// `inside_others`: whether a sanitizer's own function may be the caller. It then holds locks of
/// its own, and must not be notified of this one.
pub fn keep_for_fork(inside_others: bool) {
    std::mem::forget(take_or_deepen(inside_others));
}

fn take_or_deepen(unwatched: bool) -> Held {
    if is_mine() {
        // SAFETY: this thread has the lock.
        unsafe { (*LOCK.inside.get()).depth += 1 };
        return Held(PhantomData);
    }
    let me = tompion_os::thread_pointer();
    let undisturbed = (!is_agent_thread()).then(InterruptionBlock::begin);
    take();
    if !unwatched {
        tompion_os::note_acquire(&LOCK);
    }
    LOCK.owner.store(me, Ordering::Relaxed);
    // SAFETY: as above, from now on.
    unsafe { *LOCK.inside.get() = Inside { depth: 1, unwatched, undisturbed } };
    Held(PhantomData)
}

fn take() {
    // Ordering: acquire pairs with the release in `Held::drop`; a failure is followed by another
    // attempt.
    if LOCK.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        return;
    }
    // Ordering: as above.
    while LOCK.state.swap(AWAITED, Ordering::Acquire) != FREE {
        tompion_os::futex_wait(&LOCK.state, AWAITED);
    }
}

/// Whether the calling thread has the lock.
pub fn is_mine() -> bool {
    // Ordering: no other thread ever stores this thread's pointer.
    LOCK.owner.load(Ordering::Relaxed) == tompion_os::thread_pointer()
}

/// Lets go of a lock that was kept.
///
/// # Safety
/// The calling thread, or in a fork's child the one that forked, has kept the lock.
pub unsafe fn release_kept() {
    drop(Held(PhantomData));
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: this thread has the lock.
        let inside = unsafe { &mut *LOCK.inside.get() };
        inside.depth -= 1;
        if inside.depth != 0 {
            return;
        }
        let undisturbed = inside.undisturbed.take();
        // Ordering: other threads compare it with their own pointers only.
        LOCK.owner.store(0, Ordering::Relaxed);
        if !inside.unwatched {
            tompion_os::note_release(&LOCK);
        }
        // Ordering: release pairs with the acquire in `take`.
        if LOCK.state.swap(FREE, Ordering::Release) == AWAITED {
            tompion_os::futex_wake_one(&LOCK.state);
        }
        drop(undisturbed);
    }
}
