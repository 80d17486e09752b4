//! `tompion list`: lists the events that programs describe in their files.

use std::{
    collections::BTreeSet,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::Args;
use object::{Object, ObjectSection, ReadCache};
use serde::Serialize;
use tompion_kernel::{
    AvailableEvents,
    decode::{Call, Class, Vocabulary},
    events::KNOWN,
    probes::{self, Mark},
    state,
};
use tompion_os::BoundedFile;
use tompion_schema::{EVENT_MAGIC, Event, decode_outline, description_size, provider::Parts};

use crate::messages::escape_control;

/// Program or library that is read in parts.
type File<'data> = object::File<'data, &'data ReadCache<BoundedFile>>;

/// Maximum number of bytes that are read of a file: a process may have mapped one of any size.
const MAX_READ: u64 = 1 << 30;
/// Section in which programs carry descriptions.
const SECTION: &str = "tompion_events";
/// Word in that section for a description that stands elsewhere: behind it comes the distance from
/// there to the description, an `i32`.
const ELSEWHERE: u32 = u32::from_le_bytes(*b"TER1");

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tompion list ./server\n  tompion list 1234\n  tompion list --json ./server\n  \
    tompion list --kernel"
)]
pub struct Arguments {
    /// Program or library, or the id of a running process (with all its libraries)
    #[arg(value_name = "PID|BINARY", required_unless_present = "kernel")]
    what: Option<String>,
    /// List the kernel events that `record -k` can record
    #[arg(long, conflicts_with = "what")]
    kernel: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: String,
    level: &'static str,
    kind: &'static str,
    fields: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut rows = Vec::new();
    match &arguments.what {
        Some(what) => {
            for (file, shown) in &files(what)? {
                rows.extend(marks_of(file, shown));
                let events = events_of(file).with_context(|| format!("can't read {}", shown.display()))?;
                rows.extend(events.into_iter().map(|event| row(&event, Some(shown))));
            }
        }
        None => {
            rows.extend(kernel_events(AvailableEvents::of_this_kernel()).iter().map(|event| row(event, None)))
        }
    }
    rows.sort_by(|a, b| (&a.name, &a.fields).cmp(&(&b.name, &b.fields)));
    rows.dedup_by(|a, b| a.name == b.name && a.fields == b.fields);
    let mut output = anstream::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut output, &rows)?;
        writeln!(output)?;
    } else if rows.is_empty() {
        let what = arguments.what.as_deref().unwrap_or_default();
        bail!("{what} has no events (try record --preload malloc)");
    } else {
        for row in &rows {
            let level = if row.level.is_empty() { row.kind } else { row.level };
            let line = format!("{}  [{level}]  {}", row.name, row.fields.join(", "));
            writeln!(output, "{}", escape_control(&line))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the events that `record -k` can record, with the descriptions that traces have.
fn kernel_events(available: AvailableEvents) -> Vec<Event> {
    let readable = available.catalog.listed().iter().filter_map(|listed| available.catalog.read(listed).ok());
    let vocabulary = Vocabulary { tracepoints: readable.collect(), ..Vocabulary::of_calls(available.calls) };
    let others = (0..vocabulary.tracepoints.len()).map(Class::Tracepoint);
    let state = (0..state::NAMES.len()).map(state::event);
    known_classes(&vocabulary).chain(others).map(|class| vocabulary.event(class)).chain(state).collect()
}

/// Returns events with BPF programs of their own, and system calls.
fn known_classes(vocabulary: &Vocabulary) -> impl Iterator<Item = Class> {
    let calls = &vocabulary.calls;
    let of = |number| if calls.knows(number) { Call::Known(number) } else { Call::Unknown };
    let syscalls = calls.numbers().map(of).flat_map(|call| [Class::Entry(call), Class::Exit(call, 0)]);
    (0..KNOWN.len()).map(Class::Known).chain(syscalls)
}

/// Returns the names of events that `record -k` can record.
pub fn kernel_event_names(available: AvailableEvents) -> Vec<String> {
    let listed: Vec<String> = available.catalog.listed().iter().map(|listed| listed.name.clone()).collect();
    let vocabulary = Vocabulary::of_calls(available.calls);
    let state = state::NAMES.iter().map(ToString::to_string);
    let known = known_classes(&vocabulary).map(|class| vocabulary.event(class).name);
    known.chain(listed).chain(state).collect()
}

/// Returns the USDT probes of a file; none if it is no ELF file.
fn marks_of(file: &Path, shown: &Path) -> Vec<Row> {
    let row = |mark: Mark| Row {
        name: format!("usdt:{}:{}", mark.provider, mark.name),
        level: "",
        kind: "usdt",
        fields: mark.arguments,
        file: Some(shown.to_owned()),
    };
    probes::marks(file).into_iter().flatten().map(row).collect()
}

fn row(event: &Event, file: Option<&Path>) -> Row {
    Row {
        name: event.full_name(),
        level: event.level.name(),
        kind: event.kind.name(),
        fields: event.fields.iter().map(|field| format!("{} {}", field.ty, field.name)).collect(),
        file: file.map(Path::to_owned),
    }
}

/// Returns the files to read, each with the name to show.
fn files(what: &str) -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
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

fn events_of(file: &Path) -> anyhow::Result<Vec<Event>> {
    let cache = ReadCache::new(BoundedFile::open(file, MAX_READ)?);
    let object = object::File::parse(&cache).context("expected an ELF program or library")?;
    match object.section_by_name(SECTION) {
        Some(section) => Ok(events_in(&object, section.address(), section.data()?)),
        None => Ok(Vec::new()),
    }
}

/// Returns the file's bytes from this address to the end of its section.
fn bytes_at<'data>(object: &File<'data>, address: u64) -> Option<&'data [u8]> {
    let section = object.sections().find(|section| {
        let begin = section.address();
        begin != 0 && (begin..begin.saturating_add(section.size())).contains(&address)
    })?;
    section.data().ok()?.get(usize::try_from(address - section.address()).ok()?..)
}

/// Returns the description that a reference at this address of the section leads to.
fn elsewhere<'data>(object: &File<'data>, address: u64, bytes: &[u8]) -> Option<&'data [u8]> {
    let distance = bytes.strip_prefix(&ELSEWHERE.to_le_bytes())?.first_chunk()?;
    bytes_at(object, address.checked_add(4)?.checked_add_signed(i32::from_le_bytes(*distance).into())?)
}

/// Decodes the descriptions of a section, which are at multiples of eight bytes.
fn events_in(object: &File<'_>, address: u64, section: &[u8]) -> Vec<Event> {
    let decode = |bytes: &[u8]| decode_outline(bytes.get(..description_size(bytes).ok()?)?).ok();
    let mut events = Vec::new();
    let mut parts = Parts::default();
    let mut at = 0;
    while let Some(rest) = section.get(at..).filter(|rest| rest.len() >= 8) {
        let size =
            if rest.starts_with(&EVENT_MAGIC.to_le_bytes()) { description_size(rest).ok() } else { None };
        let there = elsewhere(object, address.saturating_add(at as u64), rest);
        events.extend(decode(there.unwrap_or(rest)));
        let size = size.or_else(|| parts.add(rest));
        at += size.unwrap_or(8).max(8).next_multiple_of(8);
    }
    events.extend(parts.outlines().filter_map(|bytes| decode(&bytes)));
    events
}
