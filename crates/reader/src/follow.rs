//! Prints traces that are still being written.
//!
//! Each [`Follow::round`] looks for new traces, files and packets and prints their events. Streams
//! are written independently. Events are printed one round late, so that all streams had that time
//! to deliver older ones. An event that comes even later is printed when it comes.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;

use crate::discover::{self, Opened, Trace};
use crate::dropped::dropped_chunks;
use crate::json::JsonOptions;
use crate::lines::{Lines, Moment, print_after};
use crate::merge::growing::Positions;
use crate::text::{self, PrintOptions};
use crate::{Error, Selection, TraceSet, json};

/// Output format.
#[derive(Clone, Debug)]
pub enum Format {
    /// Text, as [`text::print`] writes it.
    Text(PrintOptions),
    /// JSON, as [`json::print`] writes it.
    Json(JsonOptions),
    /// CSV, as [`json::print_csv`] writes it, without the header line.
    Csv,
}

/// Result of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Number of printed events.
    pub events: u64,
    /// Losses, one line each.
    pub losses: Vec<String>,
    /// Corruptions, one line each.
    pub corruptions: Vec<String>,
}

/// Traces at or below some paths, and the positions up to which they were read.
#[derive(Default)]
pub struct Follow {
    paths: Vec<PathBuf>,
    selection: Selection,
    /// Descriptions with their sizes: they only grow.
    known: HashMap<PathBuf, (u64, Trace)>,
    read: Positions,
    /// End time of the newest packet that the previous round saw.
    newest: Option<i64>,
    /// Last printed event.
    last: Option<Moment>,
}

impl Follow {
    /// Starts before the first event; there need not be a trace yet.
    pub fn new(paths: &[PathBuf], selection: Selection) -> Self {
        Self { paths: paths.to_vec(), selection, ..Self::default() }
    }

    /// Prints the events since the previous round; with `is_last`, all that are left.
    ///
    /// # Errors
    ///
    /// Fails if a path cannot be read, or if the output cannot be written. The last round also
    /// fails if there is no trace with a valid description; before that, one may still be written.
    pub fn round(&mut self, is_last: bool, format: &Format, output: &mut dyn Write) -> Result<Round, Error> {
        let opened = self.find(is_last)?;
        let mut set = TraceSet::growing(&self.paths, opened, &self.read, is_last)?;
        set.select(self.selection.clone());
        // An event at exactly this time belongs to the older ones.
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
        set.remember(&mut self.read, is_last);
        let options = match format {
            Format::Text(options) => options.clone(),
            Format::Json(_) | Format::Csv => PrintOptions::default(),
        };
        let corruptions = set.corruptions().iter().map(ToString::to_string).collect();
        let mut losses = text::loss_warnings(&set, &options);
        if is_last {
            let dropped = dropped_chunks(&set);
            losses.extend(dropped.iter().map(|dropped| text::dropped_warning(dropped, &options)));
        }
        Ok(Round { events, losses, corruptions })
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

    /// Finds the traces that can be read.
    fn find(&mut self, is_last: bool) -> Result<Opened, Error> {
        let mut opened = Opened::default();
        for path in &self.paths {
            let found = match discover::find_growing(path) {
                Err(Error::NoTrace(_)) if !is_last => continue,
                found => found?,
            };
            // A folder that is unreadable now may become readable soon.
            opened.problems.extend(found.unreadable.into_iter().filter(|_| is_last));
            for found in found.traces {
                let size = found.path.join("metadata").metadata().map_or(0, |file| file.len());
                let known = self.known.get(&found.path).filter(|(known, _)| *known == size);
                let trace = match known
                    .map(|(_, trace)| Ok(trace.clone()))
                    .unwrap_or_else(|| discover::load(&found.path))
                {
                    Ok(trace) => trace,
                    // Its end may not be written yet; the part known before is used.
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
