//! A table as text: one frame of a terminal.

use std::fmt::Write;

use tompion_control::Mode;
use tompion_terminal::{
    messages::{escape_control, pluralize, with_thousands},
    screen::{BOLD, DIM, END, RED, YELLOW, fit},
};

use crate::table::{Process, Recording, Table};

/// Width of the column of names.
const NAME: usize = 26;

/// Returns as much of a table as a terminal of these columns and rows has room for.
pub fn frame(table: &Table, size: (u16, u16)) -> String {
    fit(&text(table), size)
}

/// Returns the whole table.
fn text(table: &Table) -> String {
    let mut text = String::new();
    let count = pluralize(table.recordings.len() as u64, "recording");
    let processes: usize = table.recordings.iter().map(|recording| recording.processes.len()).sum();
    let seconds = table.interval_ns as f64 / 1e9;
    // Writing to a string does not fail, here and below.
    let _ = writeln!(
        text,
        "{count}, {}; rates of the last {seconds:.1} s\n",
        pluralize(processes as u64, "process")
    );
    if table.recordings.is_empty() {
        let _ = writeln!(text, "no recording of this user is running");
    } else {
        let _ = writeln!(
            text,
            "{DIM}{:<NAME$} {:>11} {:>10} {:>8} {:>10} {:>5} {:>8} {:>8} {:>6}{END}",
            "recording, processes",
            "events/s",
            "bytes/s",
            "lost/s",
            "lost",
            "full",
            "history",
            "rings",
            "CPU"
        );
    }
    table.recordings.iter().for_each(|recording| write_recording(recording, &mut text));
    for line in &table.silent {
        let _ = writeln!(text, "{YELLOW}{}{END}", escape_control(line));
    }
    text
}

fn write_recording(recording: &Recording, text: &mut String) {
    let cpu = recording.cpu.map_or_else(|| "–".into(), |share| format!("{:.1}%", share * 100.0));
    let _ = writeln!(
        text,
        "{BOLD}{}{END} {} {:>5} {:>8} {:>8} {cpu:>6}",
        name(&recording.name, NAME),
        rates(recording.events_per_s, recording.bytes_per_s, lost(recording.lost_per_s, recording.lost)),
        "",
        "",
        bytes(recording.ring_bytes as f64),
    );
    for process in &recording.processes {
        write_process(process, recording.mode, text);
    }
    let mut remarks = Vec::new();
    if recording.ended > 0 {
        remarks.push(format!("{} ended", pluralize(recording.ended, "process")));
    }
    if recording.kernel {
        remarks.push("the kernel's events are in no number".into());
    }
    if !remarks.is_empty() {
        let _ = writeln!(text, "{DIM}  {}{END}", remarks.join("; "));
    }
}

fn write_process(process: &Process, mode: Mode, text: &mut String) {
    let label = format!("{} ({})", process.name, process.pid);
    let history = match process.history_s {
        Some(seconds) => span(seconds),
        None if mode == Mode::Overwrite => "–".into(),
        None => String::new(),
    };
    let _ = writeln!(
        text,
        "  {} {} {:>4}% {history:>8}",
        name(&label, NAME - 2),
        rates(process.events_per_s, process.bytes_per_s, lost(process.lost_per_s, process.lost)),
        process.fill_percent,
    );
}

/// The cells of rates and losses.
fn rates(events_per_s: f64, bytes_per_s: f64, lost: String) -> String {
    format!("{:>11} {:>10} {lost}", with_thousands(events_per_s.round() as u64), bytes(bytes_per_s))
}

/// The cells of losses; they stand out if there are any.
fn lost(per_second: f64, lost: Option<u64>) -> String {
    let total = lost.map_or_else(|| "unknown".into(), with_thousands);
    let cells = format!("{:>8} {total:>10}", with_thousands(per_second.ceil() as u64));
    if lost == Some(0) { cells } else { format!("{RED}{cells}{END}") }
}

/// A name that takes just this room.
fn name(name: &str, width: usize) -> String {
    let name = escape_control(name);
    match name.chars().count() {
        ..=NAME if name.chars().count() <= width => format!("{name:<width$}"),
        _ => name.chars().take(width - 1).chain(['…']).collect(),
    }
}

/// Bytes in binary units, in at most seven characters.
fn bytes(bytes: f64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes, "B");
    for larger in units {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    let digits = usize::from(unit != "B" && value < 9.95);
    format!("{value:.digits$} {unit}")
}

/// A time span, in at most seven characters.
fn span(seconds: f64) -> String {
    match seconds {
        ..0.0995 => format!("{:.1} ms", seconds * 1e3),
        ..99.5 => format!("{seconds:.1} s"),
        ..5970.0 => format!("{:.0} min", seconds / 60.0),
        ..356_400.0 => format!("{:.0} h", seconds / 3600.0),
        _ => "> 4 d".into(),
    }
}

#[cfg(test)]
mod tests {
    use tompion_control::Mode;
    use tompion_terminal::screen::plain;

    use super::*;
    use crate::{
        look::Silent,
        table::tests::{found, looks, process},
    };

    #[test]
    fn a_frame_shows_rates_losses_and_history() {
        let before = found("flight", Mode::Overwrite, vec![process(41, 0, Some(0)), process(42, 0, None)]);
        let mut after =
            found("flight", Mode::Overwrite, vec![process(41, 200_000, Some(0)), process(42, 20, None)]);
        after.status.ended_processes = 3;
        let (before, mut after) = looks(vec![before], vec![after]);
        let error = "the recorder web does not answer".into();
        after.silent.push(Silent { name: "web".into(), error });
        let shown = plain(&frame(&Table::between(&before, &after), (100, 30)));
        let expected = "\
1 recording, 2 processes; rates of the last 2.0 s

recording, processes          events/s    bytes/s   lost/s       lost  full  history    rings    CPU
flight                         100,010    3.1 MiB        0    unknown                 2.0 MiB   0.0%
  program-41 (41)              100,000    3.1 MiB        0          0   50%    0.2 s
  program-42 (42)                   10      320 B        0    unknown   50%   36 min
  3 processes ended
the recorder web does not answer";
        assert_eq!(shown, expected, "\n{shown}");
        let lines = frame(&Table::between(&before, &after), (20, 3));
        assert!(plain(&lines).lines().all(|line| line.chars().count() <= 20), "{lines}");
    }

    #[test]
    fn numbers_have_their_units() {
        let sizes = [0.0, 999.0, 1000.0, 10_240.0, 5e6, 3e12].map(bytes);
        assert_eq!(sizes, ["0 B", "999 B", "1.0 KiB", "10 KiB", "4.8 MiB", "2.7 TiB"]);
        assert_eq!(
            [0.01, 1.0, 90.0, 120.0, 7200.0, 1e9].map(span),
            ["10.0 ms", "1.0 s", "90.0 s", "2 min", "2 h", "> 4 d"]
        );
        assert_eq!(name("a-name-that-is-too-long", 8), "a-name-…");
    }
}
