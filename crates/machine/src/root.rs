//! The folder below which `proc`, `sys` and `run` are.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The folder below which `proc`, `sys` and `run` are: `/`, or a made-up tree.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

/// A file that could not be read.
#[derive(Debug)]
pub struct Unread {
    /// Its path below the root, with a slash before it.
    pub path: String,
    /// The reason.
    pub error: io::Error,
}

impl Unread {
    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        matches!(self.error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    }

    /// The reason in a few words, without the number of the error.
    pub fn reason(&self) -> String {
        words_of(&self.error)
    }
}

/// An error's words, without its number.
pub(crate) fn words_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it is not there".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or_default().to_owned()
        }
    }
}

impl Default for Root {
    fn default() -> Self {
        Self::new(Path::new("/"))
    }
}

impl Root {
    /// A tree below this folder.
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Whether it is the machine's own.
    pub fn is_real(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Path below the root of an absolute path (`/proc/…`).
    pub fn place(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// A file's text without the white space around it.
    ///
    /// # Errors
    /// It is not there, or can't be read.
    pub fn read(&self, path: &str) -> Result<String, Unread> {
        match fs::read(self.place(path)) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).trim().to_owned()),
            Err(error) => Err(Unread { path: path.to_owned(), error }),
        }
    }

    /// A file's text, if there is a file and it can be read.
    pub fn read_if_any(&self, path: &str) -> Option<String> {
        self.read(path).ok()
    }

    /// Opens a file of the kernel's that is there, to be written; in a made-up tree it comes to be.
    ///
    /// # Errors
    /// It is not there, or may not be written.
    pub fn open_to_write(&self, path: &str) -> io::Result<fs::File> {
        let made_up = !self.is_real();
        fs::OpenOptions::new().write(true).truncate(true).create(made_up).open(self.place(path))
    }

    /// Writes such a file, in one piece: the kernel takes each call for a value of its own.
    ///
    /// # Errors
    /// As above, or the kernel refuses what is written.
    pub fn write(&self, path: &str, text: &str) -> io::Result<()> {
        self.open_to_write(path)?.write_all(text.as_bytes())
    }

    /// Names in a folder, in order; none if it can't be read.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.place(path)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }

    /// The names that are this word and a number, `cpu0` for example, in the order of the numbers.
    pub fn numbered(&self, path: &str, word: &str) -> Vec<(u32, String)> {
        let names = self.names(path).into_iter();
        let mut numbered: Vec<(u32, String)> =
            names.filter_map(|name| Some((name.strip_prefix(word)?.parse().ok()?, name))).collect();
        numbered.sort_unstable();
        numbered
    }
}
