//! State of a recording's triggers: what was observed, and which of them fire.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
    sync::Arc,
    time::{Duration, Instant},
};

use tompion_manifest::{Capture, Firing};
use tompion_triggers::{Condition, Count, Counts, Decision, RateLimiter, Threshold, Trigger, event_triggers};

use crate::Matches;

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
    Event(usize),
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
    event: Option<usize>,
    limiter: RateLimiter,
    threshold: Threshold,
}

/// Triggers of a recording, with what was observed for them.
#[derive(Debug)]
pub struct Observations {
    list: Vec<Observed>,
    /// Counts, if a trigger asks for them, and the last ones that were looked at.
    counts: Option<Arc<Counts>>,
    last: Option<Count>,
    lost: u64,
    /// End of the command, until it is followed.
    command_end: Option<ExitStatus>,
}

impl Observations {
    /// Nothing was observed for these triggers.
    pub fn new(triggers: &[Trigger]) -> Self {
        let counts = Counts::for_conditions(triggers.iter().map(|trigger| &trigger.condition));
        let number_of =
            |trigger: &Trigger| event_triggers(triggers).position(|(event, _)| std::ptr::eq(event, trigger));
        let observed = |trigger: &Trigger| Observed {
            trigger: trigger.clone(),
            event: number_of(trigger),
            limiter: RateLimiter::default(),
            threshold: Threshold::default(),
        };
        let list = triggers.iter().map(observed).collect();
        Self { list, counts: counts.map(Arc::new), last: None, lost: 0, command_end: None }
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
        self.list.iter().any(|observed| observed.event.is_some())
    }

    /// Time of the next look at counts, if a trigger asks for them.
    pub fn next_look(&self, now: Instant) -> Option<Instant> {
        self.counts.as_ref().map(|_| now + COUNT_INTERVAL)
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
        Observations::new(&triggers)
    }

    #[test]
    fn matches_fire_their_own_trigger_and_each_is_counted() {
        let mut all =
            observations(&["event:a:b -> notify", "loss -> notify", "event:a:b -> notify limit 1/1h"]);
        assert!(all.has_events() && all.has(&Condition::Loss));
        let now = Instant::now();
        let matched =
            |trigger, count| Occurrence::of_matches(Matches { trigger, count, captures: Vec::new() });
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
