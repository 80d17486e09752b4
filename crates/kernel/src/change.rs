//! Change of the events while they are recorded: programs are loaded, attached and detached.
//!
//! What was chosen once keeps its number in records: tracepoints are only added to their list.
//! Programs stay loaded, and the kernel's counts of their misses with them.

use std::{collections::BTreeSet, sync::Arc};

use aya::Btf;
use tompion_os::FileRights;

use crate::{
    Error, Selection,
    decode::Vocabulary,
    events::{FIRST, KNOWN, Known},
    load::{Link, Programs, SWITCH, SYSCALLS, chain, needs_calls, tell_calls, tell_wanted},
};

/// Most tracepoints without programs of their own in one recording: a cookie has 16 bits for them.
const MAX_TRACEPOINTS: usize = 1 << 16;

/// Names by which the programs themselves follow processes.
const FOLLOWING: [&str; 2] = ["sched_process_fork", "sched_process_exit"];

/// Adds the tracepoints of a selection to those that have numbers in records.
pub fn add_tracepoints(vocabulary: &Arc<Vocabulary>, selection: &Selection) -> Arc<Vocabulary> {
    let mut vocabulary = Vocabulary::clone(vocabulary);
    for tracepoint in &selection.tracepoints {
        let is_there = vocabulary.tracepoints.iter().any(|known| known.listed == tracepoint.listed);
        if !is_there && vocabulary.tracepoints.len() < MAX_TRACEPOINTS {
            vocabulary.tracepoints.push(tracepoint.clone());
        }
    }
    Arc::new(vocabulary)
}

impl Programs {
    /// Records the events of a selection, and no others. Probes stay as they are. Tracepoints have
    /// their numbers from the vocabulary. Returns lines about what can't be recorded. What is not
    /// wanted any more ends with [`Programs::close_unwanted`].
    pub fn change(&mut self, wanted: &Selection, vocabulary: &Vocabulary) -> Vec<String> {
        // What programs are loaded with is root's to read.
        let _rights = FileRights::of_the_process().ok();
        let btf = match Btf::from_sys_fs() {
            Ok(btf) => btf,
            Err(error) => return vec![Error::Types(chain(&error)).to_string()],
        };
        let mut problems = Vec::new();
        let mut step = |result: Result<(), Error>| problems.extend(result.err().map(|it| it.to_string()));
        step(self.forget_wakers(wanted));
        for (known, number) in KNOWN.iter().zip(FIRST..) {
            if wanted.has(number) {
                step(self.add_known(known, &btf));
            }
        }
        for (number, tracepoint, program) in SYSCALLS {
            if needs_calls(wanted, &self.calls, number) {
                step(self.add_program(program, tracepoint, &btf));
            }
        }
        step(tell_wanted(&mut self.ebpf, wanted.events));
        step(tell_calls(&mut self.ebpf, wanted, &self.calls));
        problems.extend(self.change_tracepoints(wanted, vocabulary));
        self.detach_unwanted(wanted);
        let probes = std::mem::take(&mut self.selection.probes);
        self.selection = Selection { probes, ..wanted.clone() };
        problems
    }

    fn is_attached(&self, program: &str) -> bool {
        self.links.iter().any(|link| link.program == program)
    }

    /// Loads a program unless it is, and attaches it unless it is.
    fn add_program(&mut self, program: &'static str, tracepoint: &str, btf: &Btf) -> Result<(), Error> {
        if self.is_attached(program) {
            return Ok(());
        }
        if !self.loaded.contains(&program) {
            let loaded = self.load_program(program, tracepoint, btf);
            loaded.map_err(|error| crate::refused(program, &error))?;
        }
        self.attach_program(program)
    }

    fn add_known(&mut self, known: &Known, btf: &Btf) -> Result<(), Error> {
        let names = || [Some(known.program), known.program_of_old].into_iter().flatten();
        let loaded = |programs: &Self| names().find(|name| programs.loaded.contains(name));
        if loaded(self).is_none() {
            self.load_known(known, btf)?;
        }
        match loaded(self) {
            Some(program) if !self.is_attached(program) => self.attach_program(program),
            Some(_) => Ok(()),
            None => Err(Error::Refused(known.name.into(), "it has no such tracepoint".into())),
        }
    }

    /// Has the context of wakeups be unknown from now on, if programs at interrupts come or go:
    /// they count the handlers that are active, and the counts would mean nothing.
    fn forget_wakers(&mut self, wanted: &Selection) -> Result<(), Error> {
        let waking = bit("sched_waking");
        let interrupts: u64 = KNOWN.iter().filter(|known| is_handler(known)).map(|it| bit(it.name)).sum();
        let (before, after) = (self.selection.events, wanted.events);
        let begins = after & waking != 0 && before & waking == 0;
        let differs = after & waking != 0 && (before ^ after) & interrupts != 0;
        if begins || differs { self.tell_handlers(false) } else { Ok(()) }
    }

    fn change_tracepoints(&mut self, wanted: &Selection, vocabulary: &Vocabulary) -> Vec<String> {
        let mut problems = Vec::new();
        let is_first = self.tracepoints.is_empty();
        self.tracepoints.clone_from(&vocabulary.tracepoints);
        let chosen = |place: &usize| {
            wanted.tracepoints.iter().any(|wanted| wanted.listed == self.tracepoints[*place].listed)
        };
        let places: BTreeSet<usize> = (0..self.tracepoints.len()).filter(chosen).collect();
        self.unwanted.extend(self.attachments.take_others(&places));
        let there: BTreeSet<usize> = self.attachments.places().collect();
        let new: Vec<usize> = places.difference(&there).copied().collect();
        if new.is_empty() {
            return problems;
        }
        if is_first {
            problems.extend(self.load_for_tracepoints().err().map(|error| error.to_string()));
        }
        match self.attach_tracepoints(&new) {
            Ok(refused) => problems.extend(refused),
            Err(error) => problems.push(error.to_string()),
        }
        problems
    }

    /// Takes the links that are not wanted any more, switches last.
    fn detach_unwanted(&mut self, wanted: &Selection) {
        let mut unwanted = BTreeSet::new();
        for (known, number) in KNOWN.iter().zip(FIRST..) {
            let follows = self.follows && FOLLOWING.contains(&known.name);
            if !wanted.has(number) && !follows {
                unwanted.extend([Some(known.program), known.program_of_old].into_iter().flatten());
            }
        }
        let calls = SYSCALLS.iter().filter(|(number, ..)| !needs_calls(wanted, &self.calls, *number));
        unwanted.extend(calls.map(|(_, _, program)| *program));
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.links).into_iter().partition(|link| unwanted.contains(link.program));
        self.links = kept;
        let (switches, others): (Vec<_>, Vec<_>) =
            gone.into_iter().partition(|link| link.program.starts_with(SWITCH));
        self.unwanted.extend(others.into_iter().chain(switches).map(Link::into_descriptor));
    }
}

/// The bit of an event with a program of its own.
fn bit(name: &str) -> u64 {
    let place = KNOWN.iter().position(|known| known.name == name);
    place.map_or(0, |place| 1 << (place as u64 + u64::from(FIRST)))
}

/// Whether the program of an event counts handlers that are active.
fn is_handler(known: &Known) -> bool {
    let name = known.tracepoint;
    name.starts_with("irq_handler_")
        || name.starts_with("softirq_e")
        || name.starts_with("hrtimer_")
        || name.starts_with("ipi_")
        || name.contains("_timer_")
        || name.starts_with("irq_work_")
        || name.starts_with("call_function_")
}
