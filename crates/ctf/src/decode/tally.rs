//! Counts events without decoding them.

use std::collections::HashSet;

use super::plan::{Kind, Plan, Step};
use super::run::{Input, State};
use super::{DecodeError, Decoder, Fields, Problem};
use crate::metadata::{Struct, Type};

/// Counted events of one stream class.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Number of events of each class.
    pub counts: Vec<u64>,
    /// Smallest and largest clock value, in cycles; `None` before the first event.
    pub cycles: Option<(u64, u64)>,
    /// Events that are older than the latest one so far.
    pub back: Option<Back>,
    /// Latest time since the beginning, or since the order was forgotten, in cycles.
    pub latest: u64,
    /// Watched integer, and the values that it had.
    watch: Option<(Watch, HashSet<u64>)>,
    /// Last of these values.
    last: Option<u64>,
}

/// Events that are older than their predecessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Back {
    /// Position of the first one as a bit of the input; callers may convert it.
    pub place: u64,
    /// Number of such events.
    pub events: u64,
    /// Largest step back, in cycles.
    pub cycles: u64,
}

/// Integer in the context of all events of a stream, which can be read at a known position.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    align_mask: u64,
    offset: usize,
    kind: Kind,
}

/// Visitor for the clock value and context of an event with a new value of the watched integer.
pub type News<'n> = dyn FnMut(u64, Fields<'_>) + 'n;

impl Tally {
    /// Counts events of `classes` classes, and reports the first event for each value of a watched
    /// integer.
    pub fn new(classes: usize, watch: Option<Watch>) -> Self {
        let watch = watch.map(|watch| (watch, HashSet::new()));
        Self { counts: vec![0; classes], watch, ..Self::default() }
    }

    #[cold]
    fn go_back(&mut self, bit: u64, cycles: u64) {
        let back = self.back.get_or_insert(Back { place: bit, events: 0, cycles: 0 });
        back.events += 1;
        back.cycles = back.cycles.max(self.latest - cycles);
    }

    #[inline]
    fn add(&mut self, class: usize, cycles: u64, bit: u64) {
        if cycles < self.latest {
            self.go_back(bit, cycles);
        } else {
            self.latest = cycles;
        }
        if let Some(count) = self.counts.get_mut(class) {
            *count += 1;
        }
        let (least, greatest) = self.cycles.unwrap_or((cycles, cycles));
        self.cycles = Some((least.min(cycles), greatest.max(cycles)));
    }

    /// Whether the watched integer has a new value in the event whose header ends at `bit`.
    #[inline]
    fn is_news(&mut self, input: Input<'_>, bit: u64) -> bool {
        let Some((watch, values)) = &mut self.watch else { return false };
        let value = watch.read(input, bit);
        if self.last == value {
            return false;
        }
        self.last = value;
        value.is_some_and(|value| values.insert(value))
    }
}

impl Watch {
    fn of(plan: &Plan, context: &Struct, name: &str) -> Option<Self> {
        let place = context.fields.iter().position(|field| field.name == name)?;
        let before = context.fields.get(..=place)?;
        // Each of these is a single load.
        let is_load = |ty: &Type| matches!(ty, Type::Integer(_) | Type::Enum(_) | Type::Float(_));
        if !before.iter().all(|field| is_load(&field.ty)) {
            return None;
        }
        let [Step::Align { mask }, Step::Block { first, count, .. }, ..] = *plan.steps.as_slice() else {
            return None;
        };
        let load = plan.loads.get(first as usize + place).filter(|_| place < count as usize)?;
        Some(Self { align_mask: mask.into(), offset: load.offset as usize, kind: load.kind })
    }

    #[inline]
    fn read(self, input: Input<'_>, bit: u64) -> Option<u64> {
        let begin = bit.checked_add(bit.wrapping_neg() & self.align_mask)?;
        let place = usize::try_from(begin / 8).ok()?.checked_add(self.offset)?;
        Some(self.kind.read(input.bytes().get(place..)?))
    }
}

impl Decoder {
    /// Finds an integer in the context of all events of a stream, if it can be read at a known
    /// position.
    pub fn watch(&self, stream: usize, name: &str) -> Option<Watch> {
        let context = self.stream(stream)?.event_context.as_ref()?;
        Watch::of(self.streams.get(stream)?.context.as_ref()?, context, name)
    }

    /// Counts the events from `bit` on. Calls `news` with the clock value and the context of each
    /// event that is the first with its value of the watched integer.
    ///
    /// Returns the bit position after the last counted event and, if that is not the end of the
    /// input, the error. If more bytes can resolve it, call again with that position.
    pub fn tally(
        &self,
        stream: usize,
        input: Input<'_>,
        (bit, state): (u64, &mut State),
        (tally, news): (&mut Tally, &mut News<'_>),
    ) -> (u64, Option<DecodeError>) {
        let mut bit = bit;
        while bit < input.bits() {
            let (class, body) = match self.event_header(stream, input, bit, state) {
                Ok(head) => (head.class, head.end),
                Err(error) => return (bit, Some(error)),
            };
            let end = match self.skip_event_body(stream, class, input, (body, &mut *state)) {
                Ok(body) => body.end,
                Err(error) => return (bit, Some(error)),
            };
            if end == bit {
                return (bit, Some(DecodeError { problem: Problem::EmptyEvent, bit }));
            }
            if tally.is_news(input, body) && self.body::<true>((stream, class), input, body, state).is_ok() {
                news(state.clock, self.stream_context(stream, input, state));
            }
            tally.add(class, state.clock, bit);
            bit = end;
        }
        (bit, None)
    }
}
