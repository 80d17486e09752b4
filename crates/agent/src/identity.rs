//! `setuid` and related functions.
//!
//! Users, groups and capabilities belong to threads. libc makes every thread of the process do such
//! a call, and aborts the program if the kernel answers them differently. The agent's thread has
//! the capabilities that the program began with; the program may have changed its own since. So if
//! there is no thread but the program's one and the agent's, the latter ends before the call, and
//! is started again after it.

use std::{
    ffi::{CStr, c_int, c_void},
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::background_thread;

/// Puts this library's functions before libc's.
macro_rules! stand_before {
    ($($name:ident($($argument:ident: $kind:ty),+);)+) => {
        /// libc's own; null before [`resolve_libc_functions`].
        #[allow(non_upper_case_globals)]
        mod real {
            use super::*;
            $(pub static $name: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());)+
        }

        /// Finds libc's own while there is time: programs may call them in signal handlers.
        pub fn resolve_libc_functions() {
            // Ordering: the address is all there is to see.
            $(real::$name.store(next(concat!(stringify!($name), "\0")), Ordering::Relaxed);)+
        }

        $(
            #[doc = concat!("libc's `", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As that one.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),+) -> c_int {
                if real::$name.load(Ordering::Relaxed).is_null() {
                    resolve_libc_functions();
                }
                let real = real::$name.load(Ordering::Relaxed);
                if real.is_null() {
                    return tompion_os::fail_with_enosys();
                }
                // SAFETY: libc's function of this name has this type; the arguments are the
                // caller's.
                let call = || unsafe {
                    let real: unsafe extern "C" fn($($kind),+) -> c_int = std::mem::transmute(real);
                    real($($argument),+)
                };
                background_thread::with_thread_stopped(call).unwrap_or_else(call)
            }
        )+
    };
}

stand_before! {
    setuid(user: u32);
    setgid(group: u32);
    seteuid(user: u32);
    setegid(group: u32);
    setreuid(real: u32, effective: u32);
    setregid(real: u32, effective: u32);
    setresuid(real: u32, effective: u32, saved: u32);
    setresgid(real: u32, effective: u32, saved: u32);
    setgroups(count: usize, groups: *const u32);
}

fn next(name: &str) -> *mut c_void {
    CStr::from_bytes_with_nul(name.as_bytes()).map_or(std::ptr::null_mut(), tompion_os::next_libc_function)
}
