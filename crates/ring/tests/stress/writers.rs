//! Threads that append as fast as they can while they are interrupted and moved about.

use std::{
    mem, ptr,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use tompion_ring::producer::Outcome;

use crate::{
    record::{self, Append},
    support::Bench,
};

/// Someone who numbers its records: a number is used again until its record is in a ring.
#[derive(Default)]
pub struct Source {
    written: AtomicU64,
    lost: AtomicU64,
}

// Ordering, throughout: a source is one thread's or one handler's own; others look after that
// thread's end.
impl Source {
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Appends its next record. False if it was lost.
    fn append(&self, source: u16, bench: &Bench, append: Append) -> bool {
        let number = self.written.load(Ordering::Relaxed);
        let (counter, is_written) = match record::append(bench, append, source, number) {
            Outcome::Written => (&self.written, true),
            _ => (&self.lost, false),
        };
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        is_written
    }
}

/// A thread, and its signal handler.
pub struct Writer<'a> {
    index: u16,
    bench: &'a Bench,
    append: Append,
    pub thread: Source,
    pub handler: Source,
    id: AtomicI32,
}

extern "C" fn on_timer(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the timer's value is the writer of this thread, which outlives it.
    let writer = unsafe { &*(*info).si_value().sival_ptr.cast::<Writer<'_>>() };
    writer.handler.append(writer.index * 2 + 1, writer.bench, writer.append);
}

/// The signal of all storms.
fn storm_signal() -> i32 {
    libc::SIGRTMIN() + 3
}

/// Sets the handler of storms, once.
pub fn prepare_storms() {
    // SAFETY: all bytes zero are an action but for the handler, which is safe to be called whenever
    // a timer of [`Writer::begin_storm`] asks for it.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction =
            on_timer as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        assert_eq!(libc::sigaction(storm_signal(), &raw const action, ptr::null_mut()), 0);
    }
}

impl<'a> Writer<'a> {
    pub fn new(index: u16, bench: &'a Bench, append: Append) -> Self {
        let (thread, handler) = (Source::default(), Source::default());
        Self { index, bench, append, thread, handler, id: AtomicI32::new(0) }
    }

    /// Appends until it is told to stop, with a signal every so many microseconds (0: none).
    pub fn run(&self, stop: &AtomicBool, storm_us: u32) {
        // Ordering: the number is all that is told.
        self.id.store(tompion_os::gettid() as i32, Ordering::Relaxed);
        let timer = (storm_us > 0).then(|| self.begin_storm(storm_us));
        let mut round = 0u32;
        // Ordering: a hint.
        while !stop.load(Ordering::Relaxed) {
            round += 1;
            if !self.thread.append(self.index * 2, self.bench, self.append) || round % 1024 == 0 {
                // The reader's turn.
                thread::yield_now();
            }
        }
        self.id.store(0, Ordering::Relaxed);
        if let Some(timer) = timer {
            // SAFETY: the timer is this thread's.
            unsafe { libc::timer_delete(timer) };
        }
    }

    fn begin_storm(&self, every_us: u32) -> libc::timer_t {
        let every = libc::timespec { tv_sec: 0, tv_nsec: i64::from(every_us) * 1000 };
        let when = libc::itimerspec { it_interval: every, it_value: every };
        // SAFETY: all bytes zero are such an event; the timer ends before the writer does.
        unsafe {
            let mut event: libc::sigevent = mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = storm_signal();
            event.sigev_value.sival_ptr = (&raw const *self).cast_mut().cast();
            event.sigev_notify_thread_id = tompion_os::gettid() as i32;
            let mut timer = ptr::null_mut();
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer), 0);
            assert_eq!(libc::timer_settime(timer, 0, &raw const when, ptr::null_mut()), 0);
            timer
        }
    }
}

/// Moves writers from CPU to CPU at random until it is told to stop. How many moves there were.
pub fn migrate(writers: &[Writer<'_>], stop: &AtomicBool) -> u64 {
    let (mut state, mut moves) = (0x9e37_79b9_7f4a_7c15u64, 0);
    // Ordering: a hint, and a number by itself.
    while !stop.load(Ordering::Relaxed) {
        for writer in writers {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let thread = writer.id.load(Ordering::Relaxed);
            // Each CPU by itself, and now and then both.
            moves += u64::from(thread != 0 && bind(thread, [0b01, 0b10, 0b11][(state >> 20) as usize % 3]));
        }
        thread::sleep(Duration::from_micros(50));
    }
    moves
}

/// Binds a thread to some of the first CPUs. False where it may not run on them, or has ended.
fn bind(thread: i32, cpus: usize) -> bool {
    // SAFETY: all bytes zero are an empty set, which is this function's own.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        (0..2).filter(|cpu| cpus >> cpu & 1 == 1).for_each(|cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(thread, size_of_val(&set), &raw const set) == 0
    }
}
