//! `tompion stat`: summarizes traces.

mod durations;

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use serde::Serialize;
use tompion_analysis::durations::Durations;
use tompion_counting::Document;
use tompion_filter::Expression;
use tompion_reader::{
    manifest::{Child, ExecutedProgram},
    stat::Summary,
};
use tompion_status::write_triggers;

use crate::{
    filter,
    messages::{self, escape_control, pluralize, print_status, with_thousands},
    selection,
};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tompion stat\n  tompion stat --json tompion-find-20260101-120000 | jq .lost\n  \
    tompion stat -e 'syscall_*' trace/\n  \
    tompion stat --json trace/ | jq '.durations.jobs[] | {name, count, late, p99_ns}'"
)]
pub struct Arguments {
    /// Folders with CTF traces [default: the newest in this folder]
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Count events whose provider:name matches one of these (repeatable) [default: all]
    #[arg(short, long = "event", value_name = "GLOBS", value_delimiter = ',')]
    events: Vec<String>,
    /// Count events for which this is true: `rows > 100 && table == "orders*"`
    #[arg(long, value_name = "EXPR", value_parser = filter::parse, allow_hyphen_values = true)]
    filter: Option<Expression>,
    /// Omit durations of jobs, spans and system calls, which take most of the time. --filter omits
    /// them, too, because it may separate begins from ends
    #[arg(long)]
    no_durations: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let paths = super::traces(&arguments.traces)?;
    let incomplete = super::warn_if_incomplete(&paths);
    let counts: Result<Vec<_>, _> = paths.iter().map(|path| Document::of_trace(path)).collect();
    let counts: Vec<Document> = counts.map_err(anyhow::Error::msg)?.into_iter().flatten().collect();
    let mut traces = match tompion_reader::open(&paths) {
        // All was counted, and nothing recorded.
        Err(tompion_reader::Error::NoTrace(_)) if !counts.is_empty() && !arguments.json => {
            write_counts(&counts, &mut anstream::stdout().lock())?;
            return Ok(ExitCode::SUCCESS);
        }
        traces => traces?,
    };
    let filter = filter::compile(arguments.filter.as_ref())?;
    let events = arguments.events.clone();
    traces.select(tompion_reader::Selection { events, filter, ..Default::default() });
    if !filter::fits(arguments.filter.as_ref(), &traces) {
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    let summary = tompion_reader::stat::summarize(&mut traces);
    let is_measured = !arguments.no_durations && arguments.filter.is_none();
    let durations = is_measured
        .then(|| tompion_analysis::durations::measure(&|| tompion_reader::open(&paths), &arguments.events));
    let durations = durations.transpose()?;
    let mut output = anstream::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(
            &mut output,
            &Stat { incomplete, summary: &summary, durations: durations.as_ref(), counts: &counts },
        )?;
        writeln!(output)?;
    } else {
        write_text(&summary, incomplete, &mut output)?;
        if let Some(durations) = &durations {
            durations::write(durations, &mut output)?;
        }
    }
    if !arguments.json && !counts.is_empty() {
        writeln!(output)?;
        write_counts(&counts, &mut output)?;
    }
    for regression in &summary.timestamp_regressions {
        print_status(format!("warning: {regression}"));
    }
    for corruption in &summary.corruptions {
        print_status(corruption);
    }
    let finds_names = selection::find_names(&arguments.events, &traces);
    let is_sound = summary.corruptions.is_empty() && finds_names;
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::from(messages::FAILED) })
}

fn write_counts(counts: &[Document], output: &mut dyn Write) -> std::io::Result<()> {
    let tables: Vec<_> = counts.iter().map(|document| document.to_table(false)).collect();
    write!(output, "{}", tables.join("\n"))
}

/// Maximum number of rows of each table in the text.
const MAX_ROWS: usize = 20;

/// Summary, with results that only this command has.
#[derive(Serialize)]
struct Stat<'a> {
    /// Whether the recording's session was killed, so that neither events nor losses are all there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
    #[serde(flatten)]
    summary: &'a Summary,
    /// Durations of jobs, spans and system calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    durations: Option<&'a Durations>,
    /// Events that were counted in place, of each trace that has counts.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    counts: &'a [Document],
}

/// Writes the processes that were named to be recorded, but for those that have events of their
/// own.
fn write_targets(summary: &Summary, output: &mut dyn Write) -> std::io::Result<()> {
    let has_events = |pid: i64| summary.processes.iter().any(|process| process.pid == pid);
    let targets: Vec<_> = summary.targets.iter().filter(|target| !has_events(target.pid)).collect();
    if targets.is_empty() {
        return Ok(());
    }
    writeln!(output, "\nrecorded by -p")?;
    for target in targets.iter().take(MAX_ROWS) {
        let (name, end) = (escape_control(&target.name), target.end.as_deref().unwrap_or("end not known"));
        writeln!(output, "  {:>8}  {name:<16} {}", target.pid, escape_control(end))?;
        if !target.command_line.is_empty() {
            writeln!(output, "            {}", messages::command_line(&target.command_line))?;
        }
    }
    more(targets.len(), output)
}

fn write_text(summary: &Summary, incomplete: bool, output: &mut dyn Write) -> std::io::Result<()> {
    writeln!(output, "events       {}", with_thousands(summary.events))?;
    let causes: Vec<String> = summary
        .lost
        .causes
        .iter()
        .map(|(cause, count)| format!("{} {}", escape_control(cause), with_thousands(*count)))
        .collect();
    let causes = if causes.is_empty() { String::new() } else { format!("  ({})", causes.join(", ")) };
    let lost = match (incomplete || summary.losses_unknown, summary.lost.total) {
        (true, 0) => "not known".to_owned(),
        (true, lost) => format!("{} or more", with_thousands(lost)),
        (false, lost) => with_thousands(lost),
    };
    writeln!(output, "lost         {lost}{causes}")?;
    if summary.not_traced != 0 {
        writeln!(output, "not traced   {} of vfork children", pluralize(summary.not_traced, "event"))?;
    }
    if summary.losses_unknown_of != 0 {
        let processes = pluralize(summary.losses_unknown_of, "process");
        writeln!(output, "             unknown of {processes}, whose counters are impossible")?;
    }
    if summary.rejected_processes != 0 {
        let processes = pluralize(summary.rejected_processes, "process");
        writeln!(output, "not recorded {processes}, which could not join")?;
    }
    let beyond = summary.beyond_limits.iter().map(|(what, count)| (what.as_str(), *count));
    if let Some(beyond) = messages::beyond_limits(beyond) {
        writeln!(output, "not kept     {beyond}  (beyond the limits of one recording)")?;
    }
    if let Some(change) = summary.rule_changes.last() {
        let times = pluralize(summary.rule_changes.len() as u64, "time");
        let at = moment(change.time_ns);
        writeln!(output, "rules        changed {times}, last at {at}  (what they leave out is in no count)")?;
    }
    write_triggers(&summary.trigger_changes, &summary.firings, &moment, output)?;
    for dropped in summary.dropped_chunks.iter().take(MAX_ROWS) {
        writeln!(output, "missing      {}", dropped.row(&moment))?;
    }
    more(summary.dropped_chunks.len(), output)?;
    if summary.lost_packets != 0 {
        writeln!(output, "lost packets {}", with_thousands(summary.lost_packets))?;
    }
    if summary.overwritten != 0 {
        let gaps = match summary.overwritten_gaps {
            0 => String::new(),
            gaps => format!("; {} between snapshots", pluralize(gaps, "gap")),
        };
        writeln!(output, "overwritten  {}  (by design{gaps})", with_thousands(summary.overwritten))?;
    }
    if let (Some(begin), Some(end)) = (summary.begin_ns, summary.end_ns) {
        let span = (end - begin) as f64 / 1e9;
        writeln!(output, "from         {}", moment(begin))?;
        writeln!(output, "to           {}  ({span:.6} s)", moment(end))?;
    }
    let is_listed = |pid: i64| summary.processes.iter().any(|process| process.pid == pid);
    let commands = summary.commands.iter().filter(|command| !command.pid.is_some_and(is_listed));
    for command in commands.take(MAX_ROWS) {
        let pid = command.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
        let end = command.end.as_deref().unwrap_or("its end is not known");
        writeln!(output, "command      {}{pid}", messages::command_line(&command.command_line))?;
        writeln!(output, "             {}", escape_control(end))?;
    }
    write_targets(summary, output)?;
    if !summary.processes.is_empty() {
        writeln!(output, "\nprocesses")?;
        for process in summary.processes.iter().take(MAX_ROWS) {
            let end = escape_control(process.end.as_deref().unwrap_or(""));
            let how = if process.is_without_rseq() { "  (without rseq)" } else { "" };
            writeln!(output, "  {:>8}  {:<16} {end}{how}", process.pid, escape_control(&process.name))?;
            if !process.command_line.is_empty() {
                let parent =
                    process.parent.map(|parent| format!("  (child of {parent})")).unwrap_or_default();
                let words = messages::command_line(&process.command_line);
                writeln!(output, "            {words}{parent}")?;
            }
        }
        more(summary.processes.len(), output)?;
    }
    write_programs(summary, output)?;
    write_children(summary, output)?;
    if !summary.by_event.is_empty() {
        writeln!(output, "\nevents by name")?;
        let mut by_count: Vec<_> = summary.by_event.iter().collect();
        by_count.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let width = by_count.first().map_or(0, |(_, count)| with_thousands(**count).len()).max(8);
        for (name, count) in by_count.iter().take(MAX_ROWS) {
            writeln!(output, "  {:>width$}  {}", with_thousands(**count), escape_control(name))?;
        }
        more(by_count.len(), output)?;
    }
    Ok(())
}

/// Writes the programs of processes that have no events, each with what is known of its process.
fn write_programs(summary: &Summary, output: &mut dyn Write) -> std::io::Result<()> {
    let has_events = |pid: i64| summary.processes.iter().any(|process| process.pid == pid);
    let is_other = |program: &&ExecutedProgram| !has_events(program.pid) && !is_command(program, summary);
    let others: Vec<_> = summary.programs.iter().filter(is_other).collect();
    if others.is_empty() {
        return Ok(());
    }
    writeln!(output, "\nother programs executed")?;
    for program in others.iter().take(MAX_ROWS) {
        let of_child = |child: &Child| {
            let end = child.end.as_deref().unwrap_or("its end was not seen");
            format!("  {}  (child of {})", escape_control(end), child.parent)
        };
        let life = program.child.as_ref().map(of_child).unwrap_or_default();
        writeln!(output, "  {:>8}  {}{life}", program.pid, escape_control(&program.file))?;
    }
    more(others.len(), output)
}

/// Writes the children that executed no program and have no events, such as a server's workers.
fn write_children(summary: &Summary, output: &mut dyn Write) -> std::io::Result<()> {
    let named = summary.processes.iter().map(|process| process.pid);
    let named = named.chain(summary.programs.iter().map(|program| program.pid));
    let named = named.chain(summary.targets.iter().map(|target| target.pid));
    let named: BTreeSet<i64> =
        named.chain(summary.commands.iter().filter_map(|command| command.pid)).collect();
    let others: Vec<_> = summary.children.iter().filter(|child| !named.contains(&child.pid)).collect();
    if others.is_empty() {
        return Ok(());
    }
    writeln!(output, "\nchildren that executed no program")?;
    for child in others.iter().take(MAX_ROWS) {
        let end = child.end.as_deref().unwrap_or("its end was not seen");
        writeln!(output, "  {:>8}  {}  (child of {})", child.pid, escape_control(end), child.parent)?;
    }
    more(others.len(), output)
}

/// Says whether a program is the one that a command names. If its process executed several, that is
/// the one of its name.
fn is_command(program: &ExecutedProgram, summary: &Summary) -> bool {
    let Some(command) = summary.commands.iter().find(|command| command.pid == Some(program.pid)) else {
        return false;
    };
    let name = |path: &str| Path::new(path).file_name().map(OsStr::to_owned);
    let is_named = |other: &ExecutedProgram| {
        name(&other.file) == command.command_line.first().and_then(|word| name(word))
    };
    let of_process = summary.programs.iter().filter(|other| other.pid == program.pid);
    is_named(program) || of_process.count() == 1
}

fn more(rows: usize, output: &mut dyn Write) -> std::io::Result<()> {
    if rows > MAX_ROWS {
        writeln!(output, "  … and {} more (--json has all)", rows - MAX_ROWS)?;
    }
    Ok(())
}

fn moment(ns: i64) -> String {
    let zoned =
        jiff::Timestamp::from_nanosecond(ns.into()).map(|time| time.to_zoned(jiff::tz::TimeZone::system()));
    zoned.map_or_else(|_| format!("{ns} ns"), |time| time.strftime("%Y-%m-%d %H:%M:%S.%9f").to_string())
}
