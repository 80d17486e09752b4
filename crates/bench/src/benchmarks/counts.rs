//! `x bench counts`: what counting an event in place costs beside recording it; and `x bench
//! sessions`: what an event costs by the number of sessions that record it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::event::loop_output;
use super::results::{Figure, Results, Who};
use super::tompion::Tompion;
use super::{Buffers, Options, Report, programs, progress};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

const COUNTS_METHOD: &str = "\
Nanoseconds an event on one thread: recorded as a flight recorder with the thread's id, or counted in place and not \
recorded. `keys_2` has two fields of 4 bytes with four and eight values, `str_8` a text of 8 bytes. Median \
(smallest–largest) over the repetitions, each a process of its own, variants interleaved; a repetition is five \
batches of a million events, its figure the median batch. The counts were read: each event is in them.\n";

const SESSIONS_METHOD: &str = "\
Nanoseconds an event with two fields of 8 bytes on one thread, recorded by so many sessions at once, each a flight \
recorder with the thread's id. Median (smallest–largest) over the repetitions, variants interleaved. The trace of \
each session was read. `a session` is the figure divided by their number.\n";

/// Largest number of sessions that record a process.
const MAX_SESSIONS: usize = 8;
/// A measurement that takes longer hangs.
const MAX_SECONDS: u64 = 120;
/// Time for a recorder to listen, and to end.
const RECORDER_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two looks whether it does.
const INTERVAL: Duration = Duration::from_millis(20);
/// Variable with the folder of recorders' sockets.
const CONTROL: &str = "TOMPION_CONTROL";

/// A way to take an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    label: &'static str,
    /// Event of the loop.
    event: &'static str,
    /// Rule that counts it; it is recorded without.
    rule: Option<&'static str>,
}

const WAYS: [Way; 9] = [
    Way { label: "recorded", event: "keys_2", rule: None },
    Way { label: "recorded, text of 8 bytes", event: "str_8", rule: None },
    Way { label: "counted, no key", event: "keys_2", rule: Some("count bench:keys_2") },
    Way { label: "counted by an integer", event: "keys_2", rule: Some("count bench:keys_2 by x") },
    Way { label: "counted by two integers", event: "keys_2", rule: Some("count bench:keys_2 by x, y") },
    Way { label: "counted by a text of 8 bytes", event: "str_8", rule: Some("count bench:str_8 by text") },
    Way {
        label: "counted by an integer, with a filter",
        event: "keys_2",
        rule: Some("count bench:keys_2 by x if y < 100"),
    },
    Way { label: "sum by an integer", event: "keys_2", rule: Some("sum of y bench:keys_2 by x") },
    Way { label: "histogram by an integer", event: "keys_2", rule: Some("histogram of y bench:keys_2 by x") },
];

/// Tompion, the loop, and where they write.
struct Bench {
    tompion: Tompion,
    program: PathBuf,
    folder: PathBuf,
    quick: bool,
}

impl Bench {
    fn prepare(workspace: &Workspace, options: &Options) -> Result<Self> {
        let tompion = Tompion::build(workspace)?.context("Tompion is not built")?;
        let (sources, flags) =
            (&["event/loop.c", "event/values.c", "event/tompion.c"], programs::tompion_flags(workspace));
        let program = programs::Program { name: "loop-tompion", sources, flags: &flags };
        let program = programs::build(workspace, &program)?;
        let folder = programs::folder(workspace)?.join("counts");
        programs::remove(&folder)?;
        fs::create_dir_all(&folder)?;
        Ok(Self { tompion, program, folder, quick: options.quick })
    }

    /// Events of a batch, and batches.
    const fn size(&self) -> (u64, u64) {
        if self.quick { (100_000, 2) } else { (1_000_000, 5) }
    }

    /// The start of a command line that records as a flight recorder.
    fn record(&self, trace: &Path) -> Command {
        let mut command = self.tompion.command();
        let Buffers { size, count } = Buffers::USUAL;
        command.env(CONTROL, self.folder.join("control"));
        command.args(["record", "--mode", "overwrite", "--subbuf-size", size, "--subbufs", count]);
        command.arg("-o").arg(trace);
        command
    }

    /// Adds the loop to a command line, and runs it. Returns nanoseconds an event, and events.
    fn run(&self, mut command: Command, event: &str) -> Result<(f64, u64)> {
        let (events, batches) = self.size();
        command.arg("--").arg(&self.program).args([event, "tight", "1"]);
        command.args([events.to_string(), batches.to_string()]);
        loop_output(&shell::capture(&mut shell::limited(MAX_SECONDS, &command))?)
    }

    fn measure_way(&self, way: Way) -> Result<f64> {
        let trace = self.folder.join("trace");
        programs::remove(&trace)?;
        let mut command = self.record(&trace);
        match way.rule {
            None => command.args(["-e", "bench:*"]),
            Some(rule) => command.args(["-e", "none", "--count", rule]),
        };
        let (cost, emitted) = self.run(command, way.event)?;
        match way.rule {
            None => ensure!(self.tompion.count(&trace)? > 0, "nothing was recorded"),
            Some(rule) => {
                let counted = counted(&trace)?;
                ensure!(counted == emitted, "`{rule}` counted {counted} of {emitted} events");
            }
        }
        programs::remove(&trace)?;
        Ok(cost)
    }

    /// Measures an event that so many sessions record.
    fn measure_sessions(&self, sessions: usize) -> Result<f64> {
        let traces: Vec<_> =
            (0..sessions).map(|number| self.folder.join(format!("trace-{number}"))).collect();
        traces.iter().try_for_each(|trace| programs::remove(trace))?;
        let mut others = Vec::new();
        for (number, trace) in traces.iter().enumerate().skip(1) {
            let mut command = self.record(trace);
            let name = format!("bench-{number}");
            command.args(["-e", "bench:*", "--programs", "name=loop-tompion", "--session", &name]);
            others.push(Recorder::start(command, &self.folder.join("control").join(name))?);
        }
        let mut command = self.record(&traces[0]);
        command.args(["-e", "bench:*"]);
        let measured = self.run(command, "fields_2");
        let ended = others.into_iter().map(Recorder::end).collect::<Result<Vec<()>>>();
        let (cost, _) = measured?;
        ended?;
        for trace in &traces {
            ensure!(self.tompion.count(trace)? > 0, "{} has no events", trace.display());
            programs::remove(trace)?;
        }
        Ok(cost)
    }
}

/// Number of events in all counts of a trace's folder, those without room included.
fn counted(trace: &Path) -> Result<u64> {
    let text = fs::read_to_string(trace.join("counts.json")).context("no counts.json")?;
    let document: Value = serde_json::from_str(&text).context("counts.json is no JSON")?;
    let aggregations = document["aggregations"].as_array().context("no aggregations")?;
    let entries = aggregations.iter().flat_map(|aggregation| {
        let entries = aggregation["entries"].as_array().cloned().unwrap_or_default();
        entries.into_iter().chain(aggregation.get("other").cloned())
    });
    Ok(entries.filter_map(|entry| entry["count"].as_u64()).sum())
}

/// A recorder in the background.
struct Recorder(Child);

impl Recorder {
    /// Starts it, and waits until it listens.
    fn start(mut command: Command, socket: &Path) -> Result<Self> {
        // What one before has left is none of this one's.
        programs::remove(socket)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut recorder = Self(command.spawn().context("cannot start a recorder")?);
        let begun = Instant::now();
        while !socket.join("control").exists() {
            if let Some(status) = recorder.0.try_wait()? {
                bail!("a recorder has ended with {status}");
            }
            ensure!(begun.elapsed() < RECORDER_TIMEOUT, "a recorder does not listen");
            std::thread::sleep(INTERVAL);
        }
        Ok(recorder)
    }

    /// Asks it to end, and waits.
    fn end(mut self) -> Result<()> {
        shell::run_quietly(Command::new("kill").args(["-INT", &self.0.id().to_string()]))?;
        let begun = Instant::now();
        while self.0.try_wait()?.is_none() {
            ensure!(begun.elapsed() < RECORDER_TIMEOUT, "a recorder does not end");
            std::thread::sleep(INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.0.kill().and_then(|()| self.0.wait());
        }
    }
}

/// Runs `x bench counts`.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let bench = Bench::prepare(workspace, options)?;
    let new = |way: &Way| Figure::new("counting in place", Who::Tompion, "Tompion", way.label, "ns an event");
    let mut figures: Vec<Figure> = WAYS.iter().map(new).collect();
    for repetition in 1..=options.repetitions {
        for (way, figure) in WAYS.iter().zip(&mut figures) {
            progress(&format!("repetition {repetition}/{}: {}", options.repetitions, way.label));
            figure.note(bench.measure_way(*way));
        }
    }
    progress("");
    let results = Results::new("counts", options.repetitions, figures)?;
    let markdown = results.markdown("What counting an event costs", COUNTS_METHOD);
    Ok(Report { text: results.text(), markdown, results })
}

/// Runs `x bench sessions`.
pub fn run_sessions(workspace: &Workspace, options: &Options) -> Result<Report> {
    let bench = Bench::prepare(workspace, options)?;
    let new = |label: &str, sessions: usize| {
        Figure::new("by sessions", Who::Tompion, label, &sessions.to_string(), "ns an event")
    };
    let both = |sessions| (new("all", sessions), new("a session", sessions));
    let mut figures: Vec<(Figure, Figure)> = (1..=MAX_SESSIONS).map(both).collect();
    for repetition in 1..=options.repetitions {
        for (index, (all, each)) in figures.iter_mut().enumerate() {
            let sessions = index + 1;
            progress(&format!("repetition {repetition}/{}: {sessions} sessions", options.repetitions));
            let cost = bench.measure_sessions(sessions);
            if let Ok(cost) = &cost {
                each.note(Ok(cost / sessions as f64));
            }
            all.note(cost);
        }
    }
    progress("");
    let figures = figures.into_iter().flat_map(|(all, each)| [all, each]).collect();
    let results = Results::new("sessions", options.repetitions, figures)?;
    let markdown = results.markdown("What an event costs by the sessions that record it", SESSIONS_METHOD);
    Ok(Report { text: results.text(), markdown, results })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_entries_are_counted() {
        let dir = std::env::temp_dir().join(format!("tompion-bench-counts-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let text = r#"{"aggregations": [{"entries": [{"count": 3}, {"count": 4}], "other": {"count": 5}}]}"#;
        fs::write(dir.join("counts.json"), text).expect("a file");
        assert_eq!(counted(&dir).ok(), Some(12));
        fs::write(dir.join("counts.json"), "{}").expect("a file");
        assert!(counted(&dir).is_err());
        fs::remove_dir_all(&dir).expect("a folder");
    }

    #[test]
    fn rules_are_on_the_events_that_they_are_measured_with() {
        for way in WAYS {
            assert!(way.rule.is_none_or(|rule| rule.contains(&format!("bench:{}", way.event))), "{way:?}");
        }
    }
}
