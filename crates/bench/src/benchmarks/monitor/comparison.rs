//! Comparison of the same wakeups by two measurements: matched one by one, fitted by a line, and
//! asked for the longest of each tenth of a second.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail};

/// A wake-up that both saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The thread.
    pub tid: u32,
    /// Intended time, in nanoseconds.
    pub intended: u64,
    /// Latency by the monitor, in microseconds.
    pub monitor: f64,
    /// Latency by the program, in microseconds.
    pub program: f64,
    /// Whether no interrupt came between the switch to the thread and its look at the clock.
    pub alone: bool,
}

/// Wake-ups by both measurements.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// Wakeups that both saw.
    pub matched: Vec<Pair>,
    /// Number of wakeups that the program saw alone.
    pub unmatched: u64,
    /// Delays that were made on purpose.
    pub delays: u64,
}

/// A line through pairs, by least squares: the program's value from the monitor's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Growth of the program's latency where the monitor's grows by one.
    pub slope: f64,
    /// Program's latency where the monitor's is zero, in microseconds.
    pub intercept: f64,
    /// Pearson's correlation.
    pub r: f64,
}

/// Intervals in which the longest is looked for, in nanoseconds.
const INTERVAL: u64 = 100_000_000;
/// Two are called the same length if they differ by no more: microseconds, and share.
const SAME_US: f64 = 3.0;
const SAME_SHARE: f64 = 0.03;

impl Pairs {
    /// Reads what the program `accuracy` writes, and matches by thread and intended time.
    pub fn parse(text: &str) -> Result<Self> {
        let mut pairs = Self::default();
        let (mut program, mut monitor) = (Vec::new(), HashMap::new());
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| -> Result<u64> {
                words[at].parse().with_context(|| format!("expected a number: {line}"))
            };
            match words[..] {
                ["program", _, _, _, how] => {
                    program.push((number(1)?, number(2)?, number(3)?, how == "alone"));
                }
                ["monitor", _, _, _] => {
                    monitor.insert((number(1)?, number(2)?), number(3)?);
                }
                ["delays", _] => pairs.delays = number(1)?,
                _ => bail!("expected a wake-up, found: {line}"),
            }
        }
        let late = |running: u64, intended: u64| (running as f64 - intended as f64) / 1e3;
        for (tid, intended, running, alone) in program {
            let Some(&ran) = monitor.get(&(tid, intended)) else {
                pairs.unmatched += 1;
                continue;
            };
            let (monitor, program) = (late(ran, intended), late(running, intended));
            pairs.matched.push(Pair { tid: tid as u32, intended, monitor, program, alone });
        }
        Ok(pairs)
    }

    /// Adds the wakeups of another measurement.
    pub fn and(mut self, other: &Self) -> Self {
        self.matched.extend(&other.matched);
        self.unmatched += other.unmatched;
        self.delays += other.delays;
        self
    }

    /// Share of the matched wakeups in which an interrupt came between.
    pub fn interrupted(&self) -> f64 {
        self.matched.iter().filter(|pair| !pair.alone).count() as f64 / self.matched.len().max(1) as f64
    }

    /// The line through all; or through those alone in which no interrupt came between. None
    /// without two that differ.
    pub fn fit(&self, alone: bool) -> Option<Fit> {
        let wanted = || self.matched.iter().filter(move |pair| pair.alone || !alone);
        let count = wanted().count() as f64;
        let mean = |value: fn(&Pair) -> f64| wanted().map(value).sum::<f64>() / count;
        let (x, y) = (mean(|pair| pair.monitor), mean(|pair| pair.program));
        let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
        for pair in wanted() {
            let (dx, dy) = (pair.monitor - x, pair.program - y);
            xx += dx * dx;
            xy += dx * dy;
            yy += dy * dy;
        }
        let slope = xy / xx;
        (xx > 0.0 && yy > 0.0).then(|| Fit { slope, intercept: y - slope * x, r: xy / (xx * yy).sqrt() })
    }

    /// In what share of the intervals of each thread the wake-up that was the longest for the
    /// program was so for the monitor too, or as long; and how many intervals there were.
    pub fn same_longest(&self) -> (f64, usize) {
        let mut intervals: BTreeMap<(u32, u64), Vec<&Pair>> = BTreeMap::new();
        for pair in &self.matched {
            intervals.entry((pair.tid, pair.intended / INTERVAL)).or_default().push(pair);
        }
        let longest = |pairs: &[&Pair], value: fn(&Pair) -> f64| {
            pairs
                .iter()
                .map(|pair| (value(pair), pair.monitor))
                .max_by(|one, other| one.0.total_cmp(&other.0))
        };
        let is_same = |pairs: &&Vec<&Pair>| {
            let by_program = longest(pairs, |pair| pair.program);
            let by_monitor = longest(pairs, |pair| pair.monitor);
            by_program
                .zip(by_monitor)
                .is_some_and(|((_, chosen), (most, _))| most - chosen <= SAME_US.max(SAME_SHARE * most))
        };
        let same = intervals.values().filter(is_same).count();
        (same as f64 / intervals.len().max(1) as f64, intervals.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
program 7 1000000 1012000 alone
program 7 2000000 2403000 interrupted
program 7 3000000 3021000 alone
program 8 1000000 1050000 alone
monitor 7 1000000 1010000
monitor 7 2000000 2400000
monitor 7 3000000 3020000
monitor 9 1000000 1010000
delays 5
";

    #[test]
    fn wake_ups_are_matched_by_thread_and_time() {
        let pairs = Pairs::parse(TEXT).unwrap();
        assert_eq!((pairs.matched.len(), pairs.unmatched, pairs.delays), (3, 1, 5));
        let second = pairs.matched[1];
        assert_eq!((second.monitor, second.program, second.alone), (400.0, 403.0, false));
        assert!((pairs.interrupted() - 1.0 / 3.0).abs() < 1e-9);
        assert!((pairs.fit(true).unwrap().slope - 0.9).abs() < 1e-9, "(10, 12) and (20, 21)");
        assert!(Pairs::parse("program 7 x 1").is_err() && Pairs::parse("what").is_err());
        assert_eq!(Pairs::parse(TEXT).unwrap().and(&pairs).matched.len(), 6);
    }

    fn pairs(values: &[(u64, f64, f64)]) -> Pairs {
        let pair = |&(ms, monitor, program): &(u64, f64, f64)| Pair {
            tid: 1,
            intended: ms * 1_000_000,
            monitor,
            program,
            alone: true,
        };
        Pairs { matched: values.iter().map(pair).collect(), ..Pairs::default() }
    }

    #[test]
    fn a_line_goes_through_points_on_a_line() {
        let on_a_line = pairs(&[(1, 0.0, 1.5), (2, 100.0, 101.7), (3, 200.0, 201.9)]);
        let fit = on_a_line.fit(true).unwrap();
        assert!((fit.slope - 1.002).abs() < 1e-9 && (fit.intercept - 1.5).abs() < 1e-9, "{fit:?}");
        assert!((fit.r - 1.0).abs() < 1e-9);
        let scattered = pairs(&[(1, 0.0, 9.0), (2, 100.0, 10.0), (3, 200.0, 9.0)]);
        assert!(scattered.fit(true).unwrap().r.abs() < 1e-9);
        assert_eq!(pairs(&[(1, 5.0, 5.0)]).fit(false), None);
    }

    #[test]
    fn the_longest_of_an_interval_is_the_same_or_as_long() {
        let same = [(1, 10.0, 11.0), (2, 300.0, 302.0)];
        let as_long = [(101, 300.0, 310.0), (102, 302.0, 305.0)];
        let another = [(201, 10.0, 300.0), (202, 200.0, 201.0)];
        let all = [same, as_long, another].concat();
        assert_eq!(pairs(&all).same_longest(), (2.0 / 3.0, 3));
        assert_eq!(pairs(&[]).same_longest(), (0.0, 0));
    }
}
