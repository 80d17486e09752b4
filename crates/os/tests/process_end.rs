//! Ends of processes that are watched.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use tompion_os::ProcessWatch;

fn start(script: &str) -> (Child, ProcessWatch) {
    let child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().expect("a shell");
    let watch = ProcessWatch::new(child.id()).expect("a watch");
    (child, watch)
}

fn wait_for(watch: &ProcessWatch) {
    while !watch.has_ended() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_end_of_a_zombie_is_known_and_that_of_a_running_process_is_not() {
    for (script, code, signal) in [("read x; exit 7", Some(7), None), ("read x; kill -9 $$", None, Some(9))] {
        let (mut child, watch) = start(script);
        let pid = child.id();
        assert_eq!(watch.end(pid), None);
        drop(child.stdin.take());
        wait_for(&watch);
        let end = watch.end(pid).expect("a zombie has its status in /proc");
        assert_eq!((end.code(), end.signal()), (code, signal));
        assert_eq!(child.wait().ok(), Some(end));
        // Known to newer kernels; nothing is made up on older ones.
        assert!(watch.end(pid).is_none_or(|known| known == end));
    }
}
