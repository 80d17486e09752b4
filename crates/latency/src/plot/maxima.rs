//! The longest latencies over days and years: a panel for each kind, a line for each CPU.
//!
//! Where more than one row stands at a place, the line is the longest of them, and a band reaches down to the shortest of
//! their maxima: one sees the single late one and what is usual.

use std::{collections::BTreeMap, fmt::Write};

use serde::Serialize;

use super::{COLOURS, LEFT, Theme, begin, escaped, legend, power_in_words};
use crate::{
    history::{Point, Span},
    kinds::Kind,
};

const WIDTH: f64 = 1040.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 190.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 30.0;
const HEAD: f64 = 66.0;
/// Places over the width: one for two units of length.
const PLACES: usize = ((WIDTH - LEFT - RIGHT) / 2.0) as usize;
/// No place is shorter than rows usually are, in milliseconds.
const SHORTEST: i64 = 300_000;

/// A time on the axis.
#[derive(Clone, Debug)]
pub struct Tick {
    /// When, in milliseconds since 1970.
    pub time_ms: i64,
    /// What it is called.
    pub label: String,
}

/// Something that happened at a time.
#[derive(Clone, Debug)]
pub enum Mark {
    /// The system became another one, with this name.
    System(i64, String),
    /// A latency crossed its threshold.
    Incident(i64),
}

/// The longest latencies of a CPU and kind over a time.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Of which kind.
    pub kind: Kind,
    /// Where.
    pub cpu: u32,
    /// When, in milliseconds since 1970, and how long, in microseconds.
    pub points: Vec<(i64, f64)>,
}

/// What a row of one CPU has at a place: the shortest and the longest of the maxima there, in nanoseconds.
type Places = Vec<Option<(u64, u64)>>;

/// The longest latencies of a time, by kind and CPU, in as many places as a picture has.
#[derive(Clone, Debug)]
pub struct Maxima {
    span: Span,
    places: usize,
    lines: BTreeMap<Kind, BTreeMap<u32, Places>>,
}

impl Maxima {
    /// Nothing, from a time until another.
    pub fn of(span: Span) -> Self {
        let length = span.to_ms.saturating_sub(span.from_ms).max(1);
        let places = usize::try_from(length / SHORTEST).unwrap_or(0).clamp(1, PLACES);
        Self { span, places, lines: BTreeMap::new() }
    }

    /// Adds a row.
    pub fn add(&mut self, point: &Point) {
        // Rows begin and end a moment late: what reaches less than half into a place is none of its.
        let margin = (self.length() / self.places as i64 / 2).min(point.duration_ms / 2);
        let end = point.start_ms.saturating_add(point.duration_ms);
        let ends =
            (self.place(point.start_ms.saturating_add(margin)), self.place(end.saturating_sub(margin + 1)));
        let Some((first, last)) = ends.0.zip(ends.1) else { return };
        let empty = || vec![None; self.places];
        let line = self.lines.entry(point.kind).or_default().entry(point.cpu).or_insert_with(empty);
        for place in line.get_mut(first..=last.max(first)).unwrap_or_default() {
            let (least, most) = place.unwrap_or((point.ns, point.ns));
            *place = Some((least.min(point.ns), most.max(point.ns)));
        }
    }

    /// In milliseconds.
    fn length(&self) -> i64 {
        self.span.to_ms.saturating_sub(self.span.from_ms).max(1)
    }

    /// Which place a time is in; those before and after are in the first and the last.
    fn place(&self, time_ms: i64) -> Option<usize> {
        let length = i128::from(self.length());
        let offset = i128::from(time_ms.saturating_sub(self.span.from_ms)).clamp(0, length - 1);
        usize::try_from(offset * self.places as i128 / length).ok()
    }

    /// The longest of each place that has any, as others draw it.
    pub fn series(&self) -> Vec<Series> {
        let step = self.length() as f64 / self.places as f64;
        let time = |place: usize| self.span.from_ms.saturating_add((place as f64 * step) as i64);
        let points = |places: &Places| {
            let filled =
                places.iter().enumerate().filter_map(|(place, found)| Some((place, found.as_ref()?.1)));
            filled.map(|(place, ns)| (time(place), ns as f64 / 1000.0)).collect()
        };
        let of_kind = |(kind, lines): (&Kind, &BTreeMap<u32, Places>)| {
            let series =
                |(cpu, places): (&u32, &Places)| Series { kind: *kind, cpu: *cpu, points: points(places) };
            lines.iter().map(series).collect::<Vec<_>>()
        };
        self.lines.iter().flat_map(of_kind).collect()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn x_of(&self, time_ms: i64) -> f64 {
        let share = time_ms.saturating_sub(self.span.from_ms) as f64 / self.length() as f64;
        share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }
}

/// Powers of ten of a microsecond around some lengths, in nanoseconds.
struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    fn of(lines: &BTreeMap<u32, Places>) -> Self {
        let all = || lines.values().flatten().flatten();
        let least = all().map(|place| place.0).min().unwrap_or(1000).max(1000);
        let most = all().map(|place| place.1).max().unwrap_or(1000).max(1000);
        let low = (least / 1000).max(1).ilog10() as i32;
        let high = (most.div_ceil(1000)).max(1).ilog10() as i32 + 1;
        Self { low, high: high.max(low + 1) }
    }

    fn y_of(&self, ns: f64) -> f64 {
        let height = PANEL - TOP - BOTTOM;
        let power = (ns / 1000.0).max(1e-3).log10();
        let share = (power - f64::from(self.low)) / f64::from(self.high - self.low);
        height * (1.0 - share.clamp(0.0, 1.0))
    }
}

/// The picture, an SVG document.
pub fn maxima(found: &Maxima, title: &str, (ticks, marks): (&[Tick], &[Mark]), theme: Theme) -> String {
    let panels = found.lines.len().max(1);
    let mut text = begin((WIDTH, HEAD + panels as f64 * PANEL), title, theme);
    let mut cpus: Vec<u32> = found.lines.values().flat_map(|lines| lines.keys().copied()).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let labels: Vec<String> = cpus.iter().map(|cpu| format!("CPU {cpu}")).collect();
    legend(&mut text, labels.iter().map(String::as_str), WIDTH - 160.0);
    for (number, (kind, lines)) in found.lines.iter().enumerate() {
        let _ = writeln!(text, "<g transform=\"translate({LEFT},{})\">", HEAD + TOP + number as f64 * PANEL);
        let scale = Scale::of(lines);
        name(&mut text, *kind, lines);
        axes(&mut text, found, &scale, ticks);
        for (cpu, places) in lines {
            let colour = cpus.binary_search(cpu).unwrap_or(0) % COLOURS.len();
            let (line, band) = paths(places, &scale);
            if !band.is_empty() {
                let _ = writeln!(text, "<path class=\"band f{colour}\" d=\"{band}\"/>");
            }
            let _ = writeln!(text, "<path class=\"line s{colour}\" d=\"{line}\"/>");
        }
        draw_marks(&mut text, found, marks);
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

fn name(text: &mut String, kind: Kind, lines: &BTreeMap<u32, Places>) {
    let longest = |places: &Places| places.iter().flatten().map(|place| place.1).max();
    let most = lines.iter().filter_map(|(cpu, places)| Some((longest(places)?, cpu))).max();
    let _ = write!(text, "<text class=\"title\" y=\"-12\">{}</text>", escaped(kind.long_words()));
    if let Some((ns, cpu)) = most {
        let _ = writeln!(
            text,
            "<text class=\"dim\" x=\"{}\" y=\"-12\" text-anchor=\"end\">longest {:.1} µs, CPU {cpu}</text>",
            WIDTH - LEFT - RIGHT,
            ns as f64 / 1000.0
        );
    }
}

fn axes(text: &mut String, found: &Maxima, scale: &Scale, ticks: &[Tick]) {
    let (right, bottom) = (WIDTH - LEFT - RIGHT, PANEL - TOP - BOTTOM);
    for power in scale.low..=scale.high {
        let y = scale.y_of(1000.0 * 10f64.powi(power));
        let _ = writeln!(
            text,
            "<path class=\"grid\" d=\"M0,{y:.1}H{right}\"/><text class=\"dim\" x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            y + 4.0,
            power_in_words(power)
        );
    }
    for tick in ticks.iter().filter(|tick| (found.span.from_ms..=found.span.to_ms).contains(&tick.time_ms)) {
        let x = found.x_of(tick.time_ms);
        // A name at the edge stays within the picture.
        let anchor = if x > right - 30.0 {
            "end"
        } else if x < 20.0 {
            "start"
        } else {
            "middle"
        };
        let _ = writeln!(
            text,
            "<path class=\"grid\" d=\"M{x:.1},0V{bottom}\"/><text class=\"dim\" x=\"{x:.1}\" y=\"{}\" \
             text-anchor=\"{anchor}\">{}</text>",
            bottom + 18.0,
            escaped(&tick.label)
        );
    }
}

/// Steps over the places, and the band below them where there is one.
fn paths(places: &Places, scale: &Scale) -> (String, String) {
    let step = (WIDTH - LEFT - RIGHT) / places.len().max(1) as f64;
    let (mut line, mut band) = (String::new(), String::new());
    let mut is_open = false;
    for (number, place) in places.iter().enumerate() {
        let Some((least, most)) = place else {
            is_open = false;
            continue;
        };
        let (left, right) = (number as f64 * step, (number + 1) as f64 * step);
        let (y, low) = (scale.y_of(*most as f64), scale.y_of(*least as f64));
        let _ = match is_open {
            true => write!(line, "V{y:.1}H{right:.1}"),
            false => write!(line, "M{left:.1},{y:.1}H{right:.1}"),
        };
        is_open = true;
        if low - y > 0.5 {
            let _ = write!(band, "M{left:.1},{y:.1}H{right:.1}V{low:.1}H{left:.1}Z");
        }
    }
    (line, band)
}

fn draw_marks(text: &mut String, found: &Maxima, marks: &[Mark]) {
    let (right, bottom) = (WIDTH - LEFT - RIGHT, PANEL - TOP - BOTTOM);
    for mark in marks {
        let _ = match mark {
            Mark::System(time, name) => {
                let x = found.x_of(*time);
                let (anchor, at) = if x > right * 0.7 { ("end", x - 5.0) } else { ("start", x + 5.0) };
                writeln!(
                    text,
                    "<path class=\"mark\" d=\"M{x:.1},0V{bottom}\"/>\
                     <text class=\"dim\" x=\"{at:.1}\" y=\"11\" text-anchor=\"{anchor}\">{}</text>",
                    escaped(name)
                )
            }
            Mark::Incident(time) => {
                let x = found.x_of(*time);
                writeln!(text, "<path class=\"incident\" d=\"M{:.1},-7h8l-4,7z\"/>", x - 4.0)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;

    fn point(start_ms: i64, ns: u64) -> Point {
        Point { start_ms, duration_ms: 300_000, cpu: 1, kind: Kind::Wakeup, ns }
    }

    #[test]
    fn places_have_the_longest_and_gaps_stay_gaps() {
        let mut maxima = Maxima::of(Span { from_ms: 0, to_ms: DAY });
        assert_eq!(maxima.places, 288);
        maxima.add(&point(0, 5000));
        maxima.add(&point(300_000, 7000));
        maxima.add(&point(1_200_000, 9000));
        let places = &maxima.lines[&Kind::Wakeup][&1];
        assert_eq!(places[..5], [Some((5000, 5000)), Some((7000, 7000)), None, None, Some((9000, 9000))]);
        let (line, band) = paths(places, &Scale { low: 0, high: 1 });
        assert_eq!((line.matches('M').count(), band.as_str()), (2, ""));
    }

    #[test]
    fn a_year_has_bands_and_no_row_is_lost() {
        let mut maxima = Maxima::of(Span { from_ms: 0, to_ms: 366 * DAY });
        for row in 0..366 * 288 {
            maxima.add(&point(
                row * 300_000,
                if row == 70_000 { 2_000_000 } else { 4000 + (row % 7) as u64 * 100 },
            ));
        }
        let places = &maxima.lines[&Kind::Wakeup][&1];
        assert_eq!((places.len(), places.iter().flatten().count()), (PLACES, PLACES));
        assert_eq!(places.iter().flatten().filter(|place| place.1 == 2_000_000).count(), 1);
        let picture = super::maxima(&maxima, "a <year>", (&[], &[]), Theme::Reader);
        assert!(picture.contains("a &lt;year&gt;") && picture.contains("class=\"band f0\""));
        assert!(picture.contains("longest 2000.0 µs, CPU 1"), "{picture}");
    }

    #[test]
    fn times_beyond_the_picture_are_at_its_ends() {
        let mut maxima = Maxima::of(Span { from_ms: 1000, to_ms: 1000 });
        for time in [i64::MIN, -1, 1000, i64::MAX - 300_000] {
            maxima.add(&point(time, 1));
        }
        assert_eq!(maxima.lines[&Kind::Wakeup][&1], [Some((1, 1))]);
        assert!(maxima.x_of(i64::MIN) == 0.0 && maxima.x_of(i64::MAX) == WIDTH - LEFT - RIGHT);
    }
}
