//! Series of chunks in a recording's folder, while it is recorded.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    time::{Duration, Instant},
};

use tompion_os::DirHandle;

use crate::{Policy, Retention};

/// Begin of a chunk's name.
const PREFIX: &str = "chunk-";
/// End of the name of the one that is being written.
const OPEN: &str = ".open";
/// End of the hidden name of one that is being dropped.
const DROPPED: &str = ".dropped";
/// End of the hidden name of a committed one that is being removed.
const EXPIRED: &str = ".expired";

/// Begin of the names of streams, and how many folders deep they are.
const STREAM: &str = "stream_";
const STREAM_LEVELS: u32 = 2;

/// Returns the name of a committed chunk.
fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:06}")
}

/// Returns the number of the chunk that is being written under this name.
fn open_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix(PREFIX)?.strip_suffix(OPEN)?.parse().ok()?;
    (name == name_of(number) + OPEN).then_some(number)
}

/// Returns the folder of a chunk that is being dropped.
fn dropped_folder(folder: &DirHandle, number: u64) -> DirHandle {
    folder.join(format!(".{}{DROPPED}", name_of(number)))
}

/// Finds the chunk that was being dropped when its recorder was killed: its number and folder.
///
/// # Errors
/// If the folder can't be read.
pub fn dropped_chunk(folder: &DirHandle) -> io::Result<Option<(u64, DirHandle)>> {
    let names = folder.names()?.into_iter().filter_map(|name| name.into_string().ok());
    let number = |name: String| {
        let name = name.strip_prefix('.')?.strip_suffix(DROPPED)?;
        open_number(&format!("{name}{OPEN}"))
    };
    let found = names.filter_map(number).max();
    Ok(found.map(|number| (number, dropped_folder(folder, number))))
}

/// Finds the committed chunks of a recording, the oldest first: their numbers and folders.
///
/// # Errors
/// If the folder can't be read.
pub fn committed_chunks(folder: &DirHandle) -> io::Result<Vec<(u64, DirHandle)>> {
    let names = folder.names()?.into_iter().filter_map(|name| name.into_string().ok());
    let number = |name: String| {
        let number = open_number(&format!("{name}{OPEN}"))?;
        folder.has_directory(&name).then(|| (number, folder.join(name)))
    };
    let mut chunks: Vec<_> = names.filter_map(number).collect();
    chunks.sort_by_key(|(number, _)| *number);
    Ok(chunks)
}

/// Finds the chunk that was being written when its recorder was killed: its number and folders, as
/// it is called and as it is to be called.
///
/// # Errors
/// If the folder can't be read.
pub fn open_chunk(folder: &DirHandle) -> io::Result<Option<(u64, DirHandle, DirHandle)>> {
    let names = folder.names()?.into_iter().filter_map(|name| name.into_string().ok());
    let newest = names.filter_map(|name| open_number(&name)).max();
    Ok(newest.map(|number| {
        let committed = name_of(number);
        (number, folder.join(committed.clone() + OPEN), folder.join(committed))
    }))
}

/// Chunks that one look at a recording's folder has found.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// Committed chunks, the oldest first: their numbers and folders.
    pub committed: Vec<(u64, DirHandle)>,
    /// The chunk that is being written.
    pub open: Option<(u64, DirHandle)>,
    /// Numbers of chunks older than the newest one that are not there any more.
    pub removed: Vec<u64>,
}

/// Lists the chunks of a recording that goes on: one that is committed meanwhile is listed once, as
/// open or as committed, and never as removed.
///
/// # Errors
/// If the folder can't be read.
pub fn list_chunks(folder: &DirHandle) -> io::Result<Listed> {
    let (mut committed, mut open) = (BTreeMap::new(), None);
    for name in folder.names()?.into_iter().filter_map(|name| name.into_string().ok()) {
        if let Some(number) = open_number(&name) {
            open = open.max(Some(number));
        } else if let Some(number) = open_number(&format!("{name}{OPEN}"))
            && folder.has_directory(&name)
        {
            committed.insert(number, folder.join(name));
        }
    }
    let open = open.filter(|number| !committed.contains_key(number));
    let newest = open.max(committed.last_key_value().map(|(number, _)| *number)).unwrap_or(0);
    // A list can miss a folder that is renamed meanwhile, a look for its name can't. All chunks
    // before another one have been committed.
    let is_gone = |number: &u64| {
        !committed.contains_key(number) && Some(*number) != open && !folder.has_directory(name_of(*number))
    };
    let removed = (1..newest).filter(is_gone).collect();
    let open = open.map(|number| (number, folder.join(name_of(number) + OPEN)));
    Ok(Listed { committed: committed.into_iter().collect(), open, removed })
}

/// Removes what a recorder has left that was killed while it removed old chunks.
fn remove_expired(folder: &DirHandle) -> io::Result<()> {
    for name in folder.names()?.into_iter().filter_map(|name| name.into_string().ok()) {
        let number = |name: &str| {
            let name = name.strip_prefix('.')?.strip_suffix(EXPIRED)?;
            open_number(&format!("{name}{OPEN}"))
        };
        if number(&name).is_some() {
            folder.join(name).remove_all()?;
        }
    }
    Ok(())
}

/// A chunk that is complete.
#[derive(Clone, Debug)]
pub struct Committed {
    /// Its number.
    pub number: u64,
    /// Its folder.
    pub folder: DirHandle,
    /// Bytes of its files.
    pub bytes: u64,
    /// Time of its end.
    ended: Instant,
}

impl Committed {
    /// A chunk that another recorder has committed; with the bytes of its streams, if they are
    /// wanted.
    fn find((number, folder): (u64, DirHandle), with_bytes: bool, now: Instant) -> io::Result<Self> {
        let age = folder.metadata()?.modified()?.elapsed().unwrap_or_default();
        let bytes = if with_bytes { stream_bytes(&folder, STREAM_LEVELS)? } else { 0 };
        Ok(Self { number, folder, bytes, ended: now.checked_sub(age).unwrap_or(now) })
    }
}

/// Bytes of the streams' files in a folder and, so many levels deep, in those below it.
fn stream_bytes(folder: &DirHandle, levels: u32) -> io::Result<u64> {
    let mut sum = 0_u64;
    for name in folder.names()? {
        let is_stream = name.to_string_lossy().starts_with(STREAM);
        if is_stream {
            sum = sum.saturating_add(folder.read(&name)?.metadata()?.len());
        } else if levels != 0 && folder.has_directory(&name) {
            sum = sum.saturating_add(stream_bytes(&folder.join(&name), levels - 1)?);
        }
    }
    Ok(sum)
}

/// Chunks of one recording.
#[derive(Debug)]
pub struct Series {
    folder: DirHandle,
    policy: Policy,
    /// Number of the open chunk, its folder, and the time of its begin.
    number: u64,
    open: DirHandle,
    begun: Instant,
    /// Time at which the next rotation is due.
    due: Option<Instant>,
    /// Committed chunks that are still there, the oldest first.
    committed: VecDeque<Committed>,
}

impl Series {
    /// Begins the first chunk in a recording's folder.
    ///
    /// # Errors
    /// If its folder can't be made.
    pub fn begin(folder: DirHandle, policy: Policy) -> io::Result<Self> {
        let now = Instant::now();
        let open = folder.join(name_of(1) + OPEN);
        open.make()?;
        let due = policy.rotation.every.map(|every| now + every);
        Ok(Self { folder, policy, number: 1, open, begun: now, due, committed: VecDeque::new() })
    }

    /// Goes on with the chunk of this number, in the folder of a recording whose recorder was
    /// killed. Its folder is made if it is not there. It was begun so long ago.
    ///
    /// # Errors
    /// If the folder can't be made, or the recording's not be read.
    pub fn resume(folder: DirHandle, policy: Policy, number: u64, age: Duration) -> io::Result<Self> {
        let now = Instant::now();
        remove_expired(&folder)?;
        let open = folder.join(name_of(number) + OPEN);
        open.make()?;
        let begun = now.checked_sub(age).unwrap_or(now);
        let due = policy.rotation.every.map(|every| begun + every);
        let committed = match policy.retention {
            // It is not needed otherwise, and takes a look at each file.
            Retention { age: None, size: None, count: None } => VecDeque::new(),
            Retention { size, .. } => {
                let chunks = committed_chunks(&folder)?.into_iter();
                chunks.filter_map(|chunk| Committed::find(chunk, size.is_some(), now).ok()).collect()
            }
        };
        Ok(Self { folder, policy, number, open, begun, due, committed })
    }

    /// Folder of the open chunk.
    pub fn open(&self) -> &DirHandle {
        &self.open
    }

    /// Number of the open chunk.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the open chunk has reached a limit.
    pub fn is_due(&self, bytes: impl FnOnce() -> u64) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
            || self.policy.rotation.size.is_some_and(|size| bytes() >= size)
    }

    /// Commits the open chunk, which has so many bytes.
    ///
    /// # Errors
    /// If the folder can't be renamed.
    pub fn commit(&mut self, bytes: u64) -> io::Result<Committed> {
        let folder = self.folder.join(name_of(self.number));
        self.open.rename_to(&folder)?;
        let chunk = Committed { number: self.number, folder, bytes, ended: Instant::now() };
        self.committed.push_back(chunk.clone());
        Ok(chunk)
    }

    /// Begins the chunk behind the one that was committed or removed.
    ///
    /// # Errors
    /// If its folder can't be made.
    pub fn begin_next(&mut self) -> io::Result<()> {
        self.number += 1;
        self.open = self.folder.join(name_of(self.number) + OPEN);
        self.open.make()?;
        self.begun = Instant::now();
        // Without drift, unless rotations came late.
        self.due = self.policy.rotation.every.map(|every| {
            let next = self.due.unwrap_or(self.begun) + every;
            if next <= self.begun { self.begun + every } else { next }
        });
        Ok(())
    }

    /// Sets the open chunk aside, to be dropped: no reader sees it any more.
    ///
    /// # Errors
    /// If it can't be renamed.
    pub fn set_aside(&mut self) -> io::Result<()> {
        self.open.rename_to(&dropped_folder(&self.folder, self.number))
    }

    /// Removes the chunk that was set aside, and begins it again.
    ///
    /// # Errors
    /// If it can't be removed, or made again.
    pub fn drop_open(&mut self) -> io::Result<()> {
        dropped_folder(&self.folder, self.number).remove_all()?;
        self.open.make()?;
        self.begun = Instant::now();
        Ok(())
    }

    /// Removes the oldest chunks that are beyond the limits. Returns their number.
    ///
    /// # Errors
    /// If one can't be removed; it is forgotten.
    pub fn expire(&mut self) -> io::Result<u64> {
        let mut removed = 0;
        while self.is_beyond_limits(Instant::now()) {
            let Some(oldest) = self.committed.pop_front() else { break };
            // At once, so that no reader takes what is left of it for all of it.
            let hidden = self.folder.join(format!(".{}{EXPIRED}", name_of(oldest.number)));
            match oldest.folder.rename_to(&hidden).and_then(|()| hidden.remove_all()) {
                // A user was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
            removed += 1;
        }
        Ok(removed)
    }

    fn is_beyond_limits(&self, now: Instant) -> bool {
        let Some(oldest) = self.committed.front().filter(|_| self.committed.len() > 1) else { return false };
        let retention = &self.policy.retention;
        let age = now.saturating_duration_since(oldest.ended);
        let bytes = self.committed.iter().map(|chunk| chunk.bytes).fold(0, u64::saturating_add);
        let exceeds = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value > limit);
        retention.age.is_some_and(|limit: Duration| age > limit)
            || exceeds(retention.size, bytes)
            || exceeds(retention.count, self.committed.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use tompion_testing::TestDir;

    use super::*;
    use crate::Rotation;

    fn series(dir: &TestDir, rotation: Rotation, retention: Retention) -> Series {
        let folder = DirHandle::open(dir).expect("a folder");
        Series::begin(folder, Policy { rotation, retention }).expect("a chunk")
    }

    fn names(dir: &TestDir) -> Vec<String> {
        let entries = fs::read_dir(dir.path()).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn rotate(series: &mut Series, bytes: u64) {
        series.open().create_new("file").expect("a file");
        series.commit(bytes).expect("a name");
        series.begin_next().expect("a chunk");
    }

    #[test]
    fn chunks_are_renamed_when_they_are_complete() {
        let dir = TestDir::new("chunks");
        let mut series = series(&dir, Rotation::default(), Retention::default());
        assert_eq!(names(&dir), ["chunk-000001.open"]);
        rotate(&mut series, 1);
        rotate(&mut series, 1);
        assert_eq!(names(&dir), ["chunk-000001", "chunk-000002", "chunk-000003.open"]);
        assert_eq!(series.number(), 3);
        let folder = DirHandle::open(&dir).expect("a folder");
        let found = committed_chunks(&folder).expect("names");
        assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
        let (number, open, committed) = open_chunk(&folder).expect("names").expect("a chunk");
        open.rename_to(&committed).expect("a name");
        assert_eq!((number, names(&dir).last().map(String::as_str)), (3, Some("chunk-000003")));
        assert!(open_chunk(&folder).expect("names").is_none());
        for name in ["chunk-1.open", "chunk-000001", "chunk-.open", "chunk-00000x.open", "other"] {
            assert_eq!(open_number(name), None, "{name}");
        }
        assert_eq!(open_number("chunk-1000000.open"), Some(1_000_000));
    }

    #[test]
    fn an_open_chunk_begins_again_when_it_is_dropped() {
        let dir = TestDir::new("drop");
        let mut series = series(&dir, Rotation::default(), Retention::default());
        series.open().create_new("file").expect("a file");
        let folder = DirHandle::open(&dir).expect("a folder");
        assert!(dropped_chunk(&folder).expect("names").is_none());
        series.set_aside().expect("another name");
        assert_eq!(names(&dir), [".chunk-000001.dropped"]);
        assert_eq!(dropped_chunk(&folder).expect("names").map(|(number, _)| number), Some(1));
        series.drop_open().expect("another one");
        assert_eq!((names(&dir).len(), series.open().names().expect("names").len()), (1, 0));
    }

    #[test]
    fn a_series_goes_on_and_knows_what_is_there() {
        let dir = TestDir::new("resume");
        let rotation = Rotation { every: Some(Duration::from_secs(60)), size: None };
        let retention = Retention { count: Some(9), size: Some(15), age: None };
        let mut series = series(&dir, rotation, retention);
        for _ in 0..2 {
            let source = series.open().join("user").join("a-1");
            source.make().expect("folders");
            fs::write(source.path().join("stream_0"), "12345678").expect("a stream");
            fs::write(source.path().join("metadata"), "more").expect("metadata");
            rotate(&mut series, 8);
        }
        drop(series);
        let resume = |age| {
            let folder = DirHandle::open(&dir).expect("a folder");
            Series::resume(folder, Policy { rotation, retention }, 3, age).expect("a series")
        };
        assert!(resume(Duration::from_secs(61)).is_due(|| 0), "its time goes on");
        let mut series = resume(Duration::from_secs(1));
        assert!(!series.is_due(|| 0));
        assert_eq!((series.number(), series.expire().expect("removed")), (3, 1), "16 bytes are too many");
        assert_eq!(names(&dir), ["chunk-000002", "chunk-000003.open"]);
    }

    #[test]
    fn a_rotation_is_due_at_its_time_or_size() {
        let dir = TestDir::new("due");
        let rotation = Rotation { every: Some(Duration::from_millis(20)), size: None };
        let mut by_time = series(&dir, rotation, Retention::default());
        assert!(!by_time.is_due(|| unreachable!("no limit of size")));
        std::thread::sleep(Duration::from_millis(50));
        assert!(by_time.is_due(|| unreachable!("no limit of size")));
        rotate(&mut by_time, 0);
        assert!(!by_time.is_due(|| 0), "late rotations are not caught up with");
        let dir = TestDir::new("size");
        let by_size = series(&dir, Rotation { every: None, size: Some(100) }, Retention::default());
        assert!(!by_size.is_due(|| 99) && by_size.is_due(|| 100));
    }

    #[test]
    fn the_oldest_chunks_go_and_the_newest_stays() {
        let dir = TestDir::new("keep");
        let retention = Retention { count: Some(2), size: Some(100), age: None };
        let mut series = series(&dir, Rotation::default(), retention);
        let elsewhere = TestDir::new("elsewhere");
        fs::write(elsewhere.join("file"), "theirs").expect("a file");
        symlink(elsewhere.path(), dir.join("chunk-000001.open/link")).expect("a link");
        for _ in 0..4 {
            rotate(&mut series, 10);
            series.expire().expect("removed");
        }
        assert_eq!(names(&dir), ["chunk-000003", "chunk-000004", "chunk-000005.open"]);
        assert!(elsewhere.join("file").exists(), "links are not followed");
        rotate(&mut series, 101);
        assert_eq!(series.expire().expect("removed"), 2);
        assert_eq!(names(&dir), ["chunk-000005", "chunk-000006.open"]);
        // What a user has removed is no failure.
        rotate(&mut series, 101);
        fs::remove_dir_all(dir.join("chunk-000005")).expect("removed");
        assert_eq!(series.expire().expect("removed"), 1);
    }

    #[test]
    fn chunks_go_when_they_are_old() {
        let dir = TestDir::new("age");
        let retention = Retention { age: Some(Duration::from_millis(20)), ..Retention::default() };
        let mut series = series(&dir, Rotation::default(), retention);
        rotate(&mut series, 1);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(series.expire().expect("removed"), 0, "the only one stays");
        rotate(&mut series, 1);
        assert_eq!(series.expire().expect("removed"), 1);
    }

    #[test]
    fn a_look_finds_what_was_removed_and_a_recorder_removes_what_another_one_left() {
        let dir = TestDir::new("chunks");
        let mut series = series(&dir, Rotation::default(), Retention::default());
        (0..4).for_each(|_| rotate(&mut series, 1));
        let folder = DirHandle::open(&dir).expect("a folder");
        let listed = list_chunks(&folder).expect("names");
        let numbers =
            |listed: &Listed| listed.committed.iter().map(|(number, _)| *number).collect::<Vec<_>>();
        assert_eq!((numbers(&listed), listed.removed), (vec![1, 2, 3, 4], vec![]));
        assert_eq!(listed.open.map(|(number, _)| number), Some(5));
        // A recorder was killed while it removed the first one, and a user removed the third.
        fs::rename(dir.join("chunk-000001"), dir.join(".chunk-000001.expired")).expect("a name");
        fs::remove_dir_all(dir.join("chunk-000003")).expect("removed");
        let listed = list_chunks(&folder).expect("names");
        assert_eq!((numbers(&listed), listed.removed), (vec![2, 4], vec![1, 3]));
        let policy = Policy { rotation: Rotation::default(), retention: Retention::default() };
        Series::resume(folder, policy, 5, Duration::ZERO).expect("a series");
        assert_eq!(names(&dir), ["chunk-000002", "chunk-000004", "chunk-000005.open"]);
    }

    /// Given chunks that are committed and removed all the while, then none is listed as removed
    /// that is there, and none is seen in part.
    #[test]
    fn looks_beside_a_recorder_see_chunks_whole() {
        let dir = TestDir::new("chunks");
        let retention = Retention { count: Some(3), ..Retention::default() };
        let mut series = series(&dir, Rotation::default(), retention);
        let folder = DirHandle::open(&dir).expect("a folder");
        let newest_removed = std::sync::atomic::AtomicU64::new(0);
        let ordering = std::sync::atomic::Ordering::SeqCst;
        let rounds = tompion_testing::rounds(400, 20_000);
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    (0..3).for_each(|file| drop(series.open().create_new(format!("file{file}"))));
                    series.commit(1).expect("a name");
                    series.begin_next().expect("a chunk");
                    // Told before it is done.
                    newest_removed.store(series.number().saturating_sub(4), ordering);
                    series.expire().expect("removed");
                }
                is_done.store(true, ordering);
            });
            while !is_done.load(ordering) {
                let listed = list_chunks(&folder).expect("names");
                let most = newest_removed.load(ordering);
                assert!(listed.removed.iter().all(|number| *number <= most), "{listed:?} {most}");
                for (_, chunk) in listed.committed {
                    let Ok(names) = chunk.names() else { continue };
                    assert!(names.len() == 3 || !chunk.exists(), "{names:?}");
                }
            }
        });
    }
}
