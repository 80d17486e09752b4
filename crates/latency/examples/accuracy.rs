//! Measures the same wakeups twice: by threads that read the clock when they run, as cyclictest
//! does, and by the monitor. `./x bench monitor-accuracy` runs this and compares both.
//!
//! ```text
//! accuracy SECONDS INTERVAL_US nothing|interrupts|preemption
//! ```
//!
//! A thread on each CPU (SCHED_FIFO 95) sleeps until the next multiple of the interval. To disable
//! interrupts or preemption, another one there (SCHED_FIFO 10) does so around some of these times,
//! for 0 to 400 µs (`tompion-injector`).
//!
//! Prints lines of words: `program TID INTENDED RUNNING alone|interrupted` and `monitor TID
//! INTENDED RUNNING` for each wakeup, and `delays COUNT`. Times are CLOCK_MONOTONIC in nanoseconds.
//! Interrupted means that an interrupt came between the switch to the thread and its reading of the
//! clock.
#![forbid(unsafe_code)]

use std::{
    error::Error,
    fs::File,
    io::{self, BufWriter, Write},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use tompion_injector::{Injector, Interruptions, Place};
use tompion_latency::{Kinds, Monitor, Wakeup};
use tompion_os::{gettid, lock_memory, monotonic_ns, run_fifo, set_affinity, sleep_until};

const MEASURING: u32 = 95;
const DISTURBING: u32 = 10;
/// Time until the first wakeup.
const HEAD_START_NS: u64 = 50_000_000;
const MAX_NS: u64 = 400_000;
/// Minimum lead of a delay over the other thread's wakeup; 1 to 3 times that.
const LEAD_NS: u64 = 10_000;
/// Lead of the disturbing thread's own wakeup over the delay.
const AWAKE_NS: u64 = 60_000;
/// Log entries per second and CPU for other threads, including kernel threads.
const OTHERS_A_SECOND: u64 = 5_000;

type Failure = Box<dyn Error + Send + Sync>;

struct Plan {
    interval: u64,
    /// First wakeup, and the end.
    start: u64,
    end: u64,
    place: Option<Place>,
}

/// Wakeup as the program measured it.
struct Seen {
    intended: u64,
    running: u64,
    interrupted: bool,
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, interval, place] = &words[..] else {
        return Err("expected SECONDS INTERVAL_US nothing|interrupts|preemption".into());
    };
    let place = match place.as_str() {
        "nothing" => None,
        "interrupts" => Some(Place::InterruptsOff),
        "preemption" => Some(Place::PreemptionOff),
        other => return Err(format!("expected nothing, interrupts or preemption, found {other}").into()),
    };
    let (seconds, interval): (u64, u64) = (seconds.parse()?, interval.parse::<u64>()? * 1000);
    let cpus = tompion_os::allowed_cpus();
    let wakeups = seconds * cpus.len() as u64 * (1_000_000_000 / interval.max(1) + OTHERS_A_SECOND);
    let name = Name(format!("tompion-accuracy-{}", std::process::id()));
    // Attached before the monitor, so that its time at a switch has passed when the monitor reads
    // the clock.
    let interruptions = Interruptions::load()?;
    let (monitor, _) = Monitor::begin_with_log(&name.0, Kinds::ALL, u32::try_from(wakeups)?)?;
    let injector = Injector::load(place.as_slice())?;
    let start = monotonic_ns() + HEAD_START_NS;
    let plan = Plan { interval, start, end: start + seconds * 1_000_000_000, place };
    let _awake = stay_awake();
    let (seen, delays) = measure(&plan, &cpus, (&injector, &interruptions))?;
    let log = monitor.log()?;
    if log.ended() > log.room() {
        return Err(format!("{} wake-ups, with room for {}", log.ended(), log.room()).into());
    }
    tell(&seen, &log.wakeups(), delays)?;
    Ok(())
}

/// Name of a monitor that is stopped when it is dropped.
struct Name(String);

impl Drop for Name {
    fn drop(&mut self) {
        if let Err(error) = Monitor::stop(&self.0) {
            eprintln!("can't end {}: {error}", self.0);
        }
    }
}

/// Deep idle states would hide much of what is compared.
fn stay_awake() -> io::Result<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency")?;
    file.write_all(&0_i32.to_ne_bytes())?;
    Ok(file)
}

type Measured = (Vec<(u32, Vec<Seen>)>, u64);

fn measure(
    plan: &Plan,
    cpus: &[u32],
    (injector, interruptions): (&Injector, &Interruptions),
) -> Result<Measured, Failure> {
    let (ends, delays) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let measuring: Vec<_> =
            cpus.iter().map(|cpu| scope.spawn(|| sleep_and_look(plan, *cpu, interruptions))).collect();
        let disturbing: Vec<_> = cpus
            .iter()
            .filter_map(|cpu| {
                let place = plan.place?;
                let (ends, delays) = (&ends, &delays);
                Some(scope.spawn(move || disturb(plan, (*cpu, place), injector, (ends, delays))))
            })
            .collect();
        let seen: Result<Vec<_>, Failure> = measuring.into_iter().map(|thread| joined(thread)).collect();
        ends.store(true, Relaxed);
        let disturbed: Result<Vec<()>, Failure> =
            disturbing.into_iter().map(|thread| joined(thread)).collect();
        disturbed?;
        Ok((seen?, delays.load(Relaxed)))
    })
}

/// Result of a thread.
fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().unwrap_or_else(|_| Err("a thread has died".into()))
}

/// Measures as cyclictest does.
fn sleep_and_look(plan: &Plan, cpu: u32, interruptions: &Interruptions) -> Result<(u32, Vec<Seen>), Failure> {
    set_affinity(0, &[cpu])?;
    let count = (plan.end - plan.start) / plan.interval + 1;
    let mut seen = Vec::with_capacity(count as usize);
    lock_memory()?;
    run_fifo(MEASURING)?;
    let mut intended = plan.start;
    while intended < plan.end {
        sleep_until(intended);
        let running = monotonic_ns();
        let interrupted = interruptions.since_switch(cpu) > 0;
        seen.push(Seen { intended, running, interrupted });
        intended += (1 + running.saturating_sub(intended) / plan.interval) * plan.interval;
    }
    Ok((gettid(), seen))
}

/// Disables interrupts or preemption around some of the other thread's wakeups.
fn disturb(
    plan: &Plan,
    (cpu, place): (u32, Place),
    injector: &Injector,
    (ends, delays): (&AtomicBool, &AtomicU64),
) -> Result<(), Failure> {
    set_affinity(0, &[cpu])?;
    run_fifo(DISTURBING)?;
    let tid = gettid();
    let before = injector.done(tid).count;
    let mut random = Random(u64::from(tid));
    while !ends.load(Relaxed) {
        // About every second wakeup; the next one may come too soon.
        let skipped = 1 + random.below(2);
        let soon = monotonic_ns().saturating_sub(plan.start) / plan.interval + 1 + skipped;
        let moment = plan.start + soon * plan.interval;
        let lead = LEAD_NS + random.below(2 * LEAD_NS);
        let length = lead + random.below(MAX_NS);
        sleep_until(moment - lead - AWAKE_NS);
        while monotonic_ns() < moment - lead {
            std::hint::spin_loop();
        }
        injector.order(tid, place, Duration::from_nanos(length));
        match place {
            // It arms a timer.
            Place::InterruptsOff => sleep_until(moment + length),
            _ => drop(std::os::unix::process::parent_id()),
        }
    }
    injector.cancel(tid);
    delays.fetch_add(injector.done(tid).count - before, Relaxed);
    Ok(())
}

/// Linear congruential generator with Knuth's multiplier (MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn tell(seen: &[(u32, Vec<Seen>)], wakeups: &[Wakeup], delays: u64) -> io::Result<()> {
    let mut output = BufWriter::new(io::stdout().lock());
    for (tid, seen) in seen {
        for Seen { intended, running, interrupted } in seen {
            let word = if *interrupted { "interrupted" } else { "alone" };
            writeln!(output, "program {tid} {intended} {running} {word}")?;
        }
    }
    let is_measured = |wakeup: &&Wakeup| seen.iter().any(|(tid, _)| *tid == wakeup.tid);
    for wakeup in wakeups.iter().filter(is_measured) {
        let Some(intended) = wakeup.intended_ns else { continue };
        writeln!(output, "monitor {} {intended} {}", wakeup.tid, wakeup.running_ns)?;
    }
    writeln!(output, "delays {delays}")?;
    output.flush()
}
