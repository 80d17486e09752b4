//! Samples of the clocks in a backing folder.

use std::{
    fs::File,
    io::{self, Write as _},
};

use tompion_clock::ClockMap;
use tompion_os::{ClockPair, DirHandle};

const CLOCK_FILE: &str = "clock";
/// Largest file of clock samples: those of some centuries.
const MAX_CLOCK: u64 = 1 << 30;
/// First word of a file of clock samples.
const CLOCK_MAGIC: [u8; 8] = *b"TOMPCLK1";
const SAMPLE_SIZE: usize = 24;

/// The clock samples of a session, in a file that only grows, until it is replaced by a shorter
/// one.
#[derive(Debug)]
pub struct ClockFile {
    backing: DirHandle,
    file: File,
    /// Whether the samples outlast the machine.
    is_durable: bool,
}

fn sample_bytes(sample: ClockPair) -> [u8; SAMPLE_SIZE] {
    let check = (sample.tsc.rotate_left(32) ^ sample.ns).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = [0; SAMPLE_SIZE];
    for (place, word) in bytes.chunks_exact_mut(8).zip([sample.tsc, sample.ns, check]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

impl ClockFile {
    /// A file with these samples in a backing folder, in the place of an older one.
    pub fn create(backing: &DirHandle, samples: &[ClockPair], is_durable: bool) -> io::Result<Self> {
        let bytes: Vec<u8> =
            CLOCK_MAGIC.into_iter().chain(samples.iter().copied().flat_map(sample_bytes)).collect();
        backing.replace(CLOCK_FILE, &bytes, is_durable)?;
        Ok(Self { file: backing.append(CLOCK_FILE)?, backing: backing.clone(), is_durable })
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: ClockPair) -> io::Result<()> {
        self.file.write_all(&sample_bytes(sample))
    }

    /// Replaces all samples by fewer.
    pub fn replace(&mut self, samples: &[ClockPair]) -> io::Result<()> {
        *self = Self::create(&self.backing, samples, self.is_durable)?;
        Ok(())
    }

    /// Sees to it that the medium has the samples.
    pub fn sync(&self) -> io::Result<()> {
        if self.is_durable { self.file.sync_data() } else { Ok(()) }
    }
}

/// Whether a backing folder has clock samples, sound or not.
pub fn has_clock(backing: &DirHandle) -> bool {
    backing.has(CLOCK_FILE)
}

/// Reads the samples of a backing folder up to the first that is not whole.
pub fn read_clock(backing: &DirHandle) -> Result<ClockMap, String> {
    let path = backing.path().join(CLOCK_FILE);
    let bytes = backing
        .read_bounded(CLOCK_FILE, MAX_CLOCK)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let Some(bytes) = bytes.strip_prefix(&CLOCK_MAGIC) else {
        return Err(format!("{}: byte 0: expected TOMPCLK1, found something else", path.display()));
    };
    let mut samples = bytes.chunks_exact(SAMPLE_SIZE).map_while(|bytes| {
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let sample = ClockPair { tsc: word(0)?, ns: word(8)? };
        (sample_bytes(sample) == bytes).then_some(sample)
    });
    let (Some(first), Some(second)) = (samples.next(), samples.next()) else {
        let path = path.display();
        return Err(format!("{path}: expected two clock samples at least: timestamps can't be converted"));
    };
    let mut clock = ClockMap::new(first, second);
    samples.for_each(|sample| clock.add(sample));
    Ok(clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_samples_are_read_up_to_the_first_that_is_torn() {
        let desk = tempfile::tempdir().unwrap();
        let folder = DirHandle::open(desk.path()).unwrap();
        let pair = |index: u64| ClockPair { tsc: 1000 * index, ns: 400 * index };
        let mut file = ClockFile::create(&folder, &[pair(1), pair(2)], true).unwrap();
        file.add(pair(3)).unwrap();
        assert_eq!(read_clock(&folder).unwrap().samples().len(), 3);
        file.replace(&[pair(1), pair(3)]).unwrap();
        file.add(pair(4)).unwrap();
        let whole = std::fs::read(folder.path().join(CLOCK_FILE)).unwrap();
        assert_eq!(whole.len(), 8 + 3 * SAMPLE_SIZE);
        for len in 0..whole.len() {
            std::fs::write(folder.path().join(CLOCK_FILE), &whole[..len]).unwrap();
            assert_eq!(read_clock(&folder).is_ok(), len >= 8 + 2 * SAMPLE_SIZE, "{len}");
        }
    }
}
