//! The file in which blocks of entries stand, one after the other in the order in which they were filled.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest block in bytes: what a file says is read only up to it.
pub const MAX_BLOCK: u32 = 1 << 20;

/// A file of blocks. Copies of it share the file, and where the next block will stand.
#[derive(Clone, Debug)]
pub struct Store {
    file: Arc<File>,
    end: Arc<AtomicU64>,
}

impl Store {
    /// Blocks are appended behind the first `end` bytes of a file.
    pub fn new(file: File, end: u64) -> Self {
        Self { file: Arc::new(file), end: Arc::new(AtomicU64::new(end)) }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether the file has no name yet.
    ///
    /// # Errors
    ///
    /// If it can't be asked.
    pub fn is_nameless(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() == 0)
    }

    /// Appends a block; returns its place.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        // Each place is given once; who reads a block is told of it by who wrote it.
        let place = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(bytes, place)?;
        Ok(place)
    }

    /// Where the next block will stand.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Writes at a place.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write_at(&self, bytes: &[u8], place: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, place)
    }

    /// The bytes of a block.
    ///
    /// # Errors
    ///
    /// If the file doesn't have them.
    pub fn read(&self, place: u64, bytes: u32) -> io::Result<Vec<u8>> {
        if bytes > MAX_BLOCK {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let mut block = vec![0; bytes as usize];
        self.file.read_exact_at(&mut block, place)?;
        Ok(block)
    }
}
