//! Debug messages about the index.

use std::fs;
use std::sync::Mutex;

use log::{LevelFilter, Log, Metadata, Record};

use crate::client::TestDir;
use crate::fixtures;

/// Messages of all servers of these tests.
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Logger that keeps the viewer's messages.
struct Collector;

impl Log for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tompion_viewer")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            MESSAGES.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Returns the number of messages so far that contain a text.
fn count(text: &str) -> usize {
    MESSAGES.lock().unwrap().iter().filter(|message| message.contains(text)).count()
}

#[test]
fn messages_tell_whether_an_index_was_read_or_made() {
    log::set_logger(&Collector).unwrap();
    log::set_max_level(LevelFilter::Debug);
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let (made, ended) = (count("a new one is made"), count("indexing ended after"));
    dir.open().trace();
    assert!(count("a new one is made") > made);
    let path = dir.trace().join(".tompion-view/index");
    while fs::metadata(&path).is_err() || count("indexing ended after") == ended {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let read = count("saved index read: ");
    dir.open().trace();
    assert!(count("saved index read: ") > read);
}
