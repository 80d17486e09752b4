//! Delays on purpose, in the kernel: the reference for the latency monitor's accuracy and its
//! attributions.
//!
//! A thread orders a delay for itself, and then does what leads to its place ([`Place`]): the CPU
//! spins there, with interrupts or preemption off, for as long as was ordered. BPF programs do that
//! (`src/bpf/injector.bpf.c`); no module, no patch, and nothing is left when an [`Injector`] is
//! dropped. No other thread is touched, no delay is longer than [`MAX_DELAY`], and each order is
//! carried out once.
//!
//! For tests and benchmarks alone: the command doesn't carry it (`./x test layers`). They decide
//! when to delay, and what must come of it.
//!
//! [`Interruptions`] counts what else comes between a switch and the moment when a thread goes on.
#![forbid(unsafe_code)]

mod interruptions;

use std::{
    os::fd::AsFd as _,
    sync::atomic::Ordering::{Acquire, Relaxed, Release},
    time::Duration,
};

use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::Map,
    programs::{BtfTracePoint, ProgramError},
};
use tompion_kernel::{Error, Obstacle, chain, refused, stacks::KernelSymbols};
use tompion_os::SharedMap;

pub use interruptions::Interruptions;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/injector.o"));

/// The longest delay.
pub const MAX_DELAY: Duration = Duration::from_millis(1);

/// Place at which a thread is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Place {
    /// With interrupts off: when the thread arms a timer next, as every sleep does.
    InterruptsOff = 1,
    /// With preemption off: when the thread enters its next system call. Interrupts come; no other
    /// thread runs.
    PreemptionOff = 2,
    /// In a hard interrupt: when the timer of the thread's sleep goes off, on the CPU where it
    /// does.
    HardInterrupt = 3,
    /// In a soft interrupt: when one runs next on top of this thread (a datagram sent to oneself
    /// does that).
    SoftInterrupt = 4,
    /// Next end of idling on any CPU: an order for thread 0.
    IdleExit = 5,
}

const PROGRAMS: [(Place, &str, &str); 5] = [
    (Place::InterruptsOff, "with_interrupts_off", "hrtimer_start"),
    (Place::PreemptionOff, "with_preemption_off", "sys_enter"),
    (Place::HardInterrupt, "in_hard_interrupt", "hrtimer_expire_entry"),
    (Place::SoftInterrupt, "in_soft_interrupt", "softirq_entry"),
    (Place::IdleExit, "while_leaving_idle", "cpu_idle"),
];

/// `ORDERS`, and `struct order`.
const ORDERS: usize = 4096;
const ORDER: usize = 64;
const TID: usize = 0;
const PLACE: usize = 4;
const DELAY: usize = 8;
const COUNT: usize = 16;
const BEGUN: usize = 24;
const ENDED: usize = 32;

/// Delays that were done for a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Number of delays.
    pub count: u64,
    /// Begin of the last one, on CLOCK_MONOTONIC in nanoseconds.
    pub begun_ns: u64,
    /// End of the last one.
    pub ended_ns: u64,
}

/// Programs that delay threads which ask for it. They go with it.
pub struct Injector {
    orders: SharedMap,
    _programs: Ebpf,
}

/// Everything that is known to stand in the way.
pub fn obstacles() -> Vec<Obstacle> {
    let mut found: Vec<_> = tompion_kernel::obstacles().into_iter().filter(|it| !it.bearable).collect();
    let symbols = KernelSymbols::named(&["bpf_loop"]);
    if found.is_empty() && symbols.address("bpf_loop").is_none() {
        found.push(Obstacle {
            found: "the kernel has no bpf_loop".into(),
            mend: "use Linux 5.17 or later, as root",
            bearable: false,
        });
    }
    found
}

impl Injector {
    /// Loads and attaches the programs for these places.
    ///
    /// # Errors
    /// The kernel refuses that; [`obstacles`] says why.
    pub fn load(places: &[Place]) -> Result<Self, Error> {
        let btf = Btf::from_sys_fs().map_err(|error| Error::Types(chain(&error)))?;
        let wakes_sleeper = KernelSymbols::named(&["hrtimer_wakeup"]).address("hrtimer_wakeup").unwrap_or(0);
        let mut programs = EbpfLoader::new()
            .btf(Some(&btf))
            .set_global("wakes_sleeper", &wakes_sleeper, true)
            .load(OBJECT)
            .map_err(|error| Error::Refused("the injector's array".into(), chain(&error)))?;
        let orders = map(&programs, "orders", ORDERS * ORDER)?;
        for (_, name, tracepoint) in PROGRAMS.iter().filter(|(place, ..)| places.contains(place)) {
            attach(&mut programs, &btf, (name, tracepoint))?;
        }
        Ok(Self { orders, _programs: programs })
    }

    /// Orders a delay for a thread, at most [`MAX_DELAY`]. It is done once, when the thread comes
    /// to that place; one that was ordered before and not done is forgotten. A thread orders for
    /// itself, or for one that sleeps. Threads whose numbers have the lowest twelve bits in common
    /// share one place.
    pub fn order(&self, tid: u32, place: Place, delay: Duration) {
        let at = at(tid);
        self.orders.word(at + DELAY).store(0, Relaxed);
        self.orders.half(at + TID).store(tid, Relaxed);
        self.orders.half(at + PLACE).store(place as u32, Relaxed);
        // Pairs with the program's compare-and-swap: a program that takes the delay sees its owner.
        self.orders.word(at + DELAY).store(delay.min(MAX_DELAY).as_nanos() as u64, Release);
    }

    /// Drops the delays that were requested for a thread and not made yet.
    pub fn cancel(&self, tid: u32) {
        self.orders.word(at(tid) + DELAY).store(0, Relaxed);
    }

    /// Delays that were carried out for a thread.
    pub fn done(&self, tid: u32) -> Done {
        let word = |offset| self.orders.word(at(tid) + offset);
        // Pairs with the program's addition, which follows the times.
        let count = word(COUNT).load(Acquire);
        Done { count, begun_ns: word(BEGUN).load(Relaxed), ended_ns: word(ENDED).load(Relaxed) }
    }
}

/// Index of a thread's order.
const fn at(tid: u32) -> usize {
    tid as usize % ORDERS * ORDER
}

/// Attaches a program to a tracepoint.
fn attach(programs: &mut Ebpf, btf: &Btf, (name, tracepoint): (&str, &str)) -> Result<(), Error> {
    let attached = programs.program_mut(name).ok_or(ProgramError::NotLoaded).and_then(|program| {
        let program: &mut BtfTracePoint = program.try_into()?;
        program.load(tracepoint, btf)?;
        program.attach()
    });
    attached.map(drop).map_err(|error| refused(name, &error))
}

/// Maps an array of so many bytes.
fn map(programs: &Ebpf, name: &str, size: usize) -> Result<SharedMap, Error> {
    let Some(Map::Array(array)) = programs.map(name) else {
        return Err(Error::Refused("the injector's array".into(), "this build doesn't have it".into()));
    };
    SharedMap::of_bpf_array(array.fd().as_fd(), size as u64).map_err(Error::Rings)
}
