//! From wake-ups, begins and ends to activations.
//!
//! ```text
//!          timer due   woken   running     begin                end
//! ────────────┼──────────┼────────┼──────────┼────────────────────┼────►
//!             └─ until it runs ───┴ to begin ┴──── execution ─────┘
//!             └──────────────────── response ─────────────────────┘
//! ```
//!
//! A pure function of what is put in: where that comes from is somebody else's business. Wake-ups
//! come in before the begins that they led to; begins and ends of a thread come in order. Programs
//! may name threads that are not theirs: a thread is known by its process and its number, and only
//! whose it is has its wake-ups.
//!
//! Where begins or ends were lost, an end may belong to another begin than the last one that was
//! seen. So no activation that overlaps a loss has a response: it is counted instead.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

/// Wake-ups of a thread that are kept until a job begins behind them.
const MOST_WAKES: usize = 1024;
/// Activations of a thread that are open within each other.
const MOST_OPEN: usize = 64;
/// Threads of one process that are known.
const MAX_THREADS_OF_PROCESS: usize = 1024;
/// Threads that are known in all.
const MAX_THREADS: usize = 8192;

/// A wake-up. Times are CLOCK_MONOTONIC, in nanoseconds; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// When the thread ran; the same as `woken` if it never slept.
    pub running: u64,
    /// When it was woken.
    pub woken: u64,
    /// The time for which its timer was set, also where that had passed when it was set.
    pub asked: u64,
    /// The same; where that had passed, when it was set.
    pub intended: u64,
    /// When the timer's handler began.
    pub fired: u64,
}

/// What began an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// The thread slept until a time: that time.
    Timer,
    /// Somebody woke the thread: then.
    WakeUp,
    /// It did not sleep: a period after the release before.
    Period,
    /// It did not sleep, or nobody saw how it woke up: the job's own begin.
    Begin,
}

impl Release {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Timer, Self::WakeUp, Self::Period, Self::Begin];

    /// What programs read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::WakeUp => "wake-up",
            Self::Period => "period",
            Self::Begin => "begin",
        }
    }

    /// What people read.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Timer => "timer due",
            Self::WakeUp => "woken",
            Self::Period => "a period after the last",
            Self::Begin => "begin",
        }
    }
}

/// One activation of a job. Times are CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// Which job.
    pub job: u32,
    /// In which process.
    pub pid: u32,
    /// In which thread.
    pub tid: u32,
    /// What began it.
    pub by: Release,
    /// From when on its response time counts.
    pub release: u64,
    /// The wake-up that began it, if one did.
    pub wake: Option<Wake>,
    /// When the job's code began.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// How long the program allows, in nanoseconds; 0 for no matter how long.
    pub deadline: u64,
}

impl Activation {
    /// From the release to the end.
    pub fn response(&self) -> u64 {
        self.end.saturating_sub(self.release)
    }

    /// From the job's begin to its end.
    pub fn execution(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }

    /// From the release to the thread that runs, where a wake-up was the release.
    pub fn until_running(&self) -> Option<u64> {
        self.wake.map(|wake| wake.running.saturating_sub(self.release))
    }

    /// From the thread that runs to the job's begin; from the release where there was no wake-up.
    pub fn until_begin(&self) -> u64 {
        self.begin.saturating_sub(self.wake.map_or(self.release, |wake| wake.running))
    }
}

/// What did not become an activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Odd {
    /// Begins without an end.
    pub without_end: u64,
    /// Ends without a begin: it began before anybody looked.
    pub without_begin: u64,
    /// Activations whose begin or end was lost, or during which others were: their responses are
    /// unknown.
    pub across_losses: u64,
}

/// A thread, by its process and its number.
type ThreadId = (u32, u32);

/// What becomes of a begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It is the first of its thread.
    New,
    /// It is one more.
    Known,
    /// There are too many threads.
    Refused,
}

/// What is known of a thread.
#[derive(Debug, Default)]
struct Thread {
    wakes: VecDeque<Wake>,
    open: Vec<Activation>,
    /// Jobs that were open when something was lost, and counted then: their ends may still come.
    dropped: Vec<u32>,
    /// When the last outermost job ended.
    ended: u64,
    /// The last release.
    released: u64,
    /// The same by job.
    released_by_job: BTreeMap<u32, u64>,
}

impl Thread {
    /// Begins and ends were lost up to this time: nothing is known of what is open.
    fn lose(&mut self, end: u64, odd: &mut BTreeMap<u32, Odd>) {
        for open in self.open.drain(..) {
            odd.entry(open.job).or_default().across_losses += 1;
            if self.dropped.len() < MOST_OPEN {
                self.dropped.push(open.job);
            }
        }
        // Neither a wake-up from before nor a period since an earlier release says when the next
        // activation was due.
        self.ended = self.ended.max(end);
        self.released = 0;
        self.released_by_job.clear();
    }

    /// Whether an activation of a job was counted when something was lost, and is no more.
    fn takes_dropped(&mut self, job: u32) -> bool {
        let place = self.dropped.iter().rposition(|dropped| *dropped == job);
        place.map(|place| self.dropped.remove(place)).is_some()
    }
}

/// Makes activations.
#[derive(Debug, Default)]
pub struct Joiner {
    threads: HashMap<ThreadId, Thread>,
    /// How many of them each process has.
    counts: HashMap<u32, usize>,
    /// The processes whose threads have wake-ups, by the threads' numbers.
    owners: HashMap<u32, u32>,
    odd: BTreeMap<u32, Odd>,
    /// Up to when each process has lost begins or ends.
    lost_until: HashMap<u32, u64>,
    /// Up to when any process may have.
    all_lost_until: u64,
}

impl Joiner {
    /// A thread was woken and runs. Threads without a job are none of ours.
    pub fn wake(&mut self, tid: u32, wake: Wake) {
        let owner = self.owners.get(&tid);
        let Some(thread) = owner.and_then(|pid| self.threads.get_mut(&(*pid, tid))) else { return };
        // The same wake-up, told a second time: it did sleep.
        if thread.wakes.back().is_some_and(|last| last.woken == wake.woken) {
            thread.wakes.pop_back();
        }
        if thread.wakes.len() == MOST_WAKES {
            thread.wakes.pop_front();
        }
        thread.wakes.push_back(wake);
    }

    /// The process that a thread belongs to, whose wake-ups are told from now on.
    pub fn own(&mut self, pid: u32, tid: u32) {
        self.owners.insert(tid, pid);
    }

    /// A process has lost begins or ends up to this time; any may have, where none is named. Comes
    /// before what was recorded since the first of them.
    pub fn lose(&mut self, pid: Option<u32>, end: u64) {
        let until = match pid {
            Some(pid) => self.lost_until.entry(pid).or_default(),
            None => &mut self.all_lost_until,
        };
        *until = end.max(*until);
        for ((of, _), thread) in &mut self.threads {
            if pid.is_none_or(|pid| pid == *of) {
                thread.lose(end, &mut self.odd);
            }
        }
    }

    /// Up to when a process may have lost begins or ends; 0 if it has lost none.
    fn lost_until(&self, pid: u32) -> u64 {
        self.lost_until.get(&pid).map_or(self.all_lost_until, |until| self.all_lost_until.max(*until))
    }

    /// A job begins: its number, process, thread, time and deadline; and its period, 0 if that is
    /// not known.
    pub fn begin(
        &mut self,
        (job, pid, tid): (u32, u32, u32),
        time: u64,
        deadline: u64,
        period: u64,
    ) -> Begun {
        let is_new = !self.threads.contains_key(&(pid, tid));
        if is_new {
            let count = self.counts.get(&pid).copied().unwrap_or(0);
            if count >= MAX_THREADS_OF_PROCESS || self.threads.len() >= MAX_THREADS {
                return Begun::Refused;
            }
            self.counts.insert(pid, count + 1);
        }
        let thread = self.threads.entry((pid, tid)).or_default();
        // It has begun anew, so it has ended before.
        thread.takes_dropped(job);
        let mut last = None;
        while let Some(wake) = thread.wakes.front().copied().filter(|wake| wake.running <= time) {
            thread.wakes.pop_front();
            last = Some(wake);
        }
        // Within another job, or behind one without having slept, nothing but the program itself began it.
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
        if thread.open.len() == MOST_OPEN {
            let lost = thread.open.remove(0);
            self.odd.entry(lost.job).or_default().without_end += 1;
        }
        thread.open.push(Activation { job, pid, tid, by, release, wake, begin: time, end: 0, deadline });
        if is_new { Begun::New } else { Begun::Known }
    }

    /// A job ends, by its number, process and thread: the activation that was.
    pub fn end(&mut self, (job, pid, tid): (u32, u32, u32), time: u64) -> Option<Activation> {
        let lost_until = self.lost_until(pid);
        let Some(thread) = self.threads.get_mut(&(pid, tid)) else {
            self.count_stray_end(job, lost_until != 0);
            return None;
        };
        let Some(place) = thread.open.iter().rposition(|open| open.job == job) else {
            let is_behind_loss = lost_until != 0 && lost_until >= thread.ended;
            // Unless it was counted when something was lost.
            if !thread.takes_dropped(job) {
                self.count_stray_end(job, is_behind_loss);
            }
            return None;
        };
        for inner in thread.open.drain(place + 1..) {
            self.odd.entry(inner.job).or_default().without_end += 1;
        }
        let activation = thread.open.pop()?;
        if thread.open.is_empty() {
            thread.ended = thread.ended.max(time);
        }
        if activation.begin <= lost_until {
            self.odd.entry(job).or_default().across_losses += 1;
            return None;
        }
        Some(Activation { end: time, ..activation })
    }

    /// Counts an end without a begin, which may have been lost.
    fn count_stray_end(&mut self, job: u32, is_behind_loss: bool) {
        let odd = self.odd.entry(job).or_default();
        match is_behind_loss {
            true => odd.across_losses += 1,
            false => odd.without_begin += 1,
        }
    }

    /// A process takes part no more.
    pub fn forget(&mut self, pid: u32) {
        self.forget_threads(|_, of| of == pid);
        self.lost_until.remove(&pid);
    }

    /// Forgets threads, by their number and their process's.
    pub fn forget_threads(&mut self, is_gone: impl Fn(u32, u32) -> bool) {
        let Self { threads, counts, owners, odd, .. } = self;
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
                    odd.entry(open.job).or_default().without_end += 1;
                }
            }
            stays
        });
        counts.retain(|_, count| *count > 0);
    }

    /// How many threads are known.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// What did not become an activation, by job.
    pub fn odd(&self) -> &BTreeMap<u32, Odd> {
        &self.odd
    }
}

/// The time for which a timer was set. Where that had passed when it was set, the thread is behind its own plan, and its job is
/// late from the planned time on; but there are timers that are set to any time long ago so that they go off at once, which is
/// no plan: a plan goes on behind the release before.
fn due_time(wake: &Wake, released: u64) -> u64 {
    if released != 0 && wake.asked > released { wake.asked.min(wake.woken) } else { wake.intended }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: u32 = 3;
    const PID: u32 = 7;
    const TID: u32 = 70;

    fn timer(asked: u64, woken: u64, running: u64) -> Wake {
        Wake { running, woken, asked, intended: asked, fired: woken }
    }

    /// A job of a thread that is known already.
    fn joiner() -> Joiner {
        let mut joiner = Joiner::default();
        assert_eq!(begin(&mut joiner, 10), Begun::New);
        joiner.own(PID, TID);
        assert_eq!(joiner.end((JOB, PID, TID), 20).map(|first| first.by), Some(Release::Begin));
        joiner
    }

    fn begin(joiner: &mut Joiner, time: u64) -> Begun {
        joiner.begin((JOB, PID, TID), time, 500, 0)
    }

    fn ended(joiner: &mut Joiner, time: u64) -> (Release, u64, u64, Option<u64>, u64) {
        let it = joiner.end((JOB, PID, TID), time).expect("an activation");
        (it.by, it.response(), it.execution(), it.until_running(), it.until_begin())
    }

    #[test]
    fn the_last_wake_up_before_the_begin_is_the_release() {
        let mut joiner = joiner();
        joiner.wake(TID, timer(60, 70, 75));
        joiner.wake(TID, timer(100, 110, 115));
        joiner.wake(TID, timer(900, 910, 915));
        assert_eq!(begin(&mut joiner, 120), Begun::Known);
        assert_eq!(ended(&mut joiner, 170), (Release::Timer, 70, 50, Some(15), 5));
        // Of a later one nothing is known yet.
        begin(&mut joiner, 180);
        assert_eq!(ended(&mut joiner, 190), (Release::Begin, 10, 10, None, 0));
        joiner.wake(TID, Wake { running: 1015, woken: 1010, ..Wake::default() });
        begin(&mut joiner, 1020);
        assert_eq!(ended(&mut joiner, 1030), (Release::WakeUp, 20, 10, Some(5), 5));
    }

    #[test]
    fn what_woke_the_thread_within_a_job_releases_none() {
        let mut joiner = joiner();
        begin(&mut joiner, 100);
        joiner.wake(TID, timer(110, 120, 130));
        joiner.begin((JOB + 1, 7, TID), 140, 0, 0);
        assert_eq!(joiner.end((JOB + 1, PID, TID), 150).map(|inner| inner.by), Some(Release::Begin));
        joiner.wake(TID, timer(155, 156, 157));
        assert_eq!(ended(&mut joiner, 160).0, Release::Begin);
        begin(&mut joiner, 170);
        assert_eq!(ended(&mut joiner, 180).0, Release::Begin);
    }

    #[test]
    fn behind_its_plan_a_job_is_late_from_the_planned_time_on() {
        let mut joiner = joiner();
        // Planned for 100; when the timer was set, it was 300 already.
        joiner.wake(TID, Wake { running: 310, woken: 305, asked: 100, intended: 300, fired: 301 });
        begin(&mut joiner, 320);
        assert_eq!(ended(&mut joiner, 330), (Release::Timer, 230, 10, Some(210), 10));
        // A time before the last release is no plan.
        joiner.wake(TID, Wake { running: 510, woken: 505, asked: 1, intended: 500, fired: 501 });
        begin(&mut joiner, 520);
        assert_eq!(ended(&mut joiner, 530), (Release::Timer, 30, 10, Some(10), 10));
    }

    #[test]
    fn without_sleep_a_period_says_when_it_was_due() {
        let mut joiner = joiner();
        joiner.wake(TID, timer(100, 101, 102));
        joiner.begin((JOB, 7, TID), 110, 0, 100);
        joiner.end((JOB, PID, TID), 250);
        joiner.begin((JOB, 7, TID), 251, 0, 100);
        assert_eq!(ended(&mut joiner, 260), (Release::Period, 60, 9, None, 51));
        // Before it is due, it begins when it begins.
        joiner.begin((JOB, 7, TID), 261, 0, 100);
        assert_eq!(ended(&mut joiner, 270).0, Release::Begin);
    }

    #[test]
    fn what_is_told_twice_is_one_wake_up() {
        let mut joiner = joiner();
        joiner.wake(TID, Wake { running: 100, woken: 100, asked: 90, intended: 90, fired: 95 });
        joiner.wake(TID, timer(90, 100, 140));
        begin(&mut joiner, 150);
        assert_eq!(ended(&mut joiner, 160), (Release::Timer, 70, 10, Some(50), 10));
        joiner.wake(99, timer(1, 2, 3));
        assert_eq!(joiner.threads(), 1);
    }

    #[test]
    fn begins_and_ends_that_miss_each_other_are_counted() {
        let mut joiner = Joiner::default();
        assert_eq!(joiner.end((JOB, PID, TID), 5), None);
        begin(&mut joiner, 10);
        joiner.begin((JOB + 1, 7, TID), 20, 0, 0);
        assert!(joiner.end((JOB, PID, TID), 30).is_some());
        begin(&mut joiner, 40);
        joiner.forget(8);
        assert_eq!(joiner.threads(), 1);
        joiner.forget(7);
        assert_eq!(joiner.threads(), 0);
        assert_eq!(joiner.odd()[&JOB], Odd { without_end: 1, without_begin: 1, across_losses: 0 });
        assert_eq!(joiner.odd()[&(JOB + 1)], Odd { without_end: 1, without_begin: 0, across_losses: 0 });
        for time in 0..100 {
            begin(&mut joiner, time);
        }
        assert_eq!(joiner.odd()[&JOB].without_end, 1 + 100 - MOST_OPEN as u64);
        for time in 0..5000 {
            joiner.own(PID, TID);
            joiner.wake(TID, timer(time, time + 1, time + 2));
        }
        assert_eq!(joiner.threads[&(PID, TID)].wakes.len(), MOST_WAKES);
    }

    fn odd(joiner: &Joiner) -> (u64, u64, u64) {
        let odd = joiner.odd().get(&JOB).copied().unwrap_or_default();
        (odd.without_end, odd.without_begin, odd.across_losses)
    }

    #[test]
    fn given_a_lost_end_and_begin_then_the_next_end_has_no_response() {
        let mut joiner = joiner();
        begin(&mut joiner, 100);
        // Its end at 200 and the next begin at 300 were lost.
        joiner.lose(Some(PID), 310);
        assert_eq!(joiner.end((JOB, PID, TID), 400), None);
        assert_eq!(odd(&joiner), (0, 0, 1));
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
        assert_eq!(odd(&joiner), (0, 0, 1));
    }

    #[test]
    fn what_begins_or_ends_within_a_loss_has_no_response() {
        let mut joiner = joiner();
        joiner.lose(Some(PID), 300);
        begin(&mut joiner, 100);
        assert_eq!(joiner.end((JOB, PID, TID), 200), None);
        begin(&mut joiner, 250);
        assert_eq!(joiner.end((JOB, PID, TID), 350), None);
        assert_eq!(odd(&joiner), (0, 0, 2));
        begin(&mut joiner, 400);
        assert!(joiner.end((JOB, PID, TID), 450).is_some());
        assert_eq!(joiner.end((JOB, PID, TID), 460), None);
        assert_eq!(odd(&joiner), (0, 1, 2));
    }

    #[test]
    fn an_end_whose_begin_was_lost_is_one_activation_across_losses() {
        let mut joiner = joiner();
        joiner.lose(Some(PID), 300);
        assert_eq!(joiner.end((JOB, PID, TID), 350), None);
        // A thread that is not known yet: its begin may have been lost, too.
        assert_eq!(joiner.end((JOB, PID, TID + 1), 350), None);
        assert_eq!(odd(&joiner), (0, 0, 2));
    }

    #[test]
    fn after_a_loss_a_period_says_nothing_of_when_a_job_was_due() {
        let mut joiner = joiner();
        joiner.begin((JOB, PID, TID), 110, 0, 100);
        joiner.end((JOB, PID, TID), 120);
        joiner.lose(Some(PID), 5000);
        joiner.begin((JOB, PID, TID), 6000, 0, 100);
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
        assert_eq!(joiner.end((JOB, PID, TID), 200), None);
        assert_eq!(odd(&joiner), (0, 0, 1));
    }

    /// Another program names a thread that is not its own, again and again, and ends.
    #[test]
    fn who_names_threads_of_others_changes_nothing_of_theirs() {
        let mut joiner = joiner();
        joiner.wake(TID, timer(100, 110, 115));
        for time in 0..2 * MOST_OPEN as u64 {
            joiner.begin((JOB, PID + 1, TID), 10_000 + time, 0, 0);
        }
        begin(&mut joiner, 120);
        joiner.forget(PID + 1);
        assert_eq!(ended(&mut joiner, 170), (Release::Timer, 70, 50, Some(15), 5));
        assert_eq!(joiner.odd()[&JOB].without_begin, 0);
        joiner.wake(TID, timer(200, 210, 215));
        begin(&mut joiner, 220);
        assert_eq!(ended(&mut joiner, 230).0, Release::Timer);
    }

    #[test]
    fn one_process_names_not_any_number_of_threads() {
        let mut joiner = Joiner::default();
        let begun = |joiner: &mut Joiner, pid, tid| joiner.begin((JOB, pid, tid), 1, 0, 0);
        let taken = (0..5000).filter(|tid| begun(&mut joiner, PID, *tid) == Begun::New).count();
        assert_eq!(taken, MAX_THREADS_OF_PROCESS);
        assert_eq!(begun(&mut joiner, PID + 1, TID), Begun::New);
        joiner.forget(PID);
        assert_eq!((joiner.threads(), begun(&mut joiner, PID, TID)), (1, Begun::New));
    }
}
