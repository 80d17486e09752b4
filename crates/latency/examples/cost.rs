//! What the monitor's programs take of the processors while a command runs. `./x bench monitor-overhead` runs this.
//!
//! ```text
//! cost COMMAND [ARGUMENT…]
//! ```
//!
//! Written is a line of three numbers: nanoseconds that passed, nanoseconds within the programs, and how many wake-ups of
//! real-time threads began. The kernel measures its programs (`kernel.bpf_stats_enabled`) as long as this runs.
#![forbid(unsafe_code)]

use std::{error::Error, fs, path::Path, process::Command, time::Duration};

use aya::programs::ProgramInfo;
use tompion_latency::{Kinds, Monitor};
use tompion_os::monotonic_ns;

const MEASURES_PROGRAMS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// The monitor's name; what counts goes with it, and the kernel's setting is as it was.
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

    /// How long all programs ran so far.
    fn run_time(&self) -> Result<Duration, Box<dyn Error>> {
        let mut sum = Duration::ZERO;
        for file in fs::read_dir(Path::new("/sys/fs/bpf").join(&self.name))? {
            let path = file?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("program-")) {
                sum += ProgramInfo::from_pin(path)?.run_time();
            }
        }
        Ok(sum)
    }
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
    let before = measured.run_time()?;
    let status = command.args(words).status()?;
    let within = measured.run_time()?.saturating_sub(before);
    let passed = monotonic_ns() - begin_time;
    if !status.success() {
        return Err(format!("the command failed: {status}").into());
    }
    println!("{passed} {} {}", within.as_nanos(), monitor.report(Some(&begin)).wakeups.woken);
    Ok(())
}
