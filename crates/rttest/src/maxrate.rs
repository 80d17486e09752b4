//! Search for the highest rate of events that is recorded without loss, by halving the interval
//! between a rate that is borne and one that is not.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Barrier,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tompion_os::LoopEvent;

use crate::{
    Error, npt,
    peer::{Lttng, Timer},
    recording::{self, Arrived, Buffers, Scratch, Subject},
};

/// Events that are recorded beside those of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Nothing.
    User,
    /// System calls, of which the program makes one after each event.
    Syscalls,
    /// All events of the kernel; the program makes system calls, too.
    All,
}

impl Load {
    fn has_calls(self) -> bool {
        self != Self::User
    }

    /// Argument of `record -k`.
    fn kernel(self) -> Option<&'static str> {
        match self {
            Self::User => None,
            Self::Syscalls => Some("--kernel=syscall_*"),
            Self::All => Some("--kernel=*"),
        }
    }
}

/// Plan of the search.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Recorded events.
    pub load: Load,
    /// Threads that record events, each on a CPU of its own.
    pub producers: u32,
    /// Time for which a rate has to be borne.
    pub time: Duration,
    /// The search ends when the rate that is borne and the one that is not are that near, as a
    /// ratio.
    pub near: f64,
    /// The rings.
    pub buffers: Buffers,
    /// Folder for traces, each for a moment.
    pub folder: Option<PathBuf>,
    /// The `tompion` command.
    pub tompion: PathBuf,
    /// The library with the event.
    pub library: PathBuf,
}

/// Result of a trial with one rate.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Trial {
    /// Events a second that were asked for.
    pub rate: f64,
    /// Events a second that the program came to.
    pub reached: f64,
    /// Events that the program recorded.
    pub events: u64,
    /// Number of these events that are not in the trace.
    pub lost: u64,
    /// Events of the kernel in the trace.
    pub kernel_events: u64,
    /// Events of the kernel that the recorder lost.
    pub kernel_lost: u64,
    /// Whether the rate was borne: nothing was lost, and the program kept its pace.
    pub borne: bool,
}

/// Result of the search.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Recorded events.
    pub load: Load,
    /// Threads.
    pub producers: u32,
    /// The rings.
    pub buffers: Buffers,
    /// Events a second, all threads together.
    pub events_per_second: f64,
    /// All trials, the slowest first.
    pub trials: Vec<Trial>,
}

/// Rates beyond which nothing is tried, in events a second.
const BOUNDS: (f64, f64) = (10_000.0, 1e9);
const FIRST_GUESS: f64 = 2e6;
/// A program that takes longer than it should by this factor did not keep the pace.
const STRETCHED: f64 = 1.1;

/// Searches; `progress` hears of each trial.
///
/// # Errors
/// If nothing is borne, or nothing can be recorded.
pub fn run(plan: &Plan, lttng: Option<&Lttng>, progress: &mut dyn FnMut(&Trial)) -> Result<Found, Error> {
    let mut trials = Vec::new();
    let best = highest(plan.near, |rate| {
        let trial = try_rate(plan, lttng, rate)?;
        progress(&trial);
        trials.push(trial);
        Ok(trial.borne)
    })?;
    trials.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let Plan { load, producers, buffers, .. } = *plan;
    Ok(Found { load, producers, buffers, events_per_second: best, trials })
}

/// The highest rate that is borne, near enough: by doubling or halving from a guess, then by
/// halving the interval.
fn highest(near: f64, mut is_borne: impl FnMut(f64) -> Result<bool, Error>) -> Result<f64, Error> {
    let (mut borne, mut too_much) = (None, None);
    let mut rate = FIRST_GUESS;
    loop {
        if is_borne(rate)? {
            borne = Some(rate);
        } else {
            too_much = Some(rate);
        }
        rate = match (borne, too_much) {
            (Some(low), Some(high)) if high / low <= near => return Ok(low),
            (Some(low), Some(high)) => f64::sqrt(low * high),
            (Some(low), None) if low >= BOUNDS.1 => return Ok(low),
            (Some(low), None) => low * 2.0,
            (None, Some(high)) if high <= BOUNDS.0 => return Err(Error::NothingBorne(high as u64)),
            (None, high) => high.unwrap_or(FIRST_GUESS) / 2.0,
        };
    }
}

/// Parameters of the program under test.
#[derive(Debug, Serialize, Deserialize)]
struct Spec {
    producers: u32,
    rate: f64,
    milliseconds: u64,
    calls: bool,
}

/// Result of the program under test.
#[derive(Debug, Serialize, Deserialize)]
struct Produced {
    events: u64,
    warm_up: u64,
    /// Its duration, as a multiple of the planned one.
    stretched: f64,
}

fn try_rate(plan: &Plan, lttng: Option<&Lttng>, rate: f64) -> Result<Trial, Error> {
    let scratch = Scratch::new(plan.folder.as_deref())?;
    let trace = scratch.path().join("trace");
    let library: &Path = lttng.map_or(&plan.library, Lttng::library);
    let subject =
        Subject { tompion: &plan.tompion, what: "produce", event: Some(library), folder: scratch.path() };
    let milliseconds = (plan.time.as_millis() as u64).max(1);
    let spec = Spec { producers: plan.producers, rate, milliseconds, calls: plan.load.has_calls() };
    let produced: Produced = match lttng {
        Some(lttng) => {
            let session = lttng.start(&trace, plan.buffers, Timer::WakeUps)?;
            let produced = subject.run(&spec)?;
            session.finish()?;
            produced
        }
        None => {
            let mut options = recording::ring_options(plan.buffers);
            options.extend(["-e".into(), "npt:*".into()]);
            options.extend(plan.load.kernel().map(OsString::from));
            subject.run_recorded(&spec, &trace, &options)?
        }
    };
    let arrived = Arrived::count(&trace)?;
    if plan.load.has_calls() && arrived.others == 0 {
        return Err(Error::Failed(
            "the kernel could not be recorded: run as root, and see `tompion doctor`".into(),
        ));
    }
    let lost = produced.events.saturating_sub(arrived.loops);
    let lost_in_warm_up = produced.warm_up.saturating_sub(arrived.warm_up);
    let reported: u64 = arrived.lost.values().sum();
    let kernel_lost = reported.saturating_sub(lost + lost_in_warm_up);
    let seconds = milliseconds as f64 / 1e3 * produced.stretched;
    Ok(Trial {
        rate,
        reached: produced.events as f64 / seconds,
        events: produced.events,
        lost,
        kernel_events: arrived.others,
        kernel_lost,
        borne: lost == 0 && kernel_lost == 0 && produced.stretched <= STRETCHED,
    })
}

/// Before events are counted, bursts with pauses touch the rings.
const WARM_BURSTS: u64 = 48;
const WARM_EVENTS: u64 = 4000;
const WARM_PAUSE: Duration = Duration::from_millis(5);
const MILLISECOND: Duration = Duration::from_millis(1);

/// The program under test: `tompion test produce SPEC RESULT`.
///
/// Each thread records its share in each millisecond and sleeps for the rest of it, if there is
/// any.
///
/// # Errors
/// If there are fewer CPUs than threads, or the events are not recorded.
pub fn produce(spec: &str, result: &Path) -> Result<(), Error> {
    let spec: Spec = serde_json::from_str(spec).map_err(|error| {
        Error::Failed(format!("expected what `tompion test maxrate` says, found {error}"))
    })?;
    let event = LoopEvent::find()
        .ok_or_else(|| Error::Failed("the library with the loop's event was not loaded".into()))?;
    npt::wait_until_enabled(event)?;
    let mut cpus = tompion_os::allowed_cpus();
    cpus.reverse();
    cpus.truncate(spec.producers as usize);
    let together = Barrier::new(cpus.len());
    let (spec, together) = (&spec, &together);
    let stretched = std::thread::scope(|scope| {
        let threads: Vec<_> =
            cpus.iter().map(|cpu| scope.spawn(move || produce_on(*cpu, spec, event, together))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).fold(0.0, f64::max)
    });
    let threads = cpus.len() as u64;
    let events = (spec.rate / 1e3 / f64::from(spec.producers) * spec.milliseconds as f64) as u64;
    let (events, warm_up) = (events * threads, WARM_BURSTS * WARM_EVENTS * threads);
    recording::leave(&Produced { events, warm_up, stretched }, result)
}

fn produce_on(cpu: u32, spec: &Spec, event: LoopEvent, together: &Barrier) -> f64 {
    let _ = tompion_os::set_affinity(0, &[cpu]);
    for _ in 0..WARM_BURSTS {
        (0..WARM_EVENTS).for_each(|_| event.record(0, 0));
        std::thread::sleep(WARM_PAUSE);
    }
    together.wait();
    let per_millisecond = spec.rate / 1e3 / f64::from(spec.producers);
    let begin = Instant::now();
    let mut done = 0;
    for turn in 1..=spec.milliseconds {
        let due = (per_millisecond * turn as f64) as u64;
        while done < due {
            done += 1;
            event.record(done, 0);
            if spec.calls {
                tompion_os::gettid();
            }
        }
        let end = begin + MILLISECOND * u32::try_from(turn).unwrap_or(u32::MAX);
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
    }
    begin.elapsed().as_secs_f64() / (spec.milliseconds as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_found_wherever_it_is() {
        for limit in [25_000.0, 1.9e6, 4e6, 3e7] {
            let mut trials = 0;
            let found = highest(1.06, |rate| {
                trials += 1;
                Ok(rate <= limit)
            });
            let found = found.unwrap();
            assert!((limit / 1.06..=limit).contains(&found), "{found}, not {limit}");
            assert!(trials <= 14, "{trials} trials for {limit}");
        }
    }

    #[test]
    fn a_recorder_that_bears_nothing_is_an_error() {
        assert!(matches!(highest(1.06, |_| Ok(false)), Err(Error::NothingBorne(_))));
    }
}
