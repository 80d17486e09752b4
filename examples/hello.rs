//! A database that isn't one: queries that take a while, some of them too long.
//!
//!     cargo build --release --package tompion --example hello
//!     tompion record -e 'db:*' -- target/release/examples/hello 100
//!     tompion print
#![forbid(unsafe_code)]

use std::{thread, time::Duration};

use tompion::{counter, event, flow, job, span};

#[derive(Clone, Copy)]
enum Outcome {
    Done,
    Empty,
}
tompion::enumeration!(for Outcome: u8 { Done, Empty });

/// Returns the number of rows.
fn query(number: u64, table: &str) -> u64 {
    let _span = span!("db", "query", number, table);
    let (rows, us) = (number * 31 % 100, number * 7919 % 1000);
    thread::sleep(Duration::from_micros(us));
    let outcome = if rows == 0 { Outcome::Empty } else { Outcome::Done };
    event!("db", "query_done", rows, table, outcome);
    if us > 900 {
        event!(level: Warning, "db", "slow_query", table, us);
    }
    rows
}

fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(10);
    let mut rows = 0;
    for number in 0..count {
        let _cycle = job!("db", "cycle", deadline: Duration::from_millis(2), number);
        flow!("db", "request", number);
        rows += query(number, ["orders", "customers", "parts"][number as usize % 3]);
        counter!("db", "rows", rows);
    }
    println!("{rows} rows in {count} queries");
}
