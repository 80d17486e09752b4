//! Groups of threads whose wakeups are also counted separately: by thread name or cgroup.
//!
//! ```text
//! --cgroup /robot.slice ──► Cgroups ──► numbers of cgroups ─► `cgroups` ─┐
//! --thread 'ctl*' ────────► name and mask ────────────────► `groups` ──┴─► programs ─► GroupArrays
//! ```
//!
//! Programs identify a cgroup by its number. Existing cgroups are looked up here when a group
//! starts ([`Cgroups`]); for later ones, a program compares the path. So no process needs to watch
//! for restarts of a service.

mod mapped_groups;
mod tree;

use std::{thread, time::Duration};

use aya::maps::{HashMap, MapData};
use serde::{Deserialize, Serialize};
use tompion_kernel::Error as KernelError;

use crate::{Error, programs::refused_map};

pub(crate) use mapped_groups::{ARRAYS, GroupArrays, entries};
pub use tree::Cgroups;

/// Maximum number of groups (`GROUPS`).
pub const MAX_GROUPS: usize = 8;
/// Maximum length of a thread's name in Linux, and of a cgroup's path (`NAME_WORDS`), in bytes.
const MAX_THREAD_NAME: usize = 15;
const MAX_CGROUP_PATH: usize = 254;
/// Maximum time for which programs may still count for a removed group.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(2);

/// Threads of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Threads in a cgroup and below it: its path in the unified hierarchy, or the path's beginning
    /// and `*`.
    Cgroup(String),
    /// Threads with a name, or with its beginning and `*`.
    Thread(String),
}

impl Group {
    /// Parses a thread pattern: `ctl`, `ctl*`.
    ///
    /// # Errors
    /// One line that says what was expected.
    pub fn threads(name: &str) -> Result<Self, String> {
        let stem = stem(name);
        if name.is_empty() || stem.contains(['*', '\0']) || stem.len() > MAX_THREAD_NAME {
            return Err(format!(
                "expected a thread's name of at most {MAX_THREAD_NAME} bytes, or its beginning and `*`, found `{name}`"
            ));
        }
        Ok(Self::Thread(name.into()))
    }

    /// Parses a cgroup pattern: `robot.slice`, `/system.slice/robot@*`.
    ///
    /// # Errors
    /// One line that says what was expected.
    pub fn cgroup(path: &str) -> Result<Self, String> {
        let whole = format!("/{}", path.trim_start_matches('/').trim_end_matches('/'));
        let stem = stem(&whole);
        let leads_back = stem.split('/').any(|part| part == "." || part == "..");
        if path.is_empty() || leads_back || stem.contains(['*', '\0']) || stem.len() > MAX_CGROUP_PATH {
            return Err(format!(
                "expected a cgroup's path of at most {MAX_CGROUP_PATH} bytes, or its beginning and `*`, found `{path}`"
            ));
        }
        Ok(Self::Cgroup(whole))
    }

    /// Pattern without its kind.
    pub fn pattern(&self) -> &str {
        match self {
            Self::Cgroup(pattern) | Self::Thread(pattern) => pattern,
        }
    }

    /// Kind of pattern: `cgroup`, `thread`.
    pub const fn noun(&self) -> &'static str {
        match self {
            Self::Cgroup(_) => "cgroup",
            Self::Thread(_) => "thread",
        }
    }

    /// Returns whether the pattern matches this path; cgroups below it belong to the group anyway.
    fn is_path(&self, path: &str) -> bool {
        let Self::Cgroup(pattern) = self else { return false };
        pattern.strip_suffix('*').map_or(pattern == path, |stem| path.starts_with(stem))
    }
}

/// Pattern without the final `*`.
fn stem(pattern: &str) -> &str {
    pattern.strip_suffix('*').unwrap_or(pattern)
}

/// Result of looking for cgroups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Groups whose cgroup doesn't exist yet.
    pub absent: Vec<Group>,
}

/// Counts these groups and no others. Groups counted before keep their counts.
pub(crate) fn begin(
    groups: &[Group],
    arrays: &GroupArrays,
    mut table: HashMap<MapData, u64, u32>,
) -> Result<Found, Error> {
    if groups.len() > MAX_GROUPS {
        let found = format!("found {} groups of threads, expected at most {MAX_GROUPS}", groups.len());
        return Err(Error::Obstacle { found, mend: "name fewer with --cgroup and --thread" });
    }
    let wants_cgroups = groups.iter().any(|group| matches!(group, Group::Cgroup(_)));
    let tree = wants_cgroups.then(Cgroups::find).transpose()?;
    let wanted = places(groups, &arrays.counted());
    let kept = wanted.iter().filter(|place| !place.is_new).fold(0, |bits, place| bits | place.bit());
    arrays.count_only(kept);
    thread::sleep(SETTLE_TIMEOUT);
    take_back(&mut table, kept);
    arrays.forget_unlisted();
    let now = tompion_os::monotonic_ns();
    let mut fresh = wanted.iter().filter(|place| place.is_new);
    let begun = fresh.try_for_each(|place| arrays.begin(place.number, place.group, now));
    begun.map_err(|error| Error::from(KernelError::Rings(error)))?;
    let by_name = |place: &&Place<'_>| matches!(place.group, Group::Thread(_));
    let bits = |all: &mut dyn Iterator<Item = &Place<'_>>| all.fold(0, |bits, place| bits | place.bit());
    arrays.count(bits(&mut wanted.iter()), bits(&mut wanted.iter().filter(by_name)));
    let Some(tree) = tree else { return Ok(Found::default()) };
    // From now on, a program lists new cgroups. A cgroup is listed before its children are looked
    // for, so a new child is found here or inherits it there.
    let mut seen = 0;
    tree.walk(|path, number, above| {
        let own = wanted.iter().filter(|place| place.group.is_path(path));
        let bits = own.fold(above, |bits, place| bits | place.bit());
        if bits != 0 && table.insert(number, bits, 0).is_err() {
            arrays.count_unlisted();
        }
        seen |= bits;
        bits
    });
    let is_absent = |place: &&Place<'_>| matches!(place.group, Group::Cgroup(_)) && seen & place.bit() == 0;
    Ok(Found { absent: wanted.iter().filter(is_absent).map(|place| place.group.clone()).collect() })
}

/// Slot of a group.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    group: &'a Group,
    number: usize,
    is_new: bool,
}

impl Place<'_> {
    const fn bit(&self) -> u32 {
        1 << self.number
    }
}

/// Assigns slots: groups keep theirs, new ones get unused ones.
fn places<'a>(groups: &'a [Group], counted: &[(usize, Group)]) -> Vec<Place<'a>> {
    let mut places: Vec<Place<'a>> = Vec::new();
    for group in groups {
        let old = counted.iter().find(|(_, old)| old == group).map(|(number, _)| *number);
        if let Some(number) = old.filter(|number| places.iter().all(|place| place.number != *number)) {
            places.push(Place { group, number, is_new: false });
        }
    }
    for group in groups {
        let is_free = |number: &usize| places.iter().all(|place| place.number != *number);
        let is_there = places.iter().any(|place| place.group == group);
        if let Some(number) = (0..MAX_GROUPS).find(is_free).filter(|_| !is_there) {
            places.push(Place { group, number, is_new: true });
        }
    }
    places
}

/// Clears the bits of removed groups.
fn take_back(table: &mut HashMap<MapData, u64, u32>, kept: u32) {
    let numbers: Vec<u64> = table.keys().filter_map(Result::ok).collect();
    for number in numbers {
        let bits = table.get(&number, 0).unwrap_or(0) & kept;
        // A program may just have removed it.
        let _ = if bits == 0 { table.remove(&number) } else { table.insert(number, bits, 0) };
    }
}

/// Opens the pinned table.
pub(crate) fn table(data: MapData) -> Result<HashMap<MapData, u64, u32>, Error> {
    HashMap::try_from(aya::maps::Map::HashMap(data)).map_err(|error| refused_map("cgroups", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_names_and_paths_or_their_beginnings() {
        assert_eq!(Group::threads("ctl*"), Ok(Group::Thread("ctl*".into())));
        for wrong in ["", "a*b", "sixteen-letters-"] {
            assert!(Group::threads(wrong).is_err(), "{wrong}");
        }
        for same in ["robot.slice/", "/robot.slice", "//robot.slice"] {
            assert_eq!(Group::cgroup(same), Ok(Group::Cgroup("/robot.slice".into())));
        }
        assert_eq!(Group::cgroup("/"), Ok(Group::Cgroup("/".into())));
        for wrong in ["", "/a/../b", "/a*/b", &"x".repeat(255)] {
            assert!(Group::cgroup(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths_are_compared_whole_or_by_their_beginnings() {
        let is_path = |pattern: &str, path: &str| Group::cgroup(pattern).unwrap().is_path(path);
        assert!(is_path("/a", "/a") && !is_path("/a", "/a/b") && !is_path("/a", "/ab"));
        assert!(is_path("/a*", "/a") && is_path("/a*", "/ab/c") && !is_path("/a/*", "/a"));
        assert!(!Group::threads("*").unwrap().is_path("/a"));
    }

    #[test]
    fn groups_stay_where_they_are() {
        let [first, second, third] = ["a", "b", "c"].map(|name| Group::threads(name).unwrap());
        let before = [(0, first.clone()), (1, second.clone())];
        let wanted = [third.clone(), second.clone(), third.clone()];
        let found = places(&wanted, &before);
        assert_eq!(
            found.iter().map(|place| (place.group, place.number, place.is_new)).collect::<Vec<_>>(),
            [(&second, 1, false), (&third, 0, true)]
        );
    }
}
