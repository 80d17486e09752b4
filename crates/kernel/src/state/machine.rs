//! Initial state of processors, interrupts and disks.

use std::{collections::HashMap, fs, path::Path};

use super::{Kind, record::Recording};

/// Bits of a device's minor number in the kernel (`MINORBITS`).
const MINOR_BITS: u32 = 20;

/// Records the processors. Only for x86, as with LTTng: other architectures describe theirs
/// differently.
pub(super) fn processors(recording: &mut Recording<'_>) {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    for block in text.split("\n\n") {
        let lines = block.lines().filter_map(|line| line.split_once(':'));
        let facts: HashMap<&str, &str> = lines.map(|(name, value)| (name.trim(), value.trim())).collect();
        let word = |name: &str| facts.get(name).copied().unwrap_or("unknown").as_bytes();
        let number = |name: &str| facts.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let (Some(cpu), true) = (facts.get("processor"), facts.contains_key("vendor_id")) else { continue };
        recording.add(Kind::Cpu, |payload| {
            payload.text(b"x86");
            payload.half(cpu.parse().unwrap_or(0));
            payload.text(word("vendor_id"));
            payload.number([number("cpu family") as u8]);
            payload.number([number("model") as u8]);
            payload.text(word("model name"));
            payload.half(number("physical id") as u16);
            payload.half(number("core id") as u16);
            payload.half(number("cpu cores") as u16);
        });
    }
}

/// Records the meaning of interrupt numbers.
///
/// Source: the kernel's `Documentation/ABI/stable/sysfs-kernel-irq`, if there is such;
/// `/sys/kernel/irq`, Linux 4.9.
pub(super) fn interrupts(recording: &mut Recording<'_>) {
    for (folder, name) in entries(Path::new("/sys/kernel/irq")) {
        let Ok(irq) = name.parse::<u32>() else { continue };
        let read = |name: &str| fs::read(Path::new(&folder).join(name)).unwrap_or_default();
        let (chip, actions) = (read("chip_name"), read("actions"));
        for action in actions.trim_ascii().split(|byte| *byte == b',').filter(|action| !action.is_empty()) {
            recording.add(Kind::Interrupt, |payload| {
                payload.word(irq);
                payload.text(chip.trim_ascii());
                payload.text(action);
            });
        }
    }
}

/// Records the numbers that disks and their partitions have in the events of block devices.
pub(super) fn block_devices(recording: &mut Recording<'_>) {
    for (folder, name) in entries(Path::new("/sys/class/block")) {
        let text = fs::read_to_string(Path::new(&folder).join("dev")).unwrap_or_default();
        let numbers = text.trim().split_once(':');
        let numbers = numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let Some((major, minor)) = numbers else { continue };
        let (major, minor): (u32, u32) = (major, minor);
        recording.add(Kind::BlockDevice, |payload| {
            payload.word(major << MINOR_BITS | minor);
            payload.text(name.as_bytes());
        });
    }
}

/// The entries of a folder, as paths and names, in the order of their names.
pub(super) fn entries(folder: &Path) -> Vec<(std::path::PathBuf, String)> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> =
        found.filter_map(|entry| Some((entry.path(), entry.file_name().into_string().ok()?))).collect();
    found.sort_by(|a, b| a.1.cmp(&b.1));
    found
}
