//! Control groups: one that has the CPUs alone; in version 1, another one for all other threads.
//!
//! | | version 2 | version 1 |
//! |---|---|---|
//! | exclusive CPUs | `cpuset.cpus.partition` = `isolated` | `cpuset.sched_load_balance` = 0, there and at the top |
//! | all other threads | the kernel takes the CPUs from all other groups | all threads of the top move to `tompion-rest` |
//! | no load balancing on them | part of `isolated` | as no group that balances has them |

use std::{collections::BTreeSet, fs, io};

use super::{
    Error, Moved, Places,
    notes::{Change, Notes},
    threads,
};
use crate::{CpuSet, Root, root::words_of};

const SHIELD: &str = "tompion-shield";
const REST: &str = "tompion-rest";
/// Rounds of moving threads that were started meanwhile.
const ROUNDS: u32 = 16;

/// Folder of the cpusets, below the root.
#[derive(Debug, PartialEq, Eq)]
enum Hierarchy {
    Version1(String),
    Version2(String),
}

/// Makes the groups. Returns the path of the `cgroup.procs` of the one that has the CPUs.
pub(super) fn make(places: Places<'_>, notes: &mut Notes, moved: &mut Moved) -> Result<String, Error> {
    let folder = match hierarchy(places.root)? {
        Hierarchy::Version2(top) => partition(places, notes, &top)?,
        Hierarchy::Version1(top) => split(places, notes, &top, moved)?,
    };
    Ok(format!("{folder}/cgroup.procs"))
}

/// Looks for the mounted hierarchy whose controllers include that of CPUs.
///
/// Source: `proc_pid_mountinfo(5)`; `Documentation/admin-guide/cgroup-v2.rst` and
/// `cgroup-v1/cpusets.rst`.
fn hierarchy(root: &Root) -> Result<Hierarchy, Error> {
    let mounts = root.read("/proc/self/mountinfo")?;
    let mut version_1 = None;
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let (Some(top), mut kind) = (before.split_whitespace().nth(4), after.split_whitespace()) else {
            continue;
        };
        match (kind.next(), kind.next_back()) {
            (Some("cgroup2"), _) => {
                let controllers = root.read_if_any(&format!("{top}/cgroup.controllers")).unwrap_or_default();
                if has_word(&controllers) {
                    return Ok(Hierarchy::Version2(top.to_owned()));
                }
            }
            (Some("cgroup"), Some(options)) if options.split(',').any(|option| option == "cpuset") => {
                version_1 = Some(Hierarchy::Version1(top.to_owned()));
            }
            _ => {}
        }
    }
    version_1.ok_or(Error::NoCpusets)
}

fn has_word(controllers: &str) -> bool {
    controllers.split_whitespace().any(|controller| controller == "cpuset")
}

fn make_group(notes: &mut Notes, root: &Root, group: &Change) -> Result<(), Error> {
    let Change::Group { folder, .. } = group else { return Ok(()) };
    notes.add(group)?;
    match fs::create_dir(root.place(folder)) {
        // One that was left without notes is as good.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::Unwritten(folder.clone(), error))
        }
        _ => Ok(()),
    }
}

fn set(root: &Root, path: String, text: &str) -> Result<(), Error> {
    root.write(&path, text).map_err(|error| Error::Unwritten(path, error))
}

/// Version 2: the kernel takes the CPUs from all other groups, and from their threads.
fn partition(places: Places<'_>, notes: &mut Notes, top: &str) -> Result<String, Error> {
    let Places { root, cpus, .. } = places;
    let control = format!("{top}/cgroup.subtree_control");
    if !has_word(&root.read(&control)?) {
        notes.add(&Change::Controller { folder: top.to_owned() })?;
        set(root, control, "+cpuset")?;
    }
    let folder = format!("{top}/{SHIELD}");
    let group = Change::Group {
        folder: folder.clone(),
        home: own_group(root, top),
        members: "cgroup.procs".to_owned(),
    };
    make_group(notes, root, &group)?;
    set(root, format!("{folder}/cpuset.cpus"), &cpus.to_string())?;
    let partition = format!("{folder}/cpuset.cpus.partition");
    if let Err(error) = root.write(&partition, "isolated") {
        let reason = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::InvalidInput => {
                "isolated partitions need Linux 6.1 or later".to_owned()
            }
            _ => words_of(&error),
        };
        return Err(Error::Refused { cpus: cpus.clone(), reason });
    }
    match root.read(&partition)? {
        state if state == "isolated" => Ok(folder),
        state => Err(Error::Refused { cpus: cpus.clone(), reason: format!("it says `{state}`") }),
    }
}

/// The group of version 2 in which this process is, to which the command belongs when its own is
/// gone.
fn own_group(root: &Root, top: &str) -> String {
    let groups = root.read_if_any("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let own = format!("{top}/{own}").trim_end_matches('/').to_owned();
    if root.place(&own).is_dir() { own } else { top.to_owned() }
}

/// Version 1: all threads at the top move to a group without the CPUs, and only that one is
/// balanced.
fn split(places: Places<'_>, notes: &mut Notes, top: &str, moved: &mut Moved) -> Result<String, Error> {
    let Places { root, cpus, rest } = places;
    let memory = root.read(&format!("{top}/cpuset.mems"))?;
    warn_of_others(places, top, moved);
    let everybody = super::cpus_of(root, &format!("{top}/cpuset.cpus"))?;
    // Undone after the groups, as noted before: the kernel forgets the affinity of threads that are
    // moved (before Linux 6.2).
    for thread in members(root, top) {
        note_choice(root, notes, thread, &everybody)?;
    }
    let balance = format!("{top}/cpuset.sched_load_balance");
    let before = root.read(&balance)?;
    let group = |name: &str| Change::Group {
        folder: format!("{top}/{name}"),
        home: top.to_owned(),
        members: "tasks".to_owned(),
    };
    for (name, cpus, balanced) in [(REST, rest, "1"), (SHIELD, cpus, "0")] {
        make_group(notes, root, &group(name))?;
        set(root, format!("{top}/{name}/cpuset.cpus"), &cpus.to_string())?;
        set(root, format!("{top}/{name}/cpuset.mems"), &memory)?;
        set(root, format!("{top}/{name}/cpuset.sched_load_balance"), balanced)?;
    }
    move_members(root, top, moved);
    notes.set(&balance, &before, "0")?;
    Ok(format!("{top}/{SHIELD}"))
}

/// Notes on which CPUs a thread has chosen to run, if it has.
fn note_choice(root: &Root, notes: &mut Notes, tid: u32, everybody: &CpuSet) -> Result<(), Error> {
    let chosen = threads::affinity_of(root, tid).filter(|cpus| cpus != everybody);
    let Some((started, cpus)) = threads::start_of(root, tid).zip(chosen) else { return Ok(()) };
    if threads::is_bound(root, tid) {
        return Ok(());
    }
    notes.add(&Change::Thread { tid, started, before: cpus.to_string() })
}

/// The threads in a group of version 1.
fn members(root: &Root, group: &str) -> Vec<u32> {
    let text = root.read_if_any(&format!("{group}/tasks")).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Moves all threads from the top to the group of the other threads, also those that start
/// meanwhile.
fn move_members(root: &Root, top: &str, moved: &mut Moved) {
    let mut seen = BTreeSet::new();
    for _ in 0..ROUNDS {
        let new: Vec<u32> = members(root, top).into_iter().filter(|tid| seen.insert(*tid)).collect();
        if new.is_empty() {
            return;
        }
        for tid in new {
            let is_kernel = threads::is_kernel(root, tid);
            match root.write(&format!("{top}/{REST}/tasks"), &tid.to_string()) {
                Ok(()) if is_kernel => moved.kernel_threads += 1,
                Ok(()) => {}
                // Threads of the kernel that are bound to a CPU, or never leave the top.
                Err(_) if is_kernel => {}
                Err(error) if threads::is_gone(&error) => {}
                Err(error) => {
                    let name = threads::name_of(root, tid);
                    moved.problems.push(format!("thread {tid} ({name}) stays: {}", words_of(&error)));
                }
            }
        }
    }
}

/// Tells of groups of version 1 that have the CPUs, too: what is in them goes on there.
fn warn_of_others(places: Places<'_>, top: &str, moved: &mut Moved) {
    let Places { root, cpus, .. } = places;
    for name in root.names(top).iter().filter(|name| ![SHIELD, REST].contains(&name.as_str())) {
        let folder = format!("{top}/{name}");
        let theirs = root.read_if_any(&format!("{folder}/cpuset.cpus"));
        let theirs = theirs.and_then(|text| CpuSet::from_list(&text).ok()).unwrap_or_default();
        if !theirs.shared_with(cpus).is_empty() {
            moved.problems.push(format!("control group {folder} has CPUs {theirs}, and keeps them"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(mounts: &str, controllers: &str) -> Result<Hierarchy, Error> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [("proc/self/mountinfo", mounts), ("cg/cgroup.controllers", controllers)] {
            let place = folder.path().join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        }
        hierarchy(&Root::new(folder.path()))
    }

    #[test]
    fn the_hierarchy_that_knows_of_cpus_is_taken() {
        let two = "30 22 0:26 / /cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let one = "31 22 0:27 / /cg1/cpuset rw - cgroup cgroup rw,cpuset\n";
        let other = "32 22 0:28 / /cg1/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
        let found = |mounts: &[&str], controllers| with(&mounts.concat(), controllers).unwrap();
        assert_eq!(found(&[two], "cpuset cpu io\n"), Hierarchy::Version2("/cg".into()));
        assert_eq!(found(&[one, two], "cpuset\n"), Hierarchy::Version2("/cg".into()));
        assert_eq!(found(&[two, other, one], "cpu\n"), Hierarchy::Version1("/cg1/cpuset".into()));
        for (mounts, controllers) in
            [("", ""), (other, "cpuset"), (two, "io memory"), ("nonsense\n - \n", "")]
        {
            assert!(matches!(with(mounts, controllers), Err(Error::NoCpusets)), "{mounts}");
        }
    }
}
