//! Names by which agents and sessions find each other: Unix sockets in folders and with abstract
//! names, and environment variables.
//!
//! A socket's name that begins with a slash is a path, any other one is abstract.
//!
//! Any user can take an abstract name, so it proves nothing: both sides ask the kernel which user
//! the other side is. A name that another user has is passed over. So a session's own name and an
//! attach socket's have a random part, and names that must be known beforehand have a number.

/// Environment variable with the sockets of an agent's sessions, separated by colons.
pub const SESSION_VARIABLE: &str = "TOMPION_SESSION";
/// Environment variable with the library's file, for programs that load it by themselves.
pub const LIBRARY_VARIABLE: &str = "TOMPION_LIBRARY";
/// Environment variable with a folder: the program records itself there, without a launcher.
pub const RECORD_VARIABLE: &str = "TOMPION_RECORD";
/// Environment variable with options of `tompion record` for such a recording, separated by blanks.
pub const RECORD_OPTIONS_VARIABLE: &str = "TOMPION_RECORD_OPTIONS";
/// Environment variable that, with the value 1, disables the agent in a process.
pub const DISABLE_VARIABLE: &str = "TOMPION_DISABLE";
/// Environment variable of a session that, with the value 0, disables restartable sequences in the
/// programs that it records.
pub const RSEQ_VARIABLE: &str = "TOMPION_RSEQ";
/// Environment variable that says whether a process can be asked to take part while it runs
/// (`record -p`), which takes a thread: `0` never, `1` also if only preloaded libraries have
/// events. By default programs that have events of their own can be.
pub const ATTACH_VARIABLE: &str = "TOMPION_ATTACH";

/// Environment variable with the folder in which recorders make their join sockets and starting
/// programs look for them, or for programs with one such socket.
pub const SOCKET_VARIABLE: &str = "TOMPION_SOCKET";

/// Environment variable with the level of debug messages on standard error: `debug` for all.
pub const LOG_VARIABLE: &str = "TOMPION_LOG";

/// Folder in root's folder of join sockets.
pub const GRANTED_FOLDER: &str = ".granted";

/// Maximum number of sessions of one user that are open to all the user's programs.
pub const MAX_OPEN_SESSIONS: u32 = 8;
/// Names under which programs look for the session of a folder, one after the other.
pub const MAX_FOLDER_NAMES: u32 = 64;

/// Returns a name under which a process's agent can be asked to take part.
///
/// `namespace` is the inode of the pid namespace, `pid` the process's id in it. The random part
/// keeps other users from taking the name beforehand. Sessions look for it among all names
/// (`/proc/net/unix`), and ask the kernel whether the process listens there.
pub fn attach_socket(namespace: u64, pid: u32, random: u64) -> String {
    format!("tompion-bell-{namespace}-{pid}-{random:016x}")
}

/// Returns the pid namespace and the process id that an [`attach_socket`]'s name has.
pub fn process_of_attach_socket(name: &str) -> Option<(u64, u32)> {
    let mut parts = name.strip_prefix("tompion-bell-")?.splitn(3, '-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Folder with the join sockets of a user's recorders. Programs look into their own user's and into
/// root's.
///
/// Root's recorders may want any program; the rights of the folder keep all other users from making
/// a socket there.
pub fn join_folder(user: u32) -> String {
    match user {
        0 => "/run/tompion/join".to_owned(),
        _ => format!("/run/user/{user}/tompion/join"),
    }
}

/// Folder, in one of root's for join sockets, with those of recorders that root's supervisor runs
/// for users with grants and that may want programs of this user. They are apart, so that they hide
/// none of root's. Its name is hidden from those who list the folder around it.
pub fn granted_join_folder(folder: &str, user: u32) -> String {
    format!("{folder}/{GRANTED_FOLDER}/{user}")
}

/// Name under which a session listens that is open to all programs of a user; `number` is less than
/// [`MAX_OPEN_SESSIONS`].
pub fn open_session(user: u32, number: u32) -> String {
    format!("tompion-open-{user}-{number}")
}

/// Name under which the session of a folder listens that programs of a user record themselves into,
/// as long as no other user has it.
///
/// The name has a hash of the path (FNV-1a, 64 bits), because socket names are short. Two folders
/// with the same hash would share a session.
pub fn folder_session(user: u32, folder: &[u8]) -> String {
    format!("tompion-folder-{user}-{:016x}", fingerprint(folder))
}

/// Returns the name of a folder session with this number. The first is the plain name; further ones
/// are for users whose earlier names other users have taken. `number` < [`MAX_FOLDER_NAMES`].
pub fn numbered(folder_session: &str, number: u32) -> String {
    match number {
        0 => folder_session.to_owned(),
        _ => format!("{folder_session}-{number}"),
    }
}

/// Returns a number that differs for different bytes, except for deliberate collisions (FNV-1a,
/// 64 bits).
pub fn fingerprint(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_enough_for_sockets_and_differ() {
        let longest = [
            attach_socket(u64::MAX, u32::MAX, u64::MAX),
            open_session(u32::MAX, MAX_OPEN_SESSIONS),
            numbered(&folder_session(u32::MAX, b"/"), MAX_FOLDER_NAMES),
        ];
        assert!(longest.iter().all(|name| name.len() < 107));
        assert_ne!(folder_session(0, b"/a"), folder_session(0, b"/b"));
        assert_ne!(folder_session(0, b"/a"), folder_session(1, b"/a"));
        assert_ne!(numbered("a", 0), numbered("a", 1));
    }

    #[test]
    fn attach_sockets_name_their_process() {
        assert_eq!(process_of_attach_socket(&attach_socket(7, 42, 1)), Some((7, 42)));
        assert_eq!(process_of_attach_socket("tompion-bell-7-42"), Some((7, 42)));
        for other in ["tompion-bell-7-x", "tompion-bell-7", "tompion-bell--7-42", "tompion-open-7-42"] {
            assert_eq!(process_of_attach_socket(other), None, "{other}");
        }
    }
}
