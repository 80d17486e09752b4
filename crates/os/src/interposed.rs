//! For libraries that put themselves before functions of libc.

use std::ffi::CStr;

/// The function that a program would call by this name if the calling library had none of that name; null if
/// there is none. Source: `RTLD_NEXT` in `dlsym(3)`.
pub fn next_function(name: &CStr) -> *mut libc::c_void {
    // SAFETY: `name` is NUL-terminated.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// The function that a program calls by this name; null if there is none. Source: `RTLD_DEFAULT` in `dlsym(3)`.
pub fn function_of_all(name: &CStr) -> *mut libc::c_void {
    // SAFETY: `name` is NUL-terminated.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Whether two addresses lie in the same executable or library. Source: `dladdr(3)`.
pub fn are_of_one_object(one: *const libc::c_void, other: *const libc::c_void) -> bool {
    let base = |address| {
        // SAFETY: all-zero bytes are a valid answer structure.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: the address is compared and not followed.
        let known = unsafe { libc::dladdr(address, &raw mut found) } != 0;
        known.then_some(found.dli_fbase)
    };
    base(one) == base(other)
}

/// What a function returns that this system doesn't have: -1, with `errno` set.
pub fn fail_as_missing() -> libc::c_int {
    // SAFETY: the address of the calling thread's own `errno`.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}
