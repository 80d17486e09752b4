//! Events that programs describe in their files.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use object::{Object, ObjectSection, ReadCache};
use tompion_os::BoundedFile;
use tompion_schema::{
    EVENT_MAGIC, Event, decode_outline, description_size,
    provider::{ORIGIN, Parts},
};

use crate::{Tracer, carried};

/// Program or library that is read in parts.
type File<'data> = object::File<'data, &'data ReadCache<BoundedFile>>;

/// Maximum number of bytes that are read of a file: a process may have mapped one of any size.
const MAX_READ: u64 = 1 << 30;
/// Section in which programs carry descriptions.
const SECTION: &str = "tompion_events";
/// Word in that section for a description that stands elsewhere: behind it comes the distance from
/// there to the description, an `i32`.
const ELSEWHERE: u32 = u32::from_le_bytes(*b"TER1");

/// Section of constants, where programs keep the name of the variable that another tracer's marks
/// look for.
const CONSTANTS: &str = ".rodata";
/// Sections of programs that were compiled for LTTng-UST.
const LTTNG_SECTIONS: [&str; 2] = ["lttng_ust_tracepoints_ptrs", "__tracepoints_ptrs"];

/// Events of a file.
#[derive(Debug)]
pub struct Described {
    /// Those that it describes, without the labels of their enumerations.
    pub events: Vec<Event>,
    /// Origins of marks that it carries without their names.
    pub carried: Vec<&'static str>,
}

/// Reads the events of a program or library.
///
/// # Errors
/// If the file can't be read, or is no ELF file.
pub fn described_in_file(file: &Path) -> anyhow::Result<Described> {
    let cache = ReadCache::new(BoundedFile::open(file, MAX_READ)?);
    let object = object::File::parse(&cache).context("expected an ELF program or library")?;
    let events = match object.section_by_name(SECTION) {
        Some(section) => {
            events_in(&|address| bytes_at(&object, address), section.address(), section.data()?, usize::MAX)
        }
        None => Vec::new(),
    };
    let constants = object.section_by_name(CONSTANTS).and_then(|section| section.data().ok());
    let mut carried: Vec<_> = carried(constants.unwrap_or_default()).map(Tracer::name).collect();
    if LTTNG_SECTIONS.iter().any(|name| object.section_by_name(name).is_some()) {
        carried.push(ORIGIN);
    }
    Ok(Described { events, carried })
}

/// Returns the file's bytes from this address to the end of its section.
fn bytes_at<'data>(object: &File<'data>, address: u64) -> Option<&'data [u8]> {
    let section = object.sections().find(|section| {
        let begin = section.address();
        begin != 0 && (begin..begin.saturating_add(section.size())).contains(&address)
    })?;
    section.data().ok()?.get(usize::try_from(address - section.address()).ok()?..)
}

/// Look-up of the bytes at an address.
type BytesAt<'a, 'data> = &'a dyn Fn(u64) -> Option<&'data [u8]>;

/// Returns the description that a reference at this address of the section leads to.
fn elsewhere<'data>(bytes_at: BytesAt<'_, 'data>, address: u64, bytes: &[u8]) -> Option<&'data [u8]> {
    let distance = bytes.strip_prefix(&ELSEWHERE.to_le_bytes())?.first_chunk()?;
    bytes_at(address.checked_add(4)?.checked_add_signed(i32::from_le_bytes(*distance).into())?)
}

/// Decodes the descriptions of a section, which are at multiples of eight bytes: at most so many.
pub(crate) fn events_in(bytes_at: BytesAt<'_, '_>, address: u64, section: &[u8], most: usize) -> Vec<Event> {
    let decode = |bytes: &[u8]| decode_outline(bytes.get(..description_size(bytes).ok()?)?).ok();
    let mut events = Vec::new();
    let mut parts = Parts::default();
    let mut at = 0;
    while let Some(rest) = section.get(at..).filter(|rest| rest.len() >= 8 && events.len() < most) {
        let size =
            if rest.starts_with(&EVENT_MAGIC.to_le_bytes()) { description_size(rest).ok() } else { None };
        let there = elsewhere(bytes_at, address.saturating_add(at as u64), rest);
        events.extend(decode(there.unwrap_or(rest)));
        let size = size.or_else(|| parts.add(rest));
        at += size.unwrap_or(8).max(8).next_multiple_of(8);
    }
    let left = most.saturating_sub(events.len());
    events.extend(parts.outlines().filter_map(|bytes| decode(&bytes)).take(left));
    events
}

/// Returns the files in which a program's events are described, each with the name to show: of a
/// process, a file, or a command.
///
/// # Errors
/// If there is no such process or file.
pub fn files(what: &str) -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
    if what.parse::<u32>().is_ok() && !Path::new(what).exists() {
        return files_of_process(what);
    }
    let path = PathBuf::from(what);
    if path.exists() {
        return Ok(vec![(path.clone(), path)]);
    }
    let on_path = || tompion_os::find_on_path(what.as_ref(), Path::is_file);
    match (!what.contains('/')).then(on_path).flatten() {
        Some(file) => Ok(vec![(file.clone(), file)]),
        None => bail!("expected a process id or a program, found no file `{what}`"),
    }
}

/// Returns all files that a process mapped as executable, by way of its own root.
fn files_of_process(pid: &str) -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))
        .with_context(|| format!("can't read process {pid}"))?;
    let executable =
        maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|flags| flags.contains('x')));
    let paths: BTreeSet<&str> = executable.filter_map(|line| Some(&line[line.find('/')?..])).collect();
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let inside = |path: &str| (root.join(path.trim_start_matches('/')), PathBuf::from(path));
    Ok(paths.into_iter().map(inside).filter(|(file, _)| file.is_file()).collect())
}
