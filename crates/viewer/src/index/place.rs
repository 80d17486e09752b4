//! Where indexes and notes are kept: beside the trace in `.tompion-view`, or in the user's cache where nobody may write
//! there, or else among temporary files for as long as they are used.
//!
//! A folder that came with a trace may hold anything. It is used if it belongs to this user and nobody else may write
//! there; a link is none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use tompion_reader::TraceSet;

use super::store::Store;
use super::{Index, directory};

/// The folder beside a trace.
const BESIDE: &str = ".tompion-view";
/// The index's file.
const INDEX: &str = "index";
/// The notes' file.
const NOTES: &str = "notes.json";
/// Largest file of notes in bytes.
const MAX_NOTES: u64 = 16 << 20;
/// Bytes before the first block, for what says where the directory is.
pub const HEAD: u64 = 4096;

/// A folder for indexes and notes.
#[derive(Clone, Debug)]
pub struct Place {
    /// Nothing if there is none that can be written.
    folder: Option<PathBuf>,
    /// What the file is called while it is written.
    new: String,
}

impl Place {
    /// For traces at these paths, with the user's cache unless that is to be found by the environment.
    pub fn new(paths: &[PathBuf], cache: Option<&Path>) -> Self {
        let beside = match paths {
            [path] => prepare(&path.join(BESIDE)).ok(),
            _ => None,
        };
        let folder = beside.or_else(|| prepare(&in_cache(paths, cache)?).ok());
        Self { folder, new: format!("index.{}.{}.new", std::process::id(), next()) }
    }

    /// An empty file for an index.
    ///
    /// # Errors
    ///
    /// If none can be made.
    pub fn begin(&self) -> io::Result<Store> {
        let options = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600);
            options
        };
        if let Some(folder) = &self.folder {
            let path = folder.join(&self.new);
            let _ = fs::remove_file(&path);
            remove_left(folder);
            if let Ok(file) = options().open(&path) {
                return Ok(Store::new(file, HEAD));
            }
        }
        let path = std::env::temp_dir().join(format!("tompion-view.{}.{}", std::process::id(), next()));
        let file = options().open(&path)?;
        fs::remove_file(&path)?;
        Ok(Store::new(file, HEAD))
    }

    /// Keeps the index that was begun last.
    ///
    /// # Errors
    ///
    /// If it cannot be renamed.
    pub fn keep(&self, _store: &Store) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        fs::rename(folder.join(&self.new), folder.join(INDEX))
    }

    /// The index that was kept, if it is of these very files and sound.
    pub fn load(&self, fingerprint: &str) -> Option<Index> {
        let path = self.folder.as_ref()?.join(INDEX);
        let metadata = fs::symlink_metadata(&path).ok()?;
        if !metadata.is_file() || !is_ours(&metadata) {
            return None;
        }
        directory::read(File::open(path).ok()?, fingerprint)
    }

    /// The notes as they were written last; nothing if there are none.
    pub fn notes(&self) -> Option<Vec<u8>> {
        let path = self.folder.as_ref()?.join(NOTES);
        if !fs::symlink_metadata(&path).ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(MAX_NOTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Writes notes anew; readers see the old ones or the new ones, whole.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn write_notes(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Err(io::ErrorKind::ReadOnlyFilesystem.into()) };
        let new = folder.join(format!("{NOTES}.{}.{}.new", std::process::id(), next()));
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        io::Write::write_all(&mut file, bytes)?;
        fs::rename(new, folder.join(NOTES))
    }

    /// A folder for files that are asked for once.
    pub fn scratch(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(std::env::temp_dir)
    }
}

/// Another number for each place of this program: the same trace may be opened twice.
fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Removes what was left by those who were killed.
fn remove_left(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let of = name.strip_prefix("index.").and_then(|name| name.strip_suffix(".new")?.split_once('.'));
        if of.is_some_and(|(process, _)| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Makes a folder if it isn't there; an error if it is none that can be trusted and written.
fn prepare(folder: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(folder) {
        Ok(_) => {}
        Err(_) => fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?,
    }
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || !is_ours(&metadata) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // Also a folder of our own may be on a medium that is read-only.
    let probe = folder.join(format!("probe.{}.{}", std::process::id(), next()));
    let _ = fs::remove_file(&probe);
    OpenOptions::new().write(true).create_new(true).open(&probe)?;
    fs::remove_file(probe)?;
    Ok(folder.to_owned())
}

/// Whether something belongs to this user, and nobody else may write to it.
fn is_ours(metadata: &fs::Metadata) -> bool {
    let own = fs::metadata("/proc/self").map(|own| own.uid());
    own.is_ok_and(|own| own == metadata.uid()) && metadata.mode() & 0o022 == 0
}

/// Where in the user's cache.
fn in_cache(paths: &[PathBuf], cache: Option<&Path>) -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_environment = || absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let cache = cache.map(Path::to_owned).or_else(of_environment)?;
    let mut names = Vec::new();
    for path in paths {
        names.extend_from_slice(
            path.canonicalize().unwrap_or_else(|_| path.clone()).as_os_str().as_encoded_bytes(),
        );
        names.push(0);
    }
    Some(cache.join("tompion/view").join(format!("{:016x}{:016x}", hash(&names, 0), hash(&names, 1))))
}

/// A hash of bytes, which is the same in every version.
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

/// Names, sizes and times of a trace's files; names from the folder on that was opened, which may be moved.
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
