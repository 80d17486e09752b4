//! Watching for wake-ups that are later than a limit, and keeping what each CPU did before.
//!
//! ```text
//! src/bpf/blame.bpf.c ──► sides, stacks ──flip──► Watch::take ──► Caught ──► blame::charge
//! ```
//!
//! The programs are there only while somebody watches: their descriptors are this process's. They count nothing; that is the
//! [`Monitor`](crate::Monitor)'s business, behind whose programs they are attached.

mod memory;
mod rule;

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    time::Duration,
};

use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::{Map, MapData, RingBuf},
    programs::{BtfTracePoint, ProgramError, tp_btf::BtfTracePointLink},
};
use tompion_kernel::{Error as KernelError, chain, refused, stacks::KernelSymbols};

use crate::{
    Error,
    blame::{self, History, Noted, Question, What},
    pins::{self, Pins},
};
use memory::Memory;

pub use memory::Crossing;
pub use rule::{MOST_RULES, Rule};

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

/// Programs may still write into a side for so long after it was flipped.
const SETTLE: Duration = Duration::from_millis(2);

/// Programs that catch late wake-ups.
pub struct Watch {
    memory: Memory,
    messages: RingBuf<MapData>,
    /// The messages' descriptor, by which one can wait for them.
    waiting: OwnedFd,
    symbols: KernelSymbols,
    /// Programs are attached as long as these are there.
    _links: Vec<BtfTracePointLink>,
    _ebpf: Ebpf,
}

/// A late wake-up, with what was noted before it.
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
}

impl Watch {
    /// Watches from now on, behind the programs that count under this name. The first rule that fits a thread decides.
    ///
    /// # Errors
    /// If nothing counts under the name, or the kernel refuses the programs.
    pub fn begin(name: &str, rules: &[Rule]) -> Result<Self, Error> {
        let pins = Pins::of(name)?;
        let symbols = KernelSymbols::of_this_kernel();
        let btf = Btf::from_sys_fs().map_err(|error| KernelError::Types(chain(&error)))?;
        let cpus = tompion_os::possible_cpus();
        // The loader finds arrays of others by their plain names, in a folder of its own.
        let folder = pins.prepare()?;
        let ebpf = shared(pins.folder(), &folder).and_then(|()| load(&btf, &folder, cpus));
        pins::remove(&folder);
        let mut ebpf = ebpf?;
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
        memory.arm();
        Ok(Self { memory, messages, waiting, symbols, _links: links, _ebpf: ebpf })
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
        self.memory.empty(side);
        self.memory.save_from(tompion_os::monotonic_ns() + pause.as_nanos() as u64);
        self.memory.arm();
    }

    fn read(&self, crossing: Crossing) -> Caught {
        let side = crossing.side;
        let since = self.memory.since(side);
        let (mut history, mut overwritten, mut refused) = (History::default(), Vec::new(), 0);
        for cpu in 0..self.memory.cpus() {
            let decoded = blame::decode(&self.memory.side(cpu, side));
            let first = decoded.moments.first().map(|moment| moment.time);
            let known_from = if decoded.overwritten > 0 { first.unwrap_or(u64::MAX) } else { since };
            let stacks = self.memory.stacks(cpu, side).into_iter();
            let stacks = stacks.map(|(number, addresses)| (number, self.names(&addresses))).collect();
            overwritten.push(decoded.overwritten);
            refused += decoded.refused;
            for moment in &decoded.moments {
                if let What::TimerEntry { function, .. } = moment.what {
                    history.functions.entry(function).or_insert_with(|| self.function(function));
                }
            }
            history.cpus.push(Noted { moments: decoded.moments, known_from, stacks });
        }
        let question = Question {
            intended: crossing.intended,
            fired: crossing.fired,
            woken: crossing.woken,
            end: crossing.end,
            tid: crossing.tid,
            priority: crossing.priority,
            cpu: crossing.cpu,
            stack: self.names(&crossing.stack),
        };
        Caught { crossing, question, history, overwritten, refused }
    }

    /// Functions by addresses of returns, the innermost first.
    fn names(&self, addresses: &[u64]) -> Vec<String> {
        let name =
            |address: &u64| self.symbols.name(*address, true).unwrap_or_else(|| format!("{address:#x}"));
        addresses.iter().map(name).collect()
    }

    /// The function that begins at an address.
    fn function(&self, address: u64) -> String {
        let name = self.symbols.name(address, false).unwrap_or_else(|| format!("{address:#x}"));
        name.strip_suffix("+0x0").map_or(name.clone(), str::to_owned)
    }
}

/// Puts the array of the monitor's that the programs read where the loader finds it.
fn shared(from: &Path, to: &Path) -> Result<(), Error> {
    let path = from.join("array-processors");
    let array = MapData::from_pin(&path)
        .map_err(|error| KernelError::Refused(path.display().to_string(), chain(&error)))?;
    array
        .pin(to.join("processors"))
        .map_err(|error| KernelError::Refused("to pin processors".into(), chain(&error)).into())
}

fn load(btf: &Btf, folder: &Path, cpus: u32) -> Result<Ebpf, Error> {
    let mut loader = EbpfLoader::new();
    for (name, entries) in memory::ENTRIES {
        loader.set_max_entries(name, cpus * entries);
    }
    loader
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

fn attach(
    ebpf: &mut Ebpf,
    name: &str,
    tracepoint: &str,
    btf: &Btf,
) -> Result<BtfTracePointLink, ProgramError> {
    let program: &mut BtfTracePoint = ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()?;
    program.load(tracepoint, btf)?;
    let id = program.attach()?;
    program.take_link(id)
}

fn missing(name: &str) -> Error {
    KernelError::Refused(name.into(), "this build doesn't have it".into()).into()
}
