//! Count of the events that arrived, with a reader that neither side wrote for itself: babeltrace2.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use tompion_tasks::shell;

/// More than any program can lose while it is measured.
const MAX_DISCARDED: u64 = 1 << 40;

/// Content of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Events.
    pub events: u64,
    /// Events whose text contains the searched one.
    pub found: u64,
    /// Losses that the trace itself tells of.
    pub discarded: u64,
}

/// Counts a trace's events and nothing else, several times faster.
pub fn events(folder: &Path) -> Result<u64> {
    let mut command = Command::new("babeltrace2");
    command.arg(folder).args(["--component", "sink.utils.counter", "--params", "step=+0,hide-zero=no"]);
    let text = shell::capture(&mut command)?;
    let line = text.lines().find(|line| line.contains("Event message"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("babeltrace2 counted nothing in {}", folder.display()))
}

/// Counts a trace's events, and those with this text in their line.
pub fn trace(folder: &Path, text: &str) -> Result<Counted> {
    let mut child = Command::new("babeltrace2")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run babeltrace2, which counts the events (apt install babeltrace2)")?;
    let complaints = child.stderr.take().context("its errors are piped")?;
    let errors = std::thread::spawn(move || {
        let mut said = String::new();
        BufReader::new(complaints).read_to_string(&mut said).map(|_| said)
    });
    let mut counted = Counted::default();
    for line in BufReader::new(child.stdout.take().context("its output is piped")?).split(b'\n') {
        let line = line?;
        counted.events += 1;
        counted.found += u64::from(contains(&line, text.as_bytes()));
    }
    let said = errors.join().ok().context("a reader thread died")??;
    let status = child.wait()?;
    ensure!(status.success(), "babeltrace2 cannot read {}: {}", folder.display(), said.trim_end());
    counted.discarded = said.lines().filter_map(discarded).fold(0, u64::saturating_add);
    ensure!(
        counted.discarded <= MAX_DISCARDED,
        "babeltrace2 tells of losses that cannot be: {}",
        said.trim_end()
    );
    Ok(counted)
}

fn contains(line: &[u8], text: &[u8]) -> bool {
    !text.is_empty() && line.windows(text.len()).any(|window| window == text)
}

/// Reads `WARNING: Tracer discarded 1234 events between …`.
fn discarded(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("discarded ")?;
    let (number, what) = rest.split_once(' ')?;
    what.starts_with("event").then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_from_the_readers_warnings() {
        let line = "WARNING: Tracer discarded 1234 events between [a] and [b] in trace";
        assert_eq!(discarded(line), Some(1234));
        assert_eq!(discarded("WARNING: Tracer discarded 1 event between"), Some(1));
        assert_eq!(discarded("WARNING: Tracer discarded 2 packets between"), None);
    }

    #[test]
    fn text_is_found_anywhere_in_a_line() {
        assert!(contains(b"{ a = 5, b = 6 }", b"a = 5,"));
        assert!(!contains(b"{ a = 5, b = 6 }", b"a = 6,"));
        assert!(!contains(b"x", b""));
    }
}
