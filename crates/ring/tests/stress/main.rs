//! Given many threads on few CPUs, storms of signals whose handlers append, threads that are moved
//! about, and rings of two pages, when they append as fast as they can, then each record is found
//! whole and once, or is counted.
//!
//! A few million records in normal tests, a thousand million in all with `TOMPION_FULL=1`. They are
//! checked while they are written, by the production reader.

#[path = "../support/mod.rs"]
mod support;

mod checker;
mod record;
mod writers;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use tompion_layout::{
    record::{SubbufferHeader, WriteProtocol},
    ring::{DATA, EVENTS, WRITE},
};
use tompion_ring::producer::{Event, Outcome};

use checker::Checker;
use record::Append;
use support::Bench;
use writers::{Source, Writer};

/// One way to make life hard.
struct Weather {
    form: WriteProtocol,
    overwrite: bool,
    subbuf_size: u64,
    subbufs: u64,
    threads: u16,
    /// Microseconds from signal to signal of each thread; 0 for none.
    storm_us: u32,
    /// Minimum number of records to write; in the long form in millions.
    records: u64,
}

impl Weather {
    fn target(&self) -> u64 {
        if tompion_testing::is_full() { self.records * 1_000_000 } else { self.records * 10_000 }
    }

    /// Writes and reads until the target is reached, or the reader found something wrong.
    fn endure(&self, append: Append) -> Result<(), String> {
        let bench = Bench::of(self.form, self.subbuf_size, self.subbufs, self.overwrite, 1);
        let writers: Vec<_> = (0..self.threads).map(|index| Writer::new(index, &bench, append)).collect();
        let sources: Vec<&Source> =
            writers.iter().flat_map(|writer| [&writer.thread, &writer.handler]).collect();
        let mut checker = Checker::new(&bench, self.overwrite, sources.len());
        let (stop, rest, mut rounds) = (AtomicBool::new(false), AtomicBool::new(false), 0u64);
        let begin = Instant::now();
        writers::prepare_storms();
        let (result, moves) = thread::scope(|scope| {
            let threads: Vec<_> =
                writers.iter().map(|writer| scope.spawn(|| writer.run(&stop, self.storm_us))).collect();
            let migrator = scope.spawn(|| writers::migrate(&writers, &rest));
            let mut result = Ok(());
            while result.is_ok() && checker.written() < self.target() {
                rounds += 1;
                match checker.read() {
                    Ok(0) => thread::yield_now(),
                    Ok(_) => (),
                    Err(wrong) => result = Err(wrong),
                }
            }
            // Ordering: hints.
            stop.store(true, Ordering::Relaxed);
            let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            rest.store(true, Ordering::Relaxed);
            assert!(ends.iter().all(Result::is_ok), "a writer fell");
            (result, migrator.join().expect("the migrator"))
        });
        result.and_then(|()| checker.close(&sources))?;
        let handled: u64 = writers.iter().map(|writer| writer.handler.written()).sum();
        println!(
            "{} records by {} threads, {handled} of them in handlers; {} lost; {} found in {rounds} rounds, {} looked \
             at; {moves} moves; {:.1} s",
            checker.written(),
            self.threads,
            bench.lost(),
            checker.found,
            checker.looked_at,
            begin.elapsed().as_secs_f64()
        );
        Ok(())
    }
}

/// Runs a test's thread through disturbances, in turn: the tests themselves would disturb each
/// other.
fn endure(weathers: &[Weather]) {
    for weather in weathers {
        weather.endure(record::as_recorded).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

const DISCARD: [Weather; 3] = [
    Weather {
        form: WriteProtocol::Rseq,
        overwrite: false,
        subbuf_size: 4096,
        subbufs: 2,
        threads: 16,
        storm_us: 100,
        records: 100,
    },
    Weather {
        form: WriteProtocol::Rseq,
        overwrite: false,
        subbuf_size: 4096,
        subbufs: 2,
        threads: 3,
        storm_us: 20,
        records: 40,
    },
    Weather {
        form: WriteProtocol::Rseq,
        overwrite: false,
        subbuf_size: 16384,
        subbufs: 4,
        threads: 24,
        storm_us: 0,
        records: 360,
    },
];

const OVERWRITE: [Weather; 3] = [
    Weather {
        form: WriteProtocol::Rseq,
        overwrite: true,
        subbuf_size: 4096,
        subbufs: 2,
        threads: 16,
        storm_us: 100,
        records: 200,
    },
    Weather {
        form: WriteProtocol::Rseq,
        overwrite: true,
        subbuf_size: 4096,
        subbufs: 2,
        threads: 3,
        storm_us: 20,
        records: 50,
    },
    Weather {
        form: WriteProtocol::Rseq,
        overwrite: true,
        subbuf_size: 4096,
        subbufs: 4,
        threads: 24,
        storm_us: 0,
        records: 250,
    },
];

/// Returns the conditions with fewer records, without restartable sequences.
fn in_reserve_form(weathers: [Weather; 3]) -> [Weather; 3] {
    weathers.map(|weather| Weather {
        form: WriteProtocol::ReserveCommit,
        records: weather.records / 4,
        ..weather
    })
}

#[test]
fn every_record_is_read_once_or_counted_as_lost() {
    endure(&DISCARD);
}

#[test]
fn every_copy_of_the_history_is_whole_and_says_how_much_is_overwritten() {
    endure(&OVERWRITE);
}

#[test]
fn without_sections_every_record_is_read_once_or_counted_as_lost() {
    endure(&in_reserve_form(DISCARD));
}

#[test]
fn without_sections_every_copy_of_the_history_is_whole() {
    endure(&in_reserve_form(OVERWRITE));
}

/// Appends as a section does, except that it is never restarted.
fn without_a_section(bench: &Bench, event: &Event<'_>) -> Outcome {
    let ring = tompion_os::current_cpu() as usize * bench.geometry.cpu_stride() as usize;
    let word = |offset| bench.rings.word(ring + offset);
    // Ordering: wrong as all of it.
    let (write, events) = (word(WRITE).load(Ordering::Relaxed), word(EVENTS).load(Ordering::Relaxed));
    let len = (tompion_layout::record::HEADER + event.image_len) as u64;
    let inside = write % bench.geometry.subbuf_size();
    let fits = inside >= SubbufferHeader::LEN as u64 && inside + len <= bench.geometry.subbuf_size();
    if !event.tails.is_empty() || !fits {
        return record::as_recorded(bench, event);
    }
    let head = tompion_layout::record::Head { id: event.id, words: (len / 8) as u16, tid: event.tid };
    // SAFETY: the image is that many bytes.
    let image = unsafe { std::slice::from_raw_parts(event.image, event.image_len) };
    let place = ring + DATA + bench.geometry.place(write);
    bench.rings.copy_in(place, &head.to_word().to_le_bytes());
    bench.rings.copy_in(place + 16, image);
    bench.rings.copy_in(place + 8, &tompion_os::tsc().to_le_bytes());
    word(EVENTS).store(events + 1, Ordering::Relaxed);
    word(WRITE).store(write + len, Ordering::Release);
    Outcome::Written
}

#[test]
fn an_append_without_a_section_is_found_out() {
    for weather in [&DISCARD[1], &OVERWRITE[1]] {
        let wrong = weather.endure(without_a_section).expect_err("nothing restarts it");
        println!("found out: {}", &wrong[..wrong.len().min(200)]);
    }
}
