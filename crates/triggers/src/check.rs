//! Checks of a recording's triggers together.

use crate::{Action, Condition, MAX_EVENT_TRIGGERS, Trigger};

/// Maximum number of triggers of a recording.
const MAX_TRIGGERS: usize = 256;

/// Abilities of a recording that triggers need.
#[derive(Clone, Copy, Debug, Default)]
pub struct Abilities {
    /// It is a flight recorder.
    pub is_flight_recorder: bool,
    /// It is in chunks.
    pub is_in_chunks: bool,
    /// It is by a grant without commands.
    pub refuses_commands: bool,
}

/// Returns the reason why triggers can't do what they should, with the trigger if it is one's
/// alone.
pub fn obstacle(triggers: &[Trigger], abilities: Abilities) -> Option<(Option<&Trigger>, String)> {
    let Abilities { is_flight_recorder, is_in_chunks, refuses_commands } = abilities;
    let is_on_event = |trigger: &&Trigger| matches!(trigger.condition, Condition::Event(_));
    if triggers.iter().filter(is_on_event).count() > MAX_EVENT_TRIGGERS {
        return Some((None, format!("expected at most {MAX_EVENT_TRIGGERS} triggers on events")));
    }
    if triggers.len() > MAX_TRIGGERS {
        return Some((None, format!("expected at most {MAX_TRIGGERS} triggers")));
    }
    let mut each = triggers.iter();
    each.find_map(|trigger| {
        let wants = |action: Action| trigger.actions.contains(&action);
        let need = match trigger {
            _ if wants(Action::Snapshot) && !is_flight_recorder => "needs --mode overwrite",
            _ if matches!(trigger.condition, Condition::Fill(_)) && is_flight_recorder => {
                "needs --mode discard: the rings of a flight recorder become full by design"
            }
            _ if wants(Action::Rotate) && !is_in_chunks => "needs --rotate manual, or a time or size",
            _ if refuses_commands && trigger.runs_command() => "needs commands = true in the grant",
            _ => return None,
        };
        Some((Some(trigger), format!("`{}` {need}", trigger.text)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_need_recordings_that_can_do_what_they_want() {
        let flight = Abilities { is_flight_recorder: true, ..Abilities::default() };
        let chunks = Abilities { is_in_chunks: true, ..Abilities::default() };
        let granted = Abilities { refuses_commands: true, ..Abilities::default() };
        let problem = |text: &str, abilities| {
            let triggers = [text.parse().expect(text)];
            obstacle(&triggers, abilities).map(|(trigger, problem)| {
                assert!(trigger.is_some_and(|trigger| trigger.text == text));
                problem
            })
        };
        for (text, able, unable, need) in [
            ("killed -> snapshot", flight, chunks, "--mode overwrite"),
            ("fill:90% -> notify", chunks, flight, "--mode discard"),
            ("loss -> rotate", chunks, flight, "--rotate manual"),
            ("loss -> notify, run /bin/true", chunks, granted, "commands = true"),
        ] {
            assert_eq!(problem(text, able), None);
            assert!(problem(text, unable).is_some_and(|problem| problem.contains(need)), "{text}");
        }
        let many = vec!["event:a:b -> notify".parse().expect("a trigger"); MAX_EVENT_TRIGGERS + 1];
        assert!(
            obstacle(&many, flight)
                .is_some_and(|(trigger, problem)| trigger.is_none() && problem.contains("16"))
        );
        let many = vec!["killed -> notify".parse().expect("a trigger"); MAX_TRIGGERS + 1];
        assert!(obstacle(&many, flight).is_some());
    }
}
