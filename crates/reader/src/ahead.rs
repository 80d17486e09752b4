//! Windows of a trace, read by as many threads as there are processors, and what they found, in their order.
//!
//! ```text
//! Windows ──► window 3 ──► Worker ──► pieces ┐
//!         ──► window 4 ──► Worker ──► pieces ┴─► in their order: Taker
//! ```
//!
//! Each window of time ([`crate::merge::windows`]) is read by whichever thread is free; the thread that called takes what
//! was found in their order. So many windows are ahead and no more. Where the beginning of a window was guessed wrong,
//! what was found in it is thrown away, and the taker reads on from the window before it: it gets the same on any number
//! of processors.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::TraceSet;
use crate::merge::windows::{Joint, Window, Windows};

/// How many windows are taken beyond one for each thread, so that these need not wait for the taker.
const AHEAD: usize = 2;
/// Bytes of a trace in the first window: the first pieces should come soon.
const FIRST_WINDOW: u64 = WINDOW.0;
/// Least and most bytes of a trace in a window; tests have small traces.
const WINDOW: (u64, u64) = if cfg!(test) { (4 << 10, 16 << 10) } else { (64 << 10, 16 << 20) };
/// After so many wrong guesses one after the other no more are made.
const MOST_WRONG: u32 = 4;

/// Nobody wants what is found in a window.
pub(crate) struct Unwanted;

/// Reads windows, each from its beginning, whatever was before.
pub(crate) trait Worker: Send {
    /// What is handed over while a window is read.
    type Piece: Send;
    /// What is told when it was read.
    type End: Send;

    /// Reads all of a window of this number.
    fn read(
        &mut self,
        part: &mut TraceSet,
        window: u64,
        give: &mut dyn FnMut(Self::Piece) -> Result<(), Unwanted>,
    ) -> Result<Self::End, Unwanted>;
}

/// Takes what was found, window after window.
pub(crate) trait Taker<W: Worker> {
    /// What ends everything.
    type Error;

    /// It is this window's turn.
    fn turn(&mut self, _window: u64) {}

    /// Takes a piece; returns its size in bytes.
    ///
    /// # Errors
    ///
    /// Ends everything.
    fn piece(&mut self, piece: W::Piece) -> Result<u64, Self::Error>;

    /// A window was read.
    fn end(&mut self, end: W::End);

    /// Reads what is left of these traces itself, behind what it has taken; returns the size in bytes of what it found.
    ///
    /// # Errors
    ///
    /// Ends everything.
    fn read_on(&mut self, traces: &mut TraceSet) -> Result<u64, Self::Error>;

    /// Nothing more is wanted: workers that wait for room go on.
    fn stop(&mut self) {}
}

/// Reads traces of which nothing was read, with these workers at a time. What is found in all windows that are ahead
/// is to take about so many bytes.
///
/// # Errors
///
/// The taker's.
pub(crate) fn run<W: Worker, T: Taker<W>>(
    traces: &mut TraceSet,
    workers: Vec<W>,
    room: usize,
    taker: &mut T,
) -> Result<(), T::Error> {
    let shared = Shared::new(traces, workers.len(), room);
    let mut found = traces.unread();
    let result = thread::scope(|scope| {
        for mut worker in workers {
            let shared = &shared;
            scope.spawn(move || shared.work(&mut worker));
        }
        let result = take_all(&shared, taker, &mut found);
        shared.stop();
        taker.stop();
        result
    });
    drop(shared);
    traces.leave();
    traces.take_findings(&mut found);
    result
}

/// What a thread says of a window.
enum Message<W: Worker> {
    /// Where it begins.
    Begin(Joint),
    /// Something that was found.
    Piece(W::Piece),
    /// That it was read to its end, or to where the taker had better read on.
    End(Box<TraceSet>, W::End),
}

/// A window that was taken, and what is said of it.
type Taken<W> = (Arc<Window>, Receiver<Message<W>>);

/// What all threads share.
struct Shared<'t, W: Worker> {
    traces: &'t TraceSet,
    /// How many windows are taken at most.
    most: usize,
    /// Bytes that what is found in a window should take.
    room: usize,
    queue: Mutex<Queue<W>>,
    /// Told whenever the queue changes.
    changed: Condvar,
}

/// Windows that were taken.
struct Queue<W: Worker> {
    windows: Windows,
    /// Bytes of a trace that windows should have.
    size: u64,
    /// In their order, for the taker.
    waiting: VecDeque<Taken<W>>,
    /// How many were taken by threads and not yet by the taker.
    taken: usize,
    is_over: bool,
}

impl<'t, W: Worker> Shared<'t, W> {
    fn new(traces: &'t TraceSet, threads: usize, room: usize) -> Self {
        let queue = Queue {
            windows: Windows::new(traces),
            size: FIRST_WINDOW,
            waiting: VecDeque::new(),
            taken: 0,
            is_over: false,
        };
        let most = threads + AHEAD;
        Self { traces, most, room: room / most, queue: Mutex::new(queue), changed: Condvar::new() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<W>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'q>(&self, queue: MutexGuard<'q, Queue<W>>) -> MutexGuard<'q, Queue<W>> {
        self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads windows until there are none any more.
    fn work(&self, worker: &mut W) {
        let mut room = Vec::new();
        while let Some((window, sender)) = self.take() {
            let mut part = self.traces.take_up(&window, self.most, &mut room);
            let give = |message: Message<W>| sender.send(message).map_err(|_| Unwanted);
            let read = give(Message::Begin(part.joint())).and_then(|()| {
                worker.read(&mut part, window.number, &mut |piece| give(Message::Piece(piece)))
            });
            let Ok(end) = read else { continue };
            room = part.take_room();
            // It fails if the taker doesn't want the window.
            let _ = sender.send(Message::End(Box::new(part), end));
        }
    }

    /// Takes the next window when there is room for it.
    fn take(&self) -> Option<(Arc<Window>, Sender<Message<W>>)> {
        let mut queue = self.queue();
        while queue.taken >= self.most && !queue.is_over {
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

    /// The window whose turn it is.
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

    /// A window is done with: so many bytes of a trace became so many of what was found.
    fn done(&self, bytes: u64, found: u64) {
        let mut queue = self.queue();
        queue.taken = queue.taken.saturating_sub(1);
        if bytes > 0 {
            let wanted = u128::from(bytes) * self.room as u128 / u128::from(found.max(1));
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
    }

    /// No more windows are taken but those that were.
    fn stop_guessing(&self) {
        self.queue().is_over = true;
        self.changed.notify_all();
    }
}

fn take_all<W: Worker, T: Taker<W>>(
    shared: &Shared<'_, W>,
    taker: &mut T,
    found: &mut TraceSet,
) -> Result<(), T::Error> {
    let mut before: Option<Box<TraceSet>> = None;
    // Wrong guesses one after the other.
    let mut wrong = 0;
    while let Some((window, messages)) = shared.next() {
        taker.turn(window.number);
        let (part, size) = match receive(shared.traces, before.as_deref(), &messages, taker)? {
            Some(taken) => {
                wrong = 0;
                taken
            }
            None => {
                drop(messages);
                wrong += 1;
                if wrong >= MOST_WRONG {
                    shared.stop_guessing();
                }
                let mut part = before.take().unwrap_or_else(|| Box::new(shared.traces.unread()));
                part.extend(Some(&window));
                let size = taker.read_on(&mut part)?;
                (part, size)
            }
        };
        let part = before.insert(part);
        found.take_findings(part);
        shared.done(window.bytes, size);
    }
    let mut rest = before.unwrap_or_else(|| Box::new(shared.traces.unread()));
    rest.extend(None);
    taker.read_on(&mut rest)?;
    found.take_findings(&mut rest);
    Ok(())
}

/// Takes what a thread says of a window, if it begins where the one before ended. Returns it and the size of what was
/// found.
fn receive<W: Worker, T: Taker<W>>(
    traces: &TraceSet,
    before: Option<&TraceSet>,
    messages: &Receiver<Message<W>>,
    taker: &mut T,
) -> Result<Option<(Box<TraceSet>, u64)>, T::Error> {
    let Ok(Message::Begin(begin)) = messages.recv() else { return Ok(None) };
    if before.is_some_and(|before| before.is_much_damaged() || before.joint() != begin) {
        return Ok(None);
    }
    let mut size = 0;
    loop {
        match messages.recv() {
            Ok(Message::Piece(piece)) => size += taker.piece(piece)?,
            Ok(Message::End(mut part, end)) => {
                taker.end(end);
                before.into_iter().for_each(|before| part.follow(before));
                part.resume();
                size += taker.read_on(&mut part)?;
                return Ok(Some((part, size)));
            }
            // Its thread has panicked, and so will this one.
            Ok(Message::Begin(_)) | Err(_) => return Ok(Some((Box::new(traces.unread()), size))),
        }
    }
}
