//! Matches of triggers on events: counted by the event path, with copies of some of the events.
//!
//! A writer first copies the event, then counts it. So each event that is counted has its copy, if
//! a slot was free. All is safe in signal handlers: a slot belongs to the writer that has claimed
//! it. One that is killed before it has completed a slot leaves the slot claimed.
//!
//! Triggers change meanwhile. A trigger is its number and its epoch: a match of another epoch than
//! the word's is not counted.

use std::sync::atomic::Ordering;

use tompion_layout::{
    control::TRIGGERS as REGION,
    record,
    triggers::{self as layout, CAPTURE, Epochs, PAYLOAD, SLOTS, TRIGGERS, TriggerNumber},
};

use crate::{
    event::Event,
    memory::{Part, SharedMap},
    rules_text::{self, Places, RulesText},
};

/// Maximum number of tries to count a match. In each, another thread has counted one.
const MAX_EXCHANGES: u32 = 256;
const PLACES: Places = Places { word: layout::GENERATION, text: layout::TEXT, size: layout::TEXT_SIZE };

/// Triggers that were read whole. Nothing of the text was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UntrustedTriggers {
    /// The text.
    pub text: Vec<u8>,
    /// Its generation.
    pub generation: u32,
    /// Epochs of its triggers' numbers.
    pub epochs: Epochs,
}

/// Event that was copied when it matched. Nothing of it was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrustedCapture {
    /// Number of the event in the catalog.
    pub number: u32,
    /// Its thread, as it says.
    pub tid: u32,
    /// Time of CLOCK_MONOTONIC in nanoseconds.
    pub time: u64,
    /// Duration in nanoseconds, if it is a span; else 0.
    pub duration: u64,
    /// Size of the event's payload in bytes.
    pub size: u32,
    /// The payload's first bytes: fixed part and tails.
    pub payload: Vec<u8>,
}

/// Event that matches a trigger.
#[derive(Clone, Copy, Debug)]
pub struct Match<'a> {
    /// The event, or the begin of the span, whose parts may be cut. Its `time` is that of
    /// CLOCK_MONOTONIC, at the end of a span.
    pub event: Event<'a>,
    /// Size of its payload in bytes, with what was cut off.
    pub size: usize,
    /// Duration in nanoseconds, if it is a span; else 0.
    pub duration: u64,
}

impl<'a> From<Event<'a>> for Match<'a> {
    fn from(event: Event<'a>) -> Self {
        Self { event, size: event.payload_len(), duration: 0 }
    }
}

/// Counts a match of a trigger, and copies the event if a slot is free. Nothing happens if the
/// number is another trigger's by now.
///
/// # Safety
/// The event's parts are readable.
pub(crate) unsafe fn note(region: &Part<'_>, trigger: TriggerNumber, found: &Match<'_>) {
    let TriggerNumber { index, epoch } = trigger;
    // Ordering: a hint; `count_match` decides.
    if index >= TRIGGERS || layout::epoch(region.load(word_of(index), Ordering::Relaxed)) != epoch {
        return;
    }
    let mut slots = (0..SLOTS).map(|slot| layout::slot(index, slot));
    if let Some(at) = slots.find(|at| region.claim_behind(*at, layout::CLAIMED).is_ok()) {
        // SAFETY: as the caller promises.
        unsafe { fill(region, at, epoch, found) };
        // Ordering: release, pairs with the acquire load in `take_from`.
        region.store(at, layout::COMPLETE, Ordering::Release);
    }
    if !count_match(region, word_of(index), epoch, MAX_EXCHANGES) {
        note_unjudged(region);
    }
}

/// Offset of the word of a number's matches.
fn word_of(index: usize) -> usize {
    layout::MATCHES + 8 * index.min(TRIGGERS - 1)
}

/// Adds a match to the word at an offset, unless its epoch is another one. A change of the word by
/// another thread has it look again, `most` times in all. False if each of them was in vain.
pub(crate) fn count_match(region: &Part<'_>, at: usize, epoch: u16, most: u32) -> bool {
    for _ in 0..most {
        let word = region.load_to_change(at);
        // The release pairs with the acquire load in `matches`: a session that sees the count sees
        // the copy, and what was appended before.
        if layout::epoch(word) != epoch || region.replace(at, word, layout::next_word(word)) {
            return true;
        }
    }
    false
}

/// Gives a number's word the next epoch, if it has another one. Matches of the one before are not
/// counted from then on. Only the session does that, and one thread of it.
pub(crate) fn begin_epoch(region: &Part<'_>, at: usize, epoch: u16) {
    // Ordering: only this thread changes epochs. A match finds one epoch or the other. Beside a
    // text, the word is published with it.
    if layout::epoch(region.load_to_change(at)) != epoch {
        // Once: a program that changes the word all the time is not waited for.
        region.exchange(at, layout::first_word(epoch));
    }
}

/// Fills a slot that the caller has claimed.
///
/// # Safety
/// The event's parts are readable.
unsafe fn fill(region: &Part<'_>, at: usize, epoch: u16, found: &Match<'_>) {
    let Match { event, size, duration } = *found;
    let number = u32::from(event.id.wrapping_sub(record::FIRST_EVENT));
    let size = u32::try_from(size).unwrap_or(u32::MAX);
    let ids = u64::from(number) | u64::from(event.tid) << 32;
    let sizes = u64::from(size) | u64::from(epoch) << 32;
    let header = [ids, event.time, sizes, duration];
    for (index, value) in header.into_iter().enumerate() {
        // Ordering: published by the store behind this.
        region.store(at + 8 + index * 8, value, Ordering::Relaxed);
    }
    let mut used = event.image_len.min(CAPTURE);
    // SAFETY: the slot has room for `CAPTURE` bytes, and its claim makes it the caller's own; the
    // parts are readable as the caller promises, as far as their lengths go.
    unsafe {
        region.copy_in(at + PAYLOAD, event.image, used);
        for tail in event.tails {
            let len = tail.size.min(CAPTURE - used);
            region.copy_in(at + PAYLOAD + used, tail.data, len);
            used += len;
        }
    }
}

/// Counts an event that a trigger may have wanted and that could not be looked at.
pub(crate) fn note_unjudged(region: &Part<'_>) {
    // Ordering: a counter by itself.
    region.add(layout::UNJUDGED, 1, Ordering::Relaxed);
}

/// The region of a control file; none if its agent is older than that.
fn region(control: &SharedMap) -> Option<Part<'_>> {
    (control.len() as u64 >= REGION + layout::SIZE)
        .then(|| Part::of(control, REGION as usize, layout::SIZE as usize))
}

/// Whether the agent of a control file can look for triggers.
pub fn is_supported(control: &SharedMap) -> bool {
    region(control).is_some()
}

/// Writes the triggers' text and the epochs of their numbers, where there is room for them. Only
/// the session does that, and one thread of it.
pub fn publish(control: &SharedMap, text: &[u8], epochs: &Epochs) {
    if let Some(region) = region(control) {
        let begin = |(index, epoch): (usize, &u16)| begin_epoch(&region, word_of(index), *epoch);
        rules_text::publish_at(&region, PLACES, text, || epochs.iter().enumerate().for_each(begin));
    }
}

/// Reads the triggers; none if the session has no such region, or is replacing them.
pub fn read(control: &SharedMap) -> Option<UntrustedTriggers> {
    let region = region(control)?;
    let epoch = |index| layout::epoch(region.load(word_of(index), Ordering::Relaxed));
    let read = || rules_text::read_with(&region, PLACES, || std::array::from_fn(epoch));
    let found = (0..rules_text::MAX_ATTEMPTS).find_map(|attempt| {
        if attempt != 0 {
            std::thread::yield_now();
        }
        read()
    });
    found.map(|(RulesText { text, generation }, epochs)| UntrustedTriggers { text, generation, epochs })
}

/// Says that the process waits for the events of a generation's triggers, of which it understands
/// so many.
pub fn acknowledge(control: &SharedMap, generation: u32, understood: u32) {
    let word = u64::from(generation) | u64::from(understood) << 32;
    // Ordering: release, pairs with the acquire load in `understood`: events have their triggers
    // before this.
    region(control).into_iter().for_each(|region| region.store(layout::SEEN, word, Ordering::Release));
}

/// Number of triggers that the process understands, as it says; none if it does not go by the
/// newest ones yet.
pub fn understood(control: &SharedMap) -> Option<u32> {
    let region = region(control)?;
    // Ordering: the session's own word; the process's pairs with the release store in
    // `acknowledge`.
    let (newest, seen) =
        (region.load(layout::GENERATION, Ordering::Relaxed), region.load(layout::SEEN, Ordering::Acquire));
    (newest as u32 == seen as u32).then_some((seen >> 32) as u32)
}

/// Word of a number's matches so far, as the program says: epoch and count.
pub fn matches(control: &SharedMap, index: usize) -> u64 {
    // Ordering: pairs with the release in `count_match`.
    region(control).map_or(0, |region| region.load(word_of(index), Ordering::Acquire))
}

/// Number of events that no trigger could look at, as the program says.
pub fn unjudged(control: &SharedMap) -> u64 {
    // Ordering: a counter by itself.
    region(control).map_or(0, |region| region.load(layout::UNJUDGED, Ordering::Relaxed))
}

/// Word of the matches that a session has followed, for the one that comes back.
pub fn followed(control: &SharedMap, index: usize) -> u64 {
    let place = layout::FOLLOWED + 8 * index.min(TRIGGERS - 1);
    // Ordering: the session's own word.
    region(control).map_or(0, |region| region.load(place, Ordering::Relaxed))
}

/// Notes which matches were followed.
pub fn set_followed(control: &SharedMap, index: usize, word: u64) {
    let place = layout::FOLLOWED + 8 * index.min(TRIGGERS - 1);
    // Ordering: the session's own word.
    region(control).iter().for_each(|region| region.store(place, word, Ordering::Relaxed));
}

/// Epochs of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Those of one.
    Of(u16),
    /// All: the triggers of the memory never change, and its agent may not know of epochs.
    All,
}

/// Takes at most `most` copied events of a trigger's number, and gives their slots back, as those
/// of copies of other epochs.
pub fn take(control: &SharedMap, index: usize, copies: Copies, most: usize) -> Vec<UntrustedCapture> {
    region(control).map_or(Vec::new(), |region| take_from(&region, index, copies, most))
}

/// Offsets of the slots of a number that have an event.
fn complete(region: &Part<'_>, index: usize) -> impl Iterator<Item = usize> {
    let slots = (0..SLOTS).map(move |slot| layout::slot(index.min(TRIGGERS - 1), slot));
    // Ordering: pairs with the release store in `note`.
    slots.filter(|at| region.load(*at, Ordering::Acquire) == layout::COMPLETE)
}

fn free(region: &Part<'_>, at: usize) {
    // Ordering: release, pairs with the acquire in `claim_behind`: the next writer comes behind
    // what was read.
    region.store(at, layout::FREE, Ordering::Release);
}

/// Gives the slots of copies back that are of other epochs than their numbers have. Else the first
/// events of new triggers would find none.
pub fn remove_others(control: &SharedMap, epochs: &Epochs) {
    let Some(region) = region(control) else { return };
    for (index, epoch) in epochs.iter().enumerate() {
        let is_other = |at: &usize| region.load(at + 3 * 8, Ordering::Relaxed) >> 32 != u64::from(*epoch);
        complete(&region, index).filter(is_other).for_each(|at| free(&region, at));
    }
}

fn take_from(region: &Part<'_>, index: usize, copies: Copies, most: usize) -> Vec<UntrustedCapture> {
    let mut out = Vec::new();
    for at in complete(region, index) {
        let word = |index: usize| region.load(at + index * 8, Ordering::Relaxed);
        let (ids, time, sizes, duration) = (word(1), word(2), word(3), word(4));
        if copies == Copies::All || copies == Copies::Of((sizes >> 32) as u16) {
            if out.len() >= most {
                continue;
            }
            let size = sizes as u32;
            let mut payload = vec![0; (size as usize).min(CAPTURE)];
            region.copy_out(at + PAYLOAD, &mut payload);
            let (number, tid) = (ids as u32, (ids >> 32) as u32);
            out.push(UntrustedCapture { number, tid, time, duration, size, payload });
        }
        free(region, at);
    }
    out.sort_by_key(|capture| capture.time);
    out
}

#[cfg(not(loom))]
impl crate::producer::Recording {
    /// Counts a match of a trigger, and copies the event if a slot is free. Nothing happens if
    /// there is no recording, or its session knows no triggers.
    ///
    /// # Safety
    /// The event's parts are readable.
    pub unsafe fn note_match(&self, trigger: TriggerNumber, found: &Match<'_>) {
        if let Some(region) = self.region(REGION, layout::SIZE) {
            // SAFETY: as the caller promises.
            unsafe { note(&region.part, trigger, found) };
        }
    }

    /// Counts an event that a trigger may have wanted and that could not be looked at.
    pub fn note_unjudged(&self) {
        self.region(REGION, layout::SIZE).iter().for_each(|region| note_unjudged(&region.part));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsFd as _;

    use tompion_layout::control;
    use tompion_os::create_memfd;

    use super::*;
    use crate::event::{Retention, Tail};

    fn control(size: u64) -> SharedMap {
        let file = create_memfd(c"triggers", size).expect("a file");
        SharedMap::new(file.as_fd(), size).expect("a mapping")
    }

    const fn trigger(index: usize) -> TriggerNumber {
        TriggerNumber { index, epoch: 0 }
    }

    /// Takes copies of a trigger.
    fn take(control: &SharedMap, trigger: TriggerNumber, most: usize) -> Vec<UntrustedCapture> {
        super::take(control, trigger.index, Copies::Of(trigger.epoch), most)
    }

    fn note_payload(control: &SharedMap, index: usize, image: &[u8], text: &[u8]) {
        note_of(control, trigger(index), image, text);
    }

    fn note_of(control: &SharedMap, trigger: TriggerNumber, image: &[u8], text: &[u8]) {
        let tails = [Tail { data: text.as_ptr(), size: text.len() }];
        let event = Event {
            id: record::FIRST_EVENT + 7,
            tid: 11,
            time: 13,
            image: image.as_ptr(),
            image_len: image.len(),
            tails: &tails,
            retention: Retention::Ring,
        };
        // SAFETY: the parts are slices.
        unsafe { note(&region(control).expect("a region"), trigger, &event.into()) };
    }

    #[test]
    fn matches_are_counted_and_the_first_ones_copied() {
        let control = control(control::FILE_SIZE);
        for number in 0..10u64 {
            note_payload(&control, 3, &number.to_le_bytes(), b"text");
        }
        let taken = take(&control, trigger(3), usize::MAX);
        assert_eq!((matches(&control, 3), matches(&control, 2), taken.len()), (10, 0, SLOTS));
        for (number, capture) in taken.iter().enumerate() {
            let payload = [&(number as u64).to_le_bytes()[..], b"text"].concat();
            assert_eq!(
                *capture,
                UntrustedCapture { number: 7, tid: 11, time: 13, duration: 0, size: 12, payload }
            );
        }
        assert_eq!(take(&control, trigger(3), usize::MAX), [], "slots are given back");
        note_payload(&control, 3, &[1; 8], &[]);
        assert_eq!(take(&control, trigger(3), 0), [], "no more than asked for");
        assert_eq!(take(&control, trigger(3), 1).len(), 1);
    }

    #[test]
    fn long_events_are_cut_and_other_triggers_are_untouched() {
        let control = control(control::FILE_SIZE);
        for trigger in [0, TRIGGERS - 1, TRIGGERS, usize::MAX] {
            note_payload(&control, trigger, &[1; 8], &[2; 1000]);
        }
        for index in 0..TRIGGERS {
            let taken = take(&control, trigger(index), usize::MAX);
            let is_noted = index == 0 || index == TRIGGERS - 1;
            assert_eq!((matches(&control, index), taken.len()), (is_noted.into(), is_noted.into()));
            for capture in taken {
                assert_eq!(
                    (capture.size, capture.payload.len(), capture.payload[CAPTURE - 1]),
                    (1008, CAPTURE, 2)
                );
            }
        }
    }

    #[test]
    fn threads_lose_no_match() {
        const THREADS: u64 = 4;
        const EACH: u64 = 20_000;
        let control = control(control::FILE_SIZE);
        let mut taken = Vec::new();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let control = &control;
                scope.spawn(move || {
                    (0..EACH).for_each(|number| {
                        let value = (thread * EACH + number).to_le_bytes();
                        note_payload(control, 0, &value, &value);
                    });
                });
            }
            while matches(&control, 0) < THREADS * EACH {
                taken.extend(take(&control, trigger(0), usize::MAX));
            }
        });
        assert_eq!(matches(&control, 0), THREADS * EACH);
        assert!(taken.iter().all(|capture| capture.payload[..8] == capture.payload[8..]), "a mixture");
    }

    #[test]
    fn a_control_file_of_an_older_agent_has_no_triggers() {
        let control = control(control::FILE_SIZES[0]);
        publish(&control, b"0 a:b", &[0; TRIGGERS]);
        assert!(!is_supported(&control) && read(&control).is_none() && matches(&control, 0) == 0);
        let control = self::control(control::FILE_SIZE);
        publish(&control, b"0 a:b", &[0; TRIGGERS]);
        assert_eq!(read(&control).map(|text| (text.text, text.generation)), Some((b"0 a:b".to_vec(), 2)));
        assert_eq!(understood(&control), None);
        acknowledge(&control, 2, 1);
        assert_eq!(understood(&control), Some(1));
        publish(&control, b"0 a:b\n1 a:c", &[0; TRIGGERS]);
        assert_eq!(understood(&control), None);
        set_followed(&control, 1, 5);
        assert_eq!((followed(&control, 1), followed(&control, 0), unjudged(&control)), (5, 0, 0));
    }

    #[test]
    fn matches_of_a_trigger_that_has_gone_are_not_those_of_the_next() {
        let control = control(control::FILE_SIZE);
        let (old, new) = (TriggerNumber { index: 5, epoch: 0 }, TriggerNumber { index: 5, epoch: 1 });
        note_of(&control, old, &[1; 8], &[]);
        note_of(&control, new, &[2; 8], &[]);
        assert_eq!(matches(&control, 5), 1, "the next does not exist yet");
        let mut epochs = [0; TRIGGERS];
        epochs[5] = 1;
        publish(&control, b"5 a:c", &epochs);
        assert_eq!(read(&control).map(|read| (read.epochs, read.generation)), Some((epochs, 2)));
        note_of(&control, old, &[3; 8], &[]);
        note_of(&control, new, &[4; 8], &[]);
        assert_eq!(matches(&control, 5), layout::first_word(1) + 1);
        // The first copy still has its slot.
        let taken = take(&control, new, usize::MAX);
        assert_eq!(taken.iter().map(|copy| copy.payload[0]).collect::<Vec<_>>(), [4]);
        (0..9).for_each(|_| note_of(&control, new, &[5; 8], &[]));
        assert_eq!(take(&control, new, usize::MAX).len(), SLOTS, "all slots are free again");
        publish(&control, b"5 a:c", &epochs);
        assert_eq!(matches(&control, 5), layout::first_word(1) + 10, "one that stays goes on");
    }

    #[test]
    fn copies_of_a_trigger_that_has_gone_leave_their_slots() {
        let control = control(control::FILE_SIZE);
        let (old, new) = (TriggerNumber { index: 5, epoch: 0 }, TriggerNumber { index: 5, epoch: 1 });
        (0..SLOTS + 1).for_each(|_| note_of(&control, old, &[1; 8], &[]));
        note_of(&control, trigger(6), &[2; 8], &[]);
        let mut epochs = [0; TRIGGERS];
        epochs[5] = 1;
        publish(&control, b"5 a:c", &epochs);
        remove_others(&control, &epochs);
        note_of(&control, new, &[3; 8], &[]);
        assert_eq!(take(&control, new, usize::MAX).len(), 1, "the first one has a slot");
        assert_eq!(take(&control, trigger(6), usize::MAX).len(), 1, "one that stays keeps its copies");
    }

    #[test]
    fn copies_of_an_agent_without_epochs_are_taken_where_triggers_never_change() {
        let control = control(control::FILE_SIZE);
        let mut epochs = [0; TRIGGERS];
        epochs[5] = 3;
        publish(&control, b"5 a:c", &epochs);
        note_of(&control, TriggerNumber { index: 5, epoch: 3 }, &[1; 8], &[]);
        // Such an agent leaves the word zero that has the epoch now.
        let region = region(&control).expect("a region");
        let sizes = layout::slot(5, 0) + 3 * 8;
        region.store(sizes, region.load(sizes, Ordering::Relaxed) & u64::from(u32::MAX), Ordering::Relaxed);
        let taken = super::take(&control, 5, Copies::All, usize::MAX);
        assert_eq!(taken.iter().map(|copy| copy.payload[0]).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_match_that_never_gets_its_turn_is_counted_as_one_that_was_not_looked_at() {
        let control = control(control::FILE_SIZE);
        let region = region(&control).expect("a region");
        assert!(!count_match(&region, word_of(2), 0, 0));
        assert!(count_match(&region, word_of(2), 0, 1) && count_match(&region, word_of(2), 9, 1));
        assert_eq!((matches(&control, 2), unjudged(&control)), (1, 0));
    }

    #[test]
    fn a_count_at_its_end_begins_again_in_its_epoch() {
        let control = control(control::FILE_SIZE);
        let word = layout::first_word(7) | layout::COUNT_MASK;
        region(&control).expect("a region").store(word_of(2), word, Ordering::Relaxed);
        note_of(&control, TriggerNumber { index: 2, epoch: 7 }, &[1; 8], &[]);
        assert_eq!(matches(&control, 2), layout::first_word(7));
    }
}
