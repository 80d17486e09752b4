//! Annotation of events beside their states: marks, counters, flows and names.

use std::sync::Arc;

use tompion_analysis::quick::QuickSet;
use tompion_analysis::state::{Fact, MachineId, ThreadId};

use super::classes::{Class, Classes, Show};
use super::decode::{DecodedEvent, EventExtra, EventRef, MAX_KNOWN_NAMES};
use crate::apply::{Finding, Where};

/// Annotator of events, which reports each name once.
#[derive(Clone)]
pub struct Annotator {
    /// Event classes of all traces.
    pub classes: Arc<Classes>,
    /// Machine of each trace.
    machines: Vec<MachineId>,
    known_threads: QuickSet<(usize, i32)>,
    interrupts: QuickSet<i64>,
    functions: QuickSet<(u32, u64)>,
}

/// Time and channel of an event.
#[derive(Clone, Copy, Debug)]
pub struct Occurrence {
    /// Nanoseconds from the base.
    pub time: i64,
    /// Number of the channel.
    pub channel: u32,
}

impl Annotator {
    /// Makes an annotator for event classes and the machines of their traces.
    pub fn new(classes: Arc<Classes>, machines: Vec<MachineId>) -> Self {
        let (known_threads, interrupts, functions) =
            (QuickSet::default(), QuickSet::default(), QuickSet::default());
        Self { classes, machines, known_threads, interrupts, functions }
    }

    /// Annotates an event.
    pub fn annotate(
        &mut self,
        decoded: DecodedEvent<'_>,
        occurrence: Occurrence,
        emit: &mut dyn FnMut(Finding),
    ) {
        let classes = self.classes.clone();
        let Some(class) = decoded.event.class.and_then(|class| classes.get(class)) else { return };
        if class.is_of_program {
            self.meet_thread(&decoded, emit);
            self.of_program(decoded, class, occurrence, emit);
        } else {
            self.of_kernel(decoded, class, occurrence.time, emit);
        }
    }

    fn machine(&self, trace: u32) -> MachineId {
        self.machines.get(trace as usize).copied().unwrap_or_default()
    }

    fn of_kernel(
        &mut self,
        decoded: DecodedEvent<'_>,
        class: &Class,
        time: i64,
        emit: &mut dyn FnMut(Finding),
    ) {
        if class.show == Show::CpuMark {
            if let Some(cpu) = decoded.fact.cpu() {
                let place = Where::Cpu(self.machine(decoded.event.trace), cpu);
                emit(Finding::Mark(place, time, class.name.clone()));
            }
        }
        if let Some(EventExtra::Interrupt(number, name)) = decoded.extras {
            if self.interrupts.len() < MAX_KNOWN_NAMES && self.interrupts.insert(number) {
                emit(Finding::InterruptName(number, name));
            }
        }
    }

    fn of_program(
        &mut self,
        DecodedEvent { event, fact, extras, .. }: DecodedEvent<'_>,
        class: &Class,
        Occurrence { time, channel }: Occurrence,
        emit: &mut dyn FnMut(Finding),
    ) {
        let thread = self.thread(event, fact);
        let name = || class.name.clone();
        match (class.show, thread) {
            (Show::Flow | Show::Mark, Some(thread)) => {
                emit(Finding::Mark(Where::Thread(thread, event.trace), time, name()));
            }
            (Show::Mark | Show::Flow, None) => {
                emit(Finding::Mark(Where::Channel(channel), time, name()));
            }
            _ => {}
        }
        match (extras, thread) {
            (Some(EventExtra::Counter(value)), _) => {
                emit(Finding::Counter((class.number, event.trace), name(), (time, value)));
            }
            (Some(EventExtra::Flow(flow)), Some(thread)) => {
                emit(Finding::Flow(thread, time, (name(), flow)));
            }
            (Some(EventExtra::Job(deadline)), Some(thread)) => {
                if let Some(time) = fact.time() {
                    emit(Finding::Job(thread, (time, class.span.clone()), deadline));
                }
            }
            (Some(EventExtra::Function(address, name)), _)
                if self.functions.len() < MAX_KNOWN_NAMES
                    && self.functions.insert((event.trace, address)) =>
            {
                emit(Finding::FunctionName(address, name));
            }
            _ => {}
        }
    }

    fn thread(&self, event: &EventRef, fact: &Fact) -> Option<ThreadId> {
        let machine = self.machine(event.trace);
        fact.thread().map(|tid| ThreadId { machine, tid })
    }

    /// Reports the thread of a program's first event.
    fn meet_thread(&mut self, decoded: &DecodedEvent<'_>, emit: &mut dyn FnMut(Finding)) {
        let (Some(thread), Some((pid, name))) = (self.thread(decoded.event, decoded.fact), &decoded.thread)
        else {
            return;
        };
        let trace = decoded.event.trace;
        if self.known_threads.len() < MAX_KNOWN_NAMES
            && self.known_threads.insert((trace as usize, thread.tid))
        {
            emit(Finding::Meet { thread, pid: *pid, name: name.clone(), trace });
        }
    }
}
