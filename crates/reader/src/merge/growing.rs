//! Reads streams that are still being written, as far as they go, and resumes there later.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::Identity;
use super::pieces::FileId;
use super::source::{Before, Source};
use super::windows::Scan;
use super::{Selection, TraceSet};
use crate::Error;
use crate::discover::{Opened, Trace};

/// Position up to which a file was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Position of the packet in the file.
    packet: u64,
    /// Next bit to read in the packet; 0 for all of it.
    bit: u64,
    /// Properties of the last packet that was begun.
    before: Option<Before>,
}

/// Positions up to which files and streams were read.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    /// By the files themselves: a rotation moves files, and puts new ones in their places.
    files: HashMap<FileId, Progress>,
    /// Last packet of each stream, for when all files of it that were read are gone.
    streams: HashMap<Identity, Before>,
}

impl TraceSet {
    /// Opens the streams of these traces behind the part that was already read. Incomplete packets
    /// are read only with `is_over`.
    ///
    /// # Errors
    ///
    /// Fails with the first problem if no trace could be opened.
    pub(crate) fn growing(
        paths: &[PathBuf],
        opened: Opened,
        read: &Positions,
        is_over: bool,
    ) -> Result<Self, Error> {
        let mut set = Self::new(paths.to_vec(), opened, Source::in_files)?;
        if !is_over {
            // These are reported at the end.
            set.corruptions.clear();
        }
        for source in &mut set.sources {
            source.is_growing = !is_over;
            let files = 0..source.files.count();
            let id = |file: usize| source.files.piece(file).and_then(|piece| piece.id);
            let last = files.clone().rev().find_map(|file| Some((file, *read.files.get(&id(file)?)?)));
            let Some((file, progress)) = last else {
                let stream = files.clone().find_map(|file| id(file)?.stream);
                source.before = stream.and_then(|stream| read.streams.get(&stream).copied());
                continue;
            };
            source.go_on(file, &progress, &set.traces, set.window);
        }
        Ok(set)
    }

    /// Limits reading to events before this time, or removes the limit.
    pub(crate) fn read_until(&mut self, until: Option<i64>) {
        self.until = until;
    }

    /// Returns the end time of the newest unread packet.
    pub(crate) fn newest(&self) -> Option<i64> {
        let newest = |source: &Source| {
            let mut scan = Scan::of(source.again(&self.traces));
            let mut newest = None;
            while let Some(time) = scan.next_time(&self.traces) {
                newest = newest.max(Some(time));
            }
            newest
        };
        self.sources.iter().filter_map(newest).max()
    }

    /// Stores the position up to which each file was read.
    pub(crate) fn remember(&self, read: &mut Positions) {
        for source in &self.sources {
            let place = match &source.file {
                Some(file) => Some((source.next.saturating_sub(1), file.packet_start(), file.bit())),
                None => source.end.map(|(file, place)| (file, place, 0)),
            };
            let Some((file, packet, bit)) = place else { continue };
            let Some(id) = source.files.piece(file).and_then(|piece| piece.id) else { continue };
            read.files.insert(id, Progress { packet, bit, before: source.before });
            if let Some((stream, before)) = id.stream.zip(source.before) {
                read.streams.insert(stream, before);
            }
        }
    }
}

impl Source {
    /// Resumes the stream at its stored position.
    fn go_on(&mut self, index: usize, progress: &Progress, traces: &Arc<[Trace]>, window: usize) {
        self.next = index;
        self.before = progress.before;
        self.end = Some((index, progress.packet));
        if !self.open_next(traces, window, &mut Vec::new()) {
            return;
        }
        self.file.iter_mut().for_each(|file| file.go_to(progress.packet));
        if progress.bit == 0 || !matches!(self.next_packet(&Selection::default(), &mut Vec::new()), Ok(true))
        {
            return;
        }
        let Some(file) = self.file.as_mut() else { return };
        while file.bit() < progress.bit && matches!(file.next_header(), Ok(true)) {
            if file.finish_event(false).is_err() {
                break;
            }
        }
    }

    /// Creates another reader of the same stream, beginning with the current packet.
    fn again(&self, traces: &Arc<[Trace]>) -> Self {
        let mut again = Self::new(self.files.clone());
        again.is_growing = self.is_growing;
        again.before = self.before;
        let place = self.file.as_ref().map(|file| (self.next.saturating_sub(1), file.packet_start()));
        if let Some((file, packet)) = place {
            again.next = file;
            if again.open_next(traces, super::windows::HEADERS, &mut Vec::new()) {
                again.file.iter_mut().for_each(|file| file.go_to(packet));
            }
        }
        again
    }
}
