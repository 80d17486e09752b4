//! Children that begin with a copy of their parent's memory: `fork`, `_Fork`, and `clone` without
//! `CLONE_VM`.
//!
//! The recordings' memory is wiped in such a child, so its events go nowhere until it has
//! introduced itself to the session as a process of its own. The agent's lock is kept across the
//! copying: what the child finds is whole.
//!
//! A child made by a bare system call has not been through here and is *untracked*: its copy of the
//! agent may be half changed, and its lock held by a thread that it doesn't have. It recognizes
//! itself by a word that was wiped, and leaves the agent alone. So do its own children, until they
//! execute something.

use std::{
    ffi::c_int,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering},
    },
};

use crate::{host::protect_host, lock, writer};

/// A word that is not 0, in memory that is wiped in the child of any kind of fork; null before
/// [`follow`].
static PRESENCE: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// libc's own `_Fork`; null where it has none.
#[cfg(feature = "shared")]
static REAL_FORK: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Whether this process began without libc knowing of a fork: its locks may be taken by threads
/// that are not here, so nothing may be asked of it that takes one.
static BARE: AtomicBool = AtomicBool::new(false);

/// System interface by which a process was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// The child was made by `fork`, of which libc notifies the agent.
    Fork,
    /// The child was made by `_Fork`, which signal handlers may call and which prepares nothing.
    BareFork,
    /// The child was made by `clone`, after which libc knows not even the new thread's id.
    Clone,
}

/// Finds libc's `_Fork` while there is time: later it may be called in a signal handler.
#[cfg(feature = "shared")]
pub fn resolve_libc_functions() {
    // Ordering: the address is all there is to see.
    REAL_FORK.store(tompion_os::next_libc_function(c"_Fork"), Ordering::Relaxed);
}

/// Function that a tracked child runs, as its only thread, with the agent's lock.
static CHILD_HANDLER: OnceLock<fn()> = OnceLock::new();

/// Sets the function that tracked children run. Later calls change nothing.
pub fn set_child_handler(handler: fn()) {
    let _ = CHILD_HANDLER.set(handler);
}

/// Follows the forks of this process, once in its life.
pub fn follow() {
    // Ordering: callers hold the agent's lock.
    if !PRESENCE.load(Ordering::Relaxed).is_null() {
        return;
    }
    let Ok(page) = tompion_os::open_private_page(size_of::<AtomicU32>()) else { return };
    let presence = page.as_ptr().cast::<AtomicU32>();
    // SAFETY: new memory that stays for ever.
    unsafe { (*presence).store(1, Ordering::Relaxed) };
    // Ordering: pairs with the acquire load in `presence`.
    PRESENCE.store(presence, Ordering::Release);
    tompion_os::on_fork(before, in_parent, in_forked_child);
}

/// The word that strays find wiped; none in a process whose forks aren't followed.
fn presence() -> Option<&'static AtomicU32> {
    // SAFETY: null, or memory that stays for ever.
    // Ordering: pairs with the release store in `follow`.
    unsafe { PRESENCE.load(Ordering::Acquire).as_ref() }
}

/// Whether this process must leave the agent alone.
pub fn is_untracked_child() -> bool {
    // Ordering: changed by the only thread of a new process, before it has others.
    presence().is_some_and(|word| word.load(Ordering::Relaxed) == 0)
}

/// Whether libc may be asked to start a thread in this process.
pub fn may_start_threads() -> bool {
    !BARE.load(Ordering::Relaxed)
}

/// Takes the lock, so that no thread changes the agent's state or uses its heap while the process
/// is copied.
extern "C" fn before() {
    if !is_untracked_child() {
        lock::keep_for_fork(false);
    }
}

extern "C" fn in_parent() {
    if !is_untracked_child() {
        // SAFETY: `before` kept the lock in this thread.
        unsafe { lock::release_kept() };
    }
}

extern "C" fn in_forked_child() {
    // The word has been wiped: here it says nothing of the parent, which can be a stray.
    in_copy(Copied::Fork);
}

/// Begins a child's own life. Its only thread is the one that was copied, which has kept the lock.
pub fn in_copy(how: Copied) {
    // An untracked child's children are untracked, too. It hasn't taken the lock: the lock is free,
    // or held by a thread that isn't here.
    let Some(presence) = presence().filter(|_| lock::is_mine()) else { return };
    // Ordering: the process has no other thread.
    presence.store(1, Ordering::Relaxed);
    BARE.store(how != Copied::Fork, Ordering::Relaxed);
    // The child's thread has another id.
    writer::forget_thread_id();
    writer::forget_state_dump();
    if how == Copied::Clone {
        // libc has not noted it either.
        writer::set_tid_offset(None);
    }
    if let Some(&handler) = CHILD_HANDLER.get() {
        protect_host((), handler);
    }
    // SAFETY: this thread has the lock.
    unsafe { lock::release_kept() };
}

/// Has a child made that gets a copy of this process's memory, by means of which libc doesn't tell
/// us.
///
/// In the child, `copy` returns 0, or it calls [`in_copy`] itself and doesn't return.
pub fn around_copying(copy: impl Fn() -> c_int) -> c_int {
    if presence().is_none() || is_untracked_child() {
        return copy();
    }
    lock::keep_for_fork(true);
    let result = copy();
    if result == 0 {
        in_copy(Copied::BareFork);
    } else {
        tompion_os::keeping_errno(|| in_parent());
    }
    result
}

/// libc's `_Fork`, which runs no handlers. As `fork(2)`, and safe in signal handlers.
///
/// Linked statically, this library can't stand before libc's: there, children by `_Fork` are
/// strays.
#[cfg(feature = "shared")]
#[unsafe(no_mangle)]
pub extern "C" fn _Fork() -> c_int {
    if REAL_FORK.load(Ordering::Relaxed).is_null() {
        // Called before this library was initialised, or there is none.
        resolve_libc_functions();
    }
    let real = REAL_FORK.load(Ordering::Relaxed);
    if real.is_null() {
        return tompion_os::fail_with_enosys();
    }
    // SAFETY: libc's function of this name has this type.
    let real: extern "C" fn() -> c_int = unsafe { std::mem::transmute(real) };
    around_copying(|| real())
}
