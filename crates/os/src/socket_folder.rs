//! Folders with Unix sockets: listening in one, connecting there, and listing one without the
//! allocator of the C library.

use std::{
    ffi::CString,
    fs::{self, File, Permissions},
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    time::Duration,
};

use crate::{
    Listener, check,
    dir_handle::{DirHandle, path_of, plain},
    last_error,
    socket::address,
};

/// Time for a listener to accept a connection. Its owner decides how long its queue stays full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes that are read of a folder's list: some 60 names.
const MAX_LIST: usize = 4096;
/// Offset of the name in an entry. Source: `struct linux_dirent64` in `getdents(2)`.
const NAME: usize = 19;
/// Offset of the entry's length.
const LENGTH: usize = 16;

impl DirHandle {
    /// Listens on a new Unix socket in the directory, however long the directory's path is: the
    /// kernel takes 107 bytes. Source: `unix(7)`.
    ///
    /// # Errors
    /// If something has the name, or the socket can't be made.
    pub fn listen(&self, name: &str) -> io::Result<UnixListener> {
        plain(name.as_ref())?;
        let own = self.reach()?;
        UnixListener::bind(path_of(&own).join(name))
    }

    /// Connects to a Unix socket in the directory, within two seconds.
    ///
    /// # Errors
    /// If nothing listens there, the user may not connect, or the listener's queue stays full.
    pub fn connect(&self, name: &str) -> io::Result<UnixStream> {
        plain(name.as_ref())?;
        let own = self.reach()?;
        let place = path_of(&own).join(name);
        let (address, size) = address(place.to_str().ok_or(io::ErrorKind::InvalidInput)?)?;
        // SAFETY: a plain system call; the descriptor is new.
        let raw = check(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the descriptor is new and has no other owner.
        let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(raw) });
        // The kernel waits as long for room in the queue. Source: `SO_SNDTIMEO` in `socket(7)`.
        stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
        // SAFETY: the address is live, and has the size that is said.
        check(unsafe { libc::connect(raw, (&raw const address).cast(), size) })?;
        stream.set_write_timeout(None)?;
        Ok(stream)
    }

    /// Listens for packets on a new Unix socket in the folder. If `is_for_all`, users who can look
    /// into the folder may connect.
    ///
    /// The socket gets its name once it listens: one that has its name and does not listen is dead.
    ///
    /// # Errors
    /// If the socket can't be made.
    pub fn listen_for_packets(&self, name: &str, is_for_all: bool) -> io::Result<Listener> {
        let hidden = format!(".{name}");
        let own = self.reach()?;
        let place = path_of(&own).join(&hidden);
        let listener = Listener::bind(place.to_str().ok_or(io::ErrorKind::InvalidInput)?)?;
        let mode = if is_for_all { 0o666 } else { 0o600 };
        let shown = fs::set_permissions(&place, Permissions::from_mode(mode))
            .and_then(|()| self.rename(&hidden, self, name));
        shown.map(|()| listener).inspect_err(|_| {
            let _ = self.remove(&hidden);
        })
    }

    /// Lets all users look into the folder, and only its owner change it.
    ///
    /// # Errors
    /// If the folder isn't the caller's.
    pub fn open_for_all(&self) -> io::Result<()> {
        File::from(self.reach_to_read()?).set_permissions(Permissions::from_mode(0o755))
    }
}

/// List of a folder.
#[derive(Debug)]
pub struct FolderList {
    /// User who owns the folder.
    pub owner: u32,
    /// The first names in it that are UTF-8 and don't begin with a dot.
    pub names: Vec<String>,
}

/// Lists a folder. It allocates with Rust's allocator alone: `opendir(3)` uses that of the program.
///
/// # Errors
/// `NotFound` without the folder, `NotADirectory` if the path leads to something else.
pub fn list_folder(path: &str) -> io::Result<FolderList> {
    let path = CString::new(path)?;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path is live and ends with a NUL.
    let raw = check(unsafe { libc::open(path.as_ptr(), flags) })?;
    // SAFETY: the descriptor is new and has no other owner.
    let folder = File::from(unsafe { OwnedFd::from_raw_fd(raw) });
    let owner = folder.metadata()?.uid();
    let mut list = [0u8; MAX_LIST];
    // SAFETY: the buffer is writable for its length.
    let size =
        unsafe { libc::syscall(libc::SYS_getdents64, folder.as_raw_fd(), list.as_mut_ptr(), list.len()) };
    if size < 0 {
        return Err(last_error());
    }
    Ok(FolderList { owner, names: names(list.get(..size as usize).unwrap_or_default()) })
}

/// Names in a list as the kernel writes it.
fn names(mut list: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(length) = list.get(LENGTH..LENGTH + 2) {
        let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
        let Some(name) = list.get(NAME..length) else { break };
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        match std::str::from_utf8(name) {
            Ok(name) if !name.starts_with('.') => names.push(name.to_owned()),
            _ => {}
        }
        list = list.get(length..).unwrap_or_default();
    }
    names
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use super::*;
    use crate::PacketSocket;

    #[test]
    fn sockets_of_a_folder_are_listed_and_connected_to() {
        let dir = TestDir::new("socket-folder");
        let place = dir.join("join");
        let folder = DirHandle::create_private(&place).expect("a folder");
        folder.open_for_all().expect("own folder");
        assert_eq!(fs::metadata(&place).expect("a folder").mode() & 0o777, 0o755);
        let _listener = folder.listen_for_packets("one", true).expect("a socket");
        let _other = folder.listen_for_packets("two", false).expect("a socket");
        fs::write(place.join(".hidden"), "").expect("a file");
        let list = list_folder(place.to_str().expect("a text")).expect("a list");
        let mut names = list.names;
        names.sort_unstable();
        assert_eq!((list.owner, names), (crate::effective_user(), vec!["one".to_owned(), "two".to_owned()]));
        let path = place.join("one");
        assert!(PacketSocket::connect_at_once(path.to_str().expect("a text")).is_ok());
        assert_eq!(fs::metadata(&path).expect("a socket").mode() & 0o777, 0o666);
        assert_eq!(fs::metadata(place.join("two")).expect("a socket").mode() & 0o777, 0o600);
    }

    #[test]
    fn a_listener_that_accepts_nothing_holds_a_caller_up_for_moments() {
        let dir = TestDir::new("full-queue");
        let folder = DirHandle::open(dir.path()).expect("a folder");
        let listener = folder.listen("full").expect("a socket");
        // SAFETY: a plain system call on an open descriptor; it makes the queue shorter.
        check(unsafe { libc::listen(listener.as_raw_fd(), 1) }).expect("a short queue");
        let mut connected = Vec::new();
        let refused = loop {
            match folder.connect("full") {
                Ok(stream) => connected.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(!connected.is_empty());
    }

    #[test]
    fn what_is_no_folder_has_no_list() {
        let dir = TestDir::new("no-folder");
        fs::write(dir.join("file"), "").expect("a file");
        let list = |name: &str| list_folder(dir.join(name).to_str().expect("a text"));
        assert_eq!(list("file").expect_err("a file").kind(), io::ErrorKind::NotADirectory);
        assert_eq!(list("none").expect_err("nothing").kind(), io::ErrorKind::NotFound);
        // Lists that no kernel writes end.
        for bytes in [vec![0; 64], vec![255; 64], vec![0; 18], Vec::new()] {
            assert!(names(&bytes).is_empty(), "{bytes:?}");
        }
    }
}
