//! Unix sockets of sequenced packets, with descriptors passed along.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt as _,
    },
    path::PathBuf,
};

use crate::{ProcessWatch, check};

/// Most descriptors that come with one packet.
const MAX_DESCRIPTORS: usize = 8;
/// Room for the control message that carries them, generously.
const CONTROL_SIZE: usize = 128;

/// Process at the other end of a connection, as the kernel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process's id in the caller's pid namespace; 0 if it cannot be named there.
    pub pid: u32,
    /// Its user id when it connected.
    pub uid: u32,
}

/// A connected socket.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

/// A listening socket with an abstract name or a path.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// Identity of the object behind a descriptor, whatever its number refers to later: the kernel's
/// device and inode numbers.
pub type Identity = (u64, u64);

/// Outcome of an attempt to receive that doesn't wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A packet of this length.
    Packet(usize),
    /// Nothing yet.
    Nothing,
    /// The conversation is over, or broke.
    End,
}

impl From<OwnedFd> for PacketSocket {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl From<OwnedFd> for Listener {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

/// A packet and the descriptors that came with it.
#[derive(Debug)]
pub struct Received {
    /// Length of the packet in the caller's buffer; 0 at the end of the conversation.
    pub len: usize,
    /// Descriptors, in the sender's order.
    pub descriptors: Vec<OwnedFd>,
}

/// Returns the process at the other end of a connected Unix socket.
///
/// # Errors
/// If it is no such socket.
pub fn peer_of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    credentials_of(socket).map(|found| Peer { pid: found.pid as u32, uid: found.uid })
}

fn credentials_of(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to live locals, and `size` says how large the first is.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut size,
        )
    })?;
    Ok(credentials)
}

/// Groups of the process at the other end of a connection, when it connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerGroups {
    /// Its effective group.
    pub first: u32,
    /// All of its groups, this one among them.
    pub all: Vec<u32>,
}

/// Returns the groups of the process at the other end of a connected Unix socket. The kernel has
/// noted them: no data base of users is asked.
///
/// Source: `SO_PEERGROUPS`, Linux 4.13.
///
/// # Errors
/// If it is no such socket, or the kernel does not tell.
pub fn peer_groups_of(socket: BorrowedFd<'_>) -> io::Result<PeerGroups> {
    // Source: `include/uapi/asm-generic/socket.h`.
    const SO_PEERGROUPS: libc::c_int = 59;
    let first = credentials_of(socket)?.gid;
    let mut all: Vec<libc::gid_t> = vec![first; 64];
    loop {
        let mut size = size_of_val(&*all) as libc::socklen_t;
        // SAFETY: the array has as many bytes as `size` says, and both pointers are live.
        let result = check(unsafe {
            let to = all.as_mut_ptr().cast();
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERGROUPS, to, &raw mut size)
        });
        let count = size as usize / size_of::<libc::gid_t>();
        match result {
            Ok(_) => {
                all.truncate(count);
                all.push(first);
                return Ok(PeerGroups { first, all });
            }
            // The kernel tells how much room it needs.
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && count > all.len() => {
                all.resize(count, first);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Longest path of a socket: an address has room for one more byte, the NUL. Source: `unix(7)`.
pub const MAX_SOCKET_PATH: usize = 107;

/// The address of a path, or of an abstract name, and its length. A path begins with a slash.
pub(crate) fn address(name: &str) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all-zero bytes are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // If the first byte stays NUL, the name is abstract. A path ends with a NUL (`unix(7)`).
    let begin = usize::from(!name.starts_with('/'));
    let room = address.sun_path.len().min(MAX_SOCKET_PATH + begin);
    let place = address.sun_path.get_mut(..room).and_then(|path| path.get_mut(begin..begin + name.len()));
    let place = place.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "socket name too long"))?;
    for (to, from) in place.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    Ok((address, len as libc::socklen_t))
}

fn new_socket(flags: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | flags;
    // SAFETY: a plain system call; the new descriptor has no other owner.
    unsafe { check(libc::socket(libc::AF_UNIX, kind, 0)).map(|raw| OwnedFd::from_raw_fd(raw)) }
}

/// Reads an option of a socket that is an integer.
fn socket_option(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: both pointers are to live locals, and `size` says how large the first is.
    check(unsafe {
        let to = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, to, &raw mut size)
    })?;
    Ok(value)
}

/// Checks that a descriptor of another process is a socket of sequenced packets that listens, or
/// one that does not.
fn check_received(socket: BorrowedFd<'_>, listens: bool) -> io::Result<()> {
    let is = |option, expected| socket_option(socket, option).map(|value| value == expected);
    let is_wanted = is(libc::SO_DOMAIN, libc::AF_UNIX)?
        && is(libc::SO_TYPE, libc::SOCK_SEQPACKET)?
        && is(libc::SO_ACCEPTCONN, listens.into())?;
    if is_wanted { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

impl Listener {
    /// A listening socket that another process passed on.
    ///
    /// # Errors
    /// The descriptor is something else.
    pub fn received(descriptor: OwnedFd) -> io::Result<Self> {
        check_received(descriptor.as_fd(), true)?;
        Ok(Self(descriptor))
    }

    /// Listens under an abstract name, or at a path at which nothing is. Accepting never blocks.
    pub fn bind(name: &str) -> io::Result<Self> {
        let socket = new_socket(libc::SOCK_NONBLOCK)?;
        let (address, len) = address(name)?;
        // SAFETY: `address` is an initialised address of `len` bytes.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
        // SAFETY: a plain system call.
        check(unsafe { libc::listen(socket.as_raw_fd(), 1024) })?;
        Ok(Self(socket))
    }

    /// Returns the path at which it was bound, as it was given then; none if the name is abstract.
    pub fn bound_path(&self) -> Option<PathBuf> {
        // SAFETY: all zeros is an address without a name.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        let mut len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` has room for `len` bytes, and both stay for the call.
        let result =
            unsafe { libc::getsockname(self.0.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
        check(result).ok()?;
        let named = (len as usize).checked_sub(std::mem::offset_of!(libc::sockaddr_un, sun_path))?;
        let bytes: Vec<u8> = address.sun_path.iter().take(named).map(|byte| *byte as u8).collect();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let path = bytes.get(..end).filter(|path| !path.is_empty())?;
        Some(OsStr::from_bytes(path).into())
    }

    /// Refuses descriptors over the connections that are accepted from now on, where the kernel
    /// knows how (Linux 6.16): closing a descriptor that another process made can take as long as
    /// that process likes.
    pub fn refuse_descriptors(&self) {
        // Source: `include/uapi/asm-generic/socket.h`.
        const SO_PASSRIGHTS: libc::c_int = 83;
        let no: libc::c_int = 0;
        let size = size_of_val(&no) as libc::socklen_t;
        // SAFETY: `no` is an initialised integer of the size that is passed.
        unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PASSRIGHTS,
                (&raw const no).cast(),
                size,
            )
        };
    }

    /// Moves the socket to a descriptor number that programs rarely use, if there is one.
    pub fn move_away(self) -> Self {
        Self(move_to(self.0, &RARELY_USED))
    }

    /// Moves the socket away from the numbers of the standard streams, in a table of the caller's
    /// own.
    pub fn move_off_streams(self) -> Self {
        Self(move_to(self.0, &[BEHIND_STREAMS]))
    }

    /// Identity of the socket behind the descriptor number, whatever the number refers to later.
    pub fn identity(&self) -> Option<Identity> {
        identity(self.0.as_raw_fd())
    }

    /// Closes the descriptor if it is still what it was; else forgets it, because it has another
    /// owner.
    pub fn close_if_still(self, known: Option<Identity>) {
        close_if_still(self.0, known);
    }

    /// The next connection, if one is waiting. Its receives block.
    pub fn accept(&self) -> io::Result<Option<PacketSocket>> {
        let none = std::ptr::null_mut();
        // SAFETY: the kernel accepts a null address; a descriptor that is returned is new.
        let raw =
            unsafe { libc::accept4(self.0.as_raw_fd(), none, std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
        match check(raw) {
            // SAFETY: as above.
            Ok(raw) => Ok(Some(PacketSocket(unsafe { OwnedFd::from_raw_fd(raw) }))),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PacketSocket {
    /// A connection that another process passed on.
    ///
    /// # Errors
    /// The descriptor is something else.
    pub fn received(descriptor: OwnedFd) -> io::Result<Self> {
        check_received(descriptor.as_fd(), false)?;
        Ok(Self(descriptor))
    }

    /// Connects to an abstract name. Sends and receives then wait for at most `timeout_ms`.
    pub fn connect(name: &str, timeout_ms: u32) -> io::Result<Self> {
        let socket = Self(new_socket(0)?);
        socket.set_timeout(timeout_ms)?;
        let (address, len) = address(name)?;
        // SAFETY: `address` is an initialised address of `len` bytes.
        check(unsafe { libc::connect(socket.raw(), (&raw const address).cast(), len) })?;
        Ok(socket)
    }

    /// Connects to an abstract name or a path if a process listens there and has room, without
    /// waiting.
    pub fn connect_at_once(name: &str) -> io::Result<Self> {
        let socket = Self(new_socket(libc::SOCK_NONBLOCK)?);
        let (address, len) = address(name)?;
        // SAFETY: `address` is an initialised address of `len` bytes.
        check(unsafe { libc::connect(socket.raw(), (&raw const address).cast(), len) })?;
        // SAFETY: a plain system call on a descriptor that is ours; from now on it may block.
        check(unsafe { libc::fcntl(socket.raw(), libc::F_SETFL, 0) })?;
        Ok(socket)
    }

    fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Bounds how long sends and receives wait; 0 is for ever.
    pub fn set_timeout(&self, timeout_ms: u32) -> io::Result<()> {
        let time =
            libc::timeval { tv_sec: (timeout_ms / 1000).into(), tv_usec: (timeout_ms % 1000 * 1000).into() };
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            let size = size_of::<libc::timeval>() as libc::socklen_t;
            // SAFETY: `time` is an initialised structure of the size that is passed.
            check(unsafe {
                libc::setsockopt(self.raw(), libc::SOL_SOCKET, option, (&raw const time).cast(), size)
            })?;
        }
        Ok(())
    }

    /// Process at the other end.
    pub fn peer(&self) -> io::Result<Peer> {
        peer_of(self.0.as_fd())
    }

    /// Watches the process at the other end: the one that connected or listened, never another one
    /// that got its number since.
    ///
    /// Source: `SO_PEERPIDFD`, Linux 6.5. Before that the process is looked for by its number.
    ///
    /// # Errors
    /// The process has ended, or can't be seen from here.
    pub fn peer_watch(&self) -> io::Result<ProcessWatch> {
        // Source: `include/uapi/asm-generic/socket.h`.
        const SO_PEERPIDFD: libc::c_int = 77;
        let mut pidfd: RawFd = -1;
        let mut size = size_of_val(&pidfd) as libc::socklen_t;
        // SAFETY: both pointers are to live locals, and `size` says how large the first is.
        let result = check(unsafe {
            let to = (&raw mut pidfd).cast();
            libc::getsockopt(self.raw(), libc::SOL_SOCKET, SO_PEERPIDFD, to, &raw mut size)
        });
        match result {
            // SAFETY: the descriptor is new and has no other owner.
            Ok(_) => Ok(unsafe { OwnedFd::from_raw_fd(pidfd) }.into()),
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                ProcessWatch::new(self.peer()?.pid)
            }
            Err(error) => Err(error),
        }
    }

    /// Moves the socket to a descriptor number that programs rarely use, if there is one.
    pub fn move_away(self) -> Self {
        Self(move_to(self.0, &RARELY_USED))
    }

    /// Moves the socket away from the numbers of the standard streams, in a table of the caller's
    /// own.
    pub fn move_off_streams(self) -> Self {
        Self(move_to(self.0, &[BEHIND_STREAMS]))
    }

    /// Identity of the socket behind the descriptor number, whatever the number refers to later.
    pub fn identity(&self) -> Option<Identity> {
        identity(self.raw())
    }

    /// Closes the descriptor if it is still what it was; else forgets it, because it has another
    /// owner.
    pub fn close_if_still(self, known: Option<Identity>) {
        close_if_still(self.0, known);
    }

    /// Sends one packet. Never raises SIGPIPE, and never waits for a receiver that doesn't receive.
    pub fn send(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let raws: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let mut vector = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
        let mut control = ControlBuffer::default();
        // SAFETY: all-zero bytes are a valid message header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        if !raws.is_empty() {
            let size = size_of_val(&*raws);
            message.msg_control = control.bytes.as_mut_ptr().cast();
            // SAFETY: CMSG_SPACE is arithmetic.
            // Of another type in each C library.
            message.msg_controllen = unsafe { libc::CMSG_SPACE(size as u32) } as _;
            assert!(raws.len() <= MAX_DESCRIPTORS && message.msg_controllen as usize <= CONTROL_SIZE);
            // SAFETY: the buffer is aligned and larger than the header and the descriptors
            // together.
            unsafe {
                let header = libc::CMSG_FIRSTHDR(&raw const message);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(size as u32) as _;
                std::ptr::copy_nonoverlapping(raws.as_ptr().cast(), libc::CMSG_DATA(header), size);
            }
        }
        // SAFETY: the message points to live locals only.
        let sent =
            unsafe { libc::sendmsg(self.raw(), &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        if sent < 0 { Err(crate::last_error()) } else { Ok(()) }
    }

    /// Receives one packet without descriptors and without allocating; none at the end of the
    /// conversation or when it broke.
    pub fn receive_bare(&self, buffer: &mut [u8]) -> Option<usize> {
        loop {
            // SAFETY: the buffer is writable for its length.
            let len = unsafe { libc::recv(self.raw(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
            match len {
                1.. => return Some(len as usize),
                0 => return None,
                _ if crate::last_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
    }

    /// Ends the conversation for both sides, also where other processes hold this socket.
    pub fn shut_down(&self) {
        // SAFETY: a plain system call on a descriptor that is ours. One that has ended already is
        // left as it is.
        unsafe { libc::shutdown(self.raw(), libc::SHUT_RDWR) };
    }

    /// Whether the other side still has its end. What it has said stays to be received.
    pub fn is_open(&self) -> bool {
        let mut byte = 0u8;
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        // SAFETY: the buffer is one writable byte.
        let len = unsafe { libc::recv(self.raw(), (&raw mut byte).cast(), 1, flags) };
        len > 0 || len < 0 && crate::last_error().kind() == io::ErrorKind::WouldBlock
    }

    /// Receives one packet without descriptors, if there is one; neither waits nor allocates.
    pub fn hear(&self, buffer: &mut [u8]) -> Heard {
        // SAFETY: the buffer is writable for its length.
        let len =
            unsafe { libc::recv(self.raw(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
        match len {
            1.. => Heard::Packet(len as usize),
            0 => Heard::End,
            _ => match crate::last_error().kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Heard::Nothing,
                _ => Heard::End,
            },
        }
    }

    /// Receives one packet into `buffer`; what doesn't fit of it is lost.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.receive_with(buffer, 0)
    }

    /// Receives a packet if there is one, without waiting.
    pub fn receive_at_once(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.receive_with(buffer, libc::MSG_DONTWAIT)
    }

    fn receive_with(&self, buffer: &mut [u8], flags: libc::c_int) -> io::Result<Received> {
        let flags = flags | libc::MSG_CMSG_CLOEXEC;
        let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = ControlBuffer::default();
        // SAFETY: all-zero bytes are a valid message header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.bytes.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_SIZE as _;
        let len = loop {
            // SAFETY: the message points to live locals only.
            let len = unsafe { libc::recvmsg(self.raw(), &raw mut message, flags) };
            if len >= 0 {
                break len as usize;
            }
            let error = crate::last_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        };
        Ok(Received { len, descriptors: take_descriptors(&message) })
    }
}

/// Descriptor numbers above which there are few of a program's, the best first.
const RARELY_USED: [RawFd; 3] = [60_000, 1000, 200];
/// The first number that is no standard stream's.
const BEHIND_STREAMS: RawFd = 3;

fn move_to(descriptor: OwnedFd, places: &[RawFd]) -> OwnedFd {
    for lowest in places {
        // SAFETY: duplicating a descriptor has no other effect.
        let raw = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, *lowest) };
        if raw >= 0 {
            // SAFETY: the descriptor is new and has no other owner.
            return unsafe { OwnedFd::from_raw_fd(raw) };
        }
    }
    descriptor
}

fn identity(raw: RawFd) -> Option<Identity> {
    // SAFETY: all-zero bytes are a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is a writable structure of the right type.
    let result = unsafe { libc::fstat(raw, &raw mut stat) };
    (result == 0).then_some((stat.st_dev, stat.st_ino))
}

fn close_if_still(descriptor: OwnedFd, known: Option<Identity>) {
    if known.is_none() || identity(descriptor.as_raw_fd()) != known {
        std::mem::forget(descriptor);
    }
}

/// Waits until one of the descriptors is readable, closed or broken, for at most `timeout_ms` (for
/// ever without one). Bit n of the answer tells of the nth descriptor. Does not allocate.
///
/// The descriptors are numbers because a library's may be closed by the program that it lives in.
///
/// At most 32 descriptors are waited for. None where they can't be waited for: a program may have
/// no more than it may open (`RLIMIT_NOFILE`), which has to be asked for again after a while, by a
/// wait for none.
pub fn wait_readable(descriptors: &[RawFd], timeout_ms: Option<u32>) -> Option<u32> {
    let mut polls = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; 32];
    for (poll, descriptor) in polls.iter_mut().zip(descriptors) {
        poll.fd = *descriptor;
    }
    let timeout = timeout_ms.map_or(-1, |time| time.min(i32::MAX as u32) as libc::c_int);
    // SAFETY: the array has as many elements as the count says.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), descriptors.len().min(32) as libc::nfds_t, timeout) };
    if ready <= 0 {
        let refused = ready < 0 && crate::last_error().kind() != io::ErrorKind::Interrupted;
        return (!refused).then_some(0);
    }
    let set = |(index, poll): (usize, &libc::pollfd)| u32::from(poll.revents != 0) << index;
    Some(polls.iter().enumerate().map(set).fold(0, |all, bit| all | bit))
}

/// Aligned room for control messages.
#[repr(align(8))]
struct ControlBuffer {
    bytes: [u8; CONTROL_SIZE],
}

impl Default for ControlBuffer {
    fn default() -> Self {
        Self { bytes: [0; CONTROL_SIZE] }
    }
}

/// Takes ownership of the descriptors that the kernel put into a received message.
fn take_descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut descriptors = Vec::new();
    // SAFETY: the kernel filled the control buffer, which is still alive; CMSG_* walk only inside
    // it, and each descriptor in it is new and has no other owner.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let size = ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for index in 0..size / size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    descriptors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_carries_descriptors_and_the_peer_is_known() {
        let name = format!("tompion-test-{}", std::process::id());
        let listener = Listener::bind(&name).unwrap();
        let client = PacketSocket::connect(&name, 1000).unwrap();
        let server = listener.accept().unwrap().unwrap();
        assert_eq!(server.peer().unwrap().pid, std::process::id());
        assert!(!server.peer_watch().unwrap().has_ended());
        let file = crate::create_memfd(c"passed", 4096).unwrap();
        server.send(b"hello", &[file.as_fd(), file.as_fd()]).unwrap();
        let mut buffer = [0; 64];
        let received = client.receive(&mut buffer).unwrap();
        assert_eq!(&buffer[..received.len], b"hello");
        assert_eq!(received.descriptors.len(), 2);
        assert!(client.is_open());
        drop(server);
        assert!(!client.is_open());
        assert_eq!(client.receive(&mut buffer).unwrap().len, 0);
    }

    #[test]
    fn a_socket_at_a_path_is_connected_to_and_dead_without_its_listener() {
        let dir = tompion_testing::TestDir::new("socket");
        let path = dir.join("a").to_str().expect("a text").to_owned();
        let listener = Listener::bind(&path).expect("a free path");
        assert!(PacketSocket::connect_at_once(&path).is_ok());
        drop(listener);
        let dead = PacketSocket::connect_at_once(&path).expect_err("a dead socket");
        assert_eq!(dead.kind(), io::ErrorKind::ConnectionRefused);
        let missing = PacketSocket::connect_at_once(&format!("{path}b")).expect_err("no socket");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let root = "/".repeat(MAX_SOCKET_PATH);
        assert!(address(&root).is_ok() && address(&format!("{root}/")).is_err());
        assert!(address(&"a".repeat(MAX_SOCKET_PATH)).is_ok());
    }

    #[test]
    fn the_groups_of_the_peer_are_those_of_its_process() {
        let (one, other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let groups = peer_groups_of(one.as_fd()).expect("groups");
        // SAFETY: a plain system call that can't fail.
        assert_eq!(groups.first, unsafe { libc::getegid() });
        assert!(groups.all.contains(&groups.first));
        assert_eq!(peer_of(other.as_fd()).expect("a peer").pid, std::process::id());
        let file = crate::create_memfd(c"no-socket", 4096).expect("a file");
        assert!(peer_groups_of(file.as_fd()).is_err());
    }

    #[test]
    fn a_name_without_a_listener_is_an_error_at_once() {
        assert!(PacketSocket::connect("tompion-test-nobody", 1000).is_err());
    }
}
