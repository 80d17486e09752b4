//! Mapped arrays of groups. Offsets and sizes are those of `src/bpf/monitor.h`, which draws them.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{OnceLock, atomic::Ordering},
};

use tompion_os::SharedMap;

use super::{Group, MAX_GROUPS};
use crate::{
    histogram::Histogram,
    kinds::Kind,
    mapped_counters::{
        BUCKETS, CONTROL, EPOCH, KINDS, MaxSample, SLOTS, WORST, histogram_at, longer, worst_at,
    },
    snapshot::{GroupState, State},
};

const GROUP: usize = 576;
const FIRST_SUM: usize = 16;
/// Size of a group's histograms, in bytes.
const PLACES: usize = KINDS * BUCKETS * 8;
const MASK: usize = 64;
const NAME: usize = 320;
const NAME_SIZE: usize = 256;

const COUNTED: usize = 24;
const BY_NAME: usize = 28;
const UNLISTED: usize = 32;

/// Names of the pinned arrays, in the order of [`GroupArrays`], after the one with the settings.
pub const ARRAYS: [&str; 3] = ["groups", "group_places", "group_worsts"];

/// Array whose number of entries depends on the machine.
pub fn entries(cpus: u32) -> (&'static str, u32) {
    ("group_worsts", cpus * (MAX_GROUPS * SLOTS) as u32)
}

/// Mapped settings, sums and maxima of groups.
pub struct GroupArrays {
    cpus: usize,
    control: SharedMap,
    groups: SharedMap,
    places: Places,
    worsts: SharedMap,
}

/// Histograms of groups, mapped when needed: all of them would take 4 MB of a process without
/// groups.
struct Places {
    array: OwnedFd,
    mapped: [OnceLock<GroupPlaces>; MAX_GROUPS],
}

/// Histograms of a group, and their offset in the mapping.
struct GroupPlaces(SharedMap, usize);

impl Places {
    fn of(&self, number: usize) -> io::Result<&GroupPlaces> {
        let absent = || io::Error::from(io::ErrorKind::NotFound);
        let place = self.mapped.get(number).ok_or_else(absent)?;
        if place.get().is_none() {
            let begin = (number * PLACES) as u64;
            let part = begin..begin + PLACES as u64;
            let (map, at) = SharedMap::of_bpf_array_part(self.array.as_fd(), part)?;
            // The mapping of another thread is as good.
            let _ = place.set(GroupPlaces(map, at));
        }
        place.get().ok_or_else(absent)
    }
}

impl GroupPlaces {
    fn histogram(&self, kind: Kind) -> Histogram {
        histogram_at(&self.0, self.1 + kind.number() * BUCKETS * 8)
    }

    fn clear(&self) {
        for word in 0..KINDS * BUCKETS {
            self.0.word(self.1 + word * 8).store(0, Ordering::Relaxed);
        }
    }
}

impl GroupArrays {
    /// Maps the arrays: the settings, and those of [`ARRAYS`].
    pub fn map(arrays: [BorrowedFd<'_>; 4], cpus: usize) -> io::Result<Self> {
        let [control, groups, places, worsts] = arrays;
        let map = |array, size: usize| SharedMap::of_bpf_array(array, size as u64);
        Ok(Self {
            cpus,
            control: map(control, CONTROL)?,
            groups: map(groups, MAX_GROUPS * GROUP)?,
            places: Places { array: places.try_clone_to_owned()?, mapped: Default::default() },
            worsts: map(worsts, cpus * MAX_GROUPS * SLOTS * WORST)?,
        })
    }

    /// Sets the bits of the counted groups, and of those that are identified by thread name.
    pub fn count(&self, groups: u32, by_name: u32) {
        self.control.half(BY_NAME).store(by_name, Ordering::Relaxed);
        // Pairs with nothing: a program may see one of the two late, for one wakeup.
        self.control.half(COUNTED).store(groups, Ordering::Release);
    }

    /// Stops counting all other groups.
    pub fn count_only(&self, groups: u32) {
        let by_name = self.control.half(BY_NAME).load(Ordering::Relaxed) & groups;
        self.control.half(COUNTED).fetch_and(groups, Ordering::Relaxed);
        self.control.half(BY_NAME).store(by_name, Ordering::Relaxed);
    }

    /// Number of cgroups that did not fit.
    pub fn unlisted(&self) -> u32 {
        self.control.half(UNLISTED).load(Ordering::Relaxed)
    }

    /// Counts a cgroup that did not fit.
    pub fn count_unlisted(&self) {
        self.control.half(UNLISTED).fetch_add(1, Ordering::Relaxed);
    }

    /// Restarts that count.
    pub fn forget_unlisted(&self) {
        self.control.half(UNLISTED).store(0, Ordering::Relaxed);
    }

    /// Counted groups with their slots.
    pub fn counted(&self) -> Vec<(usize, Group)> {
        let bits = self.control.half(COUNTED).load(Ordering::Relaxed);
        let by_name = self.control.half(BY_NAME).load(Ordering::Relaxed);
        let places = (0..MAX_GROUPS).filter(|number| bits >> number & 1 == 1);
        places.map(|number| (number, self.group(number, by_name >> number & 1 == 1))).collect()
    }

    fn group(&self, number: usize, is_by_name: bool) -> Group {
        let (mut mask, mut name) = ([0; NAME_SIZE], [0; NAME_SIZE]);
        self.groups.copy_out(number * GROUP + MASK, &mut mask);
        self.groups.copy_out(number * GROUP + NAME, &mut name);
        let pattern = pattern(&mask, &name);
        if is_by_name { Group::Thread(pattern) } else { Group::Cgroup(pattern) }
    }

    /// Starts a group in a slot that no program uses; its counts are 0.
    ///
    /// # Errors
    /// If its part of the arrays can't be mapped.
    pub fn begin(&self, number: usize, group: &Group, now: u64) -> io::Result<()> {
        let at = number * GROUP;
        self.places.of(number)?.clear();
        for cpu in 0..self.cpus {
            let first = (cpu * MAX_GROUPS + number) * SLOTS * WORST;
            self.worsts.copy_in(first, &[0; SLOTS * WORST]);
        }
        self.groups.copy_in(at, &[0; GROUP]);
        let (mask, name) = mask_and_name(group.pattern());
        self.groups.copy_in(at + MASK, &mask);
        self.groups.copy_in(at + NAME, &name);
        self.groups.word(at).store(now, Ordering::Relaxed);
        Ok(())
    }

    /// Reads the counts of all groups. A group is left out while its arrays can't be mapped.
    pub fn states(&self) -> Vec<GroupState> {
        let epoch = self.control.half(EPOCH).load(Ordering::Relaxed);
        let state = |number: usize, places: &GroupPlaces, kind: Kind| State {
            sum: self.groups.word(number * GROUP + FIRST_SUM + kind.number() * 8).load(Ordering::Relaxed),
            histogram: places.histogram(kind),
            worst: self.worst(number, kind, epoch),
        };
        let of_group = |(number, group): (usize, Group)| {
            let places = self.places.of(number).ok()?;
            let begun = self.groups.word(number * GROUP).load(Ordering::Relaxed);
            Some(GroupState { group, begun, states: Kind::ALL.map(|kind| state(number, places, kind)) })
        };
        self.counted().into_iter().filter_map(of_group).collect()
    }

    fn worst(&self, number: usize, kind: Kind, epoch: u32) -> Option<MaxSample> {
        let of_cpu = |cpu: usize| {
            let first = (cpu * MAX_GROUPS + number) * SLOTS;
            longer(kind, |slot| worst_at(&self.worsts, first + slot, epoch))
        };
        (0..self.cpus).filter_map(of_cpu).max_by_key(|worst| worst.latency)
    }
}

/// Mask and value of a pattern (`struct group`).
fn mask_and_name(pattern: &str) -> ([u8; NAME_SIZE], [u8; NAME_SIZE]) {
    let (mut mask, mut name) = ([0; NAME_SIZE], [0; NAME_SIZE]);
    let stem = super::stem(pattern);
    for ((mask, name), byte) in mask.iter_mut().zip(&mut name).zip(stem.bytes()) {
        (*mask, *name) = (0xff, byte);
    }
    if stem.len() == pattern.len() {
        // Nothing may follow.
        mask.iter_mut().skip(stem.len()).take(1).for_each(|mask| *mask = 0xff);
    }
    (mask, name)
}

/// Pattern of a mask and a value; any root process may have written the array.
fn pattern(mask: &[u8; NAME_SIZE], name: &[u8; NAME_SIZE]) -> String {
    let stem: Vec<u8> = name.iter().copied().take_while(|byte| *byte != 0).collect();
    let is_whole = mask.get(stem.len()).is_none_or(|mask| *mask != 0);
    let stem = String::from_utf8_lossy(&stem);
    if is_whole { stem.into_owned() } else { format!("{stem}*") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_as_they_were_written() {
        for written in ["/", "/a/b", "/a/b*", "*", "ctl", &"x".repeat(254), &format!("{}*", "x".repeat(254))]
        {
            let (mask, name) = mask_and_name(written);
            assert_eq!(pattern(&mask, &name), written);
        }
        assert_eq!(pattern(&[0xff; NAME_SIZE], &[0xff; NAME_SIZE]).chars().count(), NAME_SIZE);
    }

    /// Matches as the program does.
    fn takes(pattern: &str, path: &str) -> bool {
        let (mask, name) = mask_and_name(pattern);
        let mut padded = [0; NAME_SIZE];
        padded[..path.len()].copy_from_slice(path.as_bytes());
        padded.iter().zip(mask).zip(name).all(|((byte, mask), name)| byte & mask == name)
    }

    #[test]
    fn programs_compare_whole_paths_or_beginnings() {
        assert!(takes("/a", "/a") && !takes("/a", "/ab") && !takes("/a", "/") && takes("/a*", "/ab/c"));
        assert!(takes("*", "anything") && takes("ctl*", "ctl") && !takes("ctl*", "ct"));
    }
}
