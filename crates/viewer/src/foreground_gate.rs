//! Who looks at something comes first: while a question is answered, and a moment longer, since a browser draws the answer,
//! whoever makes the index waits.
//!
//! Priorities of threads don't do that: a browser that was started by somebody else is in another group of the scheduler,
//! and all that a group of ours does counts against it as much as its most urgent thread.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long after an answer, and after the page itself was sent, in milliseconds.
const RENDER_GRACE_MS: u64 = 30;
const PAGE_LOAD_GRACE_MS: u64 = 600;
/// Longest pause in milliseconds, and how often is looked whether it is over.
const MAX_PAUSE_MS: u64 = 600;
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Lets questions pass.
#[derive(Debug)]
pub struct ForegroundGate {
    begun: Instant,
    /// How many are being answered.
    requests: AtomicUsize,
    /// When what was answered last is drawn, in milliseconds from the begin; 0 for long ago.
    render_until: AtomicU64,
    /// When the page that is being opened has asked for what it shows; 0 for long ago.
    page_load_until: AtomicU64,
    /// When the last pause ended.
    resumed_at: AtomicU64,
    /// Whether a page was shown what was seen so far.
    was_shown: AtomicBool,
}

impl Default for ForegroundGate {
    fn default() -> Self {
        let [render_until, page_load_until, resumed_at] = [0; 3].map(AtomicU64::new);
        let (requests, was_shown) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { begun: Instant::now(), requests, render_until, page_load_until, resumed_at, was_shown }
    }
}

/// A question that is being answered, until this is dropped.
pub struct RequestGuard<'w>(&'w ForegroundGate);

impl ForegroundGate {
    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// The page is being opened: the browser is busy with it, and then it asks for what it shows.
    pub fn begin_page_load(&self) {
        self.page_load_until.store(self.now() + PAGE_LOAD_GRACE_MS, Ordering::Relaxed);
    }

    /// What the page shows was answered.
    pub fn page_shown(&self) {
        self.page_load_until.store(0, Ordering::Relaxed);
        self.was_shown.store(true, Ordering::Relaxed);
    }

    /// Waits until a page shows something and draws it, but not beyond a moment: till then the processors are the browser's.
    pub fn wait_for_page(&self, until: Instant) {
        let is_shown = || self.was_shown.load(Ordering::Relaxed) && self.is_idle();
        while !is_shown() && Instant::now() < until {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// A question is being answered.
    pub fn begin_request(&self) -> RequestGuard<'_> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        RequestGuard(self)
    }

    /// Waits while somebody else comes first, but not longer than was worked before: whoever asks all the time makes it
    /// take twice as long, not for ever.
    pub fn yield_to_requests(&self) {
        self.wait_while(&|| !self.is_idle() || self.is_future(&self.page_load_until));
    }

    /// The same for those who read what a page asks for that is being opened; nobody waits longer than until something is
    /// so.
    pub fn yield_unless(&self, is_so: &dyn Fn() -> bool) {
        self.wait_while(&|| !self.is_idle() && !is_so());
    }

    fn wait_while(&self, is_so: &dyn Fn() -> bool) {
        if !is_so() {
            return;
        }
        let asked = self.now();
        let longest = asked.saturating_sub(self.resumed_at.load(Ordering::Relaxed)).min(MAX_PAUSE_MS);
        while is_so() && self.now() - asked < longest {
            thread::sleep(POLL_INTERVAL);
        }
        self.resumed_at.fetch_max(self.now(), Ordering::Relaxed);
    }

    /// Whether nobody waits for an answer or draws one.
    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0 && !self.is_future(&self.render_until)
    }

    /// Whether a time is still to come. Of those that are not, nobody need look at a clock again.
    fn is_future(&self, time: &AtomicU64) -> bool {
        let known = time.load(Ordering::Relaxed);
        if known == 0 {
            return false;
        }
        let is_future = known > self.now();
        if !is_future {
            let _ = time.compare_exchange(known, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        is_future
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.0.render_until.fetch_max(self.0.now() + RENDER_GRACE_MS, Ordering::Relaxed);
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn whoever_works_waits_for_an_answer() {
        let gate = ForegroundGate::default();
        let is_idle = AtomicBool::new(false);
        // Without work before there would be no pause.
        thread::sleep(Duration::from_millis(20));
        thread::scope(|scope| {
            let guard = gate.begin_request();
            let begun = gate.now();
            let worker = scope.spawn(|| {
                gate.yield_to_requests();
                (is_idle.load(Ordering::SeqCst), gate.now())
            });
            thread::sleep(Duration::from_millis(5));
            is_idle.store(true, Ordering::SeqCst);
            drop(guard);
            let (was_idle, now) = worker.join().unwrap();
            // Or it has waited for as long as had been worked before.
            assert!(was_idle || now - begun >= 20, "it went on after {} ms", now - begun);
        });
    }

    #[test]
    fn whoever_asks_all_the_time_does_not_stop_the_work() {
        let gate = ForegroundGate::default();
        let _turn = gate.begin_request();
        for _ in 0..3 {
            thread::sleep(2 * POLL_INTERVAL);
            // It comes back, although the question is not answered.
            gate.yield_to_requests();
        }
        assert!(!gate.is_idle());
        assert!(gate.resumed_at.load(Ordering::Relaxed) > 0, "there was a pause");
    }

    #[test]
    fn nobody_waits_when_nobody_asks() {
        let gate = ForegroundGate::default();
        assert!(gate.is_idle());
        drop(gate.begin_request());
        while !gate.is_idle() {
            thread::sleep(POLL_INTERVAL);
        }
        assert_eq!(gate.render_until.load(Ordering::Relaxed), 0);
        gate.yield_to_requests();
        assert_eq!(gate.resumed_at.load(Ordering::Relaxed), 0, "there was no pause");
    }

    #[test]
    fn what_can_wait_begins_when_the_page_shows_something() {
        let gate = ForegroundGate::default();
        let far = Instant::now() + Duration::from_secs(3600);
        thread::scope(|scope| {
            let waits = scope.spawn(|| gate.wait_for_page(far));
            let guard = gate.begin_request();
            gate.page_shown();
            drop(guard);
            // An hour later else.
            waits.join().unwrap();
        });
        assert!(gate.is_idle());
        // Nobody waits for a page for ever.
        ForegroundGate::default().wait_for_page(Instant::now());
    }

    #[test]
    fn a_page_that_is_being_opened_has_the_processor_but_for_what_it_shows() {
        let gate = ForegroundGate::default();
        gate.begin_page_load();
        assert!(gate.is_future(&gate.page_load_until) || gate.now() >= PAGE_LOAD_GRACE_MS);
        gate.yield_unless(&|| false);
        assert_eq!(gate.resumed_at.load(Ordering::Relaxed), 0, "what it shows goes on being read");
        gate.page_shown();
        assert!(!gate.is_future(&gate.page_load_until));
    }
}
