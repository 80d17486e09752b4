//! Initial state of processes, their threads, and the files that they have open.

use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{Kind, machine::entries, record::Recording};

/// LTTng's numbers for a thread's type, mode, submode and status (`lttng-statedump-impl.c`).
const USER_THREAD: u32 = 0;
const KERNEL_THREAD: u32 = 1;
const MODE_UNKNOWN: u32 = 5;
const SUBMODE_UNKNOWN: u32 = 1;
const UNNAMED: u32 = 0;
const WAIT_CPU: u32 = 2;
const ZOMBIE: u32 = 4;
const WAIT: u32 = 5;
const DEAD: u32 = 7;
/// Bit of a thread's flags in `stat` (`PF_KTHREAD` in the kernel's `sched.h`).
const IS_KERNEL_THREAD: u64 = 0x0020_0000;
/// Bits of a file's flags that say how it may be used (`fcntl.h`), and what one must add to get the
/// kernel's mode.
const ACCESS: u32 = 3;

/// All processes that can be seen.
pub(super) fn all(recording: &mut Recording<'_>) {
    let own = fs::read_link("/proc/self/ns/pid").ok();
    let folders = entries(Path::new("/proc")).into_iter();
    let mut processes: Vec<_> =
        folders.filter_map(|(folder, name)| Some((name.parse::<u32>().ok()?, folder))).collect();
    processes.sort_unstable();
    for (pid, folder) in processes {
        let shares = fs::read_link(folder.join("ns/pid")).ok() == own;
        for (task, _) in entries(&folder.join("task")) {
            if let Some(thread) = Thread::read(&task, pid, shares) {
                thread.record(recording);
            }
        }
        files(pid, &folder, recording);
    }
}

/// Facts about a thread.
#[derive(Debug, PartialEq, Eq)]
struct Thread {
    /// Ids as this process sees them: of the thread, its process, and the process's parent.
    ids: [u32; 3],
    /// Ids of the thread, its process and its parent, in the thread's own pid namespace.
    inner: [u32; 3],
    /// Number of namespaces of process ids around it.
    level: u32,
    name: Vec<u8>,
    state: u8,
    is_kernel_thread: bool,
    cpu: u32,
}

impl Thread {
    /// Reads a thread's folder. Nothing if it has ended.
    fn read(task: &Path, pid: u32, shares_namespace: bool) -> Option<Self> {
        let mut thread = Self::parse(&fs::read(task.join("stat")).ok()?, pid)?;
        if !shares_namespace {
            thread.look_inside(&fs::read_to_string(task.join("status")).ok()?);
        }
        Some(thread)
    }

    /// Source: `proc_pid_stat(5)`. The name may have anything in it, brackets too.
    fn parse(stat: &[u8], pid: u32) -> Option<Self> {
        let open = stat.iter().position(|byte| *byte == b'(')?;
        let close = stat.iter().rposition(|byte| *byte == b')').filter(|close| *close > open)?;
        let rest = std::str::from_utf8(stat.get(close + 2..)?).ok()?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The state is the third of the manual's fields, and the first word here.
        let field = |number: usize| words.get(number - 3)?.parse::<u64>().ok();
        let tid = std::str::from_utf8(&stat[..open]).ok()?.trim().parse().ok()?;
        let ids = [tid, pid, field(4)? as u32];
        Some(Self {
            ids,
            inner: ids,
            level: 0,
            name: stat[open + 1..close].to_vec(),
            state: *words.first()?.as_bytes().first()?,
            is_kernel_thread: field(9)? & IS_KERNEL_THREAD != 0,
            cpu: field(39)? as u32,
        })
    }

    /// Takes its own view of its ids from its `status`: each line has one for each namespace, the
    /// innermost last.
    fn look_inside(&mut self, status: &str) {
        let last = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let ids: Vec<u32> = line.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect();
            Some((*ids.last()?, ids.len() as u32 - 1))
        };
        if let (Some((tid, level)), Some((pid, _))) = (last("NSpid:"), last("NStgid:")) {
            // The parent's id in there is unknown; outside of it, it is 0.
            let parent = if level == 0 { self.ids[2] } else { 0 };
            (self.inner, self.level) = ([tid, pid, parent], level);
        }
    }

    /// All that could run wait for a CPU: the next switch tells which one had it.
    fn status(&self) -> u32 {
        match self.state {
            b'R' => WAIT_CPU,
            b'S' | b'D' | b'I' => WAIT,
            b'Z' => ZOMBIE,
            b'X' | b'x' => DEAD,
            _ => UNNAMED,
        }
    }

    fn record(&self, recording: &mut Recording<'_>) {
        recording.add(Kind::Process, |payload| {
            for (id, inner) in self.ids.iter().zip(self.inner) {
                payload.word(*id);
                payload.word(inner);
            }
            payload.name(&self.name);
            payload.word(if self.is_kernel_thread { KERNEL_THREAD } else { USER_THREAD });
            payload.word(MODE_UNKNOWN);
            payload.word(SUBMODE_UNKNOWN);
            payload.word(self.status());
            payload.word(self.level);
            payload.word(self.cpu);
        });
    }
}

/// The files that a process has open.
fn files(pid: u32, folder: &Path, recording: &mut Recording<'_>) {
    let found = entries(&folder.join("fd")).into_iter();
    let mut found: Vec<(u32, PathBuf)> =
        found.filter_map(|(path, name)| Some((name.parse().ok()?, path))).collect();
    found.sort_unstable();
    for (fd, path) in found {
        let Ok(target) = fs::read_link(path) else { continue };
        let flags = flags_of(&folder.join("fdinfo").join(fd.to_string()));
        recording.add(Kind::File, |payload| {
            payload.word(pid);
            payload.word(fd);
            payload.word(flags);
            payload.word(((flags & ACCESS) + 1) & ACCESS);
            payload.text(target.as_os_str().as_bytes());
        });
    }
}

/// Returns the flags with which a file was opened. Source: `proc_pid_fdinfo(5)`, in octal.
fn flags_of(path: &Path) -> u32 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("flags:"));
    line.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str =
        "S 1 2 3 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0";

    #[test]
    fn a_name_may_be_anything() {
        let thread = Thread::parse(format!("42 (a) R (b) {REST}").as_bytes(), 40).unwrap();
        assert_eq!((thread.ids, &*thread.name, thread.cpu), ([42, 40, 1], &b"a) R (b"[..], 3));
        assert_eq!((thread.status(), thread.is_kernel_thread), (WAIT, true));
        for length in 0..30 {
            let stat = format!("42 (a) {REST}");
            assert_eq!(Thread::parse(&stat.as_bytes()[..length], 40), None);
        }
    }

    #[test]
    fn a_thread_sees_its_own_numbers() {
        let mut thread = Thread::parse(format!("42 (a) {REST}").as_bytes(), 40).unwrap();
        thread.look_inside("Name:\ta\nNStgid:\t40\t7\nNSpid:\t42\t9\n");
        assert_eq!((thread.inner, thread.level), ([9, 7, 0], 1));
    }
}
