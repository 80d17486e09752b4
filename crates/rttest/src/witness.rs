//! Witness of the cause of a gap between two iterations of a loop: an interrupt, another thread,
//! the hypervisor, a page fault, or one that the kernel does not know of.
//!
//! Interrupts are seen by a mark in the processor (`tompion_os::mark`), in each iteration; where
//! there is none, by the sum of `/proc/interrupts`, which is read after long gaps only. Switches
//! and faults are counted by the kernel for the thread. Stolen time is what the counter advanced
//! while the kernel says that the thread did not run, and was not switched away.

use std::{fs::File, os::unix::fs::FileExt};

use serde::{Deserialize, Serialize};
use tompion_os::{ThreadUsage, is_marked, mark, thread_cpu_ns, thread_usage};

/// Cause of a longer gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// An interrupt.
    Interrupts,
    /// Another thread ran.
    Switches,
    /// The hypervisor let the CPU stand still, and has said so.
    Steal,
    /// A page of the program or of the recorder's rings was not there.
    Faults,
    /// Nothing that the kernel knows of: a system call of the recorder, a hypervisor that does not
    /// tell, firmware.
    Unknown,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 5] = [Self::Interrupts, Self::Switches, Self::Steal, Self::Faults, Self::Unknown];

    /// Name in tables.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Interrupts => "interrupts",
            Self::Switches => "other threads",
            Self::Steal => "the hypervisor (steal)",
            Self::Faults => "page faults",
            Self::Unknown => "unknown to the kernel",
        }
    }

    /// Whether it comes from the machine, independent of the recorder.
    pub fn is_machines(self) -> bool {
        matches!(self, Self::Interrupts | Self::Switches | Self::Steal)
    }
}

/// Gaps of one cause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// The cause.
    pub cause: Cause,
    /// Number of gaps.
    pub gaps: u64,
    /// The longest one.
    pub longest_ns: f64,
    /// All together.
    pub together_ns: f64,
}

/// By so much two clocks may differ that are read one after the other, and whose rates are
/// adjusted.
const NOISE_NS: f64 = 2000.0;

/// Observer of interrupts, switches and faults between two times.
#[derive(Debug)]
pub struct Witness {
    ticks_per_ns: f64,
    usage: ThreadUsage,
    cpu_ns: u64,
    ticks: u64,
    /// Table of interrupts, for processors without a mark.
    table: Option<InterruptTable>,
}

impl Witness {
    /// A witness for the calling thread, which stays on this CPU. To be made before memory is
    /// locked.
    pub fn new(cpu: u32, ticks_per_ns: f64) -> Self {
        let table = if tompion_os::marks_work() { None } else { InterruptTable::open(cpu) };
        let mut witness = Self { ticks_per_ns, usage: ThreadUsage::default(), cpu_ns: 0, ticks: 0, table };
        witness.begin();
        witness
    }

    /// Begins the observation now.
    pub fn begin(&mut self) {
        self.usage = thread_usage().unwrap_or_default();
        self.cpu_ns = thread_cpu_ns();
        self.ticks = tompion_os::tsc();
        if let Some(table) = &mut self.table {
            table.come();
        }
        mark();
    }

    /// Whether an interrupt or an exception has come since this was last asked. False where there
    /// is no mark.
    #[inline(always)]
    pub fn was_interrupted(&self) -> bool {
        if is_marked() || self.table.is_some() {
            return false;
        }
        mark();
        true
    }

    /// Returns the cause of a gap of so many ticks, which has just ended. `interrupted` is what
    /// [`Self::was_interrupted`] returned.
    #[cold]
    pub fn cause(&mut self, gap: u64, interrupted: bool) -> Cause {
        // What comes in here is in no gap.
        let was_marked = is_marked();
        let usage = thread_usage().unwrap_or(self.usage);
        let (cpu_ns, ticks) = (thread_cpu_ns(), tompion_os::tsc());
        let passed = ticks.wrapping_sub(self.ticks) as f64 / self.ticks_per_ns;
        let away = passed - cpu_ns.saturating_sub(self.cpu_ns) as f64;
        let seen = Seen {
            interrupted: interrupted || self.table.as_mut().is_some_and(InterruptTable::come),
            switched: switches(&usage) != switches(&self.usage),
            faulted: usage.minor_faults != self.usage.minor_faults
                || usage.major_faults != self.usage.major_faults,
            away: away >= NOISE_NS && away * 2.0 >= gap as f64 / self.ticks_per_ns,
        };
        (self.usage, self.cpu_ns, self.ticks) = (usage, cpu_ns, ticks);
        if was_marked {
            mark();
        }
        seen.cause()
    }
}

fn switches(usage: &ThreadUsage) -> u64 {
    usage.voluntary_switches + usage.involuntary_switches
}

/// Observations about a gap.
#[derive(Clone, Copy, Debug)]
struct Seen {
    interrupted: bool,
    switched: bool,
    faulted: bool,
    /// Whether the thread did not run for at least half of the gap.
    away: bool,
}

impl Seen {
    /// The one that says most: a thread that was switched away was interrupted before, and did not
    /// run meanwhile.
    fn cause(self) -> Cause {
        match self {
            Self { switched: true, .. } => Cause::Switches,
            Self { away: true, .. } => Cause::Steal,
            // Page faults wipe the mark away, too.
            Self { faulted: true, .. } => Cause::Faults,
            Self { interrupted: true, .. } => Cause::Interrupts,
            _ => Cause::Unknown,
        }
    }
}

/// `/proc/interrupts`, read again and again without allocating.
#[derive(Debug)]
struct InterruptTable {
    file: File,
    text: Box<[u8]>,
    cpu: u32,
    sum: u64,
}

impl InterruptTable {
    /// Larger than the table of any machine that it is read on in acceptable time.
    const SIZE: usize = 1 << 20;

    fn open(cpu: u32) -> Option<Self> {
        let file = File::open("/proc/interrupts").ok()?;
        let mut table = Self { file, text: vec![0; Self::SIZE].into(), cpu, sum: 0 };
        table.come();
        Some(table)
    }

    /// Whether some have come since the last time.
    fn come(&mut self) -> bool {
        let mut len = 0;
        while let Some(Ok(read @ 1..)) =
            self.text.get_mut(len..).map(|rest| self.file.read_at(rest, len as u64))
        {
            len += read;
        }
        let sum = sum_of_column(self.text.get(..len).unwrap_or_default(), self.cpu);
        std::mem::replace(&mut self.sum, sum) != sum
    }
}

/// The sum of a CPU's column in the table.
fn sum_of_column(table: &[u8], cpu: u32) -> u64 {
    let mut lines = table.split(|byte| *byte == b'\n');
    let head = lines.next().unwrap_or_default();
    let is_own = |word: &[u8]| word.strip_prefix(b"CPU").and_then(number) == Some(u64::from(cpu));
    let Some(column) = split(head).position(is_own) else { return 0 };
    // Behind the name with its colon.
    lines.filter_map(|line| split(line).nth(column + 1).and_then(number)).sum()
}

fn split(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_the_one_that_says_most() {
        let none = Seen { interrupted: false, switched: false, faulted: false, away: false };
        assert_eq!(none.cause(), Cause::Unknown);
        assert_eq!(Seen { interrupted: true, ..none }.cause(), Cause::Interrupts);
        assert_eq!(Seen { interrupted: true, faulted: true, ..none }.cause(), Cause::Faults);
        assert_eq!(Seen { interrupted: true, away: true, ..none }.cause(), Cause::Steal);
        assert_eq!(Seen { interrupted: true, away: true, switched: true, ..none }.cause(), Cause::Switches);
    }

    #[test]
    fn a_sleep_is_a_switch() {
        let mut witness = Witness::new(tompion_os::current_cpu(), 1.0);
        let before = tompion_os::tsc();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let gap = tompion_os::tsc().wrapping_sub(before);
        let interrupted = witness.was_interrupted();
        assert_eq!(witness.cause(gap, interrupted), Cause::Switches);
    }

    #[test]
    fn a_column_is_summed_up() {
        let table = b"      CPU0 CPU1\n 1:  5  6  chip 3-edge serial\nLOC: 7 8 Local\nERR: 9\n";
        assert_eq!((sum_of_column(table, 0), sum_of_column(table, 1), sum_of_column(table, 2)), (21, 14, 0));
        assert_eq!(sum_of_column(b"", 0), 0);
    }

    #[test]
    fn interrupts_are_seen_in_the_kernels_table_where_there_is_no_mark() {
        let cpu = *tompion_os::allowed_cpus().last().unwrap();
        let mut table = InterruptTable::open(cpu).unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let mut come = false;
        while !come && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(5));
            come = table.come();
        }
        assert!(come);
    }
}
