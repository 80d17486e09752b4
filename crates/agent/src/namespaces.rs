//! `unshare` and `setns` of namespaces that the kernel only lets processes with a single thread
//! change.
//!
//! The agent's background thread is a second one. So when the kernel refuses, the thread ends, the
//! call is made again, and the thread is started again. The library puts itself before libc's
//! functions; a bare system call fails because of the thread.

use std::{ffi::c_int, time::Duration};

use crate::background_thread;

/// Pauses between attempts once the thread is gone; they double, and are 13 ms together.
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_micros(50);

/// libc's `unshare`.
#[unsafe(no_mangle)]
pub extern "C" fn unshare(flags: c_int) -> c_int {
    with_one_thread(|| tompion_os::unshare(flags))
}

/// libc's `setns`.
#[unsafe(no_mangle)]
pub extern "C" fn setns(descriptor: c_int, kind: c_int) -> c_int {
    with_one_thread(|| tompion_os::set_namespace(descriptor, kind))
}

/// Makes a call that may be refused because of the background thread.
fn with_one_thread(call: impl Fn() -> c_int) -> c_int {
    let result = call();
    if result == 0 || !tompion_os::failed_for_threads() {
        return result;
    }
    background_thread::with_thread_stopped(|| until_counted_out(call)).unwrap_or(result)
}

/// Makes the call until the kernel no longer counts a thread that has ended. It forgets the
/// thread's id first and what it shared with others a moment later (`__exit_signal`,
/// kernel/exit.c), which is longer where a hypervisor stops the processor in between; nothing tells
/// a program when that is done.
fn until_counted_out(call: impl Fn() -> c_int) -> c_int {
    for attempt in 0..ATTEMPTS {
        let result = call();
        if result == 0 || !tompion_os::failed_for_threads() {
            return result;
        }
        std::thread::sleep(FIRST_PAUSE * 2u32.pow(attempt));
    }
    call()
}
