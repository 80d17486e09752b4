//! Descriptor of a stream file, kept open or opened again for each read.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Stream file with its identity.
pub(super) struct Handle {
    /// Descriptor; `None` while it is closed.
    file: Option<Arc<File>>,
    /// Whether the descriptor is closed after each read.
    closes: bool,
    identity: (u64, u64),
    size: u64,
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

impl Handle {
    pub fn new(file: Arc<File>) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { file: Some(file), closes: false, identity: identity(&metadata), size: metadata.len() })
    }

    /// Returns the size in bytes when the file was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns what the file system knows of the file, if it is open.
    pub fn metadata(&self) -> Option<Metadata> {
        self.file.as_ref()?.metadata().ok()
    }

    /// Closes the descriptor now and after each read.
    pub fn close_between_reads(&mut self) {
        (self.file, self.closes) = (None, true);
    }

    /// Returns the descriptor, opened again if it was closed.
    ///
    /// # Errors
    ///
    /// Fails if the path leads to another file by now.
    pub fn open(&mut self, path: &Path) -> io::Result<Arc<File>> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = Arc::new(tompion_os::open_regular(path)?);
        if identity(&file.metadata()?) != self.identity {
            return Err(io::Error::other("expected the same file as before, found another one"));
        }
        if !self.closes {
            self.file = Some(file.clone());
        }
        Ok(file)
    }
}
