//! Triggers of a recording, as they are kept for a recorder that comes back.

use std::io;

use tompion_firings::SavedNumbers;
use tompion_os::DirHandle;
use tompion_triggers::{EventTable, Trigger, TriggerError};

use super::{SavedRestart, change};

/// Notes the triggers for a recorder that comes back.
pub fn keep_triggers(folder: &DirHandle, triggers: &[Trigger], table: &EventTable) -> io::Result<()> {
    change(folder, |saved| saved.restart.iter_mut().for_each(|it| it.set_triggers(triggers, table)))
}

impl SavedRestart {
    /// Returns the triggers. Errors are lines for people.
    pub fn triggers(&self) -> Result<Vec<Trigger>, String> {
        let parse = |text: &String| {
            text.parse().map_err(|error: TriggerError| format!("the trigger `{text}`: {error}"))
        };
        self.triggers.iter().map(parse).collect()
    }

    /// Replaces the triggers, of which those on events have numbers.
    fn set_triggers(&mut self, triggers: &[Trigger], table: &EventTable) {
        self.triggers = triggers.iter().map(|trigger| trigger.text.clone()).collect();
        self.event_numbers = Some(SavedNumbers::new(triggers, table));
    }

    /// Returns the numbers of triggers on events, which are those of this recording.
    pub fn event_table(&self, triggers: &[Trigger]) -> EventTable {
        self.event_numbers
            .as_ref()
            .map_or_else(|| EventTable::new(triggers), |numbers| numbers.table(triggers))
    }
}
