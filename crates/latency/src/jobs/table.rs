//! What is known of each job: how many activations, how long they took, how many were too late.

use std::{collections::BTreeMap, fs, mem};

use serde::Serialize;

use super::joiner::{Activation, Odd, Release};
use crate::histogram::{Histogram, steps};

/// What was seen of jobs. Times of day are nanoseconds since 1970.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JobsReport {
    /// From when on jobs are watched.
    pub from_ns: u64,
    /// By name.
    pub jobs: Vec<JobReport>,
    /// Begins and ends that programs lost, because their rings were full for example.
    pub lost_events: u64,
    /// Wake-ups, begins and ends that the kernel had no room for.
    pub lost_messages: u64,
    /// How many processes tell of losses that can't be, so that nobody knows what they lost.
    pub losses_unknown: u64,
    /// How often the kernel did not start one of the programs that see wake-ups: it ran on that CPU already. Activations behind
    /// such a wake-up count from their begins.
    pub not_started: u64,
    /// Why no more comes from programs that use `TOMPION_JOB`, if so.
    pub failure: Option<String>,
}

/// A job's part.
#[derive(Clone, Debug, Serialize)]
pub struct JobReport {
    /// Its name; where another user's programs tell of it, with that user's number behind it.
    pub name: String,
    /// How many threads had activations of it.
    pub threads: usize,
    /// How many activations.
    pub activations: u64,
    /// From when on a response is too late, in microseconds; that of the last activation.
    pub deadline_us: Option<f64>,
    /// From the release to the end.
    pub response: Part,
    /// From the release to the thread that runs.
    pub until_running: Part,
    /// From the thread that runs to the begin of the job's code; from the release where the thread did not sleep.
    pub until_begin: Part,
    /// From the begin to the end.
    pub execution: Part,
    /// How many responses were longer than the deadline.
    pub misses: u64,
    /// Of these, how many would have been even if they had begun at their release.
    pub overruns: u64,
    /// What began the activations.
    pub released_by: BTreeMap<Release, u64>,
    /// The longest response in detail.
    pub longest: Option<Longest>,
    /// Begins and ends without each other.
    #[serde(flatten)]
    pub odd: Odd,
}

/// Bounds by which responses are counted for others, in nanoseconds: 10, 20, 50, 100 µs … 10 s.
pub const BOUNDS: [u64; 19] = steps(10_000);

/// One of the parts of all activations, in microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Part {
    /// How many have it.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// The last one.
    pub last_us: f64,
    /// What half of them don't reach; a sixteenth too long at most.
    pub p50_us: f64,
    /// The same of 99 %.
    pub p99_us: f64,
    /// The same of 99.9 %.
    pub p999_us: f64,
    /// The longest, exactly.
    pub max_us: f64,
    /// How many were no longer than each of [`BOUNDS`].
    #[serde(skip)]
    pub within: [u64; BOUNDS.len()],
    /// How many were how long, to be computed with.
    #[serde(skip)]
    pub places: Histogram,
}

/// The longest response.
#[derive(Clone, Debug, Serialize)]
pub struct Longest {
    /// When it ended.
    pub time_ns: u64,
    /// In which process.
    pub pid: u32,
    /// In which thread.
    pub tid: u32,
    /// The thread's name.
    pub thread: String,
    /// What began it.
    pub released_by: Release,
    /// All of it, in microseconds.
    pub response_us: f64,
    /// From the release to the thread that runs, if it slept before.
    pub until_running_us: Option<f64>,
    /// From there to the begin.
    pub until_begin_us: f64,
    /// From the begin to the end.
    pub execution_us: f64,
    /// The deadline, if it had one.
    pub deadline_us: Option<f64>,
}

/// Lengths of one part, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Lengths {
    /// How many were how long.
    pub places: Histogram,
    within: [u64; BOUNDS.len()],
    count: u64,
    /// All together.
    pub sum: u64,
    last: u64,
    longest: u64,
}

impl Lengths {
    fn add(&mut self, ns: u64) {
        self.places.count_length(ns);
        self.within.iter_mut().zip(BOUNDS).for_each(|(count, bound)| *count += u64::from(ns <= bound));
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        self.last = ns;
        self.longest = self.longest.max(ns);
    }

    fn part(&self) -> Part {
        let below = |share| us(self.places.below(share).unwrap_or(0).min(self.longest));
        Part {
            count: self.count,
            mean_us: us(self.sum) / self.count.max(1) as f64,
            last_us: us(self.last),
            p50_us: below(500),
            p99_us: below(990),
            p999_us: below(999),
            max_us: us(self.longest),
            within: self.within,
            places: self.places.clone(),
        }
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn deadline_us(ns: u64) -> Option<f64> {
    (ns != 0).then(|| us(ns))
}

/// What is counted of activations, from some time on.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many.
    pub activations: u64,
    /// Their response times.
    pub response: Lengths,
    /// How many were longer than their deadline.
    pub misses: u64,
    /// Of these, how many would have been even if they had begun at their release.
    pub overruns: u64,
    /// That of the last activation, in nanoseconds; 0 for none.
    pub deadline: u64,
    /// What began them.
    pub released_by: BTreeMap<Release, u64>,
    /// The one with the longest response, and its thread's name.
    pub longest: Option<(Activation, String)>,
}

impl Tally {
    /// Counts an activation. True if it missed its deadline.
    fn add(&mut self, activation: &Activation) -> bool {
        self.activations += 1;
        self.response.add(activation.response());
        *self.released_by.entry(activation.by).or_default() += 1;
        if self.longest.as_ref().is_none_or(|(longest, _)| activation.response() > longest.response()) {
            self.longest = Some((*activation, thread_name(activation.tid)));
        }
        self.deadline = activation.deadline;
        let is_late = activation.deadline != 0 && activation.response() > activation.deadline;
        self.misses += u64::from(is_late);
        self.overruns += u64::from(is_late && activation.execution() > activation.deadline);
        is_late
    }
}

/// A job's numbers.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    name: String,
    threads: Vec<u32>,
    all: Tally,
    /// Since somebody has taken it.
    recent: Tally,
    until_running: Lengths,
    until_begin: Lengths,
    execution: Lengths,
    odd: Odd,
}

/// Threads of a job that are told apart.
const MOST_THREADS: usize = 4096;

impl Numbers {
    /// None yet, of a job of this name.
    pub fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// The job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts an activation, which has its deadline. True if it missed that.
    pub fn add(&mut self, activation: &Activation) -> bool {
        self.until_begin.add(activation.until_begin());
        self.execution.add(activation.execution());
        if let Some(ns) = activation.until_running() {
            self.until_running.add(ns);
        }
        if !self.threads.contains(&activation.tid) && self.threads.len() < MOST_THREADS {
            self.threads.push(activation.tid);
        }
        self.recent.add(activation);
        self.all.add(activation)
    }

    /// What was counted since this was asked last.
    pub fn take_recent(&mut self) -> Tally {
        mem::take(&mut self.recent)
    }

    /// What did not become an activation, so far.
    pub fn set_odd(&mut self, odd: Odd) {
        self.odd = odd;
    }

    /// What is known, with the time of day ahead of CLOCK_MONOTONIC by so many nanoseconds.
    pub fn report(&self, ahead: u64) -> JobReport {
        let all = &self.all;
        JobReport {
            name: self.name.clone(),
            threads: self.threads.len(),
            activations: all.activations,
            deadline_us: deadline_us(all.deadline),
            response: all.response.part(),
            until_running: self.until_running.part(),
            until_begin: self.until_begin.part(),
            execution: self.execution.part(),
            misses: all.misses,
            overruns: all.overruns,
            released_by: all.released_by.clone(),
            longest: all.longest.as_ref().map(|(longest, thread)| Longest {
                time_ns: longest.end.saturating_add(ahead),
                pid: longest.pid,
                tid: longest.tid,
                thread: thread.clone(),
                released_by: longest.by,
                response_us: us(longest.response()),
                until_running_us: longest.until_running().map(us),
                until_begin_us: us(longest.until_begin()),
                execution_us: us(longest.execution()),
                deadline_us: deadline_us(longest.deadline),
            }),
            odd: self.odd,
        }
    }
}

/// A thread's name, while it lives.
pub fn thread_name(tid: u32) -> String {
    fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default().trim_end_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::joiner::Wake;
    use super::*;

    fn activation(release: u64, begin: u64, end: u64, deadline: u64) -> Activation {
        let wake = Wake {
            running: begin - 1,
            woken: release + 1,
            asked: release,
            intended: release,
            fired: release,
        };
        Activation {
            job: 0,
            pid: 1,
            tid: 2,
            by: Release::Timer,
            release,
            wake: Some(wake),
            begin,
            end,
            deadline,
        }
    }

    #[test]
    fn a_response_longer_than_the_deadline_is_a_miss() {
        let mut numbers = Numbers::new("motor:control".into());
        // As long as it may be; too long because it began late; too long by itself; any length is right.
        for (activation, is_late) in [
            (activation(1_000_000, 1_020_000, 1_500_000, 500_000), false),
            (activation(2_000_000, 2_100_000, 2_500_001, 500_000), true),
            (activation(3_000_000, 3_010_000, 3_900_000, 500_000), true),
            (activation(4_000_000, 4_010_000, 9_000_000, 0), false),
        ] {
            assert_eq!(numbers.add(&activation), is_late, "{activation:?}");
        }
        let report = numbers.report(1_000_000_000);
        assert_eq!((report.activations, report.misses, report.overruns, report.threads), (4, 2, 1, 1));
        // What is taken is taken once; the rest goes on.
        let recent = numbers.take_recent();
        assert_eq!(
            (recent.activations, recent.misses, recent.overruns, recent.response.sum),
            (4, 2, 1, 6_900_001)
        );
        assert_eq!((numbers.take_recent().activations, numbers.report(0).activations), (0, 4));
        assert_eq!((report.response.last_us, report.response.max_us), (5000.0, 5000.0));
        assert_eq!(report.released_by, BTreeMap::from([(Release::Timer, 4)]));
        // All but the last are within 1 ms.
        assert_eq!((BOUNDS[6], report.response.within[6], BOUNDS[18]), (1_000_000, 3, 10_000_000_000));
        let longest = report.longest.expect("the longest");
        assert_eq!((longest.time_ns, longest.deadline_us), (1_009_000_000, None));
        assert_eq!(
            (longest.until_running_us, longest.until_begin_us, longest.execution_us),
            (Some(9.999), 0.001, 4990.0)
        );
    }
}
