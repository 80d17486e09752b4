//! The groups' arrays, mapped. Offsets and sizes are those of `src/bpf/monitor.h`, where they are drawn.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{OnceLock, atomic::Ordering},
};

use tompion_os::SharedMap;

use super::{Group, MOST_GROUPS};
use crate::{
    histogram::Histogram,
    kinds::Kind,
    memory::{BUCKETS, CONTROL, EPOCH, KINDS, MaxSample, SLOTS, WORST, histogram_at, longer, worst_at},
    snapshot::{GroupState, State},
};

const GROUP: usize = 576;
const FIRST_SUM: usize = 16;
/// Of a group's histograms, in bytes.
const PLACES: usize = KINDS * BUCKETS * 8;
const MASK: usize = 64;
const NAME: usize = 320;
const NAME_SIZE: usize = 256;

const COUNTED: usize = 24;
const BY_NAME: usize = 28;
const UNLISTED: usize = 32;

/// Names of the arrays that are pinned, in the order in which [`GroupArrays`] has them, behind the one with the settings.
pub const ARRAYS: [&str; 3] = ["groups", "group_places", "group_worsts"];

/// The array whose number of entries depends on the machine.
pub fn entries(cpus: u32) -> (&'static str, u32) {
    ("group_worsts", cpus * (MOST_GROUPS * SLOTS) as u32)
}

/// What programs have of groups.
pub struct GroupArrays {
    cpus: usize,
    control: SharedMap,
    groups: SharedMap,
    places: Places,
    worsts: SharedMap,
}

/// The histograms, of which those alone are mapped that somebody wants: all of them would be 4 MB of a process that counts no group.
struct Places {
    array: OwnedFd,
    mapped: [OnceLock<GroupPlaces>; MOST_GROUPS],
}

/// The histograms of a group, and where in the mapping they begin.
struct GroupPlaces(SharedMap, usize);

impl Places {
    fn of(&self, number: usize) -> io::Result<&GroupPlaces> {
        let absent = || io::Error::from(io::ErrorKind::NotFound);
        let place = self.mapped.get(number).ok_or_else(absent)?;
        if place.get().is_none() {
            let begin = (number * PLACES) as u64;
            let part = begin..begin + PLACES as u64;
            let (map, at) = SharedMap::of_bpf_array_part(self.array.as_fd(), part)?;
            // Another thread's is as good.
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
            groups: map(groups, MOST_GROUPS * GROUP)?,
            places: Places { array: places.try_clone_to_owned()?, mapped: Default::default() },
            worsts: map(worsts, cpus * MOST_GROUPS * SLOTS * WORST)?,
        })
    }

    /// A bit for each group that is counted, and for each of these that is known by its threads' names.
    pub fn count(&self, groups: u32, by_name: u32) {
        self.control.half(BY_NAME).store(by_name, Ordering::Relaxed);
        // Pairs with nothing of the programs': they read both at once or one late, for one wake-up.
        self.control.half(COUNTED).store(groups, Ordering::Release);
    }

    /// Counts no other groups than these from now on.
    pub fn count_only(&self, groups: u32) {
        let by_name = self.control.half(BY_NAME).load(Ordering::Relaxed) & groups;
        self.control.half(COUNTED).fetch_and(groups, Ordering::Relaxed);
        self.control.half(BY_NAME).store(by_name, Ordering::Relaxed);
    }

    /// How many cgroups there was no room for.
    pub fn unlisted(&self) -> u32 {
        self.control.half(UNLISTED).load(Ordering::Relaxed)
    }

    /// One more.
    pub fn count_unlisted(&self) {
        self.control.half(UNLISTED).fetch_add(1, Ordering::Relaxed);
    }

    /// They are counted anew.
    pub fn forget_unlisted(&self) {
        self.control.half(UNLISTED).store(0, Ordering::Relaxed);
    }

    /// Groups that are counted, with their places.
    pub fn counted(&self) -> Vec<(usize, Group)> {
        let bits = self.control.half(COUNTED).load(Ordering::Relaxed);
        let by_name = self.control.half(BY_NAME).load(Ordering::Relaxed);
        let places = (0..MOST_GROUPS).filter(|number| bits >> number & 1 == 1);
        places.map(|number| (number, self.group(number, by_name >> number & 1 == 1))).collect()
    }

    fn group(&self, number: usize, is_by_name: bool) -> Group {
        let (mut mask, mut name) = ([0; NAME_SIZE], [0; NAME_SIZE]);
        self.groups.copy_out(number * GROUP + MASK, &mut mask);
        self.groups.copy_out(number * GROUP + NAME, &mut name);
        let pattern = pattern(&mask, &name);
        if is_by_name { Group::Thread(pattern) } else { Group::Cgroup(pattern) }
    }

    /// Puts a group into a place that no program counts for; it has nothing yet.
    ///
    /// # Errors
    /// If its part of the arrays can't be mapped.
    pub fn begin(&self, number: usize, group: &Group, now: u64) -> io::Result<()> {
        let at = number * GROUP;
        self.places.of(number)?.clear();
        for cpu in 0..self.cpus {
            let first = (cpu * MOST_GROUPS + number) * SLOTS * WORST;
            self.worsts.copy_in(first, &[0; SLOTS * WORST]);
        }
        self.groups.copy_in(at, &[0; GROUP]);
        let (mask, name) = mask_and_name(group.pattern());
        self.groups.copy_in(at + MASK, &mask);
        self.groups.copy_in(at + NAME, &name);
        self.groups.word(at).store(now, Ordering::Relaxed);
        Ok(())
    }

    /// What was counted of each group. One that this process has no memory left to map is left out until it has.
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
            let first = (cpu * MOST_GROUPS + number) * SLOTS;
            longer(kind, |slot| worst_at(&self.worsts, first + slot, epoch))
        };
        (0..self.cpus).filter_map(of_cpu).max_by_key(|worst| worst.latency)
    }
}

/// What of a name counts, and what that must be (`struct group`).
fn mask_and_name(pattern: &str) -> ([u8; NAME_SIZE], [u8; NAME_SIZE]) {
    let (mut mask, mut name) = ([0; NAME_SIZE], [0; NAME_SIZE]);
    let stem = super::stem(pattern);
    for ((mask, name), byte) in mask.iter_mut().zip(&mut name).zip(stem.bytes()) {
        (*mask, *name) = (0xff, byte);
    }
    if stem.len() == pattern.len() {
        // And nothing behind it.
        mask.iter_mut().skip(stem.len()).take(1).for_each(|mask| *mask = 0xff);
    }
    (mask, name)
}

/// The pattern that was made so: the array may have been written by anybody who is root.
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

    /// What the program does.
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
