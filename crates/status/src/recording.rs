//! A recording's state as text.

use std::io::Write;

use jiff::{SpanRound, Timestamp, Unit, tz::TimeZone};
use tompion_control::{Following, Mode, Process, Rules, Status};
use tompion_schema::Level;
use tompion_terminal::messages::{command_line, escape_control, pluralize, with_thousands};

/// Maximum number of rows of each list.
const MAX_ROWS: usize = 20;

/// Writes the state of a recording, with a row for each process.
///
/// # Errors
/// If the output can't be written.
pub fn write_recording(status: &Status, output: &mut dyn Write) -> std::io::Result<()> {
    let sets = status.programs.iter().map(|set| escape_control(set)).collect::<Vec<_>>().join(" or ");
    let what = match (&status.command[..], &status.programs[..]) {
        ([], []) => "processes that ran already".to_owned(),
        ([], _) => format!("programs: {sets}"),
        (words, []) => command_line(words),
        (words, _) => format!("{} and programs: {sets}", command_line(words)),
    };
    let kernel = if status.kernel { " and the kernel" } else { "" };
    let is_flight_recorder = status.mode == Mode::Overwrite;
    let mode = if is_flight_recorder { "flight recorder" } else { "writes everything" };
    writeln!(output, "{:<12} {what}{kernel}", escape_control(&status.name))?;
    writeln!(output, "  recorder   process {}, {mode}, {}", status.pid, since(status.begin_ns))?;
    writeln!(output, "  trace      {}", escape_control(&status.folder))?;
    writeln!(output, "  rules      {}", describe_all_rules(status))?;
    writeln!(output, "  memory     {}", memory(status))?;
    let saved = if is_flight_recorder { "saved events" } else { "events" };
    let rows = status.processes.iter().take(MAX_ROWS);
    if status.processes.is_empty() {
        writeln!(output, "  processes  none now")?;
    } else {
        writeln!(
            output,
            "  {:>9} {:<16} {saved:>15} {:>12}  {:<11} command",
            "process", "name", "lost", "rules"
        )?;
    }
    for process in rows {
        write_process(process, output)?;
    }
    if let Some(more @ 1..) = status.processes.len().checked_sub(MAX_ROWS) {
        writeln!(output, "  and {} more; tompion status --json lists all", with_thousands(more as u64))?;
    }
    if status.ended_processes != 0 {
        let (ended, events) = (status.ended_processes, status.ended_events);
        let lost: u64 = status.ended_lost.iter().fold(0, |sum, loss| sum.saturating_add(loss.events));
        writeln!(
            output,
            "  ended      {}: {}, {} lost",
            pluralize(ended, "process"),
            pluralize(events, "event"),
            with_thousands(lost)
        )?;
    }
    if status.rejected_processes != 0 {
        writeln!(output, "  NOT RECORDED {}", pluralize(status.rejected_processes, "process"))?;
    }
    for refusal in &status.refused {
        let count = pluralize(refusal.programs, "program");
        writeln!(output, "  refused    {count} ({})", escape_control(&refusal.reason))?;
    }
    for problem in status.problems.iter().take(MAX_ROWS) {
        writeln!(output, "  problem    {}", escape_control(problem))?;
    }
    Ok(())
}

fn write_process(process: &Process, output: &mut dyn Write) -> std::io::Result<()> {
    let lost = match (
        process.losses_unknown,
        process.lost.iter().map(|loss| loss.events).fold(0, u64::saturating_add),
    ) {
        (true, _) => "unknown".to_owned(),
        (false, lost) => with_thousands(lost),
    };
    let rules = match process.rules {
        Following::Current => "current",
        Following::Pending => "pending",
        Following::Fixed => "fixed",
        Following::Unreachable => "unreachable",
    };
    writeln!(
        output,
        "  {:>9} {:<16} {:>15} {lost:>12}  {rules:<11} {}",
        process.pid,
        escape_control(&process.name),
        with_thousands(process.events),
        command_line(&process.command_line)
    )
}

/// Says when a recording began, and how long ago that is.
fn since(begin_ns: u64) -> String {
    let Ok(begin) = Timestamp::from_nanosecond(begin_ns.into()) else {
        return "since an unknown time".into();
    };
    let at = begin.to_zoned(TimeZone::system());
    let past = Timestamp::now().since(begin).and_then(|span| {
        let round = SpanRound::new().smallest(Unit::Second).largest(Unit::Day).days_are_24_hours();
        span.round(round)
    });
    let past = past.map_or_else(|_| String::new(), |past| format!(" ({past:#})"));
    format!("since {}{past}", at.strftime("%Y-%m-%d %H:%M:%S"))
}

/// Describes rules in one line.
pub fn describe_rules(rules: &Rules, changes: u32) -> String {
    let list =
        |globs: &[String]| globs.iter().map(|glob| escape_control(glob).into_owned()).collect::<Vec<_>>();
    let mut text = match list(&rules.include) {
        all if all == ["*"] => "all events".to_owned(),
        none if none.is_empty() => "no events".to_owned(),
        globs => globs.join(", "),
    };
    if !rules.exclude.is_empty() {
        text += &format!(" without {}", list(&rules.exclude).join(", "));
    }
    if rules.level < Level::LOWEST.number() {
        text += &format!(", level {} or more severe", Level::from_number(rules.level).name());
    }
    if let Some(filter) = &rules.filter {
        text += &format!(", if {}", escape_control(filter));
    }
    match changes {
        0 => text,
        1 => text + " (changed once)",
        times => text + &format!(" (changed {times} times)"),
    }
}

/// Describes the rules of a recording in one line, with those of the kernel's events.
pub fn describe_all_rules(status: &Status) -> String {
    let kernel = || format!("; kernel events {}", describe_words(&status.kernel_events));
    describe_rules(&status.rules, status.rule_changes) + &status.kernel.then(kernel).unwrap_or_default()
}

/// Describes words that choose kernel events.
pub fn describe_words(words: &[String]) -> String {
    let name = |word: &String| match word.as_str() {
        "" => "by default".to_owned(),
        word => escape_control(word).into_owned(),
    };
    words.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Says how much memory the rings take at most. Pages that were never written are not taken.
fn memory(status: &Status) -> String {
    let each = status.ring_bytes_per_process;
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let all = mib(ring_bytes(status));
    match status.memory {
        Some(memory) => format!("rings of at most {all} of {}, shared out to programs", mib(memory)),
        None => format!("rings of at most {} per process, {all} in all", mib(each)),
    }
}

/// Returns the bytes that the rings of all processes may take.
pub fn ring_bytes(status: &Status) -> u64 {
    // Recorders of before have one size for all.
    let of = |process: &Process| match process.ring_bytes_in_all {
        0 => status.ring_bytes_per_process,
        bytes => bytes,
    };
    status.processes.iter().map(of).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_described_in_a_line() {
        let all = Rules { include: vec!["*".into()], exclude: Vec::new(), level: 14, filter: None };
        assert_eq!(describe_rules(&all, 0), "all events");
        let some = Rules {
            include: vec!["db:*".into(), "net:*".into()],
            exclude: vec!["db:noise".into()],
            level: 6,
            filter: Some("rows > 1".into()),
        };
        assert_eq!(
            describe_rules(&some, 2),
            "db:*, net:* without db:noise, level info or more severe, if rows > 1 (changed 2 times)"
        );
        assert_eq!(describe_rules(&Rules { include: Vec::new(), ..all }, 1), "no events (changed once)");
    }
}
