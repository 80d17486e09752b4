//! Limits of this user's programs: priorities, locked memory, open files.

use super::{Check, Look};
use crate::{Root, Unread};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "rtprio limit",
        why: "without it a program can't ask for a real-time priority, and runs as all others do",
        look: priority,
    },
    Check {
        name: "memlock limit",
        why: "memory that isn't locked can be taken away, and each page that comes back is a delay",
        look: locked_memory,
    },
];

/// Highest priority of SCHED_FIFO and SCHED_RR.
const HIGHEST: u64 = 99;
/// Less than this is too little for a program with its libraries and the stacks of a few threads,
/// in bytes.
const ENOUGH_LOCKED: u64 = 256 << 20;
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_NICE: u32 = 23;

const LIMITS: &str = "/proc/self/limits";
const STATUS: &str = "/proc/self/status";

/// A limit of this process by its name in the table, the soft one; `None` for no limit.
fn limit(root: &Root, name: &str) -> Result<Option<u64>, Unread> {
    let table = root.read(LIMITS)?;
    let words = table.lines().find_map(|line| line.strip_prefix(name));
    let soft = words.and_then(|rest| rest.split_whitespace().next());
    match soft {
        Some("unlimited") => Ok(None),
        Some(number) if number.parse::<u64>().is_ok() => Ok(number.parse().ok()),
        _ => {
            let error = std::io::Error::other(format!("no line `{name}` with a number"));
            Err(Unread { path: LIMITS.into(), error })
        }
    }
}

/// Whether this process has a capability in force.
fn is_capable(root: &Root, capability: u32) -> bool {
    let status = root.read_if_any(STATUS).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> capability & 1 == 1)
}

/// Steps that give a user's programs this limit.
fn mend(rule: &str) -> String {
    format!(
        "echo '@realtime - {rule}' >> /etc/security/limits.d/99-realtime.conf\n\
         groupadd -f realtime; usermod -aG realtime USER; then log in again"
    )
}

/// Finding for a limit, for users without the capability that outweighs it; `judge` is called for
/// numbers.
fn look(root: &Root, (capability, good): (u32, &str), name: &str, judge: impl FnOnce(u64) -> Look) -> Look {
    if is_capable(root, capability) {
        return Look::good(good);
    }
    match limit(root, name) {
        Ok(None) => Look::good("no limit"),
        Ok(Some(limit)) => judge(limit),
        Err(unread) => Look::unknown(&unread, "mount -t proc proc /proc"),
    }
}

fn priority(root: &Root) -> Look {
    let outweighs = (CAP_SYS_NICE, "this user may use all priorities (CAP_SYS_NICE)");
    look(root, outweighs, "Max realtime priority", |limit| match limit {
        HIGHEST.. => Look::good(format!("{limit}")),
        0 => Look::bad("0: this user's programs get no real-time priority", mend("rtprio 99")),
        _ => Look::drawback(format!("{limit}: no higher priority"), mend("rtprio 99")),
    })
}

fn locked_memory(root: &Root) -> Look {
    let outweighs = (CAP_IPC_LOCK, "this user may lock all memory (CAP_IPC_LOCK)");
    look(root, outweighs, "Max locked memory", |bytes| match bytes {
        ENOUGH_LOCKED.. => Look::good(format!("{} MiB", bytes >> 20)),
        _ => {
            let found = format!("{} KiB: mlockall fails in most programs", bytes >> 10);
            Look::drawback(found, mend("memlock unlimited"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::{State, check};

    const SMALL: (&str, &str) = (
        "/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n\
         Max locked memory         8388608              unlimited            bytes     \n\
         Max realtime priority     0                    99                             \n",
    );
    const PLENTY: (&str, &str) = (
        "/proc/self/limits",
        "Max locked memory         unlimited            unlimited            bytes\nMax realtime priority     99  99\n",
    );

    #[test]
    fn limits_are_the_soft_ones() {
        check("rtprio limit", &[SMALL], (State::Bad, &["0:", "limits.d"]));
        check("memlock limit", &[SMALL], (State::Drawback, &["8192 KiB", "memlock unlimited"]));
        check("rtprio limit", &[PLENTY], (State::Good, &["99"]));
        check("memlock limit", &[PLENTY], (State::Good, &["no limit"]));
    }

    #[test]
    fn capabilities_outweigh_limits() {
        let root = ("/proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n");
        check("rtprio limit", &[SMALL, root], (State::Good, &["CAP_SYS_NICE"]));
        check("memlock limit", &[SMALL, root], (State::Good, &["CAP_IPC_LOCK"]));
        let nice_only = ("/proc/self/status", "CapEff:\t0000000000800000\n");
        check("memlock limit", &[SMALL, nice_only], (State::Drawback, &[]));
    }

    #[test]
    fn a_table_without_the_line_is_not_read() {
        check(
            "rtprio limit",
            &[("/proc/self/limits", "Max cpu time  x")],
            (State::Unknown, &["Max realtime priority"]),
        );
    }
}
