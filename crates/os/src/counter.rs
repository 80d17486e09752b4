//! Counters of the processor, one for each CPU, as perf gives them.

use std::{
    fs, io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    sync::OnceLock,
};

use crate::{
    check,
    probe::{EventAttributes, open_event},
};

/// Counter of a CPU. It costs nothing until it is read. A read interrupts the CPU if it is another
/// one.
#[derive(Debug)]
pub struct Counter(OwnedFd);

/// Attributes of an entry of a map, for `bpf(2)`.
#[repr(C)]
struct ElementAttributes {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Counter {
    /// Opens a counter of a CPU; `kind` and `config` are those of `/sys/bus/event_source/devices`.
    ///
    /// # Errors
    /// `EACCES` without CAP_PERFMON, `ENODEV` for a CPU that is off, and what else the system says.
    pub fn open(kind: u32, config: u64, cpu: u32) -> io::Result<Self> {
        open_event(&EventAttributes::of_counter(kind, config), cpu).map(Self)
    }

    /// Opens a CPU's counter of system management interrupts: firmware, which takes the processor
    /// from the kernel.
    ///
    /// # Errors
    /// `Unsupported` where the processor has none, and below a hypervisor, whose host's interrupts
    /// are not counted; else as [`Counter::open`].
    pub fn of_firmware(cpu: u32) -> io::Result<Self> {
        if is_below_hypervisor() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (kind, config) = named("msr", "smi").ok_or(io::ErrorKind::Unsupported)?;
        Self::open(kind, config, cpu)
    }

    /// Returns the count since it was opened.
    ///
    /// # Errors
    /// If the CPU was switched off.
    pub fn read(&self) -> io::Result<u64> {
        let mut bytes = [0u8; 8];
        // SAFETY: the bytes are live and writable, and as many as the call is told; the descriptor
        // is open.
        let read = unsafe { libc::read(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        match check(read as libc::c_int)? {
            8 => Ok(u64::from_ne_bytes(bytes)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Gives it to BPF programs: puts it into a map of perf's events, for as long as the map is
    /// open.
    ///
    /// # Errors
    /// If the map is of another kind or has no place for the CPU.
    pub fn give(&self, map: BorrowedFd<'_>, cpu: u32) -> io::Result<()> {
        const UPDATE_ELEMENT: libc::c_long = 2;
        let value = self.0.as_raw_fd() as u32;
        let attributes = ElementAttributes {
            map: map.as_raw_fd() as u32,
            unused: 0,
            key: &raw const cpu as u64,
            value: &raw const value as u64,
            flags: 0,
        };
        let size = size_of::<ElementAttributes>();
        // SAFETY: the structure, the key and the value live throughout the call; both have the four
        // bytes of such a map's.
        let updated = unsafe { libc::syscall(libc::SYS_bpf, UPDATE_ELEMENT, &raw const attributes, size) };
        check(updated as libc::c_int).map(drop)
    }
}

/// Whether the processor says that it is a hypervisor's. On large machines that takes milliseconds,
/// and is asked once for each CPU.
fn is_below_hypervisor() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| {
        let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = processor.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        flags.split_whitespace().any(|flag| flag == "hypervisor")
    })
}

/// The numbers of an event that the kernel has named: `event=0x04`.
///
/// Source: `Documentation/ABI/testing/sysfs-bus-event_source-devices-events`.
fn named(device: &str, event: &str) -> Option<(u32, u64)> {
    let folder = format!("/sys/bus/event_source/devices/{device}");
    let kind = fs::read_to_string(format!("{folder}/type")).ok()?.trim().parse().ok()?;
    let text = fs::read_to_string(format!("{folder}/events/{event}")).ok()?;
    let config = text.trim().strip_prefix("event=0x")?;
    Some((kind, u64::from_str_radix(config, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_processor_has_not_is_said() {
        assert_eq!(named("msr", "no-such-event"), None);
        assert_eq!(named("no-such-device", "smi"), None);
    }

    #[test]
    fn the_processors_clock_goes_on() {
        let Some((kind, config)) = named("msr", "tsc") else {
            return eprintln!("SKIPPED, perf has no counters of this processor's");
        };
        let cpu = crate::allowed_cpus()[0];
        let counter = match Counter::open(kind, config, cpu) {
            Ok(counter) => counter,
            Err(error) => return eprintln!("SKIPPED, counters can't be opened here: {error}"),
        };
        let first = counter.read().unwrap();
        assert!(counter.read().unwrap() > first);
    }
}
