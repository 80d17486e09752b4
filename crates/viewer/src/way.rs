//! Who looks at something comes first: while a question is answered, and a moment longer, since a browser draws the answer,
//! whoever makes the index waits.
//!
//! Priorities of threads don't do that: a browser that was started by somebody else is in another group of the scheduler,
//! and all that a group of ours does counts against it as much as its most urgent thread.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long after an answer, and after the page itself was sent, in milliseconds.
const DRAWING: u64 = 30;
const OPENING: u64 = 600;
/// Longest pause in milliseconds, and how often is looked whether it is over.
const LONGEST: u64 = 600;
const LOOK: Duration = Duration::from_millis(1);

/// Lets questions pass.
#[derive(Debug)]
pub struct Way {
    begun: Instant,
    /// How many are being answered.
    questions: AtomicUsize,
    /// When what was answered last is drawn, in milliseconds from the begin; 0 for long ago.
    drawn: AtomicU64,
    /// When the page that is being opened has asked for what it shows; 0 for long ago.
    opened: AtomicU64,
    /// When the last pause ended.
    resumed: AtomicU64,
    /// Whether a page was shown what was seen so far.
    was_shown: AtomicBool,
}

impl Default for Way {
    fn default() -> Self {
        let [drawn, opened, resumed] = [0; 3].map(AtomicU64::new);
        let (questions, was_shown) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { begun: Instant::now(), questions, drawn, opened, resumed, was_shown }
    }
}

/// A question that is being answered, until this is dropped.
pub struct Turn<'w>(&'w Way);

impl Way {
    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// The page is being opened: the browser is busy with it, and then it asks for what it shows.
    pub fn open(&self) {
        self.opened.store(self.now() + OPENING, Ordering::Relaxed);
    }

    /// What the page shows was answered.
    pub fn is_there(&self) {
        self.opened.store(0, Ordering::Relaxed);
        self.was_shown.store(true, Ordering::Relaxed);
    }

    /// Waits until a page shows something and draws it, but not beyond a moment: till then the processors are the browser's.
    pub fn wait_for_page(&self, until: Instant) {
        let is_shown = || self.was_shown.load(Ordering::Relaxed) && self.is_answered();
        while !is_shown() && Instant::now() < until {
            thread::sleep(LOOK);
        }
    }

    /// A question is being answered.
    pub fn turn(&self) -> Turn<'_> {
        self.questions.fetch_add(1, Ordering::Relaxed);
        Turn(self)
    }

    /// Waits while somebody else comes first, but not longer than was worked before: whoever asks all the time makes it
    /// take twice as long, not for ever.
    pub fn give(&self) {
        self.wait_while(&|| !self.is_answered() || self.is_ahead(&self.opened));
    }

    /// The same for those who read what a page asks for that is being opened; nobody waits longer than until something is
    /// so.
    pub fn give_unless(&self, is_so: &dyn Fn() -> bool) {
        self.wait_while(&|| !self.is_answered() && !is_so());
    }

    fn wait_while(&self, is_so: &dyn Fn() -> bool) {
        if !is_so() {
            return;
        }
        let asked = self.now();
        let longest = asked.saturating_sub(self.resumed.load(Ordering::Relaxed)).min(LONGEST);
        while is_so() && self.now() - asked < longest {
            thread::sleep(LOOK);
        }
        self.resumed.fetch_max(self.now(), Ordering::Relaxed);
    }

    /// Whether nobody waits for an answer or draws one.
    fn is_answered(&self) -> bool {
        self.questions.load(Ordering::Relaxed) == 0 && !self.is_ahead(&self.drawn)
    }

    /// Whether a time is still to come. Of those that are not, nobody need look at a clock again.
    fn is_ahead(&self, time: &AtomicU64) -> bool {
        let known = time.load(Ordering::Relaxed);
        if known == 0 {
            return false;
        }
        let is_ahead = known > self.now();
        if !is_ahead {
            let _ = time.compare_exchange(known, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        is_ahead
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.drawn.fetch_max(self.0.now() + DRAWING, Ordering::Relaxed);
        self.0.questions.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn whoever_works_waits_for_an_answer() {
        let way = Way::default();
        let is_answered = AtomicBool::new(false);
        // Without work before there would be no pause.
        thread::sleep(Duration::from_millis(20));
        thread::scope(|scope| {
            let turn = way.turn();
            let begun = way.now();
            let worker = scope.spawn(|| {
                way.give();
                (is_answered.load(Ordering::SeqCst), way.now())
            });
            thread::sleep(Duration::from_millis(5));
            is_answered.store(true, Ordering::SeqCst);
            drop(turn);
            let (was_answered, now) = worker.join().unwrap();
            // Or it has waited for as long as had been worked before.
            assert!(was_answered || now - begun >= 20, "it went on after {} ms", now - begun);
        });
    }

    #[test]
    fn whoever_asks_all_the_time_does_not_stop_the_work() {
        let way = Way::default();
        let _turn = way.turn();
        for _ in 0..3 {
            thread::sleep(2 * LOOK);
            // It comes back, although the question is not answered.
            way.give();
        }
        assert!(!way.is_answered());
        assert!(way.resumed.load(Ordering::Relaxed) > 0, "there was a pause");
    }

    #[test]
    fn nobody_waits_when_nobody_asks() {
        let way = Way::default();
        assert!(way.is_answered());
        drop(way.turn());
        while !way.is_answered() {
            thread::sleep(LOOK);
        }
        assert_eq!(way.drawn.load(Ordering::Relaxed), 0);
        way.give();
        assert_eq!(way.resumed.load(Ordering::Relaxed), 0, "there was no pause");
    }

    #[test]
    fn what_can_wait_begins_when_the_page_shows_something() {
        let way = Way::default();
        let far = Instant::now() + Duration::from_secs(3600);
        thread::scope(|scope| {
            let waits = scope.spawn(|| way.wait_for_page(far));
            let turn = way.turn();
            way.is_there();
            drop(turn);
            // An hour later else.
            waits.join().unwrap();
        });
        assert!(way.is_answered());
        // Nobody waits for a page for ever.
        Way::default().wait_for_page(Instant::now());
    }

    #[test]
    fn a_page_that_is_being_opened_has_the_processor_but_for_what_it_shows() {
        let way = Way::default();
        way.open();
        assert!(way.is_ahead(&way.opened) || way.now() >= OPENING);
        way.give_unless(&|| false);
        assert_eq!(way.resumed.load(Ordering::Relaxed), 0, "what it shows goes on being read");
        way.is_there();
        assert!(!way.is_ahead(&way.opened));
    }
}
