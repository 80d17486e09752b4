//! Decoding of events in the reading threads: facts for the states, and data for marks.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use tompion_analysis::quick::QuickSet;
use tompion_analysis::state::{Fact, FactExtractor, Facts};
use tompion_ctf::decode::Value;
use tompion_ctf::metadata::EnvironmentValue;
use tompion_reader::{AddressNames, Event, EventCollector, Loss};

use super::classes::{Class, Classes, Show};
use crate::foreground_gate::ForegroundGate;

/// Maximum number of threads, functions and interrupts that are remembered as reported.
pub const MAX_KNOWN_NAMES: usize = 1 << 20;

/// Place of an event.
#[derive(Clone, Copy, Debug)]
pub struct EventRef {
    /// Index of its stream.
    pub source: u32,
    /// Index of its trace.
    pub trace: u32,
    /// Number of its class; `None` for undescribed classes.
    pub class: Option<u32>,
}

/// Additional data of an event.
#[derive(Clone, Debug)]
pub enum EventExtra {
    /// Loss before the event.
    Loss(Loss),
    /// Process and name of a program's thread, of which this may be the first event.
    Thread(Option<i32>, Option<String>),
    /// Value of a counter.
    Counter(f64),
    /// Number of the flow that this is a step of.
    Flow(i128),
    /// Deadline of a job in nanoseconds.
    Job(u64),
    /// Number and name of an interrupt.
    Interrupt(i64, String),
    /// Address and name of a function.
    Function(u64, Arc<str>),
}

/// Consecutive decoded events.
#[derive(Default)]
pub struct DecodedBatch {
    /// Facts about states, one per event.
    pub facts: Facts,
    /// Events in the same order.
    pub events: Vec<EventRef>,
    /// Additional data by the index of its event, in order.
    pub extras: Vec<(usize, EventExtra)>,
}

/// Step of reading a batch.
pub enum Step<'f> {
    /// Lost events or packets.
    Loss(Loss),
    /// Decoded event.
    Event(DecodedEvent<'f>),
}

/// Event with all its decoded data.
pub struct DecodedEvent<'f> {
    /// Place of the event.
    pub event: &'f EventRef,
    /// Its fact about states.
    pub fact: &'f Fact,
    /// Process and name of its thread.
    pub thread: Option<(Option<i32>, Option<String>)>,
    /// Other additional data.
    pub extras: Option<EventExtra>,
}

impl DecodedBatch {
    /// Visits all events and losses in order. Their facts are some of the passed ones.
    pub fn each(self, mut visit: impl FnMut(&Facts, Step<'_>)) {
        let Self { facts, events, extras } = self;
        let mut extras = extras.into_iter().peekable();
        for (index, (event, fact)) in events.iter().zip(facts.list()).enumerate() {
            let mut decoded = DecodedEvent { event, fact, thread: None, extras: None };
            while let Some((_, extras)) = extras.next_if(|(of, _)| *of <= index) {
                match extras {
                    EventExtra::Loss(loss) => visit(&facts, Step::Loss(loss)),
                    EventExtra::Thread(pid, name) => decoded.thread = Some((pid, name)),
                    other => decoded.extras = Some(other),
                }
            }
            visit(&facts, Step::Event(decoded));
        }
        // Losses behind the last event.
        for (_, extras) in extras {
            if let EventExtra::Loss(loss) = extras {
                visit(&facts, Step::Loss(loss));
            }
        }
    }
}

/// Decoder of events in a reading thread. Other threads and parts may report the same names again.
pub struct EventDecoder {
    facts_of: FactExtractor,
    classes: Arc<Classes>,
    names: Option<Arc<Mutex<AddressNames>>>,
    /// Gate that yields to requests.
    gate: Option<Arc<ForegroundGate>>,
    found: DecodedBatch,
    known_threads: QuickSet<(usize, i32)>,
    interrupts: QuickSet<i64>,
    functions: QuickSet<(usize, u64)>,
}

impl EventDecoder {
    /// Makes a decoder for the events of some traces.
    pub fn new(
        facts_of: FactExtractor,
        classes: Arc<Classes>,
        names: Option<Arc<Mutex<AddressNames>>>,
    ) -> Self {
        let (known_threads, interrupts, functions) =
            (QuickSet::default(), QuickSet::default(), QuickSet::default());
        Self {
            facts_of,
            classes,
            names,
            gate: None,
            found: DecodedBatch::default(),
            known_threads,
            interrupts,
            functions,
        }
    }

    /// Makes the decoder yield to requests.
    pub fn with_gate(self, gate: Arc<ForegroundGate>) -> Self {
        Self { gate: Some(gate), ..self }
    }

    fn add(&mut self, extras: EventExtra) {
        // The data belongs to the newest event.
        self.found.extras.push((self.found.events.len().saturating_sub(1), extras));
    }

    fn interrupt(&mut self, event: &Event<'_>) {
        let payload = event.payload();
        let number = payload.get("irq").and_then(|number| i64::try_from(number.as_integer()?).ok());
        let Some(number) = number.filter(|number| !self.interrupts.contains(number)) else { return };
        if self.interrupts.len() < MAX_KNOWN_NAMES {
            self.interrupts.insert(number);
            if let Some(name) = payload.get("name").and_then(|name| name.as_text()) {
                self.add(EventExtra::Interrupt(number, String::from_utf8_lossy(name).into_owned()));
            }
        }
    }

    fn of_program(&mut self, event: &Event<'_>, show: Show) {
        self.thread(event);
        match show {
            Show::Counter => {
                if let Some(value) = event.payload().find_map(|(_, value)| number(&value)) {
                    self.add(EventExtra::Counter(value));
                }
            }
            Show::Flow => {
                if let Some(flow) = event.payload().find_map(|(_, value)| value.as_integer()) {
                    self.add(EventExtra::Flow(flow));
                }
            }
            Show::Job => {
                let deadline = event.payload().get("deadline_ns");
                let deadline = deadline.and_then(|deadline| deadline.as_integer()?.try_into().ok());
                self.add(EventExtra::Job(deadline.unwrap_or(0)));
            }
            Show::Function => self.function(event),
            Show::Nothing | Show::Mark | Show::CpuMark | Show::Interrupt => {}
        }
    }

    /// Reports the thread of a program's first event.
    fn thread(&mut self, event: &Event<'_>) {
        let trace = event.trace_index();
        let Some(tid) = self.found.facts.list().last().and_then(|fact| fact.thread()) else { return };
        if self.known_threads.len() >= MAX_KNOWN_NAMES || !self.known_threads.insert((trace, tid)) {
            return;
        }
        let contexts = [event.stream_context(), event.context()];
        let find = |name: &str| contexts.iter().find_map(|fields| fields.get(name));
        let number = |value: Value<'_>| value.as_integer().and_then(|number| i32::try_from(number).ok());
        let environment = |name: &str| event.trace().metadata().environment_value(name);
        let of_trace = || environment("vpid").and_then(EnvironmentValue::as_integer)?.try_into().ok();
        let pid = find("vpid").or_else(|| find("pid")).and_then(number).or_else(of_trace);
        let text = |value: Value<'_>| Some(String::from_utf8_lossy(value.as_text()?).into_owned());
        let of_trace = || environment("procname").and_then(EnvironmentValue::as_text).map(str::to_owned);
        let name = find("procname").and_then(text).or_else(of_trace);
        self.add(EventExtra::Thread(pid, name));
    }

    fn function(&mut self, event: &Event<'_>) {
        let address = event.payload().get("addr").and_then(|address| address.as_integer()?.try_into().ok());
        let (Some(address), Some(names)) = (address, &self.names) else { return };
        if self.functions.len() < MAX_KNOWN_NAMES && self.functions.insert((event.trace_index(), address)) {
            let named = names.lock().unwrap_or_else(PoisonError::into_inner).of(event);
            if let Some((_, name)) = named.into_iter().find(|(field, _)| *field == "addr") {
                self.add(EventExtra::Function(address, name));
            }
        }
    }
}

impl EventCollector for EventDecoder {
    type Output = DecodedBatch;

    fn loss(&mut self, loss: &Loss) {
        // The loss belongs to the next event.
        self.found.extras.push((self.found.events.len(), EventExtra::Loss(loss.clone())));
    }

    fn event(&mut self, event: &Event<'_>) {
        if let Some(gate) = &self.gate {
            gate.yield_to_requests();
        }
        self.facts_of.add(event, &mut self.found.facts);
        let classes = self.classes.clone();
        let class = classes.of(event.place());
        self.found.events.push(EventRef {
            source: event.source() as u32,
            trace: event.trace_index() as u32,
            class: class.map(|class| class.number),
        });
        match class {
            Some(Class { is_of_program: true, show, .. }) => self.of_program(event, *show),
            Some(Class { show: Show::Interrupt, .. }) => self.interrupt(event),
            _ => {}
        }
    }

    fn size(&self) -> usize {
        let DecodedBatch { facts, events, extras } = &self.found;
        facts.size() + size_of_val(events.as_slice()) + size_of_val(extras.as_slice())
    }

    fn take(&mut self) -> DecodedBatch {
        mem::take(&mut self.found)
    }
}

/// Returns a value as a number, if it is one.
fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number).filter(|number| number.is_finite()),
        other => other.as_integer().map(|number| number as f64),
    }
}
