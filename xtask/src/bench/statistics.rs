//! Medians, and the spread around them.

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
    }
}
