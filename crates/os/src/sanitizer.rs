//! Detection of sanitizers (`-fsanitize=…`) that compilers link into programs, as far as a library
//! must know.

use std::ffi::c_void;

use crate::thread::weak_symbol;

/// Whether a sanitizer keeps books about this process's threads and memory.
///
/// ThreadSanitizer ends processes that start a thread after their parent, having had several,
/// forked. Others don't keep the locks of their books across a fork, and a thread that is just
/// starting uses these.
pub(crate) fn is_watched() -> bool {
    let inits = [
        weak_symbol!(__asan_init),
        weak_symbol!(__hwasan_init),
        weak_symbol!(__lsan_do_leak_check),
        weak_symbol!(__msan_init),
        weak_symbol!(__tsan_init),
    ];
    inits.iter().any(|init| !init.is_null())
}

/// Says that what was done before the last [`note_release`] of this object has been done.
///
/// ThreadSanitizer sees what the library does through functions of libc, `memcpy` for example, but
/// not the atomic operations by which a lock orders it.
pub fn note_acquire<T>(object: &T) {
    note(weak_symbol!(__tsan_acquire), object);
}

/// Says that all that was done so far comes before the next [`note_acquire`] of this object.
pub fn note_release<T>(object: &T) {
    note(weak_symbol!(__tsan_release), object);
}

fn note<T>(function: *const c_void, object: &T) {
    // SAFETY: null, or a function that takes one pointer, by which it only knows the object.
    // Source: `tsan_interface.h`.
    let function: Option<extern "C" fn(*const c_void)> = unsafe { std::mem::transmute(function) };
    if let Some(function) = function {
        function(std::ptr::from_ref(object).cast());
    }
}
