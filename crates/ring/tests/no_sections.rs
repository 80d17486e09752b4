//! Threads without restartable sections: nothing is stored where others have their areas. This
//! process is the test's own, because no other test may say where areas are.

use std::thread;

use tompion_layout::record;
use tompion_ring::producer::{Event, Outcome, Recording, Retention, Tail};

/// A recording in reserve form may end between an event's look for it and its append.
#[test]
fn an_append_that_finds_no_recording_leaves_its_thread_whole() {
    let append = || {
        let (recording, image) = (Recording::none(), [7u64; 1]);
        let tail = Tail { data: image.as_ptr().cast(), size: 8 };
        for tails in [&[][..], &[tail][..]] {
            let event = Event {
                id: record::FIRST_EVENT,
                tid: 1,
                time: 0,
                image: image.as_ptr().cast(),
                image_len: 8,
                tails,
                retention: Retention::Ring,
            };
            // SAFETY: image and tail are words on the stack; the thread is this process's own.
            assert_eq!(unsafe { recording.append(&event) }, Outcome::NotRecording);
        }
    };
    // The C library frees so large a stack when the thread ends, and its table of thread-local
    // storage with it.
    let thread = thread::Builder::new().stack_size(64 << 20).spawn(append).expect("a thread");
    thread.join().expect("no panic");
}
