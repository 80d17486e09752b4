//! Mapped maps of the attribution programs. Offsets are those of `src/bpf/attribution.h`.

use std::{os::fd::BorrowedFd, sync::atomic::Ordering};

use tompion_os::SharedMap;

use super::rule::{MAX_RULES, ThresholdRule};
use crate::attribution::{EVENT_SIZE, MAX_EVENTS, SIDE_HEAD};

const SIDE: usize = SIDE_HEAD + MAX_EVENTS * EVENT_SIZE;
const STACKS: usize = 64;
const DEPTH: usize = 30;
const STACK: usize = 16 + DEPTH * 8;
const RULE: usize = 48;
const SETTINGS: usize = FIRST_RULE + MAX_RULES * RULE;

const SIDE_NOW: usize = 0;
const ARMED: usize = 4;
const NOT_BEFORE: usize = 8;
const LOWEST: usize = 16;
const LATE: usize = 24;
const NOT_SAVED: usize = 32;
const SINCE: usize = 40;
const BEGUN: usize = 56;
const FIRST_RULE: usize = 64;
/// Value of `enum since`.
const WOKEN: u32 = 1;

/// Names of the maps and their entries per CPU; `settings` has one.
pub const ENTRIES: [(&str, u32); 4] =
    [("sides", 2), ("stacks", 2 * STACKS as u32), ("cpu_states", 1), ("processors", 1)];

/// Mapped settings, buffer halves and stacks.
pub struct MappedBuffers {
    cpus: usize,
    settings: SharedMap,
    sides: SharedMap,
    stacks: SharedMap,
}

/// Late wakeup as the programs report it (`struct crossing`). Times are CLOCK_MONOTONIC, in
/// nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Time of the wakeup.
    pub woken: u64,
    /// Intended expiry of its timer; 0 if no timer woke it.
    pub intended: u64,
    /// Start of the timer's handler.
    pub fired: u64,
    /// Time at which the thread ran.
    pub end: u64,
    /// Exceeded threshold in nanoseconds.
    pub limit: u64,
    /// Number of the thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Priority in the kernel's numbers.
    pub priority: i32,
    /// CPU on which it ran.
    pub cpu: u32,
    /// Class of the wakeup, by `Kind::number`.
    pub kind: u32,
    /// Buffer half with the events until then.
    pub side: u32,
    /// Thread that had the CPU before.
    pub other_tid: u32,
    /// Priority of that thread.
    pub other_priority: i32,
    /// Name of the thread.
    pub name: String,
    /// Name of the thread that had the CPU before.
    pub other_name: String,
    /// Whether the threshold applies from the wakeup on (`WOKEN`), although a timer was due before.
    pub is_from_waking: bool,
    /// Stack of the switch: addresses, the innermost first.
    pub stack: Vec<u64>,
}

impl Crossing {
    /// Decodes a message; none if it is too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let half = |offset: usize| -> Option<u32> {
            Some(u32::from_ne_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
        };
        let word = |offset: usize| -> Option<u64> {
            Some(u64::from_ne_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
        };
        let size = word(112)? as i64;
        let frames = (size.max(0) as usize / 8).min(DEPTH);
        let stack = (0..frames).map(|frame| word(120 + frame * 8)).collect::<Option<Vec<u64>>>()?;
        Some(Self {
            woken: word(0)?,
            intended: word(8)?,
            fired: word(16)?,
            end: word(24)?,
            limit: word(32)?,
            tid: half(40)?,
            pid: half(44)?,
            priority: half(48)? as i32,
            cpu: half(52)?,
            kind: half(56)?,
            side: half(60)? & 1,
            other_tid: half(64)?,
            other_priority: half(68)? as i32,
            name: text(bytes.get(72..88)?),
            other_name: text(bytes.get(88..104)?),
            is_from_waking: half(104)? == WOKEN && word(8)? != 0,
            stack,
        })
    }
}

fn text(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

impl MappedBuffers {
    /// Maps `settings`, `sides` and `stacks`.
    pub fn map(arrays: [BorrowedFd<'_>; 3], cpus: u32) -> std::io::Result<Self> {
        let cpus = cpus as usize;
        let [settings, sides, stacks] = arrays;
        let map = |array, size: usize| SharedMap::of_bpf_array(array, size as u64);
        Ok(Self {
            cpus,
            settings: Self::settings(settings)?,
            sides: map(sides, cpus * 2 * SIDE)?,
            stacks: map(stacks, cpus * 2 * STACKS * STACK)?,
        })
    }

    /// Swaps the halves to keep the events so far, if armed, and returns the kept half. Counts it
    /// as late in any case. Does the same as the program at the end of a late wakeup (`swap` in
    /// `attribution.bpf.c`).
    pub fn swap(settings: &SharedMap, now: u64) -> Option<u32> {
        settings.word(LATE).fetch_add(1, Ordering::Relaxed);
        // Pairs with `arm`: the other half is empty.
        let take = || settings.half(ARMED).compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed);
        if now < settings.word(NOT_BEFORE).load(Ordering::Relaxed) || take().is_err() {
            settings.word(NOT_SAVED).fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let side = settings.half(SIDE_NOW).load(Ordering::Relaxed) & 1;
        settings.word(SINCE + (side ^ 1) as usize * 8).store(now, Ordering::Relaxed);
        settings.half(SIDE_NOW).fetch_add(1, Ordering::Release);
        Some(side)
    }

    /// Maps the settings alone.
    pub fn settings(array: BorrowedFd<'_>) -> std::io::Result<SharedMap> {
        SharedMap::of_bpf_array(array, SETTINGS as u64)
    }

    /// Sets the rules before the programs are attached, at most [`MAX_RULES`]. Nothing is compared
    /// before [`MappedBuffers::begin`]; events until then go to the second half.
    pub fn set_rules(&self, rules: &[ThresholdRule]) {
        self.settings.word(BEGUN).store(u64::MAX, Ordering::Relaxed);
        self.settings.half(SIDE_NOW).store(1, Ordering::Relaxed);
        for (number, rule) in rules.iter().enumerate() {
            self.settings.copy_in(FIRST_RULE + number * RULE, &rule.bytes());
        }
        // Programs compare signed numbers.
        let lowest = rules.iter().map(|rule| rule.limit).min().unwrap_or(i64::MAX as u64);
        self.settings.word(LOWEST).store(lowest, Ordering::Relaxed);
    }

    /// Sets the time from which late wakeups are saved, by CLOCK_MONOTONIC.
    pub fn save_from(&self, time: u64) {
        self.settings.word(NOT_BEFORE).store(time, Ordering::Relaxed);
    }

    /// Starts recording into the first half and comparing, after all programs are attached. Returns
    /// the other half, which must be emptied: it has events of an incomplete set of programs, such
    /// as interrupts without an end.
    pub fn begin(&self, now: u64) -> u32 {
        self.settings.word(SINCE).store(now, Ordering::Relaxed);
        self.settings.word(BEGUN).store(now, Ordering::Relaxed);
        // Programs see it eventually; a half is not read before the next swap.
        self.settings.half(SIDE_NOW).store(2, Ordering::Release);
        1
    }

    /// Lets the next late wakeup swap the halves. The unused half must be empty
    /// ([`MappedBuffers::empty`]).
    pub fn arm(&self) {
        // Pairs with the program's compare-and-swap, after which the other half is seen empty.
        self.settings.half(ARMED).store(1, Ordering::Release);
    }

    /// Empties a half that is not written.
    pub fn empty(&self, side: u32) {
        for cpu in 0..self.cpus {
            let at = (cpu * 2 + side as usize) * SIDE;
            self.sides.word(at).store(0, Ordering::Relaxed);
            self.sides.word(at + 8).store(0, Ordering::Relaxed);
        }
    }

    /// Number of late wakeups, and of those not saved.
    pub fn late(&self) -> (u64, u64) {
        let load = |offset| self.settings.word(offset).load(Ordering::Relaxed);
        (load(LATE), load(NOT_SAVED))
    }

    /// Time from which on a half was written, by CLOCK_MONOTONIC.
    pub fn since(&self, side: u32) -> u64 {
        self.settings.word(SINCE + side as usize * 8).load(Ordering::Relaxed)
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Bytes of a CPU's half.
    pub fn side(&self, cpu: usize, side: u32) -> Vec<u8> {
        let mut bytes = vec![0; SIDE];
        self.sides.copy_out((cpu * 2 + side as usize) * SIDE, &mut bytes);
        bytes
    }

    /// Stacks of a CPU's half: numbers and addresses, the innermost first.
    pub fn stacks(&self, cpu: usize, side: u32) -> Vec<(u32, Vec<u64>)> {
        let stack = |place: usize| {
            let mut bytes = [0; STACK];
            let entry = (cpu * 2 + side as usize) * STACKS + place;
            self.stacks.copy_out(entry * STACK, &mut bytes);
            let word = |offset: usize| {
                bytes
                    .get(offset..offset + 8)
                    .and_then(|bytes| bytes.try_into().ok())
                    .map_or(0, u64::from_ne_bytes)
            };
            let frames = ((word(8) as i64).max(0) as usize / 8).min(DEPTH);
            let number = word(0).checked_sub(1)?;
            Some((number as u32, (0..frames).map(|frame| word(16 + frame * 8)).collect()))
        };
        (0..STACKS).filter_map(stack).collect()
    }
}
