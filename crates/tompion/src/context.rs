//! Context that the application defines.

use std::ffi::CStr;

use crate::platform;

/// Type of context: an integer.
const INTEGER: u32 = 1;
/// Longest name, with its NUL.
const MAX_NAME: usize = 512;

/// Hands a function that captures nothing over to the library.
pub fn offer<F: Fn() -> i64 + Copy + 'static>(name: &str, get: F) -> bool {
    const { assert!(size_of::<F>() == 0, "tompion: context is a function or a closure that captures nothing") }
    let mut bytes = [0; MAX_NAME];
    let Some(place) = bytes.get_mut(..name.len()) else { return false };
    place.copy_from_slice(name.as_bytes());
    let Ok(name) = CStr::from_bytes_with_nul(bytes.get(..=name.len()).unwrap_or_default()) else {
        return false;
    };
    let _ = get;
    let call: extern "C" fn() -> i64 = call::<F>;
    // SAFETY: a function that returns an integer, for ever: it is no part of what a closure captured.
    unsafe { platform::provide_context(name, INTEGER, call as *mut _) }
}

/// Calls the only value that a type without size has.
extern "C" fn call<F: Fn() -> i64 + Copy + 'static>() -> i64 {
    // SAFETY: the type has no size, and `offer` had a value of it, which could be copied.
    let get = unsafe { std::ptr::NonNull::<F>::dangling().as_ref() };
    get()
}
