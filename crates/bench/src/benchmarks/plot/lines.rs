//! Lines with marks and whiskers, on logarithmic axes and among places.

use super::super::results::Who;
use super::{WIDTH, class, document, mark, width_of};
use tompion_plot::{Anchor, Drawing, duration, logarithmic_ticks, plain_number};

const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 28.0;
const TOP: f64 = 98.0;
const BOTTOM: f64 = 418.0;
/// From one row of the legend to the next; there is room for two.
const LEGEND_ROW: f64 = 17.0;

/// Layout of numbers.
pub enum Axis {
    /// Places by name, evenly.
    Places(Vec<String>),
    /// Powers of ten.
    Logarithmic,
    /// Powers of ten of nanoseconds.
    Durations,
    /// Powers of ten of shares, from one downwards.
    Shares,
}

/// A point of a line.
pub struct Point {
    /// Along the horizontal axis; among places, its number.
    pub x: f64,
    /// Along the vertical one.
    pub y: f64,
    /// The smallest and the largest measurement.
    pub spread: Option<(f64, f64)>,
}

/// Line of one series of figures.
pub struct Line {
    /// Project of the line.
    pub who: Who,
    /// Its name.
    pub label: String,
    /// Whether it is dashed, so that one colour can have two lines.
    pub dashed: bool,
    /// Points, from left to right.
    pub points: Vec<Point>,
}

/// A plot of lines.
pub struct Lines {
    /// Title.
    pub title: String,
    /// The horizontal axis and its unit.
    pub across: (Axis, String),
    /// The vertical one.
    pub up: (Axis, String),
    /// The lines.
    pub lines: Vec<Line>,
    /// Whether points have marks; thousands of points don't need any.
    pub marks: bool,
}

/// An axis with its range.
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
    ticks: Vec<(f64, Option<String>)>,
}

impl Scale {
    fn new(axis: &Axis, values: &[f64], (from, to): (f64, f64)) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let scale = |low, high, logarithmic, ticks| Self { low, high, logarithmic, from, to, ticks };
        match axis {
            Axis::Places(names) => {
                let ticks = names.iter().enumerate().map(|(at, name)| (at as f64, Some(name.clone())));
                scale(-0.4, names.len() as f64 - 0.6, false, ticks.collect())
            }
            Axis::Logarithmic | Axis::Durations | Axis::Shares => {
                let (low, high) = round_outwards(least, most, axis);
                let ticks = logarithmic_ticks((low, high)).into_iter();
                let label = |(tick, labelled): (f64, bool)| (tick, labelled.then(|| label_of(axis, tick)));
                scale(low, high, true, ticks.map(label).collect())
            }
        }
    }

    fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * share
    }
}

/// The next round numbers below and above.
fn round_outwards(least: f64, most: f64, axis: &Axis) -> (f64, f64) {
    if !least.is_finite() || least <= 0.0 {
        return (1.0, 10.0);
    }
    let down = |value: f64, units: &[f64]| {
        let power = 10_f64.powf(value.log10().floor());
        units.iter().rev().map(|unit| unit * power).find(|tick| *tick <= value * 1.001).unwrap_or(power)
    };
    let up = |value: f64, units: &[f64]| {
        let power = 10_f64.powf(value.log10().floor());
        units.iter().map(|unit| unit * power).find(|tick| *tick >= value * 0.999).unwrap_or(power * 10.0)
    };
    let units: &[f64] = if matches!(axis, Axis::Shares) { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let (low, high) = (down(least, units), up(most, &[units, &[10.0]].concat()));
    if high > low { (low, high) } else { (low, low * 10.0) }
}

fn label_of(axis: &Axis, tick: f64) -> String {
    match axis {
        Axis::Durations => duration(tick),
        Axis::Shares if tick >= 0.999 => "all".into(),
        Axis::Shares => {
            let digits: String = "⁰¹²³⁴⁵⁶⁷⁸⁹".into();
            let exponent = (-tick.log10()).round() as usize;
            format!("10⁻{}", digits.chars().nth(exponent).map_or_else(|| exponent.to_string(), String::from))
        }
        _ => plain_number(tick),
    }
}

impl Lines {
    /// The file.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let xs: Vec<f64> = points().map(|point| point.x).collect();
        let ys: Vec<f64> = points()
            .flat_map(|point| {
                let (low, high) = point.spread.unwrap_or((point.y, point.y));
                [point.y, low, high]
            })
            .collect();
        let across = Scale::new(&self.across.0, &xs, (LEFT, RIGHT));
        let up = Scale::new(&self.up.0, &ys, (BOTTOM, TOP));

        let mut drawing = Drawing::default();
        self.draw_legend(&mut drawing);
        for (tick, label) in &up.ticks {
            let y = up.place(*tick);
            drawing.line("grid", (LEFT, y), (RIGHT, y));
            if let Some(label) = label {
                drawing.text("soft", (LEFT - 8.0, y + 4.2), Anchor::End, label);
            }
        }
        for (tick, label) in &across.ticks {
            let x = across.place(*tick);
            drawing.line("grid", (x, TOP), (x, BOTTOM));
            if let Some(label) = label {
                drawing.text("soft", (x, BOTTOM + 19.0), Anchor::Middle, label);
            }
        }
        drawing.line("axis", (LEFT, TOP), (LEFT, BOTTOM));
        drawing.line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
        drawing.text("soft", (f64::midpoint(LEFT, RIGHT), BOTTOM + 42.0), Anchor::Middle, &self.across.1);
        drawing.text("soft", (20.0, TOP - 16.0), Anchor::Start, &self.up.1);
        for line in &self.lines {
            self.draw_line(&mut drawing, line, &across, &up);
        }
        document(&drawing, &self.title, BOTTOM + 58.0)
    }

    fn draw_line(&self, drawing: &mut Drawing, line: &Line, across: &Scale, up: &Scale) {
        let place = |point: &Point| (across.place(point.x), up.place(point.y));
        let dashed = if line.dashed { " dashed" } else { "" };
        let points: Vec<_> = line.points.iter().map(place).collect();
        drawing.polyline(&format!("{} line{dashed}", class(line.who)), &points);
        if !self.marks {
            return;
        }
        let thin = format!("{} thin", class(line.who));
        for point in &line.points {
            let (x, _) = place(point);
            if let Some((low, high)) = point.spread {
                let (low, high) = (up.place(low), up.place(high));
                drawing.line(&thin, (x, low), (x, high));
                for end in [low, high] {
                    drawing.line(&thin, (x - 4.0, end), (x + 4.0, end));
                }
            }
            mark(drawing, line.who, place(point));
        }
    }

    fn draw_legend(&self, drawing: &mut Drawing) {
        let (mut x, mut y) = (20.0, 48.0);
        for line in &self.lines {
            let width = 30.0 + width_of(&line.label);
            if x + width > RIGHT && x > 20.0 {
                (x, y) = (20.0, y + LEGEND_ROW);
            }
            let dashed = if line.dashed { " dashed" } else { "" };
            drawing.polyline(&format!("{} line{dashed}", class(line.who)), &[(x, y), (x + 24.0, y)]);
            if self.marks {
                mark(drawing, line.who, (x + 12.0, y));
            }
            drawing.text("soft", (x + 30.0, y + 4.5), Anchor::Start, &line.label);
            x += width + 14.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_ten_have_labels_of_their_kind() {
        assert_eq!(label_of(&Axis::Shares, 1e-8), "10⁻⁸");
        assert_eq!(label_of(&Axis::Shares, 1.0), "all");
        assert_eq!(label_of(&Axis::Durations, 1e4), "10 µs");
        assert_eq!(label_of(&Axis::Logarithmic, 50.0), "50");
    }

    #[test]
    fn a_range_ends_at_round_numbers() {
        assert_eq!(round_outwards(9.5, 130.0, &Axis::Logarithmic), (5.0, 200.0));
        assert_eq!(round_outwards(1.0, 2.0, &Axis::Logarithmic), (1.0, 2.0));
    }

    #[test]
    fn each_line_is_drawn_and_named() {
        let line = |who, label: &str, y| Line {
            who,
            label: label.into(),
            dashed: false,
            points: vec![
                Point { x: 0.0, y, spread: Some((y * 0.9, y * 1.1)) },
                Point { x: 1.0, y: y * 2.0, spread: None },
            ],
        };
        let lines = Lines {
            title: "Cost".into(),
            across: (Axis::Places(vec!["0".into(), "1".into()]), "fields".into()),
            up: (Axis::Logarithmic, "ns".into()),
            lines: vec![line(Who::Tompion, "Tompion", 10.0), line(Who::Lttng, "LTTng-UST", 90.0)],
            marks: true,
        };
        let svg = lines.svg();
        assert_eq!(svg.matches("<polyline").count(), 4, "two lines, and two in the legend");
        assert!(svg.contains(">LTTng-UST</text>") && svg.contains("<circle"));
    }
}
