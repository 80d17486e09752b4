//! Periodic wakeups: the ways in which a program can wait for a time.
//!
//! All times are CLOCK_MONOTONIC in nanoseconds.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::atomic::AtomicU32,
};

use crate::{check, last_error};

const SECOND: u64 = 1_000_000_000;

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / SECOND) as _, tv_nsec: (ns % SECOND) as libc::c_long }
}

fn from(first_ns: u64, interval_ns: u64) -> libc::itimerspec {
    libc::itimerspec { it_value: timespec(first_ns.max(1)), it_interval: timespec(interval_ns) }
}

/// Sleeps until a time, through signals. Source: `clock_nanosleep(2)`, TIMER_ABSTIME.
pub fn sleep_until(ns: u64) {
    let time = timespec(ns);
    let none = std::ptr::null_mut();
    // SAFETY: the structure is only read.
    while unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const time, none) }
        == libc::EINTR
    {}
}

/// Sleeps while the word has this value, until a time or for a shorter one. Source: `futex(2)`,
/// FUTEX_WAIT_BITSET, whose time is absolute.
pub fn futex_wait_until(word: &AtomicU32, value: u32, ns: u64) {
    let time = timespec(ns);
    let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time are valid for the call, and only read.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, &raw const time, 0_usize, u32::MAX);
    }
}

/// A timer that a thread reads. Source: `timerfd_create(2)`.
#[derive(Debug)]
pub struct TimerDescriptor(OwnedFd);

impl TimerDescriptor {
    /// Expires at this time, and then after each interval.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn new(first_ns: u64, interval_ns: u64) -> io::Result<Self> {
        let times = from(first_ns, interval_ns);
        // SAFETY: the descriptor is new; the structure is only read.
        unsafe {
            let raw = check(libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC))?;
            let timer = Self(OwnedFd::from_raw_fd(raw));
            let none = std::ptr::null_mut();
            check(libc::timerfd_settime(raw, libc::TFD_TIMER_ABSTIME, &raw const times, none))?;
            Ok(timer)
        }
    }

    /// Waits until it has expired, and says how often since it was last asked.
    ///
    /// # Errors
    /// As `read(2)`.
    pub fn wait(&mut self) -> io::Result<u64> {
        let mut count = 0_u64;
        loop {
            // SAFETY: `count` has the eight bytes that are read.
            let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
            match check(read as libc::c_int) {
                Ok(_) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A POSIX timer that sends a signal to the thread that made it, which waits for it. Source:
/// `timer_create(2)`, SIGEV_THREAD_ID; `sigwaitinfo(2)`.
#[derive(Debug)]
pub struct SignalTimer {
    timer: libc::timer_t,
    signal: libc::c_int,
    /// The signal comes to this thread alone.
    stays: std::marker::PhantomData<*mut ()>,
}

impl SignalTimer {
    /// Expires at this time, and then after each interval. Blocks the signal in the calling thread,
    /// which is to wait.
    ///
    /// # Errors
    /// The kernel has no POSIX timers, or no room for one more.
    pub fn new(first_ns: u64, interval_ns: u64) -> io::Result<Self> {
        let signal = libc::SIGRTMIN();
        let times = from(first_ns, interval_ns);
        block(signal);
        // SAFETY: all-zero bytes are valid for the structures; the kernel writes the timer's number
        // into a live local, and reads the others.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = crate::gettid() as libc::c_int;
            let mut timer: libc::timer_t = std::mem::zeroed();
            check(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer))?;
            let made = Self { timer, signal, stays: std::marker::PhantomData };
            let none = std::ptr::null_mut();
            check(libc::timer_settime(timer, libc::TIMER_ABSTIME, &raw const times, none))?;
            Ok(made)
        }
    }

    /// Waits until it has expired, and says how often since it was last asked.
    ///
    /// # Errors
    /// As `sigwaitinfo(2)`.
    pub fn wait(&mut self) -> io::Result<u64> {
        let set = set_of(self.signal);
        loop {
            // SAFETY: the set is initialised; no information is asked for.
            if unsafe { libc::sigwaitinfo(&raw const set, std::ptr::null_mut()) } == self.signal {
                break;
            }
            let error = last_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        // SAFETY: the timer lives as long as `self`.
        let more = unsafe { libc::timer_getoverrun(self.timer) };
        Ok(1 + u64::try_from(more).unwrap_or(0))
    }
}

impl Drop for SignalTimer {
    fn drop(&mut self) {
        // SAFETY: the timer is deleted once, here.
        unsafe { libc::timer_delete(self.timer) };
    }
}

fn set_of(signal: libc::c_int) -> libc::sigset_t {
    // SAFETY: all-zero bytes are valid; the set is initialised before it is returned.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        set
    }
}

fn block(signal: libc::c_int) {
    let set = set_of(signal);
    // SAFETY: the set is initialised, the old one isn't asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monotonic_ns;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn no_way_of_waiting_wakes_up_early() {
        let word = AtomicU32::new(0);
        for _ in 0..3 {
            let time = monotonic_ns() + 2 * MILLISECOND;
            sleep_until(time);
            assert!(monotonic_ns() >= time);
            let time = monotonic_ns() + 2 * MILLISECOND;
            while monotonic_ns() < time {
                futex_wait_until(&word, 0, time);
            }
        }
    }

    #[test]
    fn timers_count_what_was_missed() {
        let begin = monotonic_ns();
        let mut descriptor = TimerDescriptor::new(begin, MILLISECOND).unwrap();
        let mut signal = SignalTimer::new(begin, MILLISECOND).unwrap();
        sleep_until(begin + 20 * MILLISECOND);
        assert!(descriptor.wait().unwrap() >= 20);
        assert!(signal.wait().unwrap() >= 20);
        assert!(descriptor.wait().unwrap() >= 1 && signal.wait().unwrap() >= 1);
    }
}
