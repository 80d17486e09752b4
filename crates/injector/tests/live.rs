//! Delays in the running kernel. Where that isn't permitted, a line says so and nothing is tested.

use std::{
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use tompion_injector::{Injector, Interruptions, Place};
use tompion_os::{allowed_cpus, gettid, monotonic_ns, run_fifo, set_affinity};

const DELAY: Duration = Duration::from_micros(300);

/// Makes the kernel pass a place.
fn go_to(place: Place, socket: &UdpSocket) {
    match place {
        Place::InterruptsOff | Place::HardInterrupt => thread::sleep(Duration::from_micros(50)),
        Place::PreemptionOff => drop(std::os::unix::process::parent_id()),
        // That is the idle thread's place, and none of these.
        Place::IdleExit => {}
        Place::SoftInterrupt => {
            let address = socket.local_addr().expect("a socket's address");
            socket.send_to(b"to myself", address).expect("a datagram to myself");
        }
    }
}

#[test]
fn a_thread_is_delayed_once_for_each_order_and_no_other_one_is() {
    let obstacles = tompion_injector::obstacles();
    if let Some(first) = obstacles.first() {
        return eprintln!("SKIPPED, nothing can be delayed here: {} ({})", first.found, first.mend);
    }
    let places = [Place::InterruptsOff, Place::PreemptionOff, Place::HardInterrupt, Place::SoftInterrupt];
    let injector = Injector::load(&places).unwrap_or_else(|error| panic!("{error}"));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for place in places {
        // Each in a thread of its own, whose place in the array is fresh but for threads of the
        // same low bits.
        thread::scope(|scope| {
            scope.spawn(|| {
                let tid = gettid();
                let before = injector.done(tid).count;
                go_to(place, &socket);
                assert_eq!(injector.done(tid).count, before, "nothing was ordered");
                injector.order(tid, place, DELAY);
                let begin = monotonic_ns();
                // A soft interrupt may be left to its own thread.
                let until = Instant::now() + Duration::from_secs(30);
                while injector.done(tid).count == before && Instant::now() < until {
                    go_to(place, &socket);
                }
                let done = injector.done(tid);
                let length = Duration::from_nanos(done.ended_ns - done.begun_ns);
                println!("{place:?}: {length:?}");
                assert!(done.count == before + 1 && done.begun_ns > begin, "{place:?}: {done:?}");
                assert!(length >= DELAY, "{place:?}: {length:?}");
                go_to(place, &socket);
                assert_eq!(injector.done(tid), done, "{place:?}: once is enough");
                // An order for another thread, though it shares this one's place.
                injector.order(tid + 4096, place, DELAY);
                go_to(place, &socket);
                assert_eq!(injector.done(tid), done, "{place:?}: another one's order");
                injector.cancel(tid);
            });
        });
    }
}

#[test]
fn interrupts_since_the_switch_to_a_real_time_thread_are_counted() {
    let obstacles = tompion_injector::obstacles();
    if let Some(first) = obstacles.first() {
        return eprintln!("SKIPPED, nothing can be counted here: {} ({})", first.found, first.mend);
    }
    let interruptions = Interruptions::load().unwrap_or_else(|error| panic!("{error}"));
    let cpu = allowed_cpus()[0];
    thread::scope(|scope| {
        scope.spawn(|| {
            set_affinity(0, &[cpu]).expect("a CPU that is allowed");
            if let Err(error) = run_fifo(1) {
                return eprintln!("SKIPPED, no real-time thread here: {error}");
            }
            // It goes on without sleep, so that nothing but interrupts comes.
            let until = Instant::now() + Duration::from_secs(30);
            let mut most = 0;
            while most < 3 && Instant::now() < until {
                most = most.max(interruptions.since_switch(cpu));
            }
            assert!(most >= 3, "ticks come while it runs: {most}");
            // One that has just been switched to has seen few of them; now and then one comes in
            // this very moment.
            let fewest = (0..50).map(|_| {
                thread::sleep(Duration::from_millis(1));
                interruptions.since_switch(cpu)
            });
            assert_eq!(fewest.min(), Some(0));
        });
    });
    assert_eq!(interruptions.since_switch(u32::MAX), 0);
}
