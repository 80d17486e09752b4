//! Counts of events by class for some tracks. Their events must be read, part by part.

use std::collections::HashMap;
use std::time::Instant;

use tompion_reader::Selection;

use super::answers::EventCounts;
use super::events::{key_of, scan_timeout};
use super::row_reader::RowReader;
use super::{ApiRequest, ApiResult, selection_stats, track_filter};

/// Counts of a request so far.
#[derive(Debug)]
pub struct Counted {
    /// Part to read next.
    next: usize,
    /// Counts by the names of event classes.
    counts: HashMap<String, u64>,
}

/// Counts events until the timeout, and says whether more are left.
pub fn counts(request: &ApiRequest<'_>) -> ApiResult<EventCounts> {
    let (from, to) = request.window()?;
    let scan_timeout = scan_timeout(request)?;
    let began = Instant::now();
    let only = track_filter::TrackFilter::new(request)?.map(track_filter::TrackFilter::only);
    let (base, known) = {
        let index = request.opened.index();
        (index.base, request.known(&index))
    };
    let to = to.min(known);
    if from > to {
        return Ok(EventCounts { events: Vec::new(), known, r#continue: false, scanned: 1.0 });
    }
    let reading = RowReader::new(request)?;
    let (from, to) = (from.saturating_add(base), to.saturating_add(base));
    let (first, last) = (reading.at(from), reading.at(to));
    let key = key_of(request, (from, to));
    let remembered = request.workspace.query_cache().counts.take(&key);
    let mut counted = remembered.unwrap_or(Counted { next: first, counts: HashMap::new() });
    let mut has_read = false;
    while counted.next <= last && !(has_read && began.elapsed() >= scan_timeout) {
        has_read = true;
        let selection =
            Selection { from: Some(from), to: Some(to), predicate: only.clone(), ..Selection::default() };
        if let Some(mut traces) = reading.read(counted.next, selection) {
            while let Some(event) = traces.next_event() {
                match counted.counts.get_mut(event.name()) {
                    Some(count) => *count += 1,
                    None => drop(counted.counts.insert(event.name().to_owned(), 1)),
                }
            }
        }
        counted.next += 1;
    }
    if let Some(gone) = counted.counts.is_empty().then(|| request.gone()).flatten() {
        return Err(gone);
    }
    let counts = counted.counts.iter().map(|(name, count)| (&**name, *count));
    let events = selection_stats::sorted_counts(counts.collect());
    let r#continue = counted.next <= last;
    let scanned = (counted.next - first) as f64 / (last - first + 1) as f64;
    request.workspace.query_cache().counts.keep(key, counted);
    Ok(EventCounts { events, known, r#continue, scanned })
}
