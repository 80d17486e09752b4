//! Place of recorders' sockets: a folder for each recording, in a folder of the user's.
//!
//! ```text
//! /run/user/1000/tompion/sessions/NAME/     held locked by the recorder
//!   control                                 the socket
//! ```
//!
//! Root has `/run/tompion/sessions`. A user without a folder below `/run/user` gets
//! `/tmp/tompion-UID-sessions`, which must be that user's own. Only the owner can look into these
//! folders, so no other user can connect, or put another socket in place of one. The lock goes with
//! the recorder, however that ends, so a name is free again at once.
//!
//! Root's supervisor has a second socket, to which every user can connect: [`SystemSocket`].

use std::{
    env, fs, io,
    os::{
        fd::AsFd as _,
        unix::{
            fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use tompion_os::{DirHandle, Lock, file_user, try_lock};

/// Variable with another folder for the sockets.
pub const CONTROL_FOLDER_VARIABLE: &str = "TOMPION_CONTROL";

/// Variable with another folder for the socket of root's supervisor to which all users can connect.
pub const SYSTEM_FOLDER_VARIABLE: &str = "TOMPION_SYSTEM";
/// Folder of that socket.
const SYSTEM_FOLDER: &str = "/run/tompion/supervisor";

/// Name of the socket in the recording's folder.
pub(crate) const SOCKET: &str = "control";
/// Name of the supervisor's folder beside those of recordings, which no session can have.
const SUPERVISOR: &str = ".supervisor";
/// Longest name of a recording.
const MAX_NAME: usize = 64;
/// Maximum number of attempts to make the folder, which recorders that end remove.
const MAX_ATTEMPTS: u32 = 8;
/// Most names beside each other for a recorder without a name of its own: process ids of several
/// containers can be the same.
const MAX_NUMBERED: u32 = 64;

/// Reason why a recording can't be found by a name.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The name can't be one.
    #[error(
        "expected a session's name of 1 to {MAX_NAME} letters, digits, `.`, `_` and `-` that begins with a letter, \
         found `{0}`"
    )]
    BadName(String),
    /// Another recording has it.
    #[error("a session named {0} is running already; choose another name, or stop it")]
    Taken(String),
    /// The user has a supervisor already.
    #[error("a supervisor of this user is running already")]
    SecondSupervisor,
    /// The folder can't be used.
    #[error("can't listen for commands in {0}: {1}")]
    Folder(PathBuf, io::Error),
}

/// Listening socket of a recorder, which goes when this is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    name: String,
    folder: DirHandle,
    lock: Option<Lock>,
    /// Whether the socket is the service manager's, which keeps it.
    is_inherited: bool,
    /// Folders above that go, too, where nothing else is in them; the lowest first.
    above: Vec<DirHandle>,
}

/// Folder with the folders of a user's recordings.
struct SocketFolder {
    path: PathBuf,
    /// Number of its last components that are only Tompion's, and go with the last recorder.
    own_levels: usize,
}

impl ControlSocket {
    /// Listens as the session of a name, or by the caller's process id.
    ///
    /// # Errors
    /// If the name can't be, is taken, or there is no folder for it.
    pub fn listen(session: Option<&str>) -> Result<(Self, UnixListener), PlaceError> {
        let place = SocketFolder::of_user();
        for _ in 1..MAX_ATTEMPTS {
            match Self::listen_in(&place, session) {
                // The last recorder that ended has removed the folder meanwhile.
                Err(PlaceError::Folder(_, error)) if error.kind() == io::ErrorKind::NotFound => {}
                listening => return listening,
            }
        }
        Self::listen_in(&place, session)
    }

    fn listen_in(place: &SocketFolder, session: Option<&str>) -> Result<(Self, UnixListener), PlaceError> {
        session.map(check_session_name).transpose()?;
        let failed = |error| PlaceError::Folder(place.path.clone(), error);
        let above = open_own(&place.path).map_err(failed)?;
        let pid = std::process::id().to_string();
        let numbered = (2..=MAX_NUMBERED).map(|number| format!("{pid}-{number}"));
        let names: Vec<String> = match session {
            Some(name) => vec![name.to_owned()],
            None => [pid.clone()].into_iter().chain(numbered).collect(),
        };
        for name in &names {
            if let Some((mut socket, listener)) = Self::take(&above[0], name, None).map_err(failed)? {
                socket.above = above.into_iter().take(place.own_levels).collect();
                return Ok((socket, listener));
            }
        }
        Err(PlaceError::Taken(session.map_or(pid, str::to_owned)))
    }

    /// Listens as the supervisor of this user's sessions, on the service manager's socket if there
    /// is one.
    ///
    /// # Errors
    /// If another supervisor of the user runs, or there is no folder for the socket.
    pub fn listen_as_supervisor(inherited: Option<UnixListener>) -> Result<(Self, UnixListener), PlaceError> {
        let place = SocketFolder::of_user();
        let failed = |error| PlaceError::Folder(place.path.clone(), error);
        let above = open_own(&place.path).map_err(failed)?;
        let (mut socket, listener) = Self::take(&above[0], SUPERVISOR, inherited)
            .map_err(failed)?
            .ok_or(PlaceError::SecondSupervisor)?;
        socket.above = above.into_iter().take(place.own_levels).collect();
        Ok((socket, listener))
    }

    /// Takes a name; `None` if another recorder has it.
    fn take(
        parent: &DirHandle,
        name: &str,
        inherited: Option<UnixListener>,
    ) -> io::Result<Option<(Self, UnixListener)>> {
        let folder = parent.join(name);
        let lock = match Self::lock(&folder) {
            // Its last holder has just removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::lock(&folder)?,
            lock => lock?,
        };
        let Some(lock) = lock else { return Ok(None) };
        let is_inherited = inherited.is_some();
        let listener = match inherited {
            Some(listener) => listener,
            None => {
                // Left by a process that was killed.
                let _ = folder.remove(SOCKET);
                folder.listen(SOCKET)?
            }
        };
        let (name, lock) = (name.into(), Some(lock));
        Ok(Some((Self { name, folder, lock, is_inherited, above: Vec::new() }, listener)))
    }

    fn lock(folder: &DirHandle) -> io::Result<Option<Lock>> {
        folder.make()?;
        try_lock(folder)
    }

    /// Name under which the recording is found.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Folder of the socket. It stays as long as other files are in it.
    pub fn folder(&self) -> &DirHandle {
        &self.folder
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if !self.is_inherited {
            let _ = self.folder.remove(SOCKET);
        }
        self.lock = None;
        // Stays if another recorder has taken the name since.
        let _ = self.folder.remove_empty();
        let _ = self.above.iter().try_for_each(DirHandle::remove_empty);
    }
}

/// Socket of root's supervisor to which every user can connect. It goes when this is dropped.
#[derive(Debug)]
pub struct SystemSocket {
    folder: DirHandle,
    lock: Option<Lock>,
    /// Folder above that goes, too, where nothing else is in it.
    above: Option<DirHandle>,
}

impl SystemSocket {
    /// Listens, if this is root's supervisor for the whole machine: one that keeps its own sessions
    /// elsewhere is not, unless it has a place for this socket, too. `None` if it is not.
    ///
    /// # Errors
    /// If another supervisor has the socket, or there is no place for it.
    pub fn listen() -> Result<Option<(Self, UnixListener)>, PlaceError> {
        let chosen = env::var_os(SYSTEM_FOLDER_VARIABLE).filter(|folder| !folder.is_empty());
        let is_elsewhere = env::var_os(CONTROL_FOLDER_VARIABLE).is_some_and(|folder| !folder.is_empty());
        if file_user() != 0 || chosen.is_none() && is_elsewhere {
            return Ok(None);
        }
        let path = system_folder();
        let failed = |error| PlaceError::Folder(path.clone(), error);
        let open = || -> io::Result<_> {
            let above = path.parent().filter(|_| chosen.is_none()).map(DirHandle::open_or_create);
            let above = above.transpose()?;
            above.as_ref().map_or(Ok(()), DirHandle::open_for_all)?;
            let folder = DirHandle::open_or_create(&path)?;
            folder.open_for_all()?;
            folder.check_root_only()?;
            Ok((folder, above))
        };
        let (folder, above) = open().map_err(failed)?;
        let lock = try_lock(&folder).map_err(failed)?.ok_or(PlaceError::SecondSupervisor)?;
        // Left by a process that was killed.
        let _ = folder.remove(SOCKET);
        let listener = folder.listen(SOCKET).map_err(failed)?;
        let mode = fs::Permissions::from_mode(0o666);
        fs::set_permissions(folder.path().join(SOCKET), mode).map_err(failed)?;
        Ok(Some((Self { folder, lock: Some(lock), above }, listener)))
    }
}

impl Drop for SystemSocket {
    fn drop(&mut self) {
        let _ = self.folder.remove(SOCKET);
        self.lock = None;
        let _ = self.folder.remove_empty();
        let _ = self.above.iter().try_for_each(DirHandle::remove_empty);
    }
}

fn system_folder() -> PathBuf {
    let chosen = env::var_os(SYSTEM_FOLDER_VARIABLE).filter(|folder| !folder.is_empty());
    chosen.map_or_else(|| SYSTEM_FOLDER.into(), PathBuf::from)
}

/// Connects to root's supervisor, as a user with a grant.
///
/// # Errors
/// If none runs, or what listens there is not root's.
pub fn connect_to_system() -> io::Result<UnixStream> {
    let stream = DirHandle::open(&system_folder())?.connect(SOCKET)?;
    match tompion_os::peer_of(stream.as_fd())?.uid {
        0 => Ok(stream),
        other => {
            let problem = format!("expected a supervisor of root, found one of user {other}");
            Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
        }
    }
}

/// Connects to the supervisor of this user's sessions.
///
/// # Errors
/// If none runs, or its folder is not this user's own.
pub fn connect_to_supervisor() -> io::Result<UnixStream> {
    let parent = DirHandle::open(&SocketFolder::of_user().path)?;
    if !is_own(&parent) {
        return Err(not_own());
    }
    parent.join(SUPERVISOR).connect(SOCKET)
}

/// Folder of this user's sockets.
pub fn control_folder() -> PathBuf {
    SocketFolder::of_user().path
}

/// Returns the folders of this user's recordings, by the recordings' names.
pub fn folders() -> Vec<(String, DirHandle)> {
    folders_in(&SocketFolder::of_user().path, file_user())
}

/// Returns the folders of another user's recordings.
pub fn folders_of(user: u32) -> Vec<(String, DirHandle)> {
    folders_in(&SocketFolder::of(user).path, user)
}

fn folders_in(place: &Path, user: u32) -> Vec<(String, DirHandle)> {
    let Ok(parent) = DirHandle::open(place) else { return Vec::new() };
    if !belongs_to(&parent, user) {
        return Vec::new();
    }
    let names = parent.names().unwrap_or_default().into_iter();
    let has_socket = |folder: &DirHandle| {
        fs::symlink_metadata(folder.path().join(SOCKET)).is_ok_and(|found| found.file_type().is_socket())
    };
    let mut found: Vec<_> =
        names.filter_map(|name| Some((name.to_str()?.to_owned(), parent.join(&name)))).collect();
    found.retain(|(name, _)| name != SUPERVISOR);
    found.retain(|(_, folder)| has_socket(folder));
    found.sort_by(|(left, _), (right, _)| left.cmp(right));
    found
}

/// Checks that a session may have this name. One that begins with a digit would be a process id.
///
/// # Errors
/// [`PlaceError::BadName`], which explains the rules for names.
pub fn check_session_name(name: &str) -> Result<(), PlaceError> {
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins_with_letter = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    if name.len() <= MAX_NAME && name.bytes().all(is_sound) && begins_with_letter {
        return Ok(());
    }
    Err(PlaceError::BadName(name.into()))
}

impl SocketFolder {
    /// The folder of the user that owns what this program writes.
    fn of_user() -> Self {
        if let Some(folder) = env::var_os(CONTROL_FOLDER_VARIABLE).filter(|folder| !folder.is_empty()) {
            return Self { path: folder.into(), own_levels: 0 };
        }
        Self::of(file_user())
    }

    /// The folder of a user, unless a variable says otherwise.
    fn of(user: u32) -> Self {
        let run = if user == 0 { "/run".into() } else { format!("/run/user/{user}") };
        let run = Path::new(&run);
        match run.is_dir() {
            true => Self { path: run.join("tompion/sessions"), own_levels: 2 },
            false => Self { path: format!("/tmp/tompion-{user}-sessions").into(), own_levels: 1 },
        }
    }
}

/// Opens the folder, or makes it, and checks that it is the user's own. Returns it and the one that
/// it is in.
fn open_own(place: &Path) -> io::Result<Vec<DirHandle>> {
    let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.map(DirHandle::open_or_create).transpose()?;
    let folder = match DirHandle::create_private(place) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => DirHandle::open(place)?,
        made => made?,
    };
    if is_own(&folder) {
        return Ok([folder].into_iter().chain(parent).collect());
    }
    Err(not_own())
}

fn not_own() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "expected a folder of this user's that no other user may open",
    )
}

fn is_own(folder: &DirHandle) -> bool {
    belongs_to(folder, file_user())
}

/// Whether a folder is a user's, and no other user may open it.
fn belongs_to(folder: &DirHandle, user: u32) -> bool {
    let own = |metadata: fs::Metadata| metadata.uid() == user && metadata.permissions().mode() & 0o077 == 0;
    folder.metadata().is_ok_and(own)
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use super::*;

    fn listen(place: &Path, session: Option<&str>) -> Result<(ControlSocket, UnixListener), PlaceError> {
        ControlSocket::listen_in(&SocketFolder { path: place.to_owned(), own_levels: 0 }, session)
    }

    #[test]
    fn a_name_belongs_to_one_recorder_and_is_free_after_it() {
        let dir = TestDir::new("control");
        // Longer than an address may be.
        let place = dir.join("a".repeat(100)).join("tompion").join("sessions");
        let (first, _listener) = listen(&place, Some("flight")).expect("a socket");
        assert_eq!(fs::metadata(&place).expect("a folder").permissions().mode() & 0o777, 0o700);
        let again = listen(&place, Some("flight"));
        assert!(matches!(again, Err(PlaceError::Taken(name)) if name == "flight"));
        let (other, _listener) = listen(&place, None).expect("a socket");
        assert_eq!(other.name(), std::process::id().to_string());
        let (third, _listener) = listen(&place, None).expect("a socket");
        assert_eq!(third.name(), format!("{}-2", std::process::id()));
        assert_eq!(folders_in(&place, file_user()).len(), 3);
        assert!(folders_in(&place, file_user())[2].1.connect(SOCKET).is_ok());
        drop(first);
        assert_eq!(folders_in(&place, file_user()).len(), 2);
        listen(&place, Some("flight")).expect("a free name");
        drop((other, third));
        assert_eq!(fs::read_dir(&place).expect("a folder").count(), 0);
    }

    #[test]
    fn leftovers_of_a_killed_recorder_are_replaced() {
        let dir = TestDir::new("control-killed");
        let place = dir.join("sessions");
        fs::create_dir(&place).expect("a folder");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).expect("a mode");
        fs::create_dir(place.join("flight")).expect("a folder");
        drop(UnixListener::bind(place.join("flight/control")).expect("a socket"));
        fs::write(place.join("flight/.tompion-lock"), "").expect("a file");
        let (_socket, _listener) = listen(&place, Some("flight")).expect("a free name");
        assert!(folders_in(&place, file_user())[0].1.connect(SOCKET).is_ok());
    }

    #[test]
    fn the_last_recorder_leaves_no_folder_of_tompions() {
        let dir = TestDir::new("control-last");
        let place = SocketFolder { path: dir.join("tompion").join("sessions"), own_levels: 2 };
        let listen = |name| ControlSocket::listen_in(&place, Some(name)).expect("a socket").0;
        let (first, second) = (listen("first"), listen("second"));
        drop(first);
        assert!(place.path.exists());
        fs::write(dir.join("tompion").join("other"), "").expect("a file");
        drop(second);
        assert!(!place.path.exists() && dir.join("tompion").exists());
        fs::remove_file(dir.join("tompion").join("other")).expect("a file");
        drop(listen("third"));
        assert!(!dir.join("tompion").exists() && dir.join("").exists());
        // What was put in the place of a folder is not removed.
        let fourth = listen("fourth");
        fs::rename(dir.join("tompion"), dir.join("moved")).expect("a name");
        fs::create_dir_all(place.path.join("fourth")).expect("a folder");
        drop(fourth);
        assert!(place.path.join("fourth").exists() && !dir.join("moved").exists());
    }

    #[test]
    fn a_folder_that_others_may_open_is_refused() {
        let dir = TestDir::new("control-open");
        let place = dir.join("sessions");
        fs::create_dir(&place).expect("a folder");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("a mode");
        let refused = listen(&place, None);
        assert!(matches!(refused, Err(PlaceError::Folder(..))));
        assert!(folders_in(&place, file_user()).is_empty());
    }

    #[test]
    fn names_are_no_paths_and_no_process_ids() {
        for name in ["a", "flight", "A.b_c-9", &"a".repeat(64)] {
            assert!(check_session_name(name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", "9", "4711", "a/b", "a b", "-a", "_a", "é", &"a".repeat(65)] {
            assert!(check_session_name(name).is_err(), "{name}");
        }
    }
}
