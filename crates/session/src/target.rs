//! Targets of a session: a command, processes that run, all programs of a user, or programs that
//! record themselves into a folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
};

use tompion_lineage::proc_files::{all_processes, parent_of};

use crate::messages::summarize_names;

/// Target of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A command that the session starts, and all programs that inherit its environment.
    Command(Vec<String>),
    /// Processes that run already, and the children that they have from now on.
    Processes(ProcessTree),
    /// All instrumented programs of the user, those that run and those that start later.
    Everything,
    /// Programs that were told to record themselves into a folder; the name under which they look
    /// for the session. It ends when they all have.
    SharedFolder(String),
}

impl Target {
    /// The command with its arguments, if that is the target.
    pub fn command(&self) -> &[String] {
        match self {
            Self::Command(words) => words,
            _ => &[],
        }
    }

    /// The processes that run already, if they are the target: named ones first.
    pub fn processes(&self) -> Vec<u32> {
        match self {
            Self::Processes(family) => family.members().collect(),
            _ => Vec::new(),
        }
    }

    /// The target in words.
    pub fn describe(&self) -> String {
        match self {
            Self::Command(words) => format!("`{}`", words.first().map_or("", String::as_str)),
            Self::Processes(family) => match family.named[..] {
                [pid] => format!("process {pid}"),
                _ => format!("{} processes", family.named.len()),
            },
            Self::Everything => "the programs of this user".into(),
            Self::SharedFolder(_) => "the program".into(),
        }
    }
}

/// Processes that the user has named, and their running descendants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessTree {
    /// Ids of the processes that were named, each once.
    pub named: Vec<u32>,
    /// Ids of their descendants that are recorded as well.
    pub descendants: Vec<u32>,
    /// Whether running descendants belong to the family.
    pub has_descendants: bool,
    /// Whether one of the named processes was there when they were named.
    pub was_there: bool,
}

impl ProcessTree {
    /// The named processes, and if wanted all descendants that they have now.
    pub fn new(named: Vec<u32>, has_descendants: bool) -> Self {
        let mut known = BTreeSet::new();
        let named: Vec<u32> = named.into_iter().filter(|pid| known.insert(*pid)).collect();
        let was_there = named.iter().any(|pid| Path::new("/proc").join(pid.to_string()).exists());
        let mut family = Self { named, descendants: Vec::new(), has_descendants, was_there };
        family.descendants = family.find_more();
        family
    }

    /// Finds descendants that the family does not have yet.
    pub fn find_more(&self) -> Vec<u32> {
        if !self.has_descendants {
            return Vec::new();
        }
        let children = children_of_all();
        let mut known: BTreeSet<u32> = self.members().collect();
        let mut found = Vec::new();
        let mut parents: Vec<u32> = self.members().collect();
        while let Some(parent) = parents.pop() {
            for child in children.get(&parent).into_iter().flatten() {
                if known.insert(*child) {
                    found.push(*child);
                    parents.push(*child);
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// All processes of the family, named ones first.
    pub fn members(&self) -> impl Iterator<Item = u32> {
        self.named.iter().chain(&self.descendants).copied()
    }

    /// Describes the family in words, if it has more members than one: a name may stand for several
    /// processes, and descendants may run already.
    pub fn describe_members(&self) -> Option<String> {
        let name = |pid: &u32| match tompion_os::name_of(&pid.to_string()) {
            Some(name) => format!("{name} ({pid})"),
            None => pid.to_string(),
        };
        let named = summarize_names(&self.named.iter().map(name).collect::<Vec<_>>());
        match self.descendants.len() {
            0 if self.named.len() < 2 => None,
            0 => Some(format!("recording {named}")),
            1 => Some(format!("recording {named} and 1 running child")),
            count => Some(format!("recording {named} and {count} running descendants")),
        }
    }
}

/// Children of each process, of those that can be seen.
fn children_of_all() -> BTreeMap<u32, Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in all_processes() {
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}

/// Rule for the processes that are admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Any process that knows the name.
    Anyone,
    /// These processes and their descendants.
    ProcessTree(Vec<u32>),
}

impl Admission {
    /// Whether a process may come in.
    pub fn admits(&self, pid: u32) -> bool {
        match self {
            Self::Anyone => true,
            Self::ProcessTree(heads) => ancestry(pid).any(|ancestor| heads.contains(&ancestor)),
        }
    }
}

/// Whether a process is gone, so that its parents are unknown.
pub fn is_gone(pid: u32) -> bool {
    pid != 0 && !Path::new(&format!("/proc/{pid}")).exists()
}

/// A process and its ancestors, from the process on.
fn ancestry(pid: u32) -> impl Iterator<Item = u32> {
    const MAX_GENERATIONS: usize = 1000;
    std::iter::successors(Some(pid), |pid| parent_of(*pid)).take(MAX_GENERATIONS)
}

/// Whether a process belongs to one of these users.
pub fn is_of(pid: u32, users: &[u32]) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| users.contains(&process.uid()))
}

#[cfg(test)]
mod tests {
    use tompion_lineage::proc_files::{process_names, processes_named};

    use super::*;

    #[test]
    fn a_family_is_a_process_and_its_descendants() {
        let own = std::process::id();
        let parent = parent_of(own).unwrap();
        assert!(Admission::Anyone.admits(1));
        assert!(Admission::ProcessTree(vec![own]).admits(own));
        assert!(Admission::ProcessTree(vec![parent]).admits(own));
        assert!(!Admission::ProcessTree(vec![own]).admits(parent));
    }

    #[test]
    fn descendants_that_run_already_belong_to_a_family() {
        let mut shell = std::process::Command::new("sh");
        let mut shell = shell.args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let child = loop {
            let alone = ProcessTree::new(vec![shell.id(), shell.id()], false);
            assert_eq!(alone.members().collect::<Vec<_>>(), [shell.id()]);
            let family = ProcessTree::new(vec![shell.id()], true);
            if let [child] = family.descendants[..] {
                assert!(family.find_more().is_empty());
                break child;
            }
        };
        // It is called `sh` until it has executed its program.
        while !processes_named("sleep").contains(&child) {}
        assert!(process_names().contains("sleep") && processes_named("no-such-process").is_empty());
        tompion_os::kill(child, tompion_os::signal::SIGKILL).unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn who_has_ended_is_nobodys_child() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(is_gone(pid) && !Admission::ProcessTree(vec![std::process::id()]).admits(pid));
        assert!(!is_gone(std::process::id()));
    }
}
