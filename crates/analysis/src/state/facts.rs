//! What events say of states, without the events: it can be found on many processors, and handed to the one that knows
//! what went on before.
//!
//! ```text
//! Event ──Says──► Fact: time, CPU, thread, at most three numbers and two texts    64 bytes
//!                   └──► Engine
//! ```
//!
//! Where a class has the fields that its meaning needs is found once; of an event they are then read by their places.

use std::sync::Arc;

use tompion_ctf::metadata::{self, Struct};
use tompion_reader::{Event, Trace};

use super::classes::{Action, action};

/// Numbers and texts of a fact.
const NUMBERS: usize = 3;
const TEXTS: usize = 2;
/// No number: no field that matters has it.
const NO_NUMBER: i64 = i64::MIN;
const NO_TEXT: (u32, u32) = (u32::MAX, 0);
const NO_CPU: u32 = u32::MAX;
const NO_THREAD: i32 = i32::MIN;

/// What one event says.
#[derive(Clone, Copy, Debug)]
pub struct Fact {
    time: i64,
    pub(super) trace: u32,
    pub(super) class: u32,
    cpu: u32,
    thread: i32,
    numbers: [i64; NUMBERS],
    texts: [(u32, u32); TEXTS],
}

impl Fact {
    /// When, in nanoseconds since the epoch; nothing where the trace has no clock.
    pub fn time(&self) -> Option<i64> {
        Some(self.time).filter(|&time| time != i64::MIN)
    }

    /// The processor on which it happened, if that is known.
    pub fn cpu(&self) -> Option<u32> {
        Some(self.cpu).filter(|&cpu| cpu != NO_CPU)
    }

    /// The thread in its context: the kernel's number, or in a program's trace the one that the program knows.
    pub fn thread(&self) -> Option<i32> {
        Some(self.thread).filter(|&thread| thread != NO_THREAD)
    }
}

/// Facts in order, and the texts of all.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    list: Vec<Fact>,
    texts: Vec<u8>,
}

impl Facts {
    /// Them, in the order in which they were added.
    pub fn list(&self) -> &[Fact] {
        &self.list
    }

    /// Bytes that they take.
    pub fn size(&self) -> usize {
        size_of_val(self.list.as_slice()) + self.texts.len()
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.list.clear();
        self.texts.clear();
    }

    /// One of them with its texts.
    pub(super) fn said<'f>(&'f self, fact: &'f Fact) -> Said<'f> {
        Said { fact, texts: &self.texts }
    }
}

/// A fact with its texts.
#[derive(Clone, Copy)]
pub(super) struct Said<'f> {
    fact: &'f Fact,
    texts: &'f [u8],
}

/// Which number or text of a fact is what; by action.
pub(super) mod number {
    /// The thread that an event is about: it leaves a processor, is woken, ends, is told of.
    pub const THREAD: usize = 0;
    /// The state in which it leaves, or is.
    pub const STATE: usize = 1;
    /// The thread that comes.
    pub const NEXT: usize = 2;
    /// The process of which one is told.
    pub const PROCESS: usize = 2;
    pub const PARENT: usize = 0;
    pub const CHILD: usize = 1;
    /// An interrupt, or the address of a function.
    pub const OTHER: usize = 0;
}

/// The same for texts.
pub(super) mod text {
    /// The name of the thread that an event is about.
    pub const NAME: usize = 0;
    /// That of the thread that comes.
    pub const NEXT: usize = 1;
}

impl<'f> Said<'f> {
    pub fn number(&self, which: usize) -> Option<i64> {
        self.fact.numbers.get(which).copied().filter(|&number| number != NO_NUMBER)
    }

    /// A number that identifies a thread or process.
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
}

/// What is done with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Nothing,
    Number(usize),
    Text(usize),
}

/// Which context has the thread's number.
#[derive(Clone, Copy, Debug)]
enum Context {
    Stream(usize),
    Event(usize),
}

/// Where a class has what matters.
#[derive(Clone, Debug)]
struct Fields {
    /// What is done with each field, up to the last one that matters.
    payload: Box<[Use]>,
    thread: Option<Context>,
}

/// What a class of events means.
struct Class {
    action: Option<Action>,
    fields: Fields,
}

/// What the events of some traces say.
///
/// Copies share what was found out about classes.
#[derive(Clone)]
pub struct Says(Arc<All>);

struct All {
    /// For each trace and stream class: the number of its first event class.
    first: Vec<Vec<u32>>,
    classes: Vec<Class>,
}

impl Says {
    /// For the events of these traces, which know them by their indexes.
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

    /// What events of a class do; nothing if they mean nothing here.
    pub(super) fn action(&self, class: u32) -> Option<&Action> {
        self.0.classes.get(class as usize)?.action.as_ref()
    }

    /// Whether a trace has events of a kernel.
    pub(super) fn is_of_kernel(&self, trace: usize) -> bool {
        let bound = |trace: usize| self.0.first.get(trace).and_then(|streams| streams.first().copied());
        let Some(begin) = bound(trace) else { return false };
        // Traces without streams have no number.
        let behind = (trace + 1..self.0.first.len()).find_map(bound);
        let end = behind.map_or(self.0.classes.len(), |end| end as usize);
        let classes = self.0.classes.get(begin as usize..end).unwrap_or_default();
        classes.iter().filter_map(|class| class.action.as_ref()).any(|action| !action.is_of_program())
    }

    /// Adds what an event says. Each event says something: that it happened.
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
            numbers: [NO_NUMBER; NUMBERS],
            texts: [NO_TEXT; TEXTS],
        };
        if let Some(class) = self.0.classes.get(class as usize) {
            class.fields.read(event, &mut fact, texts);
        }
        fact
    }

    /// The threads that an event is of, as far as it says so itself.
    pub fn threads(&self, event: &Event<'_>) -> Threads {
        let fact = self.fact(event, &mut Vec::new());
        let number = |which: usize| {
            let number = fact.numbers.get(which).copied().filter(|&number| number != NO_NUMBER);
            number.and_then(|number| i32::try_from(number).ok())
        };
        let about = match self.action(fact.class) {
            Some(Action::Switch) => [number(number::THREAD), number(number::NEXT)],
            Some(Action::Wake | Action::Exit | Action::Free | Action::ProcessState) => {
                [number(number::THREAD), None]
            }
            Some(Action::Fork) => [number(number::CHILD), None],
            _ => [None, None],
        };
        Threads { on: fact.thread(), about }
    }
}

/// The threads that an event is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// The one on which it happened, if it has a context that says so.
    pub on: Option<i32>,
    /// Those that it is about: they leave a processor or come to it, are woken, begin, end, or are told of.
    pub about: [Option<i32>; 2],
}

impl Fields {
    fn new(action: Option<&Action>, stream: &metadata::Stream, event: &metadata::Event) -> Self {
        let names: &[&str] = match action {
            Some(action) if !action.is_of_program() => &["tid"],
            _ => &["vtid", "tid"],
        };
        let find = |fields: Option<&Struct>| names.iter().find_map(|name| place(fields, name));
        let thread = find(stream.event_context.as_ref())
            .map(Context::Stream)
            .or_else(|| find(event.context.as_ref()).map(Context::Event));
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
            Some(Action::Wake | Action::Exit | Action::Free) => {
                use_as(&["tid", "pid"], Use::Number(number::THREAD));
                use_as(&["comm"], Use::Text(text::NAME));
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
        Self { payload: payload.into(), thread }
    }

    fn read(&self, event: &Event<'_>, fact: &mut Fact, texts: &mut Vec<u8>) {
        let found = self.thread.and_then(|context| match context {
            Context::Stream(place) => event.stream_context().nth(place),
            Context::Event(place) => event.context().nth(place),
        });
        if let Some(tid) = found.and_then(|(_, value)| i32::try_from(value.as_integer()?).ok()) {
            fact.thread = tid;
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

/// Where a structure has a field.
fn place(fields: Option<&Struct>, name: &str) -> Option<usize> {
    fields?.fields.iter().position(|field| &*field.name == name)
}
