//! Events to whatever is wanted of them, on as many processors as there are, and in their order.
//!
//! Reading and decoding take longer than what most callers do with what they find. So that is done window by window
//! ([`crate::ahead`]), side by side; callers get what was found as if one thread had read everything.

use crate::ahead::{self, Taker, Unwanted, Worker};
use crate::{Event, Loss, TraceSet};

/// Bytes that what is found ahead takes, about.
const ROOM: usize = 64 << 20;
/// Bytes after which something is handed over.
const PIECE: usize = 1 << 20;

/// Finds what is wanted in events. It is asked in order of time within a part of the trace, and may be asked of a later
/// part next: what it remembers of events before must not change what it finds.
pub trait Gather: Send {
    /// What was found in some events that follow each other.
    type Found: Send;

    /// Something was lost. It is told as soon as it is known, before the next event.
    fn loss(&mut self, loss: &Loss);

    /// The next event.
    fn event(&mut self, event: &Event<'_>);

    /// How many bytes what was found takes, about.
    fn size(&self) -> usize;

    /// Gives what was found since the last time.
    fn take(&mut self) -> Self::Found;
}

impl TraceSet {
    /// Calls with what is found in all events, in their order, until told to stop by false. Nothing of the set was read
    /// before. `new` makes what finds it, for each thread.
    pub fn gather<G: Gather>(&mut self, new: &dyn Fn() -> G, visit: &mut dyn FnMut(G::Found) -> bool) {
        let threads = self.threads();
        self.gather_with(threads, new, visit);
    }

    /// [`Self::gather`] with a number of threads.
    pub(crate) fn gather_with<G: Gather>(
        &mut self,
        threads: usize,
        new: &dyn Fn() -> G,
        visit: &mut dyn FnMut(G::Found) -> bool,
    ) {
        let mut visitor = Visitor { gather: new(), visit };
        // Whoever visits knows why nothing more is wanted.
        let _ = if threads < 2 {
            visitor.read_on(self).map(drop)
        } else {
            let workers = (0..threads).map(|_| Gatherer(new())).collect();
            ahead::run(self, workers, ROOM, &mut visitor)
        };
    }
}

/// Finds things in windows.
struct Gatherer<G>(G);

impl<G: Gather> Worker for Gatherer<G> {
    type Piece = (G::Found, usize);
    type End = ();

    fn read(
        &mut self,
        part: &mut TraceSet,
        _window: u64,
        give: &mut dyn FnMut(Self::Piece) -> Result<(), Unwanted>,
    ) -> Result<(), Unwanted> {
        let read = find(&mut self.0, (part, 0), give);
        if read.is_err() {
            // What was found in a window that nobody wants is none of the next one's.
            drop(self.0.take());
        }
        read
    }
}

struct Visitor<'v, G: Gather> {
    gather: G,
    visit: &'v mut dyn FnMut(G::Found) -> bool,
}

impl<G: Gather> Taker<Gatherer<G>> for Visitor<'_, G> {
    type Error = Unwanted;

    fn piece(&mut self, (found, size): (G::Found, usize)) -> Result<u64, Unwanted> {
        if (self.visit)(found) { Ok(size as u64) } else { Err(Unwanted) }
    }

    fn end(&mut self, (): ()) {}

    fn read_on(&mut self, traces: &mut TraceSet) -> Result<u64, Unwanted> {
        let (visit, mut all) = (&mut self.visit, 0);
        // What was lost before was told by who read it.
        let known = traces.losses().len();
        find(&mut self.gather, (traces, known), &mut |(found, size)| {
            all += size as u64;
            if visit(found) { Ok(()) } else { Err(Unwanted) }
        })?;
        Ok(all)
    }
}

/// Finds things in all that is left of some traces, of which so many losses are known.
fn find<G: Gather>(
    gather: &mut G,
    (traces, mut known): (&mut TraceSet, usize),
    give: &mut dyn FnMut((G::Found, usize)) -> Result<(), Unwanted>,
) -> Result<(), Unwanted> {
    loop {
        let source = traces.next_source();
        if traces.losses().len() > known {
            traces.losses().iter().skip(known).for_each(|loss| gather.loss(loss));
            known = traces.losses().len();
        }
        let Some(event) = source.and_then(|source| traces.event(source)) else { break };
        gather.event(&event);
        if gather.size() >= PIECE {
            let size = gather.size();
            give((gather.take(), size))?;
        }
    }
    let size = gather.size();
    give((gather.take(), size))
}

#[cfg(test)]
mod tests;
