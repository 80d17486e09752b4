//! Sums of the whole content of files, which a commit compares: a segment's checksum covers that
//! segment alone.

use std::{fs::File, io, os::unix::fs::FileExt};

use sha2::{Digest, Sha256};

use crate::{Checksum, FilePath};

/// Length of a piece that is read at one time, in bytes.
const PIECE: usize = 256 << 10;

/// Sum of a file's content, up to some length.
#[derive(Clone, Debug, Default)]
pub struct ContentSum {
    sum: Sha256,
    length: u64,
}

impl ContentSum {
    /// Adds what follows.
    pub fn add(&mut self, content: &[u8]) {
        self.sum.update(content);
        self.length = self.length.saturating_add(content.len() as u64);
    }

    /// Number of bytes so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Length and checksum.
    pub fn sum(&self) -> (u64, Checksum) {
        (self.length, Checksum(self.sum.clone().finalize().into()))
    }

    /// Reads the first bytes of a file.
    ///
    /// # Errors
    /// If it can't be read, or has fewer.
    pub fn of_file(file: &File, length: u64) -> io::Result<Self> {
        let (mut sum, mut piece) = (Self::default(), vec![0; PIECE]);
        while sum.length < length {
            let count = (length - sum.length).min(PIECE as u64) as usize;
            file.read_exact_at(&mut piece[..count], sum.length)?;
            sum.add(&piece[..count]);
        }
        Ok(sum)
    }
}

/// Digest of all files of a chunk, which its commit has as content: their paths, lengths and
/// contents, in the order of the paths.
pub fn digest<'a>(files: impl Iterator<Item = (&'a FilePath, (u64, Checksum))>) -> Checksum {
    let mut sum = Sha256::new();
    for (path, (length, content)) in files {
        sum.update(path.as_str().as_bytes());
        sum.update([0]);
        sum.update(length.to_le_bytes());
        sum.update(content.0);
    }
    Checksum(sum.finalize().into())
}
