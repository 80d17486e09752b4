//! Numbers by which programs know the triggers on events.
//!
//! A trigger keeps its number as long as it exists. Another one that gets the number has its next
//! epoch, so that matches of the two are never mixed up (`tompion-layout`, `triggers`).

use tompion_layout::triggers::{Epochs, TriggerNumber};
use tompion_protocol::triggers::EventTrigger;

use crate::{Condition, EventCondition, MAX_EVENT_TRIGGERS, Trigger};

/// Triggers on events with their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTable {
    entries: [Entry; MAX_EVENT_TRIGGERS],
}

/// A number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    epoch: u16,
    trigger: Option<Trigger>,
}

impl EventTable {
    /// Numbers the triggers on events among these, from 0 on.
    pub fn new(triggers: &[Trigger]) -> Self {
        let events = triggers.iter().filter(|trigger| is_on_event(trigger));
        let mut table = Self::default();
        events.enumerate().for_each(|(index, trigger)| _ = table.restore(trigger, index));
        table
    }

    /// Begins with the epochs that another recorder has used, without triggers.
    pub fn with_epochs(epochs: &[u16]) -> Self {
        let mut table = Self::default();
        table.entries.iter_mut().zip(epochs).for_each(|(entry, epoch)| entry.epoch = *epoch);
        table
    }

    /// Gives a trigger a number in its next epoch; none if it is not on events, or no number is
    /// free. Programs that don't follow know no trigger of that epoch.
    pub fn assign(&mut self, trigger: &Trigger) -> Option<TriggerNumber> {
        let is_free = |entry: &Entry| entry.trigger.is_none() && is_on_event(trigger);
        let index = self.entries.iter().position(is_free)?;
        let before = self.entries[index].epoch;
        self.entries[index].epoch = before.wrapping_add(1);
        self.restore(trigger, index)
    }

    /// Gives a trigger the number that it has had in another recorder, in the same epoch; none if
    /// that can't be.
    pub fn restore(&mut self, trigger: &Trigger, index: usize) -> Option<TriggerNumber> {
        let entry = self.entries.get_mut(index).filter(|entry| entry.trigger.is_none())?;
        entry.trigger = Some(trigger.clone()).filter(is_on_event);
        entry.trigger.as_ref().map(|_| TriggerNumber { index, epoch: entry.epoch })
    }

    /// Frees a number.
    pub fn release(&mut self, number: TriggerNumber) {
        let entry = self.entries.get_mut(number.index);
        entry.into_iter().filter(|entry| entry.epoch == number.epoch).for_each(|entry| entry.trigger = None);
    }

    /// The triggers, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (TriggerNumber, &Trigger)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            Some((TriggerNumber { index, epoch: entry.epoch }, entry.trigger.as_ref()?))
        })
    }

    /// Number of triggers.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a trigger is on an event that does not come.
    pub fn has_silences(&self) -> bool {
        let is_silence = |trigger: &Trigger| {
            matches!(trigger.condition, Condition::Event(EventCondition { silence: Some(_), .. }))
        };
        self.iter().any(|(_, trigger)| is_silence(trigger))
    }

    /// Epochs of all numbers.
    pub fn epochs(&self) -> Epochs {
        std::array::from_fn(|index| self.entries.get(index).map_or(0, |entry| entry.epoch))
    }

    /// Text of the triggers as programs read it; empty if there are none.
    pub fn text(&self) -> String {
        let line = |(number, trigger): (TriggerNumber, &Trigger)| {
            let Condition::Event(EventCondition { over, glob, filter, .. }) = &trigger.condition else {
                return String::new();
            };
            let filter = filter.as_deref();
            EventTrigger { index: number.index, over: *over, glob, filter }.to_line()
        };
        self.iter().map(line).collect()
    }
}

fn is_on_event(trigger: &Trigger) -> bool {
    matches!(trigger.condition, Condition::Event(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(text: &str) -> Trigger {
        text.parse().expect(text)
    }

    #[test]
    fn programs_read_the_triggers_on_events_by_their_numbers() {
        let texts =
            ["loss -> notify", "event:a:b ? n > 1 -> notify", "killed -> notify", "event:c:* -> stop"];
        assert_eq!(EventTable::new(&texts.map(trigger)).text(), "0 a:b ? n > 1\n1 c:*\n");
        let span = trigger("span:app:request > 1.5ms ? url == \"a > b\" -> snapshot");
        let late = trigger("late:motor:* -> notify");
        assert_eq!(
            EventTable::new(&[span, late]).text(),
            "0 >1500000 app:request ? url == \"a > b\"\n1 >deadline motor:*\n"
        );
        let many = vec![trigger("event:a:b -> notify"); MAX_EVENT_TRIGGERS + 5];
        assert_eq!(EventTable::new(&many).text().lines().count(), MAX_EVENT_TRIGGERS);
        assert!(EventTable::new(&[trigger("loss -> stop")]).is_empty());
    }

    #[test]
    fn a_number_that_another_trigger_gets_has_its_next_epoch() {
        let [a, b, c] = ["a:b", "c:d", "e:f"].map(|glob| trigger(&format!("event:{glob} -> notify")));
        let mut table = EventTable::new(&[a.clone(), b.clone()]);
        let [first, second] = [0, 1].map(|index| TriggerNumber { index, epoch: 0 });
        assert_eq!(table.assign(&trigger("loss -> stop")), None);
        table.release(first);
        table.release(TriggerNumber { epoch: 5, ..second });
        assert_eq!(table.text(), "1 c:d\n");
        assert_eq!(table.assign(&c), Some(TriggerNumber { index: 0, epoch: 1 }));
        assert_eq!(table.assign(&a), Some(TriggerNumber { index: 2, epoch: 1 }), "unknown before");
        table.release(TriggerNumber { index: 2, epoch: 1 });
        assert_eq!((table.text().as_str(), table.epochs()[..2].to_vec()), ("0 e:f\n1 c:d\n", vec![1, 0]));
        let mut next = EventTable::with_epochs(&table.epochs());
        assert_eq!(next.restore(&c, 0), Some(TriggerNumber { index: 0, epoch: 1 }));
        assert_eq!((next.restore(&b, 0), next.restore(&b, 99)), (None, None));
        assert_eq!(next.assign(&b), Some(TriggerNumber { index: 1, epoch: 1 }), "its region may know 0");
    }
}
