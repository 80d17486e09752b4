//! Search for the next or previous event with a text in its name, fields, contexts or thread name.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tompion_reader::filter::Filter;
use tompion_reader::{Event, Selection, text};

use super::answers::{NoHit, SearchAnswer, SearchHit};
use super::events::{Row, compile};
use super::row_reader::RowReader;
use super::threads::Threads;
use super::track_filter::TrackFilter;
use super::{ApiError, ApiRequest, ApiResult, MAX_TIME_NS};

/// Time after which a search answers how far it has come.
const SCAN_TIMEOUT: Duration = Duration::from_millis(200);
/// Number of events between two looks at the clock.
const CLOCK_CHECK_INTERVAL: u64 = 1024;

/// Condition of a search.
enum Wanted {
    Matching(Box<Filter>),
    /// Text in lower case, and the threads whose names contain it.
    Text(String, Option<Arc<TrackFilter>>),
}

impl Wanted {
    fn is(&self, event: &Event<'_>) -> bool {
        match self {
            Self::Matching(filter) => filter.takes(event),
            Self::Text(wanted, threads) => {
                event.name().to_lowercase().contains(wanted)
                    || text::payload(event).to_lowercase().contains(wanted)
                    || contexts(event).to_lowercase().contains(wanted)
                    || threads.as_ref().is_some_and(|threads| threads.takes(event))
            }
        }
    }
}

/// Answers with the matching event nearest to a time.
pub fn search(request: &ApiRequest<'_>) -> ApiResult<SearchAnswer> {
    let text = request.query.text("q").unwrap_or_default();
    if text.is_empty() {
        return Err(ApiError::bad_request("expected q=TEXT, found nothing"));
    }
    let base = request.opened.index().base;
    let from = request.number("from")?.clamp(-MAX_TIME_NS, MAX_TIME_NS).saturating_add(base);
    let forward = request.optional("dir")?.unwrap_or(1) >= 0;
    let (wanted, bad) = match condition(text).then(|| compile(text, &request.opened.set)) {
        Some(Ok(filter)) => (Wanted::Matching(Box::new(filter)), None),
        // Names contain operators, too: a function `operator==`, a thread `wk<i>3`.
        other => {
            let text = text.to_lowercase();
            let threads = TrackFilter::named(request, &text);
            (Wanted::Text(text, threads), other.and_then(Result::err))
        }
    };
    let reading = RowReader::new(request)?;
    let mut looking = Looking { reading, wanted, base, began: Instant::now(), scanned: 0 };
    let found = if forward { looking.forward(from) } else { looking.backward(from) };
    let scanned = looking.scanned;
    // An empty result would be wrong where files can't be read.
    let gone = matches!(found, Ending::None).then(|| request.gone()).flatten();
    if let Some(gone) = gone {
        return Err(gone);
    }
    let bad = bad.map(|line| format!("{line}, so it was looked for as text"));
    let no_hit = NoHit { none: true, scanned, bad: None, r#continue: None };
    Ok(match found {
        Ending::Found(row) => {
            let threads = Threads::new(request, std::slice::from_ref(&row));
            SearchAnswer::Found(SearchHit { event: threads.event_row(request, row), bad })
        }
        Ending::None => {
            let bad = bad.map(|line| format!("{line}: there is no more"));
            SearchAnswer::None(NoHit { bad, ..no_hit })
        }
        Ending::Later(time) => {
            SearchAnswer::None(NoHit { r#continue: Some(time.saturating_sub(base)), ..no_hit })
        }
    })
}

/// Returns the contexts of an event as text.
fn contexts(event: &Event<'_>) -> String {
    let fields = event.stream_context().chain(event.context());
    fields.map(|(name, value)| format!("{name} = {}", text::value_text(value))).collect::<Vec<_>>().join(", ")
}

/// Whether a text is meant as a condition: it parses as one, or it has an operator of two
/// characters. Names of functions have single ones: `operator<`, `vector<int>`.
fn condition(text: &str) -> bool {
    let is_one = || tompion_filter::parse(text).is_ok();
    text.contains(['=', '<', '>', '&', '|', '!'])
        && (["==", "!=", "<=", ">=", "&&", "||"].iter().any(|sign| text.contains(sign)) || is_one())
}

/// Result of a search.
enum Ending {
    Found(Row),
    None,
    /// The search is to be continued at this time.
    Later(i64),
}

struct Looking<'q> {
    reading: RowReader<'q>,
    wanted: Wanted,
    base: i64,
    began: Instant,
    scanned: u64,
}

impl Looking<'_> {
    fn is_late(&self) -> bool {
        self.began.elapsed() > SCAN_TIMEOUT
    }

    fn forward(&mut self, from: i64) -> Ending {
        for part in self.reading.at(from)..self.reading.count() {
            let Some(mut traces) = self.reading.read(part, Selection::default()) else { continue };
            let mut number = 0;
            while let Some(event) = traces.next_event() {
                let time = event.timestamp().unwrap_or(self.base);
                number += 1;
                if time <= from {
                    continue;
                }
                self.scanned += 1;
                if self.wanted.is(&event) {
                    let number = self.reading.first_row(part) + number - 1;
                    return Ending::Found(Row::new(&event, number, self.base));
                }
                if self.scanned % CLOCK_CHECK_INTERVAL == 0 && self.is_late() {
                    return Ending::Later(time);
                }
            }
        }
        Ending::None
    }

    fn backward(&mut self, from: i64) -> Ending {
        for part in (0..=self.reading.at(from.saturating_sub(1))).rev() {
            let selection = Selection { to: from.checked_sub(1), ..Selection::default() };
            let Some(mut traces) = self.reading.read(part, selection) else { continue };
            let mut number = 0;
            let mut last = None;
            while let Some(event) = traces.next_event() {
                if self.wanted.is(&event) {
                    last = Some(Row::new(&event, number, self.base));
                }
                number += 1;
                self.scanned += 1;
            }
            if let Some(row) = last {
                return Ending::Found(Row { number: self.reading.first_row(part) + row.number, ..row });
            }
            let begin = self.reading.begin(part);
            if let Some(begin) = begin.filter(|_| self.is_late()) {
                return Ending::Later(begin);
            }
        }
        Ending::None
    }
}
