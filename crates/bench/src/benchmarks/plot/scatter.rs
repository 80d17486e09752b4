//! Points of two measurements of the same things, in square panels: how dense they lie, and the
//! line through them.

use super::{WIDTH, document};
use tompion_plot::{Anchor, Drawing, linear_ticks, plain_number};

const TOP: f64 = 84.0;
const SIDE: f64 = 216.0;
const FIRST: f64 = 58.0;
const STEP: f64 = 257.0;
/// Cells along a side.
const CELLS: f64 = 90.0;
/// Classes of the style sheet, from few points in a cell to many: each begins at ten times as many.
const DENSITIES: [&str; 4] = ["few", "some", "more", "many"];

/// One of several plots side by side, which share their scales.
pub struct Panel {
    /// Title.
    pub title: String,
    /// Lines below the title, such as the fit.
    pub note: String,
    /// Both measurements.
    pub points: Vec<(f64, f64)>,
    /// Slope and intercept of the line through them.
    pub line: (f64, f64),
}

/// Panels side by side, with the same axes.
pub struct Scatter {
    /// Title.
    pub title: String,
    /// The axes' names, with units.
    pub axes: [String; 2],
    /// End of both axes; points beyond are counted below the panels.
    pub most: f64,
    /// The panels, three at most.
    pub panels: Vec<Panel>,
}

impl Scatter {
    /// The file.
    pub fn svg(&self) -> String {
        let mut drawing = Drawing::default();
        drawing.text("soft", (20.0, 50.0), Anchor::Start, &format!("up: {}", self.axes[1]));
        for (number, panel) in self.panels.iter().enumerate() {
            self.draw(&mut drawing, panel, FIRST + STEP * number as f64);
        }
        drawing.text("soft", (WIDTH / 2.0, TOP + SIDE + 44.0), Anchor::Middle, &self.axes[0]);
        document(&drawing, &self.title, TOP + SIDE + 84.0)
    }

    fn draw(&self, drawing: &mut Drawing, panel: &Panel, left: f64) {
        let (right, bottom) = (left + SIDE, TOP + SIDE);
        let scale = |value: f64| value / self.most * SIDE;
        drawing.text("", (left, TOP - 12.0), Anchor::Start, &panel.title);
        for tick in linear_ticks(self.most).into_iter().filter(|tick| *tick <= self.most) {
            let (x, y, label) = (left + scale(tick), bottom - scale(tick), plain_number(tick));
            drawing.line("grid", (x, TOP), (x, bottom));
            drawing.line("grid", (left, y), (right, y));
            drawing.text("soft", (x, bottom + 17.0), Anchor::Middle, &label);
            drawing.text("soft", (left - 6.0, y + 4.2), Anchor::End, &label);
        }
        let cell = self.most / CELLS;
        let mut cells = std::collections::BTreeMap::<(u32, u32), u32>::new();
        let is_inside =
            |point: &&(f64, f64)| [point.0, point.1].iter().all(|value| (0.0..self.most).contains(value));
        for (x, y) in panel.points.iter().filter(is_inside) {
            *cells.entry(((x / cell) as u32, (y / cell) as u32)).or_default() += 1;
        }
        let size = scale(cell);
        for ((x, y), count) in &cells {
            let density = DENSITIES[(count.ilog10() as usize).min(DENSITIES.len() - 1)];
            let corner = (left + scale(f64::from(*x) * cell), bottom - scale(f64::from(*y + 1) * cell));
            drawing.rectangle(&format!("tompion {density}"), corner, (size, size));
        }
        let (slope, intercept) = panel.line;
        let end = |x: f64| (left + scale(x), bottom - scale(x * slope + intercept));
        drawing.line("axis dashed", end(0.0), end((self.most - intercept) / slope.max(1.0)));
        drawing.line("axis", (left, TOP), (left, bottom));
        drawing.line("axis", (left, bottom), (right, bottom));
        let beyond = panel.points.len() - panel.points.iter().filter(is_inside).count();
        let beyond = if beyond == 0 { String::new() } else { format!("{beyond} beyond") };
        drawing.text("soft", (right - 6.0, bottom - 8.0), Anchor::End, &beyond);
        drawing.text("soft", (left, bottom + 66.0), Anchor::Start, &panel.note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_become_cells_and_outliers_are_counted() {
        let panel = Panel {
            title: "load".into(),
            note: "1.5 + 1.000 X".into(),
            points: [vec![(10.0, 11.0); 100], vec![(200.0, 201.0), (900.0, 901.0)]].concat(),
            line: (1.0, 1.5),
        };
        let axes = ["monitor".into(), "program".into()];
        let svg = Scatter { title: "Both".into(), axes, most: 450.0, panels: vec![panel] }.svg();
        assert_eq!(svg.matches("class=\"tompion ").count(), 2, "{svg}");
        assert!(svg.contains("tompion more") && svg.contains("tompion few") && svg.contains(">1 beyond<"));
    }
}
