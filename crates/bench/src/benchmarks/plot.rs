//! Plots of the benchmarks: bars with whiskers, lines, and densities of points.
//!
//! Colours are those of Okabe and Ito, which colour-blind readers tell apart; lines differ in their
//! marks, too.

mod bars;
mod lines;
mod scatter;

pub use bars::{Bar, Bars, Row};
pub use lines::{Axis, Line, Lines, Point};
pub use scatter::{Panel, Scatter};

use tompion_plot::{Drawing, Point as Position, Shape, escaped};

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

/// Draws a mark of a shape of its own for each tracer.
fn mark(drawing: &mut Drawing, who: Who, at: Position) {
    let shape = match who {
        Who::Tompion => Shape::Circle,
        Who::Fallback | Who::Perf | Who::Strace => Shape::Diamond,
        Who::Lttng | Who::Babeltrace | Who::Ftrace | Who::Cyclictest => Shape::Square,
        Who::Plain => Shape::Triangle,
    };
    drawing.mark(class(who), shape, at, 4.2);
}

/// Returns the whole file.
fn document(drawing: &Drawing, title: &str, height: f64) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"{title}\">\n<style>\n{STYLE}</style>\n\
         <rect class=\"paper\" x=\"0.5\" y=\"0.5\" width=\"{:.1}\" height=\"{:.1}\" rx=\"6\" \
         style=\"stroke-width:1\"/>\n<text class=\"title\" x=\"20\" y=\"30\">{title}</text>\n{}</svg>\n",
        WIDTH - 1.0,
        height - 1.0,
        drawing.elements()
    )
}

/// Width of a text, roughly.
fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}
