//! State dumps: functions of the program that record its present state when a recording begins.
//!
//! A thread of their own calls them, one after the other, without the agent's lock. It is not the
//! background thread: that one has other descriptors than the program, and must hear its sessions
//! while a function takes its time. The thread is started when the first function is added, by the
//! thread that adds it, whose descriptors it shares. Processes without a background thread get none
//! for this either: there, the thread that adds a function calls it, for the recordings that the
//! process is part of.
//!
//! ```text
//! due       bit n: recording n wants the dump and has not had it   set when it begins, or at `add`
//! running   the call that is going on; at most one in a process    set and cleared by its caller
//! TARGET    the recording that its events go to, plus 1; 0: none   0 too once that has ended
//! CHANGES   counts changes of all this, for threads that wait
//! ```
//!
//! What a function records goes to the list of pinned events of that one recording
//! ([`Retention::StateDump`](tompion_ring::producer::Retention)), in all modes.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tompion_os::monotonic_ns;

use crate::{
    fork,
    registry::{self, Registry},
    site::Module,
    writer,
};

/// Maximum number of functions in a process.
const MAX_DUMPS: usize = 64;
/// Maximum time for which the end of the program waits for a call.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Id of a thread that was started and has not noted its own.
const STARTING: u32 = u32::MAX;

/// Recording that receives the events of the call that is going on, plus 1; 0 without one.
static TARGET: AtomicU32 = AtomicU32::new(0);
/// Number of changes that waiting threads must know.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Function that records the program's state.
pub type Function = unsafe extern "C" fn(*mut c_void);

/// Function with its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dump {
    /// Address of a [`Function`].
    pub function: usize,
    /// Argument of the function.
    pub data: *mut c_void,
}

#[derive(Debug)]
struct Entry {
    dump: Dump,
    module: *const Module,
    /// Recordings that want the dump, one bit each.
    due: u32,
}

/// Call that is going on.
#[derive(Clone, Copy, Debug)]
struct Call {
    dump: Dump,
    /// Thread that makes it.
    tid: u32,
}

/// The process's state dumps, guarded by the registry's lock.
#[derive(Debug)]
pub struct StateDumps {
    entries: Vec<Entry>,
    running: Option<Call>,
    /// Id of the thread that makes the calls; 0 without one.
    thread: u32,
    /// Whether that thread must end.
    is_paused: bool,
    /// Whether the program is ending: no call begins any more.
    is_exiting: bool,
    /// Whether the end of the program is followed.
    follows_exit: bool,
}

impl StateDumps {
    /// None.
    pub const fn new() -> Self {
        Self {
            entries: Vec::new(),
            running: None,
            thread: 0,
            is_paused: false,
            is_exiting: false,
            follows_exit: false,
        }
    }

    /// Notes that a recording has begun in a slot.
    pub fn recording_began(&mut self, slot: usize) {
        self.recording_ended(slot);
        self.entries.iter_mut().for_each(|entry| entry.due |= 1 << slot);
        self.note_change();
    }

    /// Notes that there is no recording in a slot: what a call for it records goes nowhere.
    pub fn recording_ended(&mut self, slot: usize) {
        self.entries.iter_mut().for_each(|entry| entry.due &= !(1 << slot));
        // Ordering: only changed under the registry's lock.
        if TARGET.load(Ordering::Relaxed) == slot as u32 + 1 {
            TARGET.store(0, Ordering::Relaxed);
        }
    }

    /// In the child of a fork: forgets the parent's call, thread and recordings.
    pub fn forget_in_child(&mut self) {
        if self.entries.is_empty() {
            // Stores would copy one more page.
            return;
        }
        (self.running, self.thread, self.is_paused) = (None, 0, false);
        self.entries.iter_mut().for_each(|entry| entry.due = 0);
        TARGET.store(0, Ordering::Relaxed);
    }

    /// Returns whether the process has the thread that makes the calls.
    pub fn has_thread(&self) -> bool {
        self.thread != 0
    }

    /// Takes the next call, for the calling thread to make.
    fn begin_next(&mut self) -> Option<Call> {
        if self.running.is_some() || self.is_exiting {
            return None;
        }
        let entry = self.entries.iter_mut().find(|entry| entry.due != 0)?;
        let slot = entry.due.trailing_zeros();
        entry.due &= entry.due - 1;
        // Ordering: read by this thread, which makes the call.
        TARGET.store(slot + 1, Ordering::Relaxed);
        self.running = Some(Call { dump: entry.dump, tid: tompion_os::gettid() });
        self.running
    }

    /// Ends a call of the calling thread. (It is another's in the child of a fork that the call
    /// made.)
    fn finish(&mut self) {
        if self.is_mine() {
            self.running = None;
            TARGET.store(0, Ordering::Relaxed);
            self.note_change();
        }
    }

    /// Whether the calling thread makes the call that is going on.
    fn is_mine(&self) -> bool {
        self.running.is_some_and(|call| call.tid == tompion_os::gettid())
    }

    fn note_change(&self) {
        if !self.entries.is_empty() || self.thread != 0 {
            // Ordering: what has changed is read under the registry's lock.
            CHANGES.fetch_add(1, Ordering::Relaxed);
            tompion_os::futex_wake_all(&CHANGES);
        }
    }
}

/// Recordings that take the events of the call that the calling thread makes, one bit each.
pub fn recording_mask() -> u32 {
    // Ordering: stored by this thread. Or the recording has ended: its place takes no events.
    TARGET.load(Ordering::Relaxed).checked_sub(1).map_or(0, |slot| 1 << slot)
}

/// Whether the calling thread is inside of a call.
pub fn is_calling() -> bool {
    registry::lock().state_dumps.is_mine()
}

/// Adds a function, unless it is known. It is called for all recordings that the process is part
/// of, and for each that begins. False if there are too many.
pub fn add(dump: Dump, module: *const Module) -> bool {
    let mut registry = registry::lock();
    let due = registry.recordings.iter().enumerate();
    let due = due.fold(0, |due, (slot, joined)| due | u32::from(joined.is_some()) << slot);
    let dumps = &mut registry.state_dumps;
    if dumps.entries.iter().any(|entry| entry.dump == dump) {
        return true;
    }
    if dumps.entries.len() >= MAX_DUMPS {
        return false;
    }
    dumps.entries.push(Entry { dump, module, due });
    if !std::mem::replace(&mut dumps.follows_exit, true) {
        tompion_os::at_exit(on_exit);
    }
    dumps.note_change();
    ensure_thread(&mut registry);
    if registry.state_dumps.has_thread() || registry.state_dumps.is_mine() {
        return true;
    }
    drop(registry);
    make_calls();
    true
}

/// Removes a function. Unless the function itself is the caller, it does not run any more
/// afterwards. False if it is not known.
pub fn remove(dump: Dump) -> bool {
    remove_where(|entry| entry.dump == dump)
}

/// Removes the functions of a module that goes away.
pub fn remove_module(module: *const Module) {
    remove_where(|entry| std::ptr::eq(entry.module, module));
}

fn remove_where(is_meant: impl Fn(&Entry) -> bool) -> bool {
    let mut removed = Vec::new();
    let mut registry = registry::lock();
    registry.state_dumps.entries.retain(|entry| {
        let goes = is_meant(entry);
        removed.extend(goes.then_some(entry.dump));
        !goes
    });
    drop(registry);
    let is_running = |dumps: &StateDumps| {
        dumps.running.is_some_and(|call| removed.contains(&call.dump)) && !dumps.is_mine()
    };
    // The end of the program has waited long enough.
    wait_while(None, |dumps| is_running(dumps) && !dumps.is_exiting);
    !removed.is_empty()
}

/// Makes the calls that are due in the calling thread.
fn make_calls() {
    loop {
        wait_while(None, |dumps| dumps.running.is_some() && !dumps.is_exiting);
        if !make_call() {
            return;
        }
    }
}

/// Makes a call that is due. Returns whether there was one.
fn make_call() -> bool {
    let Some(Call { dump, .. }) = registry::lock().state_dumps.begin_next() else { return false };
    writer::begin_state_dump();
    // SAFETY: `add`'s caller promised a function of this type, which stays until it is removed. A
    // removal waits for this call.
    unsafe {
        let function: Function = std::mem::transmute::<usize, Function>(dump.function);
        function(dump.data);
    }
    writer::end_state_dump();
    registry::lock().state_dumps.finish();
    true
}

/// Waits while it is so, or until the time is over. Returns whether it is so no longer.
fn wait_while(timeout: Option<Duration>, is_so: impl Fn(&StateDumps) -> bool) -> bool {
    let end = timeout.map(|timeout| monotonic_ns() + timeout.as_nanos() as u64);
    loop {
        // Ordering: the state is read under the registry's lock, in which it is changed.
        let seen = CHANGES.load(Ordering::Relaxed);
        if !is_so(&registry::lock().state_dumps) {
            return true;
        }
        match end {
            None => tompion_os::futex_wait(&CHANGES, seen),
            Some(end) if monotonic_ns() >= end => return false,
            Some(end) => tompion_os::futex_wait_until(&CHANGES, seen, end),
        }
    }
}

/// Starts the thread that makes the calls, where there are functions to call and the process has a
/// background thread, too.
pub fn ensure_thread(registry: &mut Registry) {
    let is_reachable = registry.reachable && fork::may_start_threads();
    let dumps = &mut registry.state_dumps;
    if !is_reachable || dumps.entries.is_empty() || dumps.thread != 0 || dumps.is_paused {
        return;
    }
    if tompion_os::spawn_background(run).is_ok() {
        dumps.thread = STARTING;
    }
}

/// Runs the thread that makes the calls.
fn run() {
    let own = tompion_os::gettid();
    // What handles crashes of the program handles those of its functions.
    tompion_os::let_faults_come();
    registry::lock().state_dumps.thread = own;
    loop {
        // Ordering: as in `wait_while`.
        let seen = CHANGES.load(Ordering::Relaxed);
        if make_call() {
            // In the child of a fork that the call made, this is not the thread any more.
            if registry::lock().state_dumps.thread != own || tompion_os::gettid() != own {
                return;
            }
            continue;
        }
        let mut registry = registry::lock();
        let dumps = &mut registry.state_dumps;
        if dumps.is_paused {
            dumps.thread = 0;
            dumps.note_change();
            return;
        }
        drop(registry);
        tompion_os::futex_wait(&CHANGES, seen);
    }
}

/// Ends the thread that makes the calls and waits until the kernel has none of it left. Returns
/// whether there is none now. Needs a call of [`resume`], whatever it returned.
pub fn pause(timeout: Duration) -> bool {
    let thread = {
        let dumps = &mut registry::lock().state_dumps;
        dumps.is_paused = true;
        dumps.note_change();
        dumps.thread
    };
    if thread == 0 {
        return true;
    }
    let end = monotonic_ns() + timeout.as_nanos() as u64;
    let is_gone = wait_while(Some(timeout), |dumps| dumps.thread != 0);
    while is_gone && tompion_os::thread_exists(thread) && monotonic_ns() < end {
        std::thread::sleep(Duration::from_micros(50));
    }
    is_gone && !tompion_os::thread_exists(thread)
}

/// Starts the thread again.
pub fn resume(registry: &mut Registry) {
    registry.state_dumps.is_paused = false;
    ensure_thread(registry);
}

/// At the program's end, before what the functions use is destroyed: no call begins any more, and
/// one that is going on has some time.
extern "C" fn on_exit() {
    crate::host::protect_host((), || {
        if fork::is_untracked_child() {
            return;
        }
        registry::lock().state_dumps.is_exiting = true;
        wait_while(Some(EXIT_TIMEOUT), |dumps| dumps.running.is_some() && !dumps.is_mine());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(function: usize, due: u32) -> Entry {
        let dump = Dump { function, data: std::ptr::null_mut() };
        Entry { dump, module: std::ptr::null(), due }
    }

    /// One test: the target is the process's.
    #[test]
    fn each_recording_gets_each_dump_once_and_one_that_ended_gets_no_more() {
        let mut dumps = StateDumps::new();
        dumps.entries = vec![entry(1, 0), entry(2, 0)];
        assert!(dumps.begin_next().is_none());
        dumps.recording_began(3);
        let mut functions = Vec::new();
        while let Some(call) = dumps.begin_next() {
            assert_eq!(recording_mask(), 1 << 3);
            assert!(dumps.begin_next().is_none(), "two calls at a time");
            functions.push(call.dump.function);
            dumps.finish();
        }
        assert_eq!((functions, recording_mask()), (vec![1, 2], 0));
        // The recording ends while a call is going on, and another one takes its slot.
        dumps.recording_began(3);
        assert!(dumps.begin_next().is_some());
        dumps.recording_ended(3);
        assert_eq!(recording_mask(), 0);
        dumps.recording_began(3);
        assert_eq!(recording_mask(), 0, "the rest of the call is not the new recording's");
        dumps.finish();
        assert_eq!(std::iter::from_fn(|| dumps.begin_next().inspect(|_| dumps.finish())).count(), 2);
        dumps.recording_began(0);
        dumps.is_exiting = true;
        assert!(dumps.begin_next().is_none());
    }
}
