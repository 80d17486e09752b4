//! Any number of threads finds what one finds: in sound streams and odd ones, and in one large stream.

use super::summarize_with;
use crate::Selection;
use crate::odd::{Folder, Odd, plain, stream};

fn check(name: &str, streams: &[Vec<u8>]) {
    let folder = Folder::new(name, streams);
    let found = |threads| {
        let mut traces = folder.opened(&Selection::default());
        let summary = summarize_with(&mut traces, threads);
        let disorders: Vec<_> = traces.disorders().cloned().collect();
        (format!("{summary:#?}\n{:#?}\n{disorders:#?}", traces.losses()), summary.events)
    };
    let (one, events) = found(1);
    let mut traces = folder.opened(&Selection::default());
    assert_eq!(std::iter::from_fn(|| traces.next_event().map(drop)).count() as u64, events, "{name}");
    for threads in [2, 3] {
        let (many, _) = found(threads);
        let place = one.lines().zip(many.lines()).find(|(one, many)| one != many);
        assert!(one == many, "{name}: {threads} threads, {place:?}");
    }
}

#[test]
fn sound_streams() {
    check("stat-one", &[stream(1, 400, Odd::Nothing)]);
    check("stat-three", &[1, 2, 3].map(|instance| stream(instance, 60 * instance, Odd::Nothing)));
    check("stat-plain", &[stream(1, 90, Odd::Nothing), stream(2, 9, Odd::Nothing), plain(1, 3000)]);
    // Two stream classes in one file.
    check("stat-two-classes", &[[stream(1, 40, Odd::Nothing), plain(1, 300)].concat()]);
}

#[test]
fn odd_streams() {
    for (name, odd) in [
        ("stat-damage", Odd::Damage),
        ("stat-all-damaged", Odd::AllDamaged),
        ("stat-back", Odd::Back),
        ("stat-no-end", Odd::NoEnd),
        ("stat-early-end", Odd::EarlyEnd),
        ("stat-still", Odd::Still),
    ] {
        check(name, &[stream(1, 200, odd), stream(2, 60, Odd::Nothing), stream(3, 40, odd)]);
    }
    // What is far away has nothing to do with what is there.
    let mut bytes = stream(1, 100, Odd::Nothing);
    bytes.extend(stream(1, 100, Odd::Back));
    check("stat-again", &[bytes]);
}

#[test]
fn too_much_damage() {
    check("stat-given-up", &[stream(1, 1100, Odd::AllDamaged), stream(2, 60, Odd::Nothing)]);
}

#[test]
fn cut_and_empty_files() {
    let whole = stream(1, 150, Odd::Nothing);
    let cut = whole[..whole.len() * 3 / 5].to_vec();
    let lost = [&whole[..whole.len() / 3], &whole[whole.len() / 2..]].concat();
    check("stat-cut", &[cut, stream(2, 50, Odd::Nothing), Vec::new(), vec![0; 300], lost]);
}
