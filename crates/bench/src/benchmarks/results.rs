//! Results of benchmarks as data, kept as JSON, from which tables, plots and the page are made.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::machine;
use super::statistics::Series;
use tompion_tasks::table::Table;
use tompion_tasks::workspace::Workspace;

/// Project that a figure belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// No tracer: a bare loop, clock or queue.
    Plain,
    /// Tompion as it is where the kernel offers restartable sequences.
    Tompion,
    /// Tompion's other producer, where it does not.
    Fallback,
    /// LTTng-UST.
    Lttng,
    /// babeltrace2.
    Babeltrace,
    /// The kernel's own tracer, by tracefs.
    Ftrace,
    /// `perf record`.
    Perf,
    /// `strace`.
    Strace,
    /// cyclictest.
    Cyclictest,
}

impl Who {
    /// Peers of Tompion, and their names in tables.
    const PEERS: [(Self, &'static str); 4] = [
        (Self::Lttng, "× LTTng"),
        (Self::Babeltrace, "× babeltrace2"),
        (Self::Ftrace, "× ftrace"),
        (Self::Cyclictest, "× cyclictest"),
    ];
}

/// One thing that was measured, with all its measurements.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The table that it belongs to.
    pub group: String,
    /// Project.
    pub who: Who,
    /// Label that distinguishes it from the others at its place.
    pub label: String,
    /// Its place in the table: the row.
    pub at: String,
    /// The unit of the values.
    pub unit: String,
    /// The measurements, from the smallest.
    pub values: Vec<f64>,
    /// Further counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, f64>,
    /// A distribution: pairs of a value and the share of measurements that are larger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<(f64, f64)>,
    /// Reason why measurements are missing, if some are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Figure {
    /// A figure without measurements yet.
    pub fn new(group: &str, who: Who, label: &str, at: &str, unit: &str) -> Self {
        Self {
            group: group.into(),
            who,
            label: label.into(),
            at: at.into(),
            unit: unit.into(),
            values: Vec::new(),
            counts: BTreeMap::new(),
            curve: Vec::new(),
            failure: None,
        }
    }

    /// Notes a measurement, or why there is none.
    pub fn note(&mut self, measured: Result<f64>) {
        match measured {
            Ok(value) => {
                self.values.push(value);
                self.values.sort_by(f64::total_cmp);
            }
            Err(error) => {
                let why = reason(&error);
                eprintln!("failed: {}, {}: {why}", self.label, self.at);
                self.failure.get_or_insert(why);
            }
        }
    }

    /// The measurements.
    pub fn series(&self) -> Series {
        self.values.iter().copied().collect()
    }

    /// Uncertainty of the median, if there is any: see [`Series::doubt`].
    pub fn doubt(&self) -> Option<f64> {
        (!self.values.is_empty()).then(|| self.series().doubt())
    }

    /// The middle measurement, if there is any.
    pub fn median(&self) -> Option<f64> {
        (!self.values.is_empty()).then(|| self.series().median())
    }

    /// `10.5 (10.1–11.2)`, or how it failed.
    pub fn cell(&self) -> String {
        let Some(median) = self.median() else { return "failed".into() };
        let series = self.series();
        let digits = digits(median);
        let doubt = if self.failure.is_some() { " †" } else { "" };
        if self.values.len() == 1 {
            return format!("{median:.digits$}{doubt}");
        }
        format!("{median:.digits$} ({:.digits$}–{:.digits$}){doubt}", series.min(), series.max())
    }
}

/// Short reason of a failure: programs say it in their last line.
pub fn reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    last.chars().take(200).collect()
}

/// Decimals that a number of this size deserves.
pub fn digits(value: f64) -> usize {
    match value.abs() {
        size if size < 10.0 => 2,
        size if size < 1000.0 => 1,
        _ => 0,
    }
}

/// All that a benchmark found in one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Its name.
    pub benchmark: String,
    /// Date of the run.
    pub date: String,
    /// Machine of the run, a line for each fact.
    pub machine: Vec<String>,
    /// Number of measurements of each variant.
    pub repetitions: usize,
    /// Figures.
    pub figures: Vec<Figure>,
}

impl Results {
    /// Results of a run that ends now.
    pub fn new(benchmark: &str, repetitions: usize, figures: Vec<Figure>) -> Result<Self> {
        let machine = machine::description()?;
        Ok(Self {
            benchmark: benchmark.into(),
            date: machine::date()?,
            machine: machine.lines().map(|line| line.trim_start_matches("- ").to_owned()).collect(),
            repetitions,
            figures,
        })
    }

    /// Stores the results; returns the file.
    pub fn save(&self, workspace: &Workspace) -> Result<PathBuf> {
        let folder = folder(workspace);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let file = folder.join(format!("{}-{}.json", self.benchmark, self.date));
        let text = serde_json::to_string_pretty(self)?;
        // A line for each figure's numbers is enough.
        let text = compact_arrays(&text);
        fs::write(&file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }

    /// The newest that were kept of a benchmark.
    pub fn newest(workspace: &Workspace, benchmark: &str) -> Result<Option<Self>> {
        let Ok(entries) = fs::read_dir(folder(workspace)) else { return Ok(None) };
        let is_wanted = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let date = name.strip_prefix(benchmark).and_then(|rest| rest.strip_prefix('-'));
            date.is_some_and(|date| date.starts_with(|c: char| c.is_ascii_digit()) && date.ends_with(".json"))
        };
        let Some(file) = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_wanted).max() else {
            return Ok(None);
        };
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let results =
            serde_json::from_str(&text).with_context(|| format!("{} is damaged", file.display()))?;
        Ok(Some(results))
    }

    /// The groups, in the order in which they were measured.
    pub fn groups(&self) -> Vec<&str> {
        distinct(self.figures.iter().map(|figure| figure.group.as_str()))
    }

    /// The figures of a group.
    pub fn group<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Figure> + 'a {
        self.figures.iter().filter(move |figure| figure.group == group)
    }

    /// A figure by its group, label and place.
    pub fn find(&self, group: &str, label: &str, at: &str) -> Option<&Figure> {
        let wanted = |figure: &&Figure| figure.group == group && figure.label == label && figure.at == at;
        self.figures.iter().find(wanted)
    }

    /// A group as a table: a row for each place, a column for each label, and Tompion's ratio to
    /// its peer's.
    pub fn table(&self, group: &str) -> Table {
        let labels = distinct(self.group(group).map(|figure| figure.label.as_str()));
        let places = distinct(self.group(group).map(|figure| figure.at.as_str()));
        let unit = self.group(group).next().map_or("", |figure| figure.unit.as_str());
        let records = |figure: &&Figure| !figure.label.ends_with(", not recorded");
        let of = |who| {
            let figure = self.group(group).filter(records).find(|figure| figure.who == who);
            figure.map(|figure| figure.label.as_str())
        };
        let peers = Who::PEERS.into_iter();
        let peer = peers.filter_map(|(who, heading)| Some((of(who)?, heading))).next();
        let ratio = of(Who::Tompion).zip(peer.map(|(label, _)| label));
        let mut headings = vec![unit];
        headings.extend(&labels);
        headings.extend(ratio.and(peer).map(|(_, heading)| heading));
        let mut table = Table::new(&headings);
        for place in places {
            let mut row = vec![place.to_owned()];
            row.extend(
                labels
                    .iter()
                    .map(|label| self.find(group, label, place).map_or_else(|| "–".into(), Figure::cell)),
            );
            if let Some((ours, theirs)) = ratio {
                let median = |label| self.find(group, label, place).and_then(Figure::median);
                let ratio = median(ours).zip(median(theirs)).filter(|(_, theirs)| *theirs != 0.0);
                row.push(ratio.map_or_else(|| "–".into(), |(ours, theirs)| format!("{:.2}", ours / theirs)));
            }
            table.row(row);
        }
        table
    }

    /// A group as a table with a row for each label and a column for each place.
    pub fn table_by_label(&self, group: &str) -> Table {
        let labels = distinct(self.group(group).map(|figure| figure.label.as_str()));
        let places = distinct(self.group(group).map(|figure| figure.at.as_str()));
        let unit = self.group(group).next().map_or("", |figure| figure.unit.as_str());
        let mut headings = vec![unit];
        headings.extend(&places);
        let mut table = Table::new(&headings);
        for label in labels {
            let cell = |place: &&str| self.find(group, label, place).map_or_else(|| "–".into(), Figure::cell);
            table.row(std::iter::once(label.to_owned()).chain(places.iter().map(cell)).collect());
        }
        table
    }

    /// Returns the title, the machine and the method, as Markdown.
    pub fn heading(&self, title: &str, method: &str) -> String {
        let machine: String = self.machine.iter().map(|line| format!("- {line}\n")).collect();
        format!("# {title}\n\n{machine}- repetitions: {}\n\n{method}\n", self.repetitions)
    }

    /// All groups as Markdown, below headings.
    pub fn markdown(&self, title: &str, method: &str) -> String {
        let mut text = self.heading(title, method);
        for group in self.groups() {
            text += &format!("\n## {}\n\n{}", capitalised(group), self.table(group).markdown());
        }
        text + &self.failures()
    }

    /// All groups for the terminal.
    pub fn text(&self) -> String {
        let group = |name: &str| format!("{}\n{}\n", capitalised(name), self.table(name).text());
        self.groups().into_iter().map(group).collect::<String>() + &self.failures()
    }

    /// List of failures.
    pub fn failures(&self) -> String {
        let line = |figure: &Figure| {
            let why = figure.failure.as_ref()?;
            Some(format!("- † {}, {}, {}: {why}\n", figure.group, figure.label, figure.at))
        };
        let list: String = self.figures.iter().filter_map(line).collect();
        if list.is_empty() { list } else { format!("\nFailed, wholly or in part:\n\n{list}") }
    }
}

/// Folder of results.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.root.join("benches/results")
}

/// Returns the distinct values in the order of their first appearance.
pub fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// Returns the text with a capital at its beginning.
pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Puts arrays of numbers on a line each.
fn compact_arrays(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let mut depth = 0_usize;
    for line in json.lines() {
        let word = line.trim();
        if depth > 0 {
            let space = if word.starts_with(']') || text.ends_with('[') { "" } else { " " };
            text += space;
            text += word;
        } else {
            text += line;
        }
        let numbers = ["\"values\": [", "\"curve\": ["];
        if depth > 0 || numbers.contains(&word) {
            depth += word.matches('[').count();
            depth -= word.matches(']').count().min(depth);
        }
        if depth == 0 {
            text.push('\n');
        }
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let mut ours = Figure::new("fields", Who::Tompion, "Tompion", "2 fields", "ns");
        ours.note(Ok(12.0));
        ours.note(Ok(10.0));
        ours.note(Ok(11.0));
        let mut theirs = Figure::new("fields", Who::Lttng, "LTTng-UST", "2 fields", "ns");
        theirs.note(Ok(110.0));
        theirs.note(Err(anyhow::anyhow!("the daemon died")));
        let mut missing = Figure::new("fields", Who::Lttng, "LTTng-UST", "4 fields", "ns");
        missing.note(Err(anyhow::anyhow!("the daemon died")));
        Results {
            benchmark: "shapes".into(),
            date: "2026-01-31".into(),
            machine: vec!["CPU: one".into()],
            repetitions: 3,
            figures: vec![ours, theirs, missing],
        }
    }

    #[test]
    fn a_group_becomes_a_table_with_ratios() {
        let table = results().table("fields").markdown();
        assert_eq!(
            table,
            "| ns | Tompion | LTTng-UST | × LTTng |\n|---|--:|--:|--:|\n\
             | 2 fields | 11.0 (10.0–12.0) | 110.0 † | 0.10 |\n| 4 fields | – | failed | – |\n"
        );
    }

    #[test]
    fn failures_are_reported() {
        assert!(results().failures().contains("† fields, LTTng-UST, 4 fields: the daemon died"));
    }

    #[test]
    fn results_are_read_back_from_compact_json() {
        let mut results = results();
        results.figures[0].curve = vec![(1.0, 0.5), (2.0, 1e-8)];
        let text = compact_arrays(&serde_json::to_string_pretty(&results).unwrap());
        assert!(text.contains("\"values\": [10.0, 11.0, 12.0],"), "{text}");
        let read: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(read.figures[0].curve, results.figures[0].curve);
        assert_eq!(read.figures[1].values, [110.0]);
    }
}
