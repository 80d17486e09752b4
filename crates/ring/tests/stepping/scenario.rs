//! Scenarios: the places where a thread is stopped, and what happens to it there.

use std::{
    collections::{BTreeMap, BTreeSet},
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use tompion_layout::{control, loss::Cause, ring::Geometry};
use tompion_os::{SharedMap, create_memfd};
use tompion_ring::producer::Outcome;

use crate::{
    debugger::{Debugger, Place, State},
    ledger::{HANDLER, Ledger, MAIN, Proven, Source},
    sections::{APPEND, COUNT, PARTS, Section},
    support::Bench,
};

/// Function by which the thread appends.
pub type Append = fn(&Bench, &Proven) -> Outcome;

/// The event that the stopped thread appends.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub image_len: usize,
    pub tails: &'static [usize],
    pub given_time: bool,
}

/// State of its CPU's ring before the append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Never used.
    Unused,
    /// The record fits behind others.
    Inside,
    /// The event does not fit into the rest of the sub-buffer.
    Crossing,
    /// The sub-buffer has just been filled to the last byte.
    Boundary,
    /// As `Crossing`, a lap later: what comes next has been read, or is overwritten.
    SecondLap,
    /// There is no room, and no reader.
    Full,
}

/// One append under test.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub kind: Kind,
    pub before: Before,
    pub overwrite: bool,
    /// The CPUs on which it is played: the thread starts on the first.
    pub cpus: [usize; 2],
    /// Whether the processor's breakpoint registers are used.
    pub breakpoints: bool,
    pub append: Append,
}

/// Action on a stopped thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// The thread goes on: it was preempted, and is aborted.
    GoOn,
    /// It goes on as if it had never been stopped; the section is not aborted.
    NotStopped,
    /// The thread is killed.
    Kill,
    /// The thread gets a signal, whose handler appends.
    Signal,
    /// The thread is moved to another CPU.
    Migrate,
    /// Another thread appends on its CPU.
    Other,
    /// Another thread appends on its CPU until it has gone once round the ring, or the ring is
    /// full.
    OthersFill,
    /// It is moved to another CPU, and another thread appends on the one it left.
    Depart,
    /// The session turns all writers to the other buffer.
    Switch,
}

impl Action {
    pub const ALL: [Self; 9] = [
        Self::GoOn,
        Self::NotStopped,
        Self::Kill,
        Self::Signal,
        Self::Migrate,
        Self::Other,
        Self::OthersFill,
        Self::Depart,
        Self::Switch,
    ];
}

const SUBBUF_SIZE: u64 = 4096;
/// Length of an image in the handler, and of those with which rings are filled.
const SHORT: usize = 16;

/// Memory that the child shares with the test: how often each source began, and the outcomes.
struct Report(SharedMap);

impl Report {
    fn new() -> Self {
        use std::os::fd::AsFd;
        let file = create_memfd(c"report", 4096).expect("memory for the report");
        Self(SharedMap::new(file.as_fd(), 4096).expect("memory for the report"))
    }

    // Ordering, here and below: the child stands still, or has ended, when the test looks.
    fn begin(&self, source: u16) {
        self.0.word(usize::from(source) * 16).store(1, Ordering::Relaxed);
    }

    fn end(&self, source: u16, outcome: Outcome) {
        let number = match outcome {
            Outcome::Written => 1,
            Outcome::Lost(_) => 2,
            Outcome::NotRecording => 3,
        };
        self.0.word(usize::from(source) * 16 + 8).store(number, Ordering::Relaxed);
    }

    /// Whether the source has begun, and what it has said of its end.
    fn of(&self, source: u16) -> (bool, Option<Outcome>) {
        let word = |offset| self.0.word(usize::from(source) * 16 + offset).load(Ordering::Relaxed);
        let outcome = match word(8) {
            0 => None,
            1 => Some(Outcome::Written),
            // The ledger doesn't ask for the cause.
            2 => Some(Outcome::Lost(Cause::Full)),
            _ => Some(Outcome::NotRecording),
        };
        (word(0) == 1, outcome)
    }
}

/// State of the child's signal handler. Its memory is a copy of this process's, so no other thread
/// has set it.
static HANDLED: AtomicPtr<Handled> = AtomicPtr::new(ptr::null_mut());

struct Handled {
    bench: *const Bench,
    event: *const Proven,
    report: *const Report,
}

extern "C" fn on_signal(_: i32) {
    // Ordering: the same thread stored it.
    // SAFETY: it points to what is alive for as long as the child.
    unsafe {
        let handled = &*HANDLED.load(Ordering::Relaxed);
        (*handled.report).begin(HANDLER);
        let outcome = (*handled.event).append(&*handled.bench);
        (*handled.report).end(HANDLER, outcome);
    }
}

/// Binds a thread (0: the caller) to one CPU.
pub fn bind(thread: libc::pid_t, cpu: usize) {
    // SAFETY: all bytes zero are an empty set, which is this function's own.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        let result = libc::sched_setaffinity(thread, size_of_val(&set), &raw const set);
        assert_eq!(result, 0, "sched_setaffinity: {}", std::io::Error::last_os_error());
    }
}

impl Scenario {
    fn bench(&self) -> Bench {
        let geometry = Geometry::new(SUBBUF_SIZE, 2, tompion_os::possible_cpus(), 2).expect("sound sizes");
        Bench::with(geometry, self.overwrite, self.kind.given_time)
    }

    /// Places that an undisturbed append passes, and how often.
    pub fn places(&self, sections: &[Section]) -> BTreeMap<u64, usize> {
        let known: BTreeSet<u64> = sections.iter().flat_map(|section| &section.places).copied().collect();
        let bench = self.bench();
        let mut play = Play::new(self, &bench);
        let debugger = play.start();
        let mut times = BTreeMap::new();
        while debugger.step_disarmed() == State::Stopped {
            let address = debugger.instruction();
            if known.contains(&address) {
                *times.entry(address).or_default() += 1;
            }
        }
        times
    }

    /// Plays the append: at the place the first action happens, then each time the thread comes
    /// there again the next. The number of actions that there were, or what was wrong in the end.
    pub fn play(&self, place: Place, section: &Section, actions: &[Action]) -> Result<usize, String> {
        let bench = self.bench();
        let mut play = Play::new(self, &bench);
        let debugger = play.start();
        play.run_out(&debugger, (place, section), actions)
    }

    /// Stops the append at a place as often as it comes there. How often that was, and what became
    /// of it.
    pub fn play_for_ever(&self, place: Place, section: &Section) -> (usize, Option<Outcome>) {
        let bench = self.bench();
        let mut play = Play::new(self, &bench);
        let debugger = play.start();
        let mut stops = 0;
        while debugger.run_to(place, section, 0) == State::Stopped {
            stops += 1;
        }
        let outcome = play.report.of(MAIN).1;
        play.ended(false).expect("a sound ring");
        (stops, outcome)
    }
}

/// One append in a child of its own, with rings of its own.
struct Play<'a> {
    scenario: &'a Scenario,
    bench: &'a Bench,
    ledger: Ledger<'a>,
    report: Report,
    /// The sources whose outcomes are known.
    heard: BTreeSet<Source>,
    /// The sources whose losses are counted.
    counted: BTreeSet<Source>,
}

impl<'a> Play<'a> {
    /// Makes the rings as they are to be before.
    fn new(scenario: &'a Scenario, bench: &'a Bench) -> Self {
        bind(0, scenario.cpus[0]);
        let ledger = Ledger::new(bench, scenario.overwrite, scenario.kind.given_time);
        let mut play = Self {
            scenario,
            bench,
            ledger,
            report: Report::new(),
            heard: BTreeSet::new(),
            counted: BTreeSet::new(),
        };
        let Kind { image_len, tails, .. } = scenario.kind;
        // Less than any record takes.
        let rest = if image_len > SHORT { 24 } else { 8 };
        play.ledger.begin(Proven::new((MAIN, 0), image_len, tails, 7));
        play.ledger.begin(Proven::new((HANDLER, 0), SHORT, &[], 8));
        match scenario.before {
            Before::Unused => (),
            Before::Inside => {
                // Here the other CPU's ring is in use, too.
                for cpu in [scenario.cpus[1], scenario.cpus[0]] {
                    bind(0, cpu);
                    play.append_three();
                }
            }
            Before::Crossing => play.fill(rest),
            Before::Boundary => play.fill(0),
            Before::SecondLap | Before::Full => {
                play.fill(0);
                play.fill(rest);
            }
        }
        if scenario.before == Before::SecondLap && !scenario.overwrite {
            play.ledger.take().expect("a sound ring");
        }
        play
    }

    /// Fills the current sub-buffer up to its last bytes.
    fn fill(&mut self, rest: u64) {
        loop {
            let position = self.ledger.position(self.scenario.cpus[0]);
            let missing = match SUBBUF_SIZE - position % SUBBUF_SIZE - rest {
                // A sub-buffer that isn't open yet.
                room if room + rest == SUBBUF_SIZE => 32,
                room @ 0..48 => room,
                room @ 48..560 => 32.min(room - 16),
                _ => 512,
            };
            if missing > 0 {
                assert!(self.ledger.append(missing as usize - 16));
            }
            let position = self.ledger.position(self.scenario.cpus[0]);
            if (position + rest) % SUBBUF_SIZE == 0 {
                return;
            }
        }
    }

    /// Appends a few events of the test's own on its CPU; they may be lost.
    fn append_three(&mut self) {
        for _ in 0..3 {
            self.ledger.append(SHORT);
        }
    }

    /// The child, just before the append.
    fn start(&mut self) -> Debugger {
        let (main, handler) = (self.ledger.event(MAIN), self.ledger.event(HANDLER));
        let (bench, report) = (self.bench, &self.report);
        let mut handled = Handled { bench, event: handler, report };
        let mut debugger = Debugger::start(|| {
            // Ordering: for this thread's own handler.
            HANDLED.store(&raw mut handled, Ordering::Relaxed);
            // SAFETY: all bytes zero are such an action but for the handler, which is safe to be
            // called.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_signal as extern "C" fn(i32) as usize;
                libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut());
            }
            report.begin(MAIN);
            // SAFETY: the ledger is there in the child's copy as well.
            report.end(MAIN, (self.scenario.append)(bench, unsafe { &*main }));
        });
        if !self.scenario.breakpoints {
            debugger.forgo_breakpoints();
        }
        debugger
    }

    fn run_out(
        &mut self,
        debugger: &Debugger,
        (place, section): (Place, &Section),
        actions: &[Action],
    ) -> Result<usize, String> {
        let (mut signal, mut played, mut is_killed) = (0, 0, false);
        for (index, &action) in actions.iter().enumerate() {
            let place = if index == 0 { place } else { Place { time: 1, ..place } };
            if debugger.run_to(place, section, signal) != State::Stopped {
                // Only the first stop is certain: an action may lead the thread elsewhere.
                return if index == 0 {
                    Err("not reached".into())
                } else {
                    self.ended(false).map(|()| played)
                };
            }
            played += 1;
            let source = if matches!(self.report.of(HANDLER), (true, None)) { HANDLER } else { MAIN };
            if [APPEND, PARTS].contains(&section.name) && place.address == section.commit {
                self.ledger.end((source, 0), Outcome::Written);
            }
            if section.name == COUNT && place.address == section.commit {
                self.counted.insert(source);
            }
            self.hear();
            self.ledger.look()?;
            signal = if action == Action::Signal && source == MAIN { libc::SIGUSR1 } else { 0 };
            if action == Action::Kill {
                is_killed = true;
            }
            self.act(debugger, action);
        }
        let state = if is_killed { debugger.kill() } else { debugger.run_to_end(signal) };
        let expected = if is_killed { State::Killed } else { State::Exited(0) };
        if state != expected {
            return Err(format!("{state:?} instead of {expected:?}"));
        }
        self.ended(is_killed).map(|()| played)
    }

    fn act(&mut self, debugger: &Debugger, action: Action) {
        let [here, there] = self.scenario.cpus;
        match action {
            Action::GoOn | Action::Kill | Action::Signal => (),
            Action::NotStopped => debugger.disarm(),
            Action::Migrate => bind(debugger.pid(), there),
            Action::Other => {
                self.ledger.append(SHORT);
            }
            Action::Depart => {
                bind(debugger.pid(), there);
                self.ledger.append(3 * SHORT);
            }
            Action::OthersFill => {
                let begin = self.ledger.position(here);
                let lap = self.bench.geometry.ring_size();
                while self.ledger.position(here) < begin + lap && self.ledger.append(496) {}
            }
            Action::Switch => {
                // Ordering: the child stands still.
                self.bench.control.half(control::OFFSET_SELECTOR).store(1, Ordering::Relaxed);
            }
        }
    }

    /// Writes down what sources have said since the last time.
    fn hear(&mut self) {
        for source in [MAIN, HANDLER] {
            if let (_, Some(outcome)) = self.report.of(source) {
                if self.heard.insert(source) {
                    self.ledger.end((source, 0), outcome);
                }
            }
        }
    }

    /// After the child's end: its appends are known, others go on in its rings, and all must be
    /// there.
    fn ended(&mut self, is_killed: bool) -> Result<(), String> {
        self.hear();
        if !is_killed && !self.heard.contains(&MAIN) {
            return Err("the append has no outcome".into());
        }
        self.counted.difference(&self.heard).for_each(|_| self.ledger.count_lost());
        for cpu in self.scenario.cpus {
            bind(0, cpu);
            self.append_three();
        }
        self.ledger.close()
    }
}
