//! Values with a threshold: rates, and how full rings are.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use crate::Condition;

/// Counts of a recording's programs at one time.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Time of the count.
    pub at: Instant,
    /// Events that they have lost.
    pub lost: u64,
    /// Events that their rings have taken, by the programs' own counts.
    pub appended: u64,
    /// Largest share of a ring that waited to be written since the last count, in percent.
    pub fill_percent: u64,
}

/// The newest count, for the thread that observes it.
#[derive(Debug)]
pub struct Counts {
    newest: Mutex<Option<Count>>,
    wants_fill: bool,
}

impl Counts {
    /// Counts for triggers of these conditions; none if they need no counts.
    pub fn for_conditions<'c>(conditions: impl Iterator<Item = &'c Condition> + Clone) -> Option<Self> {
        let wants_fill = conditions.clone().any(|it| matches!(it, Condition::Fill(_)));
        let mut others = conditions.filter(|it| matches!(it, Condition::Loss | Condition::Rate(_)));
        (wants_fill || others.next().is_some()).then(|| Self { newest: Mutex::default(), wants_fill })
    }

    /// Whether a trigger asks how full rings are, which takes a look at all of them in each round.
    pub const fn wants_fill(&self) -> bool {
        self.wants_fill
    }

    /// The newest count; none before the first.
    pub fn last(&self) -> Option<Count> {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the count.
    pub fn renew(&self, count: Count) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(count);
    }
}

/// State of a trigger that watches a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threshold {
    /// Whether the value was at its threshold or above when last seen.
    is_above: bool,
}

impl Threshold {
    /// Looks at a new count; `last` is the one before. Returns the cause if the value has come to
    /// the condition's threshold. One that stays there is no cause again.
    pub fn cross(&mut self, condition: &Condition, count: Count, last: Option<Count>) -> Option<String> {
        let cause = match condition {
            Condition::Fill(percent) => (count.fill_percent >= u64::from(*percent))
                .then(|| format!("a ring was {} % full", count.fill_percent)),
            Condition::Rate(most) => last
                .and_then(|last| rate(count, last))
                .filter(|rate| *rate >= *most as f64)
                .map(|rate| format!("{rate:.0} events per second")),
            Condition::External(_)
            | Condition::Killed
            | Condition::KilledProgram(_)
            | Condition::Loss
            | Condition::Event(_) => None,
        };
        let was_above = std::mem::replace(&mut self.is_above, cause.is_some());
        cause.filter(|_| !was_above)
    }
}

/// Events per second between two counts.
fn rate(count: Count, last: Count) -> Option<f64> {
    let seconds = count.at.saturating_duration_since(last.at).as_secs_f64();
    (seconds > 0.0).then(|| count.appended.saturating_sub(last.appended) as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_conditions_that_need_them_have_counts() {
        let wants_fill = |conditions: &[Condition]| {
            Counts::for_conditions(conditions.iter()).map(|counts| counts.wants_fill())
        };
        assert_eq!(wants_fill(&[Condition::Killed, Condition::External("a".into())]), None);
        assert_eq!(wants_fill(&[Condition::Killed, Condition::Loss]), Some(false));
        assert_eq!(wants_fill(&[Condition::Rate(1)]), Some(false));
        assert_eq!(wants_fill(&[Condition::Loss, Condition::Fill(1)]), Some(true));
    }

    #[test]
    fn a_value_that_stays_at_its_threshold_is_a_cause_once() {
        let begin = Instant::now();
        let count = |halves: u32, appended, fill_percent| Count {
            at: begin + Duration::from_millis(500) * halves,
            lost: 0,
            appended,
            fill_percent,
        };
        // 100, 300, 400, 50, 200 events a second.
        let counts = [
            count(0, 1000, 0),
            count(1, 1050, 89),
            count(2, 1200, 90),
            count(3, 1400, 100),
            count(4, 1425, 10),
            count(5, 1525, 95),
        ];
        let causes = |condition: Condition| -> Vec<_> {
            let mut threshold = Threshold::default();
            let mut last = None;
            let each = counts.iter().map(|count| threshold.cross(&condition, *count, last.replace(*count)));
            each.collect()
        };
        let cause = |text: &str| Some(text.to_owned());
        assert_eq!(
            causes(Condition::Rate(200)),
            [None, None, cause("300 events per second"), None, None, cause("200 events per second")]
        );
        assert_eq!(
            causes(Condition::Fill(90)),
            [None, None, cause("a ring was 90 % full"), None, None, cause("a ring was 95 % full")]
        );
        assert_eq!(causes(Condition::Loss), vec![None; 6]);
    }
}
