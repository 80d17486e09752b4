//! Threshold watcher: captures wakeups later than a threshold, with the preceding events of each
//! CPU.
//!
//! ```text
//! src/bpf/attribution.bpf.c ─► halves, stacks ─swap─► ThresholdWatcher::take ─► Capture ─►
//! attribute
//!
//! The programs are attached only while a process watches, and end with its descriptors. They count
//! nothing: the programs of the [`Monitor`](crate::Monitor) do, behind which they are attached.

mod firmware;
mod mapped_buffers;
mod rule;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    time::Duration,
};

use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::{Map, MapData, RingBuf},
    programs::{ProgramError, tp_btf::BtfTracePointLink},
};
use tompion_kernel::{Error as KernelError, chain, misses_of, refused, stacks::KernelSymbols};
use tompion_os::{Counter, FileRights, SharedMap};

use crate::{
    Error,
    attribution::{self, CpuLog, EventKind, EventLog, LatencyInterval, SchedEvent},
    bpffs::{self, Pins},
    incident::MissedJob,
    jobs::{Missed, Release},
    programs::{attach, missing, share_processors},
};
use mapped_buffers::MappedBuffers;

pub use mapped_buffers::Crossing;
pub use rule::{MAX_RULES, ThresholdRule, check_rules};

/// Compiled programs; empty if there was no compiler.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/attribution.o"));

/// Programs and their tracepoints. Switches come last: nothing is captured before all is recorded.
const PROGRAMS: [(&str, &str); 21] = [
    ("local_timer_begins", "local_timer_entry"),
    ("local_timer_ends", "local_timer_exit"),
    ("call_function_begins", "call_function_entry"),
    ("call_function_ends", "call_function_exit"),
    ("call_function_single_begins", "call_function_single_entry"),
    ("call_function_single_ends", "call_function_single_exit"),
    ("irq_work_begins", "irq_work_entry"),
    ("irq_work_ends", "irq_work_exit"),
    ("reschedule_begins", "reschedule_entry"),
    ("reschedule_ends", "reschedule_exit"),
    ("device_begins", "irq_handler_entry"),
    ("device_ends", "irq_handler_exit"),
    ("soft_begins", "softirq_entry"),
    ("soft_ends", "softirq_exit"),
    ("idle_changes", "cpu_idle"),
    ("hard_timer_begins", "hrtimer_expire_entry"),
    ("soft_timer_begins", "hrtimer_expire_entry"),
    ("timer_ends", "hrtimer_expire_exit"),
    ("woken", "sched_waking"),
    ("migrates", "sched_migrate_task"),
    ("switches", "sched_switch"),
];

/// Priority of an ordinary thread in the kernel's numbers.
const ORDINARY: i32 = 120;
/// Maximum time for which programs may still write into a half after a swap.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(2);

/// Attached programs that capture late wakeups.
pub struct ThresholdWatcher {
    memory: MappedBuffers,
    messages: RingBuf<MapData>,
    /// Descriptor that becomes readable with a message.
    waiting: OwnedFd,
    counts_firmware: bool,
    /// Keep the programs attached.
    _links: Vec<BtfTracePointLink>,
    ebpf: Ebpf,
}

/// Captured late wakeup or missed deadline, with the preceding events.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Report of the programs.
    pub crossing: Crossing,
    /// Times of the latency.
    pub question: LatencyInterval,
    /// Events of each CPU.
    pub history: EventLog,
    /// Number of overwritten events before the wakeup, by CPU.
    pub overwritten: Vec<u64>,
    /// Number of incomplete events.
    pub refused: u64,
    /// Number of program runs that the kernel skipped since watching began: each is a missing
    /// event.
    pub not_started: u64,
    /// Job that missed its deadline, if this is no wakeup.
    pub job: Option<MissedJob>,
    /// Whether system management interrupts were counted.
    pub counts_firmware: bool,
}

/// Decoded buffer half.
struct Read {
    history: EventLog,
    /// Number of overwritten events, by CPU.
    overwritten: Vec<u64>,
    /// Number of incomplete events.
    refused: u64,
    symbols: KernelSymbols,
}

/// Trigger that keeps the events so far, from any thread of this process.
pub struct Trigger {
    settings: SharedMap,
}

impl Trigger {
    /// Keeps the events so far, unless others are kept; returns the half.
    pub fn pull(&self) -> Option<u32> {
        MappedBuffers::swap(&self.settings, tompion_os::monotonic_ns())
    }
}

impl ThresholdWatcher {
    /// Starts watching, behind the programs that count under this name. The first rule that matches
    /// a thread applies.
    ///
    /// # Errors
    /// If nothing counts under the name, or the kernel rejects the programs.
    pub fn begin(name: &str, rules: &[ThresholdRule]) -> Result<Self, Error> {
        Self::begin_counting(name, rules, &firmware::counters(tompion_os::possible_cpus()))
    }

    /// Starts with these counters of system management interrupts, by CPU.
    fn begin_counting(
        name: &str,
        rules: &[ThresholdRule],
        counters: &[(u32, Counter)],
    ) -> Result<Self, Error> {
        check_rules(rules)?;
        let _rights = FileRights::of_the_process().ok();
        let pins = Pins::of(name)?;
        let btf = Btf::from_sys_fs().map_err(|error| KernelError::Types(chain(&error)))?;
        let cpus = tompion_os::possible_cpus();
        // The loader finds shared maps by their plain names, in a folder of its own.
        let folder = pins.prepare()?;
        let ebpf = share_processors(pins.folder(), &folder)
            .and_then(|()| load(&btf, &folder, cpus, !counters.is_empty()));
        bpffs::remove(&folder);
        let mut ebpf = ebpf?;
        firmware::give(counters, &ebpf)?;
        let memory = map(&ebpf, cpus)?;
        memory.set_rules(rules);
        let messages = ebpf.take_map("crossings");
        let Some(Map::RingBuf(data)) = messages else { return Err(missing("crossings")) };
        let waiting = data.fd().as_fd().try_clone_to_owned().map_err(KernelError::Rings)?;
        let messages = RingBuf::try_from(Map::RingBuf(data))
            .map_err(|error| KernelError::Refused("the ring for messages".into(), chain(&error)))?;
        let mut links = Vec::new();
        for (name, tracepoint) in PROGRAMS {
            match attach(&mut ebpf, name, tracepoint, &btf) {
                Ok(link) => links.push(link),
                // Other architectures have other interrupts.
                Err(ProgramError::Btf(_)) => {}
                Err(error) => return Err(refused(name, &error).into()),
            }
        }
        let before = memory.begin(tompion_os::monotonic_ns());
        std::thread::sleep(SETTLE_TIMEOUT);
        memory.empty(before);
        memory.arm();
        drop(btf);
        tompion_os::release_unused_memory();
        let counts_firmware = !counters.is_empty();
        Ok(Self { memory, messages, waiting, counts_firmware, _links: links, ebpf })
    }

    /// Descriptor that becomes readable when a wakeup was late.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.waiting.as_fd()
    }

    /// Number of late wakeups since watching began, and of those not saved, because they came too
    /// soon after a saved one.
    pub fn late(&self) -> (u64, u64) {
        self.memory.late()
    }

    /// Takes the captured wakeup if there is one. The next one needs [`ThresholdWatcher::go_on`].
    pub fn take(&mut self) -> Option<Capture> {
        let bytes = self.messages.next()?.to_vec();
        let crossing = Crossing::parse(&bytes)?;
        std::thread::sleep(SETTLE_TIMEOUT);
        Some(self.read(crossing))
    }

    /// Arms the watcher again after a cooldown.
    pub fn go_on(&self, side: u32, pause: Duration) {
        tompion_os::release_unused_memory();
        self.memory.empty(side);
        self.memory.save_from(tompion_os::monotonic_ns() + pause.as_nanos() as u64);
        self.memory.arm();
    }

    fn read(&self, crossing: Crossing) -> Capture {
        let read = self.history(crossing.side, &crossing.stack);
        let question = LatencyInterval {
            intended: crossing.intended,
            fired: crossing.fired,
            woken: crossing.woken,
            end: crossing.end,
            tid: crossing.tid,
            priority: crossing.priority,
            cpu: crossing.cpu,
            stack: names(&crossing.stack, &read.symbols),
        };
        self.caught(crossing, question, read, None)
    }

    fn caught(
        &self,
        crossing: Crossing,
        question: LatencyInterval,
        read: Read,
        job: Option<MissedJob>,
    ) -> Capture {
        let Read { history, overwritten, refused, .. } = read;
        let (not_started, counts_firmware) = (self.not_started(), self.counts_firmware);
        Capture { crossing, question, history, overwritten, refused, not_started, job, counts_firmware }
    }

    /// Number of program runs that the kernel skipped.
    fn not_started(&self) -> u64 {
        let programs = PROGRAMS.iter().filter_map(|(name, _)| self.ebpf.program(name)?.fd().ok());
        programs.map(|program| misses_of(program.as_fd())).sum()
    }

    /// Reads a half, and resolves its functions and those of one more stack.
    fn history(&self, side: u32, stack: &[u64]) -> Read {
        let cpus = 0..self.memory.cpus();
        let decoded: Vec<_> =
            cpus.clone().map(|cpu| attribution::decode(&self.memory.side(cpu, side))).collect();
        let stacks: Vec<_> = cpus.map(|cpu| self.memory.stacks(cpu, side)).collect();
        let of_timers = |event: &SchedEvent| match event.kind {
            EventKind::TimerEntry { function, .. } => Some(function),
            _ => None,
        };
        let events = decoded.iter().flat_map(|decoded| &decoded.events);
        let functions: BTreeSet<u64> = events.filter_map(of_timers).collect();
        let of_stacks = stacks.iter().flatten().flat_map(|(_, addresses)| addresses).chain(stack);
        let addresses: Vec<u64> = functions.iter().chain(of_stacks).copied().collect();
        let symbols = KernelSymbols::around(&addresses);

        let since = self.memory.since(side);
        let name = |function| (function, name_of(function, &symbols));
        let mut history =
            EventLog { functions: functions.into_iter().map(name).collect(), ..EventLog::default() };
        let overwritten = decoded.iter().map(|decoded| decoded.overwritten).collect();
        let refused = decoded.iter().map(|decoded| decoded.refused).sum();
        for (decoded, stacks) in decoded.into_iter().zip(stacks) {
            let first = decoded.events.first().map(|event| event.time);
            let known_from = if decoded.overwritten > 0 { first.unwrap_or(u64::MAX) } else { since };
            let stacks = stacks.into_iter();
            let stacks = stacks.map(|(number, addresses)| (number, names(&addresses, &symbols))).collect();
            history.cpus.push(CpuLog { events: decoded.events, known_from, stacks });
        }
        Read { history, overwritten, refused, symbols }
    }

    /// Reads the captured missed deadline. The next one needs [`ThresholdWatcher::go_on`].
    pub fn read_missed(&self, missed: &Missed) -> Capture {
        std::thread::sleep(SETTLE_TIMEOUT);
        let Missed { activation, side, name, thread } = missed;
        let read = self.history(*side, &[]);
        let (tid, pid, end) = (activation.tid, activation.pid, activation.end);
        let (cpu, priority) = attribution::place_of(tid, end, &read.history).unwrap_or((0, ORDINARY));
        let wake = activation.wake.unwrap_or_default();
        // Without a timer, the release is a wakeup at that time.
        let is_by_timer = activation.by == Release::Timer;
        let intended = if is_by_timer { activation.release } else { 0 };
        let woken = if is_by_timer { wake.woken } else { activation.release };
        let fired = if is_by_timer { wake.fired } else { 0 };
        let question =
            LatencyInterval { intended, fired, woken, end, tid, priority, cpu, ..LatencyInterval::default() };
        let job = MissedJob {
            name: name.clone(),
            released_by: activation.by,
            wake: activation.wake,
            begin_ns: activation.begin,
        };
        let crossing = Crossing {
            woken,
            intended,
            fired,
            end,
            limit: activation.deadline,
            tid,
            pid,
            priority,
            cpu,
            kind: u32::MAX,
            side: *side,
            other_tid: 0,
            other_priority: ORDINARY,
            name: thread.clone(),
            other_name: String::new(),
            is_from_waking: false,
            stack: Vec::new(),
        };
        self.caught(crossing, question, read, Some(job))
    }

    /// Makes a trigger for a caller that detects lateness itself.
    ///
    /// # Errors
    /// If the settings can't be mapped.
    pub fn trigger(&self) -> Result<Trigger, Error> {
        let Some(Map::Array(array)) = self.ebpf.map("settings") else { return Err(missing("settings")) };
        let settings = MappedBuffers::settings(array.fd().as_fd()).map_err(KernelError::Rings)?;
        Ok(Trigger { settings })
    }

    /// Returns an array whose lowest bit is flipped whenever events are kept, in that very event.
    /// Holders of the descriptor can read it; from now on, no user-space process can change it.
    ///
    /// # Errors
    /// If the kernel rejects the restriction.
    pub fn selector(&self) -> Result<OwnedFd, Error> {
        let Some(Map::Array(array)) = self.ebpf.map("selector") else { return Err(missing("selector")) };
        let array = array.fd().as_fd();
        tompion_os::freeze_bpf_map(array).map_err(KernelError::Rings)?;
        Ok(array.try_clone_to_owned().map_err(KernelError::Rings)?)
    }
}

/// Names of functions by return addresses, the innermost first.
fn names(addresses: &[u64], symbols: &KernelSymbols) -> Vec<String> {
    let name = |address: &u64| symbols.name(*address, true).unwrap_or_else(|| format!("{address:#x}"));
    addresses.iter().map(name).collect()
}

/// Name of the function that begins at an address.
fn name_of(function: u64, symbols: &KernelSymbols) -> String {
    let name = symbols.name(function, false).unwrap_or_else(|| format!("{function:#x}"));
    name.strip_suffix("+0x0").map_or(name.clone(), str::to_owned)
}

fn load(btf: &Btf, folder: &Path, cpus: u32, counts_firmware: bool) -> Result<Ebpf, Error> {
    let counts_firmware = u32::from(counts_firmware);
    let mut loader = EbpfLoader::new();
    for (name, entries) in mapped_buffers::ENTRIES {
        loader.set_max_entries(name, cpus * entries);
    }
    loader
        .set_max_entries(firmware::MAP, cpus)
        .set_global("counts_firmware", &counts_firmware, true)
        .btf(Some(btf))
        .map_pin_path(folder)
        .load(OBJECT)
        .map_err(|error| KernelError::Refused("the arrays of events".into(), chain(&error)).into())
}

fn map(ebpf: &Ebpf, cpus: u32) -> Result<MappedBuffers, Error> {
    let array = |name: &str| match ebpf.map(name) {
        Some(Map::Array(map)) => Ok(map.fd().as_fd()),
        _ => Err(missing(name)),
    };
    let arrays = [array("settings")?, array("sides")?, array("stacks")?];
    MappedBuffers::map(arrays, cpus).map_err(|error| KernelError::Rings(error).into())
}
