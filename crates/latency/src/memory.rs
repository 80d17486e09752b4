//! The programs' arrays, mapped. Offsets and sizes are those of `src/bpf/monitor.h`, where they are drawn. Those of groups are
//! read in `groups/memory.rs`.
//!
//! Programs write while we read: numbers are loaded each by itself, records that belong together are read again if
//! somebody wrote meanwhile.

use std::{os::fd::BorrowedFd, sync::atomic::Ordering};

use serde::{Deserialize, Serialize};
use tompion_os::SharedMap;

use crate::{
    groups::GroupArrays,
    histogram::Histogram,
    kinds::{Kind, Kinds},
};

/// `LAYOUT_VERSION`.
pub const VERSION: u32 = 7;

pub(crate) const KINDS: usize = Kind::ALL.len();
/// Places of a histogram: one for each microsecond, and what is longer.
pub const BUCKETS: usize = 10_242;
/// Of the longest latencies: soft timers have one of their own.
pub(crate) const SLOTS: usize = KINDS + 1;
/// Since the reset, and two intervals of the history's by turns.
const SETS: usize = 3;
const WAKES: usize = 65_536;
/// How many threads have rows.
pub const THREADS: usize = 1024;
const PLACES: usize = 384;

pub(crate) const CONTROL: usize = 64;
const PROCESSOR: usize = 536;
pub(crate) const WORST: usize = 232;
/// Addresses of a stack.
const DEPTH: usize = 16;
const WAKE: usize = 32;
const THREAD: usize = 3168;

const BEGUN: usize = 0;
const LAYOUT: usize = 8;
pub(crate) const EPOCH: usize = 12;
const SETTINGS: usize = 16;
const INTERVAL: usize = 20;
/// The last of `control`'s unused numbers: the programs leave it alone.
const BUILD: usize = CONTROL - 4;
const FIRST_COUNT: usize = 216;
const FIRST_SUM: usize = 344;
const FIRST_PLACE: usize = 96;
const SLEPT: usize = 72;

/// How many counts there are (`enum count`).
pub const COUNTS: usize = 9;

/// Names of the arrays that are pinned, in the order in which [`Memory`] has them.
pub const ARRAYS: [&str; 6] = ["control", "processors", "histograms", "worsts", "wakes", "threads"];

/// How many entries arrays have whose number depends on the machine.
pub fn entries(cpus: u32) -> [(&'static str, u32); 3] {
    let each = |number: usize| cpus * number as u32;
    [("processors", cpus), ("histograms", each(KINDS * BUCKETS)), ("worsts", each(SETS * SLOTS))]
}

/// Arrays in which the kernel's programs count, mapped to be read at any time.
pub struct Memory {
    cpus: usize,
    control: SharedMap,
    processors: SharedMap,
    histograms: SharedMap,
    worsts: SharedMap,
    wakes: SharedMap,
    threads: SharedMap,
    groups: GroupArrays,
}

/// Longest latency of a CPU and slot, as the kernel's program kept it. Times are CLOCK_MONOTONIC in
/// nanoseconds; 0 is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxSample {
    /// The latency, in nanoseconds.
    pub latency: u64,
    /// When it ended.
    pub end: u64,
    /// When the timer was due.
    pub intended: u64,
    /// When the timer's handler ran.
    pub fired: u64,
    /// When the thread was woken.
    pub woken: u64,
    /// The thread that was late.
    pub tid: u32,
    /// Its priority in the kernel's numbers.
    pub priority: i32,
    /// The thread that ran before it.
    pub other_tid: u32,
    /// The other thread's priority.
    pub other_priority: i32,
    /// The late thread's name.
    pub name: String,
    /// The other thread's name.
    pub other_name: String,
    /// Where it ended: addresses in the kernel, the innermost first.
    #[serde(default)]
    pub stack: Vec<u64>,
}

#[cfg(test)]
impl MaxSample {
    /// One for tests, without its parts.
    pub fn made_up(latency: u64, end: u64) -> Self {
        Self {
            latency,
            end,
            intended: 0,
            fired: 0,
            woken: 0,
            tid: 7,
            priority: 19,
            other_tid: 0,
            other_priority: 120,
            name: "robot".into(),
            other_name: "swapper/0".into(),
            stack: Vec::new(),
        }
    }
}

/// A thread's row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RawThread {
    pub key: u64,
    pub tid: u32,
    pub priority: i32,
    pub cpu: u32,
    pub count: u64,
    pub not_slept: u64,
    pub last: u64,
    /// The longest of this epoch, and when it ended.
    pub worst: Option<(u64, u64)>,
    pub misses: u64,
    pub name: String,
    pub histogram: Histogram,
}

/// What a thread's row says of its sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slept {
    /// The row's.
    pub key: u64,
    /// The thread.
    pub tid: u32,
    /// Wake-ups that were seen where it had slept.
    pub seen: u64,
    /// How often it had slept before the first of these, by the scheduler's own count.
    pub before: u64,
}

/// Of a row's key, how many bits are the thread's number; the others are when it began.
const NUMBER_BITS: u32 = 22;
/// How many bits there are of when a thread began.
pub const BEGUN_BITS: u32 = 64 - NUMBER_BITS;

impl RawThread {
    /// When the thread began: the lowest [`BEGUN_BITS`] of CLOCK_MONOTONIC, in nanoseconds.
    pub fn begun(&self) -> u64 {
        self.key >> NUMBER_BITS
    }
}

impl Memory {
    /// Maps the arrays, in the order of [`ARRAYS`], and those of groups.
    pub fn map(arrays: [BorrowedFd<'_>; 6], groups: [BorrowedFd<'_>; 3], cpus: u32) -> std::io::Result<Self> {
        let cpus = cpus as usize;
        let [of_groups, places, longest] = groups;
        let groups = GroupArrays::map([arrays[0], of_groups, places, longest], cpus)?;
        let [control, processors, histograms, worsts, wakes, threads] = arrays;
        let map = |array, size: usize| SharedMap::of_bpf_array(array, size as u64);
        Ok(Self {
            cpus,
            control: map(control, CONTROL)?,
            processors: map(processors, cpus * PROCESSOR)?,
            histograms: map(histograms, cpus * KINDS * BUCKETS * 8)?,
            worsts: map(worsts, cpus * SETS * SLOTS * WORST)?,
            wakes: map(wakes, WAKES * WAKE)?,
            threads: map(threads, THREADS * THREAD)?,
            groups,
        })
    }

    /// Groups of threads that are counted by themselves, too.
    pub fn groups(&self) -> &GroupArrays {
        &self.groups
    }

    /// How many CPUs the arrays have room for.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Before the programs run for the first time. `build` says which ones they are.
    pub fn begin(&self, now: u64, kinds: Kinds, build: u32) {
        self.set_kinds(kinds);
        self.control.half(BUILD).store(build, Ordering::Relaxed);
        self.control.word(BEGUN).store(now, Ordering::Relaxed);
        self.control.half(LAYOUT).store(VERSION, Ordering::Relaxed);
    }

    /// When counting began.
    pub fn begun(&self) -> u64 {
        self.control.word(BEGUN).load(Ordering::Relaxed)
    }

    /// Which programs they are; 0 of those that don't say so.
    pub fn build(&self) -> u32 {
        self.control.half(BUILD).load(Ordering::Relaxed)
    }

    /// The layout of who began, by the first of the arrays alone: others may have other arrays beside it.
    pub fn version_of(control: BorrowedFd<'_>) -> std::io::Result<u32> {
        let control = SharedMap::of_bpf_array(control, LAYOUT as u64 + 4)?;
        Ok(control.half(LAYOUT).load(Ordering::Relaxed))
    }

    /// Makes all maxima begin anew.
    pub fn next_epoch(&self) {
        self.control.half(EPOCH).fetch_add(1, Ordering::Relaxed);
    }

    /// The interval of the history's that goes on.
    pub fn interval(&self) -> u32 {
        self.control.half(INTERVAL).load(Ordering::Relaxed)
    }

    /// Begins another interval of the history's, whose maxima begin anew; which one. The one before can be read until the
    /// next begins.
    pub fn next_interval(&self) -> u32 {
        self.control.half(INTERVAL).fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Which kinds are counted.
    pub fn kinds(&self) -> Kinds {
        Kinds::of_bits(self.control.half(SETTINGS).load(Ordering::Relaxed))
    }

    /// Which kinds are counted from now on.
    pub fn set_kinds(&self, kinds: Kinds) {
        self.control.half(SETTINGS).store(kinds.bits(), Ordering::Relaxed);
    }

    /// The counts of all CPUs together, by `enum count`.
    pub fn counts(&self) -> [u64; COUNTS] {
        let mut sums = [0u64; COUNTS];
        for cpu in 0..self.cpus {
            for (number, sum) in sums.iter_mut().enumerate() {
                let place = cpu * PROCESSOR + FIRST_COUNT + number * 8;
                *sum += self.processors.word(place).load(Ordering::Relaxed);
            }
        }
        sums
    }

    /// How many wake-ups have begun and not ended.
    pub fn open_wakes(&self) -> u64 {
        let is_open = |place: &usize| self.wakes.word(place * WAKE + 8).load(Ordering::Relaxed) != 0;
        (0..WAKES).filter(is_open).count() as u64
    }

    /// The sum of a CPU's latencies of a kind, in nanoseconds.
    pub fn sum(&self, cpu: usize, kind: Kind) -> u64 {
        self.processors.word(cpu * PROCESSOR + FIRST_SUM + kind.number() * 8).load(Ordering::Relaxed)
    }

    /// A CPU's histogram of a kind.
    pub fn histogram(&self, cpu: usize, kind: Kind) -> Histogram {
        histogram_at(&self.histograms, (cpu * KINDS + kind.number()) * BUCKETS * 8)
    }

    /// Tells the places of a CPU's histogram of a kind, in microseconds, and their counts.
    pub fn each_place(&self, cpu: usize, kind: Kind, tell: impl FnMut(usize, u64)) {
        each_place_at(&self.histograms, (cpu * KINDS + kind.number()) * BUCKETS * 8, tell);
    }

    /// The longest latency of a CPU and kind since maxima began anew.
    pub fn worst(&self, cpu: usize, kind: Kind) -> Option<MaxSample> {
        self.worst_of_set(cpu * SETS, kind, self.control.half(EPOCH).load(Ordering::Relaxed))
    }

    /// The longest latency of a CPU and kind in an interval of the history's, the last that has ended or the one that goes on.
    /// Before the first one begins, programs keep that of the epoch alone.
    pub fn worst_of_interval(&self, cpu: usize, kind: Kind, interval: u32) -> Option<MaxSample> {
        if interval == 0 {
            return self.worst(cpu, kind);
        }
        self.worst_of_set(cpu * SETS + 1 + (interval & 1) as usize, kind, interval)
    }

    fn worst_of_set(&self, set: usize, kind: Kind, epoch: u32) -> Option<MaxSample> {
        longer(kind, |slot| worst_at(&self.worsts, set * SLOTS + slot, epoch))
    }

    /// All rows that belong to threads.
    pub fn threads(&self) -> Vec<RawThread> {
        let epoch = self.control.half(EPOCH).load(Ordering::Relaxed);
        (0..THREADS).filter_map(|row| self.thread(row, epoch)).collect()
    }

    fn thread(&self, row: usize, epoch: u32) -> Option<RawThread> {
        let mut bytes = [0; THREAD];
        self.threads.copy_out(row * THREAD, &mut bytes);
        let key = word(&bytes, 0);
        let mut histogram = Histogram::default();
        for place in 0..PLACES {
            histogram.add(begin_of(place), begin_of(place + 1), word(&bytes, FIRST_PLACE + place * 8));
        }
        (key != 0).then(|| RawThread {
            key,
            tid: half(&bytes, 8),
            priority: half(&bytes, 12) as i32,
            cpu: half(&bytes, 16),
            count: word(&bytes, 24),
            not_slept: word(&bytes, 32),
            last: word(&bytes, 40),
            worst: (half(&bytes, 20) == epoch).then(|| (word(&bytes, 48), word(&bytes, 56))),
            misses: word(&bytes, 64),
            name: text(bytes.get(80..96)),
            histogram,
        })
    }

    /// How often threads slept and were seen to run again.
    pub fn slept(&self) -> impl Iterator<Item = Slept> + '_ {
        (0..THREADS).filter_map(|row| {
            let word = |offset: usize| self.threads.word(row * THREAD + offset).load(Ordering::Relaxed);
            let (key, seen) = (word(0), word(24).saturating_sub(word(32)));
            let tid = self.threads.half(row * THREAD + 8).load(Ordering::Relaxed);
            // A row that was just taken has no thread yet.
            (key != 0 && tid != 0).then(|| Slept { key, tid, seen, before: word(SLEPT) })
        })
    }

    fn rows_taken(&self) -> usize {
        (0..THREADS).filter(|row| self.threads.word(row * THREAD).load(Ordering::Relaxed) != 0).count()
    }

    /// Gives back the rows of threads that have ended, when most are taken.
    pub fn forget_threads(&self, has_ended: impl Fn(u32) -> bool) {
        const MANY: usize = THREADS / 4 * 3;
        if self.rows_taken() < MANY {
            return;
        }
        for row in 0..THREADS {
            let at = row * THREAD;
            let tid = self.threads.half(at + 8).load(Ordering::Relaxed);
            // A row that was just taken has no thread yet.
            if tid == 0 || !has_ended(tid) {
                continue;
            }
            self.threads.copy_in(at + 8, &[0; THREAD - 8]);
            // Pairs with the program's compare-and-swap, which takes the row.
            self.threads.word(at).store(0, Ordering::Release);
        }
    }
}

/// A histogram of whole microseconds, which begins at a byte of the array.
pub(crate) fn histogram_at(array: &SharedMap, begin: usize) -> Histogram {
    let mut histogram = Histogram::default();
    each_place_at(array, begin, |place, count| {
        let begin = place as u64 * 1000;
        histogram.add(begin, if place == BUCKETS - 1 { u64::MAX } else { begin + 1000 }, count);
    });
    histogram
}

fn each_place_at(array: &SharedMap, begin: usize, mut tell: impl FnMut(usize, u64)) {
    for place in 0..BUCKETS {
        tell(place, array.word(begin + place * 8).load(Ordering::Relaxed));
    }
}

/// The longest of a kind among the slots that have it: soft timers have one of their own.
pub(crate) fn longer(kind: Kind, of_slot: impl Fn(usize) -> Option<MaxSample>) -> Option<MaxSample> {
    let second = (kind == Kind::MissedTimer).then_some(KINDS);
    let found = [Some(kind.number()), second].into_iter().flatten().filter_map(of_slot);
    found.max_by_key(|worst| worst.latency)
}

/// The longest latency of a slot in an epoch.
pub(crate) fn worst_at(array: &SharedMap, slot: usize, epoch: u32) -> Option<MaxSample> {
    /// A program writes for less than a microsecond.
    const MOST_ATTEMPTS: usize = 1000;
    let place = slot * WORST;
    for _ in 0..MOST_ATTEMPTS {
        // Pairs with the programs' additions to the sequence, which order memory.
        let before = array.half(place).load(Ordering::Acquire);
        let mut bytes = [0; WORST];
        array.copy_out(place, &mut bytes);
        std::sync::atomic::fence(Ordering::Acquire);
        let after = array.half(place).load(Ordering::Relaxed);
        if before != after || before % 2 != 0 {
            continue;
        }
        let is_current = half(&bytes, 4) == epoch;
        return (is_current && before != 0).then(|| MaxSample {
            latency: word(&bytes, 8),
            end: word(&bytes, 16),
            intended: word(&bytes, 24),
            fired: word(&bytes, 32),
            woken: word(&bytes, 40),
            tid: half(&bytes, 48),
            priority: half(&bytes, 52) as i32,
            other_tid: half(&bytes, 56),
            other_priority: half(&bytes, 60) as i32,
            name: text(bytes.get(64..80)),
            other_name: text(bytes.get(80..96)),
            stack: stack(&bytes),
        });
    }
    None
}

/// Where a place of a thread's histogram begins, in nanoseconds (`place_of` in `monitor.bpf.c`).
fn begin_of(place: usize) -> u64 {
    const SHIFT: u32 = 7;
    const STEPS: u64 = 16;
    let place = place as u64;
    match place {
        0..STEPS => place << SHIFT,
        // The last one has no end.
        _ if place >= PLACES as u64 => u64::MAX,
        _ => (STEPS + place % STEPS) << (place / STEPS - 1) << SHIFT,
    }
}

/// Of a longest latency's bytes.
fn stack(bytes: &[u8; WORST]) -> Vec<u64> {
    const SIZE: usize = 96;
    let frames = ((word(bytes, SIZE) as i64).max(0) as usize / 8).min(DEPTH);
    (1..=frames).map(|frame| word(bytes, SIZE + frame * 8)).collect()
}

fn word(bytes: &[u8], offset: usize) -> u64 {
    let read = bytes.get(offset..offset + 8).and_then(|bytes| bytes.try_into().ok());
    read.map_or(0, u64::from_ne_bytes)
}

fn half(bytes: &[u8], offset: usize) -> u32 {
    let read = bytes.get(offset..offset + 4).and_then(|bytes| bytes.try_into().ok());
    read.map_or(0, u32::from_ne_bytes)
}

/// A thread's name: up to the first zero.
fn text(bytes: Option<&[u8]>) -> String {
    let name = bytes.unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod rows_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_threads_leave_no_gap() {
        assert_eq!((begin_of(0), begin_of(1), begin_of(15), begin_of(16)), (0, 128, 1920, 2048));
        assert_eq!((begin_of(17), begin_of(32), begin_of(33)), (2176, 4096, 4352));
        for place in 0..PLACES {
            let (begin, end) = (begin_of(place), begin_of(place + 1));
            assert!(begin < end, "{place}: {begin} {end}");
            // No more than a sixteenth off.
            assert!(place < 16 || end == u64::MAX || end - begin <= begin / 16, "{place}");
        }
        assert_eq!(begin_of(PLACES - 1), 31 << 22 << 7);
    }

    #[test]
    fn names_end_at_the_first_zero() {
        assert_eq!(text(Some(b"robot\0\0stale")), "robot");
        assert_eq!(text(Some(b"\xffbad")), "\u{fffd}bad");
        assert_eq!(text(None), "");
    }
}
