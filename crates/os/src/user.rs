//! User on whose behalf a program with more rights runs.

use std::{
    ffi::{CStr, CString, OsStr, OsString},
    fs, io,
    marker::PhantomData,
    os::unix::{ffi::OsStrExt, fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{check, last_error};

/// Largest entry of the users' data base that is read.
const MAX_ENTRY: usize = 1 << 20;
/// Most groups of a user (`NGROUPS_MAX`).
const MAX_GROUPS: usize = 65536;
/// Variables that sudo sets for the programs that it runs, and only those. Source: `sudo(8)`.
const SUDO_VARIABLES: [&str; 7] =
    ["SUDO_COMMAND", "SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_HOME", "SUDO_TTY", "SUDO_ASKPASS"];

/// Variable that names groups by their numbers, with commas between: of the user behind this
/// program, no others count. A supervisor sets it for users that had shed some when they called.
pub const GROUPS_VARIABLE: &str = "TOMPION_GROUPS";

/// A user, with what a login gives to his programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// Variables of the environment that are the user's own.
    own: Vec<(&'static str, OsString)>,
}

impl User {
    /// User that has started this program through sudo; none if that was root, or if it doesn't run
    /// as root.
    pub fn behind_sudo() -> Option<Self> {
        // SAFETY: a plain system call that can't fail.
        if unsafe { libc::geteuid() } != 0 {
            return None;
        }
        let number = |name: &str| std::env::var(name).ok()?.parse().ok();
        let uid = number("SUDO_UID").filter(|uid| *uid != 0 && *uid != u32::MAX)?;
        let user = Self::new(uid, number("SUDO_GID").unwrap_or(uid));
        let had = std::env::var(GROUPS_VARIABLE).ok();
        Some(had.map_or_else(|| user.clone(), |had| user.without_groups_beyond(&had)))
    }

    /// The same user, without the groups that a list does not have.
    fn without_groups_beyond(&self, list: &str) -> Self {
        let had: Vec<u32> = list.split(',').filter_map(|group| group.parse().ok()).collect();
        let groups = self.groups.iter().copied().filter(|group| had.contains(group)).collect();
        Self { groups, ..self.clone() }
    }

    /// User as the machine's database has it, with the first group that it has there; an unknown
    /// one has these two numbers alone.
    pub fn known_or(uid: u32, gid: u32) -> Self {
        Self::new(uid, Entry::of(uid).map_or(gid, |entry| entry.gid))
    }

    /// User as the machine's database has it; an unknown one has these two numbers alone.
    pub(crate) fn new(uid: u32, gid: u32) -> Self {
        let Some(entry) = Entry::of(uid) else {
            return Self { uid, gid, groups: vec![gid], own: Vec::new() };
        };
        let name = OsStr::from_bytes(entry.name.to_bytes()).to_owned();
        let runtime = PathBuf::from(format!("/run/user/{uid}"));
        let has_runtime = std::fs::metadata(&runtime).is_ok_and(|folder| folder.uid() == uid);
        let own = [
            ("HOME", entry.home.into_os_string()),
            ("SHELL", entry.shell.into_os_string()),
            ("MAIL", Path::new("/var/mail").join(&name).into_os_string()),
            ("USER", name.clone()),
            ("LOGNAME", name),
        ];
        let own = own.into_iter().chain(has_runtime.then(|| ("XDG_RUNTIME_DIR", runtime.into_os_string())));
        Self { uid, gid, groups: groups_of(&entry.name, gid), own: own.collect() }
    }

    /// The user's number.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Number of the user's first group.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// All groups of the user, the first one among them.
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// The user's home folder, if the database has the user.
    pub fn home(&self) -> Option<&Path> {
        self.own.iter().find(|(name, _)| *name == "HOME").map(|(_, home)| Path::new(home))
    }

    /// Lets a command run as the user: with his numbers, groups and environment, and no more rights
    /// than he has.
    pub fn run(&self, command: &mut Command) {
        command.envs(self.own.iter().cloned());
        for name in SUDO_VARIABLES.iter().chain(&[GROUPS_VARIABLE]) {
            command.env_remove(name);
        }
        let Self { uid, gid, groups, .. } = self.clone();
        // SAFETY: the closure runs in the forked child, which has one thread, and makes only system
        // calls.
        unsafe {
            command.pre_exec(move || {
                check(libc::setgroups(groups.len(), groups.as_ptr()))?;
                check(libc::setgid(gid))?;
                check(libc::setuid(uid)).map(drop)
            });
        }
    }

    /// Gives the calling thread the user's file rights until the result is dropped.
    ///
    /// The thread, and those that it starts meanwhile, open and create files as the user would:
    /// with no more rights, and the files are the user's. All other rights of the thread stay.
    pub fn own_files(&self) -> io::Result<FileRights> {
        let before = FileRights::current()?;
        FileRights { uid: self.uid, gid: self.gid, groups: self.groups.clone(), of_one_thread: PhantomData }
            .take()?;
        Ok(before)
    }
}

/// Gives the program the file rights of the user who started it through sudo, for the rest of its
/// life.
///
/// Call it before any other thread exists. What needs root's own rights asks for them by
/// [`FileRights::of_the_process`], for as long as it needs them. Returns the user; `None` where
/// there is none.
///
/// # Errors
/// If the system refuses: then nothing must be opened or written.
pub fn act_as_invoking_user() -> io::Result<Option<User>> {
    let Some(user) = User::behind_sudo() else { return Ok(None) };
    std::mem::forget(user.own_files()?);
    Ok(Some(user))
}

/// Lets a command run with the file rights of this process, where the calling thread has those of
/// the user who called sudo.
///
/// A program that gets other file rights by being executed counts as one with more rights than its
/// user (`AT_SECURE` in `getauxval(3)`), and ignores its environment.
pub fn run_with_rights_of_process(command: &mut Command) {
    // SAFETY: the closure runs in the forked child, which has one thread, and makes only system
    // calls, which can't fail.
    unsafe {
        command.pre_exec(|| {
            let (uid, gid) = (libc::geteuid(), libc::getegid());
            set_file_group(gid);
            set_file_user(uid);
            Ok(())
        });
    }
}

/// Users that a process is: real, effective, saved, and of its file accesses. Empty if there is no
/// such process. Source: `Uid` in `proc_pid_status(5)`.
pub fn users_of(pid: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    line.split_whitespace().filter_map(|user| user.parse().ok()).collect()
}

/// File rights of a thread, which it gets back when this is dropped.
#[derive(Debug)]
#[must_use = "the rights are given back when this is dropped"]
pub struct FileRights {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    of_one_thread: PhantomData<*const ()>,
}

impl FileRights {
    /// Gives the calling thread those of its process until the result is dropped: root's, under
    /// sudo.
    ///
    /// Only paths that root alone can change belong into such a scope, never one that a user has
    /// named.
    pub fn of_the_process() -> io::Result<Self> {
        let before = Self::current()?;
        // SAFETY: plain system calls that can't fail.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        set_file_group(gid);
        set_file_user(uid);
        Ok(before)
    }

    fn current() -> io::Result<Self> {
        // SAFETY: with a count of 0 the number of groups is returned and nothing written.
        let count = check(unsafe { libc::getgroups(0, std::ptr::null_mut()) })?;
        let mut groups = vec![0; count as usize];
        // SAFETY: the array has as many elements as the count says.
        check(unsafe { libc::getgroups(count, groups.as_mut_ptr()) })?;
        Ok(Self { uid: file_user(), gid: set_file_group(u32::MAX), groups, of_one_thread: PhantomData })
    }

    fn take(self) -> io::Result<()> {
        let result = self.set();
        std::mem::forget(self);
        result
    }

    /// Sources: `setfsuid(2)`, `setgroups(2)`. The C library's `setgroups` would change all
    /// threads.
    ///
    /// The kernel forgets the signal at the parent's end when these rights change
    /// (`PR_SET_PDEATHSIG` in `prctl(2)`).
    fn set(&self) -> io::Result<()> {
        let at_end_of_parent = signal_at_end_of_parent();
        let result = self.set_ids();
        if at_end_of_parent != 0 {
            // SAFETY: a plain system call on a signal's number.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, at_end_of_parent) };
        }
        result
    }

    fn set_ids(&self) -> io::Result<()> {
        // SAFETY: a plain system call on an array with as many elements as the count says.
        if unsafe { libc::syscall(libc::SYS_setgroups, self.groups.len(), self.groups.as_ptr()) } != 0 {
            return Err(last_error());
        }
        set_file_group(self.gid);
        set_file_user(self.uid);
        // They report no error; what is set afterwards tells.
        if (file_user(), set_file_group(u32::MAX)) == (self.uid, self.gid) {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::PermissionDenied))
        }
    }
}

impl Drop for FileRights {
    fn drop(&mut self) {
        // A thread that may take rights away may give them back.
        let _ = self.set();
    }
}

/// The user whose file rights the calling thread has.
pub fn file_user() -> u32 {
    set_file_user(u32::MAX)
}

/// The signal that the calling thread gets at its parent's end; 0 for none.
fn signal_at_end_of_parent() -> libc::c_int {
    let mut signal: libc::c_int = 0;
    // SAFETY: the kernel writes one number, to a live place.
    unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal) };
    signal
}

/// Sets the user for files, and returns the previous one; a number without a user changes nothing.
fn set_file_user(uid: u32) -> u32 {
    // SAFETY: a plain system call.
    unsafe { libc::setfsuid(uid) as u32 }
}

fn set_file_group(gid: u32) -> u32 {
    // SAFETY: a plain system call.
    unsafe { libc::setfsgid(gid) as u32 }
}

/// A user's entry in the data base.
struct Entry {
    name: CString,
    gid: u32,
    home: PathBuf,
    shell: PathBuf,
}

impl Entry {
    fn of(uid: u32) -> Option<Self> {
        look_up(|to, size| {
            // SAFETY: all-zero bytes are a valid structure.
            let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
            let mut found = std::ptr::null_mut();
            // SAFETY: the buffer has `size` writable bytes, and both structures are live.
            let code = unsafe { libc::getpwuid_r(uid, &raw mut entry, to, size, &raw mut found) };
            // SAFETY: the texts of an entry that was found end with a NUL and lie in the buffer.
            let text = |text: *mut libc::c_char| unsafe { CStr::from_ptr(text) }.to_owned();
            let path = |text: CString| PathBuf::from(OsStr::from_bytes(text.to_bytes()));
            let found = (code == 0 && !found.is_null()).then(|| Self {
                name: text(entry.pw_name),
                gid: entry.pw_gid,
                home: path(text(entry.pw_dir)),
                shell: path(text(entry.pw_shell)),
            });
            (code, found)
        })
    }
}

/// Asks the data base by a function of the C library, which gets a buffer and its size. Returns
/// what it has found.
fn look_up<T>(mut ask: impl FnMut(*mut libc::c_char, usize) -> (libc::c_int, Option<T>)) -> Option<T> {
    let mut buffer: Vec<libc::c_char> = vec![0; 1024];
    loop {
        match ask(buffer.as_mut_ptr(), buffer.len()) {
            (libc::ERANGE, _) if buffer.len() < MAX_ENTRY => buffer.resize(buffer.len() * 4, 0),
            (_, found) => return found,
        }
    }
}

/// Returns the number of the user that has this name.
pub fn user_named(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    look_up(|to, size| {
        // SAFETY: all-zero bytes are a valid structure.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: the buffer has `size` writable bytes, the name ends with a NUL, and both
        // structures are live.
        let code = unsafe { libc::getpwnam_r(name.as_ptr(), &raw mut entry, to, size, &raw mut found) };
        (code, (code == 0 && !found.is_null()).then_some(entry.pw_uid))
    })
}

/// Returns the number of the group that has this name.
pub fn group_named(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    look_up(|to, size| {
        // SAFETY: all-zero bytes are a valid structure.
        let mut entry: libc::group = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: as in `user_named`.
        let code = unsafe { libc::getgrnam_r(name.as_ptr(), &raw mut entry, to, size, &raw mut found) };
        (code, (code == 0 && !found.is_null()).then_some(entry.gr_gid))
    })
}

/// All groups of a user, the first one among them.
fn groups_of(name: &CStr, gid: u32) -> Vec<u32> {
    let mut groups = vec![gid; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the array has as many elements as the count says; the name ends with a NUL.
        let result = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        if result >= 0 || groups.len() >= MAX_GROUPS {
            groups.truncate(count.max(1) as usize);
            return groups;
        }
        groups.resize(groups.len() * 4, gid);
    }
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use super::*;

    #[test]
    fn groups_that_a_caller_had_shed_do_not_count() {
        let user = User { uid: 7, gid: 7, groups: vec![7, 20, 30], own: Vec::new() };
        for (list, groups) in [("30,7,99", &[7, 30][..]), ("", &[]), ("x,20", &[20])] {
            assert_eq!(user.without_groups_beyond(list).groups(), groups, "{list}");
        }
    }

    #[test]
    fn users_are_found_by_their_names() {
        assert_eq!((user_named("root"), user_named("no such user")), (Some(0), None));
        assert_eq!((group_named("root"), group_named("no such group")), (Some(0), None));
    }

    #[test]
    fn the_data_base_is_asked() {
        let root = User::new(0, 0);
        assert_eq!((root.uid(), root.groups.contains(&0)), (0, true));
        assert!(root.own.contains(&("USER", "root".into())) && root.own.contains(&("HOME", "/root".into())));
        assert_eq!((User::known_or(0, 7).gid(), root.home()), (0, Some(Path::new("/root"))));
        assert_eq!(User::known_or(u32::MAX - 5, 7).gid(), 7);
        let unknown = User::new(u32::MAX - 5, 7);
        assert_eq!((unknown.groups, unknown.own), (vec![7], vec![]));
    }

    #[test]
    fn files_are_the_users_until_the_rights_are_given_back() {
        // SAFETY: a plain system call that can't fail.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let folder = TestDir::new("user");
        let user = User::new(65534, 65534);
        std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).unwrap();
        let owner = |name: &str| {
            let path = folder.join(name);
            std::fs::write(&path, "").unwrap();
            let metadata = std::fs::metadata(path).unwrap();
            (metadata.uid(), metadata.gid())
        };
        let rights = user.own_files().unwrap();
        assert_eq!(owner("his"), (65534, 65534));
        assert!(std::fs::write("/etc/tompion-test-of-rights", "").is_err());
        assert_eq!(std::thread::scope(|scope| scope.spawn(|| owner("inherited")).join().unwrap()).0, 65534);
        drop(rights);
        assert_eq!(owner("ours").0, 0);
    }
}
