//! `tompion monitor explain`: explains an incident by a sentence, shares of causes, and a timeline.

mod rows;

use crate::screen::{BOLD, DIM, END};
use std::{
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
};

use clap::Args;
use jiff::{Timestamp, tz::TimeZone};
use tompion_latency::{
    attribution::Cause,
    incident::{self, Incident, MissedJob, Party, Verdict},
};

use rows::Row;

use crate::{
    messages::{escape_control, pluralize},
    units,
};

/// Columns of the timeline.
const TIMELINE_WIDTH: usize = 72;
/// Columns of the longest bar.
const BAR_WIDTH: usize = 24;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion monitor explain                        # the newest incident in this folder\n  \
    tompion monitor explain --all tompion-incident-2026-11-22T10-15-04-ctl")]
pub struct ExplainArgs {
    /// Folder of the incident [default: the newest in this folder]
    #[arg(value_name = "INCIDENT")]
    folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print every interval of the latency, however short
    #[arg(long)]
    all: bool,
}

pub fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => newest(Path::new(".")).ok_or_else(|| {
            anyhow::anyhow!(
                "no incident in this folder; name one, or save some: tompion monitor --threshold 100us"
            )
        })?,
    };
    let incident = Incident::read(&folder)?;
    let mut output = anstream::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut output, &incident)?;
        writeln!(output)?;
    } else {
        write!(output, "{}", incident_text(&incident, &folder, args.all))?;
    }
    Ok(())
}

/// Returns the folder of the newest incident. If none can be read, returns one with an error to
/// report.
fn newest(parent: &Path) -> Option<PathBuf> {
    incident::folders(parent).pop().map(|(_, folder)| folder).or_else(|| incident::candidates(parent).pop())
}

/// Describes an incident in a sentence: the thread, its latency, and the main cause.
pub fn sentence(incident: &Incident) -> String {
    let Party { tid, name, priority } = &incident.thread;
    let (name, cpu) = (escape_control(name), incident.question.cpu);
    let time = units::format_duration(incident.latency_ns as f64);
    let mut text = match &incident.job {
        Some(job) => {
            let (job, deadline) =
                (escape_control(&job.name), units::format_duration(incident.limit_ns as f64));
            let thread = if name.is_empty() { String::new() } else { format!("{name}, ") };
            format!(
                "{job} ({thread}thread {tid}, {priority}) took {time} on CPU {cpu}, of {deadline} at most"
            )
        }
        None if name.is_empty() => format!("thread {tid} ({priority}) ran {time} late on CPU {cpu}"),
        None => format!("{name} (thread {tid}, {priority}) ran {time} late on CPU {cpu}"),
    };
    if let Some(Verdict { percent, words }) = incident.verdict() {
        let _ = write!(text, ": {percent:.0} % of it while {}", escape_control(&words));
    }
    text
}

fn incident_text(incident: &Incident, folder: &Path, with_all: bool) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{BOLD}{}.{END}", sentence(incident));
    let time = Timestamp::from_nanosecond(incident.time_ns.into()).unwrap_or_default();
    let time = time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S.%6f %Z").to_string();
    let _ = writeln!(
        text,
        "{DIM}{time}; {}{END}\n",
        match &incident.job {
            Some(job) => describe_release(incident, job),
            None => format!("{}; {}", describe_limit(incident), describe_previous(incident)),
        }
    );
    let rows = if with_all { rows::all(&incident.segments) } else { rows::folded(&incident.segments) };
    write_timeline(&mut text, incident, &rows);
    write_shares(&mut text, incident);
    write_rows(&mut text, incident, &rows);
    if let Some(smis) = incident.smis.filter(|smis| *smis > 0) {
        let _ =
            writeln!(text, "{DIM}{} during the latency{END}", pluralize(smis, "system management interrupt"));
    }
    for problem in &incident.problems {
        let _ = writeln!(text, "{DIM}{}{END}", escape_control(problem));
    }
    let folder = folder.display().to_string();
    let _ = writeln!(text, "{DIM}the trace: tompion view {}{END}", escape_control(&folder));
    text
}

/// Describes the limit, and the part of the latency that it applies to.
fn describe_limit(incident: &Incident) -> String {
    let limit = units::format_duration(incident.limit_ns as f64);
    match incident.from_waking_ns {
        Some(ns) => {
            format!("{} from the wakeup on, limit {limit}", units::format_duration(ns as f64))
        }
        None => format!("limit {limit}"),
    }
}

/// Describes the thread that had the CPU before.
fn describe_previous(incident: &Incident) -> String {
    let before = &incident.before;
    if before.tid == incident.thread.tid {
        return "the thread was on its way to sleep, and went on".into();
    }
    let name = escape_control(&before.name);
    format!("until then {name} (thread {}, {}) had the CPU", before.tid, before.priority)
}

/// Describes when the thread ran and when the job's code began, counted from the release.
fn describe_release(incident: &Incident, job: &MissedJob) -> String {
    let release = incident.question.begin();
    let after = |time: u64| units::format_duration(time.saturating_sub(release) as f64);
    let running = job.wake.map(|wake| format!("running after {}, ", after(wake.running))).unwrap_or_default();
    let begun = after(job.begin_ns);
    format!("released by: {}; {running}begun after {begun}", job.released_by.words())
}

/// Returns the colour of a cause, and its letter, for readers without colours.
fn style(cause: Cause) -> (&'static str, char) {
    match cause {
        Cause::InterruptsOff => ("\x1b[31m", 'I'),
        Cause::PreemptionOff => ("\x1b[35m", 'P'),
        Cause::ThreadInterference => ("\x1b[33m", 'H'),
        Cause::IrqInterference => ("\x1b[34m", 'X'),
        Cause::SoftirqInterference => ("\x1b[36m", 'S'),
        Cause::LateTimer => ("\x1b[91m", 'L'),
        Cause::Firmware => ("\x1b[95m", 'F'),
        Cause::IdleExit => ("\x1b[32m", 'Z'),
        Cause::KernelOverhead => ("\x1b[2m", '.'),
        Cause::Running => ("\x1b[92m", 'W'),
        Cause::Waiting => ("\x1b[94m", 'B'),
        Cause::Unknown => ("\x1b[2m", '?'),
    }
}

/// Writes the latency as a line of letters. Each row has at least one column while there is room.
fn write_timeline(text: &mut String, incident: &Incident, rows: &[Row<'_>]) {
    let begin = incident.question.begin();
    let length = (incident.question.end - begin).max(1);
    let at = |column: usize| begin + (length as u128 * column as u128 / TIMELINE_WIDTH as u128) as u64;
    text.push_str("  ");
    for column in 0..TIMELINE_WIDTH {
        let (from, to) = (at(column), at(column + 1));
        let share = |row: &&Row<'_>| row.time.1.min(to).saturating_sub(row.time.0.max(from));
        // A short row that begins here has priority, because it would be invisible otherwise. Else
        // the row with the largest share of the column is shown.
        let begins = |row: &&Row<'_>| row.time.0 >= from && row.time.0 < to && row.time.1 <= to;
        let is_of_others =
            |row: &&Row<'_>| row.main().is_some_and(|main| main.cause != Cause::KernelOverhead);
        let short = rows.iter().filter(begins).filter(is_of_others).max_by_key(share);
        let row = short.or_else(|| rows.iter().max_by_key(share));
        let Some(main) = row.and_then(Row::main) else { continue };
        let (colour, letter) = style(main.cause);
        let _ = write!(text, "{colour}{letter}{END}");
    }
    let (left, right) = match &incident.job {
        Some(job) => (job.released_by.words(), "end"),
        None if incident.question.intended == 0 => ("woken", "running"),
        None => ("timer due", "running"),
    };
    let room = TIMELINE_WIDTH - left.chars().count() - right.len();
    let _ = writeln!(text, "\n  {left}{:room$}{right}\n", "");
}

fn write_shares(text: &mut String, incident: &Incident) {
    for share in &incident.causes {
        let (colour, letter) = style(share.cause);
        let bar = "█".repeat((share.percent / 100.0 * BAR_WIDTH as f64).round() as usize);
        let time = units::format_duration(share.ns as f64);
        let _ = writeln!(
            text,
            "  {colour}{letter}{END} {:>5.1} % {time:>10}  {:<24}{colour}{bar}{END}",
            share.percent,
            share.cause.words()
        );
    }
    text.push('\n');
}

fn write_rows(text: &mut String, incident: &Incident, rows: &[Row<'_>]) {
    let begin = incident.question.begin();
    let _ = writeln!(text, "{DIM}  {:>11} {:>10}  CPU  {END}", "from", "for");
    for row in rows {
        let Some(segment) = row.main() else { continue };
        let (colour, letter) = style(segment.cause);
        let from = match row.time.0 - begin {
            0 => "0".into(),
            ns => units::format_duration(ns as f64),
        };
        let time = units::format_duration(row.length() as f64);
        let description = segment.in_words() + &row.describe_others();
        let _ = writeln!(
            text,
            "  {:>11} {time:>10}  {:>3}  {colour}{letter}{END} {}",
            format!("+{from}"),
            segment.cpu,
            escape_control(&description)
        );
    }
    if let Some(note) = rows::note(incident.segments.len(), rows.len()) {
        let _ = writeln!(text, "{DIM}  {note}{END}");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns an incident of 100 µs, of a thread of this name.
    fn incident(name: &str, job: Option<&str>) -> Incident {
        let party = json!({ "tid": 18568, "name": name, "priority": "rt 80" });
        let job =
            job.map(|name| json!({ "name": name, "released_by": "wake-up", "wake": null, "begin_ns": 0 }));
        let question = json!({
            "intended": 0, "fired": 0, "woken": 1, "end": 100_001, "tid": 18568, "priority": 19, "cpu": 2
        });
        let incident = json!({
            "schema": 1, "tompion": "0", "time_ns": 0, "ahead_ns": 0, "latency_ns": 100_000, "limit_ns": 50_000,
            "thread": party, "pid": 1, "before": party, "class": "wakeup", "job": job, "question": question,
            "causes": [], "segments": [], "not_saved_before": 0, "problems": []
        });
        serde_json::from_value(incident).expect("an incident")
    }

    #[test]
    fn given_a_long_latency_then_its_timeline_shows_the_main_causes_unless_all_is_given() {
        let segment = |number: u64| {
            let (begin, cause) = (1 + number / 2 * 1000, number % 2);
            let (begin, end) = if cause == 0 { (begin, begin + 990) } else { (begin + 990, begin + 1000) };
            let (cause, who) =
                if cause == 0 { ("thread-interference", "hog") } else { ("irq-interference", "tick") };
            json!({ "begin": begin, "end": end, "cpu": 2, "cause": cause, "who": who })
        };
        let segments = (0..200).map(segment).collect::<Vec<_>>();
        let segments = serde_json::from_value(segments.into()).expect("segments");
        let late = Incident { segments, ..incident("ctl", None) };
        let (folded, all) =
            (incident_text(&late, Path::new("x"), false), incident_text(&late, Path::new("x"), true));
        let count = |text: &str, letter: &str| text.matches(&format!("m{letter}\x1b")).count();
        assert_eq!((count(&folded, "H"), count(&folded, "X")), (TIMELINE_WIDTH + 1, 0), "{folded}");
        assert!(folded.contains("hog (thread 0) ran, at equal or higher priority; +100 interrupts, 1.00 µs"));
        assert!(folded.contains("200 pieces in 1 line; --all shows each"), "{folded}");
        assert!(count(&all, "X") > 100 && !all.contains("--all"), "{all}");
    }

    #[test]
    fn given_a_thread_without_a_name_then_the_sentence_has_its_number() {
        assert_eq!(sentence(&incident("ctl", None)), "ctl (thread 18568, rt 80) ran 100 µs late on CPU 2");
        assert_eq!(sentence(&incident("", None)), "thread 18568 (rt 80) ran 100 µs late on CPU 2");
        let late = sentence(&incident("", Some("motor:control")));
        assert_eq!(late, "motor:control (thread 18568, rt 80) took 100 µs on CPU 2, of 50.0 µs at most");
        let late = sentence(&incident("motor", Some("motor:control")));
        assert!(late.starts_with("motor:control (motor, thread 18568, rt 80) took"), "{late}");
    }
}
