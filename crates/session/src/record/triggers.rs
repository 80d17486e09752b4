//! Triggers of a recording, followed by the control thread; and snapshots that go on for a while.
//!
//! Losses, events and the fill of rings are counted by the consumer, twice a second. Matches of
//! triggers on events are found by it in each round, and wake this thread. The end of the command
//! is seen when it is waited for. All else is said by other programs.

use std::{
    io,
    os::{fd::AsFd as _, unix::process::ExitStatusExt as _},
    process::ExitStatus,
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    time::{Duration, Instant},
};

use tompion_calls::Requests;
use tompion_firings::{
    AfterSave, ChangeError, Hook, Observations, Occurrence, Sightings, Snapshots, TriggerChange,
};
use tompion_kernel_trace::Kernel;
use tompion_manifest::Firing;
use tompion_os::{Inheritance, Poller};
use tompion_triggers::{Action, Condition};

use super::{Config, Control};
use crate::{
    acceptor::Interest,
    consumer::{CommandSender, ConsumerCommand, EventWatch, NewTriggers},
    session_config::SessionConfig,
};

/// Interval between two looks at a program that a trigger has started.
const HOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of changes of a recording's triggers: programs keep what they have compiled.
const MAX_CHANGES: u32 = 10_000;

/// Triggers of a recording.
pub(super) struct Triggers {
    pub(super) observations: Observations,
    /// Number of times that they were changed.
    changes: u32,
    /// Matches of events, if a trigger is on any.
    sightings: Option<Arc<Sightings>>,
    /// Ends of programs that triggers want to know, until they are followed.
    ends: Vec<Occurrence>,
    /// Snapshots that are not over.
    pub(super) snapshots: Snapshots,
    hook: Hook,
}

/// Request to save what the flight recorders hold.
#[derive(Default)]
pub(super) struct Save {
    /// Time for which it goes on.
    pub after: Duration,
    /// Receiver of the number of saved events.
    pub done: Option<Sender<u64>>,
    /// Incident that it is of.
    pub incident: Option<String>,
}

impl Triggers {
    pub(super) fn new(
        (config, session_config): (&Config, &SessionConfig),
        inheritance: Inheritance,
        poller: &Poller,
    ) -> io::Result<Self> {
        let observations = Observations::new(&config.triggers, session_config.event_triggers.clone());
        let hook = Hook::new(config.user.clone(), inheritance, config.folder.clone());
        let hook = if config.is_granted() { hook.by_grant() } else { hook };
        let (ends, snapshots) = Default::default();
        let mut triggers = Self { observations, changes: 0, sightings: None, ends, snapshots, hook };
        triggers.begin_sightings(triggers.observations.has_events(), poller)?;
        Ok(triggers)
    }

    /// Makes a place for matches, if a trigger is on events and there is none.
    fn begin_sightings(&mut self, has_events: bool, poller: &Poller) -> io::Result<()> {
        if self.sightings.is_none() && has_events {
            let sightings = Arc::new(Sightings::new()?);
            poller.add(sightings.as_fd(), Interest::Matches.to_number())?;
            self.sightings = Some(sightings);
        }
        Ok(())
    }

    /// Triggers on events for the consumer to watch, if there are or have been any.
    pub(super) fn event_watch(&self) -> Option<EventWatch> {
        let table = self.observations.table();
        self.sightings.clone().map(|sightings| EventWatch::new(sightings, table.clone()))
    }

    /// Begins to count losses: those so far, of a recorder that was killed, fire nothing.
    pub(super) fn begin_losses(&mut self, commands: &CommandSender) {
        if self.observations.has(&Condition::Loss) {
            self.observations.begin_losses(ask_losses(commands, ConsumerCommand::CountLosses).unwrap_or(0));
        }
    }

    /// Notes that a recorded program has ended. `asked` is the signal by which the recording ends
    /// its command.
    pub(super) fn note_end(&mut self, (name, pid): (&str, u32), end: ExitStatus, asked: Option<i32>) {
        let signal = end.signal().filter(|signal| Some(*signal) != asked);
        self.ends.extend(signal.into_iter().flat_map(|signal| self.observations.take_end(name, pid, signal)));
    }

    /// Takes what has occurred; `asked` is the signal by which the recording ends.
    fn take_occurrences(&mut self, asked: Option<i32>) -> Vec<Occurrence> {
        let seen = self.sightings.iter().flat_map(|sightings| sightings.take());
        let seen: Vec<_> = seen.chain(std::mem::take(&mut self.ends)).collect();
        let others = self.observations.take_occurrences(asked);
        seen.into_iter().chain(others).collect()
    }

    /// Time of the next look at what no descriptor tells.
    pub(super) fn next_look(&mut self, now: Instant) -> Option<Instant> {
        let hook = self.hook.is_running().then(|| now + HOOK_INTERVAL);
        let others = self.snapshots.next_look(now).into_iter().chain(hook);
        others.chain(self.observations.next_look(now)).min()
    }
}

/// Asks the consumer for the number of losses.
fn ask_losses(commands: &CommandSender, command: fn(Sender<u64>) -> ConsumerCommand) -> Option<u64> {
    let (sender, receiver) = mpsc::channel();
    commands.send(command(sender)).ok()?;
    receiver.recv().ok()
}

impl Control {
    /// Follows what has occurred, and ends snapshots whose time is up. True when the recording is
    /// to end at once.
    pub(super) fn follow_triggers(&mut self, notice: fn(&str)) -> bool {
        let mut ends = false;
        for occurrence in self.triggers.take_occurrences(self.end_signal) {
            ends |= self.fire(&occurrence, notice).1;
        }
        let over = self.triggers.snapshots.take_over(Instant::now());
        if !over.is_empty() {
            self.save(None, AfterSave::End(over), notice);
        }
        ends
    }

    /// Replaces the triggers: for programs that run, that are about to start, and for this thread.
    /// What has occurred before has been followed.
    pub(super) fn change_triggers(&mut self, change: &TriggerChange) -> Result<(), ChangeError> {
        let new = change.apply_to(self.triggers.observations.triggers())?;
        if let Some((trigger, problem)) = tompion_triggers::obstacle(&new, self.abilities) {
            let trigger = trigger.map(|trigger| trigger.text.clone()).unwrap_or_default();
            return Err(ChangeError::Invalid { trigger, problem });
        }
        let refuse = |problem: String| ChangeError::Invalid { trigger: String::new(), problem };
        if self.triggers.changes >= MAX_CHANGES {
            return Err(refuse(format!("expected at most {MAX_CHANGES} changes of a recording's triggers")));
        }
        let has_events = new.iter().any(|trigger| matches!(trigger.condition, Condition::Event(_)));
        let begun = self.triggers.begin_sightings(has_events, &self.poller);
        begun.map_err(|error| refuse(format!("matches of events can't be told: {error}")))?;
        self.triggers.changes += 1;
        self.triggers.observations.change(&new);
        self.acceptor.set_triggers(&new, self.triggers.observations.table());
        let new = NewTriggers {
            texts: new.into_iter().map(|trigger| trigger.text).collect(),
            event_watch: self.triggers.event_watch(),
            counts: self.triggers.observations.counts(),
        };
        let _ = self.commands.send(ConsumerCommand::SetTriggers(Box::new(new)));
        Ok(())
    }

    /// Follows what has occurred until the end of the recording: also losses and matches that are
    /// found while processes are completed.
    pub(super) fn follow_last_triggers(&mut self, notice: fn(&str)) {
        // The command's end may be the recording's.
        self.follow_triggers(notice);
        self.follow_saves(true, notice);
        let has_loss = self.triggers.observations.has(&Condition::Loss);
        if has_loss || self.triggers.observations.has_events() {
            self.acceptor.close();
            let lost = ask_losses(&self.commands, ConsumerCommand::CompleteProcesses).unwrap_or(0);
            let losses = if has_loss { self.triggers.observations.take_losses(lost) } else { Vec::new() };
            losses.iter().for_each(|occurrence| _ = self.fire(occurrence, notice));
            self.follow_triggers(notice);
            self.follow_saves(true, notice);
        }
        let suppressed = self.triggers.observations.suppressed();
        let _ = self.commands.send(ConsumerCommand::NoteSuppressed(suppressed));
    }

    /// Fires the triggers that an occurrence concerns. Returns whether one has fired, and whether
    /// the recording is to end at once.
    pub(super) fn fire(&mut self, occurrence: &Occurrence, notice: fn(&str)) -> (bool, bool) {
        let firings = self.triggers.observations.fire(occurrence, Instant::now());
        let (has_fired, mut ends) = (!firings.is_empty(), false);
        for (trigger, firing) in firings {
            notice(&format!("trigger `{}`: {}", trigger.text, firing.cause));
            let _ = self.commands.send(ConsumerCommand::NoteFiring(Box::new(firing.clone())));
            for action in &trigger.actions {
                ends |= self.act(action, trigger.after, &firing, notice);
            }
        }
        (has_fired, ends)
    }

    /// Does one thing. True when the recording is to end at once.
    fn act(&mut self, action: &Action, after: Duration, firing: &Firing, notice: fn(&str)) -> bool {
        match action {
            Action::Snapshot => {
                let save = Save { after, done: None, incident: Some(firing.incident.clone()) };
                self.save_after(save, notice);
            }
            Action::Rotate => {
                let (done, _) = mpsc::channel();
                let _ = self.commands.send(ConsumerCommand::Rotate(done));
            }
            Action::Notify => self.requests.iter().for_each(|requests| Requests::notify(requests, firing)),
            Action::Run(words) => {
                if let Err(reason) = self.triggers.hook.run(words, firing) {
                    notice(&format!("`{}` is not run: {reason}", words.join(" ")));
                }
            }
            Action::Stop => return self.stop(),
        }
        false
    }

    /// Saves what the flight recorders hold, and goes on for a time.
    pub(super) fn save_after(&mut self, save: Save, notice: fn(&str)) {
        let Save { after, done, incident } = save;
        let goes_on = !after.is_zero() && self.triggers.snapshots.can_go_on();
        let due = Instant::now() + after;
        if goes_on {
            // First, so that nothing is overwritten while the disk takes what is saved now.
            let _ = self.commands.send(ConsumerCommand::KeepSaving(due));
            self.kernel.iter().for_each(|kernel| Kernel::keep_saving(kernel, due));
        }
        let then = match done {
            done if goes_on => AfterSave::GoOn(due, done),
            Some(done) => AfterSave::Tell(done),
            None => AfterSave::Nothing,
        };
        self.save(incident, then, notice);
    }
}
