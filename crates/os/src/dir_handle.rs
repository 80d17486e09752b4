//! Handles of open directories: whatever is put in their place later, files are found and made in
//! these.
//!
//! This is how commands write where another user may have laid something:
//!
//! - The way to a directory follows no link that another user laid, where the caller has root's
//!   file rights. Where it has any of root's rights, the way follows no link of `/proc` to what a
//!   process has open or sees: those ask for other rights than file rights.
//! - Below the directory no link is followed at all ([`crate::beneath`]).
//! - A file is made new, or it is a regular file with one name. Nothing waits for a FIFO, no device
//!   is opened.
//! - What is removed is what was opened, not what has its name by now.
//!
//! The access to new files is decided here, too: [`is_private`].

use std::{
    ffi::{CString, OsStr, OsString},
    fs::{self, File, Metadata},
    io::{self, Read, Seek, SeekFrom, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
        },
    },
    path::{Component, Path, PathBuf},
    sync::{Arc, OnceLock},
};

use crate::{
    beneath::{open_below, open_one, with_safe},
    check, user,
};

/// Most links on the way to a directory. Source: `path_resolution(7)`.
const MAX_LINKS: u32 = 40;
/// Whether what this program makes is for its user alone, whatever the umask: the program is
/// root's, or has some of root's rights, so that it may have seen what other users must not.
pub fn is_private() -> bool {
    static PRIVATE: OnceLock<bool> = OnceLock::new();
    *PRIVATE.get_or_init(|| {
        // SAFETY: a plain system call that can't fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        is_root || capabilities.is_some_and(|bits| bits.trim().bytes().any(|digit| digit != b'0'))
    })
}

/// Permissions of a directory into which only its owner may look.
const PRIVATE: libc::mode_t = 0o700;

/// Permissions of a new directory, before the umask.
fn directory_mode() -> libc::mode_t {
    if is_private() { PRIVATE } else { 0o777 }
}

/// Permissions of a new file, before the umask.
pub(crate) fn file_mode() -> libc::mode_t {
    if is_private() { 0o600 } else { 0o666 }
}

/// A directory that is held open, or one below it.
#[derive(Clone, Debug)]
pub struct DirHandle {
    /// The directory that is open.
    root: Arc<OwnedFd>,
    /// Path below the open directory; empty for the directory itself.
    below: PathBuf,
    /// Path at which it was opened, for people and for programs that open it by its path.
    path: PathBuf,
}

impl DirHandle {
    /// Opens a directory.
    ///
    /// # Errors
    /// If it is none, or can't be opened, or the way there leads over a link that another user laid
    /// and the caller has root's file rights.
    pub fn open(path: &Path) -> io::Result<Self> {
        let directory = walk(path, Missing::Error)?;
        Ok(Self::held(directory, path))
    }

    /// Opens a directory; makes it, and those on the way, where they are missing.
    ///
    /// # Errors
    /// As [`DirHandle::open`], or if one can't be made.
    pub fn open_or_create(path: &Path) -> io::Result<Self> {
        let directory = walk(path, Missing::Create)?;
        Ok(Self::held(directory, path))
    }

    /// Makes a directory in one that is there.
    ///
    /// # Errors
    /// `AlreadyExists` if there is something of this name; as [`DirHandle::open`], or if it can't
    /// be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_in(walk(parent_of(path), Missing::Error)?, path, directory_mode())
    }

    /// The same; makes those on the way where they are missing.
    ///
    /// # Errors
    /// As [`DirHandle::create`].
    pub fn create_all(path: &Path) -> io::Result<Self> {
        Self::create_in(walk(parent_of(path), Missing::Create)?, path, directory_mode())
    }

    /// As [`DirHandle::create`]; only its owner may look into it, whatever user runs the program.
    ///
    /// # Errors
    /// As [`DirHandle::create`].
    pub fn create_private(path: &Path) -> io::Result<Self> {
        Self::create_in(walk(parent_of(path), Missing::Error)?, path, PRIVATE)
    }

    fn create_in(parent: OwnedFd, path: &Path, mode: libc::mode_t) -> io::Result<Self> {
        let Some(name) = path.file_name() else { return Err(io::ErrorKind::AlreadyExists.into()) };
        make_directory(parent.as_raw_fd(), name, mode)?;
        let directory = open_below(parent.as_raw_fd(), Path::new(name), libc::O_DIRECTORY)?;
        // Whose parent it is may have put another one in its place.
        if fs::read_dir(path_of(&directory))?.next().is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(Self::held(directory, path))
    }

    fn held(directory: OwnedFd, path: &Path) -> Self {
        let real = fs::read_link(path_of(&directory));
        let path = real.or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned());
        Self { root: Arc::new(directory), below: PathBuf::new(), path }
    }

    /// A directory below this one, which need not be there.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> Self {
        let name = name.as_ref();
        Self { root: Arc::clone(&self.root), below: self.below.join(name), path: self.path.join(name) }
    }

    /// Returns a directory beside this one, with a suffix to its name.
    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Self {
        let longer = |path: &Path| {
            let mut longer = path.as_os_str().to_owned();
            longer.push(suffix);
            PathBuf::from(longer)
        };
        Self { root: Arc::clone(&self.root), below: longer(&self.below), path: longer(&self.path) }
    }

    /// Path at which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Metadata of the directory itself.
    ///
    /// # Errors
    /// If it isn't there.
    pub fn metadata(&self) -> io::Result<Metadata> {
        File::from(self.reach()?).metadata()
    }

    /// Makes the directory, and those between the open one and this, where they are missing.
    ///
    /// # Errors
    /// If one can't be made.
    pub fn make(&self) -> io::Result<()> {
        let mut place = PathBuf::new();
        for component in self.below.components() {
            let parent = self.reach_below(&place)?;
            match make_directory(parent.as_raw_fd(), component.as_os_str(), directory_mode()) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => place.push(component),
            }
        }
        // What was there must be a directory, too.
        self.reach().map(drop)
    }

    /// Makes a directory in this one that only its owner may look into.
    ///
    /// # Errors
    /// If it can't be made, or something has the name.
    pub fn create_below(&self, name: &str) -> io::Result<Self> {
        plain(name.as_ref())?;
        make_directory(self.reach()?.as_raw_fd(), name.as_ref(), PRIVATE)?;
        Ok(self.join(name))
    }

    /// A new file, to be read and written.
    ///
    /// # Errors
    /// If it can't be made, or is there.
    pub fn create_new(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.open_file(name.as_ref(), libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)
    }

    /// A file to be read.
    ///
    /// # Errors
    /// If it can't be opened, or is no regular file.
    pub fn read(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let file = self.open_file(name.as_ref(), libc::O_RDONLY)?;
        regular(file)
    }

    /// Reads a file whole, of at most so many bytes: other programs decide its size.
    ///
    /// # Errors
    /// As of [`DirHandle::read`], or if the file is larger.
    pub fn read_bounded(&self, name: impl AsRef<OsStr>, max_bytes: u64) -> io::Result<Vec<u8>> {
        let file = self.read(name)?;
        let size = file.metadata()?.len();
        if size > max_bytes {
            let text = format!("expected at most {max_bytes} bytes, found {size}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut bytes = Vec::with_capacity(size as usize);
        file.take(max_bytes).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads the end of a file, of at most so many bytes: other programs decide its size.
    ///
    /// # Errors
    /// As of [`DirHandle::read`].
    pub fn read_tail(&self, name: impl AsRef<OsStr>, max_bytes: u64) -> io::Result<Vec<u8>> {
        let mut file = self.read(name)?;
        let begin = file.metadata()?.len().saturating_sub(max_bytes);
        file.seek(SeekFrom::Start(begin))?;
        let mut bytes = Vec::new();
        file.take(max_bytes).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A file that is there, to be read and written.
    ///
    /// # Errors
    /// If it can't be opened, is no regular file, or has other names.
    pub fn write(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let file = self.open_file(name.as_ref(), libc::O_RDWR)?;
        with_one_name(regular(file)?)
    }

    /// A file to whose end is written; made if it isn't there.
    ///
    /// # Errors
    /// If it can't be opened, is no regular file, or has other names.
    pub fn append(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let file = self.open_file(name.as_ref(), libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT)?;
        with_one_name(regular(file)?)
    }

    /// Writes a file beside the old one, then puts it in its place; `durable`: the medium has it on
    /// return.
    ///
    /// # Errors
    /// If it can't be written; then the old one stays.
    pub fn replace(&self, name: impl AsRef<OsStr>, bytes: &[u8], durable: bool) -> io::Result<()> {
        let name = name.as_ref();
        let mut new = name.to_owned();
        new.push(".new");
        let write = || -> io::Result<()> {
            let mut file = self.recreate(&new)?;
            file.write_all(bytes)?;
            if durable {
                file.sync_all()?;
            }
            self.rename(&new, self, name)?;
            if durable { self.sync() } else { Ok(()) }
        };
        write().inspect_err(|_| {
            let _ = self.remove(&new);
        })
    }

    /// A new file in the place of whatever has its name: left behind by a program that was killed,
    /// or laid there.
    ///
    /// # Errors
    /// If that can't be removed, or the file not made.
    pub fn recreate(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = name.as_ref();
        match self.create_new(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove(name)?;
                self.create_new(name)
            }
            file => file,
        }
    }

    /// Gives a file or directory another name, in this directory or another; what had that name is
    /// gone, unless it is a directory that isn't empty.
    ///
    /// # Errors
    /// If that can't be.
    pub fn rename(&self, from: impl AsRef<OsStr>, there: &Self, to: impl AsRef<OsStr>) -> io::Result<()> {
        let (here, there) = (self.reach()?, there.reach()?);
        let (from, to) = (plain(from.as_ref())?, plain(to.as_ref())?);
        // SAFETY: both names are live and end with a NUL; the descriptors are open.
        let result =
            unsafe { libc::renameat(here.as_raw_fd(), from.as_ptr(), there.as_raw_fd(), to.as_ptr()) };
        check(result).map(drop)
    }

    /// Gives a directory below an open one the name and place of another one, which must not be
    /// there or be empty.
    ///
    /// # Errors
    /// If that can't be.
    pub fn rename_to(&self, other: &Self) -> io::Result<()> {
        let place = |directory: &Self| {
            let name = directory.below.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
            let (below, path) = (parent_in(&directory.below), parent_in(&directory.path));
            io::Result::Ok((Self { root: Arc::clone(&directory.root), below, path }, name))
        };
        let ((here, from), (there, to)) = (place(self)?, place(other)?);
        here.rename(from, &there, to)
    }

    /// Whether the directory is there.
    pub fn exists(&self) -> bool {
        self.reach().is_ok()
    }

    /// Removes a file; a link for itself.
    ///
    /// # Errors
    /// If it isn't there, or can't be removed.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        unlink(&self.reach()?, name.as_ref(), 0)
    }

    /// Removes all that is in the directory, and the directory itself, whatever it is called by
    /// now.
    ///
    /// # Errors
    /// If something can't be removed; the rest is.
    pub fn remove_all(&self) -> io::Result<()> {
        let own = self.reach()?;
        empty(&own)?;
        remove_directory(&own)
    }

    /// Removes the directory itself, whatever it is called by now, unless something is in it.
    ///
    /// # Errors
    /// If something is in it, or it can't be removed.
    pub fn remove_empty(&self) -> io::Result<()> {
        remove_directory(&self.reach()?)
    }

    /// Names of what is in the directory.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let directory = self.reach_to_read()?;
        fs::read_dir(path_of(&directory))?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// Whether something has this name, were it a link that leads nowhere.
    pub fn has(&self, name: impl AsRef<OsStr>) -> bool {
        self.reach()
            .and_then(|own| open_below(own.as_raw_fd(), Path::new(name.as_ref()), libc::O_PATH))
            .is_ok()
    }

    /// Whether a directory has this name.
    pub fn has_directory(&self, name: impl AsRef<OsStr>) -> bool {
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let open = |own: OwnedFd| open_below(own.as_raw_fd(), Path::new(name.as_ref()), flags);
        self.reach().and_then(open).is_ok()
    }

    /// Sees to it that the medium has the directory's entries.
    ///
    /// # Errors
    /// If it can't be opened, or the medium fails.
    pub fn sync(&self) -> io::Result<()> {
        File::from(self.reach_to_read()?).sync_all()
    }

    /// Sees to it that the medium has the entries of this directory and of those up to the open
    /// one.
    ///
    /// # Errors
    /// As [`DirHandle::sync`].
    pub fn sync_up(&self) -> io::Result<()> {
        self.below.ancestors().try_for_each(|below| Self { below: below.to_owned(), ..self.clone() }.sync())
    }

    /// Sees to it that the medium has the directory's name.
    ///
    /// # Errors
    /// As [`DirHandle::sync`].
    pub fn sync_name(&self) -> io::Result<()> {
        File::from(open_one(self.reach()?.as_raw_fd(), "..".as_ref(), libc::O_DIRECTORY)?).sync_all()
    }

    /// Gives the calling thread the file rights of the directory's owner, where the caller has
    /// root's and the owner is another user: what they laid there can then lead nowhere that they
    /// could not go alone.
    ///
    /// # Errors
    /// If the system refuses, or others than the owner may write to the directory.
    pub fn take_owners_rights(&self) -> io::Result<Option<user::FileRights>> {
        if user::file_user() != 0 {
            return Ok(None);
        }
        let metadata = self.metadata()?;
        match metadata.uid() {
            0 if metadata.mode() & 0o022 == 0 => Ok(None),
            0 => Err(io::Error::other(
                "others than its owner may write to it, so root won't: chmod -R go-w makes it root's alone",
            )),
            owner => user::User::new(owner, metadata.gid()).own_files().map(Some),
        }
    }

    /// A file for [`crate::try_lock`], which only its owner can open, whatever the mode of this
    /// program's other files.
    pub(crate) fn lock_file(&self, name: &OsStr) -> io::Result<File> {
        let (own, name) = (self.reach()?, plain(name)?);
        let flags = with_safe(libc::O_RDWR | libc::O_CREAT);
        // SAFETY: the name is live and ends with a NUL; the descriptor is open.
        let descriptor = check(unsafe { libc::openat(own.as_raw_fd(), name.as_ptr(), flags, 0o600) })?;
        // SAFETY: the descriptor is new, and has no other owner.
        regular(unsafe { File::from_raw_fd(descriptor) })
    }

    /// An error if the caller has root's file rights and another user could put something else in
    /// the place of the directory or of one on the way to it. For files that others' code opens by
    /// their paths.
    ///
    /// # Errors
    /// Which directory it is.
    pub fn check_root_only(&self) -> io::Result<()> {
        if user::file_user() != 0 {
            return Ok(());
        }
        for place in self.path.ancestors() {
            let found = fs::symlink_metadata(place)?;
            // Where all users may write, they can't rename what is root's (`t`).
            let is_shared = found.mode() & 0o022 != 0 && (found.mode() & 0o1000 == 0 || place == self.path);
            if found.uid() != 0 || is_shared {
                let place = place.display();
                let text = format!(
                    "user {} or others can change {place}; choose one that root alone can",
                    found.uid()
                );
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
        }
        Ok(())
    }

    fn open_file(&self, name: &OsStr, flags: libc::c_int) -> io::Result<File> {
        plain(name)?;
        let place = self.below.join(name);
        Ok(open_below(self.root.as_raw_fd(), &place, flags)?.into())
    }

    pub(crate) fn reach(&self) -> io::Result<OwnedFd> {
        self.reach_below(&self.below)
    }

    /// The directory, so that it can be listed and synchronised.
    pub(crate) fn reach_to_read(&self) -> io::Result<OwnedFd> {
        open_below(self.root.as_raw_fd(), or_here(&self.below), libc::O_DIRECTORY)
    }

    fn reach_below(&self, place: &Path) -> io::Result<OwnedFd> {
        let flags = libc::O_DIRECTORY | libc::O_PATH;
        open_below(self.root.as_raw_fd(), or_here(place), flags)
    }
}

/// Removes an empty directory that is held open, whatever it is called by now.
fn remove_directory(own: &OwnedFd) -> io::Result<()> {
    let parent = open_one(own.as_raw_fd(), "..".as_ref(), libc::O_DIRECTORY | libc::O_PATH)?;
    let path = fs::read_link(path_of(own))?;
    let name = path.file_name().ok_or(io::ErrorKind::ResourceBusy)?;
    if !is_same(&open_one(parent.as_raw_fd(), name, libc::O_PATH)?, own)? {
        return Err(io::Error::other("it was renamed or replaced meanwhile: it is empty, but stays"));
    }
    unlink(&parent, name, libc::AT_REMOVEDIR)
}

/// Writes a file that the user named, in the place of an older one. What a shell or the system
/// names for a stream (`/dev/stdout`, `/dev/fd/63`) is written to.
///
/// # Errors
/// If it can't be written, or something else than a file has the name.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    const STREAMS: [&str; 5] = ["/dev/stdout", "/dev/stderr", "/dev/null", "/dev/fd", "/proc/self/fd"];
    if STREAMS.iter().any(|stream| path.starts_with(stream)) {
        return fs::write(path, bytes);
    }
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let parent = DirHandle::open(parent_of(path))?;
    let existing = open_below(parent.reach()?.as_raw_fd(), Path::new(name), libc::O_PATH);
    let existing = existing.and_then(|file| File::from(file).metadata());
    if existing.is_ok_and(|found| !found.is_file() && !found.is_symlink()) {
        return Err(io::Error::other("expected a file or nothing there, found something else; remove it"));
    }
    parent.replace(name, bytes, false)
}

/// Treatment of directories that are missing on the way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Error,
    Create,
}

/// Opens a directory. With root's file rights, no link is followed that another user laid.
fn walk(path: &Path, missing: Missing) -> io::Result<OwnedFd> {
    let path = or_here(path);
    let has_root_files = user::file_user() == 0;
    // A process without rights of root's can go nowhere that a link could lead it to against its
    // will.
    if !has_root_files && !is_private() {
        if missing == Missing::Create {
            fs::DirBuilder::new().recursive(true).mode(directory_mode()).create(path)?;
        }
        return Ok(File::options().read(true).custom_flags(libc::O_DIRECTORY).open(path)?.into());
    }
    // Directories on the way need not be readable.
    const ON_THE_WAY: libc::c_int = libc::O_DIRECTORY | libc::O_PATH;
    let mut here = open_one(libc::AT_FDCWD, if path.is_absolute() { "/" } else { "." }.as_ref(), ON_THE_WAY)?;
    let mut links = 0;
    let mut left = reversed(path);
    while let Some(name) = left.pop() {
        let found = match open_one(here.as_raw_fd(), &name, libc::O_PATH) {
            Err(error) if missing == Missing::Create && error.kind() == io::ErrorKind::NotFound => {
                make_directory(here.as_raw_fd(), &name, directory_mode())?;
                open_one(here.as_raw_fd(), &name, libc::O_PATH)?
            }
            found => found?,
        };
        let found = File::from(found);
        let metadata = found.metadata()?;
        if !metadata.is_symlink() {
            here = open_one(here.as_raw_fd(), &name, ON_THE_WAY)?;
            continue;
        }
        if has_root_files && metadata.uid() != 0 {
            let (name, owner) = (Path::new(&name).display(), metadata.uid());
            let text = format!(
                "root follows no link of another user ({name} is one of user {owner}); name where it leads"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let target = target_of(&found)?;
        if target.is_absolute() {
            if is_on_proc(&here)? {
                let name = Path::new(&name).display();
                let text = format!("no link of /proc is followed here ({name} is one); name where it leads");
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
            here = open_one(libc::AT_FDCWD, "/".as_ref(), ON_THE_WAY)?;
        }
        left.extend(reversed(&target));
    }
    open_one(here.as_raw_fd(), ".".as_ref(), libc::O_DIRECTORY)
}

/// Whether a directory is of the file system of processes, with links to what they have open and
/// see. Of those that lead to directories, the plain ones are relative (`self`, `net`).
/// Source: `proc(5)`.
fn is_on_proc(directory: &OwnedFd) -> io::Result<bool> {
    // SAFETY: all-zero bytes are a valid structure.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and the structure is live.
    check(unsafe { libc::fstatfs(directory.as_raw_fd(), &raw mut found) })?;
    // The C libraries have other types for it.
    Ok(i128::from(found.f_type) == i128::from(libc::PROC_SUPER_MAGIC))
}

/// The names on a way, the first one last.
fn reversed(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

fn make_directory(parent: RawFd, name: &OsStr, mode: libc::mode_t) -> io::Result<()> {
    let name = CString::new(name.as_bytes())?;
    // SAFETY: the name is live and ends with a NUL.
    check(unsafe { libc::mkdirat(parent, name.as_ptr(), mode) }).map(drop)
}

fn unlink(parent: &OwnedFd, name: &OsStr, flags: libc::c_int) -> io::Result<()> {
    let name = plain(name)?;
    // SAFETY: the name is live and ends with a NUL; the descriptor is open.
    check(unsafe { libc::unlinkat(parent.as_raw_fd(), name.as_ptr(), flags) }).map(drop)
}

/// Removes all that is in a directory. The standard library's removal follows no link below it.
fn empty(directory: &OwnedFd) -> io::Result<()> {
    let mut result = Ok(());
    for entry in fs::read_dir(path_of(directory))? {
        let entry = entry?;
        let removed = match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        };
        result = result.and(removed);
    }
    result
}

/// Target of a link that is open, not of one that has its name meanwhile.
fn target_of(link: &impl AsRawFd) -> io::Result<PathBuf> {
    let mut target = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: an empty name, and a buffer of that size.
    let len =
        unsafe { libc::readlinkat(link.as_raw_fd(), c"".as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    target.truncate(usize::try_from(len).map_err(|_| io::Error::last_os_error())?);
    Ok(OsString::from_vec(target).into())
}

/// A path that leads to what is open, whatever has its name.
pub(crate) fn path_of(descriptor: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into()
}

/// A name that leads nowhere else.
pub(crate) fn plain(name: &OsStr) -> io::Result<CString> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(CString::new(name.as_bytes())?),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a plain name")),
    }
}

fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("expected a file, found something else")),
    }
}

/// With root's file rights, a file that has another name may be one of root's, which another user
/// linked here.
fn with_one_name(file: File) -> io::Result<File> {
    match user::file_user() == 0 && file.metadata()?.nlink() != 1 {
        false => Ok(file),
        true => Err(io::Error::other("expected a file with one name, found one with others, too: copy it")),
    }
}

fn is_same(first: &OwnedFd, second: &OwnedFd) -> io::Result<bool> {
    let identity = |descriptor: &OwnedFd| -> io::Result<(u64, u64)> {
        let metadata = File::from(descriptor.try_clone()?).metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    };
    Ok(identity(first)? == identity(second)?)
}

fn parent_of(path: &Path) -> &Path {
    or_here(path.parent().unwrap_or(path))
}

/// The directory in which a path below an open one stands.
fn parent_in(path: &Path) -> PathBuf {
    path.parent().map(Path::to_owned).unwrap_or_default()
}

fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

#[cfg(test)]
mod tests;
