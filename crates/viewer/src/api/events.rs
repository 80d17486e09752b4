//! Table of events: any of its rows, without reading those before them.

use std::collections::VecDeque;
use std::ops;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tompion_protocol::rules::matches_event;
use tompion_reader::filter::{self, Filter};
use tompion_reader::{Event, Selection, TraceSet, text};

use super::answers::EventRows;
use super::counts::Counted;
use super::row_reader::RowReader;
use super::threads::Threads;
use super::track_filter::TrackFilter;
use super::{ApiError, ApiRequest, ApiResult};

/// Maximum number of rows in an answer.
const MAX_ROWS: i64 = 2000;
/// Default and maximum time in milliseconds for which filtered rows are searched before the rows
/// found so far are answered.
const DEFAULT_SCAN_TIMEOUT_MS: i64 = 250;
const MAX_SCAN_TIMEOUT_MS: i64 = 10_000;
/// Maximum number of cached tables, and of cached counts.
const MAX_CACHED_ANSWERS: usize = 8;
/// Maximum text of a row in bytes.
const MAX_TEXT_BYTES: usize = 2000;

/// Numbers of matching events in the parts of a trace.
#[derive(Clone, Debug)]
pub struct Table {
    /// Part of the first count.
    first: usize,
    counts: Vec<u64>,
}

/// Events that a request asks for.
pub struct EventSelection {
    filter: Option<Filter>,
    /// Whether each event class is wanted, by trace and stream class; `None` if all are.
    classes: Option<Vec<Vec<Vec<bool>>>>,
    /// Tracks to which events must belong; `None` for all.
    track_filter: Option<Arc<TrackFilter>>,
    /// Message about an invalid filter.
    bad: Option<String>,
}

impl EventSelection {
    /// Reads the selection from the parameters of a request.
    pub fn new(request: &ApiRequest<'_>) -> Result<Self, ApiError> {
        let globs: Vec<&str> = request.query.all("e").filter(|glob| !glob.is_empty()).collect();
        let classes = (!globs.is_empty()).then(|| {
            let takes = |event: &tompion_ctf::metadata::Event| {
                globs.iter().any(|glob| matches_event(glob, &event.names()))
            };
            let streams = |trace: &tompion_reader::Trace| {
                trace
                    .metadata()
                    .streams
                    .iter()
                    .map(|stream| stream.events.iter().map(takes).collect())
                    .collect()
            };
            request.opened.set.traces().iter().map(streams).collect()
        });
        let track_filter = TrackFilter::new(request)?;
        let text = request.query.text("filter").unwrap_or_default().trim();
        let filter = (!text.is_empty()).then(|| compile(text, &request.opened.set)).transpose();
        let (filter, bad) = match filter {
            Ok(filter) => (filter, None),
            Err(line) => (None, Some(line)),
        };
        Ok(Self { filter, classes, track_filter, bad })
    }

    fn is_open(&self) -> bool {
        self.filter.is_none() && self.classes.is_none() && self.track_filter.is_none()
    }

    fn takes(&self, event: &Event<'_>) -> bool {
        let place = event.place();
        let is_chosen = self.classes.as_ref().is_none_or(|traces| {
            let class =
                traces.get(place.trace).and_then(|streams| streams.get(place.stream)?.get(place.class));
            class.copied().unwrap_or(false)
        });
        is_chosen
            && self.filter.as_ref().is_none_or(|filter| filter.takes(event))
            && self.track_filter.as_ref().is_none_or(|track_filter| track_filter.takes(event))
    }
}

/// Compiles a filter for the traces, or returns one line that says what is wrong.
pub fn compile(text: &str, traces: &TraceSet) -> Result<Filter, String> {
    let line = |error: tompion_filter::FilterError| {
        let text = error.to_string();
        text.lines().find(|line| !line.trim().is_empty()).unwrap_or("the filter is wrong").trim().to_owned()
    };
    let expression = tompion_filter::parse(text).map_err(line)?;
    let filter = Filter::new(&expression).map_err(line)?;
    if let Some((name, _)) = filter::missing(&expression, traces).first() {
        return Err(format!("no event has `{name}`"));
    }
    filter::check(&expression, traces).map_err(line)?;
    Ok(filter)
}

/// Returns the selection of a request as the reader takes it.
pub fn selection(request: &ApiRequest<'_>) -> Result<Selection, ApiError> {
    let text = request.query.text("filter").unwrap_or_default().trim();
    let filter = match text {
        "" => None,
        text => Some(compile(text, &request.opened.set).map_err(ApiError::bad_request)?),
    };
    let events = request.query.all("e").filter(|glob| !glob.is_empty()).map(str::to_owned).collect();
    let only = TrackFilter::new(request)?.map(TrackFilter::only);
    Ok(Selection { events, filter, predicate: only, ..Selection::default() })
}

/// Answers with rows of the table.
pub fn events(request: &ApiRequest<'_>) -> ApiResult<EventRows> {
    let (from, mut to) = request.window()?;
    let row = request.optional("row")?.unwrap_or(0).max(0) as u64;
    let count = request.optional("count")?.unwrap_or(200).clamp(0, MAX_ROWS) as u64;
    let choice = EventSelection::new(request)?;
    if let Some(bad) = choice.bad {
        return Ok(EventRows { bad: Some(bad), ..EventRows::none() });
    }
    let base = {
        let index = request.opened.index();
        if choice.track_filter.is_some() {
            // Events can be assigned to tracks as far as the trace is indexed.
            to = to.min(request.known(&index));
        }
        index.base
    };
    if from > to {
        return Ok(EventRows::none());
    }
    let reading = RowReader::new(request)?;
    let range = Range { from: from.saturating_add(base), to: to.saturating_add(base), base, reading };
    let rows = row..row.saturating_add(count);
    let found = if choice.is_open() {
        range.rows(rows)
    } else {
        range.chosen(request, scan_timeout(request)?, &choice, rows)
    };
    // An empty answer would be wrong where files can't be read.
    if let Some(gone) = found.rows.is_empty().then(|| request.gone()).flatten() {
        return Err(gone);
    }
    let threads = Threads::new(request, &found.rows);
    let FoundRows { rows, total, goes_on, scanned } = found;
    let rows = rows.into_iter().map(|row| threads.event_row(request, row)).collect();
    let scanned = goes_on.then_some(scanned);
    Ok(EventRows { rows, total, r#continue: goes_on, scanned, bad: None })
}

/// Returns for how long a request may search before it answers.
pub fn scan_timeout(request: &ApiRequest<'_>) -> Result<Duration, ApiError> {
    let scan_timeout =
        request.optional("patience")?.unwrap_or(DEFAULT_SCAN_TIMEOUT_MS).clamp(0, MAX_SCAN_TIMEOUT_MS);
    Ok(Duration::from_millis(scan_timeout as u64))
}

/// Returns a key that distinguishes requests, including the state of the traces that they were made
/// of.
pub fn key_of(request: &ApiRequest<'_>, (from, to): (i64, i64)) -> String {
    let (generation, offsets) = (request.opened.generation, &request.offsets);
    let all: Vec<&str> = request.query.all("e").collect();
    let text = |name: &str| request.query.text(name);
    format!("{generation}\n{offsets:?}\n{from}\n{to}\n{:?}\n{:?}\n{all:?}", text("tracks"), text("filter"))
}

/// Row of the table.
pub struct Row {
    /// Number among all events.
    pub number: u64,
    /// Time in nanoseconds from the base, with the trace's clock offset.
    pub time: i64,
    /// Index of the trace.
    pub trace: usize,
    /// CPU on which the event happened.
    pub cpu: Option<u64>,
    /// Thread, if the event's context has it.
    pub tid: Option<i32>,
    /// Name of the event class.
    pub name: String,
    /// Fields as text.
    pub text: String,
}

impl Row {
    /// Makes a row of an event.
    pub fn new(event: &Event<'_>, number: u64, base: i64) -> Self {
        let contexts = [event.stream_context(), event.context()];
        let find = |name: &str| contexts.iter().find_map(|fields| fields.get(name));
        let tid = ["vtid", "tid", "perf_tid"].iter().find_map(|name| find(name));
        let mut text = text::payload(event);
        if text.len() > MAX_TEXT_BYTES {
            let end = (0..=MAX_TEXT_BYTES).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
        Self {
            number,
            time: event.timestamp().unwrap_or(base).saturating_sub(base),
            trace: event.trace_index(),
            cpu: event.cpu(),
            tid: tid.and_then(|tid| tid.as_integer()?.try_into().ok()),
            name: event.name().into(),
            text,
        }
    }
}

/// Rows that were found.
#[derive(Default)]
struct FoundRows {
    rows: Vec<Row>,
    total: Option<u64>,
    /// Whether more remains to be found: further rows, or their total.
    goes_on: bool,
    /// Share of the range that was searched.
    scanned: f64,
}

/// Time range in nanoseconds since the epoch, with its reader.
struct Range<'q> {
    from: i64,
    to: i64,
    base: i64,
    reading: RowReader<'q>,
}

impl Range<'_> {
    fn rows(&self, rows: ops::Range<u64>) -> FoundRows {
        let reading = &self.reading;
        let first = reading.rows_before(self.from);
        let behind = reading.rows_before(self.to.saturating_add(1));
        let total = Some(behind.saturating_sub(first));
        let mut found = FoundRows { total, scanned: 1.0, ..FoundRows::default() };
        let wanted = first.saturating_add(rows.start)..first.saturating_add(rows.end).min(behind);
        if wanted.is_empty() {
            return found;
        }
        let mut part = reading.part_of(wanted.start);
        let mut number = reading.first_row(part);
        while number < wanted.end {
            let Some(mut traces) = reading.read(part, Selection::default()) else { break };
            while number < wanted.end && traces.step() {
                if let Some(event) = traces.current().filter(|_| wanted.contains(&number)) {
                    found.rows.push(Row::new(&event, number, self.base));
                }
                number += 1;
            }
            part += 1;
            // A part's first row is known however many of its rows were read.
            let known = if number < wanted.end { reading.known_first_row(part) } else { None };
            number = known.unwrap_or(number);
        }
        found
    }

    /// Returns the rows that match the selection, found until the timeout, from one part at least.
    /// Counts are cached, so a repeated request continues where the last one ended.
    fn chosen(
        &self,
        request: &ApiRequest<'_>,
        scan_timeout: Duration,
        choice: &EventSelection,
        wanted: ops::Range<u64>,
    ) -> FoundRows {
        let reading = &self.reading;
        let began = Instant::now();
        let key = key_of(request, (self.from, self.to));
        let (first, last) = (reading.at(self.from), reading.at(self.to));
        let mut table =
            request.workspace.query_cache().tables.take(&key).unwrap_or(Table { first, counts: Vec::new() });
        let mut found = FoundRows::default();
        let (mut passed, mut part, mut has_read) = (0u64, first, false);
        while part <= last {
            let known = table.counts.get(part - table.first).copied();
            if let Some(known) = known.filter(|known| passed + known <= wanted.start || passed >= wanted.end)
            {
                passed += known;
                part += 1;
                continue;
            }
            if has_read && began.elapsed() >= scan_timeout {
                found.goes_on = true;
                break;
            }
            has_read = true;
            let rows = wanted.start.saturating_sub(passed)..wanted.end.saturating_sub(passed);
            let counted = self.part(choice, part, rows, &mut found);
            if known.is_none() {
                table.counts.push(counted);
            }
            passed += counted;
            part += 1;
        }
        let is_whole = table.counts.len() == last - first + 1;
        found.total = is_whole.then(|| table.counts.iter().sum());
        found.scanned = table.counts.len() as f64 / (last - first + 1) as f64;
        request.workspace.query_cache().tables.keep(key, table);
        found
    }

    /// Reads a part and adds those matching rows whose numbers are in a range; returns the number
    /// of matching rows.
    fn part(
        &self,
        choice: &EventSelection,
        part: usize,
        rows: ops::Range<u64>,
        found: &mut FoundRows,
    ) -> u64 {
        let selection = Selection { to: Some(self.to), ..Selection::default() };
        let Some(mut traces) = self.reading.read(part, selection) else { return 0 };
        let (mut count, mut number, mut first) = (0, 0, None);
        while let Some(event) = traces.next_event() {
            if event.timestamp().is_none_or(|time| time >= self.from) && choice.takes(&event) {
                if rows.contains(&count) {
                    let first = *first.get_or_insert_with(|| self.reading.first_row(part));
                    found.rows.push(Row::new(&event, first + number, self.base));
                }
                count += 1;
            }
            number += 1;
        }
        count
    }
}

/// Cached results of requests that are answered piece by piece.
#[derive(Debug, Default)]
pub struct QueryCache {
    /// Matching events of each part, of tables.
    tables: AnswerCache<Table>,
    /// Counts so far.
    pub counts: AnswerCache<Counted>,
}

/// Cache of the newest answers, by the keys of their requests.
#[derive(Debug)]
pub struct AnswerCache<T> {
    answers: VecDeque<(String, T)>,
}

impl<T> Default for AnswerCache<T> {
    fn default() -> Self {
        Self { answers: VecDeque::new() }
    }
}

impl<T> AnswerCache<T> {
    /// Takes the state of a request; the caller puts it back when it continues.
    pub fn take(&mut self, key: &str) -> Option<T> {
        let place = self.answers.iter().position(|(known, _)| known == key)?;
        self.answers.remove(place).map(|(_, answer)| answer)
    }

    /// Caches a state, and evicts the oldest one if there are too many.
    pub fn keep(&mut self, key: String, answer: T) {
        self.answers.push_back((key, answer));
        if self.answers.len() > MAX_CACHED_ANSWERS {
            self.answers.pop_front();
        }
    }
}
