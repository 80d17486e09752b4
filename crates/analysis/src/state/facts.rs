//! Facts: content of events that affects states, detached from the events. They can be extracted on
//! many threads, and are processed by the one that knows the preceding states.
//!
//! ```text
//! Event ──FactExtractor──► Fact: time, CPU, thread, up to three numbers and two texts
//!                   └──► Engine
//! ```
//!
//! The fields that matter are located once for each class; in each event, they are read by
//! position.

use std::sync::Arc;

use tompion_ctf::metadata::{self, Struct};
use tompion_reader::{Event, Place, Trace};

use super::classes::{Action, action};

/// Maximum number of integers and texts in a fact.
const NUMBERS: usize = 3;
const TEXTS: usize = 2;
/// Absent integer: no relevant field has this value.
const NO_NUMBER: i64 = i64::MIN;
const NO_TEXT: (u32, u32) = (u32::MAX, 0);
const NO_CPU: u32 = u32::MAX;
const NO_THREAD: i32 = i32::MIN;

/// Content of one event.
#[derive(Clone, Copy, Debug)]
pub struct Fact {
    time: i64,
    pub(super) trace: u32,
    pub(super) class: u32,
    cpu: u32,
    thread: i32,
    process: i32,
    numbers: [i64; NUMBERS],
    texts: [(u32, u32); TEXTS],
}

impl Fact {
    /// Returns the time in nanoseconds since the epoch; `None` without a clock.
    pub fn time(&self) -> Option<i64> {
        Some(self.time).filter(|&time| time != i64::MIN)
    }

    /// Returns the CPU on which the event happened, if known.
    pub fn cpu(&self) -> Option<u32> {
        Some(self.cpu).filter(|&cpu| cpu != NO_CPU)
    }

    /// Returns the thread in the event's context: the kernel's id or, in a program's trace, the one
    /// that the program knows.
    pub fn thread(&self) -> Option<i32> {
        Some(self.thread).filter(|&thread| thread != NO_THREAD)
    }

    /// Returns the process in the context of a kernel's event.
    pub(super) fn process(&self) -> Option<i32> {
        Some(self.process).filter(|&process| process != NO_THREAD)
    }
}

/// Facts in order, with their texts.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    list: Vec<Fact>,
    texts: Vec<u8>,
}

impl Facts {
    /// Returns the facts in order.
    pub fn list(&self) -> &[Fact] {
        &self.list
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> usize {
        size_of_val(self.list.as_slice()) + self.texts.len()
    }

    /// Removes all facts.
    pub fn clear(&mut self) {
        self.list.clear();
        self.texts.clear();
    }

    /// Returns a fact with its texts.
    pub(super) fn view<'f>(&'f self, fact: &'f Fact) -> FactView<'f> {
        FactView { fact, texts: &self.texts }
    }
}

/// Fact with its texts.
#[derive(Clone, Copy)]
pub(super) struct FactView<'f> {
    fact: &'f Fact,
    texts: &'f [u8],
}

/// Positions of the integers in a fact; their meaning depends on the action.
pub(super) mod number {
    /// Thread that the event is about: it is switched out, woken, ends, or is described.
    pub const THREAD: usize = 0;
    /// State in which the thread is switched out, or that is described.
    pub const STATE: usize = 1;
    /// Context from which the thread is woken: `waker_context` of Tompion's kernel traces.
    pub const CONTEXT: usize = 1;
    /// Former id of a thread that executes a program.
    pub const FORMER: usize = 1;
    /// Thread that is switched in.
    pub const NEXT: usize = 2;
    /// Process of a described thread.
    pub const PROCESS: usize = 2;
    pub const PARENT: usize = 0;
    pub const CHILD: usize = 1;
    /// Number of an interrupt, or address of a function.
    pub const OTHER: usize = 0;
    /// Number of a span that belongs to no thread.
    pub const SPAN: usize = 0;
}

/// Positions of the texts in a fact.
pub(super) mod text {
    /// Name of the thread that the event is about.
    pub const NAME: usize = 0;
    /// Name of the thread that is switched in.
    pub const NEXT: usize = 1;
}

impl<'f> FactView<'f> {
    pub fn number(&self, which: usize) -> Option<i64> {
        self.fact.numbers.get(which).copied().filter(|&number| number != NO_NUMBER)
    }

    /// Returns an integer as the id of a thread or process.
    pub fn id(&self, which: usize) -> Option<i32> {
        self.number(which)?.try_into().ok()
    }

    pub fn text(&self, which: usize) -> Option<&'f [u8]> {
        let &(start, size) = self.fact.texts.get(which).filter(|text| **text != NO_TEXT)?;
        let start = start as usize;
        self.texts.get(start..start.checked_add(size as usize)?)
    }

    pub fn thread(&self) -> Option<i32> {
        self.fact.thread()
    }

    pub fn process(&self) -> Option<i32> {
        self.fact.process()
    }
}

/// Use of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Nothing,
    Number(usize),
    Text(usize),
}

/// Context that has the id of a thread or process.
#[derive(Clone, Copy, Debug)]
enum Context {
    Stream(usize),
    Event(usize),
}

/// Positions of a class's relevant fields.
#[derive(Clone, Debug)]
struct Fields {
    /// Use of each field, up to the last relevant one.
    payload: Box<[Use]>,
    thread: Option<Context>,
    process: Option<Context>,
    /// Number of a span.
    span: Option<Context>,
}

/// Event class with its effect.
struct Class {
    action: Option<Action>,
    fields: Fields,
}

/// Extractor of facts from the events of some traces.
///
/// Clones share the properties of classes.
#[derive(Clone)]
pub struct FactExtractor(Arc<All>);

struct All {
    /// Number of the first event class, for each trace and stream class.
    first: Vec<Vec<u32>>,
    classes: Vec<Class>,
}

impl FactExtractor {
    /// Creates an extractor for events of these traces, which are identified by their indexes.
    pub fn new(traces: &[Trace]) -> Self {
        let (mut first, mut classes) = (Vec::new(), Vec::new());
        for trace in traces {
            let mut of_trace = Vec::new();
            for stream in &trace.metadata().streams {
                of_trace.push(classes.len() as u32);
                classes.extend(stream.events.iter().map(|event| {
                    let action = action(trace, event);
                    let fields = Fields::new(action.as_ref(), stream, event);
                    Class { action, fields }
                }));
            }
            first.push(of_trace);
        }
        Self(Arc::new(All { first, classes }))
    }

    /// Returns the effect of a class's events; `None` if they have none.
    pub(super) fn action(&self, class: u32) -> Option<&Action> {
        self.0.classes.get(class as usize)?.action.as_ref()
    }

    /// Returns the role of an event class in states.
    pub fn role(&self, place: Place) -> Role {
        let action = self.class_at(place).and_then(|class| class.action.as_ref());
        match action {
            None => Role::None,
            Some(Action::SyscallEntry(name) | Action::SyscallExit(name)) => Role::Syscall {
                name: name.clone(),
                has_thread: self.class_at(place).is_some_and(|class| class.fields.thread.is_some()),
            },
            Some(Action::SpanBegin(name) | Action::SpanEnd(name)) => Role::Span { name: name.clone() },
            Some(Action::Fork | Action::Exit | Action::Free | Action::Exec) => Role::Lifetime,
            Some(_) => Role::Other,
        }
    }

    fn class_at(&self, place: Place) -> Option<&Class> {
        let first = self.0.first.get(place.trace)?.get(place.stream)?;
        self.0.classes.get(first.saturating_add(place.class as u32) as usize)
    }

    /// Whether a trace has events of a kernel.
    pub(super) fn is_of_kernel(&self, trace: usize) -> bool {
        self.actions(trace).any(|action| !action.is_of_program())
    }

    /// Whether a trace has events of a CPU's timer interrupts.
    pub(super) fn tells_timers(&self, trace: usize) -> bool {
        self.actions(trace).any(|action| matches!(action, Action::TimerEntry))
    }

    /// Returns what the event classes of a trace do to states.
    fn actions(&self, trace: usize) -> impl Iterator<Item = &Action> {
        let bound = |trace: usize| self.0.first.get(trace).and_then(|streams| streams.first().copied());
        let begin = bound(trace).map_or(self.0.classes.len(), |begin| begin as usize);
        // Traces without streams have no number.
        let behind = (trace + 1..self.0.first.len()).find_map(bound);
        let end = behind.map_or(self.0.classes.len(), |end| end as usize);
        let classes = self.0.classes.get(begin..end).unwrap_or_default();
        classes.iter().filter_map(|class| class.action.as_ref())
    }

    /// Adds the fact of an event. Every event is at least the fact that it happened.
    pub fn add(&self, event: &Event<'_>, facts: &mut Facts) {
        let fact = self.fact(event, &mut facts.texts);
        facts.list.push(fact);
    }

    fn fact(&self, event: &Event<'_>, texts: &mut Vec<u8>) -> Fact {
        let place = event.place();
        let first = self.0.first.get(place.trace).and_then(|streams| streams.get(place.stream));
        let class = first.map_or(u32::MAX, |first| first.saturating_add(place.class as u32));
        let mut fact = Fact {
            time: event.timestamp().unwrap_or(i64::MIN),
            trace: place.trace as u32,
            class,
            cpu: event.cpu().and_then(|cpu| cpu.try_into().ok()).unwrap_or(NO_CPU),
            thread: NO_THREAD,
            process: NO_THREAD,
            numbers: [NO_NUMBER; NUMBERS],
            texts: [NO_TEXT; TEXTS],
        };
        if let Some(class) = self.0.classes.get(class as usize) {
            class.fields.read(event, &mut fact, texts);
        }
        fact
    }

    /// Returns the threads of an event, as far as the event itself states them.
    pub fn threads(&self, event: &Event<'_>) -> Threads {
        let fact = self.fact(event, &mut Vec::new());
        let number = |which: usize| {
            let number = fact.numbers.get(which).copied().filter(|&number| number != NO_NUMBER);
            number.and_then(|number| i32::try_from(number).ok())
        };
        let about = match self.action(fact.class) {
            Some(Action::Switch) => [number(number::THREAD), number(number::NEXT)],
            Some(Action::Waking | Action::Wake | Action::Exit | Action::Free | Action::ProcessState) => {
                [number(number::THREAD), None]
            }
            Some(Action::Fork) => [number(number::CHILD), None],
            _ => [None, None],
        };
        Threads { on: fact.thread(), about }
    }
}

/// Role of an event class in states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The class has no role.
    None,
    /// Entry or return of a system call; an old tracer's return has no name.
    Syscall {
        /// Name of the call.
        name: Arc<str>,
        /// Whether its events state their thread.
        has_thread: bool,
    },
    /// Begin or end of a span.
    Span {
        /// Name of the span.
        name: Arc<str>,
    },
    /// Begin or end of a thread, or of its id.
    Lifetime,
    /// Any other one.
    Other,
}

/// Threads of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Thread on which it happened, if a context states it.
    pub on: Option<i32>,
    /// Threads that it is about: switched out or in, woken, begun, ended, or described.
    pub about: [Option<i32>; 2],
}

impl Fields {
    fn new(action: Option<&Action>, stream: &metadata::Stream, event: &metadata::Event) -> Self {
        let (threads, processes): (&[&str], &[&str]) = match action {
            Some(action) if !action.is_of_program() => (&["tid"], &["pid"]),
            _ => (&["vtid", "tid"], &[]),
        };
        let context = |names: &[&str]| {
            let find = |fields: Option<&Struct>| names.iter().find_map(|name| place(fields, name));
            find(stream.event_context.as_ref())
                .map(Context::Stream)
                .or_else(|| find(event.context.as_ref()).map(Context::Event))
        };
        let (thread, process) = (context(threads), context(processes));
        let is_span = matches!(action, Some(Action::SpanBegin(_) | Action::SpanEnd(_)));
        let span = if is_span { context(&["span"]) } else { None };
        let fields = event.payload.as_ref();
        let count = fields.map_or(0, |fields| fields.fields.len());
        let mut payload = vec![Use::Nothing; count];
        let mut use_as = |names: &[&str], meaning: Use| {
            // The first name that the class has.
            let found = names.iter().find_map(|name| place(fields, name));
            if let Some(slot) = found.and_then(|found| payload.get_mut(found)) {
                *slot = meaning;
            }
        };
        match action {
            Some(Action::Switch) => {
                use_as(&["prev_tid", "prev_pid"], Use::Number(number::THREAD));
                use_as(&["prev_state"], Use::Number(number::STATE));
                use_as(&["next_tid", "next_pid"], Use::Number(number::NEXT));
                use_as(&["prev_comm"], Use::Text(text::NAME));
                use_as(&["next_comm"], Use::Text(text::NEXT));
            }
            Some(Action::Waking | Action::Wake | Action::Exit | Action::Free) => {
                use_as(&["tid", "pid"], Use::Number(number::THREAD));
                use_as(&["waker_context"], Use::Number(number::CONTEXT));
                use_as(&["comm"], Use::Text(text::NAME));
            }
            Some(Action::Exec) => {
                use_as(&["tid", "pid"], Use::Number(number::THREAD));
                use_as(&["old_tid", "old_pid"], Use::Number(number::FORMER));
            }
            Some(Action::Fork) => {
                use_as(&["child_pid"], Use::Number(number::PROCESS));
                use_as(&["parent_tid", "parent_pid"], Use::Number(number::PARENT));
                use_as(&["child_tid", "child_pid"], Use::Number(number::CHILD));
                use_as(&["child_comm"], Use::Text(text::NAME));
            }
            Some(Action::ProcessState) => {
                use_as(&["tid"], Use::Number(number::THREAD));
                use_as(&["status"], Use::Number(number::STATE));
                use_as(&["pid"], Use::Number(number::PROCESS));
                use_as(&["name"], Use::Text(text::NAME));
            }
            Some(
                Action::InterruptEntry
                | Action::InterruptExit
                | Action::SoftInterruptEntry
                | Action::SoftInterruptExit,
            ) => use_as(&["irq", "vec"], Use::Number(number::OTHER)),
            Some(Action::FunctionEntry) => use_as(&["addr"], Use::Number(number::OTHER)),
            _ => {}
        }
        let used = payload.iter().rposition(|of| *of != Use::Nothing).map_or(0, |last| last + 1);
        payload.truncate(used);
        Self { payload: payload.into(), thread, process, span }
    }

    fn read(&self, event: &Event<'_>, fact: &mut Fact, texts: &mut Vec<u8>) {
        let integer = |context: Option<Context>| {
            let found = match context? {
                Context::Stream(place) => event.stream_context().nth(place),
                Context::Event(place) => event.context().nth(place),
            };
            i64::try_from(found?.1.as_integer()?).ok()
        };
        let id = |context| i32::try_from(integer(context)?).ok();
        fact.thread = id(self.thread).unwrap_or(NO_THREAD);
        fact.process = id(self.process).unwrap_or(NO_THREAD);
        if let Some(span) = integer(self.span) {
            fact.numbers[number::SPAN] = span;
        }
        if self.payload.is_empty() {
            return;
        }
        for (meaning, (_, value)) in self.payload.iter().zip(event.payload()) {
            match *meaning {
                Use::Nothing => {}
                Use::Number(which) => {
                    let number = value.as_integer().and_then(|number| i64::try_from(number).ok());
                    if let (Some(number), Some(slot)) = (number, fact.numbers.get_mut(which)) {
                        *slot = number;
                    }
                }
                Use::Text(which) => {
                    let place = value.as_text().and_then(|text| {
                        let place = (u32::try_from(texts.len()).ok()?, u32::try_from(text.len()).ok()?);
                        texts.extend_from_slice(text);
                        Some(place)
                    });
                    if let (Some(place), Some(slot)) = (place, fact.texts.get_mut(which)) {
                        *slot = place;
                    }
                }
            }
        }
    }
}

/// Returns the position of a field in a structure.
fn place(fields: Option<&Struct>, name: &str) -> Option<usize> {
    fields?.fields.iter().position(|field| &*field.name == name)
}
