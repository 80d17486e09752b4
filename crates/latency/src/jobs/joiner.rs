//! Joins wakeups, begins and ends to activations of jobs.
//!
//! ```text
//!          timer due   woken   running     begin                end
//! ────────────┼──────────┼────────┼──────────┼────────────────────┼────►
//!             └─ until it runs ───┴ to begin ┴──── execution ─────┘
//!             └──────────────────── response ─────────────────────┘
//! ```
//!
//! A pure function of its input. Wakeups are passed in before the begins that they led to; begins
//! and ends of a thread are passed in order. Programs may name threads of other processes: a thread
//! is identified by process and thread number, and only its owner's jobs get its wakeups.
//!
//! Where begins or ends were lost, an end may belong to another begin than the last one that was
//! seen. So no activation that overlaps a loss has a response: it is counted instead.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

/// Maximum wakeups of a thread that are kept until a job begins after them.
const MAX_WAKES: usize = 1024;
/// Maximum nesting of a thread's open activations.
const MAX_OPEN: usize = 64;
/// Maximum threads of one process.
const MAX_THREADS_OF_PROCESS: usize = 1024;
/// Maximum threads of all processes.
const MAX_THREADS: usize = 8192;

/// Wakeup of a thread. Times are CLOCK_MONOTONIC, in nanoseconds; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// Time at which the thread ran; the same as `woken` if it never slept.
    pub running: u64,
    /// Time at which it was woken.
    pub woken: u64,
    /// Time for which its timer was set, even if that had already passed.
    pub asked: u64,
    /// The same; if it had already passed, the time at which the timer was set.
    pub intended: u64,
    /// Time at which the timer's handler began.
    pub fired: u64,
}

/// Origin of an activation's release time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// The thread slept until a time: the release is that time.
    Timer,
    /// Another thread or an interrupt woke the thread: the release is that wakeup.
    WakeUp,
    /// The thread did not sleep: the release is one period after the previous one.
    Period,
    /// The thread did not sleep, or its wakeup was not seen: the release is the job's begin.
    Begin,
}

impl Release {
    /// All origins.
    pub const ALL: [Self; 4] = [Self::Timer, Self::WakeUp, Self::Period, Self::Begin];

    /// Name in JSON and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::WakeUp => "wake-up",
            Self::Period => "period",
            Self::Begin => "begin",
        }
    }

    /// Words in tables.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Timer => "timer due",
            Self::WakeUp => "woken",
            Self::Period => "a period after the last",
            Self::Begin => "begin",
        }
    }
}

/// Activation of a job. Times are CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// Number of the job.
    pub job: u32,
    /// Process number.
    pub pid: u32,
    /// Thread number.
    pub tid: u32,
    /// Origin of the release time.
    pub by: Release,
    /// Time from which its response is measured.
    pub release: u64,
    /// Wakeup that released it, if one did.
    pub wake: Option<Wake>,
    /// Time at which the job's code began.
    pub begin: u64,
    /// Time at which it ended.
    pub end: u64,
    /// Deadline relative to the release, in nanoseconds; 0 for none.
    pub deadline: u64,
}

impl Activation {
    /// Time from the release to the end.
    pub fn response(&self) -> u64 {
        self.end.saturating_sub(self.release)
    }

    /// Time from the job's begin to its end.
    pub fn execution(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }

    /// Time from the release until the thread runs, if a wakeup was the release.
    pub fn until_running(&self) -> Option<u64> {
        self.wake.map(|wake| wake.running.saturating_sub(self.release))
    }

    /// Time from when the thread runs to the job's begin; from the release if there was no wakeup.
    pub fn until_begin(&self) -> u64 {
        self.begin.saturating_sub(self.wake.map_or(self.release, |wake| wake.running))
    }
}

/// Counts of begins and ends that did not become an activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unmatched {
    /// Begins without an end.
    pub without_end: u64,
    /// Ends without a begin: the job began before it was monitored.
    pub without_begin: u64,
    /// Activations whose begin or end was lost, or during which others were: their responses are
    /// unknown.
    pub across_losses: u64,
}

/// Process and thread number.
type ThreadId = (u32, u32);

/// Job in a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobThread {
    /// Number of the job.
    pub job: u32,
    /// Process number.
    pub pid: u32,
    /// Thread number.
    pub tid: u32,
}

/// Result of a begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginOutcome {
    /// The activation is the first of its thread.
    NewThread,
    /// The thread had one before.
    KnownThread,
    /// The activation is ignored: there are too many threads.
    Refused,
}

/// State of a thread.
#[derive(Debug, Default)]
struct Thread {
    wakes: VecDeque<Wake>,
    open: Vec<Activation>,
    /// Jobs that were open when events were lost, and counted then: their ends may still come.
    dropped: Vec<u32>,
    /// End of the last outermost job.
    ended: u64,
    /// Last release.
    released: u64,
    /// Last release by job.
    released_by_job: BTreeMap<u32, u64>,
}

impl Thread {
    /// Drops the open activations: begins and ends were lost up to this time.
    fn lose(&mut self, end: u64, unmatched: &mut BTreeMap<u32, Unmatched>) {
        for open in self.open.drain(..) {
            unmatched.entry(open.job).or_default().across_losses += 1;
            if self.dropped.len() < MAX_OPEN {
                self.dropped.push(open.job);
            }
        }
        // Neither an earlier wakeup nor a period after an earlier release says when the next
        // activation was due.
        self.ended = self.ended.max(end);
        self.released = 0;
        self.released_by_job.clear();
    }

    /// Removes a job from those that were open at a loss. True if it was one of them.
    fn remove_dropped(&mut self, job: u32) -> bool {
        let index = self.dropped.iter().rposition(|dropped| *dropped == job);
        index.map(|index| self.dropped.remove(index)).is_some()
    }
}

/// Joins the events of all threads.
#[derive(Debug, Default)]
pub struct Joiner {
    threads: HashMap<ThreadId, Thread>,
    /// Number of threads by process.
    counts: HashMap<u32, usize>,
    /// Processes whose jobs get a thread's wakeups, by thread number.
    owners: HashMap<u32, u32>,
    unmatched: BTreeMap<u32, Unmatched>,
    /// Time of the last loss of begins or ends, by process.
    lost_until: HashMap<u32, u64>,
    /// Time of the last loss that may concern any process.
    all_lost_until: u64,
}

impl Joiner {
    /// Adds a wakeup of a thread. Threads without a job are ignored.
    pub fn wake(&mut self, tid: u32, wake: Wake) {
        let owner = self.owners.get(&tid);
        let Some(thread) = owner.and_then(|pid| self.threads.get_mut(&(*pid, tid))) else { return };
        // The same wakeup, reported a second time: the thread did sleep.
        if thread.wakes.back().is_some_and(|last| last.woken == wake.woken) {
            thread.wakes.pop_back();
        }
        if thread.wakes.len() == MAX_WAKES {
            thread.wakes.pop_front();
        }
        thread.wakes.push_back(wake);
    }

    /// Sets the process that a thread belongs to: its jobs get the thread's wakeups from now on.
    pub fn set_owner(&mut self, pid: u32, tid: u32) {
        self.owners.insert(tid, pid);
    }

    /// Marks a loss of begins or ends up to this time: of one process, or of any if none is named.
    /// Must be called before events after the loss are added.
    pub fn lose(&mut self, pid: Option<u32>, end: u64) {
        let until = match pid {
            Some(pid) => self.lost_until.entry(pid).or_default(),
            None => &mut self.all_lost_until,
        };
        *until = end.max(*until);
        for ((of, _), thread) in &mut self.threads {
            if pid.is_none_or(|pid| pid == *of) {
                thread.lose(end, &mut self.unmatched);
            }
        }
    }

    /// Time of the last loss that concerns a process; 0 for none.
    fn lost_until(&self, pid: u32) -> u64 {
        self.lost_until.get(&pid).map_or(self.all_lost_until, |until| self.all_lost_until.max(*until))
    }

    /// Adds a job's begin. Its deadline and period are in nanoseconds; 0 for none.
    pub fn begin(&mut self, of: JobThread, time: u64, deadline: u64, period: u64) -> BeginOutcome {
        let JobThread { job, pid, tid } = of;
        let is_new = !self.threads.contains_key(&(pid, tid));
        if is_new {
            let count = self.counts.get(&pid).copied().unwrap_or(0);
            if count >= MAX_THREADS_OF_PROCESS || self.threads.len() >= MAX_THREADS {
                return BeginOutcome::Refused;
            }
            self.counts.insert(pid, count + 1);
        }
        let thread = self.threads.entry((pid, tid)).or_default();
        // It begins again, so it has ended before.
        thread.remove_dropped(job);
        let mut last = None;
        while let Some(wake) = thread.wakes.front().copied().filter(|wake| wake.running <= time) {
            thread.wakes.pop_front();
            last = Some(wake);
        }
        // Within another job, or after one without sleep, the program itself began the job.
        let is_outermost = thread.open.is_empty() && thread.dropped.is_empty();
        let wake = last.filter(|wake| is_outermost && wake.woken >= thread.ended);
        let before = thread.released_by_job.get(&job).copied();
        let due = before.map_or(u64::MAX, |before| before.saturating_add(period));
        let (by, release) = match wake {
            Some(wake) if wake.intended != 0 => (Release::Timer, due_time(&wake, thread.released)),
            Some(wake) => (Release::WakeUp, wake.woken),
            None if period != 0 && due <= time && thread.open.is_empty() => (Release::Period, due),
            None => (Release::Begin, time),
        };
        if thread.open.is_empty() {
            thread.released = release;
        }
        thread.released_by_job.insert(job, release);
        if thread.open.len() == MAX_OPEN {
            let lost = thread.open.remove(0);
            self.unmatched.entry(lost.job).or_default().without_end += 1;
        }
        thread.open.push(Activation { job, pid, tid, by, release, wake, begin: time, end: 0, deadline });
        if is_new { BeginOutcome::NewThread } else { BeginOutcome::KnownThread }
    }

    /// Adds a job's end. Returns its activation if that is complete.
    pub fn end(&mut self, of: JobThread, time: u64) -> Option<Activation> {
        let JobThread { job, pid, tid } = of;
        let lost_until = self.lost_until(pid);
        let Some(thread) = self.threads.get_mut(&(pid, tid)) else {
            self.count_stray_end(job, lost_until != 0);
            return None;
        };
        let Some(index) = thread.open.iter().rposition(|open| open.job == job) else {
            let is_behind_loss = lost_until != 0 && lost_until >= thread.ended;
            // A dropped activation was counted at the loss.
            if !thread.remove_dropped(job) {
                self.count_stray_end(job, is_behind_loss);
            }
            return None;
        };
        for inner in thread.open.drain(index + 1..) {
            self.unmatched.entry(inner.job).or_default().without_end += 1;
        }
        let activation = thread.open.pop()?;
        if thread.open.is_empty() {
            thread.ended = thread.ended.max(time);
        }
        if activation.begin <= lost_until {
            self.unmatched.entry(job).or_default().across_losses += 1;
            return None;
        }
        Some(Activation { end: time, ..activation })
    }

    /// Counts an end without a begin; that may have been lost.
    fn count_stray_end(&mut self, job: u32, is_behind_loss: bool) {
        let unmatched = self.unmatched.entry(job).or_default();
        match is_behind_loss {
            true => unmatched.across_losses += 1,
            false => unmatched.without_begin += 1,
        }
    }

    /// Forgets a process that has ended.
    pub fn forget_process(&mut self, pid: u32) {
        self.forget_threads(|_, of| of == pid);
        self.lost_until.remove(&pid);
    }

    /// Forgets threads that are gone, by thread and process number.
    pub fn forget_threads(&mut self, is_gone: impl Fn(u32, u32) -> bool) {
        let Self { threads, counts, owners, unmatched, .. } = self;
        threads.retain(|(pid, tid), thread| {
            let stays = !is_gone(*tid, *pid);
            if !stays {
                if owners.get(tid) == Some(pid) {
                    owners.remove(tid);
                }
                if let Some(count) = counts.get_mut(pid) {
                    *count = count.saturating_sub(1);
                }
                for open in &thread.open {
                    unmatched.entry(open.job).or_default().without_end += 1;
                }
            }
            stays
        });
        counts.retain(|_, count| *count > 0);
    }

    /// Number of known threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Begins and ends that did not become an activation, by job.
    pub fn unmatched(&self) -> &BTreeMap<u32, Unmatched> {
        &self.unmatched
    }
}

/// Time for which a timer was set.
///
/// If that had already passed, the thread is behind its schedule, and its job is late from the
/// scheduled time on. Some timers are set to a time long ago so that they expire at once: a time
/// before the previous release is no schedule.
fn due_time(wake: &Wake, released: u64) -> u64 {
    if released != 0 && wake.asked > released { wake.asked.min(wake.woken) } else { wake.intended }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: u32 = 3;
    const PID: u32 = 7;
    const TID: u32 = 70;

    const fn of(job: u32, pid: u32, tid: u32) -> JobThread {
        JobThread { job, pid, tid }
    }

    fn timer(asked: u64, woken: u64, running: u64) -> Wake {
        Wake { running, woken, asked, intended: asked, fired: woken }
    }

    /// Joiner with a known thread of a job.
    fn joiner() -> Joiner {
        let mut joiner = Joiner::default();
        assert_eq!(begin(&mut joiner, 10), BeginOutcome::NewThread);
        joiner.set_owner(PID, TID);
        assert_eq!(joiner.end(of(JOB, PID, TID), 20).map(|first| first.by), Some(Release::Begin));
        joiner
    }

    fn begin(joiner: &mut Joiner, time: u64) -> BeginOutcome {
        joiner.begin(of(JOB, PID, TID), time, 500, 0)
    }

    fn ended(joiner: &mut Joiner, time: u64) -> (Release, u64, u64, Option<u64>, u64) {
        let it = joiner.end(of(JOB, PID, TID), time).expect("an activation");
        (it.by, it.response(), it.execution(), it.until_running(), it.until_begin())
    }

    #[test]
    fn the_last_wakeup_before_the_begin_is_the_release() {
        let mut joiner = joiner();
        joiner.wake(TID, timer(60, 70, 75));
        joiner.wake(TID, timer(100, 110, 115));
        joiner.wake(TID, timer(900, 910, 915));
        assert_eq!(begin(&mut joiner, 120), BeginOutcome::KnownThread);
        assert_eq!(ended(&mut joiner, 170), (Release::Timer, 70, 50, Some(15), 5));
        // A later wakeup does not count for this begin.
        begin(&mut joiner, 180);
        assert_eq!(ended(&mut joiner, 190), (Release::Begin, 10, 10, None, 0));
        joiner.wake(TID, Wake { running: 1015, woken: 1010, ..Wake::default() });
        begin(&mut joiner, 1020);
        assert_eq!(ended(&mut joiner, 1030), (Release::WakeUp, 20, 10, Some(5), 5));
    }

    #[test]
    fn a_wakeup_within_a_job_releases_no_activation() {
        let mut joiner = joiner();
        begin(&mut joiner, 100);
        joiner.wake(TID, timer(110, 120, 130));
        joiner.begin(of(JOB + 1, PID, TID), 140, 0, 0);
        assert_eq!(joiner.end(of(JOB + 1, PID, TID), 150).map(|inner| inner.by), Some(Release::Begin));
        joiner.wake(TID, timer(155, 156, 157));
        assert_eq!(ended(&mut joiner, 160).0, Release::Begin);
        begin(&mut joiner, 170);
        assert_eq!(ended(&mut joiner, 180).0, Release::Begin);
    }

    #[test]
    fn a_job_behind_its_schedule_is_late_from_the_scheduled_time() {
        let mut joiner = joiner();
        // Scheduled for 100; the timer was set at 300.
        joiner.wake(TID, Wake { running: 310, woken: 305, asked: 100, intended: 300, fired: 301 });
        begin(&mut joiner, 320);
        assert_eq!(ended(&mut joiner, 330), (Release::Timer, 230, 10, Some(210), 10));
        // A time before the last release is no schedule.
        joiner.wake(TID, Wake { running: 510, woken: 505, asked: 1, intended: 500, fired: 501 });
        begin(&mut joiner, 520);
        assert_eq!(ended(&mut joiner, 530), (Release::Timer, 30, 10, Some(10), 10));
    }

    #[test]
    fn without_sleep_a_period_says_when_it_was_due() {
        let mut joiner = joiner();
        joiner.wake(TID, timer(100, 101, 102));
        joiner.begin(of(JOB, PID, TID), 110, 0, 100);
        joiner.end(of(JOB, PID, TID), 250);
        joiner.begin(of(JOB, PID, TID), 251, 0, 100);
        assert_eq!(ended(&mut joiner, 260), (Release::Period, 60, 9, None, 51));
        // A begin before the period is over is its own release.
        joiner.begin(of(JOB, PID, TID), 261, 0, 100);
        assert_eq!(ended(&mut joiner, 270).0, Release::Begin);
    }

    #[test]
    fn a_wakeup_that_is_reported_twice_counts_once() {
        let mut joiner = joiner();
        joiner.wake(TID, Wake { running: 100, woken: 100, asked: 90, intended: 90, fired: 95 });
        joiner.wake(TID, timer(90, 100, 140));
        begin(&mut joiner, 150);
        assert_eq!(ended(&mut joiner, 160), (Release::Timer, 70, 10, Some(50), 10));
        joiner.wake(99, timer(1, 2, 3));
        assert_eq!(joiner.threads(), 1);
    }

    #[test]
    fn begins_and_ends_without_each_other_are_counted() {
        let mut joiner = Joiner::default();
        assert_eq!(joiner.end(of(JOB, PID, TID), 5), None);
        begin(&mut joiner, 10);
        joiner.begin(of(JOB + 1, PID, TID), 20, 0, 0);
        assert!(joiner.end(of(JOB, PID, TID), 30).is_some());
        begin(&mut joiner, 40);
        joiner.forget_process(8);
        assert_eq!(joiner.threads(), 1);
        joiner.forget_process(7);
        assert_eq!(joiner.threads(), 0);
        assert_eq!(
            joiner.unmatched()[&JOB],
            Unmatched { without_end: 1, without_begin: 1, across_losses: 0 }
        );
        assert_eq!(
            joiner.unmatched()[&(JOB + 1)],
            Unmatched { without_end: 1, without_begin: 0, across_losses: 0 }
        );
        for time in 0..100 {
            begin(&mut joiner, time);
        }
        assert_eq!(joiner.unmatched()[&JOB].without_end, 1 + 100 - MAX_OPEN as u64);
        for time in 0..5000 {
            joiner.set_owner(PID, TID);
            joiner.wake(TID, timer(time, time + 1, time + 2));
        }
        assert_eq!(joiner.threads[&(PID, TID)].wakes.len(), MAX_WAKES);
    }

    fn unmatched(joiner: &Joiner) -> (u64, u64, u64) {
        let unmatched = joiner.unmatched().get(&JOB).copied().unwrap_or_default();
        (unmatched.without_end, unmatched.without_begin, unmatched.across_losses)
    }

    #[test]
    fn given_a_lost_end_and_begin_then_the_next_end_has_no_response() {
        let mut joiner = joiner();
        begin(&mut joiner, 100);
        // Its end at 200 and the next begin at 300 were lost.
        joiner.lose(Some(PID), 310);
        assert_eq!(joiner.end(of(JOB, PID, TID), 400), None);
        assert_eq!(unmatched(&joiner), (0, 0, 1));
        joiner.wake(TID, timer(500, 510, 515));
        begin(&mut joiner, 520);
        assert_eq!(ended(&mut joiner, 570), (Release::Timer, 70, 50, Some(15), 5));
    }

    #[test]
    fn given_a_lost_end_then_the_next_activation_is_not_within_the_first() {
        let mut joiner = joiner();
        begin(&mut joiner, 100);
        joiner.lose(Some(PID), 210);
        joiner.wake(TID, timer(300, 310, 315));
        begin(&mut joiner, 320);
        assert_eq!(ended(&mut joiner, 370), (Release::Timer, 70, 50, Some(15), 5));
        assert_eq!(unmatched(&joiner), (0, 0, 1));
    }

    #[test]
    fn an_activation_that_begins_or_ends_within_a_loss_has_no_response() {
        let mut joiner = joiner();
        joiner.lose(Some(PID), 300);
        begin(&mut joiner, 100);
        assert_eq!(joiner.end(of(JOB, PID, TID), 200), None);
        begin(&mut joiner, 250);
        assert_eq!(joiner.end(of(JOB, PID, TID), 350), None);
        assert_eq!(unmatched(&joiner), (0, 0, 2));
        begin(&mut joiner, 400);
        assert!(joiner.end(of(JOB, PID, TID), 450).is_some());
        assert_eq!(joiner.end(of(JOB, PID, TID), 460), None);
        assert_eq!(unmatched(&joiner), (0, 1, 2));
    }

    #[test]
    fn an_end_whose_begin_was_lost_is_one_activation_across_losses() {
        let mut joiner = joiner();
        joiner.lose(Some(PID), 300);
        assert_eq!(joiner.end(of(JOB, PID, TID), 350), None);
        // The begin of an unknown thread may have been lost, too.
        assert_eq!(joiner.end(of(JOB, PID, TID + 1), 350), None);
        assert_eq!(unmatched(&joiner), (0, 0, 2));
    }

    #[test]
    fn after_a_loss_no_period_releases_a_job() {
        let mut joiner = joiner();
        joiner.begin(of(JOB, PID, TID), 110, 0, 100);
        joiner.end(of(JOB, PID, TID), 120);
        joiner.lose(Some(PID), 5000);
        joiner.begin(of(JOB, PID, TID), 6000, 0, 100);
        assert_eq!(ended(&mut joiner, 6010), (Release::Begin, 10, 10, None, 0));
    }

    #[test]
    fn losses_of_one_process_are_not_those_of_another() {
        let mut joiner = joiner();
        joiner.wake(TID, timer(100, 110, 115));
        begin(&mut joiner, 120);
        joiner.lose(Some(PID + 1), 140);
        assert_eq!(ended(&mut joiner, 170), (Release::Timer, 70, 50, Some(15), 5));
        begin(&mut joiner, 180);
        joiner.lose(None, 190);
        assert_eq!(joiner.end(of(JOB, PID, TID), 200), None);
        assert_eq!(unmatched(&joiner), (0, 0, 1));
    }

    /// Another program names a foreign thread repeatedly, and exits.
    #[test]
    fn a_process_that_names_foreign_threads_does_not_change_their_jobs() {
        let mut joiner = joiner();
        joiner.wake(TID, timer(100, 110, 115));
        for time in 0..2 * MAX_OPEN as u64 {
            joiner.begin(of(JOB, PID + 1, TID), 10_000 + time, 0, 0);
        }
        begin(&mut joiner, 120);
        joiner.forget_process(PID + 1);
        assert_eq!(ended(&mut joiner, 170), (Release::Timer, 70, 50, Some(15), 5));
        assert_eq!(joiner.unmatched()[&JOB].without_begin, 0);
        joiner.wake(TID, timer(200, 210, 215));
        begin(&mut joiner, 220);
        assert_eq!(ended(&mut joiner, 230).0, Release::Timer);
    }

    #[test]
    fn the_threads_of_a_process_are_limited() {
        let mut joiner = Joiner::default();
        let begun = |joiner: &mut Joiner, pid, tid| joiner.begin(of(JOB, pid, tid), 1, 0, 0);
        let taken = (0..5000).filter(|tid| begun(&mut joiner, PID, *tid) == BeginOutcome::NewThread).count();
        assert_eq!(taken, MAX_THREADS_OF_PROCESS);
        assert_eq!(begun(&mut joiner, PID + 1, TID), BeginOutcome::NewThread);
        joiner.forget_process(PID);
        assert_eq!((joiner.threads(), begun(&mut joiner, PID, TID)), (1, BeginOutcome::NewThread));
    }
}
