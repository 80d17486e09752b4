//! Filters on the event path: predicates over an event's fields that decide whether a recording
//! records it.
//!
//! For each recording that has a filter there is a table from event numbers to programs. Programs
//! are compiled when an event is enabled, and never freed, because a thread may run one at any
//! time; the same filter on the same event is compiled once. Tables are read without a lock.
//!
//! What a program cannot know here (a context that only the session knows) is left to the session.
//!
//! Programs are compiled in this process, from the filter's text; they are never received. They
//! read the program's own memory, as the event's caller described it, and at most as much as a
//! record can hold. So an event with a filter does no harm where the same event without one does
//! none.

use std::{
    cell::OnceCell,
    collections::BTreeMap,
    sync::atomic::{AtomicU32, Ordering},
};

use tompion_filter::{
    Contexts, EventSchema, Found, Kind, Name, Place, Program, RecordValues, Scope, Tails, Value, Values,
    Verdict,
};
use tompion_layout::record;
use tompion_protocol::MAX_RECORDINGS;
use tompion_ring::producer::Tail;

use crate::{context, table::Table};

/// A filter for the events of one number.
#[derive(Debug)]
pub struct Filter {
    program: Program,
    /// Whether an evaluation computes with floating-point numbers.
    has_floats: bool,
}

/// Each filter of an event is compiled once, so that one at another place is another one.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Filter {}

static TABLES: [Table<Filter>; MAX_RECORDINGS] = [const { Table::new() }; MAX_RECORDINGS];

/// Contexts by their numbers in programs: those of the agent, then those of the application.
const TID: u16 = 0;
const PID: u16 = 1;
const FIRST_APPLICATION_CONTEXT: u16 = 16;

/// This process's id. Asking the kernel on the event path is out of the question.
static OWN_PID: AtomicU32 = AtomicU32::new(0);

/// A filter's text, an event's description, and how many contexts the application had.
type Key = (Box<str>, Box<[u8]>, u32);

/// Compiled programs; none where a filter can't be true for an event. Kept for ever.
#[derive(Debug, Default)]
pub struct Cache(BTreeMap<Key, Option<&'static Filter>>);

impl Cache {
    /// Nothing compiled yet.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The program of a filter for an event; none if the filter can't be true for it.
    pub fn program(&mut self, filter: &str, description: &[u8]) -> Option<&'static Filter> {
        let key = (Box::from(filter), Box::from(description), context::count());
        *self.0.entry(key).or_insert_with(|| {
            let program = compile(filter, description)?;
            Some(Box::leak(Box::new(Filter { has_floats: program.has_floats(), program })))
        })
    }
}

/// Whether a filter can be read. A later session may know more of them.
pub fn is_understood(filter: &str) -> bool {
    tompion_filter::parse(filter).is_ok()
}

fn compile(filter: &str, description: &[u8]) -> Option<Program> {
    let event = tompion_schema::decode(description).ok()?;
    let expression = tompion_filter::parse(filter).ok()?;
    let contexts = |name: &Name| find_context(name);
    let program = tompion_filter::compile(&expression, &EventSchema::new(&event, &contexts)).ok()?;
    can_be_true(&program).then_some(program)
}

/// Whether there is something to find out. Not so if the event has nothing of what the filter asks
/// for.
fn can_be_true(program: &Program) -> bool {
    let nothing: &[&[u8]] = &[];
    program.operands().iter().any(|operand| operand.place != Place::Absent)
        || program.evaluate(&RecordValues::new(&[], nothing)) == Verdict::True
}

/// Finds a context that the agent knows.
fn find_context(name: &Name) -> Found<'static> {
    let known = |number, kind| Found { place: Place::Context(number), kind };
    match (name.scope, name.head()) {
        (Scope::Context, _) if name.path.len() > 1 => Found::ABSENT,
        (Scope::Context, "tid") => known(TID, Kind::Integer),
        (Scope::Context, "pid") => known(PID, Kind::Integer),
        (Scope::Application, name) => match context::find(name) {
            Some((index, context::Type::Integer)) => known(FIRST_APPLICATION_CONTEXT + index, Kind::Integer),
            Some((index, context::Type::Text)) => known(FIRST_APPLICATION_CONTEXT + index, Kind::Text),
            None => Found::ABSENT,
        },
        _ => Found::ELSEWHERE,
    }
}

/// In the child of a fork, whose filters are its parent's: notes its own id.
pub fn note_child() {
    // Without filters nothing reads the id, and a store would copy the page. Ordering: the process
    // has one thread.
    if OWN_PID.load(Ordering::Relaxed) != 0 {
        OWN_PID.store(std::process::id(), Ordering::Relaxed);
    }
}

/// Has a recording's events of this number filtered by a program; by none without one.
///
/// The caller holds the registry's lock, and the recording doesn't take the event yet.
pub fn set(slot: usize, number: u32, filter: Option<&'static Filter>) {
    let Some(table) = TABLES.get(slot) else { return };
    if filter.is_some() {
        note_pid();
    }
    table.set(number, filter);
}

/// Notes this process's id, before a filter can ask for it.
pub fn note_pid() {
    // Ordering: before the release store of the filter. The child of a fork comes here again, or to
    // `note_child`, before any of its events is filtered.
    OWN_PID.store(std::process::id(), Ordering::Relaxed);
}

/// Of the recordings that take an event, those whose filters let it through or leave it to the
/// session.
#[inline]
pub fn passing(recording_mask: u32, number: u32, tid: u32, (image, tails): (&[u8], &[Tail])) -> u32 {
    let mut passing = recording_mask;
    let mut rest = recording_mask;
    while rest != 0 {
        let slot = rest.trailing_zeros();
        rest &= rest - 1;
        let Some(filter) = TABLES.get(slot as usize).and_then(|table| table.get(number)) else { continue };
        let passes = match filter.verdict(tid, image, tails) {
            Verdict::True => true,
            Verdict::False => false,
            // What is too large for a record is left to the writer, which counts it as lost.
            Verdict::Unknown => filter.program.defers() || !tails.iter().all(fits),
        };
        if !passes {
            passing &= !(1 << slot);
        }
    }
    passing
}

impl Filter {
    /// Verdict on an event of the calling thread. In one piece with each caller.
    #[inline(always)]
    fn verdict(&self, tid: u32, image: &[u8], tails: &[Tail]) -> Verdict {
        match self.program.decide(image) {
            Some(verdict) => verdict,
            None => self.evaluate(tid, image, tails),
        }
    }

    #[inline(never)]
    fn evaluate(&self, tid: u32, image: &[u8], tails: &[Tail]) -> Verdict {
        let (tails, thread) = (TailBytes(tails), ThreadContexts { tid, texts: OnceCell::new() });
        let values = RecordValues::new(image, &tails).with_contexts(&thread);
        if self.has_floats { with_floats(self, &values) } else { self.program.evaluate(&values) }
    }

    /// Whether an event of the calling thread passes for certain.
    #[inline]
    pub fn is_true(&self, tid: u32, image: &[u8], tails: &[Tail]) -> bool {
        self.verdict(tid, image, tails).is_true()
    }
}

/// The tails of an event that is being recorded.
pub struct TailBytes<'a>(pub &'a [Tail]);

/// The program's own floating-point environment may raise signals, and must not change.
///
/// Apart from the evaluation of most filters, which so stays in one piece with its caller.
#[inline(never)]
fn with_floats(filter: &Filter, values: &dyn Values) -> Verdict {
    tompion_os::with_default_fp_env(|| filter.program.evaluate(values))
}

/// Returns whether a record has room for a tail. The size of a larger one may be a mistake, a
/// length of -1 for example. It must do no more harm than without a filter, so it is not read.
fn fits(tail: &Tail) -> bool {
    tail.size <= record::MAX_RECORD
}

impl Tails for TailBytes<'_> {
    fn tail(&self, number: usize) -> Option<&[u8]> {
        let tail = self.0.get(number).filter(|tail| fits(tail))?;
        if tail.size == 0 {
            // Where nothing is read, nothing needs to be.
            return Some(&[]);
        }
        // SAFETY: the event's tails are readable while it is recorded, as its caller promised.
        (!tail.data.is_null()).then(|| unsafe { std::slice::from_raw_parts(tail.data, tail.size) })
    }
}

/// Text that the application wrote for a context, and its length.
type Text = ([u8; context::MAX_TEXT], usize);

/// The texts of all contexts.
type Texts = [OnceCell<Text>; context::MAX_CONTEXTS];

/// The calling thread, with the texts that were asked for.
struct ThreadContexts {
    tid: u32,
    /// Hardly ever needed, and long to prepare.
    texts: OnceCell<Texts>,
}

impl Contexts for ThreadContexts {
    fn number(&self, context: u16) -> Value {
        match context {
            TID => u64::from(self.tid).into(),
            // Ordering: pairs with the release store of the program, in `set`.
            PID => u64::from(OWN_PID.load(Ordering::Relaxed)).into(),
            number => match number.checked_sub(FIRST_APPLICATION_CONTEXT).and_then(context::number) {
                Some(value) => value.into(),
                None => Value::UNKNOWN,
            },
        }
    }

    fn text(&self, context: u16) -> Option<&[u8]> {
        let index = context.checked_sub(FIRST_APPLICATION_CONTEXT)?;
        let texts = self.texts.get_or_init(Texts::default);
        let (buffer, len) = texts.get(usize::from(index))?.get_or_init(|| {
            let mut buffer = [0; context::MAX_TEXT];
            let len = context::text(index, &mut buffer).unwrap_or(0);
            (buffer, len)
        });
        buffer.get(..*len)
    }
}
