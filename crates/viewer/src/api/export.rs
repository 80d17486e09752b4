//! A part of the trace, written elsewhere.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use serde_json::json;
use tompion_export::Plan;
use tompion_reader::TraceSet;

use super::reading::Reading;
use super::{Question, Wrong, events};
use crate::http::{Body, Response};

/// Most folders of the same name that are tried.
const MOST_NAMES: u32 = 1000;

/// Writes what is selected: a download, or a folder beside the trace.
pub fn export(question: &Question<'_>) -> Result<Response, Wrong> {
    let base = question.opened.index().base;
    let (from, to) = question.window()?;
    let range = (Some(from.saturating_add(base)), Some(to.saturating_add(base)));
    let mut selection = events::selection(question)?;
    let progress = question.opened.index().progress;
    if selection.only.is_some() && progress < 1.0 {
        let share = (progress * 100.0).floor();
        let line = format!(
            "which events belong to tracks is known when all of the trace is read; {share} % are, so try it again later"
        );
        return Err(Wrong { status: 409, line });
    }
    (selection.from, selection.to) = range;
    let read = |error: tompion_reader::Error| Wrong::gone(error.to_string());
    let opened = tompion_reader::open(question.view.paths()).map_err(read)?;
    let mut traces = Reading::new(question)?.whole().map_err(read)?.unwrap_or(opened);
    traces.select(selection);
    match question.query.text("format") {
        Some("csv") => csv(question, &mut traces),
        Some("ctf") => ctf(question, &mut traces, range),
        other => {
            let found = other.unwrap_or("nothing");
            Err(Wrong::question(format!("expected format=csv or format=ctf, found {found}")))
        }
    }
}

fn csv(question: &Question<'_>, traces: &mut TraceSet) -> Result<Response, Wrong> {
    let file = question.view.place.scratch()?;
    let mut output = BufWriter::new(file);
    tompion_reader::json::print_csv(traces, &mut output)
        .map_err(|error| Wrong { status: 500, line: error.to_string() })?;
    output.flush()?;
    let mut file = output.into_inner().map_err(|error| error.into_error())?;
    let length = file.metadata()?.len();
    std::io::Seek::rewind(&mut file)?;
    Ok(Response {
        status: 200,
        content_type: "text/csv; charset=utf-8",
        headers: vec![("Content-Disposition", "attachment; filename=\"selection.csv\"".into())],
        body: Body::File(file, length),
    })
}

fn ctf(
    question: &Question<'_>,
    traces: &mut TraceSet,
    range: (Option<i64>, Option<i64>),
) -> Result<Response, Wrong> {
    let first = question.view.paths().first().ok_or_else(|| Wrong::question("there is no trace"))?;
    let first = first.canonicalize().map_err(|error| Wrong::gone(format!("{}: {error}", first.display())))?;
    let name = first.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let parent = first.parent().map(PathBuf::from).unwrap_or_default();
    let places = (1..MOST_NAMES).map(|number| match number {
        1 => parent.join(format!("{name}-part")),
        number => parent.join(format!("{name}-part-{number}")),
    });
    let out = places.into_iter().find(|place| !place.exists());
    let out = out.ok_or_else(|| Wrong::question("there are parts of this trace enough beside it"))?;
    let plan = Plan { version: None, part: Some(range) };
    let written = tompion_export::rewrite(traces, plan, &out);
    let written = written.map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        Wrong { status: 500, line: format!("{error}{cause}") }
    })?;
    let answer = json!({ "path": out.display().to_string(), "events": written.events });
    Ok(Response::new(200, "application/json", answer.to_string()))
}
