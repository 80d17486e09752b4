//! Jobs: release, wake-up, begin and end of each activation, and whether it met its deadline.
//!
//! ```text
//! rings of programs ──session──pipe──► JobMessages ─┐
//!                                                   ├─► Joiner ──Activation──► Numbers ──► JobsReport
//! src/bpf/jobs.bpf.c ──ring──► wake-ups, probes ────┘
//! ```
//!
//! A thread of this process does all of it, a hundred times a second. Nothing of it runs while nobody watches jobs.

mod joiner;
mod kernel;
mod table;
mod wish;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fs::{self, File},
    io::{self, Read as _, Write as _},
    mem,
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::{fs::MetadataExt as _, net::UnixStream},
    },
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use tompion_kernel::Error as KernelError;
use tompion_os::Poller;
use tompion_protocol::rules::matches_name;
use tompion_session::{JobMessage, JobMessages, SEVERAL_USERS};

use crate::{Error, threshold::Trigger};
use joiner::{Begun, Joiner};
use kernel::{Kernel, Told};
use table::Numbers;

pub use joiner::{Activation, Odd, Release, Wake};
pub use table::{BOUNDS, JobReport, JobsReport, Longest, Part, Tally};
pub use wish::{Which, Wish};

/// Messages are looked for this often at least.
const SLEEP: Duration = Duration::from_millis(20);
/// How often the kernel is asked what it left out.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Threads that are known; more, and those are forgotten that are gone.
const MANY_THREADS: usize = 4096;
/// Bytes that are taken at once of what programs tell: as many as a pipe holds.
const READ_SIZE: usize = 1 << 16;
/// Jobs of programs have numbers behind those of probes.
const FIRST_TOLD: u32 = 1 << 16;

/// Watches jobs, until it is dropped.
pub struct Jobs {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Has a byte for each missed deadline that is kept.
    bell: UnixStream,
}

/// A missed deadline that is kept.
#[derive(Clone, Debug)]
pub struct Missed {
    /// The activation.
    pub activation: Activation,
    /// The side on which the kernel noted what happened before.
    pub side: u32,
    /// The job's name.
    pub name: String,
    /// The thread's name.
    pub thread: String,
}

/// What the thread that watches and those who ask have in common.
#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    /// Where what was noted before a missed deadline is kept.
    trigger: Mutex<Option<Trigger>>,
    missed: Mutex<VecDeque<Missed>>,
    is_over: AtomicBool,
}

/// Activations since [`Jobs::take_recent`] was called last.
#[derive(Debug, Default)]
pub struct Recent {
    /// How long jobs were watched, in nanoseconds.
    pub watched: u64,
    /// Begins, ends and wake-ups that were lost.
    pub lost: u64,
    /// Jobs that were activated, by name.
    pub jobs: Vec<(String, Tally)>,
}

#[derive(Default)]
struct Table {
    /// CLOCK_REALTIME in nanoseconds.
    from: u64,
    /// CLOCK_MONOTONIC when somebody took what is recent, in nanoseconds.
    taken: u64,
    /// What was lost until then.
    taken_lost: u64,
    jobs: BTreeMap<u32, Numbers>,
    lost_events: u64,
    lost_messages: u64,
    losses_unknown: u64,
    not_started: u64,
    failure: Option<String>,
}

impl Table {
    /// Begins, ends and wake-ups that were lost until now.
    fn lost(&self) -> u64 {
        self.lost_events.saturating_add(self.lost_messages)
    }

    /// Counts begins and ends that were lost.
    fn lose(&mut self, count: u64) {
        self.lost_events = self.lost_events.saturating_add(count);
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

/// Nobody panics while holding these locks, and what they guard is sound at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Jobs {
    /// Watches from now on, behind the programs that count under this name. `told` is where a session tells the jobs of
    /// `TOMPION_JOB` ([`tompion_session::JobSink`]), if such jobs are wished for.
    ///
    /// # Errors
    /// If nothing counts under the name, the kernel refuses the programs, or a program has no such place.
    pub fn begin(name: &str, wishes: Vec<Wish>, told: Option<File>) -> Result<Self, Error> {
        let mut kernel = Kernel::begin(name)?;
        let shared = Arc::new(Shared::default());
        let (from, taken) = (tompion_os::realtime_ns(), tompion_os::monotonic_ns());
        let mut table = Table { from, taken, ..Table::default() };
        for (wish, number) in wishes.iter().zip(0..) {
            if let Which::Probed { name, begin, end } = &wish.which {
                kernel.put_probes(number, begin, end)?;
                table.jobs.insert(number, Numbers::new(name.clone()));
            }
        }
        *shared.table() = table;
        let poller = Poller::new().map_err(KernelError::Rings)?;
        let (bell, rope) = UnixStream::pair().map_err(KernelError::Rings)?;
        bell.set_nonblocking(true).map_err(KernelError::Rings)?;
        rope.set_nonblocking(true).map_err(KernelError::Rings)?;
        if let Some(told) = &told {
            poller.add(told.as_fd(), 0).map_err(KernelError::Rings)?;
        }
        let watcher = Watcher {
            shared: Arc::clone(&shared),
            wishes,
            kernel,
            poller,
            told,
            messages: JobMessages::default(),
            probed: Joiner::default(),
            named: Joiner::default(),
            deadlines: HashMap::new(),
            own_user: own_user(),
            asked: Instant::now(),
            lost_messages: 0,
            rope,
        };
        let thread = Builder::new().name("jobs".into()).spawn(move || watcher.run());
        Ok(Self { shared, thread: Some(thread.map_err(KernelError::Rings)?), bell })
    }

    /// Has what was noted before a missed deadline kept, from now on.
    pub fn keep_missed(&self, trigger: Trigger) {
        *lock(&self.shared.trigger) = Some(trigger);
    }

    /// Becomes readable when a missed deadline is kept.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The missed deadline that is kept, if there is one.
    pub fn take_missed(&self) -> Option<Missed> {
        // What matters is the list.
        let _ = (&self.bell).read(&mut [0; 64]);
        lock(&self.shared.missed).pop_front()
    }

    /// What was seen since this was asked last.
    pub fn take_recent(&self) -> Recent {
        let mut table = self.shared.table();
        let (now, lost) = (tompion_os::monotonic_ns(), table.lost());
        let watched = now.saturating_sub(mem::replace(&mut table.taken, now));
        let lost = lost.saturating_sub(mem::replace(&mut table.taken_lost, lost));
        let taken = table.jobs.values_mut().map(|numbers| (numbers.name().to_owned(), numbers.take_recent()));
        let jobs = taken.filter(|(_, tally)| tally.activations > 0).collect();
        Recent { watched, lost, jobs }
    }

    /// Why no more comes from programs that use `TOMPION_JOB`, if so.
    pub fn failure(&self) -> Option<String> {
        self.shared.table().failure.clone()
    }

    /// What was seen until now.
    pub fn report(&self) -> JobsReport {
        let ahead = tompion_os::realtime_ns().saturating_sub(tompion_os::monotonic_ns());
        let table = self.shared.table();
        let mut jobs: Vec<JobReport> = table.jobs.values().map(|numbers| numbers.report(ahead)).collect();
        jobs.sort_by(|one, other| one.name.cmp(&other.name));
        JobsReport {
            from_ns: table.from,
            jobs,
            lost_events: table.lost_events,
            lost_messages: table.lost_messages,
            losses_unknown: table.losses_unknown,
            not_started: table.not_started,
            failure: table.failure.clone(),
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        // Ordering: a wish that is heard at the next look.
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread that watches.
struct Watcher {
    shared: Arc<Shared>,
    wishes: Vec<Wish>,
    kernel: Kernel,
    poller: Poller,
    told: Option<File>,
    messages: JobMessages,
    /// Of probes, whose begins and ends the kernel tells in order with the wake-ups.
    probed: Joiner,
    /// Of programs that tell by themselves.
    named: Joiner,
    /// What the wishes say of jobs that programs tell of: deadline and period.
    deadlines: HashMap<u32, (Option<u64>, u64)>,
    /// The user of this process, whose jobs have names without a user's.
    own_user: u32,
    /// When the kernel was asked last.
    asked: Instant,
    /// How many messages of the kernel's were lost when it was looked last.
    lost_messages: u64,
    /// Rings who waits for missed deadlines.
    rope: UnixStream,
}

impl Watcher {
    fn run(mut self) {
        while !self.shared.is_over.load(Ordering::Relaxed) {
            let is_ready = self.poller.wait(Some(SLEEP)).is_ok_and(|ready| !ready.is_empty());
            if is_ready {
                self.hear();
            }
            let mut done = self.look();
            done.extend(self.read());
            self.count(&done);
            self.tidy();
        }
    }

    /// Takes what is told, before the wake-ups are asked for: so those are known of all that is told.
    fn hear(&mut self) {
        let Some(told) = &mut self.told else { return };
        let mut bytes = [0; READ_SIZE];
        let failure = match told.read(&mut bytes) {
            Ok(0) => "the session that hears programs has ended".into(),
            Ok(size) => return self.messages.push(bytes.get(..size).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(error) => format!("what programs tell can't be read: {error}"),
        };
        self.fail(failure);
    }

    fn fail(&mut self, failure: String) {
        self.shared.table().failure.get_or_insert(failure);
        // Closed, it isn't waited for any more.
        self.told = None;
    }

    /// What the kernel tells: wake-ups for both, begins and ends of probes.
    fn look(&mut self) -> Vec<Activation> {
        let mut done = Vec::new();
        let Self { kernel, probed, named, wishes, .. } = self;
        // All of it first: what was lost meanwhile is known then.
        let mut all = Vec::new();
        kernel.take(|told| all.push(told));
        let lost = kernel.lost();
        if lost != mem::replace(&mut self.lost_messages, lost) {
            probed.lose(None, tompion_os::monotonic_ns());
        }
        all.into_iter().for_each(|told| match told {
            Told::Woken(tid, wake) => {
                probed.wake(tid, wake);
                named.wake(tid, wake);
            }
            Told::Begins(job, pid, tid, time) => {
                let wish = wishes.get(job as usize);
                let deadline = wish.and_then(|wish| wish.deadline).unwrap_or(0);
                let period = wish.and_then(|wish| wish.period).unwrap_or(0);
                if probed.begin((job, pid, tid), time, deadline, period) == Begun::New {
                    // The kernel says whose it is.
                    probed.own(pid, tid);
                }
            }
            Told::Ends(job, pid, tid, time) => done.extend(probed.end((job, pid, tid), time)),
        });
        done
    }

    /// What programs told.
    fn read(&mut self) -> Vec<Activation> {
        let mut done = Vec::new();
        while let Some(message) = self.messages.next() {
            match message {
                Ok(JobMessage::Name { job, user, name }) => {
                    self.name(FIRST_TOLD.saturating_add(job), user, name);
                }
                Ok(JobMessage::Began { job, pid, tid, time, deadline }) => {
                    self.begin((FIRST_TOLD.saturating_add(job), pid, tid), time, deadline);
                }
                Ok(JobMessage::Ended { job, pid, tid, time }) => {
                    if tid != 0 {
                        done.extend(self.named.end((FIRST_TOLD.saturating_add(job), pid, tid), time));
                    }
                }
                Ok(JobMessage::Lost { count, .. }) => self.shared.table().lose(count),
                Ok(JobMessage::LossesUnknown { .. }) => {
                    let table = &mut self.shared.table();
                    table.losses_unknown = table.losses_unknown.saturating_add(1);
                }
                Ok(JobMessage::Gap { pid, end, .. }) => self.named.lose(Some(pid), end),
                Ok(JobMessage::Gone { pid }) => self.named.forget(pid),
                Ok(JobMessage::Listening) => {}
                Err(error) => self.fail(error.to_string()),
            }
        }
        done
    }

    /// A job of a program begins that tells so.
    fn begin(&mut self, of: (u32, u32, u32), time: u64, deadline: u64) {
        let (job, pid, tid) = of;
        let (wished, period) = self.deadlines.get(&job).copied().unwrap_or_default();
        let begun = match tid {
            0 => Begun::Refused,
            _ => self.named.begin(of, time, wished.unwrap_or(deadline), period),
        };
        match begun {
            // A program may name threads of others, whose wake-ups are none of its jobs'.
            Begun::New if is_thread_of(pid, tid) => {
                self.named.own(pid, tid);
                self.kernel.watch(tid);
            }
            Begun::New | Begun::Known => {}
            Begun::Refused => self.shared.table().lose(1),
        }
    }

    /// A job that a user's programs tell of has this name.
    fn name(&mut self, job: u32, user: u32, name: String) {
        let (provider, rest) = name.split_once(':').unwrap_or((&name, ""));
        let matches =
            |wish: &&Wish| matches!(&wish.which, Which::Told(glob) if matches_name(glob, provider, rest));
        if let Some(wish) = self.wishes.iter().find(matches) {
            self.deadlines.insert(job, (wish.deadline, wish.period.unwrap_or(0)));
        }
        let name = match user {
            _ if user == self.own_user => name,
            SEVERAL_USERS => format!("{name} (several users)"),
            _ => format!("{name} (user {user})"),
        };
        self.shared.table().jobs.insert(job, Numbers::new(name));
    }

    fn count(&mut self, done: &[Activation]) {
        let mut table = self.shared.table();
        for activation in done {
            let Some(numbers) = table.jobs.get_mut(&activation.job) else { continue };
            if numbers.add(activation) {
                self.keep(activation, numbers.name());
            }
        }
        for (job, odd) in self.probed.odd().iter().chain(self.named.odd()) {
            if let Some(numbers) = table.jobs.get_mut(job) {
                numbers.set_odd(*odd);
            }
        }
        table.lost_messages = self.kernel.lost();
    }

    /// A deadline was missed: what was noted before is kept, if somebody wants that and nothing else is kept.
    fn keep(&self, activation: &Activation, name: &str) {
        let side = lock(&self.shared.trigger).as_ref().and_then(Trigger::pull);
        let Some(side) = side else { return };
        let thread = table::thread_name(activation.tid);
        let missed = Missed { activation: *activation, side, name: name.to_owned(), thread };
        lock(&self.shared.missed).push_back(missed);
        // Who does not listen has been rung before.
        let _ = (&self.rope).write(&[0]);
    }

    /// Forgets threads that are gone, where nobody says so; asks the kernel what it left out.
    fn tidy(&mut self) {
        if self.asked.elapsed() >= ASK_EVERY {
            self.asked = Instant::now();
            self.shared.table().not_started = self.kernel.not_started();
        }
        for joiner in [&mut self.probed, &mut self.named] {
            if joiner.threads() > MANY_THREADS {
                joiner.forget_threads(|tid, pid| !is_thread_of(pid, tid));
            }
        }
    }
}

/// Whether a process has this thread.
fn is_thread_of(pid: u32, tid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

/// The user of this process.
fn own_user() -> u32 {
    fs::metadata("/proc/self").map_or(SEVERAL_USERS, |process| process.uid())
}
