//! `pthread_exit` of the main thread. The program then ends with the last of its threads, which
//! must not be the agent's: it would never come to its end.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::{background_thread, fork, host::protect_host, lock, state_dump};

/// libc's own.
type Exit = unsafe extern "C-unwind" fn(*mut c_void) -> !;

/// libc's own; null before [`resolve_libc_functions`].
static REAL_EXIT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Finds libc's `pthread_exit`.
pub fn resolve_libc_functions() {
    // Ordering: the address is all there is to see.
    REAL_EXIT.store(tompion_os::next_libc_function(c"pthread_exit"), Ordering::Relaxed);
}

/// libc's `pthread_exit`. If the main thread calls it, the agent's thread ends first. Recordings go
/// on.
///
/// # Safety
/// As `pthread_exit(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_exit(value: *mut c_void) -> ! {
    let may_pause = !fork::is_untracked_child() && !lock::is_mine();
    if tompion_os::is_main_thread() && may_pause && !protect_host(true, state_dump::is_calling) {
        // If it can't be paused, the program may live longer than it should.
        let _ = protect_host(false, background_thread::pause);
    }
    if REAL_EXIT.load(Ordering::Relaxed).is_null() {
        resolve_libc_functions();
    }
    // SAFETY: libc's function of this name has this type; it has been there since the first libc
    // with threads. It unwinds through this frame, where nothing is left to be dropped.
    unsafe {
        let real: Exit = std::mem::transmute(REAL_EXIT.load(Ordering::Relaxed));
        real(value)
    }
}
