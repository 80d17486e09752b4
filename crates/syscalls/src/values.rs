//! Values of system call arguments with their C names.
//!
//! Sources: the kernel's `include/uapi/`, named at each table. Values that differ between
//! architectures are those of x86-64.

use super::{Bits, Named};

/// Creates an entry for a value that is its own mask.
const fn bit(value: u64, name: &'static str) -> Bits {
    Bits { mask: value, value, name }
}

const fn field(mask: u64, value: u64, name: &'static str) -> Bits {
    Bits { mask, value, name }
}

/// Source: `asm-generic/fcntl.h`. The three access modes share two bits; `O_SYNC` and `O_TMPFILE`
/// include other flags.
pub const OPEN: &[Bits] = &[
    field(3, 0, "O_RDONLY"),
    field(3, 1, "O_WRONLY"),
    field(3, 2, "O_RDWR"),
    bit(0o100, "O_CREAT"),
    bit(0o200, "O_EXCL"),
    bit(0o400, "O_NOCTTY"),
    bit(0o1000, "O_TRUNC"),
    bit(0o2000, "O_APPEND"),
    bit(0o4000, "O_NONBLOCK"),
    bit(0o4010000, "O_SYNC"),
    bit(0o10000, "O_DSYNC"),
    bit(0o20000, "O_ASYNC"),
    bit(0o40000, "O_DIRECT"),
    bit(0o100000, "O_LARGEFILE"),
    bit(0o20200000, "O_TMPFILE"),
    bit(0o200000, "O_DIRECTORY"),
    bit(0o400000, "O_NOFOLLOW"),
    bit(0o1000000, "O_NOATIME"),
    bit(0o2000000, "O_CLOEXEC"),
    bit(0o10000000, "O_PATH"),
];

/// Flags of calls that create descriptors, the same as those of `open`.
pub const DESCRIPTOR: &[Bits] =
    &[bit(0o4000, "O_NONBLOCK"), bit(0o40000, "O_DIRECT"), bit(0o2000000, "O_CLOEXEC")];

/// Source: `linux/fcntl.h`.
pub const AT_FLAGS: &[Bits] = &[
    bit(0x100, "AT_SYMLINK_NOFOLLOW"),
    bit(0x200, "AT_EACCESS"),
    bit(0x400, "AT_SYMLINK_FOLLOW"),
    bit(0x800, "AT_NO_AUTOMOUNT"),
    bit(0x1000, "AT_EMPTY_PATH"),
    bit(0x2000, "AT_STATX_FORCE_SYNC"),
    bit(0x4000, "AT_STATX_DONT_SYNC"),
];
/// Bit with another meaning for `unlinkat`.
pub const UNLINK: &[Bits] = &[bit(0x200, "AT_REMOVEDIR")];
pub const FOLDER: &[Named] = &[(-100, "AT_FDCWD")];

/// Source: `linux/fs.h`, for `renameat2`.
pub const RENAME: &[Bits] =
    &[bit(1, "RENAME_NOREPLACE"), bit(2, "RENAME_EXCHANGE"), bit(4, "RENAME_WHITEOUT")];

/// Source: `asm-generic/fcntl.h`, `linux/fcntl.h`.
pub const FCNTL: &[Named] = &[
    (0, "F_DUPFD"),
    (1, "F_GETFD"),
    (2, "F_SETFD"),
    (3, "F_GETFL"),
    (4, "F_SETFL"),
    (5, "F_GETLK"),
    (6, "F_SETLK"),
    (7, "F_SETLKW"),
    (8, "F_SETOWN"),
    (9, "F_GETOWN"),
    (10, "F_SETSIG"),
    (11, "F_GETSIG"),
    (15, "F_SETOWN_EX"),
    (16, "F_GETOWN_EX"),
    (36, "F_OFD_GETLK"),
    (37, "F_OFD_SETLK"),
    (38, "F_OFD_SETLKW"),
    (1024, "F_SETLEASE"),
    (1025, "F_GETLEASE"),
    (1026, "F_NOTIFY"),
    (1030, "F_DUPFD_CLOEXEC"),
    (1031, "F_SETPIPE_SZ"),
    (1032, "F_GETPIPE_SZ"),
    (1033, "F_ADD_SEALS"),
    (1034, "F_GET_SEALS"),
];
pub const LOCK: &[Bits] = &[bit(1, "LOCK_SH"), bit(2, "LOCK_EX"), bit(4, "LOCK_NB"), bit(8, "LOCK_UN")];
/// Source: `linux/fs.h`.
pub const SEEK: &[Named] =
    &[(0, "SEEK_SET"), (1, "SEEK_CUR"), (2, "SEEK_END"), (3, "SEEK_DATA"), (4, "SEEK_HOLE")];
pub const ACCESS: &[Bits] = &[field(7, 0, "F_OK"), bit(4, "R_OK"), bit(2, "W_OK"), bit(1, "X_OK")];

/// Source: `asm-generic/mman-common.h`.
pub const PROTECTION: &[Bits] = &[
    field(7, 0, "PROT_NONE"),
    bit(1, "PROT_READ"),
    bit(2, "PROT_WRITE"),
    bit(4, "PROT_EXEC"),
    bit(0x0100_0000, "PROT_GROWSDOWN"),
    bit(0x0200_0000, "PROT_GROWSUP"),
];
/// Source: `asm-generic/mman-common.h`, `asm-generic/mman.h`.
pub const MAP: &[Bits] = &[
    field(15, 1, "MAP_SHARED"),
    field(15, 2, "MAP_PRIVATE"),
    field(15, 3, "MAP_SHARED_VALIDATE"),
    bit(0x10, "MAP_FIXED"),
    bit(0x20, "MAP_ANONYMOUS"),
    bit(0x40, "MAP_32BIT"),
    bit(0x100, "MAP_GROWSDOWN"),
    bit(0x800, "MAP_DENYWRITE"),
    bit(0x1000, "MAP_EXECUTABLE"),
    bit(0x2000, "MAP_LOCKED"),
    bit(0x4000, "MAP_NORESERVE"),
    bit(0x8000, "MAP_POPULATE"),
    bit(0x1_0000, "MAP_NONBLOCK"),
    bit(0x2_0000, "MAP_STACK"),
    bit(0x4_0000, "MAP_HUGETLB"),
    bit(0x8_0000, "MAP_SYNC"),
    bit(0x10_0000, "MAP_FIXED_NOREPLACE"),
];
pub const REMAP: &[Bits] = &[bit(1, "MREMAP_MAYMOVE"), bit(2, "MREMAP_FIXED"), bit(4, "MREMAP_DONTUNMAP")];
pub const SYNC: &[Bits] = &[bit(1, "MS_ASYNC"), bit(2, "MS_INVALIDATE"), bit(4, "MS_SYNC")];
pub const LOCK_ALL: &[Bits] = &[bit(1, "MCL_CURRENT"), bit(2, "MCL_FUTURE"), bit(4, "MCL_ONFAULT")];
pub const ADVICE: &[Named] = &[
    (0, "MADV_NORMAL"),
    (1, "MADV_RANDOM"),
    (2, "MADV_SEQUENTIAL"),
    (3, "MADV_WILLNEED"),
    (4, "MADV_DONTNEED"),
    (8, "MADV_FREE"),
    (9, "MADV_REMOVE"),
    (10, "MADV_DONTFORK"),
    (11, "MADV_DOFORK"),
    (12, "MADV_MERGEABLE"),
    (13, "MADV_UNMERGEABLE"),
    (14, "MADV_HUGEPAGE"),
    (15, "MADV_NOHUGEPAGE"),
    (16, "MADV_DONTDUMP"),
    (17, "MADV_DODUMP"),
    (18, "MADV_WIPEONFORK"),
    (19, "MADV_KEEPONFORK"),
    (20, "MADV_COLD"),
    (21, "MADV_PAGEOUT"),
    (22, "MADV_POPULATE_READ"),
    (23, "MADV_POPULATE_WRITE"),
    (25, "MADV_COLLAPSE"),
];

/// Source: `linux/sched.h`. The lowest byte is the signal sent when the child ends.
pub const CLONE: &[Bits] = &[
    field(0xff, 17, "SIGCHLD"),
    bit(0x100, "CLONE_VM"),
    bit(0x200, "CLONE_FS"),
    bit(0x400, "CLONE_FILES"),
    bit(0x800, "CLONE_SIGHAND"),
    bit(0x1000, "CLONE_PIDFD"),
    bit(0x2000, "CLONE_PTRACE"),
    bit(0x4000, "CLONE_VFORK"),
    bit(0x8000, "CLONE_PARENT"),
    bit(0x1_0000, "CLONE_THREAD"),
    bit(0x2_0000, "CLONE_NEWNS"),
    bit(0x4_0000, "CLONE_SYSVSEM"),
    bit(0x8_0000, "CLONE_SETTLS"),
    bit(0x10_0000, "CLONE_PARENT_SETTID"),
    bit(0x20_0000, "CLONE_CHILD_CLEARTID"),
    bit(0x40_0000, "CLONE_DETACHED"),
    bit(0x80_0000, "CLONE_UNTRACED"),
    bit(0x100_0000, "CLONE_CHILD_SETTID"),
    bit(0x200_0000, "CLONE_NEWCGROUP"),
    bit(0x400_0000, "CLONE_NEWUTS"),
    bit(0x800_0000, "CLONE_NEWIPC"),
    bit(0x1000_0000, "CLONE_NEWUSER"),
    bit(0x2000_0000, "CLONE_NEWPID"),
    bit(0x4000_0000, "CLONE_NEWNET"),
    bit(0x8000_0000, "CLONE_IO"),
];
pub const WAIT: &[Bits] = &[
    bit(1, "WNOHANG"),
    bit(2, "WUNTRACED"),
    bit(4, "WEXITED"),
    bit(8, "WCONTINUED"),
    bit(0x100_0000, "WNOWAIT"),
    bit(0x2000_0000, "__WNOTHREAD"),
    bit(0x4000_0000, "__WALL"),
    bit(0x8000_0000, "__WCLONE"),
];
pub const WAIT_FOR: &[Named] = &[(0, "P_ALL"), (1, "P_PID"), (2, "P_PGID"), (3, "P_PIDFD")];
/// Source: `linux/sched.h`.
pub const POLICY: &[Named] = &[
    (0, "SCHED_OTHER"),
    (1, "SCHED_FIFO"),
    (2, "SCHED_RR"),
    (3, "SCHED_BATCH"),
    (5, "SCHED_IDLE"),
    (6, "SCHED_DEADLINE"),
    (7, "SCHED_EXT"),
];

/// Source: `linux/futex.h`. The command is below the flags.
pub const FUTEX: &[Bits] = &[
    field(0x7f, 0, "FUTEX_WAIT"),
    field(0x7f, 1, "FUTEX_WAKE"),
    field(0x7f, 2, "FUTEX_FD"),
    field(0x7f, 3, "FUTEX_REQUEUE"),
    field(0x7f, 4, "FUTEX_CMP_REQUEUE"),
    field(0x7f, 5, "FUTEX_WAKE_OP"),
    field(0x7f, 6, "FUTEX_LOCK_PI"),
    field(0x7f, 7, "FUTEX_UNLOCK_PI"),
    field(0x7f, 8, "FUTEX_TRYLOCK_PI"),
    field(0x7f, 9, "FUTEX_WAIT_BITSET"),
    field(0x7f, 10, "FUTEX_WAKE_BITSET"),
    field(0x7f, 11, "FUTEX_WAIT_REQUEUE_PI"),
    field(0x7f, 12, "FUTEX_CMP_REQUEUE_PI"),
    field(0x7f, 13, "FUTEX_LOCK_PI2"),
    bit(128, "FUTEX_PRIVATE_FLAG"),
    bit(256, "FUTEX_CLOCK_REALTIME"),
];
/// Source: `linux/time.h`.
pub const CLOCK: &[Named] = &[
    (0, "CLOCK_REALTIME"),
    (1, "CLOCK_MONOTONIC"),
    (2, "CLOCK_PROCESS_CPUTIME_ID"),
    (3, "CLOCK_THREAD_CPUTIME_ID"),
    (4, "CLOCK_MONOTONIC_RAW"),
    (5, "CLOCK_REALTIME_COARSE"),
    (6, "CLOCK_MONOTONIC_COARSE"),
    (7, "CLOCK_BOOTTIME"),
    (8, "CLOCK_REALTIME_ALARM"),
    (9, "CLOCK_BOOTTIME_ALARM"),
    (11, "CLOCK_TAI"),
];
pub const TIMER: &[Bits] = &[bit(1, "TIMER_ABSTIME"), bit(2, "TFD_TIMER_CANCEL_ON_SET")];

/// Source: `asm-generic/signal.h`.
pub const SIGNAL: &[Named] = &[
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (10, "SIGUSR1"),
    (11, "SIGSEGV"),
    (12, "SIGUSR2"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
    (16, "SIGSTKFLT"),
    (17, "SIGCHLD"),
    (18, "SIGCONT"),
    (19, "SIGSTOP"),
    (20, "SIGTSTP"),
    (21, "SIGTTIN"),
    (22, "SIGTTOU"),
    (23, "SIGURG"),
    (24, "SIGXCPU"),
    (25, "SIGXFSZ"),
    (26, "SIGVTALRM"),
    (27, "SIGPROF"),
    (28, "SIGWINCH"),
    (29, "SIGIO"),
    (30, "SIGPWR"),
    (31, "SIGSYS"),
];
pub const SIGNAL_MASK: &[Named] = &[(0, "SIG_BLOCK"), (1, "SIG_UNBLOCK"), (2, "SIG_SETMASK")];

/// Source: `linux/socket.h`.
pub const FAMILY: &[Named] = &[
    (0, "AF_UNSPEC"),
    (1, "AF_UNIX"),
    (2, "AF_INET"),
    (10, "AF_INET6"),
    (16, "AF_NETLINK"),
    (17, "AF_PACKET"),
    (29, "AF_CAN"),
    (31, "AF_BLUETOOTH"),
    (38, "AF_ALG"),
    (40, "AF_VSOCK"),
    (44, "AF_XDP"),
];
/// Source: `linux/net.h`. The socket type is below the flags.
pub const SOCKET: &[Bits] = &[
    field(15, 1, "SOCK_STREAM"),
    field(15, 2, "SOCK_DGRAM"),
    field(15, 3, "SOCK_RAW"),
    field(15, 4, "SOCK_RDM"),
    field(15, 5, "SOCK_SEQPACKET"),
    field(15, 10, "SOCK_PACKET"),
    bit(0o4000, "SOCK_NONBLOCK"),
    bit(0o2000000, "SOCK_CLOEXEC"),
];
pub const MESSAGE: &[Bits] = &[
    bit(1, "MSG_OOB"),
    bit(2, "MSG_PEEK"),
    bit(4, "MSG_DONTROUTE"),
    bit(8, "MSG_CTRUNC"),
    bit(0x20, "MSG_TRUNC"),
    bit(0x40, "MSG_DONTWAIT"),
    bit(0x80, "MSG_EOR"),
    bit(0x100, "MSG_WAITALL"),
    bit(0x800, "MSG_CONFIRM"),
    bit(0x2000, "MSG_ERRQUEUE"),
    bit(0x4000, "MSG_NOSIGNAL"),
    bit(0x8000, "MSG_MORE"),
    bit(0x1_0000, "MSG_WAITFORONE"),
    bit(0x2000_0000, "MSG_FASTOPEN"),
    bit(0x4000_0000, "MSG_CMSG_CLOEXEC"),
];
pub const SHUTDOWN: &[Named] = &[(0, "SHUT_RD"), (1, "SHUT_WR"), (2, "SHUT_RDWR")];

/// Source: `linux/eventpoll.h`.
pub const EPOLL: &[Named] = &[(1, "EPOLL_CTL_ADD"), (2, "EPOLL_CTL_DEL"), (3, "EPOLL_CTL_MOD")];
/// Source: `linux/memfd.h`.
pub const MEMFD: &[Bits] = &[
    bit(1, "MFD_CLOEXEC"),
    bit(2, "MFD_ALLOW_SEALING"),
    bit(4, "MFD_HUGETLB"),
    bit(8, "MFD_NOEXEC_SEAL"),
    bit(16, "MFD_EXEC"),
];
/// Source: `linux/random.h`.
pub const RANDOM: &[Bits] = &[bit(1, "GRND_NONBLOCK"), bit(2, "GRND_RANDOM"), bit(4, "GRND_INSECURE")];
/// Source: `linux/falloc.h`.
pub const ALLOCATE: &[Bits] = &[
    bit(1, "FALLOC_FL_KEEP_SIZE"),
    bit(2, "FALLOC_FL_PUNCH_HOLE"),
    bit(8, "FALLOC_FL_COLLAPSE_RANGE"),
    bit(16, "FALLOC_FL_ZERO_RANGE"),
    bit(32, "FALLOC_FL_INSERT_RANGE"),
    bit(64, "FALLOC_FL_UNSHARE_RANGE"),
];
/// Source: `linux/membarrier.h`.
pub const BARRIER: &[Named] = &[
    (0, "MEMBARRIER_CMD_QUERY"),
    (1, "MEMBARRIER_CMD_GLOBAL"),
    (2, "MEMBARRIER_CMD_GLOBAL_EXPEDITED"),
    (4, "MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED"),
    (8, "MEMBARRIER_CMD_PRIVATE_EXPEDITED"),
    (16, "MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED"),
    (128, "MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ"),
    (256, "MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ"),
];
