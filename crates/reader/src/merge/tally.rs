//! Counting what is in streams, without decoding events.

use tompion_ctf::decode::{Fields, Tally};

use super::TraceSet;
use super::source::{Source, TimeBase};
use crate::{Damage, Disorder};

/// Events of one stream class that were counted in a row.
pub(crate) struct Run<'t> {
    /// The trace's index in [`TraceSet::traces`].
    pub trace: usize,
    /// The stream class's index.
    pub stream: usize,
    /// How many events of each class.
    pub counts: &'t [u64],
    /// The earliest and the latest time, if events have times.
    pub times: Option<(i64, i64)>,
}

/// Takes what is counted.
pub(crate) trait Counter {
    /// A number in the context of the events of a trace. The first event for each of its values is shown, if the
    /// number can be read where it stands.
    fn watched(&self, trace: usize) -> Option<&'static str>;

    /// The context of an event that is the first in its stream with this value of the watched number, its trace,
    /// and its time.
    fn first(&mut self, trace: usize, time: Option<i64>, context: Fields<'_>);

    /// Some events.
    fn run(&mut self, run: &Run<'_>);
}

/// A tally of the stream class that is being read.
struct Current {
    trace: usize,
    stream: usize,
    time: TimeBase,
    tally: Tally,
}

impl Current {
    fn finish(self, counter: &mut dyn Counter) {
        let (time, cycles) = (&self.time, self.tally.cycles);
        let times = cycles
            .and_then(|(least, greatest)| Some((time.nanoseconds(least)?, time.nanoseconds(greatest)?)));
        counter.run(&Run { trace: self.trace, stream: self.stream, counts: &self.tally.counts, times });
    }
}

impl TraceSet {
    /// Whether everything can be counted without decoding: nothing is selected, and what is watched stands at a
    /// known place.
    pub(crate) fn can_tally(&self, counter: &dyn Counter) -> bool {
        let traces = self.traces.iter().enumerate();
        let mut watches = traces.filter_map(|(index, trace)| Some((trace, counter.watched(index)?)));
        self.takes_all
            && self.selection.filter.is_none()
            && watches.all(|(trace, name)| {
                let streams = trace.metadata().streams.iter().enumerate();
                let has_it = |context: &tompion_ctf::metadata::Struct| context.field(name).is_some();
                let mut with =
                    streams.filter(|(_, stream)| stream.event_context.as_ref().is_some_and(has_it));
                with.all(|(stream, _)| trace.decoder.watch(stream, name).is_some())
            })
    }

    /// Counts all events, stream after stream. To be called where [`Self::can_tally`] says so.
    pub(crate) fn tally(&mut self, counter: &mut dyn Counter) {
        for index in 0..self.sources.len() {
            self.tally_source(index, counter);
        }
    }

    fn tally_source(&mut self, index: usize, counter: &mut dyn Counter) {
        let mut current: Option<Current> = None;
        while let Some(source) = self.sources.get_mut(index) {
            if source.file.is_none() && !source.open_next(&self.traces, self.window, &mut self.damages) {
                break;
            }
            let step = match source.next_packet(&self.selection, &mut self.losses) {
                Ok(true) => source.tally(&mut current, counter).map(|()| true),
                other => other,
            };
            match step {
                Ok(true) => {}
                Ok(false) => source.file = None,
                Err(damage) => {
                    current.iter_mut().for_each(|current| current.tally.forget_order());
                    self.pass_over(index, damage);
                }
            }
        }
        if let Some(current) = current {
            current.finish(counter);
        }
    }
}

impl Source {
    /// Counts the events of the packet that was just begun.
    fn tally(&mut self, current: &mut Option<Current>, counter: &mut dyn Counter) -> Result<(), Damage> {
        let trace = self.trace;
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        let stream = file.stream();
        if current.as_ref().is_none_or(|it| (it.trace, it.stream) != (trace, stream)) {
            if let Some(current) = current.take() {
                current.finish(counter);
            }
        }
        let current = current.get_or_insert_with(|| {
            let classes = file.decoder.stream(stream).map_or(0, |stream| stream.events.len());
            let watch = counter.watched(trace).and_then(|name| file.decoder.watch(stream, name));
            let time = TimeBase::new(file.decoder.clock(stream));
            Current { trace, stream, time, tally: Tally::new(classes, watch) }
        });
        let time = &current.time;
        let result = file.tally(&mut current.tally, &mut |cycles, context| {
            counter.first(trace, time.nanoseconds(cycles), context);
        });
        if let Some(back) = current.tally.back.take() {
            // The difference of two times doesn't know of the clock's offset.
            let nanoseconds = current.time.nanoseconds(back.cycles).zip(current.time.nanoseconds(0));
            let Some((time, zero)) = nanoseconds else { return result };
            let path = file.path.clone();
            let back =
                Disorder { path, offset: back.place, events: back.events, back: time.saturating_sub(zero) };
            back.add_to(&mut self.disorder);
        }
        result
    }
}
