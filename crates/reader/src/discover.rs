//! Traces in folders: a folder with a file `metadata` is a trace, the other files in it are its
//! streams.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tompion_ctf::decode::Decoder;
use tompion_ctf::metadata;

use crate::{Damage, Error};

/// Largest description in bytes.
const MAX_METADATA: u64 = 256 << 20;
/// How deep folders are searched.
const MAX_DEPTH: usize = 32;

/// A trace: its folder and what it says about itself.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The folder.
    pub path: PathBuf,
    pub(crate) decoder: Arc<Decoder>,
    /// What is odd about its description.
    doubts: Arc<[String]>,
}

impl Trace {
    /// What the trace says about itself.
    pub fn metadata(&self) -> &metadata::Trace {
        self.decoder.trace()
    }

    /// What is odd about its description.
    fn doubts(&self) -> impl Iterator<Item = Damage> {
        let path = self.path.join("metadata");
        let damage =
            move |doubt: &String| Damage { path: path.clone(), offset: None, message: doubt.clone() };
        self.doubts.iter().map(damage)
    }

    /// The same trace with all its times so many nanoseconds later.
    pub(crate) fn shifted(&self, nanoseconds: i64) -> Result<Self, Error> {
        if nanoseconds == 0 {
            return Ok(self.clone());
        }
        let mut trace = self.metadata().clone();
        trace.clocks.iter_mut().for_each(|clock| clock.shift(nanoseconds));
        let wrong = |reason| Error::Description { path: self.path.join("metadata"), reason };
        let decoder = Arc::new(Decoder::new(trace).map_err(wrong)?);
        Ok(Self { path: self.path.clone(), decoder, doubts: self.doubts.clone() })
    }
}

/// A trace's folder and its stream files, not yet opened.
pub(crate) struct Found {
    pub path: PathBuf,
    pub streams: Vec<PathBuf>,
}

/// What is at or below a path.
#[derive(Default)]
pub(crate) struct Folders {
    /// Traces, in the order of their paths.
    pub traces: Vec<Found>,
    /// Folders that cannot be read.
    pub unreadable: Vec<Error>,
}

/// All traces at or below a path.
///
/// # Errors
///
/// If there is none.
pub(crate) fn find(path: &Path) -> Result<Folders, Error> {
    let mut folders = Folders::default();
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
    /// Stream files, each with its trace's index.
    pub files: Vec<(PathBuf, usize)>,
    /// Why others were not.
    pub problems: Vec<Error>,
}

impl Opened {
    /// Adds a trace that was found, unless it cannot be opened.
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

    /// What cannot be read, or not in all its sense, if anything can.
    ///
    /// # Errors
    ///
    /// The first problem, if there is no trace without one.
    pub fn damages(&mut self) -> Result<Vec<Damage>, Error> {
        let mut problems = std::mem::take(&mut self.problems).into_iter();
        match (self.traces.is_empty(), problems.next()) {
            (true, Some(problem)) => Err(problem),
            (_, first) => {
                let doubts = self.traces.iter().flat_map(Trace::doubts);
                Ok(first.into_iter().chain(problems).map(Damage::from).chain(doubts).collect())
            }
        }
    }
}

impl From<Error> for Damage {
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
        let hidden = name.as_encoded_bytes().starts_with(b".");
        let kind = entry.file_type().map_err(io)?;
        if name == "metadata" && !kind.is_dir() {
            is_trace = true;
        } else if kind.is_dir() && !hidden {
            folders.push(entry.path());
        } else if (kind.is_file() || kind.is_symlink() && leads_to_file(&entry.path()))
            && !hidden
            && name != "tompion.json"
        {
            files.push(entry.path());
        }
    }
    files.sort();
    folders.sort();
    if is_trace {
        found.traces.push(Found { path: folder.into(), streams: files });
    }
    for folder in folders.iter().filter(|_| depth < MAX_DEPTH) {
        // Indexes of stream files are no traces and have nothing below them.
        if !folder.ends_with("index") {
            let below = search(folder, depth + 1, found);
            found.unreadable.extend(below.err());
        }
    }
    Ok(())
}

/// Whether a link is a stream's: those to folders may lead in circles, and those to nothing have nothing.
fn leads_to_file(link: &Path) -> bool {
    fs::metadata(link).is_ok_and(|there| !there.is_dir())
}

/// Reads and compiles the description of a trace.
pub(crate) fn load(folder: &Path) -> Result<Trace, Error> {
    let path = folder.join("metadata");
    let io = |source| Error::Io { path: path.clone(), source };
    let other = |text: String| io(std::io::Error::other(text));
    // A pipe or a device may have no end, or never begin.
    if !fs::metadata(&path).map_err(io)?.is_file() {
        return Err(other("expected a regular file, found something else".into()));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(&path).map_err(io)?;
    file.take(MAX_METADATA + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_METADATA {
        return Err(other(format!("expected at most {MAX_METADATA} bytes, found more")));
    }
    let trace =
        tompion_ctf::parse(&bytes).map_err(|reason| Error::Metadata { path: path.clone(), reason })?;
    let doubts = tompion_ctf::doubts(&bytes, &trace).into();
    let decoder = Decoder::new(trace).map_err(|reason| Error::Description { path, reason })?;
    Ok(Trace { path: folder.into(), decoder: Arc::new(decoder), doubts })
}
