//! Reads windows of a trace on several threads and delivers the results in order.
//!
//! ```text
//! Windows ──► window 3 ──► WindowReader ──► pieces ┐
//!         ──► window 4 ──► WindowReader ──► pieces ┴─► in their order: OrderedSink
//! ```
//!
//! Any free thread reads the next window of time ([`crate::merge::windows`]); the calling thread
//! takes the results in window order. The number of windows read ahead is limited.
//!
//! The beginning of a window is a guess. If it was wrong, the window's results are discarded, and
//! the sink continues from the preceding window itself. So its results are the same with any number
//! of threads.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::TraceSet;
use crate::merge::windows::{SplicePoint, Window, Windows};

/// Number of windows read ahead beyond one for each thread, so that threads need not wait for the
/// sink.
const EXTRA_WINDOWS: usize = 2;
/// Size of the first window in bytes of the trace. It is small, so that the first results come
/// soon.
const FIRST_WINDOW: u64 = WINDOW.0;
/// Minimum and maximum size of a window in bytes of the trace. Tests use small traces.
const WINDOW: (u64, u64) = if cfg!(test) { (4 << 10, 16 << 10) } else { (64 << 10, 16 << 20) };
/// Number of consecutive wrong guesses after which no more are made.
const MAX_WRONG_GUESSES: u32 = 4;

/// Error that stops reading a window: its results are not wanted.
pub(crate) struct Cancelled;

/// Reader of windows. A window is read from its beginning, independent of earlier windows.
pub(crate) trait WindowReader: Send {
    /// Partial result, delivered while a window is read.
    type Piece: Send;
    /// Result at the end of a window.
    type End: Send;

    /// Reads all of the window with this number.
    fn read(
        &mut self,
        part: &mut TraceSet,
        window: u64,
        give: &mut dyn FnMut(Self::Piece) -> Result<(), Cancelled>,
    ) -> Result<Self::End, Cancelled>;
}

/// Receiver of the results, window after window.
pub(crate) trait OrderedSink<W: WindowReader> {
    /// Error that ends reading.
    type Error;

    /// Begins a window.
    fn begin_window(&mut self, _window: u64) {}

    /// Takes a partial result; returns its size in bytes.
    ///
    /// # Errors
    ///
    /// An error ends reading.
    fn piece(&mut self, piece: W::Piece) -> Result<u64, Self::Error>;

    /// Takes the result at the end of a window.
    fn end(&mut self, end: W::End);

    /// Reads the rest of these traces itself, behind the results taken so far; returns the size in
    /// bytes of its results.
    ///
    /// # Errors
    ///
    /// An error ends reading.
    fn read_on(&mut self, traces: &mut TraceSet) -> Result<u64, Self::Error>;

    /// Ends all waits: readers that wait for memory continue.
    fn stop(&mut self) {}
}

/// Reads traces of which nothing was read, with these readers in parallel. The results of all
/// windows read ahead take about `room` bytes.
///
/// # Errors
///
/// Returns the sink's error.
pub(crate) fn run<W: WindowReader, T: OrderedSink<W>>(
    traces: &mut TraceSet,
    workers: Vec<W>,
    room: usize,
    sink: &mut T,
) -> Result<(), T::Error> {
    let shared = Shared::new(traces, workers.len(), room);
    let mut found = traces.unread();
    let result = thread::scope(|scope| {
        for mut worker in workers {
            let shared = &shared;
            scope.spawn(move || shared.work(&mut worker));
        }
        let result = take_all(&shared, sink, &mut found);
        shared.stop();
        sink.stop();
        result
    });
    drop(shared);
    traces.leave();
    traces.take_findings(&mut found);
    result
}

/// Message about a window from the thread that reads it.
enum Message<W: WindowReader> {
    /// Position at which it begins.
    Begin(SplicePoint),
    /// Partial result.
    Piece(W::Piece),
    /// End of the window, or a position from which the sink must continue itself.
    End(Box<TraceSet>, W::End),
}

/// Window that was taken, with its messages.
type Taken<W> = (Arc<Window>, Receiver<Message<W>>);

/// State shared by all threads.
struct Shared<'t, W: WindowReader> {
    traces: &'t TraceSet,
    /// Maximum number of windows that are taken.
    max_windows: usize,
    /// Target size in bytes of a window's results.
    room: usize,
    queue: Mutex<Queue<W>>,
    /// Notified whenever the queue changes.
    changed: Condvar,
}

/// Queue of windows that were taken.
struct Queue<W: WindowReader> {
    windows: Windows,
    /// Target size of a window in bytes of the trace.
    size: u64,
    /// Windows in order, for the sink.
    waiting: VecDeque<Taken<W>>,
    /// Number of windows taken by threads and not yet by the sink.
    taken: usize,
    is_over: bool,
}

impl<'t, W: WindowReader> Shared<'t, W> {
    fn new(traces: &'t TraceSet, threads: usize, room: usize) -> Self {
        let queue = Queue {
            windows: Windows::new(traces),
            size: FIRST_WINDOW,
            waiting: VecDeque::new(),
            taken: 0,
            is_over: false,
        };
        let max_windows = threads + EXTRA_WINDOWS;
        Self {
            traces,
            max_windows,
            room: room / max_windows,
            queue: Mutex::new(queue),
            changed: Condvar::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<W>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'q>(&self, queue: MutexGuard<'q, Queue<W>>) -> MutexGuard<'q, Queue<W>> {
        self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads windows until there are no more.
    fn work(&self, worker: &mut W) {
        let mut room = Vec::new();
        while let Some((window, sender)) = self.take() {
            let mut part = self.traces.take_up(&window, self.max_windows, &mut room);
            let give = |message: Message<W>| sender.send(message).map_err(|_| Cancelled);
            let read = give(Message::Begin(part.splice_point())).and_then(|()| {
                worker.read(&mut part, window.number, &mut |piece| give(Message::Piece(piece)))
            });
            let Ok(end) = read else { continue };
            room = part.take_room();
            // Fails if the sink rejected the window.
            let _ = sender.send(Message::End(Box::new(part), end));
        }
    }

    /// Takes the next window as soon as there is room for it.
    fn take(&self) -> Option<(Arc<Window>, Sender<Message<W>>)> {
        let mut queue = self.queue();
        while queue.taken >= self.max_windows && !queue.is_over {
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

    /// Returns the next window for the sink.
    fn next(&self) -> Option<Taken<W>> {
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

    /// Finishes a window: `bytes` of the trace became `found` bytes of results. Adapts the window
    /// size.
    fn done(&self, bytes: u64, found: u64) {
        let mut queue = self.queue();
        queue.taken = queue.taken.saturating_sub(1);
        if bytes > 0 {
            let wanted = u128::from(bytes) * self.room as u128 / u128::from(found.max(1));
            queue.size = u64::try_from(wanted).unwrap_or(u64::MAX).clamp(WINDOW.0, WINDOW.1);
        }
        self.changed.notify_all();
    }

    /// Stops taking windows.
    fn stop(&self) {
        let mut queue = self.queue();
        queue.is_over = true;
        queue.waiting.clear();
        self.changed.notify_all();
    }

    /// Takes no more windows than were taken so far.
    fn disable_speculation(&self) {
        self.queue().is_over = true;
        self.changed.notify_all();
    }
}

fn take_all<W: WindowReader, T: OrderedSink<W>>(
    shared: &Shared<'_, W>,
    sink: &mut T,
    found: &mut TraceSet,
) -> Result<(), T::Error> {
    let mut before: Option<Box<TraceSet>> = None;
    // Number of consecutive wrong guesses.
    let mut wrong = 0;
    while let Some((window, messages)) = shared.next() {
        sink.begin_window(window.number);
        let (part, size) = match receive(shared.traces, before.as_deref(), &messages, sink)? {
            Some(taken) => {
                wrong = 0;
                taken
            }
            None => {
                drop(messages);
                wrong += 1;
                if wrong >= MAX_WRONG_GUESSES {
                    shared.disable_speculation();
                }
                let mut part = before.take().unwrap_or_else(|| Box::new(shared.traces.unread()));
                part.extend(Some(&window));
                let size = sink.read_on(&mut part)?;
                (part, size)
            }
        };
        let part = before.insert(part);
        found.take_findings(part);
        shared.done(window.bytes, size);
    }
    let mut rest = before.unwrap_or_else(|| Box::new(shared.traces.unread()));
    rest.extend(None);
    sink.read_on(&mut rest)?;
    found.take_findings(&mut rest);
    Ok(())
}

/// Receives the results of a window, if it begins where its predecessor ended. Returns the window's
/// reader and the size of the results.
fn receive<W: WindowReader, T: OrderedSink<W>>(
    traces: &TraceSet,
    before: Option<&TraceSet>,
    messages: &Receiver<Message<W>>,
    sink: &mut T,
) -> Result<Option<(Box<TraceSet>, u64)>, T::Error> {
    let Ok(Message::Begin(begin)) = messages.recv() else { return Ok(None) };
    if before.is_some_and(|before| before.is_too_corrupt() || before.splice_point() != begin) {
        return Ok(None);
    }
    let mut size = 0;
    loop {
        match messages.recv() {
            Ok(Message::Piece(piece)) => size += sink.piece(piece)?,
            Ok(Message::End(mut part, end)) => {
                sink.end(end);
                before.into_iter().for_each(|before| part.follow(before));
                part.resume();
                size += sink.read_on(&mut part)?;
                return Ok(Some((part, size)));
            }
            // The reader's thread has panicked, and so will this one.
            Ok(Message::Begin(_)) | Err(_) => return Ok(Some((Box::new(traces.unread()), size))),
        }
    }
}
