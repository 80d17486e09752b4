//! Context that the application defines.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr::{self, NonNull},
};

use crate::platform;

/// Type of context: an integer.
const INTEGER: u32 = 1;
/// Type of context: text.
const TEXT: u32 = 2;
/// Longest name that the library knows, with its NUL.
const MAX_NAME: usize = 64;

/// Offers an integer that recordings may take with every event of the program.
///
/// `name` is `provider:name`, two words of letters, digits and `_`, 63 bytes together. `get` is
/// called for each event that is recorded with it, on the event's own thread, also in signal
/// handlers: no lock, no allocation, no panic, no event. It is a function or a closure that
/// captures nothing.
///
/// Returns false where there is no library, for what is no name, for the name of a text, and if the
/// program has eight contexts already. A known name gets the new function.
///
/// `tompion record --context app` records all contexts of a program.
///
/// ```
/// use std::sync::atomic::{AtomicI64, Ordering};
///
/// static CYCLE: AtomicI64 = AtomicI64::new(0);
/// tompion::context("control:cycle", || CYCLE.load(Ordering::Relaxed));
/// ```
pub fn context<F: Fn() -> i64 + Copy + 'static>(name: &str, get: F) -> bool {
    let call: extern "C" fn() -> i64 = integer::<F>;
    offer(name, INTEGER, get, call as *mut c_void)
}

/// Offers a text that recordings may take with every event of the program.
///
/// `get` writes the text into the buffer, of which the library has 64 bytes, and returns how many
/// bytes it wrote. All else is as for [`context`](fn@context).
///
/// ```
/// tompion::text_context("control:phase", |buffer| {
///     buffer[..4].copy_from_slice(b"idle");
///     4
/// });
/// ```
pub fn text_context<F: Fn(&mut [u8]) -> usize + Copy + 'static>(name: &str, get: F) -> bool {
    let call: extern "C" fn(*mut c_char, usize) -> usize = text::<F>;
    offer(name, TEXT, get, call as *mut c_void)
}

/// Takes back a context that was offered: from now on its value is 0, or an empty text. A plugin
/// does so before it is unloaded. Returns false where there is no library.
pub fn withdraw_context(name: &str) -> bool {
    // One of the two types is the context's; the other one is refused.
    [INTEGER, TEXT].into_iter().any(|ty| {
        // SAFETY: a null pointer takes the function back.
        with_name(name, |name| unsafe { platform::provide_context(name, ty, ptr::null_mut()) })
    })
}

fn offer<F: Copy + 'static>(name: &str, ty: u32, _get: F, call: *mut c_void) -> bool {
    const { assert!(size_of::<F>() == 0, "tompion: a context's closure captures nothing") }
    // SAFETY: the function is of this type, and stays: it needs nothing of what made the closure.
    with_name(name, |name| unsafe { platform::provide_context(name, ty, call) })
}

fn with_name(name: &str, function: impl Fn(&CStr) -> bool) -> bool {
    let mut bytes = [0; MAX_NAME];
    let Some(place) = bytes.get_mut(..name.len()) else { return false };
    place.copy_from_slice(name.as_bytes());
    CStr::from_bytes_until_nul(&bytes).is_ok_and(|text| text.count_bytes() == name.len() && function(text))
}

/// The only value of a type without size.
///
/// # Safety
/// There was a value of it.
unsafe fn only<F: Copy + 'static>() -> F {
    // SAFETY: what has no size can be read anywhere; there was a value, which could be copied.
    unsafe { NonNull::<F>::dangling().read() }
}

extern "C" fn integer<F: Fn() -> i64 + Copy + 'static>() -> i64 {
    // SAFETY: `offer` had a value.
    let get = unsafe { only::<F>() };
    get()
}

extern "C" fn text<F: Fn(&mut [u8]) -> usize + Copy + 'static>(buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: `offer` had a value.
    let get = unsafe { only::<F>() };
    // SAFETY: the library's buffer, of this size, which is initialized.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), size) };
    get(buffer).min(size)
}
