//! Traces that are being written, printed while they grow.
//!
//! Each [`Follow::round`] looks for new traces, files and packets and prints what has come. Streams are written each at
//! its own pace: events are printed when all streams had the time from one round to the next to bring what is older. An
//! event that comes later still is printed when it comes.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;

use crate::discover::{self, Opened, Trace};
use crate::json::JsonOptions;
use crate::lines::{Lines, Moment, print_after};
use crate::merge::growing::Progress;
use crate::text::{self, PrintOptions};
use crate::{Error, Selection, TraceSet, json};

/// How to print.
#[derive(Clone, Debug)]
pub enum Format {
    /// As [`text::print`] does.
    Text(PrintOptions),
    /// As [`json::print`] does.
    Json(JsonOptions),
    /// As [`json::print_csv`] does, but for the names of columns.
    Csv,
}

/// What a round came by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Events that were printed.
    pub events: u64,
    /// What was lost, a line each.
    pub losses: Vec<String>,
    /// What could not be read, a line each.
    pub damages: Vec<String>,
}

/// Traces at or below some paths, and what was read of them.
#[derive(Default)]
pub struct Follow {
    paths: Vec<PathBuf>,
    selection: Selection,
    /// Descriptions by their sizes: they only grow.
    known: HashMap<PathBuf, (u64, Trace)>,
    read: HashMap<PathBuf, Progress>,
    /// When the newest packet was ended that the round before saw.
    newest: Option<i64>,
    /// The last event that was printed.
    last: Option<Moment>,
}

impl Follow {
    /// Nothing is read so far; there need not be a trace yet.
    pub fn new(paths: &[PathBuf], selection: Selection) -> Self {
        Self { paths: paths.to_vec(), selection, ..Self::default() }
    }

    /// Prints what has come since the round before; in the last one, all that is there.
    ///
    /// # Errors
    ///
    /// If a path cannot be read, or the output cannot be written. In the last round also if there is no trace, or none
    /// whose description is right: else one is being written.
    pub fn round(&mut self, is_last: bool, format: &Format, output: &mut dyn Write) -> Result<Round, Error> {
        let opened = self.find(is_last)?;
        let mut set = TraceSet::growing(&self.paths, opened, &self.read, is_last)?;
        set.select(self.selection.clone());
        // An event of this very moment belongs to what is older.
        let until = self.newest.map_or(i64::MIN, |newest| newest.saturating_add(1));
        self.newest = self.newest.max(set.newest());
        set.read_until(if is_last { None } else { Some(until) });
        let events = match format {
            Format::Text(options) => {
                let lines = text::lines(&mut set, options)();
                self.print(&mut set, lines, output)?
            }
            Format::Json(options) => self.print(&mut set, json::JsonLines::new(*options), output)?,
            Format::Csv => self.print(&mut set, json::CsvLines::default(), output)?,
        };
        set.remember(&mut self.read);
        let options = match format {
            Format::Text(options) => options.clone(),
            Format::Json(_) | Format::Csv => PrintOptions::default(),
        };
        let damages = set.damages().iter().map(ToString::to_string).collect();
        Ok(Round { events, losses: text::loss_warnings(&set, &options), damages })
    }

    fn print<L: Lines>(
        &mut self,
        set: &mut TraceSet,
        lines: L,
        output: &mut dyn Write,
    ) -> Result<u64, Error> {
        let (events, last) = print_after(set, lines, self.last, output)?;
        self.last = last;
        Ok(events)
    }

    /// Traces that can be read.
    fn find(&mut self, is_last: bool) -> Result<Opened, Error> {
        let mut opened = Opened::default();
        for path in &self.paths {
            let found = match discover::find(path) {
                Err(Error::NoTrace(_)) if !is_last => continue,
                found => found?,
            };
            // A folder that is unreadable now may be readable soon.
            opened.problems.extend(found.unreadable.into_iter().filter(|_| is_last));
            for found in found.traces {
                let size = found.path.join("metadata").metadata().map_or(0, |file| file.len());
                let known = self.known.get(&found.path).filter(|(known, _)| *known == size);
                let trace = match known
                    .map(|(_, trace)| Ok(trace.clone()))
                    .unwrap_or_else(|| discover::load(&found.path))
                {
                    Ok(trace) => trace,
                    // Its end may not be written yet; what was there before is.
                    Err(_) if !is_last => match self.known.get(&found.path) {
                        Some((_, trace)) => trace.clone(),
                        None => continue,
                    },
                    Err(problem) => {
                        opened.problems.push(problem);
                        continue;
                    }
                };
                self.known.insert(found.path, (size, trace.clone()));
                opened.add(found.streams, Ok(trace));
            }
        }
        Ok(opened)
    }
}
