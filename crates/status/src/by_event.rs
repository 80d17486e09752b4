//! Rates of a recording's events by name, between two looks.

use std::{
    collections::BTreeMap,
    fmt::Write,
    time::{Duration, Instant},
};

use serde::Serialize;
use tompion_control::{ControlError, EventCounts, Recording};
use tompion_terminal::{
    messages::{escape_control, pluralize, with_thousands},
    screen::{BOLD, DIM, END, YELLOW, fit},
};

/// Width of the column of names.
const NAME: usize = 48;

/// Counts of all recordings at one time.
#[derive(Debug)]
pub struct EventLook {
    recordings: Vec<Answer>,
    silent: Vec<String>,
}

/// Counts of a recording.
#[derive(Clone, Debug)]
struct Answer {
    at: Instant,
    name: String,
    counts: EventCounts,
}

/// Rates of events between two looks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventTable {
    /// Recordings, in the order in which they were found.
    pub recordings: Vec<RecordingEvents>,
    /// Recorders that did not answer, one line each.
    pub silent: Vec<String>,
}

/// Events of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordingEvents {
    /// Its name.
    pub name: String,
    /// Whether events are counted as they come. Those of a flight recorder are when they are saved,
    /// so that its rates are unknown.
    pub is_live: bool,
    /// Whether kernel events are recorded, too. They are in no number here.
    pub kernel: bool,
    /// Events, those with the highest rate first.
    pub events: Vec<EventRate>,
    /// Events of names without room, since the begin.
    pub other: u64,
}

/// Events of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventRate {
    /// `provider:name`.
    pub event: String,
    /// Events per second; none if unknown.
    pub per_s: Option<f64>,
    /// Events since the begin of the recording, or of its recorder, if that has come back.
    pub events: u64,
}

impl EventLook {
    /// Asks the recorders of these recordings. One that has ended meanwhile is left out.
    pub fn at(recordings: impl IntoIterator<Item = Recording>) -> Self {
        let mut look = Self { recordings: Vec::new(), silent: Vec::new() };
        for recording in recordings {
            match recording.event_counts() {
                Ok(counts) => look.recordings.push(Answer {
                    at: Instant::now(),
                    name: recording.name().to_owned(),
                    counts,
                }),
                Err(ControlError::NotFound(_) | ControlError::Ending(_)) => {}
                Err(error) => look.silent.push(error.to_string()),
            }
        }
        look
    }
}

impl EventTable {
    /// Compares two looks.
    pub fn between(before: &EventLook, after: &EventLook) -> Self {
        let compare = |found: &Answer| {
            let before = before.recordings.iter().find(|it| it.name == found.name);
            compare(before, found)
        };
        let recordings = after.recordings.iter().map(compare).collect();
        Self { recordings, silent: after.silent.clone() }
    }

    /// Returns as much of the table as a terminal of these columns and rows has room for.
    pub fn frame(&self, size: (u16, u16)) -> String {
        fit(&self.text(), size)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if self.recordings.is_empty() {
            text += "no recording of this user is running\n";
        } else {
            // Writing to a string does not fail, here and below.
            let _ = writeln!(
                text,
                "{DIM}{:<NAME$} {:>11} {:>14}{END}",
                "recording, events", "events/s", "events"
            );
        }
        for recording in &self.recordings {
            recording.write(&mut text);
        }
        for line in &self.silent {
            let _ = writeln!(text, "{YELLOW}{}{END}", escape_control(line));
        }
        text
    }
}

impl RecordingEvents {
    fn write(&self, text: &mut String) {
        let _ = writeln!(text, "{BOLD}{}{END}", escape_control(&self.name));
        for EventRate { event, per_s, events } in &self.events {
            let rate = per_s.map_or_else(|| "unknown".into(), |rate| with_thousands(rate.round() as u64));
            let (event, total) = (escape_control(event), with_thousands(*events));
            let _ = writeln!(text, "  {event:<width$} {rate:>11} {total:>14}", width = NAME - 2);
        }
        let mut remarks = Vec::new();
        if !self.is_live {
            remarks.push("a flight recorder's events are counted when they are saved".to_owned());
        }
        if self.other != 0 {
            remarks.push(format!("{} of other names", pluralize(self.other, "event")));
        }
        if self.kernel {
            remarks.push("the kernel's events are in no number".into());
        }
        if !remarks.is_empty() {
            let _ = writeln!(text, "{DIM}  {}{END}", remarks.join("; "));
        }
    }
}

/// A recording that was not there at the first look has no rates yet.
fn compare(before: Option<&Answer>, after: &Answer) -> RecordingEvents {
    let counts = &after.counts;
    let seconds = before.map(|before| after.at.saturating_duration_since(before.at)).unwrap_or_default();
    let earlier: BTreeMap<&str, u64> = before
        .iter()
        .flat_map(|before| before.counts.events.iter().map(|count| (count.event.as_str(), count.events)))
        .collect();
    let is_known = counts.is_live && seconds > Duration::ZERO;
    let rate = |event: &str, events: u64| {
        let new = events.saturating_sub(earlier.get(event).copied().unwrap_or(0));
        is_known.then(|| new as f64 / seconds.as_secs_f64())
    };
    let counted = counts.events.iter().map(|count| EventRate {
        event: count.event.clone(),
        per_s: rate(&count.event, count.events),
        events: count.events,
    });
    let mut events: Vec<EventRate> = counted.collect();
    events.sort_by(|one, other| {
        let rate = |it: &EventRate| it.per_s.unwrap_or(0.0);
        rate(other).total_cmp(&rate(one)).then_with(|| other.events.cmp(&one.events))
    });
    RecordingEvents {
        name: after.name.clone(),
        is_live: counts.is_live,
        kernel: counts.kernel,
        events,
        other: counts.other,
    }
}

#[cfg(test)]
mod tests {
    use tompion_control::EventCount;
    use tompion_terminal::screen::plain;

    use super::*;

    fn look(at: Instant, is_live: bool, events: &[(&str, u64)]) -> EventLook {
        let count = |(event, events): &(&str, u64)| EventCount { event: (*event).into(), events: *events };
        let events = events.iter().map(count).collect();
        let counts = EventCounts { is_live, kernel: true, events, other: 5 };
        EventLook { recordings: vec![Answer { at, name: "web".into(), counts }], silent: Vec::new() }
    }

    #[test]
    fn rates_are_those_of_the_interval_and_the_highest_is_first() {
        let begin = Instant::now();
        let before = look(begin, true, &[("a:old", 1000), ("a:some", 10)]);
        let after =
            look(begin + Duration::from_secs(2), true, &[("a:old", 1000), ("a:some", 30), ("b:new", 4000)]);
        let table = EventTable::between(&before, &after);
        let shown = plain(&table.frame((100, 30)));
        let expected = "\
recording, events                                   events/s         events
web
  b:new                                                2,000          4,000
  a:some                                                  10             30
  a:old                                                    0          1,000
  5 events of other names; the kernel's events are in no number";
        assert_eq!(shown, expected, "\n{shown}");
    }

    #[test]
    fn rates_that_can_not_be_known_are_not_made_up() {
        let begin = Instant::now();
        let end = begin + Duration::from_secs(1);
        let saved = look(end, false, &[("a:b", 7)]);
        let table = EventTable::between(&look(begin, false, &[("a:b", 3)]), &saved);
        assert_eq!(table.recordings[0].events[0].per_s, None);
        let shown = plain(&table.frame((100, 30)));
        assert!(shown.contains("unknown") && shown.contains("counted when they are saved"), "{shown}");
        let empty = EventLook { recordings: Vec::new(), silent: vec!["web does not answer".into()] };
        let first = EventTable::between(&empty, &look(end, true, &[("a:b", 7)]));
        assert_eq!(first.recordings[0].events[0].per_s, None, "seen once");
        assert!(EventTable::between(&empty, &empty).frame((80, 9)).contains("no recording"));
    }
}
