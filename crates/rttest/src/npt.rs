//! Non-Preempt Test: how long a real-time loop is kept from going on, and what recording adds to
//! it.
//!
//! Source: Beamonte and Dagenais, "Linux Low-Latency Tracing for Multicore Hard Real-Time Systems",
//! 2015. Since Linux 5.5 no program can keep interrupts away (`iopl` doesn't let it any more), so
//! each long gap is told by its cause.

mod burst;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tompion_os::LoopEvent;

use burst::{ClockRead, Event, Gaps, Measurement, NoEvent, Pace, WARM};
pub use burst::{LONG_NS, Tally};

use crate::{
    Error,
    accumulator::Summary,
    counters::Counters,
    peer::{Lttng, Timer},
    prepare::{self, PrepareOptions, Prepared},
    recording::{self, Arrived, Buffers, LOOP, Scratch, Subject},
    ticks::{Calibration, Calibrator},
    witness::{Disturbance, Witness},
};

/// Events that are recorded while the loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trace {
    /// Nothing, and there is no event in the loop.
    None,
    /// Nothing, but the loop reads the clock once more: what no recorder can do without.
    Clock,
    /// Nothing, with an event in the loop.
    Disabled,
    /// The event in each loop.
    User,
    /// The kernel, as `record -k` does, without an event in the loop.
    Kernel,
    /// The event in each loop, and the kernel.
    Both,
}

impl Trace {
    fn has_event(self) -> bool {
        matches!(self, Self::Disabled | Self::User | Self::Both)
    }

    fn records_loop(self) -> bool {
        matches!(self, Self::User | Self::Both)
    }

    fn records_kernel(self) -> bool {
        matches!(self, Self::Kernel | Self::Both)
    }
}

/// Plan of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Loops that count.
    pub loops: u64,
    /// Loops before, which don't.
    pub discard: u64,
    /// Most loops in a second; none for as many as there can be.
    pub rate: Option<f64>,
    /// CPU and priority of the test.
    pub options: PrepareOptions,
    /// The rings, where something is recorded.
    pub buffers: Buffers,
    /// Folder where the trace is to stay; it must not exist. Else it goes away.
    pub output: Option<PathBuf>,
    /// The `tompion` command.
    pub tompion: PathBuf,
    /// The library with the event.
    pub library: PathBuf,
}

/// Recorder that runs during the measurement.
#[derive(Clone, Copy, Debug)]
pub enum Recorder<'a> {
    /// Tompion, or none.
    Tompion(Trace),
    /// LTTng, the event in each loop.
    Lttng(&'a Lttng, Timer),
}

/// Result of a test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Loops that were counted, each a gap.
    pub loops: u64,
    /// Loops before them.
    pub discarded: u64,
    /// Events of these loops in the trace; 0 where none is recorded.
    pub events: u64,
    /// Events of loops that are missing there.
    pub lost: u64,
    /// All gaps.
    #[serde(flatten)]
    pub gaps: Summary,
    /// Without those in which an interrupt came, another thread ran, or the hypervisor took the
    /// CPU.
    pub undisturbed: Summary,
    /// Gaps that have a cause.
    pub causes: Vec<Disturbance>,
    /// Counts of the kernel for the CPU meanwhile.
    pub counters: Counters,
    /// Settings that the thread got.
    pub setup: Prepared,
    /// The counter.
    pub clock: Calibration,
    /// Events that arrived in the trace.
    #[serde(rename = "trace_has", default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Arrived>,
    /// Duration, in nanoseconds.
    pub took_ns: u64,
}

/// Parameters of the program under test.
#[derive(Debug, Serialize, Deserialize)]
struct Spec {
    loops: u64,
    discard: u64,
    rate: Option<f64>,
    options: PrepareOptions,
    /// Whether there is an event, and whether it is to be recorded.
    event: EventState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum EventState {
    None,
    Clock,
    Disabled,
    Enabled,
}

/// Result of the program under test.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    gaps: Gaps,
    setup: Prepared,
    clock: Calibration,
    counters: Counters,
    took_ns: u64,
}

/// Measures, with or without a recorder.
///
/// # Errors
/// If the loop can't run or can't be recorded, or the trace can't be read.
pub fn run(plan: &Plan, recorder: Recorder) -> Result<Outcome, Error> {
    let scratch = Scratch::new(None)?;
    let trace = plan.output.clone().unwrap_or_else(|| scratch.path().join("trace"));
    let mut subject = Subject { tompion: &plan.tompion, what: "loop", event: None, folder: scratch.path() };
    let Plan { loops, discard, rate, options, .. } = *plan;
    let mut spec = Spec { loops, discard, rate, options, event: EventState::None };
    let (found, is_recorded): (Found, bool) = match recorder {
        Recorder::Tompion(what) => {
            subject.event = what.has_event().then_some(&*plan.library);
            spec.event = match what {
                Trace::None | Trace::Kernel => EventState::None,
                Trace::Clock => EventState::Clock,
                Trace::Disabled => EventState::Disabled,
                Trace::User | Trace::Both => EventState::Enabled,
            };
            let is_recorded = what.records_loop() || what.records_kernel();
            let found = if is_recorded {
                subject.run_recorded(&spec, &trace, &record_options(what, plan.buffers))?
            } else {
                subject.run(&spec)?
            };
            (found, is_recorded)
        }
        Recorder::Lttng(lttng, timer) => {
            spec.event = EventState::Enabled;
            subject.event = Some(lttng.library());
            let session = lttng.start(&trace, plan.buffers, timer)?;
            let found = subject.run(&spec)?;
            session.finish()?;
            (found, true)
        }
    };
    let arrived = is_recorded.then(|| Arrived::count(&trace)).transpose()?;
    let kernel = matches!(recorder, Recorder::Tompion(what) if what.records_kernel());
    if kernel && arrived.as_ref().is_some_and(|arrived| arrived.others == 0) {
        return Err(Error::Failed(
            "the kernel could not be recorded: run as root, and see `tompion doctor`".into(),
        ));
    }
    Ok(outcome(&spec, found, arrived))
}

fn record_options(what: Trace, buffers: Buffers) -> Vec<OsString> {
    let mut options = recording::ring_options(buffers);
    options.extend(["-e".into(), "npt:*".into()]);
    if what.records_kernel() {
        options.push("-k".into());
    }
    options
}

fn outcome(spec: &Spec, found: Found, trace: Option<Arrived>) -> Outcome {
    let Found { gaps, setup, clock, counters, took_ns } = found;
    let mut all = gaps.own.clone();
    all.add(&gaps.machine);
    let ns = |ticks: u64| ticks as f64 / clock.ticks_per_ns;
    let causes = gaps.causes.iter().map(|(cause, tally)| Disturbance {
        cause: *cause,
        gaps: tally.gaps,
        longest_ns: ns(tally.longest),
        together_ns: ns(tally.together),
    });
    let events = trace.as_ref().filter(|_| spec.event == EventState::Enabled).map(|trace| trace.loops);
    Outcome {
        loops: all.count(),
        discarded: spec.discard,
        events: events.unwrap_or(0),
        lost: events.map_or(0, |events| all.count().saturating_sub(events)),
        causes: causes.collect(),
        undisturbed: gaps.own.summary(clock.ticks_per_ns),
        gaps: all.summary(clock.ticks_per_ns),
        counters,
        setup,
        clock,
        trace,
        took_ns,
    }
}

/// A real-time thread that never sleeps is stopped for 50 ms of each second (`sched_rt_runtime_us`,
/// the fair server of Linux 6.12), so the loop rests before that.
const SPIN: Duration = Duration::from_millis(50);
const REST: Duration = Duration::from_millis(5);
/// Time within which the event must be enabled.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The program under test: `tompion test loop SPEC RESULT`.
///
/// # Errors
/// If the loop can't be measured, or the expected events are not recorded.
pub fn run_loop(spec: &str, result: &Path) -> Result<(), Error> {
    let spec: Spec = serde_json::from_str(spec)
        .map_err(|error| Error::Failed(format!("expected what `tompion test npt` says, found {error}")))?;
    let found = match (spec.event, LoopEvent::find()) {
        (EventState::None, _) => measure(&spec, NoEvent)?,
        (EventState::Clock, _) => measure(&spec, ClockRead)?,
        (_, None) => return Err(Error::Failed("the library with the loop's event was not loaded".into())),
        (EventState::Disabled, Some(event)) => measure(&spec, event)?,
        (EventState::Enabled, Some(event)) => {
            wait_until_enabled(event)?;
            measure(&spec, event)?
        }
    };
    recording::leave(&found, result)
}

/// Waits for a recorder that takes the event.
pub(crate) fn wait_until_enabled(event: LoopEvent) -> Result<(), Error> {
    let until = Instant::now() + WAIT_TIMEOUT;
    while !event.is_enabled() {
        if Instant::now() > until {
            return Err(Error::Failed(format!("no recorder has {LOOP}")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn measure<E: Event>(spec: &Spec, event: E) -> Result<Found, Error> {
    let calibrator = Calibrator::begin()?;
    let ticks_per_ns = calibrator.rate();
    let ticks = |ns: f64| (ns * ticks_per_ns) as u64;
    let pace = Pace {
        period: spec.rate.map_or(0, |rate| ticks(1e9 / rate)),
        spin: ticks(SPIN.as_nanos() as f64),
        long: ticks(LONG_NS),
    };
    let mut measurement = Measurement::new(pace, Witness::new(spec.options.cpu, ticks_per_ns));
    let setup = prepare::prepare(spec.options);
    let before = Counters::read(setup.cpu);
    let began = Instant::now();
    let (mut warm, mut next) = (spec.discard, 1);
    while next <= spec.loops {
        next = measurement.burst(event, warm.max(WARM), (next, spec.loops));
        // After a rest caches are cold.
        warm = WARM;
        std::thread::sleep(REST);
    }
    let took_ns = began.elapsed().as_nanos() as u64;
    let counters = Counters::read(setup.cpu).since(&before);
    Ok(Found { gaps: measurement.finish(), setup, clock: calibrator.finish(), counters, took_ns })
}
