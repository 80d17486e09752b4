//! Storage of indexes and notes: `.tompion-view` beside the trace, the user's cache where that is
//! not writable, or else temporary files.
//!
//! A folder that came with a trace may contain anything. It is used only if it belongs to this
//! user, no other user may write to it, and it is not a link. It stays open, and files are created
//! and found relative to it, since its owner may replace it at any time.

use std::cell::OnceCell;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use tompion_reader::TraceSet;

use super::private_dir::PrivateDir;
use super::store::Store;
use super::{Index, directory, disk_space, size_estimate};

/// Name of the folder beside a trace.
const BESIDE: &str = ".tompion-view";
/// Name of the index's file.
const INDEX: &str = "index";
/// Name of the notes' file.
const NOTES: &str = "notes.json";
/// Name of the file with clock offsets.
const SHIFTS: &str = "shifts.json";
/// Maximum number of files with damaged notes.
const MAX_DAMAGED_FILES: u32 = 100;
/// Maximum size of the notes' file in bytes.
const MAX_NOTES_BYTES: u64 = 16 << 20;
/// Bytes before the first block, with the position of the directory.
pub const HEAD: u64 = 4096;

/// Storage of indexes and notes.
#[derive(Clone, Debug)]
pub struct IndexStorage {
    /// Folder for everything; `None` if none is writable.
    folder: Option<PrivateDir>,
    /// Path in the user's cache for an index that has no space in the folder. It is created when
    /// needed.
    fallback: Option<PathBuf>,
    /// Whether the newest index is in the fallback folder.
    is_in_fallback: Arc<AtomicBool>,
    /// Name of the index's file while it is written.
    new: String,
    /// Line that says why the folder beside the trace is not used, where that may be an attack.
    remark: Option<String>,
}

impl IndexStorage {
    /// Finds the storage of some traces; `cache` replaces the cache that the environment names.
    pub fn new(paths: &[PathBuf], cache: Option<&Path>) -> Self {
        let mut remark = None;
        let beside = match paths {
            [path] => {
                let path = path.join(BESIDE);
                let opened = PrivateDir::open(&path);
                // A folder that isn't writable is usual; one that must not be used is reported.
                remark =
                    opened.as_ref().err().filter(|error| error.kind() == io::ErrorKind::Other).map(|error| {
                        format!("{}: {error}; what is found out is kept in the cache", path.display())
                    });
                opened.ok()
            }
            _ => None,
        };
        let fallback = cache_path(paths, cache);
        let (folder, fallback) = match beside {
            Some(beside) => (Some(beside), fallback),
            None => (fallback.as_deref().and_then(open_or_create), None),
        };
        let new = format!("index.{}.{}.new", std::process::id(), next_number());
        Self { folder, fallback, is_in_fallback: Arc::default(), new, remark }
    }

    /// Returns a line that says why the folder beside the trace is not used, where that is unusual.
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// Adds a line about the place of the index.
    pub fn add_remark(&mut self, line: Option<String>) {
        self.remark =
            self.remark.take().into_iter().chain(line).reduce(|first, line| format!("{first}; {line}"));
    }

    /// Returns the path of the folder, if there is one.
    pub fn path(&self) -> Option<PathBuf> {
        self.folder.as_ref()?.path()
    }

    /// Creates an empty file for an index where there is space: in the folder, in the cache, or
    /// among temporary files. Where the file system allows, it has no name before it is published,
    /// so a killed server leaves nothing. A line is returned if the file is not in the folder.
    ///
    /// # Errors
    ///
    /// If no file can be created, or there is no space anywhere.
    pub fn begin(&self, set: &TraceSet) -> io::Result<(Store, Option<String>)> {
        let needed = NeededSpace::of(set);
        let mut obstacle: Option<String> = None;
        let fallback = || self.fallback.as_deref().and_then(open_or_create);
        let folders = self.folder.iter().cloned().map(|folder| (folder, false));
        for (folder, is_fallback) in
            folders.chain(std::iter::once_with(fallback).flatten().map(|fallback| (fallback, true)))
        {
            match self.begin_in(&folder, &needed) {
                Ok(store) => {
                    // Ordering: this thread or one that it starts publishes the index.
                    self.is_in_fallback.store(is_fallback, Ordering::Relaxed);
                    return Ok((store, obstacle.map(|obstacle| location_notice(&folder, &obstacle))));
                }
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    obstacle = obstacle.or_else(|| Some(format!("{}: {error}", display_path(&folder))));
                }
                Err(_) => {}
            }
        }
        let file = temporary()?;
        needed.check(&file).map_err(|error| match &obstacle {
            Some(first) => io::Error::new(error.kind(), format!("no room for it in {first}")),
            None => error,
        })?;
        Ok((
            Store::new(file, HEAD),
            obstacle.map(|obstacle| format!("{obstacle}; it is made again each time")),
        ))
    }

    fn begin_in(&self, folder: &PrivateDir, needed: &NeededSpace<'_>) -> io::Result<Store> {
        self.remove_stale_files(folder);
        let file = folder.create_nameless().or_else(|_| {
            let _ = folder.remove(&self.new);
            folder.create(&self.new)
        })?;
        if let Err(error) = needed.check(&file) {
            let _ = folder.remove(&self.new);
            return Err(error);
        }
        Ok(Store::new(file, HEAD))
    }

    /// Gives the newest index its name.
    ///
    /// # Errors
    ///
    /// If it can't be renamed.
    pub fn publish(&self, store: &Store) -> io::Result<()> {
        let is_in_fallback = self.is_in_fallback.load(Ordering::Relaxed);
        let folder = if is_in_fallback { self.existing_fallback() } else { self.folder.clone() };
        let Some(folder) = folder else { return Ok(()) };
        if store.is_nameless()? {
            let _ = folder.remove(&self.new);
            folder.name(store.file(), &self.new)?;
        }
        folder.rename(&self.new, INDEX)
    }

    /// Loads the saved index, if it is valid and of exactly these files.
    pub fn load(&self, fingerprint: &str) -> Option<Index> {
        let folders = self.folder.iter().cloned().chain(self.existing_fallback());
        let mut files = folders.filter_map(|folder| folder.read(INDEX).ok());
        files.find_map(|file| directory::read(file, fingerprint))
    }

    /// Returns the fallback folder, if it exists.
    fn existing_fallback(&self) -> Option<PrivateDir> {
        self.fallback.as_deref().filter(|path| path.is_dir()).and_then(open_or_create)
    }

    /// Reads the saved notes; empty if there are none.
    ///
    /// # Errors
    ///
    /// If the file exists and can't be read.
    pub fn notes(&self) -> io::Result<Vec<u8>> {
        self.read(NOTES)
    }

    /// Reads the saved clock offsets; empty if there are none.
    ///
    /// # Errors
    ///
    /// If the file exists and can't be read.
    pub fn shifts(&self) -> io::Result<Vec<u8>> {
        self.read(SHIFTS)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let Some(folder) = &self.folder else { return Ok(Vec::new()) };
        let mut bytes = Vec::new();
        match folder.read(name) {
            Ok(file) => file.take(MAX_NOTES_BYTES).read_to_end(&mut bytes).map(|_| bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(bytes),
            Err(error) => Err(error),
        }
    }

    /// Renames a damaged notes' file, so that new notes can be written, and returns its new name.
    ///
    /// # Errors
    ///
    /// If it can't be renamed, or all such names are taken.
    pub fn set_notes_aside(&self) -> io::Result<String> {
        let Some(folder) = &self.folder else { return Err(io::ErrorKind::ReadOnlyFilesystem.into()) };
        let taken = folder.names()?;
        let mut names = (1..MAX_DAMAGED_FILES).map(|number| match number {
            1 => format!("{NOTES}.damaged"),
            number => format!("{NOTES}.damaged.{number}"),
        });
        let name = names.find(|name| !taken.contains(name)).ok_or(io::ErrorKind::AlreadyExists)?;
        folder.rename(NOTES, &name).map(|()| name)
    }

    /// Replaces the notes atomically.
    ///
    /// # Errors
    ///
    /// If they can't be written.
    pub fn write_notes(&self, bytes: &[u8]) -> io::Result<()> {
        self.write(NOTES, bytes)
    }

    /// Replaces the clock offsets atomically.
    ///
    /// # Errors
    ///
    /// If they can't be written.
    pub fn write_shifts(&self, bytes: &[u8]) -> io::Result<()> {
        self.write(SHIFTS, bytes)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Err(io::ErrorKind::ReadOnlyFilesystem.into()) };
        let new = format!("{name}.{}.{}.new", std::process::id(), next_number());
        let _ = folder.remove(&new);
        io::Write::write_all(&mut folder.create(&new)?, bytes)?;
        folder.rename(&new, name)
    }

    /// Creates a file without a name for a single answer.
    ///
    /// # Errors
    ///
    /// If none can be created.
    pub fn scratch(&self) -> io::Result<File> {
        let in_folder = |folder: &PrivateDir| {
            folder.create_nameless().or_else(|_| {
                let name = format!("export.{}.{}", std::process::id(), next_number());
                let file = folder.create(&name)?;
                folder.remove(&name).map(|()| file)
            })
        };
        self.folder.as_ref().and_then(|folder| in_folder(folder).ok()).map_or_else(temporary, Ok)
    }

    /// Removes files of servers that were killed.
    fn remove_stale_files(&self, folder: &PrivateDir) {
        for name in folder.names().unwrap_or_default() {
            let of = name.strip_prefix("index.").and_then(|name| name.strip_suffix(".new")?.split_once('.'));
            if of.is_some_and(|(process, _)| !Path::new("/proc").join(process).exists()) {
                let _ = folder.remove(&name);
            }
        }
    }
}

/// Space that an index of some traces needs.
struct NeededSpace<'t> {
    set: &'t TraceSet,
    upper_bound: u64,
    /// Estimate from samples, made where the upper bound has no space.
    estimate: OnceCell<u64>,
}

impl<'t> NeededSpace<'t> {
    fn of(set: &'t TraceSet) -> Self {
        Self { set, upper_bound: disk_space::upper_bound(set), estimate: OnceCell::new() }
    }

    /// Checks that a file's file system has the space.
    fn check(&self, file: &File) -> io::Result<()> {
        match disk_space::check_for(file, self.upper_bound) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            result => return result,
        }
        // Without samples, nothing is known that is closer.
        let estimate = || size_estimate::estimate(self.set).unwrap_or(self.upper_bound);
        disk_space::check_for(file, *self.estimate.get_or_init(estimate))
    }
}

/// Opens a folder in the user's cache, and creates it if it is missing.
fn open_or_create(path: &Path) -> Option<PrivateDir> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path.parent()?).ok()?;
    PrivateDir::open(path).ok()
}

/// Says that an index is in a folder because of an obstacle.
fn location_notice(folder: &PrivateDir, obstacle: &str) -> String {
    format!("{obstacle}; it is in {}", display_path(folder))
}

/// Formats the path of a folder.
fn display_path(folder: &PrivateDir) -> String {
    folder.path().map_or_else(|| "the folder".into(), |path| path.display().to_string())
}

/// Returns a new number for each storage of this process: the same trace may be open twice.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Creates a temporary file without a name.
fn temporary() -> io::Result<File> {
    // All users may create files there, so the name must be unpredictable.
    let random = RandomState::new().build_hasher().finish();
    let name = format!("tompion-view.{}.{}.{random:016x}", std::process::id(), next_number());
    let path = std::env::temp_dir().join(name);
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Returns the path for some traces in the user's cache.
fn cache_path(paths: &[PathBuf], cache: Option<&Path>) -> Option<PathBuf> {
    let of_user = || tompion_os::user_folder("XDG_CACHE_HOME", ".cache");
    let cache = cache.map(Path::to_owned).or_else(of_user)?;
    let mut names = Vec::new();
    for path in paths {
        names.extend_from_slice(
            path.canonicalize().unwrap_or_else(|_| path.clone()).as_os_str().as_encoded_bytes(),
        );
        names.push(0);
    }
    Some(cache.join("tompion/view").join(format!("{:016x}{:016x}", hash(&names, 0), hash(&names, 1))))
}

/// Hashes bytes, equally in every version.
pub fn hash(bytes: &[u8], seed: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut hash: u64 = start;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }
    for byte in words.remainder() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^ (hash >> 31)
}

/// Returns names, sizes and times of the traces' files. Names are relative to the opened folder,
/// which may be moved.
pub fn fingerprint(traces: &TraceSet) -> String {
    let mut text = String::new();
    let mut add = |path: &Path| {
        let (size, time) = fs::metadata(path).map_or((0, 0), |metadata| {
            let time = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            (metadata.len(), time.map_or(0, |time| time.as_nanos()))
        });
        let below = |(number, root): (usize, &PathBuf)| Some((number, path.strip_prefix(root).ok()?));
        let (number, name) = traces.roots().iter().enumerate().find_map(below).unwrap_or((0, path));
        text.push_str(&format!("{number}\t{}\t{size}\t{time}\n", name.display()));
    };
    for trace in traces.traces() {
        let entries = fs::read_dir(&trace.path).into_iter().flatten().filter_map(Result::ok);
        let mut files: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        files.sort();
        files.iter().for_each(|file| add(file));
    }
    text
}
