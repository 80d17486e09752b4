//! Checks what the production reader finds: each record whole, once, in its order, at a time that
//! is not before the last one's, and at the place that the ring's own count says.

use tompion_layout::{loss::Cause, record::WriteProtocol};
use tompion_ring::{
    reader::RingReader,
    records::{Records, UntrustedRecord},
};

use crate::{record, support::Bench, writers::Source};

/// Records of a source that may be seen before an earlier one; many more than all rings hold.
const WINDOW: usize = 1 << 16;
/// Places of a ring that are remembered; more than a ring has.
const REMEMBERED: usize = 1 << 14;

/// The last that was seen of a source.
struct Seen {
    /// By number: 0, or one more than the number, and the place where it was found.
    places: Vec<(u64, Place)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    ring: u32,
    /// Number of events that its ring had before.
    index: u64,
}

/// One ring, and what is known of it.
struct Ring<'a> {
    reader: RingReader<'a>,
    read: u64,
    time: u64,
    lost: u64,
    /// Number of events that are known: those that were found, and those before the oldest that was
    /// left.
    events: u64,
    /// Next expected number of each source.
    last: Vec<u64>,
    /// Content that was found at each place.
    remembered: Vec<(u16, u64)>,
}

/// A reader that believes nothing.
pub struct Checker<'a> {
    bench: &'a Bench,
    overwrite: bool,
    rings: Vec<Ring<'a>>,
    seen: Vec<Seen>,
    bytes: Vec<u8>,
    /// Different records that were found.
    pub found: u64,
    /// Records that were looked at, with those that were found again.
    pub looked_at: u64,
}

impl<'a> Checker<'a> {
    pub fn new(bench: &'a Bench, overwrite: bool, sources: usize) -> Self {
        let ring = |reader| Ring {
            reader,
            read: 0,
            time: 0,
            lost: 0,
            events: 0,
            last: vec![0; sources],
            remembered: vec![(0, 0); REMEMBERED],
        };
        let rings = bench.readers(0).into_iter().map(ring).collect();
        let seen = (0..sources).map(|_| Seen { places: vec![Default::default(); WINDOW] }).collect();
        Self { bench, overwrite, rings, seen, bytes: Vec::new(), found: 0, looked_at: 0 }
    }

    /// Events in all rings, by their own count.
    pub fn written(&self) -> u64 {
        self.rings.iter().map(|ring| ring.reader.events()).sum()
    }

    /// Reads all rings once. How many new records there were.
    pub fn read(&mut self) -> Result<u64, String> {
        let before = self.found;
        for index in 0..self.rings.len() {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.clear();
            let ring = &mut self.rings[index];
            let span = if self.overwrite {
                ring.reader.copy_history(&mut bytes)
            } else {
                ring.reader.consume(ring.read, &mut bytes)
            };
            let span = span.map_err(|bad| format!("{bad:?}"))?;
            ring.read = span.end;
            self.walk(index as u32, &bytes, span.begin)?;
            self.bytes = bytes;
        }
        Ok(self.found - before)
    }

    /// After the writers' end: all is known, and counted.
    pub fn close(&mut self, sources: &[&Source]) -> Result<(), String> {
        self.read()?;
        for ring in &self.rings {
            let counted = ring.reader.events();
            if ring.events != counted {
                return Err(format!("a ring counts {counted} events, {} are known", ring.events));
            }
        }
        let written: u64 = sources.iter().map(|source| source.written()).sum();
        if self.written() != written {
            return Err(format!("rings count {} events, {written} were written", self.written()));
        }
        let lost: u64 = sources.iter().map(|source| source.lost()).sum();
        if self.bench.lost() != lost {
            return Err(format!("{} are counted as lost, {lost} were", self.bench.lost()));
        }
        // Each was found at most once, so as many as were written are all of them.
        if !self.overwrite && self.found != written {
            return Err(format!("{} of {written} were found", self.found));
        }
        for (source, seen) in sources.iter().zip(&self.seen) {
            let last = seen.places.iter().map(|(number, _)| *number).max().unwrap_or(0);
            if last > source.written() {
                return Err(format!("record {last} of {} was found", source.written()));
            }
        }
        Ok(())
    }

    fn walk(&mut self, index: u32, bytes: &[u8], begin: u64) -> Result<(), String> {
        let ring = &mut self.rings[index as usize];
        let (mut time, mut events) = if self.overwrite { (0, None) } else { (ring.time, Some(ring.events)) };
        let records = Records::new(bytes, begin, self.bench.geometry.subbuf_size());
        for record in records.in_form(self.bench.form) {
            let now = match record.map_err(|refusal| format!("refused: {refusal:?}"))? {
                UntrustedRecord::Subbuffer { time, lost, events: claimed } => {
                    if *events.get_or_insert(claimed) != claimed {
                        return Err(format!("a sub-buffer counts {claimed} events instead of {events:?}"));
                    }
                    let most: u64 = Cause::ALL.iter().map(|&cause| ring.reader.lost(cause)).sum();
                    // Where nothing is restarted, the next header may be written before this one.
                    let is_ordered = !self.overwrite && self.bench.form == WriteProtocol::Rseq;
                    if lost > most || (is_ordered && lost < ring.lost) {
                        return Err(format!(
                            "a sub-buffer counts {lost} losses, {} to {most} are",
                            ring.lost
                        ));
                    }
                    ring.lost = lost;
                    time
                }
                UntrustedRecord::Event { number: source, time, payload, tid } => {
                    let sound = record::number_of(source, payload).filter(|&number| number as u32 == tid);
                    let Some(number) = sound else {
                        return Err(format!("torn: source {source}, {tid}: {payload:x?}"));
                    };
                    let place = Place { ring: index, index: events.ok_or("no header before an event")? };
                    self.looked_at += 1;
                    self.found += u64::from(ring.find(place, source, number, &mut self.seen)?);
                    events = Some(place.index + 1);
                    time
                }
                // How many they are is not known yet. What comes behind them is found in another
                // copy.
                UntrustedRecord::Unfinished { .. } if self.overwrite => break,
                UntrustedRecord::Unfinished { position, .. } => {
                    return Err(format!("something unfinished at {position}"));
                }
            };
            if now < time {
                return Err(format!("time went from {time} to {now}"));
            }
            time = now;
        }
        ring.time = time;
        ring.events = ring.events.max(events.unwrap_or(0));
        Ok(())
    }
}

impl Ring<'_> {
    /// Whether a record is new; else it is where it was before.
    fn find(&mut self, place: Place, source: u16, number: u64, seen: &mut [Seen]) -> Result<bool, String> {
        let Some((seen, last)) =
            seen.get_mut(usize::from(source)).zip(self.last.get_mut(usize::from(source)))
        else {
            return Err(format!("there is no source {source}"));
        };
        let remembered = &mut self.remembered[place.index as usize % REMEMBERED];
        let slot = &mut seen.places[number as usize % WINDOW];
        if place.index < self.events {
            let is_same = *remembered == (source, number) && *slot == (number + 1, place);
            // A thread that was last here long ago has written many more elsewhere.
            let is_old = *remembered == (source, number) && slot.0 > number + 1;
            return if is_same || is_old {
                Ok(false)
            } else {
                Err(format!(
                    "at {place:?} was {remembered:?}, now it is {number} of {source}, seen as {slot:?}"
                ))
            };
        }
        if number < *last {
            return Err(format!("{number} of {source} comes after {last} in its ring"));
        }
        if slot.0 == number + 1 {
            return Err(format!("{number} of {source} is at {place:?} and at {:?}", slot.1));
        }
        *remembered = (source, number);
        if slot.0 <= number {
            *slot = (number + 1, place);
        }
        *last = number + 1;
        Ok(true)
    }
}
