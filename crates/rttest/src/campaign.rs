//! Campaign: measures what the machine does by itself and with each recorder, all under the same
//! load.
//!
//! ```text
//! load   ───────────────────────────────────────────────────────────────
//! steps  hwgap   preempt   cyclic   cyclic, kernel recorded   npt × recorders × rounds
//! ```
//!
//! Recorders alternate in each round, so that a change of the machine touches them all alike.

use std::{path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    Error, cyclic, hwgap,
    load::{Load, Running},
    npt::{self, Outcome, Recorder, Trace},
    peer::{Lttng, Timer},
    preempt,
    recording::{self, Arrived, Scratch, Subject},
};

/// Plan of a campaign.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The loop: where, with what buffers; how many loops is found from the time.
    pub npt: npt::Plan,
    /// Loops in a second.
    pub rate: f64,
    /// The CPUs on which threads are woken and gaps are looked for.
    pub cpus: Vec<u32>,
    /// Priority of threads under SCHED_FIFO.
    pub priority: u32,
    /// Interval between two wakeups.
    pub interval: Duration,
    /// Approximate duration of all tests together.
    pub duration: Duration,
    /// Number of turns of each recorder.
    pub rounds: u32,
    /// Loads in the background.
    pub loads: Vec<Load>,
}

/// Results of a campaign.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Loads in the background.
    pub loads: Vec<Load>,
    /// Measurements that failed, and why, a line each.
    pub could_not: Vec<String>,
    /// Gaps that no software explains.
    pub hwgap: hwgap::Outcome,
    /// Whether priorities hold.
    pub preempt: preempt::Outcome,
    /// Latencies of wakeups: nothing recorded, and then the kernel.
    pub cyclic: Vec<Wakeups>,
    /// Interval between two wakeups, in nanoseconds.
    pub interval_ns: u64,
    /// Loops in a second.
    pub rate: f64,
    /// The loop with each recorder.
    pub npt: Vec<Loops>,
}

/// Wake-ups while something is recorded, or nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wakeups {
    /// Recorder that ran beside the test, or none.
    pub recorder: Who,
    /// Outcome.
    pub outcome: cyclic::Outcome,
    /// Events that arrived in the trace.
    pub trace: Option<Arrived>,
}

/// The loop's runs with one recorder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Loops {
    /// Recorder that was measured, or none.
    pub recorder: Who,
    /// Results of the runs, one for each round.
    pub runs: Vec<Outcome>,
}

/// Recorder and its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// No recorder; there is no event.
    #[serde(rename = "nobody")]
    None,
    /// No recorder, though there is an event.
    Disabled,
    /// Tompion, the event.
    User,
    /// Tompion, the kernel.
    Kernel,
    /// Tompion, both.
    Both,
    /// LTTng-UST, the event, with a read timer.
    LttngTimer,
    /// LTTng-UST, the event, with its defaults.
    LttngWakeUps,
}

impl Who {
    /// All, in the order of their turns.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Disabled,
        Self::User,
        Self::LttngTimer,
        Self::LttngWakeUps,
        Self::Kernel,
        Self::Both,
    ];

    /// Name in tables and plots.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "nothing recorded",
            Self::Disabled => "event not recorded",
            Self::User => "Tompion",
            Self::Kernel => "Tompion, the kernel",
            Self::Both => "Tompion, kernel too",
            Self::LttngTimer => "LTTng, read timer",
            Self::LttngWakeUps => "LTTng, wakeups",
        }
    }

    /// LTTng's read timer, in microseconds, as in the papers' measurements.
    pub const READ_TIMER: u32 = 10_000;

    fn recorder(self, lttng: Option<&Lttng>) -> Option<Recorder<'_>> {
        let tompion = |trace| Some(Recorder::Tompion(trace));
        match self {
            Self::None => tompion(Trace::None),
            Self::Disabled => tompion(Trace::Disabled),
            Self::User => tompion(Trace::User),
            Self::Kernel => tompion(Trace::Kernel),
            Self::Both => tompion(Trace::Both),
            Self::LttngTimer => Some(Recorder::Lttng(lttng?, Timer::Period(Self::READ_TIMER))),
            Self::LttngWakeUps => Some(Recorder::Lttng(lttng?, Timer::WakeUps)),
        }
    }
}

/// Parts of the time.
const HWGAP_SHARE: f64 = 0.1;
const CYCLIC_SHARE: f64 = 0.2;
const NPT_SHARE: f64 = 0.5;
/// The loop rests, and each run starts and ends programs: so much of its time it loops.
const LOOPING: f64 = 0.6;
/// Fewer loops say nothing.
const FEWEST: f64 = 10_000.0;
const PREEMPT_ROUNDS: u64 = 1000;
const GAP: Duration = Duration::from_micros(10);
const WINDOW: Duration = Duration::from_millis(100);
const WIDTH: Duration = Duration::from_millis(80);

/// Runs it; `progress` hears of each step.
///
/// # Errors
/// The machine alone can't be measured. What a recorder can't do is told in the result.
pub fn run(plan: &Plan, lttng: Option<&Lttng>, progress: &mut dyn FnMut(&str)) -> Result<Results, Error> {
    let mut running = Running::start(&plan.loads)?;
    let share = |part: f64| plan.duration.mul_f64(part);
    progress("gaps of the hardware");
    let hwgap = hwgap::run(
        &hwgap::Config {
            cpus: plan.cpus.clone(),
            duration: share(HWGAP_SHARE),
            threshold: GAP,
            window: WINDOW,
            width: WIDTH,
            priority: plan.priority,
        },
        &std::sync::Arc::default(),
    )?;
    progress("preemption");
    let lower = plan.priority.clamp(2, 99) - 1;
    let preempt =
        preempt::run(preempt::Config { cpu: plan.npt.options.cpu, priority: lower, rounds: PREEMPT_ROUNDS })?;
    let mut could_not = Vec::new();
    let mut cyclic = Vec::new();
    for who in [Who::None, Who::Kernel] {
        progress(&format!("wakeup latency, {}", who.name()));
        match wake_ups(plan, who, share(CYCLIC_SHARE)) {
            Ok(wakeups) => cyclic.push(wakeups),
            Err(error) if who == Who::None => return Err(error),
            Err(error) => could_not.push(format!("record the kernel during wakeups: {error}")),
        }
    }
    let npt = loops(plan, lttng, &mut could_not, progress)?;
    let ended = running.ended();
    could_not.extend(
        ended.iter().map(|load| format!("keep the load {} running: it ended by itself", load.name())),
    );
    let interval_ns = plan.interval.as_nanos() as u64;
    Ok(Results {
        loads: plan.loads.clone(),
        could_not,
        hwgap,
        preempt,
        cyclic,
        interval_ns,
        rate: plan.rate,
        npt,
    })
}

fn wake_ups(plan: &Plan, recorder: Who, time: Duration) -> Result<Wakeups, Error> {
    let scratch = Scratch::new(None)?;
    let subject = Subject { tompion: &plan.npt.tompion, what: "wake", event: None, folder: scratch.path() };
    let config = cyclic::Config {
        cpus: plan.cpus.clone(),
        interval: plan.interval,
        loops: None,
        duration: Some(time),
        wakeup: cyclic::Wakeup::Nanosleep,
        policy: cyclic::Policy::Fifo(plan.priority),
        break_at: None,
        recorder: None,
    };
    if recorder == Who::None {
        return Ok(Wakeups { recorder, outcome: subject.run(&config)?, trace: None });
    }
    let trace = scratch.path().join("trace");
    let mut options = recording::ring_options(plan.npt.buffers);
    options.push("-k".into());
    let outcome = subject.run_recorded(&config, &trace, &options)?;
    Ok(Wakeups { recorder, outcome, trace: Some(Arrived::count(&trace)?) })
}

/// The program under test of the wake-ups: `tompion test wake SPEC RESULT`.
///
/// # Errors
/// If nothing can be measured.
pub fn run_wakeups(spec: &str, result: &Path) -> Result<(), Error> {
    let config = serde_json::from_str(spec)
        .map_err(|error| Error::Failed(format!("expected what `tompion test report` says, found {error}")))?;
    let running = cyclic::start(config);
    while running.goes_on() {
        std::thread::sleep(Duration::from_millis(20));
    }
    recording::leave(&running.finish()?, result)
}

fn loops(
    plan: &Plan,
    lttng: Option<&Lttng>,
    could_not: &mut Vec<String>,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Loops>, Error> {
    let wanted = Who::ALL.into_iter().filter(|who| who.recorder(lttng).is_some());
    let mut found: Vec<Loops> = wanted.map(|recorder| Loops { recorder, runs: Vec::new() }).collect();
    let turns = f64::from(plan.rounds.max(1)) * found.len() as f64;
    let seconds = plan.duration.as_secs_f64() * NPT_SHARE / turns * LOOPING;
    let npt = npt::Plan {
        loops: (plan.rate * seconds).max(FEWEST) as u64,
        rate: Some(plan.rate),
        output: None,
        ..plan.npt.clone()
    };
    for round in 1..=plan.rounds.max(1) {
        let mut place = 0;
        while let Some(turn) = found.get_mut(place) {
            let name = turn.recorder.name();
            progress(&format!("the loop, round {round} of {}: {name}", plan.rounds.max(1)));
            let Some(recorder) = turn.recorder.recorder(lttng) else { break };
            match npt::run(&npt, recorder) {
                Ok(outcome) => turn.runs.push(outcome),
                Err(error) if turn.recorder == Who::None => return Err(error),
                Err(error) => {
                    could_not.push(format!("measure {name}: {error}"));
                    found.remove(place);
                    continue;
                }
            }
            place += 1;
        }
    }
    Ok(found)
}
