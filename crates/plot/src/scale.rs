//! Scales from values to coordinates, and round numbers for their ticks.

/// Logarithmic scale over whole decades.
#[derive(Clone, Copy, Debug)]
pub struct LogScale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl LogScale {
    /// Makes a scale of all values above 0, over whole decades, at least one. The smallest is at
    /// `from`, the largest at `to`.
    pub fn new(values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Self {
        let values = values.filter(|value| *value > 0.0);
        let (low, high) =
            values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if high > 0.0 { (low.log10().floor(), high.log10().ceil()) } else { (0.0, 1.0) };
        Self { low, high: high.max(low + 1.0), from, to }
    }

    /// Begins the scale a part of a decade lower, so that its lowest value is above the axis.
    #[must_use]
    pub fn lowered(self, decades: f64) -> Self {
        Self { low: self.low - decades, ..self }
    }

    /// Ends of the scale.
    pub const fn ends(self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Coordinate of a value; values beyond the scale are at its ends.
    pub fn at(self, value: f64) -> f64 {
        let part = (value.log10() - self.low) / (self.high - self.low);
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Powers of ten on the scale.
    pub fn ticks(self) -> impl Iterator<Item = f64> {
        (self.low.ceil() as i32..=self.high as i32).map(|power| 10_f64.powi(power))
    }

    /// Multiples of the powers of ten, between these.
    pub fn minor_ticks(self) -> impl Iterator<Item = f64> {
        (self.low.ceil() as i32..self.high as i32)
            .flat_map(|power| (2..10).map(move |digit| f64::from(digit) * 10_f64.powi(power)))
    }
}

/// Round numbers from zero to a little beyond the largest value.
pub fn linear_ticks(largest: f64) -> Vec<f64> {
    let rough = (largest / 6.0).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|unit| unit * power).find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let count = (largest / step).ceil() as usize;
    (0..=count).map(|number| number as f64 * step).collect()
}

/// Round numbers within a range on a logarithmic axis, and whether each has room for a label.
pub fn logarithmic_ticks((low, high): (f64, f64)) -> Vec<(f64, bool)> {
    let decades = (high / low).log10();
    let labelled: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let mut ticks = Vec::new();
    for exponent in low.log10().floor() as i32..=high.log10().ceil() as i32 {
        for unit in [1.0, 2.0, 5.0] {
            let tick = unit * 10_f64.powi(exponent);
            if tick >= low * 0.999 && tick <= high * 1.001 && (decades < 5.0 || unit == 1.0) {
                ticks.push((tick, labelled.contains(&unit)));
            }
        }
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(linear_ticks(103.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]);
        let ticks = logarithmic_ticks((5.0, 100.0));
        assert_eq!(ticks.iter().map(|tick| tick.0).collect::<Vec<_>>(), [5.0, 10.0, 20.0, 50.0, 100.0]);
    }

    #[test]
    fn logarithmic_scales_have_whole_decades() {
        let scale = LogScale::new([30.0, 4000.0].into_iter(), (0.0, 300.0));
        assert_eq!(scale.ticks().collect::<Vec<_>>(), [10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!((scale.at(10.0), scale.at(10_000.0), scale.at(1.0)), (0.0, 300.0, 0.0));
        assert_eq!(scale.minor_ticks().count(), 3 * 8);
        assert_eq!(LogScale::new([].into_iter(), (0.0, 1.0)).ticks().count(), 2);
        let lowered = scale.lowered(0.5);
        assert_eq!(lowered.ticks().next(), Some(10.0));
        assert!(lowered.at(10.0) > 0.0);
    }
}
