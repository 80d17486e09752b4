//! Facts of processes that `/proc` has in files of one line.

use std::{fs, path::Path};

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
