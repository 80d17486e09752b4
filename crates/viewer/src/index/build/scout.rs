//! Reads parts of a trace before their turn: those that are looked at, and of the whole every so many the first events.
//!
//! The index is made from the trace's begin to its end, which takes a minute for a hundred million events. Who opens a
//! trace wants to see where to look, and then to see that place. So whoever asks for a window leaves a *wish*: if it
//! spans few parts they are read whole, else the first events of parts that are spread evenly over it, ever closer. What
//! goes on in a part is found as for the index, but by an engine that has seen nothing before: what it doesn't know stays
//! unknown, and of spans those whose begin it has not seen are missing, so that others may stand too high.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tompion_analysis::state::{self, Engine, Happening, Interval, State, Visitor};
use tompion_reader::{Event, EventCollector, Loss, Parts, Selection};

use super::seen::{Finder, Step};
use super::teller::Teller;
use super::{BATCH, Outline};
use crate::foreground_gate::ForegroundGate;
use crate::index::Shared;
use crate::index::apply::{Applier, Finding};
use crate::index::entry::Entry;
use crate::index::glimpse::{Ahead, Cell, Glimpse};

/// Into how many cells at most the whole is divided before the index is begun, and a window that is asked for.
const WHOLE: usize = 256;
const WINDOW: usize = 128;
/// How many times farther apart the first glimpses of a window are.
const COARSEST: usize = 64;
/// A window of so many parts is read whole, if that is no more than this share of the trace.
const FEW: usize = 8;
const SMALL_SHARE: usize = 8;
/// Of less than half a part, so many pieces of it that are as long.
const PIECES: i64 = 16;
/// Events at the beginning of a part that are a glimpse. Where there are few parts, several places of each are looked at,
/// so that there are so many of the whole, and as many events of all of them together.
const EVENTS: usize = 4096;
const PLACES: usize = 64;
const MOST_OF_PART: usize = 16;
/// Wishes that are remembered, and that are left when there is no room for what they ask for.
const WISHES: usize = 8;
const WISHES_LEFT: usize = 3;
/// No sample stands for more than this share of the trace.
const LONGEST_SHARE: i64 = 8;
/// Bytes of all glimpses.
const MOST_BYTES: usize = 96 << 20;
/// Bytes of a trace below which its index is there as soon as the page is.
const LARGE: u64 = 10_000_000;
/// Bytes of what was found at which states are made of it.
const PIECE: usize = 1 << 20;
/// How long the index waits for the first glimpses and the page that shows them; who looks at a few pieces, for them; who
/// asks for one moment.
const FIRST: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_millis(30);
const ONE: Duration = Duration::from_millis(500);

/// Reads what is asked for before its turn.
pub struct Scout {
    parts: Arc<Parts>,
    channel_of: Vec<u32>,
    /// The base, and how long the traces last.
    range: (i64, i64),
    engine: Engine,
    teller: Teller,
    applier: Applier,
    /// How many places of a part are looked at.
    places: usize,
    seen: Mutex<Seen>,
    /// How many wait for pieces.
    hurries: AtomicUsize,
    /// There is something to do, or something was done.
    changed: Condvar,
}

/// What was seen, and what is wanted.
#[derive(Default)]
struct Seen {
    /// Beginnings of parts, or of places in them, by when they begin.
    samples: BTreeMap<i64, Arc<Glimpse>>,
    /// What was seen whole, by when it begins.
    whole: BTreeMap<i64, Arc<Glimpse>>,
    /// What is being read.
    reading: BTreeSet<Job>,
    /// The newest first.
    wishes: VecDeque<Wish>,
    bytes: usize,
    /// How many glimpses there were.
    count: u64,
    /// Counts up with each question.
    stamp: u64,
    is_over: bool,
}

/// A window from the base that somebody looks at, and of how many parts one is looked at where there are many. That stays as
/// it is when the index has passed some of them: else ever more would be read until it has passed all.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wish {
    from: i64,
    to: i64,
    closest: usize,
}

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    /// The beginning of a part, or some places of it.
    Sample(usize),
    /// All of it.
    Part(usize),
    /// A piece of it.
    Piece(usize, i64),
}

impl Scout {
    /// For traces with this outline; nothing for those that are indexed as fast.
    pub fn new(outline: &Outline, (engine, teller, applier): (Engine, Teller, Applier)) -> Option<Self> {
        if outline.size < LARGE {
            return None;
        }
        let parts = outline.parts.clone();
        let places = (PLACES / parts.count()).next_power_of_two().min(MOST_OF_PART);
        let scout = Self {
            parts,
            channel_of: outline.channel_of.clone(),
            range: outline.range(),
            engine,
            teller,
            applier,
            places,
            seen: Mutex::default(),
            hurries: AtomicUsize::new(0),
            changed: Condvar::new(),
        };
        let whole = scout.wish((0, scout.range.1), WHOLE);
        scout.seen().wish(whole);
        Some(scout)
    }

    /// A wish for a window in so many cells.
    fn wish(&self, (from, to): (i64, i64), cells: usize) -> Wish {
        let count = self.at(to).saturating_sub(self.at(from)) + 1;
        Wish { from, to, closest: count.div_ceil(cells).next_power_of_two() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is so, or so long.
    fn wait_until(&self, patience: Duration, is_so: impl Fn(&Seen) -> bool) {
        let begun = Instant::now();
        let mut seen = self.seen();
        while !seen.is_over && !is_so(&seen) {
            let Some(left) = patience.checked_sub(begun.elapsed()) else { return };
            seen = self.changed.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reads what is wished for until [`Self::end`], and lets those pass who look at what is there. To be called by some
    /// threads.
    pub fn run(&self, index: &Shared, gate: &ForegroundGate) {
        while let Some(job) = self.next() {
            let sight = self.look(job, (index, gate));
            let mut seen = self.seen();
            seen.reading.remove(&job);
            match sight {
                Sight::Glimpses(glimpses) => glimpses.into_iter().for_each(|it| seen.take(job, it)),
                // Nobody is to try again and again.
                Sight::Nothing => seen.take(job, Glimpse::new(self.times(job), Vec::new())),
                Sight::Interrupted => {}
            }
            drop(seen);
            self.changed.notify_all();
        }
    }

    /// Whether somebody waits for pieces.
    fn is_hurried(&self) -> bool {
        self.hurries.load(Ordering::Relaxed) > 0
    }

    /// What is to be read next.
    fn next(&self) -> Option<Job> {
        let mut seen = self.seen();
        loop {
            if seen.is_over {
                return None;
            }
            let is_now = |job: &Job| matches!(job, Job::Piece(..)) || !self.is_hurried();
            let mut jobs = seen.wishes.iter().filter_map(|wish| self.choose(&seen, *wish));
            if let Some(job) = jobs.find(is_now) {
                seen.reading.insert(job);
                return Some(job);
            }
            seen = self.changed.wait(seen).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until what was wished for first was seen, and until a page shows it, but not long.
    pub fn wait(&self, gate: &ForegroundGate) {
        let until = Instant::now() + FIRST;
        let is_done = |wish: &Wish, seen: &Seen| self.choose(seen, *wish).is_none();
        self.wait_until(FIRST, |seen| {
            seen.reading.is_empty() && seen.wishes.iter().all(|wish| is_done(wish, seen))
        });
        gate.wait_for_page(until);
    }

    /// Nothing is wanted any more: the index knows everything.
    pub fn end(&self) {
        *self.seen() = Seen { is_over: true, ..Seen::default() };
        self.changed.notify_all();
    }

    /// How many glimpses there were.
    pub fn count(&self) -> u64 {
        self.seen().count
    }

    /// From when to when all was seen, from the base, in order.
    pub fn whole(&self) -> Vec<(i64, i64)> {
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for glimpse in self.seen().whole.values() {
            match ranges.last_mut() {
                Some((_, to)) if *to >= glimpse.from => *to = glimpse.to.max(*to),
                _ => ranges.push((glimpse.from, glimpse.to)),
            }
        }
        ranges
    }

    /// What is known of a window (from the base) behind the time up to which the index knows all; more is read if
    /// somebody looks at it.
    pub fn ahead(&self, (from, to): (i64, i64), known: i64, is_looked_at: bool) -> Ahead {
        let (from, to) = (from.max(known), to.min(self.range.1));
        if from > to {
            return Ahead::default();
        }
        if is_looked_at {
            let wish = self.wish((from, to), WINDOW);
            self.seen().wish(wish);
            self.changed.notify_all();
            if self.is_small(wish) {
                self.hurry((from, to), SOON);
            }
        }
        let mut seen = self.seen();
        seen.forget(known);
        seen.stamp += 1;
        Ahead { known, cells: self.cells(&seen, (from, to)) }
    }

    /// Reads the piece in which a time (from the base) is, unless that takes long.
    pub fn read_at(&self, time: i64) {
        let wish = self.wish((time, time), WINDOW);
        self.seen().wish(wish);
        self.changed.notify_all();
        self.hurry((time, time.saturating_add(1)), ONE);
    }

    /// Waits for pieces, which are read before all else, but not long.
    fn hurry(&self, window: (i64, i64), patience: Duration) {
        self.hurries.fetch_add(1, Ordering::Relaxed);
        self.wait_until(patience, |seen| seen.has(window));
        let seen = self.seen();
        self.hurries.fetch_sub(1, Ordering::Relaxed);
        drop(seen);
        self.changed.notify_all();
    }

    fn at(&self, time: i64) -> usize {
        self.parts.at(time.saturating_add(self.range.0))
    }

    /// From when to when a job reads, from the base.
    fn times(&self, job: Job) -> (i64, i64) {
        let part = job.part();
        let begin = |part: usize| self.parts.begin(part).map(|begin| begin.saturating_sub(self.range.0));
        let from = begin(part).unwrap_or(0);
        // Whose last packet says that it began after all ends has no time in it.
        let to = begin(part + 1).unwrap_or(self.range.1).max(from);
        let Job::Piece(_, piece) = job else { return (from, to) };
        let begin = |piece: i64| border((from, to), (piece, PIECES));
        (begin(piece), begin(piece + 1))
    }

    /// Whether a wish is for some pieces of parts.
    fn is_small(&self, Wish { from, to, .. }: Wish) -> bool {
        let (first, last) = (self.at(from), self.at(to));
        let length = self.times(Job::Part(last)).1.saturating_sub(self.times(Job::Part(first)).0);
        last - first < 2 && to.saturating_sub(from) < length / 2
    }

    /// What to read next for a wish.
    fn choose(&self, seen: &Seen, wish: Wish) -> Option<Job> {
        let (first, last) = (self.at(wish.from), self.at(wish.to));
        let count = last.checked_sub(first)? + 1;
        let is_missing = |job: &Job| !seen.reading.contains(job) && !seen.has(self.times(*job));
        if self.is_small(wish) {
            let pieces =
                (first..=last).flat_map(|part| (0..PIECES).map(move |piece| Job::Piece(part, piece)));
            let is_in_sight = |job: &Job| {
                let (from, to) = self.times(*job);
                from <= wish.to && to > wish.from
            };
            return pieces.filter(is_in_sight).find(is_missing);
        }
        if count <= FEW.min(self.parts.count() / SMALL_SHARE) {
            // From the middle on: that is where one looks.
            let mut parts: Vec<usize> = (first..=last).collect();
            parts.sort_by_key(|part| (2 * part).abs_diff(first + last));
            return parts.into_iter().map(Job::Part).find(is_missing);
        }
        let mut step = wish.closest.saturating_mul(COARSEST);
        while step >= wish.closest {
            // Each step's parts are some of the next one's.
            let parts = (first.next_multiple_of(step)..=last).step_by(step).map(Job::Sample);
            let mut left = parts.filter(|job| !seen.has_sample(self.times(*job)));
            if let Some(job) = left.find(|job| !seen.reading.contains(job)) {
                return Some(job);
            }
            step /= 2;
        }
        None
    }

    /// What was seen of a window, in order of time.
    fn cells(&self, seen: &Seen, (from, to): (i64, i64)) -> Vec<Cell> {
        let before = seen.whole.range(..=from).next_back().map_or(from, |(begin, _)| *begin);
        let whole: Vec<&Arc<Glimpse>> = seen.whole.range(before..=to).map(|(_, glimpse)| glimpse).collect();
        let cell = |glimpse: &Arc<Glimpse>, (begin, end): (i64, i64), is_exact: bool| {
            glimpse.use_at(seen.stamp);
            Cell { begin, end, is_exact, glimpse: glimpse.clone() }
        };
        let exact = whole.iter().map(|glimpse| cell(glimpse, (glimpse.from, glimpse.to), true));
        let mut cells: Vec<Cell> = exact.collect();
        let before = seen.samples.range(..=from).next_back().map_or(from, |(begin, _)| *begin);
        let mut samples = seen.samples.range(before..).map(|(_, sample)| sample).peekable();
        while let Some(sample) = samples.next().filter(|sample| sample.from <= to) {
            let reach = samples.peek().map_or(self.range.1, |next| next.from);
            let reach = reach.min(sample.from.saturating_add(self.range.1 / LONGEST_SHARE)).max(sample.from);
            // A beginning that is most of its cell is shown as it is.
            let is_exact = (sample.to - sample.from).saturating_mul(2) >= reach.saturating_sub(sample.from);
            let end = if is_exact { sample.to.min(reach) } else { reach };
            let mut at = sample.from;
            for glimpse in whole.iter().filter(|glimpse| glimpse.from < end && glimpse.to > sample.from) {
                if glimpse.from > at {
                    cells.push(cell(sample, (at, glimpse.from), is_exact));
                }
                at = at.max(glimpse.to);
            }
            if at < end {
                cells.push(cell(sample, (at, end), is_exact));
            }
        }
        cells.sort_by_key(|cell| cell.begin);
        cells
    }

    /// Reads what is to be read.
    fn look(&self, job: Job, (index, gate): (&Shared, &ForegroundGate)) -> Sight {
        let (base, _) = self.range;
        let (from, to) = self.times(job);
        let (mut places, mut events, mut selection) = (1, usize::MAX, Selection::default());
        match job {
            Job::Sample(_) => (places, events) = (self.places, EVENTS / self.places),
            Job::Part(_) => {}
            // What goes on when it begins is learned from as much before it.
            Job::Piece(..) => {
                selection.from = Some(base.saturating_add(from.saturating_sub(to - from)));
                selection.to = Some(base.saturating_add(to));
            }
        }
        let Some(mut traces) = self.parts.read(job.part(), selection) else { return Sight::Nothing };
        let mut glimpses: Vec<Glimpse> = Vec::new();
        for place in 0..places {
            let begin = border((from, to), (place as i64, places as i64));
            // What was seen already is not seen again.
            let begin = glimpses.last().map_or(begin, |before| begin.max(before.to));
            let mut sights = Sights::new(self);
            let (mut left, mut is_there) = (events, place == 0);
            while left > 0 && traces.step() {
                if !matches!(job, Job::Piece(..)) {
                    gate.yield_unless(&|| self.is_hurried());
                    if self.is_hurried() {
                        return Sight::Interrupted;
                    }
                }
                let Some(event) = traces.current() else { break };
                is_there |= event.timestamp().is_some_and(|time| time.saturating_sub(base) >= begin);
                if is_there {
                    sights.event(&event, traces.losses());
                    left -= 1;
                }
            }
            let end = if left == 0 { sights.now().clamp(begin, to) } else { to };
            match self.entries(sights.finish(), index) {
                Some(entries) => glimpses.push(Glimpse::new((begin, end), entries)),
                None => return Sight::Nothing,
            }
            if left > 0 {
                break;
            }
        }
        Sight::Glimpses(glimpses)
    }

    /// What becomes of findings in the index's lanes, which are made if they aren't there.
    fn entries(&self, findings: Vec<Finding>, index: &Shared) -> Option<Vec<(u32, Entry)>> {
        let mut applier = self.applier.clone();
        let mut findings = findings.into_iter().peekable();
        let mut entries = Vec::new();
        while findings.peek().is_some() {
            entries = index.write().beside(entries, |index| {
                findings.by_ref().take(BATCH).try_for_each(|finding| applier.apply(index, finding))
            })?;
        }
        Some(entries)
    }
}

/// Where one of so many pieces of a while begins that are as long.
fn border((from, to): (i64, i64), (piece, pieces): (i64, i64)) -> i64 {
    let length = i128::from(to) - i128::from(from);
    from.saturating_add((length * i128::from(piece) / i128::from(pieces)) as i64)
}

/// What came of a job.
enum Sight {
    Glimpses(Vec<Glimpse>),
    /// It can't be read, or the index knows everything.
    Nothing,
    /// Something else was more urgent.
    Interrupted,
}

/// What is made of events that follow each other.
struct Sights<'s> {
    scout: &'s Scout,
    finder: Finder,
    engine: Engine,
    teller: Teller,
    list: List,
    /// How many losses were told of.
    losses: usize,
}

impl<'s> Sights<'s> {
    fn new(scout: &'s Scout) -> Self {
        let (engine, teller) = (scout.engine.fresh(), scout.teller.clone());
        let finder = Finder::new(engine.fact_extractor().clone(), teller.classes.clone(), None);
        Self { scout, finder, engine, teller, list: List::default(), losses: 0 }
    }

    fn event(&mut self, event: &Event<'_>, losses: &[Loss]) {
        losses.iter().skip(self.losses).for_each(|loss| self.finder.loss(loss));
        self.losses = losses.len();
        self.finder.event(event);
        if self.finder.size() >= PIECE {
            self.take();
        }
    }

    fn take(&mut self) {
        let Self { scout, finder, engine, teller, list, .. } = self;
        let base = scout.range.0;
        finder.take().each(|facts, step| match step {
            Step::Loss(loss) => engine.loss(&loss),
            Step::Event(told) => {
                let fact = told.fact;
                let time = fact.time().unwrap_or(base).saturating_sub(base);
                let channel = scout.channel_of.get(told.event.source as usize).copied().unwrap_or(0);
                teller.tell(told, (time, channel), &mut |finding| list.push(finding));
                engine.fact(facts, fact, list);
            }
        });
    }

    /// The latest time, from the base.
    fn now(&mut self) -> i64 {
        self.take();
        self.engine.now().map_or(i64::MAX, |now| now.saturating_sub(self.scout.range.0))
    }

    fn finish(mut self) -> Vec<Finding> {
        self.take();
        self.engine.finish(&mut self.list);
        self.list.0
    }
}

/// What was found that can be known without what was before.
#[derive(Default)]
struct List(Vec<Finding>);

impl List {
    fn push(&mut self, finding: Finding) {
        match finding {
            // An arrow or a deadline needs its other end.
            Finding::Flow(..) | Finding::Job(..) => {}
            finding => self.0.push(finding),
        }
    }
}

impl Visitor for List {
    fn interval(&mut self, interval: &Interval) {
        if !matches!(interval.state, State::Unknown) {
            self.0.push(Finding::Interval(interval.clone()));
        }
    }

    fn instant(&mut self, instant: &state::Instant) {
        if matches!(instant.what, Happening::Named { .. }) {
            self.0.push(Finding::Instant(instant.clone()));
        }
    }
}

impl Job {
    /// The part of which it reads.
    fn part(self) -> usize {
        let (Self::Sample(part) | Self::Part(part) | Self::Piece(part, _)) = self;
        part
    }
}

impl Seen {
    fn wish(&mut self, wish: Wish) {
        self.wishes.retain(|known| *known != wish);
        self.wishes.push_front(wish);
        self.wishes.truncate(WISHES);
    }

    /// Whether all was seen from one moment to another.
    fn has(&self, (from, to): (i64, i64)) -> bool {
        let mut at = from;
        while at < to {
            match self.whole.range(..=at).next_back() {
                Some((_, glimpse)) if glimpse.to > at => at = glimpse.to,
                _ => return false,
            }
        }
        true
    }

    /// Whether something was seen of a part with these times.
    fn has_sample(&self, (from, to): (i64, i64)) -> bool {
        self.samples.range(from..to.max(from.saturating_add(1))).next().is_some()
    }

    fn take(&mut self, job: Job, glimpse: Glimpse) {
        if self.is_over {
            return;
        }
        self.count += 1;
        glimpse.use_at(self.stamp);
        self.bytes += glimpse.size();
        let (from, to) = (glimpse.from, glimpse.to);
        let glimpse = Arc::new(glimpse);
        if let Job::Sample(_) = job {
            let before = self.samples.insert(from, glimpse);
            self.bytes -= before.map_or(0, |before| before.size());
        } else {
            let inside: Vec<i64> =
                self.whole.range(from..to.max(from + 1)).map(|(begin, _)| *begin).collect();
            for begin in inside {
                self.bytes -= self.whole.remove(&begin).map_or(0, |before| before.size());
            }
            self.whole.insert(from, glimpse);
        }
        if self.bytes > MOST_BYTES {
            self.make_room();
        }
    }

    fn make_room(&mut self) {
        // What older wishes ask for would be read again and again.
        self.wishes.truncate(WISHES_LEFT);
        let mut uses: Vec<u64> =
            self.samples.values().chain(self.whole.values()).map(|it| it.used()).collect();
        uses.sort_unstable();
        let oldest = uses.get(uses.len() / 3).copied().unwrap_or(0);
        self.samples.retain(|_, glimpse| glimpse.used() > oldest);
        self.whole.retain(|_, glimpse| glimpse.used() > oldest);
        self.bytes = self.samples.values().chain(self.whole.values()).map(|it| it.size()).sum();
    }

    /// Drops what the index knows: all before a time.
    fn forget(&mut self, known: i64) {
        // The last one stands for what comes behind it, too.
        let first = self.samples.range(..=known).next_back().map_or(known, |(begin, _)| *begin);
        self.samples = self.samples.split_off(&first);
        self.whole.retain(|_, glimpse| glimpse.to > known);
        self.bytes = self.samples.values().chain(self.whole.values()).map(|it| it.size()).sum();
        for wish in &mut self.wishes {
            wish.from = wish.from.max(known);
        }
        self.wishes.retain(|wish| wish.from <= wish.to);
    }
}
