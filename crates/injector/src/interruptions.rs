//! Counts the interrupts since a real-time thread was switched to.
//!
//! A thread that reads the count right after the clock knows whether an interrupt came between the
//! switch and that. What the kernel doesn't know of, such as a hypervisor that let the CPU wait,
//! isn't counted.

use std::sync::atomic::Ordering::Relaxed;

use aya::{Btf, Ebpf, EbpfLoader};
use tompion_kernel::{Error, chain};
use tompion_os::SharedMap;

use crate::{OBJECT, attach, map};

/// Programs and their tracepoints (x86-64's names for interrupts that no device makes).
const PROGRAMS: [(&str, &str); 8] = [
    ("restarts_count", "sched_switch"),
    ("counts_local_timer_entry", "local_timer_entry"),
    ("counts_reschedule_entry", "reschedule_entry"),
    ("counts_call_function_entry", "call_function_entry"),
    ("counts_call_function_single_entry", "call_function_single_entry"),
    ("counts_irq_work_entry", "irq_work_entry"),
    ("counts_irq_handler_entry", "irq_handler_entry"),
    ("counts_softirq_entry", "softirq_entry"),
];

/// `struct interruptions`.
const ENTRY: usize = 64;

/// Programs that count interrupts. They go with it.
pub struct Interruptions {
    counts: SharedMap,
    cpus: usize,
    _programs: Ebpf,
}

impl Interruptions {
    /// Loads and attaches the programs.
    ///
    /// # Errors
    /// The kernel refuses that; [`crate::obstacles`] says why.
    pub fn load() -> Result<Self, Error> {
        let btf = Btf::from_sys_fs().map_err(|error| Error::Types(chain(&error)))?;
        let cpus = tompion_os::possible_cpus();
        let mut programs = EbpfLoader::new()
            .btf(Some(&btf))
            .set_max_entries("interruptions", cpus)
            .load(OBJECT)
            .map_err(|error| Error::Refused("the count of interrupts".into(), chain(&error)))?;
        let counts = map(&programs, "interruptions", cpus as usize * ENTRY)?;
        for program in PROGRAMS {
            attach(&mut programs, &btf, program)?;
        }
        Ok(Self { counts, cpus: cpus as usize, _programs: programs })
    }

    /// Number of hard and soft interrupts on a CPU since a real-time thread was switched to there;
    /// 0 for a CPU that the machine doesn't have.
    pub fn since_switch(&self, cpu: u32) -> u64 {
        let cpu = cpu as usize;
        if cpu < self.cpus { self.counts.word(cpu * ENTRY).load(Relaxed) } else { 0 }
    }
}
