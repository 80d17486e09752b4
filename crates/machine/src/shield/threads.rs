//! Threads, as `/proc` lists them; those of the kernel are moved away.

use std::io;

use super::{
    Moved, Places,
    notes::{Change, Notes},
};
use crate::{CpuSet, Root, root::words_of};

/// A thread of the kernel (`PF_KTHREAD`). Source: `include/linux/sched.h`.
const KERNEL: u64 = 0x0020_0000;
/// A thread that is bound to where it is (`PF_NO_SETAFFINITY`).
const BOUND: u64 = 0x0400_0000;
/// The system's number for a thread that isn't there.
const ESRCH: i32 = 3;

/// Moves away the threads of the kernel that can be moved, and may run on the CPUs.
pub(super) fn move_away(places: Places<'_>, notes: &mut Notes, moved: &mut Moved) {
    let Places { root, .. } = places;
    for (tid, _) in root.numbered("/proc", "") {
        if !is_kernel(root, tid) || is_bound(root, tid) {
            continue;
        }
        let Some((started, now)) = start_of(root, tid).zip(affinity_of(root, tid)) else { continue };
        let Some(after) = places.moved(&now) else { continue };
        let noted = notes.add(&Change::Thread { tid, started, before: now.to_string() });
        match noted.map_err(|error| error.to_string()).and_then(|()| {
            set_affinity(root, tid, &after).or_else(unless_gone).map_err(|error| words_of(&error))
        }) {
            Ok(()) => moved.kernel_threads += 1,
            Err(reason) => {
                let name = name_of(root, tid);
                moved.problems.push(format!("thread {tid} of the kernel ({name}) stays: {reason}"));
            }
        }
    }
}

fn unless_gone(error: io::Error) -> io::Result<()> {
    if is_gone(&error) { Ok(()) } else { Err(error) }
}

/// Whether an error says that there is no such thread any more.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ESRCH)
}

/// Fields behind the name in a thread's line of state: its third field is the first of these. The
/// name can have spaces and parentheses in it.
fn field(root: &Root, tid: u32, number: usize) -> Option<u64> {
    let stat = root.read_if_any(&format!("/proc/{tid}/stat"))?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn flags(root: &Root, tid: u32) -> u64 {
    field(root, tid, 9).unwrap_or(0)
}

pub(super) fn is_kernel(root: &Root, tid: u32) -> bool {
    flags(root, tid) & KERNEL != 0
}

pub(super) fn is_bound(root: &Root, tid: u32) -> bool {
    flags(root, tid) & BOUND != 0
}

/// Start of a thread, in the kernel's ticks since its own start.
pub(super) fn start_of(root: &Root, tid: u32) -> Option<u64> {
    field(root, tid, 22)
}

/// The CPUs on which a thread may run.
pub(super) fn affinity_of(root: &Root, tid: u32) -> Option<CpuSet> {
    let status = root.read_if_any(&format!("/proc/{tid}/status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    CpuSet::from_list(list).ok()
}

pub(super) fn name_of(root: &Root, tid: u32) -> String {
    root.read_if_any(&format!("/proc/{tid}/comm")).unwrap_or_else(|| "gone".into())
}

/// Lets a thread run on these CPUs. In a fixture no thread has such numbers: their affinity is
/// written to a file.
pub(super) fn set_affinity(root: &Root, tid: u32, cpus: &CpuSet) -> io::Result<()> {
    if root.is_real() {
        let cpus: Vec<u32> = cpus.iter().collect();
        return tompion_os::set_affinity(tid, &cpus);
    }
    root.write(&format!("/proc/{tid}/affinity"), &cpus.to_string())
}
