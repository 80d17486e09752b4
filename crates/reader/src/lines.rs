//! Converts events to lines of output on several threads.
//!
//! ```text
//! window 3 ──► Lines ──► text ┐
//! window 4 ──► Lines ──► text ┴─► in their order: link, write
//! ```
//!
//! Any free thread converts the next window of time ([`crate::parallel`]). The calling thread
//! writes the windows in order. Lines wait in blocks from a pool of fixed size: a thread that
//! converts a later window waits until a block was written. The output is the same with any number
//! of threads.

mod blocks;

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use blocks::{BLOCK_BYTES, Block, MAX_BLOCKS, Pool};

use crate::parallel::{self, Cancelled, OrderedSink, WindowReader};
use crate::{Error, Event, TraceSet};

/// Number of bytes that a single thread collects before it writes them.
const BUFFER: usize = 256 << 10;
/// Maximum number of threads that convert events: a single thread writes the lines.
const MAX_THREADS: usize = 8;

/// Converter of events to lines.
pub(crate) trait Lines: Send {
    /// Appends an event's line.
    fn line(&mut self, event: &Event<'_>, text: &mut Vec<u8>);

    /// Forgets the events so far: the predecessor of the next event is unknown.
    fn begin(&mut self) {}

    /// Returns the first event with a time since [`Self::begin`], once. Its line must be linked to
    /// its predecessor.
    fn first(&mut self) -> Option<First> {
        None
    }

    /// Returns the time of the last event with a time since [`Self::begin`].
    fn last(&self) -> Option<Moment> {
        None
    }

    /// Writes the text that belongs at [`First::place`], now that the preceding event is known.
    fn link(&mut self, _before: Option<Moment>, _first: &First, _text: &mut Vec<u8>) {}
}

/// Time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Nanoseconds since the epoch.
    pub time: i64,
    /// Cycles of its clock.
    pub cycles: u64,
}

/// Event whose predecessor is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct First {
    /// Range of the text that depends on the predecessor.
    pub place: Range<usize>,
    /// Time of the event.
    pub moment: Moment,
}

/// Writes a line for each remaining event; returns their number. `new` creates a converter for each
/// thread.
///
/// # Errors
///
/// Fails if the output cannot be written.
pub(crate) fn print<L: Lines>(
    traces: &mut TraceSet,
    new: &dyn Fn() -> L,
    output: &mut dyn Write,
) -> Result<u64, Error> {
    let threads = if traces.is_new() { traces.threads().min(MAX_THREADS) } else { 1 };
    print_with(traces, new, threads, output)
}

/// Works like [`print()`] with a number of threads.
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
    let reader = |_| LineReader { lines: new(), blocks: writer.blocks.clone() };
    let readers = (0..threads).map(reader).collect();
    parallel::run(traces, readers, BLOCK_BYTES * MAX_BLOCKS / 2, &mut writer)?;
    writer.finish()
}

/// Writes a line for each remaining event, after `last`. Returns their number and the time of the
/// last one.
///
/// # Errors
///
/// Fails if the output cannot be written.
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

/// Reader that converts windows to lines.
struct LineReader<L> {
    lines: L,
    blocks: Arc<Pool>,
}

impl<L: Lines> WindowReader for LineReader<L> {
    /// Block of lines, with the first event if it is among them.
    type Piece = (Block, Option<First>);
    /// Time of the last event, and the number of events.
    type End = (Option<Moment>, u64);

    fn read(
        &mut self,
        part: &mut TraceSet,
        window: u64,
        give: &mut dyn FnMut(Self::Piece) -> Result<(), Cancelled>,
    ) -> Result<Self::End, Cancelled> {
        let lines = &mut self.lines;
        lines.begin();
        let (mut block, mut events) = (self.blocks.take(window), 0);
        while let Some(event) = part.next_source().and_then(|source| part.event(source)) {
            lines.line(&event, &mut block.text);
            events += 1;
            if block.text.len() >= BLOCK_BYTES {
                give((block, lines.first()))?;
                block = self.blocks.take(window);
            }
        }
        give((block, lines.first()))?;
        Ok((lines.last(), events))
    }
}

/// Writer of windows in order.
struct Writer<'o, L> {
    lines: L,
    output: &'o mut dyn Write,
    /// Pool of the other threads' blocks.
    blocks: Arc<Pool>,
    /// Time of the last event written.
    last: Option<Moment>,
    events: u64,
}

impl<L: Lines> OrderedSink<LineReader<L>> for Writer<'_, L> {
    type Error = Error;

    fn begin_window(&mut self, window: u64) {
        self.blocks.begin_window(window);
    }

    fn piece(&mut self, (block, first): (Block, Option<First>)) -> Result<u64, Error> {
        self.write(&block.text, first)?;
        Ok(block.text.len() as u64)
    }

    fn end(&mut self, (last, events): (Option<Moment>, u64)) {
        (self.last, self.events) = (last.or(self.last), self.events + events);
    }

    /// Writes lines for all remaining events; returns their size in bytes.
    fn read_on(&mut self, traces: &mut TraceSet) -> Result<u64, Error> {
        self.lines.begin();
        let mut text = Vec::with_capacity(BUFFER + 4096);
        let mut size = 0;
        // Looking the event up by its source avoids moving it.
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
    /// Starts after the last event that was written.
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
