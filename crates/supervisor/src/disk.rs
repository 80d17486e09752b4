//! Requests to disks that may hang: one at a time per disk, with a timeout.
//!
//! A request runs in a thread of its own, which hangs with the disk. Meanwhile, further requests to
//! this disk fail and start no thread.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::Write as _,
    os::unix::{ffi::OsStringExt as _, net::UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

/// Time for a disk to answer. No lock is held meanwhile.
const DISK_TIMEOUT: Duration = Duration::from_secs(2);

/// Disks, of which some have a question that is not answered yet.
#[derive(Clone, Debug)]
pub struct Disks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    timeout: Duration,
    /// Gets a byte with each answer.
    waker: Option<UnixStream>,
    /// Instants until which the open questions are waited for.
    open: Mutex<BTreeMap<PathBuf, Instant>>,
    answered: Condvar,
    /// Threads that wait for the answer to another one's question.
    #[cfg(test)]
    waiting: std::sync::atomic::AtomicU32,
}

/// Reason why a question can't be put now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unasked {
    /// The disk has another question until this instant.
    Busy(Instant),
    /// It has not answered another question in its time, or there is no thread for this one.
    Hung,
}

/// Answer that is to come.
#[derive(Debug)]
pub struct Answer<T> {
    receiver: Receiver<T>,
    /// Instant until which it is waited for.
    pub deadline: Instant,
}

/// Answer as it is at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// It may still come.
    Pending,
    /// It is here.
    Given(T),
    /// It has not come in time.
    Late,
}

impl<T> Answer<T> {
    /// Looks whether the answer is here.
    pub fn reply(&self) -> Reply<T> {
        match self.receiver.try_recv() {
            Ok(answer) => Reply::Given(answer),
            Err(TryRecvError::Empty) if Instant::now() < self.deadline => Reply::Pending,
            Err(_) => Reply::Late,
        }
    }

    /// Waits for the answer. `None` if it does not come in time.
    fn wait(self) -> Option<T> {
        self.receiver.recv_timeout(self.deadline.saturating_duration_since(Instant::now())).ok()
    }
}

/// A question that is not answered yet.
struct Question {
    shared: Arc<Shared>,
    disk: PathBuf,
    deadline: Instant,
}

impl Drop for Question {
    fn drop(&mut self) {
        self.shared.lock().remove(&self.disk);
        self.shared.answered.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Instant>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a question, unless there is one.
    fn begin(
        self: &Arc<Self>,
        open: &mut BTreeMap<PathBuf, Instant>,
        disk: &Path,
    ) -> Result<Question, Unasked> {
        let now = Instant::now();
        match open.get(disk) {
            Some(until) if *until > now => return Err(Unasked::Busy(*until)),
            Some(_) => return Err(Unasked::Hung),
            None => {}
        }
        let deadline = now + self.timeout;
        open.insert(disk.to_owned(), deadline);
        Ok(Question { shared: Arc::clone(self), disk: disk.to_owned(), deadline })
    }

    /// Has a thread answer a question.
    fn put<T: Send + 'static>(
        self: &Arc<Self>,
        open: Question,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Answer<T>, Unasked> {
        let (sender, receiver) = mpsc::channel();
        let (deadline, shared) = (open.deadline, Arc::clone(self));
        let answer = move || {
            let answer = question();
            drop(open);
            // Without a receiver, the answer came too late.
            let _ = sender.send(answer);
            // Where there is no room, the receiver has not looked since.
            let _ = shared.waker.as_ref().map(|mut waker| waker.write(&[0]));
        };
        let started = thread::Builder::new().name("disk".into()).spawn(answer);
        started.map(|_| Answer { receiver, deadline }).map_err(|_| Unasked::Hung)
    }
}

impl Disks {
    /// `waker` gets a byte with each answer; it must not block.
    pub fn new(waker: Option<UnixStream>) -> Self {
        Self::with_timeout(DISK_TIMEOUT, waker)
    }

    /// Gives disks another time to answer.
    pub fn with_timeout(timeout: Duration, waker: Option<UnixStream>) -> Self {
        Self(Arc::new(Shared {
            timeout,
            waker,
            open: Mutex::default(),
            answered: Condvar::new(),
            #[cfg(test)]
            waiting: 0.into(),
        }))
    }

    /// Asks the disk of a folder for something, and waits for the answer. `None` if it does not
    /// answer in time, or has not answered an earlier question in its time.
    pub fn ask<T: Send + 'static>(
        &self,
        folder: &Path,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let open = self.wait_for_turn(&disk_of(folder, &mounts()))?;
        self.0.put(open, question).ok()?.wait()
    }

    /// Asks the disk of a folder for something, without waiting for the answer.
    ///
    /// # Errors
    /// If it has another question.
    pub fn put<T: Send + 'static>(
        &self,
        folder: &Path,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Answer<T>, Unasked> {
        let disk = disk_of(folder, &mounts());
        let open = self.0.begin(&mut self.0.lock(), &disk)?;
        self.0.put(open, question)
    }

    /// Waits for the answer to an earlier question for the rest of its time.
    fn wait_for_turn(&self, disk: &Path) -> Option<Question> {
        let mut open = self.0.lock();
        loop {
            match self.0.begin(&mut open, disk) {
                Ok(question) => return Some(question),
                Err(Unasked::Hung) => return None,
                Err(Unasked::Busy(until)) => {
                    #[cfg(test)]
                    self.0.waiting.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let left = until.saturating_duration_since(Instant::now());
                    let waited = self.0.answered.wait_timeout(open, left);
                    open = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

fn mounts() -> Vec<u8> {
    fs::read("/proc/self/mountinfo").unwrap_or_default()
}

/// Returns the mount point of a folder by its path. In the root's file system, each folder counts
/// for itself: it may be behind a link to another disk. Source: `proc_pid_mountinfo(5)`.
fn disk_of(folder: &Path, mounts: &[u8]) -> PathBuf {
    let lines = mounts.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4)).map(unescape);
    let deepest = points.filter(|point| folder.starts_with(point)).max_by_key(|point| point.iter().count());
    deepest.filter(|point| point != Path::new("/")).unwrap_or_else(|| folder.to_owned())
}

/// Replaces `\040` and other bytes that the kernel writes in octal: blank, tab, line feed, and
/// backslash.
fn unescape(escaped: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let [first, after @ ..] = rest {
        let byte = match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'))
            }
            _ => None,
        };
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    /// Time that no test takes.
    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_disk_that_hangs_is_asked_once_and_others_answer() {
        let disks = Disks::with_timeout(Duration::ZERO, None);
        let (release, hang) = mpsc::channel::<()>();
        let (hung, other) = (Path::new("/no-such-mount/hung"), Path::new("/no-such-mount/other"));
        let no_answer = disks.ask(hung, move || hang.recv().is_ok());
        assert_eq!(no_answer, None);
        let (sender, receiver) = mpsc::channel();
        assert_eq!(disks.ask(hung, move || sender.send(())), None);
        assert!(receiver.recv().is_err(), "the second question was asked");
        let other = disks.put(other, || 7).expect("a question");
        assert_eq!(other.receiver.recv(), Ok(7));
        drop(release);
        while !disks.0.lock().is_empty() {
            thread::yield_now();
        }
        assert_eq!(disks.put(hung, || 8).expect("a question").receiver.recv(), Ok(8));
    }

    #[test]
    fn questions_to_a_disk_that_answers_follow_one_another() {
        let disks = Disks::with_timeout(LONG, None);
        let folder = Path::new("/no-such-mount/busy");
        let (release, busy) = mpsc::channel::<()>();
        let first = disks.put(folder, move || busy.recv().is_err()).expect("the first question");
        assert!(matches!(disks.put(folder, || 1), Err(Unasked::Busy(_))));
        let again = disks.clone();
        let second = thread::spawn(move || again.ask(folder, || 2));
        while disks.0.waiting.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        assert_eq!(first.reply(), Reply::Pending);
        drop(release);
        assert_eq!(second.join().expect("an answer"), Some(2));
        assert_eq!(first.wait(), Some(true));
    }

    #[test]
    fn an_answer_wakes_the_loop() {
        use std::io::Read as _;
        let (mut news, waker) = UnixStream::pair().expect("a pair");
        let disks = Disks::with_timeout(LONG, Some(waker));
        let answer = disks.put(Path::new("/no-such-mount/loop"), || 1).expect("a question");
        news.read_exact(&mut [0]).expect("a byte");
        assert_eq!(answer.reply(), Reply::Given(1));
    }

    #[test]
    fn folders_of_a_mount_are_on_one_disk() {
        use std::os::unix::ffi::OsStrExt as _;
        let mounts = b"22 1 0:2 / / rw - ext4 a rw\n30 22 0:3 / /data rw - xfs b rw\n\
                       31 30 0:4 / /data/my\\040nfs rw - nfs c rw\n32 30 0:5 / /data/\xff rw - nfs d rw\n\
                       33 30 0:6 / /data/a\\011b\\012c\\134040 rw - nfs e rw\n";
        for (folder, disk) in [
            (&b"/data/traces/a"[..], &b"/data"[..]),
            (b"/data/my nfs/a", b"/data/my nfs"),
            (b"/data/\xff/a", b"/data/\xff"),
            (b"/data/a\tb\nc\\040/a", b"/data/a\tb\nc\\040"),
            (b"/database", b"/database"),
            (b"/var/traces", b"/var/traces"),
        ] {
            let path = |bytes: &'static [u8]| Path::new(std::ffi::OsStr::from_bytes(bytes));
            assert_eq!(disk_of(path(folder), mounts), path(disk));
        }
    }
}
