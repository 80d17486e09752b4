//! Support of tests in all crates; only dev-dependencies have it. It knows no other crate: support
//! that does stands in the tests of the crate that it is about.
#![forbid(unsafe_code)]

mod random;
mod test_dir;

pub use random::Random;
pub use test_dir::TestDir;

use std::{
    env, thread,
    time::{Duration, Instant},
};

/// Time after which [`wait_until`] fails. No test measures time by this.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
/// Time between two looks of [`wait_until`].
const WAIT_INTERVAL: Duration = Duration::from_micros(200);

/// True if the long form of tests is asked for: `TOMPION_FULL=1`.
pub fn is_full() -> bool {
    env::var_os("TOMPION_FULL").is_some_and(|value| value == "1")
}

/// Number of rounds of a loop: `few` in normal tests, `many` in the long form.
pub fn rounds<T>(few: T, many: T) -> T {
    if is_full() { many } else { few }
}

/// Number of executions of a fuzzing test: `TOMPION_FUZZ`, or that of [`rounds`].
pub fn executions(few: u64, many: u64) -> u64 {
    number("TOMPION_FUZZ").unwrap_or(rounds(few, many))
}

/// Seed of a fuzzing test: `TOMPION_FUZZ_SEED`, or 1.
pub fn seed() -> u64 {
    number("TOMPION_FUZZ_SEED").unwrap_or(1)
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

/// Polls until a condition holds; fails after two minutes.
///
/// # Panics
/// If the condition does not hold until then.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < WAIT_TIMEOUT, "timed out waiting for: {what}");
        thread::sleep(WAIT_INTERVAL);
    }
}
