//! Every type of field with the values at its edges, and every kind of event.
#![forbid(unsafe_code)]

use std::{borrow::Cow, ffi::CString, num::NonZero, path::Path, rc::Rc, sync::Arc, time::Duration};

use tompion::{counter, event, flow, hex, mark, network, text};

tompion::enumeration! {
    /// Labels of one value and of many.
    pub enum State: i32 { idle = 0, running = 1, failed = -9..=-1, r#loop = (1 << 20) }
}
tompion::enumeration! {
    enum Size: u64 { none = 0, huge = 0x8000_0000_0000_0000..=0xffff_ffff_ffff_ffff }
}

/// An enum that knows nothing of events.
#[derive(Clone, Copy)]
enum Outcome {
    Done,
    Refused = 200,
}
tompion::enumeration!(for Outcome: u8 { Done, Refused });

fn integers() {
    event!("t", "least", a = i8::MIN, b = i16::MIN, c = i32::MIN, d = i64::MIN, e = isize::MIN);
    event!("t", "most", a = i8::MAX, b = i16::MAX, c = i32::MAX, d = i64::MAX, e = isize::MAX);
    event!("t", "unsigned", a = u8::MAX, b = u16::MAX, c = u32::MAX, d = u64::MAX, e = usize::MAX);
    event!("t", "hex", a = hex(i8::MIN), b = hex(0xbeef_u16), c = hex(1_u32), d = hex(u64::MAX));
    event!(
        "t",
        "network",
        a = network(0x1234_u16.to_be()),
        b = network((-2_i32).to_be()),
        c = hex(network(0x7f00_0001_u32.to_be())),
        d = network([1_u16.to_be(), 2_u16.to_be()])
    );
    let nonzero = NonZero::new(7_u8).expect("not zero");
    let place = 0xdead_0000_usize as *const String;
    event!("t", "others", nonzero, place, yes = true, no = false, literal = 5);
}

fn floats() {
    event!("t", "floats", a = 1.5_f32, b = -0.0, c = f64::MAX, d = f64::MIN_POSITIVE, e = 0.1_f32);
}

fn texts() {
    let (owned, shared, path) = ("Käse ☕".to_owned(), Arc::<str>::from("shared"), Path::new("/tmp/x y"));
    let c_text = CString::new("from C").expect("no NUL");
    event!("t", "text", empty = "", owned, shared, path, c_text, letter = 'ß', cow = Cow::Borrowed("moo"));
    event!("t", "temporary", made = format!("{}-{}", 1, 2), quoted = "\"\\\n\t");
    event!("t", "nul", text = "before\0behind", after = 1_u8);
    event!("t", "fixed", comm = text(*b"name\0\0\0\0"), some = text(&b"bytes"[..]));
}

fn elements() {
    let (bytes, none) = (vec![0_u8, 127, 255], Vec::<u32>::new());
    event!("t", "slices", bytes, none, some = &[-1_i64, 1][..], sizes = Rc::new([1_usize, 2]).as_slice());
    event!("t", "arrays", a = [1_i8, -1], b = hex([0xff_u32]), c = &[1_u64, 2, 3], d = hex(&[1_u16, 15][..]));
}

fn structures() {
    let (x, y) = (1_u8, -2_i16);
    event!("t", "flat", before = 1_u8, point = { x, y }, after = "end");
    event!(
        "t",
        "deep",
        a = { b = { c = { name = "deep", list = &[1_u16, 2][..] }, state = State(1) }, fixed = [7_u8] },
        after = 3_u64
    );
}

fn enumerations() {
    event!("t", "states", a = State(0), b = State(-5), c = State(1 << 20), d = State(99));
    event!("t", "outcomes", a = Outcome::Done, b = Outcome::Refused, c = Size(u64::MAX), d = Size(5));
}

fn kinds() {
    counter!("t", "depth", 17_usize);
    counter!("t", "balance", -3_i8);
    counter!("t", "load", 0.25_f32);
    flow!("t", "order", 0x1_0000_u32);
    {
        let _span = tompion::span!("t", "query", table = "orders");
        let _job = tompion::job!("t", "cycle", deadline: Duration::from_millis(2), number = 1_u32);
        event!(level: Warning, "t", "inside");
    }
    tompion::begin!("t", "transaction", id = 1_u8);
    tompion::end!("t", "transaction", committed = true);
    mark!("loaded", "rows {} table {:?}, {:.1} % at {:#x}", 3_u64, "orders", 99.5, 255_u8);
    event!(init, level: Info, "t", "settings", r#type = 1_u8, fn = 2_u8);
    event!("t", "none");
}

fn large() {
    let long = "abcdefghijklmnopqrstuvwxyz".repeat(40);
    event!("t", "long", before = 7_u8, long, after = 8_u8);
}

fn main() {
    integers();
    floats();
    texts();
    elements();
    structures();
    enumerations();
    kinds();
    large();
}
