//! Files with grants: where they are, and which are believed.
//!
//! ```text
//! /usr/lib/tompion/grants.d/*.toml    of a package            lowest priority
//! /run/tompion/grants.d/*.toml        until the next start
//! /etc/tompion/grants.d/*.toml        of the administrator    highest priority
//! ```
//!
//! Of files with the same name, that in the highest folder counts; an empty one takes a package's
//! grant away. The files follow in the order of their names. Source of this order:
//! `systemd.unit(5)`.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs::Metadata,
    io::{ErrorKind, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use tompion_os::{DirHandle, effective_user};

use crate::grant::{Grant, Member};

/// Variable with other folders, separated by `:`, the lowest priority first.
const FOLDERS_VARIABLE: &str = "TOMPION_GRANTS";
/// Largest file that is read.
const MAX_FILE: u64 = 64 << 10;
/// Ending of files' names.
const ENDING: &str = ".toml";
/// Write access of the group and of others.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// All grants, in the order of their files' names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// The grants.
    pub all: Vec<Grant>,
    /// A line for each thing that is wrong. What a refused file says is granted to no user.
    pub problems: Vec<String>,
}

impl Grants {
    /// Returns the folders with grants, the lowest priority first.
    pub fn folders() -> Vec<PathBuf> {
        match env::var_os(FOLDERS_VARIABLE).filter(|folders| !folders.is_empty()) {
            Some(folders) => env::split_paths(&folders).collect(),
            None => ["/usr/lib", "/run", "/etc"].map(|root| Path::new(root).join("tompion/grants.d")).into(),
        }
    }

    /// Reads the files. Only those are believed that no user but this process's can change. With a
    /// folder that others can change, there are no grants.
    pub fn read(folders: &[PathBuf]) -> Self {
        let mut grants = Self::default();
        let mut files = BTreeMap::new();
        for path in folders {
            match list(path) {
                Ok(None) => {}
                Ok(Some((folder, names))) => {
                    files.extend(names.into_iter().map(|name| (name, folder.clone())));
                }
                Err(problem) => grants.problems.push(format!("{}: {problem}", path.display())),
            }
        }
        // A folder that is not read may take other folders' grants away.
        if !grants.problems.is_empty() {
            return grants;
        }
        for (name, folder) in files {
            let file = folder.path().join(&name);
            let in_file = |problem: String| format!("{}: {problem}", file.display());
            let mut unknown = Vec::new();
            let parse = |text: String| Grant::parse(&file, &text, &mut |line| unknown.push(in_file(line)));
            let parsed = read(&folder, &name).and_then(|text| text.map(parse).transpose());
            match parsed {
                Ok(grant) => grants.all.extend(grant),
                Err(problem) => grants.problems.push(in_file(problem)),
            }
            grants.problems.extend(unknown);
        }
        grants
    }

    /// Returns the one grant of a user: the first one that is for it. Grants don't add up.
    pub fn of(&self, member: &Member) -> Option<&Grant> {
        self.all.iter().find(|grant| grant.is_for(member))
    }
}

/// Lists a folder's files; `None` if there is no folder.
fn list(path: &Path) -> Result<Option<(DirHandle, Vec<OsString>)>, String> {
    let folder = match DirHandle::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| error.to_string())?,
    };
    check_owner(&folder.metadata().map_err(|error| error.to_string())?)?;
    let is_grant = |name: &OsString| name.to_string_lossy().ends_with(ENDING);
    let names = folder.names().map_err(|error| error.to_string())?.into_iter().filter(is_grant).collect();
    Ok(Some((folder, names)))
}

/// Reads a file; `None` if it is empty.
fn read(folder: &DirHandle, name: &OsString) -> Result<Option<String>, String> {
    let unreadable = |error| format!("expected a regular file that can be read: {error}");
    let file = folder.read(name).map_err(unreadable)?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    check_owner(&metadata)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("expected at most {} KiB", MAX_FILE >> 10));
    }
    let text = String::from_utf8(bytes).map_err(|_| "expected text in UTF-8")?;
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

/// Checks that no other user can change what is there.
fn check_owner(metadata: &Metadata) -> Result<(), String> {
    let own = effective_user();
    if metadata.uid() != own {
        return Err(format!("expected user {own} as its owner, found user {}; chown it", metadata.uid()));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(format!("expected that others can't write it, found mode {mode:04o}; chmod go-w"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, chown, symlink},
    };

    use tompion_testing::TestDir;

    use super::*;

    const SOUND: &str = "users = [7]\nmemory = '1G'";

    fn write(dir: &TestDir, path: &str, text: &str) {
        let path = dir.join(path);
        let folder = path.parent().expect("a folder");
        fs::create_dir_all(folder).expect("a folder");
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("a mode");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
    }

    fn read_all(dir: &TestDir) -> Grants {
        Grants::read(&["lib", "run", "etc"].map(|name| dir.join(name)))
    }

    /// Names of the files that grant something.
    fn files(grants: &Grants) -> Vec<String> {
        let name = |grant: &Grant| {
            let parts: Vec<_> = grant.file.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
            format!("{}/{}", parts[1], parts[0])
        };
        grants.all.iter().map(name).collect()
    }

    #[test]
    fn the_highest_file_of_a_name_counts_and_the_first_grant_of_a_user() {
        let dir = TestDir::new("grants");
        write(&dir, "lib/20-b.toml", SOUND);
        write(&dir, "lib/30-c.toml", SOUND);
        write(&dir, "lib/40-masked.toml", SOUND);
        write(&dir, "run/30-c.toml", SOUND);
        write(&dir, "etc/10-a.toml", "users = [8, 7]\nmemory = '1M'");
        write(&dir, "etc/40-masked.toml", " \n");
        write(&dir, "etc/notes.txt", "no grant");
        let grants = read_all(&dir);
        assert_eq!(files(&grants), ["etc/10-a.toml", "lib/20-b.toml", "run/30-c.toml"]);
        assert_eq!(grants.problems, Vec::<String>::new());
        let of = |user| grants.of(&Member { user, groups: vec![] }).map(|grant| grant.memory);
        assert_eq!((of(7), of(8), of(9)), (Some(1 << 20), Some(1 << 20), None));
        assert_eq!(Grants::read(&[dir.join("none")]), Grants::default());
    }

    #[test]
    fn files_that_others_can_change_grant_nothing_and_are_named() {
        let dir = TestDir::new("grants-trust");
        write(&dir, "etc/good.toml", SOUND);
        write(&dir, "etc/group.toml", SOUND);
        fs::set_permissions(dir.join("etc/group.toml"), fs::Permissions::from_mode(0o664)).expect("a mode");
        write(&dir, "lib/linked.toml", SOUND);
        symlink(dir.join("etc/good.toml"), dir.join("etc/linked.toml")).expect("a link");
        fs::create_dir(dir.join("etc/folder.toml")).expect("a folder");
        write(&dir, "etc/large.toml", &"#".repeat(100 << 10));
        write(&dir, "etc/wrong.toml", "users = [7]\nmemory = '1G'\nall = true");
        let mut expected = vec!["folder", "group", "large", "linked", "wrong"];
        if effective_user() == 0 {
            write(&dir, "etc/strange.toml", SOUND);
            chown(dir.join("etc/strange.toml"), Some(65534), None).expect("an owner");
            expected.insert(4, "strange");
        }
        let grants = read_all(&dir);
        assert_eq!(files(&grants), ["etc/good.toml"]);
        let problems = &grants.problems;
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, name) in problems.iter().zip(expected) {
            assert!(problem.contains(&format!("etc/{name}.toml: ")), "{name}: {problem}");
        }
        assert!(problems[1].ends_with("found mode 0664; chmod go-w"), "{problems:?}");
        fs::set_permissions(dir.join("etc"), fs::Permissions::from_mode(0o777)).expect("a mode");
        let open = read_all(&dir);
        assert_eq!(files(&open), Vec::<String>::new(), "the folder may have taken them away");
        assert!(open.problems[0].contains("etc: expected that others can't write it"), "{:?}", open.problems);
    }
}
