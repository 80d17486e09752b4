//! Counts as a table for people.

use crate::document::{Aggregation, Bucket, Document, Entry};

/// Maximum number of lines of an aggregation, where a table is limited.
const MAX_LINES: usize = 20;
/// Maximum width of a column of keys.
const MAX_KEY_WIDTH: usize = 48;
/// Width of the bars of histograms.
const BAR: usize = 24;

impl Document {
    /// The document as a table for each aggregation, the largest counts first. `is_short` shows the
    /// first of many keys. Control characters of programs' texts are
    /// replaced.
    pub fn to_table(&self, is_short: bool) -> String {
        let tables = self.aggregations.iter().map(|aggregation| aggregation_table(aggregation, is_short));
        let mut text = tables.collect::<Vec<_>>().join("\n");
        let gaps = self.gaps();
        if !gaps.is_empty() {
            text += "\n";
        }
        for gap in gaps {
            text += &format!("{}\n", escape(&gap));
        }
        text
    }
}

/// A text that programs may have written, without control characters: a terminal obeys these.
fn escape(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// A number with thousands apart.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn signed(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    sign.to_owned() + &thousands(number.unsigned_abs())
}

/// Smallest value that a share of the events, in percent, does not exceed, as far as buckets tell.
fn quantile(entry: &Entry, percent: u64) -> String {
    let rank = tompion_histogram::rank(entry.count, percent, 100);
    let mut sum = 0u128;
    for bucket in &entry.buckets {
        sum += u128::from(bucket.count);
        if sum >= rank {
            return bucket.last.map_or_else(|| "< 0".into(), |last| format!("≤ {}", thousands(last)));
        }
    }
    "?".into()
}

/// Columns of values that a function has.
fn columns(function: &str) -> &'static [&'static str] {
    match function {
        "count" => &["count"],
        "sum" => &["count", "sum", "mean"],
        "min" => &["count", "min"],
        "max" => &["count", "max"],
        _ => &["count", "mean", "p50", "p90", "p99", "max"],
    }
}

fn mean(entry: &Entry) -> String {
    match entry.value {
        Some(sum) if entry.count != 0 => {
            let mean = sum as f64 / entry.count as f64;
            if mean.abs() < 100.0 { format!("{mean:.2}") } else { signed(mean.round() as i64) }
        }
        _ => "?".into(),
    }
}

fn values(function: &str, entry: &Entry) -> Vec<String> {
    let value = entry.value.map_or_else(|| "?".into(), signed);
    let count = thousands(entry.count);
    match function {
        "count" => vec![count],
        "sum" => vec![count, value, mean(entry)],
        "min" | "max" => vec![count, value],
        _ => {
            let quantiles = [50, 90, 99, 100].map(|percent| quantile(entry, percent));
            [count, mean(entry)].into_iter().chain(quantiles).collect()
        }
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn cut(text: String) -> String {
    if width(&text) <= MAX_KEY_WIDTH {
        return text;
    }
    text.chars().take(MAX_KEY_WIDTH - 1).chain(['…']).collect()
}

fn aggregation_table(aggregation: &Aggregation, is_short: bool) -> String {
    let mut text = format!("{}\n", escape(&aggregation.rule));
    let mut entries: Vec<&Entry> = aggregation.entries.iter().collect();
    entries.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
    let shown = if is_short { MAX_LINES.min(entries.len()) } else { entries.len() };
    let hidden = entries.len() - shown;
    let keys = aggregation.keys.len();
    let header: Vec<String> = aggregation
        .keys
        .iter()
        .cloned()
        .chain(columns(&aggregation.function).iter().map(|it| (*it).into()))
        .collect();
    let row = |entry: &Entry| -> Vec<String> {
        let key = |index: usize| {
            entry.key.get(index).map_or_else(|| "(other)".into(), |key| escape(&key.to_text()))
        };
        (0..keys).map(|index| cut(key(index))).chain(values(&aggregation.function, entry)).collect()
    };
    let rows = entries.iter().take(shown).copied().chain(&aggregation.other).map(row);
    let rows: Vec<Vec<String>> = [header].into_iter().chain(rows).collect();
    if rows.len() == 1 {
        return text + "  none counted\n";
    }
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0)
        })
        .collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, size))| {
            let space = " ".repeat(size - width(cell));
            if column < keys { format!("{cell}{space}") } else { format!("{space}{cell}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text += &format!("  {}\n", line.trim_end());
    }
    if hidden != 0 {
        text += &format!("  … and {hidden} more keys\n");
    }
    if let (0, "histogram", Some(entry)) = (keys, aggregation.function.as_str(), entries.first()) {
        text += &bars(&entry.buckets);
    }
    text
}

/// Bars of a histogram without keys, by powers of two.
fn bars(buckets: &[Bucket]) -> String {
    let mut powers: Vec<(String, u64)> = Vec::new();
    for bucket in buckets {
        let label = match bucket.first {
            None => "< 0".into(),
            Some(0) => "0".into(),
            Some(first) => format!("≥ {}", thousands(1 << first.ilog2())),
        };
        match powers.last_mut() {
            Some((last, count)) if *last == label => *count = count.saturating_add(bucket.count),
            _ => powers.push((label, bucket.count)),
        }
    }
    let most = powers.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let size = powers.iter().map(|(label, _)| width(label)).max().unwrap_or(0);
    let numbers = powers.iter().map(|(_, count)| thousands(*count).len()).max().unwrap_or(0);
    let line = |(label, count): &(String, u64)| {
        let filled = (u128::from(*count) * BAR as u128).div_ceil(u128::from(most)) as usize;
        let space = " ".repeat(size - width(label));
        format!("  {label}{space}  {:>numbers$}  {}\n", thousands(*count), "█".repeat(filled))
    };
    powers.iter().map(line).collect()
}
