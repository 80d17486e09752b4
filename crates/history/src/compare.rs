//! Comparison of two intervals or systems by a permutation test on the maxima of rows.
//!
//! The longest latency of a week says little about the next week: it is a single random value. So
//! the maxima of every five minutes are compared. If both sides were equal, the rows that exceed
//! every row of the other side would be spread over both by chance. The probability that all of
//! them lie on one side follows from the numbers of rows alone, whatever the distribution is.

use std::collections::BTreeMap;

use serde::Serialize;
use tompion_latency::{Histogram, Kind, of_all_cpus};

use super::{
    Error,
    query::{Choice, Longest, Period},
    report::{HistoryJob, HistoryReport},
    store::Store,
};

/// Significance level: a difference that is likelier than this is attributed to chance.
const SIGNIFICANCE: f64 = 0.01;
/// Compared quantiles, in millionths, and their names in percent.
const QUANTILES: [(u64, &str); 4] =
    [(500_000, "50"), (990_000, "99"), (999_000, "99.9"), (999_990, "99.999")];

/// Verdict on the second side, relative to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Its maxima are lower.
    Better,
    /// The difference is not significant.
    Same,
    /// Its maxima are higher.
    Worse,
}

/// One side of a comparison, for one kind or job.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// Number of latencies.
    pub count: u64,
    /// Longest latency, in microseconds.
    pub max_us: f64,
    /// Number of rows, most of them of five minutes.
    pub rows: u64,
    /// Number of rows whose maximum exceeds all maxima of the other side.
    pub rows_beyond: u64,
    /// Upper bounds of the quantiles, in microseconds, by their names in percent.
    pub below_us: BTreeMap<&'static str, f64>,
}

/// Comparison of one kind of latency.
#[derive(Clone, Debug, Serialize)]
pub struct KindComparison {
    /// Kind of latency.
    pub kind: Kind,
    /// The first and the second side.
    pub sides: [Side; 2],
    /// Verdict on the second side.
    pub verdict: Verdict,
    /// Probability that chance alone makes such a difference, from 0 to 1.
    pub chance: f64,
}

/// Comparison of one job; the lengths are response times.
#[derive(Clone, Debug, Serialize)]
pub struct JobComparison {
    /// Name of the job.
    pub name: String,
    /// The first and the second side.
    pub sides: [Side; 2],
    /// Number of missed deadlines on each side.
    pub misses: [u64; 2],
    /// Verdict on the second side.
    pub verdict: Verdict,
    /// Probability that chance alone makes such a difference, from 0 to 1.
    pub chance: f64,
}

/// Comparison of two intervals or systems.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Version of this structure.
    pub schema: u32,
    /// Name of each side.
    pub names: [String; 2],
    /// Kinds that both sides have.
    pub kinds: Vec<KindComparison>,
    /// Jobs that both sides have.
    pub jobs: Vec<JobComparison>,
    /// Full report of each side.
    pub reports: [HistoryReport; 2],
}

impl Comparison {
    /// Compares two named choices. Where their intervals are disjoint, no row is on both sides: a
    /// row across the border belongs to the earlier side, in which it begins.
    ///
    /// # Errors
    /// If the history is damaged or can't be read.
    pub fn of(store: &Store, sides: [(String, Choice); 2]) -> Result<Self, Error> {
        let ([first, second], choices) = split_at_row_end(store, sides)?;
        let rows = [Rows::of(store, &choices[0])?, Rows::of(store, &choices[1])?];
        let reports = [store.period(&choices[0])?, store.period(&choices[1])?].map(Period::report);
        let places = reports.each_ref().map(|report| of_all_cpus(&report.cpus));
        let kinds = Kind::ALL.into_iter().filter_map(|kind| {
            let rows = [rows[0].kinds.get(&kind)?, rows[1].kinds.get(&kind)?];
            let places = [places[0].get(&kind)?, places[1].get(&kind)?];
            let (sides, verdict, chance) = compare(rows.map(|rows| rows.1.as_slice()), places);
            Some(KindComparison { kind, sides, verdict, chance })
        });
        let (kinds, jobs) = (kinds.collect(), jobs(&rows, &reports));
        Ok(Self { schema: 1, names: [first, second], kinds, jobs, reports })
    }

    /// Kind that decides the overall verdict: timer wakeup of all threads if present, else of
    /// real-time threads, else the first one.
    pub fn judged_by(&self) -> Option<&KindComparison> {
        let by = [Kind::TimerWakeupAll, Kind::TimerWakeup, Kind::Wakeup];
        let known = by.iter().find_map(|kind| self.kinds.iter().find(|found| found.kind == *kind));
        known.or(self.kinds.first())
    }
}

/// Moves the begin of the later choice to the end of the earlier choice's last row.
fn split_at_row_end(
    store: &Store,
    sides: [(String, Choice); 2],
) -> Result<([String; 2], [Choice; 2]), Error> {
    let [(first, one), (second, other)] = sides;
    let mut choices = [one, other];
    let spans = choices.each_ref().map(|choice| choice.span);
    let earlier = usize::from(spans[0].from_ms > spans[1].from_ms);
    let is_of_times = choices.iter().all(|choice| choice.systems.is_none());
    if is_of_times && spans[earlier].to_ms <= spans[1 - earlier].from_ms {
        let found = store.outline(&choices[earlier])?;
        let begin = &mut choices[1 - earlier].span.from_ms;
        *begin = found.span.to_ms.max(found.coverage.last_ms).max(*begin);
    }
    Ok(([first, second], choices))
}

/// Compares the jobs that both sides have.
fn jobs(rows: &[Rows; 2], reports: &[HistoryReport; 2]) -> Vec<JobComparison> {
    let jobs = |side: usize| reports[side].jobs.iter().flat_map(|found| &found.jobs);
    let compared = |one: &HistoryJob| {
        let both = [one, jobs(1).find(|other| other.name == one.name)?];
        let rows = [rows[0].jobs.get(&one.name)?, rows[1].jobs.get(&one.name)?].map(Vec::as_slice);
        let (sides, verdict, chance) = compare(rows, both.map(|job| &job.places));
        let misses = both.map(|job| job.misses);
        Some(JobComparison { name: one.name.clone(), sides, misses, verdict, chance })
    };
    jobs(0).filter_map(compared).collect()
}

/// Maxima of rows, in nanoseconds.
#[derive(Default)]
struct Rows {
    /// Per kind, over all CPUs: begin of the last row, and the maximum of each row.
    kinds: BTreeMap<Kind, (i64, Vec<u64>)>,
    jobs: BTreeMap<String, Vec<u64>>,
}

impl Rows {
    fn of(store: &Store, choice: &Choice) -> Result<Self, Error> {
        let mut found = Self::default();
        store.maxima(choice, |longest| found.add(longest))?;
        Ok(found)
    }

    fn add(&mut self, longest: Longest<'_>) {
        match longest {
            Longest::Latency(point) => {
                let (start, rows) = self.kinds.entry(point.kind).or_insert((i64::MIN, Vec::new()));
                match rows.last_mut().filter(|_| *start == point.start_ms) {
                    Some(longest) => *longest = point.ns.max(*longest),
                    None => rows.push(point.ns),
                }
                *start = point.start_ms;
            }
            Longest::Response(response) => match self.jobs.get_mut(response.job) {
                Some(rows) => rows.push(response.ns),
                None => drop(self.jobs.insert(response.job.to_owned(), vec![response.ns])),
            },
        }
    }
}

/// Compares two sides: their statistics, the verdict on the second, and the probability of chance.
fn compare(rows: [&[u64]; 2], places: [&Histogram; 2]) -> ([Side; 2], Verdict, f64) {
    let longest = rows.map(|rows| rows.iter().copied().max().unwrap_or(0));
    let beyond = |side: usize| rows[side].iter().filter(|ns| **ns > longest[1 - side]).count() as u64;
    let side = |side: usize| Side {
        count: places[side].count(),
        max_us: longest[side] as f64 / 1000.0,
        rows: rows[side].len() as u64,
        rows_beyond: beyond(side),
        below_us: QUANTILES
            .iter()
            .map(|(share, name)| (*name, below_us(places[side], *share, longest[side])))
            .collect(),
    };
    let sides = [side(0), side(1)];
    // Only the side with the longest latency has rows beyond the other.
    let late = usize::from(longest[1] > longest[0]);
    let chance = chance(sides[late].rows_beyond, sides[late].rows, sides[1 - late].rows);
    let verdict = match late {
        _ if chance >= SIGNIFICANCE => Verdict::Same,
        0 => Verdict::Better,
        _ => Verdict::Worse,
    };
    (sides, verdict, chance)
}

fn below_us(places: &Histogram, millionths: u64, longest: u64) -> f64 {
    places.below_millionths(millionths).unwrap_or(0).min(longest) as f64 / 1000.0
}

/// Probability that the `beyond` highest of all rows lie on one side by chance. Rows are drawn
/// without replacement.
fn chance(beyond: u64, own: u64, others: u64) -> f64 {
    let all_of = |own: u64, others: u64| {
        let share = |drawn: u64| {
            own.saturating_sub(drawn) as f64 / (own + others).saturating_sub(drawn).max(1) as f64
        };
        (0..beyond).map(share).product::<f64>()
    };
    (all_of(own, others) + all_of(others, own)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(places: &[(u64, u64)]) -> Histogram {
        let mut histogram = Histogram::default();
        places.iter().for_each(|(us, count)| histogram.add(us * 1000, us * 1000 + 1000, *count));
        histogram
    }

    fn compared(first: &[u64], second: &[u64]) -> KindComparison {
        let places = histogram(&[(3, 999_000), (9, 989), (50, 11)]);
        let (sides, verdict, chance) = compare([first, second], [&places, &places]);
        KindComparison { kind: Kind::Wakeup, sides, verdict, chance }
    }

    #[test]
    fn one_longer_row_of_many_is_chance_and_many_are_not() {
        let usual: Vec<u64> = (0..200).map(|row| 50_000 + row * 17 % 1000).collect();
        let mut one_late = usual.clone();
        one_late[7] = 900_000;
        let found = compared(&usual, &one_late);
        assert_eq!(
            (found.verdict, found.sides[1].rows_beyond, found.sides[0].rows_beyond),
            (Verdict::Same, 1, 0)
        );
        assert!((found.chance - 1.0).abs() < 1e-9, "one of two sides has it: {}", found.chance);
        let late: Vec<u64> = usual.iter().map(|ns| ns + 600).collect();
        let found = compared(&usual, &late);
        assert!(found.verdict == Verdict::Worse && found.chance < 1e-9, "{found:?}");
        assert_eq!(compared(&late, &usual).verdict, Verdict::Better);
        assert_eq!(compared(&usual, &usual).verdict, Verdict::Same);
        // A few rows are not significant.
        assert_eq!(compared(&[1, 2, 3], &[4, 5, 6]).verdict, Verdict::Same);
    }

    #[test]
    fn the_chance_is_that_of_drawing() {
        assert!((chance(2, 5, 5) - 2.0 * (5.0 / 10.0) * (4.0 / 9.0)).abs() < 1e-12);
        assert_eq!((chance(0, 5, 5), chance(3, 0, 5)), (1.0, (5.0 / 5.0)));
    }

    #[test]
    fn shares_are_those_of_the_histogram() {
        let side = &compared(&[60_000], &[60_000]).sides[0];
        assert_eq!((side.count, side.below_us["50"], side.below_us["99.9"]), (1_000_000, 4.0, 4.0));
        assert_eq!((side.below_us["99.999"], side.max_us), (51.0, 60.0));
    }
}
