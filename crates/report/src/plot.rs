//! Plots as inline SVG, in the page's own colours, light and dark. Lines differ in their dashes,
//! too.

use tompion_plot::{Anchor, Drawing, LogScale, Point, Shape, duration, escaped};

use super::figures::Spread;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 24.0;
const BOTTOM: f64 = 48.0;
/// Height of a line of the legend, and of a row of dots.
const LEGEND: f64 = 22.0;
const ROW: f64 = 34.0;
/// Width of an average letter, and of the line before a name in the legend.
const LETTER: f64 = 7.3;
const SWATCH: f64 = 30.0;

/// Line of a plot.
pub struct Line {
    pub label: String,
    /// Number of its colour.
    pub colour: usize,
    /// Whether it is of the second of two reports.
    pub is_second: bool,
    /// Nanoseconds, and a share or a count.
    pub points: Vec<(f64, f64)>,
}

/// Quantity on the vertical axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Vertical {
    /// Share of all values.
    Share,
    /// Number of values, drawn as columns.
    Count,
}

/// Plot with logarithmic axes.
pub struct Plot<'a> {
    /// Description for screen readers.
    pub title: &'a str,
    pub horizontal: &'a str,
    pub vertical: Vertical,
    pub lines: &'a [Line],
    /// Limit in nanoseconds, and its name.
    pub limit: Option<(f64, &'a str)>,
}

fn svg(title: &str, height: f64, drawing: &Drawing) -> String {
    let (title, elements) = (escaped(title), drawing.elements());
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">\n{elements}</svg>\n"
    )
}

/// Formats a share of all values: `1 %`, `1 of 10⁶`.
fn share(part: f64) -> String {
    match part.log10().round() as i32 {
        0 => "all".into(),
        -1 => "10 %".into(),
        -2 => "1 %".into(),
        power => format!("1 of {}", ten_to(-power)),
    }
}

fn ten_to(power: i32) -> String {
    let digit = |digit: char| match digit {
        '0' => '⁰',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        digit => char::from_u32('⁴' as u32 + digit as u32 - '4' as u32).unwrap_or(digit),
    };
    format!("10{}", power.to_string().chars().map(digit).collect::<String>())
}

fn count(number: f64) -> String {
    match number {
        ..1e4 => format!("{number:.0}"),
        _ => ten_to(number.log10().round() as i32),
    }
}

/// Draws the names of lines, in as many rows as it takes; returns their height.
fn legend(drawing: &mut Drawing, lines: &[Line]) -> f64 {
    let (mut x, mut y) = (LEFT, 16.0);
    for entry in lines {
        let width = SWATCH + 10.0 + entry.label.chars().count() as f64 * LETTER + 22.0;
        if x + width > WIDTH && x > LEFT {
            (x, y) = (LEFT, y + LEGEND);
        }
        drawing.line(&class(entry), (x, y - 4.0), (x + SWATCH, y - 4.0));
        drawing.text("label", (x + SWATCH + 8.0, y), Anchor::Start, &entry.label);
        x += width;
    }
    y + 14.0
}

/// Draws the grid and the labels of a time axis between two heights.
fn time_axis(drawing: &mut Drawing, x: LogScale, (bottom, top): (f64, f64)) {
    for tick in x.minor_ticks() {
        drawing.line("minor", (x.at(tick), bottom), (x.at(tick), top));
    }
    for tick in x.ticks() {
        drawing.line("grid", (x.at(tick), bottom), (x.at(tick), top));
        drawing.text("tick", (x.at(tick), bottom + 18.0), Anchor::Middle, &duration(tick));
    }
}

fn class(line: &Line) -> String {
    format!("line c{}{}", line.colour, if line.is_second { " second" } else { "" })
}

impl Plot<'_> {
    /// Draws the plot.
    pub fn draw(&self) -> String {
        let mut drawing = Drawing::default();
        let top = legend(&mut drawing, self.lines);
        let height = HEIGHT + top;
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let limit = self.limit.iter().map(|(ns, _)| *ns);
        let x = LogScale::new(points().map(|point| point.0).chain(limit), (LEFT, WIDTH - RIGHT));
        let values = points().map(|point| point.1);
        let y = LogScale::new(values.chain([1.0]), (height - BOTTOM, top));
        // A count of one is visible above the axis.
        let y = if self.vertical == Vertical::Count { y.lowered(0.3) } else { y };
        self.draw_axes(&mut drawing, x, y);
        for entry in self.lines {
            drawing.polyline(&class(entry), &self.points(entry, x, y));
        }
        if let Some((ns, name)) = self.limit {
            let (limit_x, (bottom, top)) = (x.at(ns), y.ends());
            drawing.line("limit", (limit_x, top), (limit_x, bottom));
            drawing.text("limit-name", (limit_x - 6.0, top + 14.0), Anchor::End, name);
        }
        svg(self.title, height, &drawing)
    }

    fn draw_axes(&self, drawing: &mut Drawing, x: LogScale, y: LogScale) {
        let (left, right) = x.ends();
        time_axis(drawing, x, y.ends());
        for tick in y.ticks() {
            let words = if self.vertical == Vertical::Share { share(tick) } else { count(tick) };
            drawing.line("grid", (left, y.at(tick)), (right, y.at(tick)));
            drawing.text("tick", (left - 8.0, y.at(tick) + 4.0), Anchor::End, &words);
        }
        drawing.text("label", (right, y.ends().0 + 38.0), Anchor::End, self.horizontal);
    }

    /// Returns the corners of a line: steps of shares, or columns of counts.
    fn points(&self, line: &Line, x: LogScale, y: LogScale) -> Vec<Point> {
        let bottom = y.ends().0;
        let mut places: Vec<Point> = Vec::new();
        for (ns, value) in &line.points {
            let (to_x, to_y) = (x.at(*ns), y.at(*value));
            match (self.vertical, places.last()) {
                (Vertical::Share, Some((_, before))) => places.push((to_x, *before)),
                (Vertical::Count, Some((before_x, before_y))) => {
                    // Neighbouring columns touch; the line between others goes down to the axis.
                    let (before_x, before_y, middle) = (*before_x, *before_y, f64::midpoint(*before_x, to_x));
                    if to_x - before_x > WIDE_GAP {
                        places.extend([(before_x, bottom), (to_x, bottom)]);
                    } else {
                        places.extend([(middle, before_y), (middle, to_y)]);
                    }
                }
                _ => {}
            }
            places.push((to_x, to_y));
        }
        places
    }
}

/// Distance of columns beyond which there are empty ones between them.
const WIDE_GAP: f64 = 14.0;

/// Row of dots with whiskers.
pub struct Row {
    pub label: String,
    /// Number of its colour.
    pub colour: usize,
    pub is_second: bool,
    /// Dots, in nanoseconds.
    pub dots: Vec<Spread>,
}

/// Size of a mark.
const MARK: f64 = 5.0;
/// Width of the rows' names.
const NAMES: f64 = 190.0;

/// Draws rows of dots on a logarithmic scale of time. Each dot is the median of runs; its whiskers
/// reach from the minimum to the maximum.
pub fn dots(title: &str, names: &[&str], rows: &[Row]) -> String {
    let height = 30.0 + ROW * rows.len() as f64 + BOTTOM;
    let values = rows.iter().flat_map(|row| &row.dots).flat_map(|dot| [dot.min, dot.max]);
    let x = LogScale::new(values, (NAMES, WIDTH - RIGHT));
    let top = 30.0;
    let mut drawing = Drawing::default();
    time_axis(&mut drawing, x, (height - BOTTOM, top));
    let mut left = NAMES;
    for (shape, name) in Shape::ALL.into_iter().cycle().zip(names) {
        drawing.mark("mark", shape, (left + 6.0, 14.0), MARK);
        drawing.text("label", (left + 18.0, 18.0), Anchor::Start, name);
        left += 44.0 + name.chars().count() as f64 * LETTER;
    }
    for (number, row) in rows.iter().enumerate() {
        let y = top + ROW * (number as f64 + 0.5);
        drawing.text("label", (NAMES - 12.0, y + 4.0), Anchor::End, &row.label);
        for (shape, dot) in Shape::ALL.into_iter().cycle().zip(&row.dots) {
            let class = format!("c{}{}", row.colour, if row.is_second { " second" } else { "" });
            drawing.line(&format!("whisker {class}"), (x.at(dot.min), y), (x.at(dot.max), y));
            drawing.mark(&format!("mark {class}"), shape, (x.at(dot.median), y), MARK);
        }
    }
    svg(title, height, &drawing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_words() {
        assert_eq!([1.0, 0.1, 1e-6].map(share), ["all", "10 %", "1 of 10⁶"]);
        assert_eq!([1.0, 1000.0, 1e5].map(count), ["1", "1000", "10⁵"]);
        assert_eq!(ten_to(12), "10¹²");
    }

    #[test]
    fn names_are_escaped_and_every_line_is_there() {
        let lines = [("a <b>", 0), ("c", 1)].map(|(label, colour)| Line {
            label: label.into(),
            colour,
            is_second: false,
            points: vec![(10.0, 1.0), (100.0, 0.5)],
        });
        let plot = Plot {
            title: "t",
            horizontal: "x",
            vertical: Vertical::Share,
            lines: &lines,
            limit: Some((50.0, "limit")),
        };
        let drawn = plot.draw();
        assert_eq!(drawn.matches("<polyline").count(), 2);
        assert!(drawn.contains("a &lt;b&gt;") && !drawn.contains("NaN"), "{drawn}");
    }
}
