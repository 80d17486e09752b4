//! Threads and CPUs of one machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::classes::Action;
use super::facts::{FactView, number, text};
use super::{Happening, Instant, MachineId, OpenState, Sleep, State, ThreadId, Track, Visitor, Waker, Why};
use crate::quick::QuickMap;

/// Maximum nesting of interrupts: more means lost exits.
const MAX_NESTED: usize = 8;
/// Bits of a thread's state when it is switched out: kind of sleep, or exit.
const UNINTERRUPTIBLE: i64 = 0x02;
const STOPPED: i64 = 0x04 | 0x08;
const GONE: i64 = 0x10 | 0x20;
/// Other states in which a thread leaves its CPU for the last time, after its exit: `TASK_DEAD` of
/// old kernels, and as the kernel itself has it.
const DEAD: i64 = 0x40 | 0x80;
/// Bits of sleeps, which a dead thread never has. 0x80 beside one is `TASK_WAKEKILL` of old
/// kernels.
const ASLEEP: i64 = 0x01 | UNINTERRUPTIBLE;
/// Uninterruptible sleep that is no wait for anything, of idle threads of the kernel
/// (`TASK_UNINTERRUPTIBLE | TASK_NOLOAD`), where a trace has the kernel's own numbers.
const IDLE: i64 = UNINTERRUPTIBLE | 0x400;
/// Mask of the states that are reported; the bits above mean that the thread was preempted.
const STATES: i64 = 0xff;

/// Values of `waker_context`.
mod context {
    pub const THREAD: i64 = 1;
    pub const SOFTIRQ: i64 = 2;
    pub const INTERRUPT: i64 = 3;
    pub const TIMER: i64 = 4;
    pub const OWN_TIMER: i64 = 5;
}

/// Current states of a machine.
pub(super) struct Machine {
    pub id: MachineId,
    pub host: String,
    /// Time of the kernel's first event.
    begin: Option<i64>,
    /// Time of the kernel's last event.
    latest: i64,
    cpus: BTreeMap<u32, Cpu>,
    threads: QuickMap<i32, Thread>,
    /// Whether traces have events of the CPUs' own timers.
    pub tells_timers: bool,
    /// CPUs whose events are missing at present; `None` is any CPU. A thread that does not run on
    /// another one may be woken or run there.
    gaps: Vec<Option<u32>>,
    /// Threads that changed their ids within calls: the former id, which is not free before the
    /// call has returned, and the new one.
    renamed: Vec<(i32, i32)>,
}

struct Cpu {
    current: OpenState,
    interrupts: Vec<(i64, OpenState)>,
    soft: Option<OpenState>,
    /// Whether the handler of a timer runs.
    timer: bool,
}

struct Thread {
    state: OpenState,
    syscall: Option<OpenCall>,
    name: Vec<u8>,
    pid: Option<i32>,
    /// Whether the thread is ending, and only its last switch is missing.
    exiting: bool,
}

/// System call that has not returned.
struct OpenCall {
    state: OpenState,
    /// Id of the thread at the entry.
    tid: i32,
}

impl OpenCall {
    /// Reports the call of a thread. If the thread had another id at the entry, that is free now.
    fn end(self, id: ThreadId, now: i64, (seen, visitor): (bool, &mut dyn Visitor)) {
        let entered = ThreadId { tid: self.tid, ..id };
        visitor.interval(&self.state.end(Track::Syscall(entered), now, seen));
        if entered != id {
            let what = Happening::Gone { tid: self.tid };
            visitor.instant(&Instant { time: now, machine: id.machine, what });
        }
    }
}

impl Thread {
    fn new(state: OpenState) -> Self {
        Self { state, syscall: None, name: Vec::new(), pid: None, exiting: false }
    }

    /// Makes the state unknown if only an event's context told that the thread runs: it may have
    /// left its CPU right after that event.
    fn doubt_context(&mut self) {
        if !self.state.seen && matches!(self.state.state, State::Running { .. }) {
            self.state.state = State::Unknown;
        }
    }

    /// Reports the thread's open states. Their end was not observed; `seen` applies to the
    /// scheduling state.
    fn end(self, id: ThreadId, now: i64, (seen, visitor): (bool, &mut dyn Visitor)) {
        if let Some(syscall) = self.syscall {
            syscall.end(id, now, (false, &mut *visitor));
        }
        if self.state.since < now {
            visitor.interval(&self.state.end(Track::Thread(id), now, seen));
        }
    }
}

/// Time and CPU of an event.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub time: i64,
    pub cpu: Option<u32>,
}

impl Machine {
    pub fn new(id: MachineId, host: String) -> Self {
        Self {
            id,
            host,
            begin: None,
            latest: i64::MIN,
            cpus: BTreeMap::new(),
            threads: QuickMap::default(),
            tells_timers: false,
            gaps: Vec::new(),
            renamed: Vec::new(),
        }
    }

    /// Returns the same machine without anything that events have told.
    pub fn fresh(&self) -> Self {
        Self { tells_timers: self.tells_timers, ..Self::new(self.id, self.host.clone()) }
    }

    fn thread_id(&self, tid: i32) -> ThreadId {
        ThreadId { machine: self.id, tid }
    }

    /// Processes an event of the kernel.
    pub fn event(&mut self, fact: FactView<'_>, action: &Action, moment: Moment, visitor: &mut dyn Visitor) {
        let Moment { time, cpu } = moment;
        self.meet(moment);
        if let Action::Exec = action {
            self.exec(fact, time, visitor);
        }
        if let Some(cpu) = cpu {
            self.learn_current(fact, action, (time, cpu), visitor);
        }
        self.learn_process(fact, time, visitor);
        match action {
            Action::Switch => self.switch(fact, moment, visitor),
            Action::Waking => {
                self.doubt_ready(fact);
                self.wake(fact, moment, visitor);
            }
            Action::Wake => self.wake(fact, moment, visitor),
            Action::Fork => self.fork(fact, time, visitor),
            Action::Exit => {
                if let Some(tid) = fact.id(number::THREAD) {
                    if let Some(thread) = self.threads.get_mut(&tid) {
                        thread.exiting = true;
                    }
                    self.report(time, Happening::Exit { tid }, visitor);
                }
            }
            Action::Free => {
                let gone = fact.id(number::THREAD).and_then(|tid| Some((tid, self.threads.remove(&tid)?)));
                if let Some((tid, mut thread)) = gone {
                    thread.doubt_context();
                    thread.end(self.thread_id(tid), time, (true, visitor));
                    self.report(time, Happening::Gone { tid }, visitor);
                }
            }
            Action::ProcessState => self.process_state(fact, time, visitor),
            Action::SyscallEntry(name) => self.syscall_entry(fact, (moment, name), visitor),
            Action::SyscallExit(name) => {
                let Some(tid) = self.caller(fact, cpu) else { return };
                let id = self.thread_id(tid);
                let syscall = self.threads.get_mut(&tid).and_then(|thread| thread.syscall.take());
                if let Some(syscall) = syscall {
                    // The return of another call than was entered: two events are missing without a
                    // count.
                    let is_same =
                        matches!(&syscall.state.state, State::Syscall(open) if is_exit_of(name, open));
                    syscall.end(id, time, (is_same || name.is_empty(), visitor));
                }
            }
            Action::InterruptEntry
            | Action::InterruptExit
            | Action::SoftInterruptEntry
            | Action::SoftInterruptExit => self.interrupt(fact, action, moment, visitor),
            Action::TimerEntry | Action::TimerExit => {
                if let Some(cpu) = cpu.and_then(|cpu| self.cpus.get_mut(&cpu)) {
                    cpu.timer = matches!(action, Action::TimerEntry);
                }
            }
            _ => {}
        }
    }

    /// Notes that the kernel was recorded at this time, and that this CPU exists.
    fn meet(&mut self, Moment { time, cpu }: Moment) {
        let begin = *self.begin.get_or_insert(time);
        self.latest = self.latest.max(time);
        if let Some(cpu) = cpu {
            let unknown = || Cpu {
                current: OpenState::unknown(begin),
                interrupts: Vec::new(),
                soft: None,
                timer: false,
            };
            self.cpus.entry(cpu).or_insert_with(unknown);
        }
    }

    /// Processes an event after which others may be missing: threads are still known, their states
    /// are not.
    pub fn event_before_gap(
        &mut self,
        fact: FactView<'_>,
        action: &Action,
        moment: Moment,
        visitor: &mut dyn Visitor,
    ) {
        self.meet(moment);
        let tid = fact.id(number::THREAD).filter(|&tid| tid > 0 && matches!(action, Action::ProcessState));
        let (Some(tid), false) = (tid, is_gone(fact)) else { return };
        if !self.threads.contains_key(&tid) {
            self.turn(tid, OpenState::unknown(moment.time), visitor);
        }
        self.name((tid, moment.time), fact.text(text::NAME), fact.id(number::PROCESS), visitor);
    }

    fn report(&self, time: i64, what: Happening, visitor: &mut dyn Visitor) {
        visitor.instant(&Instant { time, machine: self.id, what });
    }

    /// Returns the thread that a CPU runs; 0 is its idle thread.
    fn current(&self, cpu: Option<u32>) -> Option<i32> {
        match self.cpus.get(&cpu?)?.current.state {
            State::Runs { tid } => Some(tid),
            State::Idle => Some(0),
            _ => None,
        }
    }

    /// Returns the thread of an event: by its context, or by its CPU.
    fn caller(&self, fact: FactView<'_>, cpu: Option<u32>) -> Option<i32> {
        fact.thread().or_else(|| self.current(cpu)).filter(|&tid| tid != 0)
    }

    /// Learns from an event's context which thread runs on the CPU. If another one was known to
    /// run, a switch is missing without a count, at an unknown time.
    fn learn_current(
        &mut self,
        fact: FactView<'_>,
        action: &Action,
        (time, cpu): (i64, u32),
        visitor: &mut dyn Visitor,
    ) {
        if matches!(action, Action::Switch | Action::ProcessState) {
            return;
        }
        let Some(tid) = fact.thread() else { return };
        match self.current(Some(cpu)) {
            Some(known) if known == tid => {}
            // Between the event of a switch and the switch itself, the kernel has other events of
            // the previous thread.
            Some(_) if matches!(action, Action::OtherOfKernel) => {}
            known => {
                if let Some(known) = known {
                    self.doubt_current(known, cpu);
                }
                self.put(tid, (time, cpu), false, visitor);
            }
        }
    }

    /// Learns from an event's context to which process its thread belongs. The events that say so
    /// otherwise may have been overwritten.
    fn learn_process(&mut self, fact: FactView<'_>, time: i64, visitor: &mut dyn Visitor) {
        let ids = fact.thread().zip(fact.process()).filter(|&(tid, pid)| tid > 0 && pid > 0);
        let Some((tid, pid)) = ids else { return };
        let Some(thread) = self.threads.get_mut(&tid).filter(|thread| thread.pid != Some(pid)) else {
            return;
        };
        thread.pid = Some(pid);
        let name = String::from_utf8_lossy(&thread.name).into_owned();
        self.report(time, Happening::Named { tid, name, pid: Some(pid) }, visitor);
    }

    /// Makes unknown what a CPU and its thread did since the last switch, up to its next event.
    fn doubt_current(&mut self, tid: i32, cpu: u32) {
        if let Some(known) = self.cpus.get_mut(&cpu) {
            known.current.state = State::Unknown;
        }
        let runs_here = |thread: &&mut Thread| thread.state.state == State::Running { cpu };
        if let Some(thread) = self.threads.get_mut(&tid).filter(runs_here) {
            thread.state.state = State::Unknown;
        }
    }

    /// Runs a thread on a CPU from now on; `seen` states whether the switch itself was observed.
    fn put(&mut self, tid: i32, (time, cpu): (i64, u32), seen: bool, visitor: &mut dyn Visitor) {
        let state = if tid == 0 { State::Idle } else { State::Runs { tid } };
        let track = Track::Cpu(self.id, cpu);
        if let Some(known) = self.cpus.get_mut(&cpu) {
            known.current.turn(track, OpenState { state, since: time, seen }, visitor);
        }
        if tid != 0 {
            self.doubt_elsewhere(tid, cpu);
            self.turn(tid, OpenState { state: State::Running { cpu }, since: time, seen }, visitor);
        }
    }

    /// Begins a time in which all events of a CPU, or of any CPU, are missing.
    pub fn open_gap(&mut self, cpu: Option<u32>) {
        self.gaps.push(cpu);
    }

    /// Ends such a time.
    pub fn close_gap(&mut self, cpu: Option<u32>) {
        if let Some(known) = self.gaps.iter().position(|gap| *gap == cpu) {
            self.gaps.swap_remove(known);
        }
    }

    /// Changes the state of a thread. What it does off the CPU is unknown while events of some CPU
    /// are missing.
    fn turn(&mut self, tid: i32, mut next: OpenState, visitor: &mut dyn Visitor) {
        if !self.gaps.is_empty() && !matches!(next.state, State::Running { .. }) {
            next.state = State::Unknown;
        }
        let track = Track::Thread(self.thread_id(tid));
        match self.threads.get_mut(&tid) {
            Some(thread) => thread.state.turn(track, next, visitor),
            None => {
                self.free(tid, next.since, visitor);
                self.threads.insert(tid, Thread::new(next));
            }
        }
    }

    /// Ends the call that was entered under an id that another thread has now: its return is
    /// missing.
    fn free(&mut self, tid: i32, time: i64, visitor: &mut dyn Visitor) {
        let Some(place) = self.renamed.iter().position(|(former, _)| *former == tid) else { return };
        let (_, heir) = self.renamed.swap_remove(place);
        let id = self.thread_id(heir);
        let is_entered = |call: &mut OpenCall| call.tid == tid && heir != tid;
        let thread = self.threads.get_mut(&heir);
        if let Some(call) = thread.and_then(|thread| thread.syscall.take_if(is_entered)) {
            call.end(id, time, (false, visitor));
        }
    }

    /// Sets a thread's name and process.
    fn name(
        &mut self,
        (tid, time): (i32, i64),
        name: Option<&[u8]>,
        pid: Option<i32>,
        visitor: &mut dyn Visitor,
    ) {
        let (Some(thread), Some(name)) = (self.threads.get_mut(&tid), name) else { return };
        let pid = pid.or(thread.pid);
        if thread.name == name && thread.pid == pid {
            return;
        }
        thread.name = name.to_vec();
        thread.pid = pid;
        let name = String::from_utf8_lossy(name).into_owned();
        self.report(time, Happening::Named { tid, name, pid }, visitor);
    }

    fn switch(&mut self, fact: FactView<'_>, Moment { time, cpu }: Moment, visitor: &mut dyn Visitor) {
        let (previous, next) = (fact.id(number::THREAD), fact.id(number::NEXT));
        let (Some(previous), Some(next), Some(cpu)) = (previous, next, cpu) else { return };
        // If the trace contradicts itself, an event is missing without a count.
        if let Some(tid) = self.current(Some(cpu)).filter(|&tid| tid != previous) {
            self.forget_current(tid, (time, cpu), visitor);
        }
        if previous != 0 {
            self.doubt_elsewhere(previous, cpu);
            self.leave(previous, fact.number(number::STATE).unwrap_or(0), (time, next), visitor);
            self.name((previous, time), fact.text(text::NAME), None, visitor);
        }
        self.put(next, (time, cpu), true, visitor);
        if next != 0 {
            self.name((next, time), fact.text(text::NEXT), None, visitor);
        }
    }

    /// Forgets that a thread runs on a CPU. If only an event's context told so, it may have left
    /// the CPU right after that event.
    fn forget_current(&mut self, tid: i32, (time, cpu): (i64, u32), visitor: &mut dyn Visitor) {
        if let Some(known) = self.cpus.get_mut(&cpu).filter(|known| !known.current.seen) {
            known.current.state = State::Unknown;
        }
        // Since then the thread may have been seen elsewhere, or have ended.
        let runs_here = |thread: &&mut Thread| thread.state.state == State::Running { cpu };
        if let Some(thread) = self.threads.get_mut(&tid).filter(runs_here) {
            thread.doubt_context();
            self.turn(tid, OpenState::unknown(time), visitor);
        }
    }

    /// Doubts that a thread runs on another CPU than this one, on which it was seen.
    fn doubt_elsewhere(&mut self, tid: i32, cpu: u32) {
        let runs_here = State::Running { cpu };
        if let Some(thread) = self.threads.get_mut(&tid).filter(|thread| thread.state.state != runs_here) {
            thread.doubt_context();
        }
    }

    /// Switches a thread out in favour of another one.
    fn leave(&mut self, tid: i32, state: i64, (time, next): (i64, i32), visitor: &mut dyn Visitor) {
        let id = self.thread_id(tid);
        let exiting = self.threads.get(&tid).is_some_and(|thread| thread.exiting);
        let waits = state & STATES;
        // 0x80 alone is not an exit, but the sleep of kernel threads since Linux 4.14
        // (TASK_REPORT_IDLE).
        if waits & GONE != 0 || exiting && waits & DEAD != 0 && waits & ASLEEP == 0 {
            if let Some(thread) = self.threads.remove(&tid) {
                thread.end(id, time, (true, visitor));
                self.report(time, Happening::Gone { tid }, visitor);
            }
            return;
        }
        let syscall = self.threads.get(&tid).and_then(|thread| match &thread.syscall {
            Some(OpenCall { state: OpenState { state: State::Syscall(name), .. }, .. }) => Some(name.clone()),
            _ => None,
        });
        let is_idle = state & IDLE == IDLE;
        let state = if waits == 0 {
            State::Ready(Why::Preempted { by: next })
        } else if waits & UNINTERRUPTIBLE != 0 && !is_idle {
            State::Blocked { sleep: Sleep::Uninterruptible, syscall }
        } else if waits & STOPPED != 0 {
            State::Blocked { sleep: Sleep::Stopped, syscall }
        } else {
            State::Blocked { sleep: Sleep::Interruptible, syscall }
        };
        self.turn(tid, OpenState { state, since: time, seen: true }, visitor);
        // While events are missing, the call may end without an event.
        let cut = self.threads.get_mut(&tid).filter(|_| !self.gaps.is_empty());
        if let Some(syscall) = cut.and_then(|thread| thread.syscall.take()) {
            syscall.end(id, time, (false, visitor));
        }
    }

    /// Makes unknown what a thread did since it was woken, if it is about to be woken once more: it
    /// has run and slept since, and the events of that are missing. The kernel reports
    /// `sched_waking` only of threads that sleep or are about to (`ttwu_state_match` in
    /// kernel/sched/core.c).
    fn doubt_ready(&mut self, fact: FactView<'_>) {
        let thread = fact.id(number::THREAD).and_then(|tid| self.threads.get_mut(&tid));
        if let Some(thread) =
            thread.filter(|thread| matches!(thread.state.state, State::Ready(Why::Woken(_))))
        {
            thread.state.state = State::Unknown;
        }
    }

    fn wake(&mut self, fact: FactView<'_>, Moment { time, cpu }: Moment, visitor: &mut dyn Visitor) {
        let Some(tid) = fact.id(number::THREAD).filter(|&tid| tid != 0) else { return };
        let state = self.threads.get(&tid).map(|thread| &thread.state.state);
        // The second event of a wakeup, or one that came before the thread had gone to sleep.
        if matches!(state, Some(State::Running { .. } | State::Ready(_))) {
            return;
        }
        let waker = self.waker(fact, cpu);
        let ready = State::Ready(Why::Woken(waker));
        self.turn(tid, OpenState { state: ready, since: time, seen: true }, visitor);
        self.report(time, Happening::Wakeup { tid, waker }, visitor);
        self.name((tid, time), fact.text(text::NAME), None, visitor);
    }

    /// Returns the source of a wakeup that happens on a CPU: as the event states it, or else as the
    /// events before tell. The event's own thread is the one that runs, even if the switch to it is
    /// missing.
    fn waker(&self, fact: FactView<'_>, cpu: Option<u32>) -> Waker {
        let known = cpu.and_then(|number| Some((number, self.cpus.get(&number)?)));
        let Some((number, cpu)) = known else { return Waker::Unknown };
        let runs = match cpu.current.state {
            State::Runs { tid } => Some(tid),
            _ => None,
        };
        let during = fact.thread().or(runs).filter(|&tid| tid != 0);
        let by_thread = during.map_or(Waker::Unknown, Waker::Thread);
        let context = fact.number(number::CONTEXT);
        match context {
            Some(context::THREAD) => return by_thread,
            Some(context::SOFTIRQ | context::INTERRUPT) => return Waker::Interrupt { cpu: number },
            Some(context::TIMER) => return Waker::Timer { cpu: number },
            Some(context::OWN_TIMER) => return Waker::OwnTimer { cpu: number },
            _ => {}
        }
        match cpu.current.state {
            _ if cpu.timer => Waker::Timer { cpu: number },
            _ if !cpu.interrupts.is_empty() || cpu.soft.is_some() => Waker::Interrupt { cpu: number },
            State::Runs { .. } if context.is_none() && self.tells_timers => by_thread,
            State::Runs { .. } => during.map_or(Waker::Unknown, Waker::During),
            // The idle thread wakes no thread itself, so it was an interrupt without events.
            State::Idle => Waker::Interrupt { cpu: number },
            _ => Waker::Unknown,
        }
    }

    fn fork(&mut self, fact: FactView<'_>, time: i64, visitor: &mut dyn Visitor) {
        let (parent, child) = (fact.id(number::PARENT), fact.id(number::CHILD));
        let (Some(parent), Some(child)) = (parent, child) else { return };
        self.free(child, time, visitor);
        let new = Thread::new(OpenState { state: State::New, since: time, seen: true });
        if let Some(before) = self.threads.insert(child, new) {
            before.end(self.thread_id(child), time, (false, visitor));
            self.report(time, Happening::Gone { tid: child }, visitor);
        }
        self.report(time, Happening::Fork { parent, child }, visitor);
        self.name((child, time), fact.text(text::NAME), fact.id(number::PROCESS), visitor);
    }

    /// Follows a thread that executes a program and is not its process's leader: it takes the
    /// leader's id, once all other threads of the process have ended (`de_thread` in fs/exec.c).
    fn exec(&mut self, fact: FactView<'_>, time: i64, visitor: &mut dyn Visitor) {
        let (tid, former_tid) = (fact.id(number::THREAD), fact.id(number::FORMER));
        let (Some(tid), Some(former_tid)) = (tid, former_tid) else { return };
        if tid == former_tid {
            return;
        }
        for (&place, cpu) in &mut self.cpus {
            if cpu.current.state == (State::Runs { tid: former_tid }) {
                let next = OpenState { state: State::Runs { tid }, since: time, seen: true };
                cpu.current.turn(Track::Cpu(self.id, place), next, visitor);
            }
        }
        let Some(mut former) = self.threads.remove(&former_tid) else { return };
        let (syscall, name) = (former.syscall.take(), std::mem::take(&mut former.name));
        let state = former.state.state.clone();
        former.end(self.thread_id(former_tid), time, (true, visitor));
        let is_alive = |(_, heir): &(i32, i32)| *heir == former_tid || self.threads.contains_key(heir);
        self.renamed.retain(is_alive);
        for (_, heir) in self.renamed.iter_mut().filter(|(_, heir)| *heir == former_tid) {
            *heir = tid;
        }
        if syscall.as_ref().is_some_and(|call| call.tid == former_tid) {
            self.renamed.push((former_tid, tid));
        } else {
            self.report(time, Happening::Gone { tid: former_tid }, visitor);
        }
        let mut next = Thread::new(OpenState { seen: state != State::Unknown, state, since: time });
        match self.threads.remove(&tid) {
            // It was switched out under its new id before this event.
            Some(known) if !known.exiting && next.state.state == State::Unknown => next.state = known.state,
            Some(leader) => {
                leader.end(self.thread_id(tid), time, (false, visitor));
                self.report(time, Happening::Gone { tid }, visitor);
            }
            None => {}
        }
        self.free(tid, time, visitor);
        if syscall.as_ref().is_some_and(|call| call.tid == tid) {
            // It has the id again with which it entered the call.
            self.report(time, Happening::Gone { tid }, visitor);
        }
        next.syscall = syscall;
        self.threads.insert(tid, next);
        let name = Some(name.as_slice()).filter(|name| !name.is_empty());
        self.name((tid, time), name, Some(tid), visitor);
    }

    /// Processes the state dump of a thread. Information from other events is newer.
    fn process_state(&mut self, fact: FactView<'_>, time: i64, visitor: &mut dyn Visitor) {
        let Some(tid) = fact.id(number::THREAD).filter(|&tid| tid > 0) else { return };
        let is_known = |thread: &Thread| thread.state.state != State::Unknown;
        if !self.threads.get(&tid).is_some_and(is_known) {
            let state = match fact.number(number::STATE) {
                Some(2) => State::Ready(Why::Unspecified),
                Some(1 | 5) => State::Blocked { sleep: Sleep::Unspecified, syscall: None },
                _ if is_gone(fact) => return,
                _ => State::Unknown,
            };
            self.turn(tid, OpenState { state, since: time, seen: false }, visitor);
        }
        self.name((tid, time), fact.text(text::NAME), fact.id(number::PROCESS), visitor);
    }

    fn syscall_entry(
        &mut self,
        fact: FactView<'_>,
        (Moment { time, cpu }, name): (Moment, &Arc<str>),
        visitor: &mut dyn Visitor,
    ) {
        let Some(tid) = self.caller(fact, cpu) else { return };
        let id = self.thread_id(tid);
        if !self.threads.contains_key(&tid) {
            self.free(tid, time, visitor);
        }
        let thread = self.threads.entry(tid).or_insert_with(|| Thread::new(OpenState::unknown(time)));
        let state = OpenState { state: State::Syscall(name.clone()), since: time, seen: true };
        if let Some(before) = thread.syscall.replace(OpenCall { state, tid }) {
            before.end(id, time, (false, visitor));
        }
    }

    fn interrupt(
        &mut self,
        fact: FactView<'_>,
        action: &Action,
        Moment { time, cpu }: Moment,
        visitor: &mut dyn Visitor,
    ) {
        let machine = self.id;
        let number = fact.number(number::OTHER).unwrap_or(-1);
        let Some((place, cpu)) = cpu.and_then(|cpu| Some((cpu, self.cpus.get_mut(&cpu)?))) else { return };
        let begins = |state| OpenState { state, since: time, seen: true };
        match action {
            Action::InterruptEntry => {
                if cpu.interrupts.len() >= MAX_NESTED {
                    cpu.end_interrupts((machine, place), (0, time), visitor);
                }
                cpu.interrupts.push((number, begins(State::Interrupt(number))));
            }
            Action::InterruptExit => {
                let Some(depth) = cpu.interrupts.iter().rposition(|(open, _)| *open == number) else {
                    return;
                };
                cpu.end_interrupts((machine, place), (depth + 1, time), visitor);
                if let Some((_, interrupt)) = cpu.interrupts.pop() {
                    let track = Track::Interrupt(machine, place, depth as u8);
                    visitor.interval(&interrupt.end(track, time, true));
                }
            }
            Action::SoftInterruptEntry => {
                cpu.end_soft((machine, place), (time, false), visitor);
                cpu.soft = Some(begins(State::SoftInterrupt(number)));
            }
            _ => cpu.end_soft((machine, place), (time, true), visitor),
        }
    }

    /// Forgets states after lost events on a CPU, or on any CPU: they may have changed.
    pub fn forget(&mut self, lost: Option<u32>, time: i64, visitor: &mut dyn Visitor) {
        let id = self.id;
        let is_lost = |cpu: u32| lost.is_none_or(|lost| lost == cpu);
        for (&place, cpu) in self.cpus.iter_mut().filter(|(cpu, _)| is_lost(**cpu)) {
            cpu.current.turn(Track::Cpu(id, place), OpenState::unknown(time), visitor);
            cpu.end_interrupts((id, place), (0, time), visitor);
            cpu.end_soft((id, place), (time, false), visitor);
            cpu.timer = false;
        }
        for (&tid, thread) in &mut self.threads {
            // A thread that runs on another CPU can't be affected by events on this one.
            if matches!(thread.state.state, State::Running { cpu } if !is_lost(cpu)) {
                continue;
            }
            let thread_id = ThreadId { machine: id, tid };
            thread.state.turn(Track::Thread(thread_id), OpenState::unknown(time), visitor);
            if let Some(syscall) = thread.syscall.take() {
                syscall.end(thread_id, time, (false, &mut *visitor));
            }
        }
    }

    /// Reports open states at the end; after the end of the kernel's recording they are unknown.
    pub fn finish(&mut self, until: Option<i64>, now: i64, visitor: &mut dyn Visitor) {
        if let Some(until) = until.map(|until| until.max(self.latest)).filter(|&until| until < now) {
            self.forget(None, until, visitor);
        }
        let id = self.id;
        for (place, mut cpu) in std::mem::take(&mut self.cpus) {
            cpu.end_interrupts((id, place), (0, now), visitor);
            cpu.end_soft((id, place), (now, false), visitor);
            cpu.current.finish(Track::Cpu(id, place), now, visitor);
        }
        let mut threads: Vec<_> = std::mem::take(&mut self.threads).into_iter().collect();
        threads.sort_unstable_by_key(|(tid, _)| *tid);
        for (tid, thread) in threads {
            thread.end(ThreadId { machine: id, tid }, now, (false, visitor));
        }
    }
}

/// Whether a call's return is that of the open one. A thread that returns from a signal's handler
/// has the number -1 at the exit, which is no call's.
fn is_exit_of(exit: &str, open: &str) -> bool {
    exit == open || exit == "unknown" && open == "rt_sigreturn"
}

/// Whether a state dump describes a thread that has ended, which needs no state.
fn is_gone(fact: FactView<'_>) -> bool {
    matches!(fact.number(number::STATE), Some(3 | 4 | 7))
}

impl Cpu {
    /// Ends interrupts from a depth on, whose ends were not observed.
    fn end_interrupts(
        &mut self,
        (machine, place): (MachineId, u32),
        (depth, time): (usize, i64),
        visitor: &mut dyn Visitor,
    ) {
        while self.interrupts.len() > depth {
            let Some((_, interrupt)) = self.interrupts.pop() else { break };
            let track = Track::Interrupt(machine, place, self.interrupts.len() as u8);
            visitor.interval(&interrupt.end(track, time, false));
        }
    }

    fn end_soft(
        &mut self,
        (machine, place): (MachineId, u32),
        (time, seen): (i64, bool),
        visitor: &mut dyn Visitor,
    ) {
        if let Some(soft) = self.soft.take() {
            visitor.interval(&soft.end(Track::SoftInterrupt(machine, place), time, seen));
        }
    }
}
