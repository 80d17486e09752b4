//! Attribution of injected delays. Where that isn't permitted, the test is skipped with a message.
//!
//! A victim sleeps until a time. Before that, a disturber on the same CPU starts something that
//! lasts longer. This quick form is a test; `./x bench monitor-blame` runs it longer
//! (`TOMPION_BLAME_CASES`) and saves the result (`TOMPION_BLAME_RESULT`).

use std::{
    collections::BTreeMap,
    net::UdpSocket,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    thread::clock_nanosleep_absolute,
    time::{ClockId, Timespec},
};
use tompion_injector::{Injector, Place};
use tompion_latency::{
    Kinds, Monitor,
    attribution::Cause,
    incident::Incident,
    threshold::{Capture, ThresholdRule, ThresholdWatcher},
};
use tompion_os::{gettid, monotonic_ns, run_fifo, set_affinity};

const VICTIM: &str = "late-victim";
const LIMIT: Duration = Duration::from_micros(100);
/// Lead of the disturber over the victim, in nanoseconds.
const AHEAD: u64 = 100_000;
/// Range of the delays, in nanoseconds.
const MIN_DELAY: u64 = 250_000;
const MAX_DELAY: u64 = 500_000;
const PRIORITY_OF_VICTIM: u32 = 80;
const PRIORITY_ABOVE: u32 = 90;
const PRIORITY_BELOW: u32 = 10;
/// Number of the idle thread.
const IDLE: u32 = 0;

/// Injected causes that must be found.
const CAUSES: [Cause; 6] = [
    Cause::InterruptsOff,
    Cause::PreemptionOff,
    Cause::ThreadInterference,
    Cause::IrqInterference,
    Cause::SoftirqInterference,
    Cause::IdleExit,
];

/// Orders to the threads.
#[derive(Default)]
struct Plan {
    /// Number of the case; a change starts one.
    number: AtomicU32,
    /// Intended wakeup of the victim.
    time: AtomicU64,
    cause: AtomicU32,
    length: AtomicU64,
    /// Thread of the disturber.
    disturber: AtomicU32,
    over: AtomicBool,
}

impl Plan {
    /// Waits for the next case; false if there is none.
    fn next(&self, done: &mut u32) -> bool {
        loop {
            if self.over.load(SeqCst) {
                return false;
            }
            let number = self.number.load(SeqCst);
            if number != *done {
                *done = number;
                return true;
            }
            thread::sleep(Duration::from_micros(300));
        }
    }
}

fn sleep_until(ns: u64) {
    let time = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    clock_nanosleep_absolute(ClockId::Monotonic, &time).expect("a time to sleep until");
}

fn spin_until(ns: u64) {
    while monotonic_ns() < ns {
        std::hint::spin_loop();
    }
}

fn victim(plan: &Plan, cpu: u32) {
    set_affinity(gettid(), &[cpu]).expect("a CPU");
    run_fifo(PRIORITY_OF_VICTIM).expect("a real-time priority");
    let mut done = 0;
    while plan.next(&mut done) {
        sleep_until(plan.time.load(SeqCst));
    }
}

fn disturber(plan: &Plan, cpu: u32, injector: &Injector) {
    set_affinity(gettid(), &[cpu]).expect("a CPU");
    run_fifo(PRIORITY_BELOW).expect("a real-time priority");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("its address");
    let (tid, mut done) = (gettid(), 0);
    plan.disturber.store(tid, SeqCst);
    while plan.next(&mut done) {
        let begin = plan.time.load(SeqCst) - AHEAD;
        let length = plan.length.load(SeqCst);
        let delay = Duration::from_nanos(length);
        match CAUSES[plan.cause.load(SeqCst) as usize] {
            Cause::InterruptsOff => {
                spin_until(begin);
                injector.order(tid, Place::InterruptsOff, delay);
                thread::sleep(Duration::from_micros(50));
            }
            Cause::PreemptionOff => {
                spin_until(begin);
                injector.order(tid, Place::PreemptionOff, delay);
                let _ = std::os::unix::process::parent_id();
            }
            Cause::IrqInterference => {
                injector.order(tid, Place::HardInterrupt, delay);
                sleep_until(begin);
            }
            Cause::SoftirqInterference => {
                spin_until(begin);
                injector.order(tid, Place::SoftInterrupt, delay);
                let _ = socket.send_to(b"to myself", address);
            }
            // This CPU must idle; the ordering thread is on the other one.
            Cause::IdleExit => sleep_until(begin + AHEAD + MAX_DELAY),
            _ => {
                run_fifo(PRIORITY_ABOVE).expect("a real-time priority");
                spin_until(begin + length);
                run_fifo(PRIORITY_BELOW).expect("a real-time priority");
            }
        }
        injector.cancel(tid);
    }
}

/// Returns whether at least half of a latency was injected.
fn is_on_purpose(plan: &Plan, injector: &Injector, caught: &Capture) -> bool {
    let done = match CAUSES[plan.cause.load(SeqCst) as usize] {
        Cause::ThreadInterference => return true,
        Cause::IdleExit => injector.done(IDLE),
        _ => injector.done(plan.disturber.load(SeqCst)),
    };
    let (begin, end) = (caught.question.begin(), caught.question.end);
    done.ended_ns.min(end).saturating_sub(done.begun_ns.max(begin)) * 2 >= end - begin
}

/// Counts of found causes by injected cause.
type Matrix = BTreeMap<&'static str, BTreeMap<&'static str, u64>>;

/// Runs one case and returns the victim's capture if it was late.
fn case(
    plan: &Plan,
    (watch, injector): (&mut ThresholdWatcher, &Injector),
    cause: usize,
    length: u64,
) -> Option<Capture> {
    let time = monotonic_ns() + 4_000_000;
    plan.time.store(time, SeqCst);
    plan.cause.store(cause as u32, SeqCst);
    plan.length.store(length, SeqCst);
    plan.number.fetch_add(1, SeqCst);
    if CAUSES[cause] == Cause::IdleExit {
        // This CPU doesn't idle, so the ordering thread is on the other one.
        spin_until(time - AHEAD / 4);
        injector.order(IDLE, Place::IdleExit, Duration::from_nanos(length));
        spin_until(time + AHEAD);
        injector.cancel(IDLE);
    }
    let until = Instant::now() + Duration::from_millis(60);
    while Instant::now() < until {
        if let Some(caught) = watch.take() {
            watch.go_on(caught.crossing.side, Duration::ZERO);
            // Its sleeps between two cases are late as well.
            if caught.question.intended.abs_diff(time) < 1000 {
                return is_on_purpose(plan, injector, &caught).then_some(caught);
            }
        }
        thread::sleep(Duration::from_micros(500));
    }
    None
}

/// Repeats all causes until enough cases of each are captured or the timeout passes.
fn matrix(name: &str, cases: u64, timeout: Duration) -> Matrix {
    let rule = ThresholdRule { kind: None, threads: VICTIM.into(), limit: LIMIT.as_nanos() as u64 };
    let mut watch = ThresholdWatcher::begin(name, &[rule]).unwrap_or_else(|error| panic!("{error}"));
    // Attached after the monitor, so that the monitor sees an event before it is delayed.
    let places = [
        Place::InterruptsOff,
        Place::PreemptionOff,
        Place::HardInterrupt,
        Place::SoftInterrupt,
        Place::IdleExit,
    ];
    let injector = Injector::load(&places).unwrap_or_else(|error| panic!("{error}"));
    let cpus = tompion_os::allowed_cpus();
    let (cpu, other) = (*cpus.last().expect("a CPU"), *cpus.first().expect("a CPU"));
    set_affinity(gettid(), &[other]).expect("a CPU");
    let plan = Plan::default();
    let mut matrix = Matrix::new();
    let begun = Instant::now();
    thread::scope(|scope| {
        let victim = thread::Builder::new().name(VICTIM.into()).spawn_scoped(scope, || victim(&plan, cpu));
        victim.expect("a thread");
        scope.spawn(|| disturber(&plan, cpu, &injector));
        let mut random = 1u64;
        // A busy machine may have no idle CPU.
        let mut rounds = 0;
        let is_enough = |matrix: &Matrix, rounds: u64| {
            CAUSES
                .iter()
                .filter(|cause| **cause != Cause::IdleExit || rounds < cases * 3)
                .all(|cause| matrix.get(cause.name()).is_some_and(|row| row.values().sum::<u64>() >= cases))
        };
        while !is_enough(&matrix, rounds) && begun.elapsed() < timeout {
            rounds += 1;
            for (number, cause) in CAUSES.iter().enumerate() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let length = MIN_DELAY + (random >> 33) % (MAX_DELAY - MIN_DELAY);
                let Some(caught) = case(&plan, (&mut watch, &injector), number, length) else { continue };
                let incident = Incident::of(&caught, 0);
                let found = incident.causes.first().expect("a cause").cause;
                if found != *cause && std::env::var_os("TOMPION_BLAME_TELL").is_some() {
                    println!("{} was taken for {}: {incident:#?}", cause.name(), found.name());
                }
                let sum: u64 = incident.segments.iter().map(|segment| segment.length()).sum();
                assert_eq!(sum, incident.latency_ns, "{incident:?}");
                *matrix.entry(cause.name()).or_default().entry(found.name()).or_default() += 1;
            }
        }
        plan.over.store(true, SeqCst);
    });
    matrix
}

#[test]
fn who_made_a_thread_late_is_found() {
    let found: Vec<String> = tompion_injector::obstacles().into_iter().map(|it| it.found).collect();
    if !found.is_empty() {
        return eprintln!("SKIPPED, nothing can be delayed here: {}", found.join("; "));
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let cases = number("TOMPION_BLAME_CASES");
    let name = format!("tompion-test-blame-{}", std::process::id());
    let monitor = Monitor::begin(&name, Kinds::ALL).unwrap_or_else(|error| panic!("{error}"));
    let timeout = if cases.is_some() { 3600 } else { 60 };
    let matrix = matrix(&name, cases.unwrap_or(10), Duration::from_secs(timeout));
    drop(monitor);
    let _ = Monitor::stop(&name);
    println!("{matrix:#?}");
    if let Some(path) = std::env::var_os("TOMPION_BLAME_RESULT") {
        std::fs::write(path, serde_json::to_vec_pretty(&matrix).unwrap()).unwrap();
    }
    for cause in CAUSES {
        let Some(row) = matrix.get(cause.name()) else {
            assert!(cause == Cause::IdleExit, "no case of {} was caught", cause.name());
            continue;
        };
        let (right, all) = (row.get(cause.name()).copied().unwrap_or(0), row.values().sum::<u64>());
        // On a busy machine, threads are late for other reasons, too, and those are found.
        assert!(right * 2 > all, "{}: {row:?}", cause.name());
    }
}
