//! Under sudo the command runs as the user who typed it, and the trace is that user's. Needs root,
//! as sudo gives it.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{TestDir, Trace, run};

/// A user and group that every machine has, with no rights.
const UNPRIVILEGED_UID: u32 = 65534;

fn is_root() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !root {
        eprintln!("SKIPPED, only root can run commands as sudo does");
    }
    root
}

/// Sets the variables that sudo sets for another user than root.
fn as_sudo_does(command: &mut Command) -> &mut Command {
    command.env("SUDO_UID", UNPRIVILEGED_UID.to_string()).env("SUDO_GID", UNPRIVILEGED_UID.to_string());
    command.env("SUDO_USER", "nobody").env("SUDO_COMMAND", "tompion record");
    command.env("HOME", "/root").env("USER", "root").env("LOGNAME", "root")
}

/// Returns a folder and everything in it.
fn everything_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let below = folders.iter().flat_map(|folder| everything_in(folder));
    below.chain(files).chain([folder.to_owned()]).collect()
}

/// Checks that a trace has both events of `brief`, and that all of it is the invoking user's.
fn assert_has_brief_events_of_the_user(trace: &Trace) {
    let own = trace.events().into_iter().filter(|event| event.name.starts_with("brief:")).count();
    assert_eq!(own, 2, "{}", trace.folder.display());
    for path in everything_in(&trace.folder) {
        let metadata = fs::metadata(&path).expect("what was listed");
        let owner = (metadata.uid(), metadata.gid());
        assert_eq!(owner, (UNPRIVILEGED_UID, UNPRIVILEGED_UID), "{}", path.display());
    }
}

#[test]
fn the_command_and_the_trace_are_the_invoking_users() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    chown(dir.path(""), Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID)).expect("root gives away");
    let program = dir.program("brief");
    let script = format!(
        "id -u; id -g; id -G; echo $USER $LOGNAME ${{SUDO_UID-none}} $HOME; grep -h CapEff /proc/self/status; \
         touch /etc/tompion-test 2>/dev/null || echo refused; exec {}",
        program.display()
    );
    for (name, options) in [("alone", &[][..]), ("kernel", &["-k"]), ("kept", &["--backing", "rings"])] {
        let mut record = dir.recording(name, options, &[&"sh", &"-c", &script]);
        let out = run(as_sudo_does(&mut record)).succeeded().out;
        let words: Vec<&str> = out.lines().collect();
        assert_eq!(words[..3], ["65534", "65534", "65534"], "{out}");
        assert_eq!(words[3], ["nobody", "nobody", "none", "/nonexistent"].join(" "), "{out}");
        assert_eq!(words[4..], ["CapEff:\t0000000000000000", "refused"], "{out}");
        assert_has_brief_events_of_the_user(&dir.trace(name));
    }
}

#[test]
fn the_command_is_roots_where_that_is_wanted_and_the_trace_is_not() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    chown(dir.path(""), Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID)).expect("root gives away");
    let mut record = dir.recording("id", &["--as-root", "--preload", "malloc"], &[&"id", &"-u"]);
    assert_eq!(run(as_sudo_does(&mut record)).succeeded().out, "0\n");
    let mut record = dir.recording("trace", &["--as-root"], &[&dir.program("brief")]);
    run(as_sudo_does(&mut record)).succeeded();
    assert_has_brief_events_of_the_user(&dir.trace("trace"));
}

#[test]
fn a_folder_that_is_not_the_users_is_refused() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    let mut record = dir.recording("refused", &[], &[&"true"]);
    let err = run(as_sudo_does(&mut record)).exited(125).err;
    assert!(err.contains("started sudo and is to own the trace, can't create the folder"), "{err}");
    assert!(!dir.path("refused").exists());
    // Root's own recordings are root's, also through sudo.
    let program = dir.program("brief");
    let mut record = dir.recording("root", &[], &[&program]);
    run(as_sudo_does(&mut record).env("SUDO_UID", "0")).succeeded();
    assert_eq!(fs::metadata(dir.path("root")).expect("a trace").uid(), 0);
}
