//! Plot of histograms: a panel per kind, a line per CPU or interval. Both axes are logarithmic, so
//! that one latency in a million is visible.

use std::{collections::BTreeMap, fmt::Write};

use tompion_latency::{CpuReport, Histogram, Kind, of_all_cpus};

use tompion_plot::{Anchor, Drawing, duration};

use super::{COLOURS, LEFT, Theme, document, in_words, legend};

const PANEL_WIDTH: f64 = 520.0;
const PANEL_HEIGHT: f64 = 230.0;
/// Space around the axes of a panel.
const RIGHT: f64 = 14.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 34.0;
/// Space above all panels.
const HEAD: f64 = 58.0;

/// Ends of the horizontal axis, in microseconds.
const MIN_US: f64 = 0.7;
const MAX_US: f64 = 20_000.0;
/// Steps per power of ten; none is narrower than a microsecond.
const STEPS_PER_DECADE: u32 = 20;

/// Line in each panel.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// Label in the legend.
    pub label: String,
    /// Histogram and maximum, in microseconds, of each kind.
    pub kinds: BTreeMap<Kind, (Histogram, f64)>,
}

impl Curve {
    /// Makes a curve for each CPU.
    pub fn of_each(cpus: &[CpuReport]) -> Vec<Self> {
        let kinds = |cpu: &CpuReport| {
            cpu.kinds.iter().map(|(kind, found)| (*kind, (found.places.clone(), found.max_us))).collect()
        };
        cpus.iter().map(|cpu| Self { label: format!("CPU {}", cpu.cpu), kinds: kinds(cpu) }).collect()
    }

    /// Makes one curve of all CPUs together.
    pub fn of_all(label: &str, cpus: &[CpuReport]) -> Self {
        let longest = |kind: &Kind| {
            cpus.iter().filter_map(|cpu| cpu.kinds.get(kind)).map(|found| found.max_us).fold(0.0, f64::max)
        };
        let kinds = of_all_cpus(cpus);
        let kinds = kinds.into_iter().map(|(kind, places)| (kind, (places, longest(&kind)))).collect();
        Self { label: label.into(), kinds }
    }
}

/// Right edges of the steps, in whole microseconds.
fn edges() -> Vec<u64> {
    let steps = (0..=STEPS_PER_DECADE * 4 + STEPS_PER_DECADE / 4)
        .map(|step| 10f64.powf(f64::from(step) / f64::from(STEPS_PER_DECADE)));
    let mut edges: Vec<u64> = steps.map(|edge| edge.round() as u64).collect();
    edges.dedup();
    edges
}

/// Horizontal position of a latency, from the left end of the axis.
fn x_of(us: f64) -> f64 {
    let share = (us.clamp(MIN_US, MAX_US) / MIN_US).ln() / (MAX_US / MIN_US).ln();
    share * (PANEL_WIDTH - LEFT - RIGHT)
}

/// Number of decades needed for a count.
fn decades(count: u64) -> u32 {
    count.max(1).ilog10() + 1
}

/// Vertical position of a count, from the top of the axis. A count of one is visible.
fn y_of(count: u64, decades: u32) -> f64 {
    let height = PANEL_HEIGHT - TOP - BOTTOM;
    match count {
        0 => height,
        _ => height * (1.0 - ((count as f64).log10() + 0.3) / (f64::from(decades) + 0.3)),
    }
}

/// Draws an SVG document.
pub fn histograms(curves: &[Curve], title: &str, theme: Theme) -> String {
    let mut kinds: Vec<Kind> = curves.iter().flat_map(|curve| curve.kinds.keys().copied()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let rows = kinds.len().div_ceil(2).max(1);
    let (width, height) = (2.0 * PANEL_WIDTH, HEAD + rows as f64 * PANEL_HEIGHT);
    let mut drawing = Drawing::default();
    legend(&mut drawing, curves.iter().map(|curve| curve.label.as_str()), width);
    for (place, kind) in kinds.iter().enumerate() {
        let (left, top) =
            ((place % 2) as f64 * PANEL_WIDTH + LEFT, HEAD + (place / 2) as f64 * PANEL_HEIGHT + TOP);
        drawing.translated((left, top), |drawing| panel(drawing, curves, *kind));
    }
    document((width, height), title, theme, &drawing)
}

fn panel(drawing: &mut Drawing, curves: &[Curve], kind: Kind) {
    let found =
        || curves.iter().enumerate().filter_map(|(number, curve)| Some((number, curve.kinds.get(&kind)?)));
    let lines: Vec<(usize, Vec<u64>, f64)> =
        found().map(|(number, (places, longest))| (number, counts(places), *longest)).collect();
    let most = lines.iter().flat_map(|line| &line.1).copied().max().unwrap_or(0);
    let decades = decades(most);
    let longest = lines.iter().map(|line| line.2).fold(0.0, f64::max);
    let all: u64 = found().map(|(_, (places, _))| places.count()).sum();
    let longest = in_words((longest * 1000.0).round() as u64);
    drawing.text("title", (0.0, -22.0), Anchor::Start, kind.long_words());
    drawing.text("dim", (0.0, -7.0), Anchor::Start, &format!("{all} of {}, max {longest}", kind.name()));
    axes(drawing, decades);
    for (number, counts, longest) in lines {
        let (path, x, bottom) = (path(&counts, decades), x_of(longest), y_of(0, decades));
        let colour = number % COLOURS.len();
        drawing.path(&format!("line s{colour}"), &path);
        drawing.line(&format!("line longest s{colour}"), (x, 0.0), (x, bottom));
    }
}

fn axes(drawing: &mut Drawing, decades: u32) {
    let (right, bottom) = (PANEL_WIDTH - LEFT - RIGHT, y_of(0, decades));
    for us in [1.0, 10.0, 100.0, 1e3, 1e4] {
        let x = x_of(us);
        drawing.line("grid", (x, 0.0), (x, bottom));
        drawing.text("dim", (x, bottom + 18.0), Anchor::Middle, &duration(us * 1e3));
    }
    drawing.line("grid", (0.0, bottom), (right, bottom));
    // At most five lines.
    let step = decades.div_ceil(5).max(1) as usize;
    for power in (0..=decades).step_by(step) {
        let y = y_of(10u64.saturating_pow(power), decades);
        let name = match power {
            0..=3 => 10u64.pow(power).to_string(),
            4..=5 => format!("{} k", 10u64.pow(power - 3)),
            6..=8 => format!("{} M", 10u64.pow(power - 6)),
            _ => format!("1e{power}"),
        };
        drawing.line("grid", (0.0, y), (right, y));
        drawing.text("dim", (-6.0, y + 4.0), Anchor::End, &name);
    }
}

/// Counts between each edge and the one before it; the last element has all beyond.
fn counts(places: &Histogram) -> Vec<u64> {
    let edges = edges();
    let mut counts = vec![0; edges.len() + 1];
    for (begin, count) in places.places() {
        if let Some(sum) = counts.get_mut(edges.partition_point(|edge| edge * 1000 <= begin)) {
            *sum += count;
        }
    }
    counts
}

/// SVG path with a step for each count.
fn path(counts: &[u64], decades: u32) -> String {
    let edges = edges();
    let mut path = format!("M0,{:.1}", y_of(0, decades));
    for (place, count) in counts.iter().enumerate() {
        let right = edges.get(place).map_or(MAX_US, |edge| *edge as f64);
        let _ = write!(path, "V{:.1}H{:.1}", y_of(*count, decades), x_of(right));
    }
    let _ = write!(path, "V{:.1}", y_of(0, decades));
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_in_a_step() {
        let mut histogram = Histogram::default();
        let lengths = [0, 1, 2, 9, 10, 57, 999, 10_240, 10_241];
        lengths.iter().for_each(|us| histogram.add(us * 1000, us * 1000 + 1000, 3));
        let counts = counts(&histogram);
        assert_eq!(counts.iter().sum::<u64>(), 27);
        assert_eq!((counts[0], counts[1], counts[2]), (3, 3, 3));
        assert!(edges().windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_count_of_one_is_visible_and_the_largest_fits() {
        for most in [1, 9, 10, 1_000_000, u64::MAX] {
            let decades = decades(most);
            assert!(y_of(1, decades) < y_of(0, decades) - 2.0 && y_of(most, decades) >= 0.0, "{most}");
        }
        assert!(x_of(0.0) == 0.0 && x_of(1e9) == PANEL_WIDTH - LEFT - RIGHT);
    }
}
