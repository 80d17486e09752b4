//! `tompion print`: prints the events of traces.

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use tompion_os::DirHandle;
use tompion_reader::{
    Selection, TraceSet, calls,
    follow::{self, Follow},
    json::{self, JsonOptions},
    text::{self, COLOURS, ClockFormat, HeaderFields, Names, PrintOptions, TimeFormat},
};

use crate::{
    messages::{self, print_status},
    selection,
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion print\n  \
    tompion print -e 'db:*' --from 14:03:05.25 --to 14:03:06 trace/\n  \
    tompion print --filter 'rows > 100 && table == \"orders*\" && $tid == 12'\n  \
    tompion print --format json trace/ | jq -c .\n  \
    tompion print --explain -e 'syscall_*_openat' trace/\n  \
    tompion print --calls -e '*openat,*connect' trace/\n  \
    tompion print --follow -e 'db:*' trace/\n  \
    tompion print --clock-seconds -f all lttng-traces/auto-*/")]
pub struct Arguments {
    /// Folders with CTF traces of any producer [default: the newest in this folder]
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    selection: selection::Arguments,
    /// Keep printing new events until the recording ends or Ctrl-C
    #[arg(long, conflicts_with = "last")]
    follow: bool,
    /// Choose the output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Choose the fields before an event's name, separated by commas [default:
    /// trace:hostname,trace:procname,trace:vpid]
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FIELD",
        value_delimiter = ',',
        hide_possible_values = false
    )]
    fields: Vec<Field>,
    /// Choose which field names are printed, separated by commas [default: payload,context]
    #[arg(short, long, value_enum, value_name = "NAME", value_delimiter = ',')]
    names: Vec<Name>,
    /// Colour the names of events and fields
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    color: When,
    /// Print times in seconds since 1970
    #[arg(long)]
    clock_seconds: bool,
    /// Print times in clock cycles
    #[arg(long)]
    clock_cycles: bool,
    /// Print times with the date
    #[arg(long)]
    clock_date: bool,
    /// Print times, and read --from and --to, in UTC instead of local time
    #[arg(long)]
    clock_gmt: bool,
    /// Add this many seconds to all times (may be negative)
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, conflicts_with = "follow", value_parser = whole)]
    clock_offset: Option<i64>,
    /// Add this many nanoseconds to all times, in addition to --clock-offset
    #[arg(long, value_name = "NS", allow_negative_numbers = true, conflicts_with = "follow", value_parser = whole)]
    clock_offset_ns: Option<i64>,
    /// Omit the time since the previous event
    #[arg(long)]
    no_delta: bool,
    /// Don't resolve code addresses and stacks to function names
    #[arg(long)]
    no_symbols: bool,
    /// Decode flags, commands and errors of system calls to their C names (text and json)
    #[arg(long)]
    explain: bool,
    /// Print each system call on one line, as strace does, and each mark as its text alone
    #[arg(long)]
    calls: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// The layout of babeltrace2
    Text,
    /// One JSON object per line
    Json,
    /// Comma-separated values
    Csv,
}

/// As babeltrace2 calls them.
#[derive(Clone, Copy, ValueEnum)]
enum Field {
    /// All of these
    All,
    /// Name of the trace
    Trace,
    /// Name of the host
    #[value(name = "trace:hostname")]
    Hostname,
    /// Traced domain: ust, kernel
    #[value(name = "trace:domain")]
    Domain,
    /// Name of the process, in traces of a single process
    #[value(name = "trace:procname")]
    Procname,
    /// Process id
    #[value(name = "trace:vpid")]
    Vpid,
    /// Log level of the event
    Loglevel,
    /// URI of the event class's model (model.emf.uri)
    Emf,
    /// Accepted for compatibility with babeltrace2: no trace has call sites
    Callsite,
}

/// As babeltrace2 calls them.
#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// Names of payload fields
    #[value(aliases = ["arg", "args"])]
    Payload,
    /// No names
    None,
    /// All names
    All,
    /// Names of the scopes
    Scope,
    /// Names of header fields
    Header,
    /// Names of context fields
    #[value(alias = "ctx")]
    Context,
}

#[derive(Clone, Copy, ValueEnum)]
enum When {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

fn whole(text: &str) -> Result<i64, &'static str> {
    text.parse().map_err(|_| "expected a whole number of at most 64 bits")
}

/// Returns the fields before an event's name.
fn header_fields(fields: &[Field]) -> HeaderFields {
    if fields.is_empty() {
        return HeaderFields::default();
    }
    let mut shown = HeaderFields::NONE;
    for field in fields {
        match field {
            Field::All => shown = HeaderFields::ALL,
            Field::Trace => shown.trace = true,
            Field::Hostname => shown.hostname = true,
            Field::Domain => shown.domain = true,
            Field::Procname => shown.procname = true,
            Field::Vpid => shown.vpid = true,
            Field::Loglevel => shown.log_level = true,
            Field::Emf => shown.emf = true,
            Field::Callsite => {}
        }
    }
    shown
}

/// Returns the field names to print.
fn names(names: &[Name]) -> Names {
    if names.is_empty() {
        return Names::default();
    }
    let mut shown = Names::NONE;
    for name in names {
        match name {
            Name::All => shown = Names::ALL,
            Name::None => shown = Names::NONE,
            Name::Payload => shown.payload = true,
            Name::Context => shown.context = true,
            Name::Scope => shown.scope = true,
            Name::Header => shown.header = true,
        }
    }
    shown
}

impl When {
    fn is_now(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let is_plain = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
                let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
                std::io::stdout().is_terminal() && !is_plain("NO_COLOR") && !is_dumb
            }
        }
    }
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.explain && matches!(arguments.format, Format::Csv) {
        print_status("--explain: expected --format text or json, found csv, which has no column for it");
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    if let Some(option) = text_only(arguments).filter(|_| !matches!(arguments.format, Format::Text)) {
        print_status(format!("{option}: expected --format text, found another format"));
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    if let Some(option) = unsupported_by_calls(arguments).filter(|_| arguments.calls) {
        print_status(format!("{option}: expected without --calls, found both"));
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    let paths = super::traces(&arguments.traces)?;
    super::warn_if_incomplete(&paths);
    let zone = selection::zone(arguments.clock_gmt);
    let shift = shift(arguments)?;
    let selection = arguments.selection.selection_of_shifted(&paths, &zone, shift)?;
    let options = options(arguments);
    let mut output = messages::output(if options.colour { &COLOURS } else { &[] });
    if arguments.follow {
        return follow(&paths, selection, &format(arguments, options), &mut output);
    }
    let mut traces = tompion_reader::open(&paths)?;
    if shift != 0 {
        traces = traces.shifted(&vec![shift; traces.traces().len()])?;
    }
    traces.select(selection.clone());
    if !arguments.selection.fits(&traces) {
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    if !arguments.no_symbols {
        traces.name_addresses();
    }
    match arguments.format {
        Format::Text if arguments.calls => {
            if !selection.events.is_empty() {
                let events = calls::whole_calls(&traces, &selection.events);
                traces.select(Selection { events, ..selection });
            }
            calls::print(&mut traces, &options.time, &mut output)?
        }
        Format::Text => text::print(&mut traces, &options, &mut output)?,
        Format::Json => json::print(&mut traces, json_options(arguments), &mut output)?,
        Format::Csv => json::print_csv(&mut traces, &mut output)?,
    };
    output.flush()?;
    let code = report(&traces, &options);
    Ok(if arguments.selection.finds_names(&traces) { code } else { ExitCode::from(messages::FAILED) })
}

/// Returns the first given option that only affects the text format.
fn text_only(arguments: &Arguments) -> Option<&'static str> {
    let given = [
        ("--fields", !arguments.fields.is_empty()),
        ("--names", !arguments.names.is_empty()),
        ("--clock-cycles", arguments.clock_cycles),
    ];
    given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
}

/// Returns the first given option that --calls doesn't support: a filter may separate returns from
/// entries.
fn unsupported_by_calls(arguments: &Arguments) -> Option<&'static str> {
    let given = [
        ("--format", !matches!(arguments.format, Format::Text)),
        ("--filter", arguments.selection.has_filter()),
        ("--follow", arguments.follow),
        ("--explain", arguments.explain),
        ("--fields", !arguments.fields.is_empty()),
        ("--names", !arguments.names.is_empty()),
        ("--clock-cycles", arguments.clock_cycles),
    ];
    given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
}

/// Returns the offset that is added to all times, in nanoseconds.
fn shift(arguments: &Arguments) -> anyhow::Result<i64> {
    let seconds = arguments.clock_offset.unwrap_or(0).checked_mul(1_000_000_000);
    let shift = seconds.and_then(|shift| shift.checked_add(arguments.clock_offset_ns.unwrap_or(0)));
    shift.context("expected a --clock-offset of at most 292 years (9223372036 s), found a larger one")
}

/// Returns the options of the text format.
fn options(arguments: &Arguments) -> PrintOptions {
    let clock = match (arguments.clock_cycles, arguments.clock_seconds) {
        (true, _) => ClockFormat::Cycles,
        (false, true) => ClockFormat::Seconds,
        (false, false) => ClockFormat::TimeOfDay,
    };
    PrintOptions {
        time: TimeFormat { clock, date: arguments.clock_date, utc: arguments.clock_gmt },
        no_delta: arguments.no_delta,
        fields: header_fields(&arguments.fields),
        names: names(&arguments.names),
        colour: arguments.color.is_now(),
        explain: arguments.explain,
    }
}

fn json_options(arguments: &Arguments) -> JsonOptions {
    JsonOptions { explain: arguments.explain }
}

fn format(arguments: &Arguments, options: PrintOptions) -> follow::Format {
    match arguments.format {
        Format::Text => follow::Format::Text(options),
        Format::Json => follow::Format::Json(json_options(arguments)),
        Format::Csv => follow::Format::Csv,
    }
}

/// Interval at which --follow reads. Within it, all streams must have delivered events that are
/// older than the newest packet.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(400);

/// Prints the events so far and new ones, until all recordings have ended.
fn follow(
    paths: &[PathBuf],
    selection: Selection,
    format: &follow::Format,
    output: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    if matches!(format, follow::Format::Csv) {
        output.write_all(json::CSV_COLUMNS)?;
    }
    let mut follow = Follow::new(paths, selection);
    let mut code = ExitCode::SUCCESS;
    loop {
        // Checked before reading, so that the last round reads everything.
        let is_last = paths.iter().all(|path| has_ended(path));
        let round = follow.round(is_last, format, output)?;
        round.losses.iter().for_each(|loss| print_status(format!("warning: {loss}")));
        round.corruptions.iter().for_each(print_status);
        if !round.corruptions.is_empty() {
            code = ExitCode::from(messages::FAILED);
        }
        if is_last {
            return Ok(code);
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

/// Returns whether a recording has ended or was killed. That is unknown of other producers' traces.
fn has_ended(trace: &Path) -> bool {
    let folders = trace.ancestors().take(4);
    let manifest = folders
        .filter_map(|folder| tompion_manifest::Manifest::read(&DirHandle::open(folder).ok()?).ok())
        .next();
    manifest.is_some_and(|manifest| !manifest.is_recording()) || tompion_session::incomplete(trace).is_some()
}

/// Reports losses and corruptions on standard error.
fn report(traces: &TraceSet, options: &PrintOptions) -> ExitCode {
    for warning in text::all_warnings(traces, options) {
        print_status(format!("warning: {warning}"));
    }
    super::report_problems(traces);
    if traces.corruptions().is_empty() { ExitCode::SUCCESS } else { ExitCode::from(messages::FAILED) }
}
