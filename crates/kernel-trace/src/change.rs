//! Change of the recorded kernel events while they are recorded.
//!
//! Loading a program takes the kernel milliseconds to a second, and rings fill meanwhile. So a
//! thread of its own has the programs then, and this one goes on with the rings.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
    thread::{self, JoinHandle},
};

use tompion_kernel::{
    AvailableEvents, Programs, Selection, UnknownEvent, Words, context::Context, decode::Decoder, stacks,
};

use crate::{
    choice::KernelChoice,
    drain::{Drain, MIN_SLEEP},
    keeping::Keeping,
    recording::read_state,
};

/// Name of the event by which missing ones are detected.
const SWITCH: &str = "sched_switch";

/// New choice of the kernel's events.
#[derive(Debug)]
pub struct KernelChange {
    /// Events to record from now on. Probes stay as they are.
    pub selection: Selection,
    /// Words by which they were chosen.
    pub words: Vec<String>,
    /// Receives lines about what can't be recorded, once the rest is.
    pub done: Sender<Vec<String>>,
}

/// A change that is being made.
#[derive(Debug)]
pub struct Changing {
    thread: JoinHandle<Vec<String>>,
    programs: SharedPrograms,
    done: Sender<Vec<String>>,
}

/// The programs, unless another thread has them.
struct SharedPrograms(Arc<Mutex<Option<Programs>>>);

impl std::fmt::Debug for SharedPrograms {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SharedPrograms").finish_non_exhaustive()
    }
}

impl SharedPrograms {
    fn with<T>(&self, step: impl FnOnce(&mut Option<Programs>) -> T) -> T {
        step(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Choice of kernel events, as far as it can change while they are recorded.
#[derive(Clone, Debug)]
pub struct ChangeableChoice {
    probes: Vec<String>,
    has_filter: bool,
    follows: bool,
    has_user_stacks: bool,
    is_taken_over: bool,
}

impl ChangeableChoice {
    /// Takes from a choice what a change must know.
    pub fn of(choice: &KernelChoice) -> Self {
        Self {
            probes: Words::parse(&choice.words).probes,
            has_filter: choice.filter.is_some(),
            follows: choice.follows,
            has_user_stacks: choice.contexts.has(Context::UserStack),
            is_taken_over: choice.is_taken_over,
        }
    }

    /// Selects the events of other words.
    ///
    /// # Errors
    /// A line about what can't be chosen while it is recorded.
    pub fn select(&self, words: &[String]) -> Result<Selection, String> {
        if self.has_filter {
            return Err(
                "the programs of kernel events have been loaded with the recording's filter; start it \
                        again to choose others"
                    .into(),
            );
        }
        if self.is_taken_over {
            return Err(
                "kernel events can't change after a restart of their recorder, which alone could load other \
                        programs; start the recording again to choose others"
                    .into(),
            );
        }
        let words = Words::parse(words);
        if words.probes != self.probes {
            return Err("probes can't change while they are recorded; name those that there are".into());
        }
        let unknown = |UnknownEvent(pattern)| format!("no kernel event matches `{pattern}`");
        let mut selection =
            words.select(&AvailableEvents::of_this_kernel(), self.follows).map_err(unknown)?;
        if self.has_user_stacks {
            stacks::add_lives(&mut selection);
        }
        Ok(selection)
    }
}

impl Drain {
    /// Begins to change the events.
    pub fn begin_change(&mut self, change: KernelChange) {
        self.end_change();
        let KernelChange { selection, words, done } = change;
        // Before a program can write a record that only the new words describe.
        self.vocabulary = tompion_kernel::add_tracepoints(&self.vocabulary, &selection);
        self.decoder = Decoder::new(Arc::clone(&self.vocabulary));
        if !selection.takes(SWITCH) {
            self.switch_gaps = None;
        }
        if selection.state && !self.has_state {
            (self.has_state, self.is_state_complete) = (true, false);
            self.state = read_state().ok();
        }
        let keeping = self.keeping.clone();
        let noted =
            keeping.iter().try_for_each(|it| it.note_change(&words, &self.vocabulary, self.has_state));
        if let Err(error) = noted {
            // Another recorder would not know what the numbers in records mean.
            drop(done.send(vec![in_words(&error)]));
            return;
        }
        let unreadable = selection.unreadable.clone();
        let programs = SharedPrograms(Arc::new(Mutex::new(self.recorder.take_programs())));
        let (shared, vocabulary) = (Arc::clone(&programs.0), Arc::clone(&self.vocabulary));
        let change = move || {
            let mut problems = unreadable;
            let change = |programs: &mut Programs| {
                let mut problems = programs.change(&selection, &vocabulary);
                problems.extend(keeping.iter().filter_map(|keeping| hold(keeping, programs).err()));
                programs.close_unwanted();
                problems
            };
            SharedPrograms(shared).with(|programs| {
                problems.extend(programs.as_mut().map(change).unwrap_or_default());
            });
            problems
        };
        match thread::Builder::new().name("kernel-change".into()).spawn(change) {
            Ok(thread) => self.changing = Some(Changing { thread, programs, done }),
            Err(error) => self.put_back(&programs, &done, vec![in_words(&error)]),
        }
    }

    /// Ends the change if it is made.
    pub fn look_at_change(&mut self) {
        if self.changing.as_ref().is_some_and(|changing| changing.thread.is_finished()) {
            self.end_change();
        }
    }

    /// Waits until the change is made, if there is one.
    pub fn end_change(&mut self) {
        let Some(Changing { thread, programs, done }) = self.changing.take() else { return };
        while !thread.is_finished() && !self.overwrite {
            self.collect();
            thread::sleep(MIN_SLEEP);
        }
        let problems = thread.join().unwrap_or_else(|_| vec!["the change was not completed".into()]);
        self.put_back(&programs, &done, problems);
    }

    fn put_back(&mut self, programs: &SharedPrograms, done: &Sender<Vec<String>>, problems: Vec<String>) {
        programs.with(|programs| programs.take().into_iter().for_each(|it| self.recorder.put_programs(it)));
        // The client may have gone.
        let _ = done.send(problems);
    }
}

/// Has the keeper hold what the programs are now. The error is a line for people.
fn hold(keeping: &Keeping, programs: &Programs) -> Result<(), String> {
    let objects = programs.objects().map_err(|error| error.to_string())?;
    let held = keeping.hold(&objects, None);
    held.map_err(|error| format!("kernel events won't outlast their recorder: {error}"))
}

fn in_words(error: &io::Error) -> String {
    format!("the kernel's events can't be changed: {error}")
}
