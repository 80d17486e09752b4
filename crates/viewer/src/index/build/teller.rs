//! What is told of events beside the states that the engine makes of them: marks, counters, flows, and names.

use std::sync::Arc;

use tompion_analysis::quick::QuickSet;
use tompion_analysis::state::{Fact, MachineId, ThreadId};

use super::classes::{Class, Classes, Show};
use super::seen::{MOST_MET, More, Seen, Told};
use crate::index::apply::{Finding, Where};

/// Tells it, each name once.
#[derive(Clone)]
pub struct Teller {
    /// Classes of all traces.
    pub classes: Arc<Classes>,
    /// The machine of each trace.
    machines: Vec<MachineId>,
    met: QuickSet<(usize, i32)>,
    interrupts: QuickSet<i64>,
    functions: QuickSet<(u32, u64)>,
}

impl Teller {
    /// For events of these classes, and the machines of their traces.
    pub fn new(classes: Arc<Classes>, machines: Vec<MachineId>) -> Self {
        let (met, interrupts, functions) = (QuickSet::default(), QuickSet::default(), QuickSet::default());
        Self { classes, machines, met, interrupts, functions }
    }

    /// Tells of an event: at which time from the base, and of which channel.
    pub fn tell(&mut self, told: Told<'_>, (time, channel): (i64, u32), give: &mut dyn FnMut(Finding)) {
        let classes = self.classes.clone();
        let Some(class) = told.event.class.and_then(|class| classes.get(class)) else { return };
        if class.is_of_program {
            self.meet(&told, give);
            self.of_program(told, (class, time, channel), give);
        } else {
            self.of_kernel(told, (class, time), give);
        }
    }

    fn machine(&self, trace: u32) -> MachineId {
        self.machines.get(trace as usize).copied().unwrap_or_default()
    }

    fn of_kernel(&mut self, told: Told<'_>, (class, time): (&Class, i64), give: &mut dyn FnMut(Finding)) {
        if class.show == Show::CpuMark {
            if let Some(cpu) = told.fact.cpu() {
                let place = Where::Cpu(self.machine(told.event.trace), cpu);
                give(Finding::Mark(place, time, class.name.clone()));
            }
        }
        if let Some(More::Interrupt(number, name)) = told.more {
            if self.interrupts.len() < MOST_MET && self.interrupts.insert(number) {
                give(Finding::InterruptName(number, name));
            }
        }
    }

    fn of_program(
        &mut self,
        Told { event, fact, more, .. }: Told<'_>,
        (class, time, channel): (&Class, i64, u32),
        give: &mut dyn FnMut(Finding),
    ) {
        let thread = self.thread(event, fact);
        let name = || class.name.clone();
        match (class.show, thread) {
            (Show::Flow | Show::Mark, Some(thread)) => {
                give(Finding::Mark(Where::Thread(thread, event.trace), time, name()));
            }
            (Show::Mark | Show::Flow, None) => {
                give(Finding::Mark(Where::Channel(channel), time, name()));
            }
            _ => {}
        }
        match (more, thread) {
            (Some(More::Counter(value)), _) => {
                give(Finding::Counter((class.number, event.trace), name(), (time, value)));
            }
            (Some(More::Flow(flow)), Some(thread)) => {
                give(Finding::Flow(thread, time, (name(), flow)));
            }
            (Some(More::Job(deadline)), Some(thread)) => {
                if let Some(time) = fact.time() {
                    give(Finding::Job(thread, (time, class.span.clone()), deadline));
                }
            }
            (Some(More::Function(address, name)), _)
                if self.functions.len() < MOST_MET && self.functions.insert((event.trace, address)) =>
            {
                give(Finding::FunctionName(address, name));
            }
            _ => {}
        }
    }

    fn thread(&self, event: &Seen, fact: &Fact) -> Option<ThreadId> {
        let machine = self.machine(event.trace);
        fact.thread().map(|tid| ThreadId { machine, tid })
    }

    /// Tells of the thread of a program's event when it is the first one.
    fn meet(&mut self, told: &Told<'_>, give: &mut dyn FnMut(Finding)) {
        let (Some(thread), Some((pid, name))) = (self.thread(told.event, told.fact), &told.thread) else {
            return;
        };
        let trace = told.event.trace;
        if self.met.len() < MOST_MET && self.met.insert((trace as usize, thread.tid)) {
            give(Finding::Meet { thread, pid: *pid, name: name.clone(), trace });
        }
    }
}
