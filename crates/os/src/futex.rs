//! Futexes: sleep until a word in memory changes.

use std::sync::atomic::AtomicU32;

/// Sleeps while the word has this value, or for a shorter time: callers look again.
///
/// Source: `futex(2)`, `FUTEX_WAIT`. Other processes that share the memory are not woken.
pub fn futex_wait(word: &AtomicU32, value: u32) {
    let no_limit = std::ptr::null::<libc::timespec>();
    // SAFETY: the word is valid for the call, and the kernel only reads it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            no_limit,
        )
    };
}

/// Wakes one thread that sleeps on the word.
pub fn futex_wake_one(word: &AtomicU32) {
    // SAFETY: the address only names a queue.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}

/// Wakes all threads that sleep on the word.
pub fn futex_wake_all(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the address only names a queue.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn sleepers_are_woken_by_a_change() {
        static WORD: AtomicU32 = AtomicU32::new(0);
        let sleep = || {
            while WORD.load(Ordering::Acquire) == 0 {
                futex_wait(&WORD, 0);
            }
        };
        for wake in [futex_wake_one, futex_wake_all] {
            WORD.store(0, Ordering::Release);
            let sleeper = std::thread::spawn(sleep);
            WORD.store(1, Ordering::Release);
            wake(&WORD);
            sleeper.join().unwrap();
        }
    }
}
