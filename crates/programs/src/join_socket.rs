//! Join sockets: by them, programs that start find the recordings of their user and of root.
//!
//! ```text
//! /run/tompion/join/NAME-RANDOM               root's recorders; 0755, sockets 0666
//! /run/tompion/join/.granted/1000/NAME-RANDOM those by grants, for programs of user 1000
//! /run/user/1000/tompion/join/NAME-RANDOM     those of user 1000
//! TOMPION_SOCKET/NAME-RANDOM                  all, where the variable names a folder
//! ```
//!
//! Programs look at the first sockets of each folder only. So those by grants are apart: however
//! many they are, they hide none of root's, and none for programs of other users.
//!
//! A recorder that was killed leaves its socket behind, which refuses connections. The next
//! recorder removes it.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use tompion_os::{DirHandle, FileRights, Listener, MAX_SOCKET_PATH, PacketSocket};
use tompion_protocol::names;

/// Mode bit of a folder that stays when its last recorder ends: containers have it mounted.
const STICKY: u32 = 0o1000;

/// A recording's socket in the folder where starting programs look. It goes when this is dropped.
#[derive(Debug)]
pub struct JoinSocket {
    folder: DirHandle,
    name: String,
    /// Folders that go, too, where nothing else is in them: each is in the next one.
    leaving: Vec<DirHandle>,
}

impl JoinSocket {
    /// Listens where programs look that start later. `label` begins the socket's name, or the
    /// process id if the path would be too long; `random` keeps it apart from those of all other
    /// recorders.
    ///
    /// # Errors
    /// If the user has no folder for it, or it can't be used.
    pub fn listen(label: &str, random: u64) -> io::Result<(Self, Listener)> {
        let _rights = FileRights::of_the_process()?;
        let (folder, leaving) = Self::folder()?;
        Self::listen_in(folder, leaving, label, random)
    }

    /// The same for a recorder by a grant: programs of this user look there.
    ///
    /// # Errors
    /// As [`JoinSocket::listen`].
    pub fn listen_by_grant(label: &str, random: u64, user: u32) -> io::Result<(Self, Listener)> {
        let _rights = FileRights::of_the_process()?;
        let (folder, leaving) = Self::folder()?;
        let (folder, leaving) = Self::granted_in(&folder, leaving, user)?;
        Self::listen_in(folder, leaving, label, random)
    }

    /// Makes the folder of recorders by grants for programs of a user, in that of root's.
    fn granted_in(
        folder: &DirHandle,
        leaving: Vec<DirHandle>,
        user: u32,
    ) -> io::Result<(DirHandle, Vec<DirHandle>)> {
        let all = folder.join(names::GRANTED_FOLDER);
        let own = all.join(user.to_string());
        for made in [&all, &own] {
            made.make()?;
            made.open_for_all()?;
        }
        let leaving = [own.clone(), all].into_iter().chain(leaving).collect();
        Ok((own, leaving))
    }

    /// Takes over the socket of a recorder that was killed, by its name in the folder. In the end
    /// it is removed with the rights of this process: a listener must have been made for it.
    ///
    /// # Errors
    /// If there is no such socket.
    pub fn adopt(name: &str, listeners: &[Listener]) -> io::Result<Self> {
        let _rights = FileRights::of_the_process()?;
        let (folder, leaving) = Self::folder()?;
        Self::adopt_in(folder, leaving, name, listeners)
    }

    fn adopt_in(
        folder: DirHandle,
        leaving: Vec<DirHandle>,
        name: &str,
        listeners: &[Listener],
    ) -> io::Result<Self> {
        let path = folder.path().join(name);
        // Its name was a hidden one when it was bound.
        let hidden = format!(".{name}");
        let is_its = |listener: &Listener| {
            listener.bound_path().is_some_and(|bound| bound.file_name() == Some(hidden.as_ref()))
        };
        let is_ours = path.file_name() == Some(name.as_ref()) && listeners.iter().any(is_its);
        let is_socket = |found: fs::Metadata| found.file_type().is_socket();
        if !(is_ours && fs::symlink_metadata(&path).is_ok_and(is_socket)) {
            let text = format!("expected the recording's socket at {}, found none", path.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Ok(Self { folder, name: name.to_owned(), leaving })
    }

    /// Folder in which programs look, and those that go when they are empty.
    fn folder() -> io::Result<(DirHandle, Vec<DirHandle>)> {
        let chosen = env::var_os(names::SOCKET_VARIABLE).filter(|folder| !folder.is_empty());
        match chosen {
            Some(path) => Ok((DirHandle::open_or_create(Path::new(&path))?, Vec::new())),
            None => Self::usual_folder(tompion_os::effective_user()),
        }
    }

    fn listen_in(
        folder: DirHandle,
        leaving: Vec<DirHandle>,
        label: &str,
        random: u64,
    ) -> io::Result<(Self, Listener)> {
        let short = std::process::id().to_string();
        let names = [label, &short].map(|label| format!("{label}-{random:016x}"));
        let is_possible = |name: &&String| folder.path().join(name).as_os_str().len() <= MAX_SOCKET_PATH;
        let Some(name) = names.iter().find(is_possible).cloned() else {
            let path = folder.path().join(&names[1]);
            let text =
                format!("expected a path of at most {MAX_SOCKET_PATH} bytes, found {}", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        remove_dead_sockets(&folder);
        let listener = folder.listen_for_packets(&name, tompion_os::effective_user() == 0)?;
        Ok((Self { folder, name, leaving }, listener))
    }

    /// The folder in which programs of this user look, or all programs if the user is root.
    fn usual_folder(user: u32) -> io::Result<(DirHandle, Vec<DirHandle>)> {
        let path = PathBuf::from(names::join_folder(user));
        let above = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let run = above.parent().ok_or(io::ErrorKind::InvalidInput)?;
        if !run.is_dir() {
            let text = format!("there is no {}", run.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        let above = DirHandle::open_or_create(above)?;
        let folder = DirHandle::open_or_create(&path)?;
        if user == 0 {
            above.open_for_all()?;
            if !is_sticky(&folder) {
                folder.open_for_all()?;
            }
        }
        Ok((folder.clone(), vec![folder, above]))
    }

    /// Name of the socket in its folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Path of the socket.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }
}

impl Drop for JoinSocket {
    fn drop(&mut self) {
        let _rights = FileRights::of_the_process();
        let _ = self.folder.remove(&self.name);
        // They stay if something is in them, and those around them.
        let goes = |folder: &DirHandle| !is_sticky(folder) && folder.remove_empty().is_ok();
        let _ = self.leaving.iter().all(goes);
    }
}

fn is_sticky(folder: &DirHandle) -> bool {
    folder.metadata().is_ok_and(|metadata| metadata.permissions().mode() & STICKY != 0)
}

/// Removes sockets of recorders that were killed.
fn remove_dead_sockets(folder: &DirHandle) {
    // A hidden one is about to listen.
    let is_shown = |name: &OsString| !name.as_encoded_bytes().starts_with(b".");
    for name in folder.names().unwrap_or_default().into_iter().filter(is_shown) {
        let path = folder.path().join(&name);
        let is_socket = |found: fs::Metadata| found.file_type().is_socket();
        let Some(text) = path.to_str().filter(|_| fs::symlink_metadata(&path).is_ok_and(is_socket)) else {
            continue;
        };
        let connected = PacketSocket::connect_at_once(text);
        if connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = folder.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tompion_testing::TestDir;

    use super::*;

    #[test]
    fn a_join_socket_goes_with_its_recorder_and_dead_ones_with_the_next() {
        let dir = TestDir::new("join");
        let place = dir.join("tompion").join("join");
        let open = || {
            let above = DirHandle::open_or_create(&dir.join("tompion")).expect("a folder");
            let folder = DirHandle::open_or_create(&place).expect("a folder");
            (folder.clone(), vec![folder, above])
        };
        let listen = |name: &str| {
            let (folder, leaving) = open();
            JoinSocket::listen_in(folder, leaving, name, 7).expect("a socket")
        };
        let names = || {
            let mut names = DirHandle::open(&place).expect("a folder").names().expect("names");
            names.sort();
            names
        };
        let (socket, listener) = listen("killed");
        std::mem::forget(socket);
        drop(listener);
        symlink("/nowhere", place.join("link")).expect("a link");
        let (first, _first) = listen("first");
        assert_eq!(names(), ["first-0000000000000007", "link"]);
        assert!(PacketSocket::connect_at_once(first.path().to_str().expect("a text")).is_ok());
        let (second, _second) = listen("second");
        drop(first);
        assert_eq!(names(), ["link", "second-0000000000000007"]);
        fs::remove_file(place.join("link")).expect("a link");
        drop(second);
        assert!(!dir.join("tompion").exists());
    }

    #[test]
    fn sockets_by_grants_are_apart_and_their_folders_go_with_them() {
        let dir = TestDir::new("join-granted");
        let place = dir.join("join");
        let listen = |user: u32| {
            let folder = DirHandle::open_or_create(&place).expect("a folder");
            let (folder, leaving) = JoinSocket::granted_in(&folder, vec![folder.clone()], user).expect("one");
            JoinSocket::listen_in(folder, leaving, "flight", 7).expect("a socket")
        };
        let (first, _first) = listen(1000);
        let (second, _second) = listen(1001);
        let folder = names::granted_join_folder(place.to_str().expect("a text"), 1000);
        let list = |folder: &str| tompion_os::list_folder(folder).expect("a folder").names;
        assert_eq!(list(&folder), ["flight-0000000000000007"]);
        assert_eq!(list(place.to_str().expect("a text")), Vec::<String>::new(), "none of root's");
        for folder in [&folder[..], &format!("{folder}/..")] {
            let mode = fs::metadata(folder).expect("a folder").permissions().mode();
            assert_eq!(mode & 0o777, 0o755, "all programs look there");
        }
        drop(first);
        assert!(!Path::new(&folder).exists() && place.is_dir());
        drop(second);
        assert!(!place.exists());
    }

    #[test]
    fn only_the_listeners_own_socket_in_the_folder_is_adopted() {
        let dir = TestDir::new("join-adopt");
        let open = || DirHandle::open_or_create(&dir.join("join")).expect("a folder");
        let (killed, listener) = JoinSocket::listen_in(open(), Vec::new(), "killed", 7).expect("a socket");
        let (other, _others) = JoinSocket::listen_in(open(), Vec::new(), "other", 7).expect("a socket");
        let path = killed.path();
        std::mem::forget(killed);
        let listeners = [listener];
        fs::write(dir.join("join/file"), "").expect("a file");
        symlink(&path, dir.join("join/link")).expect("a link");
        for name in ["file", "link", "none", "", "..", "../join/killed-0000000000000007", other.name()] {
            let refused = JoinSocket::adopt_in(open(), Vec::new(), name, &listeners).expect_err(name);
            assert!(refused.to_string().contains("found none"), "{refused}");
        }
        let name = "killed-0000000000000007";
        let adopted = JoinSocket::adopt_in(open(), Vec::new(), name, &listeners).expect("a socket");
        assert_eq!((adopted.path(), adopted.name()), (path.clone(), "killed-0000000000000007"));
        drop(adopted);
        assert!(!path.exists() && dir.join("join/file").exists());
    }

    #[test]
    fn a_sticky_folder_stays_and_long_paths_get_a_short_label_or_are_refused() {
        let dir = TestDir::new("join-sticky");
        let place = dir.join("join");
        fs::create_dir(&place).expect("a folder");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o1755)).expect("a mode");
        let open = || DirHandle::open(&place).expect("a folder");
        let above = DirHandle::open(&dir.join(".")).expect("a folder");
        drop(JoinSocket::listen_in(open(), vec![open(), above], "a", 7).expect("a socket"));
        assert!(place.is_dir());
        let (short, _listener) =
            JoinSocket::listen_in(open(), Vec::new(), &"a".repeat(MAX_SOCKET_PATH), 7).expect("a socket");
        assert_eq!(short.path(), place.join(format!("{}-0000000000000007", std::process::id())));
        assert!(PacketSocket::connect_at_once(short.path().to_str().expect("a text")).is_ok());
        let deep = dir.join("a".repeat(MAX_SOCKET_PATH));
        let deep = DirHandle::open_or_create(&deep).expect("a folder");
        let refused = JoinSocket::listen_in(deep, Vec::new(), "a", 7).expect_err("too long");
        assert!(refused.to_string().contains("at most 107 bytes"), "{refused}");
    }
}
