//! Conversion of TSC ticks to nanoseconds of CLOCK_MONOTONIC.
//!
//! Between two samples of both clocks time runs in a straight line. Where the kernel changed its
//! clock's rate between two samples (NTP, `adjtimex`), the line has a break, which is put where the
//! lines of the neighbouring intervals meet: the line before the break goes on from the left, the
//! one after it comes from the right. Otherwise a rate change of 500 ppm between samples 100 ms
//! apart would be wrong by more than 6 µs in the middle.

#![forbid(unsafe_code)]

use tompion_os::ClockPair;

/// Maximum distance of a sample from the line of its neighbours at which it is still dropped, in
/// nanoseconds.
const COLLINEAR_NS: f64 = 12.0;
/// Longest interval that dropping samples may leave, in nanoseconds.
const MAX_INTERVAL_NS: u64 = 10_000_000_000;
/// Shortest stretch that says at which rate the clock went beside a break: sampling is exact to
/// some ten nanoseconds, and samples may be taken at once behind another.
const MIN_INTERVAL_NS: u64 = 15_000_000;
/// A rate that differs by less than this is the same rate: sampling is exact to some ten
/// nanoseconds.
const SAME_RATE_NS: f64 = 40.0;

/// Maximum distance of a moment from the samples, in nanoseconds. Rings are read before the newest
/// sample is taken, and made after the first.
const SLACK_NS: u64 = 1_000_000_000;
/// The same where the newest samples may not have reached the medium when the machine stopped.
const SLACK_AFTER_STOP_NS: u64 = 600_000_000_000;

/// A run of samples, and the conversion between them.
#[derive(Clone, Debug)]
pub struct ClockMap {
    /// Samples, at least one; both clocks strictly increase.
    samples: Vec<ClockPair>,
    /// Whether the newest one gives way to the next.
    is_passing: bool,
    /// Index of the interval that was used last.
    last: usize,
    /// Its conversion, on the side of its break that was used last.
    line: Line,
    /// Maximum distance of a moment behind the newest sample, in nanoseconds.
    slack_ns: u64,
}

/// A straight conversion between two samples, between one and a break, or behind the newest, in
/// integers: a division for each event would cost more than all else, and so would looking for the
/// break.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    /// Tick count at its left end, and how many ticks it is to the right one.
    from: u64,
    ticks: u64,
    /// Moment of its left end, and that at or behind its right one, which no rounding goes beyond.
    ns: u64,
    latest: u64,
    /// Nanoseconds per tick, times 2 to the power of [`Line::SHIFT`].
    slope: u64,
}

impl Line {
    const SHIFT: u32 = 48;

    /// The line between two samples, unless time runs too fast for it to be held.
    fn new(left: ClockPair, right: ClockPair) -> Self {
        let ticks = right.tsc - left.tsc;
        let slope = (u128::from(right.ns - left.ns) << Self::SHIFT) / u128::from(ticks);
        match u64::try_from(slope) {
            Ok(slope) => Self { from: left.tsc, ticks, ns: left.ns, latest: right.ns, slope },
            Err(_) => Self::default(),
        }
    }

    /// The two lines between two samples, with these slopes, that meet at a break; `tsc` lies on
    /// the one that is returned.
    fn beside_break(left: ClockPair, right: ClockPair, (before, after): (f64, f64), tsc: u64) -> Self {
        let ticks = right.tsc - left.tsc;
        let place = ((right.ns - left.ns) as f64 - after * ticks as f64) / (before - after);
        // Floats that are too large, or none, become the nearest integers.
        let place = (place.round() as u64).min(ticks);
        let middle =
            ClockPair { tsc: left.tsc + place, ns: along(left, before, left.tsc + place).min(right.ns) };
        let (begin, end, slope) =
            if tsc < middle.tsc { (left, middle.tsc, before) } else { (middle, right.tsc, after) };
        let slope = (slope * (1u64 << Self::SHIFT) as f64).round() as u64;
        Self { from: begin.tsc, ticks: end - begin.tsc, ns: begin.ns, latest: right.ns, slope }
    }

    /// Returns the continuation of this line behind its right end, as far as moments can be.
    fn behind(self, right: ClockPair, slack_ns: u64) -> Self {
        let ticks = (u128::from(slack_ns) << Self::SHIFT).checked_div(self.slope.into()).unwrap_or(0);
        let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
        Self { from: right.tsc, ticks, ns: right.ns, latest: right.ns.saturating_add(slack_ns), ..self }
    }

    /// The moment of a tick count that lies on the line; none of others.
    #[inline(always)]
    pub fn to_ns(self, tsc: u64) -> Option<u64> {
        let ticks = tsc.wrapping_sub(self.from);
        let passed = (u128::from(ticks) * u128::from(self.slope) + (1 << (Self::SHIFT - 1))) >> Self::SHIFT;
        // Without an overflow: it is about `latest`, at most.
        (ticks < self.ticks).then(|| self.ns.wrapping_add(passed as u64).min(self.latest))
    }
}

/// Nanoseconds per tick of the interval between two samples.
fn slope(left: ClockPair, right: ClockPair) -> f64 {
    (right.ns - left.ns) as f64 / (right.tsc - left.tsc) as f64
}

impl ClockMap {
    /// Begins with two samples, taken a moment apart; a line needs both.
    pub fn new(first: ClockPair, second: ClockPair) -> Self {
        let mut map = Self {
            samples: vec![first],
            is_passing: false,
            last: 0,
            line: Line::default(),
            slack_ns: SLACK_NS,
        };
        map.add(second);
        map
    }

    /// Says that the newest samples may be missing, because the machine has stopped.
    pub fn expect_missing_samples(&mut self) {
        self.slack_ns = SLACK_AFTER_STOP_NS;
    }

    /// Adds a sample. One that isn't later than the last is passed over.
    pub fn add(&mut self, sample: ClockPair) {
        let newest = self.newest();
        if sample.tsc > newest.tsc && sample.ns > newest.ns {
            if std::mem::take(&mut self.is_passing) {
                self.samples.pop();
            }
            self.samples.push(sample);
            // A break can be seen now that couldn't before.
            self.line = Line::default();
        }
    }

    /// Adds a sample for the time until there is another one, which takes its place. A consumer
    /// that converts without delay samples often, and thousands of samples a second say no more
    /// than some tens.
    pub fn add_for_now(&mut self, sample: ClockPair) {
        self.add(sample);
        if self.newest() == sample {
            self.is_passing = self.samples.len() > 2;
        }
    }

    /// The newest sample.
    #[inline]
    pub fn newest(&self) -> ClockPair {
        self.samples[self.samples.len() - 1]
    }

    /// The line on which the moment lies that was asked for last: the next ones most likely lie
    /// there, too.
    #[inline(always)]
    pub fn line(&self) -> Line {
        self.line
    }

    /// The samples.
    pub fn samples(&self) -> &[ClockPair] {
        &self.samples
    }

    /// Drops samples that say nothing, older than the newest few: those on the line of their
    /// neighbours.
    pub fn thin_out(&mut self) {
        const KEEP: usize = 16;
        let end = self.samples.len().saturating_sub(KEEP);
        let mut kept: Vec<ClockPair> = Vec::with_capacity(self.samples.len());
        for (index, &sample) in self.samples.iter().enumerate() {
            if let (true, Some(&left), Some(&right)) = (index < end, kept.last(), self.samples.get(index + 1))
            {
                let expected = (sample.tsc - left.tsc) as f64 * slope(left, right);
                let off = (sample.ns - left.ns) as f64 - expected;
                if off.abs() < COLLINEAR_NS && right.ns - left.ns < MAX_INTERVAL_NS {
                    continue;
                }
            }
            kept.push(sample);
        }
        self.samples = kept;
        self.last = 0;
        self.line = Line::default();
    }

    /// The moment of a tick count. Beyond the samples the nearest line goes on.
    #[inline]
    pub fn to_ns(&mut self, tsc: u64) -> u64 {
        if let Some(ns) = self.line.to_ns(tsc) {
            return ns;
        }
        let index = self.interval(tsc);
        let Some((&left, &right)) = self.samples.get(index).zip(self.samples.get(index + 1)) else {
            return self.newest().ns;
        };
        let line = match self.break_of(index) {
            // What is converted without delay is newer than all samples.
            None if tsc >= right.tsc => Line::new(left, right).behind(right, self.slack_ns),
            None => Line::new(left, right),
            Some(slopes) => Line::beside_break(left, right, slopes, tsc),
        };
        let Some(ns) = line.to_ns(tsc) else { return along(left, slope(left, right), tsc) };
        self.line = line;
        ns
    }

    /// The moment of a tick count that a program claims; if nothing can have been recorded then,
    /// the nearest moment at which something can.
    #[inline(always)]
    pub fn to_plausible_ns(&mut self, tsc: u64) -> u64 {
        if let Some(ns) = self.line.to_ns(tsc) {
            return ns;
        }
        let earliest = self.samples[0].ns.saturating_sub(SLACK_NS);
        self.to_ns(tsc).clamp(earliest, self.newest().ns.saturating_add(self.slack_ns))
    }

    /// Index of the interval that holds the tick count, or of the nearest one.
    fn interval(&mut self, tsc: u64) -> usize {
        let holds = |index: usize| {
            self.samples.get(index).is_some_and(|left| left.tsc <= tsc)
                && self.samples.get(index + 1).is_some_and(|right| tsc < right.tsc)
        };
        if !holds(self.last) {
            let after = self.samples.partition_point(|sample| sample.tsc <= tsc);
            self.last = after.saturating_sub(1).min(self.samples.len().saturating_sub(2));
        }
        self.last
    }

    /// The slopes before and after the break inside an interval, if there is one: both neighbours
    /// are known, their rates differ, and the interval's own rate lies between theirs.
    fn break_of(&self, index: usize) -> Option<(f64, f64)> {
        let (b, c) = (*self.samples.get(index)?, *self.samples.get(index + 1)?);
        let a = stretch(b, self.samples[..index].iter().rev())?;
        let d = stretch(c, self.samples[index + 2..].iter())?;
        let (before, own, after) = (slope(a, b), slope(b, c), slope(c, d));
        let shortest = (b.tsc - a.tsc).min(c.tsc - b.tsc).min(d.tsc - c.tsc) as f64;
        let differ = (after - before).abs() * shortest > SAME_RATE_NS;
        let between = (own - before) * (own - after) < 0.0;
        (differ && between).then_some((before, after))
    }
}

/// The first of the others that is far enough away, or the last one there is.
#[inline]
fn stretch<'a>(from: ClockPair, others: impl Iterator<Item = &'a ClockPair>) -> Option<ClockPair> {
    let mut found = None;
    for other in others {
        found = Some(*other);
        if other.ns.abs_diff(from.ns) >= MIN_INTERVAL_NS {
            break;
        }
    }
    found
}

/// Goes along a line from a sample, forwards or backwards.
#[inline]
fn along(from: ClockPair, slope: f64, tsc: u64) -> u64 {
    if tsc >= from.tsc {
        from.ns.saturating_add(((tsc - from.tsc) as f64 * slope).round() as u64)
    } else {
        from.ns.saturating_sub(((from.tsc - tsc) as f64 * slope).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of a clock that runs at `rate(t)` nanoseconds per tick; one tick is simulated at a
    /// time in steps of 1000.
    fn truth(rate: impl Fn(u64) -> f64, until: u64) -> Vec<(u64, f64)> {
        let mut ns = 1e9;
        let mut points = Vec::new();
        for tsc in (0..=until).step_by(1000) {
            points.push((tsc, ns));
            ns += rate(tsc) * 1000.0;
        }
        points
    }

    fn map_of(points: &[(u64, f64)], every: usize) -> ClockMap {
        let pair = |&(tsc, ns): &(u64, f64)| ClockPair { tsc, ns: ns.round() as u64 };
        let samples: Vec<_> = points.iter().step_by(every).map(pair).collect();
        let mut map = ClockMap::new(samples[0], samples[1]);
        samples[2..].iter().for_each(|&sample| map.add(sample));
        map
    }

    fn largest_error(map: &mut ClockMap, points: &[(u64, f64)]) -> f64 {
        points.iter().map(|&(tsc, ns)| (map.to_ns(tsc) as f64 - ns).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn a_steady_clock_is_exact() {
        let points = truth(|_| 0.385, 2_000_000_000);
        assert!(largest_error(&mut map_of(&points, 250_000), &points) < 2.0);
    }

    #[test]
    fn a_change_of_rate_is_put_where_the_lines_meet() {
        for ppm in [-499.0, -100.0, 100.0, 499.0] {
            for at in [700_000_000, 800_000_000, 990_000_000] {
                let rate = |tsc| if tsc < at { 0.385 } else { 0.385 * (1.0 + ppm / 1e6) };
                let points = truth(rate, 2_000_000_000);
                let error = largest_error(&mut map_of(&points, 250_000), &points);
                assert!(error < 25.0, "{ppm} ppm at {at}: {error} ns");
            }
        }
    }

    #[test]
    fn samples_taken_at_once_behind_others_say_nothing_of_the_rate() {
        for ppm in [-500.0, -100.0, 100.0, 500.0] {
            let rate = |tsc| if tsc < 1_000_000_000 { 0.385 } else { 0.385 * (1.0 + ppm / 1e6) };
            let points = truth(rate, 2_000_000_000);
            let mut samples = Vec::new();
            // Every 25 ms and 0.1 ms later, in turns ten nanoseconds early and late.
            for at in (0..points.len() - 300).step_by(65_000).flat_map(|at| [at, at + 260]) {
                let late = if samples.len() % 2 == 0 { 10 } else { 0 };
                samples.push(ClockPair { tsc: points[at].0, ns: points[at].1.round() as u64 + late });
            }
            let mut map = ClockMap::new(samples[0], samples[1]);
            samples[2..].iter().for_each(|&sample| map.add(sample));
            let sampled = &points[130_000..points.len() - 130_000];
            let error = largest_error(&mut map, sampled);
            assert!(error < 60.0, "{ppm} ppm: {error} ns");
        }
    }

    #[test]
    fn moments_at_which_nothing_was_recorded_are_moved() {
        let mut map = map_of(&truth(|_| 0.4, 2_000_000_000), 250_000);
        let (first, last) = (map.samples()[0].ns, map.newest().ns);
        assert_eq!(map.to_plausible_ns(0), first);
        assert_eq!(map.to_plausible_ns(u64::MAX), last + SLACK_NS);
        let middle = map.to_ns(1_000_000_000);
        assert_eq!(map.to_plausible_ns(1_000_000_000), middle);
    }

    #[test]
    fn behind_the_newest_sample_the_last_line_goes_on() {
        let points = truth(|_| 0.4, 2_000_000_000);
        let mut map = map_of(&points[..points.len() / 2], 250_000);
        let newest = map.newest();
        assert_eq!(map.to_ns(newest.tsc), newest.ns);
        assert!(largest_error(&mut map, &points) < 2.0);
        let line = map.line();
        assert_eq!(line.to_ns(newest.tsc + 500), Some(newest.ns + 200), "one line for all of them");
        assert_eq!(line.to_ns(newest.tsc + 3 * SLACK_NS), None);
        assert_eq!(map.to_ns(newest.tsc + 3 * SLACK_NS), newest.ns + SLACK_NS / 5 * 6);
    }

    #[test]
    fn time_never_goes_backwards() {
        let points = truth(|tsc| if tsc / 300_000_000 % 2 == 0 { 0.385 } else { 0.3852 }, 2_000_000_000);
        let mut map = map_of(&points, 250_000);
        let times: Vec<u64> = points.iter().map(|&(tsc, _)| map.to_ns(tsc)).collect();
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn a_sample_for_now_gives_way_to_the_next() {
        let pair = |tsc| ClockPair { tsc, ns: tsc / 2 };
        let mut map = ClockMap::new(pair(1000), pair(2000));
        map.add_for_now(pair(3000));
        assert_eq!((map.newest(), map.to_ns(2500)), (pair(3000), 1250));
        map.add_for_now(pair(3000));
        map.add_for_now(ClockPair { tsc: 4000, ns: 2100 });
        assert_eq!(map.samples().len(), 3);
        assert_eq!(map.to_ns(3000), 1550, "on the line to the newest one");
        map.add(pair(5000));
        assert_eq!(map.samples(), [pair(1000), pair(2000), pair(5000)]);
        map.add(pair(6000));
        assert_eq!(map.samples().len(), 4);
    }

    #[test]
    fn samples_on_a_line_are_dropped_without_loss() {
        let points = truth(|_| 0.385, 4_000_000_000);
        let mut map = map_of(&points, 20_000);
        let before = map.samples().len();
        map.thin_out();
        assert!(map.samples().len() < before / 4, "{} of {before}", map.samples().len());
        assert!(largest_error(&mut map, &points) < COLLINEAR_NS + 2.0);
    }
}
