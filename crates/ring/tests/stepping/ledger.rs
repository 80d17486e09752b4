//! Ledger of what must be in the rings; checks that the production reader finds just that.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
};

use tompion_layout::{control, record, ring};
use tompion_ring::{
    producer::{Event, Outcome, Retention, Tail},
    reader::{RingReader, Span},
    records::{Records, UntrustedRecord},
};

use crate::support::Bench;

/// Number of a thread or handler that appends.
pub type Source = u16;
/// The thread that is stopped.
pub const MAIN: Source = 0;
/// Its signal handler.
pub const HANDLER: Source = 1;
/// The test itself, as a thread that shares the rings.
pub const OTHER: Source = 2;

/// Most words of a payload.
pub const MAX_WORDS: usize = 300;

/// An event whose every byte proves whose it is.
pub struct Proven {
    source: Source,
    number: u32,
    words: [u64; MAX_WORDS],
    image_len: usize,
    tails: Vec<Tail>,
    len: usize,
    time: u64,
}

/// A mixing function.
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (value ^ value >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1
}

impl Proven {
    /// Makes an event with an image of so many bytes, and tails of these lengths.
    pub fn new((source, number): (Source, u32), image_len: usize, tails: &[usize], time: u64) -> Box<Self> {
        let key = u64::from(source) << 48 | u64::from(number) << 16;
        let words = std::array::from_fn(|index| mix(key | index as u64));
        let len = image_len + tails.iter().sum::<usize>();
        assert!(len <= size_of_val(&words));
        let mut proven = Box::new(Self { source, number, words, image_len, tails: Vec::new(), len, time });
        let mut at = proven.words.as_ptr().cast::<u8>().wrapping_add(image_len);
        for &size in tails {
            proven.tails.push(Tail { data: at, size });
            at = at.wrapping_add(size);
        }
        proven
    }

    /// Appends the event. Neither allocates nor locks.
    pub fn append(&self, bench: &Bench) -> Outcome {
        let event = Event {
            id: record::FIRST_EVENT + self.source,
            tid: self.number,
            time: self.time,
            image: self.words.as_ptr().cast(),
            image_len: self.image_len,
            tails: &self.tails,
            retention: Retention::Ring,
        };
        // SAFETY: image and tails lie in the words.
        unsafe { bench.recording.append(&event) }
    }

    /// Its words.
    pub fn words(&self) -> &[u64] {
        &self.words[..self.len.div_ceil(8)]
    }

    /// First word of its record.
    pub fn head(&self) -> u64 {
        let words = (record::record_len(self.len) / 8) as u16;
        record::Head { id: record::FIRST_EVENT + self.source, words, tid: self.number }.to_word()
    }

    fn is_proven_by(&self, payload: &[u8]) -> bool {
        let mut bytes = self.words.iter().flat_map(|word| word.to_le_bytes());
        payload.len() == self.len.next_multiple_of(8)
            && payload[..self.len].iter().all(|&byte| bytes.next() == Some(byte))
    }
}

/// Account of what was appended, and of what has been read of it.
pub struct Ledger<'a> {
    bench: &'a Bench,
    overwrite: bool,
    given_time: bool,
    /// All that can be found.
    begun: BTreeMap<(Source, u32), Box<Proven>>,
    /// All that must be found, or have been overwritten.
    written: BTreeSet<(Source, u32)>,
    lost: u64,
    found: BTreeSet<(Source, u32)>,
    rings: Vec<Ring<'a>>,
}

/// One ring, and what has been read of it.
struct Ring<'a> {
    reader: RingReader<'a>,
    known: Known,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    read: u64,
    events: u64,
    overwritten: u64,
    lost: u64,
    time: u64,
}

impl<'a> Ledger<'a> {
    pub fn new(bench: &'a Bench, overwrite: bool, given_time: bool) -> Self {
        let ring = |reader| Ring { reader, known: Known::default() };
        let rings =
            (0..bench.geometry.buffers()).flat_map(|buffer| bench.readers(buffer)).map(ring).collect();
        let (begun, written, found) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { bench, overwrite, given_time, begun, written, lost: 0, found, rings }
    }

    /// Notes an event that may be found from now on.
    pub fn begin(&mut self, proven: Box<Proven>) -> &Proven {
        let key = (proven.source, proven.number);
        self.begun.entry(key).or_insert(proven)
    }

    /// Notes the outcome of an append.
    pub fn end(&mut self, key: (Source, u32), outcome: Outcome) {
        match outcome {
            Outcome::Written => drop(self.written.insert(key)),
            Outcome::Lost(_) => self.lost += 1,
            Outcome::NotRecording => panic!("there is a recording"),
        }
    }

    /// Appends something of the test's own. False if it was lost.
    pub fn append(&mut self, image_len: usize) -> bool {
        let number = self.begun.range((OTHER, 0)..=(OTHER, u32::MAX)).count() as u32;
        let bench = self.bench;
        // A given time is the number; it doesn't matter.
        let outcome =
            self.begin(Proven::new((OTHER, number), image_len, &[], u64::from(number))).append(bench);
        self.end((OTHER, number), outcome);
        outcome == Outcome::Written
    }

    /// Counts a loss of a thread that was ended before it could report it.
    pub fn count_lost(&mut self) {
        self.lost += 1;
    }

    /// The first event of a source. Valid for as long as the ledger.
    pub fn event(&self, source: Source) -> *const Proven {
        &raw const *self.begun[&(source, 0)]
    }

    /// Write position of the current buffer's ring of a CPU.
    pub fn position(&self, cpu: usize) -> u64 {
        // Ordering: the test alone stores it.
        let buffer = self.bench.control.half(control::OFFSET_SELECTOR).load(Ordering::Relaxed);
        self.rings[buffer as usize * self.bench.geometry.cpus() as usize + cpu].reader.written()
    }

    /// Discard mode: reads all there is, and gives the room back.
    pub fn take(&mut self) -> Result<(), String> {
        for index in 0..self.rings.len() {
            let Ring { reader, known } = &mut self.rings[index];
            let mut bytes = Vec::new();
            let span = reader.consume(known.read, &mut bytes).map_err(|bad| format!("{bad:?}"))?;
            known.read = span.end;
            self.walk(index, &bytes, span)?;
        }
        Ok(())
    }

    /// Looks at what there is now, while a thread is stopped, and leaves everything as it was.
    pub fn look(&mut self) -> Result<(), String> {
        let (rings, found) =
            (self.rings.iter().map(|ring| ring.known).collect::<Vec<_>>(), self.found.clone());
        self.read()?;
        self.verify().map_err(|wrong| format!("while the thread stands still: {wrong}"))?;
        for (index, (ring, known)) in self.rings.iter_mut().zip(rings).enumerate() {
            ring.known = known;
            if !self.overwrite {
                let geometry = self.bench.geometry;
                let ring = index * geometry.cpu_stride() as usize;
                // Ordering: all threads stand still.
                self.bench.rings.word(ring + ring::CONSUMED).store(known.read, Ordering::Relaxed);
            }
        }
        self.found = found;
        Ok(())
    }

    /// Everything must be there: exactly once, whole, counted.
    pub fn close(&mut self) -> Result<(), String> {
        self.read()?;
        self.verify()?;
        if self.bench.lost() != self.lost {
            return Err(format!("{} are counted as lost, {} were", self.bench.lost(), self.lost));
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), String> {
        if !self.overwrite {
            return self.take();
        }
        for index in 0..self.rings.len() {
            let mut bytes = Vec::new();
            let span = self.rings[index].reader.copy_history(&mut bytes).map_err(|bad| format!("{bad:?}"))?;
            self.walk(index, &bytes, span)?;
        }
        Ok(())
    }

    fn verify(&self) -> Result<(), String> {
        for Ring { reader, known } in &self.rings {
            if known.overwritten + known.events != reader.events() {
                return Err(format!("a ring counts {} events: {known:?}", reader.events()));
            }
        }
        let overwritten: u64 = self.rings.iter().map(|ring| ring.known.overwritten).sum();
        let all = self.found.len() as u64 + overwritten == self.written.len() as u64;
        if !all || !self.found.is_subset(&self.written) || (overwritten > 0 && !self.overwrite) {
            return Err(format!("{}, {overwritten} overwritten", self.difference()));
        }
        Ok(())
    }

    fn difference(&self) -> String {
        let missing: Vec<_> = self.written.difference(&self.found).collect();
        let surplus: Vec<_> = self.found.difference(&self.written).collect();
        format!("missing {missing:?}, found without being written {surplus:?}")
    }

    fn walk(&mut self, index: usize, bytes: &[u8], span: Span) -> Result<(), String> {
        let known = &mut self.rings[index].known;
        if span.end % 8 != 0 || span.end < span.begin {
            return Err(format!("a position that cannot be: {span:?}"));
        }
        for record in Records::new(bytes, span.begin, self.bench.geometry.subbuf_size()) {
            let time = match record.map_err(|refusal| format!("refused: {refusal:?}"))? {
                UntrustedRecord::Subbuffer { time, lost, events } => {
                    if self.overwrite && known.events == 0 {
                        // The oldest that is left says how many there were before.
                        known.overwritten = events;
                    }
                    if events != known.overwritten + known.events || lost < known.lost {
                        return Err(format!("a sub-buffer counts {events} events and {lost} losses"));
                    }
                    known.lost = lost;
                    time
                }
                UntrustedRecord::Event { number: source, tid: number, time, payload } => {
                    let key = (source, number);
                    let proven = self.begun.get(&key).ok_or_else(|| format!("{key:?} was never appended"))?;
                    if !proven.is_proven_by(payload) {
                        return Err(format!("{key:?} is torn: {payload:x?}"));
                    }
                    if !self.found.insert(key) {
                        return Err(format!("{key:?} is there twice"));
                    }
                    known.events += 1;
                    time
                }
                UntrustedRecord::Unfinished { position, .. } => {
                    return Err(format!("something unfinished at {position}"));
                }
            };
            if time < known.time && !self.given_time {
                return Err(format!("time went from {} to {time}", known.time));
            }
            known.time = time;
        }
        Ok(())
    }
}
