//! Assignment of figures to plots.

use super::super::plot::{Axis, Bar, Bars, Line, Lines, Point, Row};
use super::super::results::{Figure, Results, Who, distinct};
use super::Stored;

/// A plot's file, without its ending.
pub fn file_name(benchmark: &str, group: &str) -> String {
    let words: String = group.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { ' ' }).collect();
    let words: Vec<_> = words.split_whitespace().map(str::to_lowercase).collect();
    format!("{benchmark}-{}", words.join("-"))
}

/// All plots that the results allow: names and files.
pub fn all(stored: &Stored) -> Vec<(String, String)> {
    let mut plots = Vec::new();
    let mut add = |benchmark: &str, group: &str, draw: &dyn Fn(&Results) -> String| {
        if let Some(results) = stored.get(benchmark) {
            if results.group(group).any(|figure| !figure.values.is_empty()) {
                plots.push((file_name(benchmark, group), draw(results)));
            }
        }
    };
    for (group, title) in [
        ("tight", "An event with two 8-byte fields, flight recorder, one thread"),
        ("burst", "The same to disk, in bursts"),
        ("work", "The same amid some 50 ns of dependent work, which is included"),
    ] {
        add("event", group, &|results| by_label(results, (group, "1"), title));
    }
    add("shapes", "by number of fields", &|results| {
        lines(results, "by number of fields", ["What fields cost", "fields of 8 bytes"])
    });
    add("shapes", "by type of one field", &|results| {
        by_place(results, "by type of one field", "What one field of each type costs")
    });
    add("shapes", "by threads", &|results| {
        lines(results, "by threads", ["What threads cost each other", "threads"])
    });
    add("shapes", "by context", &|results| by_place(results, "by context", "What contexts and filters cost"));
    add("counts", "counting in place", &|results| {
        by_place(results, "counting in place", "What counting an event costs")
    });
    add("sessions", "by sessions", &|results| {
        lines(results, "by sessions", ["What each further session costs", "sessions"])
    });
    add("gaps", "an append takes at most", &gaps);
    for (group, title) in [
        ("added to the program's RSS by recording", "Memory that recording adds to a program (RSS)"),
        ("recorder's processes, RSS", "Memory of the recorder's own processes (RSS)"),
    ] {
        add("memory", group, &|results| by_place(results, group, title));
    }
    for (group, title) in [
        ("without contexts", "Bytes an event on disk, without contexts"),
        ("with the thread", "Bytes an event on disk, with the thread"),
    ] {
        add("bytes", group, &|results| by_place(results, group, title));
    }
    add("rate", "without loss for 1.5 s", &|results| {
        by_place(results, "without loss for 1.5 s", "The highest rate without loss")
    });
    add("find", "find", &|results| {
        by_label(results, ("find", "wall time"), "find /usr, every allocation recorded")
    });
    add("kernel", super::super::kernel::ADDED, &|results| {
        let what = (super::super::kernel::ADDED, super::super::kernel::BOTH_EVENTS);
        by_label(results, what, "What both events of a system call add to it")
    });
    for group in ["microbenchmarks on one CPU", "microbenchmarks on two CPUs"] {
        add("kernel", group, &|results| {
            by_place(results, group, "The kernel's deeds while they are recorded")
        });
    }
    plots
}

/// The name of a colour, where one colour stands for several labels.
const fn name_of(who: Who) -> &'static str {
    match who {
        Who::Plain => "no tracer",
        Who::Tompion => "Tompion",
        Who::Fallback => "Tompion without rseq",
        Who::Lttng => "LTTng-UST",
        Who::Babeltrace => "babeltrace2",
        Who::Ftrace => "ftrace",
        Who::Perf => "perf",
        Who::Strace => "strace",
        Who::Cyclictest => "cyclictest",
    }
}

fn legend<'a>(figures: impl Iterator<Item = &'a Figure>) -> Vec<(Who, String)> {
    let mut whose: Vec<Who> =
        figures.filter(|figure| !figure.values.is_empty()).map(|figure| figure.who).collect();
    whose.sort_unstable();
    whose.dedup();
    whose.into_iter().map(|who| (who, name_of(who).to_owned())).collect()
}

fn unit_of(results: &Results, group: &str) -> String {
    results.group(group).next().map_or_else(String::new, |figure| figure.unit.clone())
}

/// A bar for each label at one place.
fn by_label(results: &Results, (group, place): (&str, &str), title: &str) -> String {
    let figures = || results.group(group).filter(|figure| figure.at == place);
    let row = |figure: &Figure| {
        let label = figure.label.replace(", overwrite", "").replace(", discard", "");
        Some(Row { label, bars: vec![Bar::of(figure)?] })
    };
    let rows = figures().filter_map(row).collect();
    Bars { title: title.into(), unit: unit_of(results, group), legend: legend(figures()), rows }.svg()
}

/// A row for each place, a bar in it for each label.
fn by_place(results: &Results, group: &str, title: &str) -> String {
    let places = distinct(results.group(group).map(|figure| figure.at.as_str()));
    let row = |place: &str| {
        let figures = results.group(group).filter(|figure| figure.at == place);
        let bar = |figure: &Figure| Some(Bar { pale: is_pale(figure), ..Bar::of(figure)? });
        Row { label: place.to_owned(), bars: figures.filter_map(bar).collect() }
    };
    let rows = places.into_iter().map(row).filter(|row| !row.bars.is_empty()).collect();
    let mut legend = legend(results.group(group));
    if results.group(group).any(is_pale) {
        for (_, name) in &mut legend {
            *name += if name.ends_with("rseq") { "" } else { " (pale: not recorded)" };
        }
    }
    Bars { title: title.into(), unit: unit_of(results, group), legend, rows }.svg()
}

/// Whether the figure is of memory although nothing is recorded.
fn is_pale(figure: &Figure) -> bool {
    figure.label.ends_with(", not recorded")
}

/// A line for each label across the places.
fn lines(results: &Results, group: &str, [title, across]: [&str; 2]) -> String {
    let places = distinct(results.group(group).map(|figure| figure.at.as_str()));
    let labels = distinct(results.group(group).map(|figure| figure.label.as_str()));
    let line = |label: &str| {
        let point = |(at, place): (usize, &&str)| {
            let figure = results.find(group, label, place)?;
            let series = figure.series();
            Some(Point { x: at as f64, y: figure.median()?, spread: Some((series.min(), series.max())) })
        };
        let points: Vec<Point> = places.iter().enumerate().filter_map(point).collect();
        let who = results.group(group).find(|figure| figure.label == label)?.who;
        // An empty loop would take most of a logarithmic axis for itself.
        let wanted = !points.is_empty() && label != "empty loop";
        wanted.then(|| Line { who, label: label.into(), dashed: label == "per-thread queue", points })
    };
    Lines {
        title: title.into(),
        across: (Axis::Places(places.iter().map(ToString::to_string).collect()), across.into()),
        up: (Axis::Logarithmic, "ns an event (whisker: smallest to largest)".into()),
        lines: labels.into_iter().filter_map(line).collect(),
        marks: true,
    }
    .svg()
}

/// Words in the labels of lines that share their colour with another one.
const DASHED: [&str; 4] = ["wake-ups", "wakeups", "not recorded", "kernel too"];

/// Number of appends that take at least so long.
fn gaps(results: &Results) -> String {
    let across = "time of an append, two reads of the clock included";
    shares(results.figures.iter(), "Appends that take at least so long", across)
}

/// For each duration the share of what takes at least as long: a line for each figure that has a
/// curve.
pub fn shares<'a>(figures: impl Iterator<Item = &'a Figure>, title: &str, across: &str) -> String {
    let line = |figure: &Figure| {
        let point = |&(x, y): &(f64, f64)| Point { x, y, spread: None };
        let points: Vec<Point> = figure.curve.iter().map(point).collect();
        let dashed = DASHED.iter().any(|word| figure.label.contains(word));
        (!points.is_empty()).then(|| Line { who: figure.who, label: figure.label.clone(), dashed, points })
    };
    Lines {
        title: title.into(),
        across: (Axis::Durations, across.into()),
        up: (Axis::Shares, "share of all".into()),
        lines: figures.filter_map(line).collect(),
        marks: false,
    }
    .svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_after_what_they_show() {
        assert_eq!(
            file_name("memory", "added to the program's RSS by recording"),
            "memory-added-to-the-program-s-rss-by-recording"
        );
        assert_eq!(file_name("rate", "without loss for 1.5 s"), "rate-without-loss-for-1-5-s");
    }
}
