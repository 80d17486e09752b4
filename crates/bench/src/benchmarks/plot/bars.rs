//! Horizontal bars from zero, with whiskers from the smallest to the largest measurement.

use super::super::results::{Figure, Who, digits};
use super::{WIDTH, class, document, width_of};
use tompion_plot::{Anchor, Drawing, linear_ticks, plain_number};

const BAR: f64 = 15.0;
const BETWEEN_BARS: f64 = 3.0;
const BETWEEN_ROWS: f64 = 12.0;
const TOP: f64 = 74.0;

/// Bar of one figure.
pub struct Bar {
    /// Project of the bar.
    pub who: Who,
    /// Whether it is drawn in a weaker colour.
    pub pale: bool,
    /// The middle measurement.
    pub value: f64,
    /// The smallest and the largest.
    pub spread: (f64, f64),
}

impl Bar {
    /// A figure's bar, if anything was measured.
    pub fn of(figure: &Figure) -> Option<Self> {
        let series = figure.series();
        let value = figure.median()?;
        Some(Self { who: figure.who, pale: false, value, spread: (series.min(), series.max()) })
    }
}

/// Row at one place of the axis.
pub struct Row {
    /// Its name.
    pub label: String,
    /// Its bars, from above.
    pub bars: Vec<Bar>,
}

/// A plot of bars.
pub struct Bars {
    /// Title.
    pub title: String,
    /// The unit below the axis.
    pub unit: String,
    /// Names of colours.
    pub legend: Vec<(Who, String)>,
    /// Rows, from top to bottom.
    pub rows: Vec<Row>,
}

impl Bars {
    /// The file.
    pub fn svg(&self) -> String {
        let labels = self.rows.iter().map(|row| width_of(&row.label));
        let left = labels.fold(60.0, f64::max) + 34.0;
        let right = WIDTH - 76.0;
        let bars = || self.rows.iter().flat_map(|row| &row.bars);
        let ticks = linear_ticks(bars().map(|bar| bar.spread.1).fold(0.0, f64::max));
        let most = ticks.last().copied().unwrap_or(1.0).max(f64::MIN_POSITIVE);
        let x = |value: f64| left + (right - left) * value / most;
        let heights = self.rows.iter().map(height_of);
        let bottom = TOP + heights.sum::<f64>();

        let mut drawing = Drawing::default();
        self.draw_legend(&mut drawing);
        for &tick in &ticks {
            drawing.line("grid", (x(tick), TOP - 8.0), (x(tick), bottom));
            drawing.text("soft", (x(tick), bottom + 18.0), Anchor::Middle, &plain_number(tick));
        }
        let varies = bars().any(|bar| bar.spread.0 < bar.spread.1);
        let explained = if varies { " (bar: median, whisker: smallest to largest)" } else { "" };
        let unit = format!("{}{explained}", self.unit);
        drawing.text("soft", (f64::midpoint(left, right), bottom + 38.0), Anchor::Middle, &unit);
        let mut y = TOP;
        for row in &self.rows {
            let height = height_of(row);
            let middle = y + (height - BETWEEN_ROWS) / 2.0;
            drawing.text("", (left - 12.0, middle + 4.5), Anchor::End, &row.label);
            for (index, bar) in row.bars.iter().enumerate() {
                draw_bar(&mut drawing, bar, y + index as f64 * (BAR + BETWEEN_BARS), x);
            }
            y += height;
        }
        drawing.line("axis", (left, TOP - 8.0), (left, bottom));
        document(&drawing, &self.title, bottom + 54.0)
    }

    fn draw_legend(&self, drawing: &mut Drawing) {
        let mut x = 20.0;
        for (who, name) in &self.legend {
            drawing.rectangle(class(*who), (x, 44.0), (12.0, 12.0));
            drawing.text("soft", (x + 18.0, 54.5), Anchor::Start, name);
            x += 18.0 + width_of(name) + 18.0;
        }
    }
}

fn height_of(row: &Row) -> f64 {
    row.bars.len().max(1) as f64 * (BAR + BETWEEN_BARS) - BETWEEN_BARS + BETWEEN_ROWS
}

fn draw_bar(drawing: &mut Drawing, bar: &Bar, y: f64, x: impl Fn(f64) -> f64) {
    let pale = if bar.pale { " pale" } else { "" };
    let class = format!("{}{pale}", class(bar.who));
    let (begin, end) = (x(bar.value.min(0.0)), x(bar.value.max(0.0)));
    drawing.rectangle(&class, (begin, y), ((end - begin).max(1.0), BAR));
    let middle = y + BAR / 2.0;
    let (low, high) = (x(bar.spread.0), x(bar.spread.1));
    if high - low > 1.5 {
        drawing.line("whisker", (low, middle), (high, middle));
        for end in [low, high] {
            drawing.line("whisker", (end, middle - 4.0), (end, middle + 4.0));
        }
    }
    let digits = digits(bar.value);
    drawing.text(
        "soft",
        (high.max(end) + 6.0, middle + 4.2),
        Anchor::Start,
        &format!("{:.digits$}", bar.value),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_its_colour_its_value_and_its_whisker() {
        let bar = Bar { who: Who::Lttng, pale: false, value: 90.0, spread: (85.0, 130.0) };
        let bars = Bars {
            title: "Cost < 100".into(),
            unit: "ns".into(),
            legend: vec![(Who::Lttng, "LTTng-UST".into())],
            rows: vec![Row { label: "2 fields".into(), bars: vec![bar] }],
        };
        let svg = bars.svg();
        assert!(svg.contains("class=\"lttng\"") && svg.contains(">90.0</text>"), "{svg}");
        assert_eq!(svg.matches("class=\"whisker\"").count(), 3);
        assert!(svg.contains("Cost &lt; 100"));
    }
}
