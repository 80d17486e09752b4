//! Measures the cost of evaluating a filter in nanoseconds: `cargo run --release -p tompion-filter
//! --example cost`.
//!
//! Each filter is evaluated on records that differ, so that the CPU can't predict a single answer.
//! The result is the minimum of many runs, without the cost of the loop itself.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use tompion_filter::{Contexts, EventSchema, Found, Kind, Name, Place, RecordValues, Value, compile, parse};
use tompion_schema::{Event, Field, Integer, Level, Type};

const RECORDS: usize = 64;
const ROUNDS: usize = 20_000;

const FILTERS: &[(&str, &str)] = &[
    ("one comparison, false", "rows > 1000"),
    ("two comparisons, the first false", "rows > 1000 && ms < 0.5"),
    ("two comparisons, both evaluated, false", "rows < 1000 && count == 1"),
    ("number and text with a glob, false", "rows < 1000 && table == \"invoices*\""),
    ("two comparisons, true", "rows < 1000 && table == \"orders*\""),
    ("with the thread, false", "rows < 1000 && $tid == 12"),
    ("bits and arithmetic, false", "(count & 0xf) * 2 + 1 == 0"),
    (
        "eight alternatives, false",
        "count==1||count==2||count==3||count==4||count==5||count==6||count==7||count==8",
    ),
];

struct Thread;

impl Contexts for Thread {
    fn number(&self, _context: u16) -> Value {
        77u64.into()
    }

    fn text(&self, _context: u16) -> Option<&[u8]> {
        None
    }
}

fn event() -> Event {
    let fields = vec![
        Field::new("rows", Type::Integer(Integer::unsigned(64))),
        Field::new("count", Type::Integer(Integer::signed(32))),
        Field::new("ms", Type::Float(64)),
        Field::new("table", Type::String),
    ];
    let (level, kind) = (Level::DEFAULT, Default::default());
    Event {
        provider: "db".into(),
        name: "query".into(),
        level,
        kind,
        init: false,
        format: None,
        attributes: Default::default(),
        fields,
    }
}

fn find_context(_name: &Name) -> Found<'static> {
    Found { place: Place::Context(0), kind: Kind::Integer }
}

/// Returns the time of one call in nanoseconds.
fn measure(mut call: impl FnMut(usize) -> bool) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..20 {
        let begin = Instant::now();
        for round in 0..ROUNDS {
            black_box(call(round % RECORDS));
        }
        best = best.min(begin.elapsed().as_secs_f64() * 1e9 / ROUNDS as f64);
    }
    best
}

fn main() {
    let event = event();
    let records: Vec<(Vec<u8>, Vec<u8>)> = (0..RECORDS as u64)
        .map(|index| {
            let mut fixed = (index * 7 % 900).to_le_bytes().to_vec();
            fixed.extend((100 + index as i32).to_le_bytes());
            fixed.extend((index as f64).to_le_bytes());
            fixed.extend(11u32.to_le_bytes());
            (fixed, format!("orders_{:04}", 2000 + index).into_bytes())
        })
        .collect();
    let empty = measure(|index| black_box(&records[index]).0.is_empty());
    for (what, text) in FILTERS {
        let program =
            parse(text).and_then(|filter| compile(&filter, &EventSchema::new(&event, &find_context)));
        let program = match program {
            Ok(program) => program,
            Err(error) => return eprintln!("{}", error.render()),
        };
        let cost = measure(|index| {
            let (fixed, table) = &records[index];
            let tails = [table.as_slice()];
            let record = RecordValues::new(fixed, &tails[..]).with_contexts(&Thread);
            black_box(&program).evaluate(&record).is_true()
        });
        println!("{:6.1} ns  {what}: {text}", cost - empty);
    }
}
