//! Verdict on a report: its most important figures, each with a grade and a sentence.

use tompion_rttest::campaign::Who;

use crate::{
    document::{Document, State},
    figures::{self, MEASURES, UNDISTURBED},
    format::{format_duration, pluralize, with_thousands},
};

/// Grade of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// The result is as it should be.
    Good,
    /// Passed, with a reservation.
    Marginal,
    /// Failed.
    Bad,
}

/// Point of a verdict.
pub struct Point {
    /// Grade of this point.
    pub grade: Grade,
    /// Name of what is judged.
    pub what: &'static str,
    /// Figure, with its unit.
    pub figure: String,
    /// Explanation of the figure.
    pub meaning: String,
}

/// All points, and the judgement that follows from them.
pub struct Verdict {
    /// Grade of the whole.
    pub grade: Grade,
    /// Sentence that sums it up.
    pub headline: String,
    /// Points, the most important first.
    pub points: Vec<Point>,
}

/// Judges a report.
pub fn judge(document: &Document) -> Verdict {
    let points: Vec<Point> = [
        wake_ups(document),
        wake_ups_recorded(document),
        Some(preemption(document)),
        Some(hardware(document)),
        event(document),
        wholeness(document),
        Some(settings(document)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let limit = format_duration(document.limit_ns as f64);
    let keeps = |what| points.iter().any(|point: &Point| point.what == what && point.grade != Grade::Bad);
    let headline = match (keeps(WAKE_UPS), keeps(WAKE_UPS_RECORDED)) {
        (true, true) => format!("Wakeup latency stayed within {limit}, also while the kernel was recorded."),
        (true, false) if document.max_wakeup_latency_ns(Who::Kernel).is_none() => {
            format!("Wakeup latency stayed within {limit}. It could not be measured while recording.")
        }
        (true, false) => {
            format!("Wakeup latency stayed within {limit}, but not while the kernel was recorded.")
        }
        (false, _) => format!("Wakeup latency exceeded {limit}, even without recording."),
    };
    let is_kept =
        keeps(WAKE_UPS) && points.iter().all(|point| point.what != PREEMPTION || point.grade == Grade::Good);
    let worst = points.iter().map(|point| point.grade).max().unwrap_or(Grade::Good);
    let grade = if is_kept { worst.min(Grade::Marginal) } else { Grade::Bad };
    Verdict { grade, headline, points }
}

impl Verdict {
    /// Returns the judgement in at most three words.
    pub const fn words(&self) -> &'static str {
        match self.grade {
            Grade::Good => "Fit",
            Grade::Marginal => "Fit, with reservations",
            Grade::Bad => "Not fit",
        }
    }
}

const WAKE_UPS: &str = "Max wakeup latency";
const WAKE_UPS_RECORDED: &str = "Max wakeup latency, kernel recorded";
const PREEMPTION: &str = "Priorities";

fn against_limit(document: &Document, latest: f64) -> Grade {
    match latest / document.limit_ns.max(1) as f64 {
        ..=0.8 => Grade::Good,
        ..=1.0 => Grade::Marginal,
        _ => Grade::Bad,
    }
}

fn wake_ups(document: &Document) -> Option<Point> {
    let latest = document.max_wakeup_latency_ns(Who::None)?;
    let cpus = pluralize(document.results.hwgap.cpus.len() as u64, "CPU");
    let interval = format_duration(document.results.interval_ns as f64);
    Some(Point {
        grade: against_limit(document, latest),
        what: WAKE_UPS,
        figure: format_duration(latest),
        meaning: format!(
            "a real-time thread on each of {cpus}, woken every {interval}; the limit is {}",
            format_duration(document.limit_ns as f64)
        ),
    })
}

fn wake_ups_recorded(document: &Document) -> Option<Point> {
    let (alone, latest) =
        (document.max_wakeup_latency_ns(Who::None)?, document.max_wakeup_latency_ns(Who::Kernel)?);
    Some(Point {
        grade: against_limit(document, latest),
        what: WAKE_UPS_RECORDED,
        figure: format_duration(latest),
        meaning: format!(
            "the same while Tompion recorded the kernel; without, it was {}",
            format_duration(alone)
        ),
    })
}

fn preemption(document: &Document) -> Point {
    let preempt = &document.results.preempt;
    let ways = [&preempt.by_thread, &preempt.by_timer];
    let rounds: u64 = ways.iter().map(|way| way.rounds).sum();
    let preempted: u64 = ways.iter().map(|way| way.preempted).sum();
    let longest = ways.iter().map(|way| way.until_running.max_ns).fold(0.0, f64::max);
    let has_priorities = preempt.threads.iter().all(|thread| thread.fifo.is_some());
    let meaning = if has_priorities {
        format!(
            "a thread of higher priority preempted a lower one, within {} at most",
            format_duration(longest)
        )
    } else {
        "the threads had no real-time priority: run the test as root".into()
    };
    Point {
        grade: if has_priorities && preempted == rounds { Grade::Good } else { Grade::Bad },
        what: PREEMPTION,
        figure: format!("{} of {}", with_thousands(preempted), with_thousands(rounds)),
        meaning,
    }
}

fn hardware(document: &Document) -> Point {
    let hwgap = &document.results.hwgap;
    let longest = hwgap.gaps.iter().map(|gap| gap.ns).max().unwrap_or(0);
    let at_once = hwgap.at_once.len() as u64;
    let grade = match longest {
        0 => Grade::Good,
        ns if ns <= document.limit_ns => Grade::Marginal,
        _ => Grade::Bad,
    };
    let cause = if document.is_virtual() { "the hypervisor" } else { "firmware or hardware" };
    Point {
        grade,
        what: "Hardware gaps",
        figure: if longest == 0 { "none".into() } else { format_duration(longest as f64) },
        meaning: if longest == 0 {
            "no unexplained gap above 10 µs".into()
        } else {
            format!(
                "longest gap that software does not explain ({cause}); all CPUs at once {}",
                pluralize(at_once, "time")
            )
        },
    }
}

fn event(document: &Document) -> Option<Point> {
    // The median: the mean includes a few gaps that the machine lengthened.
    let of = |who, measure| Some(figures::spread(figures::of(document, who)?, UNDISTURBED, measure).median);
    let addition = |measure| Some(of(Who::User, measure)? - of(Who::None, measure)?);
    let (usual, rare) = (addition(MEASURES[1])?, addition(MEASURES[4])?);
    let rare =
        if rare > 0.0 { format!("at most {} longer", format_duration(rare)) } else { "no longer".into() };
    Some(Point {
        grade: Grade::Good,
        what: "Cost of an event",
        figure: format_duration(usual.max(0.0)),
        meaning: format!("median cost of a recorded event; 99.99 % of iterations take {rare}"),
    })
}

fn wholeness(document: &Document) -> Option<Point> {
    let recorded: Vec<(u64, u64)> = document.results.npt.iter().map(figures::losses).collect();
    let lost: u64 = recorded.iter().map(|(lost, _)| lost).sum();
    let arrived: u64 = recorded.iter().map(|(_, arrived)| arrived).sum();
    (lost + arrived > 0).then(|| Point {
        grade: if lost == 0 { Grade::Good } else { Grade::Marginal },
        what: "Traces",
        figure: if lost == 0 { "complete".into() } else { format!("{} lost", with_thousands(lost)) },
        meaning: if lost == 0 {
            format!("all {} recorded events are in the trace", with_thousands(arrived))
        } else {
            format!("of {} events; use larger buffers (--subbuf-size)", with_thousands(lost + arrived))
        },
    })
}

fn settings(document: &Document) -> Point {
    let count = |state| document.settings.iter().filter(|setting| setting.state == state).count();
    let (bad, drawbacks) = (count(State::Bad), count(State::Drawback));
    Point {
        grade: if bad != 0 { Grade::Bad } else { Grade::Good },
        what: "Settings",
        figure: if bad == 0 { "none bad".into() } else { format!("{bad} bad") },
        meaning: format!(
            "of {}; {} cost some latency; see below for how to change them",
            pluralize(document.settings.len() as u64, "setting"),
            drawbacks
        ),
    }
}

#[cfg(test)]
mod tests {
    use tompion_rttest::{
        campaign::{Results, Wakeups},
        cyclic::{Measured, Outcome},
        hwgap, preempt,
    };

    use super::*;

    fn wakeups(recorder: Who, max_ns: f64) -> Wakeups {
        let late = tompion_rttest::accumulator::Summary { max_ns, ..Default::default() };
        let cpus = vec![Measured { prepared: Default::default(), late, missed: 0 }];
        Wakeups { recorder, outcome: Outcome { cpus, broken: None, could_not: Vec::new() }, trace: None }
    }

    fn document(latest: [f64; 2], preempted: u64) -> Document {
        let way = preempt::Way { rounds: 10, preempted, until_running: Default::default() };
        let thread = tompion_rttest::prepare::Prepared { fifo: Some(1), ..Default::default() };
        let threads = [thread.clone(), thread];
        let results = Results {
            loads: Vec::new(),
            could_not: Vec::new(),
            hwgap: hwgap::Outcome {
                cpus: Vec::new(),
                gaps: Vec::new(),
                at_once: Vec::new(),
                could_not: Vec::new(),
            },
            preempt: preempt::Outcome { threads, by_thread: way.clone(), by_timer: way },
            cyclic: vec![wakeups(Who::None, latest[0]), wakeups(Who::Kernel, latest[1])],
            interval_ns: 1_000_000,
            rate: 1e5,
            npt: Vec::new(),
        };
        Document {
            test: "report".into(),
            format: 1,
            name: "x".into(),
            tompion: "0".into(),
            made: "now".into(),
            took_s: 1.0,
            limit_ns: 100_000,
            machine: Vec::new(),
            settings: Vec::new(),
            results,
        }
    }

    #[test]
    fn the_limit_and_priorities_decide() {
        for (latest, preempted, grade, words) in [
            ([50e3, 60e3], 10, Grade::Good, "also while the kernel was recorded"),
            ([50e3, 90e3], 10, Grade::Marginal, "also while the kernel was recorded"),
            ([50e3, 200e3], 10, Grade::Marginal, "but not while the kernel was recorded"),
            ([200e3, 50e3], 10, Grade::Bad, "exceeded 100 µs"),
            ([50e3, 50e3], 9, Grade::Bad, "stayed within"),
        ] {
            let verdict = judge(&document(latest, preempted));
            assert_eq!(verdict.grade, grade, "{latest:?}");
            assert!(verdict.headline.contains(words), "{}", verdict.headline);
        }
    }

    #[test]
    fn a_page_without_some_results_is_complete() {
        let page = crate::page::of_report(&document([50e3, 60e3], 10));
        assert!(page.contains("<div class=\"words\">Fit</div>") && !page.contains("NaN"), "{page}");
    }
}
