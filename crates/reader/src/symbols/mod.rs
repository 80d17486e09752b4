//! Names for the addresses that stand in events.
//!
//! ```text
//! lttng_ust_statedump:bin_info, lttng_ust_lib:load   which file lies where, and since when
//! …:build_id                                         which build of it
//! lttng_ust_cyg_profile:func_entry addr = 0x55d4…    ──► compute(int)
//! ```
//!
//! What traces say of loaded objects is read beforehand, so names don't depend on which events are selected.
//! A file is believed only if its build id is the one that was recorded; without it an address is told by its
//! object and the distance from its beginning, `[libm.so.6+0x1d3a0]`. Works for traces of LTTng, too, if they
//! tell processes apart.

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

/// Events with addresses of code, and the fields that are some.
const ADDRESSES: [(&str, &[&str]); 3] = [
    ("lttng_ust_cyg_profile:func_entry", &["addr", "call_site"]),
    ("lttng_ust_cyg_profile:func_exit", &["addr", "call_site"]),
    ("lttng_ust_cyg_profile_fast:func_entry", &["addr"]),
];
/// Events that say where an object is, and which build of it.
const OBJECTS: [&str; 3] = ["lttng_ust_statedump:bin_info", "lttng_ust_lib:load", KERNEL_OBJECT];
/// The same of any process, with the build id, in the kernel's trace.
const KERNEL_OBJECT: &str = "tompion_object";
const BUILD_IDS: [&str; 2] = ["lttng_ust_statedump:build_id", "lttng_ust_lib:build_id"];
/// The file to which Tompion writes them.
const INITIAL_STREAM: &str = "stream_initial";
/// Most names that are remembered.
const MAX_REMEMBERED: usize = 1 << 20;

/// The fields of an event that hold addresses of code; none for most events.
pub(crate) fn address_fields(event: &str) -> &'static [&'static str] {
    ADDRESSES.iter().find(|(name, _)| *name == event).map_or(&[], |(_, fields)| fields)
}

/// Whether an event may have something that has a name.
pub(crate) fn has_names(event: &Event<'_>) -> bool {
    let context = event.stream_class().and_then(|stream| stream.event_context.as_ref());
    !address_fields(event.name()).is_empty() || context.is_some_and(stacks::has_stacks)
}

/// A process of a trace: the trace's index, and the process id if the trace has several.
type Process = (usize, i64);

/// An object in a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Loaded {
    since: Option<i64>,
    base: u64,
    size: u64,
    path: PathBuf,
    build_id: Vec<u8>,
}

/// What the traces know of addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    processes: HashMap<Process, Vec<Loaded>>,
    /// Files by path and build id; none where it isn't there or another.
    binaries: HashMap<(PathBuf, Vec<u8>), Option<Arc<Binary>>>,
    /// Names by object and distance.
    names: HashMap<(Process, usize, u64, bool), Arc<str>>,
    stacks: Stacks,
}

impl Symbols {
    /// Reads what traces say of loaded objects and of stacks; nothing if no event of theirs has addresses.
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
        let parts = objects.visit_ranges(threads, &Default::default, &|(told, stacks), event| {
            Vec::extend(told, Told::by(event));
            let frames = STACKS.contains(&event.name()).then(|| Frames::by(event)).flatten();
            Vec::extend(stacks, frames.map(|(number, frames)| ((event.trace_index(), number), frames)));
        });
        let (mut told, mut stacks) = (Vec::new(), Vec::new());
        for (mut of_part, mut stacks_of_part) in parts {
            told.append(&mut of_part);
            stacks.append(&mut stacks_of_part);
        }
        Some(Self { stacks: stacks.into_iter().collect(), ..Self::of(told) })
    }

    fn of(mut told: Vec<(Option<i64>, Process, Told)>) -> Self {
        told.sort_by_key(|(time, ..)| *time);
        let mut processes = HashMap::<Process, Vec<Loaded>>::new();
        for (since, process, told) in told {
            let objects = processes.entry(process).or_default();
            match told {
                Told::Object { base, size, path, build_id } => {
                    objects.push(Loaded { since, base, size, path, build_id });
                }
                Told::BuildId { base, build_id } => {
                    if let Some(object) = objects.iter_mut().rfind(|object| object.base == base) {
                        object.build_id = build_id;
                    }
                }
            }
        }
        Self { processes, ..Self::default() }
    }

    /// Writes the names of an event's addresses, `compute(int) from main+0x1b`. Nothing if none is known.
    pub fn write_text(&mut self, event: &Event<'_>, line: &mut Vec<u8>) {
        let mut start: &[u8] = b" # ";
        for (_, name) in self.names_of(event) {
            line.extend_from_slice(start);
            line.extend_from_slice(name.as_bytes());
            start = b" from ";
        }
    }

    /// The fields of an event that hold addresses of something known, with its names.
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

    /// The name of an address at a time: that of an instruction, or one to which a call returns.
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

    /// The same with the file's name, `main+0x1b (server)`.
    fn name_in_file(
        &mut self,
        process: Process,
        time: Option<i64>,
        address: u64,
        is_return: bool,
    ) -> Option<Arc<str>> {
        let name = self.name(process, time, (address, is_return))?;
        let (_, object) = object_at(self.processes.get(&process)?, time, address)?;
        // An address without a name is told by its file anyway.
        Some(if name.starts_with('[') { name } else { format!("{name} ({})", file_name(object)).into() })
    }
}

/// Names for the addresses in events, for those who make something else of events than lines.
#[derive(Clone, Debug)]
pub struct AddressNames(Symbols);

impl AddressNames {
    /// Reads what traces say of loaded objects. Nothing if no event of theirs has addresses.
    pub fn read(traces: &TraceSet) -> Option<Self> {
        Symbols::read(traces).map(Self)
    }

    /// The fields of an event that hold addresses of something known, with its names.
    pub fn of(&mut self, event: &Event<'_>) -> Vec<(&'static str, Arc<str>)> {
        self.0.names_of(event)
    }
}

/// The object that had an address at a time: of those that came before, the last.
fn object_at(objects: &[Loaded], time: Option<i64>, address: u64) -> Option<(usize, &Loaded)> {
    let holds = |object: &Loaded| address.checked_sub(object.base).is_some_and(|at| at < object.size);
    let holding = || objects.iter().enumerate().filter(|(_, object)| holds(object));
    holding().rfind(|(_, object)| object.since <= time).or_else(|| holding().next())
}

/// An address of which nothing but its object is known.
fn plain_name(object: &Loaded, distance: u64) -> String {
    format!("[{}+{distance:#x}]", file_name(object))
}

/// What an object's file is called; the kernel's own part of a program is no file, `[vdso]`.
fn file_name(object: &Loaded) -> String {
    let name = object.path.file_name().unwrap_or(OsStr::new("?")).to_string_lossy();
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    name.chars().filter(|character| !character.is_control()).collect()
}

/// Files with what traces say of objects: Tompion has one for it, others have it anywhere.
fn may_tell_of_objects(folder: &Path, file: &Path) -> bool {
    file.file_name() == Some(OsStr::new(INITIAL_STREAM)) || !folder.join(INITIAL_STREAM).is_file()
}

/// Whose addresses an event has. Nothing if nobody knows.
fn process_of(event: &Event<'_>) -> Option<Process> {
    let trace: &Trace = event.trace();
    let of_trace = trace.metadata().environment_value("vpid").and_then(EnvironmentValue::as_integer);
    let pid = match of_trace {
        Some(pid) => Some(pid),
        // A program's trace has the one, the kernel's the other.
        None => event
            .field("vpid")
            .or_else(|| event.stream_context().get("pid"))
            .and_then(|value| value.as_integer()?.try_into().ok()),
    };
    Some((event.trace_index(), pid?))
}

/// What an event says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Object { base: u64, size: u64, path: PathBuf, build_id: Vec<u8> },
    BuildId { base: u64, build_id: Vec<u8> },
}

impl Told {
    fn by(event: &Event<'_>) -> Option<(Option<i64>, Process, Self)> {
        let payload = event.payload();
        let number = |field: &str| payload.get(field)?.as_integer()?.try_into().ok();
        let base = number("baddr")?;
        let build_id = || {
            let Value::Array(bytes) = payload.get("build_id")? else { return None };
            bytes.map(|byte| u8::try_from(byte.as_integer()?).ok()).collect::<Option<_>>()
        };
        let told = if BUILD_IDS.contains(&event.name()) {
            Self::BuildId { base, build_id: build_id()? }
        } else {
            let Value::Text(path) = payload.get("path")? else { return None };
            let (size, path) = (number("memsz")?, OsStr::from_bytes(path).into());
            Self::Object { base, size, path, build_id: build_id().unwrap_or_default() }
        };
        let process = if event.name() == KERNEL_OBJECT {
            // Its context is the recorder's.
            (event.trace_index(), payload.get("pid")?.as_integer()?.try_into().ok()?)
        } else {
            process_of(event)?
        };
        Some((event.timestamp(), process, told))
    }
}
