//! Jobs that are told as they happen, instead of being written to a trace: for who holds them against deadlines.
//!
//! ```text
//! rings ──► consumer ──► [`JobTeller`] ──pipe──► [`JobMessages`]
//!
//!   message    │ kind u16 │ bytes of text u16 │ job u32 │ pid u32 │ tid u32 │ time u64 │ number u64 │ text │
//! ```
//!
//! A span's begin or end is a message of its own. Jobs have numbers, which a message with their name precedes. Whoever reads
//! slowly makes the consumer wait, so that rings become full: what is lost there is counted and told.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write as _},
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use tompion_schema::{Event, Kind};

use crate::filter;

/// Bytes of a message before its text.
const HEAD: usize = 32;
/// Jobs that are told apart; programs can make up any number of names.
const MOST_JOBS: usize = 1024;
/// What all others are called, here and where jobs are kept for years.
pub const OTHER_JOBS: &str = "(others)";
/// Bytes of a job's name that are told.
const MOST_NAME: usize = 512;

/// What is told of jobs. Times are CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobMessage {
    /// A job has this name, `provider:name`.
    Name {
        /// The job's number from now on.
        job: u32,
        /// Its name.
        name: String,
    },
    /// An activation began.
    Began {
        /// Of which job.
        job: u32,
        /// In which process.
        pid: u32,
        /// In which thread; 0 where that is not known.
        tid: u32,
        /// When.
        time: u64,
        /// How long it may take, in nanoseconds; 0 for no matter how long.
        deadline: u64,
    },
    /// An activation ended.
    Ended {
        /// Of which job.
        job: u32,
        /// In which process.
        pid: u32,
        /// In which thread.
        tid: u32,
        /// When.
        time: u64,
    },
    /// A process has lost so many begins and ends by now.
    Lost {
        /// Which process.
        pid: u32,
        /// How many, since it takes part.
        count: u64,
    },
    /// A process takes part no more.
    Gone {
        /// Which.
        pid: u32,
    },
}

impl JobMessage {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let (kind, job, pid, tid, time, number, text) = match self {
            Self::Name { job, name } => (1u16, *job, 0, 0, 0, 0, name.as_str()),
            Self::Began { job, pid, tid, time, deadline } => (2, *job, *pid, *tid, *time, *deadline, ""),
            Self::Ended { job, pid, tid, time } => (3, *job, *pid, *tid, *time, 0, ""),
            Self::Lost { pid, count } => (4, 0, *pid, 0, 0, *count, ""),
            Self::Gone { pid } => (5, 0, *pid, 0, 0, 0, ""),
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
            1 => Self::Name { job, name: String::from_utf8_lossy(text).into_owned() },
            2 => Self::Began { job, pid, tid, time, deadline: number },
            3 => Self::Ended { job, pid, tid, time },
            4 => Self::Lost { pid, count: number },
            5 => Self::Gone { pid },
            kind => {
                let text = format!("expected a message about jobs, of kind 1 to 5; found kind {kind}");
                return Some((Err(io::Error::new(io::ErrorKind::InvalidData, text)), size));
            }
        };
        Some((Ok(message), size))
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

/// Where jobs are told. Clones tell in the same place.
#[derive(Clone, Debug)]
pub struct JobTeller(Arc<Mutex<Telling>>);

#[derive(Debug)]
struct Telling {
    to: File,
    numbers: HashMap<String, u32>,
    bytes: Vec<u8>,
}

impl JobTeller {
    /// Tells jobs into this file, a pipe for instance.
    pub fn new(to: File) -> Self {
        Self(Arc::new(Mutex::new(Telling { to, numbers: HashMap::new(), bytes: Vec::new() })))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Telling) -> T) -> T {
        // Nobody panics while holding the lock, and what it guards is sound at any time.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn tell(&self, message: &JobMessage) {
        self.with(|telling| message.encode(&mut telling.bytes));
    }

    /// Hands on what was told.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.with(|telling| {
            let bytes = mem::take(&mut telling.bytes);
            telling.to.write_all(&bytes)
        })
    }

    /// A job's number.
    fn number(&self, name: &str) -> u32 {
        self.with(|telling| {
            let name = if telling.numbers.len() < MOST_JOBS { name } else { OTHER_JOBS };
            if let Some(number) = telling.numbers.get(name) {
                return *number;
            }
            let job = telling.numbers.len() as u32;
            telling.numbers.insert(name.to_owned(), job);
            let end = (0..=MOST_NAME.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
            let name = name.get(..end.unwrap_or(0)).unwrap_or_default().to_owned();
            JobMessage::Name { job, name }.encode(&mut telling.bytes);
            job
        })
    }
}

/// Tells the jobs of one process.
#[derive(Debug)]
pub(crate) struct ProcessJobs {
    teller: JobTeller,
    pid: u32,
    tids: Tids,
    /// By the event's number: which job, and whether it begins there.
    known: HashMap<u32, (u32, bool)>,
    /// How many were lost when that was told last.
    lost: u64,
}

impl ProcessJobs {
    /// Those of a process with these ids here and in its own pid namespace.
    pub(crate) fn new(teller: JobTeller, pid: u32, inner_pid: u32) -> Self {
        Self { teller, pid, tids: Tids::new(pid, inner_pid), known: HashMap::new(), lost: 0 }
    }

    /// Tells an event if it is a job's; its description is asked for once. False if that is unknown.
    pub(crate) fn tell<'a>(
        &mut self,
        number: u32,
        (time, tid, payload): (u64, u32, &[u8]),
        describe: impl FnOnce() -> Option<&'a Event>,
    ) -> bool {
        let (job, begins) = match self.known.get(&number) {
            Some(known) => *known,
            None => {
                let Some(event) = describe() else { return false };
                let begins = match event.kind {
                    Kind::Job => true,
                    Kind::End => false,
                    // Somebody else's event with such a field.
                    _ => return true,
                };
                *self.known.entry(number).or_insert((self.teller.number(&filter::span(event)), begins))
            }
        };
        let (pid, tid) = (self.pid, self.tids.outer(tid));
        // The first field of a job's begin; the ring's reader gives whole records, whose author may lie all the same.
        let deadline = payload.get(..8).and_then(|it| it.try_into().ok()).map_or(0, u64::from_le_bytes);
        self.teller.tell(&match begins {
            true => JobMessage::Began { job, pid, tid, time, deadline },
            false => JobMessage::Ended { job, pid, tid, time },
        });
        true
    }

    /// Tells how many were lost, if that are more than before.
    pub(crate) fn tell_lost(&mut self, count: u64) {
        if count > self.lost {
            self.lost = count;
            self.teller.tell(&JobMessage::Lost { pid: self.pid, count });
        }
    }

    /// Looks at the threads, where some are unknown.
    pub(crate) fn look_at_threads(&mut self) {
        self.tids.look();
    }

    /// The process takes part no more.
    pub(crate) fn tell_end(&self) {
        self.teller.tell(&JobMessage::Gone { pid: self.pid });
    }
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
    use std::io::Read as _;

    use super::*;

    #[test]
    fn messages_are_read_as_they_were_told_however_they_are_cut() {
        let (job, pid, tid, time) = (1, 7, 8, 1 << 40);
        let messages = [
            JobMessage::Name { job, name: "motor:control".into() },
            JobMessage::Began { job, pid, tid, time, deadline: 500_000 },
            JobMessage::Ended { job, pid, tid, time: time + 1 },
            JobMessage::Lost { pid, count: u64::MAX },
            JobMessage::Gone { pid },
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

    #[test]
    fn jobs_have_one_number_each_and_not_any_number_of_them() {
        let (mut from, to) = std::os::unix::net::UnixStream::pair().unwrap();
        let teller = JobTeller::new(File::from(std::os::fd::OwnedFd::from(to)));
        assert_eq!((teller.number("a:b"), teller.number("a:c"), teller.number("a:b")), (0, 1, 0));
        let last = (0..2000).map(|number| teller.number(&format!("x:{number}"))).max();
        assert_eq!(last, Some(MOST_JOBS as u32));
        teller.flush().unwrap();
        drop(teller);
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        let mut reader = JobMessages::default();
        reader.push(&bytes);
        let names: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!(names.len(), MOST_JOBS + 1);
        assert_eq!(names.last(), Some(&JobMessage::Name { job: MOST_JOBS as u32, name: OTHER_JOBS.into() }));
    }
}
