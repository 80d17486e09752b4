//! Pauses indexing while a request is served and for 30 ms after, while the browser draws the
//! answer. A pause is never longer than the work since the last one, so constant requests at most
//! double the indexing time.
//!
//! Thread priorities alone don't suffice: a browser started elsewhere is in another scheduling
//! group, and all work of our group counts against it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Times in milliseconds after an answer, and after the page itself was sent.
const RENDER_GRACE_MS: u64 = 30;
const PAGE_LOAD_GRACE_MS: u64 = 600;
/// Maximum pause in milliseconds, and how often a pause checks whether it is over.
const MAX_PAUSE_MS: u64 = 600;
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Gate at which indexing waits while requests are served.
#[derive(Debug)]
pub struct ForegroundGate {
    begun: Instant,
    /// Number of requests that are being served.
    requests: AtomicUsize,
    /// End of the browser's drawing of the last answer, in milliseconds from the start; 0 if
    /// passed.
    render_until: AtomicU64,
    /// Time by which a page that is loading has requested its contents; 0 if passed.
    page_load_until: AtomicU64,
    /// End of the last pause.
    resumed_at: AtomicU64,
    /// Whether a page has received its contents.
    was_shown: AtomicBool,
}

impl Default for ForegroundGate {
    fn default() -> Self {
        let [render_until, page_load_until, resumed_at] = [0; 3].map(AtomicU64::new);
        let (requests, was_shown) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { begun: Instant::now(), requests, render_until, page_load_until, resumed_at, was_shown }
    }
}

/// Request that is being served, until this is dropped.
pub struct RequestGuard<'w>(&'w ForegroundGate);

impl ForegroundGate {
    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// Announces that the page is loading: the browser is busy, and will request its contents.
    pub fn begin_page_load(&self) {
        self.page_load_until.store(self.now() + PAGE_LOAD_GRACE_MS, Ordering::Relaxed);
    }

    /// Announces that the page's contents were answered.
    pub fn page_shown(&self) {
        self.page_load_until.store(0, Ordering::Relaxed);
        self.was_shown.store(true, Ordering::Relaxed);
    }

    /// Waits until a page has drawn its contents, or until a deadline: until then the CPUs are the
    /// browser's.
    pub fn wait_for_page(&self, until: Instant) {
        let is_shown = || self.was_shown.load(Ordering::Relaxed) && self.is_idle();
        while !is_shown() && Instant::now() < until {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Begins to serve a request.
    pub fn begin_request(&self) -> RequestGuard<'_> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        RequestGuard(self)
    }

    /// Waits while requests are served, but not longer than the work since the last pause.
    pub fn yield_to_requests(&self) {
        self.wait_while(&|| !self.is_idle() || self.is_future(&self.page_load_until));
    }

    /// Waits like [`Self::yield_to_requests`] but not for a loading page, and only until a
    /// condition holds: for work that the page itself waits for.
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

    /// Whether no request is served and no answer drawn.
    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0 && !self.is_future(&self.render_until)
    }

    /// Whether a time has not passed. A passed time is cleared, so that the clock is read no more.
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
    fn work_waits_for_an_answer() {
        let gate = ForegroundGate::default();
        let is_idle = AtomicBool::new(false);
        // Without work before it there would be no pause.
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
            // Or it has waited for as long as it had worked.
            assert!(was_idle || now - begun >= 20, "it went on after {} ms", now - begun);
        });
    }

    #[test]
    fn constant_requests_do_not_stop_the_work() {
        let gate = ForegroundGate::default();
        let _turn = gate.begin_request();
        for _ in 0..3 {
            thread::sleep(2 * POLL_INTERVAL);
            // It returns although the request is not answered.
            gate.yield_to_requests();
        }
        assert!(!gate.is_idle());
        assert!(gate.resumed_at.load(Ordering::Relaxed) > 0, "there was a pause");
    }

    #[test]
    fn without_requests_there_is_no_pause() {
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
            // The test would take an hour otherwise.
            waits.join().unwrap();
        });
        assert!(gate.is_idle());
        // A page that never loads doesn't stop the indexing.
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
