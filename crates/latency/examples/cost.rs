//! CPU time of the monitor's programs while a command runs. `./x bench monitor-overhead` runs this.
//!
//! ```text
//! cost COMMAND [ARGUMENT…]
//! ```
//!
//! Prints lines: `all NANOSECONDS WAKEUPS` (duration, and number of started real-time wakeups), and
//! for each program `program NAME RUNS NANOSECONDS`. The kernel measures its programs
//! (`kernel.bpf_stats_enabled`) while this runs; the measurement itself takes some 45 ns of each
//! run.
#![forbid(unsafe_code)]

use std::{collections::BTreeMap, error::Error, fs, path::Path, process::Command, time::Duration};

use aya::programs::ProgramInfo;
use tompion_latency::{Kinds, Monitor};
use tompion_os::monotonic_ns;

const MEASURES_PROGRAMS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Monitor of the measurement; dropping it stops the monitor and restores the kernel's setting.
struct Measured {
    name: String,
    before: String,
}

impl Measured {
    fn begin() -> Result<(Self, Monitor), Box<dyn Error>> {
        let before = fs::read_to_string(MEASURES_PROGRAMS)?;
        let measured = Self { name: format!("tompion-cost-{}", std::process::id()), before };
        let (monitor, _) = Monitor::begin(&measured.name, Kinds::ALL)?;
        fs::write(MEASURES_PROGRAMS, "1")?;
        Ok((measured, monitor))
    }

    /// Number and duration of each program's runs so far.
    fn run_times(&self) -> Result<BTreeMap<String, RunTime>, Box<dyn Error>> {
        let mut found = BTreeMap::new();
        for file in fs::read_dir(Path::new("/sys/fs/bpf").join(&self.name))? {
            let path = file?.path();
            let name = path.file_name().and_then(|name| name.to_str()?.strip_prefix("program-"));
            if let Some(name) = name {
                let info = ProgramInfo::from_pin(&path)?;
                found.insert(name.to_owned(), RunTime { runs: info.run_count(), time: info.run_time() });
            }
        }
        Ok(found)
    }
}

/// Measurement of a program by the kernel.
#[derive(Clone, Copy, Default)]
struct RunTime {
    runs: u64,
    time: Duration,
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = fs::write(MEASURES_PROGRAMS, &self.before);
        if let Err(error) = Monitor::stop(&self.name) {
            eprintln!("can't end {}: {error}", self.name);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let mut command = Command::new(words.next().ok_or("expected a command")?);
    let (measured, mut monitor) = Measured::begin()?;
    let (begin, begin_time) = (monitor.snapshot(), monotonic_ns());
    let before = measured.run_times()?;
    let status = command.args(words).status()?;
    let after = measured.run_times()?;
    let passed = monotonic_ns() - begin_time;
    if !status.success() {
        return Err(format!("the command failed: {status}").into());
    }
    println!("all {passed} {}", monitor.report(Some(&begin)).wakeups.woken);
    for (name, after) in after {
        let before = before.get(&name).copied().unwrap_or_default();
        let time = after.time.saturating_sub(before.time);
        println!("program {name} {} {}", after.runs - before.runs, time.as_nanos());
    }
    Ok(())
}
