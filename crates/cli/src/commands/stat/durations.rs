//! Tables of durations.

use std::io::Write;

use tompion_analysis::durations::{Duration, Durations};

use super::{MAX_ROWS, more};
use crate::messages::{escape_control, with_thousands};
use crate::units;

/// Writes a table for each kind that the trace has.
pub fn write(durations: &Durations, output: &mut dyn Write) -> std::io::Result<()> {
    let tables =
        [("jobs", &durations.jobs), ("spans", &durations.spans), ("system calls", &durations.syscalls)];
    for (title, rows) in tables.into_iter().filter(|(_, rows)| !rows.is_empty()) {
        write_table(title, rows, output)?;
    }
    let mut all = tables.into_iter().flat_map(|(_, rows)| rows);
    if all.any(|row| row.unfinished > 0) {
        writeln!(output, "\nunfinished: begin or end not seen; counted nowhere else")?;
    }
    Ok(())
}

fn write_table(title: &str, rows: &[Duration], output: &mut dyn Write) -> std::io::Result<()> {
    let has_deadlines = rows.iter().any(|row| row.late.is_some());
    let late = if has_deadlines { format!("{:>10}", "late") } else { String::new() };
    writeln!(output, "\n{title}")?;
    writeln!(
        output,
        "  {:>10}{late}  {:>10}  {:>10}  {:>10}  {:>10}  name",
        "count", "total", "p50", "p99", "max"
    )?;
    for row in rows.iter().take(MAX_ROWS) {
        let time = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| units::format_duration(ns as f64));
        let late = row.late.map_or("-".to_owned(), with_thousands);
        let late = if has_deadlines { format!("{late:>10}") } else { String::new() };
        let unfinished = match row.unfinished {
            0 => String::new(),
            unfinished => format!("  (+ {} unfinished)", with_thousands(unfinished)),
        };
        writeln!(
            output,
            "  {:>10}{late}  {:>10}  {:>10}  {:>10}  {:>10}  {}{unfinished}",
            with_thousands(row.count),
            time(row.max_ns.map(|_| row.total_ns)),
            time(row.p50_ns),
            time(row.p99_ns),
            time(row.max_ns),
            escape_control(&row.name)
        )?;
    }
    more(rows.len(), output)
}
