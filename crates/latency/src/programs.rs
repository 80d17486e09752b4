//! Loading, attaching and pinning of the programs and their arrays.

use std::{fs, os::fd::AsFd, path::Path};

use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::MapData,
    programs::{BtfTracePoint, ProgramError, ProgramInfo, links::FdLink, tp_btf::BtfTracePointLink},
};
use tompion_kernel::{Error as KernelError, chain, misses_of, refused, stacks::KernelSymbols};
use tompion_protocol::names::fingerprint;

use crate::{
    Error, groups,
    kinds::Kinds,
    log::{self, Log},
    mapped_counters::{self, ARRAYS, MappedCounters},
};

/// Compiled programs; empty if there was no compiler.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/monitor.o"));

/// Identifies this build of the programs; never 0.
pub fn build() -> u32 {
    (fingerprint(OBJECT) as u32).max(1)
}

/// Programs and their tracepoints. Begins of wakeups are attached last, after their ends, so that
/// no end is missed.
const PROGRAMS: [(&str, &str); 7] = [
    ("switched", "sched_switch"),
    ("expired_first", "hrtimer_expire_exit"),
    ("expired_second", "hrtimer_expire_exit"),
    ("arm", "hrtimer_start"),
    ("expire_hard", "hrtimer_expire_entry"),
    ("expire_soft", "hrtimer_expire_entry"),
    ("waking", "sched_waking"),
];

/// Programs that follow cgroups, if the kernel has any.
const OF_CGROUPS: [(&str, &str); 2] = [("cgroup_made", "cgroup_mkdir"), ("cgroup_removed", "cgroup_rmdir")];

/// Name of the table of cgroups.
const CGROUPS: &str = "cgroups";

/// Returns whether the kernel has cgroups. Source: `cgroups(7)`.
fn has_cgroups() -> bool {
    Path::new("/proc/cgroups").exists()
}

/// Programs and tracepoints that this kernel supports.
fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_cgroups = OF_CGROUPS.into_iter().filter(|_| has_cgroups());
    of_cgroups.chain(PROGRAMS)
}

/// Loads and attaches all programs and pins them in an empty folder; `logged` is the size of the
/// log.
pub fn begin(folder: &Path, cpus: u32, kinds: Kinds, logged: u32) -> Result<(), Error> {
    let btf = Btf::from_sys_fs().map_err(|error| KernelError::Types(chain(&error)))?;
    let mut ebpf = load(&btf, cpus, logged)?;
    for name in ARRAYS.into_iter().chain(groups::ARRAYS).chain([CGROUPS, log::ARRAY]) {
        let map = ebpf.map(name).ok_or_else(|| missing(name))?;
        map.pin(folder.join(array(name))).map_err(|error| pinning(name, &error))?;
    }
    map_arrays(folder, cpus)?.begin(tompion_os::monotonic_ns(), kinds, build());
    for (name, tracepoint) in all() {
        let link = attach(&mut ebpf, name, tracepoint, &btf).map_err(|error| refused(name, &error))?;
        let link = FdLink::from(link);
        link.pin(folder.join(format!("link-{name}"))).map_err(|error| pinning(name, &error))?;
        let program = ebpf.program_mut(name).ok_or_else(|| missing(name))?;
        program.pin(folder.join(program_file(name))).map_err(|error| pinning(name, &error))?;
    }
    Ok(())
}

fn load(btf: &Btf, cpus: u32, logged: u32) -> Result<Ebpf, Error> {
    // The tick's handler has the second name before Linux 6.8.
    let names = ["hrtimer_wakeup", "tick_nohz_handler", "tick_sched_timer", "dl_task_timer"];
    let symbols = KernelSymbols::named(&names);
    let of_sleepers = symbols.address("hrtimer_wakeup").ok_or_else(|| Error::Obstacle {
        found: "/proc/kallsyms doesn't say where the kernel's hrtimer_wakeup is".into(),
        mend: "run it as root; if that is no help: sysctl kernel.kptr_restrict=1",
    })?;
    let of_ticks = symbols.address("tick_nohz_handler").or_else(|| symbols.address("tick_sched_timer"));
    let of_throttling = symbols.address("dl_task_timer");
    let (of_ticks, of_throttling) = (of_ticks.unwrap_or(0), of_throttling.unwrap_or(0));
    let has_cgroups = u32::from(has_cgroups());
    let mut loader = EbpfLoader::new();
    for (name, entries) in mapped_counters::entries(cpus).into_iter().chain([groups::entries(cpus)]) {
        loader.set_max_entries(name, entries);
    }
    loader
        .set_max_entries(log::ARRAY, logged + 1)
        .btf(Some(btf))
        .set_global("has_cgroups", &has_cgroups, true)
        .set_global("log_entries", &logged, true)
        .set_global("wakes_sleeper", &of_sleepers, true)
        .set_global("ticks", &of_ticks, true)
        .set_global("ends_throttling", &of_throttling, true)
        .load(OBJECT)
        .map_err(|error| KernelError::Refused("the monitor's arrays".into(), chain(&error)).into())
}

/// Attaches a program for as long as its link exists.
pub fn attach(
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

/// Pins the `processors` array at `to`, where the loader of other programs finds it.
pub fn share_processors(from: &Path, to: &Path) -> Result<(), Error> {
    let array = open_array(from, "processors")?;
    array.pin(to.join("processors")).map_err(|error| pinning("processors", &error))
}

/// Opens a pinned array.
fn open_array(folder: &Path, name: &str) -> Result<MapData, KernelError> {
    let path = folder.join(array(name));
    MapData::from_pin(&path).map_err(|error| KernelError::Refused(path.display().to_string(), chain(&error)))
}

/// Maps the pinned log.
pub fn map_log(folder: &Path) -> Result<Log, Error> {
    let map = open_array(folder, log::ARRAY)?;
    let entries =
        map.info().map_err(|error| KernelError::Refused("the log".into(), chain(&error)))?.max_entries();
    Log::map(map.fd().as_fd(), entries).map_err(|error| KernelError::Rings(error).into())
}

/// Reads the layout version of pinned arrays.
pub fn version_in(folder: &Path) -> Result<u32, Error> {
    let [control, ..] = ARRAYS;
    let control = open_array(folder, control)?;
    MappedCounters::version_of(control.fd().as_fd()).map_err(|error| KernelError::Rings(error).into())
}

/// Maps the pinned arrays.
pub fn map_arrays(folder: &Path, cpus: u32) -> Result<MappedCounters, Error> {
    let open = |name: &str| open_array(folder, name);
    let [control, processors, histograms, worsts, wakes, threads] = ARRAYS;
    let maps =
        [open(control)?, open(processors)?, open(histograms)?, open(worsts)?, open(wakes)?, open(threads)?];
    let [of_groups, places, longest] = groups::ARRAYS;
    let of_groups = [open(of_groups)?, open(places)?, open(longest)?];
    let arrays = maps.each_ref().map(|map| map.fd().as_fd());
    let groups = of_groups.each_ref().map(|map| map.fd().as_fd());
    MappedCounters::map(arrays, groups, cpus).map_err(|error| KernelError::Rings(error).into())
}

/// Opens the pinned table of cgroups.
pub fn open_cgroups(folder: &Path) -> Result<MapData, Error> {
    Ok(open_array(folder, CGROUPS)?)
}

/// Error for a map that the kernel rejects.
pub fn refused_map(name: &str, error: &dyn std::error::Error) -> Error {
    KernelError::Refused(name.into(), chain(error)).into()
}

/// Number of runs of pinned programs that the kernel skipped.
pub fn not_started(folder: &Path) -> u64 {
    let misses = |name: &str| {
        let program = ProgramInfo::from_pin(folder.join(program_file(name))).ok()?;
        Some(misses_of(program.fd().ok()?.as_fd()))
    };
    all().filter_map(|(name, _)| misses(name)).sum()
}

/// Returns whether all programs are still attached.
pub fn is_whole(folder: &Path) -> bool {
    all().all(|(name, _)| fs::exists(folder.join(format!("link-{name}"))).unwrap_or(false))
}

fn array(name: &str) -> String {
    format!("array-{name}")
}

fn program_file(name: &str) -> String {
    format!("program-{name}")
}

/// Error for a missing array or program.
pub fn missing(name: &str) -> Error {
    KernelError::Refused(name.into(), "this build doesn't have it".into()).into()
}

fn pinning(name: &str, error: &dyn std::error::Error) -> Error {
    KernelError::Refused(format!("to pin {name}"), chain(error)).into()
}
