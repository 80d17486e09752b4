//! Monitor of a test, stopped when it is dropped.

use crate::{Kinds, Monitor};

/// Monitor with a name of its own.
pub struct TestMonitor(String);

impl TestMonitor {
    /// Starts counting; prints the reason and returns none where that isn't permitted.
    pub fn new(test: &str) -> Option<(Self, Monitor)> {
        let found: Vec<String> = crate::obstacles().into_iter().map(|it| it.found).collect();
        if !found.is_empty() {
            eprintln!("SKIPPED, latencies can't be counted here: {}", found.join("; "));
            return None;
        }
        let name = format!("tompion-test-{test}-{}", std::process::id());
        let (monitor, _) = Monitor::begin(&name, Kinds::ALL).unwrap_or_else(|error| panic!("{error}"));
        Some((Self(name), monitor))
    }

    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for TestMonitor {
    fn drop(&mut self) {
        let _ = Monitor::stop(&self.0);
    }
}
