//! A process whose session is gone: its rings are read where the trace ends, and its trace is completed.

use std::{io, sync::atomic::Ordering};

use tompion_ctf::metadata::Uuid;
use tompion_layout::{
    control,
    record::{Form, SubbufferHeader},
};
use tompion_ring::{
    doubtful::{self, Manner, Next},
    reader::Span,
    records::{Records, UntrustedRecord},
};

use super::{Attention, Process, Recording};
use crate::{
    backing::{ProcessBacking, SavedProcess},
    clock::ClockMap,
    context::Threads,
    control::{Terms, describe},
    filter,
    resume::Expected,
};

/// Bytes behind a stream's last whole packet that a session can have been writing, beside what rings can hold.
const MOST_TORN: u64 = 64 << 20;

impl Process {
    /// A process that a session has left behind, and its trace as far as it got. `doubtful`: the machine has
    /// stopped since, and the pages of the rings may be from different times. Errors are lines for people.
    pub fn resume(
        kept_in: ProcessBacking,
        saved: &SavedProcess,
        terms: &Terms,
        doubtful: bool,
    ) -> Result<Self, String> {
        let hello = saved.hello();
        let uuid = Uuid::parse(&saved.uuid).ok_or_else(|| format!("`{}` is no trace's id", saved.uuid))?;
        let (control, rings) = kept_in.map(terms.geometry).map_err(|error| error.to_string())?;
        // Ordering: nobody writes this any more.
        let magic = control.word(control::OFFSET_MAGIC).load(Ordering::Relaxed);
        if magic != control::MAGIC {
            let folder = kept_in.folder().display();
            return Err(format!(
                "{folder}/control: byte 0: expected TOMPCTL1, found {magic:#018x}: what this process recorded can't \
                 be read"
            ));
        }
        let attention = Attention::recall(terms, hello.pid, &kept_in);
        let recording = Recording {
            geometry: terms.geometry,
            // Processes without restartable sequences have no rings in files.
            form: Form::Section,
            overwrite: terms.overwrite,
            given_time: saved.given_time,
            control,
            rings,
            folder: terms.folder.join("user").join(&saved.folder),
            description: describe(terms, &hello, saved.pid, uuid),
            attention,
            kept_in: Some(kept_in),
        };
        let mut process = Self::new(saved.key, saved.pid, hello, None, recording);
        process.doubtful = doubtful;
        let most_torn = MOST_TORN + 4 * terms.geometry.ring_size();
        let expected = |ring| Expected { uuid, trusted: process.reader(ring).given_back(), most_torn };
        let expected: Vec<_> = (0..process.states.len()).map(expected).collect();
        process.writer.resume(&expected).map_err(|error| error.to_string())?;
        for ring in 0..process.states.len() {
            let mark = process.writer.mark(ring);
            let state = &mut process.states[ring];
            (state.mark, state.read) = (mark, mark.ring_end);
        }
        Ok(process)
    }

    /// Completes the trace with what the rings hold behind what it has.
    pub fn recover(&mut self, clock: &mut ClockMap) -> io::Result<()> {
        for ring in 0..self.states.len() {
            for (span, bytes) in self.left_in(ring) {
                self.states[ring].pending.push_back((span, bytes));
                while self.convert_some(clock)? != 0 {}
            }
            self.count_missing(ring);
        }
        self.convert_initial(clock)?;
        self.finish()
    }

    /// What of a ring's bytes behind the trace's end can be believed, in pieces.
    fn left_in(&mut self, ring: usize) -> Vec<(Span, Vec<u8>)> {
        let Some((span, bytes)) = self.copy_left(ring) else { return Vec::new() };
        let read = self.states[ring].read;
        let state = &mut self.states[ring];
        (state.read, state.history_begin) = (span.end.max(read), span.begin);
        if !self.doubtful {
            return self.behind(read, span, &bytes).into_iter().collect();
        }
        let size = self.geometry.subbuf_size();
        let mut pieces = Vec::new();
        let mut begin = span.begin;
        while begin < span.end {
            let end = self.geometry.subbuf_end(begin).min(span.end);
            let place = |position: u64| (position - span.begin) as usize;
            let next = match header_at(&bytes[place(end)..], end, size) {
                _ if end == span.end => Next::End { events: self.reader(ring).events() },
                Some((time, events)) => Next::Subbuffer { time, events },
                None => Next::Unreadable,
            };
            let manner = Manner { subbuf_size: size, ordered: !self.given_time };
            let part = &bytes[place(begin)..place(end)];
            let sound = doubtful::sound_end(part, begin, manner, next);
            let sound_span = Span { begin, end: sound, events: None };
            pieces.extend(self.behind(read, sound_span, &part[..(sound - begin) as usize]));
            begin = end;
        }
        pieces
    }

    /// The part of a span behind a position, if there is one.
    fn behind(&self, position: u64, span: Span, bytes: &[u8]) -> Option<(Span, Vec<u8>)> {
        let begin = span.begin.max(position);
        let bytes = bytes.get(begin.checked_sub(span.begin)? as usize..)?;
        (begin < span.end).then(|| (Span { begin, ..span }, bytes.to_vec()))
    }

    /// A ring's bytes behind the trace's end, from the beginning of a sub-buffer on.
    fn copy_left(&mut self, ring: usize) -> Option<(Span, Vec<u8>)> {
        let read = self.states[ring].read;
        let reader = self.reader(ring);
        let mut bytes = Vec::new();
        let copied = if self.overwrite {
            reader.copy_history(&mut bytes).ok()
        } else {
            let begin = self.geometry.subbuf_start(read);
            let span = Span { begin, end: reader.written(), events: None };
            let is_possible =
                span.end % 8 == 0 && span.end.saturating_sub(span.begin) <= self.geometry.ring_size();
            is_possible.then_some(span)
        };
        let Some(span) = copied else {
            self.states[ring].mark.tally.refused += 1;
            return None;
        };
        if span.end <= read {
            // After a power cut the trace may have more than the ring.
            let is_strange = span.end < read && !self.doubtful;
            self.states[ring].mark.tally.refused += u64::from(is_strange);
            return None;
        }
        if !self.overwrite {
            reader.copy(span.begin, span.end, &mut bytes);
        }
        Some((span, bytes))
    }

    /// Events that the ring had taken, and that weren't met.
    fn count_missing(&mut self, ring: usize) {
        if self.doubtful {
            let appended = self.reader(ring).events();
            let tally = &mut self.states[ring].mark.tally;
            let missing = appended.saturating_sub(tally.accounted);
            tally.missing = tally.missing.saturating_add(missing);
            tally.accounted = tally.accounted.saturating_add(missing);
        }
    }
}

/// Time and number of events of a sub-buffer's header, if one stands there.
fn header_at(bytes: &[u8], position: u64, subbuf_size: u64) -> Option<(u64, u64)> {
    let bytes = bytes.get(..SubbufferHeader::LEN)?;
    match Records::new(bytes, position, subbuf_size).next()? {
        Ok(UntrustedRecord::Subbuffer { time, events, .. }) => Some((time, events)),
        _ => None,
    }
}

impl Attention {
    /// As [`Attention::new`], for a process that is gone.
    fn recall(terms: &Terms, inner_pid: u32, kept_in: &ProcessBacking) -> Self {
        let filter = terms.rules.filter.clone().filter(|filter| filter::needs_session(filter));
        let threads = (filter.is_some() || !terms.contexts.is_empty())
            .then(|| Threads::recall(inner_pid, terms.contexts.clone(), kept_in.threads()));
        Self { threads, filter }
    }
}
