//! Recovery of a process whose session is gone: its rings are read where the trace ends, and its
//! trace is completed.

use std::{
    io,
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering},
};

use tompion_clock::ClockMap;
use tompion_ctf::metadata::Uuid;
use tompion_firings::MatchCounts;
use tompion_layout::{LAYOUT_VERSION, catalog, control};
use tompion_os::{DirHandle, PacketSocket};
use tompion_protocol::message::ToAgent;
use tompion_restart_state::ChunkBegin;
use tompion_ring::{
    captures,
    reader::Span,
    records::{Records, UntrustedRecord},
    torn_pages::{self, Next, RingFormat},
};
use tompion_triggers::EventTable;
use tompion_writer::{
    SavedState,
    resume::{Error, Expected},
};

use super::{Backlog, Process, Recording, ThreadContextSources, losses::Participation};
use crate::{
    backing::{ProcessBacking, SavedProcess},
    budget::Budget,
    context::Threads,
    filter,
    session_config::{SessionConfig, describe, form_for},
};

/// Bytes behind a stream's last whole packet that a session can have been writing, beside what
/// rings can hold.
const MAX_TORN: u64 = 64 << 20;

/// Things that a recorder gives a process which it takes over from one that was killed.
#[derive(Debug)]
pub struct Adoption {
    /// Connection of its agent.
    pub socket: Arc<PacketSocket>,
    /// Room for its descriptions.
    pub budget: Budget,
    /// Sources of its threads' context, if it has not ended.
    pub context_sources: Option<ThreadContextSources>,
    /// Time of CLOCK_MONOTONIC before which it did not take part.
    pub begin_ns: u64,
    /// Triggers on events.
    pub triggers: EventTable,
}

/// Place of the traces of processes that are taken over.
#[derive(Clone, Copy, Debug)]
pub struct TracePlace<'a> {
    /// Folder of the recording, or of its open chunk.
    pub root: &'a DirHandle,
    /// State with which that chunk began; none in a recording that is one trace.
    pub begin: Option<&'a ChunkBegin>,
}

impl Process {
    /// Takes over a process of a recorder that was killed, to be read on where its trace ends.
    pub fn adopt(mut self, adoption: Adoption) -> Self {
        let Adoption { socket, budget, context_sources, begin_ns, triggers } = adoption;
        self.socket = Some(socket);
        self.budget = budget;
        self.context_sources = context_sources.unwrap_or(self.context_sources);
        self.participation = Participation::since(begin_ns);
        self.match_counts = MatchCounts::resume(&self.control, &triggers, self.hello.follows_triggers);
        if captures::understood(&self.control).is_none() {
            // The recorder may have been killed before it told of a change.
            self.announce_rules();
        }
        for ring in 0..self.states.len() {
            let (end, released) = (self.states[ring].read, self.reader(ring).released());
            self.states[ring].consumed = released;
            // The packets up to there are written.
            self.give_back(ring, end);
            if released > end && !self.overwrite {
                // Only what packets hold is given back, or what could not be: the program says
                // otherwise, and what lay between may be overwritten.
                let state = &mut self.states[ring];
                (state.read, state.converted) = (released, released);
                state.mark.tally.refused += 1;
            }
        }
        self
    }

    /// Sends the process its memory files with a message.
    pub fn send_files(&self, socket: &PacketSocket, message: &ToAgent) -> io::Result<()> {
        let files = self.kept_in.as_ref().map(|kept_in| kept_in.files().map(AsFd::as_fd));
        let counts = self.counts.as_ref().map(|counts| counts.file().as_fd());
        files.map_or(Ok(()), |files| {
            let all: Vec<_> = files.into_iter().chain(counts).collect();
            socket.send(&message.encode(), &all)
        })
    }

    /// Whether the process has done anything with its memory, so that it must have it.
    pub fn has_begun(&self) -> bool {
        let start = control::CATALOG as usize;
        // Ordering: a hint.
        let used = self.control.word(start + catalog::USED).load(Ordering::Relaxed);
        used != 0 || (0..self.states.len()).any(|ring| self.reader(ring).written() != 0)
    }

    /// Checks the beginning of the control file, which this session's configuration has determined.
    ///
    /// # Errors
    /// A line about what was expected and found.
    pub fn check_control(&self) -> Result<(), String> {
        // Ordering: the words have had their values since before the program had the file.
        let word = |offset| self.control.word(offset).load(Ordering::Relaxed);
        let half = |offset| u64::from(self.control.half(offset).load(Ordering::Relaxed));
        let geometry = self.geometry;
        let expected = [
            ("magic", word(control::OFFSET_MAGIC), control::MAGIC),
            ("layout", half(control::OFFSET_VERSION), LAYOUT_VERSION.into()),
            ("sub-buffer size", word(control::OFFSET_SUBBUF_SIZE), geometry.subbuf_size()),
            ("sub-buffers", word(control::OFFSET_SUBBUF_COUNT), geometry.subbuf_count()),
            ("CPUs", half(control::OFFSET_CPUS), geometry.cpus().into()),
        ];
        match expected.iter().find(|(_, found, expected)| found != expected) {
            None => Ok(()),
            Some((name, found, expected)) => {
                Err(format!("its control file: expected {name} {expected:#x}, found {found:#x}"))
            }
        }
    }

    /// A process that a session has left behind, and its trace as far as it got, in the folder that
    /// `place` names. `may_have_torn_pages`: the machine has stopped since, and the pages of the
    /// rings may be from different times. Errors are lines for people.
    pub fn resume(
        kept_in: ProcessBacking,
        saved: &SavedProcess,
        session_config: &SessionConfig,
        place: TracePlace<'_>,
        may_have_torn_pages: bool,
    ) -> Result<Self, String> {
        let hello = saved.hello();
        let uuid = Uuid::parse(&saved.uuid).ok_or_else(|| format!("`{}` is no trace's id", saved.uuid))?;
        let geometry = saved.geometry(session_config.geometry)?;
        let (control, rings) = kept_in.map(geometry).map_err(|error| error.to_string())?;
        let context_sources = ThreadContextSources::recall(session_config, hello.pid, &kept_in);
        let recording = Recording {
            geometry,
            ring_share: None,
            form: form_for(&hello),
            overwrite: session_config.overwrite,
            given_time: saved.given_time,
            control,
            rings,
            counts: None,
            match_counts: MatchCounts::default(),
            folder: place.root.join("user").join(&saved.folder),
            description: describe(session_config, &hello, saved.pid, uuid),
            context_sources,
            kept_in: Some(kept_in),
            budget: Budget::default(),
            gives_pages_back: false,
        };
        let mut process = Self::new(saved.key, saved.pid, hello, None, recording);
        process.may_have_torn_pages = may_have_torn_pages;
        let most_torn = MAX_TORN + 4 * geometry.ring_size();
        let expected = |ring| Expected { uuid, trusted: Some(process.reader(ring).released()), most_torn };
        let expected: Vec<_> = (0..process.states.len()).map(expected).collect();
        process.resume_trace(place, &expected).map_err(|error| error.to_string())?;
        for ring in 0..process.states.len() {
            let mark = process.writer.mark(ring);
            let state = &mut process.states[ring];
            (state.mark, state.read, state.converted) = (mark, mark.ring_end, mark.ring_end);
        }
        Ok(process)
    }

    /// Continues the trace.
    fn resume_trace(&mut self, place: TracePlace<'_>, expected: &[Expected]) -> Result<(), Error> {
        let Some(begin) = place.begin else {
            self.damage_on_medium = self.writer.resume(expected)?;
            return Ok(());
        };
        let Some(kept_in) = &self.kept_in else { return Ok(()) };
        let state = begin.processes.get(&self.key);
        let saved = SavedState { copies: kept_in.folder_handle(), trace: state.map(|state| &state.trace) };
        let resumed = self.writer.resume_in_chunk(saved, expected)?;
        self.damage_on_medium = resumed.damage;
        let counts = state.map(|state| state.counts.clone()).unwrap_or_default();
        self.resume_chunk(counts, resumed.initial, &resumed.repeated);
        Ok(())
    }

    /// Damage of the files that its session left, one line each.
    pub fn damage(&self) -> Vec<String> {
        self.damage_of_control().into_iter().chain(self.damage_on_medium.iter().cloned()).collect()
    }

    /// Damage of the control file's beginning, if any. The rest may be sound all the same.
    fn damage_of_control(&self) -> Option<String> {
        // Ordering: the file has no writer any more.
        let magic = self.control.word(control::OFFSET_MAGIC).load(Ordering::Relaxed);
        let folder = self.kept_in.as_ref()?.folder().display();
        (magic != control::MAGIC).then(|| {
            format!(
                "{folder}/control: byte 0: expected TOMPCTL1, found {magic:#018x}: recovered what the rest of it describes"
            )
        })
    }

    /// Completes the trace with what the rings hold behind what it has.
    pub fn recover(&mut self, clock: &mut ClockMap) -> io::Result<()> {
        if let (Some(first), Some(last)) = (clock.samples().first(), clock.samples().last()) {
            self.participation = Participation::between(first.ns, last.ns);
        }
        for ring in 0..self.states.len() {
            for (span, bytes) in self.left_in(ring) {
                self.states[ring].pending.push_back((span, bytes));
                while self.convert_some(Backlog::All, clock)? != 0 {}
            }
            self.count_missing(ring);
        }
        self.convert_initial(clock)?;
        self.finish()
    }

    /// Returns the intact ranges of a ring's bytes behind the trace's end.
    fn left_in(&mut self, ring: usize) -> Vec<(Span, Vec<u8>)> {
        let Some((span, bytes)) = self.copy_left(ring) else { return Vec::new() };
        let read = self.states[ring].read;
        let state = &mut self.states[ring];
        (state.read, state.history_begin) = (span.end.max(read), span.begin);
        if !self.may_have_torn_pages {
            return self.behind(read, span, &bytes).into_iter().collect();
        }
        let size = self.geometry.subbuf_size();
        let (form, overwrite) = (self.form, self.overwrite);
        let format = RingFormat { form, subbuf_size: size, ordered: !self.given_time, overwrite };
        let mut pieces = Vec::new();
        let mut begin = span.begin;
        while begin < span.end {
            let end = self.geometry.subbuf_end(begin).min(span.end);
            let place = |position: u64| (position - span.begin) as usize;
            let next = match header_at(&bytes[place(end)..], end, format) {
                _ if end == span.end => Next::End { events: self.reader(ring).events() },
                Some((time, events)) => Next::Subbuffer { time, events },
                None => Next::Unreadable,
            };
            for sound in torn_pages::intact_ranges(&bytes[place(begin)..place(end)], begin, format, next) {
                let part = &bytes[place(sound.start)..place(sound.end)];
                let span = Span { begin: sound.start, end: sound.end, events: None };
                pieces.extend(self.behind(read, span, part));
            }
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
            let span = Span { begin, end: reader.written(), events: Some(reader.events()) };
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
            let is_strange = span.end < read && !self.may_have_torn_pages;
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
        if self.may_have_torn_pages {
            let appended = self.reader(ring).events();
            let tally = &mut self.states[ring].mark.tally;
            let missing = appended.saturating_sub(tally.accounted);
            tally.missing = tally.missing.saturating_add(missing);
            tally.accounted = tally.accounted.saturating_add(missing);
        }
    }
}

/// Time and number of events of a sub-buffer's header, if one stands there.
fn header_at(bytes: &[u8], position: u64, format: RingFormat) -> Option<(u64, u64)> {
    let bytes = bytes.get(..format.form.subbuffer_header_len())?;
    match Records::new(bytes, position, format.subbuf_size).in_form(format.form).next()? {
        Ok(UntrustedRecord::Subbuffer { time, events, .. }) => Some((time, events)),
        _ => None,
    }
}

impl ThreadContextSources {
    /// Makes the context sources of a process that is gone, like [`ThreadContextSources::new`].
    fn recall(session_config: &SessionConfig, inner_pid: u32, kept_in: &ProcessBacking) -> Self {
        let filter = session_config.rules.filter.clone().filter(|filter| filter::needs_session(filter));
        let threads = (filter.is_some() || !session_config.contexts.is_empty())
            .then(|| Threads::recall(inner_pid, session_config.contexts.clone(), kept_in.threads()));
        Self { threads, filter, jobs: None }
    }
}
