//! State dumps: closures that record the program's present state when a recording begins.

use std::{
    ffi::c_void,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::platform;

/// Has a closure called for each recording of this process: for those that there are now, and when
/// another one begins.
///
/// The closure records the program's present state as ordinary events: open connections, settings,
/// names of objects. Only the recording that begins gets them. It keeps them: no flight recorder
/// overwrites them, and each chunk has them. Up to 512 KiB of one recording are kept; the others
/// count as lost.
///
/// A thread of the library calls the closures, one at a time, with a stack of 256 KiB. In a process
/// that can't be asked to take part while it runs (`TOMPION_ATTACH=0`) this function calls the
/// closure itself. A closure may lock and allocate, and should return within some milliseconds. A
/// panic ends the call, not the program (unless panics abort).
///
/// The closure is not called any more once the returned guard is dropped; dropping it waits for a
/// call that is going on, unless that call is the one that drops it. Without a library, nothing
/// calls the closure.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// let open = Arc::new(Mutex::new(vec!["10.0.0.1"]));
/// let seen = Arc::clone(&open);
/// let _dump = tompion::state_dump(move || {
///     for peer in seen.lock().unwrap().iter() {
///         tompion::event!("server", "connection", peer);
///     }
/// });
/// ```
pub fn state_dump<F: Fn() + Send + Sync + 'static>(record: F) -> StateDump {
    let record: Arc<Closure> = Arc::new(Box::new(record));
    // SAFETY: the closure lives until it was removed, in `drop`.
    let is_added = unsafe { platform::add_state_dump(call, address(&record)) };
    StateDump { record, is_added }
}

type Closure = Box<dyn Fn() + Send + Sync>;

/// Address of the closure, by which [`call`] finds it.
fn address(record: &Arc<Closure>) -> *mut c_void {
    Arc::as_ptr(record).cast_mut().cast()
}

/// Calls a closure.
///
/// # Safety
/// `record` is the address of the closure of a [`StateDump`] that was not dropped when this was
/// called.
unsafe extern "C" fn call(record: *mut c_void) {
    // A closure may drop its own guard: the call has a share in it.
    // SAFETY: the address is that of an `Arc`'s content, and its guard has a share in it.
    let record = unsafe {
        Arc::increment_strong_count(record.cast::<Closure>());
        Arc::from_raw(record.cast::<Closure>())
    };
    // The hook has reported a panic; no panic leaves this function.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| record())) {
        std::mem::forget(payload);
    }
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(record))) {
        std::mem::forget(payload);
    }
}

/// A state dump that is called until this is dropped: made by [`state_dump`].
#[must_use = "the state is recorded until this is dropped, here at once; write `let _dump = …`"]
pub struct StateDump {
    record: Arc<Closure>,
    is_added: bool,
}

impl StateDump {
    /// Whether the library calls the closure. False where there is no library, one that is too old,
    /// or one that has 64 state dumps of this process already.
    pub fn is_added(&self) -> bool {
        self.is_added
    }
}

impl Drop for StateDump {
    fn drop(&mut self) {
        if self.is_added {
            platform::remove_state_dump(call, address(&self.record));
        }
    }
}

impl fmt::Debug for StateDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateDump").field("is_added", &self.is_added).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    };

    use super::*;

    #[test]
    fn a_panic_stays_inside_and_a_call_outlives_its_guard() {
        let calls = Arc::new(AtomicU32::new(0));
        let guard: Arc<Mutex<Option<StateDump>>> = Arc::default();
        let (counter, own) = (Arc::clone(&calls), Arc::clone(&guard));
        let dump = state_dump(move || {
            drop(own.lock().expect("the guard").take());
            counter.fetch_add(1, Ordering::Relaxed);
            panic!("of the closure");
        });
        let record = address(&dump.record);
        *guard.lock().expect("the guard") = Some(dump);
        // SAFETY: the guard was not dropped.
        unsafe { call(record) };
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert!(guard.lock().expect("the guard").is_none());
        assert_eq!(Arc::strong_count(&calls), 1, "the closure is gone");
    }

    #[test]
    fn without_a_library_nothing_is_added() {
        assert!(!state_dump(|| ()).is_added());
    }
}
