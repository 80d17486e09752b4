//! Conversion of findings into tracks and lane entries.

use std::io;
use std::sync::Arc;

use tompion_analysis::quick::QuickMap;
use tompion_analysis::state::{
    Happening, Instant, Interval, MachineId, Sleep, State, ThreadId, Track as StateTrack, Waker, Why,
};

use super::entry::{Entry, Values};
use super::{Index, LaneKind, PartRows, Track, TrackKind};
use crate::extra::{Extra, WakeupSource};
use crate::slice_kind;

/// Maximum number of flow steps and jobs that wait for their next step.
const MAX_OPEN_STEPS: usize = 1 << 18;

/// Result of reading an event.
#[derive(Clone, Debug)]
pub enum Finding {
    /// Completed state.
    Interval(Interval),
    /// Instant of a thread.
    Instant(Instant),
    /// First event of a program's thread.
    Meet {
        /// Thread of the event.
        thread: ThreadId,
        /// Process of the thread.
        pid: Option<i32>,
        /// Name of the thread.
        name: Option<String>,
        /// Trace of the program.
        trace: u32,
    },
    /// Name of an interrupt.
    InterruptName(i64, String),
    /// Name of a function.
    FunctionName(u64, Arc<str>),
    /// Event that is drawn as a mark.
    Mark(Where, i64, Arc<str>),
    /// Value of a counter: event class and trace, name, time and value.
    Counter((u32, u32), Arc<str>, (i64, f64)),
    /// Step of a flow.
    Flow(ThreadId, i64, (Arc<str>, i128)),
    /// Begin of a job, with its deadline in nanoseconds.
    Job(ThreadId, (i64, Arc<str>), u64),
    /// Events of a channel: interval and number.
    Density(u32, (i64, i64), u64),
    /// Lost events of a channel: interval and number.
    Lost(u32, (i64, i64), u64),
    /// Missing packets of a channel: trace, interval and number.
    Gap(u32, u32, (i64, i64), u64),
    /// Rows of a part that was read.
    Part(usize, PartRows),
    /// Progress, and the number of events and time bounds of each trace.
    Progress(f64, Vec<(u64, Option<(i64, i64)>)>),
}

/// Track of an event.
#[derive(Clone, Copy, Debug)]
pub enum Where {
    /// Thread, and the event's trace.
    Thread(ThreadId, u32),
    /// CPU of a machine.
    Cpu(MachineId, u32),
    /// Channel.
    Channel(u32),
}

/// Converter of findings, with the state that it needs between them.
#[derive(Clone)]
pub struct Applier {
    /// Name and kernel trace of each machine.
    machines: Vec<(String, u32)>,
    /// Machine of each trace.
    machine_of: Vec<u16>,
    /// Tracks of channels.
    channels: Vec<u32>,
    flows: QuickMap<(Arc<str>, i128), (i64, u32)>,
    /// Deadlines of open jobs by thread, begin and name: other spans may begin at the same time.
    jobs: QuickMap<(ThreadId, i64, Arc<str>), u64>,
    /// Traces of programs' threads.
    traces: QuickMap<ThreadId, u32>,
    /// Traces of flight recorders that have overwritten events.
    overwrites: Vec<u32>,
    /// Latest end of a gap for each trace.
    gaps: QuickMap<u32, i64>,
}

impl Applier {
    /// Makes a converter for some machines and channels.
    pub fn new(machines: Vec<(String, u32)>, machine_of: Vec<u16>, channels: Vec<u32>) -> Self {
        let (flows, jobs, traces) = (QuickMap::default(), QuickMap::default(), QuickMap::default());
        let (overwrites, gaps) = (Vec::new(), QuickMap::default());
        Self { machines, machine_of, channels, flows, jobs, traces, overwrites, gaps }
    }

    /// Sets the traces of flight recorders that have overwritten events.
    pub fn with_overwrites(self, overwrites: Vec<u32>) -> Self {
        Self { overwrites, ..self }
    }

    /// Adds a finding to the index.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn apply(&mut self, index: &mut Index, finding: Finding) -> io::Result<()> {
        match finding {
            Finding::Instant(instant) => return self.instant(index, instant),
            Finding::Flow(thread, time, flow) => return self.flow(index, thread, (time, flow)),
            Finding::Interval(interval) => self.interval(index, &interval),
            Finding::Meet { thread, pid, name, trace } => {
                self.traces.insert(thread, trace);
                let track = self.thread(index, thread);
                let known = index.tracks.get(track as usize).map_or(0, |track| track.name);
                self.name(index, thread, (name.as_deref(), pid));
                // Programs state the name of the process; the kernel knows each thread's own name.
                if let Some(track) = index.tracks.get_mut(track as usize).filter(|_| known != 0) {
                    track.name = known;
                }
            }
            Finding::InterruptName(number, name) => {
                let label = index.labels.number(&format!("{name} (irq {number})"));
                index.known.interrupts.insert(number, label);
            }
            Finding::FunctionName(address, name) => {
                let label = index.labels.number(&name);
                index.known.functions.insert(address, label);
            }
            Finding::Mark(place, time, name) => self.mark(index, place, (time, &name)),
            Finding::Counter((number, trace), name, (time, value)) => {
                let lane = self.counter_lane(index, number, trace, &name);
                lane.into_iter().for_each(|lane| self.counter(index, lane, time, value));
            }
            Finding::Job(thread, (time, name), deadline) => {
                if self.jobs.len() < MAX_OPEN_STEPS {
                    self.jobs.insert((thread, time, name), deadline);
                }
            }
            Finding::Density(channel, times, count) => {
                self.channel(index, channel, LaneKind::Density, &counted(slice_kind::DENSITY, times, count));
            }
            Finding::Lost(channel, times, count) => {
                self.channel(index, channel, LaneKind::Lost, &counted(slice_kind::LOST, times, count));
            }
            Finding::Gap(channel, trace, times, count) => {
                self.gap(index, channel, trace, &counted(slice_kind::LOST, times, count));
            }
            Finding::Part(part, rows) => {
                if index.parts.len() <= part {
                    index.parts.resize(part + 1, PartRows { first: rows.first, counts: Vec::new() });
                }
                if let Some(known) = index.parts.get_mut(part) {
                    *known = rows;
                }
            }
            Finding::Progress(progress, traces) => {
                index.set_progress(progress.clamp(0.0, 0.999));
                index.events = traces.iter().map(|(events, _)| *events).collect();
                index.bounds = traces.into_iter().map(|(_, bounds)| bounds).collect();
            }
        }
        Ok(())
    }

    /// Adds a gap of missing packets. The number of events that a flight recorder overwrote in it
    /// is unknown.
    fn gap(&mut self, index: &mut Index, channel: u32, trace: u32, missing: &Entry) {
        if self.overwrites.contains(&trace) {
            let overwritten = Entry { style: slice_kind::OVERWRITTEN, count: 0, ..*missing };
            self.channel(index, channel, LaneKind::Overwritten, &overwritten);
        } else {
            self.channel(index, channel, LaneKind::Lost, missing);
        }
        // The counters may have had any value in the gap.
        let counters: Vec<u32> = index.known.counters.values().copied().collect();
        for lane in counters {
            if index.lanes.get(lane as usize).is_some_and(|lane| lane.trace == trace) {
                index.push(lane, &point(missing.begin, f64::NAN));
            }
        }
        let until = self.gaps.entry(trace).or_insert(i64::MIN);
        *until = missing.end.max(*until);
    }

    /// Adds the events that were overwritten before a channel's first one. Their times are unknown,
    /// so they are drawn from the trace's begin. To be called after all events of the channel were
    /// added.
    pub fn overwritten(&self, index: &mut Index, channel: u32, count: u64) {
        let track = self.channels.get(channel as usize).copied();
        let lane = track.and_then(|track| index.lane_of(track, LaneKind::Density));
        let first = lane.and_then(|lane| index.first_of(lane)).unwrap_or(0).max(0);
        let overwritten = counted(slice_kind::OVERWRITTEN, (0, first), count);
        self.channel(index, channel, LaneKind::Overwritten, &overwritten);
    }

    fn channel(&self, index: &mut Index, channel: u32, kind: LaneKind, entry: &Entry) {
        let Some(&track) = self.channels.get(channel as usize) else { return };
        let trace = index.tracks.get(track as usize).map_or(0, |track| track.number as u32);
        let Some(lane) = index.lane(track, (kind, 0), trace) else { return };
        index.push(lane, entry);
    }

    fn kernel_of(&self, machine: MachineId) -> u32 {
        self.machines.get(usize::from(machine.0)).map_or(0, |(_, kernel)| *kernel)
    }

    fn host(&self, machine: MachineId) -> &str {
        self.machines.get(usize::from(machine.0)).map_or("", |(host, _)| host.as_str())
    }

    fn group(&self, index: &mut Index, machine: MachineId, (which, name): (u8, &str)) -> u32 {
        if let Some(&known) = index.known.groups.get(&(machine.0, which)) {
            return known;
        }
        let host = self.host(machine);
        let name = if host.is_empty() { name.to_owned() } else { format!("{name} of {host}") };
        let name = index.labels.number(&name);
        let number = which.into();
        let track = new_track((TrackKind::Group, None), (name, machine.0, number));
        let track = index.add_track(track);
        index.known.groups.insert((machine.0, which), track);
        track
    }

    fn cpu(&self, index: &mut Index, machine: MachineId, cpu: u32) -> u32 {
        if let Some(&known) = index.known.cpus.get(&(machine.0, cpu)) {
            return known;
        }
        let group = self.group(index, machine, (0, "CPUs"));
        let name = index.labels.number(&format!("CPU {cpu}"));
        let track = new_track((TrackKind::Cpu, Some(group)), (name, machine.0, cpu.into()));
        let track = index.add_track(track);
        index.known.cpus.insert((machine.0, cpu), track);
        track
    }

    /// Returns the track of a living thread.
    fn living(&self, index: &mut Index, thread: ThreadId) -> u32 {
        if index.is_preview() {
            return self.preview_thread(index, thread);
        }
        let key = (thread.machine.0, thread.tid);
        let has_room = index.has_room();
        if let Some((track, is_gone)) = index.known.threads.get_mut(&key) {
            if !*is_gone || !has_room {
                *is_gone = false;
                return *track;
            }
            index.known.threads.remove(&key);
        }
        self.thread(index, thread)
    }

    /// Returns the track of a thread, even of an exited one: its CPU leaves it a moment later.
    fn thread(&self, index: &mut Index, thread: ThreadId) -> u32 {
        if index.is_preview() {
            return self.preview_thread(index, thread);
        }
        let key = (thread.machine.0, thread.tid);
        if let Some(&(known, _)) = index.known.threads.get(&key) {
            return known;
        }
        let preview = index.known.preview_threads.remove(&key);
        let track = preview.unwrap_or_else(|| self.new_thread(index, thread));
        index.known.threads.insert(key, (track, false));
        track
    }

    /// Returns the track of a previewed thread: the living thread where the index has come so far,
    /// or the next thread with its number.
    fn preview_thread(&self, index: &mut Index, thread: ThreadId) -> u32 {
        let key = (thread.machine.0, thread.tid);
        if let Some(&(known, false)) = index.known.threads.get(&key) {
            return known;
        }
        if let Some(&known) = index.known.preview_threads.get(&key) {
            return known;
        }
        let track = self.new_thread(index, thread);
        index.known.preview_threads.insert(key, track);
        track
    }

    fn new_thread(&self, index: &mut Index, thread: ThreadId) -> u32 {
        let group = self.group(index, thread.machine, (1, "Threads"));
        let track = new_track((TrackKind::Thread, Some(group)), (0, thread.machine.0, thread.tid.into()));
        index.add_track(track)
    }

    /// Returns the track and the name of a thread.
    fn thread_name(&self, index: &mut Index, machine: MachineId, tid: i32) -> (u32, u32) {
        let track = self.thread(index, ThreadId { machine, tid });
        let name = index.tracks.get(track as usize).map_or(0, |track| track.name);
        if name != 0 {
            return (track, name);
        }
        (track, index.labels.number(&format!("tid {tid}")))
    }

    /// Sets name and process of a thread.
    fn name(&self, index: &mut Index, thread: ThreadId, (name, pid): (Option<&str>, Option<i32>)) {
        let track = self.living(index, thread);
        let name = name.filter(|name| !name.is_empty()).map(|name| index.labels.number(name));
        // A previewed name may belong to a later time.
        let is_sure = !index.is_preview();
        if let Some(known) = index.tracks.get_mut(track as usize) {
            known.name = name.filter(|_| is_sure || known.name == 0).unwrap_or(known.name);
            known.pid = pid.filter(|_| is_sure || known.pid.is_none()).or(known.pid);
        }
        let Some(pid) = pid else { return };
        let key = (thread.machine.0, pid);
        let process = match index.known.processes.get(&key) {
            Some(&process) => process,
            None => {
                let process = new_track((TrackKind::Process, None), (0, key.0, pid.into()));
                let process = index.add_track(process);
                index.known.processes.insert(key, process);
                process
            }
        };
        if let Some(known) = index.tracks.get_mut(track as usize).filter(|known| known.pid == Some(pid)) {
            known.parent = Some(process);
        }
        if let Some(process) = index.tracks.get_mut(process as usize) {
            process.pid = Some(pid);
            if is_sure && thread.tid == pid || process.name == 0 {
                process.name = name.unwrap_or(process.name);
            }
        }
    }

    fn interval(&mut self, index: &mut Index, interval: &Interval) {
        let (track, kind, machine) = match interval.track {
            StateTrack::Cpu(machine, cpu) => (self.cpu(index, machine, cpu), (LaneKind::Cpu, 0), machine),
            StateTrack::Interrupt(machine, cpu, depth) => {
                (self.cpu(index, machine, cpu), (LaneKind::Interrupt, depth.into()), machine)
            }
            StateTrack::SoftInterrupt(machine, cpu) => {
                (self.cpu(index, machine, cpu), (LaneKind::SoftInterrupt, 0), machine)
            }
            StateTrack::Thread(thread) => (self.living(index, thread), (LaneKind::Thread, 0), thread.machine),
            StateTrack::Syscall(thread) => {
                (self.living(index, thread), (LaneKind::Syscall, 0), thread.machine)
            }
            StateTrack::Span(thread, depth) => {
                (self.thread(index, thread), (LaneKind::Span, depth), thread.machine)
            }
        };
        let (begin, end) =
            (interval.begin.saturating_sub(index.base), interval.end.saturating_sub(index.base));
        let (mut style, label, extra) = self.look(index, machine, &interval.state);
        let is_thread = matches!(interval.track, StateTrack::Thread(_) | StateTrack::Cpu(..));
        if is_thread && style == slice_kind::RUNNING && !index.is_preview() {
            if let Some(track) = index.tracks.get_mut(track as usize) {
                track.busy = track.busy.saturating_add(end.saturating_sub(begin));
            }
        }
        let mut extra = extra;
        if let (StateTrack::Span(thread, _), State::Span(name)) = (interval.track, &interval.state) {
            if let Some(deadline) = self.jobs.remove(&(thread, interval.begin, name.clone())) {
                let is_late = deadline > 0 && end.saturating_sub(begin).max(0) as u64 > deadline;
                style = if is_late { slice_kind::LATE_JOB } else { slice_kind::JOB };
                extra = if deadline > 0 { Extra::Deadline(deadline) } else { Extra::None };
            }
        }
        let seen = u8::from(interval.seen.begin) | u8::from(interval.seen.end) << 1;
        let trace = match interval.track {
            StateTrack::Span(thread, _) => self.program_of(thread),
            _ => self.kernel_of(machine),
        };
        let Some(lane) = index.lane(track, kind, trace) else { return };
        index.push(
            lane,
            &Entry { begin, end, style, seen, label, extra, count: 1, values: Values::default() },
        );
    }

    /// Returns the trace of a thread's program: the one that has its events, or any of its machine
    /// except the kernel's.
    fn program_of(&self, thread: ThreadId) -> u32 {
        if let Some(&known) = self.traces.get(&thread) {
            return known;
        }
        let machine = thread.machine;
        let kernel = self.kernel_of(machine);
        let of_machine = |(trace, of): (usize, &u16)| (*of == machine.0).then_some(trace as u32);
        let mut traces = self.machine_of.iter().enumerate().filter_map(of_machine);
        traces.find(|&trace| trace != kernel).unwrap_or(kernel)
    }

    /// Returns kind, label and extra data of a state.
    fn look(&self, index: &mut Index, machine: MachineId, state: &State) -> (u8, u32, Extra) {
        match state {
            State::Unknown => (slice_kind::UNKNOWN, 0, Extra::None),
            State::Idle => (slice_kind::IDLE, 0, Extra::None),
            State::Runs { tid } => {
                let (track, name) = self.thread_name(index, machine, *tid);
                (slice_kind::RUNNING, name, Extra::Thread(track))
            }
            State::New => (slice_kind::NEW, 0, Extra::None),
            State::Running { cpu } => (slice_kind::RUNNING, 0, Extra::Cpu(*cpu)),
            State::Ready(Why::Woken(waker)) => (slice_kind::RUNNABLE, 0, self.waker(index, machine, *waker)),
            State::Ready(Why::Unspecified) => (slice_kind::RUNNABLE, 0, Extra::None),
            State::Ready(Why::Preempted { by: 0 }) => (slice_kind::RUNNABLE_PREEMPTED, 0, Extra::None),
            State::Ready(Why::Preempted { by }) => {
                let (track, name) = self.thread_name(index, machine, *by);
                (slice_kind::RUNNABLE_PREEMPTED, name, Extra::Thread(track))
            }
            State::Blocked { sleep, syscall } => {
                let style = match sleep {
                    Sleep::Interruptible | Sleep::Unspecified => slice_kind::SLEEPING,
                    Sleep::Uninterruptible => slice_kind::UNINTERRUPTIBLE,
                    Sleep::Stopped => slice_kind::STOPPED,
                };
                (style, syscall.as_ref().map_or(0, |name| index.labels.shared(name)), Extra::None)
            }
            State::Syscall(name) => (slice_kind::SYSCALL, index.labels.shared(name), Extra::None),
            State::Interrupt(number) => {
                let known = index.known.interrupts.get(number).copied();
                let label = known.unwrap_or_else(|| index.labels.number(&format!("irq {number}")));
                (slice_kind::INTERRUPT, label, Extra::Interrupt(*number))
            }
            State::SoftInterrupt(number) => {
                (slice_kind::SOFTIRQ, index.labels.number(&soft_name(*number)), Extra::Interrupt(*number))
            }
            State::Span(name) => (slice_kind::SPAN, index.labels.shared(name), Extra::None),
            State::Function(address) => {
                let known = index.known.functions.get(address).copied();
                let label = known.unwrap_or_else(|| index.labels.number(&format!("{address:#x}")));
                (slice_kind::FUNCTION, label, Extra::Address(*address))
            }
        }
    }

    fn waker(&self, index: &mut Index, machine: MachineId, waker: Waker) -> Extra {
        let mut track = |tid| self.thread(index, ThreadId { machine, tid });
        Extra::WokenBy(match waker {
            Waker::Thread(tid) => WakeupSource::Thread(track(tid)),
            Waker::Interrupt { cpu } => WakeupSource::Interrupt(cpu),
            Waker::Timer { cpu } => WakeupSource::Timer(cpu),
            Waker::OwnTimer { cpu } => WakeupSource::OwnTimer(cpu),
            Waker::During(tid) => WakeupSource::During(track(tid)),
            Waker::Unknown => return Extra::None,
        })
    }

    fn instant(&mut self, index: &mut Index, instant: Instant) -> io::Result<()> {
        let machine = instant.machine;
        match instant.what {
            Happening::Named { tid, name, pid } => {
                self.name(index, ThreadId { machine, tid }, (Some(&name), pid));
            }
            Happening::Gone { tid } => {
                if let Some((_, is_gone)) = index.known.threads.get_mut(&(machine.0, tid)) {
                    *is_gone = true;
                }
            }
            Happening::Wakeup { tid, waker } => {
                let kernel = self.kernel_of(machine);
                let to = self.living(index, ThreadId { machine, tid });
                // Wakeups by interrupts have no arrow: they are not actions of the interrupted
                // thread.
                let Waker::Thread(waker) = waker else { return Ok(()) };
                let track = self.thread(index, ThreadId { machine, tid: waker });
                let from = index.lane(track, (LaneKind::Thread, 0), kernel);
                let to = index.lane(to, (LaneKind::Thread, 0), kernel);
                let time = instant.time.saturating_sub(index.base);
                if let Some((from, to)) = from.zip(to) {
                    return arrow(index, slice_kind::WAKEUP, (time, from), (time, to));
                }
            }
            Happening::Fork { child, .. } => drop(self.living(index, ThreadId { machine, tid: child })),
            Happening::Exit { .. } | Happening::Loss { .. } => {}
        }
        Ok(())
    }

    fn mark(&self, index: &mut Index, place: Where, (time, name): (i64, &Arc<str>)) {
        let (track, trace) = match place {
            Where::Thread(thread, trace) => (self.thread(index, thread), trace),
            Where::Cpu(machine, cpu) => (self.cpu(index, machine, cpu), self.kernel_of(machine)),
            Where::Channel(channel) => {
                let Some(&track) = self.channels.get(channel as usize) else { return };
                (track, index.tracks.get(track as usize).map_or(0, |track| track.number as u32))
            }
        };
        let label = index.labels.shared(name);
        let Some(lane) = index.lane(track, (LaneKind::Marks, 0), trace) else { return };
        index.push(
            lane,
            &Entry {
                begin: time,
                end: time,
                style: slice_kind::MARK,
                seen: 3,
                label,
                count: 1,
                ..Entry::default()
            },
        );
    }

    /// Returns the lane of a counter, which is added if it is new; `None` if there are too many.
    fn counter_lane(&self, index: &mut Index, number: u32, trace: u32, name: &str) -> Option<u32> {
        if let Some(&lane) = index.known.counters.get(&number) {
            return Some(lane);
        }
        let name = index.labels.number(name);
        let track = index.add_track(new_track((TrackKind::Counter, None), (name, 0, number.into())));
        let lane = index.lane(track, (LaneKind::Counter, 0), trace)?;
        index.known.counters.insert(number, lane);
        Some(lane)
    }

    /// Adds a value to the lane of a counter.
    fn counter(&self, index: &mut Index, id: u32, time: i64, value: f64) {
        let Some(lane) = index.lanes.get_mut(id as usize) else { return };
        lane.range = (lane.range.0.min(value), lane.range.1.max(value));
        let trace = lane.trace;
        index.push(id, &point(time, value));
        if self.gaps.get(&trace).is_some_and(|until| time < *until) {
            index.push(id, &point(time, f64::NAN));
        }
    }

    fn flow(
        &mut self,
        index: &mut Index,
        thread: ThreadId,
        (time, flow): (i64, (Arc<str>, i128)),
    ) -> io::Result<()> {
        let track = self.thread(index, thread);
        let trace = self.program_of(thread);
        let Some(lane) = index.lane(track, (LaneKind::Marks, 0), trace) else { return Ok(()) };
        if self.flows.len() >= MAX_OPEN_STEPS && !self.flows.contains_key(&flow) {
            // With so many open steps, most have no next one.
            self.flows.clear();
        }
        match self.flows.insert(flow, (time, lane)) {
            Some(from) => arrow(index, slice_kind::FLOW, from, (time, lane)),
            None => Ok(()),
        }
    }
}

fn arrow(index: &mut Index, style: u8, from: (i64, u32), to: (i64, u32)) -> io::Result<()> {
    let extra = Extra::Lane(to.1);
    let entry = Entry { begin: from.0, end: to.0, style, label: from.1, extra, count: 1, ..Entry::default() };
    index.arrows.push(&entry, (&index.widths, &index.store)).map(drop)
}

/// Returns an entry that stands for a number of events.
fn counted(style: u8, (begin, end): (i64, i64), count: u64) -> Entry {
    Entry { begin, end, style, count, ..Entry::default() }
}

/// Makes a counter's point; not a number where the value is unknown from then on.
fn point(time: i64, value: f64) -> Entry {
    Entry {
        begin: time,
        end: time,
        style: slice_kind::COUNTER,
        seen: 3,
        count: 1,
        values: Values::one(value),
        ..Entry::default()
    }
}

/// Makes a track without lanes.
pub fn new_track(
    (kind, parent): (TrackKind, Option<u32>),
    (name, machine, number): (u32, u16, i64),
) -> Track {
    Track { parent, kind, name, machine, number, pid: None, lanes: Vec::new(), busy: 0 }
}

/// Returns the kernel's name of a softirq.
fn soft_name(number: i64) -> String {
    const NAMES: [&str; 10] =
        ["hi", "timer", "net tx", "net rx", "block", "irq poll", "tasklet", "sched", "hrtimer", "rcu"];
    let name = usize::try_from(number).ok().and_then(|number| NAMES.get(number));
    name.map_or_else(|| format!("softirq {number}"), ToString::to_string)
}
