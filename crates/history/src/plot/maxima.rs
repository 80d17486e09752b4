//! Plot of the longest latencies over days and years: a panel per kind, a line per CPU. Each job
//! has a panel with its deadline.
//!
//! Where a column of the plot covers several rows, the line is the highest of their maxima and a
//! band reaches down to the lowest. So a single outlier and the usual level are both visible.

use std::{collections::BTreeMap, fmt::Write, ops::RangeInclusive};

use serde::Serialize;
use tompion_latency::Kind;

use tompion_plot::{Anchor, Drawing, Shape, duration};

use super::{COLOURS, LEFT, Theme, document, in_words, legend};
use crate::{Longest, Point, Response, Span};

const WIDTH: f64 = 1040.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 190.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 30.0;
const HEAD: f64 = 66.0;
/// Number of columns, each two units wide.
const MAX_COLUMNS: usize = ((WIDTH - LEFT - RIGHT) / 2.0) as usize;
/// Minimum duration of a column, in milliseconds: the usual duration of a row.
const MIN_COLUMN_MS: i64 = 300_000;
/// Maximum number of jobs with a panel.
const MAX_JOB_PANELS: usize = 12;

/// Label on the time axis.
#[derive(Clone, Debug)]
pub struct Tick {
    /// Time in milliseconds since 1970.
    pub time_ms: i64,
    /// Text of the label.
    pub label: String,
}

/// Event marked on the time axis.
#[derive(Clone, Debug)]
pub enum Mark {
    /// The system changed; the text names the new one.
    System(i64, String),
    /// A latency exceeded its threshold.
    Incident(i64),
}

/// Longest latencies of a CPU and kind over time.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Kind of latency.
    pub kind: Kind,
    /// Number of the CPU.
    pub cpu: u32,
    /// Times in milliseconds since 1970, with latencies in microseconds.
    pub points: Vec<(i64, f64)>,
}

/// Columns of a line: the lowest and the highest of the maxima in each, in nanoseconds.
type Columns = Vec<Option<(u64, u64)>>;

/// Longest responses of a job, and its deadlines.
#[derive(Clone, Debug)]
struct JobLine {
    columns: Columns,
    /// For each column: the shortest deadline in nanoseconds, or 0, and whether one was missed.
    limits: Vec<(u64, bool)>,
    /// Number of all missed deadlines.
    misses: u64,
}

/// Longest latencies in an interval by kind and CPU, and responses by job, per column of a plot.
#[derive(Clone, Debug)]
pub struct Maxima {
    span: Span,
    columns: usize,
    lines: BTreeMap<Kind, BTreeMap<u32, Columns>>,
    jobs: BTreeMap<String, JobLine>,
}

impl Maxima {
    /// Makes an empty plot of an interval.
    pub fn of(span: Span) -> Self {
        let length = span.to_ms.saturating_sub(span.from_ms).max(1);
        let columns = usize::try_from(length / MIN_COLUMN_MS).unwrap_or(0).clamp(1, MAX_COLUMNS);
        Self { span, columns, lines: BTreeMap::new(), jobs: BTreeMap::new() }
    }

    /// Adds a maximum of a row.
    pub fn add(&mut self, longest: &Longest<'_>) {
        match longest {
            Longest::Latency(point) => self.add_latency(point),
            Longest::Response(response) => self.add_response(response),
        }
    }

    fn add_latency(&mut self, point: &Point) {
        let Some(covered) = self.covered(point.start_ms, point.duration_ms) else { return };
        let empty = || vec![None; self.columns];
        let line = self.lines.entry(point.kind).or_default().entry(point.cpu).or_insert_with(empty);
        widen(line, covered, point.ns);
    }

    fn add_response(&mut self, response: &Response<'_>) {
        let Some(covered) = self.covered(response.start_ms, response.duration_ms) else { return };
        if !self.jobs.contains_key(response.job) {
            let columns = vec![None; self.columns];
            let line = JobLine { columns, limits: vec![(0, false); self.columns], misses: 0 };
            self.jobs.insert(response.job.to_owned(), line);
        }
        let Some(line) = self.jobs.get_mut(response.job) else { return };
        line.misses = line.misses.saturating_add(response.misses);
        widen(&mut line.columns, covered.clone(), response.ns);
        for (deadline, is_missed) in line.limits.get_mut(covered).unwrap_or_default() {
            *deadline = match *deadline {
                0 => response.deadline_ns,
                known if response.deadline_ns == 0 => known,
                known => known.min(response.deadline_ns),
            };
            *is_missed |= response.misses > 0;
        }
    }

    /// Moves the jobs into a plot of their own.
    #[must_use]
    pub fn split_jobs(&mut self) -> Self {
        Self {
            span: self.span,
            columns: self.columns,
            lines: BTreeMap::new(),
            jobs: std::mem::take(&mut self.jobs),
        }
    }

    /// Returns whether there are jobs.
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Columns that a row covers.
    fn covered(&self, start_ms: i64, duration_ms: i64) -> Option<RangeInclusive<usize>> {
        // Rows begin and end slightly late: the part of a row below half a column doesn't count.
        let margin = (self.length() / self.columns as i64 / 2).min(duration_ms / 2);
        let end = start_ms.saturating_add(duration_ms);
        let first = self.column(start_ms.saturating_add(margin))?;
        let last = self.column(end.saturating_sub(margin.saturating_add(1)))?;
        Some(first..=last.max(first))
    }

    /// Length of the interval, in milliseconds.
    fn length(&self) -> i64 {
        self.span.to_ms.saturating_sub(self.span.from_ms).max(1)
    }

    /// Column of a time; earlier and later times are in the first and the last column.
    fn column(&self, time_ms: i64) -> Option<usize> {
        let length = i128::from(self.length());
        let offset = i128::from(time_ms.saturating_sub(self.span.from_ms)).clamp(0, length - 1);
        usize::try_from(offset * self.columns as i128 / length).ok()
    }

    /// Maxima of all filled columns, for plots drawn elsewhere.
    pub fn series(&self) -> Vec<Series> {
        let step = self.length() as f64 / self.columns as f64;
        let time = |column: usize| self.span.from_ms.saturating_add((column as f64 * step) as i64);
        let points = |columns: &Columns| {
            let filled =
                columns.iter().enumerate().filter_map(|(column, found)| Some((column, found.as_ref()?.1)));
            filled.map(|(column, ns)| (time(column), ns as f64 / 1000.0)).collect()
        };
        let of_kind = |(kind, lines): (&Kind, &BTreeMap<u32, Columns>)| {
            let series =
                |(cpu, columns): (&u32, &Columns)| Series { kind: *kind, cpu: *cpu, points: points(columns) };
            lines.iter().map(series).collect::<Vec<_>>()
        };
        self.lines.iter().flat_map(of_kind).collect()
    }

    fn x_of(&self, time_ms: i64) -> f64 {
        let share = time_ms.saturating_sub(self.span.from_ms) as f64 / self.length() as f64;
        share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }
}

/// Widens the range of some columns by a latency.
fn widen(line: &mut Columns, covered: RangeInclusive<usize>, ns: u64) {
    for column in line.get_mut(covered).unwrap_or_default() {
        let (least, most) = column.unwrap_or((ns, ns));
        *column = Some((least.min(ns), most.max(ns)));
    }
}

/// Vertical axis: powers of ten of a microsecond around some latencies.
struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    fn of<'a>(lines: impl Iterator<Item = &'a Columns>, others: impl Iterator<Item = u64>) -> Self {
        let all = lines.flatten().flatten().copied().chain(others.map(|ns| (ns, ns)));
        let both = all.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let (least, most) = both.map_or((1000, 1000), |(least, most)| (least.max(1000), most.max(1000)));
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

/// Draws an SVG document.
pub fn maxima(found: &Maxima, title: &str, (ticks, marks): (&[Tick], &[Mark]), theme: Theme) -> String {
    let jobs = jobs_with_panels(&found.jobs);
    let left_out = found.jobs.len() - jobs.len();
    let panels = (found.lines.len() + jobs.len()).max(1);
    let foot = if left_out > 0 { BOTTOM } else { 0.0 };
    let mut drawing = Drawing::default();
    let mut cpus: Vec<u32> = found.lines.values().flat_map(|lines| lines.keys().copied()).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let labels: Vec<String> = cpus.iter().map(|cpu| format!("CPU {cpu}")).collect();
    legend(&mut drawing, labels.iter().map(String::as_str), WIDTH - 160.0);
    let mut top = HEAD + TOP;
    let mut panel = |draw: &dyn Fn(&mut Drawing)| {
        drawing.translated((LEFT, top), |drawing| {
            draw(drawing);
            draw_marks(drawing, found, marks);
        });
        top += PANEL;
    };
    for (kind, lines) in &found.lines {
        panel(&|drawing: &mut Drawing| draw_kind(drawing, found, (*kind, lines, &cpus), ticks));
    }
    for (name, line) in jobs {
        panel(&|drawing: &mut Drawing| draw_job(drawing, found, (name, line), ticks));
    }
    if left_out > 0 {
        let words = format!("and {left_out} more with no more missed deadlines");
        drawing.text("dim", (LEFT, top - TOP + BOTTOM / 2.0), Anchor::Start, &words);
    }
    document((WIDTH, HEAD + panels as f64 * PANEL + foot), title, theme, &drawing)
}

/// Jobs that get a panel, by name: those with the most misses.
fn jobs_with_panels(jobs: &BTreeMap<String, JobLine>) -> Vec<(&str, &JobLine)> {
    let mut all: Vec<_> = jobs.iter().map(|(name, line)| (name.as_str(), line)).collect();
    all.sort_by_key(|(_, line)| std::cmp::Reverse(line.misses));
    all.truncate(MAX_JOB_PANELS);
    all.sort_by_key(|(name, _)| *name);
    all
}

fn draw_kind(
    drawing: &mut Drawing,
    found: &Maxima,
    (kind, lines, cpus): (Kind, &BTreeMap<u32, Columns>, &[u32]),
    ticks: &[Tick],
) {
    let scale = Scale::of(lines.values(), std::iter::empty());
    name(drawing, kind, lines);
    axes(drawing, found, &scale, ticks);
    for (cpu, columns) in lines {
        let colour = cpus.binary_search(cpu).unwrap_or(0) % COLOURS.len();
        draw_line(drawing, columns, &scale, (&format!("f{colour}"), &format!("s{colour}")));
    }
}

/// Draws a line and its band with these classes.
fn draw_line(drawing: &mut Drawing, columns: &Columns, scale: &Scale, (fill, stroke): (&str, &str)) {
    let (line, band) = paths(columns, scale);
    if !band.is_empty() {
        drawing.path(&format!("band {fill}"), &band);
    }
    drawing.path(&format!("line {stroke}"), &line);
}

/// Draws a job's longest responses, its deadline as a dashed line, and dots at misses.
fn draw_job(drawing: &mut Drawing, found: &Maxima, (name, line): (&str, &JobLine), ticks: &[Tick]) {
    let deadlines = || line.limits.iter().map(|limit| limit.0).filter(|ns| *ns > 0);
    let scale = Scale::of([&line.columns].into_iter(), deadlines());
    drawing.text("title", (0.0, -12.0), Anchor::Start, name);
    let longest = line.columns.iter().flatten().map(|column| column.1).max().unwrap_or(0);
    let mut words = vec![format!("max response {}", in_words(longest))];
    if let Some(deadline) = deadlines().min() {
        words.push(format!("deadline (dashed) {}", in_words(deadline)));
    }
    match line.misses {
        0 => {}
        1 => words.push("1 missed (dot)".into()),
        misses => words.push(format!("{misses} missed (dots)")),
    }
    drawing.text("dim", (WIDTH - LEFT - RIGHT, -12.0), Anchor::End, &words.join(", "));
    axes(drawing, found, &scale, ticks);
    let limits: Columns = line.limits.iter().map(|(ns, _)| (*ns > 0).then_some((*ns, *ns))).collect();
    drawing.path("line deadline", &paths(&limits, &scale).0);
    draw_line(drawing, &line.columns, &scale, ("job-band", "job"));
    let step = (WIDTH - LEFT - RIGHT) / line.columns.len().max(1) as f64;
    for (number, (column, limit)) in line.columns.iter().zip(&line.limits).enumerate() {
        if let (Some((_, most)), (_, true)) = (column, limit) {
            let (x, y) = ((number as f64 + 0.5) * step, scale.y_of(*most as f64));
            drawing.mark("incident", Shape::Circle, (x, y), 3.0);
        }
    }
}

fn name(drawing: &mut Drawing, kind: Kind, lines: &BTreeMap<u32, Columns>) {
    let longest = |columns: &Columns| columns.iter().flatten().map(|column| column.1).max();
    let most = lines.iter().filter_map(|(cpu, columns)| Some((longest(columns)?, cpu))).max();
    drawing.text("title", (0.0, -12.0), Anchor::Start, kind.long_words());
    if let Some((ns, cpu)) = most {
        let words = format!("max {}, CPU {cpu}", in_words(ns));
        drawing.text("dim", (WIDTH - LEFT - RIGHT, -12.0), Anchor::End, &words);
    }
}

fn axes(drawing: &mut Drawing, found: &Maxima, scale: &Scale, ticks: &[Tick]) {
    let (right, bottom) = (WIDTH - LEFT - RIGHT, PANEL - TOP - BOTTOM);
    for power in scale.low..=scale.high {
        let ns = 1000.0 * 10f64.powi(power);
        let y = scale.y_of(ns);
        drawing.line("grid", (0.0, y), (right, y));
        drawing.text("dim", (-8.0, y + 4.0), Anchor::End, &duration(ns));
    }
    for tick in ticks.iter().filter(|tick| (found.span.from_ms..=found.span.to_ms).contains(&tick.time_ms)) {
        let x = found.x_of(tick.time_ms);
        // A label at the edge stays within the picture.
        let anchor = if x > right - 30.0 {
            Anchor::End
        } else if x < 20.0 {
            Anchor::Start
        } else {
            Anchor::Middle
        };
        drawing.line("grid", (x, 0.0), (x, bottom));
        drawing.text("dim", (x, bottom + 18.0), anchor, &tick.label);
    }
}

/// SVG paths of the line and of the band below it.
fn paths(columns: &Columns, scale: &Scale) -> (String, String) {
    let step = (WIDTH - LEFT - RIGHT) / columns.len().max(1) as f64;
    let (mut line, mut band) = (String::new(), String::new());
    let mut is_open = false;
    for (number, column) in columns.iter().enumerate() {
        let Some((least, most)) = column else {
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

fn draw_marks(drawing: &mut Drawing, found: &Maxima, marks: &[Mark]) {
    let (right, bottom) = (WIDTH - LEFT - RIGHT, PANEL - TOP - BOTTOM);
    for mark in marks {
        match mark {
            Mark::System(time, name) => {
                let x = found.x_of(*time);
                let (anchor, at) =
                    if x > right * 0.7 { (Anchor::End, x - 5.0) } else { (Anchor::Start, x + 5.0) };
                drawing.line("mark", (x, 0.0), (x, bottom));
                drawing.text("dim", (at, 11.0), anchor, name);
            }
            Mark::Incident(time) => {
                let x = found.x_of(*time);
                drawing.polygon("incident", &[(x - 4.0, -7.0), (x + 4.0, -7.0), (x, 0.0)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;

    fn point(start_ms: i64, ns: u64) -> Longest<'static> {
        Longest::Latency(Point { start_ms, duration_ms: 300_000, cpu: 1, kind: Kind::Wakeup, ns })
    }

    fn response(start_ms: i64, job: &str, (ns, deadline_ns): (u64, u64)) -> Longest<'_> {
        let misses = u64::from(deadline_ns > 0 && ns > deadline_ns);
        Longest::Response(Response { start_ms, duration_ms: 300_000, job, ns, deadline_ns, misses })
    }

    #[test]
    fn jobs_have_panels_with_their_deadlines_and_misses() {
        let mut maxima = Maxima::of(Span { from_ms: 0, to_ms: DAY });
        maxima.add(&point(0, 5000));
        for (row, ns) in [(0, 70_000), (1, 90_000), (2, 230_000), (7, 80_000)] {
            maxima.add(&response(row * 300_000, "motor:<control>", (ns, 200_000)));
        }
        maxima.add(&response(0, "log", (9000, 0)));
        let draw = |maxima: &Maxima| super::maxima(maxima, "a day", (&[], &[]), Theme::Light);
        let picture = draw(&maxima);
        for words in [
            "motor:&lt;control&gt;",
            "max response 230.0 µs, deadline (dashed) 200.0 µs, 1 missed (dot)<",
            "max response 9.0 µs<",
            "max 5.0 µs, CPU 1",
        ] {
            assert!(picture.contains(words), "{words}: {picture}");
        }
        assert_eq!((picture.matches("<circle").count(), picture.matches("<g ").count()), (1, 3));
        let line = &maxima.jobs["motor:<control>"];
        assert_eq!(line.limits[1..4], [(200_000, false), (200_000, true), (0, false)]);
        // Split into two plots.
        let jobs = maxima.split_jobs();
        assert!(jobs.has_jobs() && !maxima.has_jobs());
        assert!(!draw(&maxima).contains("motor") && !draw(&jobs).contains("CPU 1"));
        // Of many jobs, those with the most misses are drawn.
        let names: Vec<String> = (0..40).map(|number| format!("job {number}")).collect();
        for (number, name) in (0..).zip(&names) {
            maxima.add(&response(0, name, if number == 30 { (9, 5) } else { (5, 9) }));
        }
        let picture = draw(&maxima);
        assert!(picture.contains(">job 30<") && picture.contains("and 28 more"), "{picture}");
    }

    #[test]
    fn columns_have_the_longest_and_gaps_stay_gaps() {
        let mut maxima = Maxima::of(Span { from_ms: 0, to_ms: DAY });
        assert_eq!(maxima.columns, 288);
        maxima.add(&point(0, 5000));
        maxima.add(&point(300_000, 7000));
        maxima.add(&point(1_200_000, 9000));
        let columns = &maxima.lines[&Kind::Wakeup][&1];
        assert_eq!(columns[..5], [Some((5000, 5000)), Some((7000, 7000)), None, None, Some((9000, 9000))]);
        let (line, band) = paths(columns, &Scale { low: 0, high: 1 });
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
        let columns = &maxima.lines[&Kind::Wakeup][&1];
        assert_eq!((columns.len(), columns.iter().flatten().count()), (MAX_COLUMNS, MAX_COLUMNS));
        assert_eq!(columns.iter().flatten().filter(|column| column.1 == 2_000_000).count(), 1);
        let picture = super::maxima(&maxima, "a <year>", (&[], &[]), Theme::Reader);
        assert!(picture.contains("a &lt;year&gt;") && picture.contains("class=\"band f0\""));
        assert!(picture.contains("max 2.0 ms, CPU 1"), "{picture}");
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
