//! Descriptors of maps, programs and links, and what can be done with them alone.

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::atomic::Ordering,
};

use tompion_os::SharedMap;

use crate::ring::Geometry;

/// Words of a CPU's table of stacks (`KNOWN_STACKS` of `context.h`).
pub const KNOWN_STACKS: u32 = 1 << 14;

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A map.
    Map = 1,
    /// A program. The kernel counts with it how often it was not started.
    Program = 2,
    /// A link: the program runs as long as there is one.
    Link = 3,
    /// An event of perf, to which a link belongs. Closing it takes long.
    Event = 4,
}

/// Number of an object that is the same in each recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub Kind, pub u32);

impl Key {
    /// Returns the key as one number.
    pub fn to_number(self) -> u64 {
        (self.0 as u64) << 32 | u64::from(self.1)
    }

    /// Returns the key of a number, if it is one.
    pub fn from_number(number: u64) -> Option<Self> {
        let kinds = [Kind::Map, Kind::Program, Kind::Link, Kind::Event];
        let kind = kinds.into_iter().find(|kind| *kind as u64 == number >> 32)?;
        Some(Self(kind, number as u32))
    }
}

/// Maps that outlast a recorder, by their numbers. Programs hold the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptMap {
    /// Positions and counts of the rings.
    Rings,
    /// Their bytes.
    Data,
    /// Processes that are followed.
    Followed,
    /// Stacks that rings have described.
    KnownStacks,
    /// The recorder's process.
    Recorder,
}

impl KeptMap {
    /// All of them, with their names in the programs' object.
    pub const ALL: [(Self, &str); 5] = [
        (Self::Rings, "rings"),
        (Self::Data, "data"),
        (Self::Followed, "followed"),
        (Self::KnownStacks, "known_stacks"),
        (Self::Recorder, "recorder"),
    ];

    /// Returns its key.
    pub fn key(self) -> Key {
        Key(Kind::Map, self as u32)
    }
}

/// Objects of a recorder that was killed.
#[derive(Debug, Default)]
pub struct Objects(BTreeMap<Key, OwnedFd>);

impl Objects {
    /// Takes descriptors by the numbers of their keys. Others are dropped.
    pub fn new(held: BTreeMap<u64, OwnedFd>) -> Self {
        let known = held.into_iter().filter_map(|(number, object)| Some((Key::from_number(number)?, object)));
        Self(known.collect())
    }

    /// Returns all keys.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.0.keys().copied()
    }

    /// Returns the number of objects of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.0.keys().filter(|key| key.0 == kind).count()
    }

    fn map(&self, map: KeptMap) -> io::Result<BorrowedFd<'_>> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("there is no map {map:?}"));
        self.0.get(&map.key()).map(AsFd::as_fd).ok_or_else(missing)
    }

    /// Maps the rings and their bytes.
    ///
    /// # Errors
    /// They are not there, or have other sizes.
    pub fn rings(&self, geometry: Geometry) -> io::Result<(SharedMap, SharedMap)> {
        let rings = SharedMap::of_bpf_array(self.map(KeptMap::Rings)?, geometry.rings_bytes())?;
        Ok((rings, SharedMap::of_bpf_array(self.map(KeptMap::Data)?, geometry.data_bytes())?))
    }

    /// Has the programs leave out the calls of this process, in place of the recorder before.
    ///
    /// # Errors
    /// The map can't be mapped.
    pub fn set_recorder(&self, pid: u32) -> io::Result<()> {
        set_recorder(self.map(KeptMap::Recorder)?, pid)
    }

    /// Has the programs describe each stack again, in the rings of so many CPUs.
    ///
    /// # Errors
    /// The table can't be mapped.
    pub fn forget_stacks(&self, cpus: u32) -> io::Result<()> {
        let words = u64::from(cpus) * u64::from(KNOWN_STACKS);
        let table = SharedMap::of_bpf_array(self.map(KeptMap::KnownStacks)?, words * 8)?;
        // Ordering: each word stands for itself, and programs that run write others.
        (0..words as usize).for_each(|word| table.word(word * 8).store(0, Ordering::Relaxed));
        Ok(())
    }

    /// Follows more processes, with the children that they will have.
    ///
    /// # Errors
    /// The set of processes can't be mapped.
    pub fn follow(&self, pids: &[u32]) -> io::Result<()> {
        follow(self.map(KeptMap::Followed)?, pids)
    }

    /// Whether a process is followed.
    pub fn follows(&self, pid: u32) -> bool {
        self.map(KeptMap::Followed).is_ok_and(|map| follows(map, pid))
    }

    /// Number of times that the kernel did not start a program because it ran on that CPU already.
    pub fn misses(&self) -> u64 {
        let programs = self.0.iter().filter(|(key, _)| key.0 == Kind::Program);
        programs.map(|(_, program)| misses_of(program.as_fd())).fold(0, u64::saturating_add)
    }

    /// Ends the programs' runs: those that were attached first, last. They run on while another
    /// process holds the links.
    pub fn detach(&mut self) {
        let others = self.0.split_off(&Key(Kind::Event, 0));
        let links = self.0.split_off(&Key(Kind::Link, 0));
        let (many, few): (Vec<_>, Vec<_>) = links.into_iter().partition(|(key, _)| key.1 >= SLOW_LINKS);
        tompion_os::close_in_parallel(many.into_iter().map(|(_, link)| link).collect());
        few.into_iter().rev().for_each(|(_, link)| drop(link));
        // Where there can be no other process, they are closed here, which only takes longer.
        let _ = tompion_os::close_in_background(others.into_values().collect());
    }
}

/// Number of the first link at an event of perf. The kernel waits when such a link ends, and one
/// wait serves all that end at the same time.
pub const SLOW_LINKS: u32 = 1 << 16;

/// Writes the number of the recorder's process into a map.
///
/// # Errors
/// It can't be mapped.
pub fn set_recorder(map: BorrowedFd<'_>, pid: u32) -> io::Result<()> {
    // Ordering: a number by itself.
    SharedMap::of_bpf_array(map, 8)?.word(0).store(pid.into(), Ordering::Relaxed);
    Ok(())
}

/// Adds processes to a set.
///
/// # Errors
/// It can't be mapped.
pub fn follow(map: BorrowedFd<'_>, pids: &[u32]) -> io::Result<()> {
    for pid in pids.iter().map(|pid| u64::from(*pid)) {
        let word = pid / 64 * 8;
        let (map, place) = SharedMap::of_bpf_array_part(map, word..word + 8)?;
        // Ordering: each bit stands for itself; programs that run set and clear others of the word.
        map.word(place).fetch_or(1 << (pid % 64), Ordering::Relaxed);
    }
    Ok(())
}

/// Whether a process is in a set.
pub fn follows(map: BorrowedFd<'_>, pid: u32) -> bool {
    let word = u64::from(pid) / 64 * 8;
    let part = SharedMap::of_bpf_array_part(map, word..word + 8);
    // Ordering: each bit stands for itself.
    part.is_ok_and(|(map, place)| map.word(place).load(Ordering::Relaxed) >> (pid % 64) & 1 == 1)
}

/// Number of times that the kernel did not start a program because it ran on that CPU already.
///
/// Source: `recursion_misses` in `/proc/PID/fdinfo`, Linux 5.12; 0 before.
pub fn misses_of(program: BorrowedFd<'_>) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("recursion_misses:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_round_trip_and_other_numbers_are_none() {
        for key in [KeptMap::Recorder.key(), Key(Kind::Link, SLOW_LINKS), Key(Kind::Event, u32::MAX)] {
            assert_eq!(Key::from_number(key.to_number()), Some(key));
        }
        assert_eq!([0, 7, 5 << 32, u64::MAX].map(Key::from_number), [None; 4]);
    }

    #[test]
    fn each_map_has_a_key_of_its_own() {
        for (place, (map, _)) in KeptMap::ALL.into_iter().enumerate() {
            assert_eq!(map.key(), Key(Kind::Map, place as u32));
        }
    }

    #[test]
    fn what_is_no_map_of_a_recorder_is_refused() {
        let file = || tompion_os::create_memfd(c"map", 1 << 20).expect("a file");
        let held = KeptMap::ALL.into_iter().map(|(map, _)| (map.key().to_number(), file()));
        let stranger = [(u64::MAX, file())];
        let mut objects = Objects::new(held.chain(stranger).collect());
        assert_eq!((objects.keys().count(), objects.count(Kind::Map)), (5, 5));
        assert!(objects.rings(Geometry { cpus: 1, subbufs: 2 }).is_err() && objects.set_recorder(1).is_err());
        assert!(objects.forget_stacks(1).is_err() && objects.follow(&[1]).is_err() && !objects.follows(1));
        objects.detach();
        assert_eq!((objects.keys().count(), objects.misses()), (5, 0));
    }
}
