//! Facts of processes that `/proc` has in files of one line.

use std::{collections::BTreeSet, fs, path::Path};

pub use tompion_os::stat_field;

/// A process's parent. Source: field 4 of `proc_pid_stat(5)`.
pub fn parent_of(pid: u32) -> Option<u32> {
    let parent = stat_field(Path::new(&format!("/proc/{pid}")), 4)?;
    u32::try_from(parent).ok().filter(|parent| *parent != 0)
}

/// Process of a thread, if it is still there. Source: `Tgid` in `proc_pid_status(5)`.
pub fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Ids of all processes that can be seen.
pub fn all_processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
/// Finds the processes of a name: that of the process, of which Linux keeps 15 bytes, or that of
/// its executable. The caller is never among them.
pub fn processes_named(name: &str) -> Vec<u32> {
    let is_named = |pid: &u32| {
        let pid = pid.to_string();
        let program = || tompion_os::executable_of(&pid).and_then(|path| Some(path.file_name()? == name));
        tompion_os::name_of(&pid).is_some_and(|found| found == name) || program() == Some(true)
    };
    let own = std::process::id();
    let mut found: Vec<u32> = all_processes().filter(|pid| *pid != own).filter(is_named).collect();
    found.sort_unstable();
    found
}

/// Names of all processes that can be seen.
pub fn process_names() -> BTreeSet<String> {
    all_processes().filter_map(|pid| tompion_os::name_of(&pid.to_string())).collect()
}
