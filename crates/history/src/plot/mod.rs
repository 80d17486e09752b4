//! SVG plots: histograms ([`histograms()`]), and the longest latencies over time ([`maxima()`]).
//!
//! A plot follows the reader's colour scheme, or has a fixed one for programs that don't know it.

mod histograms;
mod maxima;

use std::fmt::Write;

use tompion_plot::{Anchor, Drawing, escaped};

pub use histograms::{Curve, histograms};
pub use maxima::{Mark, Maxima, Series, Tick, maxima};

/// Colour scheme of a plot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// The scheme that its reader prefers.
    #[default]
    Reader,
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// Palette for all kinds of colour vision (Okabe and Ito, 2008); further lines reuse it.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7f00"];
/// Palette for a dark page, on which the first has too little contrast.
const DARK_COLOURS: [&str; 7] = ["#4aa8e0", "#f0793a", "#2fc79a", "#e0a0c5", "#f0b429", "#8fd3ff", "#c8bb3c"];

const SHAPES: &str = ".plot text{font-family:Inter,system-ui,sans-serif;font-size:12px;font-weight:400}\
    .plot .title{font-weight:600;font-size:13px}.plot .head{font-weight:600;font-size:16px}\
    .plot .grid{stroke-width:1}.plot .line{fill:none;stroke-width:1.6;stroke-linejoin:round}\
    .plot .band{stroke:none;opacity:.16}.plot .longest{stroke-width:1.2;stroke-dasharray:3 3}\
    .plot .mark{stroke-width:1;stroke-dasharray:2 3}.plot .deadline{stroke-dasharray:6 4;stroke-width:1.2}";
const LIGHT: &str = ".plot text{fill:#24292f}.plot .dim{fill:#57606a}.plot .page{fill:#fff}\
    .plot .grid{stroke:#d8dee4}.plot .mark{stroke:#57606a}.plot .incident{fill:#cf222e}.plot .deadline{stroke:#cf222e}\
    .plot .job{stroke:#424a53}.plot .job-band{fill:#424a53}";
const DARK: &str = ".plot text{fill:#e6edf3}.plot .dim{fill:#9da7b1}.plot .page{fill:#0d1117}\
    .plot .grid{stroke:#262d36}.plot .mark{stroke:#9da7b1}.plot .incident{fill:#f85149}.plot .deadline{stroke:#f85149}\
    .plot .job{stroke:#b1bac4}.plot .job-band{fill:#b1bac4}";

/// Style sheet of a plot.
fn style(theme: Theme) -> String {
    let of = |fixed: &str, colours: &[&str]| {
        let mut rules = fixed.to_owned();
        for (number, colour) in colours.iter().enumerate() {
            let _ = write!(rules, ".plot .s{number}{{stroke:{colour}}}.plot .f{number}{{fill:{colour}}}");
        }
        rules
    };
    let (light, dark) = (of(LIGHT, &COLOURS), of(DARK, &DARK_COLOURS));
    match theme {
        Theme::Reader => format!("{SHAPES}{light}@media(prefers-color-scheme:dark){{{dark}}}"),
        Theme::Light => format!("{SHAPES}{light}"),
        Theme::Dark => format!("{SHAPES}{dark}"),
    }
}

/// Returns the document, with its title.
fn document((width, height): (f64, f64), title: &str, theme: Theme, drawing: &Drawing) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{0}\">\n<style>{1}</style>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n\
         <text class=\"head\" x=\"{LEFT}\" y=\"26\">{0}</text>\n{2}</svg>\n",
        escaped(title),
        style(theme),
        drawing.elements()
    )
}

/// Space left of a panel's axes.
const LEFT: f64 = 56.0;

/// Draws the legend in a row below the title.
fn legend<'a>(drawing: &mut Drawing, labels: impl Iterator<Item = &'a str>, width: f64) {
    let mut left = LEFT;
    for (number, label) in labels.enumerate() {
        // Estimated from the average width of a letter.
        let room = 34.0 + 6.8 * label.chars().count() as f64;
        if left + room > width {
            drawing.text("dim", (left, 50.0), Anchor::Start, "…");
            return;
        }
        let colour = format!("line s{}", number % COLOURS.len());
        drawing.path(&colour, &format!("M{left:.1},46h16"));
        drawing.text("dim", (left + 21.0, 50.0), Anchor::Start, label);
        left += room;
    }
}

/// Formats a duration with a unit.
fn in_words(ns: u64) -> String {
    match ns {
        ..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn themes_are_what_they_say() {
        assert!(style(Theme::Reader).contains("@media"));
        assert!(!style(Theme::Dark).contains("@media") && style(Theme::Dark).contains("#0d1117"));
        assert_eq!([71_300, 106_093_100, 2_000_000_000].map(in_words), ["71.3 µs", "106.1 ms", "2.0 s"]);
    }
}
