//! Matches of triggers on events, as the programs' memory has them.

use tompion_manifest::Capture;
use tompion_os::SharedMap;
use tompion_ring::captures::{self, UntrustedCapture};
use tompion_schema::Event;
use tompion_triggers::MAX_EVENT_TRIGGERS;

use crate::decode;

/// More matches than any program can have between two looks. A larger number is a lie, or the count
/// was overwritten.
const MAX_MATCHES: u64 = 1 << 40;

/// New matches of a trigger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// Number of the trigger among those on events.
    pub trigger: usize,
    /// Number of events.
    pub count: u64,
    /// The first ones.
    pub captures: Vec<Capture>,
}

/// Program that has the events.
pub trait EventSource {
    /// The description of an event number.
    fn event(&mut self, number: u32) -> Option<&Event>;
    /// A capture of that program, without the event's name and fields, with a time in nanoseconds
    /// since 1970 for one of CLOCK_MONOTONIC.
    fn frame(&self, tid: u32, time: u64) -> Capture;
}

/// Numbers of matches of one program that were read so far.
#[derive(Debug, Default)]
pub struct MatchCounts {
    seen: [u64; MAX_EVENT_TRIGGERS],
    /// Number of impossible counts, and of copies that are no events.
    refused: u64,
    /// Whether the number of events that no trigger could look at was reported.
    is_unjudged_reported: bool,
    /// Whether the number of triggers that it doesn't know was reported.
    is_unknown_reported: bool,
}

impl MatchCounts {
    /// Goes on where another recorder has stopped.
    pub fn resume(control: &SharedMap) -> Self {
        let mut counts = Self::default();
        for (trigger, seen) in counts.seen.iter_mut().enumerate() {
            *seen = captures::followed(control, trigger).min(captures::matches(control, trigger));
        }
        counts
    }

    /// Number of things in the memory that can't be.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Number of events that no trigger could look at, if there are some for the first time.
    pub fn take_unjudged(&mut self, control: &SharedMap) -> Option<u64> {
        let unjudged = captures::unjudged(control);
        let is_new = unjudged != 0 && !std::mem::replace(&mut self.is_unjudged_reported, unjudged != 0);
        is_new.then_some(unjudged)
    }

    /// Number of so many triggers that the program doesn't understand, if there are some for the
    /// first time. Cheap.
    pub fn take_unknown(&mut self, control: &SharedMap, triggers: usize) -> Option<usize> {
        let understood = captures::understood(control).filter(|_| !self.is_unknown_reported)?;
        let unknown = triggers.saturating_sub(understood as usize);
        self.is_unknown_reported = unknown != 0;
        (unknown != 0).then_some(unknown)
    }

    /// Numbers of the first `triggers` triggers that have new matches. Cheap.
    pub fn find_new(&self, control: &SharedMap, triggers: usize) -> Vec<usize> {
        let is_new = |trigger: &usize| captures::matches(control, *trigger) != self.seen[*trigger];
        (0..triggers.min(MAX_EVENT_TRIGGERS)).filter(is_new).collect()
    }

    /// Reads the new matches of a trigger, which tells these fields of events.
    pub fn read(
        &mut self,
        control: &SharedMap,
        trigger: usize,
        fields: &[String],
        source: &mut impl EventSource,
    ) -> Matches {
        let Some(seen) = self.seen.get_mut(trigger) else { return Matches::default() };
        let found = captures::matches(control, trigger);
        let count = found.wrapping_sub(*seen);
        *seen = found;
        captures::set_followed(control, trigger, found);
        if count > MAX_MATCHES {
            self.refused += 1;
            return Matches { trigger, ..Matches::default() };
        }
        let mut copies = Vec::new();
        captures::take(control, trigger, usize::try_from(count).unwrap_or(usize::MAX), &mut copies);
        let mut captures = Vec::new();
        for copy in copies {
            match capture(&copy, fields, source) {
                Some(capture) => captures.push(capture),
                None => self.refused += 1,
            }
        }
        Matches { trigger, count, captures }
    }
}

/// A copied event with its fields; none if it is no event of the program.
fn capture(copy: &UntrustedCapture, names: &[String], source: &mut impl EventSource) -> Option<Capture> {
    let frame = source.frame(copy.tid, copy.time);
    let event = source.event(copy.number)?;
    let (fields, is_cut) = decode::fields(event, &copy.payload, copy.size, names);
    // The copy of a span is its begin's.
    let name = if copy.duration == 0 { event.full_name() } else { event.span_name() };
    Some(Capture { event: name, duration_ns: copy.duration, fields, is_cut, ..frame })
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsFd as _, sync::atomic::Ordering};

    use tompion_layout::{control, triggers as layout};
    use tompion_os::create_memfd;
    use tompion_schema::{Field, Integer, Kind, Level, Type};
    use tompion_testing::Random;

    use super::*;

    struct Program(Event);

    impl EventSource for Program {
        fn event(&mut self, number: u32) -> Option<&Event> {
            (number == 7).then_some(&self.0)
        }

        fn frame(&self, tid: u32, time: u64) -> Capture {
            Capture { pid: 1, tid, time_ns: time as i64, ..Capture::default() }
        }
    }

    fn program() -> Program {
        let fields =
            vec![Field::new("n", Type::Integer(Integer::unsigned(32))), Field::new("t", Type::String)];
        Program(Event {
            provider: "a".into(),
            name: "b".into(),
            level: Level::DEFAULT,
            kind: Kind::Instant,
            init: false,
            format: None,
            fields,
        })
    }

    fn control() -> SharedMap {
        let file = create_memfd(c"matches", control::FILE_SIZE).expect("a file");
        SharedMap::new(file.as_fd(), control::FILE_SIZE).expect("a mapping")
    }

    fn word(control: &SharedMap, offset: usize, value: u64) {
        control.word(control::TRIGGERS as usize + offset).store(value, Ordering::Relaxed);
    }

    fn put(control: &SharedMap, trigger: usize, slot: usize, number: u64) {
        let at = layout::slot(trigger, slot);
        word(control, at + 8, number | 5 << 32);
        word(control, at + 16, 99);
        word(control, at + 24, 8);
        word(control, at + layout::PAYLOAD, 42);
        word(control, at, layout::COMPLETE);
    }

    #[test]
    fn matches_are_read_once_with_their_events() {
        let (control, mut counts) = (control(), MatchCounts::default());
        assert_eq!(counts.find_new(&control, 16), Vec::<usize>::new());
        word(&control, layout::MATCHES + 8 * 2, 3);
        put(&control, 2, 0, 7);
        put(&control, 2, 1, 8);
        assert_eq!((counts.find_new(&control, 16), counts.find_new(&control, 2)), (vec![2], Vec::new()));
        let matches = counts.read(&control, 2, &["n".into()], &mut program());
        assert_eq!((matches.trigger, matches.count, counts.refused()), (2, 3, 1), "event 8 is unknown");
        let capture = &matches.captures[0];
        assert_eq!((capture.tid, capture.time_ns, capture.fields["n"].as_u64()), (5, 99, Some(42)));
        assert_eq!((capture.event.as_str(), matches.captures.len()), ("a:b", 1));
        assert_eq!(counts.find_new(&control, 16), Vec::<usize>::new());
        word(&control, layout::MATCHES + 8 * 2, 5);
        assert_eq!(MatchCounts::resume(&control).read(&control, 2, &[], &mut program()).count, 2);
    }

    #[test]
    fn counts_that_can_not_be_are_refused() {
        let (control, mut counts) = (control(), MatchCounts::default());
        word(&control, layout::MATCHES, 5);
        counts.read(&control, 0, &[], &mut program());
        word(&control, layout::MATCHES, 4);
        assert_eq!(counts.find_new(&control, 1), [0]);
        assert_eq!(counts.read(&control, 0, &[], &mut program()).count, 0);
        assert_eq!(counts.refused(), 1);
        assert_eq!(counts.take_unjudged(&control), None);
        word(&control, layout::UNJUDGED, 4);
        assert_eq!((counts.take_unjudged(&control), counts.take_unjudged(&control)), (Some(4), None));
    }

    #[test]
    fn triggers_unknown_to_a_program_are_reported_once() {
        let (control, mut counts) = (control(), MatchCounts::default());
        captures::publish(&control, b"0 a:b\n1 >5 a:b\n");
        assert_eq!(counts.take_unknown(&control, 2), None, "it has not read them");
        let generation = captures::read(&control).expect("a text").generation;
        captures::acknowledge(&control, generation, 2);
        assert_eq!(counts.take_unknown(&control, 2), None);
        // As libraries do that know no word of it.
        word(&control, layout::SEEN, generation.into());
        assert_eq!((counts.take_unknown(&control, 2), counts.take_unknown(&control, 2)), (Some(2), None));
    }

    #[test]
    fn whatever_the_memory_has_is_read_without_harm() {
        let (control, mut counts, mut random) = (control(), MatchCounts::default(), Random(1));
        let mut program = program();
        for _ in 0..20_000 {
            let offset = random.index(layout::SIZE as usize / 8) * 8;
            let near = layout::slot(random.index(16), random.index(4)) + random.index(5) * 8;
            let value = [1, 2, 7, u64::MAX, random.number()][random.index(5)];
            word(&control, if random.index(2) == 0 { offset } else { near }, value);
            word(&control, layout::MATCHES + 8 * random.index(16), random.index(1000) as u64);
            for trigger in counts.find_new(&control, 16) {
                let matches = counts.read(&control, trigger, &[], &mut program);
                assert!(matches.captures.len() as u64 <= matches.count.min(layout::SLOTS as u64));
                let text = |capture: &Capture| serde_json::to_string(capture).map_or(0, |it| it.len());
                assert!(matches.captures.iter().all(|capture| text(capture) < 8192));
            }
        }
        assert!(counts.refused() > 0);
    }
}
