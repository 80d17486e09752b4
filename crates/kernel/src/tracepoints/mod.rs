//! Static tracepoints of the running kernel that have no program of their own: one program serves
//! all of them.
//!
//! ```text
//! tracefs: events/SYSTEM/NAME/format ─► Format ─► cookie ─► program (src/bpf/generic.h) ─► record
//!                                         └──────────────────────────────────────────────► payload
//! ```
//!
//! [`Catalog`] says which there are, [`Format`] what their records are, [`Tracepoint::payload`]
//! turns a record into what descriptions say. Attaching is `attach.rs`.

pub(crate) mod attach;
mod constant;
mod format;
mod names;
mod print;

use std::{
    collections::BTreeMap,
    fs,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use tompion_os::FileRights;
use tompion_schema::{Event, Type};

pub(crate) use format::COMMON;
pub use format::{Format, FormatError, Place};

use crate::events::KNOWN;

/// Folders where tracefs may be.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Folders of tracefs whose events are no tracepoints, or are recorded otherwise.
const LEFT_OUT: [&str; 8] =
    ["ftrace", "syscalls", "kprobes", "uprobes", "eprobes", "fprobes", "synthetic", "user_events"];

/// A tracepoint by its names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its folder in tracefs.
    pub system: String,
    /// Its name there.
    pub tracepoint: String,
    /// Its name in traces.
    pub name: String,
}

/// The tracepoints of the running kernel, as far as tracefs can be read.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    folder: PathBuf,
    /// Tracepoints that share one program.
    listed: Vec<Listed>,
    /// The folders of all tracepoints, by their names in tracefs.
    systems: BTreeMap<String, String>,
}

/// The folder of the running kernel's descriptions of events, if they can be read.
///
/// They are root's to read, also under sudo, where other files are opened with the user's rights.
///
/// Where tracefs isn't mounted, as in small systems and containers, it is mounted for this process
/// alone.
pub(crate) fn events_folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<(Option<PathBuf>, Option<OwnedFd>)> = OnceLock::new();
    let (folder, _mount) = FOLDER.get_or_init(|| {
        let _rights = FileRights::of_the_process().ok();
        if let Some(folder) = TRACEFS.iter().find_map(|root| described_in(root)) {
            return (Some(folder), None);
        }
        let mount = tompion_os::mount_detached(c"tracefs").ok();
        let root = mount.as_ref().map(|mount| format!("/proc/self/fd/{}", mount.as_raw_fd()));
        (root.and_then(|root| described_in(&root)), mount)
    });
    folder.as_deref()
}

fn described_in(root: &str) -> Option<PathBuf> {
    let folder = Path::new(root).join("events");
    fs::File::open(folder.join("sched/sched_switch/format")).is_ok().then_some(folder)
}

impl Catalog {
    /// Tracepoints of this kernel; none where tracefs can't be read.
    pub fn of_this_kernel() -> Self {
        events_folder().map_or_else(Self::default, Self::of)
    }

    fn of(folder: &Path) -> Self {
        let _rights = FileRights::of_the_process().ok();
        let mut catalog = Self { folder: folder.to_path_buf(), ..Self::default() };
        for system in folders_in(folder).into_iter().filter(|name| !LEFT_OUT.contains(&name.as_str())) {
            for tracepoint in folders_in(&folder.join(&system)) {
                let known = KNOWN.iter().any(|known| known.tracepoint == tracepoint);
                if !known {
                    let name = names::event_name(&system, &tracepoint);
                    catalog.listed.push(Listed {
                        system: system.clone(),
                        tracepoint: tracepoint.clone(),
                        name,
                    });
                }
                catalog.systems.insert(tracepoint, system.clone());
            }
        }
        catalog.listed.sort();
        catalog.tell_apart();
        catalog
    }

    /// Gives tracepoints of one name that of their folder, too.
    fn tell_apart(&mut self) {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        self.listed.iter().for_each(|listed| *counts.entry(listed.name.clone()).or_default() += 1);
        for listed in self.listed.iter_mut().filter(|listed| counts[&listed.name] > 1) {
            listed.name = format!("{}_{}", listed.system, listed.name);
        }
    }

    /// Returns the tracepoints without a program of their own, sorted by folder and name.
    pub fn listed(&self) -> &[Listed] {
        &self.listed
    }

    /// The folder in tracefs of any tracepoint.
    pub fn system_of(&self, tracepoint: &str) -> Option<&str> {
        self.systems.get(tracepoint).map(String::as_str)
    }

    /// Reads what a tracepoint's records are. The error is a line for people.
    pub fn read(&self, listed: &Listed) -> Result<Tracepoint, String> {
        let _rights = FileRights::of_the_process().ok();
        let path = self.folder.join(&listed.system).join(&listed.tracepoint).join("format");
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| failed(&error))?;
        let rename = |field: &str| names::field_name(&listed.system, field);
        let format = Format::parse(&text, &listed.name, rename).map_err(|error| failed(&error))?;
        Ok(Tracepoint { listed: listed.clone(), format })
    }
}

/// Names of a folder's folders.
fn folders_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// A tracepoint whose records can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its names.
    pub listed: Listed,
    /// Its records.
    pub format: Format,
}

/// A record that ends before its fields do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short;

impl Tracepoint {
    /// The event's description.
    pub fn event(&self) -> &Event {
        &self.format.event
    }

    /// Turns a record, without the bytes that all have, into a payload as the description has it.
    pub fn payload(&self, record: &[u8], payload: &mut Vec<u8>) -> Result<(), Short> {
        payload.clear();
        let mut tails = Vec::new();
        for (field, place) in self.format.event.fields.iter().zip(&self.format.places) {
            let bytes = bytes_of(record, *place).ok_or(Short)?;
            match &field.ty {
                Type::Array(..) | Type::TextArray(_) => tails.extend_from_slice(bytes),
                Type::String | Type::Bytes => {
                    payload.extend((bytes.len() as u32).to_le_bytes());
                    tails.extend_from_slice(bytes);
                }
                Type::Sequence(element) => {
                    let count = bytes.len() / element.size();
                    payload.extend((count as u32).to_le_bytes());
                    tails.extend_from_slice(&bytes[..count * element.size()]);
                }
                _ => payload.extend_from_slice(bytes),
            }
        }
        payload.append(&mut tails);
        Ok(())
    }
}

/// The bytes of a field; `record` begins behind the bytes that all have.
fn bytes_of(record: &[u8], place: Place) -> Option<&[u8]> {
    let from = |offset: usize| record.get(offset.checked_sub(COMMON)?..);
    match place {
        Place::Fixed { offset, size } => from(offset)?.get(..size),
        Place::Variable { word, relative } => {
            let bits = u32::from_le_bytes(*from(word)?.first_chunk()?);
            let (offset, length) = (bits as usize & 0xffff, bits as usize >> 16);
            let base = if relative { word + format::WORD } else { 0 };
            // An unassigned field has neither place nor length.
            if length == 0 { Some(&[]) } else { from(base + offset)?.get(..length) }
        }
    }
}

#[cfg(test)]
mod tests;
