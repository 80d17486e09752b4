//! Disks that are full: whatever can't be written is told in one line, and the exit status is not
//! that of success.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    kernel::permitted,
    support::{Finished, TestDir, run, tompion, wait_until},
};

/// A small disk below a folder of the test's, until it is dropped.
struct Disk(PathBuf);

impl Disk {
    /// None where this user can't mount any.
    fn new(dir: &TestDir, size: &str) -> Option<Self> {
        let place = dir.path("disk");
        std::fs::create_dir(&place).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tompion-test"]).arg(&place);
        let mounted = run(&mut mount);
        if !mounted.status.success() {
            eprintln!("SKIPPED, no disk can be mounted here: {}", mounted.err.trim());
            return None;
        }
        Some(Self(place))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn free(&self) -> u64 {
        let system = rustix::fs::statvfs(&self.0).expect("a file system");
        system.f_bavail * system.f_frsize
    }

    /// Fills the disk until so many bytes are free.
    fn leave(&self, free: u64) {
        let filler = vec![1; self.free().checked_sub(free).expect("enough room") as usize];
        std::fs::write(self.path("filler"), filler).expect("a file");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

/// Asserts that the command ended with this status, and that one line reports the full disk.
fn assert_disk_full(finished: Finished, status: i32, what: &str) -> Finished {
    let finished = finished.exited(status);
    let lines = finished.err.lines().filter(|line| line.contains("No space left on device"));
    assert_eq!(lines.count(), 1, "{what}: {}", finished.err);
    assert!(!finished.err.contains("panicked"), "{what}: {}", finished.err);
    finished
}

/// Missing events are counted, by the last line and in the trace.
fn is_known(disk: &Disk, finished: &Finished, what: &str) {
    assert!(finished.err.contains("not_written: "), "{what}: {}", finished.err);
    assert!(finished.err.contains("(make room there, "), "{what}: {}", finished.err);
    assert!(!finished.err.contains("--subbuf-size"), "a larger one would not help: {}", finished.err);
    let stat = run(tompion().args(["stat", "--json"]).arg(disk.path("trace"))).succeeded();
    assert!(stat.out.contains("\"not_written\": ") && !stat.out.contains("incomplete"), "{what}: {stat:?}");
}

fn record(disk: &Disk, options: &[&str], command: &[&dyn AsRef<std::ffi::OsStr>]) -> Finished {
    let mut record = tompion();
    record.args(["record", "-o"]).arg(disk.path("trace")).args(options).arg("--");
    run(record.args(command.iter().map(|word| word.as_ref())))
}

/// Records a trace that is larger than a megabyte.
fn trace(dir: &TestDir) -> PathBuf {
    dir.record(&["--subbuf-size", "4M"], &[&dir.program("order"), &"60000"]).folder
}

#[test]
fn the_kernels_events_without_room_are_no_success() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let order = dir.program("order");
    for mode in ["discard", "overwrite"] {
        let Some(disk) = Disk::new(&dir, "1M") else { return };
        let options = ["-k", "syscall_*_getpgid", "-e", "nothing:*", "--subbuf-size", "4M", "--mode", mode];
        let finished = assert_disk_full(record(&disk, &options, &[&order, &"60000"]), 125, mode);
        is_known(&disk, &finished, mode);
        drop(disk);
        std::fs::remove_dir(dir.path("disk")).expect("an empty folder");
    }
}

#[test]
fn events_of_programs_without_room_are_no_success() {
    let dir = TestDir::new();
    let order = dir.program("order");
    for mode in ["discard", "overwrite"] {
        let Some(disk) = Disk::new(&dir, "1M") else { return };
        let options = ["--subbuf-size", "4M", "--mode", mode];
        let finished = assert_disk_full(record(&disk, &options, &[&order, &"60000"]), 125, mode);
        is_known(&disk, &finished, mode);
        drop(disk);
        std::fs::remove_dir(dir.path("disk")).expect("an empty folder");
    }
}

#[test]
fn output_on_a_full_disk_is_a_failure() {
    let dir = TestDir::new();
    let trace = trace(&dir);
    let Some(disk) = Disk::new(&dir, "256K") else { return };
    for words in [&["trim"][..], &["merge"], &["export", "--to", "ctf1"], &["export", "--to", "ctf2"]] {
        let mut command = tompion();
        command.args(words).arg("-o").arg(disk.path("made")).arg(&trace);
        assert_disk_full(run(&mut command), 1, words[0]);
        let _ = std::fs::remove_dir_all(disk.path("made"));
    }
}

#[test]
fn a_printed_trace_without_room_is_no_success() {
    let full = Path::new("/dev/full");
    let dir = TestDir::new();
    let trace = trace(&dir);
    for words in [&["print"][..], &["stat"], &["print", "--format", "json"]] {
        let output = std::fs::File::options().write(true).open(full).expect("a full disk");
        let mut child = tompion();
        let output = child.args(words).arg(&trace).stdout(output).output().expect("tompion");
        let reported = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {reported}");
        assert_eq!(reported.lines().count(), 1, "{words:?}: {reported}");
    }
}

/// The command's server for a trace, with the user's cache in this folder.
fn view(trace: &Path, cache: &Path) -> Child {
    let mut view = tompion();
    view.args(["view", "--no-open"]).arg(trace).env("XDG_CACHE_HOME", cache);
    let mut server = view.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command");
    let mut url = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut url).expect("a line");
    server
}

/// Ends a server that this test has started. Returns what it has said.
fn end(mut server: Child) -> String {
    server.kill().expect("a server");
    let mut reported = String::new();
    server.stderr.take().expect("a pipe").read_to_string(&mut reported).expect("text");
    server.wait().expect("its end");
    reported
}

#[test]
fn a_recording_loses_nothing_to_the_index_on_its_disk() {
    /// A tenth of the disk, which is left to recordings.
    const RESERVE: u64 = 32 * (1 << 20) / 10;
    let dir = TestDir::new();
    let order = dir.program("order");
    let kept = trace(&dir);
    // More than the index of a trace of some megabytes is expected to take.
    let enough = RESERVE + (6 << 20);
    for (number, (free, is_beside)) in
        [(enough, true), (RESERVE + (128 << 10), false)].into_iter().enumerate()
    {
        let Some(disk) = Disk::new(&dir, "32M") else { return };
        run(Command::new("cp").arg("-r").arg(&kept).arg(disk.path("read"))).succeeded();
        disk.leave(free);
        let cache = dir.path(&format!("cache{number}"));
        let server = view(&disk.path("read"), &cache);
        let recorded = record(&disk, &[], &[&order, &"20000"]).succeeded();
        let in_cache = || {
            let folders = std::fs::read_dir(cache.join("tompion/view")).into_iter().flatten().flatten();
            folders.into_iter().any(|folder| folder.path().join("index").exists())
        };
        let beside = disk.path("read/.tompion-view/index");
        wait_until("an index", || beside.exists() || in_cache());
        let reported = end(server);
        assert_eq!((beside.exists(), in_cache()), (is_beside, !is_beside), "{reported}");
        let lines = reported.lines().filter(|line| line.contains("are left to recordings")).count();
        assert_eq!(lines, usize::from(!is_beside), "{reported}");
        assert!(recorded.err.contains("none lost"), "{}", recorded.err);
        drop(disk);
        std::fs::remove_dir(dir.path("disk")).expect("an empty folder");
    }
}
