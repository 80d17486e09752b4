//! Result of recording the kernel: counts by cause, problems for users.

use tompion_kernel::switch_gaps::Findings;
use tompion_layout::loss::Cause;
use tompion_lineage::{proc_files::process_of, untraced::Family};
use tompion_manifest::{self as manifest, KERNEL};

use tompion_kernel::Recorder;

use crate::{account::RingAccount, chunks::ChunkPart, drain::Drain};

/// Result of recording the kernel.
#[derive(Debug)]
pub struct Outcome {
    /// Source as the manifest lists it.
    pub source: manifest::Source,
    /// Its part of the last chunk, if the recording is in chunks.
    pub chunk: Option<ChunkPart>,
    /// Problems for users.
    pub problems: Vec<String>,
    /// Remarks for the manifest alone: users can't act on them.
    pub remarks: Vec<String>,
    /// The command's descendants, and the programs that were executed.
    pub family: Family,
    /// Reason why writing stopped early, if it did. It was reported when it happened.
    pub stopped: Option<String>,
}

/// Lines about chosen events that are not recorded.
pub fn problems_of(recorder: &Recorder) -> Vec<String> {
    let missing = recorder.missing();
    let missing = (!missing.is_empty()).then(|| format!("this kernel has no {}", missing.join(", ")));
    let refused = recorder.refused().iter().map(|line| format!("not recorded: {line}"));
    missing.into_iter().chain(refused).collect()
}

impl Drain {
    /// The kernel as the manifest lists it, as if the recording ended now.
    pub fn source(&mut self) -> manifest::Source {
        let dropped = self.chunks.as_ref().map_or(0, |state| state.dropped);
        let sum = |of: fn(&RingAccount) -> u64| self.accounts.iter().map(of).fold(0, u64::saturating_add);
        let (records, unwanted) = (sum(|account| account.records), sum(|account| account.unwanted));
        let refused = sum(|account| account.refused).saturating_add(self.refused);
        let known = [self.writer.written_of_rings(), unwanted, refused, dropped];
        let not_written = records.saturating_sub(known.into_iter().fold(0, u64::saturating_add));
        let saved: u64 = self.committed_at_save.iter().sum();
        self.overwritten = self.overwritten.max(saved.saturating_sub(records));
        let nested = self.recorder.misses();
        let cpus = self.recorder.geometry().cpus;
        let in_rings = |cause| (0..cpus).map(|cpu| self.recorder.ring(cpu).lost(cause)).sum::<u64>();
        let lost = manifest::losses(|cause| match cause {
            Cause::Invalid => refused,
            Cause::NotWritten => not_written,
            Cause::Reentrant => nested + in_rings(cause),
            cause => in_rings(cause),
        });
        manifest::Source {
            path: KERNEL.into(),
            kind: KERNEL.into(),
            name: Some(KERNEL.into()),
            producer: Some("bpf".into()),
            events: self.writer.written(),
            lost,
            overwritten: self.overwritten,
            losses_unknown: self.losses_unknown,
            ..manifest::Source::default()
        }
    }

    /// Result of a recording that has ended.
    pub fn outcome(mut self) -> Outcome {
        let source = self.source();
        let chunk = self.chunks.as_ref().map(|state| ChunkPart {
            source: source.clone().since(&state.counts_before),
            bytes: self.writer.bytes(),
            begins: None,
        });
        let mut problems = std::mem::take(&mut self.problems);
        problems.extend(problems_of(&self.recorder));
        let missed = self.stacks.missed();
        if missed > 0 {
            problems.push(format!(
                "{missed} kernel event{} without a stack: it could not be captured, or was overwritten first",
                if missed == 1 { " is" } else { "s are" }
            ));
        }
        let lost_in_all = source.lost.values().sum();
        let is_wanted = |tid| self.recorder.follows(process_of(tid).unwrap_or(tid));
        let switch_gaps =
            self.switch_gaps.as_ref().map(|switch_gaps| switch_gaps.findings(lost_in_all, is_wanted));
        let Findings { problem, remark } = switch_gaps.unwrap_or_default();
        problems.extend(problem);
        Outcome {
            source,
            chunk,
            problems,
            remarks: remark.into_iter().collect(),
            family: self.executions.finish(),
            stopped: self.stopped,
        }
    }
}
