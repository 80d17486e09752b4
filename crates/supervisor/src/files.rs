//! Files of sessions: where they are, and how drop-ins change them.
//!
//! ```text
//! /usr/lib/tompion/sessions/NAME.toml      of a package            lowest priority
//! /run/tompion/sessions/NAME.toml          until the next start
//! /etc/tompion/sessions/NAME.toml          of the administrator    highest priority
//!                       NAME.toml.d/*.toml changes, from all three folders, by their names
//! ```
//!
//! The file in the folder of the highest priority counts alone. Drop-ins of all folders change it,
//! in the order of their names; of those with the same name, that in the highest folder counts.
//! Source of this order: `systemd.unit(5)`.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use toml::{Table, Value};
use tompion_control::check_session_name;
use tompion_os::{DirHandle, file_user, user_folder};

use crate::session_file::SessionFile;

/// Variable with other folders, separated by `:`, the lowest priority first.
const FOLDERS_VARIABLE: &str = "TOMPION_SESSIONS";
/// Largest file that is read.
const MAX_FILE: u64 = 256 << 10;
/// Ending of files' names.
const ENDING: &str = ".toml";

/// Folders with files of sessions, the lowest priority first.
#[derive(Clone, Debug)]
pub struct SessionFiles {
    folders: Vec<PathBuf>,
}

/// A session as its files describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The files, in the order in which they were read.
    pub files: Vec<PathBuf>,
    /// The session, or the reason why there is none.
    pub session: Result<SessionFile, String>,
}

impl SessionFiles {
    /// The folders of this user; `transient` is that for files which last until the next start.
    pub fn of_user(transient: &Path) -> Self {
        if let Some(folders) = env::var_os(FOLDERS_VARIABLE).filter(|folders| !folders.is_empty()) {
            return Self { folders: env::split_paths(&folders).collect() };
        }
        let transient = transient.to_owned();
        if file_user() == 0 {
            let [package, administrator] =
                ["/usr/lib/tompion/sessions", "/etc/tompion/sessions"].map(PathBuf::from);
            return Self { folders: vec![package, transient, administrator] };
        }
        let [package, administrator] =
            ["/usr/lib/tompion/user-sessions", "/etc/tompion/user-sessions"].map(PathBuf::from);
        let configuration = user_folder("XDG_CONFIG_HOME", ".config");
        let own = configuration.map(|folder| folder.join("tompion/sessions"));
        Self { folders: [package, administrator, transient].into_iter().chain(own).collect() }
    }

    /// The folders, the lowest priority first.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Returns the names of all sessions with a file.
    pub fn names(&self) -> BTreeSet<String> {
        let open = |folder: &PathBuf| DirHandle::open(folder).and_then(|folder| folder.names());
        let names = self.folders.iter().filter_map(|folder| open(folder).ok()).flatten();
        let name = |file: std::ffi::OsString| file.to_str()?.strip_suffix(ENDING).map(str::to_owned);
        names.filter_map(name).filter(|name| self.file(name).is_some()).collect()
    }

    /// Returns a session's file of the highest priority.
    fn file(&self, name: &str) -> Option<PathBuf> {
        self.all_files(name).next()
    }

    /// Returns all files of this session's name, that of the highest priority first.
    fn all_files(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        let files = self.folders.iter().rev().map(move |folder| folder.join(format!("{name}{ENDING}")));
        files.filter(|file| file.is_file())
    }

    /// Checks that a session can be described by a file in this folder, which takes the place of
    /// none in another.
    ///
    /// # Errors
    /// If sessions are not read from there, or another file describes this one.
    pub fn check_place(&self, name: &str, place: &Path) -> Result<(), String> {
        if !self.folders.iter().any(|folder| is_same(folder, place)) {
            let found: Vec<String> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
            return Err(format!(
                "expected {}, where its file would be, among the folders with sessions, found {}",
                place.display(),
                found.join(", ")
            ));
        }
        let is_elsewhere = |file: &PathBuf| file.parent().is_some_and(|folder| !is_same(folder, place));
        match self.all_files(name).find(is_elsewhere) {
            Some(other) => Err(format!("{} describes {name} already; change or remove it", other.display())),
            None => Ok(()),
        }
    }

    /// Reads a session. `None` if it has no file.
    pub fn read(&self, name: &str) -> Option<Described> {
        let files: Vec<PathBuf> = std::iter::once(self.file(name)?).chain(self.drop_ins(name)).collect();
        let session =
            check_session_name(name).map_err(|error| error.to_string()).and_then(|()| merge(&files));
        Some(Described { files, session })
    }

    fn drop_ins(&self, name: &str) -> Vec<PathBuf> {
        let mut found = BTreeMap::new();
        for folder in &self.folders {
            let folder = folder.join(format!("{name}{ENDING}.d"));
            let names = DirHandle::open(&folder).and_then(|folder| folder.names()).unwrap_or_default();
            let of_toml = names.into_iter().filter(|name| name.to_string_lossy().ends_with(ENDING));
            found.extend(of_toml.map(|name| (name.clone(), folder.join(name))));
        }
        found.into_values().collect()
    }
}

/// Whether two paths lead to one folder.
fn is_same(left: &Path, right: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    left == right || real(left) == real(right)
}

/// Reads the files, and has each change those before it.
fn merge(files: &[PathBuf]) -> Result<SessionFile, String> {
    let mut merged = Table::new();
    for file in files {
        let in_file = |problem: String| format!("{}: {problem}", file.display());
        let text = read(file).map_err(in_file)?;
        // By itself first, so that a mistake has a line.
        SessionFile::parse(&text).map_err(in_file)?;
        let table: Table = text.parse().map_err(|error: toml::de::Error| in_file(error.message().into()))?;
        change(&mut merged, table);
    }
    let last = || files.first().map(|file| file.display().to_string()).unwrap_or_default();
    let session: SessionFile =
        Value::Table(merged).try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
    session.check().map_err(|problem| format!("{}: {problem}", last()))?;
    Ok(session)
}

fn read(file: &Path) -> Result<String, String> {
    let (folder, name) = (file.parent().unwrap_or(Path::new("/")), file.file_name().unwrap_or_default());
    let bytes = DirHandle::open(folder).and_then(|folder| folder.read_bounded(name, MAX_FILE));
    let bytes = bytes.map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => format!("expected at most {} KiB", MAX_FILE >> 10),
        _ => error.to_string(),
    })?;
    String::from_utf8(bytes).map_err(|_| "expected text in UTF-8".into())
}

/// Replaces values by those of the same key; tables are changed key by key.
fn change(table: &mut Table, by: Table) {
    for (key, value) in by {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(before)), Value::Table(after)) => change(before, after),
            (_, value) => drop(table.insert(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tompion_testing::TestDir;

    use super::*;

    fn folders(dir: &TestDir, files: &[(&str, &str)]) -> SessionFiles {
        for (path, text) in files {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        SessionFiles { folders: vec![dir.join("lib"), dir.join("run"), dir.join("etc")] }
    }

    #[test]
    fn the_highest_file_counts_and_drop_ins_of_all_folders_change_it() {
        let dir = TestDir::new("session-files");
        let files = folders(
            &dir,
            &[
                ("lib/flight.toml", "output = '/lib'\n[channel.other]"),
                ("etc/flight.toml", "output = '/etc'\n[channel.main]\nevents = ['a:*']\nlevel = 'info'"),
                ("lib/flight.toml.d/20-more.toml", "[channel.main]\nevents = ['b:*']"),
                ("etc/flight.toml.d/10-out.toml", "output = '/data'"),
                ("lib/flight.toml.d/10-out.toml", "output = '/hidden'"),
                ("etc/flight.toml.d/notes.txt", "no TOML"),
                ("run/other.toml", "[channel.a]"),
            ],
        );
        assert_eq!(files.names().into_iter().collect::<Vec<_>>(), ["flight", "other"]);
        let described = files.read("flight").expect("files");
        let relative =
            |file: &PathBuf| file.strip_prefix(dir.join("")).expect("a path").display().to_string();
        assert_eq!(
            described.files.iter().map(relative).collect::<Vec<_>>(),
            ["etc/flight.toml", "etc/flight.toml.d/10-out.toml", "lib/flight.toml.d/20-more.toml"]
        );
        let session = described.session.expect("a session");
        assert_eq!(session.output.as_deref(), Some("/data"));
        assert_eq!(session.channel.keys().collect::<Vec<_>>(), ["main"]);
        assert_eq!(session.channel["main"].events, ["b:*"]);
        assert_eq!(session.channel["main"].level.as_deref(), Some("info"));
        assert_eq!(files.read("none"), None);
    }

    #[test]
    fn a_file_takes_the_place_of_none_in_another_folder() {
        let dir = TestDir::new("session-places");
        let files = folders(&dir, &[("lib/packaged.toml", "[channel.a]"), ("run/made.toml", "[channel.a]")]);
        let run = dir.join("lib/../run");
        assert_eq!((files.check_place("made", &run), files.check_place("new", &run)), (Ok(()), Ok(())));
        let taken = files.check_place("packaged", &run).expect_err("another file");
        assert!(taken.contains("lib/packaged.toml describes packaged already"), "{taken}");
        let unread = files.check_place("new", &dir.join("elsewhere")).expect_err("another folder");
        assert!(unread.contains("elsewhere, where its file would be"), "{unread}");
    }

    #[test]
    fn a_mistake_is_named_with_its_file_and_line() {
        let dir = TestDir::new("session-mistakes");
        let files = folders(
            &dir,
            &[
                ("etc/a.toml", "[channel.main]"),
                ("etc/a.toml.d/1.toml", "\nstart = 'never'"),
                ("etc/empty.toml", ""),
                ("etc/1st.toml", "[channel.main]"),
                ("etc/large.toml", &"#".repeat(300 << 10)),
            ],
        );
        let problem = |name| files.read(name).expect("files").session.expect_err("a mistake");
        let found = problem("a");
        assert!(found.contains("etc/a.toml.d/1.toml: line 2: expected `boot`, `demand` or"), "{found}");
        assert!(problem("empty").ends_with("etc/empty.toml: expected at least one [channel.NAME]"));
        assert!(problem("1st").ends_with("begins with a letter, found `1st`"));
        assert!(problem("large").contains("large.toml: "));
        fs::write(dir.join("etc/binary.toml"), [0xff, 0xfe]).expect("a file");
        assert!(problem("binary").ends_with("expected text in UTF-8"));
    }
}
