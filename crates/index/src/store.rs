//! File of blocks in the order in which they were filled.
//!
//! ```text
//! block   0, bytes            as they are, where deflate does not shorten them
//!         1, deflate stream   else: less than half, for the busy lanes of a kernel's trace
//! ```

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use miniz_oxide::deflate::core::{
    CompressorOxide, TDEFLFlush, TDEFLStatus, compress, create_comp_flags_from_zip_params,
};
use miniz_oxide::inflate;

use super::disk_space;

/// Maximum size of a block in bytes: limits what a file can request.
pub const MAX_BLOCK: u32 = 1 << 20;
/// Bytes between two checks of the free disk space: less than the reserve of a disk of 3 MiB.
const SPACE_CHECK_INTERVAL: u64 = 256 << 10;
/// Effort of deflate, from 1 to 10.
const EFFORT: i32 = 1;
/// First byte of a plain block, and of a deflated one.
const PLAIN: u8 = 0;
const DEFLATED: u8 = 1;

/// File of blocks. Clones share the file and the position of the next block.
#[derive(Clone, Debug)]
pub struct Store {
    file: Arc<File>,
    end: Arc<AtomicU64>,
}

impl Store {
    /// Appends blocks behind the first `end` bytes of a file.
    pub fn new(file: File, end: u64) -> Self {
        Self { file: Arc::new(file), end: Arc::new(AtomicU64::new(end)) }
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether the file has no name yet.
    ///
    /// # Errors
    ///
    /// If its metadata can't be read.
    pub fn is_nameless(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() == 0)
    }

    /// Appends a block; returns its position and its size in the file.
    ///
    /// # Errors
    ///
    /// If it can't be written, or the file system is nearly full.
    pub fn append(&self, bytes: &[u8]) -> io::Result<(u64, u32)> {
        let block = pack(bytes);
        let size = block.len() as u64;
        // Each position is assigned once. Readers get it from the writer, through the index's lock.
        let place = self.end.fetch_add(size, Ordering::Relaxed);
        if place / SPACE_CHECK_INTERVAL != (place + size) / SPACE_CHECK_INTERVAL {
            disk_space::check(&self.file, 0)?;
        }
        self.file.write_all_at(&block, place)?;
        Ok((place, size as u32))
    }

    /// Returns the position of the next block.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Writes what follows the blocks; returns its position.
    ///
    /// # Errors
    ///
    /// If it can't be written, or the file system is nearly full.
    pub fn write_end(&self, bytes: &[u8]) -> io::Result<u64> {
        let place = self.end();
        disk_space::check(&self.file, bytes.len() as u64)?;
        self.file.write_all_at(bytes, place).map(|()| place)
    }

    /// Writes at a position.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn write_at(&self, bytes: &[u8], place: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, place)
    }

    /// Returns the contents of a block with a size in the file.
    ///
    /// # Errors
    ///
    /// If the file is too short, or the block is invalid.
    pub fn read(&self, place: u64, size: u32) -> io::Result<Vec<u8>> {
        if size > MAX_BLOCK {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let mut block = vec![0; size as usize];
        self.file.read_exact_at(&mut block, place)?;
        unpack(block)
    }
}

/// Compresses a block.
fn pack(bytes: &[u8]) -> Vec<u8> {
    thread_local! {
        static COMPRESSOR: RefCell<Box<CompressorOxide>> = {
            let flags = create_comp_flags_from_zip_params(EFFORT, 0, 0);
            RefCell::new(Box::new(CompressorOxide::new(flags)))
        };
    }
    let mut block = vec![DEFLATED; bytes.len() + 1];
    let packed = COMPRESSOR.with_borrow_mut(|compressor| {
        compressor.reset();
        compress(compressor, bytes, &mut block[1..], TDEFLFlush::Finish)
    });
    match packed {
        (TDEFLStatus::Done, _, size) if size < bytes.len() => block.truncate(size + 1),
        _ => {
            block[0] = PLAIN;
            block[1..].copy_from_slice(bytes);
        }
    }
    block
}

fn unpack(mut block: Vec<u8>) -> io::Result<Vec<u8>> {
    match block.first() {
        Some(&PLAIN) => {
            block.remove(0);
            Ok(block)
        }
        Some(&DEFLATED) => inflate::decompress_to_vec_with_limit(&block[1..], MAX_BLOCK as usize)
            .map_err(|_| io::ErrorKind::InvalidData.into()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_as_they_were() {
        let mut state = 1u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let random: Vec<u8> = (0..5000).map(|_| noise()).collect();
        let busy: Vec<u8> = (0..4096).map(|place| if place % 7 == 0 { noise() } else { 3 }).collect();
        for (bytes, most) in [(&random[..], 5001), (&busy[..], 1600), (&[][..], 1), (&[7][..], 2)] {
            let block = pack(bytes);
            assert!(block.len() <= most, "{} bytes of {}", block.len(), bytes.len());
            assert_eq!(unpack(block).unwrap(), bytes);
        }
    }

    #[test]
    fn a_nearly_full_disk_keeps_its_reserve() {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", "size=8M", "tompion-test"]).arg(dir.path()).output();
        if !mount.is_ok_and(|mount| mount.status.success()) {
            return eprintln!("SKIPPED, no disk can be mounted here");
        }
        let file = File::create(dir.path().join("index")).unwrap();
        let store = Store::new(file, 0);
        let mut random = tompion_testing::Random(1);
        let mut block = || (0..8000).map(|_| random.number() as u8).collect::<Vec<_>>();
        let error = loop {
            if let Err(error) = store.append(&block()) {
                break error;
            }
        };
        let end = store.write_end(&block());
        let left = rustix::fs::fstatvfs(store.file()).map(|system| system.f_bavail * system.f_frsize);
        std::process::Command::new("umount").arg("--lazy").arg(dir.path()).output().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::StorageFull);
        // A tenth is the reserve.
        let left = left.unwrap();
        assert!((512 << 10..820 << 10).contains(&left), "{left} bytes are left");
    }

    #[test]
    fn blocks_that_are_none_of_ours_are_errors_and_take_no_memory() {
        let bomb = miniz_oxide::deflate::compress_to_vec(&vec![0; 4 << 20], 6);
        let damaged = [&[DEFLATED][..], &bomb].concat();
        for block in [vec![], vec![2, 3], vec![DEFLATED, 0xff, 0xff], damaged] {
            assert_eq!(unpack(block).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
