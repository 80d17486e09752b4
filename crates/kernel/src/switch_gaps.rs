//! Switches that no program saw, though the kernel lost none: found in those that were seen.
//!
//! The task that a CPU switches to is the one from which it switches next. Where that isn't so, the
//! kernel has switched without starting our program. Ordinary kernels never do. But some start no
//! programs at all while certain processes run, and count nothing. Then everything that happens
//! meanwhile is missing in the trace, and this detector reports it.
//!
//! Where such a kernel hides a thread wholly, and its process is not a target, nothing is missing
//! that was to be recorded and nothing can be done about it. That is a remark. Everything else is a
//! problem.

use std::collections::BTreeMap;

use crate::{
    events::{FIRST, KNOWN},
    records::UntrustedRecord,
};

/// Offsets of the fields in a switch's record (`struct sched_switch` in `src/bpf/scheduler.h`).
const PREV_TID: usize = 0;
const NEXT_TID: usize = 16;
const NEXT_COMM: usize = 40;
/// Offsets of the fields in the record of an executed program (`struct process_exec` in
/// `src/bpf/process.h`).
const EXEC_TID: usize = 4;
const EXEC_OLD_TID: usize = 8;
/// Names that are told.
const MAX_NAMES: usize = 3;
/// Maximum number of pairs of ids that are kept.
const MAX_UNEXPLAINED: usize = 1 << 16;
/// Thread ids that a kernel can give (PID_MAX_LIMIT).
const MAX_TID: u32 = 4 << 20;

/// A task that was switched to.
#[derive(Clone, Debug)]
struct Task {
    tid: u32,
    name: String,
}

/// Switches away from a thread that no program saw.
#[derive(Clone, Debug)]
struct Hidden {
    name: String,
    switches: u64,
}

/// Findings for users about switches that no program saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The line about threads that were to be recorded, or that the kernel shows at other times.
    pub problem: Option<String>,
    /// The line about threads that this kernel never shows, and that are no target.
    pub remark: Option<String>,
}

/// Set of thread ids.
#[derive(Debug, Default)]
struct Tids(Vec<u64>);

impl Tids {
    fn insert(&mut self, tid: u32) {
        let word = tid as usize / 64;
        if tid < MAX_TID && word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= 1 << (tid % 64);
        }
    }

    fn contains(&self, tid: u32) -> bool {
        self.0.get(tid as usize / 64).is_some_and(|word| word >> (tid % 64) & 1 == 1)
    }
}

/// Follows the switches of all CPUs.
#[derive(Debug)]
pub struct SwitchGapDetector {
    number: u16,
    exec: u16,
    /// Task that runs on each CPU, as far as it is known.
    running: Vec<Option<Task>>,
    /// Threads that events came from.
    shown: Tids,
    hidden: BTreeMap<u32, Hidden>,
    /// Ids of threads that seemed hidden, with those that came in their places: that a thread has
    /// changed its id may be noted later.
    unexplained: Vec<(u32, u32)>,
}

impl SwitchGapDetector {
    /// Nothing is known of these CPUs yet.
    pub fn new(cpus: usize) -> Self {
        let place = |name| KNOWN.iter().position(|known| known.name == name).unwrap_or_default() as u16;
        Self {
            number: FIRST + place("sched_switch"),
            exec: FIRST + place("sched_process_exec"),
            running: vec![None; cpus],
            shown: Tids::default(),
            hidden: BTreeMap::new(),
            unexplained: Vec::new(),
        }
    }

    /// Records of a CPU are missing before those that come next.
    pub fn interrupt(&mut self, cpu: usize) {
        self.running[cpu] = None;
    }

    /// Looks at the next record of a CPU.
    pub fn note(&mut self, cpu: usize, record: &UntrustedRecord<'_>) {
        self.shown.insert(record.tid);
        let word = |at: usize| Some(u32::from_le_bytes(*record.payload.get(at..)?.first_chunk()?));
        if record.number == self.exec {
            let ids = word(EXEC_OLD_TID).zip(word(EXEC_TID));
            ids.filter(|(old, tid)| old != tid).iter().for_each(|&(old, tid)| self.note_exec(old, tid));
        }
        if record.number != self.number {
            return;
        }
        let (Some(prev), Some(next)) = (word(PREV_TID), word(NEXT_TID)) else { return };
        if let Some(before) = self.running[cpu].take().filter(|before| before.tid != prev) {
            if self.unexplained.len() < MAX_UNEXPLAINED {
                self.unexplained.push((before.tid, prev));
            }
            let hidden = Hidden { name: before.name, switches: 0 };
            self.hidden.entry(before.tid).or_insert(hidden).switches += 1;
        }
        let name = record.payload.get(NEXT_COMM..).unwrap_or_default().iter().take(16);
        let name: Vec<u8> = name.copied().take_while(|byte| *byte != 0).collect();
        self.running[cpu] = Some(Task { tid: next, name: String::from_utf8_lossy(&name).into_owned() });
    }

    /// Follows a thread that got its leader's id when it executed a program.
    fn note_exec(&mut self, old: u32, tid: u32) {
        if let Some(task) = self.running.iter_mut().flatten().find(|task| task.tid == old) {
            task.tid = tid;
        } else if let Some(place) = self.unexplained.iter().position(|ids| *ids == (old, tid)) {
            self.unexplained.swap_remove(place);
            self.hidden.entry(old).and_modify(|hidden| hidden.switches -= 1);
            self.hidden.retain(|_, hidden| hidden.switches > 0);
        }
    }

    /// Sums up, when so many events were lost that the rings or the kernel counted. `is_wanted`
    /// says whether a thread's process was to be recorded.
    pub fn findings(&self, lost: u64, is_wanted: impl Fn(u32) -> bool) -> Findings {
        let (missed, never): (Vec<_>, Vec<_>) =
            self.hidden.iter().partition(|(tid, _)| self.shown.contains(**tid) || is_wanted(**tid));
        // Each event that was lost may have been a switch.
        let problem = sum(&missed).checked_sub(lost).filter(|switches| *switches > 0).map(|switches| {
            format!(
                "this kernel did not show {switches} switches away from {}, and counted no loss: what happens while \
                 these tasks run is missing in the trace",
                names(&missed)
            )
        });
        let remark = (!never.is_empty()).then(|| {
            format!(
                "this kernel never shows {}: {} switches away from what it hides are not in the trace",
                names(&never),
                sum(&never)
            )
        });
        Findings { problem, remark }
    }
}

fn sum(hidden: &[(&u32, &Hidden)]) -> u64 {
    hidden.iter().map(|(_, hidden)| hidden.switches).sum()
}

fn names(hidden: &[(&u32, &Hidden)]) -> String {
    let names: Vec<String> =
        hidden.iter().take(MAX_NAMES).map(|(tid, hidden)| format!("{} ({tid})", hidden.name)).collect();
    let more = if hidden.len() > MAX_NAMES { ", …" } else { "" };
    format!("{}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(switch_gaps: &mut SwitchGapDetector, prev: u32, next: u32) {
        let mut payload = vec![0; 64];
        payload[PREV_TID..PREV_TID + 4].copy_from_slice(&prev.to_le_bytes());
        payload[NEXT_TID..NEXT_TID + 4].copy_from_slice(&next.to_le_bytes());
        payload[NEXT_COMM..NEXT_COMM + 3].copy_from_slice(b"one");
        let number = switch_gaps.number;
        let record = UntrustedRecord {
            number,
            tid: prev,
            pid: prev,
            time: 0,
            extra: 0,
            payload: &payload,
            context: &[],
        };
        switch_gaps.note(0, &record);
    }

    /// Thread `old` of the process `tid` executes a program.
    fn exec(switch_gaps: &mut SwitchGapDetector, old: u32, tid: u32) {
        let mut payload = vec![0; 12];
        payload[EXEC_TID..EXEC_TID + 4].copy_from_slice(&tid.to_le_bytes());
        payload[EXEC_OLD_TID..EXEC_OLD_TID + 4].copy_from_slice(&old.to_le_bytes());
        let number = switch_gaps.exec;
        let record =
            UntrustedRecord { number, tid, pid: tid, time: 0, extra: 0, payload: &payload, context: &[] };
        switch_gaps.note(0, &record);
    }

    #[test]
    fn a_thread_that_takes_its_leaders_id_is_not_hidden() {
        // The event comes before the switch away from the new id, or after it.
        let mut switch_gaps = SwitchGapDetector::new(1);
        switch(&mut switch_gaps, 1, 75);
        exec(&mut switch_gaps, 75, 70);
        switch(&mut switch_gaps, 70, 1);
        assert_eq!(switch_gaps.findings(0, |_| true), Findings::default());
        switch(&mut switch_gaps, 1, 85);
        switch(&mut switch_gaps, 80, 1);
        exec(&mut switch_gaps, 85, 80);
        assert_eq!(switch_gaps.findings(0, |_| true), Findings::default());
        // A thread with an id of its own is still missed.
        switch(&mut switch_gaps, 1, 85);
        switch(&mut switch_gaps, 80, 1);
        assert!(switch_gaps.findings(0, |_| true).problem.is_some());
    }

    #[test]
    fn a_switch_that_is_missing_is_found() {
        let mut switch_gaps = SwitchGapDetector::new(1);
        switch(&mut switch_gaps, 1, 2);
        switch(&mut switch_gaps, 2, 75);
        assert_eq!(switch_gaps.findings(0, |_| false), Findings::default());
        switch(&mut switch_gaps, 0, 75);
        switch(&mut switch_gaps, 75, 1);
        let problem = switch_gaps.findings(0, |_| false).problem.expect("75 was left once without a word");
        assert!(problem.contains("1 switches away from one (75), and"), "{problem}");
        assert_eq!(switch_gaps.findings(1, |_| false).problem, None, "a counted loss may have been it");
    }

    #[test]
    fn a_thread_that_is_never_shown_is_a_problem_where_it_was_to_be_recorded() {
        let mut switch_gaps = SwitchGapDetector::new(1);
        for _ in 0..3 {
            switch(&mut switch_gaps, 1, 75);
        }
        let Findings { problem, remark } = switch_gaps.findings(0, |_| false);
        assert_eq!(problem, None);
        let remark = remark.expect("2 switches are missing");
        assert!(remark.starts_with("this kernel never shows one (75): 2 switches"), "{remark}");
        let Findings { problem, remark } = switch_gaps.findings(0, |tid| tid == 75);
        assert!(problem.expect("it was wanted").contains("2 switches away from one (75)"));
        assert_eq!(remark, None);
    }

    #[test]
    fn ids_that_no_kernel_gives_take_no_memory() {
        let mut tids = Tids::default();
        for tid in [3, MAX_TID - 1, MAX_TID, u32::MAX] {
            tids.insert(tid);
        }
        assert_eq!(
            [3, MAX_TID - 1, MAX_TID, u32::MAX].map(|tid| tids.contains(tid)),
            [true, true, false, false]
        );
        assert_eq!(tids.0.len() as u32, MAX_TID / 64);
    }

    #[test]
    fn gaps_and_garbage_say_nothing() {
        let mut switch_gaps = SwitchGapDetector::new(1);
        switch(&mut switch_gaps, 1, 2);
        switch_gaps.interrupt(0);
        switch(&mut switch_gaps, 3, 4);
        let number = switch_gaps.number;
        for length in 0..20 {
            let payload = vec![0xff; length];
            switch_gaps.note(
                0,
                &UntrustedRecord {
                    number,
                    tid: 0,
                    pid: 0,
                    time: 0,
                    extra: 0,
                    payload: &payload,
                    context: &[],
                },
            );
        }
        assert_eq!(switch_gaps.findings(0, |_| true), Findings::default());
    }
}
