//! Root's commands in folders of another user, who lays links there and swaps folders while they
//! run: nothing of root's is written, removed or given away. Under sudo as without it. Needs root,
//! as sudo gives it.

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock, makedev, mknodat};
use serde_json::Value;
use tompion_history::{Fact, Row, Store, simulate::Machine};

use crate::support::{Finished, TOMPION, TestDir, Trace, rounds, run};

/// A user and group that every machine has, with no rights.
const UNPRIVILEGED_UID: u32 = 65534;
/// Content of every file of root's.
const SECRET: &str = "root's own text, which must stay as it is\n";

/// Way in which a command runs as root.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    /// The user calls sudo.
    Sudo,
    /// Root runs it in the user's folder.
    Root,
}

const BOTH: [By; 2] = [By::Sudo, By::Root];

/// A folder of the user's, and a private one of root's beside it.
struct Scene {
    dir: TestDir,
}

impl Scene {
    /// `None` where the test isn't root.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED, only root can run commands as sudo does");
            return None;
        }
        let scene = Self { dir: TestDir::new() };
        fs::set_permissions(scene.dir.path(""), Permissions::from_mode(0o755)).expect("our folder");
        for folder in ["vault", "vault/NAME", "vault/NAME/user", "vault/index", "desk"] {
            fs::create_dir(scene.path(folder)).expect("a folder");
        }
        for file in [
            "vault/secret",
            "vault/tompion.json",
            "vault/tompion.log",
            "vault/metadata",
            "vault/NAME/precious",
        ] {
            fs::write(scene.path(file), SECRET).expect("a file");
        }
        fs::set_permissions(scene.path("vault"), Permissions::from_mode(0o700)).expect("our folder");
        give_away(&scene.path("desk"));
        Some(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path(name)
    }

    /// The user's folder.
    fn desk(&self, name: &str) -> PathBuf {
        self.path("desk").join(name)
    }

    /// The command, in the user's folder.
    fn command(&self, by: By, words: &[&str]) -> Command {
        self.command_after(by, "", words)
    }

    /// The same after a shell command. By descriptor 3, a program reports to its parent that it is
    /// ready.
    fn command_after(&self, by: By, before: &str, words: &[&str]) -> Command {
        self.dir.tompion(&[]);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{before} exec \"$@\" 3>/dev/null"), "sh", TOMPION]).args(words);
        command.env("TZ", "UTC").env_remove("TOMPION_SESSION").env_remove("LD_PRELOAD");
        command.current_dir(self.path("desk")).env("HOME", "/root").env_remove("SUDO_UID");
        if by == By::Sudo {
            command
                .env("SUDO_UID", UNPRIVILEGED_UID.to_string())
                .env("SUDO_GID", UNPRIVILEGED_UID.to_string());
            command.env("SUDO_USER", "nobody").env("SUDO_COMMAND", "tompion");
        }
        command
    }

    /// Returns all of root's files, for comparison.
    fn vault(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32, u32)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.path("vault")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder of root's") {
                let path = entry.expect("an entry").path();
                let metadata = fs::symlink_metadata(&path).expect("what was listed");
                let text = if metadata.is_file() { fs::read(&path).expect("a file") } else { Vec::new() };
                if metadata.is_dir() {
                    folders.push(path.clone());
                }
                found.insert(path, (text, metadata.mode(), metadata.uid()));
            }
        }
        found
    }

    /// Lays a link of the user's.
    fn link(&self, target: &Path, name: &Path) {
        symlink(target, name).unwrap_or_else(|error| panic!("{}: {error}", name.display()));
        lchown(name, Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID)).expect("root gives away");
    }

    /// Makes a trace of the user's whose session was killed, for `recover`.
    fn interrupted(&self, name: &str) -> PathBuf {
        let program = self.dir.program("brief");
        let folder = self.path(name);
        run(&mut self.dir.recording(name, &[], &[&program])).succeeded();
        let manifest = folder.join("tompion.json");
        let text = fs::read_to_string(&manifest).expect("a manifest");
        let mut text: Value = serde_json::from_str(&text).expect("JSON");
        text["state"] = "recording".into();
        text["sources"] = Value::Array(Vec::new());
        fs::write(&manifest, text.to_string()).expect("a manifest");
        give_away(&folder);
        folder
    }
}

/// Gives a folder and all that is in it to the user.
fn give_away(path: &Path) {
    lchown(path, Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID)).expect("root gives away");
    if path.is_dir() && !path.is_symlink() {
        fs::read_dir(path).expect("a folder").for_each(|entry| give_away(&entry.expect("an entry").path()));
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a new folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Paths of all files and folders below a folder, from there on.
fn all_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            found.push(path.strip_prefix(folder).expect("below it").to_owned());
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_recording_without_events_is_removed_where_it_was_made() {
    for by in BOTH {
        let Some(scene) = Scene::new() else { return };
        fs::create_dir(scene.desk("d")).expect("a folder");
        give_away(&scene.desk("d"));
        let before = scene.vault();
        // What the user does while root records: another folder has the name now, with one of the
        // trace's name in it.
        let swap = format!("mv d moved && ln -s {} d", scene.path("vault").display());
        let user = UNPRIVILEGED_UID.to_string();
        let mut words = vec!["record", "-o", "d/NAME", "--"];
        if by == By::Root {
            words.extend(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]);
        }
        words.extend(["sh", "-c", &swap]);
        let err = run(&mut scene.command(by, &words)).exited(125).err;
        assert!(err.contains("nothing recorded"), "{by:?}: {err}");
        assert!(scene.desk("d").is_symlink(), "the swap came to pass");
        assert_eq!(scene.vault(), before, "{by:?}");
        assert!(!scene.desk("moved/NAME").exists(), "{by:?}: what was recorded is removed, wherever it is");
    }
}

#[test]
fn a_recording_stays_in_the_folder_that_was_made() {
    for by in BOTH {
        let Some(scene) = Scene::new() else { return };
        let program = scene.dir.program("brief");
        fs::create_dir(scene.desk("d")).expect("a folder");
        give_away(&scene.desk("d"));
        let before = scene.vault();
        let swap = format!("mv d moved && ln -s {} d", scene.path("vault").display());
        let script = format!(
            "setpriv --reuid {UNPRIVILEGED_UID} --regid {UNPRIVILEGED_UID} --clear-groups sh -c '{swap}'; {}",
            program.display()
        );
        let script = if by == By::Sudo { format!("{swap}; {}", program.display()) } else { script };
        run(&mut scene
            .command(by, &["record", "-o", "d/NEW", "--backing", "rings", "--", "sh", "-c", &script]))
        .succeeded();
        assert_eq!(scene.vault(), before, "{by:?}");
        assert_eq!(Trace { folder: scene.desk("moved/NEW") }.events().len(), 2, "{by:?}");
        assert!(!scene.desk("rings").exists(), "{by:?}");
    }
}

#[test]
fn recovery_writes_through_no_link() {
    for by in BOTH {
        let Some(scene) = Scene::new() else { return };
        let folder = scene.interrupted("desk/trace");
        let index = fs::read_dir(folder.join("user"))
            .expect("a folder")
            .next()
            .expect("a process")
            .expect("an entry");
        let index = index.path().join("index");
        let before = scene.vault();
        let secret = scene.path("vault/secret");
        let stream = fs::read_dir(&index).expect("an index").next().expect("a stream").expect("an entry");
        let stream = stream.file_name().into_string().expect("a name");
        let laid = [
            folder.join("tompion.json.new"),
            folder.join(".tompion-lock"),
            index.join(format!(".{stream}.new")),
        ];
        laid.iter().for_each(|name| scene.link(&secret, name));
        let recovered = run(&mut scene.command(by, &["recover", "trace"]));
        assert_eq!(scene.vault(), before, "{by:?}: {recovered:?}");
        // With the lock's name taken, it refuses; without that it completes the trace, and what was
        // laid is gone.
        recovered.exited(1);
        fs::remove_file(&laid[1]).expect("a link");
        run(&mut scene.command(by, &["recover", "trace"])).succeeded();
        assert_eq!(scene.vault(), before, "{by:?}");
        assert_eq!(Trace { folder: folder.clone() }.manifest()["state"], "recovered");
        assert_eq!(Trace { folder: folder.clone() }.events().len(), 2, "{by:?}");
        let owner = |name: &PathBuf| fs::metadata(folder.join(name)).expect("a file").uid();
        assert!(
            all_below(&folder).iter().all(|name| owner(name) == UNPRIVILEGED_UID),
            "{by:?}: all of it is the user's"
        );
    }
}

#[test]
fn a_user_who_may_read_a_folder_cannot_lock_others_out() {
    let Some(scene) = Scene::new() else { return };
    let folder = scene.interrupted("desk/trace");
    // Any user who may open a folder may lock it, also exclusively.
    let stranger = File::open(&folder).expect("a folder that all may read");
    flock(&stranger, FlockOperation::NonBlockingLockExclusive).expect("the lock is free");
    let err = run(&mut scene.command(By::Root, &["recover", "trace"])).succeeded().err;
    assert!(!err.contains("still being recorded"), "{err}");
    // And that a command changes what interrupts may do.
    fs::create_dir_all(scene.path("run/tompion/shield")).expect("a folder");
    let notes = File::open(scene.path("run/tompion/shield")).expect("a folder that all may read");
    flock(&notes, FlockOperation::NonBlockingLockExclusive).expect("the lock is free");
    let root = scene.path("");
    let root = root.to_str().expect("a path of text");
    let err = run(&mut scene.command(By::Root, &["shield", "--restore", "--root", root])).succeeded().err;
    assert!(err.contains("nothing to restore"), "{err}");
}

#[test]
fn a_log_is_not_written_through_a_link() {
    for by in BOTH {
        let Some(scene) = Scene::new() else { return };
        let before = scene.vault();
        fs::create_dir(scene.desk("d")).expect("a folder");
        give_away(&scene.desk("d"));
        scene.link(&scene.path("vault/tompion.log"), &scene.desk("d/tompion.log"));
        let session = format!("tompion-test-{}-{by:?}", std::process::id());
        // It has something to say: an option that there isn't.
        run(&mut scene
            .command(by, &["record", "--gather-in", "d", "--gather-as", &session, "--duration", "1ms"]));
        assert_eq!(scene.vault(), before, "{by:?}");
        let names = all_below(&scene.desk("d"));
        let log = names.iter().find(|name| name.to_string_lossy().starts_with("tompion-"));
        let said = fs::read_to_string(scene.desk("d").join(log.expect("a log beside it"))).expect("a log");
        assert!(said.contains("not in tompion.log"), "{said}");
    }
}

#[test]
fn all_that_root_records_is_roots_alone_to_read() {
    let Some(scene) = Scene::new() else { return };
    let program = scene.dir.program("brief");
    let program = program.to_str().expect("a path of text");
    for by in BOTH {
        let open = |words: &[&str]| run(&mut scene.command_after(by, "umask 0;", words)).succeeded();
        let name = |what: &str| format!("{what}-{by:?}");
        let (trace, other) = (name("trace"), name("other"));
        open(&["record", "-o", &trace, "--", program]);
        open(&["export", "--to", "ctf1", &trace, "-o", &name("export")]);
        open(&["trim", &trace, "-o", &name("part")]);
        open(&["record", "-o", &other, "--", "sh", "-c", &format!("umask; {program}")]);
        open(&["merge", &trace, &other, "-o", &name("both")]);
        // Also folders on the way that were not there.
        open(&["export", "--to", "ctf1", &trace, "-o", &name("new/export")]);
        let new = fs::metadata(scene.desk(&name("new/export"))).expect("a folder");
        assert_eq!(fs::metadata(scene.desk("new")).expect("a folder").mode() & 0o077, 0, "{by:?}");
        assert_eq!(new.mode() & 0o077, 0, "{by:?}");
        fs::remove_dir_all(scene.desk("new")).expect("a folder");
        let owner = if by == By::Sudo { UNPRIVILEGED_UID } else { 0 };
        for folder in ["trace", "other", "export", "part", "both"].map(|what| scene.desk(&name(what))) {
            for path in all_below(&folder).into_iter().map(|below| folder.join(below)).chain([folder.clone()])
            {
                let metadata = fs::metadata(&path).expect("what was listed");
                assert_eq!((metadata.mode() & 0o077, metadata.uid()), (0, owner), "{}", path.display());
            }
        }
        // The program under it has the umask that it would have had.
        let reported =
            open(&["record", "-o", &name("umask"), "--", "sh", "-c", &format!("umask; {program}")]);
        assert!(reported.out.starts_with("0000"), "{}", reported.out);
    }
}

/// Pseudorandom numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Lays something hostile where a command is going to look or write.
fn lay(scene: &Scene, random: &mut Random, place: &Path) -> String {
    // What had the place goes.
    if place.is_dir() && !place.is_symlink() {
        fs::remove_dir_all(place).expect("a folder of the test");
    } else {
        let _ = fs::remove_file(place);
    }
    let targets = [
        "vault/secret",
        "vault",
        "vault/NAME",
        "vault/tompion.json",
        "vault/metadata",
        "vault/made-up",
        "vault/NAME/precious",
    ];
    let target = scene.path(targets[random.below(targets.len())]);
    let what = ["link", "link", "link", "link over a link", "fifo", "device", "hard link"][random.below(7)];
    match what {
        "fifo" => mknodat(CWD, place, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("a FIFO"),
        // As /dev/null.
        "device" => mknodat(CWD, place, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(1, 3))
            .expect("a device"),
        "hard link" => return hard_link(scene, place),
        "link over a link" => {
            let between = scene.desk("between");
            let _ = fs::remove_file(&between);
            scene.link(&target, &between);
            scene.link(&between, place);
        }
        _ => scene.link(&target, place),
    }
    lchown(place, Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID)).expect("root gives away");
    format!("{what} to {} at {}", target.display(), place.display())
}

/// Some kernels forbid such a link, but others don't, and there may be older links.
fn hard_link(scene: &Scene, place: &Path) -> String {
    fs::hard_link(scene.path("vault/secret"), place).expect("a hard link");
    format!("hard link to a file of root's at {}", place.display())
}

/// Simulated history of five minutes.
fn history(path: &Path) {
    const FIVE_MINUTES: i64 = 300_000;
    // 2026-01-01 in UTC, in milliseconds since 1970.
    const BEGIN: i64 = 1_767_225_600_000;
    let mut store = Store::open(path).expect("a new history");
    let facts = [Fact { name: "kernel".into(), value: "6.1.0-rt".into() }];
    let system = store.begin("tompion-monitor", &facts, ("boot", BEGIN)).expect("a system");
    let body = Machine::new(2, 1).count(300, (BEGIN + FIVE_MINUTES) as u64 * 1_000_000);
    store.append(&[Row { start: BEGIN, duration: FIVE_MINUTES, system, body }]).expect("a row");
}

/// Names that commands use and that need not be there before.
const NAMES: [&str; 15] = [
    "page.html",
    "page.html.new",
    "history.sqlite",
    "trace/tompion.json",
    "trace/tompion.json.new",
    "trace/.tompion-lock",
    "trace/user",
    "trace/.tompion-view",
    "out",
    "out.new",
    "picture.svg",
    "picture.svg.new",
    "in/tompion.log",
    "in",
    "rings",
];

/// Commands that write, with what they are told to write.
const WRITERS: [&[&str]; 11] = [
    &["recover", "trace"],
    &["recover", "rings"],
    &["export", "--to", "ctf2", "trace", "-o", "out"],
    &["trim", "trace", "-o", "out/part"],
    &["merge", "trace", "other", "-o", "out"],
    &["record", "-o", "out/NAME", "--backing", "rings", "--", "true"],
    &["record", "--gather-in", "in", "--gather-as", "tompion-test-of-files", "--duration", "1ms"],
    &["monitor", "report", "--history", "history.sqlite", "-o", "page.html"],
    &["monitor", "plot", "--history", "history.sqlite", "-o", "picture.svg"],
    &["stat", "trace"],
    &["print", "trace"],
];

#[test]
fn hostile_layouts_lead_no_command_to_what_is_roots() {
    let Some(scene) = Scene::new() else { return };
    let template = scene.interrupted("template");
    let places = all_below(&template);
    history(&scene.path("history.sqlite"));
    let before = scene.vault();
    let mut random = Random(22);
    let (mut failed, mut laid_of) = (0, BTreeMap::<String, u32>::new());
    for round in 0..rounds(400, 2000) {
        fs::remove_dir_all(scene.path("desk")).expect("a folder");
        fs::create_dir(scene.path("desk")).expect("a folder");
        fs::create_dir(scene.desk("in")).expect("a folder");
        copy_folder(&template, &scene.desk("trace"));
        copy_folder(&template, &scene.desk("other"));
        fs::copy(scene.path("history.sqlite"), scene.desk("history.sqlite")).expect("a copy");
        give_away(&scene.path("desk"));
        let mut laid = Vec::new();
        for _ in 0..=random.below(3) {
            let place = match random.below(2) {
                0 => scene.desk(NAMES[random.below(NAMES.len())]),
                _ => {
                    index_beside(&scene.desk("trace").join(&places[random.below(places.len())]), &mut random)
                }
            };
            let parent = place.parent().expect("it is in a folder");
            if parent.is_dir()
                && fs::canonicalize(parent).is_ok_and(|real| !real.starts_with(scene.path("vault")))
            {
                let reported = lay(&scene, &mut random, &place);
                *laid_of.entry(reported.split(" to ").next().unwrap_or_default().to_owned()).or_default() +=
                    1;
                laid.push(reported);
            }
        }
        let words = WRITERS[random.below(WRITERS.len())];
        let by = BOTH[random.below(2)];
        let Finished { status, err, .. } = run(&mut scene.command(by, words));
        // A hard link gives the user's folder a name of root's file, whose mode and owner are not
        // the name's.
        assert_eq!(scene.vault(), before, "round {round}: {by:?} {words:?} {laid:#?}\n{err}");
        assert!(status.code().is_some(), "round {round}: {by:?} {words:?} {laid:#?}: {status}\n{err}");
        failed += u32::from(!status.success());
    }
    // That nothing happened is no wonder where nothing is done.
    assert!(failed > 0 && laid_of.len() >= 4, "{failed} failed; {laid_of:?}");
}

/// The place, or the name that a command gives to a file before it has that name.
fn index_beside(place: &Path, random: &mut Random) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names = [name.clone(), format!(".{name}.new"), format!("{name}.new")];
    place.with_file_name(&names[random.below(names.len())])
}
