//! Options, requests and resources with their C names.
//!
//! Sources: the kernel's `include/uapi/`, named at each table. Values that differ between
//! architectures are those of x86-64.

use super::{Bits, Named};

/// Levels of `setsockopt` and `getsockopt`. Source: `linux/socket.h`, `linux/in.h`.
pub const LEVEL: &[Named] = &[
    (0, "SOL_IP"),
    (1, "SOL_SOCKET"),
    (6, "SOL_TCP"),
    (17, "SOL_UDP"),
    (41, "SOL_IPV6"),
    (58, "SOL_ICMPV6"),
    (132, "SOL_SCTP"),
    (136, "SOL_UDPLITE"),
    (255, "SOL_RAW"),
    (263, "SOL_PACKET"),
    (270, "SOL_NETLINK"),
    (279, "SOL_ALG"),
    (282, "SOL_TLS"),
    (283, "SOL_XDP"),
];

/// Options of each level.
pub const OPTIONS: &[(i64, &[Named])] =
    &[(0, OF_IP), (1, OF_SOCKET), (6, OF_TCP), (17, OF_UDP), (41, OF_IPV6)];

/// Source: `asm-generic/socket.h`.
const OF_SOCKET: &[Named] = &[
    (1, "SO_DEBUG"),
    (2, "SO_REUSEADDR"),
    (3, "SO_TYPE"),
    (4, "SO_ERROR"),
    (5, "SO_DONTROUTE"),
    (6, "SO_BROADCAST"),
    (7, "SO_SNDBUF"),
    (8, "SO_RCVBUF"),
    (9, "SO_KEEPALIVE"),
    (10, "SO_OOBINLINE"),
    (11, "SO_NO_CHECK"),
    (12, "SO_PRIORITY"),
    (13, "SO_LINGER"),
    (15, "SO_REUSEPORT"),
    (16, "SO_PASSCRED"),
    (17, "SO_PEERCRED"),
    (18, "SO_RCVLOWAT"),
    (19, "SO_SNDLOWAT"),
    (20, "SO_RCVTIMEO_OLD"),
    (21, "SO_SNDTIMEO_OLD"),
    (25, "SO_BINDTODEVICE"),
    (26, "SO_ATTACH_FILTER"),
    (27, "SO_DETACH_FILTER"),
    (28, "SO_PEERNAME"),
    (29, "SO_TIMESTAMP_OLD"),
    (30, "SO_ACCEPTCONN"),
    (31, "SO_PEERSEC"),
    (32, "SO_SNDBUFFORCE"),
    (33, "SO_RCVBUFFORCE"),
    (34, "SO_PASSSEC"),
    (35, "SO_TIMESTAMPNS_OLD"),
    (36, "SO_MARK"),
    (37, "SO_TIMESTAMPING_OLD"),
    (38, "SO_PROTOCOL"),
    (39, "SO_DOMAIN"),
    (40, "SO_RXQ_OVFL"),
    (42, "SO_PEEK_OFF"),
    (46, "SO_BUSY_POLL"),
    (47, "SO_MAX_PACING_RATE"),
    (49, "SO_INCOMING_CPU"),
    (50, "SO_ATTACH_BPF"),
    (51, "SO_ATTACH_REUSEPORT_CBPF"),
    (52, "SO_ATTACH_REUSEPORT_EBPF"),
    (56, "SO_INCOMING_NAPI_ID"),
    (57, "SO_COOKIE"),
    (59, "SO_PEERGROUPS"),
    (60, "SO_ZEROCOPY"),
    (61, "SO_TXTIME"),
    (62, "SO_BINDTOIFINDEX"),
    (66, "SO_RCVTIMEO_NEW"),
    (67, "SO_SNDTIMEO_NEW"),
    (69, "SO_PREFER_BUSY_POLL"),
    (70, "SO_BUSY_POLL_BUDGET"),
    (77, "SO_PEERPIDFD"),
];
/// Source: `linux/tcp.h`.
const OF_TCP: &[Named] = &[
    (1, "TCP_NODELAY"),
    (2, "TCP_MAXSEG"),
    (3, "TCP_CORK"),
    (4, "TCP_KEEPIDLE"),
    (5, "TCP_KEEPINTVL"),
    (6, "TCP_KEEPCNT"),
    (7, "TCP_SYNCNT"),
    (8, "TCP_LINGER2"),
    (9, "TCP_DEFER_ACCEPT"),
    (10, "TCP_WINDOW_CLAMP"),
    (11, "TCP_INFO"),
    (12, "TCP_QUICKACK"),
    (13, "TCP_CONGESTION"),
    (14, "TCP_MD5SIG"),
    (18, "TCP_USER_TIMEOUT"),
    (19, "TCP_REPAIR"),
    (23, "TCP_FASTOPEN"),
    (24, "TCP_TIMESTAMP"),
    (25, "TCP_NOTSENT_LOWAT"),
    (26, "TCP_CC_INFO"),
    (30, "TCP_FASTOPEN_CONNECT"),
    (31, "TCP_ULP"),
];
/// Source: `linux/udp.h`.
const OF_UDP: &[Named] = &[(1, "UDP_CORK"), (100, "UDP_ENCAP"), (103, "UDP_SEGMENT"), (104, "UDP_GRO")];
/// Source: `linux/in.h`.
const OF_IP: &[Named] = &[
    (1, "IP_TOS"),
    (2, "IP_TTL"),
    (3, "IP_HDRINCL"),
    (4, "IP_OPTIONS"),
    (8, "IP_PKTINFO"),
    (10, "IP_MTU_DISCOVER"),
    (11, "IP_RECVERR"),
    (12, "IP_RECVTTL"),
    (13, "IP_RECVTOS"),
    (14, "IP_MTU"),
    (15, "IP_FREEBIND"),
    (19, "IP_TRANSPARENT"),
    (20, "IP_RECVORIGDSTADDR"),
    (24, "IP_BIND_ADDRESS_NO_PORT"),
    (32, "IP_MULTICAST_IF"),
    (33, "IP_MULTICAST_TTL"),
    (34, "IP_MULTICAST_LOOP"),
    (35, "IP_ADD_MEMBERSHIP"),
    (36, "IP_DROP_MEMBERSHIP"),
];
/// Source: `linux/in6.h`.
const OF_IPV6: &[Named] = &[
    (16, "IPV6_UNICAST_HOPS"),
    (17, "IPV6_MULTICAST_IF"),
    (18, "IPV6_MULTICAST_HOPS"),
    (19, "IPV6_MULTICAST_LOOP"),
    (20, "IPV6_ADD_MEMBERSHIP"),
    (21, "IPV6_DROP_MEMBERSHIP"),
    (23, "IPV6_MTU_DISCOVER"),
    (24, "IPV6_MTU"),
    (25, "IPV6_RECVERR"),
    (26, "IPV6_V6ONLY"),
    (49, "IPV6_RECVPKTINFO"),
    (66, "IPV6_RECVTCLASS"),
    (67, "IPV6_TCLASS"),
];

/// Protocols of `socket` by its family.
pub const PROTOCOLS: &[(i64, &[Named])] = &[(2, INTERNET), (10, INTERNET)];
/// Source: `linux/in.h`.
const INTERNET: &[Named] = &[
    (0, "IPPROTO_IP"),
    (1, "IPPROTO_ICMP"),
    (6, "IPPROTO_TCP"),
    (17, "IPPROTO_UDP"),
    (41, "IPPROTO_IPV6"),
    (58, "IPPROTO_ICMPV6"),
    (132, "IPPROTO_SCTP"),
    (136, "IPPROTO_UDPLITE"),
    (255, "IPPROTO_RAW"),
    (262, "IPPROTO_MPTCP"),
];

/// Source: `linux/prctl.h`.
pub const PRCTL: &[Named] = &[
    (1, "PR_SET_PDEATHSIG"),
    (2, "PR_GET_PDEATHSIG"),
    (3, "PR_GET_DUMPABLE"),
    (4, "PR_SET_DUMPABLE"),
    (7, "PR_GET_KEEPCAPS"),
    (8, "PR_SET_KEEPCAPS"),
    (13, "PR_GET_TIMING"),
    (14, "PR_SET_TIMING"),
    (15, "PR_SET_NAME"),
    (16, "PR_GET_NAME"),
    (21, "PR_GET_SECCOMP"),
    (22, "PR_SET_SECCOMP"),
    (23, "PR_CAPBSET_READ"),
    (24, "PR_CAPBSET_DROP"),
    (25, "PR_GET_TSC"),
    (26, "PR_SET_TSC"),
    (27, "PR_GET_SECUREBITS"),
    (28, "PR_SET_SECUREBITS"),
    (29, "PR_SET_TIMERSLACK"),
    (30, "PR_GET_TIMERSLACK"),
    (33, "PR_MCE_KILL"),
    (35, "PR_SET_MM"),
    (36, "PR_SET_CHILD_SUBREAPER"),
    (37, "PR_GET_CHILD_SUBREAPER"),
    (38, "PR_SET_NO_NEW_PRIVS"),
    (39, "PR_GET_NO_NEW_PRIVS"),
    (40, "PR_GET_TID_ADDRESS"),
    (41, "PR_SET_THP_DISABLE"),
    (42, "PR_GET_THP_DISABLE"),
    (47, "PR_CAP_AMBIENT"),
    (52, "PR_GET_SPECULATION_CTRL"),
    (53, "PR_SET_SPECULATION_CTRL"),
    (57, "PR_SET_IO_FLUSHER"),
    (59, "PR_SET_SYSCALL_USER_DISPATCH"),
    (62, "PR_SCHED_CORE"),
    (65, "PR_SET_MDWE"),
    (0x5356_4d41, "PR_SET_VMA"),
    (0x5961_6d61, "PR_SET_PTRACER"),
];
/// Source: `arch/x86/include/uapi/asm/prctl.h`.
pub const ARCH_PRCTL: &[Named] = &[
    (0x1001, "ARCH_SET_GS"),
    (0x1002, "ARCH_SET_FS"),
    (0x1003, "ARCH_GET_FS"),
    (0x1004, "ARCH_GET_GS"),
    (0x1011, "ARCH_GET_CPUID"),
    (0x1012, "ARCH_SET_CPUID"),
    (0x3001, "ARCH_CET_STATUS"),
    (0x5001, "ARCH_SHSTK_ENABLE"),
    (0x5002, "ARCH_SHSTK_DISABLE"),
    (0x5005, "ARCH_SHSTK_STATUS"),
];

/// Source: `asm-generic/resource.h`.
pub const RESOURCE: &[Named] = &[
    (0, "RLIMIT_CPU"),
    (1, "RLIMIT_FSIZE"),
    (2, "RLIMIT_DATA"),
    (3, "RLIMIT_STACK"),
    (4, "RLIMIT_CORE"),
    (5, "RLIMIT_RSS"),
    (6, "RLIMIT_NPROC"),
    (7, "RLIMIT_NOFILE"),
    (8, "RLIMIT_MEMLOCK"),
    (9, "RLIMIT_AS"),
    (10, "RLIMIT_LOCKS"),
    (11, "RLIMIT_SIGPENDING"),
    (12, "RLIMIT_MSGQUEUE"),
    (13, "RLIMIT_NICE"),
    (14, "RLIMIT_RTPRIO"),
    (15, "RLIMIT_RTTIME"),
];

/// Source: `asm-generic/ioctls.h`, `linux/sockios.h`, `linux/fs.h`, `linux/perf_event.h`.
pub const IOCTL: &[Named] = &[
    (0x5401, "TCGETS"),
    (0x5402, "TCSETS"),
    (0x5403, "TCSETSW"),
    (0x5404, "TCSETSF"),
    (0x5409, "TCSBRK"),
    (0x540a, "TCXONC"),
    (0x540b, "TCFLSH"),
    (0x540e, "TIOCSCTTY"),
    (0x540f, "TIOCGPGRP"),
    (0x5410, "TIOCSPGRP"),
    (0x5411, "TIOCOUTQ"),
    (0x5413, "TIOCGWINSZ"),
    (0x5414, "TIOCSWINSZ"),
    (0x541b, "FIONREAD"),
    (0x5421, "FIONBIO"),
    (0x5422, "TIOCNOTTY"),
    (0x5429, "TIOCGSID"),
    (0x5450, "FIONCLEX"),
    (0x5451, "FIOCLEX"),
    (0x5452, "FIOASYNC"),
    (0x8912, "SIOCGIFCONF"),
    (0x8913, "SIOCGIFFLAGS"),
    (0x8914, "SIOCSIFFLAGS"),
    (0x8915, "SIOCGIFADDR"),
    (0x891b, "SIOCGIFNETMASK"),
    (0x8921, "SIOCGIFMTU"),
    (0x8927, "SIOCGIFHWADDR"),
    (0x8933, "SIOCGIFINDEX"),
    (0x8946, "SIOCETHTOOL"),
    (0x2400, "PERF_EVENT_IOC_ENABLE"),
    (0x2401, "PERF_EVENT_IOC_DISABLE"),
    (0x2403, "PERF_EVENT_IOC_RESET"),
    (0x4004_2408, "PERF_EVENT_IOC_SET_BPF"),
    (0x4008_2406, "PERF_EVENT_IOC_SET_FILTER"),
    (0x4004_5431, "TIOCSPTLCK"),
    (0x4004_9409, "FICLONE"),
    (0x4004_54ca, "TUNSETIFF"),
    (0x8004_5430, "TIOCGPTN"),
    (0x8008_1272, "BLKGETSIZE64"),
    (0x802c_542a, "TCGETS2"),
    (0x8008_6601, "FS_IOC_GETFLAGS"),
    (0x4008_6602, "FS_IOC_SETFLAGS"),
    (0xc020_660b, "FS_IOC_FIEMAP"),
];

/// Arguments of commands of `fcntl`. Source: `asm-generic/fcntl.h`, `linux/fcntl.h`.
pub const FCNTL_ARGUMENTS: &[(i64, &[Bits])] = &[(2, DESCRIPTOR), (4, super::values::OPEN), (1033, SEALS)];

const fn bit(value: u64, name: &'static str) -> Bits {
    Bits { mask: value, value, name }
}

const DESCRIPTOR: &[Bits] = &[bit(1, "FD_CLOEXEC")];
const SEALS: &[Bits] = &[
    bit(1, "F_SEAL_SEAL"),
    bit(2, "F_SEAL_SHRINK"),
    bit(4, "F_SEAL_GROW"),
    bit(8, "F_SEAL_WRITE"),
    bit(16, "F_SEAL_FUTURE_WRITE"),
    bit(32, "F_SEAL_EXEC"),
];
