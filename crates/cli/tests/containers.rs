//! Programs in containers, as namespaces make them: which of them a recorder outside finds, and by
//! which mount. Each row of the table in `docs/guide/sessions.md` is tried here.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::PathBuf,
    process::Command,
};

use serde_json::Value;

use crate::{
    attach::Ticker,
    join_sockets::{Recorder, UNPRIVILEGED_UID, folder, is_root, names, program},
    support::{TestDir, installed, run, start, wait_until},
};

/// Namespaces of a container of Docker's, or of a pod's.
const CONTAINER: [&str; 4] = ["--net", "--mount", "--pid", "--fork"];

/// Returns whether this user can make a container's namespaces.
fn has_containers() -> bool {
    let command = |program: &str| Command::new(program).args(CONTAINER).arg("true").status();
    let has = is_root() && installed("unshare") && command("unshare").is_ok_and(|status| status.success());
    if !has {
        eprintln!("SKIPPED, this user can make no container");
    }
    has
}

/// Folder and program of a test, outside of its container.
struct Outside {
    dir: TestDir,
    program: PathBuf,
}

impl Outside {
    fn new(name: &str) -> Self {
        let dir = TestDir::new();
        fs::set_permissions(dir.path("."), fs::Permissions::from_mode(0o755)).expect("own folder");
        let program = program(&dir, "brief", name);
        fs::create_dir(dir.path("inside")).expect("a folder");
        Self { dir, program }
    }

    /// Runs the program in new namespaces, after a script that has mounted what it needs. It looks
    /// into the folder `inside`.
    fn run_inside(&self, namespaces: &[&str], script: &str) {
        let mut unshare = Command::new("unshare");
        unshare.args(namespaces).args(["sh", "-ec"]);
        let script = format!("{script}\n\"$PROGRAM\"");
        unshare.arg(script).env("JOIN", folder(&self.dir)).env("INSIDE", self.dir.path("inside"));
        unshare.env("PROGRAM", &self.program).env("TOMPION_SOCKET", self.dir.path("inside"));
        run(&mut unshare).succeeded();
    }

    /// The only source of a trace.
    fn source(&self, trace: &str) -> Value {
        let manifest = self.dir.trace(trace).manifest();
        let sources = manifest["sources"].as_array().expect("sources").clone();
        assert_eq!((sources.len(), &sources[0]["events"]), (1, &Value::from(2)), "{sources:?}");
        sources[0].clone()
    }
}

#[test]
fn a_program_in_its_own_network_namespace_finds_the_folder() {
    if !has_containers() {
        return;
    }
    let outside = Outside::new("networked");
    let recorder = Recorder::start(&outside.dir, "net", &["name=networked"], &[]);
    let mut unshare = Command::new("unshare");
    unshare.arg("--net").arg(&outside.program).env("TOMPION_SOCKET", folder(&outside.dir));
    run(&mut unshare).succeeded();
    assert_eq!(recorder.processes(), 1);
    recorder.stop().succeeded();
    assert_eq!(outside.source("net")["inner_pid"], Value::Null);
}

#[test]
fn a_container_with_the_folder_mounted_is_recorded_with_both_process_ids() {
    if !has_containers() {
        return;
    }
    let outside = Outside::new("contained");
    let recorder = Recorder::start(&outside.dir, "box", &["name=contained"], &[]);
    // Without the mount it finds nothing, and runs on.
    outside.run_inside(&CONTAINER, "mount -t tmpfs none \"$JOIN\"");
    assert_eq!(recorder.processes(), 0);
    // Its shell executes the program, so the program is the first process of the namespace.
    let script = "mount --bind \"$JOIN\" \"$INSIDE\"; mount -o remount,bind,ro \"$INSIDE\"\n\
                  mount -t tmpfs none \"$JOIN\"; exec setpriv --bounding-set=-all --inh-caps=-all -- \"$PROGRAM\"";
    outside.run_inside(&CONTAINER, script);
    assert_eq!(recorder.processes(), 1);
    recorder.stop().succeeded();
    let source = outside.source("box");
    assert_eq!(source["inner_pid"], Value::from(1));
    assert!(source["pid"].as_i64().expect("an id") > 1);
}

#[test]
fn a_folder_that_stays_is_found_by_containers_that_outlast_the_recorder() {
    if !has_containers() {
        return;
    }
    let outside = Outside::new("lasting-box");
    fs::create_dir(folder(&outside.dir)).expect("a folder");
    let first = Recorder::start(&outside.dir, "first", &["name=lasting-box"], &[]);
    let script = format!(
        "mount --bind \"$JOIN\" \"$INSIDE\"; mount -t tmpfs none \"$JOIN\"; \"$PROGRAM\"\n\
         touch {0}/ready; while ! test -e {0}/again; do sleep 0.01; done",
        outside.dir.path(".").display()
    );
    let mut unshare = Command::new("unshare");
    unshare.args(CONTAINER).args(["sh", "-ec", &format!("{script}\n\"$PROGRAM\"")]);
    unshare.env("JOIN", folder(&outside.dir)).env("INSIDE", outside.dir.path("inside"));
    unshare.env("PROGRAM", &outside.program).env("TOMPION_SOCKET", outside.dir.path("inside"));
    let container = start(&mut unshare);
    wait_until("the container", || outside.dir.path("ready").exists());
    first.stop().succeeded();
    let second = Recorder::start(&outside.dir, "second", &["name=lasting-box"], &[]);
    fs::write(outside.dir.path("again"), "").expect("a file");
    crate::support::finish(container, "the container").succeeded();
    second.stop().succeeded();
    for trace in ["first", "second"] {
        outside.source(trace);
    }
}

#[test]
fn a_rootless_container_joins_its_own_users_recorder_and_not_roots() {
    if !has_containers() {
        return;
    }
    let outside = Outside::new("rootless");
    let rootless = ["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork"];
    let as_user = |script: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(rootless).args(["sh", "-ec", script]).env("PROGRAM", &outside.program);
        unshare.env("JOIN", folder(&outside.dir)).env("TOMPION_SOCKET", folder(&outside.dir));
        unshare.uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID);
        run(&mut unshare)
    };
    if !as_user("true").status.success() {
        return eprintln!("SKIPPED, users can make no user namespace");
    }
    let roots = Recorder::start(&outside.dir, "roots", &["name=rootless"], &[]);
    fs::set_permissions(folder(&outside.dir), fs::Permissions::from_mode(0o755)).expect("own folder");
    as_user("\"$PROGRAM\"").succeeded();
    assert_eq!(roots.processes(), 0);
    roots.stop();
    let place = outside.dir.path("theirs");
    fs::create_dir(&place).expect("a folder");
    rustix::fs::chown(&place, Some(rustix::fs::Uid::from_raw(UNPRIVILEGED_UID)), None).expect("root");
    let mut own = outside.dir.tompion(&["record", "--session", "own", "--programs", "name=rootless", "-o"]);
    own.arg(place.join("trace"))
        .env("TOMPION_SOCKET", place.join("join"))
        .env("TOMPION_CONTROL", place.join("control"));
    let own = start(own.uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID));
    wait_until("a join socket", || !names(&place.join("join")).is_empty());
    as_user(&format!("export TOMPION_SOCKET={}; exec \"$PROGRAM\"", place.join("join").display()))
        .succeeded();
    crate::support::signal(own.id(), rustix::process::Signal::INT);
    crate::support::finish(own, "record").succeeded();
    assert_eq!(outside.source("theirs/trace")["inner_pid"], Value::from(1));
}

#[test]
fn a_program_that_runs_already_in_a_pid_namespace_of_its_own_is_asked() {
    if !has_containers() {
        return;
    }
    let dir = TestDir::new();
    let ticker = program(&dir, "ticker", "boxed-ticker");
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child"]).arg(&ticker).env("TOMPION_SOCKET", "/proc/none");
    let running = Ticker::start(&mut unshare);
    let recorder = Recorder::start(&dir, "running", &["name=boxed-ticker"], &[]);
    wait_until("the program", || recorder.processes() == 1);
    running.end();
    recorder.stop().succeeded();
    assert_eq!(dir.trace("running").manifest()["sources"][0]["inner_pid"], Value::from(1));
}

#[test]
fn a_recorder_in_a_container_counts_programs_that_it_does_not_see() {
    if !has_containers() {
        return;
    }
    let outside = Outside::new("unseen");
    let dir = &outside.dir;
    let recorder = Recorder::start_in(dir, "inner", &["name=unseen"], &["--pid", "--fork", "--mount-proc"]);
    let mut seen = Command::new(&outside.program);
    run(seen.env("TOMPION_SOCKET", folder(dir))).succeeded();
    assert!(recorder.processes() == 0 && recorder.refused("pid namespace") >= 1);
    recorder.stop();
}
