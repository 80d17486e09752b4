//! Changes of rules and triggers as text.

use tompion_control::{Process, RuleChange};
use tompion_terminal::messages::{escape_control, pluralize};

/// Maximum number of processes that are named.
const MAX_NAMED: usize = 5;

/// Says which processes follow new rules, or what has changed.
pub fn describe_change(change: &RuleChange, what: &str) -> String {
    let mut text = match (change.current, change.pending.len() + change.fixed.len()) {
        (0, 0) => "programs will follow when they start".to_owned(),
        (current, _) => format!("{} followed", pluralize(current, "process")),
    };
    for (processes, why) in [
        (&change.pending, "did not answer yet".to_owned()),
        (&change.fixed, format!("keep their {what}, having no Tompion thread, or an older one")),
    ] {
        if !processes.is_empty() {
            text += &format!("; {} {why}", names(processes));
        }
    }
    text
}

fn names(processes: &[Process]) -> String {
    let named = processes.iter().take(MAX_NAMED);
    let named = named.map(|process| format!("{} ({})", escape_control(&process.name), process.pid));
    let more = processes.len().saturating_sub(MAX_NAMED);
    let more = (more != 0).then(|| format!("{more} more"));
    named.chain(more).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use tompion_control::Following;

    use super::*;

    #[test]
    fn those_that_do_not_follow_are_named() {
        let process = |pid, rules| Process {
            pid,
            name: "db".into(),
            command_line: Vec::new(),
            events: 0,
            overwritten: 0,
            lost: Vec::new(),
            losses_unknown: false,
            rules,
            triggers: rules,
            appended: 0,
            appended_bytes: Vec::new(),
            fill_percent: 0,
            ring_bytes_in_all: 0,
            ring_bytes: 0,
        };
        let none = RuleChange { current: 0, pending: Vec::new(), fixed: Vec::new() };
        assert_eq!(describe_change(&none, "rules"), "programs will follow when they start");
        assert_eq!(
            describe_change(&RuleChange { current: 2, ..none.clone() }, "rules"),
            "2 processes followed"
        );
        let fixed = (1..=7).map(|pid| process(pid, Following::Fixed)).collect();
        let change = RuleChange { current: 1, pending: vec![process(9, Following::Pending)], fixed };
        assert_eq!(
            describe_change(&change, "rules"),
            "1 process followed; db (9) did not answer yet; db (1), db (2), db (3), db (4), db (5), 2 more keep \
             their rules, having no Tompion thread, or an older one"
        );
    }
}
