//! Events in all the places where a program may have them.
//!
//!     places generic | early | threads THREADS COUNT | panics | fork | plugin FILE ROUNDS
//!     places endless | dumps | contexts | snapshot | ticks | disabled

use std::{
    ffi::{c_char, c_int, c_void, CString},
    io::Read,
    panic::{catch_unwind, AssertUnwindSafe},
    sync::{
        atomic::{AtomicI64, Ordering},
        Arc, Mutex,
    },
    thread,
    time::Duration,
};

use tompion::event;

extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlclose(library: *mut c_void) -> c_int;
    fn atexit(function: extern "C" fn()) -> c_int;
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
}

const RTLD_NOW: c_int = 2;

/// Instances of generic functions, closures, traits and other crates' functions.
fn generic() {
    trait Shape {
        fn area(&self) -> f64;
        fn show(&self) {
            event!("places", "shape", area = self.area());
        }
    }
    struct Square(f64);
    struct Circle(f64);
    impl Shape for Square {
        fn area(&self) -> f64 {
            self.0 * self.0
        }
    }
    impl Shape for Circle {
        fn area(&self) -> f64 {
            3.0 * self.0 * self.0
        }
    }
    for shape in [&Square(2.0) as &dyn Shape, &Circle(1.0)] {
        shape.show();
    }
    helper::plain(1);
    helper::inlined(2);
    helper::generic(3_u8);
    helper::generic("four");
    helper::generic(&[5_i64][..]);
    let closure = |number: u16| event!("places", "closure", number);
    closure(6);
    closure(7);
    macro_rules! wrapped {
        ($name:ident = $value:expr) => {
            event!("places", "wrapped", $name = $value)
        };
    }
    wrapped!(eight = 8);
    std::future::Future::poll(
        std::pin::pin!(asynchronous()),
        &mut std::task::Context::from_waker(std::task::Waker::noop()),
    )
    .is_ready();
}

async fn asynchronous() {
    event!("places", "awaited", number = std::future::ready(9_u8).await);
}

#[used]
#[link_section = ".init_array"]
static EARLY: extern "C" fn() = early;

extern "C" fn early() {
    event!("places", "before_main");
    if std::env::args().nth(1).as_deref() == Some("endless") {
        for thread in 0..3_u8 {
            thread::spawn(move || count_up(thread));
        }
    }
}

/// Threads that are there before `main` and behind it, and how many events each recorded.
static COUNTS: [AtomicI64; 3] = [const { AtomicI64::new(0) }; 3];

fn count_up(thread: u8) {
    loop {
        let number = COUNTS[usize::from(thread)].load(Ordering::Relaxed);
        event!("places", "numbered", thread, number);
        COUNTS[usize::from(thread)].store(number + 1, Ordering::Relaxed);
        thread::sleep(Duration::from_micros(100));
    }
}

/// Ends while the threads go on, and one of its own while it ends.
fn endless() {
    struct Local;
    impl Drop for Local {
        fn drop(&mut self) {
            event!("places", "thread_ends");
        }
    }
    thread_local! { static LOCAL: Local = const { Local } }
    while COUNTS.iter().any(|count| count.load(Ordering::Relaxed) < 100) {
        thread::yield_now();
    }
    thread::spawn(|| LOCAL.with(|_| ())).join().expect("a thread that ends");
    // SAFETY: the function stays.
    unsafe { atexit(late) };
}

extern "C" fn late() {
    event!("places", "after_main");
}

fn threads(threads: u32, count: u32) {
    let work = move |thread: u32| {
        for number in 0..count {
            event!("places", "numbered", thread, number);
        }
    };
    let threads: Vec<_> = (0..threads).map(|thread| thread::spawn(move || work(thread))).collect();
    for thread in threads {
        thread.join().expect("a thread that ends");
    }
}

fn panics() {
    let number = 1_u8;
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _outer = tompion::span!("places", "outer", number);
        let _inner = tompion::span!("places", "inner");
        let fails: Result<u8, &str> = Err("as expected");
        event!("places", "never", value = fails.unwrap());
    }));
    event!("places", "unwound", yes = unwound.is_err());
}

fn forks() {
    event!("places", "parent", number = 1_u8);
    // SAFETY: the program has one thread of its own.
    let child = unsafe { fork() };
    if child == 0 {
        event!("places", "child", number = 2_u8);
        std::process::exit(0);
    }
    let mut status = 0;
    // SAFETY: the child is ours.
    unsafe { waitpid(child, &mut status, 0) };
    event!("places", "parent", number = 3_u8);
}

fn plugin(file: &str, rounds: u32) {
    let file = CString::new(file).expect("a path");
    for round in 0..rounds {
        // SAFETY: the plugin has this function; it is closed after its last use.
        unsafe {
            let library = dlopen(file.as_ptr(), RTLD_NOW);
            assert!(!library.is_null(), "the plugin can be loaded");
            let work = dlsym(library, c"plugin_work".as_ptr());
            let work: extern "C" fn(u32) = std::mem::transmute(work);
            work(round);
            assert_eq!(dlclose(library), 0);
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let is_there = maps.contains(file.to_str().expect("a path"));
    event!("places", "plugin_gone", gone = !is_there);
}

/// Prints whether the library is loaded, and the cost of events that are not recorded.
fn disabled() {
    let mut computed = 0;
    let mut compute = || {
        computed += 1;
        computed
    };
    event!("places", "computed", value = compute());
    let _span = tompion::span!("places", "span", value = compute());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    println!(
        "computed {computed}, enabled {}, library {}, snapshot {}",
        tompion::enabled!("places", "computed"),
        maps.contains("libtompion"),
        tompion::snapshot()
    );
}

/// Offers contexts, changes them and takes one back.
fn contexts() {
    static CYCLE: AtomicI64 = AtomicI64::new(1);
    let offered = [
        tompion::context("places:cycle", || CYCLE.load(Ordering::Relaxed)),
        tompion::text_context("places:phase", |buffer| {
            buffer[..4].copy_from_slice(b"idle");
            4
        }),
    ];
    event!("places", "first", both = offered == [true; 2], wrong = tompion::context("no name", || 0));
    CYCLE.store(-2, Ordering::Relaxed);
    event!("places", "second");
    event!("places", "withdrawn", yes = tompion::withdraw_context("places:phase"));
}

/// Dumps state, panics in a dump, and drops one guard inside its own call.
fn dumps() {
    let open = Arc::new(Mutex::new(vec!["a", "b"]));
    let (dumped, calls) = (Arc::clone(&open), Arc::new(AtomicI64::new(0)));
    let counter = Arc::clone(&calls);
    let first = tompion::state_dump(move || {
        for peer in dumped.lock().unwrap().iter() {
            event!("places", "connection", peer);
        }
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let counter = Arc::clone(&calls);
    let panics = tompion::state_dump(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        panic!("in a state dump");
    });
    let slot: Arc<Mutex<Option<tompion::StateDump>>> = Arc::default();
    let (counter, own) = (Arc::clone(&calls), Arc::clone(&slot));
    let mut held = slot.lock().unwrap();
    *held = Some(tompion::state_dump(move || {
        drop(own.lock().unwrap().take());
        event!("places", "dropped");
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    drop(held);
    assert!(first.is_added() && panics.is_added());
    while calls.load(Ordering::Relaxed) < 3 {
        thread::sleep(Duration::from_millis(1));
    }
    drop((first, panics));
    assert_eq!(Arc::strong_count(&open), 1, "the closure is gone");
}

/// Asks for a snapshot and waits until it must have been seen.
fn snapshot() {
    event!("places", "kept", number = 1_u8);
    let asked = tompion::snapshot();
    event!("places", "asked", asked);
    thread::sleep(Duration::from_millis(500));
}

/// Records events until its standard input ends.
fn ticks() {
    assert!(tompion::load(), "the library is here");
    let input = thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    println!("ready");
    let mut number = 0_u64;
    while !input.is_finished() {
        event!("places", "tick", number);
        number += 1;
        thread::sleep(Duration::from_millis(1));
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words[at].parse().expect("a number");
    match words[0].as_str() {
        "generic" => generic(),
        "early" => {
            // SAFETY: the function stays.
            unsafe { atexit(late) };
            event!("places", "in_main");
        }
        "endless" => endless(),
        "threads" => threads(number(1), number(2)),
        "panics" => panics(),
        "fork" => forks(),
        "plugin" => plugin(&words[1], number(2)),
        "contexts" => contexts(),
        "dumps" => dumps(),
        "snapshot" => snapshot(),
        "ticks" => ticks(),
        "disabled" => disabled(),
        other => panic!("{other}?"),
    }
}
