//! Filter on the kernel's events, as far as programs in the kernel leave it to the reader of their
//! records.

use std::{collections::HashMap, sync::Arc};

use tompion_filter::{
    Contexts, EventSchema, Expression, Found, Kind, Name, Place, Program, RecordValues, Scope, Shape, Value,
};
use tompion_kernel::{
    decode::{Class, Vocabulary},
    filter::Filter,
};

const TID: u16 = 0;
const PID: u16 = 1;
const CPU: u16 = 2;

/// Head of a record.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// CPU.
    pub cpu: u32,
}

impl Contexts for Head {
    fn number(&self, context: u16) -> Value {
        let number = match context {
            TID => self.tid,
            PID => self.pid,
            _ => self.cpu,
        };
        u64::from(number).into()
    }

    fn text(&self, _context: u16) -> Option<&[u8]> {
        None
    }
}

/// Filter of the kernel's events on the session's side.
#[derive(Debug)]
pub struct KernelFilter {
    vocabulary: Arc<Vocabulary>,
    filter: Filter,
    expression: Option<Expression>,
    /// For each class that was met: nothing if its records pass as they are.
    classes: HashMap<Class, Option<ClassFilter>>,
}

/// The filter on one class. Without a program it lets nothing through.
#[derive(Debug)]
struct ClassFilter {
    program: Option<Program>,
    shape: Shape,
}

impl KernelFilter {
    /// The filter of a text, as it was compiled for the programs.
    pub fn new(text: &str, filter: Filter, vocabulary: Arc<Vocabulary>) -> Self {
        let expression = tompion_filter::parse(text).ok();
        Self { vocabulary, filter, expression, classes: HashMap::new() }
    }

    /// Whether a record that the programs let through is wanted. Unknown counts as false.
    pub fn passes(&mut self, class: Class, head: Head, payload: &[u8]) -> bool {
        let Self { vocabulary, filter, expression, classes } = self;
        let of_class = classes.entry(class).or_insert_with(|| {
            filter.leaves_to_reader(class).then(|| {
                let event = vocabulary.event(class);
                let schema = EventSchema::new(&event, &context);
                let program = expression.as_ref().and_then(|it| tompion_filter::compile(it, &schema).ok());
                ClassFilter { program, shape: Shape::new(&event) }
            })
        });
        let Some(ClassFilter { program, shape }) = of_class else { return true };
        let (fixed, tails) = shape.split(payload);
        let values = RecordValues::new(fixed, &tails).with_contexts(&head);
        program.as_ref().is_some_and(|program| program.evaluate(&values).is_true())
    }
}

/// Fields of a record's head.
fn context(name: &Name) -> Found<'static> {
    let known = |number| Found { place: Place::Context(number), kind: Kind::Integer };
    match (name.scope, name.head(), name.path.len()) {
        (Scope::Context, "tid", 1) => known(TID),
        (Scope::Context, "pid", 1) => known(PID),
        (Scope::Context, "cpu", 1) => known(CPU),
        _ => Found::ABSENT,
    }
}
