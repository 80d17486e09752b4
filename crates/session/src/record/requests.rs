//! Requests of other programs, followed by the control thread.

use std::sync::mpsc::{self, Sender};

use tompion_calls::{KernelEvents, Request, Requests};
use tompion_control::Status;
use tompion_firings::{AfterSave, MAX_SAVES, Occurrence};
use tompion_kernel_trace::{Kernel, KernelChoice};
use tompion_triggers::Condition;

use super::{Config, Control, Error, triggers::Save};
use crate::{consumer::ConsumerCommand, control, session_config::SessionConfig};

/// Listens for calls about a recording. Without a place for the socket there are none, unless
/// the session has a name by which users expect to find it.
pub(super) fn listen(
    config: &Config,
    session_config: &SessionConfig,
    kernel: Option<&KernelChoice>,
) -> Result<Option<Requests>, Error> {
    // Another command has begun it for itself.
    if config.jobs.is_some() || config.selector.is_some() {
        return Ok(None);
    }
    let frame = control::frame(session_config, config.target.command(), kernel);
    match Requests::open(config.session.as_deref(), control::facts(session_config, kernel), frame) {
        Ok(requests) => Ok(Some(requests)),
        Err(error) if config.session.is_some() => Err(error.into()),
        Err(error) => {
            log::debug!("tompion status won't find this recording: {error}");
            Ok(None)
        }
    }
}

impl Control {
    /// Follows the next request. True when the recording is to end at once.
    pub(super) fn follow_request(&mut self, notice: fn(&str)) -> bool {
        if let Some(request) = self.requests.as_mut().and_then(Requests::next_request) {
            match request {
                // The consumer replies: this thread waits for no disk.
                Request::Status(done) => {
                    let known = self.known_status().map(Box::new);
                    let asked = known.map(|known| self.commands.send(ConsumerCommand::Status(known, done)));
                    drop(asked);
                }
                Request::SetRules(rules, done) => {
                    self.rule_changes = self.rule_changes.saturating_add(1);
                    self.acceptor.set_rules(rules.clone());
                    let _ = self.commands.send(ConsumerCommand::SetRules(Box::new(rules)));
                    let _ = done.send(());
                }
                Request::CountEvents(done) => drop(self.commands.send(ConsumerCommand::CountEvents(done))),
                Request::ChangeTriggers(change, done) => {
                    // What has occurred before fires by the triggers before.
                    let ends = self.follow_triggers(notice);
                    let _ = done.send(self.change_triggers(&change));
                    return ends;
                }
                Request::SetKernelEvents(choice, done) => self.set_kernel_events(choice, done),
                Request::Snapshot(after, done) => {
                    self.save_after(Save { after, done: Some(done), incident: None }, notice);
                }
                Request::Clear(done) => {
                    self.kernel.iter().for_each(Kernel::drop_history);
                    let _ = self.commands.send(ConsumerCommand::Clear(done));
                }
                Request::Fire(word, incident, done) => {
                    let cause = format!("external:{word}");
                    let condition = Condition::External(word);
                    let is_known = self.triggers.observations.has(&condition);
                    let occurrence = Occurrence { incident, ..Occurrence::new(condition, cause) };
                    let fired = is_known.then(|| self.fire(&occurrence, notice));
                    let _ = done.send(fired.map(|(has_fired, _)| has_fired));
                    return fired.is_some_and(|(_, ends)| ends);
                }
                Request::Rotate(done) => drop(self.commands.send(ConsumerCommand::Rotate(done))),
                Request::Stop(done) => {
                    let _ = done.send(());
                    return self.stop();
                }
            }
        }
        false
    }

    /// Has other kernel events recorded. The kernel's thread replies.
    fn set_kernel_events(&mut self, choice: KernelEvents, done: Sender<Vec<String>>) {
        let Some(kernel) = &self.kernel else { return };
        let KernelEvents { words, selection } = choice;
        kernel.change(selection, words.clone(), done);
        self.rule_changes = self.rule_changes.saturating_add(1);
        let rules = Box::new(self.acceptor.rules().clone());
        let _ = self.commands.send(ConsumerCommand::NoteKernelEvents(rules, words.clone()));
        self.requests.iter_mut().for_each(|requests| requests.frame.kernel_events.clone_from(&words));
    }

    /// State of the recording, as far as this thread knows it.
    fn known_status(&self) -> Option<Status> {
        Some(Status {
            rules: tompion_calls::describe_rules(self.acceptor.rules()),
            rule_changes: self.rule_changes,
            triggers: self.triggers.observations.triggers().into_iter().map(|it| it.text).collect(),
            problems: self.acceptor.problems.clone(),
            refused: self.acceptor.refusals(),
            ..self.requests.as_ref()?.frame.clone()
        })
    }

    /// Has saved what the flight recorders hold, and does something then. Waits for no disk.
    pub(super) fn save(&mut self, incident: Option<String>, then: AfterSave, notice: fn(&str)) {
        if self.triggers.snapshots.is_full() {
            let problem = "a snapshot is left out: so many wait for the disk already";
            return notice(&format!("{problem} ({MAX_SAVES})"));
        }
        let (sender, consumer) = mpsc::channel();
        let _ = self.commands.send(ConsumerCommand::Snapshot(sender));
        let kernel = self.kernel.as_ref().map(Kernel::snapshot);
        self.triggers.snapshots.add((consumer, kernel), incident, then);
    }

    /// Follows snapshots that have been saved; all, if they are to be waited for.
    pub(super) fn follow_saves(&mut self, waits: bool, notice: fn(&str)) {
        for saved in self.triggers.snapshots.take_saved(waits) {
            notice(&format!("saved {} events", saved.snapshot.events));
            // The program that asked looks for it there.
            let _ = self.commands.send(ConsumerCommand::NoteSnapshot(saved.snapshot.clone()));
            self.triggers.snapshots.follow(saved);
        }
    }
}
