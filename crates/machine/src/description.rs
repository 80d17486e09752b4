//! Description of a machine beside its measurements: its kind, not its name.

use serde::{Deserialize, Serialize};

use crate::{CpuSet, Root};

/// A property of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Name of the property.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Reads the properties, in the order of a reader's interest. What can't be read is left out.
pub fn describe(root: &Root) -> Vec<Fact> {
    let cpu = |key: &str| cpu_info(root, key);
    let read = |path: &str| root.read_if_any(path).filter(|text| !text.is_empty());
    let found = [
        ("processor", processor(root)),
        ("processors", read("/sys/devices/system/cpu/online").map(|list| online(&list))),
        ("microcode", cpu("microcode")),
        ("hypervisor", hypervisor(root)),
        ("computer", computer(root)),
        ("memory", memory(root)),
        ("distribution", distribution(root)),
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("kernel's build", read("/proc/sys/kernel/version")),
        ("kernel's command line", read("/proc/cmdline")),
        ("clock source", read("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        ("isolated CPUs", read("/sys/devices/system/cpu/isolated")),
        ("governor", read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        ("idle driver", read("/sys/devices/system/cpu/cpuidle/current_driver")),
        ("real-time throttling", throttling(root)),
    ];
    let fact = |(name, value): (&str, Option<String>)| Some(Fact { name: name.into(), value: value? });
    found.into_iter().filter_map(fact).collect()
}

/// The first processor's value of a key in `/proc/cpuinfo`.
fn cpu_info(root: &Root, key: &str) -> Option<String> {
    let text = root.read_if_any("/proc/cpuinfo")?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
}

fn processor(root: &Root) -> Option<String> {
    let name = cpu_info(root, "model name").or_else(|| cpu_info(root, "CPU part"))?;
    Some(match (cpu_info(root, "cpu family"), cpu_info(root, "model"), cpu_info(root, "stepping")) {
        (Some(family), Some(model), Some(stepping)) => {
            format!("{name} (family {family}, model {model}, stepping {stepping})")
        }
        _ => name,
    })
}

fn online(list: &str) -> String {
    match CpuSet::from_list(list) {
        Ok(cpus) => format!("{} ({cpus})", cpus.len()),
        Err(_) => list.to_owned(),
    }
}

fn hypervisor(root: &Root) -> Option<String> {
    let flags = cpu_info(root, "flags").or_else(|| cpu_info(root, "Features"))?;
    let is_virtual = flags.split_whitespace().any(|flag| flag == "hypervisor");
    let name = root.read_if_any("/sys/hypervisor/type").filter(|name| !name.is_empty());
    Some(match (is_virtual, name) {
        (true, Some(name)) => format!("yes ({name})"),
        (true, None) => "yes".into(),
        (false, _) => "none".into(),
    })
}

fn computer(root: &Root) -> Option<String> {
    let words = ["sys_vendor", "product_name", "bios_version"];
    let words = words.map(|word| root.read_if_any(&format!("/sys/class/dmi/id/{word}")));
    let words: Vec<String> = words.into_iter().flatten().filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn memory(root: &Root) -> Option<String> {
    let text = root.read_if_any("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(format!("{:.1} GiB", kib as f64 / f64::from(1 << 20)))
}

fn distribution(root: &Root) -> Option<String> {
    let text = root.read_if_any("/etc/os-release")?;
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

fn throttling(root: &Root) -> Option<String> {
    let number = |name: &str| {
        let text = root.read_if_any(&format!("/proc/sys/kernel/sched_rt_{name}_us"))?;
        text.parse::<i64>().ok()
    };
    Some(match (number("runtime")?, number("period")?) {
        (..0, _) => "off".into(),
        (runtime, period) => format!("{runtime} µs of each {period} µs"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        for (path, text) in files {
            std::fs::create_dir_all(root.place(path).parent().unwrap()).unwrap();
            std::fs::write(root.place(path), text).unwrap();
        }
        describe(&root).into_iter().map(|fact| (fact.name, fact.value)).collect()
    }

    #[test]
    fn existing_properties_are_listed() {
        let cpuinfo = "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: A CPU @ 2 GHz\nstepping\t: 7\n\
                       microcode\t: 0x1\nflags\t\t: fpu hypervisor tsc\n\nprocessor\t: 1\nmodel name\t: B\n";
        let found = made_up(&[
            ("/proc/cpuinfo", cpuinfo),
            ("/sys/devices/system/cpu/online", "0-3\n"),
            ("/proc/meminfo", "MemTotal:       3145728 kB\n"),
            ("/etc/os-release", "NAME=x\nPRETTY_NAME=\"Some Linux 12\"\n"),
            ("/proc/sys/kernel/sched_rt_runtime_us", "-1\n"),
            ("/proc/sys/kernel/sched_rt_period_us", "1000000\n"),
        ]);
        let expected = [
            ("processor", "A CPU @ 2 GHz (family 6, model 85, stepping 7)"),
            ("processors", "4 (0-3)"),
            ("microcode", "0x1"),
            ("hypervisor", "yes"),
            ("memory", "3.0 GiB"),
            ("distribution", "Some Linux 12"),
            ("real-time throttling", "off"),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn what_is_not_there_is_left_out() {
        assert_eq!(made_up(&[]), []);
        assert_eq!(
            made_up(&[("/proc/meminfo", "x"), ("/proc/cpuinfo", ":::\n"), ("/etc/os-release", "")]),
            []
        );
    }

    #[test]
    fn this_machine_has_a_kernel_and_memory() {
        let names: Vec<String> = describe(&Root::default()).into_iter().map(|fact| fact.name).collect();
        assert!(
            ["processors", "memory", "kernel"].iter().all(|name| names.iter().any(|found| found == name))
        );
    }
}
