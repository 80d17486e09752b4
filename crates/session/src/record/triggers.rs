//! Triggers of a recording, observed and followed by the control thread; and snapshots that go on
//! for a while.
//!
//! Losses, events and the fill of rings are counted by the consumer, twice a second. The end of the
//! command is seen when it is waited for. All else is said by other programs.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    time::{Duration, Instant},
};

use tompion_kernel_trace::Kernel;
use tompion_manifest::Firing;
use tompion_os::{Inheritance, User};
use tompion_triggers::{Action, Condition, Count, Counts, Decision, RateLimiter, Threshold, Trigger};

use super::{Config, Control};
use crate::{
    consumer::{CommandSender, ConsumerCommand},
    control::Requests,
};

/// Interval between two looks at the counts.
const COUNT_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of snapshots that go on at the same time.
const MAX_WINDOWS: usize = 64;

/// Triggers of a recording.
pub(super) struct Triggers {
    list: Vec<Observed>,
    /// Counts, if a trigger asks for them, and the last ones that were looked at.
    counts: Option<Arc<Counts>>,
    last: Option<Count>,
    lost: u64,
    /// End of the command, until it is followed.
    command_end: Option<ExitStatus>,
    /// Snapshots that go on.
    windows: Vec<Window>,
    /// The program that a trigger has started.
    hook: Option<Child>,
    /// User that it runs as, and settings that it inherits.
    user: Option<User>,
    inheritance: Inheritance,
    /// Folder of the trace.
    folder: std::path::PathBuf,
}

/// A trigger with its state.
struct Observed {
    trigger: Trigger,
    limiter: RateLimiter,
    threshold: Threshold,
}

/// A snapshot that goes on until a time.
struct Window {
    due: Instant,
    /// Events that had been saved before it.
    before: u64,
    done: Option<Sender<u64>>,
}

impl Triggers {
    pub(super) fn new(config: &Config, inheritance: Inheritance) -> Self {
        let counts = Counts::for_conditions(config.triggers.iter().map(|trigger| &trigger.condition));
        let observed = |trigger: &Trigger| Observed {
            trigger: trigger.clone(),
            limiter: RateLimiter::default(),
            threshold: Threshold::default(),
        };
        Self {
            list: config.triggers.iter().map(observed).collect(),
            counts: counts.map(Arc::new),
            last: None,
            lost: 0,
            command_end: None,
            windows: Vec::new(),
            hook: None,
            user: config.user.clone(),
            inheritance,
            folder: config.folder.clone(),
        }
    }

    /// Counts for the consumer to renew, if a trigger asks for them.
    pub(super) fn counts(&self) -> Option<Arc<Counts>> {
        self.counts.clone()
    }

    /// Whether a trigger has this condition.
    pub(super) fn has(&self, condition: &Condition) -> bool {
        self.list.iter().any(|observed| observed.trigger.condition == *condition)
    }

    /// Notes how the command has ended.
    pub(super) fn note_end(&mut self, status: ExitStatus) {
        self.command_end = Some(status);
    }

    /// Begins to count losses: those so far, of a recorder that was killed, fire nothing.
    pub(super) fn begin_losses(&mut self, commands: &CommandSender) {
        self.lost = self.ask_losses(commands, ConsumerCommand::CountLosses).unwrap_or(0);
    }

    /// Asks the consumer for the number of losses, if a trigger asks for it.
    fn ask_losses(
        &self,
        commands: &CommandSender,
        command: fn(Sender<u64>) -> ConsumerCommand,
    ) -> Option<u64> {
        self.counts.as_ref().filter(|_| self.has(&Condition::Loss))?;
        let (sender, receiver) = mpsc::channel();
        commands.send(command(sender)).ok()?;
        receiver.recv().ok()
    }

    /// Causes that have come up: losses until `lost`, and the command's end, unless it is by the
    /// signal `asked`, by which the recording ends.
    fn take_causes(&mut self, lost: u64, asked: Option<i32>) -> Vec<(Condition, String)> {
        let more = lost.saturating_sub(self.lost);
        self.lost = self.lost.max(lost);
        let losses = (more != 0).then(|| (Condition::Loss, format!("{more} events lost")));
        let signal = self.command_end.take().and_then(|status| status.signal());
        let killed = signal.filter(|signal| Some(*signal) != asked);
        let killed = killed.map(|signal| (Condition::Killed, format!("killed by signal {signal}")));
        losses.into_iter().chain(killed).collect()
    }

    /// Conditions that a new count has brought, with their causes: values that have come to a
    /// trigger's threshold. One that stays there fires nothing again.
    fn take_thresholds(&mut self, count: Count) -> Vec<(Condition, String)> {
        let last = self.last.replace(count);
        let mut causes = Vec::new();
        for Observed { trigger, threshold, .. } in &mut self.list {
            let cause = threshold.cross(&trigger.condition, count, last);
            let cause = cause.map(|cause| (trigger.condition.clone(), cause));
            causes.extend(cause.filter(|cause| !causes.contains(cause)));
        }
        causes
    }

    /// Time of the next look at what no descriptor tells.
    pub(super) fn next_look(&self, now: Instant) -> Option<Instant> {
        let counts = self.counts.as_ref().map(|_| now + COUNT_INTERVAL);
        let hook = self.hook.as_ref().map(|_| now + COUNT_INTERVAL);
        let windows = self.windows.iter().map(|window| window.due);
        windows.chain(counts).chain(hook).min()
    }

    /// Starts a program, unless the last one still runs.
    fn run(&mut self, words: &[String], firing: &Firing) -> Result<(), String> {
        let [program, arguments @ ..] = words else { return Ok(()) };
        if self.is_hook_running() {
            return Err("the last one still runs".into());
        }
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command.env("TOMPION_TRIGGER", &firing.trigger).env("TOMPION_TRACE", &self.folder);
        self.inheritance.hand_on(&mut command);
        match &self.user {
            Some(user) => user.run(&mut command),
            None => tompion_os::run_with_rights_of_process(&mut command),
        }
        self.hook = Some(command.spawn().map_err(|error| error.to_string())?);
        Ok(())
    }

    fn is_hook_running(&mut self) -> bool {
        let is_running = self.hook.as_mut().is_some_and(|hook| matches!(hook.try_wait(), Ok(None)));
        if !is_running {
            self.hook = None;
        }
        is_running
    }
}

impl Control {
    /// Follows what has occurred, and ends snapshots whose time is up. True when the recording is
    /// to end at once.
    pub(super) fn follow_triggers(&mut self, notice: fn(&str)) -> bool {
        let count = self.triggers.counts.as_ref().and_then(|counts| counts.last());
        let lost = count.map_or(0, |count| count.lost);
        self.triggers.is_hook_running();
        let mut ends = self.follow_causes(lost, notice);
        let last = self.triggers.last.map(|last| last.at);
        if let Some(count) = count.filter(|count| Some(count.at) != last) {
            for (condition, cause) in self.triggers.take_thresholds(count) {
                ends |= self.fire(&condition, &cause, notice).1;
            }
        }
        let now = Instant::now();
        let (over, rest) =
            std::mem::take(&mut self.triggers.windows).into_iter().partition(|it| it.due <= now);
        self.triggers.windows = rest;
        let over: Vec<Window> = over;
        if !over.is_empty() {
            let saved = self.save(notice);
            for Window { before, done, .. } in over {
                let events = saved.map_or(0, |(_, total)| total.saturating_sub(before));
                // The program that asked may have gone.
                let _ = done.map(|done| done.send(events));
            }
        }
        ends
    }

    /// Fires the triggers of what has occurred, with so many losses until now.
    fn follow_causes(&mut self, lost: u64, notice: fn(&str)) -> bool {
        let causes = self.triggers.take_causes(lost, self.end_signal);
        causes.iter().fold(false, |ends, (condition, cause)| self.fire(condition, cause, notice).1 || ends)
    }

    /// Follows what has occurred until the end of the recording: also losses that are found while
    /// processes are completed.
    pub(super) fn follow_last_triggers(&mut self, notice: fn(&str)) {
        // The command's end may be the recording's.
        self.follow_triggers(notice);
        if self.triggers.has(&Condition::Loss) {
            self.acceptor.close();
            let lost = self.triggers.ask_losses(&self.commands, ConsumerCommand::CompleteProcesses);
            self.follow_causes(lost.unwrap_or(0), notice);
        }
    }

    /// Fires the triggers of a condition. Returns whether one has fired, and whether the recording
    /// is to end at once.
    pub(super) fn fire(&mut self, condition: &Condition, cause: &str, notice: fn(&str)) -> (bool, bool) {
        let (mut has_fired, mut ends) = (false, false);
        for index in 0..self.triggers.list.len() {
            let Some(Observed { trigger, limiter, .. }) = self.triggers.list.get_mut(index) else { continue };
            if trigger.condition != *condition {
                continue;
            }
            let Decision::Fire { suppressed } = limiter.decide(trigger.limit, Instant::now()) else {
                continue;
            };
            let trigger = trigger.clone();
            let time_ns = i64::try_from(tompion_os::realtime_ns()).unwrap_or(i64::MAX);
            let firing = Firing { time_ns, trigger: trigger.text.clone(), cause: cause.into(), suppressed };
            notice(&format!("trigger `{}`: {cause}", trigger.text));
            let _ = self.commands.send(ConsumerCommand::NoteFiring(Box::new(firing.clone())));
            for action in &trigger.actions {
                ends |= self.act(action, trigger.after, &firing, notice);
            }
            has_fired = true;
        }
        (has_fired, ends)
    }

    /// Does one thing. True when the recording is to end at once.
    fn act(&mut self, action: &Action, after: Duration, firing: &Firing, notice: fn(&str)) -> bool {
        match action {
            Action::Snapshot => self.save_after(after, None, notice),
            Action::Rotate => {
                let (done, _) = mpsc::channel();
                let _ = self.commands.send(ConsumerCommand::Rotate(done));
            }
            Action::Notify => self.requests.iter().for_each(|requests| Requests::notify(requests, firing)),
            Action::Run(words) => {
                if let Err(reason) = self.triggers.run(words, firing) {
                    notice(&format!("`{}` is not run: {reason}", words.join(" ")));
                }
            }
            Action::Stop => return self.stop(),
        }
        false
    }

    /// Saves what the flight recorders hold, and goes on for a time.
    pub(super) fn save_after(&mut self, after: Duration, done: Option<Sender<u64>>, notice: fn(&str)) {
        let goes_on = !after.is_zero() && self.triggers.windows.len() < MAX_WINDOWS;
        let due = Instant::now() + after;
        if goes_on {
            // First, so that nothing is overwritten while the disk takes what is saved now.
            let _ = self.commands.send(ConsumerCommand::KeepSaving(due));
            self.kernel.iter().for_each(|kernel| Kernel::keep_saving(kernel, due));
        }
        let Some((saved, total)) = self.save(notice) else { return };
        if goes_on {
            self.triggers.windows.push(Window { due, before: total - saved, done });
        } else {
            let _ = done.map(|done| done.send(saved));
        }
    }
}
