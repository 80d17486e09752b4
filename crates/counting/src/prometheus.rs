//! Counts as Prometheus reads them: the text format of OpenMetrics.
//!
//! Each aggregation is a metric family of its own, because its labels are its keys. Names follow
//! from the rule's name alone, so that they are the same in every recording with this rule.

use std::{collections::BTreeMap, fmt::Write as _};

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

/// Names of the labels, each different. Of names that would be equal, later ones get a number.
fn label_names(keys: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for key in keys {
        let name = label_name(key);
        let mut all = std::iter::once(name.clone()).chain((2..).map(|number| format!("{name}_{number}")));
        names.extend(all.find(|name| !names.contains(name)));
    }
    names
}

/// Labels of an entry, without braces.
fn labels(names: &[String], entry: &Entry) -> Vec<String> {
    let values = |index: usize| entry.key.get(index).map_or_else(|| "(other)".into(), |key| key.to_text());
    let labels = names.iter().enumerate();
    labels.map(|(index, name)| format!("{name}=\"{}\"", escape(&values(index)))).collect()
}

/// Entries by their labels. Keys that look alike, as 5 and the text "5", are one series, because
/// Prometheus refuses a series that is there twice.
fn by_labels(aggregation: &Aggregation) -> Vec<(Vec<String>, Entry)> {
    let names = label_names(&aggregation.keys);
    let mut series: Vec<(Vec<String>, Entry)> = Vec::new();
    let mut places = BTreeMap::new();
    for entry in aggregation.entries.iter().chain(&aggregation.other) {
        let labels = labels(&names, entry);
        let place = *places.entry(labels.clone()).or_insert(series.len());
        match series.get_mut(place) {
            Some((_, before)) => join(&aggregation.function, before, entry),
            None => series.push((labels, entry.clone())),
        }
    }
    series
}

fn join(function: &str, sum: &mut Entry, entry: &Entry) {
    sum.count = sum.count.saturating_add(entry.count);
    sum.value = sum.value.zip(entry.value).and_then(|(a, b)| match function {
        "min" => Some(a.min(b)),
        "max" => Some(a.max(b)),
        _ => a.checked_add(b),
    });
    for bucket in &entry.buckets {
        match sum.buckets.iter_mut().find(|before| before.first == bucket.first) {
            Some(before) => before.count = before.count.saturating_add(bucket.count),
            None => sum.buckets.push(*bucket),
        }
    }
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
    for (labels, entry) in &by_labels(aggregation) {
        let braces = in_braces(labels);
        let value = entry.value;
        let _ = match kind {
            "counter" => writeln!(text, "{name}_total{braces} {}", entry.count),
            "gauge" => value.map_or(Ok(()), |value| writeln!(text, "{name}{braces} {value}")),
            "summary" => {
                let _ = writeln!(text, "{name}_count{braces} {}", entry.count);
                value.map_or(Ok(()), |value| writeln!(text, "{name}_sum{braces} {value}"))
            }
            _ => write_histogram(text, &name, labels, entry),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Bucket, KeyValue};

    fn text_of(function: &str, keys: &[&str], entries: Vec<Entry>) -> String {
        let keys = keys.iter().map(|key| (*key).into()).collect();
        let (name, function) = ("n".into(), function.into());
        let aggregation = Aggregation { name, function, keys, entries, ..Aggregation::default() };
        Document { aggregations: vec![aggregation], ..Document::default() }.to_prometheus()
    }

    fn entry(key: KeyValue, count: u64, value: Option<i64>) -> Entry {
        Entry { key: vec![key], count, value, buckets: Vec::new() }
    }

    fn text(text: &str) -> KeyValue {
        KeyValue::Text(text.into())
    }

    #[track_caller]
    fn has(found: &str, lines: &[&str]) {
        let found: Vec<&str> = found.lines().filter(|line| line.starts_with("tompion_count_n")).collect();
        assert_eq!(found, lines);
    }

    #[test]
    fn keys_that_look_alike_are_one_series() {
        let entries = vec![
            entry(KeyValue::Absent, 1, None),
            entry(KeyValue::Natural(5), 2, None),
            entry(text("(none)"), 3, None),
            entry(text("5"), 4, None),
        ];
        let expected = ["tompion_count_n_total{k=\"(none)\"} 4", "tompion_count_n_total{k=\"5\"} 6"];
        has(&text_of("count", &["k"], entries), &expected);
        let twice = |a, b| vec![entry(KeyValue::Natural(5), 1, a), entry(text("5"), 1, b)];
        has(&text_of("min", &["k"], twice(Some(3), Some(-3))), &["tompion_count_n{k=\"5\"} -3"]);
        has(&text_of("max", &["k"], twice(Some(3), Some(-3))), &["tompion_count_n{k=\"5\"} 3"]);
        has(&text_of("max", &["k"], twice(Some(3), None)), &[]);
        let sum = ["tompion_count_n_count{k=\"5\"} 2", "tompion_count_n_sum{k=\"5\"} 7"];
        has(&text_of("sum", &["k"], twice(Some(3), Some(4))), &sum);
    }

    #[test]
    fn buckets_of_keys_that_look_alike_are_added_up() {
        let bucket = |value, count| Bucket { first: Some(value), last: Some(value), count };
        let histogram = |key, buckets: &[Bucket]| Entry {
            buckets: buckets.to_vec(),
            ..entry(key, buckets.iter().map(|bucket| bucket.count).sum(), Some(1))
        };
        let entries = vec![
            histogram(KeyValue::Natural(5), &[bucket(1, 1)]),
            histogram(text("5"), &[bucket(0, 2), bucket(1, 3)]),
        ];
        let expected = [
            "tompion_count_n_bucket{k=\"5\",le=\"0\"} 2",
            "tompion_count_n_bucket{k=\"5\",le=\"1\"} 6",
            "tompion_count_n_bucket{k=\"5\",le=\"+Inf\"} 6",
            "tompion_count_n_count{k=\"5\"} 6",
            "tompion_count_n_sum{k=\"5\"} 2",
        ];
        has(&text_of("histogram", &["k"], entries), &expected);
    }

    #[test]
    fn labels_have_different_names() {
        let entries =
            vec![Entry { key: vec![text("x"), text("y"), text("z")], count: 1, ..Entry::default() }];
        let expected = "tompion_count_n_total{a_b=\"x\",a_b_2=\"y\",a_b_3=\"z\"} 1";
        has(&text_of("count", &["a.b", "a_b", "a-b"], entries), &[expected]);
    }
}
