//! Preparation of a measuring thread: a CPU, a place before all other threads, memory that stays.
//! Missing settings are reported, because a figure from a thread that others interrupt is another
//! figure.

use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::Error;

/// Settings that a measuring thread asks for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PrepareOptions {
    /// The CPU to stay on.
    pub cpu: u32,
    /// SCHED_FIFO's priority, 1 to 99; none for an ordinary thread.
    pub priority: Option<u32>,
}

/// Settings that it got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// The CPU.
    pub cpu: u32,
    /// Whether it stays there.
    pub pinned: bool,
    /// SCHED_FIFO's priority, if it runs under that.
    pub fifo: Option<u32>,
    /// Whether its memory is locked.
    pub locked: bool,
    /// Settings that it did not get: what, why, and what to do, a line each.
    pub could_not: Vec<String>,
}

/// The CPU for a test: the wanted one, or the last of those that the kernel keeps free
/// (`isolcpus`), or the last.
///
/// # Errors
/// [`Error::NoCpu`] if this process may not use the wanted one.
pub fn choose_cpu(wanted: Option<u32>) -> Result<u32, Error> {
    let isolated = fs::read_to_string("/sys/devices/system/cpu/isolated").unwrap_or_default();
    let isolated = isolated.trim().rsplit([',', '-']).next().and_then(|number| number.parse().ok());
    let allowed = tompion_os::allowed_cpus();
    match wanted {
        Some(cpu) if !allowed.contains(&cpu) && !can_pin(cpu) => Err(Error::NoCpu { cpu, allowed }),
        Some(cpu) => Ok(cpu),
        None => Ok(isolated.filter(|cpu| can_pin(*cpu)).or(allowed.last().copied()).unwrap_or(0)),
    }
}

/// The CPUs for a test: the wanted ones, or all that this process may use.
///
/// # Errors
/// [`Error::NoCpu`] with the first one that it may not use.
pub fn choose_cpus(wanted: Option<&[u32]>) -> Result<Vec<u32>, Error> {
    match wanted {
        Some(cpus) => cpus.iter().map(|cpu| choose_cpu(Some(*cpu))).collect(),
        None => Ok(tompion_os::allowed_cpus()),
    }
}

/// Whether a thread of this process can be put there: isolated CPUs are not among the allowed ones.
fn can_pin(cpu: u32) -> bool {
    let attempt = std::thread::spawn(move || tompion_os::set_affinity(0, &[cpu]).is_ok());
    attempt.join().unwrap_or(false)
}

/// Gets for the calling thread what can be had. Memory is locked before the priority is raised: all
/// of it is brought in then, and in a real-time kernel threads that do so at once wait for each
/// other's locks a thousand times.
pub fn prepare(options: PrepareOptions) -> Prepared {
    let mut prepared = Prepared { cpu: options.cpu, ..Prepared::default() };
    match tompion_os::set_affinity(0, &[options.cpu]) {
        Ok(()) => prepared.pinned = true,
        Err(error) => {
            prepared.cpu = tompion_os::current_cpu();
            prepared.could_not.push(format!("stay on CPU {}: {}", options.cpu, reason(&error)));
        }
    }
    lock_memory(&mut prepared);
    if let Some(priority) = options.priority {
        match tompion_os::run_fifo(priority) {
            Ok(()) => prepared.fifo = Some(priority),
            Err(error) => prepared.could_not.push(format!(
                "run under SCHED_FIFO {priority}: {} (run as root, or allow rtprio in /etc/security/limits.conf)",
                reason(&error)
            )),
        }
    }
    prepared
}

/// Locks memory, or says why not.
pub(crate) fn lock_memory(prepared: &mut Prepared) {
    match tompion_os::lock_memory() {
        Ok(()) => prepared.locked = true,
        Err(error) => prepared.could_not.push(format!(
            "lock its memory: {} (run as root, or allow memlock in /etc/security/limits.conf)",
            reason(&error)
        )),
    }
}

/// Text of the system's error, without the number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_not_there_is_named_with_those_that_are() {
        let error = choose_cpu(Some(8191)).unwrap_err().to_string();
        assert!(error.starts_with("no CPU 8191 for this process; it may use "), "{error}");
        let last = *tompion_os::allowed_cpus().last().unwrap();
        assert_eq!(choose_cpu(Some(last)).unwrap(), last);
    }

    #[test]
    fn several_cpus_are_all_there_or_one_is_named() {
        assert_eq!(choose_cpus(None).unwrap(), tompion_os::allowed_cpus());
        let last = *tompion_os::allowed_cpus().last().unwrap();
        assert_eq!(choose_cpus(Some(&[last])).unwrap(), [last]);
        assert!(choose_cpus(Some(&[last, 8191])).unwrap_err().to_string().starts_with("no CPU 8191 "));
    }

    #[test]
    fn what_cannot_be_had_is_said() {
        let prepared =
            std::thread::spawn(|| prepare(PrepareOptions { cpu: 8191, priority: Some(100) })).join().unwrap();
        assert!(!prepared.pinned && prepared.fifo.is_none());
        assert!(prepared.could_not.iter().any(|line| line.starts_with("stay on CPU 8191: ")));
        assert!(prepared.could_not.iter().any(|line| line.starts_with("run under SCHED_FIFO 100: ")));
    }
}
