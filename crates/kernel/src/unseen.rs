//! Switches that no program saw, though the kernel lost none: found in those that were seen.
//!
//! Whoever a CPU switches to is the one from whom it switches next. Where that isn't so, the kernel has switched
//! without starting our program. Ordinary kernels never do; but there are some that start no programs at all while
//! certain processes run, and count nothing. Then everything that happens meanwhile is missing in the trace, and
//! this is how it can be told.

use std::collections::BTreeMap;

use crate::{
    events::{FIRST, KNOWN},
    records::UntrustedRecord,
};

/// Where a switch's record has what is looked at (`struct sched_switch` in `src/bpf/scheduler.h`).
const PREV_TID: usize = 0;
const NEXT_TID: usize = 16;
const NEXT_COMM: usize = 40;
/// Names that are told.
const MOST_NAMES: usize = 3;

/// A task that was switched to.
#[derive(Clone, Debug)]
struct Task {
    tid: u32,
    name: String,
}

/// Follows the switches of all CPUs.
#[derive(Debug)]
pub struct Unseen {
    number: u16,
    /// Who runs on each CPU, as far as it is known.
    running: Vec<Option<Task>>,
    switches: u64,
    names: BTreeMap<u32, String>,
}

impl Unseen {
    /// Nothing is known of these CPUs yet.
    pub fn new(cpus: usize) -> Self {
        let place = KNOWN.iter().position(|known| known.name == "sched_switch").unwrap_or_default();
        Self { number: FIRST + place as u16, running: vec![None; cpus], switches: 0, names: BTreeMap::new() }
    }

    /// Records of a CPU are missing before those that come next.
    pub fn interrupt(&mut self, cpu: usize) {
        self.running[cpu] = None;
    }

    /// Looks at the next record of a CPU.
    pub fn note(&mut self, cpu: usize, record: &UntrustedRecord<'_>) {
        if record.number != self.number {
            return;
        }
        let word = |at: usize| Some(u32::from_le_bytes(*record.payload.get(at..)?.first_chunk()?));
        let (Some(prev), Some(next)) = (word(PREV_TID), word(NEXT_TID)) else { return };
        if let Some(before) = self.running[cpu].take().filter(|before| before.tid != prev) {
            self.switches += 1;
            self.names.entry(before.tid).or_insert(before.name);
        }
        let name = record.payload.get(NEXT_COMM..).unwrap_or_default().iter().take(16);
        let name: Vec<u8> = name.copied().take_while(|byte| *byte != 0).collect();
        self.running[cpu] = Some(Task { tid: next, name: String::from_utf8_lossy(&name).into_owned() });
    }

    /// What users should know, when so many events were lost that the rings or the kernel counted.
    pub fn problem(&self, lost: u64) -> Option<String> {
        // Each of those may have been a switch.
        let switches = self.switches.checked_sub(lost).filter(|switches| *switches > 0)?;
        let names: Vec<String> =
            self.names.iter().take(MOST_NAMES).map(|(tid, name)| format!("{name} ({tid})")).collect();
        let more = if self.names.len() > MOST_NAMES { ", …" } else { "" };
        Some(format!(
            "this kernel did not show {switches} switches away from {}{more}, and counted no loss: what happens while \
            these tasks run is missing in the trace",
            names.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(unseen: &mut Unseen, prev: u32, next: u32) {
        let mut payload = vec![0; 64];
        payload[PREV_TID..PREV_TID + 4].copy_from_slice(&prev.to_le_bytes());
        payload[NEXT_TID..NEXT_TID + 4].copy_from_slice(&next.to_le_bytes());
        payload[NEXT_COMM..NEXT_COMM + 3].copy_from_slice(b"one");
        let number = unseen.number;
        let record = UntrustedRecord {
            number,
            tid: prev,
            pid: prev,
            time: 0,
            extra: 0,
            payload: &payload,
            context: &[],
        };
        unseen.note(0, &record);
    }

    #[test]
    fn a_switch_that_is_missing_is_found() {
        let mut unseen = Unseen::new(1);
        switch(&mut unseen, 1, 2);
        switch(&mut unseen, 2, 75);
        assert_eq!(unseen.problem(0), None);
        switch(&mut unseen, 0, 1);
        let problem = unseen.problem(0).expect("75 was never left");
        assert!(problem.contains("1 switches away from one (75), and"), "{problem}");
        assert_eq!(unseen.problem(1), None, "a counted loss may have been it");
    }

    #[test]
    fn gaps_and_garbage_say_nothing() {
        let mut unseen = Unseen::new(1);
        switch(&mut unseen, 1, 2);
        unseen.interrupt(0);
        switch(&mut unseen, 3, 4);
        let number = unseen.number;
        for length in 0..20 {
            let payload = vec![0xff; length];
            unseen.note(
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
        assert_eq!(unseen.problem(0), None);
    }
}
