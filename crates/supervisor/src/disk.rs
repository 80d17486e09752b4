//! Questions to disks that may hang: one at a time for each, whose answer is waited for briefly.
//!
//! A question runs in a thread of its own, which hangs with the disk. While it does, further
//! questions to this disk have no answer, and take no thread.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Time for a disk to answer.
const DISK_TIMEOUT: Duration = Duration::from_millis(500);

/// Disks, of which some have a question that is not answered yet.
#[derive(Clone, Debug, Default)]
pub struct Disks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Instants until which the open questions are waited for.
    open: Mutex<BTreeMap<PathBuf, Instant>>,
    answered: Condvar,
}

/// A question that is not answered yet.
struct Question {
    shared: Arc<Shared>,
    disk: PathBuf,
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
}

impl Disks {
    /// Asks the disk of a folder for something. `None` if it does not answer in time, or has not
    /// answered an earlier question in its time.
    pub fn ask<T: Send + 'static>(
        &self,
        folder: &Path,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let open = self.begin(disk_of(folder, &mounts))?;
        let (sender, receiver) = mpsc::channel();
        let ask = move || {
            let answer = question();
            drop(open);
            // Without a receiver, the answer came too late.
            let _ = sender.send(answer);
        };
        thread::Builder::new().name("disk".into()).spawn(ask).ok()?;
        receiver.recv_timeout(DISK_TIMEOUT).ok()
    }

    /// Waits for the answer to an earlier question for the rest of its time.
    fn begin(&self, disk: PathBuf) -> Option<Question> {
        let mut open = self.0.lock();
        while let Some(deadline) = open.get(&disk) {
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.0.answered.wait_timeout(open, left);
            open = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        open.insert(disk.clone(), Instant::now() + DISK_TIMEOUT);
        Some(Question { shared: Arc::clone(&self.0), disk })
    }
}

/// Returns the mount point of a folder by its path. In the root's file system, each folder counts
/// for itself: it may be behind a link to another disk. Source: `proc_pid_mountinfo(5)`.
fn disk_of(folder: &Path, mounts: &str) -> PathBuf {
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.map(|point| PathBuf::from(point.replace("\\040", " ")));
    let deepest = points.filter(|point| folder.starts_with(point)).max_by_key(|point| point.iter().count());
    deepest.filter(|point| point != Path::new("/")).unwrap_or_else(|| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_hangs_is_asked_once_and_others_answer() {
        let disks = Disks::default();
        let (release, hang) = mpsc::channel::<()>();
        let (hung, other) = (Path::new("/no-such-mount/hung"), Path::new("/no-such-mount/other"));
        let no_answer = disks.ask(hung, move || hang.recv().is_ok());
        assert_eq!(no_answer, None);
        let (sender, receiver) = mpsc::channel();
        assert_eq!(disks.ask(hung, move || sender.send(())), None);
        assert!(receiver.recv().is_err(), "the second question was asked");
        assert_eq!(disks.ask(other, || 7), Some(7));
        drop(release);
        while !disks.0.lock().is_empty() {
            thread::yield_now();
        }
        assert_eq!(disks.ask(hung, || 8), Some(8));
    }

    #[test]
    fn questions_to_a_disk_that_answers_follow_one_another() {
        let disks = Disks::default();
        let folder = Path::new("/no-such-mount/busy");
        let first = disks.begin(folder.to_owned()).expect("the first question");
        let again = disks.clone();
        let second = thread::spawn(move || again.begin(folder.to_owned()).is_some());
        drop(first);
        assert!(second.join().expect("an answer"));
    }

    #[test]
    fn folders_of_a_mount_are_on_one_disk() {
        let mounts = "22 1 0:2 / / rw - ext4 a rw\n30 22 0:3 / /data rw - xfs b rw\n\
                      31 30 0:4 / /data/my\\040nfs rw - nfs c rw\n";
        for (folder, disk) in [
            ("/data/traces/a", "/data"),
            ("/data/my nfs/a", "/data/my nfs"),
            ("/database", "/database"),
            ("/var/traces", "/var/traces"),
        ] {
            assert_eq!(disk_of(Path::new(folder), mounts), Path::new(disk), "{folder}");
        }
    }
}
