//! Events to lines, on as many processors as there are.
//!
//! ```text
//! Windows ──► window 3 ──► Lines ──► text ┐
//!         ──► window 4 ──► Lines ──► text ┴─► in their order: link, write
//! ```
//!
//! Each window of time ([`crate::merge::windows`]) is made lines of by whichever thread is free; the thread that called
//! writes them in their order. Lines wait in blocks, of which there are so many and no more: who makes lines of a later
//! window waits for one that was written. Where the beginning of a window was guessed wrong, its lines are thrown away, and the
//! writer reads on from the window before it: the bytes are the same on any number of processors.

mod blocks;

use std::collections::VecDeque;
use std::io::Write;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use blocks::{BLOCK, BLOCKS, Block, Pool};

use crate::merge::windows::{Joint, Window, Windows};
use crate::{Error, Event, TraceSet};

/// Bytes that one thread alone gathers before it writes them.
const BUFFER: usize = 256 << 10;
/// Most threads that make lines: one alone writes them.
const MOST_THREADS: usize = 8;
/// How many windows are taken beyond one for each thread, so that these need not wait for the writer.
const AHEAD: usize = 2;
/// Bytes of a trace in the first window: the first lines should come soon.
const FIRST_WINDOW: u64 = WINDOW.0;
/// Least and most bytes of a trace in a window; tests have small traces.
const WINDOW: (u64, u64) = if cfg!(test) { (4 << 10, 16 << 10) } else { (64 << 10, 16 << 20) };
/// After so many wrong guesses one after the other no more are made.
const MOST_WRONG: u32 = 4;

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
    if threads < 2 {
        let mut writer = Writer { lines: new(), output, last: None, events: 0, wrong: 0 };
        writer.read_on(traces)?;
        return writer.finish();
    }
    let shared = Shared::new(traces, threads);
    let lines: Vec<L> = (0..threads).map(|_| new()).collect();
    let mut found = traces.unread();
    let result = thread::scope(|scope| {
        for mut lines in lines {
            let shared = &shared;
            scope.spawn(move || shared.work(&mut lines));
        }
        let mut writer = Writer { lines: new(), output, last: None, events: 0, wrong: 0 };
        let result = writer.run(&shared, &mut found);
        shared.stop();
        result.and_then(|()| writer.finish())
    });
    drop(shared);
    traces.leave();
    traces.take_findings(&mut found);
    result
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
    let mut writer = Writer { lines, output, last, events: 0, wrong: 0 };
    writer.read_on(traces)?;
    let last = writer.last;
    Ok((writer.finish()?, last))
}

/// What a thread says of a window.
enum Message {
    /// Where it begins.
    Begin(Joint),
    /// Lines, and the first one if it is among them.
    Text(Block, Option<First>),
    /// That it was read to its end, or to where the writer had better read on.
    End(Box<TraceSet>, Option<Moment>, u64),
}

/// What all threads share.
struct Shared<'t> {
    traces: &'t TraceSet,
    threads: usize,
    queue: Mutex<Queue>,
    /// Told whenever the queue changes.
    changed: Condvar,
    blocks: Arc<Pool>,
}

/// Windows that were taken.
struct Queue {
    windows: Windows,
    /// Bytes of a trace that windows should have.
    size: u64,
    /// In their order, for the writer.
    waiting: VecDeque<(Arc<Window>, Receiver<Message>)>,
    /// How many were taken and not yet written.
    taken: usize,
    is_over: bool,
}

impl<'t> Shared<'t> {
    fn new(traces: &'t TraceSet, threads: usize) -> Self {
        let queue = Queue {
            windows: Windows::new(traces),
            size: FIRST_WINDOW,
            waiting: VecDeque::new(),
            taken: 0,
            is_over: false,
        };
        Self { traces, threads, queue: Mutex::new(queue), changed: Condvar::new(), blocks: Arc::default() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'q>(&self, queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of lines that a window should have.
    fn lines(&self) -> usize {
        BLOCK * BLOCKS / 2 / (self.threads + AHEAD)
    }

    /// Makes lines of windows until there are none any more.
    fn work<L: Lines>(&self, lines: &mut L) {
        let mut room = Vec::new();
        while let Some((window, sender)) = self.take() {
            let mut part = self.traces.take_up(&window, self.threads + AHEAD, &mut room);
            let Ok((last, events)) = self.read(&mut part, lines, (window.number, &sender)) else { continue };
            room = part.take_room();
            // It fails if the writer doesn't want the window.
            let _ = sender.send(Message::End(Box::new(part), last, events));
        }
    }

    /// Takes the next window when there is room for it.
    fn take(&self) -> Option<(Arc<Window>, Sender<Message>)> {
        let mut queue = self.queue();
        while queue.taken >= self.threads + AHEAD && !queue.is_over {
            queue = self.wait(queue);
        }
        if queue.is_over {
            return None;
        }
        let size = queue.size;
        let window = queue.windows.next(size);
        self.changed.notify_all();
        let Some(window) = window else {
            queue.is_over = true;
            return None;
        };
        let window = Arc::new(window);
        let (sender, receiver) = channel();
        queue.waiting.push_back((window.clone(), receiver));
        queue.taken += 1;
        Some((window, sender))
    }

    /// Makes lines of a window. Returns when its last event was, and how many there are; an error if the writer doesn't
    /// want the window.
    fn read<L: Lines>(
        &self,
        part: &mut TraceSet,
        lines: &mut L,
        (window, sender): (u64, &Sender<Message>),
    ) -> Result<(Option<Moment>, u64), SendError<Message>> {
        sender.send(Message::Begin(part.joint()))?;
        lines.begin();
        let (mut block, mut events) = (self.blocks.take(window), 0);
        while let Some(event) = part.next_source().and_then(|source| part.event(source)) {
            lines.line(&event, &mut block.text);
            events += 1;
            if block.text.len() >= BLOCK {
                sender.send(Message::Text(block, lines.first()))?;
                block = self.blocks.take(window);
            }
        }
        sender.send(Message::Text(block, lines.first()))?;
        Ok((lines.last(), events))
    }

    /// The next window to be written.
    fn next(&self) -> Option<(Arc<Window>, Receiver<Message>)> {
        let mut queue = self.queue();
        loop {
            if let Some(next) = queue.waiting.pop_front() {
                return Some(next);
            }
            if queue.is_over {
                return None;
            }
            queue = self.wait(queue);
        }
    }

    /// A window was written: so many bytes of a trace became so many of text.
    fn written(&self, bytes: u64, text: u64) {
        let mut queue = self.queue();
        queue.taken = queue.taken.saturating_sub(1);
        if bytes > 0 {
            let wanted = u128::from(bytes) * self.lines() as u128 / u128::from(text.max(1));
            queue.size = u64::try_from(wanted).unwrap_or(u64::MAX).clamp(WINDOW.0, WINDOW.1);
        }
        self.changed.notify_all();
    }

    /// No more windows are taken.
    fn stop(&self) {
        let mut queue = self.queue();
        queue.is_over = true;
        queue.waiting.clear();
        self.changed.notify_all();
        self.blocks.stop();
    }

    /// No more windows are taken but those that were.
    fn stop_guessing(&self) {
        self.queue().is_over = true;
        self.changed.notify_all();
    }
}

/// Who writes windows in their order.
struct Writer<'o, L> {
    lines: L,
    output: &'o mut dyn Write,
    /// The last event that was written.
    last: Option<Moment>,
    events: u64,
    /// Wrong guesses one after the other.
    wrong: u32,
}

impl<L: Lines> Writer<'_, L> {
    fn run(&mut self, shared: &Shared<'_>, found: &mut TraceSet) -> Result<(), Error> {
        let mut before: Option<Box<TraceSet>> = None;
        while let Some((window, messages)) = shared.next() {
            shared.blocks.turn(window.number);
            let (part, text) = match self.receive(before.as_deref(), &messages, shared)? {
                Some(written) => {
                    self.wrong = 0;
                    written
                }
                None => {
                    drop(messages);
                    self.wrong += 1;
                    if self.wrong >= MOST_WRONG {
                        shared.stop_guessing();
                    }
                    let mut part = before.take().unwrap_or_else(|| Box::new(shared.traces.unread()));
                    part.extend(Some(&window));
                    let text = self.read_on(&mut part)?;
                    (part, text)
                }
            };
            let part = before.insert(part);
            found.take_findings(part);
            shared.written(window.bytes, text);
        }
        let mut rest = before.unwrap_or_else(|| Box::new(shared.traces.unread()));
        rest.extend(None);
        self.read_on(&mut rest)?;
        found.take_findings(&mut rest);
        Ok(())
    }

    /// Writes what a thread says of a window, if it begins where the one before ended. Returns it and the size of its
    /// lines.
    fn receive(
        &mut self,
        before: Option<&TraceSet>,
        messages: &Receiver<Message>,
        shared: &Shared<'_>,
    ) -> Result<Option<(Box<TraceSet>, u64)>, Error> {
        let Ok(Message::Begin(begin)) = messages.recv() else { return Ok(None) };
        if before.is_some_and(|before| before.is_much_damaged() || before.joint() != begin) {
            return Ok(None);
        }
        let mut size = 0;
        loop {
            match messages.recv() {
                Ok(Message::Text(block, first)) => {
                    self.write(&block.text, first)?;
                    size += block.text.len() as u64;
                }
                Ok(Message::End(mut part, last, events)) => {
                    (self.last, self.events) = (last.or(self.last), self.events + events);
                    before.into_iter().for_each(|before| part.follow(before));
                    part.resume();
                    size += self.read_on(&mut part)?;
                    return Ok(Some((part, size)));
                }
                // Its thread has panicked, and so will this one.
                Ok(Message::Begin(_)) | Err(_) => return Ok(Some((Box::new(shared.traces.unread()), size))),
            }
        }
    }

    fn write(&mut self, text: &[u8], first: Option<First>) -> Result<(), Error> {
        let Some(first) = first else { return Ok(self.output.write_all(text)?) };
        let mut link = Vec::new();
        self.lines.link(self.last, &first, &mut link);
        self.output.write_all(text.get(..first.place.start).unwrap_or_default())?;
        self.output.write_all(&link)?;
        Ok(self.output.write_all(text.get(first.place.end..).unwrap_or_default())?)
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

    fn finish(self) -> Result<u64, Error> {
        self.output.flush()?;
        Ok(self.events)
    }
}

#[cfg(test)]
mod tests;
