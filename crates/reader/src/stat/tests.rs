//! Any number of threads counts the same as one: in intact and corrupt streams, and in one large
//! stream.

use super::summarize_with;
use crate::Selection;
use crate::test_traces::{Anomaly, Folder, plain, stream};

fn check(name: &str, streams: &[Vec<u8>]) {
    let folder = Folder::new(name, streams);
    let found = |threads| {
        let mut traces = folder.opened(&Selection::default());
        let summary = summarize_with(&mut traces, threads);
        let timestamp_regressions: Vec<_> = traces.timestamp_regressions().cloned().collect();
        (format!("{summary:#?}\n{:#?}\n{timestamp_regressions:#?}", traces.losses()), summary.events)
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
fn intact_streams() {
    check("stat-one", &[stream(1, 400, Anomaly::Nothing)]);
    check("stat-three", &[1, 2, 3].map(|instance| stream(instance, 60 * instance, Anomaly::Nothing)));
    check("stat-plain", &[stream(1, 90, Anomaly::Nothing), stream(2, 9, Anomaly::Nothing), plain(1, 3000)]);
    // Two stream classes in one file.
    check("stat-two-classes", &[[stream(1, 40, Anomaly::Nothing), plain(1, 300)].concat()]);
}

#[test]
fn streams_with_anomalies() {
    for (name, anomaly) in [
        ("stat-damage", Anomaly::Corruption),
        ("stat-all-damaged", Anomaly::AllCorrupt),
        ("stat-back", Anomaly::Back),
        ("stat-no-end", Anomaly::NoEnd),
        ("stat-early-end", Anomaly::EarlyEnd),
        ("stat-still", Anomaly::Still),
    ] {
        check(name, &[stream(1, 200, anomaly), stream(2, 60, Anomaly::Nothing), stream(3, 40, anomaly)]);
    }
    // A regression in a later part must not affect an earlier one.
    let mut bytes = stream(1, 100, Anomaly::Nothing);
    bytes.extend(stream(1, 100, Anomaly::Back));
    check("stat-again", &[bytes]);
}

#[test]
fn too_much_corruption() {
    check("stat-given-up", &[stream(1, 1100, Anomaly::AllCorrupt), stream(2, 60, Anomaly::Nothing)]);
}

#[test]
fn cut_and_empty_files() {
    let whole = stream(1, 150, Anomaly::Nothing);
    let cut = whole[..whole.len() * 3 / 5].to_vec();
    let lost = [&whole[..whole.len() / 3], &whole[whole.len() / 2..]].concat();
    check("stat-cut", &[cut, stream(2, 50, Anomaly::Nothing), Vec::new(), vec![0; 300], lost]);
}
