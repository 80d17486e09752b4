//! The kernel: how it preempts, throttles, keeps time, protects and watches itself.

use super::{Check, Look, boot_parameter, chosen, has_boot_word};
use crate::Root;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "preemption",
        why: "a thread that must run waits until the kernel lets go of the CPU: with PREEMPT_RT for microseconds, \
              with `none` and `voluntary` for milliseconds at times",
        look: preemption,
    },
    Check {
        name: "rt throttling",
        why: "the scheduler takes the CPU from a real-time thread that does not sleep, to give it to ordinary ones",
        look: throttling,
    },
    Check {
        name: "clocksource",
        why: "every reading of the clock, every timer and every event pays for the clock, and some clocks are \
              devices that all CPUs wait for",
        look: clocksource,
    },
    Check {
        name: "mitigations",
        why: "against leaks of processors, each entry into the kernel and each switch costs more",
        look: mitigations,
    },
    Check {
        name: "watchdogs",
        why: "watchdogs interrupt every CPU each few seconds, the NMI watchdog even where interrupts are off",
        look: watchdogs,
    },
];

const REALTIME_KERNEL: &str =
    "boot a PREEMPT_RT kernel (Debian: apt install linux-image-rt-amd64; Ubuntu: pro enable realtime-kernel)";
const PREEMPT_FULL: &str =
    "echo full > /sys/kernel/debug/sched/preempt\nfor good: kernel parameter preempt=full";

/// Way in which the kernel preempts its own code.
#[derive(Debug, PartialEq, Eq)]
enum Preemption {
    RealTime,
    /// `none`, `voluntary`, `lazy`, `full`; and whether it can be changed while the kernel runs.
    Model(String, bool),
    /// The value is one of these, as far as can be told.
    Among(&'static str, bool),
}

fn preemption(root: &Root) -> Look {
    let version = match root.read("/proc/version") {
        Ok(version) => version,
        Err(unread) => return Look::unknown(&unread, "mount -t proc proc /proc"),
    };
    let mount = if lacks_debugfs(root) { "mount -t debugfs debugfs /sys/kernel/debug\n" } else { "" };
    let advice = |changes: bool| match changes {
        true => format!("{mount}{PREEMPT_FULL}\nfor bounds: {REALTIME_KERNEL}"),
        false => REALTIME_KERNEL.to_owned(),
    };
    match model(root, &version) {
        Preemption::RealTime => Look::good("PREEMPT_RT: nearly all of the kernel can be preempted"),
        Preemption::Model(model, _) if model == "full" => Look::drawback(
            "full, not PREEMPT_RT: interrupts' work and held spin locks are not preempted",
            REALTIME_KERNEL,
        ),
        Preemption::Model(model, changes) => Look::bad(
            format!("{model}: the kernel's own code runs on until it gives up the CPU, or the next tick"),
            advice(changes),
        ),
        Preemption::Among(models, changes) => {
            let mut look = Look::drawback(
                format!("{models}: which, can't be read (/sys/kernel/debug/sched/preempt)"),
                advice(changes),
            );
            look.state = super::State::Unknown;
            look
        }
    }
}

/// Returns whether the scheduler's files in debugfs are missing.
fn lacks_debugfs(root: &Root) -> bool {
    let mounts = root.read_if_any("/proc/self/mountinfo");
    mounts.is_some_and(|mounts| !mounts.lines().any(|line| line.contains(" - debugfs ")))
}

/// Sources, in this order: what the kernel says of itself, its parameters, its configuration.
fn model(root: &Root, version: &str) -> Preemption {
    let says = |word: &str| version.split_whitespace().any(|found| found == word);
    if root.read_if_any("/sys/kernel/realtime").as_deref() == Some("1")
        || says("PREEMPT_RT")
        || version.contains("PREEMPT RT")
    {
        return Preemption::RealTime;
    }
    let changes = says("PREEMPT_DYNAMIC");
    let now = root.read_if_any("/sys/kernel/debug/sched/preempt");
    let known = |word: &str| ["none", "voluntary", "lazy", "full"].contains(&word);
    if let Some(model) = now.as_deref().and_then(chosen).filter(|model| known(model)) {
        return Preemption::Model(model.to_owned(), true);
    }
    if let Some(model) = boot_parameter(root, "preempt").filter(|model| changes && known(model)) {
        return Preemption::Model(model, true);
    }
    if let Some(model) = configured(root) {
        return Preemption::Model(model.to_owned(), changes);
    }
    match (changes, says("PREEMPT")) {
        (true, _) => Preemption::Among("none, voluntary, lazy or full (PREEMPT_DYNAMIC)", true),
        (false, true) => Preemption::Model("full".into(), false),
        (false, false) => Preemption::Among("none or voluntary", false),
    }
}

/// The kernel's build configuration, if it is installed beside it.
fn configured(root: &Root) -> Option<&'static str> {
    let release = root.read_if_any("/proc/sys/kernel/osrelease")?;
    let files = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
    let config = files.iter().find_map(|file| root.read_if_any(file))?;
    let models = [
        ("CONFIG_PREEMPT_NONE=y", "none"),
        ("CONFIG_PREEMPT_VOLUNTARY=y", "voluntary"),
        ("CONFIG_PREEMPT_LAZY=y", "lazy"),
        ("CONFIG_PREEMPT=y", "full"),
    ];
    models.iter().find(|(line, _)| config.lines().any(|found| found == *line)).map(|(_, model)| *model)
}

fn throttling(root: &Root) -> Look {
    let number = |path: &str| {
        root.read(path)
            .map(|text| text.parse::<i64>().map_err(|_| format!("{path} says `{text}`, no number")))
    };
    let runtime = match number("/proc/sys/kernel/sched_rt_runtime_us") {
        Ok(Ok(runtime)) => runtime,
        Ok(Err(odd)) => return Look::drawback(odd, "sysctl kernel.sched_rt_runtime_us=-1"),
        Err(unread) => return Look::unknown(&unread, "mount -t proc proc /proc"),
    };
    let period = number("/proc/sys/kernel/sched_rt_period_us").ok().and_then(Result::ok).unwrap_or(1_000_000);
    let server = fair_server(root);
    if runtime < 0 && server.is_none() {
        return Look::good("off: a real-time thread that never sleeps keeps its CPU");
    }
    let free = period.saturating_sub(runtime);
    let shown = match (runtime < 0 || free <= 0, &server) {
        (false, None) => format!("real-time threads pause {free} µs in each {period} µs if they don't sleep"),
        (false, Some(server)) => format!(
            "real-time threads pause if they don't sleep: {free} µs in each {period} µs in older kernels, {server}"
        ),
        (true, Some(server)) => format!("real-time threads pause if they don't sleep: {server}"),
        (true, None) => return Look::good("all of each period belongs to real-time threads"),
    };
    let mut mend = Vec::new();
    if runtime >= 0 {
        mend.push("sysctl kernel.sched_rt_runtime_us=-1");
    }
    if server.is_some() {
        mend.push("for f in /sys/kernel/debug/sched/fair_server/cpu*/runtime; do echo 0 > $f; done");
    }
    mend.push("only where no real-time thread can run away: nothing else stops it then");
    Look::drawback(shown, mend.join("\n"))
}

/// Since Linux 6.12 a deadline server runs ordinary threads that starve, whatever the throttling
/// says.
fn fair_server(root: &Root) -> Option<String> {
    const FOLDER: &str = "/sys/kernel/debug/sched/fair_server";
    let times = root.numbered(FOLDER, "cpu").into_iter().filter_map(|(_, cpu)| {
        let time = |name: &str| root.read_if_any(&format!("{FOLDER}/{cpu}/{name}"))?.parse::<u64>().ok();
        Some((time("runtime")?, time("period")?))
    });
    let (runtime, period) = times.max_by_key(|(runtime, _)| *runtime).filter(|(runtime, _)| *runtime != 0)?;
    Some(format!("the fair server takes up to {} µs of each {} µs", runtime / 1000, period / 1000))
}

fn clocksource(root: &Root) -> Look {
    const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";
    let current = match root.read(&format!("{FOLDER}/current_clocksource")) {
        Ok(current) => current,
        Err(unread) => return Look::unknown(&unread, "mount -t sysfs sysfs /sys"),
    };
    let offered = root.read_if_any(&format!("{FOLDER}/available_clocksource")).unwrap_or_default();
    let mend = if offered.split_whitespace().any(|source| source == "tsc") {
        format!("echo tsc > {FOLDER}/current_clocksource\nfor good: kernel parameter clocksource=tsc")
    } else {
        "kernel parameter tsc=reliable, if the processor's TSC is invariant and the CPUs' agree".to_owned()
    };
    match current.as_str() {
        "tsc" | "arch_sys_counter" => Look::good(format!("{current}: read without a system call")),
        "kvm-clock" | "hyperv_clocksource_tsc_page" | "xen" => {
            Look::drawback(format!("{current}: the hypervisor's clock, slower to read than the TSC"), mend)
        }
        "" => Look::bad("the kernel names none", mend),
        _ => Look::bad(format!("{current}: each reading is a system call, and some ask a device"), mend),
    }
}

fn mitigations(root: &Root) -> Look {
    const FOLDER: &str = "/sys/devices/system/cpu/vulnerabilities";
    let names = root.names(FOLDER);
    let texts: Vec<(&String, String)> = names
        .iter()
        .filter_map(|name| Some((name, root.read_if_any(&format!("{FOLDER}/{name}"))?)))
        .collect();
    if texts.is_empty() {
        return match root.read(&format!("{FOLDER}/spectre_v2")) {
            Err(unread) => Look::unknown(&unread, "mount -t sysfs sysfs /sys"),
            Ok(_) => Look::good("none"),
        };
    }
    let on: Vec<&str> = texts
        .iter()
        .filter(|(_, text)| text.contains("Mitigation:"))
        .map(|(name, _)| name.as_str())
        .collect();
    if on.is_empty() {
        return Look::good("none is on");
    }
    Look::drawback(
        format!("{} of {} are on: {}", on.len(), texts.len(), on.join(", ")),
        "where all code on the machine is trusted: kernel parameter mitigations=off\nmeasure before and after",
    )
}

fn watchdogs(root: &Root) -> Look {
    const FOLDER: &str = "/proc/sys/kernel";
    let setting = |name: &str| root.read(&format!("{FOLDER}/{name}"));
    let is_on = |name: &str| setting(name).is_ok_and(|text| text == "1");
    if let Err(unread) = setting("watchdog") {
        // A kernel without watchdogs has none of the files.
        return match setting("osrelease") {
            Ok(_) if unread.is_missing() => Look::good("the kernel has none"),
            _ => Look::unknown(&unread, "mount -t proc proc /proc"),
        };
    }
    let on: Vec<&str> = [("nmi_watchdog", "the NMI watchdog"), ("soft_watchdog", "the soft lockup watchdog")]
        .iter()
        .filter(|(file, _)| is_on(file) && is_on("watchdog"))
        .map(|(_, name)| *name)
        .collect();
    if on.is_empty() || has_boot_word(root, "nowatchdog") {
        return Look::good("off");
    }
    let whose = setting("watchdog_cpumask").map_or(String::new(), |cpus| format!(", on CPUs {cpus}"));
    Look::drawback(
        format!("{}{}{whose}", on.join(" and "), if on.len() == 1 { " is on" } else { " are on" }),
        "sysctl kernel.watchdog=0, or kernel.watchdog_cpumask=0 to leave them on CPU 0\nfor good: kernel parameter \
         nowatchdog",
    )
}

#[cfg(test)]
mod tests {
    use super::super::{MadeUp, State, check};

    const DYNAMIC: (&str, &str) =
        ("/proc/version", "Linux version 6.18.4 (a@b) #1 SMP PREEMPT_DYNAMIC Mon\n");

    #[test]
    fn real_time_kernels_are_recognised() {
        for version in
            ["Linux version 6.1.0-9-rt-amd64 #1 SMP PREEMPT_RT Debian", "Linux 4.4 #1 SMP PREEMPT RT"]
        {
            check("preemption", &[("/proc/version", version)], (State::Good, &["PREEMPT_RT"]));
        }
        let shown = [("/proc/version", "Linux 5.4"), ("/sys/kernel/realtime", "1\n")];
        check("preemption", &shown, (State::Good, &[]));
    }

    #[test]
    fn the_model_that_runs_outweighs_the_one_that_was_asked_for() {
        let now = ("/sys/kernel/debug/sched/preempt", "none voluntary (full) lazy\n");
        let asked = ("/proc/cmdline", "preempt=voluntary\n");
        check("preemption", &[DYNAMIC, now, asked], (State::Drawback, &["full", "linux-image-rt"]));
        check("preemption", &[DYNAMIC, asked], (State::Bad, &["voluntary", "preempt=full"]));
    }

    #[test]
    fn a_configuration_tells_what_the_kernel_does_not() {
        let release = ("/proc/sys/kernel/osrelease", "6.18.4\n");
        let config = ("/boot/config-6.18.4", "# CONFIG_PREEMPT=y\nCONFIG_PREEMPT_NONE=y\n");
        check("preemption", &[DYNAMIC, release, config], (State::Bad, &["none:", "echo full"]));
        check("preemption", &[DYNAMIC], (State::Unknown, &["PREEMPT_DYNAMIC", "/sys/kernel/debug"]));
        check("preemption", &[("/proc/version", "Linux #1 SMP x")], (State::Unknown, &["none or voluntary"]));
        check("preemption", &[("/proc/version", "Linux #1 SMP PREEMPT x")], (State::Drawback, &["full"]));
    }

    #[test]
    fn a_missing_debugfs_is_mounted_first() {
        let asked = ("/proc/cmdline", "preempt=voluntary\n");
        let mount = ["mount -t debugfs debugfs /sys/kernel/debug\necho full"];
        let without = ("/proc/self/mountinfo", "1 0 0:1 / /proc rw - proc proc rw\n");
        check("preemption", &[DYNAMIC, asked, without], (State::Bad, &mount));
        let with = ("/proc/self/mountinfo", "1 0 0:1 / /sys/kernel/debug rw - debugfs debugfs rw\n");
        let finding = MadeUp::new(&[DYNAMIC, asked, with]).look("preemption");
        assert!(!finding.mend.expect("advice").contains("mount -t debugfs"));
    }

    #[test]
    fn throttling_and_the_fair_server() {
        const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
        const SERVER: &str = "/sys/kernel/debug/sched/fair_server/cpu0";
        check("rt throttling", &[(RUNTIME, "-1")], (State::Good, &["off"]));
        check(
            "rt throttling",
            &[(RUNTIME, "950000")],
            (State::Drawback, &["50000 µs in each 1000000 µs", "=-1"]),
        );
        let (runtime, period) = (format!("{SERVER}/runtime"), format!("{SERVER}/period"));
        let server = [(RUNTIME, "-1"), (&*runtime, "50000000"), (&*period, "1000000000")];
        check("rt throttling", &server, (State::Drawback, &["50000 µs of each 1000000 µs", "fair_server"]));
        let off = [(RUNTIME, "-1"), (&*runtime, "0"), (&*period, "1000000000")];
        check("rt throttling", &off, (State::Good, &[]));
        check("rt throttling", &[(RUNTIME, "soon")], (State::Drawback, &["`soon`"]));
    }

    #[test]
    fn clocks() {
        const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        const OFFERED: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
        check("clocksource", &[(CURRENT, "tsc\n")], (State::Good, &["tsc"]));
        check(
            "clocksource",
            &[(CURRENT, "hpet"), (OFFERED, "tsc hpet")],
            (State::Bad, &["hpet", "echo tsc"]),
        );
        check("clocksource", &[(CURRENT, "kvm-clock")], (State::Drawback, &["tsc=reliable"]));
    }

    #[test]
    fn mitigations_are_counted() {
        const FOLDER: &str = "/sys/devices/system/cpu/vulnerabilities";
        let (one, other) = (format!("{FOLDER}/mds"), format!("{FOLDER}/spectre_v2"));
        let files = [(&*one, "Not affected"), (&*other, "Mitigation: Retpolines; IBPB: conditional")];
        check("mitigations", &files, (State::Drawback, &["1 of 2", "spectre_v2", "mitigations=off"]));
        check("mitigations", &[(&*one, "Vulnerable")], (State::Good, &[]));
    }

    #[test]
    fn watchdogs_that_are_on_are_named() {
        const SOME: (&str, &str) = ("/proc/sys/kernel/watchdog", "1");
        let soft = ("/proc/sys/kernel/soft_watchdog", "1");
        let nmi = ("/proc/sys/kernel/nmi_watchdog", "0");
        let cpus = ("/proc/sys/kernel/watchdog_cpumask", "0-1");
        check(
            "watchdogs",
            &[SOME, soft, nmi, cpus],
            (State::Drawback, &["soft lockup watchdog is on, on CPUs 0-1"]),
        );
        check("watchdogs", &[("/proc/sys/kernel/watchdog", "0"), nmi], (State::Good, &["off"]));
        check("watchdogs", &[("/proc/sys/kernel/osrelease", "6.1")], (State::Good, &["has none"]));
    }
}
