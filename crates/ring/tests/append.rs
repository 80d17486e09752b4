//! Given a ring in a memory file, when events are appended by either producer, then a reader finds
//! them.
#![cfg(not(loom))]

#[path = "support/mod.rs"]
mod support;

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use tompion_layout::{control, loss::Cause, record::WriteProtocol};
use tompion_ring::{
    producer::{Outcome, Tail},
    reader::RingReader,
    records::{Records, UntrustedRecord},
};

use support::{Bench, FORMS};

/// Number and payload of every event in the bytes; panics on a refusal or on time going backwards.
fn events(bench: &Bench, bytes: &[u8], begin: u64) -> Vec<(u16, Vec<u8>)> {
    let mut last = 0;
    let mut found = Vec::new();
    for record in Records::new(bytes, begin, bench.geometry.subbuf_size()).in_form(bench.form) {
        match record.unwrap() {
            UntrustedRecord::Event { number, time, payload, .. } => {
                assert!(time >= last, "time went from {last} to {time}");
                last = time;
                found.push((number, payload.to_vec()));
            }
            UntrustedRecord::Subbuffer { time, .. } => {
                assert!(time >= last);
                last = time;
            }
            // Others are in the midst of it while a history is copied.
            UntrustedRecord::Unfinished { .. } => assert_eq!(bench.form, WriteProtocol::ReserveCommit),
        }
    }
    found
}

#[test]
fn images_and_tails_of_every_length_arrive() {
    FORMS.into_iter().for_each(images_and_tails_of_every_length_arrive_in);
}

fn images_and_tails_of_every_length_arrive_in(form: WriteProtocol) {
    let bench = Bench::of(form, 1 << 20, 4, false, 1);
    let text: Vec<u8> = (0..200u32).map(|i| i as u8).collect();
    let mut expected = Vec::new();
    for words in 0..64usize {
        let image: Vec<u64> = (0..words as u64).map(|i| i * 0x0101_0101).collect();
        for size in [0, 1, 7, 8, 9, words, 200] {
            let tails = [
                Tail { data: text.as_ptr(), size },
                Tail { data: text[size / 2..].as_ptr(), size: size / 2 },
            ];
            let tails = if size == 0 { &tails[..0] } else { &tails[..] };
            assert_eq!(bench.append(words as u16, &image, tails), Outcome::Written);
            let mut payload: Vec<u8> = image.iter().flat_map(|word| word.to_le_bytes()).collect();
            payload.extend(&text[..size]);
            payload.extend(&text[size / 2..size / 2 + size / 2]);
            expected.push((words as u16, payload));
        }
    }
    let mut found = Vec::new();
    for reader in bench.readers(0) {
        let mut bytes = Vec::new();
        let span = reader.consume(0, &mut bytes).unwrap();
        found.extend(events(&bench, &bytes, span.begin));
    }
    found.sort();
    expected.sort();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.0, expected.0);
        assert_eq!(found.1[..expected.1.len()], expected.1);
        assert!(found.1.len() - expected.1.len() < 8);
    }
}

#[test]
fn a_full_ring_discards_and_counts() {
    FORMS.into_iter().for_each(a_full_ring_discards_and_counts_in);
}

fn a_full_ring_discards_and_counts_in(form: WriteProtocol) {
    let bench = Bench::of(form, 4096, 2, false, 1);
    let outcomes: Vec<_> = (0..10_000).map(|i| bench.append(0, &[i, i], &[])).collect();
    let written = outcomes.iter().filter(|&&outcome| outcome == Outcome::Written).count();
    let full = outcomes.iter().filter(|&&outcome| outcome == Outcome::Lost(Cause::Full)).count();
    assert_eq!(written + full, 10_000);
    let readers = bench.readers(0);
    assert_eq!(readers.iter().map(|reader| reader.lost(Cause::Full)).sum::<u64>(), full as u64);
    assert_eq!(readers.iter().map(RingReader::events).sum::<u64>(), written as u64);
}

#[test]
fn an_event_too_large_is_lost_by_itself() {
    FORMS.into_iter().for_each(an_event_too_large_is_lost_by_itself_in);
}

fn an_event_too_large_is_lost_by_itself_in(form: WriteProtocol) {
    let bench = Bench::of(form, 4096, 2, false, 1);
    let large = vec![0u8; 2048 - form.header_len()];
    let tail = |size| [Tail { data: large.as_ptr(), size }];
    assert_eq!(bench.append(0, &[], &tail(large.len() + 1)), Outcome::Lost(Cause::TooLarge));
    assert_eq!(bench.append(0, &[], &tail(usize::MAX)), Outcome::Lost(Cause::TooLarge));
    assert_eq!(bench.append(0, &[], &tail(large.len())), Outcome::Written);
}

#[test]
fn the_selector_switches_buffers_at_once() {
    FORMS.into_iter().for_each(the_selector_switches_buffers_at_once_in);
}

fn the_selector_switches_buffers_at_once_in(form: WriteProtocol) {
    let bench = Bench::of(form, 4096, 2, true, 2);
    let selector = bench.control.half(control::OFFSET_SELECTOR);
    for round in 0..100 {
        selector.store(round % 2, Ordering::Relaxed);
        assert_eq!(bench.append(0, &[u64::from(round)], &[]), Outcome::Written);
    }
    for buffer in 0..2 {
        let count: u64 = bench.readers(buffer).iter().map(RingReader::events).sum();
        assert_eq!(count, 50);
    }
}

#[test]
fn a_recording_that_ended_takes_nothing() {
    FORMS.into_iter().for_each(a_recording_that_ended_takes_nothing_in);
}

fn a_recording_that_ended_takes_nothing_in(form: WriteProtocol) {
    let bench = Bench::of(form, 4096, 2, true, 1);
    bench.recording.end();
    assert_eq!(bench.append(0, &[1], &[]), Outcome::NotRecording);
}

/// A process without a background thread has no thread that ends the recording.
#[test]
fn a_recording_whose_session_has_ended_takes_nothing_once_its_subbuffer_is_full() {
    for overwrite in [false, true] {
        let bench = Bench::new(4096, 2, overwrite, 1);
        bench.control.half(control::OFFSET_ENDED).store(1, Ordering::Relaxed);
        let most = 4096 / 16 * u64::from(bench.geometry.cpus());
        let taken = (0..=most).take_while(|&i| bench.append(0, &[i], &[]) != Outcome::NotRecording).count();
        assert!((taken as u64) < most);
        assert_eq!(bench.append(0, &[1], &[]), Outcome::NotRecording);
    }
}

#[test]
fn a_history_copied_while_it_is_overwritten_is_unbroken() {
    FORMS.into_iter().for_each(a_history_copied_while_it_is_overwritten_is_unbroken_in);
}

fn a_history_copied_while_it_is_overwritten_is_unbroken_in(form: WriteProtocol) {
    let bench = Bench::of(form, 4096, 4, true, 1);
    let stop = AtomicBool::new(false);
    let copies = AtomicU64::new(0);
    thread::scope(|scope| {
        for writer in 0..3u64 {
            let (bench, stop) = (&bench, &stop);
            scope.spawn(move || {
                let mut i = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let outcome = bench.append(writer as u16, &[i, !i, i ^ writer], &[]);
                    // Another thread may have been preempted in the midst of an append, a lap ago.
                    let waits = bench.form == WriteProtocol::ReserveCommit
                        && outcome == Outcome::Lost(Cause::Unfinished);
                    assert!(waits || outcome == Outcome::Written, "{outcome:?}");
                    i += 1;
                }
            });
        }
        let mut bytes = Vec::new();
        while copies.load(Ordering::Relaxed) < 3000 {
            for reader in bench.readers(0) {
                let span = reader.copy_history(&mut bytes).unwrap();
                let mut last = [None; 3];
                for (writer, payload) in events(&bench, &bytes, span.begin) {
                    let word = |i: usize| u64::from_le_bytes(payload[i * 8..][..8].try_into().unwrap());
                    assert_eq!((word(1), word(2)), (!word(0), word(0) ^ u64::from(writer)));
                    let last = &mut last[usize::from(writer)];
                    assert!(last.is_none_or(|last| word(0) > last));
                    *last = Some(word(0));
                }
            }
            copies.fetch_add(1, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_many_threads_append_is_read_exactly_once() {
    FORMS.into_iter().for_each(what_many_threads_append_is_read_exactly_once_in);
}

fn what_many_threads_append_is_read_exactly_once_in(form: WriteProtocol) {
    const EVENTS: u64 = 200_000;
    const WRITERS: u64 = 4;
    let bench = Bench::of(form, 16 * 1024, 4, false, 1);
    let done = AtomicU64::new(0);
    let accepted = AtomicU64::new(0);
    let mut seen = vec![0u8; (EVENTS * WRITERS) as usize];
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (bench, done, accepted) = (&bench, &done, &accepted);
            scope.spawn(move || {
                for i in 0..EVENTS {
                    let key = writer * EVENTS + i;
                    if bench.append(writer as u16, &[key, !key], &[]) == Outcome::Written {
                        accepted.fetch_add(1, Ordering::Relaxed);
                    }
                }
                done.fetch_add(1, Ordering::Release);
            });
        }
        let readers = bench.readers(0);
        let mut read = vec![0; readers.len()];
        loop {
            let finished = done.load(Ordering::Acquire) == WRITERS;
            for (reader, read) in readers.iter().zip(&mut read) {
                let mut bytes = Vec::new();
                let span = reader.consume(*read, &mut bytes).unwrap();
                *read = span.end;
                for (_, payload) in events(&bench, &bytes, span.begin) {
                    let word = |i: usize| u64::from_le_bytes(payload[i * 8..][..8].try_into().unwrap());
                    assert_eq!(word(1), !word(0));
                    seen[word(0) as usize] += 1;
                }
            }
            if finished {
                break;
            }
            thread::yield_now();
        }
        let lost: u64 = readers.iter().map(|reader| reader.lost(Cause::Full)).sum();
        assert_eq!(accepted.load(Ordering::Relaxed) + lost, EVENTS * WRITERS);
    });
    assert!(seen.iter().all(|&count| count <= 1));
    assert_eq!(seen.iter().map(|&count| u64::from(count)).sum::<u64>(), accepted.load(Ordering::Relaxed));
}
