//! Checks of the processors: which are isolated, what interrupts them, how they idle, and whether
//! they are virtual.

use super::{Check, Look, boot_parameter, isolated, online};
use crate::{CpuSet, Root};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "hypervisor",
        why: "a hypervisor takes the CPU away when it likes, for microseconds or for tens of milliseconds, and no \
              setting in here prevents it",
        look: hypervisor,
    },
    Check {
        name: "isolated CPUs",
        why: "on an isolated CPU nothing runs but what is put there: no other thread delays it",
        look: isolated_cpus,
    },
    Check {
        name: "nohz_full",
        why: "the scheduler's tick interrupts a busy CPU up to 1000 times a second, where it isn't turned off",
        look: nohz_full,
    },
    Check {
        name: "rcu_nocbs",
        why: "the kernel frees memory by callbacks on the CPU that asked for it, in bursts of any length, where they \
              aren't moved to threads",
        look: rcu_nocbs,
    },
    Check {
        name: "irq affinity",
        why: "a device's interrupt stops whatever runs on the CPU that it comes to",
        look: irq_affinity,
    },
    Check {
        name: "governor",
        why: "a CPU that runs slowly to save power takes until it has sped up to do its work",
        look: governor,
    },
    Check {
        name: "C-states",
        why: "a CPU that sleeps deeply takes up to hundreds of microseconds to wake up",
        look: idle_states,
    },
    Check {
        name: "SMT",
        why: "two CPUs of one core share its units and caches: each is slower when the other works",
        look: siblings,
    },
];

const MOUNT_SYSFS: &str = "mount -t sysfs sysfs /sys";

fn hypervisor(root: &Root) -> Look {
    let cpuinfo = match root.read("/proc/cpuinfo") {
        Ok(cpuinfo) => cpuinfo,
        Err(unread) => return Look::unknown(&unread, "mount -t proc proc /proc"),
    };
    let has_flag = |line: &str| {
        let is_list = line.starts_with("flags") || line.starts_with("Features");
        is_list && line.split_whitespace().any(|flag| flag == "hypervisor")
    };
    if !cpuinfo.lines().any(has_flag) && !root.place("/sys/hypervisor/type").exists() {
        return Look::good("none is seen");
    }
    let maker = root.read_if_any("/sys/class/dmi/id/sys_vendor").filter(|maker| !maker.is_empty());
    let shown = maker.map_or(String::new(), |maker| format!(" ({maker})"));
    Look::drawback(
        format!("this machine is virtual{shown}: what is measured holds for this host, at this time"),
        "measure on the real machine; else have the host pin each virtual CPU to a CPU of its own",
    )
}

fn isolated_cpus(root: &Root) -> Look {
    let Some(online) = online(root) else { return unknown_cpus(root) };
    if online.len() == 1 {
        return Look::drawback("one CPU: there is none to spare", "use a machine with more CPUs");
    }
    match isolated(root).map(|isolated| isolated.shared_with(&online)).filter(|isolated| !isolated.is_empty())
    {
        Some(isolated) => Look::good(format!("{isolated} of {online}")),
        None => {
            let last = online.iter().last().unwrap_or(0);
            Look::drawback(
                format!("none of {online}"),
                format!(
                    "for one command: sudo tompion shield {last} -- CMD\nfor good: kernel parameter \
                     isolcpus=managed_irq,domain,{last}"
                ),
            )
        }
    }
}

fn unknown_cpus(root: &Root) -> Look {
    match root.read("/sys/devices/system/cpu/online") {
        Err(unread) => Look::unknown(&unread, MOUNT_SYSFS),
        Ok(text) => Look {
            state: super::State::Unknown,
            found: format!("/sys/devices/system/cpu/online says `{text}`, no list of CPUs"),
            mend: Some(MOUNT_SYSFS.into()),
        },
    }
}

/// The CPUs of a parameter of the kernel's start, `nohz_full` for example, that are online.
fn named_at_boot(root: &Root, parameter: &str) -> CpuSet {
    let online = online(root).unwrap_or_default();
    let cpus = boot_parameter(root, parameter);
    match cpus.as_deref() {
        Some("all") => online,
        // `N` is the last CPU, and lists may have strides; what is more than a list is left unread.
        Some(list) => CpuSet::from_list(list).unwrap_or_default().shared_with(&online),
        None => CpuSet::default(),
    }
}

/// An example for those who have none: the CPUs that are isolated, else the last.
fn example(root: &Root, online: &CpuSet) -> String {
    let isolated = isolated(root).unwrap_or_default().shared_with(online);
    if isolated.is_empty() { online.iter().last().unwrap_or(0).to_string() } else { isolated.to_string() }
}

fn nohz_full(root: &Root) -> Look {
    let Some(online) = online(root) else { return unknown_cpus(root) };
    let shown = root.read_if_any("/sys/devices/system/cpu/nohz_full");
    let cpus = shown.and_then(|text| CpuSet::from_list(&text).ok()).unwrap_or_default();
    if !cpus.is_empty() {
        return Look::good(cpus.to_string());
    }
    let found = match named_at_boot(root, "nohz_full") {
        asked if asked.is_empty() => "off on all CPUs".to_owned(),
        asked => format!("asked for on {asked}, but the kernel has no CONFIG_NO_HZ_FULL"),
    };
    let mend =
        format!("kernel parameter nohz_full={}, for CPUs that run one thread each", example(root, &online));
    Look::drawback(found, mend)
}

fn rcu_nocbs(root: &Root) -> Look {
    let Some(online) = online(root) else { return unknown_cpus(root) };
    // What nohz_full names, the kernel takes for this, too.
    let shown = root.read_if_any("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    let full = CpuSet::from_list(&shown).unwrap_or_default();
    let cpus: CpuSet = named_at_boot(root, "rcu_nocbs").iter().chain(full.iter()).collect();
    if cpus.is_empty() {
        return Look::drawback(
            "callbacks run on all CPUs",
            format!("kernel parameter rcu_nocbs={}", example(root, &online)),
        );
    }
    Look::good(format!("moved away from {cpus}"))
}

fn irq_affinity(root: &Root) -> Look {
    let Some(online) = online(root) else { return unknown_cpus(root) };
    let irqs = root.numbered("/proc/irq", "");
    let reaches = |(number, _): &(u32, String)| {
        // Where it really goes, if the kernel says so; else where it may.
        let files = ["effective_affinity_list", "smp_affinity_list"];
        let texts = files.iter().filter_map(|file| root.read_if_any(&format!("/proc/irq/{number}/{file}")));
        let cpus = texts.filter_map(|text| CpuSet::from_list(&text).ok()).find(|cpus| !cpus.is_empty());
        cpus.map(|cpus| (*number, cpus))
    };
    let reached: Vec<(u32, CpuSet)> = irqs.iter().filter_map(reaches).collect();
    if reached.is_empty() {
        return match root.read("/proc/irq/default_smp_affinity") {
            Err(unread) => Look::unknown(&unread, "read it as root"),
            Ok(_) => Look::good("no device has an interrupt that can be moved"),
        };
    }
    let balanced = if runs(root, "irqbalance") { "; irqbalance runs, and moves them" } else { "" };
    let isolated = isolated(root).unwrap_or_default().shared_with(&online);
    if isolated.is_empty() {
        let busiest = online
            .iter()
            .map(|cpu| reached.iter().filter(|(_, cpus)| cpus.iter().any(|on| on == cpu)).count());
        let counts: Vec<String> =
            online.iter().zip(busiest).map(|(cpu, count)| format!("{count} on CPU {cpu}")).take(8).collect();
        return Look::drawback(
            format!("{} interrupts, on all CPUs: {}{balanced}", reached.len(), counts.join(", ")),
            "for one command: sudo tompion shield\nfor good: kernel parameter irqaffinity=0, or echo 0 > \
             /proc/irq/NUMBER/smp_affinity_list",
        );
    }
    let there: Vec<String> = reached
        .iter()
        .filter(|(_, cpus)| !cpus.shared_with(&isolated).is_empty())
        .map(|(number, _)| number.to_string())
        .collect();
    if there.is_empty() {
        return Look::good(format!(
            "none of {} interrupts comes to CPUs {isolated}{balanced}",
            reached.len()
        ));
    }
    let rest = online.without(&isolated);
    Look::drawback(
        format!(
            "{} of {} interrupts come to isolated CPUs: {}{balanced}",
            there.len(),
            reached.len(),
            there.join(", ")
        ),
        format!("for i in {}; do echo {rest} > /proc/irq/$i/smp_affinity_list; done", there.join(" ")),
    )
}

/// Whether a program of this name runs.
fn runs(root: &Root, name: &str) -> bool {
    let processes = root.numbered("/proc", "").into_iter();
    processes
        .map(|(pid, _)| format!("/proc/{pid}/comm"))
        .any(|file| root.read_if_any(&file).as_deref() == Some(name))
}

fn governor(root: &Root) -> Look {
    let Some(online) = online(root) else { return unknown_cpus(root) };
    let file = |cpu: u32| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    let mut governors: Vec<(String, Vec<u32>)> = Vec::new();
    for (cpu, governor) in online.iter().filter_map(|cpu| Some((cpu, root.read_if_any(&file(cpu))?))) {
        match governors.iter_mut().find(|(name, _)| *name == governor) {
            Some((_, cpus)) => cpus.push(cpu),
            None => governors.push((governor, vec![cpu])),
        }
    }
    if governors.is_empty() {
        return Look::good("the kernel scales no frequencies here; firmware or a host may");
    }
    let shown = governors.iter().map(|(name, cpus)| {
        let cpus: CpuSet = cpus.iter().copied().collect();
        format!("{name} on CPUs {cpus}")
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    if governors.iter().all(|(name, _)| name == "performance") {
        return Look::good(shown);
    }
    Look::drawback(
        shown,
        "for f in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo performance > $f; done\nfor good: \
         kernel parameter cpufreq.default_governor=performance",
    )
}

/// Wake-ups from states that take no longer than this, in microseconds, are lost among other costs
/// of a wake-up.
const SHALLOW: u64 = 5;

fn idle_states(root: &Root) -> Look {
    let Some(online) = online(root) else { return unknown_cpus(root) };
    let mut deepest: Option<(u64, String)> = None;
    let mut any = false;
    for cpu in online.iter() {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
        for (_, state) in root.numbered(&folder, "state") {
            let value = |name: &str| root.read_if_any(&format!("{folder}/{state}/{name}"));
            let latency = value("latency").and_then(|text| text.parse::<u64>().ok());
            any |= latency.is_some();
            let is_on = value("disable").is_none_or(|text| text == "0");
            let named = latency
                .filter(|_| is_on)
                .map(|latency| (latency, value("name").unwrap_or_else(|| state.clone())));
            deepest = deepest.max(named);
        }
    }
    let driver = root.read_if_any("/sys/devices/system/cpu/cpuidle/current_driver").unwrap_or_default();
    match deepest {
        None if any => Look::good("all are disabled"),
        None => Look::good("the kernel knows none here; firmware or a host may"),
        Some((latency, name)) if latency <= SHALLOW => {
            Look::good(format!("the deepest, {name}, takes {latency} µs to leave (driver {driver})"))
        }
        Some((latency, name)) => Look::drawback(
            format!("the deepest that is on, {name}, takes {latency} µs to leave (driver {driver})"),
            "cpupower idle-set -D 5, or a program that keeps /dev/cpu_dma_latency open with a 32-bit 0 written to \
             it\nfor good: kernel parameters processor.max_cstate=1 intel_idle.max_cstate=0",
        ),
    }
}

fn siblings(root: &Root) -> Look {
    match root.read("/sys/devices/system/cpu/smt/active") {
        Err(unread) => {
            Look::unknown(&unread, "look at thread_siblings_list in /sys/devices/system/cpu/cpu*/topology")
        }
        Ok(active) if active == "1" => Look::drawback(
            "on",
            "echo off > /sys/devices/system/cpu/smt/control\nfor good: kernel parameter nosmt, or the firmware's menu",
        ),
        Ok(_) => {
            let control = root.read_if_any("/sys/devices/system/cpu/smt/control").unwrap_or_default();
            Look::good(if control == "notsupported" || control == "notimplemented" {
                "the processor has none, as far as the kernel sees".to_owned()
            } else {
                "off".to_owned()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{State, check};

    const FOUR: (&str, &str) = ("/sys/devices/system/cpu/online", "0-3\n");
    const ISOLATED: (&str, &str) = ("/sys/devices/system/cpu/isolated", "2-3\n");

    #[test]
    fn hypervisors_are_seen() {
        const CPUINFO: &str = "/proc/cpuinfo";
        check("hypervisor", &[(CPUINFO, "flags\t\t: fpu hypervisor tsc\n")], (State::Drawback, &["virtual"]));
        check("hypervisor", &[(CPUINFO, "model name : hypervisor\nflags : fpu\n")], (State::Good, &[]));
    }

    #[test]
    fn isolated_cpus_are_those_of_boot_and_of_cpusets() {
        check("isolated CPUs", &[FOUR, ISOLATED], (State::Good, &["2-3 of 0-3"]));
        let none = ("/sys/devices/system/cpu/isolated", "\n");
        let by_cpuset = ("/sys/fs/cgroup/cpuset.cpus.isolated", "1\n");
        check("isolated CPUs", &[FOUR, none, by_cpuset], (State::Good, &["1 of 0-3"]));
        check("isolated CPUs", &[FOUR, none], (State::Drawback, &["none", "tompion shield 3", "isolcpus="]));
        check("isolated CPUs", &[("/sys/devices/system/cpu/online", "0")], (State::Drawback, &["one CPU"]));
        check("isolated CPUs", &[("/sys/devices/system/cpu/online", "x")], (State::Unknown, &["`x`"]));
    }

    #[test]
    fn ticks_and_callbacks() {
        let full = ("/sys/devices/system/cpu/nohz_full", "2-3\n");
        let null = ("/sys/devices/system/cpu/nohz_full", "(null)\n");
        let line = ("/proc/cmdline", "nohz_full=3 rcu_nocbs=all");
        check("nohz_full", &[FOUR, full], (State::Good, &["2-3"]));
        check("nohz_full", &[FOUR, null], (State::Drawback, &["off", "nohz_full=3"]));
        check(
            "nohz_full",
            &[FOUR, ISOLATED, line],
            (State::Drawback, &["CONFIG_NO_HZ_FULL", "nohz_full=2-3"]),
        );
        check("rcu_nocbs", &[FOUR, line], (State::Good, &["0-3"]));
        check("rcu_nocbs", &[FOUR, full], (State::Good, &["2-3"]));
        check("rcu_nocbs", &[FOUR], (State::Drawback, &["rcu_nocbs=3"]));
    }

    #[test]
    fn interrupts_of_isolated_cpus_are_named() {
        let one = ("/proc/irq/24/smp_affinity_list", "0-3\n");
        let really = ("/proc/irq/24/effective_affinity_list", "2\n");
        let other = ("/proc/irq/9/smp_affinity_list", "0-1\n");
        let both = [FOUR, ISOLATED, one, really, other];
        check("irq affinity", &both, (State::Drawback, &["1 of 2", ": 24", "for i in 24; do echo 0-1 >"]));
        check("irq affinity", &[FOUR, ISOLATED, other], (State::Good, &["none of 1"]));
        let balance = ("/proc/77/comm", "irqbalance\n");
        check(
            "irq affinity",
            &[FOUR, one, other, balance],
            (State::Drawback, &["2 on CPU 0, 2 on CPU 1, 1 on CPU 2", "irqbalance"]),
        );
    }

    #[test]
    fn governors_are_listed_by_cpu() {
        let file = |cpu: u32| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        let (zero, one) = (file(0), file(1));
        let mixed = [FOUR, (&*zero, "powersave\n"), (&*one, "performance\n")];
        check("governor", &mixed, (State::Drawback, &["powersave on CPUs 0", "echo performance"]));
        check("governor", &[FOUR, (&*zero, "performance")], (State::Good, &["performance on CPUs 0"]));
        check("governor", &[FOUR], (State::Good, &["scales no frequencies"]));
    }

    #[test]
    fn the_deepest_sleep_that_is_on_counts() {
        let file =
            |state: u32, name: &str| format!("/sys/devices/system/cpu/cpu1/cpuidle/state{state}/{name}");
        let (poll, deep, off, name) =
            (file(0, "latency"), file(3, "latency"), file(3, "disable"), file(3, "name"));
        let files = [FOUR, (&*poll, "0"), (&*deep, "133"), (&*name, "C6")];
        check("C-states", &files, (State::Drawback, &["C6", "133 µs", "max_cstate"]));
        let files = [FOUR, (&*poll, "0"), (&*deep, "133"), (&*off, "1")];
        check("C-states", &files, (State::Good, &["0 µs"]));
        check("C-states", &[FOUR], (State::Good, &["knows none"]));
    }

    #[test]
    fn siblings_of_a_core() {
        const ACTIVE: &str = "/sys/devices/system/cpu/smt/active";
        check("SMT", &[(ACTIVE, "1")], (State::Drawback, &["nosmt"]));
        check("SMT", &[(ACTIVE, "0")], (State::Good, &["off"]));
        check(
            "SMT",
            &[(ACTIVE, "0"), ("/sys/devices/system/cpu/smt/control", "notsupported")],
            (State::Good, &["has none"]),
        );
    }
}
