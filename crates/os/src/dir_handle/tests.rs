//! Directories, links and files as root and other users find them.

use tompion_testing::TestDir;

use super::*;
use std::os::unix::fs::{lchown, symlink};

#[test]
fn files_are_made_and_found_in_what_is_open() {
    let desk = TestDir::new("open");
    let made = DirHandle::create(&desk.join("made")).unwrap();
    assert_eq!(DirHandle::create(&desk.join("made")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    let below = made.join("user").join("1");
    below.make().unwrap();
    below.make().unwrap();
    fs::rename(desk.join("made"), desk.join("moved")).unwrap();
    fs::create_dir(desk.join("made")).unwrap();
    below.replace("metadata", b"old", true).unwrap();
    below.replace("metadata", b"new", false).unwrap();
    below.sync_up().unwrap();
    below.sync_name().unwrap();
    assert_eq!(fs::read(desk.join("moved/user/1/metadata")).unwrap(), b"new");
    assert_eq!(below.names().unwrap(), ["metadata"]);
    let other = made.join("other");
    below.rename_to(&other).unwrap();
    assert!(other.exists() && !below.exists() && other.with_suffix("!").rename_to(&below).is_err());
    made.remove_all().unwrap();
    assert!(desk.join("made").exists() && !desk.join("moved").exists());
}

#[test]
fn no_link_is_followed_below_it() {
    let desk = TestDir::new("links");
    fs::create_dir(desk.join("elsewhere")).unwrap();
    fs::write(desk.join("elsewhere/file"), "theirs").unwrap();
    let own = DirHandle::create(&desk.join("own")).unwrap();
    symlink("../elsewhere", desk.join("own/folder")).unwrap();
    symlink("../elsewhere/file", desk.join("own/file")).unwrap();
    symlink("../elsewhere/new", desk.join("own/file.new")).unwrap();
    let through = own.join("folder");
    assert!(through.create_new("made").is_err() && through.read("file").is_err() && through.make().is_err());
    assert!(through.names().is_err() && through.remove("file").is_err() && through.remove_all().is_err());
    assert!(own.read("file").is_err() && own.write("file").is_err() && own.append("file").is_err());
    // A link in the place of what is written is replaced, wherever it leads.
    own.replace("file", b"ours", false).unwrap();
    assert_eq!(fs::read(desk.join("own/file")).unwrap(), b"ours");
    for name in ["..", ".", "a/b", "/", "", "../own/file"] {
        assert!(own.create_new(name).is_err() && own.read(name).is_err() && own.remove(name).is_err());
    }
    assert!(own.join("..").names().is_err());
    own.remove_all().unwrap();
    let elsewhere = desk.join("elsewhere");
    assert_eq!(fs::read(elsewhere.join("file")).unwrap(), b"theirs");
    assert_eq!(fs::read_dir(elsewhere).unwrap().count(), 1);
}

#[test]
fn root_follows_its_own_links_alone() {
    if user::file_user() != 0 {
        eprintln!("SKIPPED, only root can give links away");
        return;
    }
    let desk = TestDir::new("walk");
    fs::create_dir(desk.join("real")).unwrap();
    symlink("real", desk.join("own")).unwrap();
    symlink(desk.join("own"), desk.join("far")).unwrap();
    symlink("real", desk.join("theirs")).unwrap();
    lchown(desk.join("theirs"), Some(65534), None).unwrap();
    symlink("round", desk.join("round")).unwrap();
    let real = fs::canonicalize(desk.join("real")).unwrap();
    for name in ["own", "far", "far/../real/.", "own/"] {
        assert_eq!(DirHandle::open(&desk.join(name)).unwrap().path(), real, "{name}");
    }
    let error = DirHandle::open(&desk.join("theirs")).unwrap_err().to_string();
    assert!(error.contains("theirs is one of user 65534"), "{error}");
    assert!(DirHandle::create_all(&desk.join("theirs/new/newer")).is_err());
    assert!(DirHandle::open(&desk.join("round")).is_err());
    assert!(DirHandle::create_all(&desk.join("own/new/newer")).is_ok());
    assert_eq!(fs::metadata(real.join("new/newer")).unwrap().mode() & 0o777, 0o700);
    // A file that has another name may be anybody's.
    fs::write(real.join("one"), "").unwrap();
    fs::hard_link(real.join("one"), real.join("two")).unwrap();
    let folder = DirHandle::open(&real).unwrap();
    assert!(folder.write("one").is_err() && folder.append("two").is_err() && folder.read("one").is_ok());
    // SQLite opens by paths: no other user may change what is on the way.
    folder.check_root_only().unwrap();
    std::os::unix::fs::chown(&desk, Some(65534), None).unwrap();
    assert!(folder.check_root_only().unwrap_err().to_string().contains("user 65534"));
}

#[test]
fn with_rights_of_roots_no_link_of_proc_is_followed() {
    // SAFETY: a plain system call that can't fail.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let dir = TestDir::new("proc-links");
    let of_user = |path: &Path| {
        let _rights = user::User::new(12_345, 12_345).own_files().expect("file rights");
        DirHandle::open(path).map(|opened| opened.path().to_owned())
    };
    // Under `/proc/PID/root` is what this process sees, or another one in a container.
    for (link, is_followed) in
        [("/proc/self/root", false), ("/proc/self/cwd", false), ("/proc/self/net/", true)]
    {
        for open in [&of_user as &dyn Fn(&Path) -> _, &|path| DirHandle::open(path).map(|it| it.path)] {
            let opened = open(Path::new(link));
            assert_eq!(opened.is_ok(), is_followed, "{link}: {opened:?}");
        }
        let made = DirHandle::open_or_create(&Path::new("/proc/self/root").join("no-such"));
        assert!(made.is_err_and(|error| error.to_string().contains("no link of /proc")));
    }
    // Links of the user's own are, and directories that only lead on.
    fs::create_dir_all(dir.join("a/b")).expect("folders");
    std::os::unix::fs::symlink("a/b", dir.join("link")).expect("a link");
    for (path, mode) in [(dir.join("a/b"), 0o755), (dir.join("a"), 0o711), (dir.join("."), 0o711)] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("a mode");
    }
    assert_eq!(of_user(&dir.join("link")).expect("a folder"), dir.join("a/b"));
}

#[test]
fn of_a_large_file_the_end_is_read() {
    let desk = TestDir::new("tail");
    let folder = DirHandle::open(&desk).unwrap();
    let file = folder.create_new("large").unwrap();
    file.set_len(1 << 40).unwrap();
    folder.append("large").unwrap().write_all(b"end").unwrap();
    assert_eq!(folder.read_tail("large", 4).unwrap(), b"\0end");
    assert_eq!(folder.read_tail("large", 1 << 12).unwrap().len(), 1 << 12);
}

#[test]
fn a_file_that_is_named_takes_the_place_of_another() {
    let desk = TestDir::new("named");
    let path = desk.join("report");
    write_file(&path, b"first").unwrap();
    write_file(&path, b"second").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
    assert!(write_file(&desk, b"").is_err() && write_file(&desk.join("no/report"), b"").is_err());
    write_file(Path::new("/dev/null"), b"nothing").unwrap();
}
