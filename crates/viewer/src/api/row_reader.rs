//! Where events are read: in the traces as they are, or as they are shifted against each other.
//!
//! The index knows parts and rows of the traces as they are. Shifted ones come in another order, so they have parts of
//! their own, found by packets' headers. How many rows are before a time is the sum of what traces with the same shift
//! have before that time less the shift: that the index knows, but for the one part that is read.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tompion_reader::{Parts, Selection, TraceSet};

use super::{ApiError, ApiRequest};
use crate::workspace::OpenTrace;

/// Traces as they are shifted.
pub struct Shifted {
    /// By how much each of them, in nanoseconds.
    offsets: Vec<i64>,
    /// How often they were opened.
    generation: u64,
    parts: Parts,
    set: TraceSet,
    /// The first rows of parts, as far as they were asked for.
    first: Mutex<HashMap<usize, u64>>,
}

impl Shifted {
    /// Finds the parts of shifted traces.
    ///
    /// # Errors
    ///
    /// If they can't be described anew.
    pub fn new(opened: &OpenTrace, offsets: &[i64], bytes: u64) -> Result<Self, tompion_reader::Error> {
        let set = opened.set.shifted(offsets)?;
        let parts = Parts::new(&set, bytes);
        let (offsets, generation) = (offsets.to_vec(), opened.generation);
        Ok(Self { offsets, generation, parts, set, first: Mutex::default() })
    }

    /// Whether it is of these traces, so shifted.
    pub fn is_of(&self, opened: &OpenTrace, offsets: &[i64]) -> bool {
        self.generation == opened.generation && self.offsets == offsets
    }
}

/// Traces with the same shift.
pub struct Shift {
    /// By how much, in nanoseconds.
    pub offset: i64,
    /// For each trace: whether it is one of them.
    pub has: Vec<bool>,
}

impl Shift {
    /// All shifts of a question, each once.
    pub fn all(request: &ApiRequest<'_>) -> Vec<Self> {
        let traces = request.opened.traces.len();
        let offsets: BTreeSet<i64> = (0..traces).map(|trace| request.offset(trace)).collect();
        let shift = |offset| {
            let has = (0..traces).map(|trace| request.offset(trace) == offset).collect();
            Self { offset, has }
        };
        offsets.into_iter().map(shift).collect()
    }

    /// Whether a trace is one of them.
    pub fn has(&self, trace: usize) -> bool {
        self.has.get(trace).copied().unwrap_or(false)
    }

    /// A part's counts by class, but those of other traces; `traces` has the trace of each class.
    pub fn counts(&self, counts: &[(u32, u64)], traces: &[u32]) -> impl Iterator<Item = (u32, u64)> {
        let is_of = |class: u32| traces.get(class as usize).is_some_and(|trace| self.has(*trace as usize));
        counts.iter().copied().filter(move |(class, _)| is_of(*class))
    }
}

/// What a question reads.
pub struct RowReader<'q> {
    opened: &'q OpenTrace,
    shifts: Vec<Shift>,
    /// Nothing where no trace is shifted.
    shifted: Option<Arc<Shifted>>,
}

impl<'q> RowReader<'q> {
    /// Of what is asked.
    pub fn new(request: &ApiRequest<'q>) -> Result<Self, ApiError> {
        let wrong = |error: tompion_reader::Error| ApiError { status: 500, line: error.to_string() };
        let is_shifted = request.offsets.iter().any(|offset| *offset != 0);
        let shifted = is_shifted.then(|| request.workspace.shifted(request.opened, &request.offsets));
        let shifted = shifted.transpose().map_err(wrong)?;
        Ok(Self { opened: request.opened, shifts: Shift::all(request), shifted })
    }

    /// All of it, not read so far, for who reads it at once; nothing where no trace is shifted.
    pub fn whole(&self) -> Result<Option<TraceSet>, tompion_reader::Error> {
        self.shifted.as_ref().map(|shifted| shifted.set.shifted(&[])).transpose()
    }

    fn parts(&self) -> &Parts {
        self.shifted.as_ref().map_or(&*self.opened.parts, |shifted| &shifted.parts)
    }

    /// How many parts there are.
    pub fn count(&self) -> usize {
        self.parts().count()
    }

    /// The part to which events of a time belong.
    pub fn at(&self, time: i64) -> usize {
        self.parts().at(time)
    }

    /// From which time on events belong to a part.
    pub fn begin(&self, part: usize) -> Option<i64> {
        self.parts().begin(part)
    }

    /// The selected events of a part.
    pub fn read(&self, part: usize, selection: Selection) -> Option<TraceSet> {
        self.parts().read(part, selection)
    }

    /// How many events are before a time. What was not read yet is none.
    pub fn rows_before(&self, time: i64) -> u64 {
        match self.shifted {
            None => self.unshifted_before(time),
            Some(_) => self.shifts.iter().map(|shift| self.before(time, shift)).sum(),
        }
    }

    fn unshifted_before(&self, time: i64) -> u64 {
        let part = self.opened.parts.at(time);
        let (known, last) = {
            let index = self.opened.index();
            let last = index.parts.last().map_or(0, |rows| rows.first);
            (index.parts.get(part).map(|rows| rows.first), last)
        };
        // Of what was not read yet, no rows are known.
        known.map_or(last, |known| known + self.steps(part, time, &|_| true))
    }

    /// How many events of traces with this shift are before a time.
    fn before(&self, time: i64, shift: &Shift) -> u64 {
        let time = time.saturating_sub(shift.offset);
        let part = self.opened.parts.at(time);
        let (known, is_known) = {
            let index = self.opened.index();
            let before = index.parts.iter().take(part);
            let counts = before.flat_map(|part| shift.counts(&part.counts, &self.opened.trace_of_class));
            (counts.map(|(_, count)| count).sum::<u64>(), part < index.parts.len())
        };
        if is_known { known + self.steps(part, time, &|trace| shift.has(trace)) } else { known }
    }

    /// How many events of some traces stand in a part before a time, of the traces as they are.
    fn steps(&self, part: usize, time: i64, is_of: &dyn Fn(usize) -> bool) -> u64 {
        let selection = Selection { to: time.checked_sub(1), ..Selection::default() };
        let Some(mut traces) = self.opened.read(part, selection) else { return 0 };
        let mut count = 0;
        while traces.step() {
            count += u64::from(traces.current().is_some_and(|event| is_of(event.trace_index())));
        }
        count
    }

    /// The number of a part's first row.
    pub fn first_row(&self, part: usize) -> u64 {
        if let Some(known) = self.known_first_row(part) {
            return known;
        }
        let (Some(shifted), Some(begin)) = (&self.shifted, self.begin(part)) else { return 0 };
        let first = self.rows_before(begin);
        // What the index learns later moves rows.
        if self.opened.index().progress >= 1.0 {
            shifted.first.lock().unwrap_or_else(PoisonError::into_inner).insert(part, first);
        }
        first
    }

    /// The same, if it is known without reading.
    pub fn known_first_row(&self, part: usize) -> Option<u64> {
        match &self.shifted {
            None => self.opened.index().parts.get(part).map(|rows| rows.first),
            Some(shifted) => shifted.first.lock().unwrap_or_else(PoisonError::into_inner).get(&part).copied(),
        }
    }

    /// The part in which a row is.
    pub fn part_of(&self, row: u64) -> usize {
        if self.shifted.is_none() {
            let index = self.opened.index();
            return index.parts.partition_point(|part| part.first <= row).saturating_sub(1);
        }
        let (mut low, mut high) = (0, self.count());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.first_row(middle) <= row {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }
}
