//! Stream of jobs that are sent as they happen, instead of being written to a trace: for a receiver
//! that compares them with deadlines.
//!
//! ```text
//! rings ──► consumer ──► [`JobSink`] ──pipe──► [`JobMessages`]
//!
//! message   │ kind u16 │ bytes of text u16 │ job u32 │ pid u32 │ tid u32 │
//!           │ time u64 │ number u64 │ text │
//! ```
//!
//! A span's begin or end is a message of its own. Those of one process come in order of time
//! (`order.rs`), with a [`JobMessage::Gap`] where some were lost. Jobs have numbers, which a
//! message with their user and name precedes: each user's jobs have numbers of their own. A slow
//! receiver makes the consumer wait, so that rings become full: what is lost there is counted and
//! sent.
#![forbid(unsafe_code)]

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write as _},
    mem,
    os::unix::fs::MetadataExt as _,
    sync::{Arc, Mutex, PoisonError},
};

use tompion_os::{ClockPair, Peer};
use tompion_schema::{Event, Kind};

mod order;

pub use order::{JobOrder, Moment};

/// Bytes of a message before its text.
const HEAD: usize = 32;
/// Jobs of one user that are distinguished; programs can make up any number of names.
const MAX_JOBS_OF_USER: usize = 512;
/// Jobs of all users but the session's own that are distinguished.
const MAX_JOBS_OF_OTHERS: usize = 1024;
/// Name of all others, here and where jobs are kept for years.
pub const OTHER_JOBS: &str = "(others)";
/// Stands for the user of jobs that are not distinguished even by user.
pub const SEVERAL_USERS: u32 = u32::MAX;
/// Begins and ends of one user's jobs between two times that they are handed on; more are lost, and
/// counted as lost.
const MAX_MESSAGES_OF_USER: u32 = 1 << 16;
/// Bytes that wait to be handed on, beyond which nothing is sent of other users than the session's
/// own.
const MAX_WAITING_BYTES: usize = 16 << 20;
/// Bytes of a job's name that are sent.
const MAX_NAME: usize = 512;

/// Message about jobs. Times are CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobMessage {
    /// A job has this name, `provider:name`.
    Name {
        /// The job's number from now on.
        job: u32,
        /// User of the programs that it belongs to.
        user: u32,
        /// Its name.
        name: String,
    },
    /// An activation began.
    Began {
        /// Number of the job.
        job: u32,
        /// Id of the process.
        pid: u32,
        /// Id of the thread; 0 where it is unknown.
        tid: u32,
        /// Time of the begin.
        time: u64,
        /// Maximum time that it may take, in nanoseconds; 0 for no limit.
        deadline: u64,
    },
    /// An activation ended.
    Ended {
        /// Number of the job.
        job: u32,
        /// Id of the process.
        pid: u32,
        /// Id of the thread; 0 where it is unknown.
        tid: u32,
        /// Time of the end.
        time: u64,
    },
    /// A process has lost this many begins and ends since the last message.
    Lost {
        /// Process id.
        pid: u32,
        /// Number of losses since the last message.
        count: u64,
    },
    /// A process tells of losses that can't be: how many it lost is unknown.
    LossesUnknown {
        /// Process id.
        pid: u32,
    },
    /// A process takes part no more.
    Gone {
        /// Id of the process.
        pid: u32,
    },
    /// The session listens: the first message of all.
    Listening,
    /// A process has lost begins or ends between two times. Comes before all that the process
    /// recorded since the first of them.
    Gap {
        /// Process id.
        pid: u32,
        /// No earlier one was lost.
        begin: u64,
        /// No later one was lost.
        end: u64,
    },
}

impl JobMessage {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let (kind, job, pid, tid, time, number, text) = match self {
            Self::Name { job, user, name } => (1u16, *job, *user, 0, 0, 0, name.as_str()),
            Self::Began { job, pid, tid, time, deadline } => (2, *job, *pid, *tid, *time, *deadline, ""),
            Self::Ended { job, pid, tid, time } => (3, *job, *pid, *tid, *time, 0, ""),
            Self::Lost { pid, count } => (4, 0, *pid, 0, 0, *count, ""),
            Self::Gone { pid } => (5, 0, *pid, 0, 0, 0, ""),
            Self::LossesUnknown { pid } => (6, 0, *pid, 0, 0, 0, ""),
            Self::Listening => (7, 0, 0, 0, 0, 0, ""),
            Self::Gap { pid, begin, end } => (8, 0, *pid, 0, *begin, *end, ""),
        };
        bytes.extend(kind.to_le_bytes());
        bytes.extend((text.len() as u16).to_le_bytes());
        [job, pid, tid].iter().for_each(|half| bytes.extend(half.to_le_bytes()));
        [time, number].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(text.as_bytes());
    }

    /// The message at the beginning, and how many bytes it has; none if it isn't whole.
    fn decode(bytes: &[u8]) -> Option<(io::Result<Self>, usize)> {
        let head = bytes.get(..HEAD)?;
        let short =
            |at: usize| head.get(at..at + 2).and_then(|it| it.try_into().ok()).map(u16::from_le_bytes);
        let half = |at: usize| head.get(at..at + 4).and_then(|it| it.try_into().ok()).map(u32::from_le_bytes);
        let word = |at: usize| head.get(at..at + 8).and_then(|it| it.try_into().ok()).map(u64::from_le_bytes);
        let size = HEAD + usize::from(short(2)?);
        let text = bytes.get(HEAD..size)?;
        let (job, pid, tid, time, number) = (half(4)?, half(8)?, half(12)?, word(16)?, word(24)?);
        let message = match short(0)? {
            1 => Self::Name { job, user: pid, name: String::from_utf8_lossy(text).into_owned() },
            2 => Self::Began { job, pid, tid, time, deadline: number },
            3 => Self::Ended { job, pid, tid, time },
            4 => Self::Lost { pid, count: number },
            5 => Self::Gone { pid },
            6 => Self::LossesUnknown { pid },
            7 => Self::Listening,
            8 => Self::Gap { pid, begin: time, end: number },
            kind => {
                let text = format!("expected a message about jobs, of kind 1 to 8; found kind {kind}");
                return Some((Err(io::Error::new(io::ErrorKind::InvalidData, text)), size));
            }
        };
        Some((Ok(message), size))
    }
}

impl JobMessage {
    /// Waits until the session listens whose messages these are.
    ///
    /// # Errors
    /// The session has ended before, or says something else.
    pub fn wait_until_listening(from: &mut impl io::Read) -> io::Result<()> {
        let mut head = [0; HEAD];
        from.read_exact(&mut head)?;
        match Self::decode(&head) {
            Some((Ok(Self::Listening), _)) => Ok(()),
            other => Err(io::Error::other(format!("expected a session that listens, found {other:?}"))),
        }
    }
}

/// Messages out of bytes as they come.
#[derive(Debug, Default)]
pub struct JobMessages {
    bytes: Vec<u8>,
    read: usize,
}

impl JobMessages {
    /// More bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..mem::take(&mut self.read));
        self.bytes.extend_from_slice(bytes);
    }
}

impl Iterator for JobMessages {
    type Item = io::Result<JobMessage>;

    /// The next whole message, or what is wrong with it.
    fn next(&mut self) -> Option<Self::Item> {
        let (message, size) = JobMessage::decode(self.bytes.get(self.read..)?)?;
        self.read += size;
        Some(message)
    }
}

/// Sink of jobs. Clones send to the same place.
#[derive(Clone, Debug)]
pub struct JobSink(Arc<Mutex<JobSinkState>>);

#[derive(Debug)]
struct JobSinkState {
    to: File,
    /// The session's own user.
    own_user: u32,
    /// Numbers of the jobs, by user and name.
    numbers: HashMap<(u32, String), u32>,
    /// Number of jobs of each user.
    jobs_of: HashMap<u32, usize>,
    /// Number of begins and ends of each user that wait.
    messages_of: HashMap<u32, u32>,
    bytes: Vec<u8>,
}

impl JobSinkState {
    /// The user and name under which a job is sent: its own as long as there is room.
    fn place_of<'a>(&self, user: u32, name: &'a str) -> (u32, &'a str) {
        let count = |user: u32| self.jobs_of.get(&user).copied().unwrap_or(0);
        let of_others = self.numbers.len().saturating_sub(count(self.own_user));
        let has_room = user == self.own_user || of_others < MAX_JOBS_OF_OTHERS;
        let is_known = self.numbers.contains_key(&(user, name.to_owned()));
        if is_known || has_room && count(user) < MAX_JOBS_OF_USER {
            (user, name)
        } else if has_room || self.numbers.contains_key(&(user, OTHER_JOBS.to_owned())) {
            (user, OTHER_JOBS)
        } else {
            (SEVERAL_USERS, OTHER_JOBS)
        }
    }
}

impl JobSink {
    /// Tells jobs into this file, a pipe for instance.
    pub fn new(to: File) -> Self {
        let own_user = fs::metadata("/proc/self").map_or(SEVERAL_USERS, |metadata| metadata.uid());
        let (numbers, jobs_of, messages_of) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self(Arc::new(Mutex::new(JobSinkState {
            to,
            own_user,
            numbers,
            jobs_of,
            messages_of,
            bytes: Vec::new(),
        })))
    }

    fn with<T>(&self, act: impl FnOnce(&mut JobSinkState) -> T) -> T {
        // No thread panics while holding the lock, and what it guards is sound at any time.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells that the session listens.
    pub fn tell_listening(&self) -> io::Result<()> {
        self.tell(&JobMessage::Listening);
        self.flush()
    }

    /// Sends a message with the next flush.
    pub fn tell(&self, message: &JobMessage) {
        self.with(|state| message.encode(&mut state.bytes));
    }

    /// Tells a begin or an end, unless there are too many of this user.
    fn tell_of(&self, user: u32, message: &JobMessage) -> bool {
        self.with(|state| {
            let is_full = state.bytes.len() >= MAX_WAITING_BYTES && user != state.own_user;
            let sent = state.messages_of.entry(user).or_insert(0);
            if is_full || *sent >= MAX_MESSAGES_OF_USER {
                return false;
            }
            *sent += 1;
            message.encode(&mut state.bytes);
            true
        })
    }

    /// Hands on what was sent.
    pub fn flush(&self) -> io::Result<()> {
        self.with(|state| {
            state.messages_of.clear();
            let bytes = mem::take(&mut state.bytes);
            state.to.write_all(&bytes)
        })
    }

    /// The number of a user's job.
    fn number(&self, user: u32, name: &str) -> u32 {
        self.with(|state| {
            let end = (0..=MAX_NAME.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
            let name = name.get(..end.unwrap_or(0)).unwrap_or_default();
            let (user, name) = state.place_of(user, name);
            let key = (user, name.to_owned());
            if let Some(number) = state.numbers.get(&key) {
                return *number;
            }
            let job = state.numbers.len() as u32;
            state.numbers.insert(key, job);
            *state.jobs_of.entry(user).or_insert(0) += 1;
            JobMessage::Name { job, user, name: name.to_owned() }.encode(&mut state.bytes);
            job
        })
    }
}

/// Record that may be the begin or the end of a job.
#[derive(Clone, Copy, Debug)]
pub struct JobRecord<'a> {
    /// Number of the event in its process.
    pub number: u32,
    /// Its time.
    pub moment: Moment,
    /// The thread, by its id in its own pid namespace.
    pub tid: u32,
    /// Its fields.
    pub payload: &'a [u8],
}

/// Sends the jobs of one process.
#[derive(Debug)]
pub struct ProcessJobs {
    sink: JobSink,
    user: u32,
    pid: u32,
    tids: Tids,
    /// Messages that wait for their turn.
    pub order: JobOrder,
    /// Whether rings have nanoseconds, not ticks.
    is_given_time: bool,
    /// Job by the event's number, and whether the event begins it.
    known: HashMap<u32, (u32, bool)>,
    /// Number of losses at the last message.
    lost: u64,
    /// No later than the time at which losses were looked at last.
    looked: Moment,
    /// Number of messages that were dropped, because there were too many.
    dropped: u64,
    /// Whether the unknown losses were reported.
    is_unknown: bool,
}

impl ProcessJobs {
    /// Those of a process, which has this id in its own pid namespace, and whose rings have
    /// nanoseconds where time is given.
    pub fn new(sink: JobSink, peer: Peer, inner_pid: u32, is_given_time: bool) -> Self {
        let Peer { pid, uid: user, .. } = peer;
        let looked = moment_of(tompion_os::sample_clocks(), is_given_time);
        Self {
            sink,
            user,
            pid,
            tids: Tids::new(pid, inner_pid),
            order: JobOrder::new(pid, looked),
            is_given_time,
            known: HashMap::new(),
            lost: 0,
            looked,
            dropped: 0,
            is_unknown: false,
        }
    }

    /// A sample of the clocks as a moment of this process.
    pub fn moment(&self, sample: ClockPair) -> Moment {
        moment_of(sample, self.is_given_time)
    }

    /// Takes an event if it is a job's; its description is asked for once. False if that is
    /// unknown.
    pub fn take<'a>(&mut self, record: &JobRecord<'_>, describe: impl FnOnce() -> Option<&'a Event>) -> bool {
        let JobRecord { number, moment, tid, payload } = *record;
        let (job, begins) = match self.known.get(&number) {
            Some(known) => *known,
            None => {
                let Some(event) = describe() else { return false };
                let begins = match event.kind {
                    Kind::Job => true,
                    Kind::End => false,
                    // Another event with such a field.
                    _ => return true,
                };
                *self.known.entry(number).or_insert((self.sink.number(self.user, &event.span_name()), begins))
            }
        };
        let (pid, tid, time) = (self.pid, self.tids.outer(tid), moment.ns);
        // The first field of a job's begin; the ring's reader gives whole records, whose author may
        // lie all the same.
        let deadline = payload.get(..8).and_then(|it| it.try_into().ok()).map_or(0, u64::from_le_bytes);
        let message = match begins {
            true => JobMessage::Began { job, pid, tid, time, deadline },
            false => JobMessage::Ended { job, pid, tid, time },
        };
        self.dropped += u64::from(!self.order.push(moment, message));
        true
    }

    /// Sends the number of losses until now, if that is more than before; `unknown`: and more,
    /// whose number is unknown. `before` is no later than the time at which they were counted, and
    /// `after` no earlier.
    pub fn tell_lost(&mut self, count: u64, unknown: bool, (before, after): (ClockPair, ClockPair)) {
        let (pid, total) = (self.pid, count.saturating_add(self.dropped));
        if total > self.lost {
            self.sink.tell(&JobMessage::Lost { pid, count: total - self.lost });
            self.lost = total;
            self.order.lose(self.looked, self.moment(after));
        }
        self.looked = self.moment(before);
        if unknown && !mem::replace(&mut self.is_unknown, true) {
            self.sink.tell(&JobMessage::LossesUnknown { pid });
        }
    }

    /// Whether events wait to be told.
    pub fn is_waiting(&self) -> bool {
        self.order.is_waiting()
    }

    /// Sends the messages that nothing can precede any more.
    pub fn tell_due(&mut self, now: ClockPair) {
        let due = self.order.release(self.moment(now));
        self.tell_all(&due);
    }

    /// Tells events, unless there are too many of this user. What is left out is a gap behind the
    /// others.
    fn tell_all(&mut self, due: &[JobMessage]) {
        let (mut rejected, mut first, mut last) = (0, u64::MAX, 0);
        for message in due {
            match message {
                JobMessage::Began { time, .. } | JobMessage::Ended { time, .. } => {
                    if rejected > 0 || !self.sink.tell_of(self.user, message) {
                        rejected += 1;
                        (first, last) = (first.min(*time), last.max(*time));
                    }
                }
                other => self.sink.tell(other),
            }
        }
        if rejected > 0 {
            self.dropped += rejected;
            self.lost += rejected;
            self.sink.tell(&JobMessage::Lost { pid: self.pid, count: rejected });
            self.sink.tell(&JobMessage::Gap { pid: self.pid, begin: first, end: last });
        }
    }

    /// Looks at the threads, where some are unknown.
    pub fn look_at_threads(&mut self) {
        self.tids.look();
    }

    /// Sends the messages that wait, and says that the process has left.
    pub fn tell_end(&mut self) {
        let due = self.order.release_all();
        self.tell_all(&due);
        self.sink.tell(&JobMessage::Gone { pid: self.pid });
    }
}

fn moment_of(sample: ClockPair, is_given_time: bool) -> Moment {
    Moment { raw: if is_given_time { sample.ns } else { sample.tsc }, ns: sample.ns }
}

/// Threads' numbers here, by those that they have in their own pid namespace.
#[derive(Debug)]
struct Tids {
    pid: u32,
    is_elsewhere: bool,
    known: HashMap<u32, u32>,
    is_missing: bool,
}

impl Tids {
    fn new(pid: u32, inner_pid: u32) -> Self {
        let mut tids =
            Self { pid, is_elsewhere: pid != inner_pid, known: HashMap::new(), is_missing: pid != inner_pid };
        tids.look();
        tids
    }

    /// 0 where it is not known, or not yet.
    fn outer(&mut self, tid: u32) -> u32 {
        if !self.is_elsewhere {
            return tid;
        }
        let found = self.known.get(&tid).copied();
        self.is_missing |= found.is_none();
        found.unwrap_or(0)
    }

    fn look(&mut self) {
        if !mem::take(&mut self.is_missing) {
            return;
        }
        self.known.clear();
        let Ok(entries) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return };
        for outer in entries.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()) {
            if let Some(inner) = tompion_os::innermost_pid(outer) {
                self.known.insert(inner, outer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _};

    use super::*;

    #[test]
    fn messages_are_read_as_sent_however_they_are_cut() {
        let (job, pid, tid, time) = (1, 7, 8, 1 << 40);
        let messages = [
            JobMessage::Name { job, user: 1000, name: "motor:control".into() },
            JobMessage::Began { job, pid, tid, time, deadline: 500_000 },
            JobMessage::Ended { job, pid, tid, time: time + 1 },
            JobMessage::Lost { pid, count: u64::MAX },
            JobMessage::Gone { pid },
            JobMessage::LossesUnknown { pid },
            JobMessage::Listening,
            JobMessage::Gap { pid, begin: time, end: time + 9 },
        ];
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| message.encode(&mut bytes));
        for size in 1..bytes.len() {
            let mut reader = JobMessages::default();
            let mut read = Vec::new();
            for part in bytes.chunks(size) {
                reader.push(part);
                read.extend(reader.by_ref().map(Result::unwrap));
            }
            assert_eq!(read, messages, "in parts of {size} bytes");
        }
        bytes[0] = 9;
        let mut reader = JobMessages::default();
        reader.push(&bytes);
        assert!(reader.next().unwrap().unwrap_err().to_string().contains("found kind 9"));
        assert_eq!(reader.next().unwrap().unwrap(), messages[1]);
    }

    /// Returns the messages that a sink has sent when the test is done with it.
    fn sent_by(test: impl FnOnce(&JobSink)) -> Vec<JobMessage> {
        let mut file = tempfile::tempfile().unwrap();
        let sink = JobSink::new(file.try_clone().unwrap());
        test(&sink);
        sink.flush().unwrap();
        file.rewind().unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        let mut reader = JobMessages::default();
        reader.push(&bytes);
        reader.map(Result::unwrap).collect()
    }

    #[test]
    fn jobs_have_one_number_each_and_not_any_number_of_them() {
        let names = sent_by(|sink| {
            let [own, other] = [sink.with(|state| state.own_user), 4000];
            assert_eq!(
                (sink.number(own, "a:b"), sink.number(own, "a:c"), sink.number(own, "a:b")),
                (0, 1, 0)
            );
            assert_eq!((sink.number(other, "a:b"), sink.number(other, "a:b")), (2, 2));
            let last = (0..2000).map(|number| sink.number(other, &format!("x:{number}"))).max();
            assert_eq!(last, Some(2 + MAX_JOBS_OF_USER as u32));
            // Neither other users nor the session's own are short of room for it.
            assert_eq!(sink.number(4001, "a:b"), 3 + MAX_JOBS_OF_USER as u32);
        });
        let name =
            |job: usize, user, name: &str| JobMessage::Name { job: job as u32, user, name: name.into() };
        assert_eq!(names.len(), MAX_JOBS_OF_USER + 4);
        assert_eq!(names[2], name(2, 4000, "a:b"));
        assert_eq!(
            names[names.len() - 2..],
            [name(MAX_JOBS_OF_USER + 2, 4000, OTHER_JOBS), name(MAX_JOBS_OF_USER + 3, 4001, "a:b"),]
        );
    }

    #[test]
    fn any_number_of_users_leave_room_for_the_session_s_own() {
        let names = sent_by(|sink| {
            for user in 5000..7000 {
                sink.number(user, "a:b");
            }
            sink.number(sink.with(|state| state.own_user), "a:b");
        });
        assert_eq!(names.len(), MAX_JOBS_OF_OTHERS + 2);
        let several = |message: &JobMessage| matches!(message, JobMessage::Name { user: SEVERAL_USERS, .. });
        assert_eq!(names.iter().filter(|message| several(message)).count(), 1);
        assert!(matches!(names.last(), Some(JobMessage::Name { name, .. }) if name == "a:b"));
    }

    #[test]
    fn excess_messages_of_one_user_are_counted_as_lost() {
        let event = |job| JobMessage::Ended { job, pid: 1, tid: 1, time: 1 };
        let messages = sent_by(|sink| {
            let taken = (0..MAX_MESSAGES_OF_USER + 5).filter(|_| sink.tell_of(4000, &event(0))).count();
            assert_eq!(taken, MAX_MESSAGES_OF_USER as usize);
            assert!(sink.tell_of(4001, &event(1)));
            sink.flush().unwrap();
            assert!(sink.tell_of(4000, &event(2)));
        });
        assert_eq!(messages.len(), MAX_MESSAGES_OF_USER as usize + 2);
    }
}
