//! Plots as inline SVG, in the page's own colours, light and dark. Lines differ in their dashes,
//! too.

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

/// Logarithmic scale from values to coordinates.
#[derive(Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Makes a scale over whole decades, at least one.
    fn new(values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Self {
        let values = values.filter(|value| *value > 0.0);
        let (low, high) =
            values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if high > 0.0 { (low.log10().floor(), high.log10().ceil()) } else { (0.0, 1.0) };
        Self { low, high: high.max(low + 1.0), from, to }
    }

    fn at(self, value: f64) -> f64 {
        let part = (value.log10() - self.low) / (self.high - self.low);
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Returns the powers of ten on the scale.
    fn ticks(self) -> impl Iterator<Item = f64> {
        (self.low as i32..=self.high as i32).map(|power| 10_f64.powi(power))
    }

    /// Returns the values between two powers of ten.
    fn minor(self) -> impl Iterator<Item = f64> {
        (self.low as i32..self.high as i32)
            .flat_map(|power| (2..10).map(move |digit| f64::from(digit) * 10_f64.powi(power)))
    }
}

fn text(class: &str, (x, y): (f64, f64), anchor: &str, words: &str) -> String {
    let words = crate::html::escape(words);
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n")
}

fn line(class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> String {
    format!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n")
}

fn svg(title: &str, height: f64, body: &str) -> String {
    let title = crate::html::escape(title);
    format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">\n{body}</svg>\n")
}

/// Formats a power of ten of nanoseconds: `10 µs`.
fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ..1e3 => (ns, "ns"),
        ..1e6 => (ns / 1e3, "µs"),
        ..1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{value:.0} {unit}")
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

/// Draws the names of lines, in as many rows as it takes, and returns their height, too.
fn legend(lines: &[Line]) -> (String, f64) {
    let (mut body, mut x, mut y) = (String::new(), LEFT, 16.0);
    for entry in lines {
        let width = SWATCH + 10.0 + entry.label.chars().count() as f64 * LETTER + 22.0;
        if x + width > WIDTH && x > LEFT {
            (x, y) = (LEFT, y + LEGEND);
        }
        body += &line(&class(entry), (x, y - 4.0), (x + SWATCH, y - 4.0));
        body += &text("label", (x + SWATCH + 8.0, y), "start", &entry.label);
        x += width;
    }
    (body, y + 14.0)
}

fn class(line: &Line) -> String {
    format!("line c{}{}", line.colour, if line.is_second { " second" } else { "" })
}

impl Plot<'_> {
    /// Draws the plot.
    pub fn draw(&self) -> String {
        let (legend, top) = legend(self.lines);
        let height = HEIGHT + top;
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let limit = self.limit.iter().map(|(ns, _)| *ns);
        let x = Scale::new(points().map(|point| point.0).chain(limit), (LEFT, WIDTH - RIGHT));
        let values = points().map(|point| point.1);
        let mut y = Scale::new(values.chain([1.0]), (height - BOTTOM, top));
        if self.vertical == Vertical::Count {
            // A count of one is visible above the axis.
            y.low -= 0.3;
        }
        let mut body = legend + &self.axes(x, y);
        for entry in self.lines {
            body += &self.path(entry, x, y);
        }
        if let Some((ns, name)) = self.limit {
            let limit_x = x.at(ns);
            body += &line("limit", (limit_x, y.to), (limit_x, y.from));
            body += &text("limit-name", (limit_x - 6.0, y.to + 14.0), "end", name);
        }
        svg(self.title, height, &body)
    }

    fn axes(&self, x: Scale, y: Scale) -> String {
        let mut body = String::new();
        for tick in x.minor() {
            body += &line("minor", (x.at(tick), y.from), (x.at(tick), y.to));
        }
        for tick in x.ticks() {
            body += &line("grid", (x.at(tick), y.from), (x.at(tick), y.to));
            body += &text("tick", (x.at(tick), y.from + 18.0), "middle", &time(tick));
        }
        for tick in y.ticks() {
            let words = if self.vertical == Vertical::Share { share(tick) } else { count(tick) };
            body += &line("grid", (x.from, y.at(tick)), (x.to, y.at(tick)));
            body += &text("tick", (x.from - 8.0, y.at(tick) + 4.0), "end", &words);
        }
        body + &text("label", (x.to, y.from + 38.0), "end", self.horizontal)
    }

    fn path(&self, line: &Line, x: Scale, y: Scale) -> String {
        let class = class(line);
        let mut places: Vec<(f64, f64)> = Vec::new();
        for (ns, value) in &line.points {
            let (to_x, to_y) = (x.at(*ns), y.at(*value));
            match (self.vertical, places.last()) {
                (Vertical::Share, Some((_, before))) => places.push((to_x, *before)),
                (Vertical::Count, Some((before_x, before_y))) => {
                    // Neighbouring columns touch; the line between others goes down to the axis.
                    let (before_x, before_y, middle) = (*before_x, *before_y, f64::midpoint(*before_x, to_x));
                    if to_x - before_x > WIDE_GAP {
                        places.extend([(before_x, y.from), (to_x, y.from)]);
                    } else {
                        places.extend([(middle, before_y), (middle, to_y)]);
                    }
                }
                _ => {}
            }
            places.push((to_x, to_y));
        }
        let places: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        format!("<polyline class=\"{class}\" points=\"{}\"/>\n", places.join(" "))
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

/// Width of the rows' names.
const NAMES: f64 = 190.0;

/// Draws rows of dots on a logarithmic scale of time. Each dot is the median of runs; its whiskers
/// reach from the minimum to the maximum.
pub fn dots(title: &str, names: &[&str], rows: &[Row]) -> String {
    let height = 30.0 + ROW * rows.len() as f64 + BOTTOM;
    let values = rows.iter().flat_map(|row| &row.dots).flat_map(|dot| [dot.min, dot.max]);
    let x = Scale::new(values, (NAMES, WIDTH - RIGHT));
    let (top, ground) = (30.0, height - BOTTOM);
    let mut body = String::new();
    for tick in x.minor() {
        body += &line("minor", (x.at(tick), ground), (x.at(tick), top));
    }
    for tick in x.ticks() {
        body += &line("grid", (x.at(tick), ground), (x.at(tick), top));
        body += &text("tick", (x.at(tick), ground + 18.0), "middle", &time(tick));
    }
    let mut place = NAMES;
    for (shape, name) in names.iter().enumerate() {
        body += &mark(shape, "mark", (place + 6.0, 14.0));
        body += &text("label", (place + 18.0, 18.0), "start", name);
        place += 44.0 + name.chars().count() as f64 * LETTER;
    }
    for (number, row) in rows.iter().enumerate() {
        let y = top + ROW * (number as f64 + 0.5);
        body += &text("label", (NAMES - 12.0, y + 4.0), "end", &row.label);
        for (shape, dot) in row.dots.iter().enumerate() {
            let class = format!("c{}{}", row.colour, if row.is_second { " second" } else { "" });
            body += &line(&format!("whisker {class}"), (x.at(dot.min), y), (x.at(dot.max), y));
            body += &mark(shape, &format!("mark {class}"), (x.at(dot.median), y));
        }
    }
    svg(title, height, &body)
}

/// Draws a mark of one of four shapes: circle, diamond, square, triangle.
fn mark(shape: usize, class: &str, (x, y): (f64, f64)) -> String {
    const SIZE: f64 = 5.0;
    let corners: &[(f64, f64)] = match shape {
        0 => return format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{SIZE}\"/>\n"),
        1 => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
        2 => &[(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)],
        _ => &[(0.0, -1.3), (1.2, 1.0), (-1.2, 1.0)],
    };
    let corner = |(dx, dy): &(f64, f64)| format!("{:.1},{:.1}", x + dx * SIZE, y + dy * SIZE);
    let corners: Vec<String> = corners.iter().map(corner).collect();
    format!("<polygon class=\"{class}\" points=\"{}\"/>\n", corners.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_whole_decades() {
        let scale = Scale::new([30.0, 4000.0].into_iter(), (0.0, 300.0));
        assert_eq!(scale.ticks().collect::<Vec<_>>(), [10.0, 100.0, 1000.0, 10_000.0]);
        assert!((scale.at(10.0), scale.at(10_000.0), scale.at(1.0)) == (0.0, 300.0, 0.0));
        assert_eq!(Scale::new([].into_iter(), (0.0, 1.0)).ticks().count(), 2);
    }

    #[test]
    fn ticks_are_words() {
        assert_eq!([1.0, 1e4, 1e6, 1e9].map(time), ["1 ns", "10 µs", "1 ms", "1 s"]);
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
