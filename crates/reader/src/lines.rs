//! Events to lines, on as many processors as there are.
//!
//! ```text
//! window 3 ──► Lines ──► text ┐
//! window 4 ──► Lines ──► text ┴─► in their order: link, write
//! ```
//!
//! Each window of time ([`crate::ahead`]) is made lines of by whichever thread is free; the thread that called writes them
//! in their order. Lines wait in blocks, of which there are so many and no more: who makes lines of a later window waits
//! for one that was written. The bytes are the same on any number of processors.

mod blocks;

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use blocks::{BLOCK, BLOCKS, Block, Pool};

use crate::ahead::{self, Taker, Unwanted, Worker};
use crate::{Error, Event, TraceSet};

/// Bytes that one thread alone gathers before it writes them.
const BUFFER: usize = 256 << 10;
/// Most threads that make lines: one alone writes them.
const MOST_THREADS: usize = 8;

/// Makes lines of events.
pub(crate) trait Lines: Send {
    /// Appends an event's line.
    fn line(&mut self, event: &Event<'_>, text: &mut Vec<u8>);

    /// Forgets the events so far: what was before the next one is not known.
    fn begin(&mut self) {}

    /// Gives the first event with a time since [`Self::begin`], once: its line has to be linked to the one before.
    fn first(&mut self) -> Option<First> {
        None
    }

    /// The last event with a time since [`Self::begin`].
    fn last(&self) -> Option<Moment> {
        None
    }

    /// Writes what belongs at [`First::place`], now that the event before is known.
    fn link(&mut self, _before: Option<Moment>, _first: &First, _text: &mut Vec<u8>) {}
}

/// When an event was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// In nanoseconds since the epoch.
    pub time: i64,
    /// As its clock counted.
    pub cycles: u64,
}

/// An event of which the one before is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct First {
    /// Where in the text stands what depends on the event before.
    pub place: Range<usize>,
    /// When it was.
    pub moment: Moment,
}

/// Writes a line for each event that is left; returns how many. `new` makes what makes lines, for each thread.
///
/// # Errors
///
/// If the output cannot be written.
pub(crate) fn print<L: Lines>(
    traces: &mut TraceSet,
    new: &dyn Fn() -> L,
    output: &mut dyn Write,
) -> Result<u64, Error> {
    let threads = if traces.is_new() { traces.threads().min(MOST_THREADS) } else { 1 };
    print_with(traces, new, threads, output)
}

/// [`print()`] with a number of threads.
pub(crate) fn print_with<L: Lines>(
    traces: &mut TraceSet,
    new: &dyn Fn() -> L,
    threads: usize,
    output: &mut dyn Write,
) -> Result<u64, Error> {
    let mut writer = Writer::new(new(), output, None);
    if threads < 2 {
        writer.read_on(traces)?;
        return writer.finish();
    }
    let maker = |_| Maker { lines: new(), blocks: writer.blocks.clone() };
    let makers = (0..threads).map(maker).collect();
    ahead::run(traces, makers, BLOCK * BLOCKS / 2, &mut writer)?;
    writer.finish()
}

/// Writes a line for each event that is left; `last` is the one before. Returns how many, and the last one.
///
/// # Errors
///
/// If the output cannot be written.
pub(crate) fn print_after<L: Lines>(
    traces: &mut TraceSet,
    lines: L,
    last: Option<Moment>,
    output: &mut dyn Write,
) -> Result<(u64, Option<Moment>), Error> {
    let mut writer = Writer::new(lines, output, last);
    writer.read_on(traces)?;
    let last = writer.last;
    Ok((writer.finish()?, last))
}

/// Makes lines of windows.
struct Maker<L> {
    lines: L,
    blocks: Arc<Pool>,
}

impl<L: Lines> Worker for Maker<L> {
    /// Lines, and the first one if it is among them.
    type Piece = (Block, Option<First>);
    /// When the last event was, and how many there are.
    type End = (Option<Moment>, u64);

    fn read(
        &mut self,
        part: &mut TraceSet,
        window: u64,
        give: &mut dyn FnMut(Self::Piece) -> Result<(), Unwanted>,
    ) -> Result<Self::End, Unwanted> {
        let lines = &mut self.lines;
        lines.begin();
        let (mut block, mut events) = (self.blocks.take(window), 0);
        while let Some(event) = part.next_source().and_then(|source| part.event(source)) {
            lines.line(&event, &mut block.text);
            events += 1;
            if block.text.len() >= BLOCK {
                give((block, lines.first()))?;
                block = self.blocks.take(window);
            }
        }
        give((block, lines.first()))?;
        Ok((lines.last(), events))
    }
}

/// Who writes windows in their order.
struct Writer<'o, L> {
    lines: L,
    output: &'o mut dyn Write,
    /// Where lines of others stand.
    blocks: Arc<Pool>,
    /// The last event that was written.
    last: Option<Moment>,
    events: u64,
}

impl<L: Lines> Taker<Maker<L>> for Writer<'_, L> {
    type Error = Error;

    fn turn(&mut self, window: u64) {
        self.blocks.turn(window);
    }

    fn piece(&mut self, (block, first): (Block, Option<First>)) -> Result<u64, Error> {
        self.write(&block.text, first)?;
        Ok(block.text.len() as u64)
    }

    fn end(&mut self, (last, events): (Option<Moment>, u64)) {
        (self.last, self.events) = (last.or(self.last), self.events + events);
    }

    /// Writes lines of all events that are left; returns their size.
    fn read_on(&mut self, traces: &mut TraceSet) -> Result<u64, Error> {
        self.lines.begin();
        let mut text = Vec::with_capacity(BUFFER + 4096);
        let mut size = 0;
        // By its source, an event needs not be moved.
        while let Some(event) = traces.next_source().and_then(|source| traces.event(source)) {
            self.lines.line(&event, &mut text);
            self.events += 1;
            if text.len() >= BUFFER {
                size += text.len() as u64;
                let first = self.lines.first();
                self.write(&text, first)?;
                text.clear();
            }
        }
        let first = self.lines.first();
        self.write(&text, first)?;
        self.last = self.lines.last().or(self.last);
        Ok(size + text.len() as u64)
    }

    fn stop(&mut self) {
        self.blocks.stop();
    }
}

impl<'o, L: Lines> Writer<'o, L> {
    /// Behind the last event that was written.
    fn new(lines: L, output: &'o mut dyn Write, last: Option<Moment>) -> Self {
        Self { lines, output, blocks: Arc::default(), last, events: 0 }
    }

    fn write(&mut self, text: &[u8], first: Option<First>) -> Result<(), Error> {
        let Some(first) = first else { return Ok(self.output.write_all(text)?) };
        let mut link = Vec::new();
        self.lines.link(self.last, &first, &mut link);
        self.output.write_all(text.get(..first.place.start).unwrap_or_default())?;
        self.output.write_all(&link)?;
        Ok(self.output.write_all(text.get(first.place.end..).unwrap_or_default())?)
    }

    fn finish(self) -> Result<u64, Error> {
        self.output.flush()?;
        Ok(self.events)
    }
}

#[cfg(test)]
mod tests;
