//! Recorders that may want this program, which was not started by one: they are asked before the
//! library is loaded, so that a program that none wants stays as it is.
//!
//! The library does the rest, and it alone decides which recorder it trusts. Nothing is sent here
//! but a constant. `tompion-protocol` has the folders and the messages.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    io::Write as _,
};

/// The folder where root's recorders have their sockets.
const ROOTS_FOLDER: &CStr = c"/run/tompion/join";
/// Number of the question, and of the answer of a recorder that wants the program.
const ASK: u32 = 4;
const WANTED: u32 = 105;
/// Version of the messages.
const VERSION: u32 = 1;
/// Milliseconds that a recorder has to answer. One that doesn't is left to the library.
const TIMEOUT_MS: c_int = 50;
/// Maximum number of waits for an answer, of which signals interrupt some.
const MAX_WAITS: usize = 4;
/// Maximum number of entries of a folder that are looked at.
const MAX_ENTRIES: usize = 34;
/// Bytes of a socket's path in its address. Source: `unix(7)`.
const PATH_SIZE: usize = 108;

unsafe extern "C" {
    fn geteuid() -> c_uint;
    fn opendir(path: *const c_char) -> *mut c_void;
    fn readdir(folder: *mut c_void) -> *const Entry;
    fn closedir(folder: *mut c_void) -> c_int;
    fn access(path: *const c_char, mode: c_int) -> c_int;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn connect(socket: c_int, address: *const Address, size: c_uint) -> c_int;
    fn send(socket: c_int, bytes: *const u32, size: usize, flags: c_int) -> isize;
    fn poll(sockets: *mut PollEntry, count: usize, timeout_ms: c_int) -> c_int;
    fn recv(socket: c_int, bytes: *mut u32, size: usize, flags: c_int) -> isize;
    fn close(socket: c_int) -> c_int;
}

// Numbers of Linux that its processors share, but for MIPS, SPARC, Alpha and PA-RISC.
const F_OK: c_int = 0;
const AF_UNIX: u16 = 1;
const SOCK_SEQPACKET: c_int = 5;
const SOCK_NONBLOCK: c_int = 0o4000;
const SOCK_CLOEXEC: c_int = 0o2_000_000;
const MSG_NOSIGNAL: c_int = 0x4000;
const POLLIN: i16 = 1;

/// `struct dirent`.
#[repr(C)]
struct Entry {
    _inode: u64,
    _offset: i64,
    _length: u16,
    _kind: u8,
    name: [c_char; 256],
}

/// `struct sockaddr_un`.
#[repr(C)]
struct Address {
    family: u16,
    path: [u8; PATH_SIZE],
}

/// `struct pollfd`.
#[repr(C)]
struct PollEntry {
    descriptor: c_int,
    events: i16,
    _found: i16,
}

/// Whether a recorder wants this program, or may. `chosen` is the folder or socket of the
/// environment. Without a folder this takes one system call, or two.
pub fn want_this_program(chosen: Option<&CStr>) -> bool {
    if let Some(path) = chosen.filter(|path| !path.is_empty()) {
        return one_wants(path);
    }
    if one_wants(ROOTS_FOLDER) {
        return true;
    }
    let mut path = [0; 64];
    // SAFETY: a plain call.
    let user = unsafe { geteuid() };
    let written = user != 0 && write!(&mut path[..63], "/run/user/{user}/tompion/join").is_ok();
    written && CStr::from_bytes_until_nul(&path).is_ok_and(one_wants)
}

/// Whether a recorder wants this program that has its socket in a folder, or at this path.
fn one_wants(path: &CStr) -> bool {
    // SAFETY: the path is text.
    if unsafe { access(path.as_ptr(), F_OK) } != 0 {
        return false;
    }
    // SAFETY: the path is text.
    let folder = unsafe { opendir(path.as_ptr()) };
    if folder.is_null() {
        return socket_path(path, None).is_some_and(|address| wants(&address));
    }
    let is_wanted = (0..MAX_ENTRIES).any(|_| {
        // SAFETY: the folder is open, and no other thread reads it.
        let entry = unsafe { readdir(folder) };
        let name = (!entry.is_null()).then(|| {
            // SAFETY: the name of an entry ends with a NUL, and may be shorter than its place.
            unsafe { CStr::from_ptr((&raw const (*entry).name).cast()) }
        });
        let shown = name.filter(|name| !name.to_bytes().starts_with(b"."));
        shown.and_then(|name| socket_path(path, Some(name))).is_some_and(|address| wants(&address))
    });
    // SAFETY: the folder is open, and nothing uses it from here on.
    unsafe { closedir(folder) };
    is_wanted
}

/// The address of a socket in a folder, if the path is short enough.
fn socket_path(folder: &CStr, name: Option<&CStr>) -> Option<Address> {
    let mut address = Address { family: AF_UNIX, path: [0; PATH_SIZE] };
    let mut rest = &mut address.path[..PATH_SIZE - 1];
    rest.write_all(folder.to_bytes()).ok()?;
    if let Some(name) = name {
        rest.write_all(b"/").ok()?;
        rest.write_all(name.to_bytes()).ok()?;
    }
    Some(address)
}

/// Asks the recorder that listens at an address. A dead socket refuses at once.
fn wants(address: &Address) -> bool {
    // SAFETY: a plain call.
    let socket = unsafe { socket(AF_UNIX.into(), SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) };
    if socket < 0 {
        return false;
    }
    // SAFETY: the address is initialised and has this size.
    let connected = unsafe { connect(socket, address, size_of::<Address>() as c_uint) } == 0;
    let is_wanted = connected && ask(socket);
    // SAFETY: the descriptor is this function's own.
    unsafe { close(socket) };
    is_wanted
}

fn ask(socket: c_int) -> bool {
    let question = [ASK, VERSION];
    // SAFETY: the question is readable for its size. A recorder that has refused already is heard
    // below.
    unsafe { send(socket, question.as_ptr(), size_of_val(&question), MSG_NOSIGNAL) };
    let mut waiting = PollEntry { descriptor: socket, events: POLLIN, _found: 0 };
    // SAFETY: one entry, which is live.
    let mut wait = || unsafe { poll(&raw mut waiting, 1, TIMEOUT_MS) };
    // Signals interrupt a wait. After many, it is left to the library, as without an answer.
    let ended = (0..MAX_WAITS).map(|_| wait()).find(|ready| *ready >= 0);
    if ended.is_none_or(|ready| ready == 0) {
        return true;
    }
    let mut answer = [0u32; 2];
    // SAFETY: the answer is writable for its size; the rest of a longer one is dropped.
    let size = unsafe { recv(socket, answer.as_mut_ptr(), size_of_val(&answer), 0) };
    size == size_of_val(&answer) as isize && answer[0] == WANTED
}
