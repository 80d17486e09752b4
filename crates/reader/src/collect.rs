//! Passes events to collectors on several threads and delivers the collected results in order.
//!
//! Reading and decoding take longer than most collectors do. So they run window by window
//! ([`crate::parallel`]) in parallel. Callers get the same results as from a single thread.

use crate::parallel::{self, Cancelled, OrderedSink, WindowReader};
use crate::{Event, Loss, TraceSet};

/// Approximate number of bytes that results of windows read ahead take.
const MAX_PENDING_BYTES: usize = 64 << 20;
/// Number of bytes after which a result is delivered.
const RESULT_BYTES: usize = 1 << 20;

/// Collector of results from events. It gets events in order of time within a part of the trace,
/// and may get a later part next. State kept from earlier events must not change its results.
pub trait EventCollector: Send {
    /// Result of some consecutive events.
    type Output: Send;

    /// Visits a loss. Called as soon as the loss is known, before the next event.
    fn loss(&mut self, loss: &Loss);

    /// Visits the next event.
    fn event(&mut self, event: &Event<'_>);

    /// Returns the approximate size of the pending result in bytes.
    fn size(&self) -> usize;

    /// Returns the result since the last call.
    fn take(&mut self) -> Self::Output;
}

impl TraceSet {
    /// Calls `visit` with the results of all events in order, until it returns false. Nothing of
    /// the set may have been read before, but it may be a part. `new` creates a collector for each
    /// thread.
    pub fn collect<G: EventCollector>(
        &mut self,
        new: &dyn Fn() -> G,
        visit: &mut dyn FnMut(G::Output) -> bool,
    ) {
        let threads = self.threads();
        self.collect_with(threads, new, visit);
    }

    /// Works like [`Self::collect`] with a number of threads.
    pub(crate) fn collect_with<G: EventCollector>(
        &mut self,
        threads: usize,
        new: &dyn Fn() -> G,
        visit: &mut dyn FnMut(G::Output) -> bool,
    ) {
        let mut visitor = Visitor { collector: new(), visit };
        // An error means that the visitor stopped; it is not reported.
        let _ = if threads < 2 {
            visitor.read_on(self).map(drop)
        } else {
            let readers = (0..threads).map(|_| CollectingReader(new())).collect();
            parallel::run(self, readers, MAX_PENDING_BYTES, &mut visitor)
        };
    }
}

/// Reader that passes the events of windows to a collector.
struct CollectingReader<G>(G);

impl<G: EventCollector> WindowReader for CollectingReader<G> {
    type Piece = (G::Output, usize);
    type End = ();

    fn read(
        &mut self,
        part: &mut TraceSet,
        _window: u64,
        give: &mut dyn FnMut(Self::Piece) -> Result<(), Cancelled>,
    ) -> Result<(), Cancelled> {
        let read = find(&mut self.0, (part, 0), give);
        if read.is_err() {
            // Results of a cancelled window do not belong to the next one.
            drop(self.0.take());
        }
        read
    }
}

struct Visitor<'v, G: EventCollector> {
    collector: G,
    visit: &'v mut dyn FnMut(G::Output) -> bool,
}

impl<G: EventCollector> OrderedSink<CollectingReader<G>> for Visitor<'_, G> {
    type Error = Cancelled;

    fn piece(&mut self, (found, size): (G::Output, usize)) -> Result<u64, Cancelled> {
        if (self.visit)(found) { Ok(size as u64) } else { Err(Cancelled) }
    }

    fn end(&mut self, (): ()) {}

    fn read_on(&mut self, traces: &mut TraceSet) -> Result<u64, Cancelled> {
        let (visit, mut all) = (&mut self.visit, 0);
        // Earlier losses were reported by the window's reader.
        let known = traces.losses().len();
        find(&mut self.collector, (traces, known), &mut |(found, size)| {
            all += size as u64;
            if visit(found) { Ok(()) } else { Err(Cancelled) }
        })?;
        Ok(all)
    }
}

/// Passes the rest of some traces to a collector; the first `known` losses are already reported.
fn find<G: EventCollector>(
    collector: &mut G,
    (traces, mut known): (&mut TraceSet, usize),
    give: &mut dyn FnMut((G::Output, usize)) -> Result<(), Cancelled>,
) -> Result<(), Cancelled> {
    loop {
        let source = traces.next_source();
        if traces.losses().len() > known {
            traces.losses().iter().skip(known).for_each(|loss| collector.loss(loss));
            known = traces.losses().len();
        }
        let Some(event) = source.and_then(|source| traces.event(source)) else { break };
        collector.event(&event);
        if collector.size() >= RESULT_BYTES {
            let size = collector.size();
            give((collector.take(), size))?;
        }
    }
    let size = collector.size();
    give((collector.take(), size))
}

#[cfg(test)]
mod tests;
