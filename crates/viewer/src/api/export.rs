//! Export of a selection as CSV or as a trace.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tompion_export::Plan;
use tompion_reader::{EventPredicate, TraceSet};

use super::answers::{ExportProgress, ExportedTrace};
use super::row_reader::RowReader;
use super::track_filter::TrackFilter;
use super::{ApiError, ApiRequest, ApiResult, events, json};
use tompion_http::{Body, Response};

/// Maximum number of names that are tried for a new folder.
const MAX_FOLDER_NAMES: u32 = 1000;
/// Maximum number of exports whose progress is remembered.
const MAX_EXPORTS: usize = 16;

/// Exports of the newest requests, by the id that the page gave them.
#[derive(Debug, Default)]
pub struct Exports(VecDeque<(String, Arc<Export>)>);

/// Progress of an export.
#[derive(Debug, Default)]
struct Export {
    /// Events read so far.
    looked_at: AtomicU64,
    /// Events to read.
    of: u64,
    /// Bytes written plus 1 when the export is complete; 0 before.
    written: AtomicU64,
    /// Whether the export failed.
    has_failed: AtomicBool,
}

impl Exports {
    fn begin(&mut self, id: &str, of: u64) -> Arc<Export> {
        let export = Arc::new(Export { of, ..Export::default() });
        self.0.push_back((id.into(), export.clone()));
        if self.0.len() > MAX_EXPORTS {
            self.0.pop_front();
        }
        export
    }
}

/// Answers with the progress of an export.
pub fn exporting(request: &ApiRequest<'_>) -> ApiResult<ExportProgress> {
    let id = request.query.text("id").unwrap_or_default();
    let exports = request.workspace.exports();
    let export = exports.0.iter().rev().find(|(known, _)| known == id).map(|(_, export)| export);
    let Some(export) = export else { return Ok(ExportProgress::default()) };
    let share = export.looked_at.load(Ordering::Relaxed) as f64 / export.of.max(1) as f64;
    let bytes = export.written.load(Ordering::Relaxed).checked_sub(1);
    let failed = export.has_failed.load(Ordering::Relaxed);
    Ok(ExportProgress { share: share.min(1.0), bytes, failed })
}

/// Exports the selection: as a download, or into a folder beside the trace.
pub fn export(request: &ApiRequest<'_>) -> ApiResult<Response> {
    let base = request.opened.index().base;
    let (from, to) = request.window()?;
    let range = (Some(from.saturating_add(base)), Some(to.saturating_add(base)));
    let mut selection = events::selection(request)?;
    let reading = RowReader::new(request)?;
    let progress = request.opened.index().progress;
    if selection.predicate.is_some() && progress < 1.0 {
        let share = (progress * 100.0).floor();
        let line = format!(
            "which events belong to tracks is known when all of the trace is read; {share} % are, so try it again later"
        );
        return Err(ApiError { status: 409, line });
    }
    (selection.from, selection.to) = range;
    let rows = |time: i64| reading.rows_before(time.saturating_add(base));
    let of = rows(to.saturating_add(1)).saturating_sub(rows(from));
    let export = request.workspace.exports().begin(request.query.text("id").unwrap_or_default(), of);
    selection.predicate = Some(counting(request, export.clone())?);
    let read = |error: tompion_reader::Error| ApiError::gone(error.to_string());
    let opened = tompion_reader::open(request.workspace.paths()).map_err(read)?;
    let mut traces = reading.whole().map_err(read)?.unwrap_or(opened);
    traces.select(selection);
    let written = match request.query.text("format") {
        Some("csv") => csv(request, &mut traces, &export),
        Some("ctf") => ctf(request, &mut traces, range),
        other => {
            let found = other.unwrap_or("nothing");
            Err(ApiError::bad_request(format!("expected format=csv or format=ctf, found {found}")))
        }
    };
    export.has_failed.store(written.is_err(), Ordering::Relaxed);
    written
}

/// Returns a predicate that counts the events read, and accepts those of the requested tracks.
fn counting(request: &ApiRequest<'_>, export: Arc<Export>) -> Result<EventPredicate, ApiError> {
    let track_filter = TrackFilter::new(request)?;
    Ok(EventPredicate::new(move |event| {
        export.looked_at.fetch_add(1, Ordering::Relaxed);
        track_filter.as_ref().is_none_or(|track_filter| track_filter.takes(event))
    }))
}

fn csv(request: &ApiRequest<'_>, traces: &mut TraceSet, export: &Export) -> Result<Response, ApiError> {
    let file = request.workspace.storage.scratch()?;
    let mut output = BufWriter::new(file);
    tompion_reader::json::print_csv(traces, &mut output)
        .map_err(|error| ApiError { status: 500, line: error.to_string() })?;
    output.flush()?;
    let mut file = output.into_inner().map_err(|error| error.into_error())?;
    let length = file.metadata()?.len();
    export.written.store(length.saturating_add(1), Ordering::Relaxed);
    std::io::Seek::rewind(&mut file)?;
    Ok(Response {
        status: 200,
        content_type: "text/csv; charset=utf-8",
        headers: vec![("Content-Disposition", "attachment; filename=\"selection.csv\"".into())],
        body: Body::File(file, length),
    })
}

fn ctf(
    request: &ApiRequest<'_>,
    traces: &mut TraceSet,
    range: (Option<i64>, Option<i64>),
) -> Result<Response, ApiError> {
    let first =
        request.workspace.paths().first().ok_or_else(|| ApiError::bad_request("there is no trace"))?;
    let first =
        first.canonicalize().map_err(|error| ApiError::gone(format!("{}: {error}", first.display())))?;
    let name = first.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let parent = first.parent().map(PathBuf::from).unwrap_or_default();
    let places = (1..MAX_FOLDER_NAMES).map(|number| match number {
        1 => parent.join(format!("{name}-part")),
        number => parent.join(format!("{name}-part-{number}")),
    });
    let out = places.into_iter().find(|place| !place.exists());
    let out = out.ok_or_else(|| ApiError::bad_request("there are parts of this trace enough beside it"))?;
    let plan = Plan { version: None, part: Some(range) };
    let written = tompion_export::rewrite(traces, plan, &out);
    let written = written
        .map_err(|error| ApiError { status: 500, line: not_written(&error, (&first, &out), range) })?;
    let path = out.display().to_string();
    json(Ok(ExportedTrace { path, events: written.events, bytes: size(&out) }))
}

/// Says why a smaller trace was not written. Where the folder is read-only, it also names the
/// command that writes elsewhere.
fn not_written(
    error: &tompion_export::Error,
    (trace, out): (&Path, &Path),
    range: (Option<i64>, Option<i64>),
) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    let is_the_place = matches!(error, tompion_export::Error::Io { path, .. } if path == out);
    if !is_the_place {
        return format!("{error}{cause}");
    }
    let seconds = |time: Option<i64>| {
        let time = time.unwrap_or(0);
        format!("{}.{:09}", time.div_euclid(1_000_000_000), time.rem_euclid(1_000_000_000))
    };
    let (from, to) = (seconds(range.0), seconds(range.1));
    format!(
        "{error}{cause}; `tompion trim {} --from {from} --to {to} -o FOLDER` writes this time of all tracks elsewhere",
        trace.display()
    )
}

/// Returns the bytes of all files in a folder.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_only_folder_yields_the_command_that_writes_elsewhere() {
        let (trace, out) = (Path::new("/cd/trace"), Path::new("/cd/trace-part"));
        let message = |path: &Path| {
            let source = std::io::ErrorKind::ReadOnlyFilesystem.into();
            let error = tompion_export::Error::Io { path: path.into(), source };
            not_written(
                &error,
                (trace, out),
                (Some(1_700_000_000_000_000_001), Some(1_700_000_002_500_000_000)),
            )
        };
        let line = message(out);
        assert!(line.starts_with("cannot write /cd/trace-part: read-only filesystem"), "{line}");
        let command =
            "`tompion trim /cd/trace --from 1700000000.000000001 --to 1700000002.500000000 -o FOLDER`";
        assert!(line.contains(command), "{line}");
        assert!(!message(&out.join("stream")).contains("trim"), "a disk that is full is full elsewhere, too");
    }
}
