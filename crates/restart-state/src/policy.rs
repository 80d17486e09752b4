//! Limits of chunks, as they are saved.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tompion_chunks::{Policy, Retention, Rotation};

/// Limits of chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPolicy {
    every: Option<Duration>,
    size: Option<u64>,
    keep_age: Option<Duration>,
    keep_size: Option<u64>,
    keep_count: Option<u64>,
}

impl From<Policy> for SavedPolicy {
    fn from(Policy { rotation, retention }: Policy) -> Self {
        let (Rotation { every, size }, Retention { age, size: keep_size, count }) = (rotation, retention);
        Self { every, size, keep_age: age, keep_size, keep_count: count }
    }
}

impl From<SavedPolicy> for Policy {
    fn from(saved: SavedPolicy) -> Self {
        let SavedPolicy { every, size, keep_age, keep_size, keep_count } = saved;
        Self {
            rotation: Rotation { every, size },
            retention: Retention { age: keep_age, size: keep_size, count: keep_count },
        }
    }
}
