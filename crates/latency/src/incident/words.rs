//! Wording of incidents: each segment, and one sentence about the main cause and its parties.

use serde::{Deserialize, Serialize};

use super::{Incident, Share};
use crate::attribution::{Cause, Segment};

/// Maximum number of functions of a stack in a line.
const MAX_FUNCTIONS: usize = 3;
/// Maximum number of parties in a sentence.
const MAX_PARTIES: usize = 3;
/// Percentage of a cause from which a party is named alone.
const SOLE_PARTY_PERCENT: u64 = 90;
/// Percentage of a cause below which a party isn't named.
const MIN_PARTY_PERCENT: u64 = 5;

/// Main cause of a latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Percentage of the latency.
    pub percent: f64,
    /// Cause in words: "hog (thread 7) ran, at equal or higher priority".
    pub words: String,
}

/// Thread, interrupt or code with a share of a latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    /// Its action in words.
    pub words: String,
    /// Number of the thread; 0 for none.
    pub tid: u32,
    /// Percentage of the latency.
    pub percent: f64,
    /// Begin of its longest segment by CLOCK_REALTIME, in nanoseconds.
    pub time_ns: u64,
}

/// Maximum number of culprits that a file names.
const MAX_CULPRITS: usize = 12;

/// Segments of one party: one thread, interrupt or place in the kernel.
struct Party<'a> {
    longest: &'a Segment,
    ns: u64,
}

impl Incident {
    /// Returns the main cause and its parties; none without segments. If several parties share it,
    /// none is named alone.
    pub fn verdict(&self) -> Option<Verdict> {
        let share = self.causes.first()?;
        let parties = parties(&self.segments, share.cause);
        let first = parties.first()?;
        let percent = |ns: u64| ns as f64 * 100.0 / self.latency_ns.max(1) as f64;
        if is_part(first.ns, share, SOLE_PARTY_PERCENT) {
            return Some(Verdict { percent: percent(first.ns), words: first.longest.in_words() });
        }
        let mut words: Vec<String> = Vec::new();
        let mut sum = 0;
        for party in parties.iter().take(MAX_PARTIES) {
            if !words.is_empty()
                && (is_part(sum, share, SOLE_PARTY_PERCENT) || !is_part(party.ns, share, MIN_PARTY_PERCENT))
            {
                break;
            }
            sum += party.ns;
            words.push(party.longest.as_one_of_several(percent(party.ns)));
        }
        let words = match words.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => String::new(),
        };
        let words = format!("{}, mostly {words}", of_several(share.cause));
        Some(Verdict { percent: share.percent, words })
    }
}

impl Incident {
    /// Returns the parties with their shares, the largest first. Over all causes they add up to the
    /// latency, up to [`MAX_CULPRITS`].
    pub fn culprits(&self) -> Vec<Culprit> {
        let all = self.causes.iter().flat_map(|share| parties(&self.segments, share.cause));
        let mut culprits: Vec<Culprit> = all
            .map(|party| Culprit {
                words: party.longest.in_words(),
                tid: party.longest.tid,
                percent: party.ns as f64 * 100.0 / self.latency_ns.max(1) as f64,
                time_ns: party.longest.begin.saturating_add(self.ahead_ns),
            })
            .collect();
        culprits.sort_by(|one, other| other.percent.total_cmp(&one.percent));
        culprits.truncate(MAX_CULPRITS);
        culprits
    }
}

/// Returns whether a time is at least this percentage of a cause.
fn is_part(ns: u64, share: &Share, percent: u64) -> bool {
    u128::from(ns) * 100 >= u128::from(share.ns) * u128::from(percent)
}

/// Parties of a cause, the largest first.
fn parties(segments: &[Segment], cause: Cause) -> Vec<Party<'_>> {
    let mut parties: Vec<Party<'_>> = Vec::new();
    for segment in segments.iter().filter(|segment| segment.cause == cause) {
        match parties.iter_mut().find(|party| party.longest.has_same_party(segment)) {
            Some(party) => {
                party.ns += segment.length();
                if segment.length() > party.longest.length() {
                    party.longest = segment;
                }
            }
            None => parties.push(Party { longest: segment, ns: segment.length() }),
        }
    }
    parties.sort_by_key(|party| std::cmp::Reverse(party.ns));
    parties
}

/// Wording for several parties together.
const fn of_several(cause: Cause) -> &'static str {
    match cause {
        Cause::InterruptsOff => "interrupts were off",
        Cause::PreemptionOff => "preemption was off",
        Cause::ThreadInterference => "threads of equal or higher priority ran",
        Cause::IrqInterference => "interrupts were handled",
        Cause::SoftirqInterference => "soft interrupts ran",
        Cause::Firmware => "firmware had the CPU",
        Cause::Waiting => "it waited",
        // Always one party.
        Cause::LateTimer | Cause::IdleExit | Cause::KernelOverhead | Cause::Running | Cause::Unknown => {
            cause.words()
        }
    }
}

impl Segment {
    /// Describes the segment for people.
    pub fn in_words(&self) -> String {
        let name = &self.who;
        let code = self.code_in_words().map(|code| format!(" in {code}")).unwrap_or_default();
        let thread = if name.is_empty() { String::new() } else { format!(" ({name}, thread {})", self.tid) };
        match self.cause {
            Cause::InterruptsOff => format!("interrupts were off{code}{thread}"),
            Cause::PreemptionOff => format!("preemption was off{code}{thread}"),
            Cause::ThreadInterference => {
                format!("{name} (thread {}) ran, at equal or higher priority", self.tid)
            }
            Cause::IrqInterference => format!("the interrupt `{name}` was handled"),
            Cause::SoftirqInterference => format!("the soft interrupt `{name}` ran"),
            Cause::LateTimer => "hardware or a hypervisor had the CPU".into(),
            Cause::Firmware => format!("firmware had the CPU ({name})"),
            Cause::IdleExit => "the CPU woke from idle".into(),
            Cause::KernelOverhead => "the kernel woke the thread and switched to it".into(),
            Cause::Running => "it ran itself".into(),
            Cause::Waiting if name.is_empty() => "it waited".into(),
            Cause::Waiting if self.tid == 0 => format!("it waited, until woken by the interrupt `{name}`"),
            Cause::Waiting => format!("it waited, until woken by {name} (thread {})", self.tid),
            Cause::Unknown => "the cause is unknown".into(),
        }
    }

    /// Returns whether another segment has the same cause and party.
    pub fn has_same_party(&self, other: &Self) -> bool {
        self.cause == other.cause
            && match self.cause {
                Cause::ThreadInterference => self.tid == other.tid,
                Cause::InterruptsOff | Cause::PreemptionOff => {
                    (self.tid, &self.who) == (other.tid, &other.who)
                        && self.code_in_words() == other.code_in_words()
                }
                Cause::IrqInterference => self.interrupt() == other.interrupt(),
                Cause::SoftirqInterference | Cause::Firmware => self.who == other.who,
                Cause::Waiting => (self.tid, &self.who) == (other.tid, &other.who),
                Cause::LateTimer
                | Cause::IdleExit
                | Cause::KernelOverhead
                | Cause::Running
                | Cause::Unknown => true,
            }
    }

    /// Name of the interrupt, whichever timer it handles.
    fn interrupt(&self) -> &str {
        self.who.split_once(": ").map_or(self.who.as_str(), |parts| parts.0)
    }

    /// Describes the party as one of several, with its percentage of the latency.
    fn as_one_of_several(&self, percent: f64) -> String {
        let (name, tid) = (&self.who, self.tid);
        match self.cause {
            Cause::InterruptsOff | Cause::PreemptionOff => match self.code_in_words() {
                Some(code) => format!("in {code} ({name}, thread {tid}, {percent:.0} %)"),
                None => format!("while {name} ran (thread {tid}, {percent:.0} %)"),
            },
            Cause::ThreadInterference => format!("{name} (thread {tid}, {percent:.0} %)"),
            Cause::IrqInterference | Cause::SoftirqInterference => format!("`{name}` ({percent:.0} %)"),
            Cause::Waiting if name.is_empty() => format!("unknown waker ({percent:.0} %)"),
            Cause::Waiting if tid == 0 => {
                format!("until woken by the interrupt `{name}` ({percent:.0} %)")
            }
            Cause::Waiting => format!("until woken by {name} (thread {tid}, {percent:.0} %)"),
            _ => format!("{name} ({percent:.0} %)"),
        }
    }

    /// Functions that ran, without offsets: the innermost and its callers. Functions of tracing are
    /// left out.
    fn code_in_words(&self) -> Option<String> {
        let own = ["bpf_", "__bpf_", "__traceiter_", "ktime_get", "native_sched_clock"];
        let is_own = |name: &&str| !own.iter().any(|own| name.starts_with(own));
        let names =
            self.code.iter().map(|function| function.split('+').next().unwrap_or(function)).filter(is_own);
        let words: Vec<&str> = names.take(MAX_FUNCTIONS).collect();
        (!words.is_empty()).then(|| words.join(" ← "))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::incident::tests::incident;

    fn segment(cause: Cause, times: Range<u64>, (who, tid): (&str, u32), code: &[&str]) -> Segment {
        let code = code.iter().map(|function| (*function).to_owned()).collect();
        Segment { begin: times.start, end: times.end, cpu: 0, cause, who: who.into(), tid, code }
    }

    fn said(segments: Vec<Segment>) -> (u64, String) {
        let verdict = incident(segments).verdict().expect("a verdict");
        (verdict.percent.round() as u64, verdict.words)
    }

    #[test]
    fn a_segment_says_whose_it_was() {
        let off = segment(Cause::PreemptionOff, 0..1, ("hog", 7), &["bpf_loop+0x1", "spin+0x2"]);
        assert_eq!(off.in_words(), "preemption was off in spin (hog, thread 7)");
    }

    #[test]
    fn given_two_threads_that_run_in_turns_then_both_are_named_with_what_each_had() {
        let runs = |times, name, tid| segment(Cause::ThreadInterference, times, (name, tid), &[]);
        // The longest segment belongs to the party with the smaller sum.
        let turns = vec![
            segment(Cause::KernelOverhead, 0..20, ("", 0), &[]),
            runs(20..280, "hogB", 5),
            runs(280..740, "hogA", 4),
            runs(740..1000, "hogB", 5),
        ];
        assert_eq!(
            said(turns),
            (
                98,
                "threads of equal or higher priority ran, mostly hogB (thread 5, 52 %) and hogA (thread 4, 46 %)"
                    .into()
            )
        );
    }

    #[test]
    fn given_one_that_has_nearly_all_then_it_alone_is_named_with_its_own_share() {
        let runs = |times, name, tid| segment(Cause::ThreadInterference, times, (name, tid), &[]);
        let found = said(vec![runs(0..500, "hogB", 5), runs(500..550, "x", 6), runs(550..1000, "hogB", 5)]);
        assert_eq!(found, (95, "hogB (thread 5) ran, at equal or higher priority".into()));
    }

    #[test]
    fn given_several_places_or_interrupts_then_each_has_its_share() {
        let off = |times, code: &[&str]| segment(Cause::PreemptionOff, times, ("hog", 7), code);
        let places = vec![off(0..60, &["one+0x1"]), off(60..70, &["one+0x9"]), off(70..100, &[])];
        assert_eq!(
            said(places),
            (
                100,
                "preemption was off, mostly in one (hog, thread 7, 70 %) and while hog ran (thread 7, 30 %)"
                    .into()
            )
        );
        let interrupt = |times, who| segment(Cause::IrqInterference, times, (who, 0), &[]);
        let interrupts = vec![
            interrupt(0..10, "local timer"),
            interrupt(10..40, "local timer: tick"),
            interrupt(40..100, "irq 24 eth0"),
        ];
        assert_eq!(
            said(interrupts),
            (
                100,
                "interrupts were handled, mostly `irq 24 eth0` (60 %) and `local timer: tick` (40 %)".into()
            )
        );
    }

    #[test]
    fn given_many_then_the_first_three_are_named() {
        let many = (0..20).map(|number: u32| {
            let begin = u64::from(number) * 5;
            segment(Cause::ThreadInterference, begin..begin + 5, ("hog", 100 + number), &[])
        });
        let (percent, words) = said(many.collect());
        assert_eq!((percent, words.matches("5 %").count()), (100, 3), "{words}");
    }
}
