//! Finds and loads traces: a folder with a file `metadata` is a trace, and the other files in it
//! are its streams.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tompion_ctf::decode::Decoder;
use tompion_ctf::metadata::{self, Uuid};

use crate::{Corruption, Error};

/// Maximum size of a description, in bytes.
const MAX_METADATA: u64 = 256 << 20;
/// Hidden folders in which LTTng keeps chunks while it rotates.
const CHUNKS_IN_ROTATION: [&str; 2] = [".tmp_old_chunk", ".tmp_new_chunk"];
/// Maximum depth of folders that are searched.
const MAX_DEPTH: usize = 32;

/// Trace: its folder and its description.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Path of the trace's folder.
    pub path: PathBuf,
    pub(crate) decoder: Arc<Decoder>,
    /// Host and folder; see [`Trace::name`].
    pub(crate) name: Arc<str>,
    /// Warnings about the description.
    warnings: Arc<[String]>,
}

impl Trace {
    /// Returns the parsed description.
    pub fn metadata(&self) -> &metadata::Trace {
        self.decoder.trace()
    }

    /// Returns the host and the trace's folder below the opened path, unless the trace has several
    /// folders.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the warnings about the description.
    fn warnings(&self) -> impl Iterator<Item = Corruption> {
        let path = self.path.join("metadata");
        let corruption =
            move |warning: &String| Corruption { path: path.clone(), offset: None, message: warning.clone() };
        self.warnings.iter().map(corruption)
    }

    /// Returns the same trace with all times shifted by this many nanoseconds.
    pub(crate) fn shifted(&self, nanoseconds: i64) -> Result<Self, Error> {
        if nanoseconds == 0 {
            return Ok(self.clone());
        }
        let mut trace = self.metadata().clone();
        trace.clocks.iter_mut().for_each(|clock| clock.shift(nanoseconds));
        let wrong = |reason| Error::Description { path: self.path.join("metadata"), reason };
        let decoder = Arc::new(Decoder::new(trace).map_err(wrong)?);
        Ok(Self { decoder, ..self.clone() })
    }
}

/// Sets the names of traces that were opened below some paths.
pub(crate) fn set_names(traces: &mut [Trace], roots: &[PathBuf]) {
    let mut folders: BTreeMap<Uuid, usize> = BTreeMap::new();
    for uuid in traces.iter().filter_map(|trace| trace.metadata().uuid) {
        *folders.entry(uuid).or_default() += 1;
    }
    for trace in traces {
        let has_one = trace.metadata().uuid.is_none_or(|uuid| folders.get(&uuid) == Some(&1));
        let below = roots.iter().filter(|_| has_one).find_map(|root| trace.path.strip_prefix(root).ok());
        let below = below.map(|path| path.to_string_lossy().into_owned()).filter(|path| !path.is_empty());
        let host = trace.metadata().environment_value("hostname").map(ToString::to_string);
        trace.name = host.into_iter().chain(below).collect::<Vec<_>>().join("/").into();
    }
}

/// Folder and stream files of a trace that is not opened yet.
pub(crate) struct Found {
    pub path: PathBuf,
    pub streams: Vec<PathBuf>,
}

/// Traces and unreadable folders below a path.
#[derive(Default)]
pub(crate) struct Folders {
    /// Traces, ordered by path.
    pub traces: Vec<Found>,
    /// Folders that cannot be read.
    pub unreadable: Vec<Error>,
    /// Whether chunks that a rotation is moving are traces, too.
    takes_chunks_in_rotation: bool,
}

/// Finds all traces at or below a path.
///
/// # Errors
///
/// Fails if there is none.
pub(crate) fn find(path: &Path) -> Result<Folders, Error> {
    find_in(path, Folders::default())
}

/// Finds all traces at or below a path, among them those that a rotation is moving.
///
/// # Errors
///
/// Fails if there is none.
pub(crate) fn find_growing(path: &Path) -> Result<Folders, Error> {
    find_in(path, Folders { takes_chunks_in_rotation: true, ..Folders::default() })
}

fn find_in(path: &Path, mut folders: Folders) -> Result<Folders, Error> {
    if path.is_file() {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).display();
        let message = format!("expected the folder of a trace, found a file; try its folder, {folder}");
        return Err(Error::Io { path: path.into(), source: std::io::Error::other(message) });
    }
    search(path, 0, &mut folders)?;
    if !folders.traces.is_empty() {
        return Ok(folders);
    }
    Err(folders.unreadable.into_iter().next().unwrap_or(Error::NoTrace(path.into())))
}

/// Traces that were opened.
#[derive(Default)]
pub(crate) struct Opened {
    pub traces: Vec<Trace>,
    /// Stream files, each with the index of its trace.
    pub files: Vec<(PathBuf, usize)>,
    /// Reasons why other traces were not opened.
    pub problems: Vec<Error>,
}

impl Opened {
    /// Adds a trace that was found, or the reason why it cannot be opened.
    pub fn add(&mut self, streams: Vec<PathBuf>, trace: Result<Trace, Error>) {
        match trace {
            Ok(trace) => {
                let index = self.traces.len();
                self.files.extend(streams.into_iter().map(|path| (path, index)));
                self.traces.push(trace);
            }
            Err(problem) => self.problems.push(problem),
        }
    }

    /// Returns the collected problems and warnings, if at least one trace can be read.
    ///
    /// # Errors
    ///
    /// Fails with the first problem if no trace could be opened.
    pub fn corruptions(&mut self) -> Result<Vec<Corruption>, Error> {
        let mut problems = std::mem::take(&mut self.problems).into_iter();
        match (self.traces.is_empty(), problems.next()) {
            (true, Some(problem)) => Err(problem),
            (_, first) => {
                let warnings = self.traces.iter().flat_map(Trace::warnings);
                Ok(first.into_iter().chain(problems).map(Corruption::from).chain(warnings).collect())
            }
        }
    }
}

impl From<Error> for Corruption {
    fn from(error: Error) -> Self {
        let (path, message) = match error {
            Error::NoTrace(path) => (path, "expected a trace, found no file named `metadata`".into()),
            Error::Io { path, source } => (path, source.to_string()),
            Error::Metadata { path, reason } => (path, reason.to_string()),
            Error::Description { path, reason } => (path, reason.to_string()),
            Error::Output(source) => (PathBuf::new(), source.to_string()),
        };
        Self { path, offset: None, message }
    }
}

fn search(folder: &Path, depth: usize, found: &mut Folders) -> Result<(), Error> {
    let io = |source| Error::Io { path: folder.into(), source };
    let (mut files, mut folders, mut is_trace) = (Vec::new(), Vec::new(), false);
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name();
        let in_rotation = CHUNKS_IN_ROTATION.iter().any(|chunk| name == *chunk);
        let hidden =
            name.as_encoded_bytes().starts_with(b".") && !(in_rotation && found.takes_chunks_in_rotation);
        let kind = entry.file_type().map_err(io)?;
        if name == "metadata" && !kind.is_dir() {
            is_trace = true;
        } else if kind.is_dir() && !hidden {
            folders.push(entry.path());
        } else if !hidden && name != "tompion.json" && !(kind.is_symlink() && entry.path().is_dir()) {
            // What is no regular file is reported when it is opened as a stream. Links to folders
            // may form cycles.
            files.push(entry.path());
        }
    }
    files.sort();
    folders.sort();
    if is_trace {
        found.traces.push(Found { path: folder.into(), streams: files });
    }
    for folder in folders.iter().filter(|_| depth < MAX_DEPTH) {
        // Indexes of stream files are not traces, and there are none below them.
        if !folder.ends_with("index") {
            let below = search(folder, depth + 1, found);
            found.unreadable.extend(below.err());
        }
    }
    Ok(())
}

/// Reads and compiles the description of a trace.
pub(crate) fn load(folder: &Path) -> Result<Trace, Error> {
    let path = folder.join("metadata");
    let io = |source| Error::Io { path: path.clone(), source };
    let other = |text: String| io(std::io::Error::other(text));
    let mut bytes = Vec::new();
    let file = tompion_os::open_regular(&path).map_err(io)?;
    file.take(MAX_METADATA + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_METADATA {
        return Err(other(format!("expected at most {MAX_METADATA} bytes, found more")));
    }
    let description =
        tompion_ctf::describe(&bytes).map_err(|reason| Error::Metadata { path: path.clone(), reason })?;
    let tompion_ctf::Description { trace, warnings } = description;
    let decoder = Decoder::new(trace).map_err(|reason| Error::Description { path, reason })?;
    Ok(Trace {
        path: folder.into(),
        decoder: Arc::new(decoder),
        name: Arc::default(),
        warnings: warnings.into(),
    })
}
