//! Threads whose wake-ups are counted by themselves, too: of a name, or in a cgroup.
//!
//! ```text
//! --cgroup /robot.slice ──► Cgroups ──► numbers of cgroups ──► `cgroups`  ─┐
//! --thread 'ctl*' ────────► name and mask ─────────────────► `groups`  ────┴─► programs ──► GroupArrays
//! ```
//!
//! Programs know a cgroup by its number. Those that are there when a group begins are looked up here ([`Cgroups`]); of those that are
//! made later, a program compares the path. So nobody has to look on when a service starts again.

mod memory;
mod tree;

use std::{thread, time::Duration};

use aya::maps::{HashMap, MapData};
use serde::{Deserialize, Serialize};
use tompion_kernel::Error as KernelError;

use crate::{Error, programs::refused_map};

pub(crate) use memory::{ARRAYS, GroupArrays, entries};
pub use tree::Cgroups;

/// How many groups there may be (`GROUPS`).
pub const MOST_GROUPS: usize = 8;
/// Linux keeps 15 bytes of a thread's name; paths of cgroups are compared up to this (`NAME_WORDS`).
const LONGEST_NAME: usize = 15;
const LONGEST_PATH: usize = 254;
/// Programs may still count for a group for so long after it was taken back.
const SETTLE: Duration = Duration::from_millis(2);

/// Which threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Those in a cgroup and below it: a path of the second version's tree, or its beginning and `*`.
    Cgroup(String),
    /// Those of a name, or of its beginning and `*`.
    Thread(String),
}

impl Group {
    /// Threads of a name: `ctl`, `ctl*`.
    ///
    /// # Errors
    /// A line that says what was expected.
    pub fn threads(name: &str) -> Result<Self, String> {
        let stem = stem(name);
        if name.is_empty() || stem.contains(['*', '\0']) || stem.len() > LONGEST_NAME {
            return Err(format!(
                "expected a thread's name of at most {LONGEST_NAME} bytes, or its beginning and `*`, found `{name}`"
            ));
        }
        Ok(Self::Thread(name.into()))
    }

    /// Threads in a cgroup: `robot.slice`, `/system.slice/robot@*`.
    ///
    /// # Errors
    /// A line that says what was expected.
    pub fn cgroup(path: &str) -> Result<Self, String> {
        let whole = format!("/{}", path.trim_start_matches('/').trim_end_matches('/'));
        let stem = stem(&whole);
        let leads_back = stem.split('/').any(|part| part == "." || part == "..");
        if path.is_empty() || leads_back || stem.contains(['*', '\0']) || stem.len() > LONGEST_PATH {
            return Err(format!(
                "expected a cgroup's path of at most {LONGEST_PATH} bytes, or its beginning and `*`, found `{path}`"
            ));
        }
        Ok(Self::Cgroup(whole))
    }

    /// What was asked for, without what kind of thing it is.
    pub fn pattern(&self) -> &str {
        match self {
            Self::Cgroup(pattern) | Self::Thread(pattern) => pattern,
        }
    }

    /// Which kind of thing: `cgroup`, `thread`.
    pub const fn noun(&self) -> &'static str {
        match self {
            Self::Cgroup(_) => "cgroup",
            Self::Thread(_) => "thread",
        }
    }

    /// Whether a cgroup has this path itself; those below it belong to the group all the same.
    fn is_path(&self, path: &str) -> bool {
        let Self::Cgroup(pattern) = self else { return false };
        pattern.strip_suffix('*').map_or(pattern == path, |stem| path.starts_with(stem))
    }
}

/// Without the `*` at its end.
fn stem(pattern: &str) -> &str {
    pattern.strip_suffix('*').unwrap_or(pattern)
}

/// What is known of cgroups that were found when groups began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Groups of which there is no cgroup yet.
    pub absent: Vec<Group>,
}

/// Has these groups counted from now on, and no others. Those that were counted before keep what they have.
pub(crate) fn begin(
    groups: &[Group],
    arrays: &GroupArrays,
    mut table: HashMap<MapData, u64, u32>,
) -> Result<Found, Error> {
    if groups.len() > MOST_GROUPS {
        let found = format!("found {} groups of threads, expected at most {MOST_GROUPS}", groups.len());
        return Err(Error::Obstacle { found, mend: "name fewer with --cgroup and --thread" });
    }
    let wants_cgroups = groups.iter().any(|group| matches!(group, Group::Cgroup(_)));
    let tree = wants_cgroups.then(Cgroups::find).transpose()?;
    let wanted = places(groups, &arrays.counted());
    let kept = wanted.iter().filter(|place| !place.is_new).fold(0, |bits, place| bits | place.bit());
    arrays.count_only(kept);
    thread::sleep(SETTLE);
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
    // From now on a program lists new cgroups. A cgroup is listed before those below it are looked for, so that what is made
    // meanwhile is found here or inherits it there.
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

/// Where a group is.
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

/// Groups stay where they are; new ones get places of which nobody is.
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
        if let Some(number) = (0..MOST_GROUPS).find(is_free).filter(|_| !is_there) {
            places.push(Place { group, number, is_new: true });
        }
    }
    places
}

/// Leaves cgroups the bits of groups that stay.
fn take_back(table: &mut HashMap<MapData, u64, u32>, kept: u32) {
    let numbers: Vec<u64> = table.keys().filter_map(Result::ok).collect();
    for number in numbers {
        let bits = table.get(&number, 0).unwrap_or(0) & kept;
        // One that a program has just removed is none of our business.
        let _ = if bits == 0 { table.remove(&number) } else { table.insert(number, bits, 0) };
    }
}

/// The pinned table.
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
