//! Check of whether this process can record the kernel, and of what is missing where it can't.

use std::{fs, path::Path};

use tompion_os::FileRights;

/// Obstacle to recording the kernel, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Observation.
    pub found: String,
    /// Remedy.
    pub mend: &'static str,
    /// Whether recording works all the same, with less in it.
    pub bearable: bool,
}

impl Obstacle {
    fn new(found: impl Into<String>, mend: &'static str) -> Self {
        Self { found: found.into(), mend, bearable: false }
    }
}

/// Bits of capabilities (`capability.h`).
const CAP_SYS_ADMIN: u64 = 21;
const CAP_PERFMON: u64 = 38;
const CAP_BPF: u64 = 39;

/// Everything that is known to stand in the way.
pub fn obstacles() -> Vec<Obstacle> {
    let mut found = Vec::new();
    if crate::load::OBJECT.is_empty() {
        found.push(Obstacle::new(
            "this build has no kernel programs: clang was missing",
            "apt install clang, and build again",
        ));
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        found.push(Obstacle::new(
            "the kernel does not describe its types (/sys/kernel/btf/vmlinux)",
            "use a kernel of 5.15 or later with CONFIG_DEBUG_INFO_BTF=y, as distributions have it",
        ));
    }
    if !may_load_programs() {
        found.push(Obstacle::new(
            "not permitted: loading programs takes root, or CAP_BPF and CAP_PERFMON",
            "run it as root (sudo tompion …), or once: sudo setcap cap_bpf,cap_perfmon,cap_dac_read_search+ep \
             \"$(command -v tompion)\"",
        ));
    }
    if lockdown().as_deref() == Some("confidentiality") {
        found.push(Obstacle::new(
            "the kernel is locked down (confidentiality): programs may not read its memory",
            "boot with lockdown=integrity or none",
        ));
    }
    if !has_formats() {
        found.push(Obstacle {
            found:
                "tracefs can't be read: system calls have numbers for arguments, and no paths; tracepoints \
                    without programs of their own are not recorded"
                    .into(),
            mend: "mount -t tracefs nodev /sys/kernel/tracing, and record as root",
            bearable: true,
        });
    }
    found
}

fn may_load_programs() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    let has = |bit: u64| bits >> bit & 1 == 1;
    has(CAP_SYS_ADMIN) || has(CAP_BPF) && has(CAP_PERFMON)
}

/// The kernel's lockdown, if it has one: the word in brackets of `none [integrity]
/// confidentiality`.
fn lockdown() -> Option<String> {
    let text = fs::read_to_string("/sys/kernel/security/lockdown").ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

fn has_formats() -> bool {
    let folder = crate::tracepoints::events_folder();
    let _rights = FileRights::of_the_process().ok();
    folder.is_some_and(|folder| fs::File::open(folder.join("syscalls/sys_enter_openat/format")).is_ok())
}
