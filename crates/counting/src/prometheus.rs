//! Counts as Prometheus reads them: the text format of OpenMetrics.
//!
//! Each aggregation is a metric family of its own, because its labels are its keys. Names follow
//! from the rule's name alone, so that they are the same in every recording with this rule.

use std::fmt::Write as _;

use crate::document::{Aggregation, Document, Entry, Processes};

/// Largest bound of a histogram's buckets, as an exponent of two.
const MAX_BOUND: u32 = 63;

impl Document {
    /// The document in the text format, with `# EOF` at its end.
    pub fn to_prometheus(&self) -> String {
        let mut text = String::new();
        for aggregation in &self.aggregations {
            write_aggregation(&mut text, aggregation);
        }
        write_gaps(&mut text, self);
        text += "# EOF\n";
        text
    }
}

/// Escapes the value of a label.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Name of a label: letters, digits and `_`.
fn label_name(key: &str) -> String {
    let name: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    // These names belong to histograms, and to Prometheus itself.
    let is_taken = name == "le" || name == "quantile" || name.starts_with("__");
    let begins_with_digit = name.starts_with(|c: char| c.is_ascii_digit());
    if is_taken || begins_with_digit { format!("key_{name}") } else { name }
}

/// Labels of an entry, without braces.
fn labels(aggregation: &Aggregation, entry: &Entry) -> Vec<String> {
    let values = |index: usize| entry.key.get(index).map_or_else(|| "(other)".into(), |key| key.to_text());
    let labels = aggregation.keys.iter().enumerate();
    labels.map(|(index, key)| format!("{}=\"{}\"", label_name(key), escape(&values(index)))).collect()
}

fn in_braces(labels: &[String]) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

fn write_aggregation(text: &mut String, aggregation: &Aggregation) {
    let name = format!("tompion_count_{}", aggregation.name);
    let kind = match aggregation.function.as_str() {
        "count" => "counter",
        "sum" => "summary",
        "histogram" => "histogram",
        _ => "gauge",
    };
    // Writing to a string can't fail.
    let _ = writeln!(text, "# HELP {name} {}", escape(&aggregation.rule));
    let _ = writeln!(text, "# TYPE {name} {kind}");
    for entry in aggregation.entries.iter().chain(&aggregation.other) {
        let labels = labels(aggregation, entry);
        let braces = in_braces(&labels);
        let value = entry.value;
        let _ = match kind {
            "counter" => writeln!(text, "{name}_total{braces} {}", entry.count),
            "gauge" => value.map_or(Ok(()), |value| writeln!(text, "{name}{braces} {value}")),
            "summary" => {
                let _ = writeln!(text, "{name}_count{braces} {}", entry.count);
                value.map_or(Ok(()), |value| writeln!(text, "{name}_sum{braces} {value}"))
            }
            _ => write_histogram(text, &name, &labels, entry),
        };
    }
}

/// Writes a histogram with a bucket for each power of two up to its largest value.
fn write_histogram(text: &mut String, name: &str, labels: &[String], entry: &Entry) -> std::fmt::Result {
    let with_bound = |bound: &str| {
        let bound = format!("le=\"{bound}\"");
        in_braces(&labels.iter().cloned().chain([bound]).collect::<Vec<_>>())
    };
    let negative = entry.buckets.iter().any(|bucket| bucket.last.is_none());
    // Values below 0 are less or equal to every bound.
    let up_to = |bound: u64| {
        let below = entry.buckets.iter().filter(|bucket| bucket.last.is_none_or(|last| last <= bound));
        below.fold(0, |sum, bucket| bucket.count.saturating_add(sum))
    };
    let most = entry.buckets.iter().filter_map(|bucket| bucket.last).max().unwrap_or(0);
    let bounds = [0].into_iter().chain((0..=MAX_BOUND).map(|power| (1u64 << power) - 1 + (1u64 << power)));
    for bound in bounds.take_while(|bound| *bound / 2 < most.max(1)) {
        writeln!(text, "{name}_bucket{} {}", with_bound(&bound.to_string()), up_to(bound))?;
    }
    let braces = in_braces(labels);
    writeln!(text, "{name}_bucket{} {}", with_bound("+Inf"), entry.count)?;
    writeln!(text, "{name}_count{braces} {}", entry.count)?;
    // The sum of a histogram must not go down.
    match entry.value.filter(|_| !negative) {
        Some(sum) => writeln!(text, "{name}_sum{braces} {sum}"),
        None => Ok(()),
    }
}

fn write_gaps(text: &mut String, document: &Document) {
    let Processes { counting, ended, unable, .. } = document.processes;
    *text += "# HELP tompion_counts_processes Processes of the recording, by whether they count.\n";
    *text += "# TYPE tompion_counts_processes gauge\n";
    for (state, number) in [("counting", counting), ("ended", ended), ("unable", unable)] {
        let _ = writeln!(text, "tompion_counts_processes{{state=\"{state}\"}} {number}");
    }
    *text += "# HELP tompion_counts_missing What is missing from counts, by cause.\n";
    *text += "# TYPE tompion_counts_missing gauge\n";
    for Aggregation { name, other, lost, refused, not_counting, unfit, .. } in &document.aggregations {
        let other = other.as_ref().map_or(0, |other| other.count);
        let causes = [
            ("events_not_counted", *lost),
            ("memory_refused", *refused),
            ("processes_not_counting", *not_counting),
            ("processes_without_field", *unfit),
            ("events_without_room", other),
        ];
        for (cause, number) in causes {
            let _ = writeln!(text, "tompion_counts_missing{{count=\"{name}\",cause=\"{cause}\"}} {number}");
        }
    }
}
