//! Rules of a series of chunks, as users write them.

use std::{str::FromStr, time::Duration};

use serde::Deserialize;

/// Shortest interval between two rotations: each of them makes files for every process.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Smallest size of a chunk, in bytes: a packet has up to 256 KiB.
const MIN_SIZE: u64 = 1 << 20;

/// Rules of a series of chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Limits of each chunk.
    pub rotation: Rotation,
    /// Limits of all committed chunks.
    pub retention: Retention,
}

/// Limits of a chunk: it ends at the first one that is reached. Without any, chunks end on request
/// alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Rotation {
    /// Time from its begin.
    pub every: Option<Duration>,
    /// Bytes of its streams.
    pub size: Option<u64>,
}

/// Limits of all committed chunks together. The oldest are removed until all limits hold; the
/// newest one always stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Retention {
    /// Time since the chunk's end.
    pub age: Option<Duration>,
    /// Bytes of their files.
    pub size: Option<u64>,
    /// Number of chunks.
    pub count: Option<u64>,
}

/// Rule that can't be, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

/// Takes a value for a key that may be there once.
fn put<T>(place: &mut Option<T>, value: Result<T, String>, part: &str) -> Result<(), PolicyError> {
    let value = value.map_err(PolicyError)?;
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(PolicyError(format!("expected each limit once, found a second one: `{part}`"))),
    }
}

impl FromStr for Rotation {
    type Err = PolicyError;

    /// Parses `10min`, `size=1G`, `every=10min,size=1G`, or `manual` for none.
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut rotation = Self::default();
        if text == "manual" {
            return Ok(rotation);
        }
        for part in text.split(',') {
            match part.split_once('=').unwrap_or(("every", part)) {
                ("every", time) => put(&mut rotation.every, tompion_units::duration(time), part)?,
                ("size", size) => put(&mut rotation.size, tompion_units::size(size), part)?,
                _ => {
                    let text = format!("expected every=TIME, size=SIZE or manual, found `{part}`");
                    return Err(PolicyError(text));
                }
            }
        }
        if rotation.every.is_some_and(|every| every < MIN_INTERVAL) {
            return Err(PolicyError("expected at least 100ms between rotations".into()));
        }
        if rotation.size.is_some_and(|size| size < MIN_SIZE) {
            return Err(PolicyError("expected chunks of at least 1M".into()));
        }
        Ok(rotation)
    }
}

impl FromStr for Retention {
    type Err = PolicyError;

    /// Parses `age=2d,size=50G,count=100`, or some of them.
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut retention = Self::default();
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("age", time)) => put(&mut retention.age, tompion_units::duration(time), part)?,
                Some(("size", size)) => put(&mut retention.size, tompion_units::size(size), part)?,
                Some(("count", count)) => put(&mut retention.count, tompion_units::count(count), part)?,
                _ => {
                    let text = format!("expected age=TIME, size=SIZE or count=N, found `{part}`");
                    return Err(PolicyError(text));
                }
            }
        }
        Ok(retention)
    }
}

impl TryFrom<String> for Rotation {
    type Error = PolicyError;

    fn try_from(text: String) -> Result<Self, PolicyError> {
        text.parse()
    }
}

impl TryFrom<String> for Retention {
    type Error = PolicyError;

    fn try_from(text: String) -> Result<Self, PolicyError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotations_have_a_time_a_size_or_both() {
        let every = Some(Duration::from_secs(600));
        assert_eq!("10min".parse(), Ok(Rotation { every, size: None }));
        assert_eq!("every=10min".parse(), Ok(Rotation { every, size: None }));
        assert_eq!("size=1G".parse(), Ok(Rotation { every: None, size: Some(1 << 30) }));
        assert_eq!("10min,size=1G".parse(), Ok(Rotation { every, size: Some(1 << 30) }));
        assert_eq!("manual".parse(), Ok(Rotation::default()));
        for (text, expected) in [
            ("", "expected a duration"),
            ("soon", "expected a duration"),
            ("10min,20min", "each limit once"),
            ("size=1", "at least 1M"),
            ("1ms", "at least 100ms"),
            ("rate=5", "expected every=TIME"),
        ] {
            let error = text.parse::<Rotation>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn retentions_have_an_age_a_size_a_count_or_all() {
        let all =
            Retention { age: Some(Duration::from_secs(2 * 86_400)), size: Some(50 << 30), count: Some(100) };
        assert_eq!("age=2d,size=50G,count=100".parse(), Ok(all));
        assert_eq!("count=1".parse(), Ok(Retention { count: Some(1), ..Retention::default() }));
        for text in ["", "5", "age=", "count=0", "count=1,count=2", "most=3"] {
            assert!(text.parse::<Retention>().is_err(), "{text}");
        }
    }
}
