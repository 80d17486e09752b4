//! One recorded process: its shared memory, its rings, and the trace they go into.
//!
//! Everything in the shared memory comes from the process and is not trusted: descriptions are parsed,
//! records are checked while they are walked, positions are held against what can be, and what is
//! refused is counted under its own cause.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    io,
    path::PathBuf,
    sync::Arc,
    sync::atomic::Ordering,
};

use tompion_ctf::encode::{self, Record};
use tompion_layout::{catalog, control, loss::Cause, record::Form, ring::Geometry};
use tompion_os::{PacketSocket, SharedMap};
use tompion_protocol::message::{Hello, ToAgent};
use tompion_ring::{
    kept::{self, UntrustedKept},
    reader::{RingReader, Span},
    records::{Records, UntrustedRecord},
};
use tompion_schema::{Event, Field, Kind};

use crate::{
    backing::ProcessBacking,
    clock::ClockMap,
    context::Threads,
    control::Terms,
    filter::{self, Circumstances, SessionFilter},
    manifest,
    source::{ClassId, Mark, Pushed, SourceWriter},
};

mod durable;
#[cfg(test)]
mod fuzz;
mod recovery;

/// More than any program can lose. A reader takes the largest number for a mistake of its own.
const MOST_DISCARDED: u64 = 1 << 62;
/// Later than any event can be, in nanoseconds; readers add the time since 1970 to it.
const LATEST: u64 = 1 << 62;
/// How many bytes of one process may wait to be converted. Beyond it they stay in its rings: who claims to
/// write faster than anybody can read loses events of its own, and the session no memory.
const MOST_PENDING_BYTES: u64 = 64 << 20;
/// About how many bytes are converted in one step.
const STEP_BYTES: u64 = 64 << 10;

/// A process as the session knows it.
#[derive(Debug)]
pub struct Process {
    /// Number in the session.
    pub key: u64,
    /// Id in the session's pid namespace.
    pub pid: u32,
    /// How it introduced itself.
    pub hello: Hello,
    /// How it ended, if it did.
    pub end: Option<String>,
    control: SharedMap,
    rings: SharedMap,
    /// Where the memory is kept, if it is to outlast the machine.
    kept_in: Option<ProcessBacking>,
    geometry: Geometry,
    form: Form,
    overwrite: bool,
    given_time: bool,
    socket: Option<Arc<PacketSocket>>,
    writer: SourceWriter,
    states: Vec<RingState>,
    /// Bytes of the catalog that were read.
    catalog_read: usize,
    /// Bytes of it that are known to be on the medium.
    catalog_synced: usize,
    /// What each event number means; `None` where its description was refused.
    classes: BTreeMap<u32, Option<Class>>,
    /// Spans whose begins have the fields that the filter asks for.
    spans_with_fields: HashSet<String>,
    /// Records of the initial state that wait to be converted.
    initial: Vec<Initial>,
    /// Up to where events were read that are kept.
    kept_read: usize,
    /// What was refused that came from no ring.
    refused: u64,
    attention: Attention,
    /// Events that the session's part of the filter did not let through.
    filtered: u64,
    /// Whether the machine has stopped since the rings were written: see [`tompion_ring::doubtful`].
    doubtful: bool,
    /// How often the process asked for a snapshot, as far as that was heard.
    snapshots: u64,
    /// Whether writing was given up.
    given_up: bool,
    /// Buffers for copies, used before: fresh memory would cost a page fault for each page.
    spare: Vec<Vec<u8>>,
}

/// A record from the catalog, or an event of the program that is kept.
#[derive(Debug)]
struct Initial {
    /// Whether it is the program's.
    own: bool,
    number: u32,
    time: u64,
    tid: u32,
    cpu: u32,
    payload: Vec<u8>,
}

/// Where a record goes in the trace, and where it comes from.
#[derive(Clone, Copy, Debug)]
struct Place {
    stream: usize,
    cpu: u32,
    /// In the ring's byte stream.
    position: u64,
}

#[derive(Debug)]
struct Class {
    event: Event,
    /// What decides where the agent could not.
    filter: Option<SessionFilter>,
    /// Number in the metadata, once there was a record.
    id: Option<ClassId>,
}

/// What the session knows of one ring.
#[derive(Clone, Debug, Default)]
struct RingState {
    /// Up to where it was read.
    read: u64,
    /// Up to where its pages were made present.
    populated: u64,
    /// Events whose records were reserved and never completed.
    unfinished: u64,
    /// Up to where bytes were converted.
    converted: u64,
    /// Whether records were overwritten that nobody has accounted for yet.
    has_gap: bool,
    /// Up to where its room was given back.
    consumed: u64,
    /// Where the history begins that recovery reads.
    history_begin: u64,
    /// Up to where it was converted, and what became of the events: recorded, overwritten by design, refused.
    mark: Mark,
    /// Bytes that were copied. Those of the span, which are the last ones, wait to be converted.
    pending: VecDeque<(Span, Vec<u8>)>,
}

/// How a process is recorded.
#[derive(Debug)]
pub struct Recording {
    /// Sizes of its rings.
    pub geometry: Geometry,
    /// How records stand in them: in processes without restartable sequences they are reserved.
    pub form: Form,
    /// Overwrite mode; else discard mode.
    pub overwrite: bool,
    /// Timestamps are CLOCK_MONOTONIC already.
    pub given_time: bool,
    /// Control file, mapped.
    pub control: SharedMap,
    /// Ring file, mapped.
    pub rings: SharedMap,
    /// Where its trace goes.
    pub folder: PathBuf,
    /// What its trace says of itself.
    pub description: encode::Source,
    /// What is to be known of its threads.
    pub attention: Attention,
    /// Where the memory is kept, if it is to outlast the machine.
    pub kept_in: Option<ProcessBacking>,
}

/// What the session looks at besides the rings.
#[derive(Debug, Default)]
pub struct Attention {
    /// The process's threads, if the trace or the filter has something of them.
    threads: Option<Threads>,
    /// The filter, if agents leave the last word to the session.
    filter: Option<String>,
}

impl RingState {
    /// Accounts for events that the ring had taken before a sub-buffer was opened, and that weren't met: a flight
    /// recorder has overwritten them by design, or they did not reach the medium.
    fn pass_over(&mut self, events: u64, position: u64, overwrite: bool, doubtful: bool) {
        let tally = &mut self.mark.tally;
        let Some(passed) = events.checked_sub(tally.accounted) else { return };
        let by_design = overwrite && (!doubtful || position == self.history_begin);
        if by_design {
            tally.overwritten = tally.overwritten.saturating_add(passed);
        } else if doubtful {
            tally.missing = tally.missing.saturating_add(passed);
        }
        if by_design || doubtful {
            tally.accounted = events;
        }
    }
}

impl From<catalog::UntrustedInitial<'_>> for Initial {
    fn from(record: catalog::UntrustedInitial<'_>) -> Self {
        let catalog::UntrustedInitial { number, time, tid, cpu, payload } = record;
        Self { own: false, number, time, tid, cpu, payload: payload.to_vec() }
    }
}

impl From<UntrustedKept> for Initial {
    fn from(event: UntrustedKept) -> Self {
        let UntrustedKept { number, time, tid, cpu, payload } = event;
        Self { own: true, number, time, tid, cpu, payload }
    }
}

impl Attention {
    /// What a session's terms ask for, of a process with these ids here and in its own pid namespace.
    pub fn new(terms: &Terms, pid: u32, inner_pid: u32) -> Self {
        let filter = terms.rules.filter.clone().filter(|filter| filter::needs_session(filter));
        let threads = (filter.is_some() || !terms.contexts.is_empty())
            .then(|| Threads::new(pid, inner_pid, terms.contexts.clone()));
        Self { threads, filter }
    }
}

impl Process {
    /// A process that was just welcomed.
    pub fn new(
        key: u64,
        pid: u32,
        hello: Hello,
        socket: Option<Arc<PacketSocket>>,
        recording: Recording,
    ) -> Self {
        let Recording { geometry, form, overwrite, given_time, control, rings, .. } = recording;
        let Recording { folder, description, attention, kept_in, .. } = recording;
        let is_durable = kept_in.is_some();
        let rings_count = (geometry.cpus() * geometry.buffers()) as usize;
        Self {
            key,
            pid,
            hello,
            end: None,
            control,
            rings,
            kept_in,
            geometry,
            form,
            overwrite,
            given_time,
            socket,
            writer: SourceWriter::new(folder, description, rings_count, is_durable),
            states: vec![RingState::default(); rings_count],
            catalog_read: 0,
            catalog_synced: 0,
            classes: BTreeMap::new(),
            spans_with_fields: HashSet::new(),
            initial: Vec::new(),
            kept_read: 0,
            refused: 0,
            attention,
            filtered: 0,
            doubtful: false,
            snapshots: 0,
            given_up: false,
            spare: Vec::new(),
        }
    }

    fn reader(&self, ring: usize) -> RingReader<'_> {
        let cpus = self.geometry.cpus();
        let reader = RingReader::new(&self.rings, self.geometry, ring as u32 / cpus, ring as u32 % cpus);
        reader.in_form(self.form)
    }

    /// Forgets the conversation, which is over.
    pub fn disconnect(&mut self) {
        self.socket = None;
    }

    /// Looks at what the kernel says of the threads.
    pub fn look_at_threads(&mut self) {
        if let Some(threads) = &mut self.attention.threads {
            threads.look();
            if let (Some(kept_in), Some(news)) = (&self.kept_in, threads.news()) {
                // What isn't there is unknown to recovery, as it is of threads that nobody saw.
                let _ = kept_in.keep_threads(&news);
            }
        }
    }

    /// Whether the program has asked for a snapshot since the last time that this was asked.
    pub fn wants_snapshot(&mut self) -> bool {
        // Ordering: a counter by itself; what was recorded before is in the rings by their own order.
        let asked = self.control.word(control::OFFSET_SNAPSHOTS).load(Ordering::Acquire);
        std::mem::replace(&mut self.snapshots, asked) != asked && self.overwrite
    }

    /// Copies what is new in the rings, unless too much waits already. Returns the largest share of a ring that
    /// was filled, in percent.
    ///
    /// A flight recorder's rings are left alone until [`Process::save_history`].
    pub fn collect(&mut self) -> u64 {
        if self.pending_bytes() < MOST_PENDING_BYTES { self.collect_all() } else { 100 }
    }

    /// Copies what is new in the rings, however much waits.
    pub fn collect_all(&mut self) -> u64 {
        if self.given_up {
            return 0;
        }
        let mut fullest = 0;
        for ring in 0..self.states.len() {
            let (written, read) = (self.reader(ring).written(), self.states[ring].read);
            if written == read && self.states[ring].populated != 0 || written == 0 {
                continue;
            }
            self.populate_ahead(ring, written);
            if self.overwrite {
                continue;
            }
            let mut bytes = self.spare.pop().unwrap_or_default();
            let reader = self.reader(ring);
            let taken = match (&self.kept_in, &self.end) {
                // The room is given back once the medium has what was in it.
                (Some(_), _) => reader.copy_new(read, &mut bytes),
                // Once the process has ended, nobody completes a record any more.
                (None, Some(_)) => reader.take_rest(read, &mut bytes),
                (None, None) => reader.take(read, &mut bytes),
            };
            let state = &mut self.states[ring];
            match taken {
                Ok(span) => {
                    let share = (span.end - span.begin) * 100 / self.geometry.ring_size();
                    fullest = fullest.max(share).max(u64::from(!span.is_empty()));
                    state.read = span.end;
                    if !span.is_empty() {
                        state.pending.push_back((span, bytes));
                    }
                }
                Err(bad) => {
                    // Reading goes on where a record can begin for certain.
                    state.read =
                        self.geometry.subbuf_start(bad.claimed).saturating_add(self.geometry.subbuf_size());
                    state.mark.tally.refused += 1;
                    self.give_back(ring, bad.claimed);
                }
            }
        }
        fullest
    }

    /// Asks the agent to make the ring's next pages present, on the ring's first lap.
    fn populate_ahead(&mut self, ring: usize, written: u64) {
        let (offset, size) = self.reader(ring).data_range();
        let subbuf = self.geometry.subbuf_size();
        let wanted = (written.saturating_add(subbuf / 2) / subbuf + 1).saturating_mul(subbuf).min(size);
        let state = &mut self.states[ring];
        if wanted > state.populated {
            let (from, len) = (offset + state.populated, wanted - state.populated);
            state.populated = wanted;
            if let Some(socket) = &self.socket {
                // If the agent doesn't hear it, the kernel supplies the pages when they are needed.
                let _ = socket.send(&ToAgent::Populate { offset: from, len }.encode(), &[]);
            }
        }
    }

    /// Copies the history of a flight recorder's rings, behind what was saved before.
    pub fn save_history(&mut self) {
        if self.given_up {
            return;
        }
        for ring in 0..self.states.len() {
            let mut bytes = Vec::new();
            let copied = self.reader(ring).copy_history(&mut bytes);
            let state = &mut self.states[ring];
            let Ok(mut span) = copied else {
                state.mark.tally.refused += 1;
                continue;
            };
            if span.begin < state.read {
                let known = (state.read - span.begin).min(bytes.len() as u64);
                bytes.drain(..known as usize);
                span.begin += known;
            }
            if !span.is_empty() {
                state.read = span.end;
                state.pending.push_back((span, bytes));
            }
        }
    }

    /// How many bytes wait to be converted.
    pub fn pending_bytes(&self) -> u64 {
        self.states.iter().flat_map(|state| &state.pending).map(|(span, _)| span.end - span.begin).sum()
    }

    /// Converts the oldest copied bytes of some ring and writes full packets. Returns how many bytes that were;
    /// 0 if nothing waits.
    ///
    /// One step is short, so that whoever calls can look after the rings in between.
    pub fn convert_some(&mut self, clock: &mut ClockMap) -> io::Result<u64> {
        let Some(ring) = self.states.iter().position(|state| !state.pending.is_empty()) else { return Ok(0) };
        let Some((mut span, mut bytes)) = self.states[ring].pending.pop_front() else { return Ok(0) };
        let done = self.convert_span(ring, span, &bytes, clock)?;
        span.begin += done;
        if span.is_empty() {
            bytes.clear();
            self.spare.push(bytes);
        } else {
            self.states[ring].pending.push_front((span, bytes));
        }
        Ok(done)
    }

    /// Converts what is known of the initial state: what the catalog says, and what the program wants to be
    /// kept. A process without an event doesn't tell it.
    pub fn convert_initial(&mut self, clock: &mut ClockMap) -> io::Result<()> {
        self.read_catalog();
        self.read_kept();
        if self.given_up || !self.writer.has_events() && !self.initial.iter().any(|initial| initial.own) {
            return Ok(());
        }
        let stream = self.writer.initial_stream();
        let mut initial = std::mem::take(&mut self.initial);
        initial.sort_by_key(|initial| initial.time);
        for Initial { own, number, time, tid, cpu, payload } in initial {
            let place = Place { stream, cpu, position: 0 };
            // What the agent tells of the process is not the program's to be filtered.
            self.record(place, (number, tid, time, &payload), own, clock)?;
        }
        Ok(())
    }

    /// Writes a record, if its class is known and, where it is `filtered`, the session's part of the filter lets
    /// it through.
    #[inline(always)]
    fn record(
        &mut self,
        place: Place,
        (number, tid, time, payload): (u32, u32, u64, &[u8]),
        filtered: bool,
        clock: &mut ClockMap,
    ) -> io::Result<()> {
        let Place { stream, cpu, position } = place;
        let Some(id) = self.class_id(number) else {
            match self.states.get_mut(stream) {
                // Its description is on another page.
                Some(state) if self.doubtful => state.mark.tally.missing += 1,
                _ => self.refuse(stream),
            }
            return Ok(());
        };
        let thread = self.attention.threads.as_mut().map(|threads| threads.get(tid));
        if let (true, Some(Some(Class { filter: Some(filter), event, .. }))) =
            (filtered, self.classes.get(&number))
        {
            let here = thread.map(|thread| Circumstances { tid, cpu, values: &thread.values });
            let follows = event.kind == Kind::End && self.spans_with_fields.contains(&filter::span(event));
            if !here.is_some_and(|here| filter.passes(payload, &here, follows)) {
                self.filtered += 1;
                return Ok(());
            }
        }
        let time = if self.given_time { time.min(LATEST) } else { clock.to_plausible_ns(time) };
        let context = thread.map_or(&[][..], |thread| &thread.bytes);
        let record = Record { id, time, tid, context, payload };
        match self.writer.push(stream, cpu, position, &record)? {
            Pushed::Taken => Ok(()),
            Pushed::Full => self.flush_stream(stream),
            Pushed::Misfit => {
                self.refuse(stream);
                Ok(())
            }
        }
    }

    /// Counts something that was refused.
    fn refuse(&mut self, stream: usize) {
        match self.states.get_mut(stream) {
            Some(state) => state.mark.tally.refused += 1,
            None => self.refused += 1,
        }
    }

    /// What is known of a stream's ring; the initial state comes from none.
    fn mark(&self, stream: usize) -> Mark {
        self.states.get(stream).map_or(Mark::default(), |state| state.mark)
    }

    /// Writes the stream's packet, if it has events.
    fn flush_stream(&mut self, stream: usize) -> io::Result<()> {
        self.sync_catalog()?;
        self.writer.flush(stream, self.mark(stream))
    }

    /// Reads the events that the program wants to be kept.
    fn read_kept(&mut self) {
        let mut kept = Vec::new();
        kept::take(&self.control, &mut self.kept_read, self.end.is_some(), &mut kept);
        let cpus = self.geometry.cpus();
        for event in kept {
            if event.cpu < cpus {
                self.initial.push(event.into());
            } else {
                self.refused += 1;
            }
        }
    }

    /// Converts the first records of a span, whose bytes are the last ones. Returns how many bytes they had; never
    /// 0.
    fn convert_span(
        &mut self,
        ring: usize,
        span: Span,
        bytes: &[u8],
        clock: &mut ClockMap,
    ) -> io::Result<u64> {
        let cpu = ring as u32 % self.geometry.cpus();
        let done_before = bytes.len() - (span.end - span.begin) as usize;
        let records = Records::new(&bytes[done_before..], span.begin, self.geometry.subbuf_size());
        let mut records = records.in_form(self.form);
        self.states[ring].has_gap |= span.begin > self.states[ring].converted;
        loop {
            let position = records.stream_position();
            self.states[ring].converted = position;
            if position - span.begin >= STEP_BYTES {
                return Ok(position - span.begin);
            }
            let Some(record) = records.next() else {
                if let (Form::Reserve, Some(events)) = (self.form, span.events) {
                    self.account(ring, events, span.end);
                }
                self.states[ring].mark.ring_end = span.end;
                return Ok(span.end - span.begin);
            };
            match record {
                Ok(UntrustedRecord::Event { number, tid, time, payload }) => {
                    let mark = &mut self.states[ring].mark;
                    // What a sub-buffer's header claimed is part of it, so it may be anything.
                    mark.tally.accounted = mark.tally.accounted.saturating_add(1);
                    mark.ring_end = records.stream_position();
                    let place = Place { stream: ring, cpu, position };
                    self.record(place, (number.into(), tid, time, payload), true, clock)?;
                }
                Ok(UntrustedRecord::Subbuffer { lost, events, .. }) => {
                    self.account(ring, events, position);
                    let state = &self.states[ring];
                    let unmet = state.mark.tally.missing.saturating_add(state.unfinished);
                    let lost = lost.saturating_add(unmet).min(MOST_DISCARDED);
                    if lost > self.writer.discarded(ring) {
                        self.sync_catalog()?;
                        self.writer.set_discarded(ring, lost, self.mark(ring))?;
                    }
                }
                // How many they were, the next number of events tells.
                Ok(UntrustedRecord::Unfinished { .. }) => {}
                Err(_) => self.states[ring].mark.tally.refused += 1,
            }
            self.states[ring].mark.ring_end = records.stream_position();
        }
    }

    /// Takes note of how many events a ring had taken at a place: those that were not found before it have been
    /// overwritten, were never completed, or did not reach the medium.
    fn account(&mut self, ring: usize, events: u64, position: u64) {
        let state = &mut self.states[ring];
        let has_gap = std::mem::take(&mut state.has_gap);
        if self.form == Form::Reserve && !has_gap && !self.doubtful {
            let tally = &mut state.mark.tally;
            state.unfinished = state.unfinished.saturating_add(events.saturating_sub(tally.accounted));
            tally.accounted = tally.accounted.max(events);
        } else {
            state.pass_over(events, position, self.overwrite, self.doubtful);
        }
    }

    /// The class of an event number, reading further in the catalog if it is new.
    #[inline]
    fn class_id(&mut self, number: u32) -> Option<ClassId> {
        if !self.classes.contains_key(&number) {
            self.read_catalog();
        }
        let class = self.classes.get_mut(&number)?.as_mut()?;
        if class.id.is_none() {
            class.id = Some(self.writer.add_class(&class.event));
        }
        class.id
    }

    /// Reads descriptions that the process has added.
    pub fn read_catalog(&mut self) {
        let start = control::CATALOG as usize;
        // Ordering: pairs with the agent's release store: the entries below it are complete.
        let used = self.control.word(start + catalog::USED).load(Ordering::Acquire);
        let room = control::CATALOG_SIZE as usize - catalog::ENTRIES;
        let used = usize::try_from(used).map_or(room, |used| used.min(room));
        if used <= self.catalog_read {
            return;
        }
        let mut bytes = vec![0; used - self.catalog_read];
        self.control.copy_out(start + catalog::ENTRIES + self.catalog_read, &mut bytes);
        self.catalog_read = used;
        let mut at = 0;
        loop {
            let (entry, next) = match catalog::entry_at(&bytes, at) {
                Ok(Some(found)) => found,
                Ok(None) => return,
                Err(_) => {
                    self.refused += 1;
                    return;
                }
            };
            at = next;
            if entry.description.is_empty() {
                // Nothing is described by nothing: a page that did not reach the medium, or a lie.
                self.refused += 1;
                return;
            }
            if entry.is_initial() {
                let cpus = self.geometry.cpus();
                let initial = entry.initial().filter(|initial| initial.cpu < cpus);
                self.refused += u64::from(initial.is_none());
                self.initial.extend(initial.map(Initial::from));
                continue;
            }
            let event = tompion_schema::decode(entry.description).ok();
            self.refused += u64::from(event.is_none());
            let filter = self.attention.filter.as_deref();
            let span = filter.zip(event.as_ref());
            let span = span.and_then(|(filter, event)| filter::span_with_fields(filter, event));
            self.spans_with_fields.extend(span);
            let class = event.map(|event| Class {
                filter: filter.map(|filter| SessionFilter::new(filter, &event)),
                event,
                id: None,
            });
            self.classes.entry(entry.number).or_insert(class);
        }
    }

    /// Names of all events and spans that the process has, recorded or not.
    pub fn event_names(&self) -> impl Iterator<Item = (&str, &str)> {
        let events = self.classes.values().flatten().map(|class| &class.event);
        events.flat_map(|event| {
            [event.name.as_str(), event.base_name()].map(|name| (event.provider.as_str(), name))
        })
    }

    /// Names of recorded events that the process describes in more than one way, with the number of ways.
    /// The application's contexts, which come and go, do not count.
    pub fn conflicts(&self) -> BTreeMap<String, usize> {
        let recorded = self.classes.values().flatten().filter(|class| class.id.is_some());
        let mut ways = BTreeMap::<String, HashSet<(&Option<String>, Vec<&Field>)>>::new();
        for Class { event, .. } in recorded {
            let fields = event.fields.iter().filter(|field| !field.context).collect();
            ways.entry(event.full_name()).or_default().insert((&event.format, fields));
        }
        ways.into_iter().map(|(name, ways)| (name, ways.len())).filter(|&(_, count)| count > 1).collect()
    }

    /// Writes packets that have waited.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.given_up {
            return Ok(());
        }
        (0..=self.states.len()).try_for_each(|stream| self.flush_stream(stream))?;
        self.settle()
    }

    /// Completes the trace.
    pub fn finish(&mut self) -> io::Result<()> {
        self.read_catalog();
        if self.given_up {
            return Ok(());
        }
        for ring in 0..self.states.len() {
            let reader = self.reader(ring);
            let unmet = self.states[ring].mark.tally.missing.saturating_add(self.states[ring].unfinished);
            let lost =
                Cause::ALL.into_iter().map(|cause| reader.lost(cause)).fold(unmet, u64::saturating_add);
            self.flush_stream(ring)?;
            self.writer.finish(ring, lost.min(MOST_DISCARDED), self.mark(ring))?;
        }
        self.flush_stream(self.writer.initial_stream())?;
        self.settle()
    }

    /// Writes nothing more: the trace ends with the last whole packet.
    pub fn give_up(&mut self) {
        self.given_up = true;
        self.spare = Vec::new();
        for state in &mut self.states {
            state.pending = VecDeque::new();
        }
    }

    /// Events that reached the rings but not the disk, after writing was given up.
    fn not_written(&self) -> u64 {
        if !self.given_up {
            return 0;
        }
        let appended = (0..self.states.len()).map(|ring| self.reader(ring).events());
        let known = self.writer.written_of_rings().saturating_add(self.overwritten());
        let known = known.saturating_add(self.refused()).saturating_add(self.filtered);
        let known = known.saturating_add(self.unfinished());
        appended.fold(0, u64::saturating_add).saturating_sub(known)
    }

    /// Events whose records this side has found to be incomplete for ever.
    fn unfinished(&self) -> u64 {
        self.states.iter().map(|state| state.unfinished).fold(0, u64::saturating_add)
    }

    fn overwritten(&self) -> u64 {
        self.states.iter().map(|state| state.mark.tally.overwritten).fold(0, u64::saturating_add)
    }

    fn refused(&self) -> u64 {
        let rings = self.states.iter().map(|state| state.mark.tally.refused);
        rings.fold(self.refused + u64::from(self.was_cut()), u64::saturating_add)
    }

    /// What the process lost for a reason.
    fn lost(&self, cause: Cause) -> u64 {
        if cause == Cause::Refused {
            // Counted by nobody but this side.
            return self.refused();
        }
        if cause == Cause::NotOnMedium {
            let missing = self.states.iter().map(|state| state.mark.tally.missing);
            return missing.fold(0, u64::saturating_add);
        }
        if cause == Cause::NotWritten {
            return self.not_written();
        }
        let without_ring = control::OFFSET_LOST + cause as usize * 8;
        let rings = (0..self.states.len()).map(|ring| self.reader(ring).lost(cause));
        let found = if cause == Cause::Unfinished { self.unfinished() } else { 0 };
        let shared = rings.fold(found, u64::saturating_add);
        // Ordering: a counter by itself.
        shared.saturating_add(self.control.word(without_ring).load(Ordering::Relaxed))
    }

    /// The process in the manifest.
    pub fn summary(&self, root: &std::path::Path) -> manifest::Source {
        let folder = self.writer.folder();
        let path = folder.strip_prefix(root).unwrap_or(folder).to_string_lossy().into_owned();
        manifest::Source {
            path,
            kind: "user".into(),
            pid: self.pid,
            name: self.hello.name.clone(),
            executable: self.hello.executable.clone(),
            producer: manifest::producer(self.form).into(),
            end: self.end.clone().unwrap_or_else(|| "running".into()),
            events: self.writer.written(),
            lost: manifest::losses(|cause| self.lost(cause)),
            overwritten: self.overwritten(),
        }
    }
}
