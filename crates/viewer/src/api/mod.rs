//! Requests of the page and their answers.

mod answers;
mod counter_value;
mod counts;
mod detail;
mod events;
mod export;
mod flame;
mod lanes;
mod notes;
mod row_reader;
mod search;
mod selection_stats;
mod statistics;
mod threads;
mod trace;
mod track_filter;

pub use events::QueryCache;
pub use export::Exports;
pub use row_reader::Shifted;

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;

use crate::workspace::{OpenTrace, Workspace};
use tompion_http::{Query, Request, Response};
use tompion_index::Index;
use tompion_index::preview::PreviewRange;

/// Maximum distance of requested times from the traces' begin: 36 years in nanoseconds, so that
/// sums don't overflow.
pub const MAX_TIME_NS: i64 = 1 << 60;

/// Maximum depth of tracks below others: a hostile index could have a track below itself.
const MAX_TRACK_DEPTH: usize = 16;

/// Error that a request is answered with: HTTP status and message.
#[derive(Debug)]
pub struct ApiError {
    status: u16,
    line: String,
}

impl ApiError {
    /// The request is invalid (status 400).
    fn bad_request(line: impl Into<String>) -> Self {
        Self { status: 400, line: line.into() }
    }

    /// The data no longer exists (status 410).
    fn gone(line: impl Into<String>) -> Self {
        Self { status: 410, line: line.into() }
    }
}

impl From<std::io::Error> for ApiError {
    fn from(error: std::io::Error) -> Self {
        Self { status: 500, line: format!("the index cannot be read: {error}") }
    }
}

impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        Self { status: 500, line: format!("the answer cannot be written: {error}") }
    }
}

/// Request with the workspace and the trace that it asks about.
struct ApiRequest<'q> {
    workspace: &'q Workspace,
    opened: &'q Arc<OpenTrace>,
    query: &'q Query,
    /// Clock offset of each trace in nanoseconds.
    offsets: Vec<i64>,
}

type ApiResult<T> = Result<T, ApiError>;

/// Answers a request by its name.
pub fn answer(workspace: &Workspace, name: &str, http: &Request) -> Response {
    let opened = workspace.opened();
    // Requests that the page repeats by timer don't delay indexing.
    let request = ApiRequest { workspace, opened: &opened, query: &http.query, offsets: workspace.offsets() };
    let is_urgent = !matches!(name, "trace" | "exporting") && !request.is_again();
    let _guard = (is_urgent && opened.is_shown_before_index()).then(|| opened.gate.begin_request());
    let response = match (http.method.as_str(), name) {
        ("GET", "trace") => json(trace::trace(&request)),
        ("GET", "tracks") => json(trace::tracks(&request)),
        ("GET", "lanes") => {
            lanes::lanes(&request).map(|bytes| Response::new(200, "application/octet-stream", bytes))
        }
        ("GET", "arrows") => json(lanes::arrows(&request)),
        ("GET", "at") => json(detail::at(&request)),
        ("GET", "step") => json(detail::step(&request)),
        ("GET", "search") => json(search::search(&request)),
        ("GET", "events") => json(events::events(&request)),
        ("GET", "select") => json(selection_stats::selection_stats(&request)),
        ("GET", "counts") => json(counts::counts(&request)),
        ("GET", "flame") => json(flame::flame(&request)),
        ("GET", "notes") => json(notes::notes(&request)),
        ("POST", "notes") => json(notes::write_notes(&request, &http.body)),
        ("POST", "offset") => json(notes::shift(&request, &http.body)),
        ("GET", "exporting") => json(export::exporting(&request)),
        ("GET", "export") if http.query.text("format") == Some("ctf") => {
            let line = "a trace is written beside the one that is shown: expected POST, found GET";
            Err(ApiError { status: 405, line: line.into() })
        }
        ("GET" | "POST", "export") => export::export(&request),
        ("GET" | "POST", _) => Err(ApiError { status: 404, line: format!("there is no request {name:?}") }),
        _ => Err(ApiError { status: 405, line: "expected GET or POST".into() }),
    };
    response.unwrap_or_else(|ApiError { status, line }| Response::error(status, &line))
}

/// Makes the response of an answer.
fn json<T: Serialize>(answer: ApiResult<T>) -> ApiResult<Response> {
    Ok(Response::new(200, "application/json", serde_json::to_string(&answer?)?))
}

impl ApiRequest<'_> {
    /// Returns the clock offset of a trace in nanoseconds.
    fn offset(&self, trace: usize) -> i64 {
        self.offsets.get(trace).copied().unwrap_or(0)
    }

    /// Returns the previews of a window (in times of the page) behind the indexed part. If the user
    /// looks at it, more of it is prefetched.
    fn preview(&self, (from, to): (i64, i64), (known, is_looked_at): (i64, bool)) -> PreviewRange {
        let Some(prefetcher) = &self.opened.prefetcher else { return PreviewRange::default() };
        let least = self.offsets.iter().copied().min().unwrap_or(0);
        let most = self.offsets.iter().copied().max().unwrap_or(0);
        prefetcher.preview((from.saturating_sub(most), to.saturating_sub(least)), known, is_looked_at)
    }

    /// Returns an error that says why events can't be read, if files have vanished.
    fn gone(&self) -> Option<ApiError> {
        Some(ApiError::gone(format!("{}, so its events cannot be read", self.vanished()?)))
    }

    /// Says which files no longer exist.
    fn vanished(&self) -> Option<String> {
        let folder = self.workspace.paths().iter().find(|path| !path.exists());
        let folder = folder.map(|path| format!("{} is not there any more", path.display()));
        // The message about single files goes on with what is shown nevertheless.
        let first = |line: String| line.split("; ").next().unwrap_or_default().to_owned();
        folder.or_else(|| self.opened.gone().map(first))
    }

    /// Whether the page shows an older answer of this request.
    fn is_again(&self) -> bool {
        self.query.text("again").is_some()
    }

    /// Returns a required number.
    fn number(&self, name: &str) -> Result<i64, ApiError> {
        self.optional(name)?
            .ok_or_else(|| ApiError::bad_request(format!("expected {name}=NUMBER, found nothing")))
    }

    /// Returns an optional number.
    fn optional(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.query.text(name) else { return Ok(None) };
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && number.abs() <= 9.1e18);
        let exact = text.parse::<i64>().ok();
        match (exact, number) {
            (Some(number), _) => Ok(Some(number)),
            // The page's numbers may have a fraction.
            (None, Some(number)) => Ok(Some(number.floor() as i64)),
            (None, None) => Err(ApiError::bad_request(format!("expected {name}=NUMBER, found {text:?}"))),
        }
    }

    /// Returns the requested time window.
    fn window(&self) -> Result<(i64, i64), ApiError> {
        let (from, to) = (self.number("from")?, self.number("to")?);
        if from > to {
            return Err(ApiError::bad_request("expected from before to"));
        }
        Ok((from.clamp(-MAX_TIME_NS, MAX_TIME_NS), to.clamp(-MAX_TIME_NS, MAX_TIME_NS)))
    }

    /// Returns the width in pixels.
    fn width(&self) -> Result<i64, ApiError> {
        Ok(self.optional("width")?.unwrap_or(1000).clamp(1, 16_384))
    }

    /// Returns the requested lane numbers.
    fn ids(&self) -> Result<Vec<u32>, ApiError> {
        Ok(self.numbers("ids")?.unwrap_or_default())
    }

    /// Returns the numbers of a list; `None` if the list is absent, which differs from an empty
    /// one.
    fn numbers<C: FromIterator<u32>>(&self, name: &str) -> Result<Option<C>, ApiError> {
        let Some(text) = self.query.text(name) else { return Ok(None) };
        let numbers = text.split(',').filter(|number| !number.is_empty()).map(str::parse);
        let wrong = |_| ApiError::bad_request(format!("expected {name}=NUMBER,NUMBER…"));
        numbers.collect::<Result<_, _>>().map(Some).map_err(wrong)
    }

    /// Returns the lanes of the requested tracks and of all below them, drawn or not; all lanes if
    /// no tracks are named.
    fn lanes(&self, index: &Index) -> Result<Vec<u32>, ApiError> {
        let Some(wanted) = self.tracks(index)? else {
            return Ok((0..index.lanes.len() as u32).collect());
        };
        let tracks = wanted.into_iter().filter_map(|id| index.tracks.get(id as usize));
        Ok(tracks.flat_map(|track| track.lanes.iter().copied()).collect())
    }

    /// Returns the requested tracks and all below them in order of number; `None` if no tracks are
    /// named.
    fn tracks(&self, index: &Index) -> Result<Option<Vec<u32>>, ApiError> {
        let Some(wanted) = self.numbers::<HashSet<u32>>("tracks")? else { return Ok(None) };
        let above = |id: &u32| index.tracks.get(*id as usize).and_then(|track| track.parent);
        let is_wanted = |id: &u32| {
            std::iter::successors(Some(*id), above).take(MAX_TRACK_DEPTH).any(|id| wanted.contains(&id))
        };
        Ok(Some((0..index.tracks.len() as u32).filter(is_wanted).collect()))
    }

    /// Returns the time up to which everything is known, as the page shows it: the least over the
    /// traces' clock offsets.
    fn known(&self, index: &Index) -> i64 {
        index.known().saturating_add(self.offsets.iter().copied().min().unwrap_or(0)).min(MAX_TIME_NS)
    }
}
