//! Conversion of copied ring bytes to packets.
//!
//! A program that writes faster than this converts loses events in the end, so the cost of a record
//! here decides which rate is borne. Runs of events that need nothing special take a short path
//! ([`Process::convert_events`]); everything else, and the event at which a run ends, goes the long
//! one, which takes any record.

use std::io;

use tompion_clock::{ClockMap, Line};
use tompion_ctf::encode::Record;
use tompion_layout::record::WriteProtocol;
use tompion_ring::{
    pinned_events,
    reader::Span,
    records::{Records, SameSizeRun, UntrustedEvent, UntrustedRecord},
};
use tompion_schema::Kind;
use tompion_writer::{ClassId, Mark, OpenPacket, Pushed};

use super::{Backlog, Class, Initial, LATEST, Place, Placement, Process};
use crate::filter::Circumstances;

/// About how many bytes are converted in one step.
const STEP_BYTES: u64 = 64 << 10;
/// Size of a packet that does not wait any longer for events that go elsewhere.
const MAX_WAITING_PACKET: usize = 8 << 20;

impl Process {
    /// Converts the oldest copied bytes of some ring and writes full packets. Returns how many
    /// bytes that were; 0 if nothing of this share waits.
    ///
    /// One step is short, so that the caller can poll the rings in between.
    pub fn convert_some(&mut self, share: Backlog, clock: &mut ClockMap) -> io::Result<u64> {
        let mut states = self.states.iter();
        let Some(ring) = states.position(|state| state.waiting(share).next().is_some()) else { return Ok(0) };
        let Some((mut span, bytes)) = self.states[ring].pending.pop_front() else { return Ok(0) };
        let done = self.convert_span(ring, span, &bytes, clock)?;
        span.begin += done;
        if span.is_empty() {
            self.buffers.put(bytes);
        } else {
            self.states[ring].pending.push_front((span, bytes));
        }
        Ok(done)
    }

    /// Converts what is known of the initial state: what the catalog says, and what the program
    /// wants to be kept. A process without an event doesn't tell it.
    pub fn convert_initial(&mut self, clock: &mut ClockMap) -> io::Result<()> {
        self.read_catalog();
        self.read_kept();
        if self.given_up || !self.writer.has_events() && !self.initial.iter().any(|initial| initial.own) {
            return Ok(());
        }
        let stream = self.writer.initial_stream();
        let mut initial = std::mem::take(&mut self.initial);
        initial.sort_by_key(|initial| initial.time);
        self.begin_batch(&initial);
        for Initial { own, number, time, tid, cpu, payload, position } in initial {
            self.settle_cpu_of_batch(cpu)?;
            self.note_repeated(position);
            let place = Place { stream, cpu, position: 0 };
            // What the agent tells of the process is not the program's to be filtered.
            self.record(place, &RawRecord { number, tid, time, payload: &payload }, own, clock)?;
        }
        self.end_batch();
        Ok(())
    }

    /// Writes a stream's packet, which is full. Events of a ring that are repeated in each chunk
    /// come before the ring's packet: a recorder that comes back reads on behind it. They are
    /// written in the order of their times, with those of other rings; until then the packet waits.
    fn flush_full(&mut self, stream: usize, clock: &mut ClockMap) -> io::Result<()> {
        let is_ring = stream < self.states.len();
        if is_ring && self.has_repeated() && self.writer.packet_len(stream) < MAX_WAITING_PACKET {
            return Ok(());
        }
        self.settle_repeated(stream, clock)?;
        self.flush_stream(stream)
    }

    /// Whether events of rings wait that each chunk is to repeat.
    fn has_repeated(&self) -> bool {
        self.is_resumable_in_chunk() && self.initial.iter().any(|initial| initial.position != 0)
    }

    /// Writes the events that each chunk repeats, before a packet of a ring is written.
    fn settle_repeated(&mut self, stream: usize, clock: &mut ClockMap) -> io::Result<()> {
        if stream >= self.states.len() || !self.is_resumable_in_chunk() {
            return Ok(());
        }
        if self.has_repeated() {
            self.convert_initial(clock)?;
        }
        self.flush_stream(self.writer.initial_stream())
    }

    /// Writes a record, if its class is known and, where it is `filtered`, the session's part of
    /// the filter lets it through.
    #[inline(always)]
    fn record(
        &mut self,
        place: Place,
        record: &RawRecord<'_>,
        filtered: bool,
        clock: &mut ClockMap,
    ) -> io::Result<()> {
        let Place { stream, cpu, position } = place;
        if self.context_sources.jobs.is_some() {
            self.take_job(stream, record, clock);
            return Ok(());
        }
        let RawRecord { number, tid, time, payload } = *record;
        let Some(id) = self.class_id(number) else {
            match self.states.get_mut(stream) {
                // Its description is on another page.
                Some(state) if self.may_have_torn_pages => state.mark.tally.missing += 1,
                _ => self.refuse(stream),
            }
            return Ok(());
        };
        let thread = self.context_sources.threads.as_mut().map(|threads| threads.get(tid));
        if let (true, Some(Class { filter: Some(filter), event, .. })) = (filtered, self.classes.get(&number))
        {
            let here = thread.map(|thread| Circumstances { tid, cpu, values: thread.seen() });
            let follows = event.kind == Kind::End && self.spans_with_fields.contains(&event.span_name());
            if !here.is_some_and(|here| filter.passes(payload, &here, follows)) {
                self.filtered += 1;
                return Ok(());
            }
        }
        let time = if self.given_time { time.min(LATEST) } else { clock.to_plausible_ns(time) };
        let of_thread = thread.map_or(&[][..], |thread| &thread.bytes);
        let of_both;
        let context = match &self.placement {
            Placement::Shared { identity, .. } if of_thread.is_empty() => identity,
            Placement::Shared { identity, .. } => {
                of_both = [identity, of_thread].concat();
                &of_both
            }
            _ => of_thread,
        };
        let record = Record { id, time, tid, context, payload };
        match self.writer.push(stream, cpu, position, &record)? {
            Pushed::Taken => Ok(()),
            Pushed::Full => self.flush_full(stream, clock),
            Pushed::Misfit => {
                self.refuse(stream);
                Ok(())
            }
        }
    }

    /// Counts something that was refused.
    pub(super) fn refuse(&mut self, stream: usize) {
        match self.states.get_mut(stream) {
            Some(state) => state.mark.tally.refused += 1,
            None => self.refused += 1,
        }
    }

    /// State of a stream's ring; the initial state comes from none.
    pub(super) fn mark(&self, stream: usize) -> Mark {
        self.states.get(stream).map_or_else(|| self.mark_of_initial(), |state| state.mark)
    }

    /// Writes the stream's packet, if it has events.
    pub(super) fn flush_stream(&mut self, stream: usize) -> io::Result<()> {
        self.sync_catalog()?;
        self.writer.flush(stream, self.mark(stream))?;
        if stream == self.writer.initial_stream() {
            self.end_packet_of_initial();
        }
        Ok(())
    }

    /// Reads the events that the program wants to be kept.
    pub(super) fn read_kept(&mut self) {
        let mut kept = Vec::new();
        if self.may_have_torn_pages {
            self.pinned_missing = pinned_events::take_sound(&self.control, self.kept_read, &mut kept);
        } else {
            pinned_events::take(&self.control, &mut self.kept_read, self.end.is_some(), &mut kept);
        }
        let cpus = self.geometry.cpus();
        for event in kept {
            if event.cpu < cpus {
                self.initial.push(event.into());
            } else {
                self.refused += 1;
            }
        }
    }

    /// Converts the first records of a span, whose bytes are the last ones. Returns how many bytes
    /// they had; never 0.
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
        if span.begin > self.states[ring].converted {
            self.states[ring].has_gap = true;
            if self.overwrite {
                self.settle_repeated(ring, clock)?;
                self.sync_catalog()?;
                self.writer.interrupt(ring, self.mark(ring))?;
            }
        }
        let enough = span.begin.saturating_add(STEP_BYTES);
        loop {
            if self.convert_events(ring, &mut records, enough, clock) {
                self.flush_full(ring, clock)?;
            }
            let position = records.stream_position();
            self.states[ring].converted = position;
            if position >= enough {
                return Ok(position - span.begin);
            }
            let Some(record) = records.next() else {
                if let (WriteProtocol::ReserveCommit, Some(events)) = (self.form, span.events) {
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
                    let number = number.into();
                    let behind = records.stream_position();
                    if self.is_repeated(ring, behind, number, payload) {
                        let payload = payload.to_vec();
                        let initial =
                            Initial { own: true, number, time, tid, cpu, payload, position: behind };
                        self.repeat(ring, initial);
                    } else {
                        let place = Place { stream: ring, cpu, position };
                        let record = RawRecord { number, tid, time, payload };
                        self.record(place, &record, true, clock)?;
                    }
                }
                Ok(UntrustedRecord::Subbuffer { lost, events, .. }) => {
                    self.account(ring, events, position);
                    self.set_discarded(ring, lost, clock)?;
                }
                // How many they were, the next number of events tells.
                Ok(UntrustedRecord::Unfinished { .. }) => {}
                Err(_) => self.states[ring].mark.tally.refused += 1,
            }
            self.states[ring].mark.ring_end = records.stream_position();
        }
    }

    /// Converts events of a ring up to the first for which more must be done than to append it to
    /// the packet, or up to the one at which enough is done. Returns whether the packet is full.
    fn convert_events(
        &mut self,
        ring: usize,
        records: &mut Records<'_>,
        enough: u64,
        clock: &mut ClockMap,
    ) -> bool {
        // What a filter or contexts ask of threads takes the long path, and so do jobs that are
        // told.
        let is_shared = matches!(self.placement, Placement::Shared { .. });
        if is_shared || self.context_sources.threads.is_some() || self.context_sources.jobs.is_some() {
            return false;
        }
        let cpu = ring as u32 % self.geometry.cpus();
        let Some(mut packet) = self.writer.open_packet(ring, cpu) else { return false };
        let (mut count, mut pushed) = (0, Pushed::Taken);
        while records.stream_position() < enough && pushed == Pushed::Taken {
            let Some(event) = records.next_event() else { break };
            let Some(&Some(id)) = self.ready.get(usize::from(event.number)) else { break };
            let time =
                if self.given_time { event.time.min(LATEST) } else { clock.to_plausible_ns(event.time) };
            pushed = packet.push(&Record { id, time, tid: event.tid, context: &[], payload: event.payload });
            if pushed == Pushed::Misfit {
                break;
            }
            records.pass(&event);
            count += 1;
            if !self.given_time && pushed == Pushed::Taken {
                let run = Run { event: &event, enough, line: clock.line() };
                count += convert_run(&mut packet, id, records, run);
            }
        }
        if count > 0 {
            let mark = &mut self.states[ring].mark;
            // What a sub-buffer's header claimed is part of it, so it may be anything.
            mark.tally.accounted = mark.tally.accounted.saturating_add(count);
            mark.ring_end = records.stream_position();
        }
        pushed == Pushed::Full
    }

    /// Takes note of how many events a ring had lost when a sub-buffer was opened, if that can be.
    fn set_discarded(&mut self, ring: usize, lost: u64, clock: &mut ClockMap) -> io::Result<()> {
        let Some(lost) = self.possible(lost.saturating_add(self.states[ring].unmet())) else {
            self.participation.says_what_cannot_be = true;
            return Ok(());
        };
        if lost > self.writer.discarded(ring) {
            self.settle_repeated(ring, clock)?;
            self.sync_catalog()?;
            self.writer.set_discarded(ring, lost, self.mark(ring))?;
        }
        Ok(())
    }

    /// Takes note of how many events a ring had taken at a place: those that were not found before
    /// it have been overwritten, were never completed, or did not reach the medium.
    fn account(&mut self, ring: usize, events: u64, position: u64) {
        let state = &mut self.states[ring];
        let has_gap = std::mem::take(&mut state.has_gap);
        if self.form == WriteProtocol::ReserveCommit && !has_gap && !self.may_have_torn_pages {
            let tally = &mut state.mark.tally;
            tally.unfinished = tally.unfinished.saturating_add(events.saturating_sub(tally.accounted));
            tally.accounted = tally.accounted.max(events);
        } else {
            state.pass_over(events, position, self.overwrite, self.may_have_torn_pages);
        }
    }

    /// The class of an event number, reading further in the catalog if it is new.
    pub(super) fn class_id(&mut self, number: u32) -> Option<ClassId> {
        if let Some(&Some(id)) = self.ready.get(number as usize) {
            return Some(id);
        }
        if !self.classes.contains_key(&number) {
            self.read_catalog();
        }
        let class = self.classes.get_mut(&number)?;
        let id = *class.id.get_or_insert_with(|| self.writer.add_class(&class.event));
        // Initial events of a recording in chunks take the long way.
        let is_plain = self.chunk.is_none() || !class.event.init;
        if let (Ok(number), true) = (u16::try_from(number), is_plain) {
            let known = self.ready.len().max(usize::from(number) + 1);
            self.ready.resize(known, None);
            self.ready[usize::from(number)] = Some(id);
        }
        Some(id)
    }
}

/// Record as its producer wrote it, with the time as the ring has it.
#[derive(Clone, Copy)]
pub(super) struct RawRecord<'a> {
    /// Number of the event.
    pub number: u32,
    /// The thread.
    pub tid: u32,
    /// Ticks or nanoseconds.
    pub time: u64,
    /// Its fields.
    pub payload: &'a [u8],
}

/// Events behind one that are of its kind and length and lie on the same line of the clock.
#[derive(Clone, Copy)]
struct Run<'a> {
    /// The event before them.
    event: &'a UntrustedEvent<'a>,
    /// Position in the stream at which the run ends at the latest.
    enough: u64,
    /// Line of the clock.
    line: Line,
}

/// Converts a run: a loop without a choice in it costs a quarter of what each event would cost by
/// itself. Returns how many events it had.
#[inline(always)]
fn convert_run(packet: &mut OpenPacket<'_>, id: ClassId, records: &mut Records<'_>, run: Run<'_>) -> u64 {
    match run.event.payload.len() {
        0 => convert_run_of::<0>(packet, id, records, run),
        8 => convert_run_of::<8>(packet, id, records, run),
        16 => convert_run_of::<16>(packet, id, records, run),
        24 => convert_run_of::<24>(packet, id, records, run),
        32 => convert_run_of::<32>(packet, id, records, run),
        40 => convert_run_of::<40>(packet, id, records, run),
        48 => convert_run_of::<48>(packet, id, records, run),
        56 => convert_run_of::<56>(packet, id, records, run),
        64 => convert_run_of::<64>(packet, id, records, run),
        _ => 0,
    }
}

/// The same for one length, which the compiler knows. Each is a function of its own, whose loop has
/// no call in it: in one with all of them, the compiler leaves some.
#[inline(never)]
fn convert_run_of<const PAYLOAD: usize>(
    packet: &mut OpenPacket<'_>,
    id: ClassId,
    records: &mut Records<'_>,
    Run { event, enough, line }: Run<'_>,
) -> u64 {
    let events = OnLine { run: records.same_size_run::<PAYLOAD>(event, enough), line };
    let count = packet.push_run(id, events);
    records.skip_run::<PAYLOAD>(count);
    count as u64
}

/// Events with their moments, up to the first that does not lie on the clock's line.
struct OnLine<'a, const PAYLOAD: usize> {
    run: SameSizeRun<'a, PAYLOAD>,
    line: Line,
}

impl<'a, const PAYLOAD: usize> Iterator for OnLine<'a, PAYLOAD> {
    type Item = (u32, u64, &'a [u8; PAYLOAD]);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (tid, time, payload) = self.run.next()?;
        Some((tid, self.line.to_ns(time)?, payload))
    }
}
