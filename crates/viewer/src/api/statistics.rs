//! Durations of what has the same name: how many, how long, and where the longest is.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::index::Index;
use crate::index::entry::Entry;

/// Durations by label.
#[derive(Debug, Default)]
pub struct Durations(HashMap<u32, Group>);

/// Durations of one label.
#[derive(Debug, Default)]
struct Group {
    /// Each duration in nanoseconds and where it is: lane and beginning. What was merged counts several times.
    all: Vec<(u64, u32, i64, u64)>,
    count: u64,
    total: u64,
}

impl Durations {
    /// Adds a box of a lane; one that stands for several counts as so many equal ones.
    pub fn add(&mut self, lane: u32, entry: &Entry, offset: i64) {
        let group = self.0.entry(entry.label).or_default();
        let whole = entry.duration().max(0) as u64;
        let count = entry.count.max(1);
        group.all.push((whole / count, lane, entry.begin.saturating_add(offset), count));
        group.count = group.count.saturating_add(count);
        group.total = group.total.saturating_add(whole);
    }

    /// How many labels there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// As the page wants it: so many, those that took most time.
    pub fn into_value(self, index: &Index, most: usize) -> Value {
        let mut groups: Vec<(u32, Group)> = self.0.into_iter().collect();
        groups.sort_by_key(|(label, group)| (std::cmp::Reverse(group.total), *label));
        let values = groups.into_iter().take(most).map(|(label, group)| {
            let name = index.label(label).map(ToString::to_string).unwrap_or_default();
            group.into_value(&name)
        });
        Value::Array(values.collect())
    }
}

impl Group {
    fn into_value(mut self, name: &str) -> Value {
        self.all.sort_unstable();
        let mut bins: Vec<Bin> = Vec::new();
        for &(duration, lane, begin, count) in &self.all {
            // Bins are twice as wide from one to the next.
            let low = if duration == 0 { 0 } else { 1u64 << duration.ilog2() };
            // Those between two that have something are there, too, so that equally wide bars stand for equal ratios.
            while let Some(before) = bins.last().map(|bin| bin.low).filter(|before| behind(*before) < low) {
                bins.push(Bin { low: behind(before), count: 0, longest: (0, 0, 0) });
            }
            match bins.last_mut().filter(|bin| bin.low == low) {
                Some(bin) => (bin.count, bin.longest) = (bin.count + count, (duration, lane, begin)),
                None => bins.push(Bin { low, count, longest: (duration, lane, begin) }),
            }
        }
        let first = self.all.first().map_or(0, |it| it.0);
        let last = self.all.last().copied().unwrap_or_default();
        json!({
            "name": name, "count": self.count, "min": first, "p50": self.at(50), "p90": self.at(90),
            "p99": self.at(99), "max": last.0, "total": self.total,
            "longest": place((last.0, last.1, last.2)),
            "histogram": bins.iter().map(|bin| {
                let longest = (bin.count > 0).then(|| place(bin.longest));
                json!([bin.low, behind(bin.low), bin.count, longest])
            }).collect::<Vec<_>>(),
        })
    }

    /// The duration that so many of a hundred don't exceed.
    fn at(&self, percent: u64) -> u64 {
        let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100) as u64;
        let mut passed = 0u64;
        let found = self.all.iter().find(|(.., count)| {
            passed = passed.saturating_add(*count);
            passed >= rank
        });
        found.map_or(0, |it| it.0)
    }
}

struct Bin {
    low: u64,
    count: u64,
    longest: (u64, u32, i64),
}

/// Where the bin ends that begins there, and the next one begins.
fn behind(low: u64) -> u64 {
    low.saturating_mul(2).max(1)
}

fn place((duration, lane, begin): (u64, u32, i64)) -> Value {
    json!({ "lane": lane, "begin": begin, "end": begin.saturating_add_unsigned(duration) })
}
