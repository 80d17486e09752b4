//! The arrays of the programs that catch late wake-ups, mapped. Offsets are those of `src/bpf/blame.h`.

use std::{os::fd::BorrowedFd, sync::atomic::Ordering};

use tompion_os::SharedMap;

use super::rule::{MOST_RULES, Rule};
use crate::blame::{MOMENT_SIZE, MOMENTS, SIDE_HEAD};

const SIDE: usize = SIDE_HEAD + MOMENTS * MOMENT_SIZE;
const STACKS: usize = 64;
const DEPTH: usize = 30;
const STACK: usize = 16 + DEPTH * 8;
const RULE: usize = 48;
const SETTINGS: usize = FIRST_RULE + MOST_RULES * RULE;

const SIDE_NOW: usize = 0;
const ARMED: usize = 4;
const NOT_BEFORE: usize = 8;
const LOWEST: usize = 16;
const LATE: usize = 24;
const NOT_SAVED: usize = 32;
const SINCE: usize = 40;
const BEGUN: usize = 56;
const FIRST_RULE: usize = 64;
/// Of `enum since`.
const WOKEN: u32 = 1;

/// Names of the arrays and how many entries they have for each CPU; `settings` has one.
pub const ENTRIES: [(&str, u32); 4] =
    [("sides", 2), ("stacks", 2 * STACKS as u32), ("nows", 1), ("processors", 1)];

/// The mapped arrays.
pub struct Memory {
    cpus: usize,
    settings: SharedMap,
    sides: SharedMap,
    stacks: SharedMap,
}

/// A late wake-up, as the programs tell of it (`struct crossing`). Times are CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// When the thread was woken.
    pub woken: u64,
    /// When its timer was to go off; 0 if none woke it.
    pub intended: u64,
    /// When the timer's handler began.
    pub fired: u64,
    /// When the thread ran.
    pub end: u64,
    /// The limit that it passed, in nanoseconds.
    pub limit: u64,
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its priority, as the kernel counts.
    pub priority: i32,
    /// Where it ran.
    pub cpu: u32,
    /// The class of the wake-up, by `Kind::number`.
    pub kind: u32,
    /// The side on which everything was noted until then.
    pub side: u32,
    /// Who had the CPU until then.
    pub other_tid: u32,
    /// That one's priority.
    pub other_priority: i32,
    /// The thread's name.
    pub name: String,
    /// The name of who had the CPU.
    pub other_name: String,
    /// Whether the limit is of the time from the wake-up on alone (`WOKEN`), though a timer was due before.
    pub is_from_waking: bool,
    /// Where the switch was made: addresses, the innermost first.
    pub stack: Vec<u64>,
}

impl Crossing {
    /// Reads a message; none if it is too short.
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

impl Memory {
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

    /// Keeps what was noted until now, if anything may be kept: which side. It is counted as late in any case. The same as the program
    /// does in the switch in which a latency ends (`flip` in `blame.bpf.c`).
    pub fn flip(settings: &SharedMap, now: u64) -> Option<u32> {
        settings.word(LATE).fetch_add(1, Ordering::Relaxed);
        // Pairs with `arm`: the other side is empty.
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

    /// The settings alone, mapped.
    pub fn settings(array: BorrowedFd<'_>) -> std::io::Result<SharedMap> {
        SharedMap::of_bpf_array(array, SETTINGS as u64)
    }

    /// Before the programs are attached: as many as there is room for. None is compared before [`Memory::begin`], and what is noted until
    /// then goes to the side that is not the first.
    pub fn set_rules(&self, rules: &[Rule]) {
        self.settings.word(BEGUN).store(u64::MAX, Ordering::Relaxed);
        self.settings.half(SIDE_NOW).store(1, Ordering::Relaxed);
        for (number, rule) in rules.iter().enumerate() {
            self.settings.copy_in(FIRST_RULE + number * RULE, &rule.bytes());
        }
        // Programs compare with a sign.
        let lowest = rules.iter().map(|rule| rule.limit).min().unwrap_or(i64::MAX as u64);
        self.settings.word(LOWEST).store(lowest, Ordering::Relaxed);
    }

    /// From when on late wake-ups are saved, by CLOCK_MONOTONIC.
    pub fn save_from(&self, time: u64) {
        self.settings.word(NOT_BEFORE).store(time, Ordering::Relaxed);
    }

    /// All programs are attached: from now on everything is noted, on the first side, and wake-ups are compared. The other side has what
    /// some of them noted before others were there, such as interrupts without an end; it is to be emptied.
    pub fn begin(&self, now: u64) -> u32 {
        self.settings.word(SINCE).store(now, Ordering::Relaxed);
        self.settings.word(BEGUN).store(now, Ordering::Relaxed);
        // Programs read it in their own time: nobody looks at a side before it is flipped again.
        self.settings.half(SIDE_NOW).store(2, Ordering::Release);
        1
    }

    /// Lets the next late wake-up flip the sides. The side that is not written must be empty ([`Memory::empty`]).
    pub fn arm(&self) {
        // Pairs with the program's compare-and-swap: it finds the other side empty.
        self.settings.half(ARMED).store(1, Ordering::Release);
    }

    /// Empties a side that is not written.
    pub fn empty(&self, side: u32) {
        for cpu in 0..self.cpus {
            let at = (cpu * 2 + side as usize) * SIDE;
            self.sides.word(at).store(0, Ordering::Relaxed);
            self.sides.word(at + 8).store(0, Ordering::Relaxed);
        }
    }

    /// How many wake-ups were late, and how many of those were not saved.
    pub fn late(&self) -> (u64, u64) {
        let load = |offset| self.settings.word(offset).load(Ordering::Relaxed);
        (load(LATE), load(NOT_SAVED))
    }

    /// From when on a side was written, by CLOCK_MONOTONIC.
    pub fn since(&self, side: u32) -> u64 {
        self.settings.word(SINCE + side as usize * 8).load(Ordering::Relaxed)
    }

    /// How many CPUs there are.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// A CPU's bytes of a side.
    pub fn side(&self, cpu: usize, side: u32) -> Vec<u8> {
        let mut bytes = vec![0; SIDE];
        self.sides.copy_out((cpu * 2 + side as usize) * SIDE, &mut bytes);
        bytes
    }

    /// A CPU's stacks of a side: their numbers, and addresses, the innermost first.
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
