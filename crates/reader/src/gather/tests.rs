//! Any number of threads finds what one finds, losses among events where one finds them.

use super::Gather;
use crate::odd::{Folder, Odd, plain, stream};
use crate::{Event, Loss, Selection};

/// Everything, as it comes.
#[derive(Default)]
struct Notes {
    lines: Vec<String>,
    size: usize,
}

impl Notes {
    fn add(&mut self, line: String) {
        self.size += line.len() + super::PIECE / 300;
        self.lines.push(line);
    }
}

impl Gather for Notes {
    type Found = Vec<String>;

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
    traces.gather_with(threads, &Notes::default, &mut |mut notes| {
        all.append(&mut notes);
        true
    });
    assert!(traces.next_event().is_none());
    let disorders: Vec<_> = traces.disorders().collect();
    (all, format!("{:#?}\n{:#?}\n{disorders:#?}", traces.losses(), traces.damages()))
}

#[test]
fn the_order_is_that_of_one_thread() {
    for (name, odd) in [
        ("gather-sound", Odd::Nothing),
        ("gather-damage", Odd::Damage),
        ("gather-back", Odd::Back),
        ("gather-no-end", Odd::NoEnd),
        ("gather-early-end", Odd::EarlyEnd),
    ] {
        let streams = [stream(1, 60, odd), stream(2, 90, Odd::Nothing), stream(3, 40, odd), plain(1, 500)];
        let folder = Folder::new(name, &streams);
        let (alone, told_alone) = found(&folder, 1);
        assert!(alone.iter().any(|line| line.starts_with("Loss")) && alone.len() > 10_000, "{name}");
        for threads in [2, 3] {
            let (lines, told) = found(&folder, threads);
            let place = alone.iter().zip(&lines).position(|(one, many)| one != many);
            assert!(alone == lines && told_alone == told, "{name}: {threads} threads, line {place:?}");
        }
    }
}

#[test]
fn whoever_has_enough_gets_no_more() {
    let folder = Folder::new("gather-stops", &[1, 2].map(|instance| stream(instance, 80, Odd::Nothing)));
    for threads in [1, 3] {
        let mut calls = 0;
        folder.opened(&Selection::default()).gather_with(threads, &Notes::default, &mut |_| {
            calls += 1;
            calls < 3
        });
        assert_eq!(calls, 3, "{threads} threads");
    }
}
