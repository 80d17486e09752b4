//! Matches of triggers on events, as the programs' memory has them.

use std::time::{Duration, Instant};

use tompion_layout::triggers::{self as layout, COUNT_MASK, Epochs, TRIGGERS, TriggerNumber};
use tompion_manifest::Capture;
use tompion_os::SharedMap;
use tompion_ring::captures::{self, Copies, UntrustedCapture};
use tompion_schema::Event;
use tompion_triggers::{Condition, EventCondition, EventTable, Trigger};

use crate::{decode, silence::Silence};

/// More matches than any program can have between two looks. A larger number is a lie, or the count
/// was overwritten.
const MAX_MATCHES: u64 = 1 << 40;

/// New matches of a trigger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// Number of the trigger.
    pub trigger: TriggerNumber,
    /// Number of events.
    pub count: u64,
    /// The first ones.
    pub captures: Vec<Capture>,
}

/// Event that did not come for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// Number of the trigger.
    pub trigger: TriggerNumber,
    /// Cause in words.
    pub cause: String,
}

/// Program that has the events.
pub trait EventSource {
    /// The description of an event number.
    fn event(&mut self, number: u32) -> Option<&Event>;
    /// A capture of that program, without the event's name and fields, with a time in nanoseconds
    /// since 1970 for one of CLOCK_MONOTONIC.
    fn frame(&self, tid: u32, time: u64) -> Capture;
}

/// Triggers in the memory of one program, and their matches that were read so far.
#[derive(Debug, Default)]
pub struct MatchCounts {
    /// Epochs of the numbers, as the session has written them.
    epochs: Epochs,
    /// Whether the program follows triggers that change; else it has those that it began with.
    follows: bool,
    /// Number of triggers in the text.
    triggers: usize,
    seen: [u64; TRIGGERS],
    silences: [Silence; TRIGGERS],
    /// Number of impossible counts, and of copies that are no events.
    refused: u64,
    /// Whether the number of events that no trigger could look at was reported.
    is_unjudged_reported: bool,
    /// Whether the number of triggers that it doesn't know was reported.
    is_unknown_reported: bool,
}

impl MatchCounts {
    /// Counts of a program that begins with these triggers, in memory where they have been written.
    pub fn new(table: &EventTable, follows: bool) -> Self {
        let (epochs, triggers) = (table.epochs(), table.len());
        Self { epochs, follows, triggers, seen: epochs.map(layout::first_word), ..Self::default() }
    }

    /// Goes on where another recorder has stopped, with its triggers.
    pub fn resume(control: &SharedMap, table: &EventTable, follows: bool) -> Self {
        let mut counts = Self::new(table, follows);
        for (index, (seen, epoch)) in counts.seen.iter_mut().zip(&mut counts.epochs).enumerate() {
            let (word, followed) = (captures::matches(control, index), captures::followed(control, index));
            // It may have been killed while it changed the triggers.
            *epoch = layout::epoch(word);
            if word & COUNT_MASK != 0 {
                counts.silences[index].note_event(Instant::now());
            }
            *seen = if layout::epoch(followed) == *epoch {
                followed.min(word)
            } else {
                layout::first_word(*epoch)
            };
        }
        let is_whole = captures::read(control).is_some_and(|found| found.text == table.text().as_bytes());
        if follows && (!is_whole || counts.epochs != table.epochs()) {
            counts.change(control, table);
        } else if follows {
            captures::remove_others(control, &counts.epochs);
        }
        counts
    }

    /// Replaces the triggers, if the program can follow them. Numbers of triggers that have gone
    /// count no more from here on. Returns whether it can.
    pub fn change(&mut self, control: &SharedMap, table: &EventTable) -> bool {
        if !self.follows || !captures::is_supported(control) {
            return false;
        }
        captures::publish(control, table.text().as_bytes(), &table.epochs());
        // Of a silence, for example, none were taken.
        captures::remove_others(control, &table.epochs());
        for (index, epoch) in table.epochs().into_iter().enumerate() {
            if self.epochs[index] != epoch {
                (self.epochs[index], self.seen[index]) = (epoch, layout::first_word(epoch));
                self.silences[index] = Silence::default();
            }
        }
        (self.triggers, self.is_unknown_reported) = (table.len(), false);
        true
    }

    /// Whether the program has been given all of these triggers.
    pub fn has_all(&self, table: &EventTable) -> bool {
        table.iter().all(|(number, _)| self.has(number))
    }

    fn has(&self, number: TriggerNumber) -> bool {
        self.epochs.get(number.index) == Some(&number.epoch)
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

    /// Number of its triggers that the program doesn't understand, if there are some for the first
    /// time. Cheap.
    pub fn take_unknown(&mut self, control: &SharedMap) -> Option<usize> {
        let understood = captures::understood(control).filter(|_| !self.is_unknown_reported)?;
        let unknown = self.triggers.saturating_sub(understood as usize);
        self.is_unknown_reported = unknown != 0;
        (unknown != 0).then_some(unknown)
    }

    /// Whether triggers have matches that were not read. Cheap.
    pub fn has_new(&self, control: &SharedMap) -> bool {
        (0..TRIGGERS).any(|index| self.is_new(control, index))
    }

    fn is_new(&self, control: &SharedMap, index: usize) -> bool {
        captures::matches(control, index) != self.seen[index]
    }

    /// Triggers that have new matches. Those of silences are none: they are noted here.
    pub fn find_new<'t>(
        &mut self,
        control: &SharedMap,
        table: &'t EventTable,
    ) -> Vec<(TriggerNumber, &'t [String])> {
        let mut found = Vec::new();
        for (number, trigger) in table.iter() {
            if !self.has(number) || !self.is_new(control, number.index) {
                continue;
            }
            match silence_of(trigger) {
                None => found.push((number, &trigger.fields[..])),
                Some(_) => self.note_event(control, number),
            }
        }
        found
    }

    /// Notes that an event has come that must not be missing.
    fn note_event(&mut self, control: &SharedMap, number: TriggerNumber) {
        let word = captures::matches(control, number.index);
        self.seen[number.index] = word;
        captures::set_followed(control, number.index, word);
        // Only the session gives a number another epoch.
        match layout::epoch(word) == number.epoch {
            true => self.silences[number.index].note_event(Instant::now()),
            false => self.refused += 1,
        }
    }

    /// Takes silences that have just become too long, in a program of this name and id. What has
    /// come so far must have been noted.
    pub fn take_silent(&mut self, table: &EventTable, (program, pid): (&str, u32)) -> Vec<Silent> {
        let mut found = Vec::new();
        for (trigger, rule) in table.iter() {
            let Some((glob, limit)) = silence_of(rule).filter(|_| self.has(trigger)) else { continue };
            if let Some(length) = self.silences[trigger.index].take_too_long(limit, Instant::now()) {
                let cause = format!("no {glob} for {:.3} s in {program} ({pid})", length.as_secs_f64());
                found.push(Silent { trigger, cause });
            }
        }
        found
    }

    /// Ends the watch for silences: the program is gone, or has become another one. Returns the
    /// globs of events that were waited for.
    pub fn end_silences(&mut self, table: &EventTable) -> Vec<String> {
        let mut waited = Vec::new();
        for (trigger, rule) in table.iter().filter(|(number, _)| self.epochs[number.index] == number.epoch) {
            if let Some((glob, _)) = silence_of(rule).filter(|_| self.silences[trigger.index].end()) {
                waited.push(glob.to_owned());
            }
        }
        waited
    }

    /// Reads the new matches of a trigger, which tells these fields of events.
    pub fn read(
        &mut self,
        control: &SharedMap,
        trigger: TriggerNumber,
        fields: &[String],
        source: &mut impl EventSource,
    ) -> Matches {
        let Some(seen) = self.seen.get_mut(trigger.index) else { return Matches::default() };
        let found = captures::matches(control, trigger.index);
        let count = found.wrapping_sub(*seen) & COUNT_MASK;
        *seen = found;
        captures::set_followed(control, trigger.index, found);
        // Only the session gives a number another epoch.
        let count = if layout::epoch(found) == trigger.epoch { count } else { u64::MAX };
        if count > MAX_MATCHES {
            self.refused += 1;
            return Matches { trigger, ..Matches::default() };
        }
        let most = usize::try_from(count).unwrap_or(usize::MAX);
        let epoch = if self.follows { Copies::Of(trigger.epoch) } else { Copies::All };
        let copies = captures::take(control, trigger.index, epoch, most);
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

/// The event that a trigger misses, and after which time; none if it is on something else.
fn silence_of(trigger: &Trigger) -> Option<(&str, Duration)> {
    match &trigger.condition {
        Condition::Event(EventCondition { glob, silence: Some(time), .. }) => Some((glob, *time)),
        _ => None,
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

    use tompion_layout::control;
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
            attributes: Default::default(),
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

    fn number(index: usize) -> TriggerNumber {
        TriggerNumber { index, epoch: 0 }
    }

    /// So many triggers.
    fn table(count: usize) -> EventTable {
        EventTable::new(&vec!["event:a:b -> notify capture n".parse().expect("a trigger"); count])
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
        let (control, table) = (control(), table(3));
        let mut counts = MatchCounts::new(&table, true);
        assert_eq!(counts.find_new(&control, &table), []);
        word(&control, layout::MATCHES + 8 * 2, 3);
        put(&control, 2, 0, 7);
        put(&control, 2, 1, 8);
        assert_eq!(counts.find_new(&control, &table), [(number(2), &["n".to_owned()][..])]);
        assert_eq!(counts.find_new(&control, &self::table(2)), [], "no trigger has the number");
        let matches = counts.read(&control, number(2), &["n".into()], &mut program());
        let found = (matches.trigger, matches.count, counts.refused());
        assert_eq!(found, (number(2), 3, 1), "event 8 is unknown");
        let capture = &matches.captures[0];
        assert_eq!((capture.tid, capture.time_ns, capture.fields["n"].as_u64()), (5, 99, Some(42)));
        assert_eq!((capture.event.as_str(), matches.captures.len()), ("a:b", 1));
        assert_eq!(counts.find_new(&control, &table), []);
        word(&control, layout::MATCHES + 8 * 2, 5);
        let mut next = MatchCounts::resume(&control, &table, true);
        assert_eq!(next.read(&control, number(2), &[], &mut program()).count, 2);
    }

    #[test]
    fn counts_that_can_not_be_are_refused() {
        let (control, table) = (control(), table(1));
        let mut counts = MatchCounts::new(&table, true);
        word(&control, layout::MATCHES, 5);
        counts.read(&control, number(0), &[], &mut program());
        for impossible in [4, layout::first_word(1) + 9] {
            word(&control, layout::MATCHES, impossible);
            assert_eq!(counts.find_new(&control, &table).len(), 1);
            assert_eq!(counts.read(&control, number(0), &[], &mut program()).count, 0);
            assert_eq!(counts.find_new(&control, &table), []);
        }
        assert_eq!(counts.refused(), 2);
        assert_eq!(counts.take_unjudged(&control), None);
        word(&control, layout::UNJUDGED, 4);
        assert_eq!((counts.take_unjudged(&control), counts.take_unjudged(&control)), (Some(4), None));
    }

    #[test]
    fn triggers_unknown_to_a_program_are_reported_once() {
        let (control, table) = (control(), table(2));
        let mut counts = MatchCounts::new(&table, true);
        captures::publish(&control, table.text().as_bytes(), &table.epochs());
        assert_eq!(counts.take_unknown(&control), None, "it has not read them");
        let generation = captures::read(&control).expect("a text").generation;
        captures::acknowledge(&control, generation, 2);
        assert_eq!(counts.take_unknown(&control), None);
        // As libraries do that know no word of it.
        word(&control, layout::SEEN, generation.into());
        assert_eq!((counts.take_unknown(&control), counts.take_unknown(&control)), (Some(2), None));
    }

    #[test]
    fn whatever_the_memory_has_is_read_without_harm() {
        let (control, table, mut random) = (control(), table(TRIGGERS), Random(1));
        let mut counts = MatchCounts::new(&table, true);
        let mut program = program();
        for _ in 0..20_000 {
            let offset = random.index(layout::SIZE as usize / 8) * 8;
            let near = layout::slot(random.index(16), random.index(4)) + random.index(5) * 8;
            let value = [1, 2, 7, u64::MAX, random.number()][random.index(5)];
            word(&control, if random.index(2) == 0 { offset } else { near }, value);
            word(&control, layout::MATCHES + 8 * random.index(16), random.index(1000) as u64);
            for (trigger, _) in counts.find_new(&control, &table) {
                let matches = counts.read(&control, trigger, &[], &mut program);
                assert!(matches.captures.len() as u64 <= matches.count.min(layout::SLOTS as u64));
                let text = |capture: &Capture| serde_json::to_string(capture).map_or(0, |it| it.len());
                assert!(matches.captures.iter().all(|capture| text(capture) < 8192));
            }
        }
        assert!(counts.refused() > 0);
    }

    #[test]
    fn a_change_keeps_the_counts_of_triggers_that_stay() {
        let (control, mut table) = (control(), table(2));
        captures::publish(&control, table.text().as_bytes(), &table.epochs());
        let (mut counts, mut fixed) = (MatchCounts::new(&table, true), MatchCounts::new(&table, false));
        word(&control, layout::MATCHES, 3);
        word(&control, layout::MATCHES + 8, 3);
        assert_eq!(counts.read(&control, number(1), &[], &mut program()).count, 3);
        table.release(number(0));
        let next = table.assign(&"event:c:d -> notify".parse().expect("a trigger")).expect("a number");
        assert!(!fixed.change(&control, &table) && !fixed.has_all(&table) && !counts.has_all(&table));
        assert_eq!(
            fixed.find_new(&control, &table),
            [(number(1), &["n".to_owned()][..])],
            "the next is unknown"
        );
        assert!(counts.change(&control, &table) && counts.has_all(&table));
        assert!(!counts.has_new(&control), "matches of the one before are gone");
        word(&control, layout::MATCHES, layout::first_word(1) + 2);
        word(&control, layout::MATCHES + 8, 4);
        assert_eq!(counts.read(&control, next, &[], &mut program()).count, 2);
        assert_eq!(counts.read(&control, number(1), &[], &mut program()).count, 1);
        // Copies of one that goes, such as a silence's, leave their slots to the next.
        (0..layout::SLOTS).for_each(|slot| put(&control, 0, slot, 7));
        // The recorder was killed when it had written this down, and no program had been told.
        table.release(next);
        let last = table.assign(&"event:e:f -> notify".parse().expect("a trigger")).expect("a number");
        let mut resumed = MatchCounts::resume(&control, &table, true);
        assert_eq!(captures::read(&control).map(|read| read.text), Some(table.text().into_bytes()));
        assert!(resumed.has_all(&table) && resumed.find_new(&control, &table).is_empty());
        assert_eq!(captures::matches(&control, 0), layout::first_word(last.epoch));
        assert_eq!(captures::take(&control, 0, Copies::All, usize::MAX), [], "slots are taken");
        (0..layout::SLOTS).for_each(|slot| put(&control, 0, slot, 7));
        assert!(resumed.change(&control, &table));
        assert_eq!(captures::take(&control, 0, Copies::All, usize::MAX), [], "slots are taken");
    }

    #[test]
    fn a_program_that_keeps_its_triggers_need_not_know_epochs() {
        let (control, mut table) = (control(), table(1));
        table.release(number(0));
        let trigger = table.assign(&"event:a:b -> notify".parse().expect("a trigger")).expect("a number");
        captures::publish(&control, table.text().as_bytes(), &table.epochs());
        for (follows, found) in [(true, 0), (false, 1)] {
            let mut counts = MatchCounts::new(&table, follows);
            put(&control, 0, 0, 7);
            word(&control, layout::MATCHES, layout::first_word(trigger.epoch) + 1);
            let matches = counts.read(&control, trigger, &[], &mut program());
            assert_eq!((matches.count, matches.captures.len()), (1, found), "follows: {follows}");
        }
    }

    #[test]
    fn an_event_that_stays_away_is_reported_for_its_program() {
        let rule = "silence:a:b for 20ms -> notify".parse().expect("a trigger");
        let (control, table) = (control(), EventTable::new(&[rule]));
        let mut counts = MatchCounts::new(&table, true);
        let program = ("web", 7);
        std::thread::sleep(Duration::from_millis(25));
        assert_eq!(counts.take_silent(&table, program), [], "it has not come so far");
        word(&control, layout::MATCHES, 1);
        assert_eq!(counts.find_new(&control, &table), [], "an event is no match of a silence");
        assert!(!counts.has_new(&control));
        std::thread::sleep(Duration::from_millis(25));
        let silent = counts.take_silent(&table, program);
        assert!(silent[0].cause.starts_with("no a:b for 0.0") && silent[0].cause.ends_with("in web (7)"));
        assert_eq!(counts.take_silent(&table, program), []);
        assert_eq!(counts.end_silences(&table), Vec::<String>::new(), "it was told");
        // Another recorder waits for the event again.
        let mut next = MatchCounts::resume(&control, &table, true);
        assert_eq!(next.end_silences(&table), ["a:b"]);
        assert_eq!(next.take_silent(&table, program), []);
    }
}
