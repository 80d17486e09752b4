//! Plots as SVG: bars with whiskers, and lines. Drawn by hand, because a plot here is a few hundred
//! lines and has to do what plotting libraries don't: follow the reader's light or dark colours,
//! within one file.
//!
//! Colours are those of Okabe and Ito, which colour-blind readers tell apart; lines differ in their
//! marks, too.

mod bars;
mod lines;
mod scatter;

pub use bars::{Bar, Bars, Row};
pub use lines::{Axis, Line, Lines, Point};
pub use scatter::{Panel, Scatter};

use super::results::Who;

/// Width of all plots, in pixels of a page that shows them as they are.
const WIDTH: f64 = 820.0;
/// Width of an average letter of the labels.
const LETTER: f64 = 7.2;

const STYLE: &str = "\
text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328; }
.title { font-size: 15px; font-weight: 600; }
.soft { fill: #59636e; font-size: 12px; }
.paper { fill: #ffffff; stroke: #d1d9e0; }
.grid { stroke: #e4e8ec; stroke-width: 1; }
.axis { stroke: #818b98; stroke-width: 1; }
.whisker { stroke: #1f2328; stroke-width: 1.3; fill: none; }
.plain { fill: #767d86; stroke: #767d86; }
.tompion { fill: #0072b2; stroke: #0072b2; }
.fallback { fill: #009e73; stroke: #009e73; }
.lttng { fill: #d55e00; stroke: #d55e00; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.thin { fill: none; stroke-width: 1.2; }
.dashed { stroke-dasharray: 6 4; }
.pale { fill-opacity: 0.45; }
.few, .some, .more, .many { stroke-width: 0; }
.few { fill-opacity: 0.35; }
.some { fill-opacity: 0.6; }
.more { fill-opacity: 0.8; }
rect { stroke: none; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.soft { fill: #9da7b1; }
.paper { fill: #0d1117; stroke: #30363d; }
.grid { stroke: #21262d; }
.axis { stroke: #6e7681; }
.whisker { stroke: #e6edf3; }
.plain { fill: #9aa2ab; stroke: #9aa2ab; }
.tompion { fill: #56b4e9; stroke: #56b4e9; }
.fallback { fill: #2fc79a; stroke: #2fc79a; }
.lttng { fill: #f0883e; stroke: #f0883e; }
}
";

/// The colour of whose figures they are.
const fn class(who: Who) -> &'static str {
    match who {
        Who::Plain => "plain",
        Who::Tompion => "tompion",
        Who::Fallback | Who::Perf | Who::Strace => "fallback",
        Who::Lttng | Who::Babeltrace | Who::Ftrace | Who::Cyclictest => "lttng",
    }
}

/// Anchor of a text at its point.
#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// Drawing in progress.
#[derive(Default)]
struct Drawing {
    body: String,
}

impl Drawing {
    fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let (anchor, text) = (anchor.name(), escaped(text));
        self.body += &format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n"
        );
    }

    fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.body += &format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        );
    }

    fn rectangle(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        self.body += &format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"1.5\"/>\n"
        );
    }

    fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.body += &format!("<polyline class=\"{class}\" points=\"{}\"/>\n", points.join(" "));
    }

    /// A mark of a shape of its own for each tracer.
    fn mark(&mut self, who: Who, (x, y): (f64, f64)) {
        let class = class(who);
        let size = 4.2;
        let polygon = |corners: &[(f64, f64)]| {
            let points: Vec<_> =
                corners.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * size, y + dy * size)).collect();
            format!("<polygon class=\"{class}\" points=\"{}\"/>\n", points.join(" "))
        };
        self.body += &match who {
            Who::Tompion => {
                format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{size:.1}\"/>\n")
            }
            Who::Fallback | Who::Perf | Who::Strace => {
                polygon(&[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)])
            }
            Who::Lttng | Who::Babeltrace | Who::Ftrace | Who::Cyclictest => {
                polygon(&[(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)])
            }
            Who::Plain => polygon(&[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)]),
        };
    }

    /// The whole file.
    fn finish(self, title: &str, height: f64) -> String {
        let title = escaped(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{title}\">\n<style>\n{STYLE}</style>\n\
             <rect class=\"paper\" x=\"0.5\" y=\"0.5\" width=\"{:.1}\" height=\"{:.1}\" rx=\"6\" \
             style=\"stroke-width:1\"/>\n<text class=\"title\" x=\"20\" y=\"30\">{title}</text>\n{}</svg>\n",
            WIDTH - 1.0,
            height - 1.0,
            self.body
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Width of a text, roughly.
fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// A number with no more decimals than it needs.
fn plain_number(value: f64) -> String {
    let text = if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") };
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    short.to_owned()
}

/// A length of time as one says it.
fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        time if time < 1e3 => format!("{} ns", plain_number(time)),
        time if time < 1e6 => format!("{} µs", plain_number(time / 1e3)),
        time => format!("{} ms", plain_number(time / 1e6)),
    }
}

/// Round numbers from zero to a little beyond the largest value.
fn linear_ticks(largest: f64) -> Vec<f64> {
    let rough = (largest / 6.0).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|unit| unit * power).find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let count = (largest / step).ceil() as usize;
    (0..=count).map(|number| number as f64 * step).collect()
}

/// Round numbers around a range on a logarithmic axis; those that deserve a label are true.
fn logarithmic_ticks((low, high): (f64, f64)) -> Vec<(f64, bool)> {
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
    fn numbers_are_short() {
        assert_eq!(plain_number(0.5), "0.5");
        assert_eq!(plain_number(20.0), "20");
        assert_eq!(plain_number(100.0), "100");
        assert_eq!(duration(2500.0), "2.5 µs");
        assert_eq!(escaped("a < b & \"c\""), "a &lt; b &amp; &quot;c&quot;");
    }
}
