//! Rules and triggers that change while a recording runs.

use tompion_protocol::rules::Rules;
use tompion_triggers::{EventTable, Trigger};

use super::ClientAcceptor;
use crate::backing;

impl ClientAcceptor {
    /// Replaces the rules of processes that join from now on, and of memory that waits for them.
    pub fn set_rules(&mut self, rules: Rules) {
        self.prepared.set_rules(&rules);
        if let (Some(folder), Some(_)) = (&self.config.backing, &self.config.keeper) {
            if let Err(error) = backing::keep_rules(folder, &rules) {
                let text = format!("a recorder that comes back would go by the old rules: {error}");
                self.report_problem(text);
            }
        }
        self.config.rules = rules;
    }

    /// Replaces the triggers on events of processes that join from now on, and of memory that waits
    /// for them. Notes all triggers for a recorder that comes back.
    pub fn set_triggers(&mut self, triggers: &[Trigger], table: &EventTable) {
        if let (Some(folder), Some(_)) = (&self.config.backing, &self.config.keeper) {
            if let Err(error) = backing::keep_triggers(folder, triggers, table) {
                let text = format!("a recorder that comes back would have the old triggers: {error}");
                self.report_problem(text);
            }
        }
        self.prepared.set_triggers(table);
        self.config.event_triggers = table.clone();
    }
}
