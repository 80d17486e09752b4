//! Resolves addresses in events to names.
//!
//! ```text
//! lttng_ust_statedump:bin_info, lttng_ust_lib:load   path, address and load time of a file
//! …:build_id                                         build of the file
//! lttng_ust_cyg_profile:func_entry addr = 0x55d4…    ──► compute(int)
//! ```
//!
//! Load addresses of objects are read from the traces first, so names don't depend on the selected
//! events. A file is used only if it has the recorded build id. Otherwise an address is shown as
//! its object and the distance from the object's beginning: `[libm.so.6+0x1d3a0]`. This also works
//! for LTTng traces that distinguish processes.

mod binary;
mod stacks;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tompion_ctf::decode::Value;
use tompion_ctf::metadata::EnvironmentValue;

use crate::{Event, Selection, Trace, TraceSet};
use binary::Binary;
pub(crate) use stacks::Stack;
use stacks::{Frames, STACKS, Stacks};

/// Events that contain code addresses, with the names of these fields.
const ADDRESSES: [(&str, &[&str]); 3] = [
    ("lttng_ust_cyg_profile:func_entry", &["addr", "call_site"]),
    ("lttng_ust_cyg_profile:func_exit", &["addr", "call_site"]),
    ("lttng_ust_cyg_profile_fast:func_entry", &["addr"]),
];
/// Events that report the address and build of an object.
const OBJECTS: [&str; 3] = ["lttng_ust_statedump:bin_info", "lttng_ust_lib:load", KERNEL_OBJECT];
/// Event of the kernel trace that reports the same for any process, including the build id.
const KERNEL_OBJECT: &str = "tompion_object";
const BUILD_IDS: [&str; 2] = ["lttng_ust_statedump:build_id", "lttng_ust_lib:build_id"];
/// File in which Tompion stores these events.
const INITIAL_STREAM: &str = "stream_initial";
/// Maximum number of cached names.
const MAX_REMEMBERED: usize = 1 << 20;

/// Returns the fields of an event that hold code addresses; none for most events.
pub(crate) fn address_fields(event: &str) -> &'static [&'static str] {
    ADDRESSES.iter().find(|(name, _)| *name == event).map_or(&[], |(_, fields)| fields)
}

/// Whether an event may contain addresses or stacks that have names.
pub(crate) fn has_names(event: &Event<'_>) -> bool {
    let context = event.stream_class().and_then(|stream| stream.event_context.as_ref());
    !address_fields(event.name()).is_empty() || context.is_some_and(stacks::has_stacks)
}

/// Process of a trace: the trace's index, and the process id if the trace has several.
type Process = (usize, i64);

/// Object in a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Loaded {
    since: Option<i64>,
    base: u64,
    size: u64,
    path: PathBuf,
    build_id: Vec<u8>,
}

/// Symbols and objects of all traces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    processes: HashMap<Process, Vec<Loaded>>,
    /// Files by path and build id; `None` if the file is missing or another build.
    binaries: HashMap<(PathBuf, Vec<u8>), Option<Arc<Binary>>>,
    /// Cached names by object and distance.
    names: HashMap<(Process, usize, u64, bool), Arc<str>>,
    stacks: Stacks,
}

impl Symbols {
    /// Reads the objects and stacks that the traces describe. Returns `None` if no event of the
    /// traces has addresses.
    pub fn read(traces: &TraceSet) -> Option<Self> {
        let all = || traces.traces().iter().flat_map(|trace| &trace.metadata().streams);
        let has = |wanted: &dyn Fn(&str) -> bool| {
            all().flat_map(|stream| &stream.events).any(|event| wanted(&event.name))
        };
        let has_addresses = has(&|name| !address_fields(name).is_empty());
        let has_objects = has(&|name| OBJECTS.contains(&name));
        if !(has_addresses && has_objects || has(&|name| STACKS.contains(&name))) {
            return None;
        }
        let mut objects = traces.unread_where(&may_tell_of_objects);
        let events = OBJECTS.iter().chain(&BUILD_IDS).chain(&STACKS).map(|name| (*name).to_owned()).collect();
        objects.select(Selection { events, ..Selection::default() });
        let threads = objects.threads();
        let parts = objects.visit_ranges(threads, &Default::default, &|(described, stacks), event| {
            Vec::extend(described, ObjectEvent::from_event(event));
            let frames = STACKS.contains(&event.name()).then(|| Frames::from_event(event)).flatten();
            Vec::extend(stacks, frames.map(|(number, frames)| ((event.trace_index(), number), frames)));
        });
        let (mut described, mut stacks) = (Vec::new(), Vec::new());
        for (mut of_part, mut stacks_of_part) in parts {
            described.append(&mut of_part);
            stacks.append(&mut stacks_of_part);
        }
        Some(Self { stacks: stacks.into_iter().collect(), ..Self::of(described) })
    }

    fn of(mut described: Vec<(Option<i64>, Process, ObjectEvent)>) -> Self {
        described.sort_by_key(|(time, ..)| *time);
        let mut processes = HashMap::<Process, Vec<Loaded>>::new();
        for (since, process, described) in described {
            let objects = processes.entry(process).or_default();
            match described {
                ObjectEvent::Object { base, size, path, build_id } => {
                    objects.push(Loaded { since, base, size, path, build_id });
                }
                ObjectEvent::BuildId { base, build_id } => {
                    if let Some(object) = objects.iter_mut().rfind(|object| object.base == base) {
                        object.build_id = build_id;
                    }
                }
            }
        }
        Self { processes, ..Self::default() }
    }

    /// Writes the names of an event's addresses: `compute(int) from main+0x1b`. Writes nothing if
    /// none is known.
    pub fn write_text(&mut self, event: &Event<'_>, line: &mut Vec<u8>) {
        let mut start: &[u8] = b" # ";
        for (_, name) in self.names_of(event) {
            line.extend_from_slice(start);
            line.extend_from_slice(name.as_bytes());
            start = b" from ";
        }
    }

    /// Returns the fields of an event that hold known addresses, with their names.
    pub fn names_of(&mut self, event: &Event<'_>) -> Vec<(&'static str, Arc<str>)> {
        let fields = address_fields(event.name());
        let Some(process) = process_of(event).filter(|_| !fields.is_empty()) else { return Vec::new() };
        let payload = event.payload();
        let address = |field: &str| payload.get(field)?.as_integer()?.try_into().ok();
        let named = fields.iter().filter_map(|field| {
            Some((*field, self.name(process, event.timestamp(), (address(field)?, false))?))
        });
        named.collect()
    }

    /// Returns the name of an address at a time: an instruction, or a return address.
    fn name(
        &mut self,
        process: Process,
        time: Option<i64>,
        (address, is_return): (u64, bool),
    ) -> Option<Arc<str>> {
        let objects = self.processes.get(&process)?;
        let (index, object) = object_at(objects, time, address)?;
        let distance = address - object.base;
        if let Some(name) = self.names.get(&(process, index, distance, is_return)) {
            return Some(name.clone());
        }
        let key = (object.path.clone(), object.build_id.clone());
        let load = || Binary::load(&object.path, &object.build_id, object.size).map(Arc::new);
        let binary = self.binaries.entry(key).or_insert_with(load);
        let name = binary.as_ref().and_then(|binary| binary.name(distance, is_return));
        let name: Arc<str> = name.unwrap_or_else(|| plain_name(object, distance)).into();
        if self.names.len() < MAX_REMEMBERED {
            self.names.insert((process, index, distance, is_return), name.clone());
        }
        Some(name)
    }

    /// Returns the name with the file's name: `main+0x1b (server)`.
    fn name_in_file(
        &mut self,
        process: Process,
        time: Option<i64>,
        address: u64,
        is_return: bool,
    ) -> Option<Arc<str>> {
        let name = self.name(process, time, (address, is_return))?;
        let (_, object) = object_at(self.processes.get(&process)?, time, address)?;
        // The fallback for an address without a name contains the file already.
        Some(if name.starts_with('[') { name } else { format!("{name} ({})", file_name(object)).into() })
    }
}

/// Names for addresses in events, for callers that don't print lines.
#[derive(Clone, Debug)]
pub struct AddressNames(Symbols);

impl AddressNames {
    /// Reads the objects that the traces describe. Returns `None` if no event of the traces has
    /// addresses.
    pub fn read(traces: &TraceSet) -> Option<Self> {
        Symbols::read(traces).map(Self)
    }

    /// Returns the fields of an event that hold known addresses, with their names.
    pub fn of(&mut self, event: &Event<'_>) -> Vec<(&'static str, Arc<str>)> {
        self.0.names_of(event)
    }
}

/// Returns the object at an address at a time: the last one loaded before.
fn object_at(objects: &[Loaded], time: Option<i64>, address: u64) -> Option<(usize, &Loaded)> {
    let holds = |object: &Loaded| address.checked_sub(object.base).is_some_and(|at| at < object.size);
    let holding = || objects.iter().enumerate().filter(|(_, object)| holds(object));
    holding().rfind(|(_, object)| object.since <= time).or_else(|| holding().next())
}

/// Formats an address of which only the object is known.
fn plain_name(object: &Loaded, distance: u64) -> String {
    format!("[{}+{distance:#x}]", file_name(object))
}

/// Returns the name of an object's file. The kernel's part of a program, `[vdso]`, is not a file.
fn file_name(object: &Loaded) -> String {
    let name = object.path.file_name().unwrap_or(OsStr::new("?")).to_string_lossy();
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    name.chars().filter(|character| !character.is_control()).collect()
}

/// Whether a file may describe objects: Tompion has a dedicated one, other tracers use any.
fn may_tell_of_objects(folder: &Path, file: &Path) -> bool {
    file.file_name() == Some(OsStr::new(INITIAL_STREAM)) || !folder.join(INITIAL_STREAM).is_file()
}

/// Returns the process whose addresses an event contains, if the trace states it.
fn process_of(event: &Event<'_>) -> Option<Process> {
    let trace: &Trace = event.trace();
    let of_trace = trace.metadata().environment_value("vpid").and_then(EnvironmentValue::as_integer);
    let pid = match of_trace {
        Some(pid) => Some(pid),
        // Traces of programs have the first field, kernel traces the second.
        None => event
            .field("vpid")
            .or_else(|| event.stream_context().get("pid"))
            .and_then(|value| value.as_integer()?.try_into().ok()),
    };
    Some((event.trace_index(), pid?))
}

/// Description of an object in an event.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ObjectEvent {
    Object { base: u64, size: u64, path: PathBuf, build_id: Vec<u8> },
    BuildId { base: u64, build_id: Vec<u8> },
}

impl ObjectEvent {
    fn from_event(event: &Event<'_>) -> Option<(Option<i64>, Process, Self)> {
        let payload = event.payload();
        let number = |field: &str| payload.get(field)?.as_integer()?.try_into().ok();
        let base = number("baddr")?;
        let build_id = || {
            let Value::Array(bytes) = payload.get("build_id")? else { return None };
            bytes.map(|byte| u8::try_from(byte.as_integer()?).ok()).collect::<Option<_>>()
        };
        let described = if BUILD_IDS.contains(&event.name()) {
            Self::BuildId { base, build_id: build_id()? }
        } else {
            let Value::Text(path) = payload.get("path")? else { return None };
            let (size, path) = (number("memsz")?, OsStr::from_bytes(path).into());
            Self::Object { base, size, path, build_id: build_id().unwrap_or_default() }
        };
        let process = if event.name() == KERNEL_OBJECT {
            // The context of this event is the recorder's.
            (event.trace_index(), payload.get("pid")?.as_integer()?.try_into().ok()?)
        } else {
            process_of(event)?
        };
        Some((event.timestamp(), process, described))
    }
}
