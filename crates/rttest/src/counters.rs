//! Counters of the kernel for a CPU: interrupts and soft interrupts by kind, time stolen by a
//! hypervisor.

use std::{collections::BTreeMap, fs};

use serde::{Deserialize, Serialize};

/// The kernel's ticks in `/proc/stat`: a hundredth of a second (`USER_HZ` in `proc(5)`).
const TICK_NS: u64 = 10_000_000;
/// Place of the stolen time in a CPU's line of `/proc/stat`, behind its name.
const STEAL: usize = 7;

/// A kind of interrupt, and how many there were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupt {
    /// Its name or number: `LOC`, `36`.
    pub name: String,
    /// Name of the interrupt: `Local timer interrupts`, `virtio1-req.0`.
    pub what: String,
    /// Count.
    pub count: u64,
}

/// Counters of a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Lines of `/proc/interrupts`.
    pub interrupts: Vec<Interrupt>,
    /// Counts of `/proc/softirqs`, by name.
    pub softirqs: BTreeMap<String, u64>,
    /// Time that a hypervisor took, in nanoseconds, in steps of ten milliseconds.
    pub steal_ns: u64,
}

impl Counters {
    /// Reads the counts since boot. Counts that can't be read are 0.
    pub fn read(cpu: u32) -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            interrupts: interrupts(&text("/proc/interrupts"), cpu),
            softirqs: softirqs(&text("/proc/softirqs"), cpu),
            steal_ns: steal(&text("/proc/stat"), cpu).unwrap_or(0).saturating_mul(TICK_NS),
        }
    }

    /// Returns the differences to an earlier reading; kinds without one are left out.
    pub fn since(&self, earlier: &Self) -> Self {
        let before: BTreeMap<&str, u64> =
            earlier.interrupts.iter().map(|interrupt| (interrupt.name.as_str(), interrupt.count)).collect();
        let difference = |interrupt: &Interrupt| {
            let before = before.get(interrupt.name.as_str()).copied().unwrap_or(0);
            Interrupt { count: interrupt.count.saturating_sub(before), ..interrupt.clone() }
        };
        let mut interrupts: Vec<_> =
            self.interrupts.iter().map(difference).filter(|interrupt| interrupt.count != 0).collect();
        interrupts.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        let softirqs = self.softirqs.iter().map(|(name, count)| {
            (name.clone(), count.saturating_sub(earlier.softirqs.get(name).copied().unwrap_or(0)))
        });
        Self {
            interrupts,
            softirqs: softirqs.filter(|(_, count)| *count != 0).collect(),
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
        }
    }

    /// All interrupts.
    pub fn interrupt_count(&self) -> u64 {
        self.interrupts.iter().map(|interrupt| interrupt.count).sum()
    }
}

/// The column of a CPU in a table whose first line names the CPUs.
fn column(table: &str, cpu: u32) -> Option<(usize, usize)> {
    let head: Vec<&str> = table.lines().next()?.split_whitespace().collect();
    let name = format!("CPU{cpu}");
    Some((head.iter().position(|word| *word == name)?, head.len()))
}

fn interrupts(table: &str, cpu: u32) -> Vec<Interrupt> {
    let Some((column, columns)) = column(table, cpu) else { return Vec::new() };
    let row = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let count = words.get(column)?.parse().ok()?;
        let what = words.get(columns..)?;
        let name = name.trim();
        // Behind a number stand the controller, its line, and then the device; behind a name the
        // meaning.
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        let what = if is_number { what.last().copied().unwrap_or("").into() } else { what.join(" ") };
        Some(Interrupt { name: name.into(), what, count })
    };
    table.lines().skip(1).filter_map(row).collect()
}

fn softirqs(table: &str, cpu: u32) -> BTreeMap<String, u64> {
    let Some((column, _)) = column(table, cpu) else { return BTreeMap::new() };
    let row = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        Some((name.trim().to_owned(), rest.split_whitespace().nth(column)?.parse().ok()?))
    };
    table.lines().skip(1).filter_map(row).collect()
}

fn steal(stat: &str, cpu: u32) -> Option<u64> {
    let name = format!("cpu{cpu} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name))?;
    line.split_whitespace().nth(STEAL)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERRUPTS: &str = "           CPU0       CPU2
 24:          1          7  IO-APIC   5-edge      ACPI:Ged
 36:          0         60 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
LOC:       1000       2000   Local timer interrupts
ERR:          9
";

    #[test]
    fn a_cpus_column_is_read() {
        let found = interrupts(INTERRUPTS, 2);
        let row = |name: &str, what: &str, count| Interrupt { name: name.into(), what: what.into(), count };
        assert_eq!(
            found,
            [
                row("24", "ACPI:Ged", 7),
                row("36", "virtio1-req.0", 60),
                row("LOC", "Local timer interrupts", 2000)
            ]
        );
        assert!(interrupts(INTERRUPTS, 1).is_empty() && interrupts("", 0).is_empty());
        let soft = softirqs("      CPU0 CPU1\n  HI: 1 2\nTIMER: 3 4\n", 1);
        assert_eq!(soft, BTreeMap::from([("HI".into(), 2), ("TIMER".into(), 4)]));
        let stat = "cpu  1 2 3 4 5 6 7 8 9 0\ncpu1 1 2 3 4 5 6 7 80 9 0\ncpu11 0 0 0 0 0 0 0 5 0 0\n";
        assert_eq!((steal(stat, 1), steal(stat, 11), steal(stat, 0)), (Some(80), Some(5), None));
    }

    #[test]
    fn counts_since_are_ordered_by_frequency() {
        let counters = |text: &str| Counters { interrupts: interrupts(text, 0), ..Counters::default() };
        let since = counters("CPU0\nLOC: 30 Local\nRES: 5 Rescheduling\n 4: 100 a b serial\n")
            .since(&counters("CPU0\nLOC: 10 Local\nRES: 5 Rescheduling\n"));
        let reported: Vec<_> = since.interrupts.iter().map(|row| (row.what.as_str(), row.count)).collect();
        assert_eq!(reported, [("serial", 100), ("Local", 20)]);
        assert_eq!(since.interrupt_count(), 120);
    }

    #[test]
    fn this_machines_tables_are_understood() {
        let cpu = *tompion_os::allowed_cpus().last().unwrap();
        assert!(Counters::read(cpu).interrupt_count() > 0);
    }
}
