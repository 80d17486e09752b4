//! Events that the tests record: every type, spans of all kinds, and how little it takes.
//!
//!     everything fields | spans | optional | levels | threads | steady | late | absent
#![forbid(unsafe_code)]

use std::{
    future::Future,
    io::Read,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use tracing::{Level, Span, debug, error, event, field, info, info_span, instrument, trace, warn};
use tracing_subscriber::{layer::SubscriberExt, registry};

fn fields() {
    info!(a = i64::MIN, b = u64::MAX, c = -1.5, d = true, e = "text", f = ?Some(1), g = %'x', "a message");
    info!(name: "named", target: "other::place", a = 1_u8, a.b = 2_i16, r#type = 3.5_f32, "dotted name" = 4);
    let error = "no".parse::<u8>().expect_err("no number");
    let error: &(dyn std::error::Error + 'static) = &error;
    info!(name: "wide", wide = u128::MAX, low = i128::MIN, error, bytes = &[1_u8, 2][..]);
    info!(name: "formatted", "{} and {:?}", 1, "two");
    info!(name: "\"quoted\" \\ {braces}\n", target: "a:b", x = 1, "odd \"field\"" = 2);
    generic(1_u8);
    generic("one");
    generic(2_u8);
}

fn generic<T: tracing::Value>(value: T) {
    info!(name: "generic", value);
}

fn optional() {
    for rows in [None, Some(1_u64), None, Some(200)] {
        info!(name: "optional", rows);
    }
}

fn levels() {
    error!(name: "error", "1");
    warn!(name: "warn", "2");
    info!(name: "info", "3");
    debug!(name: "debug", "4");
    trace!(name: "trace", "5");
    event!(Level::TRACE, last = true);
}

#[instrument(fields(rows = field::Empty))]
fn query(table: &str) -> u64 {
    let _inner = info_span!("plan").entered();
    Span::current().record("cost", 1);
    table.len() as u64
}

fn spans() {
    let span = info_span!("transaction", number = 7, rows = field::Empty, ok = field::Empty);
    span.in_scope(|| info!(name: "inside", rows = query("orders")));
    span.record("rows", 6);
    thread::spawn({
        let span = span.clone();
        move || span.in_scope(|| info!(name: "elsewhere", "another thread"))
    })
    .join()
    .expect("a thread that ends");
    span.record("ok", true).record("rows", 8);
    drop(span.entered());
    let mut future = pin!(twice());
    let mut context = Context::from_waker(Waker::noop());
    while future.as_mut().poll(&mut context).is_pending() {}
}

#[instrument]
async fn twice() {
    struct Once(bool);
    impl Future for Once {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
        }
    }
    Once(false).await;
}

/// Threads that come to the same places at once, each first at another one.
fn threads() {
    let kinds: [fn(u64, u64); 3] = [
        |thread, number| info!(name: "numbered", thread, number),
        |thread, number| generic_pair(thread, number),
        |thread, number| generic_pair(thread, number as f64),
    ];
    let work = move |thread: u64| {
        for number in 0..1000 {
            let _span = info_span!("round", thread, number).entered();
            kinds[((thread + number) % 3) as usize](thread, number);
        }
    };
    let threads: Vec<_> = (0..4).map(|thread| thread::spawn(move || work(thread))).collect();
    for thread in threads {
        thread.join().expect("a thread that ends");
    }
}

fn generic_pair<T: tracing::Value>(thread: u64, number: T) {
    info!(name: "numbered", thread, number);
}

/// The same a hundred times: no allocation after the first time.
fn steady() {
    for number in 0..100_u64 {
        let _span = info_span!("round").entered();
        info!(name: "work", number, ratio = 0.5, table = "orders", state = ?Level::INFO, "round {number}");
        if number == 1 || number == 99 {
            tompion::event!("steady", "mark", number);
        }
    }
}

/// Events until standard input ends, so that a recording can come later.
fn late() {
    let input = thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    println!("ready");
    let mut number = 0_u64;
    while !input.is_finished() {
        let _span = info_span!("round", number).entered();
        info!(name: "tick", number);
        number += 1;
        thread::sleep(Duration::from_millis(1));
    }
}

/// Values that are computed where no session records.
fn absent() {
    let mut computed = 0;
    let mut compute = || {
        computed += 1;
        computed
    };
    for _ in 0..3 {
        info!(value = compute());
    }
    println!("computed {computed}, enabled {}", tracing::enabled!(Level::ERROR));
}

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    if mode == "late" {
        assert!(tompion::load(), "the library is here");
    }
    let subscriber = registry().with(tompion_tracing::layer());
    tracing::subscriber::set_global_default(subscriber).expect("the first one");
    match mode.as_str() {
        "fields" => fields(),
        "spans" => spans(),
        "optional" => optional(),
        "levels" => levels(),
        "threads" => threads(),
        "steady" => steady(),
        "late" => late(),
        "absent" => absent(),
        other => panic!("{other}?"),
    }
}
