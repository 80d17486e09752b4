//! Firings of triggers as text.

use std::io::{self, Write};

use tompion_control::Firing;
use tompion_manifest::{self as manifest, TriggerChange};
use tompion_terminal::messages::{escape_control, pluralize};

/// Describes a firing in a line.
pub fn describe_firing(firing: &Firing) -> String {
    let Firing { trigger, cause, suppressed, captures, .. } = firing;
    let fields = captures.first().map(|capture| serde_json::Value::Object(capture.fields.clone()));
    let fields = fields.map_or_else(String::new, |fields| format!(" {fields}"));
    let more = if *suppressed == 0 { String::new() } else { format!(" ({suppressed} suppressed before)") };
    escape_control(&format!("{cause}{fields}: {trigger}{more}")).into_owned()
}

/// Writes how often triggers have changed and fired, and the last firing with its first event.
/// `moment` shows a time.
///
/// # Errors
/// Those of the output.
pub fn write_triggers(
    changes: &[TriggerChange],
    firings: &[manifest::Firing],
    moment: &dyn Fn(i64) -> String,
    output: &mut dyn Write,
) -> io::Result<()> {
    if let Some(change) = changes.last() {
        let times = pluralize(changes.len() as u64, "time");
        writeln!(output, "triggers     changed {times}, last at {}", moment(change.time_ns))?;
    }
    let Some(last) = firings.last() else { return Ok(()) };
    let (times, at) = (pluralize(firings.len() as u64, "firing"), moment(last.time_ns));
    let incident = if last.incident.is_empty() { "" } else { ", incident " };
    writeln!(output, "triggers     {times}, last at {at}{incident}{}", escape_control(&last.incident))?;
    writeln!(output, "             {}: {}", escape_control(&last.trigger), escape_control(&last.cause))?;
    if let Some(capture) = last.captures.first() {
        let fields = serde_json::Value::Object(capture.fields.clone()).to_string();
        writeln!(output, "             {} {}", escape_control(&capture.event), escape_control(&fields))?;
    }
    Ok(())
}
