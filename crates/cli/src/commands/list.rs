//! `tompion list`: lists the events that programs describe in their files.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use tompion_kernel::{
    AvailableEvents,
    decode::{Call, Class, Vocabulary},
    events::KNOWN,
    probes::{self, Mark},
    state,
};
use tompion_marks::{MAX_EVENTS, Tracer};
use tompion_schema::Event;

use crate::messages::{escape_control, print_status};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tompion list ./server\n  tompion list 1234\n  tompion list --json ./server\n  \
    tompion list --kernel"
)]
pub struct Arguments {
    /// Program or library, or the id of a running process (with all its libraries, and events that
    /// it has described while it runs)
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
    /// Tracer that the event was made for, other than this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    fields: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut rows = Vec::new();
    match &arguments.what {
        Some(what) => {
            for (file, shown) in &tompion_marks::files(what)? {
                rows.extend(marks_of(file, shown));
                let found = tompion_marks::described_in_file(file)
                    .with_context(|| format!("can't read {}", shown.display()))?;
                rows.extend(found.events.iter().map(|event| row(event, Some(shown))));
                rows.extend(found.carried.iter().map(|origin| unnamed(origin, shown)));
            }
            if !Path::new(what).exists() && what.parse::<u32>().is_ok() {
                rows.extend(events_in_memory(what).iter().map(|event| row(event, None)));
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
            let origin = row.origin.as_ref().filter(|_| row.kind != "usdt");
            let origin = origin.map_or(String::new(), |origin| format!("  ({origin})"));
            let line = format!("{}  [{level}]  {}{origin}", row.name, row.fields.join(", "));
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
        origin: Some("USDT".into()),
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
        origin: event.attributes.origin.clone(),
        fields: event.fields.iter().map(|field| format!("{} {}", field.ty, field.name)).collect(),
        file: file.map(Path::to_owned),
    }
}

/// Returns the row of marks that a file carries, and that get their names while it runs.
fn unnamed(origin: &str, file: &Path) -> Row {
    let option = match Tracer::ALL.into_iter().find(|tracer| tracer.name() == origin) {
        Some(tracer) => format!("--marks {}", tracer.word()),
        None => "--lttng".into(),
    };
    Row {
        name: origin.into(),
        level: "",
        kind: "marks",
        origin: Some(origin.into()),
        fields: vec![format!("named while it runs, with record {option}")],
        file: Some(file.to_owned()),
    }
}

/// Returns the events that a process has described while it runs.
fn events_in_memory(pid: &str) -> Vec<Event> {
    match tompion_marks::described_in_memory(pid) {
        Ok(found) => {
            if found.is_cut {
                print_status(format!(
                    "process {pid} has named more events than are listed: at most {MAX_EVENTS}, in 64 MiB"
                ));
            }
            if found.unread > 0 {
                print_status(format!(
                    "can't read {} pieces of process {pid}'s memory with events",
                    found.unread
                ));
            }
            found.events
        }
        Err(error) => {
            print_status(format!("can't read the events that process {pid} has named: {error}"));
            Vec::new()
        }
    }
}
