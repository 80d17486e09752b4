//! State of a recording's triggers: what was observed, and which of them fire.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
    sync::Arc,
    time::{Duration, Instant},
};

use tompion_layout::triggers::TriggerNumber;
use tompion_manifest::{Capture, Firing};
use tompion_protocol::glob;
use tompion_triggers::{Condition, Count, Counts, Decision, EventTable, RateLimiter, Threshold, Trigger};

use crate::{Matches, Silent};

/// Maximum length of an incident's id in bytes.
const MAX_INCIDENT: usize = 64;

/// Interval between two looks at counts.
const COUNT_INTERVAL: Duration = Duration::from_millis(500);

/// Whether an incident can have this id: letters, digits, `-`, `_`, `.` and `:`.
pub fn is_incident(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (1..=MAX_INCIDENT).contains(&id.len()) && id.bytes().all(is_plain)
}

/// Triggers that an occurrence concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those with this condition.
    Condition(Condition),
    /// That with this number among those on events.
    Event(TriggerNumber),
}

/// Something that happened and may make triggers fire.
#[derive(Clone, Debug)]
pub struct Occurrence {
    /// Triggers that it concerns.
    pub which: Which,
    /// Cause in words.
    pub cause: String,
    /// Number of events that matched; 0 if it is none of events.
    pub matches: u64,
    /// The first ones of them.
    pub captures: Vec<Capture>,
    /// Id of the incident, if another program has given one.
    pub incident: Option<String>,
}

impl Occurrence {
    /// An occurrence of a condition that is not on events.
    pub fn new(condition: Condition, cause: String) -> Self {
        let which = Which::Condition(condition);
        Self { which, cause, matches: 0, captures: Vec::new(), incident: None }
    }

    /// Matches of a trigger on events.
    pub fn of_matches(matches: Matches) -> Self {
        let Matches { trigger, count, captures } = matches;
        let cause = match (captures.first(), count) {
            (Some(first), 1) => describe(first),
            (Some(first), _) => format!("{count} events, first {}", describe(first)),
            (None, 1) => "1 event, which could not be copied".into(),
            (None, _) => format!("{count} events, which could not be copied"),
        };
        Self { which: Which::Event(trigger), cause, matches: count, captures, incident: None }
    }

    /// Event that did not come in so many programs.
    pub fn of_silence(silent: Silent, programs: u64) -> Self {
        let Silent { trigger, cause } = silent;
        let cause = match programs {
            ..=1 => cause,
            2 => format!("{cause}, and in 1 more program"),
            _ => format!("{cause}, and in {} more programs", programs - 1),
        };
        Self { which: Which::Event(trigger), cause, matches: 0, captures: Vec::new(), incident: None }
    }
}

/// Describes an event that has matched.
fn describe(capture: &Capture) -> String {
    let Capture { event, program, pid, duration_ns, .. } = capture;
    let duration = match duration_ns {
        0 => String::new(),
        ns => format!(" took {:.3} ms", *ns as f64 / 1e6),
    };
    format!("{event}{duration} in {program} ({pid})")
}

/// A trigger with its state.
#[derive(Debug)]
struct Observed {
    trigger: Trigger,
    /// Its number among those on events.
    event: Option<TriggerNumber>,
    limiter: RateLimiter,
    threshold: Threshold,
}

impl Observed {
    /// A trigger for which nothing was observed.
    fn new(trigger: &Trigger, event: Option<TriggerNumber>) -> Self {
        let (limiter, threshold) = (RateLimiter::default(), Threshold::default());
        Self { trigger: trigger.clone(), event, limiter, threshold }
    }
}

/// Triggers of a recording, with what was observed for them.
#[derive(Debug)]
pub struct Observations {
    list: Vec<Observed>,
    /// Numbers of those on events.
    table: EventTable,
    /// Counts, if a trigger asks for them, and the last ones that were looked at.
    counts: Option<Arc<Counts>>,
    last: Option<Count>,
    lost: u64,
    /// Whether the next count is where losses begin to count.
    begins_losses: bool,
    /// End of the command, until it is followed.
    command_end: Option<ExitStatus>,
}

impl Observations {
    /// Nothing was observed for these triggers, of which those on events have numbers.
    pub fn new(triggers: &[Trigger], table: EventTable) -> Self {
        let mut numbers: Vec<_> = table.iter().collect();
        let mut number_of = |trigger: &Trigger| {
            let index = numbers.iter().position(|(_, numbered)| *numbered == trigger)?;
            Some(numbers.remove(index).0)
        };
        let list = triggers.iter().map(|trigger| Observed::new(trigger, number_of(trigger))).collect();
        let counts = Self::counts_for(triggers);
        let (last, lost, begins_losses, command_end) = (None, 0, false, None);
        Self { list, table, counts, last, lost, begins_losses, command_end }
    }

    fn counts_for(triggers: &[Trigger]) -> Option<Arc<Counts>> {
        Counts::for_conditions(triggers.iter().map(|trigger| &trigger.condition)).map(Arc::new)
    }

    /// Replaces the triggers. Those that stay go on with their state: numbers, limits, thresholds.
    /// Losses until the next count fire no new trigger.
    pub fn change(&mut self, triggers: &[Trigger]) {
        let had_losses = self.has(&Condition::Loss);
        let mut before = std::mem::take(&mut self.list);
        let mut kept: Vec<Option<Observed>> = Vec::new();
        for trigger in triggers {
            let index = before.iter().position(|observed| observed.trigger == *trigger);
            kept.push(index.map(|index| before.remove(index)));
        }
        // First, so that there are numbers for the others.
        before.iter().filter_map(|gone| gone.event).for_each(|number| self.table.release(number));
        let list = kept.into_iter().zip(triggers).map(|(kept, trigger)| {
            kept.unwrap_or_else(|| Observed::new(trigger, self.table.assign(trigger)))
        });
        self.list = list.collect();
        self.counts = Self::counts_for(triggers);
        self.begins_losses |= self.has(&Condition::Loss) && !had_losses;
    }

    /// The triggers.
    pub fn triggers(&self) -> Vec<Trigger> {
        self.list.iter().map(|observed| observed.trigger.clone()).collect()
    }

    /// Numbers of the triggers on events.
    pub fn table(&self) -> &EventTable {
        &self.table
    }

    /// Counts for the consumer to renew, if a trigger asks for them.
    pub fn counts(&self) -> Option<Arc<Counts>> {
        self.counts.clone()
    }

    /// Whether a trigger has this condition.
    pub fn has(&self, condition: &Condition) -> bool {
        self.list.iter().any(|observed| observed.trigger.condition == *condition)
    }

    /// Whether a trigger is on events.
    pub fn has_events(&self) -> bool {
        !self.table.is_empty()
    }

    /// Time of the next look at counts, if a trigger asks for them.
    pub fn next_look(&self, now: Instant) -> Option<Instant> {
        self.counts.as_ref().map(|_| now + COUNT_INTERVAL)
    }

    /// Takes a recorded program's end by a signal, if triggers want to know: those with a glob that
    /// matches its name.
    pub fn take_end(&self, name: &str, pid: u32, signal: i32) -> Vec<Occurrence> {
        let mut conditions: Vec<&Condition> = Vec::new();
        for Observed { trigger, .. } in &self.list {
            let Condition::KilledProgram(pattern) = &trigger.condition else { continue };
            if glob::matches(pattern, name) && !conditions.contains(&&trigger.condition) {
                conditions.push(&trigger.condition);
            }
        }
        let cause = format!("{name} ({pid}) killed by signal {signal}");
        conditions.into_iter().map(|condition| Occurrence::new(condition.clone(), cause.clone())).collect()
    }

    /// Notes how the command has ended.
    pub fn note_end(&mut self, status: ExitStatus) {
        self.command_end = Some(status);
    }

    /// Begins with these losses, which fire nothing.
    pub fn begin_losses(&mut self, lost: u64) {
        self.lost = lost;
    }

    /// Takes what has occurred: by the newest counts, and by the command's end, unless it is by
    /// the signal `asked`, by which the recording ends.
    pub fn take_occurrences(&mut self, asked: Option<i32>) -> Vec<Occurrence> {
        let count = self.counts.as_ref().and_then(|counts| counts.last());
        if let Some(count) = count.filter(|_| std::mem::take(&mut self.begins_losses)) {
            self.lost = self.lost.max(count.lost);
        }
        let mut occurrences = self.take_losses(count.map_or(0, |count| count.lost));
        let signal = self.command_end.take().and_then(|status| status.signal());
        let killed = signal.filter(|signal| Some(*signal) != asked);
        occurrences.extend(
            killed.map(|signal| Occurrence::new(Condition::Killed, format!("killed by signal {signal}"))),
        );
        let last = self.last.map(|last| last.at);
        if let Some(count) = count.filter(|count| Some(count.at) != last) {
            occurrences.extend(self.take_thresholds(count));
        }
        occurrences
    }

    /// Takes losses until now.
    pub fn take_losses(&mut self, lost: u64) -> Vec<Occurrence> {
        let more = lost.saturating_sub(self.lost);
        self.lost = self.lost.max(lost);
        let losses = (more != 0).then(|| Occurrence::new(Condition::Loss, format!("{more} events lost")));
        losses.into_iter().collect()
    }

    /// Values that a new count has brought to triggers' thresholds. One that stays there fires
    /// nothing again.
    fn take_thresholds(&mut self, count: Count) -> Vec<Occurrence> {
        let last = self.last.replace(count);
        let mut causes: Vec<(Condition, String)> = Vec::new();
        for Observed { trigger, threshold, .. } in &mut self.list {
            let cause = threshold.cross(&trigger.condition, count, last);
            let cause = cause.map(|cause| (trigger.condition.clone(), cause));
            causes.extend(cause.filter(|cause| !causes.contains(cause)));
        }
        causes.into_iter().map(|(condition, cause)| Occurrence::new(condition, cause)).collect()
    }

    /// Decides which triggers fire, and how: those that an occurrence concerns and that are not at
    /// their limits. All have the id of the one incident.
    pub fn fire(&mut self, occurrence: &Occurrence, now: Instant) -> Vec<(Trigger, Firing)> {
        let incident = occurrence.incident.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let time_ns = i64::try_from(tompion_os::realtime_ns()).unwrap_or(i64::MAX);
        let mut firings = Vec::new();
        for Observed { trigger, event, limiter, .. } in &mut self.list {
            let is_concerned = match &occurrence.which {
                Which::Condition(condition) => trigger.condition == *condition,
                Which::Event(number) => *event == Some(*number),
            };
            if !is_concerned {
                continue;
            }
            let decision = limiter.decide(trigger.limit, now, occurrence.matches.max(1));
            let Decision::Fire { suppressed } = decision else { continue };
            let firing = Firing {
                time_ns,
                trigger: trigger.text.clone(),
                cause: occurrence.cause.clone(),
                suppressed,
                incident: incident.clone(),
                matches: occurrence.matches,
                captures: occurrence.captures.clone(),
            };
            firings.push((trigger.clone(), firing));
        }
        firings
    }

    /// Number of occurrences beyond limits that no firing has counted.
    pub fn suppressed(&self) -> u64 {
        let each = self.list.iter().map(|observed| observed.limiter.suppressed());
        each.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observations(texts: &[&str]) -> Observations {
        let triggers: Vec<Trigger> = texts.iter().map(|text| text.parse().expect(text)).collect();
        Observations::new(&triggers, EventTable::new(&triggers))
    }

    fn matched(trigger: TriggerNumber, count: u64) -> Occurrence {
        Occurrence::of_matches(Matches { trigger, count, captures: Vec::new() })
    }

    #[test]
    fn triggers_that_stay_keep_their_state_and_those_that_go_fire_no_more() {
        let parse =
            |texts: &[&str]| -> Vec<Trigger> { texts.iter().map(|text| text.parse().expect(text)).collect() };
        let (stays, goes, comes) =
            ("event:a:b -> notify limit 1/1h", "event:a:b ? n > 1 -> stop", "event:c:d -> notify");
        let mut all = observations(&[goes, stays, "external:x -> stop"]);
        let now = Instant::now();
        let number = |index, epoch| TriggerNumber { index, epoch };
        assert_eq!(all.fire(&matched(number(1, 0), 1), now).len(), 1);
        all.change(&parse(&["loss -> notify", stays, comes]));
        assert_eq!(all.table().text(), "0 c:d\n1 a:b\n");
        assert_eq!(all.fire(&matched(number(0, 0), 1), now), [], "seen before the change");
        assert_eq!(all.fire(&matched(number(1, 0), 3), now), [], "at its limit");
        assert_eq!(all.suppressed(), 3);
        assert_eq!(all.fire(&matched(number(0, 1), 1), now)[0].1.trigger, comes);
        assert!(!all.has(&Condition::External("x".into())));
        let count = |lost| Count { at: Instant::now(), lost, appended: 0, fill_percent: 0 };
        assert!(all.take_occurrences(None).is_empty(), "nothing was counted");
        all.counts().expect("counts").renew(count(5));
        assert!(all.take_occurrences(None).is_empty(), "lost before the change");
        all.counts().expect("counts").renew(count(7));
        assert_eq!(all.take_occurrences(None)[0].cause, "2 events lost");
        let again = parse(&[comes, stays, comes]);
        all.change(&again);
        assert_eq!((all.table().len(), all.triggers()), (3, again));
        all.change(&[]);
        assert!(!all.has_events() && all.counts().is_none());
    }

    #[test]
    fn matches_fire_their_own_trigger_and_each_is_counted() {
        let mut all =
            observations(&["event:a:b -> notify", "loss -> notify", "event:a:b -> notify limit 1/1h"]);
        assert!(all.has_events() && all.has(&Condition::Loss));
        let now = Instant::now();
        let matched = |index, count| matched(TriggerNumber { index, epoch: 0 }, count);
        let first = all.fire(&matched(1, 5), now);
        assert_eq!((first.len(), first[0].1.matches, first[0].1.suppressed), (1, 5, 0));
        assert!(first[0].0.limit.is_some() && is_incident(&first[0].1.incident));
        assert_eq!(all.fire(&matched(1, 7), now), []);
        assert_eq!(all.suppressed(), 7);
        let later = all.fire(&matched(1, 1), now + Duration::from_secs(3600));
        assert_eq!((later[0].1.suppressed, all.suppressed()), (7, 0));
        assert_ne!(later[0].1.incident, first[0].1.incident);
        assert_eq!(all.fire(&matched(0, 1), now).len(), 1);
        assert_eq!(all.fire(&matched(2, 1), now), []);
    }

    #[test]
    fn programs_that_were_killed_concern_triggers_by_their_names() {
        let all = observations(&[
            "killed:web* -> notify",
            "killed:db -> stop",
            "killed:web* -> stop",
            "killed -> stop",
        ]);
        let ends = all.take_end("web-1", 7, 11);
        assert_eq!(
            ends.iter().map(|it| it.cause.as_str()).collect::<Vec<_>>(),
            ["web-1 (7) killed by signal 11"]
        );
        assert_eq!(ends[0].which, Which::Condition(Condition::KilledProgram("web*".into())));
        assert!(all.take_end("cache", 7, 11).is_empty());
    }

    #[test]
    fn triggers_of_one_occurrence_share_its_incident() {
        let mut all = observations(&["external:slow -> notify", "external:slow -> stop"]);
        let given = Occurrence {
            incident: Some("web-17".into()),
            ..Occurrence::new(Condition::External("slow".into()), "external:slow".into())
        };
        let ids: Vec<String> =
            all.fire(&given, Instant::now()).into_iter().map(|(_, firing)| firing.incident).collect();
        assert_eq!(ids, ["web-17", "web-17"]);
    }

    #[test]
    fn ids_of_incidents_are_plain() {
        assert!(["a", "web-17", "2026:x.y_z"].iter().all(|id| is_incident(id)));
        assert!(!["", "a b", "a\n", "é", &"x".repeat(65)].iter().any(|id| is_incident(id)));
    }

    #[test]
    fn each_loss_occurs_once() {
        let mut all = observations(&["loss -> notify"]);
        all.begin_losses(10);
        assert!(all.take_losses(10).is_empty());
        assert_eq!(all.take_losses(12)[0].cause, "2 events lost");
        assert!(all.take_losses(12).is_empty() && all.take_losses(3).is_empty());
    }
}
