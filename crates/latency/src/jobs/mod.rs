//! Jobs: release, wakeup, begin and end of each activation, and whether it met its deadline.
//!
//! ```text
//! rings of programs ──session──pipe──► JobMessages ─┐
//!                                                   ├─► Joiner ─► JobCounts ─► JobsReport
//! src/bpf/jobs.bpf.c ──ring──► wakeups, probes ─────┘
//! ```
//!
//! One thread of this process does all of it, at least every 20 ms. It runs only while jobs are
//! monitored.

mod joiner;
mod kernel;
mod spec;
mod table;

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

use tompion_jobs::{JobMessage, JobMessages, SEVERAL_USERS};
use tompion_kernel::Error as KernelError;
use tompion_os::Poller;
use tompion_protocol::rules::matches_name;

use crate::{Error, threshold::Trigger};
use joiner::{BeginOutcome, JobThread, Joiner};
use kernel::{Kernel, KernelMessage};
use table::JobCounts;

pub use joiner::{Activation, Release, Unmatched, Wake};
pub use spec::{JobSource, JobSpec};
pub use table::{BOUNDS, JobReport, JobsReport, Longest, Part, Tally};

/// Maximum time between two reads of messages.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two reads of the kernel's recursion misses.
const MISSES_INTERVAL: Duration = Duration::from_millis(500);
/// Number of known threads above which those that have exited are forgotten.
const PRUNE_THREADS: usize = 4096;
/// Bytes read at once from the session's pipe: its capacity.
const READ_SIZE: usize = 1 << 16;
/// First number of instrumented jobs; those of probes are below.
const FIRST_INSTRUMENTED: u32 = 1 << 16;

/// Monitor of jobs; it ends when dropped.
pub struct Jobs {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Receives a byte for each missed deadline that is saved.
    ready: UnixStream,
}

/// Missed deadline that is saved as an incident.
#[derive(Clone, Debug)]
pub struct Missed {
    /// Activation that missed it.
    pub activation: Activation,
    /// Half of the kernel's buffers that has the events before it.
    pub side: u32,
    /// Name of the job.
    pub name: String,
    /// Name of the thread.
    pub thread: String,
}

/// State shared by the monitoring thread and [`Jobs`].
#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    /// Swaps the kernel's buffer halves, so that the events before a missed deadline are kept.
    trigger: Mutex<Option<Trigger>>,
    missed: Mutex<VecDeque<Missed>>,
    is_over: AtomicBool,
}

/// Activations since [`Jobs::take_recent`] was called last.
#[derive(Debug, Default)]
pub struct Recent {
    /// Time for which jobs were monitored, in nanoseconds.
    pub watched: u64,
    /// Begins, ends and wakeups that were lost.
    pub lost: u64,
    /// Jobs that had activations, by name.
    pub jobs: Vec<(String, Tally)>,
}

#[derive(Default)]
struct Table {
    /// CLOCK_REALTIME in nanoseconds.
    from: u64,
    /// CLOCK_MONOTONIC in nanoseconds, at the last call of [`Jobs::take_recent`].
    taken: u64,
    /// Events lost until then.
    taken_lost: u64,
    jobs: BTreeMap<u32, JobCounts>,
    lost_events: u64,
    lost_messages: u64,
    losses_unknown: u64,
    not_started: u64,
    failure: Option<String>,
}

impl Table {
    /// Number of begins, ends and wakeups that were lost until now.
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

/// Locks a mutex, also after a panic: the guarded data are consistent at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Jobs {
    /// Begins to monitor jobs, beside the latency monitor of this name. A session writes the events
    /// of `TOMPION_JOB` to `pipe` ([`tompion_jobs::JobSink`]), if such jobs are among the specs.
    ///
    /// # Errors
    /// If no monitor has the name, the kernel refuses the programs, or a probe's place is unknown.
    pub fn begin(name: &str, specs: Vec<JobSpec>, pipe: Option<File>) -> Result<Self, Error> {
        let mut kernel = Kernel::begin(name)?;
        let shared = Arc::new(Shared::default());
        let (from, taken) = (tompion_os::realtime_ns(), tompion_os::monotonic_ns());
        let mut table = Table { from, taken, ..Table::default() };
        for (spec, number) in specs.iter().zip(0..) {
            if let JobSource::Probed { name, begin, end } = &spec.source {
                kernel.put_probes(number, begin, end)?;
                table.jobs.insert(number, JobCounts::new(name.clone()));
            }
        }
        *shared.table() = table;
        let poller = Poller::new().map_err(KernelError::Rings)?;
        let (ready, notifier) = UnixStream::pair().map_err(KernelError::Rings)?;
        ready.set_nonblocking(true).map_err(KernelError::Rings)?;
        notifier.set_nonblocking(true).map_err(KernelError::Rings)?;
        if let Some(pipe) = &pipe {
            poller.add(pipe.as_fd(), 0).map_err(KernelError::Rings)?;
        }
        let watcher = Watcher {
            shared: Arc::clone(&shared),
            specs,
            kernel,
            poller,
            pipe,
            messages: JobMessages::default(),
            probed: Joiner::default(),
            instrumented: Joiner::default(),
            timings: HashMap::new(),
            own_user: own_user(),
            misses_read: Instant::now(),
            lost_messages: 0,
            notifier,
        };
        let thread = Builder::new().name("jobs".into()).spawn(move || watcher.run());
        Ok(Self { shared, thread: Some(thread.map_err(KernelError::Rings)?), ready })
    }

    /// Saves the events before missed deadlines from now on.
    pub fn save_missed(&self, trigger: Trigger) {
        *lock(&self.shared.trigger) = Some(trigger);
    }

    /// Descriptor that becomes readable when a missed deadline is saved.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Takes the saved missed deadline, if there is one.
    pub fn take_missed(&self) -> Option<Missed> {
        // Bytes only wake the poller; the queue counts.
        let _ = (&self.ready).read(&mut [0; 64]);
        lock(&self.shared.missed).pop_front()
    }

    /// Takes the counts since the last call.
    pub fn take_recent(&self) -> Recent {
        let mut table = self.shared.table();
        let (now, lost) = (tompion_os::monotonic_ns(), table.lost());
        let watched = now.saturating_sub(mem::replace(&mut table.taken, now));
        let lost = lost.saturating_sub(mem::replace(&mut table.taken_lost, lost));
        let taken = table.jobs.values_mut().map(|counts| (counts.name().to_owned(), counts.take_recent()));
        let jobs = taken.filter(|(_, tally)| tally.activations > 0).collect();
        Recent { watched, lost, jobs }
    }

    /// Reason why programs that use `TOMPION_JOB` are no longer heard, if so.
    pub fn failure(&self) -> Option<String> {
        self.shared.table().failure.clone()
    }

    /// Returns the report of all jobs until now.
    pub fn report(&self) -> JobsReport {
        let realtime_offset = tompion_os::realtime_ns().saturating_sub(tompion_os::monotonic_ns());
        let table = self.shared.table();
        let mut jobs: Vec<JobReport> =
            table.jobs.values().map(|counts| counts.report(realtime_offset)).collect();
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
        // Ordering: a flag alone, read at the next poll; the join below orders everything else.
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Monitoring thread.
struct Watcher {
    shared: Arc<Shared>,
    specs: Vec<JobSpec>,
    kernel: Kernel,
    poller: Poller,
    pipe: Option<File>,
    messages: JobMessages,
    /// Jobs of probes: the kernel reports their begins and ends in order with the wakeups.
    probed: Joiner,
    /// Jobs of programs with `TOMPION_JOB`.
    instrumented: Joiner,
    /// Deadline and period of instrumented jobs that a spec gives, in nanoseconds.
    timings: HashMap<u32, (Option<u64>, u64)>,
    /// User of this process, whose jobs are named without the user.
    own_user: u32,
    /// Time at which the recursion misses were read last.
    misses_read: Instant,
    /// Lost messages of the kernel at the last read.
    lost_messages: u64,
    /// Wakes the reader of missed deadlines.
    notifier: UnixStream,
}

impl Watcher {
    fn run(mut self) {
        while !self.shared.is_over.load(Ordering::Relaxed) {
            let is_ready = self.poller.wait(Some(POLL_INTERVAL)).is_ok_and(|ready| !ready.is_empty());
            if is_ready {
                self.read_pipe();
            }
            let mut done = self.take_kernel_messages();
            done.extend(self.take_pipe_messages());
            self.count(&done);
            self.prune();
        }
    }

    /// Reads the pipe before the kernel's ring, so that the wakeups of all begins are known.
    fn read_pipe(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut bytes = [0; READ_SIZE];
        let failure = match pipe.read(&mut bytes) {
            Ok(0) => "the session that records programs' jobs has ended".into(),
            Ok(size) => return self.messages.push(bytes.get(..size).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(error) => format!("can't read programs' jobs: {error}"),
        };
        self.fail(failure);
    }

    fn fail(&mut self, failure: String) {
        self.shared.table().failure.get_or_insert(failure);
        // Closing it removes it from the poller.
        self.pipe = None;
    }

    /// Takes the kernel's messages: wakeups for both joiners, begins and ends of probes.
    fn take_kernel_messages(&mut self) -> Vec<Activation> {
        let mut done = Vec::new();
        let Self { kernel, probed, instrumented, specs, .. } = self;
        // All messages first: then losses up to the last one are known.
        let mut all = Vec::new();
        kernel.take(|message| all.push(message));
        let lost = kernel.lost();
        if lost != mem::replace(&mut self.lost_messages, lost) {
            probed.lose(None, tompion_os::monotonic_ns());
        }
        all.into_iter().for_each(|message| match message {
            KernelMessage::Wakeup(tid, wake) => {
                probed.wake(tid, wake);
                instrumented.wake(tid, wake);
            }
            KernelMessage::Begin(of, time) => {
                let spec = specs.get(of.job as usize);
                let deadline = spec.and_then(|spec| spec.deadline).unwrap_or(0);
                let period = spec.and_then(|spec| spec.period).unwrap_or(0);
                if probed.begin(of, time, deadline, period) == BeginOutcome::NewThread {
                    // The kernel reports the true process.
                    probed.set_owner(of.pid, of.tid);
                }
            }
            KernelMessage::End(of, time) => done.extend(probed.end(of, time)),
        });
        done
    }

    /// Takes the messages that were read from the pipe.
    fn take_pipe_messages(&mut self) -> Vec<Activation> {
        let mut done = Vec::new();
        while let Some(message) = self.messages.next() {
            match message {
                Ok(JobMessage::Name { job, user, name }) => {
                    self.add_job(FIRST_INSTRUMENTED.saturating_add(job), user, name);
                }
                Ok(JobMessage::Began { job, pid, tid, time, deadline }) => {
                    self.begin(instrumented_job(job, pid, tid), time, deadline);
                }
                Ok(JobMessage::Ended { job, pid, tid, time }) => {
                    if tid != 0 {
                        done.extend(self.instrumented.end(instrumented_job(job, pid, tid), time));
                    }
                }
                Ok(JobMessage::Lost { count, .. }) => self.shared.table().lose(count),
                Ok(JobMessage::LossesUnknown { .. }) => {
                    let table = &mut self.shared.table();
                    table.losses_unknown = table.losses_unknown.saturating_add(1);
                }
                Ok(JobMessage::Gap { pid, end, .. }) => self.instrumented.lose(Some(pid), end),
                Ok(JobMessage::Gone { pid }) => self.instrumented.forget_process(pid),
                Ok(JobMessage::Listening) => {}
                Err(error) => self.fail(error.to_string()),
            }
        }
        done
    }

    /// Adds the begin of an instrumented job. A deadline in the spec precedes the program's.
    fn begin(&mut self, of: JobThread, time: u64, deadline: u64) {
        let (specified, period) = self.timings.get(&of.job).copied().unwrap_or_default();
        let outcome = match of.tid {
            0 => BeginOutcome::Refused,
            _ => self.instrumented.begin(of, time, specified.unwrap_or(deadline), period),
        };
        match outcome {
            // A program may name foreign threads, whose wakeups do not release its jobs.
            BeginOutcome::NewThread if is_thread_of(of.pid, of.tid) => {
                self.instrumented.set_owner(of.pid, of.tid);
                self.kernel.watch(of.tid);
            }
            BeginOutcome::NewThread | BeginOutcome::KnownThread => {}
            BeginOutcome::Refused => self.shared.table().lose(1),
        }
    }

    /// Adds a job of a user's instrumented programs.
    fn add_job(&mut self, job: u32, user: u32, name: String) {
        let (provider, rest) = name.split_once(':').unwrap_or((&name, ""));
        let matches = |spec: &&JobSpec| match &spec.source {
            JobSource::Instrumented(glob) => matches_name(glob, provider, rest),
            JobSource::Probed { .. } => false,
        };
        if let Some(spec) = self.specs.iter().find(matches) {
            self.timings.insert(job, (spec.deadline, spec.period.unwrap_or(0)));
        }
        let name = match user {
            _ if user == self.own_user => name,
            SEVERAL_USERS => format!("{name} (several users)"),
            _ => format!("{name} (user {user})"),
        };
        self.shared.table().jobs.insert(job, JobCounts::new(name));
    }

    fn count(&mut self, done: &[Activation]) {
        let mut table = self.shared.table();
        for activation in done {
            let Some(counts) = table.jobs.get_mut(&activation.job) else { continue };
            if counts.add(activation) {
                self.save_missed(activation, counts.name());
            }
        }
        for (job, unmatched) in self.probed.unmatched().iter().chain(self.instrumented.unmatched()) {
            if let Some(counts) = table.jobs.get_mut(job) {
                counts.set_unmatched(*unmatched);
            }
        }
        table.lost_messages = self.kernel.lost();
    }

    /// Saves a missed deadline with the events before it, if incidents are saved and the other half
    /// of the kernel's buffers is free.
    fn save_missed(&self, activation: &Activation, name: &str) {
        let side = lock(&self.shared.trigger).as_ref().and_then(Trigger::pull);
        let Some(side) = side else { return };
        let thread = table::thread_name(activation.tid);
        let missed = Missed { activation: *activation, side, name: name.to_owned(), thread };
        lock(&self.shared.missed).push_back(missed);
        // A full socket has woken its reader already.
        let _ = (&self.notifier).write(&[0]);
    }

    /// Reads the kernel's recursion misses, and forgets threads that have exited unnoticed.
    fn prune(&mut self) {
        if self.misses_read.elapsed() >= MISSES_INTERVAL {
            self.misses_read = Instant::now();
            self.shared.table().not_started = self.kernel.not_started();
        }
        for joiner in [&mut self.probed, &mut self.instrumented] {
            if joiner.threads() > PRUNE_THREADS {
                joiner.forget_threads(|tid, pid| !is_thread_of(pid, tid));
            }
        }
    }
}

/// Number of an instrumented job, and its thread.
fn instrumented_job(job: u32, pid: u32, tid: u32) -> JobThread {
    JobThread { job: FIRST_INSTRUMENTED.saturating_add(job), pid, tid }
}

/// True if a process has this thread.
fn is_thread_of(pid: u32, tid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

/// User of this process.
fn own_user() -> u32 {
    fs::metadata("/proc/self").map_or(SEVERAL_USERS, |process| process.uid())
}
