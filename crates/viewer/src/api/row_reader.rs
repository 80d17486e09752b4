//! Reader of rows, in the traces as they are or with clock offsets.
//!
//! The index knows parts and rows of unshifted traces. Shifted traces have another order, so they
//! get parts of their own, found from packet headers. The number of rows before a time is a sum
//! over the traces with the same offset: how many each has before that time minus the offset. The
//! index knows it except for one part, which is read.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tompion_reader::{Parts, Selection, TraceSet};

use super::{ApiError, ApiRequest};
use crate::workspace::OpenTrace;

/// Traces with clock offsets, and their own parts.
pub struct Shifted {
    /// Clock offset of each trace in nanoseconds.
    offsets: Vec<i64>,
    /// Generation of the open trace.
    generation: u64,
    parts: Parts,
    set: TraceSet,
    /// First rows of parts, as far as they were asked for.
    first: Mutex<HashMap<usize, u64>>,
}

impl Shifted {
    /// Finds the parts of shifted traces.
    ///
    /// # Errors
    ///
    /// If the shifted traces can't be described.
    pub fn new(opened: &OpenTrace, offsets: &[i64], bytes: u64) -> Result<Self, tompion_reader::Error> {
        let set = opened.set.shifted(offsets)?;
        let parts = Parts::new(&set, bytes);
        let (offsets, generation) = (offsets.to_vec(), opened.generation);
        Ok(Self { offsets, generation, parts, set, first: Mutex::default() })
    }

    /// Whether these are the traces of this generation with these offsets.
    pub fn is_of(&self, opened: &OpenTrace, offsets: &[i64]) -> bool {
        self.generation == opened.generation && self.offsets == offsets
    }
}

/// Traces with the same clock offset.
pub struct Shift {
    /// Clock offset in nanoseconds.
    pub offset: i64,
    /// Whether each trace has this offset.
    pub has: Vec<bool>,
}

impl Shift {
    /// Returns all offsets of a request, each once.
    pub fn all(request: &ApiRequest<'_>) -> Vec<Self> {
        let traces = request.opened.traces.len();
        let offsets: BTreeSet<i64> = (0..traces).map(|trace| request.offset(trace)).collect();
        let shift = |offset| {
            let has = (0..traces).map(|trace| request.offset(trace) == offset).collect();
            Self { offset, has }
        };
        offsets.into_iter().map(shift).collect()
    }

    /// Whether a trace has this offset.
    pub fn has(&self, trace: usize) -> bool {
        self.has.get(trace).copied().unwrap_or(false)
    }

    /// Returns a part's counts by class without those of other traces; `traces` has the trace of
    /// each class.
    pub fn counts(&self, counts: &[(u32, u64)], traces: &[u32]) -> impl Iterator<Item = (u32, u64)> {
        let is_of = |class: u32| traces.get(class as usize).is_some_and(|trace| self.has(*trace as usize));
        counts.iter().copied().filter(move |(class, _)| is_of(*class))
    }
}

/// Reader of a request's rows.
pub struct RowReader<'q> {
    opened: &'q OpenTrace,
    shifts: Vec<Shift>,
    /// Shifted traces; `None` if no trace is shifted.
    shifted: Option<Arc<Shifted>>,
}

impl<'q> RowReader<'q> {
    /// Opens the rows of a request.
    pub fn new(request: &ApiRequest<'q>) -> Result<Self, ApiError> {
        let wrong = |error: tompion_reader::Error| ApiError { status: 500, line: error.to_string() };
        let is_shifted = request.offsets.iter().any(|offset| *offset != 0);
        let shifted = is_shifted.then(|| request.workspace.shifted(request.opened, &request.offsets));
        let shifted = shifted.transpose().map_err(wrong)?;
        Ok(Self { opened: request.opened, shifts: Shift::all(request), shifted })
    }

    /// Returns the shifted traces, unread, for a caller that reads them at once; `None` if no trace
    /// is shifted.
    pub fn whole(&self) -> Result<Option<TraceSet>, tompion_reader::Error> {
        self.shifted.as_ref().map(|shifted| shifted.set.shifted(&[])).transpose()
    }

    fn parts(&self) -> &Parts {
        self.shifted.as_ref().map_or(&*self.opened.parts, |shifted| &shifted.parts)
    }

    /// Returns the number of parts.
    pub fn count(&self) -> usize {
        self.parts().count()
    }

    /// Returns the part to which events of a time belong.
    pub fn at(&self, time: i64) -> usize {
        self.parts().at(time)
    }

    /// Returns the time from which on events belong to a part.
    pub fn begin(&self, part: usize) -> Option<i64> {
        self.parts().begin(part)
    }

    /// Returns the selected events of a part.
    pub fn read(&self, part: usize, selection: Selection) -> Option<TraceSet> {
        self.parts().read(part, selection)
    }

    /// Returns the number of events before a time. Events of unread parts are not counted.
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
        // No rows of unread parts are known.
        known.map_or(last, |known| known + self.steps(part, time, &|_| true))
    }

    /// Returns the number of events before a time, of traces with this offset.
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

    /// Counts the events of some unshifted traces in a part before a time.
    fn steps(&self, part: usize, time: i64, is_of: &dyn Fn(usize) -> bool) -> u64 {
        let selection = Selection { to: time.checked_sub(1), ..Selection::default() };
        let Some(mut traces) = self.opened.read(part, selection) else { return 0 };
        let mut count = 0;
        while traces.step() {
            count += u64::from(traces.current().is_some_and(|event| is_of(event.trace_index())));
        }
        count
    }

    /// Returns the number of a part's first row.
    pub fn first_row(&self, part: usize) -> u64 {
        if let Some(known) = self.known_first_row(part) {
            return known;
        }
        let (Some(shifted), Some(begin)) = (&self.shifted, self.begin(part)) else { return 0 };
        let first = self.rows_before(begin);
        // Row numbers change while the index grows.
        if self.opened.index().progress >= 1.0 {
            shifted.first.lock().unwrap_or_else(PoisonError::into_inner).insert(part, first);
        }
        first
    }

    /// Returns the number of a part's first row, if it is known without reading.
    pub fn known_first_row(&self, part: usize) -> Option<u64> {
        match &self.shifted {
            None => self.opened.index().parts.get(part).map(|rows| rows.first),
            Some(shifted) => shifted.first.lock().unwrap_or_else(PoisonError::into_inner).get(&part).copied(),
        }
    }

    /// Returns the part that has a row.
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
