//! Any number of threads collects the same results as one, and losses at the same positions.

use super::EventCollector;
use crate::test_traces::{Anomaly, Folder, plain, stream};
use crate::{Event, Loss, Selection};

/// All events and losses in order.
#[derive(Default)]
struct Notes {
    lines: Vec<String>,
    size: usize,
}

impl Notes {
    fn add(&mut self, line: String) {
        self.size += line.len() + super::RESULT_BYTES / 300;
        self.lines.push(line);
    }
}

impl EventCollector for Notes {
    type Output = Vec<String>;

    fn loss(&mut self, loss: &Loss) {
        self.add(format!("{loss:?}"));
    }

    fn event(&mut self, event: &Event<'_>) {
        let number = event.payload().get("n").and_then(|number| number.as_integer());
        self.add(format!("{} {:?} {number:?} of {}", event.name(), event.timestamp(), event.source()));
    }

    fn size(&self) -> usize {
        self.size
    }

    fn take(&mut self) -> Vec<String> {
        self.size = 0;
        std::mem::take(&mut self.lines)
    }
}

fn found(folder: &Folder, threads: usize) -> (Vec<String>, String) {
    let mut traces = folder.opened(&Selection::default());
    let mut all = Vec::new();
    traces.collect_with(threads, &Notes::default, &mut |mut notes| {
        all.append(&mut notes);
        true
    });
    assert!(traces.next_event().is_none());
    let timestamp_regressions: Vec<_> = traces.timestamp_regressions().collect();
    (all, format!("{:#?}\n{:#?}\n{timestamp_regressions:#?}", traces.losses(), traces.corruptions()))
}

#[test]
fn the_order_is_that_of_one_thread() {
    for (name, anomaly) in [
        ("collect-sound", Anomaly::Nothing),
        ("collect-damage", Anomaly::Corruption),
        ("collect-back", Anomaly::Back),
        ("collect-no-end", Anomaly::NoEnd),
        ("collect-early-end", Anomaly::EarlyEnd),
    ] {
        let streams =
            [stream(1, 60, anomaly), stream(2, 90, Anomaly::Nothing), stream(3, 40, anomaly), plain(1, 500)];
        let folder = Folder::new(name, &streams);
        let (alone, findings_alone) = found(&folder, 1);
        assert!(alone.iter().any(|line| line.starts_with("Loss")) && alone.len() > 10_000, "{name}");
        for threads in [2, 3] {
            let (lines, findings) = found(&folder, threads);
            let place = alone.iter().zip(&lines).position(|(one, many)| one != many);
            assert!(
                alone == lines && findings_alone == findings,
                "{name}: {threads} threads, line {place:?}"
            );
        }
    }
}

#[test]
fn a_visitor_that_stops_gets_no_more_results() {
    let folder = Folder::new("collect-stops", &[1, 2].map(|instance| stream(instance, 80, Anomaly::Nothing)));
    for threads in [1, 3] {
        let mut calls = 0;
        folder.opened(&Selection::default()).collect_with(threads, &Notes::default, &mut |_| {
            calls += 1;
            calls < 3
        });
        assert_eq!(calls, 3, "{threads} threads");
    }
}
