//! For libraries that put themselves before functions of libc.

use std::ffi::CStr;

/// The function that a program would call by this name if the calling library had none of that name; null if
/// there is none. Source: `RTLD_NEXT` in `dlsym(3)`.
pub fn next_function(name: &CStr) -> *mut libc::c_void {
    // SAFETY: `name` is NUL-terminated.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// What a function returns that this system doesn't have: -1, with `errno` set.
pub fn fail_as_missing() -> libc::c_int {
    // SAFETY: the address of the calling thread's own `errno`.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}
