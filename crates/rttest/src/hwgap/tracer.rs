//! Tracers of the kernel for the same gaps: `hwlat`, a thread that looks with interrupts turned
//! off, on one CPU after the other, and `osnoise`, a thread on each CPU that tells noise of the
//! hardware from that of interrupts and threads.
//!
//! Each runs in an instance of tracefs of its own, which goes away afterwards. Sources:
//! `Documentation/trace/hwlat_detector.rst`, `Documentation/trace/osnoise-tracer.rst`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tompion_os::FileRights;

/// Folders where tracefs is mounted.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A tracer of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `hwlat`, which looks with interrupts turned off.
    Hwlat,
    /// `osnoise`, which looks with interrupts on, and knows which of them came.
    Osnoise,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Hwlat, Self::Osnoise];

    /// Name in the kernel.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hwlat => "hwlat",
            Self::Osnoise => "osnoise",
        }
    }

    /// The option with which it is built in.
    const fn option(self) -> &'static str {
        match self {
            Self::Hwlat => "CONFIG_HWLAT_TRACER",
            Self::Osnoise => "CONFIG_OSNOISE_TRACER",
        }
    }
}

/// Sample of the kernel: a gap of `hwlat`, or a period of `osnoise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The CPU.
    pub cpu: u32,
    /// The longest time that something took, in microseconds.
    pub longest_us: u64,
    /// Number of times that only the hardware, or a hypervisor, can have taken it.
    pub hardware: u64,
}

/// Result of a tracer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// The tracer.
    pub tracer: Kind,
    /// Time of its search, in nanoseconds.
    pub looked_ns: u64,
    /// Its samples.
    pub samples: Vec<Sample>,
}

/// A tracer at work, until this is dropped.
#[derive(Debug)]
pub struct Tracer {
    kind: Kind,
    instance: PathBuf,
}

impl Tracer {
    /// Starts it.
    ///
    /// # Errors
    /// A line that says what is missing.
    pub fn start(kind: Kind) -> Result<Self, String> {
        let _rights = FileRights::of_the_process().ok();
        let tracefs = TRACEFS.iter().map(Path::new).find(|folder| folder.join("available_tracers").exists());
        let Some(tracefs) = tracefs else {
            return Err(
                "tracefs is not mounted, or not for this user (mount -t tracefs nodev /sys/kernel/tracing)"
                    .into(),
            );
        };
        Self::start_in(tracefs, kind)
    }

    fn start_in(tracefs: &Path, kind: Kind) -> Result<Self, String> {
        let file = tracefs.join("available_tracers");
        let known =
            fs::read_to_string(&file).map_err(|error| format!("can't read {}: {error}", file.display()))?;
        if !known.split_whitespace().any(|name| name == kind.name()) {
            return Err(format!(
                "the kernel was built without it ({}); it has {}",
                kind.option(),
                known.trim()
            ));
        }
        let instance = tracefs.join("instances").join(format!("tompion-{}", kind.name()));
        let refused = |error: io::Error| format!("can't use {}: {error}", instance.display());
        match fs::create_dir(&instance) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refused(error)),
            _ => {}
        }
        let tracer = Self { kind, instance: instance.clone() };
        fs::write(instance.join("current_tracer"), kind.name()).map_err(refused)?;
        Ok(tracer)
    }

    /// Returns the samples so far.
    pub fn samples(&self) -> Vec<Sample> {
        let _rights = FileRights::of_the_process().ok();
        let text = fs::read(self.instance.join("trace")).unwrap_or_default();
        let read = match self.kind {
            Kind::Hwlat => hwlat,
            Kind::Osnoise => osnoise,
        };
        String::from_utf8_lossy(&text).lines().filter_map(read).collect()
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _rights = FileRights::of_the_process().ok();
        let _ = fs::write(self.instance.join("current_tracer"), "nop");
        let _ = fs::remove_dir(&self.instance);
    }
}

/// The CPU in brackets.
fn cpu(line: &str) -> Option<u32> {
    line.split(['[', ']']).nth(1)?.trim().parse().ok()
}

/// `<...>-1729 [001] d... 678.473449: #1 inner/outer(us): 12/14 ts:1581527483.343962693 count:6
/// nmi-count:0`
fn hwlat(line: &str) -> Option<Sample> {
    let (before, after) = line.split_once("inner/outer(us):")?;
    let (inner, outer) = after.split_whitespace().next()?.split_once('/')?;
    let (inner, outer): (u64, u64) = (inner.parse().ok()?, outer.parse().ok()?);
    Some(Sample { cpu: cpu(before)?, longest_us: inner.max(outer), hardware: 1 })
}

/// `<...>-859 [000] .... 81.637220: 1000000 190 99.98100 9 18 0 1007 18 1`: after the time the
/// period and the noise in it, in microseconds, the share that was left, the longest single noise,
/// and how often it came from the hardware, from NMIs, interrupts, soft interrupts and threads.
fn osnoise(line: &str) -> Option<Sample> {
    let (before, after) = line.split_once(": ")?;
    let mut numbers = after.split_whitespace().skip(3).map(str::parse::<u64>);
    let (longest_us, hardware) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(Sample { cpu: cpu(before)?, longest_us, hardware })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HWLAT: &str =
        "  <...>-1729  [001] d...  678.473449: #1  inner/outer(us):   12/14    ts:1.3 count:6";
    const OSNOISE: &str =
        "  <...>-859   [000] ....  81.637220: 1000000   190  99.98100   9  18  0  1007  18  1";

    #[test]
    fn samples_are_read() {
        assert_eq!(hwlat(HWLAT), Some(Sample { cpu: 1, longest_us: 14, hardware: 1 }));
        assert_eq!(osnoise(OSNOISE), Some(Sample { cpu: 0, longest_us: 9, hardware: 18 }));
        for other in
            ["# tracer: hwlat", "", "[1] inner/outer(us): x/1", "inner/outer(us): 1/2", "[0] 1: 2 3 4 x 5"]
        {
            assert_eq!((hwlat(other), osnoise(other)), (None, None), "{other}");
        }
    }

    #[test]
    fn a_kernel_without_it_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("available_tracers"), "blk function nop\n").unwrap();
        let reported = Tracer::start_in(folder.path(), Kind::Hwlat).unwrap_err();
        assert!(
            reported.contains("CONFIG_HWLAT_TRACER") && reported.ends_with("blk function nop"),
            "{reported}"
        );
    }

    #[test]
    fn each_works_in_an_instance_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("available_tracers"), "hwlat osnoise nop\n").unwrap();
        fs::create_dir(folder.path().join("instances")).unwrap();
        for (kind, line) in [(Kind::Hwlat, HWLAT), (Kind::Osnoise, OSNOISE)] {
            let tracer = Tracer::start_in(folder.path(), kind).unwrap();
            let current = folder.path().join(format!("instances/tompion-{}/current_tracer", kind.name()));
            assert_eq!(fs::read_to_string(&current).unwrap(), kind.name());
            fs::write(current.with_file_name("trace"), format!("# tracer\n{line}\n")).unwrap();
            assert_eq!(tracer.samples().len(), 1);
            drop(tracer);
            assert_eq!(fs::read_to_string(current).unwrap(), "nop");
        }
    }
}
