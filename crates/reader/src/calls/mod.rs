//! Prints system calls as strace does: one line for each call.
//!
//! ```text
//! [21:36:52.672737702] 29460 sh: openat(AT_FDCWD, "/etc/hosts", O_RDONLY) = 3 <0.000011805>
//! [21:36:52.672761117] 29460/29461 sh: read(3, 0x7ffc21f0, 4096) = ? <unfinished>
//! [21:36:52.672763000] 29460 sh: mark:progress: 3 of 12 files
//! ```
//!
//! A line has the time of the call's entry and is written when the call returns, so lines are in
//! the order of returns. A call whose return was not seen is `<unfinished>`, and one whose entry
//! was not seen says so. Where events were lost or overwritten, the calls that are open may have
//! returned unseen, so they are not matched with later returns. Events of programs stand between
//! the calls; marks as their text.
//!
//! Memory is bounded: one open call for each thread, for at most `MAX_THREADS` threads.

mod arguments;

use std::collections::{BTreeSet, HashMap};
use std::io::Write;

use tompion_ctf::decode::Value;
use tompion_schema::{Kind, base_name};

use crate::coverage::Coverage;
use crate::message::Message;
use crate::syscall_decode::{SyscallDecoder, error_name};
use crate::text::{TimeFormat, Times, payload};
use crate::{Error, Event, Loss, Place, Selection, TraceSet, manifest};
use arguments::{Call, WrittenEntry};

/// Maximum number of threads whose open calls and names are kept.
const MAX_THREADS: usize = 1 << 16;
/// Calls that never return.
const ENDLESS: [&str; 2] = ["exit", "exit_group"];
/// Return from a signal's handler. The kernel has forgotten the call's number at its exit.
const SIGNAL_RETURN: &str = "rt_sigreturn";
/// Calls that return an address.
const RETURN_ADDRESS: [&str; 4] = ["mmap", "mremap", "brk", "shmat"];
/// Call that returns the former mask of modes.
const RETURNS_MODE: &str = "umask";
/// Length of a thread's name in bytes. Source: `TASK_COMM_LEN` in `linux/sched.h`, without the NUL.
const MAX_NAME: usize = 15;
/// Option of `prctl` that names the thread. Source: `linux/prctl.h`.
const PR_SET_NAME: i64 = 15;
/// Largest error number that calls return.
const MAX_ERROR: i64 = 4095;

/// Whether a call never returns, so that it has no duration.
pub fn never_returns(call: &str) -> bool {
    ENDLESS.contains(&call)
}

/// Returns the names of events to select, so that a call or span is selected whole if a glob
/// matches one of its events.
pub fn whole_calls(traces: &TraceSet, globs: &[String]) -> Vec<String> {
    let selection = Selection { events: globs.to_vec(), ..Selection::default() };
    let streams = traces.traces().iter().flat_map(|trace| &trace.metadata().streams);
    let classes = streams.flat_map(|stream| &stream.events);
    let mut names = BTreeSet::new();
    for class in classes.filter(|class| selection.takes_name(class)) {
        match call_of(&class.name) {
            Some((_, call)) => {
                let prefix = if class.name.starts_with("compat_") { "compat_" } else { "" };
                names.insert(format!("{prefix}syscall_entry_{call}"));
                names.insert(format!("{prefix}syscall_exit_{call}"));
            }
            None => drop(names.insert(class.name.clone())),
        }
    }
    names.into_iter().collect()
}

/// Prints all remaining events; returns the number of lines.
///
/// # Errors
///
/// Fails if the output cannot be written.
pub fn print(traces: &mut TraceSet, time: &TimeFormat, output: &mut dyn Write) -> Result<u64, Error> {
    let mut printer = Printer::new(traces, time);
    let (mut known, mut line) = (traces.losses().len(), Vec::new());
    loop {
        let is_there = traces.step();
        for loss in traces.losses().get(known..).unwrap_or_default() {
            printer.loss(loss);
        }
        known = traces.losses().len();
        let Some(event) = traces.current().filter(|_| is_there) else { break };
        printer.event(&event, &mut line);
        output.write_all(&line).map_err(Error::Output)?;
        line.clear();
    }
    printer.finish(&mut line);
    output.write_all(&line).map_err(Error::Output)?;
    Ok(printer.lines)
}

/// Role of an event class in the printed lines.
enum Meaning {
    /// Nothing.
    None,
    Entry {
        call: String,
        decoder: Option<SyscallDecoder>,
    },
    Exit {
        call: String,
    },
    Switch,
    /// Names a thread: fields with its id and with its name.
    Named {
        thread: &'static str,
        name: &'static str,
    },
    /// A thread gets another name, mostly within a call.
    Renamed,
    /// A thread ends.
    End,
    /// A thread executes a program, and takes the id of its process's leader.
    Executed,
    Signal,
    Mark(Message),
    /// Another event of a program.
    Program,
}

/// Call whose return was not seen yet.
struct Open {
    time: i64,
    call: String,
    entry: WrittenEntry,
    /// Name that the thread has if the call succeeds; empty if that is not known.
    renamed: Option<Vec<u8>>,
}

/// Time from which on calls that began before may have returned unseen.
struct Cut {
    trace: usize,
    time: i64,
}

struct Printer {
    times: Times,
    classes: HashMap<Place, Meaning>,
    /// Open calls by trace and thread.
    open: HashMap<(usize, i64), Open>,
    /// Names of threads by trace.
    names: HashMap<(usize, i64), Vec<u8>>,
    /// Thread that each CPU of a trace runs.
    current: HashMap<(usize, u64), i64>,
    cuts: Vec<Cut>,
    lines: u64,
}

/// Splits the name of a call's event: whether it is the entry, and the call.
fn call_of(name: &str) -> Option<(bool, &str)> {
    let name = name.strip_prefix("compat_").unwrap_or(name);
    let entry = name.strip_prefix("syscall_entry_").map(|call| (true, call));
    entry.or_else(|| name.strip_prefix("syscall_exit_").map(|call| (false, call)))
}

impl Meaning {
    fn of(event: &Event<'_>) -> Self {
        let name = event.name();
        if let Some((is_entry, call)) = call_of(name) {
            let call = call.to_owned();
            return match is_entry {
                true => Self::Entry { call, decoder: SyscallDecoder::of(name) },
                false => Self::Exit { call },
            };
        }
        match name {
            "sched_switch" => return Self::Switch,
            "sched_process_fork" => return Self::Named { thread: "child_tid", name: "child_comm" },
            "task_rename" => return Self::Renamed,
            "lttng_statedump_process_state" => return Self::Named { thread: "tid", name: "name" },
            "sched_process_exit" => return Self::End,
            "sched_process_exec" => return Self::Executed,
            "signal_deliver" => return Self::Signal,
            _ => {}
        }
        let environment = event.trace().metadata().environment_value("domain");
        if environment.and_then(|domain| domain.as_text()) == Some("kernel") {
            return Self::None;
        }
        Message::of(event.class()).map_or(Self::Program, Self::Mark)
    }
}

/// Returns an integer field.
fn number(event: &Event<'_>, name: &str) -> Option<i64> {
    event.payload().get(name).and_then(|value| i64::try_from(value.as_integer()?).ok())
}

/// Returns the first of these context fields that an event has.
fn context<'a>(event: &Event<'a>, names: &[&str]) -> Option<Value<'a>> {
    names.iter().find_map(|name| event.stream_context().get(name).or_else(|| event.context().get(name)))
}

fn context_number(event: &Event<'_>, names: &[&str]) -> Option<i64> {
    context(event, names).and_then(|value| i64::try_from(value.as_integer()?).ok())
}

impl Printer {
    fn new(traces: &TraceSet, time: &TimeFormat) -> Self {
        let mut printer = Self {
            times: Times::new(time, false),
            classes: HashMap::new(),
            open: HashMap::new(),
            names: HashMap::new(),
            current: HashMap::new(),
            cuts: Vec::new(),
            lines: 0,
        };
        printer.cut_overwritten(traces);
        printer
    }

    /// Finds the times up to which events of some CPU are missing.
    fn cut_overwritten(&mut self, traces: &TraceSet) {
        let overwrites = manifest::overwrites(traces);
        if !overwrites.contains(&true) {
            return;
        }
        let found = Coverage::read(traces).overwritten(&|trace| overwrites.get(trace) == Some(&true));
        self.cuts.extend(found.iter().map(|it| Cut { trace: it.trace, time: it.until }));
        self.sort_cuts();
    }

    fn sort_cuts(&mut self) {
        self.cuts.sort_by_key(|cut| std::cmp::Reverse(cut.time));
    }

    fn loss(&mut self, loss: &Loss) {
        let (from, to) = loss.between;
        let times = [from, to].into_iter().flatten();
        self.cuts.extend(times.map(|time| Cut { trace: loss.trace, time }));
        if let (None, None) = (from, to) {
            self.cuts.push(Cut { trace: loss.trace, time: i64::MIN });
        }
        self.sort_cuts();
    }

    fn event(&mut self, event: &Event<'_>, line: &mut Vec<u8>) {
        let Some(time) = event.timestamp() else { return };
        while self.cuts.last().is_some_and(|cut| cut.time <= time) {
            let Some(cut) = self.cuts.pop() else { break };
            self.cut(cut.trace, line);
        }
        let place = event.place();
        let meaning = match self.classes.remove(&place) {
            Some(meaning) => meaning,
            None => Meaning::of(event),
        };
        self.mean(event, &meaning, line);
        self.classes.insert(place, meaning);
    }

    fn mean(&mut self, event: &Event<'_>, meaning: &Meaning, line: &mut Vec<u8>) {
        let trace = event.trace_index();
        match meaning {
            Meaning::None => {}
            Meaning::Entry { call, decoder } => {
                self.entry(event, Call { name: call, decoder: decoder.as_ref() }, line);
            }
            Meaning::Exit { call } => self.exit(event, call, line),
            Meaning::Switch => {
                if let Some((cpu, next)) = event.cpu().zip(number(event, "next_tid")) {
                    self.current.insert((trace, cpu), next);
                    self.learn(event, "next_tid", "next_comm");
                }
            }
            Meaning::Named { thread, name } => self.learn(event, thread, name),
            Meaning::Renamed => {
                self.learn(event, "pid", "newcomm");
                let thread = number(event, "pid").map(|tid| (trace, tid));
                if let Some(open) = thread.and_then(|thread| self.open.get_mut(&thread)) {
                    open.renamed = None;
                }
            }
            Meaning::End => {
                self.learn(event, "tid", "comm");
                if let Some(tid) = number(event, "tid") {
                    if let Some(open) = self.open.remove(&(trace, tid)) {
                        self.write_open(&open, "", line);
                    }
                    self.begin_line(event, (Some(tid), event.timestamp()), line);
                    let end = describe_end(number(event, "wait_status"));
                    line.extend_from_slice(format!("+++ {end} +++\n").as_bytes());
                    self.names.remove(&(trace, tid));
                }
            }
            Meaning::Executed => self.follow_id(event, line),
            Meaning::Signal => {
                let Some(signal) = number(event, "sig") else { return };
                self.begin_line(event, (self.thread(event), event.timestamp()), line);
                let name = SyscallDecoder::signal(signal).map_or_else(|| signal.to_string(), Into::into);
                line.extend_from_slice(format!("--- {name} ---\n").as_bytes());
            }
            Meaning::Mark(message) => {
                self.begin_program_line(event, line);
                let mut text = Vec::new();
                message.write(event.payload(), &mut text);
                escape(&text, line);
                line.push(b'\n');
            }
            Meaning::Program => {
                self.begin_program_line(event, line);
                escape(payload(event).as_bytes(), line);
                line.push(b'\n');
            }
        }
    }

    /// Moves the open call of a thread to the id that it has from now on.
    fn follow_id(&mut self, event: &Event<'_>, line: &mut Vec<u8>) {
        let trace = event.trace_index();
        let ids = number(event, "old_tid").zip(number(event, "tid"));
        let Some((old, tid)) = ids.filter(|(old, tid)| old != tid) else { return };
        let leaders = self.open.remove(&(trace, tid));
        leaders.iter().for_each(|open| self.write_open(open, "", line));
        if let Some(open) = self.open.remove(&(trace, old)) {
            self.open.insert((trace, tid), open);
        }
        if let Some(name) = self.names.remove(&(trace, old)) {
            self.names.insert((trace, tid), name);
        }
        let of_old = |((of, _), current): &(&(usize, u64), &mut i64)| *of == trace && **current == old;
        self.current.iter_mut().filter(of_old).for_each(|(_, current)| *current = tid);
    }

    fn learn(&mut self, event: &Event<'_>, thread: &str, name: &str) {
        let name = event.payload().get(name).and_then(|name| name.as_text());
        let (Some(tid), Some(name)) = (number(event, thread), name) else { return };
        self.name((event.trace_index(), tid), name);
    }

    fn name(&mut self, thread: (usize, i64), name: &[u8]) {
        if self.names.len() < MAX_THREADS || self.names.contains_key(&thread) {
            self.names.insert(thread, name.to_owned());
        }
    }

    fn thread(&self, event: &Event<'_>) -> Option<i64> {
        let stated = context_number(event, &["tid", "vtid"]);
        stated.or_else(|| self.current.get(&(event.trace_index(), event.cpu()?)).copied())
    }

    /// Writes `[time] pid/tid name: `.
    fn begin_line(&mut self, event: &Event<'_>, (tid, time): (Option<i64>, Option<i64>), line: &mut Vec<u8>) {
        self.begin_time(time.unwrap_or(0), line);
        self.write_thread(event, tid, line);
    }

    fn begin_time(&mut self, time: i64, line: &mut Vec<u8>) {
        self.lines += 1;
        line.push(b'[');
        self.times.time(time, line);
        line.extend_from_slice(b"] ");
    }

    fn write_thread(&self, event: &Event<'_>, tid: Option<i64>, line: &mut Vec<u8>) {
        let environment = |name| event.trace().metadata().environment_value(name);
        let of_trace = || environment("vpid").and_then(|pid| pid.as_integer());
        let pid = context_number(event, &["pid", "vpid"]).or_else(of_trace);
        let text = match (pid, tid) {
            (Some(pid), Some(tid)) if pid != tid => format!("{pid}/{tid}"),
            (_, Some(tid)) => tid.to_string(),
            (Some(pid), None) => format!("{pid}/?"),
            (None, None) => "?".into(),
        };
        line.extend_from_slice(text.as_bytes());
        let stated = context(event, &["procname"]).and_then(|name| name.as_text());
        let known = || Some(self.names.get(&(event.trace_index(), tid?))?.as_slice());
        let of_trace = || environment("procname").and_then(|name| name.as_text()).map(str::as_bytes);
        if let Some(name) = stated.or_else(known).or_else(of_trace) {
            line.push(b' ');
            escape(name, line);
        }
        line.extend_from_slice(b": ");
    }

    fn begin_program_line(&mut self, event: &Event<'_>, line: &mut Vec<u8>) {
        self.begin_line(event, (self.thread(event), event.timestamp()), line);
        let kind = event.class().kind_info().kind;
        let name = event.name();
        let shown = match kind {
            Kind::Begin | Kind::Job => format!("{} begins: ", base_name(name, kind)),
            Kind::End => format!("{} ends: ", base_name(name, kind)),
            _ => format!("{name}: "),
        };
        escape(shown.as_bytes(), line);
    }

    fn entry(&mut self, event: &Event<'_>, call: Call<'_>, line: &mut Vec<u8>) {
        let tid = self.thread(event);
        let time = event.timestamp().unwrap_or(0);
        let mut text = Vec::new();
        self.write_thread(event, tid, &mut text);
        escape(call.name.as_bytes(), &mut text);
        text.push(b'(');
        let entry = WrittenEntry::new(event, call, text);
        let open = Open { time, call: call.name.to_owned(), entry, renamed: renamed(event, call.name) };
        let key = tid.map(|tid| (event.trace_index(), tid));
        if let Some(before) = key.and_then(|key| self.open.remove(&key)) {
            self.write_open(&before, "", line);
        }
        match key.filter(|_| !never_returns(call.name) && self.open.len() < MAX_THREADS) {
            Some(key) => drop(self.open.insert(key, open)),
            None => self.write_open(&open, "", line),
        }
    }

    /// Writes a call without its return.
    fn write_open(&mut self, open: &Open, why: &str, line: &mut Vec<u8>) {
        self.begin_time(open.time, line);
        line.extend_from_slice(&open.entry.text);
        let end = if never_returns(&open.call) { "" } else { " <unfinished" };
        let close = if end.is_empty() { "" } else { ">" };
        line.extend_from_slice(format!(") = ?{end}{why}{close}\n").as_bytes());
    }

    fn exit(&mut self, event: &Event<'_>, call: &str, line: &mut Vec<u8>) {
        let (tid, trace) = (self.thread(event), event.trace_index());
        let time = event.timestamp().unwrap_or(0);
        let open = tid.and_then(|tid| self.open.remove(&(trace, tid)));
        let mut renamed = None;
        let is_unnamed = number(event, "id") == Some(-1);
        let is_signal_return = is_unnamed && open.as_ref().is_some_and(|open| open.call == SIGNAL_RETURN);
        let call = if is_signal_return { SIGNAL_RETURN } else { call };
        let begin = match open {
            Some(open) if open.call == call => {
                self.begin_time(open.time, line);
                arguments::complete(event, &open.entry, line);
                renamed = open.renamed;
                Some(open.time)
            }
            other => {
                if let Some(other) = other {
                    self.write_open(&other, "", line);
                }
                self.begin_line(event, (tid, Some(time)), line);
                escape(call.as_bytes(), line);
                line.extend_from_slice(b"(<entry not seen>");
                arguments::write_results(event, line);
                None
            }
        };
        line.extend_from_slice(b") = ");
        write_return(number(event, "ret"), call, line);
        if let Some(begin) = begin {
            let duration = time.saturating_sub(begin).max(0);
            let text = format!(" <{}.{:09}>", duration / 1_000_000_000, duration % 1_000_000_000);
            line.extend_from_slice(text.as_bytes());
        }
        line.push(b'\n');
        let succeeded = number(event, "ret") == Some(0);
        if let (Some(name), Some(tid), true) = (renamed, tid, succeeded) {
            self.names.remove(&(trace, tid));
            if !name.is_empty() {
                self.name((trace, tid), &name);
            }
        }
    }

    /// Gives up the open calls of a trace, in order of time.
    fn cut(&mut self, trace: usize, line: &mut Vec<u8>) {
        self.current.retain(|(of, _), _| *of != trace);
        self.give_up(&|of| of == trace, ", events were lost", line);
    }

    fn give_up(&mut self, is_meant: &dyn Fn(usize) -> bool, why: &str, line: &mut Vec<u8>) {
        let keys: Vec<_> = self.open.keys().filter(|(of, _)| is_meant(*of)).copied().collect();
        let mut calls: Vec<Open> = keys.into_iter().filter_map(|key| self.open.remove(&key)).collect();
        calls.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.entry.text.cmp(&b.entry.text)));
        calls.iter().for_each(|open| self.write_open(open, why, line));
    }

    /// Writes the calls that are open at the end.
    fn finish(&mut self, line: &mut Vec<u8>) {
        self.give_up(&|_| true, "", line);
    }
}

/// Returns the name that a thread has after a call: that of the program that it executes, or an
/// empty one if the call says no more than that it changes.
fn renamed(event: &Event<'_>, call: &str) -> Option<Vec<u8>> {
    match call {
        "execve" | "execveat" => {
            let path = event.payload().get("filename").and_then(|path| path.as_text()).unwrap_or_default();
            let path = if path == b"<unreadable>" { b"" } else { path };
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            Some(name.get(..MAX_NAME).unwrap_or(name).to_owned())
        }
        "prctl" if number(event, "option") == Some(PR_SET_NAME) => Some(Vec::new()),
        _ => None,
    }
}

/// Writes what a call returned: `3`, `-1 ENOENT`, `0x7f0012340000`, `? ERESTARTSYS`.
fn write_return(value: Option<i64>, call: &str, line: &mut Vec<u8>) {
    let text = match value {
        None => "?".into(),
        Some(value) if (-MAX_ERROR..0).contains(&value) => {
            let number = value.unsigned_abs() as u32;
            match error_name(number) {
                // The kernel's own errors, after which it restarts the call.
                Some(name) if number >= 512 => format!("? {name}"),
                Some(name) => format!("-1 {name}"),
                None => format!("-1 (error {number})"),
            }
        }
        Some(value) if call == RETURNS_MODE => arguments::mode(value),
        Some(value) if RETURN_ADDRESS.contains(&call) => format!("{value:#x}"),
        Some(value) => value.to_string(),
    };
    line.extend_from_slice(text.as_bytes());
}

/// Appends text of a program, with control characters escaped and invalid UTF-8 replaced.
fn escape(text: &[u8], line: &mut Vec<u8>) {
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '\n' => line.extend_from_slice(b"\\n"),
            '\t' => line.extend_from_slice(b"\\t"),
            _ if character.is_control() || is_invisible(character) => {
                line.extend_from_slice(character.escape_unicode().to_string().as_bytes());
            }
            _ => line.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Whether a character changes how its neighbours are shown.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Describes the end of a thread by the status that its process's parent gets. Threads that are not
/// the last of their process have none. Source: `wait(2)`.
fn describe_end(wait_status: Option<i64>) -> String {
    let Some(status) = wait_status.filter(|status| *status >= 0) else { return "exited".into() };
    let signal = status & 0x7f;
    if signal == 0 {
        return format!("exited with {}", status >> 8 & 0xff);
    }
    let name = SyscallDecoder::signal(signal).map_or_else(|| format!("signal {signal}"), Into::into);
    let core = if status & 0x80 != 0 { " (core dumped)" } else { "" };
    format!("killed by {name}{core}")
}

#[cfg(test)]
mod tests;
