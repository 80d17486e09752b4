//! Recordings on disk as a sender sees them: their chunks and files, and what is final.
//!
//! A recording's folder has a manifest, and files or chunks. A folder of a receiver's store has
//! journals besides: what they don't name is not there yet, whatever the files have.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use sha2::{Digest, Sha256};
use tompion_manifest as manifest;
use tompion_os::DirHandle;

use crate::{ChunkState, End, FilePath, FileState, Journal, Kind, Label, MAX_DEPTH, Place, SessionPlace};

/// Name of the chunk that has all files of a recording that are in no chunk's folder.
pub const WHOLE: &str = "whole";
/// End of the folder's name of a chunk that is being written.
pub(crate) const OPEN: &str = ".open";

/// Recording that is sent.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Its place at receivers.
    pub place: SessionPlace,
    folder: DirHandle,
    is_stored: bool,
}

/// Result of a look at a recording.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Its chunks, in the order of their numbers; files in no chunk's folder come last.
    pub chunks: Vec<LocalChunk>,
    /// Whether nothing more comes.
    pub is_complete: bool,
    /// Whether it is a flight recorder, so that its packets are snapshots.
    pub is_flight_recorder: bool,
    /// Files that can't be sent, one line each.
    pub problems: Vec<String>,
}

/// Chunk of a recording.
#[derive(Clone, Debug)]
pub struct LocalChunk {
    /// Name.
    pub label: Label,
    /// End, if it changes no more.
    pub end: Option<End>,
    /// Files in the order in which they are sent: descriptions before packets, manifests last.
    pub files: Vec<LocalFile>,
}

/// File of a chunk.
#[derive(Clone, Debug)]
pub struct LocalFile {
    /// Path below the chunk.
    pub path: FilePath,
    /// Kind of its segments.
    pub kind: Kind,
    pub(crate) folder: DirHandle,
    pub(crate) name: String,
    /// Length up to which it is sent, if it may have more.
    pub(crate) limit: Option<u64>,
}

/// Keys of a manifest that tell where the recording belongs.
#[derive(Deserialize)]
struct Origin {
    #[serde(default)]
    state: String,
    #[serde(default)]
    in_chunks: bool,
    host: manifest::Host,
    clock: manifest::Clock,
    /// Older versions wrote none without `--backing`.
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    channel: ChannelMode,
}

#[derive(Default, Deserialize)]
struct ChannelMode {
    #[serde(default)]
    mode: String,
}

impl Origin {
    /// Place of the recording. Its session's name is that of the folder, with eight digits of its
    /// id: several recordings may have the same folder after each other.
    fn session_place(&self, folder: &DirHandle) -> SessionPlace {
        let begin = || format!("{} {}", self.host.boot_id, self.clock.realtime_offset_ns);
        let id = self.id.clone().unwrap_or_else(begin);
        let hash = Sha256::digest(id.as_bytes());
        let hash: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let name = folder.path().file_name().map(|name| name.to_string_lossy().into_owned());
        let mut name = name.unwrap_or_default();
        while name.len() > 100 {
            name.pop();
        }
        SessionPlace {
            host: Label::approximate(&self.host.name),
            boot: Label::approximate(&self.host.boot_id),
            session: Label::approximate(&format!("{name}-{hash}")),
        }
    }
}

fn origin(folder: &DirHandle) -> Result<Origin, String> {
    let in_words = |error: String| format!("{}: {error}", folder.path().join(manifest::FILE).display());
    let bytes = folder.read_bounded(manifest::FILE, manifest::MAX_BYTES);
    let bytes = bytes.map_err(|error| in_words(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| in_words(error.to_string()))
}

/// Finds the recordings in a folder: itself, those right below it, or those of a store.
///
/// # Errors
/// If it can't be read.
pub fn find_recordings(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let opened = DirHandle::open(folder)?;
    if is_recording(&opened) {
        return Ok(vec![folder.to_owned()]);
    }
    let mut found = Vec::new();
    find_below(&opened, folder, 0, &mut found)?;
    found.sort();
    Ok(found)
}

fn is_recording(folder: &DirHandle) -> bool {
    folder.has(manifest::FILE) || folder.has_directory(crate::JOURNAL_FOLDER)
}

fn find_below(folder: &DirHandle, path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    const PARTS: [&str; 3] = ["host=", "boot=", "session="];
    for name in folder.names()?.into_iter().filter_map(|name| name.into_string().ok()) {
        let below = folder.join(&name);
        if !folder.has_directory(&name) || name.starts_with('.') {
            continue;
        }
        let is_part = PARTS.get(depth).is_some_and(|part| name.starts_with(part));
        if is_recording(&below) && (depth == 0 || depth == 2 && is_part) {
            found.push(path.join(&name));
        } else if is_part && depth < 2 {
            find_below(&below, &path.join(&name), depth + 1, found)?;
        }
    }
    Ok(())
}

impl Recording {
    /// Opens the recording in a folder.
    ///
    /// # Errors
    /// A line for users.
    pub fn open(path: &Path) -> Result<Self, String> {
        let folder = DirHandle::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        if folder.has_directory(crate::JOURNAL_FOLDER) {
            let place = stored_place(folder.path());
            let place =
                place.ok_or_else(|| format!("{}: expected host=…/boot=…/session=…", path.display()))?;
            return Ok(Self { place, folder, is_stored: true });
        }
        let origin = origin(&folder)?;
        let place = origin.session_place(&folder);
        Ok(Self { place, folder, is_stored: false })
    }

    /// Whether a chunk still has the files that a look has found: nothing of it was removed.
    ///
    /// # Errors
    /// If its folder can't be read.
    pub fn has_files_of(&self, chunk: &LocalChunk) -> io::Result<bool> {
        if self.is_stored {
            return Ok(true);
        }
        let folder = match chunk.label.as_str() {
            WHOLE => self.folder.clone(),
            name => self.folder.join(name),
        };
        let files = match self.files(&folder, true, &mut Vec::new()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            files => files?,
        };
        Ok(files.iter().map(|file| &file.path).eq(chunk.files.iter().map(|file| &file.path)))
    }

    /// Whether its folder was removed, or another recording is at its path.
    pub fn is_gone(&self) -> bool {
        let path = self.folder.path();
        if !path.exists() {
            return true;
        }
        let identity =
            |folder: &DirHandle| folder.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()));
        // One that can't be read now may be readable soon.
        Self::open(path)
            .is_ok_and(|other| other.place != self.place || identity(&other.folder) != identity(&self.folder))
    }

    /// Place of one of its chunks.
    pub fn chunk_place(&self, chunk: &Label) -> Place {
        Place { session: self.place.clone(), chunk: chunk.clone() }
    }

    /// Path of its folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Looks at its present chunks and files. Chunks that `is_done` names are left out.
    ///
    /// # Errors
    /// A line for users: its manifest or folder can't be read.
    pub fn look(&self, is_done: &dyn Fn(&Label) -> bool) -> Result<Look, String> {
        let in_words = |error: io::Error| format!("{}: {error}", self.folder.path().display());
        if self.is_stored { self.look_at_store(is_done) } else { self.look_at_folder(is_done) }
            .map_err(in_words)
    }

    fn look_at_folder(&self, is_done: &dyn Fn(&Label) -> bool) -> io::Result<Look> {
        // First of all: what is written after a final manifest was read is in no file.
        let origin = origin(&self.folder).map_err(io::Error::other)?;
        let is_over = !origin.state.is_empty() && origin.state != manifest::RECORDING;
        let mut look =
            Look { is_flight_recorder: origin.channel.mode == manifest::OVERWRITE, ..Look::default() };
        if origin.session_place(&self.folder) != self.place {
            return Err(io::Error::other("another recording is at this place now"));
        }
        let listed = match origin.in_chunks {
            true => tompion_chunks::list_chunks(&self.folder)?,
            false => tompion_chunks::Listed::default(),
        };
        look.is_complete = is_over && listed.open.is_none();
        for label in listed.removed.iter().map(|number| chunk_label(*number)) {
            if !is_done(&label) {
                look.chunks.push(LocalChunk { label, end: Some(End::Dropped), files: Vec::new() });
            }
        }
        for (number, folder) in &listed.committed {
            let label = chunk_label(*number);
            if is_done(&label) {
                continue;
            }
            match self.files(folder, true, &mut look.problems) {
                Ok(files) => look.chunks.push(LocalChunk { label, end: Some(End::Committed), files }),
                // It was removed meanwhile: the next look says so.
                Err(error) if error.kind() == io::ErrorKind::NotFound => look.is_complete = false,
                Err(error) => return Err(error),
            }
        }
        if let Some((number, folder)) = &listed.open {
            match self.files(folder, false, &mut look.problems) {
                Ok(files) => look.chunks.push(LocalChunk { label: chunk_label(*number), end: None, files }),
                // It was committed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => look.is_complete = false,
                Err(error) => return Err(error),
            }
        }
        look.chunks.sort_by(|a, b| a.label.cmp(&b.label));
        let label = Label::approximate(WHOLE);
        if !is_done(&label) {
            let files = self.files(&self.folder, look.is_complete, &mut look.problems)?;
            let end = look.is_complete.then_some(End::Committed);
            look.chunks.push(LocalChunk { label, end, files });
        }
        Ok(look)
    }

    fn look_at_store(&self, is_done: &dyn Fn(&Label) -> bool) -> io::Result<Look> {
        let mut look = Look { is_complete: true, ..Look::default() };
        for label in Journal::chunks(&self.folder)? {
            let (state, _) = Journal::new(&self.folder, &label).read().map_err(io::Error::other)?;
            // The recording goes on until its own files are committed.
            look.is_complete &= state.end.is_some();
            if !is_done(&label) {
                let files = self.stored_files(&label, &state);
                look.chunks.push(LocalChunk { label, end: state.end, files });
            }
        }
        look.is_complete &= Journal::chunks(&self.folder)?.iter().any(|label| label.as_str() == WHOLE);
        Ok(look)
    }

    fn stored_files(&self, label: &Label, state: &ChunkState) -> Vec<LocalFile> {
        let name = label.as_str();
        let folder = match name {
            WHOLE => self.folder.clone(),
            _ if self.folder.has_directory(name) => self.folder.join(name),
            _ => self.folder.join(format!("{name}{OPEN}")),
        };
        // A file that is not whole yet stands beside the old one; it is sent when it is.
        let is_present = |state: &FileState| !state.header.is_removed && state.header.is_whole;
        let present = state.files.iter().filter(|(_, state)| is_present(state));
        let mut files: Vec<LocalFile> = present
            .map(|(path, state)| {
                let (below, name) = path.split();
                let folder = below.map_or(folder.clone(), |below| folder.join(below));
                let limit = Some(state.total());
                LocalFile { path: path.clone(), kind: state.header.kind, folder, name: name.into(), limit }
            })
            .collect();
        files.sort_by_key(|file| rank(&file.path));
        files
    }

    /// Files below a chunk's folder.
    fn files(
        &self,
        chunk: &DirHandle,
        is_final: bool,
        problems: &mut Vec<String>,
    ) -> io::Result<Vec<LocalFile>> {
        let mut files = Vec::new();
        let is_whole = chunk.path() == self.folder.path();
        collect(chunk, "", (is_final, is_whole), &mut |found| match found {
            Ok(file) => files.push(file),
            Err(problem) => problems.push(problem),
        })?;
        files.sort_by(|a, b| (rank(&a.path), &a.path).cmp(&(rank(&b.path), &b.path)));
        Ok(files)
    }
}

/// Order in which files of a chunk are sent: what describes packets comes before them.
fn rank(path: &FilePath) -> u8 {
    match path.split() {
        (None, manifest::FILE) => 2,
        (_, "metadata") => 0,
        _ => 1,
    }
}

fn chunk_label(number: u64) -> Label {
    Label::approximate(&format!("chunk-{number:06}"))
}

/// Place of a folder in a store, by its last three names.
fn stored_place(path: &Path) -> Option<SessionPlace> {
    let mut names = path.components().rev().map(|name| name.as_os_str().to_str());
    let mut part = |prefix: &str| Label::new(names.next()??.strip_prefix(prefix)?).ok();
    let (session, boot, host) = (part("session=")?, part("boot=")?, part("host=")?);
    Some(SessionPlace { host, boot, session })
}

/// Collects the files below a folder. Of one that is not final, indexes and files that are about to
/// be renamed are left out, and folders that vanish meanwhile.
fn collect(
    folder: &DirHandle,
    below: &str,
    (is_final, is_root): (bool, bool),
    each: &mut dyn FnMut(Result<LocalFile, String>),
) -> io::Result<()> {
    if below.split('/').count() >= MAX_DEPTH {
        return Ok(());
    }
    for name in folder.names()? {
        let shown = folder.path().join(&name);
        let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
        if !is_final && (name.ends_with(".new") || name == "index") || is_root && is_chunk(name) {
            continue;
        }
        let path = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
        if folder.has_directory(name) {
            match collect(&folder.join(name), &path, (is_final, false), each) {
                Err(error) if is_final || error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => continue,
            }
        }
        let kind =
            if name.starts_with("stream_") && !path.contains("index/") { Kind::Packets } else { Kind::File };
        each(match path.parse() {
            Ok(path) => Ok(LocalFile { path, kind, folder: folder.clone(), name: name.into(), limit: None }),
            Err(error) => Err(format!("{}: left out: {error}", shown.display())),
        });
    }
    Ok(())
}

/// Whether a name is that of a chunk's folder.
pub(crate) fn is_chunk(name: &str) -> bool {
    let digits = name.strip_prefix("chunk-").map(|name| name.strip_suffix(OPEN).unwrap_or(name));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}
