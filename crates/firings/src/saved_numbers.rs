//! Numbers by which programs know triggers, as they are saved for a recorder that comes back.

use serde::{Deserialize, Serialize};
use tompion_triggers::{Condition, EventTable, Trigger};

/// Numbers of a recording's triggers on events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedNumbers {
    /// Epochs of all numbers.
    epochs: Vec<u16>,
    /// Numbers of the triggers on events, in the triggers' order.
    numbers: Vec<usize>,
}

impl SavedNumbers {
    /// Returns the numbers that the triggers have in a table.
    pub fn new(triggers: &[Trigger], table: &EventTable) -> Self {
        let mut numbered: Vec<_> = table.iter().collect();
        let number_of = |trigger: &Trigger| {
            let index = numbered.iter().position(|(_, numbered)| *numbered == trigger)?;
            Some(numbered.remove(index).0.index)
        };
        let numbers = triggers.iter().filter_map(number_of).collect();
        Self { epochs: table.epochs().to_vec(), numbers }
    }

    /// Returns the table of these triggers.
    pub fn table(&self, triggers: &[Trigger]) -> EventTable {
        let mut table = EventTable::with_epochs(&self.epochs);
        let events = triggers.iter().filter(|trigger| matches!(trigger.condition, Condition::Event(_)));
        events.zip(&self.numbers).for_each(|(trigger, number)| _ = table.restore(trigger, *number));
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_the_same_for_the_next_recorder() {
        let parse = |text: &str| text.parse::<Trigger>().expect(text);
        let [gone, one, two] = ["event:x:y -> stop", "event:a:b -> notify", "event:c:d -> stop"].map(parse);
        let mut table = EventTable::new(&[gone.clone(), one.clone()]);
        let first = table.iter().next().expect("a trigger").0;
        table.release(first);
        table.assign(&two);
        let triggers = [parse("loss -> notify"), one, two];
        let saved = SavedNumbers::new(&triggers, &table);
        let text = serde_json::to_string(&saved).expect("JSON");
        let read: SavedNumbers = serde_json::from_str(&text).expect("the same");
        assert_eq!(read.table(&triggers), table);
        assert_eq!(table.text(), "0 c:d\n1 a:b\n");
    }
}
