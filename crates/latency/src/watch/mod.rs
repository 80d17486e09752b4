//! Watching for wake-ups that are later than a limit, and keeping what each CPU did before.
//!
//! ```text
//! src/bpf/blame.bpf.c ──► sides, stacks ──flip──► Watch::take ──► Caught ──► blame::charge
//! ```
//!
//! The programs are there only while somebody watches: their descriptors are this process's. They count nothing; that is the
//! [`Monitor`](crate::Monitor)'s business, behind whose programs they are attached.

mod firmware;
mod memory;
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
    blame::{self, History, Moment, Noted, Question, What},
    incident::MissedJob,
    jobs::{Missed, Release},
    pins::{self, Pins},
    programs::{attach, missing, share_processors},
};
use memory::Memory;

pub use memory::Crossing;
pub use rule::{MOST_RULES, Rule, check_rules};

/// The compiled programs; empty where there was no compiler.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/blame.o"));

/// Programs and their tracepoints. The switches come last: nothing is caught before all is noted.
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

/// The priority of an ordinary thread, as the kernel counts.
const ORDINARY: i32 = 120;
/// Programs may still write into a side for so long after it was flipped.
const SETTLE: Duration = Duration::from_millis(2);

/// Programs that catch late wake-ups.
pub struct Watch {
    memory: Memory,
    messages: RingBuf<MapData>,
    /// The messages' descriptor, by which one can wait for them.
    waiting: OwnedFd,
    counts_firmware: bool,
    /// Programs are attached as long as these are there.
    _links: Vec<BtfTracePointLink>,
    ebpf: Ebpf,
}

/// A late wake-up or a missed deadline, with what was noted before it.
#[derive(Clone, Debug)]
pub struct Caught {
    /// What the programs say of it.
    pub crossing: Crossing,
    /// The latency.
    pub question: Question,
    /// What each CPU did.
    pub history: History,
    /// How many moments were overwritten before the wake-up, by CPU.
    pub overwritten: Vec<u64>,
    /// How many moments were not whole.
    pub refused: u64,
    /// How often the kernel did not start a program that notes, since watching began: each is a moment that is missing, somewhere.
    pub not_started: u64,
    /// The job that missed its deadline, if it isn't about a wake-up.
    pub job: Option<MissedJob>,
    /// Whether system management interrupts were counted.
    pub counts_firmware: bool,
}

/// A side as it was read.
struct Read {
    history: History,
    /// How many moments were overwritten, by CPU.
    overwritten: Vec<u64>,
    /// How many were not whole.
    refused: u64,
    symbols: KernelSymbols,
}

/// Keeps what was noted, from any thread of this process.
pub struct Trigger {
    settings: SharedMap,
}

impl Trigger {
    /// Keeps what was noted until now, if nothing else is kept at the moment: which side.
    pub fn pull(&self) -> Option<u32> {
        Memory::flip(&self.settings, tompion_os::monotonic_ns())
    }
}

impl Watch {
    /// Watches from now on, behind the programs that count under this name. The first rule that fits a thread decides.
    ///
    /// # Errors
    /// If nothing counts under the name, or the kernel refuses the programs.
    pub fn begin(name: &str, rules: &[Rule]) -> Result<Self, Error> {
        Self::begin_counting(name, rules, &firmware::counters(tompion_os::possible_cpus()))
    }

    /// With these counters of system management interrupts, by CPU.
    fn begin_counting(name: &str, rules: &[Rule], counters: &[(u32, Counter)]) -> Result<Self, Error> {
        check_rules(rules)?;
        let _rights = FileRights::of_the_process().ok();
        let pins = Pins::of(name)?;
        let btf = Btf::from_sys_fs().map_err(|error| KernelError::Types(chain(&error)))?;
        let cpus = tompion_os::possible_cpus();
        // The loader finds arrays of others by their plain names, in a folder of its own.
        let folder = pins.prepare()?;
        let ebpf = share_processors(pins.folder(), &folder)
            .and_then(|()| load(&btf, &folder, cpus, !counters.is_empty()));
        pins::remove(&folder);
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
                // Other processors have other interrupts.
                Err(ProgramError::Btf(_)) => {}
                Err(error) => return Err(refused(name, &error).into()),
            }
        }
        let before = memory.begin(tompion_os::monotonic_ns());
        std::thread::sleep(SETTLE);
        memory.empty(before);
        memory.arm();
        drop(btf);
        tompion_os::release_unused_memory();
        let counts_firmware = !counters.is_empty();
        Ok(Self { memory, messages, waiting, counts_firmware, _links: links, ebpf })
    }

    /// Becomes readable when a wake-up was late.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.waiting.as_fd()
    }

    /// How many wake-ups were late since watching began, and how many of those were not kept: they came too soon after one
    /// that was.
    pub fn late(&self) -> (u64, u64) {
        self.memory.late()
    }

    /// The late wake-up that is kept, if there is one. None is kept beside it until [`Watch::go_on`].
    pub fn take(&mut self) -> Option<Caught> {
        let bytes = self.messages.next()?.to_vec();
        let crossing = Crossing::parse(&bytes)?;
        std::thread::sleep(SETTLE);
        Some(self.read(crossing))
    }

    /// Keeps the next one, after a pause.
    pub fn go_on(&self, side: u32, pause: Duration) {
        tompion_os::release_unused_memory();
        self.memory.empty(side);
        self.memory.save_from(tompion_os::monotonic_ns() + pause.as_nanos() as u64);
        self.memory.arm();
    }

    fn read(&self, crossing: Crossing) -> Caught {
        let read = self.history(crossing.side, &crossing.stack);
        let question = Question {
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

    fn caught(&self, crossing: Crossing, question: Question, read: Read, job: Option<MissedJob>) -> Caught {
        let Read { history, overwritten, refused, .. } = read;
        let (not_started, counts_firmware) = (self.not_started(), self.counts_firmware);
        Caught { crossing, question, history, overwritten, refused, not_started, job, counts_firmware }
    }

    /// How often the kernel did not start one of the programs.
    fn not_started(&self) -> u64 {
        let programs = PROGRAMS.iter().filter_map(|(name, _)| self.ebpf.program(name)?.fd().ok());
        programs.map(|program| misses_of(program.as_fd())).sum()
    }

    /// What was noted on a side, and the functions that are met in it and in one more stack.
    fn history(&self, side: u32, stack: &[u64]) -> Read {
        let cpus = 0..self.memory.cpus();
        let decoded: Vec<_> = cpus.clone().map(|cpu| blame::decode(&self.memory.side(cpu, side))).collect();
        let stacks: Vec<_> = cpus.map(|cpu| self.memory.stacks(cpu, side)).collect();
        let of_timers = |moment: &Moment| match moment.what {
            What::TimerEntry { function, .. } => Some(function),
            _ => None,
        };
        let moments = decoded.iter().flat_map(|decoded| &decoded.moments);
        let functions: BTreeSet<u64> = moments.filter_map(of_timers).collect();
        let of_stacks = stacks.iter().flatten().flat_map(|(_, addresses)| addresses).chain(stack);
        let addresses: Vec<u64> = functions.iter().chain(of_stacks).copied().collect();
        let symbols = KernelSymbols::around(&addresses);

        let since = self.memory.since(side);
        let name = |function| (function, name_of(function, &symbols));
        let mut history =
            History { functions: functions.into_iter().map(name).collect(), ..History::default() };
        let overwritten = decoded.iter().map(|decoded| decoded.overwritten).collect();
        let refused = decoded.iter().map(|decoded| decoded.refused).sum();
        for (decoded, stacks) in decoded.into_iter().zip(stacks) {
            let first = decoded.moments.first().map(|moment| moment.time);
            let known_from = if decoded.overwritten > 0 { first.unwrap_or(u64::MAX) } else { since };
            let stacks = stacks.into_iter();
            let stacks = stacks.map(|(number, addresses)| (number, names(&addresses, &symbols))).collect();
            history.cpus.push(Noted { moments: decoded.moments, known_from, stacks });
        }
        Read { history, overwritten, refused, symbols }
    }

    /// The missed deadline that is kept. Nothing is kept beside it until [`Watch::go_on`].
    pub fn read_missed(&self, missed: &Missed) -> Caught {
        std::thread::sleep(SETTLE);
        let Missed { activation, side, name, thread } = missed;
        let read = self.history(*side, &[]);
        let (tid, pid, end) = (activation.tid, activation.pid, activation.end);
        let (cpu, priority) = blame::place_of(tid, end, &read.history).unwrap_or((0, ORDINARY));
        let wake = activation.wake.unwrap_or_default();
        // Without a timer, its release is a wake-up of its own: nobody had to do anything for it.
        let is_by_timer = activation.by == Release::Timer;
        let intended = if is_by_timer { activation.release } else { 0 };
        let woken = if is_by_timer { wake.woken } else { activation.release };
        let fired = if is_by_timer { wake.fired } else { 0 };
        let question = Question { intended, fired, woken, end, tid, priority, cpu, ..Question::default() };
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

    /// For who finds out by itself that something was late.
    ///
    /// # Errors
    /// If the settings can't be mapped.
    pub fn trigger(&self) -> Result<Trigger, Error> {
        let Some(Map::Array(array)) = self.ebpf.map("settings") else { return Err(missing("settings")) };
        let settings = Memory::settings(array.fd().as_fd()).map_err(KernelError::Rings)?;
        Ok(Trigger { settings })
    }

    /// An array whose first word's lowest bit is flipped whenever something is kept, in that very event. Whoever has it may read it;
    /// nobody in user space can change it from now on.
    ///
    /// # Errors
    /// If the kernel doesn't let it be like that.
    pub fn selector(&self) -> Result<OwnedFd, Error> {
        let Some(Map::Array(array)) = self.ebpf.map("selector") else { return Err(missing("selector")) };
        let array = array.fd().as_fd();
        tompion_os::freeze_bpf_map(array).map_err(KernelError::Rings)?;
        Ok(array.try_clone_to_owned().map_err(KernelError::Rings)?)
    }
}

/// Functions by addresses of returns, the innermost first.
fn names(addresses: &[u64], symbols: &KernelSymbols) -> Vec<String> {
    let name = |address: &u64| symbols.name(*address, true).unwrap_or_else(|| format!("{address:#x}"));
    addresses.iter().map(name).collect()
}

/// The function that begins at an address.
fn name_of(function: u64, symbols: &KernelSymbols) -> String {
    let name = symbols.name(function, false).unwrap_or_else(|| format!("{function:#x}"));
    name.strip_suffix("+0x0").map_or(name.clone(), str::to_owned)
}

fn load(btf: &Btf, folder: &Path, cpus: u32, counts_firmware: bool) -> Result<Ebpf, Error> {
    let counts_firmware = u32::from(counts_firmware);
    let mut loader = EbpfLoader::new();
    for (name, entries) in memory::ENTRIES {
        loader.set_max_entries(name, cpus * entries);
    }
    loader
        .set_max_entries(firmware::MAP, cpus)
        .set_global("counts_firmware", &counts_firmware, true)
        .btf(Some(btf))
        .map_pin_path(folder)
        .load(OBJECT)
        .map_err(|error| KernelError::Refused("the arrays of moments".into(), chain(&error)).into())
}

fn map(ebpf: &Ebpf, cpus: u32) -> Result<Memory, Error> {
    let array = |name: &str| match ebpf.map(name) {
        Some(Map::Array(map)) => Ok(map.fd().as_fd()),
        _ => Err(missing(name)),
    };
    let arrays = [array("settings")?, array("sides")?, array("stacks")?];
    Memory::map(arrays, cpus).map_err(|error| KernelError::Rings(error).into())
}
