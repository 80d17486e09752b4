//! Loader of the programs; attaches and detaches them.
//!
//! Programs are attached by descriptors of this process alone, so that nothing stays attached when
//! it ends, however it ends.

use std::{
    borrow::Cow,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::{Array, Map, MapData, MapError},
    programs::{BtfTracePoint, ProgramError, TracePoint},
};
use tompion_kernel_objects::objects::{self, KeptMap, Key, Kind, Objects, SLOW_LINKS, misses_of};
use tompion_os::SharedMap;

use crate::{
    context::{self, Contexts},
    events::{FIRST, KNOWN, Known, SYSCALL_ENTRY, SYSCALL_EXIT},
    filter::{self, Filter},
    fitness,
    probes::{self, Attached},
    ring::{Geometry, RingReader},
    select::Selection,
    stacks::KernelSymbols,
    syscalls::{Calls, TABLE},
    tracepoints::{Tracepoint, attach::Attachments},
};

/// The compiled programs; empty where there was no compiler.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tracer.o"));

/// Reason why the kernel can't be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something is missing that is known.
    #[error("{found} ({mend})")]
    Obstacle {
        /// Observation.
        found: String,
        /// Remedy.
        mend: &'static str,
    },
    /// The kernel's description of its types can't be read.
    #[error("the kernel's types (BTF) can't be read: {0}")]
    Types(String),
    /// The programs or their maps were refused.
    #[error("the kernel refuses {0}: {1}")]
    Refused(String, String),
    /// A probe can't be put where it was wanted.
    #[error("{0}")]
    Probe(String),
    /// The keeper takes nothing, or the state can't be saved.
    #[error("its programs can't outlast their recorder (--linger): {0}")]
    Keeper(std::io::Error),
    /// The rings can't be mapped.
    #[error("the rings can't be mapped: {0}")]
    Rings(#[from] std::io::Error),
}

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct Options {
    /// Events to record.
    pub selection: Selection,
    /// Overwrite mode; else discard mode.
    pub overwrite: bool,
    /// The rings.
    pub geometry: Geometry,
    /// If there are any, only these processes and the children that they will have are asked for
    /// system calls. The recorder itself never is; so where it stands here, that is for its
    /// children.
    pub follow: Vec<u32>,
    /// Predicate for the chosen events; it was made for this selection.
    pub filter: Option<Filter>,
    /// Context of events.
    pub contexts: Contexts,
}

/// The programs in the kernel, and their rings.
pub struct Recorder {
    /// None while they are changed elsewhere, or if another recorder has loaded them.
    programs: Option<Programs>,
    /// Those that another recorder has loaded.
    held: Option<Objects>,
    rings: SharedMap,
    data: SharedMap,
    geometry: Geometry,
}

/// The programs in the kernel.
pub struct Programs {
    pub(crate) ebpf: Ebpf,
    cpus: u32,
    /// Events that are recorded now.
    pub(crate) selection: Selection,
    pub(crate) calls: Calls,
    /// Whether system calls of some processes alone are recorded.
    pub(crate) follows: bool,
    /// Programs that are loaded.
    pub(crate) loaded: Vec<&'static str>,
    /// Programs among them that record nothing, and mark where wakeups come from.
    wakers: Vec<&'static str>,
    pub(crate) links: Vec<Link>,
    /// Number of the next link.
    next_link: u32,
    /// Links that are not wanted any more, until they are closed.
    pub(crate) unwanted: Vec<OwnedFd>,
    attached: Attached,
    /// Events that this kernel doesn't have.
    missing: Vec<&'static str>,
    /// Tracepoints without programs of their own, those that were chosen once included.
    pub(crate) tracepoints: Vec<Tracepoint>,
    pub(crate) attachments: Attachments,
    /// Tracepoints that the kernel refused, with the reasons.
    refused: Vec<String>,
}

/// A program at its tracepoint.
pub(crate) struct Link {
    pub program: &'static str,
    /// Its number among all that there were.
    number: u32,
    descriptor: OwnedFd,
}

impl Link {
    pub fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }
}

/// The program for tracepoints without one of their own.
pub(crate) const FOR_TRACEPOINTS: &str = "any_tracepoint";

/// Programs that tell where wake-ups come from (`src/bpf/wakers.h`), and their tracepoints. Ends
/// stand before begins: none that begins when they are attached is taken to go on for ever.
const WAKERS: [(&str, &str); 16] = [
    ("device_ends", "irq_handler_exit"),
    ("ipi_ends", "ipi_exit"),
    ("local_timer_ends", "local_timer_exit"),
    ("call_function_ends", "call_function_exit"),
    ("call_function_single_ends", "call_function_single_exit"),
    ("irq_work_ends", "irq_work_exit"),
    ("soft_ends", "softirq_exit"),
    ("timer_ends", "hrtimer_expire_exit"),
    ("device_begins", "irq_handler_entry"),
    ("ipi_begins", "ipi_entry"),
    ("local_timer_begins", "local_timer_entry"),
    ("call_function_begins", "call_function_entry"),
    ("call_function_single_begins", "call_function_single_entry"),
    ("irq_work_begins", "irq_work_entry"),
    ("soft_begins", "softirq_entry"),
    ("timer_begins", "hrtimer_expire_entry"),
];
/// Those of them without which a wake-up's context is unknown: where a CPU's own timer is no
/// device.
const NEEDED_WAKERS: &[&str] = if cfg!(target_arch = "x86_64") {
    &[
        "irq_handler_entry",
        "irq_handler_exit",
        "softirq_entry",
        "softirq_exit",
        "local_timer_entry",
        "local_timer_exit",
    ]
} else {
    &["irq_handler_entry", "irq_handler_exit", "softirq_entry", "softirq_exit"]
};

/// Whether the program that records a tracepoint does what the one in [`WAKERS`] does.
fn is_recorded_with_its_context(selection: &Selection, tracepoint: &str) -> bool {
    let recorded = KNOWN.iter().zip(FIRST..).find(|(known, _)| known.tracepoint == tracepoint);
    let keeps_context = !tracepoint.starts_with("hrtimer_");
    keeps_context && recorded.is_some_and(|(_, number)| selection.has(number))
}

/// The programs that system calls take.
pub(crate) const SYSCALLS: [(u16, &str, &str); 2] =
    [(SYSCALL_ENTRY, "sys_enter", "syscall_entry"), (SYSCALL_EXIT, "sys_exit", "syscall_exit")];

/// Beginning of the names of the programs for switches.
pub(crate) const SWITCH: &str = "sched_switch";

impl Recorder {
    /// Loads the programs that the options ask for; nothing is recorded yet.
    pub fn load(options: &Options, calls: &Calls) -> Result<Self, Error> {
        if let Some(obstacle) = fitness::obstacles().into_iter().find(|obstacle| !obstacle.bearable) {
            return Err(Error::Obstacle { found: obstacle.found, mend: obstacle.mend });
        }
        let btf = Btf::from_sys_fs().map_err(|error| Error::Types(chain(&error)))?;
        let Options { selection, geometry, .. } = options;
        let (overwrite, follow) = (u32::from(options.overwrite), u32::from(!options.follow.is_empty()));
        let filtered = u32::from(options.filter.is_some());
        let stacks_last = context::stacks_last(geometry.subbufs, options.overwrite);
        let wakes_sleeper = KernelSymbols::named(&["hrtimer_wakeup"]).address("hrtimer_wakeup").unwrap_or(0);
        let maps = probes::maps(&selection.probes, geometry.cpus);
        let mut loader = EbpfLoader::new();
        for (name, entries) in maps.into_iter().chain(context::maps(options.contexts, geometry.cpus)) {
            loader.set_max_entries(name, entries);
        }
        let mut ebpf = loader
            .btf(Some(&btf))
            .set_global("cpus", &geometry.cpus, true)
            .set_global("subbufs", &geometry.subbufs, true)
            .set_global("filtered", &filtered, true)
            .set_global("overwrite", &overwrite, true)
            .set_global("follow", &follow, true)
            .set_global("contexts", &options.contexts.bits(), true)
            .set_global("stacks_last", &stacks_last, true)
            .set_global("wakes_sleeper", &wakes_sleeper, true)
            .set_max_entries("handlers", geometry.cpus)
            .set_max_entries("rings", geometry.cpus)
            .set_max_entries("data", geometry.all_subbufs())
            .load(&programs(options.filter.as_ref())?)
            .map_err(|error| Error::Refused("the programs' maps".into(), chain(&error)))?;
        log::debug!("BPF maps created: {geometry:?}, contexts {:?}", options.contexts);
        let rings = map_array(&ebpf, "rings", geometry.rings_bytes())?;
        let data = map_array(&ebpf, "data", geometry.data_bytes())?;
        objects::set_recorder(map_of(&ebpf, "recorder")?, std::process::id())?;
        tell_calls(&mut ebpf, selection, calls)?;
        tell_wanted(&mut ebpf, selection.events)?;
        tell_followed(&mut ebpf, &options.follow)?;
        let mut programs = Programs {
            ebpf,
            cpus: geometry.cpus,
            selection: selection.clone(),
            calls: calls.clone(),
            follows: !options.follow.is_empty(),
            loaded: Vec::new(),
            wakers: Vec::new(),
            links: Vec::new(),
            next_link: 0,
            unwanted: Vec::new(),
            attached: Attached::default(),
            missing: Vec::new(),
            tracepoints: selection.tracepoints.clone(),
            attachments: Attachments::default(),
            refused: Vec::new(),
        };
        programs.load(options, &btf)?;
        Ok(Self { programs: Some(programs), held: None, rings, data, geometry: *geometry })
    }

    /// Takes over the programs of a recorder that was killed. This process takes its place among
    /// those that they leave out.
    ///
    /// # Errors
    /// If the maps are not there, or have other sizes.
    pub fn of_held(held: Objects, geometry: Geometry, contexts: Contexts) -> io::Result<Self> {
        let (rings, data) = held.rings(geometry)?;
        held.set_recorder(std::process::id())?;
        if contexts.has_stacks() {
            held.forget_stacks(geometry.cpus)?;
        }
        Ok(Self { programs: None, held: Some(held), rings, data, geometry })
    }

    /// Returns what outlasts this recorder while others hold it, too.
    ///
    /// # Errors
    /// If a map is missing.
    pub fn objects(&self) -> Result<Vec<(Key, BorrowedFd<'_>)>, Error> {
        self.programs.as_ref().map_or(Ok(Vec::new()), Programs::objects)
    }

    /// Begins to record.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn attach(&mut self) -> Result<(), Error> {
        self.programs.as_mut().map_or(Ok(()), Programs::attach)
    }

    /// Takes the programs, to change them in another thread. Rings can be read meanwhile.
    pub fn take_programs(&mut self) -> Option<Programs> {
        self.programs.take()
    }

    /// Takes the programs back.
    pub fn put_programs(&mut self, programs: Programs) {
        self.programs = Some(programs);
    }

    /// Follows more processes while the programs run, with the children that they will have.
    ///
    /// # Errors
    /// If the set of processes can't be mapped.
    pub fn follow(&self, pids: &[u32]) -> Result<(), Error> {
        if let Some(held) = &self.held {
            return Ok(held.follow(pids)?);
        }
        self.programs
            .as_ref()
            .map_or(Ok(()), |programs| Ok(objects::follow(map_of(&programs.ebpf, "followed")?, pids)?))
    }

    /// Whether the programs follow a process; none is followed where all are recorded.
    pub fn follows(&self, pid: u32) -> bool {
        if let Some(held) = &self.held {
            return held.follows(pid);
        }
        let map = self.programs.as_ref().and_then(|programs| map_of(&programs.ebpf, "followed").ok());
        map.is_some_and(|map| objects::follows(map, pid))
    }

    /// Ends recording. What the rings have can still be read.
    pub fn detach(&mut self) {
        self.programs.iter_mut().for_each(Programs::detach);
        self.held.iter_mut().for_each(Objects::detach);
    }

    /// The rings' number and size.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The ring of a CPU.
    pub fn ring(&self, cpu: u32) -> RingReader<'_> {
        RingReader::new(&self.rings, &self.data, self.geometry, cpu)
    }

    /// Names of chosen events that this kernel doesn't have.
    pub fn missing(&self) -> &[&'static str] {
        self.programs.as_ref().map_or(&[], |programs| &programs.missing)
    }

    /// Chosen tracepoints to which the kernel allows no attachment, with the reasons.
    pub fn refused(&self) -> &[String] {
        self.programs.as_ref().map_or(&[], |programs| &programs.refused)
    }

    /// Number of times that the kernel did not start a program because it ran on that CPU already.
    /// Each was an event.
    pub fn misses(&self) -> u64 {
        let held = self.held.as_ref().map_or(0, Objects::misses);
        self.programs.as_ref().map_or(held, Programs::misses)
    }
}

impl Programs {
    fn load(&mut self, options: &Options, btf: &Btf) -> Result<(), Error> {
        let selection = &options.selection;
        let waking = KNOWN.iter().zip(FIRST..).find(|(known, _)| known.name == "sched_waking");
        if waking.is_some_and(|(_, number)| selection.has(number)) {
            self.load_wakers(selection, btf)?;
        }
        for (known, number) in KNOWN.iter().zip(FIRST..) {
            let follows = matches!(known.name, "sched_process_fork" | "sched_process_exit");
            if selection.has(number) || !options.follow.is_empty() && follows {
                self.load_known(known, btf)?;
            }
        }
        for (number, tracepoint, program) in SYSCALLS {
            if needs_calls(selection, &self.calls, number) {
                self.load_program(program, tracepoint, btf).map_err(|error| refused(program, &error))?;
            }
        }
        if !self.tracepoints.is_empty() {
            if let Err(error) = self.load_for_tracepoints() {
                self.do_without_tracepoints(error)?;
            }
        }
        Ok(())
    }

    /// Loads the program for tracepoints without one of their own.
    pub(crate) fn load_for_tracepoints(&mut self) -> Result<(), Error> {
        let loaded = tracepoint_program(&mut self.ebpf).and_then(TracePoint::load);
        loaded.map_err(|error| refused(FOR_TRACEPOINTS, &error))
    }

    /// Loads the programs that mark where wakeups come from. They are attached before those that
    /// record.
    fn load_wakers(&mut self, selection: &Selection, btf: &Btf) -> Result<(), Error> {
        let mut is_known = true;
        for (name, tracepoint) in WAKERS {
            if is_recorded_with_its_context(selection, tracepoint) {
                continue;
            }
            let loaded = program(&mut self.ebpf, name).and_then(|program| program.load(tracepoint, btf));
            match loaded {
                Ok(()) => self.wakers.push(name),
                // Each architecture has some of these tracepoints.
                Err(error) => {
                    log::debug!("BPF program {name} not loaded: {}", chain(&error));
                    is_known &= !NEEDED_WAKERS.contains(&tracepoint);
                }
            }
        }
        self.tell_handlers(is_known)
    }

    /// Says whether the programs know from which context a wakeup comes. None is active so far.
    pub(crate) fn tell_handlers(&mut self, is_known: bool) -> Result<(), Error> {
        let mut handlers = array::<[u64; 6]>(&mut self.ebpf, "handlers")
            .map_err(|error| Error::Refused("the map handlers".into(), chain(&error)))?;
        let entry = [u64::from(is_known), 0, 0, 0, 0, 0];
        (0..self.cpus)
            .try_for_each(|cpu| handlers.set(cpu, entry, 0))
            .map_err(|error| Error::Refused("the map handlers".into(), chain(&error)))
    }

    /// The one program was refused (before Linux 5.15): the rest is recorded, if there is any.
    fn do_without_tracepoints(&mut self, error: Error) -> Result<(), Error> {
        if self.loaded.is_empty() && self.selection.probes.is_empty() {
            return Err(error);
        }
        let names: Vec<String> =
            self.tracepoints.drain(..).map(|tracepoint| tracepoint.listed.name).collect();
        let shown = names.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
        self.refused.push(format!("{shown}{more}: {error}"));
        Ok(())
    }

    pub(crate) fn load_known(&mut self, known: &Known, btf: &Btf) -> Result<(), Error> {
        let first = self.load_program(known.program, known.tracepoint, btf);
        match (first, known.program_of_old) {
            (Ok(()), _) => Ok(()),
            // This kernel has no such tracepoint, or none of this name.
            (Err(ProgramError::Btf(_)), _) => {
                self.missing.push(known.name);
                Ok(())
            }
            (Err(_), Some(program)) => self
                .load_program(program, known.tracepoint, btf)
                .map_err(|error| refused(known.program, &error)),
            (Err(error), None) => Err(refused(known.program, &error)),
        }
    }

    pub(crate) fn load_program(
        &mut self,
        name: &'static str,
        tracepoint: &str,
        btf: &Btf,
    ) -> Result<(), ProgramError> {
        program(&mut self.ebpf, name)?.load(tracepoint, btf)?;
        log::debug!("BPF program {name} loaded for the tracepoint {tracepoint}");
        self.loaded.push(name);
        Ok(())
    }

    fn attach(&mut self) -> Result<(), Error> {
        // Switches first: an event of a thread whose switch away is not recorded would show it
        // running for too long. Then ends before begins, as in `WAKERS`: some of these count
        // handlers, too.
        self.loaded.sort_by_key(|name| (!name.starts_with(SWITCH), !name.ends_with("_exit")));
        for name in self.wakers.iter().chain(&self.loaded).copied().collect::<Vec<_>>() {
            self.attach_program(name)?;
        }
        log::debug!("{} BPF programs attached", self.links.len());
        self.attached = probes::attach(&mut self.ebpf, &self.selection.probes).map_err(Error::Probe)?;
        if !self.tracepoints.is_empty() {
            let places: Vec<usize> = (0..self.tracepoints.len()).collect();
            let not = self.attach_tracepoints(&places)?;
            self.refused.extend(not);
        }
        Ok(())
    }

    /// Attaches a program that is loaded.
    pub(crate) fn attach_program(&mut self, name: &'static str) -> Result<(), Error> {
        let program = program(&mut self.ebpf, name).and_then(|program| program.fd());
        let program = program.map_err(|error| refused(name, &error))?;
        let link = tompion_os::attach_to_tracepoint(program.as_fd());
        let descriptor =
            link.map_err(|error| Error::Refused(format!("the program {name}"), error.to_string()))?;
        self.links.push(Link { program: name, number: self.next_link, descriptor });
        self.next_link += 1;
        Ok(())
    }

    /// Returns maps, programs and links that outlast the recorder while others hold them, too.
    /// Links that were attached first have the smallest numbers.
    ///
    /// # Errors
    /// If a map is missing.
    pub fn objects(&self) -> Result<Vec<(Key, BorrowedFd<'_>)>, Error> {
        let mut all = Vec::new();
        for (map, name) in KeptMap::ALL {
            all.push((map.key(), map_of(&self.ebpf, name)?));
        }
        all.extend(self.program_descriptors().map(|(number, it)| (Key(Kind::Program, number), it)));
        let links = self.links.iter().map(|link| (link.number, link.descriptor.as_fd()));
        all.extend(links.map(|(number, link)| (Key(Kind::Link, number), link)));
        let (links, events) = self.attachments.descriptors();
        let probes = self.attached.descriptors().enumerate();
        let probes = probes.map(|(number, probe)| (2 * SLOW_LINKS + number as u32, probe));
        let slow = links.map(|(place, link)| (SLOW_LINKS + place as u32, link)).chain(probes);
        all.extend(slow.map(|(number, link)| (Key(Kind::Link, number), link)));
        let events = events.enumerate();
        all.extend(events.map(|(number, event)| (Key(Kind::Event, number as u32), event)));
        Ok(all)
    }

    /// The programs that record, with numbers that they keep when others are loaded. The kernel
    /// counts with each how often it was not started.
    fn program_descriptors(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        let others = (!self.tracepoints.is_empty()).then_some((u32::MAX, FOR_TRACEPOINTS));
        let all = self.loaded.iter().enumerate().map(|(number, name)| (number as u32, *name)).chain(others);
        all.filter_map(|(number, name)| Some((number, self.ebpf.program(name)?.fd().ok()?.as_fd())))
    }

    /// Closes the links that are not wanted any more.
    pub fn close_unwanted(&mut self) {
        tompion_os::close_in_parallel(std::mem::take(&mut self.unwanted));
    }

    /// Attaches the one program to tracepoints, by their places. Returns those that the kernel
    /// refuses, with the reasons.
    pub(crate) fn attach_tracepoints(&mut self, places: &[usize]) -> Result<Vec<String>, Error> {
        let program = tracepoint_program(&mut self.ebpf).and_then(|program| program.fd());
        let program = program.map_err(|error| refused(FOR_TRACEPOINTS, &error))?;
        let not = self.attachments.attach(program.as_fd(), &self.tracepoints, places);
        Ok(not.into_iter().map(|(name, error)| format!("{name}: {error}")).collect())
    }

    fn detach(&mut self) {
        // Switches last, for the same reason.
        while self.links.pop().is_some() {}
        self.attached = Attached::default();
        self.close_unwanted();
        self.attachments.detach();
    }

    fn misses(&self) -> u64 {
        self.program_descriptors().map(|(_, program)| misses_of(program)).fold(0, u64::saturating_add)
    }
}

/// Whether a selection needs the program for entries or exits of system calls. Each reads what the
/// other one can't: paths at exits, sizes of buffers at entries.
pub(crate) fn needs_calls(selection: &Selection, calls: &Calls, number: u16) -> bool {
    let Selection { entries, exits, .. } = selection;
    match number {
        SYSCALL_ENTRY => {
            !entries.is_empty() || exits.iter().any(|call| calls.returned_address(*call).is_some())
        }
        _ => !exits.is_empty() || !entries.is_empty(),
    }
}

/// The compiled programs, with the filter in its place.
fn programs(filter: Option<&Filter>) -> Result<Cow<'static, [u8]>, Error> {
    let Some(filter) = filter else { return Ok(OBJECT.into()) };
    let spliced = filter::splice(OBJECT, &filter.code).map(Cow::Owned);
    let missing =
        || Error::Refused("the filter".into(), "this build's programs have no place for one".into());
    spliced.ok_or_else(missing)
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut BtfTracePoint, ProgramError> {
    ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()
}

fn tracepoint_program(ebpf: &mut Ebpf) -> Result<&mut TracePoint, ProgramError> {
    ebpf.program_mut(FOR_TRACEPOINTS).ok_or(ProgramError::NotLoaded)?.try_into()
}

/// An array of the programs, as a descriptor.
fn map_of<'a>(ebpf: &'a Ebpf, name: &str) -> Result<BorrowedFd<'a>, Error> {
    match ebpf.map(name) {
        Some(Map::Array(map)) => Ok(map.fd().as_fd()),
        _ => Err(Error::Refused(format!("the map {name}"), "it is no array".into())),
    }
}

/// Maps an array of the programs into this process.
fn map_array(ebpf: &Ebpf, name: &str, size: u64) -> Result<SharedMap, Error> {
    Ok(SharedMap::of_bpf_array(map_of(ebpf, name)?, size)?)
}

/// An array of the programs.
fn array<'a, V: aya::Pod>(ebpf: &'a mut Ebpf, name: &str) -> Result<Array<&'a mut MapData, V>, MapError> {
    let missing = || MapError::InvalidName { name: name.into() };
    Array::try_from(ebpf.map_mut(name).ok_or_else(missing)?)
}

/// Tells the programs which events with programs of their own are recorded.
pub(crate) fn tell_wanted(ebpf: &mut Ebpf, events: u64) -> Result<(), Error> {
    let result = array::<u64>(ebpf, "wanted").and_then(|mut wanted| wanted.set(0, events, 0));
    result.map_err(|error| Error::Refused("the set of events".into(), chain(&error)))
}

/// Tells the programs which calls are wanted and where their paths are.
pub(crate) fn tell_calls(ebpf: &mut Ebpf, selection: &Selection, calls: &Calls) -> Result<(), Error> {
    let tell = |ebpf| -> Result<(), MapError> {
        let mut table = array::<u32>(ebpf, "calls")?;
        for number in calls.numbers().filter(|number| *number < TABLE) {
            let (entry, exit) = (selection.entries.contains(&number), selection.exits.contains(&number));
            table.set(number, calls.word(number, entry, exit), 0)?;
        }
        Ok(())
    };
    tell(ebpf).map_err(|error| Error::Refused("the table of system calls".into(), chain(&error)))
}

/// Tells the programs which processes to follow before they are attached: a bit for each process.
fn tell_followed(ebpf: &mut Ebpf, pids: &[u32]) -> Result<(), Error> {
    let tell = |ebpf| -> Result<(), MapError> {
        let mut words = array::<u64>(ebpf, "followed")?;
        for pid in pids {
            let before = words.get(&(pid / 64), 0)?;
            words.set(pid / 64, before | 1 << (pid % 64), 0)?;
        }
        Ok(())
    };
    tell(ebpf).map_err(|error| Error::Refused("the set of processes".into(), chain(&error)))
}

/// The error of a program that the kernel refuses, with the verifier's reason.
pub fn refused(program: &str, error: &ProgramError) -> Error {
    if let ProgramError::LoadError { io_error, verifier_log } = error {
        let log = verifier_log.to_string();
        // The verifier's reason stands before three lines of sums.
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        return Error::Refused(format!("the program {program}"), format!("{io_error}; {}", last.join("; ")));
    }
    Error::Refused(format!("the program {program}"), chain(error))
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    std::iter::once(error.to_string()).chain(causes.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
}
