//! Memory: what moves pages under a program that wants them to stay.

use super::{Check, Look, chosen};
use crate::Root;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "swap",
        why: "a page that was written to a disk takes milliseconds to come back; mlockall protects a program's own \
              pages only",
        look: swap,
    },
    Check {
        name: "huge pages",
        why: "the kernel collects small pages into huge ones and moves them for it, while their program waits",
        look: huge_pages,
    },
    Check {
        name: "NUMA balancing",
        why: "the kernel takes pages away for a moment to see what uses them: each is a fault, in locked memory, too",
        look: numa_balancing,
    },
];

fn swap(root: &Root) -> Look {
    let table = match root.read("/proc/swaps") {
        Ok(table) => table,
        // A kernel that can't swap has no such file.
        Err(unread) if unread.is_missing() && root.place("/proc/version").exists() => {
            return Look::good("the kernel has none");
        }
        Err(unread) => return Look::unknown(&unread, "mount -t proc proc /proc"),
    };
    let areas: Vec<&str> = table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    if areas.is_empty() {
        return Look::good("none");
    }
    Look::drawback(areas.join(", "), "swapoff -a\nfor good: no swap in /etc/fstab")
}

fn huge_pages(root: &Root) -> Look {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let text = match root.read(FILE) {
        Ok(text) => text,
        Err(unread) if unread.is_missing() && root.place("/sys/kernel").exists() => {
            return Look::good("the kernel makes none by itself");
        }
        Err(unread) => return Look::unknown(&unread, "mount -t sysfs sysfs /sys"),
    };
    match chosen(&text) {
        Some("never") => Look::good("never"),
        Some("madvise") => Look::good("madvise: for programs that ask"),
        other => Look::drawback(
            format!("{}: for all programs", other.unwrap_or(&text)),
            format!("echo madvise > {FILE}\nfor good: kernel parameter transparent_hugepage=madvise"),
        ),
    }
}

fn numa_balancing(root: &Root) -> Look {
    match root.read("/proc/sys/kernel/numa_balancing") {
        Ok(text) if text == "0" => Look::good("off"),
        Ok(_) => Look::drawback("on", "sysctl kernel.numa_balancing=0"),
        Err(unread) if unread.is_missing() && root.place("/proc/version").exists() => {
            Look::good("the kernel has none")
        }
        Err(unread) => Look::unknown(&unread, "mount -t proc proc /proc"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{State, check};

    #[test]
    fn areas_of_swap_are_named() {
        const HEAD: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        check("swap", &[("/proc/swaps", HEAD)], (State::Good, &["none"]));
        let used = format!("{HEAD}/dev/sda3   partition\t100\t0\t-2\n");
        check("swap", &[("/proc/swaps", &used)], (State::Drawback, &["/dev/sda3", "swapoff -a"]));
        check("swap", &[("/proc/version", "Linux")], (State::Good, &["has none"]));
    }

    #[test]
    fn huge_pages_for_all_are_a_drawback() {
        const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
        check(
            "huge pages",
            &[(FILE, "[always] madvise never")],
            (State::Drawback, &["always", "echo madvise"]),
        );
        check("huge pages", &[(FILE, "always [madvise] never")], (State::Good, &["madvise"]));
        check("huge pages", &[(FILE, "always madvise [never]")], (State::Good, &[]));
        check("huge pages", &[(FILE, "odd")], (State::Drawback, &["odd"]));
    }

    #[test]
    fn numa() {
        check("NUMA balancing", &[("/proc/sys/kernel/numa_balancing", "1")], (State::Drawback, &["=0"]));
        check("NUMA balancing", &[("/proc/sys/kernel/numa_balancing", "0")], (State::Good, &[]));
    }
}
