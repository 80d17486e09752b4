//! Counts the events of streams without decoding them.

use tompion_ctf::decode::{Fields, Tally};

use super::TraceSet;
use super::source::{Source, TimeBase};
use crate::{Corruption, TimestampRegression};

/// Consecutive counted events of one stream class.
pub(crate) struct Run {
    /// Index of the trace in [`TraceSet::traces`].
    pub trace: usize,
    /// Index of the stream class.
    pub stream: usize,
    /// Number of events of each class.
    pub counts: Vec<u64>,
    /// Earliest and latest time, if events have times.
    pub times: Option<(i64, i64)>,
    /// Smallest clock value.
    pub(super) least: Option<u64>,
    /// Latest clock value so far, with which the order continues.
    pub(super) latest: u64,
}

/// Observer of events while they are counted.
pub(crate) trait Counter: Send {
    /// Names an integer in the context of a trace's events. The first event with each value is
    /// passed to [`Self::first`], if the integer can be read at a known position.
    fn watched(&self, trace: usize) -> Option<&'static str>;

    /// Visits the first event in its part of a stream with this value of the watched integer: its
    /// trace, time and context.
    fn first(&mut self, trace: usize, time: Option<i64>, context: Fields<'_>);
}

/// Order state at a position in a stream: trace, stream class, and the latest time so far in
/// cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub trace: usize,
    pub stream: usize,
    pub latest: u64,
}

impl Run {
    pub(super) fn order(&self) -> Order {
        Order { trace: self.trace, stream: self.stream, latest: self.latest }
    }
}

/// Tally of the stream class that is being read, and those before it.
struct Runs {
    /// Order state from which the first tally continues.
    before: Option<Order>,
    current: Option<Current>,
    done: Vec<Run>,
}

struct Current {
    trace: usize,
    stream: usize,
    time: TimeBase,
    tally: Tally,
}

impl Runs {
    /// Continues behind events with this order state.
    pub fn new(before: Option<Order>) -> Self {
        Self { before, current: None, done: Vec::new() }
    }

    pub fn finish(mut self) -> Vec<Run> {
        self.end_run();
        self.done
    }

    fn end_run(&mut self) {
        let Some(Current { trace, stream, time, tally }) = self.current.take() else { return };
        let times = tally
            .cycles
            .and_then(|(least, greatest)| Some((time.nanoseconds(least)?, time.nanoseconds(greatest)?)));
        let (least, latest) = (tally.cycles.map(|(least, _)| least), tally.latest);
        self.done.push(Run { trace, stream, counts: tally.counts, times, least, latest });
    }

    /// Returns the tally of a stream class.
    fn of(
        &mut self,
        (trace, stream): (usize, usize),
        new: impl FnOnce() -> (TimeBase, Tally),
    ) -> &mut Current {
        if self.current.as_ref().is_some_and(|it| (it.trace, it.stream) != (trace, stream)) {
            self.end_run();
        }
        let before = self.before.take();
        self.current.get_or_insert_with(|| {
            let (time, mut tally) = new();
            let before = before.filter(|it| (it.trace, it.stream) == (trace, stream));
            tally.latest = before.map_or(0, |before| before.latest);
            Current { trace, stream, time, tally }
        })
    }

    /// Forgets the latest time.
    fn forget_order(&mut self) {
        self.before = None;
        self.current.iter_mut().for_each(|current| current.tally.latest = 0);
    }
}

impl TraceSet {
    /// Whether everything can be counted without decoding: the selection accepts everything, and
    /// the watched integer is at a known position.
    pub(crate) fn can_tally(&self, counter: &dyn Counter) -> bool {
        let traces = self.traces.iter().enumerate();
        let mut watches = traces.filter_map(|(index, trace)| Some((trace, counter.watched(index)?)));
        self.takes_all
            && !self.selection.looks_into_events()
            && watches.all(|(trace, name)| {
                let streams = trace.metadata().streams.iter().enumerate();
                let has_it = |context: &tompion_ctf::metadata::Struct| context.field(name).is_some();
                let mut with =
                    streams.filter(|(_, stream)| stream.event_context.as_ref().is_some_and(has_it));
                with.all(|(stream, _)| trace.decoder.watch(stream, name).is_some())
            })
    }

    /// Counts all events on several threads. Each part of a stream has a counter of its own, which
    /// is returned with the part's counts. May be called only if [`Self::can_tally`].
    pub(crate) fn tally<C: Counter>(
        &mut self,
        threads: usize,
        new: &(dyn Fn() -> C + Sync),
    ) -> Vec<(C, Vec<Run>)> {
        let parts = self.read_ranges(threads, &|set, order| {
            let (mut counter, mut runs) = (new(), Runs::new(order));
            set.tally_source(0, &mut counter, &mut runs);
            (counter, runs.finish())
        });
        parts.into_iter().map(|part| (part.found, part.runs)).collect()
    }

    /// Counts all events of a stream.
    fn tally_source(&mut self, index: usize, counter: &mut dyn Counter, runs: &mut Runs) {
        while let Some(source) = self.sources.get_mut(index) {
            if source.file.is_none() && !source.open_next(&self.traces, self.window, &mut self.corruptions) {
                break;
            }
            let step = match source.next_packet(&self.selection, &mut self.losses) {
                Ok(true) => source.tally(runs, counter).map(|()| true),
                other => other,
            };
            match step {
                Ok(true) => {}
                Ok(false) => source.file = None,
                Err(corruption) => {
                    runs.forget_order();
                    self.pass_over(index, corruption);
                }
            }
        }
    }
}

impl Source {
    /// Counts the events of the packet that was just begun.
    fn tally(&mut self, runs: &mut Runs, counter: &mut dyn Counter) -> Result<(), Corruption> {
        let trace = self.trace;
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        let stream = file.stream();
        let current = runs.of((trace, stream), || {
            let classes = file.decoder.stream(stream).map_or(0, |stream| stream.events.len());
            let watch = counter.watched(trace).and_then(|name| file.decoder.watch(stream, name));
            (TimeBase::new(file.decoder.clock(stream)), Tally::new(classes, watch))
        });
        let time = &current.time;
        let result = file.tally(&mut current.tally, &mut |cycles, context| {
            counter.first(trace, time.nanoseconds(cycles), context);
        });
        if let Some(back) = current.tally.back.take() {
            // Subtracting two absolute times removes the clock's offset.
            let nanoseconds = current.time.nanoseconds(back.cycles).zip(current.time.nanoseconds(0));
            let Some((time, zero)) = nanoseconds else { return result };
            let path = file.path.clone();
            let back = TimestampRegression {
                path,
                offset: back.place,
                events: back.events,
                back: time.saturating_sub(zero),
            };
            back.add_to(&mut self.regression);
        }
        result
    }
}
