//! Medians, and the spread around them; distributions.

use std::collections::BTreeMap;

/// Statistic of measurements, such as [`Series::min`].
pub type Statistic = fn(&Series) -> f64;

/// Measurements of one variant.
#[derive(Clone, Debug, Default)]
pub struct Series(Vec<f64>);

impl Series {
    /// Adds a measurement.
    pub fn push(&mut self, value: f64) {
        let place = self.0.partition_point(|&other| other < value);
        self.0.insert(place, value);
    }

    /// All, from the smallest.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The middle one, or the mean of the middle two; not a number without measurements.
    pub fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        match self.0.len() {
            0 => f64::NAN,
            count if count % 2 == 1 => self.0[middle],
            _ => f64::midpoint(self.0[middle - 1], self.0[middle]),
        }
    }

    /// Value that a quarter of them don't exceed; not a number without measurements.
    pub fn lower_quartile(&self) -> f64 {
        self.0.get(self.0.len().saturating_sub(1) / 4).copied().unwrap_or(f64::NAN)
    }

    /// Value that three quarters of them don't exceed; not a number without measurements.
    pub fn upper_quartile(&self) -> f64 {
        self.0.get((3 * self.0.len()).div_ceil(4).saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    /// Uncertainty of the median: two medians that are further apart than both together differ with
    /// a certainty of about 95 %. Source: McGill, Tukey and Larsen, "Variations of Box Plots",
    /// 1978.
    pub fn doubt(&self) -> f64 {
        1.57 * (self.upper_quartile() - self.lower_quartile()) / (self.0.len() as f64).sqrt()
    }

    /// The smallest.
    pub fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    /// The largest.
    pub fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }
}

impl FromIterator<f64> for Series {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut series = Self::default();
        values.into_iter().for_each(|value| series.push(value));
        series
    }
}

/// Value that this share of all values does not exceed; the keys are values, with how many of each
/// there are.
pub fn quantile(histogram: &BTreeMap<u64, u64>, share: f64) -> Option<f64> {
    let total: u64 = histogram.values().sum();
    let wanted = (total as f64 * share).ceil() as u64;
    let mut seen = 0;
    histogram.iter().find_map(|(&value, &count)| {
        seen += count;
        (seen >= wanted).then_some(value as f64)
    })
}

/// The next point of a curve has at least this much more than the last one.
const CURVE_STEP: f64 = 1.02;

/// For each value, in units of so many, the share of values that are at least as large, thinned
/// out.
pub fn curve(histogram: &BTreeMap<u64, u64>, unit: f64) -> Vec<(f64, f64)> {
    let total: u64 = histogram.values().sum();
    let mut left = total;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (&value, &count) in histogram {
        let point = (value as f64 / unit, left as f64 / total as f64);
        left -= count;
        let differs = points
            .last()
            .is_none_or(|last| point.0 > last.0 * CURVE_STEP || point.1 * CURVE_STEP < last.1 || left == 0);
        if differs {
            points.push(point);
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Series::from_iter([3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(Series::from_iter([4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert!(Series::default().median().is_nan());
        let series = Series::from_iter([3.0, 1.0, 2.0]);
        assert_eq!((series.min(), series.max()), (1.0, 3.0));
        assert_eq!(Series::from_iter([5.0, 4.0, 3.0, 2.0, 1.0]).lower_quartile(), 2.0);
        assert!(Series::default().lower_quartile().is_nan());
    }
}
