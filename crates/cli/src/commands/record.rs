//! `tompion record`: configures and runs a recording, and reports its outcome.

mod chunks;
mod command_start;
mod memory;
mod targets;

use std::{
    ffi::OsStr,
    io::{ErrorKind, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use tompion_kernel::{
    AvailableEvents, Selection, UnknownEvent,
    context::{Context as KernelContext, Contexts},
    filter::Filter,
    probes::ProbeSpecError,
};
use tompion_manifest::{KERNEL, RECORDER};
use tompion_marks::Tracer;
use tompion_os::{DirHandle, User};
use tompion_protocol::rules::{Rules, matches_name};
use tompion_schema::Level;
use tompion_session::{
    ChoiceError, Config, Context, Error, KernelChoice, Mode, Outcome, RecordingSummary, Target,
};
use tompion_status::{NOT_WRITTEN, describe_sources, losses, none_fired, suggestion, total};

pub use command_start::separate as separate_command;

use crate::{
    exit_status, filter,
    messages::{self, nearest, nearest_hint, pluralize, print_status},
    units,
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion record -- ./server --port 80\n  \
    tompion record -e 'db:*' -x 'db:noisy*' --level info -- ./server\n  \
    tompion record --mode overwrite -o crash -- ./robot    # flight recorder (tompion snapshot)\n  \
    tompion record --preload malloc -- find /usr -name '*.h'\n  \
    tompion record --preload python -- python3 app.py\n  \
    tompion record --marks nvtx -- python3 train.py    # NVTX ranges of PyTorch, CUDA libraries\n  \
    tompion record --duration 10s --subbuf-size 1M -- ./server\n  \
    tompion record --mode overwrite --memory 256M -- ./server   # for the rings of all its programs\n  \
    tompion record --filter 'rows > 100 && $comm == \"worker*\"' -c comm,prio -- ./server\n  \
    tompion record -k -- make               # with the kernel, and the system calls of make\n  \
    tompion record --kernel='sched_*,irq_*' --duration 5s\n  \
    tompion record -k sched_switch -c kstack,ustack -- ./server    # where it waits\n  \
    sudo tompion record --as-root -k -- ./robot    # real-time priorities take root\n  \
    tompion record -k 'uprobe:bash:readline(prompt: str)' -p 4711\n  \
    tompion record -k 'usdt:python3:python:gc__*' -- python3 job.py\n  \
    tompion record -p 4711 --duration 10s   # a running process and its children\n  \
    tompion record -k -p nginx,redis-server --duration 10s\n  \
    tompion record --backing /var/tmp/rings -o run -- ./robot    # survives a power loss\n  \
    tompion record --session flight --mode overwrite -- ./robot    # tompion status flight\n  \
    tompion record --rotate 10min --keep age=2d,size=50G -- ./server    # a chunk each 10 minutes\n  \
    tompion record --mode overwrite --trigger 'external:slow -> snapshot after 5s limit 5/h' -- ./server\n  \
    tompion record --mode overwrite --trigger 'span:app:request > 10ms -> snapshot after 5s' -- ./server\n  \
    tompion record --count 'count app:request by status' -e none -- ./server    # tompion counts\n  \
    tompion record --count 'histogram of size by comm' -x 'net:*' -- ./server\n  \
    tompion record --session flight --linger 10s --resume -o run    # goes on after a kill\n  \
    tompion record                          # all instrumented programs of this user, until Ctrl-C\n  \
    tompion record --session shop --programs 'name=nginx*' --programs cgroup='/shop/*' -o shop\n  \
    sudo tompion record --programs 'uid=robot' --programs '!name=gui' --mode overwrite\n\n\
Exit status: that of the command; if a signal killed it, tompion dies by the same signal. 125: the command succeeded \
and tompion failed (nothing recorded, disk full), or tompion could not start. 126: the command can't be run. 127: it \
was not found. A command that --duration ends counts as succeeded.\n\n\
Environment of a program: TOMPION_RECORD=DIR records it below DIR, with the options in TOMPION_RECORD_OPTIONS. \
TOMPION_DISABLE=1 keeps it out of all recordings.")]
pub struct Arguments {
    /// Write the trace to this folder, which must not exist [default: tompion-CMD-TIME]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Record events whose provider:name matches one of these (repeatable) [default: all]
    #[arg(short, long = "event", value_name = "GLOBS", value_delimiter = ',')]
    events: Vec<String>,
    /// Exclude events whose provider:name matches (repeatable)
    #[arg(short = 'x', long = "exclude", value_name = "GLOBS", value_delimiter = ',')]
    exclude: Vec<String>,
    /// Record events of this log level or more severe: emerg, alert, crit, err, warning, notice,
    /// info, debug… or 0 to 14
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    level: Option<Level>,
    /// Record only events for which this is true, such as 'rows > 100 && table == "orders*"'
    #[arg(long, value_name = "EXPR", value_parser = filter::for_recording)]
    filter: Option<String>,
    /// Record context fields with each event: pid, comm, prio, ns (namespaces), cgroup (read by the
    /// recorder, so it may lag), app (defined by the program). For kernel events: comm, prio,
    /// cgroup (at the event), kstack, ustack (kernel and user stack). The CPU is always recorded
    #[arg(short, long = "context", value_name = "LIST", value_delimiter = ',', value_parser = context)]
    contexts: Vec<ContextArgument>,
    /// Record kernel events too: scheduling, interrupts, process lifecycle, block I/O, and system
    /// calls of the recorded processes. Or those whose names match, such as
    /// 'sched_*,syscall_entry_openat' (see `tompion list --kernel`; `-k -- CMD` for the defaults),
    /// and probes: uprobe:BINARY:FUNCTION(NAME: TYPE, …), uretprobe:…, usdt:BINARY:PROVIDER:NAME
    /// (see `tompion list BINARY`), kprobe:FUNCTION(…), kretprobe:…
    #[arg(short, long, value_name = "GLOBS", num_args = 0..=1, default_missing_value = "", value_delimiter = ',')]
    kernel: Option<Vec<String>>,
    /// Discard new events when a ring is full, or overwrite the oldest (flight recorder)
    #[arg(long, value_enum, default_value = "discard")]
    mode: ModeArgument,
    #[command(flatten)]
    memory: memory::MemoryOptions,
    /// Record the thread id with each event [default]
    #[arg(long, overrides_with = "no_tid")]
    tid: bool,
    /// Don't record thread ids
    #[arg(long)]
    no_tid: bool,
    /// Record calls of library functions in any program, without recompiling it (repeatable)
    #[arg(long, value_enum, value_name = "WHAT")]
    preload: Vec<Preload>,
    /// Record programs and libraries that were compiled for LTTng-UST (2.13 or newer), as they are:
    /// they load Tompion's library in place of LTTng's
    #[arg(long)]
    lttng: bool,
    /// Record the marks that programs carry for other tracers: itt (Intel), nvtx (NVIDIA). Tasks
    /// and ranges are spans
    #[arg(long, value_parser = tracer, value_name = "TRACERS", value_delimiter = ',')]
    marks: Vec<Tracer>,
    /// Keep the rings in files in this folder, which must not exist. `tompion recover` completes
    /// the trace after tompion is killed (nothing is lost) or the machine stops (on a disk, pages
    /// not yet written back are lost; on persistent memory, nothing). Page faults may make events
    /// wait for the disk
    #[arg(long, value_name = "DIR")]
    backing: Option<PathBuf>,
    #[command(flatten)]
    chunks: chunks::ChunkOptions,
    /// Count events in the programs, without a record, as '[NAME =] FUNCTION [GLOBS] [by KEYS]
    /// [limit N] [if EXPR]' (repeatable). FUNCTION is count, or sum, min, max or histogram of an
    /// integer FIELD: 'histogram of size net:*'. KEYS are up to two of fields, event and tid, and
    /// comm, pid and cgroup (of the process). See `tompion counts`; -e none records nothing besides
    #[arg(long = "count", value_name = "RULE", conflicts_with_all = ["backing", "gather_as", "selector"])]
    counts: Vec<tompion_counts::Rule>,
    /// Stop recording, and end the command, after this time, such as 10s
    #[arg(long, alias = "for", value_name = "DURATION", value_parser = units::duration)]
    duration: Option<Duration>,
    /// Record running processes by id or name (all that have it), with their present and future
    /// children, such as 4711,nginx (repeatable)
    #[arg(short, long = "pid", value_name = "LIST", value_delimiter = ',', conflicts_with = "command")]
    pids: Vec<String>,
    /// Record programs with Tompion events that run, and those that start later, until Ctrl-C or
    /// `tompion stop`: `*` (of this user), or those with all of a list, such as
    /// name=GLOB,uid=USER,cgroup=GLOB,pid=N. `!` excludes: '!name=chrome' (repeatable; one is
    /// enough). As root, programs of all users, unless the set says `*` or uid. A command is
    /// recorded besides, and ends the recording. Kernel events (-k) are those of the whole machine,
    /// or with a command those that -k records of it
    #[arg(long, value_name = "SET", conflicts_with = "pids")]
    programs: Vec<String>,
    /// With -p, exclude children that already run
    #[arg(long, requires = "pids")]
    no_children: bool,
    /// Name the recording, so that other commands find it: `tompion status NAME`, `tompion rules
    /// NAME` [default: the process id]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// If tompion is killed, let the programs write to their rings for this time, such as 10s,
    /// until `record --resume` continues the trace: nothing is lost that the rings can hold. They
    /// give room only for what was written to the trace, so a slow disk needs larger ones
    #[arg(long, value_name = "DURATION", value_parser = units::duration, conflicts_with_all = ["backing", "gather_as", "selector"])]
    linger: Option<Duration>,
    /// Continue the recording in the folder of -o, if tompion was killed there and --linger is not
    /// over; its settings stay, and no command is started. Without such a folder, begin
    #[arg(long, requires = "output", conflicts_with_all = ["backing", "gather_as", "selector"])]
    resume: bool,
    /// Under sudo, run the command as root instead of the user who called sudo. The trace is the
    /// user's all the same
    #[arg(long, requires = "command")]
    as_root: bool,
    /// Record programs of these users only, for the user behind sudo (used by the supervisor for
    /// grants)
    #[arg(long, hide = true, value_name = "UIDS", value_delimiter = ',', conflicts_with_all = ["command", "pids", "gather_as", "selector", "linger", "resume", "backing"])]
    only_users: Option<Vec<u32>>,
    /// Refuse triggers that run commands
    #[arg(long, hide = true, requires = "only_users")]
    no_commands: bool,
    /// Folder below which programs record themselves (used by libtompion for TOMPION_RECORD)
    #[arg(long, hide = true, value_name = "DIR", requires = "gather_as", conflicts_with_all = ["command", "pids", "output", "programs"])]
    gather_in: Option<PathBuf>,
    /// Name under which they look for the session
    #[arg(long, hide = true, value_name = "NAME")]
    gather_as: Option<String>,
    /// Two buffers, of which the first word of this mappable BPF array selects one: a descriptor's
    /// number
    #[arg(long, hide = true, value_name = "NUMBER", conflicts_with_all = ["command", "backing", "gather_as"])]
    selector: Option<i32>,
    /// Command to run and record, with its arguments [default: record every instrumented program of
    /// this user]
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ContextArgument {
    /// Field that events have anyway, or that --tid selects.
    Always,
    Thread(Context),
    Application,
    /// Field of kernel events only.
    Stack(KernelContext),
}

fn context(text: &str) -> Result<ContextArgument, String> {
    if let Some((_, context)) = Context::ALL.iter().find(|(name, _)| *name == text) {
        return Ok(ContextArgument::Thread(*context));
    }
    match text {
        "app" => Ok(ContextArgument::Application),
        "kstack" => Ok(ContextArgument::Stack(KernelContext::KernelStack)),
        "ustack" => Ok(ContextArgument::Stack(KernelContext::UserStack)),
        "cpu" | "tid" => Ok(ContextArgument::Always),
        _ => {
            let names =
                Context::ALL.iter().map(|(name, _)| *name).chain(["app", "kstack", "ustack", "cpu", "tid"]);
            let names: Vec<&str> = names.collect();
            let near = nearest(text, names.iter().copied());
            let hint =
                near.first().map_or_else(|| names.join(", "), |near| format!("did you mean `{near}`?"));
            Err(format!("no context `{text}`; {hint}"))
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum ModeArgument {
    Discard,
    Overwrite,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Preload {
    /// malloc, calloc, realloc, free and related functions
    Malloc,
    /// mutexes, read-write locks, condition variables, barriers, semaphores, thread start and exit
    Pthread,
    /// entry and exit of functions, in programs compiled with -finstrument-functions
    Func,
    /// functions, collections, logging and tasks of asyncio, in Python programs
    Python,
}

/// Parses the name of a tracer.
fn tracer(text: &str) -> Result<Tracer, String> {
    Tracer::from_word(text).ok_or_else(|| "expected itt or nvtx".into())
}

/// Parses a log level.
pub fn level(text: &str) -> Result<Level, String> {
    Level::parse(text).ok_or_else(|| {
        let names = Level::names();
        match nearest(&text.to_lowercase(), names.iter().copied()).first() {
            Some(near) => format!("no level `{text}`; did you mean `{near}`?"),
            None => format!("expected one of {}, or 0 to 14", names.join(", ")),
        }
    })
}

#[cfg(test)]
impl Arguments {
    /// Checks what the parser leaves to a later step: how probes are written.
    pub fn check_probes(&self) -> Result<(), String> {
        use tompion_kernel::{Words, probes::ProbeSpec};
        let words = Words::parse(self.kernel.as_deref().unwrap_or_default());
        let mut parsed = words.probes.iter().map(|probe| ProbeSpec::parse(probe));
        parsed.try_for_each(|probe| probe.map(drop)).map_err(|error| error.to_string())
    }
}

/// Says why nothing is recorded.
fn refuse(problem: impl std::fmt::Display) -> anyhow::Result<ExitCode> {
    print_status(problem);
    Ok(ExitCode::from(exit_status::OWN_FAILURE))
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let target = match targets::target(&arguments) {
        Ok(target) => target,
        Err(problem) => return refuse(problem),
    };
    if let Some(problem) = arguments.chunks.obstacle(matches!(arguments.mode, ModeArgument::Overwrite)) {
        return refuse(problem);
    }
    if let Err(problem) = tompion_counts::check(&arguments.counts) {
        return refuse(problem);
    }
    let kernel = match kernel(&arguments, &target) {
        Ok(kernel) => kernel,
        Err(problem) => return refuse(problem),
    };
    if let Some(parent) = &arguments.gather_in {
        log_to_file(parent)?;
    }
    let preloads = preloads(&arguments.preload)?;
    let mut config = Config {
        folder: folder(&arguments, &target),
        rules: Rules {
            include: match &arguments.events[..] {
                [] => Rules::all().include,
                [none] if none == NO_EVENTS && !arguments.counts.is_empty() => Vec::new(),
                events => events.to_vec(),
            },
            exclude: arguments.exclude.clone(),
            level: arguments.level.unwrap_or(Level::LOWEST),
            filter: arguments.filter.clone(),
        },
        mode: match arguments.mode {
            ModeArgument::Discard => Mode::Discard,
            ModeArgument::Overwrite => Mode::Overwrite,
        },
        subbuf_size: arguments.memory.subbuf_size(),
        subbufs: arguments.memory.subbufs(),
        ring_limit: arguments.memory.limit(),
        prefault: arguments.memory.prefault,
        tid: !arguments.no_tid,
        contexts: thread_contexts(&arguments.contexts),
        application_contexts: arguments.contexts.contains(&ContextArgument::Application),
        preload: preloads.libraries,
        python_start: preloads.python_start,
        library_folder: arguments.lttng.then(tompion_installation::lttng_folder).transpose()?,
        variables: tompion_marks::variables(&arguments.marks).context("--marks")?,
        library: tompion_installation::library("libtompion.so.0").ok(),
        time: arguments.duration,
        kernel,
        target: target.clone(),
        programs: match targets::programs(&arguments.programs, arguments.only_users.as_ref()) {
            Ok(programs) => programs,
            Err(problem) => return refuse(problem),
        },
        backing: arguments.backing.clone(),
        chunks: arguments.chunks.policy(),
        triggers: arguments.chunks.triggers.clone(),
        refuses_commands: arguments.no_commands,
        counts: arguments.counts.clone(),
        jobs: None,
        selector: selector(arguments.selector)?,
        // A program that records itself keeps its own user.
        user: User::behind_sudo().filter(|_| arguments.gather_as.is_none() && !arguments.as_root),
        session: arguments.session.clone(),
        linger: arguments.linger,
        resume: arguments.resume,
        invocation: std::env::args().collect(),
    };
    loop {
        let notice = if arguments.only_users.is_some() { messages::print_within_limit } else { print_notice };
        match tompion_session::record(&config, notice) {
            Err(error @ (Error::Geometry(_) | Error::Memory(_))) => return refuse(error),
            // Another recording took the name in the meantime.
            Err(Error::FolderExists(_)) if arguments.output.is_none() => {
                config.folder = folder(&arguments, &config.target);
            }
            // Programs that start at the same time start a session each; all use the first one.
            Err(Error::Session(error))
                if arguments.gather_as.is_some() && error.kind() == ErrorKind::AddrInUse =>
            {
                return Ok(ExitCode::SUCCESS);
            }
            outcome => {
                let outcome = outcome?;
                let is_complete = report_outcome(&config, &arguments, &outcome);
                return Ok(status_of(&outcome, is_complete));
            }
        }
    }
}

fn print_notice(text: &str) {
    print_status(text);
}

/// Returns the exit status after a recording: the command's, or that of the recording.
fn status_of(outcome: &Outcome, is_complete: bool) -> ExitCode {
    match outcome.failure() {
        Some(status) => exit_status::pass_on(status),
        None if is_complete => ExitCode::SUCCESS,
        None => ExitCode::from(exit_status::OWN_FAILURE),
    }
}

/// Returns the exit status for a recording that could not begin.
pub fn failure_status(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<Error>() {
        Some(Error::Command(_, error)) => exit_status::of_spawn_error(error),
        _ => ExitCode::from(exit_status::OWN_FAILURE),
    }
}

/// Returns the exit status for a wrong command line, if that was one of `record`.
pub fn usage_status() -> Option<ExitCode> {
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    command_start::place_of_record(&words).map(|_| ExitCode::from(exit_status::OWN_FAILURE))
}

/// Takes the descriptor of the map that selects the ring set.
fn selector(number: Option<i32>) -> anyhow::Result<Option<Arc<OwnedFd>>> {
    let take = |number| {
        let taken = tompion_os::take_inherited(number);
        taken.with_context(|| format!("--selector expects the number of an open descriptor, found {number}"))
    };
    Ok(number.map(take).transpose()?.map(Arc::new))
}

/// Returns the kernel events to record, or an error message. Without patterns, only the system
/// calls of the recorded processes are recorded.
fn kernel(arguments: &Arguments, target: &Target) -> Result<Option<KernelChoice>, String> {
    let contexts = kernel_contexts(&arguments.contexts);
    let Some(words) = &arguments.kernel else {
        return match contexts.has_stacks() {
            true => Err("stacks (kstack, ustack) need kernel events: add -k".into()),
            false => Ok(None),
        };
    };
    let follows = matches!(target, Target::Command(_) | Target::Processes(_));
    let choice = KernelChoice::new(words, contexts, arguments.filter.as_deref(), follows);
    let choice = choice.map_err(|error| describe_choice_error(&error))?;
    let unreadable = choice.selection.unreadable.iter();
    unreadable.for_each(|problem| print_status(format!("not recorded: {problem}")));
    choice.filter.iter().for_each(|filter| tell_of_filter(filter, &choice.selection));
    Ok(Some(choice))
}

/// Describes an error of the choice of kernel events, with the nearest known names.
fn describe_choice_error(error: &ChoiceError) -> String {
    match error {
        ChoiceError::Probe(error) => describe_probe_error(error),
        ChoiceError::Unknown(UnknownEvent(pattern)) => {
            let near = nearest_kernel_events(pattern);
            format!("no kernel event matches `{pattern}`{near}; see tompion list --kernel")
        }
        ChoiceError::Filter(problem) => problem.to_string(),
    }
}

/// Reports names in the filter that kernel events don't have.
fn tell_of_filter(filter: &Filter, selection: &Selection) {
    if !filter.unknown.is_empty() {
        let names = filter.unknown.join(", ");
        print_status(format!("kernel events have no {names}: the filter treats it as unknown"));
    }
    if selection.is_empty() {
        print_status("no selected kernel event has the fields of the filter");
    }
}

/// Describes an error of a probe, with the nearest known names.
fn describe_probe_error(error: &ProbeSpecError) -> String {
    let hint = |(name, names): &(String, Vec<String>)| nearest_hint(name, names.iter().map(String::as_str));
    format!("{error}{}", error.suggestions.as_ref().map(hint).unwrap_or_default())
}

/// Returns a hint for a pattern without a match: the nearest known names.
fn nearest_kernel_events(pattern: &str) -> String {
    let names = super::list::kernel_event_names(AvailableEvents::of_this_kernel());
    nearest_hint(pattern, names.iter().map(String::as_str))
}

/// Returns the folder of the trace.
fn folder(arguments: &Arguments, target: &Target) -> PathBuf {
    match (&arguments.output, &arguments.gather_in) {
        (Some(folder), _) => folder.clone(),
        (None, Some(parent)) => default_folder(parent, ""),
        (None, None) => default_folder(Path::new(""), &name_of(target)),
    }
}

fn thread_contexts(arguments: &[ContextArgument]) -> Vec<Context> {
    let mut contexts: Vec<Context> = arguments
        .iter()
        .filter_map(|argument| match argument {
            ContextArgument::Thread(context) => Some(*context),
            ContextArgument::Always | ContextArgument::Application | ContextArgument::Stack(_) => None,
        })
        .collect();
    contexts.sort_unstable();
    contexts.dedup();
    contexts
}

/// Returns the context fields of kernel events.
fn kernel_contexts(arguments: &[ContextArgument]) -> Contexts {
    let of_kernel = |argument: &ContextArgument| match argument {
        ContextArgument::Stack(context) => Some(*context),
        ContextArgument::Thread(Context::Comm) => Some(KernelContext::Comm),
        ContextArgument::Thread(Context::Priority) => Some(KernelContext::Priority),
        ContextArgument::Thread(Context::Cgroup) => Some(KernelContext::Cgroup),
        // Every kernel event has its process.
        ContextArgument::Thread(Context::Pid | Context::Namespaces)
        | ContextArgument::Always
        | ContextArgument::Application => None,
    };
    arguments.iter().filter_map(of_kernel).collect()
}

/// Redirects messages to a file below the folder: a session that a program started has no terminal.
fn log_to_file(parent: &Path) -> anyhow::Result<()> {
    const LOG: &str = "tompion.log";
    let parent = DirHandle::open_or_create(parent)?;
    let log = match parent.append(LOG) {
        Ok(log) => log,
        // The path may be a link or a file of another user, which must not be written to.
        Err(error) => {
            let mut log = parent.create_new(format!("tompion-{}.log", std::process::id()))?;
            writeln!(log, "tompion: not in {LOG}: {error}")?;
            log
        }
    };
    tompion_os::replace_standard_error(log.into())?;
    Ok(())
}

/// Redirects usage errors to a file, if a program started this session with wrong options.
pub fn prepare_for_usage_error() {
    let mut words = std::env::args_os().skip(1);
    if words.next().as_deref() == Some(OsStr::new("record"))
        && words.next().as_deref() == Some(OsStr::new("--gather-in"))
    {
        // If the folder can't be made, the error can't be reported.
        let _ = words.next().map(|folder| log_to_file(Path::new(&folder)));
    }
}

/// Returns the target's part of a folder's name.
fn name_of(target: &Target) -> String {
    let file_name = |path: &str| Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
    match target {
        Target::Command(words) => words.first().and_then(|word| file_name(word)).unwrap_or_default(),
        Target::Processes(tree) => match tree.named[..] {
            [pid] => tompion_os::name_of(&pid.to_string()).unwrap_or_else(|| pid.to_string()),
            _ => "processes".into(),
        },
        Target::Everything => "all".into(),
        Target::SharedFolder(_) => String::new(),
    }
}

/// Returns a free name: `tompion-NAME-TIME`, with a number if that is taken.
fn default_folder(parent: &Path, name: &str) -> PathBuf {
    let time = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let dash = if name.is_empty() { "" } else { "-" };
    let name = format!("tompion{dash}{}-{time}", name.replace('/', "_"));
    let numbered = (2..).map(|number| parent.join(format!("{name}-{number}")));
    std::iter::once(parent.join(&name)).chain(numbered).find(|folder| !folder.exists()).unwrap_or_default()
}

fn preloads(wanted: &[Preload]) -> anyhow::Result<tompion_installation::Preloads> {
    let mut wanted = wanted.to_vec();
    wanted.sort();
    wanted.dedup();
    let names = wanted.iter().filter_map(ValueEnum::to_possible_value);
    tompion_installation::preloads(names.map(|name| name.get_name().to_owned()))
}

/// Reports the outcome, and removes the trace of a recording without events. Returns whether the
/// trace is complete.
fn report_outcome(config: &Config, arguments: &Arguments, outcome: &Outcome) -> bool {
    let RecordingSummary { manifest, known, stopped, .. } = &outcome.report;
    for problem in &outcome.problems {
        print_status(problem);
    }
    let beyond = &manifest.beyond_limits;
    // The recorder's own events are about the recording.
    let sources = manifest.sources.iter().filter(|source| source.kind != RECORDER);
    let events = total(sources.map(|source| source.events).chain([beyond.events]));
    let lost = manifest.sources.iter().flat_map(|source| source.lost.values().copied());
    let lost = total(lost.chain([beyond.lost]));
    if let Some(text) = messages::beyond_limits(beyond.counts()) {
        print_status(format!("counted but not stored, beyond the limits of one recording: {text}"));
    }
    if let Some(status) = outcome.status.filter(|status| !status.success()) {
        print_status(format!("{} ended with {status}", config.target.describe()));
    }
    let counts = outcome.report.counts.as_ref();
    let (counted, is_unwritten) = counts.map_or((0, false), |counts| (counts.total(), counts.is_unwritten));
    let folder = config.folder.display();
    if let Some(counts) = counts {
        counts.gaps().iter().for_each(print_status);
        print_status(counts.summary(&config.folder));
    }
    if events == 0 && counted != 0 {
        return lost == 0 && !is_unwritten;
    }
    if events == 0 {
        let _ = outcome.folder.remove_all();
        if lost != 0 {
            print_status(format!("nothing recorded, {}", losses(manifest, lost)));
            return false;
        }
        print_status(format!("nothing recorded: {}", explain_empty_recording(config, arguments, outcome)));
        return false;
    }
    // A pattern without a match can be reported only if all names are known.
    for glob in arguments.events.iter().filter(|_| beyond.event_names == 0) {
        if !known.iter().any(|(provider, name)| matches_name(glob, provider, name)) {
            print_status(format!("no event matches `{glob}`{}", suggestion(glob, known)));
        }
    }
    print_status(format!(
        "{} of {} in {folder}, {}; next: tompion print {folder}",
        pluralize(events, "event"),
        describe_sources(manifest),
        losses(manifest, lost)
    ));
    // Also if only one process's events could not be written; the line above has their number.
    let is_cut = manifest.sources.iter().any(|source| source.lost.contains_key(NOT_WRITTEN));
    !(is_cut || is_unwritten || stopped.is_some())
}

/// Word that chooses no event, in recordings that count some.
const NO_EVENTS: &str = "none";

/// Returns the reason for an empty recording, with advice.
fn explain_empty_recording(config: &Config, arguments: &Arguments, outcome: &Outcome) -> String {
    let RecordingSummary { known, manifest, .. } = &outcome.report;
    let command = config.target.describe();
    if outcome.processes == 0 && config.kernel.is_some() && arguments.filter.is_some() {
        return "no event passed the filter".into();
    }
    if outcome.processes == 0 && manifest.sources.iter().any(|source| source.kind == KERNEL) {
        return "none of the selected kernel events fired".into();
    }
    if outcome.processes == 0 {
        return match config.target {
            Target::Processes(_) => format!("{command} did not answer"),
            Target::Everything => "no instrumented program ran".into(),
            Target::SharedFolder(_) => "no program joined".into(),
            Target::Command(_) if !outcome.problems.is_empty() => format!("{command} could not join"),
            Target::Command(_) => not_loaded(&command, arguments, config, outcome),
        };
    }
    if known.is_empty() && !outcome.problems.is_empty() {
        // The reason was reported already.
        return format!("{command} could not join");
    }
    if known.is_empty() {
        return format!("{command} loaded libtompion but has no events; try --preload malloc");
    }
    let unknown: Vec<&String> = arguments
        .events
        .iter()
        .filter(|glob| !known.iter().any(|(provider, name)| matches_name(glob, provider, name)))
        .collect();
    match unknown[..] {
        [glob, ..] if unknown.len() == arguments.events.len() => {
            format!("no event matches `{glob}`{}", suggestion(glob, known))
        }
        _ if arguments.filter.is_some() => "no event passed the filter".into(),
        _ if !arguments.exclude.is_empty() || arguments.level.is_some() => {
            "no event that -e, -x and --level select fired".into()
        }
        _ => none_fired(known),
    }
}

fn not_loaded(command: &str, arguments: &Arguments, config: &Config, outcome: &Outcome) -> String {
    let folder = config.library.as_deref().and_then(Path::parent);
    let is_missing = outcome.status.and_then(|status| status.code()) == Some(exit_status::NOT_FOUND.into());
    if let (true, Some(folder)) = (is_missing, folder) {
        return format!(
            "{command} or a library that it needs was not found; libtompion is in {0} (link with \
             -Wl,-rpath,{0}, or set LD_LIBRARY_PATH={0})",
            folder.display()
        );
    }
    if std::env::var_os("TOMPION_DISABLE").is_some_and(|value| value == "1") {
        return "TOMPION_DISABLE=1 keeps programs out of recordings".into();
    }
    if !arguments.preload.is_empty() && outcome.status.is_some_and(|status| !status.success()) {
        return format!("{command} failed before it joined, or it is static or set-user-ID");
    }
    if arguments.preload.contains(&Preload::Python) {
        return format!("{command} did not load libtompion: it ran no Python that Tompion was built for");
    }
    if !arguments.preload.is_empty() {
        return format!("{command} did not load libtompion: it is static or set-user-ID");
    }
    format!(
        "{command} did not load libtompion (it is not linked with -ltompion, or it is static or \
         set-user-ID); try --preload malloc"
    )
}
