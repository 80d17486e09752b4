//! Environment of a process that has just been forked.

use std::ffi::{CStr, CString};

unsafe extern "C" {
    static mut environ: *const *const libc::c_char;
}

/// Returns a variable of the environment that programs inherit which this process starts.
///
/// Without libc's `getenv`, which a program may replace (bash does), and without the standard
/// library's lock, whose page the child of a fork would have to copy.
///
/// # Safety
/// The process has one thread, as after a fork, and does not change the variable while the text is
/// in use.
pub unsafe fn environment_variable<'a>(name: &str) -> Option<&'a CStr> {
    // SAFETY: `environ` is null or a list of NUL-terminated texts that ends with a null pointer; no
    // other thread changes it, as the caller promises. What follows a part of a text that has no
    // NUL is inside the text.
    unsafe {
        let mut next = environ;
        while !next.is_null() && !(*next).is_null() {
            let entry = CStr::from_ptr(*next);
            if entry.to_bytes().strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"=")) {
                return Some(CStr::from_ptr((*next).add(name.len() + 1)));
            }
            next = next.add(1);
        }
    }
    None
}

/// Puts a variable into the environment that programs inherit which this process starts.
///
/// Without libc's `setenv`, which takes locks and allocates: in the child of a fork another thread
/// may have held them. The old environment stays where it is, and both stay for ever.
///
/// # Safety
/// The process has one thread, as after a fork.
pub unsafe fn put_into_environment(name: &str, value: &str) {
    let Ok(own) = CString::new(format!("{name}={value}")) else { return };
    let prefix = own.as_bytes().get(..=name.len()).unwrap_or_default().to_vec();
    // SAFETY: `environ` is null or a list of NUL-terminated texts that ends with a null pointer; no
    // other thread changes it, as the caller promises.
    unsafe {
        let mut entries = Vec::new();
        let mut next = environ;
        while !next.is_null() && !(*next).is_null() {
            if !CStr::from_ptr(*next).to_bytes().starts_with(&prefix) {
                entries.push(*next);
            }
            next = next.add(1);
        }
        entries.extend([own.into_raw().cast_const(), std::ptr::null()]);
        environ = Box::leak(entries.into_boxed_slice()).as_ptr();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_replaced_or_added() {
        // In a child, because the test has more than one thread. SAFETY: the child makes nothing
        // that another thread could have locked, but reads its environment.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the child has one thread.
            unsafe {
                put_into_environment("TOMPION_TEST", "1");
                put_into_environment("TOMPION_TEST", "2");
                put_into_environment("TOMPION_TEST_LONGER", "3");
                let known = environment_variable("TOMPION_TEST") == Some(c"2")
                    && environment_variable("TOMPION_TES").is_none();
                let read = |name: &std::ffi::CStr| std::ffi::CStr::from_ptr(libc::getenv(name.as_ptr()));
                let right = known
                    && read(c"TOMPION_TEST") == c"2"
                    && read(c"TOMPION_TEST_LONGER") == c"3"
                    && !libc::getenv(c"PATH".as_ptr()).is_null();
                libc::_exit(libc::c_int::from(!right));
            }
        }
        let mut status = 0;
        // SAFETY: a plain call with a live local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
